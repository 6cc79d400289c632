//! A scripted machine as a host: enough feedback to record, replay and explain whole runs without a simulation.
//!
//! Every task runs alone on its context for the whole tick, at 2.2e8 cycles per 100 ms. Tasks of one app that share
//! data cause coherence inside the domain while the app is on one package, otherwise outside it; pages are where the
//! task started.

use crate::{DEFAULTS, Header, HostDescription, RecordWriter};
use cotenant_model::Decision;
use cotenant_model::action::{Action, ActionOutcome, Evidence, Order, Outcome, PlaceKind, Proposal, Reason, Unit};
use cotenant_model::cpuset::CpuSet;
use cotenant_model::host::{Host, HostError, Mode, Wake, drive};
use cotenant_model::ids::{AppId, CpuId, NodeId, TaskId, Time};
use cotenant_model::policy::{Config, Ctx, DynPolicy, NoSettings, Policy};
use cotenant_model::profile::{MachineProfile, Thresholds};
use cotenant_model::sample::{AppSample, CpuSample, Sample, TaskInfo, TaskSample};
use cotenant_model::signal::{Count, Counters, Signal};
use cotenant_model::testing::machine;
use cotenant_model::topology::Topology;
use cotenant_model::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Cycles of a task in a tick: 2.2 GHz, SAM's machine.
const CYCLES: u64 = 220_000_000;
/// Length of a tick, nanoseconds.
const TICK_NS: u64 = 100_000_000;

/// Counts of every task.
const SIGNALS: [Signal; 8] = [
    Signal::Cycles,
    Signal::Instructions,
    Signal::LlcMisses,
    Signal::Inter,
    Signal::Intra,
    Signal::Remote,
    Signal::LocalDram,
    Signal::CpuTime,
];

/// A task of the script.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its application; tasks are numbered in the order of the script.
    pub app: u32,
    /// Its first CPU.
    pub cpu: u32,
    /// Coherence events per tick.
    pub sharing: u64,
    /// Last-level misses per tick.
    pub misses: u64,
    /// Its first tick.
    pub from: u64,
    /// The first tick after its end.
    pub until: u64,
}

impl Role {
    /// A task that only computes, for the whole run.
    pub const fn new(app: u32, cpu: u32) -> Self {
        Self { app, cpu, sharing: 0, misses: 1_000, from: 0, until: u64::MAX }
    }
}

/// The machine. Ends after the given number of ticks.
#[derive(Clone, Debug)]
pub struct Scripted {
    topology: Topology,
    script: Vec<Role>,
    infos: Vec<Arc<TaskInfo>>,
    cpus: Vec<CpuId>,
    counters: Vec<Counters>,
    busy: BTreeMap<CpuId, u64>,
    tick: u64,
    ticks: u64,
    /// Tasks whose moves are denied.
    pub denied: BTreeSet<TaskId>,
}

impl Scripted {
    /// A machine of two packages of ten cores with two contexts each that plays `script` for `ticks` ticks.
    pub fn new(script: &[Role], ticks: u64) -> Self {
        let topology = machine(2, 1, 10, 2);
        let info = |(i, role): (usize, &Role)| {
            let (id, app) = (TaskId(i as u32), AppId(role.app));
            let comm = format!("worker{i}");
            let allowed = topology.usable().clone();
            Arc::new(TaskInfo {
                id,
                app,
                tid: 1_000 + id.0,
                pid: 500 + role.app,
                start_ticks: 1,
                comm,
                allowed,
                old: false,
            })
        };
        Self {
            infos: script.iter().enumerate().map(info).collect(),
            cpus: script.iter().map(|role| CpuId(role.cpu)).collect(),
            counters: vec![SIGNALS.iter().map(|signal| (*signal, Count::exact(0))).collect(); script.len()],
            busy: topology.usable().iter().map(|cpu| (cpu, 0)).collect(),
            script: script.to_vec(),
            topology,
            tick: 0,
            ticks,
            denied: BTreeSet::new(),
        }
    }

    fn alive(&self) -> impl Iterator<Item = usize> {
        self.script.iter().enumerate().filter(|(_, r)| (r.from..r.until).contains(&self.tick)).map(|(i, _)| i)
    }

    fn play(&mut self) {
        let alive: Vec<usize> = self.alive().collect();
        for &i in &alive {
            let (role, package) = (self.script[i], self.topology.package_of(self.cpus[i]));
            let apart = alive
                .iter()
                .any(|&j| self.script[j].app == role.app && self.topology.package_of(self.cpus[j]) != package);
            let away = self.topology.node_of(self.cpus[i]) != self.topology.node_of(CpuId(role.cpu));
            let (inter, intra) = if apart { (role.sharing, 0) } else { (0, role.sharing) };
            let (remote, local) = if away { (role.misses, 0) } else { (0, role.misses) };
            let instructions = if apart { CYCLES / 2 } else { CYCLES };
            let events = [CYCLES, instructions, role.misses + inter, inter, intra, remote, local, TICK_NS];
            for (signal, events) in SIGNALS.into_iter().zip(events) {
                let old = self.counters[i].get(signal).unwrap_or_default();
                self.counters[i].set(signal, Count::exact(old.value + events));
            }
            *self.busy.entry(self.cpus[i]).or_default() += TICK_NS;
        }
    }
}

