//! Random machines with tasks on them.

use cotenant_model::policy::{Config, Ctx, Settings};
use cotenant_model::profile::{AppProfile, By, High, MachineProfile, Score, Thresholds};
use cotenant_model::testing::{ViewBuilder, parts};
use cotenant_model::topology::notation::topology_order;
use cotenant_model::topology::{Kind, Parts, Resource};
use cotenant_model::{
    Action, ActionOutcome, CpuId, CpuSet, Direction, Outcome, Reading, Sample, Signal, Time, Topology, View, pin::Pin,
};
use cotenant_policies::{Atom, Static, StaticSettings};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CYCLES: u64 = 220_000_000;

/// Activity of a task in an interval of 100 ms.
#[derive(Clone, Copy, Debug)]
pub struct Signals {
    /// Idle, or busy with sharing across sockets, inside one, memory, remote memory, or computation only.
    pub class: u8,
    /// Bits of absent signals: inter, intra, remote, LLC misses, cycles, CPU time.
    pub absent: u8,
    /// Other variation.
    pub level: u8,
}

impl Arbitrary for Signals {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;
    fn arbitrary_with((): ()) -> Self::Strategy {
        // Mostly everything is counted; each signal is sometimes absent.
        let absent = prop_oneof![4 => Just(0u8), 1 => any::<u8>().prop_map(|bits| bits & 0x3f)];
        // Sharers and memory-bound tasks prevail: only several of them require decisions.
        let class = proptest::sample::select(vec![0u8, 1, 1, 1, 1, 2, 3, 3, 3, 4, 4, 5, 5]);
        (class, absent, any::<u8>()).prop_map(|(class, absent, level)| Self { class, absent, level }).boxed()
    }
}

#[derive(Clone, Debug)]
pub struct Task {
    pub id: u32,
    pub app: u32,
    pub cpu: Option<CpuId>,
    pub allowed: CpuSet,
    pub signals: Signals,
    pub newborn: bool,
    /// A node and the task's number of pages there.
    pub pages: Option<(u32, u64)>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub topology: Topology,
    pub tasks: Vec<Task>,
    machine: MachineProfile,
    apps: BTreeMap<String, AppProfile>,
    pub config: Config,
    busy: Vec<(CpuId, f64)>,
    /// Whether programs report their speeds: the first its progress, the second a latency read four times a second;
    /// both follow their tasks.
    pub tells: bool,
}

pub fn domains_of(topology: &Topology, cpus: &CpuSet) -> BTreeSet<usize> {
    cpus.iter().filter_map(|cpu| topology.llc_of(cpu)).collect()
}

