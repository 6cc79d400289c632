//! `dino`: distributed-intensity scheduling for NUMA (Blagodurov, Zhuravlev, Dashti, Fedorova: "A Case for NUMA-aware
//! Contention Management on Multicore Systems", USENIX ATC 2011). A competitor for comparison; `docs/policies/dino.md`
//! separates the paper's rules, second-hand knowledge, and ours.

mod spread;
#[cfg(test)]
mod tests;

use super::plan::Plan;
use cotenant_model::policy::{Ctx, NoSettings, Policy};
use cotenant_model::{
    Action, ActionOutcome, CpuSet, Decision, Evidence, PlaceKind, Proposal, Reason, Signal, TaskId, TaskView, Time,
    Topology, Unit, View,
};
use serde::{Deserialize, Serialize};
use spread::Thread;
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval between looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// LLC misses per instruction below which a thread is a turtle (2 per 1,000).
pub const DEVIL: f64 = 2e-3;
/// LLC misses per instruction above which a thread is a super-devil (100 per 1,000).
const SUPER_DEVIL: f64 = 0.1;
/// A class changes when this many of the last [`LOOKS`] looks agree on another.
const AGREEING: usize = 7;
const LOOKS: usize = 10;

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dino;

/// Memory intensity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Class {
    Turtle,
    Devil,
    SuperDevil,
}

impl Class {
    const ALL: [Self; spread::CLASSES] = [Self::Turtle, Self::Devil, Self::SuperDevil];

    fn of(misses_per_instruction: f64) -> Self {
        match misses_per_instruction {
            rate if rate < DEVIL => Self::Turtle,
            rate if rate <= SUPER_DEVIL => Self::Devil,
            _ => Self::SuperDevil,
        }
    }
}

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    task: TaskId,
    class: Class,
    /// Its last looks: two bits each, the latest lowest, 1 + the index of the class, 0 before the first.
    recent: u32,
}

impl Known {
    /// Adds a look; returns whether the class changes.
    fn look(&mut self, seen: Class) -> bool {
        self.recent = (self.recent << 2 | (seen as u32 + 1)) & ((1 << (2 * LOOKS)) - 1);
        let alike = |class: Class| (0..LOOKS).filter(|look| self.recent >> (2 * look) & 3 == class as u32 + 1).count();
        let other = Class::ALL.into_iter().find(|&class| class != self.class && alike(class) >= AGREEING);
        self.class = other.unwrap_or(self.class);
        other.is_some()
    }
}

/// State of `dino`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DinoState {
    /// Time of the next look.
    due: Time,
    /// Threads with a class, in ascending order.
    threads: Vec<Known>,
    plan: Plan,
}

/// Memory domains: the CPUs of each memory node; with at most one node, those of each last-level cache.
fn domains(topology: &Topology) -> Vec<(CpuSet, (PlaceKind, u32))> {
    let usable = topology.usable();
    let nodes = topology.nodes().iter().map(|n| (n.cpus.and(usable), (PlaceKind::Node, n.id.0)));
    let mut domains: Vec<_> = nodes.filter(|(cpus, _)| !cpus.is_empty()).collect();
    if domains.len() < 2 {
        let caches = topology.llc_domains().iter().zip(0..);
        domains = caches.map(|(d, i)| (d.cpus.and(usable), (PlaceKind::LlcDomain, i))).collect();
        domains.retain(|(cpus, _)| !cpus.is_empty());
    }
    domains
}

/// LLC misses per instruction; `None` if either is unknown or the thread did not run.
fn intensity(task: &TaskView) -> Option<f64> {
    let instructions = task.per_s(Signal::Instructions).filter(|rate| *rate > 0.0)?;
    Some(task.per_s(Signal::LlcMisses)? / instructions)
}

impl DinoState {
    /// Looks at all threads; returns whether a class changed.
    fn look(&mut self, view: &View) -> bool {
        let mut changed = false;
        let mut old = std::mem::take(&mut self.threads).into_iter().peekable();
        for view in &view.tasks {
            let task = view.info.id;
            while old.next_if(|known| known.task < task).is_some() {}
            let seen = intensity(view).map(Class::of);
            let known = match (old.next_if(|known| known.task == task), seen) {
                (Some(mut known), Some(seen)) => {
                    changed |= known.look(seen);
                    known
                }
                (Some(known), None) => known, // it slept, and keeps its class
                (None, Some(class)) => Known { task, class, recent: class as u32 + 1 },
                (None, None) => continue,
            };
            self.threads.push(known);
        }
        changed
    }

