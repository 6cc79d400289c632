//! Machines and views by hand, for tests and benchmarks of this crate and of others (feature `testing`).

pub mod malformed;

use crate::action::{Action, Proposal};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, CpuId, NodeId, TaskId, Time};
use crate::policy::Decision;
use crate::sample::{AppSample, CpuSample, Sample, TaskInfo, TaskSample};
use crate::signal::{Count, Signal};
use crate::topology::{CacheType, Cpu, DistanceUnit, Distances, Kind, MemoryNode, Parts, Resource, Topology};
use crate::view::View;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Compares a text with a golden file, line by line. With `COTENANT_BLESS` (`cargo xtask bless`), it writes the file
/// instead.
///
/// # Panics
/// If a line differs.
pub fn golden(file: &Path, now: &str) {
    if std::env::var_os("COTENANT_BLESS").is_some() {
        return fs::write(file, now).expect("a golden file can be written");
    }
    let before = fs::read_to_string(file).expect("there is a golden file");
    for (now, before) in now.lines().zip(before.lines()) {
        assert_eq!(now, before, "if this is meant, COTENANT_BLESS=1 writes {}", file.display());
    }
    assert_eq!(now.lines().count(), before.lines().count(), "lines of {}", file.display());
}

/// Four hexadecimal digits as a digest, for content too long for a golden file. Numbers count to six digits, because
/// logarithms and powers differ in the last bits between platforms.
///
/// # Panics
/// If it cannot be serialised.
pub fn digest(value: &impl Serialize) -> String {
    let mut text = String::new();
    tokens(&serde_json::to_value(value).expect("it is serialised"), &mut text);
    format!("{:04x}", crc32fast::hash(text.as_bytes()) >> 16)
}

fn tokens(value: &Value, text: &mut String) {
    match value {
        Value::Array(all) => {
            for value in all {
                tokens(value, text);
            }
            text.push(']');
        }
        Value::Object(all) => {
            for (key, value) in all {
                text.push_str(key);
                tokens(value, text);
            }
            text.push('}');
        }
        Value::Number(number) => {
            let number = number.as_f64().filter(|number| number.abs() > 1e-12).unwrap_or_default();
            text.extend([format!("{number:.5e}"), ",".into()]);
        }
        other => text.extend([other.to_string(), ",".into()]),
    }
}

/// Two packages of two L2s of two cores (Tang's Clovertown): a bus per package, no level 3, no memory nodes.
///
/// # Panics
/// Never: it is valid.
pub fn clovertown() -> Topology {
    let resource = |kind, level, first, count| Resource {
        kind,
        level,
        cpus: (first..first + count).map(CpuId).collect(),
        capacity: None,
        os_index: None,
        line_size: None,
        ways: None,
    };
    let cpu = |id| Cpu { id: CpuId(id), online: true, allowed: true, efficiency_class: None, coord: None };
    let mut parts = Parts { cpus: (0..8).map(cpu).collect(), ..Parts::default() };
    parts.resources.extend([0, 4].map(|first| resource(Kind::Package, 0, first, 4)));
    parts.resources.extend([0, 4].map(|first| resource(Kind::Bus, 0, first, 4)));
    parts.resources.extend([0, 2, 4, 6].map(|first| resource(Kind::Cache(CacheType::Unified), 2, first, 2)));
    Topology::new(parts).expect("it is sound")
}

/// The parts of [`machine`], for tests that change them first.
///
/// # Panics
/// If a count is 0.
pub fn parts(packages: u32, llcs_per_package: u32, cores_per_llc: u32, smt: u32) -> Parts {
    assert!(packages * llcs_per_package * cores_per_llc * smt > 0, "a machine has at least one of everything");
    let per_package = llcs_per_package * cores_per_llc;
    let cores = packages * per_package;
    // Core `c` has the contexts c, c + cores, c + 2·cores, …
    let contexts = |first: u32, count: u32| -> CpuSet {
        (first..first + count).flat_map(|core| (0..smt).map(move |k| CpuId(core + k * cores))).collect()
    };
    let resource =
        |kind, level, cpus| Resource { kind, level, cpus, capacity: None, os_index: None, line_size: None, ways: None };
    let mut resources = Vec::new();
    for package in 0..packages {
        resources.push(resource(Kind::Package, 0, contexts(package * per_package, per_package)));
    }
    for llc in 0..packages * llcs_per_package {
        resources.push(resource(Kind::Cache(CacheType::Unified), 3, contexts(llc * cores_per_llc, cores_per_llc)));
    }
    for core in 0..cores {
        resources.push(resource(Kind::Core, 0, contexts(core, 1)));
        resources.push(resource(Kind::Cache(CacheType::Unified), 2, contexts(core, 1)));
    }
    let cpu = |id| Cpu { id: CpuId(id), online: true, allowed: true, efficiency_class: None, coord: None };
    let node = |package: u32| MemoryNode {
        id: NodeId(package),
        cpus: contexts(package * per_package, per_package),
        bytes: None,
        allowed: true,
        coord: None,
    };
    let slit = |from, to| if from == to { 10.0 } else { 21.0 };
    Parts {
        name: None,
        cpus: (0..cores * smt).map(cpu).collect(),
        resources,
        nodes: (0..packages).map(node).collect(),
        distances: Some(Distances {
            unit: DistanceUnit::Slit,
            rows: (0..packages).map(|from| (0..packages).map(|to| slit(from, to)).collect()).collect(),
            source: None,
        }),
        ..Parts::default()
    }
}