impl World {
    pub fn ctx(&self) -> Ctx<'_> {
        Ctx { topology: &self.topology, machine: &self.machine, apps: &self.apps, config: &self.config }
    }

    fn builder(&self, at: Time) -> ViewBuilder {
        let mut builder = ViewBuilder::new(&self.topology).at(at);
        for task in &self.tasks {
            builder = builder.task(task.id, task.app, task.cpu.map_or(0, |c| c.0)).allowed(&task.allowed.to_string());
            if task.cpu.is_none() {
                builder = builder.nowhere();
            }
            let Signals { class, absent, level } = task.signals;
            let level = 1 + u64::from(level);
            let busy = u64::from(class != 0);
            let much = |is: bool, count: u64| if is { count * level } else { level };
            let counts = [
                (Signal::Inter, much(class == 1, 60_000)),
                (Signal::Intra, much(class == 2, 60_000)),
                (Signal::Remote, much(class == 4, 60_000)),
                (Signal::LlcMisses, much(class == 3 || class == 4, 100_000)),
                (Signal::Cycles, CYCLES),
                (Signal::CpuTime, 100_000_000),
                (Signal::Instructions, CYCLES / 256 * level),
            ];
            for (bit, (signal, count)) in counts.into_iter().enumerate() {
                if absent >> bit & 1 == 0 {
                    builder = builder.signal(signal, count * busy);
                }
            }
            if task.newborn {
                builder = builder.newborn();
            }
            if let Some((node, pages)) = task.pages {
                builder = builder.pages(&[(node, pages)]);
            }
        }
        self.busy.iter().fold(builder, |b, &(cpu, fraction)| b.cpu_busy(cpu.0, fraction))
    }

    pub fn view(&self, at: Time) -> View {
        let mut view = self.builder(at).view();
        for app in view.apps.iter_mut().filter(|_| self.tells) {
            let work = |task: &Task| f64::from(1 + u32::from(task.signals.level));
            let work: f64 = self.tasks.iter().filter(|task| task.app == app.id.0).map(work).sum();
            let (window, direction) = (Duration::from_millis(50), Direction::LowerIsBetter);
            let at = Time(at.0 / 250_000_000 * 250_000_000);
            match app.id.0 {
                0 => app.progress_per_s = Some(work),
                1 => app.metrics.push(("p99".into(), Reading { value: 1.0 / work, direction, window, count: 1, at })),
                _ => {}
            }
        }
        view
    }

    pub fn samples(&self, at: Time) -> (Sample, Sample) {
        self.builder(at).samples()
    }

    /// Gives the tasks new rates, in turn.
    pub fn set_signals(&mut self, signals: &[Signals]) {
        for (task, new) in self.tasks.iter_mut().zip(signals.iter().cycle()) {
            task.signals = *new;
            task.newborn = false;
        }
    }

    /// No task is sampled, and no program reports its speed.
    pub fn fall_silent(&mut self) {
        self.tells = false;
        self.tasks.iter_mut().for_each(|task| task.signals.absent = u8::MAX);
    }

    /// Carries out the applied actions, and removes ended tasks.
    pub fn carry_out(&mut self, outcomes: &[ActionOutcome]) {
        for ActionOutcome { action, outcome } in outcomes {
            let id = action.task().expect("it is about a task").0;
            match (outcome, action) {
                (Outcome::Applied, Action::Place { contexts, .. }) => {
                    let task = self.tasks.iter_mut().find(|t| t.id == id).expect("it was placed");
                    if !task.cpu.is_some_and(|cpu| contexts.contains(cpu)) {
                        task.cpu = contexts.first();
                    }
                }
                (Outcome::Applied, Action::Pages { nodes, .. }) => {
                    let task = self.tasks.iter_mut().find(|t| t.id == id).expect("its memory was moved");
                    task.pages = task.pages.map(|(_, pages)| (nodes[0].0, pages));
                }
                (Outcome::Gone, _) => self.tasks.retain(|t| t.id != id),
                _ => {}
            }
        }
    }

    /// Each task may use whole last-level-cache domains, so that their cores are equal to it.
    pub fn with_whole_domains(mut self) -> Self {
        for task in &mut self.tasks {
            let domains = self.topology.llc_domains();
            task.allowed = domains_of(&self.topology, &task.allowed)
                .into_iter()
                .fold(CpuSet::new(), |all, i| all.or(&domains[i].cpus));
        }
        self
    }

    /// The same world after permuting equal cores inside their domains by these sorting keys.
    pub fn relabelled(&self, keys: &[u8]) -> Self {
        let t = &self.topology;
        let contexts = |core: usize| -> Vec<CpuId> { t.cores()[core].iter().collect() };
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for core in 0..t.cores().len() {
            let cpus = contexts(core);
            let shape: Vec<bool> = cpus.iter().map(|&c| t.usable().contains(c)).collect();
            groups.entry((t.llc_of(cpus[0]), shape)).or_default().push(core);
        }
        let mut image: BTreeMap<CpuId, CpuId> = BTreeMap::new();
        for cores in groups.values() {
            let mut shuffled = cores.clone();
            shuffled.sort_by_key(|&core| (keys.get(core), core));
            for (&from, &to) in cores.iter().zip(&shuffled) {
                image.extend(contexts(from).into_iter().zip(contexts(to)));
            }
        }
        let of = |cpu: CpuId| image.get(&cpu).copied().unwrap_or(cpu);
        let set = |cpus: &CpuSet| cpus.iter().map(of).collect::<CpuSet>();
        let order = topology_order(t);
        let mut config = self.config.clone();
        if let Some(text) = config.settings.of::<Static>().expect("settings").map {
            let letters: BTreeMap<CpuId, char> = order.iter().zip(text.chars()).map(|(&cpu, c)| (of(cpu), c)).collect();
            let map = Some(order.iter().map(|cpu| letters[cpu]).collect());
            config.settings.put("static", &StaticSettings { map });
        }
        let task = |task: &Task| Task { cpu: task.cpu.map(of), allowed: set(&task.allowed), ..task.clone() };
        Self {
            tasks: self.tasks.iter().map(task).collect(),
            busy: self.busy.iter().map(|&(cpu, busy)| (of(cpu), busy)).collect(),
            config,
            ..self.clone()
        }
    }
}