    fn class(&self, task: TaskId) -> Option<Class> {
        self.threads.binary_search_by_key(&task, |known| known.task).ok().map(|i| self.threads[i].class)
    }

    /// Renews the mapping with as few moves as possible.
    fn replan(&mut self, view: &View, domains: &[CpuSet]) {
        let domain_of = |cpu| domains.iter().position(|cpus| cpus.contains(cpu));
        let mut tasks = view.tasks.iter();
        let threads: Vec<Thread<'_>> = self
            .threads
            .iter()
            .filter_map(|known| {
                let task = tasks.find(|t| t.info.id == known.task)?;
                let home = self.plan.wanted().get(&known.task).and_then(CpuSet::first);
                Some(Thread {
                    task: known.task,
                    pid: task.info.pid,
                    class: known.class as usize,
                    home: home.and_then(domain_of),
                    at: task.cpu.and_then(domain_of),
                    allowed: &task.info.allowed,
                })
            })
            .collect();
        let given = spread::spread(domains, &threads);
        let places: BTreeMap<TaskId, CpuSet> = threads
            .iter()
            .zip(given)
            .filter_map(|(thread, domain)| Some((thread.task, domains[domain?].and(thread.allowed))))
            .collect();
        self.plan.set(threads.iter().map(|t| t.task).collect(), places);
    }
}

impl Policy for Dino {
    const SECTION: &'static str = "dino";
    type State = DinoState;
    type Settings = NoSettings;

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: DinoState,
        now: Time,
    ) -> Decision<DinoState> {
        state.plan.learn(ctx, view, outcomes, now);
        let (mut proposals, mut notes) = (Vec::new(), Vec::new());
        if now >= state.due {
            state.due = now + INTERVAL;
            let (domains, places): (Vec<CpuSet>, Vec<(PlaceKind, u32)>) = domains(ctx.topology).into_iter().unzip();
            let changed = state.look(view);
            if domains.len() < 2 {
                notes.push("dino: this machine has one memory domain; there is nothing to choose".into());
            } else if state.threads.is_empty() && !view.tasks.is_empty() {
                let lacks = |signal| view.tasks.iter().all(|t| t.per_s(signal).is_none());
                for signal in [Signal::LlcMisses, Signal::Instructions].into_iter().filter(|&s| lacks(s)) {
                    notes.push(format!(
                        "dino: no task has the signal {signal}, so nothing is known of its memory intensity and nothing is \
                         done; 'cotenant doctor' tells how to get it"
                    ));
                }
            } else {
                let classed = view.tasks.iter().filter(|t| state.class(t.info.id).is_some());
                if changed || !state.plan.fits(ctx, classed) {
                    state.replan(view, &domains);
                }
                proposals = state.plan.proposals(now, |task| reason(&state, view, &domains, &places, task));
                bring_pages(&mut proposals, ctx.topology, view);
            }
        }
        let wake_at = state.due;
        Decision::new(proposals, state, wake_at, notes)
    }
}

/// Memory follows threads that leave their node.
fn bring_pages(proposals: &mut Vec<Proposal>, topology: &Topology, view: &View) {
    let bring = |proposal: &Proposal| {
        let Action::Place { task, contexts } = &proposal.action else { return None };
        let from = topology.node_of(view.task(*task)?.cpu?)?;
        let to = topology.node_of(contexts.first()?)?;
        let action = Action::Pages { task: *task, nodes: vec![topology.nodes()[to].id] };
        (from != to).then(|| Proposal { action, reason: proposal.reason.clone() })
    };
    let pages: Vec<Proposal> = proposals.iter().filter_map(bring).collect();
    proposals.extend(pages);
}

fn reason(state: &DinoState, view: &View, domains: &[CpuSet], places: &[(PlaceKind, u32)], task: TaskId) -> Reason {
    let (what, threshold) = match state.class(task) {
        Some(Class::SuperDevil) => ("super-devils are spread evenly: to {place}", SUPER_DEVIL),
        Some(Class::Devil) => ("devils are spread evenly: to {place}", DEVIL),
        _ => ("turtles fill up: to {place}", DEVIL),
    };
    let mut reason = Reason::new("intensity", what);
    let cpu = state.plan.wanted().get(&task).and_then(CpuSet::first);
    reason.place = cpu.and_then(|cpu| domains.iter().position(|d| d.contains(cpu))).map(|d| places[d]);
    let value = view.task(task).and_then(intensity);
    reason.evidence =
        value.map(|value| Evidence { signal: Signal::LlcMisses, unit: Unit::PerInstruction, value, threshold });
    reason
}
