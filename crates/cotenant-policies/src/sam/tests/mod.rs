//! Hand-worked scenarios.
//!
//! A scene is drawn: one letter per task (its id is its place in the alphabet, so "first" is alphabetical), one
//! column per hardware context in filling order, `.` for a context without a task, `|` between packages, `/` between
//! LLC domains of a package. Thresholds are those of the paper's machine: 2.2 GHz, coherence 2.5e-4/cycle (55,000
//! events in the 2.2e8 cycles of an interval), socket bandwidth 7.5e7 misses/s (7.5e6 in an interval), remote
//! 1e-4/cycle (22,000 in an interval).
//!
//! Holds place/sam.

mod mph;
mod own_app;
mod places;
mod properties;
mod reasons;
mod rounds;
mod stage1;
mod stage2;
mod stage3;
mod thresholds;

use super::{Origin, Sam, SamConfig, SamState};
use cotenant_model::Decision;
use cotenant_model::action::{Action, ActionOutcome, Outcome, Proposal};
use cotenant_model::cpuset::CpuSet;
use cotenant_model::ids::{CpuId, TaskId, Time};
use cotenant_model::policy::{Config, Ctx, Policy};
use cotenant_model::profile::{MachineProfile, Thresholds};
use cotenant_model::signal::Signal;
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::topology::Topology;
use cotenant_model::view::View;
use std::collections::BTreeMap;

/// A state with reluctant moves of these tasks from these units only.
fn from_origins(origins: impl IntoIterator<Item = (TaskId, u32)>) -> SamState {
    let origin = |(task, unit)| Origin { task, unit, displaced: false };
    let mut origins: Vec<Origin> = origins.into_iter().map(origin).collect();
    origins.sort_by_key(|o| o.task);
    origins.dedup_by_key(|o| o.task);
    SamState { origins, ..SamState::default() }
}

/// Cycles of a task that runs all of an interval.
pub const CYCLES: u64 = 220_000_000;
/// Events in an interval at the coherence threshold.
pub const COHERENCE: u64 = 55_000;
/// Events in an interval at the threshold of remote accesses.
pub const REMOTE: u64 = 22_000;
/// LLC misses in an interval at the bandwidth threshold of a socket.
pub const BANDWIDTH: u64 = 7_500_000;

/// A task of a scene.
#[derive(Clone, Debug)]
pub struct Actor {
    pub name: char,
    pub app: u32,
    pub cpu: u32,
    pub counts: BTreeMap<Signal, u64>,
    pub allowed: Option<String>,
    pub pages: Option<Vec<(u32, u64)>>,
    pub newborn: bool,
}

/// A situation, round by round.
#[derive(Clone, Debug)]
pub struct Scene {
    pub topology: Topology,
    pub profile: MachineProfile,
    pub config: Config,
    pub settings: SamConfig,
    pub actors: Vec<Actor>,
    pub state: SamState,
    pub outcomes: Vec<ActionOutcome>,
    pub busy: Vec<(u32, f64)>,
    /// Whether the kernel lets pages follow tasks.
    pub numa_balancing: bool,
    pub now: Time,
    /// Tasks whose next move is denied.
    pub denied: String,
}

/// The task's id.
pub fn id(name: char) -> u32 {
    u32::from(name) - u32::from('a')
}

/// The task's name.
pub fn name(id: TaskId) -> char {
    char::from(b'a' + id.0 as u8)
}

/// Two packages, or as many as are drawn; one context per core.
pub fn scene(drawing: &str) -> Scene {
    Scene::draw(drawing, 1)
}