/// Machines of up to 36 CPUs: any numbering, CPUs offline or forbidden, with memory nodes, without, or one for all;
/// some with buses.
fn machines() -> impl Strategy<Value = Topology> {
    let packages = proptest::sample::select(vec![1u32, 2, 2, 2, 3, 3]);
    let shape = (packages, 1u32..=2, 1u32..=3, 1u32..=2);
    let flags = proptest::collection::vec((any::<u8>(), 0u8..8, 0u8..8), 36);
    let bytes = prop_oneof![Just(None), (1u64..16).prop_map(|gib| Some(gib << 30))];
    (shape, flags, 0u8..4, any::<bool>(), any::<bool>(), bytes).prop_map(
        |((packages, llcs, cores, smt), flags, nodes, buses, renumber, bytes)| {
            let mut parts = parts(packages, llcs, cores, smt);
            let mut numbers: Vec<u32> = (0..parts.cpus.len() as u32).collect();
            if renumber {
                numbers.sort_by_key(|&i| (flags[i as usize].0, i));
            }
            let of = |cpu: CpuId| CpuId(numbers[cpu.index()]);
            parts.nodes.iter_mut().for_each(|n| n.bytes = bytes);
            let last = parts.cpus.len() - 1;
            for (cpu, (_, offline, forbidden)) in parts.cpus.iter_mut().zip(&flags) {
                cpu.online = *offline > 0 || cpu.id.index() == last;
                cpu.allowed = *forbidden > 0 || cpu.id.index() == last;
            }
            let online: CpuSet = parts.cpus.iter().filter(|c| c.online).map(|c| c.id).collect();
            let set = |cpus: &CpuSet| cpus.and(&online).iter().map(of).collect::<CpuSet>();
            let package_sets: Vec<Resource> =
                parts.resources.iter().filter(|r| r.kind == Kind::Package).cloned().collect();
            if buses {
                parts.resources.extend(package_sets.into_iter().map(|r| Resource { kind: Kind::Bus, ..r }));
            }
            parts.resources.iter_mut().for_each(|r| r.cpus = set(&r.cpus));
            parts.nodes.iter_mut().for_each(|n| n.cpus = set(&n.cpus));
            parts.cpus.iter_mut().for_each(|c| c.id = of(c.id));
            match nodes {
                0 => parts = Parts { nodes: Vec::new(), distances: None, ..parts },
                1 => {
                    parts.nodes.truncate(1);
                    parts.nodes[0].cpus = online.iter().map(of).collect();
                    parts.distances = None;
                }
                _ => {}
            }
            Topology::new(parts).expect("these parts fit together")
        },
    )
}

/// A score of this many percent, positive if sharing helps.
fn sensitivity(percent: i8) -> Score {
    let rounds = [(100.0, 100.0 - f64::from(percent))];
    Score::of(&rounds, By::Cycles, CpuSet::new(), CpuSet::new()).expect("a round")
}