impl Host for Scripted {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let task = |i: usize| TaskSample {
            info: self.infos[i].clone(),
            cpu: Some(self.cpus[i]),
            counters: self.counters[i].clone(),
            pages_by_node: self
                .topology
                .node_of(CpuId(self.script[i].cpu))
                .map(|node| vec![(NodeId(node as u32), 1_000)]),
            touches_by_node: None,
        };
        let apps: BTreeSet<u32> = self.alive().map(|i| self.script[i].app).collect();
        let app = |id: u32| AppSample {
            id: AppId(id),
            name: format!("program{id}"),
            progress: Some(self.tick * 10),
            ..AppSample::default()
        };
        Ok(Sample {
            at: Time(self.tick * TICK_NS),
            tasks: self.alive().map(task).collect(),
            cpus: self.busy.iter().map(|(&id, &busy_ns)| CpuSample { id, busy_ns }).collect(),
            apps: apps.into_iter().map(app).collect(),
            numa_balancing: self.tick % 40 >= 20,
        })
    }

    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let alive: BTreeSet<usize> = self.alive().collect();
        let mut one = |order: &Order| {
            let Some(task) = order.action.task() else { return Outcome::NotThisMachine };
            if !alive.contains(&task.index()) {
                return Outcome::Gone;
            }
            if self.denied.contains(&task) {
                return Outcome::Denied;
            }
            if let Action::Place { contexts, .. } = &order.action
                && let Some(cpu) = contexts.first()
            {
                self.cpus[task.index()] = cpu;
            }
            Outcome::Applied
        };
        orders.iter().map(&mut one).collect()
    }

    fn wait(&mut self, _until: Time) -> Wake {
        if self.tick == self.ticks {
            return Wake::Exit;
        }
        self.tick += 1;
        self.play();
        Wake::Tick
    }
}

/// A policy for tests of the code around policies: it gathers tasks with much coherence outside their package on the
/// first package, and skips a task for one round after a failed move.
#[derive(Clone, Copy, Debug)]
pub struct Gather;

impl Policy for Gather {
    const SECTION: &'static str = "gather";
    type State = ();
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "gather"
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, outcomes: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
        let threshold = ctx.machine.thresholds.map_or(f64::INFINITY, |t| t.coherence_per_cycle);
        let failed = |task| outcomes.iter().any(|o| o.action.task() == Some(task) && o.outcome != Outcome::Applied);
        let mut taken: CpuSet = view.tasks.iter().filter_map(|t| t.cpu).collect();
        let mut proposals = Vec::new();
        for task in &view.tasks {
            let id = task.info.id;
            let Some(value) = task.per_cycle(Signal::Inter).filter(|v| *v > threshold) else { continue };
            let home = task.cpu.and_then(|cpu| ctx.topology.package_of(cpu)) == Some(0);
            let free = ctx.topology.package_contexts()[0].iter().find(|cpu| !taken.contains(**cpu));
            let (false, false, Some(&free)) = (home, failed(id), free) else { continue };
            taken.insert(free);
            let evidence = Some(Evidence { signal: Signal::Inter, unit: Unit::PerCycle, value, threshold });
            let what = "colocate with {app} on {place}".into();
            let (app, place) = (Some(task.info.app), Some((PlaceKind::Package, 0)));
            let reason = Reason { stage: "stage 1".into(), evidence, what, app, task: None, place };
            proposals.push(Proposal { action: Action::Place { task: id, contexts: CpuSet::single(free) }, reason });
        }
        let notes = outcomes
            .iter()
            .filter(|o| o.outcome != Outcome::Applied)
            .filter_map(|o| Some(format!("task {} could not be moved: {:?}", o.action.task()?, o.outcome)))
            .collect();
        Decision::new(proposals, (), now + ctx.config.interval, notes)
    }
}

/// The header of a recording of [`Scripted`] under a policy, with SAM's thresholds.
pub fn header(policy: &str, mode: Mode) -> Header {
    Header {
        cotenant: "0.1.0".to_owned(),
        topology: machine(2, 1, 10, 2),
        machine: MachineProfile {
            clock_hz: Some(2.2e9),
            thresholds: Some(Thresholds {
                coherence_per_cycle: 2.5e-4,
                socket_bandwidth_per_s: 7.5e7,
                task_bandwidth_per_s: None,
                remote_per_cycle: Some(1e-3),
            }),
            source: Some("SAM, ATC'15 §2.1–2.2".to_owned()),
            ..MachineProfile::default()
        },
        apps: BTreeMap::new(),
        config: Config::default(),
        defaults: DEFAULTS,
        policy: policy.to_owned(),
        rules: Vec::new(),
        mode,
        seeds: Vec::new(),
        host: HostDescription { kernel: "scripted".to_owned(), tier: "full: scripted".to_owned() },
        command: vec!["program0".to_owned(), "--secret".to_owned()],
        started_unix_s: Some(1_420_070_400),
        redacted: false,
    }
}

/// Records a whole run of a host under a policy.
///
/// # Panics
/// If the host fails; writing to memory cannot.
pub fn record(header: &Header, host: &mut dyn Host, policy: &dyn DynPolicy) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new(), header, u64::MAX).expect("the header is in order");
    drive(host, policy, &header.ctx(), header.mode, |round| {
        writer.round(round).expect("memory takes every write");
    })
    .expect("the host does not fail");
    writer.finish().expect("memory takes every write")
}