impl Scene {
    /// A scene with that many contexts per core.
    pub fn draw(drawing: &str, smt: u32) -> Self {
        let packages: Vec<Vec<Vec<&str>>> =
            drawing.split('|').map(|p| p.split('/').map(|d| d.split_whitespace().collect()).collect()).collect();
        let contexts = packages[0][0].len() as u32;
        let topology = machine(packages.len() as u32, packages[0].len() as u32, contexts / smt, smt);
        let mut actors = Vec::new();
        for (drawn, contexts) in packages.iter().zip(topology.package_contexts()) {
            let drawn: Vec<&&str> = drawn.iter().flatten().collect();
            assert_eq!(drawn.len(), contexts.len(), "every context is drawn");
            for (names, cpu) in drawn.iter().zip(contexts) {
                actors.extend(names.chars().filter(|c| *c != '.').map(|name| {
                    Actor {
                        name,
                        app: 0,
                        cpu: cpu.0,
                        counts: [Signal::Inter, Signal::Intra, Signal::Remote, Signal::LlcMisses]
                            .into_iter()
                            .map(|s| (s, 0))
                            .chain([(Signal::Cycles, CYCLES)])
                            .collect(),
                        allowed: None,
                        pages: None,
                        newborn: false,
                    }
                }));
            }
        }
        let thresholds = Thresholds {
            coherence_per_cycle: 2.5e-4,
            socket_bandwidth_per_s: 7.5e7,
            task_bandwidth_per_s: None,
            remote_per_cycle: Some(1e-4),
        };
        Self {
            topology,
            profile: MachineProfile {
                clock_hz: Some(2.2e9),
                thresholds: Some(thresholds),
                ..MachineProfile::default()
            },
            config: Config::default(),
            settings: SamConfig::default(),
            actors,
            state: SamState::default(),
            outcomes: Vec::new(),
            busy: Vec::new(),
            numa_balancing: false,
            now: Time::from_millis(100),
            denied: String::new(),
        }
    }

    /// Changes each of the named tasks.
    #[must_use]
    pub fn each(mut self, names: &str, change: impl Fn(&mut Actor)) -> Self {
        for name in names.chars() {
            change(self.actor(name));
        }
        self
    }

    pub fn actor(&mut self, name: char) -> &mut Actor {
        self.actors.iter_mut().find(|a| a.name == name).expect("a task that is drawn")
    }

    /// The named tasks count that many events of a signal in an interval.
    #[must_use]
    pub fn count(self, names: &str, signal: Signal, count: u64) -> Self {
        self.each(names, |a| {
            a.counts.insert(signal, count);
        })
    }

    /// The named tasks share data with tasks of other sockets: four times the threshold.
    #[must_use]
    pub fn inter(self, names: &str) -> Self {
        self.count(names, Signal::Inter, 4 * COHERENCE)
    }

    /// The named tasks share data inside their socket.
    #[must_use]
    pub fn intra(self, names: &str) -> Self {
        self.count(names, Signal::Intra, 4 * COHERENCE)
    }

    /// The named tasks are memory-bound: 30 % of a socket's bandwidth each, above a core's part on four cores.
    #[must_use]
    pub fn mem(self, names: &str) -> Self {
        self.count(names, Signal::LlcMisses, BANDWIDTH * 3 / 10)
    }

    /// The named tasks meet remote memory: four times the threshold.
    #[must_use]
    pub fn remote(self, names: &str) -> Self {
        self.count(names, Signal::Remote, 4 * REMOTE)
    }

    /// The named tasks were moved reluctantly from that package.
    #[must_use]
    pub fn origin(mut self, names: &str, package: u32) -> Self {
        let more = names.chars().map(|n| (TaskId(id(n)), package));
        let known = self.state.origins.iter().map(|o| (o.task, o.unit));
        self.state = from_origins(known.chain(more).collect::<Vec<_>>());
        self
    }

    #[must_use]
    pub fn allowed(self, names: &str, list: &str) -> Self {
        self.each(names, |a| a.allowed = Some(list.to_owned()))
    }

    #[must_use]
    pub fn sam(mut self, config: SamConfig) -> Self {
        self.settings = config;
        self
    }