/// Profiles of `app0` to `app2`, the first one latency-sensitive.
fn profiles() -> impl Strategy<Value = BTreeMap<String, AppProfile>> {
    let profile = |i: usize| {
        let scores =
            proptest::collection::vec((proptest::sample::select(vec!["l3", "node", "bus", "package"]), -2i8..=2), 0..4);
        (0u32..4, 0u32..4, 0u32..4, scores).prop_map(move |(bus, sharing, footprint, scores)| AppProfile {
            sensitivity: scores.into_iter().map(|(name, score)| (name.to_owned(), sensitivity(score))).collect(),
            bus_per_ms: Some(f64::from(bus)),
            sharing: Some(f64::from(sharing) / 4.0),
            footprint_per_ms: Some(f64::from(footprint)),
            latency_sensitive: i == 0,
            ..AppProfile::default()
        })
    };
    (profile(0), profile(1), profile(2)).prop_map(|(a, b, c)| {
        [a, b, c].into_iter().enumerate().map(|(i, profile)| (format!("app{i}"), profile)).collect()
    })
}

pub fn worlds() -> impl Strategy<Value = World> {
    machines().prop_flat_map(|topology| {
        let (online, cpus): (Vec<CpuId>, u32) = (topology.online().iter().collect(), topology.cpus().len() as u32);
        let cpu = prop_oneof![9 => proptest::sample::select(online.clone()).prop_map(Some), 1 => Just(None)];
        let usable = topology.usable().clone();
        let some = proptest::collection::btree_set((0..cpus).prop_map(CpuId), 0..=6)
            .prop_map(|set| set.into_iter().collect::<CpuSet>());
        let allowed = prop_oneof![3 => Just(usable), 1 => some];
        let pages = proptest::option::weighted(0.7, (0u32..3, 0u64..1 << 20));
        let task = (0u32..3, cpu, allowed, any::<Signals>(), proptest::bool::weighted(0.1), pages);
        let slot = proptest::sample::select(vec!['X', '*', 'A', '.']);
        let map = proptest::collection::vec(slot, online.len());
        let busy = proptest::collection::vec((proptest::sample::select(online), 0.0..1.0f64), 0..3);
        let pin = proptest::sample::select(vec![Pin::Cpu, Pin::Llc, Pin::Node]);
        (proptest::collection::vec(task, 0..18), map, busy, pin, profiles()).prop_map(
            move |(tasks, map, mut busy, pin, apps)| {
                busy.sort_by_key(|(cpu, _)| *cpu);
                busy.dedup_by_key(|(cpu, _)| *cpu);
                let mark = |(cpu, letter)| if topology.usable().contains(cpu) { letter } else { '.' };
                let map = topology_order(&topology).into_iter().zip(map).map(mark).collect();
                let tasks = (0..).step_by(3).zip(tasks).map(|(id, (app, cpu, allowed, signals, newborn, pages))| {
                    Task { id, app, cpu, allowed, signals, newborn, pages }
                });
                let thresholds = Thresholds {
                    coherence_per_cycle: 2.5e-4,
                    socket_bandwidth_per_s: 75e6,
                    task_bandwidth_per_s: None,
                    remote_per_cycle: Some(2.5e-4),
                };
                World {
                    tasks: tasks.collect(),
                    machine: MachineProfile {
                        clock_hz: Some(2.2e9),
                        thresholds: Some(thresholds),
                        heuristic: Some(High { sharing: 0.5, footprint_per_ms: 2.0 }),
                        ..MachineProfile::default()
                    },
                    apps,
                    config: Config {
                        pin,
                        // In two of three worlds.
                        move_pages: pin != Pin::Node,
                        settings: Settings::default()
                            .with::<Static>(&StaticSettings { map: Some(map) })
                            .with::<Atom>(&"turn=200ms,rounds=2,classes=6".parse().expect("settings")),
                        ..Config::default()
                    },
                    busy,
                    tells: false,
                    topology: topology.clone(),
                }
            },
        )
    })
}