/// A machine numbered as Linux does on Intel: cores in order of package and LLC domain, siblings `n` and `n + cores`.
/// One memory node per package, SLIT 10 local and 21 remote; private L2 caches.
///
/// # Panics
/// If a count is 0.
pub fn machine(packages: u32, llcs_per_package: u32, cores_per_llc: u32, smt: u32) -> Topology {
    Topology::new(parts(packages, llcs_per_package, cores_per_llc, smt)).expect("these parts fit together")
}

/// Placements and releases of a decision as `task→CPUs`, in its order.
///
/// # Panics
/// If it has actions besides these and pages.
pub fn moves<S>(decision: &Decision<S>) -> String {
    let text = |p: &Proposal| match &p.action {
        Action::Place { task, contexts } => Some(format!("{task}→{contexts}")),
        Action::Release { task } => Some(format!("{task}→")),
        Action::Pages { .. } => None,
        other => panic!("it does no such thing: {other:?}"),
    };
    decision.proposals.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

/// Moves of memory as `task:node`, in a decision's order.
pub fn pages<S>(decision: &Decision<S>) -> String {
    let text = |p: &Proposal| match &p.action {
        Action::Pages { task, nodes } => Some(format!("{task}:{}", nodes[0])),
        _ => None,
    };
    decision.proposals.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

/// Builds samples and views from each task's counts in one interval. Methods about a task concern the one added last.
#[derive(Clone, Debug)]
pub struct ViewBuilder {
    usable: CpuSet,
    interval: Duration,
    at: Option<Time>,
    tasks: Vec<Built>,
    cpus: Vec<(CpuId, f64)>,
}

#[derive(Clone, Debug)]
struct Built {
    info: TaskInfo,
    cpu: Option<CpuId>,
    counts: Vec<(Signal, u64)>,
    pages: Option<Vec<(NodeId, u64)>>,
    new: bool,
}

impl ViewBuilder {
    /// Without tasks, with an interval of 100 ms that ends 100 ms after the start. Tasks are allowed on every usable
    /// CPU.
    pub fn new(topology: &Topology) -> Self {
        Self {
            usable: topology.usable().clone(),
            interval: Duration::from_millis(100),
            at: None,
            tasks: Vec::new(),
            cpus: Vec::new(),
        }
    }

    /// Time between the two samples.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Time of the later sample; without it, one interval after the start.
    #[must_use]
    pub fn at(mut self, at: Time) -> Self {
        self.at = Some(at);
        self
    }

    /// Adds a task, seen on `cpu`. It has no counts until some are given; ids may come in any order.
    #[must_use]
    pub fn task(mut self, id: u32, app: u32, cpu: u32) -> Self {
        let info = TaskInfo {
            id: TaskId(id),
            app: AppId(app),
            tid: 1_000 + id,
            pid: 1_000 + app,
            start_ticks: 1,
            comm: format!("task{id}"),
            allowed: self.usable.clone(),
            old: false,
        };
        self.tasks.push(Built { info, cpu: Some(CpuId(cpu)), counts: Vec::new(), pages: None, new: false });
        self
    }

    /// The task's unhalted cycles in the interval.
    #[must_use]
    pub fn cycles(self, count: u64) -> Self {
        self.signal(Signal::Cycles, count)
    }

    /// The task's events of a signal in the interval.
    #[must_use]
    pub fn signal(self, signal: Signal, count: u64) -> Self {
        self.with(|t| t.counts.push((signal, count)))
    }

    /// The task's allowed CPUs, in list form such as `0-3,8`.
    ///
    /// # Panics
    /// If the text is not a CPU list.
    #[must_use]
    pub fn allowed(self, list: &str) -> Self {
        let allowed = CpuSet::parse_list(list).expect("a CPU list");
        self.with(|t| t.info.allowed = allowed)
    }

    /// The task's resident pages on each node.
    #[must_use]
    pub fn pages(self, by_node: &[(u32, u64)]) -> Self {
        let pages = by_node.iter().map(|&(node, pages)| (NodeId(node), pages)).collect();
        self.with(|t| t.pages = Some(pages))
    }

    /// The task is missing in the earlier sample, so it has no rates.
    #[must_use]
    pub fn newborn(self) -> Self {
        self.with(|t| t.new = true)
    }

    /// The task's CPU is unknown.
    #[must_use]
    pub fn nowhere(self) -> Self {
        self.with(|t| t.cpu = None)
    }

    /// The fraction of the interval that a CPU was busy with any work. Other CPUs' load is unknown.
    #[must_use]
    pub fn cpu_busy(mut self, cpu: u32, fraction: f64) -> Self {
        self.cpus.push((CpuId(cpu), fraction));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Built)) -> Self {
        change(self.tasks.last_mut().expect("a task comes first"));
        self
    }

    /// The two samples, one interval apart. All counts are 0 in the earlier one.
    ///
    /// # Panics
    /// If the later sample is less than an interval after the start.
    pub fn samples(&self) -> (Sample, Sample) {
        let at = self.at.unwrap_or(Time::default() + self.interval);
        let interval_ns = self.interval.as_nanos() as u64;
        let start = Time(at.0.checked_sub(interval_ns).expect("the interval begins after the start"));
        let mut built: Vec<&Built> = self.tasks.iter().collect();
        built.sort_by_key(|t| t.info.id);
        let mut cpus = self.cpus.clone();
        cpus.sort_by_key(|(id, _)| *id);
        let mut apps: Vec<AppId> = built.iter().map(|t| t.info.app).collect();
        apps.sort_unstable();
        apps.dedup();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for t in built {
            let info = Arc::new(t.info.clone());
            let sample = |scale: u64| TaskSample {
                info: info.clone(),
                cpu: t.cpu,
                counters: t.counts.iter().map(|&(signal, count)| (signal, Count::exact(count * scale))).collect(),
                pages_by_node: t.pages.clone(),
                touches_by_node: None,
            };
            if !t.new {
                before.push(sample(0));
            }
            after.push(sample(1));
        }
        let sample = |at, tasks, scale: f64| Sample {
            at,
            tasks,
            cpus: cpus
                .iter()
                .map(|&(id, busy)| CpuSample { id, busy_ns: (busy * interval_ns as f64 * scale).round() as u64 })
                .collect(),
            apps: apps.iter().map(|&id| AppSample { id, name: format!("app{id}"), ..AppSample::default() }).collect(),
            ..Sample::default()
        };
        (sample(start, before, 0.0), sample(at, after, 1.0))
    }

    /// The rates between the two samples.
    pub fn view(&self) -> View {
        let (before, after) = self.samples();
        View::new(&before, &after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_one_machine_apart() {
        // 2 packages × 2 domains × 2 cores × 2 contexts: cores 0–7, siblings n and n + 8.
        let t = machine(2, 2, 2, 2);
        assert_eq!((t.cpus().len(), t.packages().len(), t.llc_domains().len(), t.cores().len()), (16, 2, 4, 8));
        assert_eq!(t.package_contexts()[1], [4, 5, 6, 7, 12, 13, 14, 15].map(CpuId));
        assert_eq!(t.llc_domains()[1].contexts, [2, 3, 10, 11].map(CpuId));
        assert_eq!((t.distance(CpuId(0), 0), t.distance(CpuId(0), 1)), (Some(10.0), Some(21.0)));
    }

    #[test]
    fn counts_become_rates() {
        let t = machine(1, 1, 2, 1);
        let view = ViewBuilder::new(&t)
            .task(7, 1, 1)
            .cycles(200)
            .signal(Signal::Inter, 1)
            .task(3, 0, 0)
            .cycles(200)
            .newborn()
            .cpu_busy(0, 0.5)
            .view();
        assert_eq!(view.tasks.iter().map(|t| t.info.id.0).collect::<Vec<_>>(), [3, 7]);
        assert_eq!(view.tasks[0].per_s(Signal::Cycles), None);
        assert_eq!(view.tasks[1].per_cycle(Signal::Inter), Some(0.005));
        assert_eq!(view.cpu(CpuId(0)).map(|c| c.foreign), Some(0.5));
        assert_eq!(view.cpu(CpuId(1)), None);
        assert_eq!(view.apps.len(), 2);
    }
}