    /// The situation as a view.
    pub fn view(&self) -> ViewBuilder {
        let mut builder = ViewBuilder::new(&self.topology).at(self.now);
        for a in &self.actors {
            builder = builder.task(id(a.name), a.app, a.cpu);
            for (signal, count) in &a.counts {
                builder = builder.signal(*signal, *count);
            }
            if let Some(list) = &a.allowed {
                builder = builder.allowed(list);
            }
            if let Some(pages) = &a.pages {
                builder = builder.pages(pages);
            }
            if a.newborn {
                builder = builder.newborn();
            }
        }
        self.busy.iter().fold(builder, |b, (cpu, busy)| b.cpu_busy(*cpu, *busy))
    }

    /// The decision in this situation; changes nothing.
    pub fn decide(&self) -> Decision<SamState> {
        let apps = BTreeMap::new();
        let ctx = Ctx { topology: &self.topology, machine: &self.profile, apps: &apps, config: &self.config };
        let view = View { numa_balancing: self.numa_balancing, ..self.view().view() };
        Sam(self.settings).decide(&ctx, &view, &self.outcomes, self.state.clone(), self.now)
    }

    /// Decides, checks the invariants of every decision, and carries it out. 100 ms later the tasks have the same
    /// counts again.
    pub fn step(&mut self) -> Decision<SamState> {
        let decision = self.decide();
        assert_eq!(decision, self.decide(), "the same input gives the same decision");
        let mut touched: Vec<TaskId> = decision.proposals.iter().filter_map(|p| p.action.task()).collect();
        touched.sort_unstable();
        touched.dedup();
        assert_eq!(touched.len(), decision.proposals.len(), "each task stands once");
        self.outcomes.clear();
        for Proposal { action, .. } in &decision.proposals {
            let Action::Place { task, contexts } = action else { panic!("SAM only places") };
            let usable = self.topology.usable().clone();
            let actor = self.actor(name(*task));
            let allowed = actor.allowed.as_ref().map_or(usable, |list| CpuSet::parse_list(list).unwrap());
            assert!(!contexts.is_empty() && contexts.is_subset(&allowed), "{task} to {contexts} of {allowed}");
            let mut outcome = Outcome::Denied;
            if !self.denied.contains(name(*task)) {
                outcome = Outcome::Applied;
                let actor = self.actor(name(*task));
                if !contexts.contains(CpuId(actor.cpu)) {
                    actor.cpu = contexts.first().unwrap().0;
                }
            }
            self.outcomes.push(ActionOutcome { action: action.clone(), outcome });
        }
        self.denied.clear();
        let state = &decision.state;
        self.state = state.clone();
        self.now = decision.wake_at;
        decision
    }

    /// One step; returns the drawing after it.
    pub fn next(&mut self) -> String {
        self.step();
        self.picture()
    }

    /// The drawing.
    pub fn picture(&self) -> String {
        let mut text = String::new();
        for (p, contexts) in self.topology.package_contexts().iter().enumerate() {
            for (c, cpu) in contexts.iter().enumerate() {
                let new_domain = c > 0 && self.topology.llc_of(contexts[c - 1]) != self.topology.llc_of(*cpu);
                text += match (p, c) {
                    (0, 0) => "",
                    (_, 0) => " | ",
                    _ if new_domain => " / ",
                    _ => " ",
                };
                let mut here: String = self.actors.iter().filter(|a| a.cpu == cpu.0).map(|a| a.name).collect();
                if here.is_empty() {
                    here.push('.');
                }
                text += &here;
            }
        }
        text
    }

    /// Origins as (task, unit).
    pub fn origins(&self) -> Vec<(char, u32)> {
        self.state.origins.iter().map(|o| (name(o.task), o.unit)).collect()
    }
}

/// Requests of a decision, as text.
pub fn moves(decision: &Decision<SamState>) -> Vec<String> {
    let text = |p: &Proposal| match &p.action {
        Action::Place { task, contexts } => format!("{} to {contexts}", name(*task)),
        Action::Release { task } => format!("{} released", name(*task)),
        other => panic!("sam does no such thing: {other:?}"),
    };
    decision.proposals.iter().map(text).collect()
}
