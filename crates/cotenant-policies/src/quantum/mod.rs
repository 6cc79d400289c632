//! `fifo`, `mas`, `cas`, `das`: the jobs of the next quantum and their CPUs (Feliu et al., "Cache-Hierarchy
//! contention-aware scheduling in CMPs", IEEE TPDS 2014, Algorithm 1, with its misprints corrected;
//! `docs/policies/quantum.md`).
//!
//! A job is an application: its threads run together on the job's CPUs. Rates are line transfers per second of a
//! running job. Shares of the target are compared per CPU, so that a job of many threads weighs like as many jobs of
//! one.

mod allocate;
#[cfg(test)]
mod brute_force;
mod round;
mod select;
#[cfg(test)]
mod tests;

pub use round::Quantum;

use allocate::Levels;
use cotenant_model::policy::{Ctx, Needs, Policy, settings};
use cotenant_model::{
    Action, ActionOutcome, AppId, CpuSet, Decision, Outcome, Proposal, Reason, Signal, TaskId, TaskView, Time, View,
};
use round::{Job, Round};
use select::Selection;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Divisor of a quantum with a job of unobserved width, which may be wider than declared.
const FIRST: u32 = 8;

/// Without known waits for a CPU, a thread above this fraction of a CPU counts as using a whole one.
const RUNS: f64 = 0.1;

/// One of the family, with its settings.
#[derive(Clone, Copy, Debug)]
pub struct CoSchedule {
    /// Its kind.
    pub quantum: Quantum,
    /// Its settings.
    pub settings: QuantumSettings,
}

/// Settings of these policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuantumSettings {
    /// Time between choices, 1 ms to 1 day (TPDS §6.1: 200 ms).
    #[serde(deserialize_with = "a_quantum")]
    pub quantum: Duration,
    /// The target once, from the rates and times alone in the jobs' profiles (TPDS Algorithm 1, line 1). Otherwise from
    /// the last quantum's rates each time, which is ours.
    #[serde(skip_serializing_if = "is_off")]
    pub once: bool,
    /// Ours: a job that had less than its share of the CPUs fits better (`mas`, `cas`, `das`).
    #[serde(skip_serializing_if = "is_off")]
    pub progress: bool,
}

impl Default for QuantumSettings {
    fn default() -> Self {
        Self { quantum: Duration::from_millis(200), once: false, progress: false }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // required by serde
fn is_off(switch: &bool) -> bool {
    !switch
}

fn a_quantum<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    settings::duration(from, &(Duration::from_millis(1)..=Duration::from_secs(86_400)))
}

/// State of these policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuantumState {
    /// Whether penalties are those of 0.1.0, once per job and 0 for a job that alone exceeds the target: recordings
    /// without this key used them.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    first_penalties: bool,
    /// The end of the quantum.
    due: Time,
    /// The queue, head first.
    jobs: Vec<Job>,
    /// Places really given to tasks; Linux places the others.
    given: BTreeMap<TaskId, Given>,
    /// Paused tasks that could not be placed: they are resumed anywhere.
    unplaceable: Vec<TaskId>,
    /// The target per CPU, if computed once; renewed when a job arrives.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<f64>,
}

fn yes() -> bool {
    true
}

impl Default for QuantumState {
    fn default() -> Self {
        let (jobs, given, unplaceable, target) = Default::default();
        Self { first_penalties: false, due: Time::default(), jobs, given, unplaceable, target }
    }
}

impl QuantumState {
    /// Whether an application runs in this quantum.
    pub fn runs(&self, app: AppId) -> bool {
        self.jobs.iter().any(|job| job.app == app && job.runs)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Given {
    /// Does not run.
    Pause,
    /// These contexts.
    Place(CpuSet),
}

/// The fraction (0–1) of a CPU that a thread used or waited for. A thread that only starts and stops with its job needs
/// none.
pub fn wanted(task: &TaskView) -> f64 {
    match (task.cpu_share(), task.per_s(Signal::RunQueueWait)) {
        (None, _) => f64::from(u8::from(task.ran() != Some(false))),
        (Some(used), Some(waited)) => (used + waited / 1e9).min(1.0),
        (Some(used), None) => f64::from(u8::from(used > RUNS)),
    }
}

impl Job {
    /// Stores the rates of a quantum in which the job ran.
    fn update(&mut self, tasks: &[&TaskView], levels: &Levels) {
        // Threads started in this quantum have no rates yet, and say nothing about the others.
        let known: Vec<&TaskView> = tasks.iter().copied().filter(|t| t.ran().is_some()).collect();
        if known.is_empty() {
            if !self.said {
                self.width = tasks.len().max(1);
            }
            return;
        }
        let sum = |signal| known.iter().map(|t| t.per_s(signal)).sum::<Option<f64>>();
        let wanted: f64 = tasks.iter().map(|t| wanted(t)).sum();
        (self.width, self.said) = ((wanted.round() as usize).max(1), false);
        if let Some(misses) = sum(Signal::LlcMisses) {
            self.misses = Some(misses);
        }
        for (level, signals) in levels.arrivals() {
            let Some(rate) = signals.iter().find_map(|&signal| sum(signal)) else { continue };
            match self.arrivals.iter_mut().find(|(l, _)| *l == level) {
                Some(known) => known.1 = rate,
                None => self.arrivals.push((level, rate)),
            }
        }
    }
}

impl QuantumState {
    /// Records the outcomes of the last proposals.
    fn learn(&mut self, round: &Round<'_>, outcomes: &[ActionOutcome]) {
        for ActionOutcome { action, outcome } in outcomes {
            let Some(task) = action.task() else { continue };
            match (outcome, action) {
                (Outcome::Applied, Action::Pause { .. }) => drop(self.given.insert(task, Given::Pause)),
                (Outcome::Applied, Action::Place { contexts, .. }) => {
                    self.given.insert(task, Given::Place(contexts.clone()));
                    self.unplaceable.retain(|&t| t != task);
                }
                (Outcome::Applied, Action::Release { .. }) => drop(self.given.remove(&task)),
                (Outcome::Denied | Outcome::Stale, Action::Place { .. }) => {
                    if self.given.get(&task) != Some(&Given::Pause) {
                        self.given.remove(&task);
                    } else if !self.unplaceable.contains(&task) {
                        self.unplaceable.push(task);
                    }
                }
                _ => {} // jobs never nap, and their pages stay
            }
        }
        let here = |id: TaskId| round.view.task(id).is_some();
        self.given.retain(|&id, _| here(id));
        self.unplaceable.retain(|&id| here(id));
    }

    /// Whether nothing prevents the job from running.
    fn ran(&self, tasks: &[&TaskView]) -> bool {
        tasks.iter().any(|t| self.given.get(&t.info.id) != Some(&Given::Pause))
    }

    /// Adds new jobs behind those that have not run, and drops ended jobs. Returns whether there were any.
    fn enqueue(&mut self, round: &Round<'_>) -> bool {
        let before = self.jobs.len();
        self.jobs.retain(|job| round.tasks.contains_key(&job.app));
        let mut changed = self.jobs.len() < before;
        if self.jobs.len() == round.tasks.len() {
            return changed; // all of them are known
        }
        let known: BTreeSet<AppId> = self.jobs.iter().map(|job| job.app).collect();
        for (&app, tasks) in round.tasks.iter().filter(|(app, _)| !known.contains(app)) {
            // Before its first run, the declared width counts: many threads only wait, such as a shell for its command.
            let said = round.profile(app).and_then(|p| p.threads);
            let width = said.map_or(tasks.len(), |n| n as usize);
            self.jobs.push(Job { app, width: width.max(1), said: said.is_some(), ..Job::default() });
            (self.target, changed) = (None, true);
        }
        changed
    }

    /// At the end of a quantum: jobs that ran go to the tail, with their new rates.
    fn turn(&mut self, round: &Round<'_>, levels: &Levels, progress: bool) {
        let (mut ran, mut waited) = (Vec::new(), Vec::new());
        let threads: usize = self.jobs.iter().map(|job| job.width).sum();
        // Each one's fraction of quanta if all were equal.
        let part = (round.cpus.len() as f64 / threads.max(1) as f64).min(1.0);
        for mut job in std::mem::take(&mut self.jobs) {
            let tasks = &round.tasks[&job.app];
            let run = self.ran(tasks);
            if progress {
                job.behind += part - f64::from(u8::from(run));
            }
            if run {
                job.update(tasks, levels);
                ran.push(job);
            } else {
                waited.push(job);
            }
        }
        waited.append(&mut ran);
        self.jobs = waited;
    }

    fn proposals(&self, round: &Round<'_>, selection: &Selection) -> Vec<Proposal> {
        let (usable, allocates) = (round.ctx.topology.usable(), round.policy.allocates());
        let mut proposals = Vec::new();
        for (i, job) in self.jobs.iter().enumerate() {
            for task in &round.tasks[&job.app] {
                let id = task.info.id;
                let given = self.given.get(&id);
                let contexts =
                    if allocates && job.runs { job.cpus.and(&task.info.allowed).and(usable) } else { CpuSet::new() };
                let action = match given {
                    Some(Given::Pause) if !job.runs => continue,
                    _ if !job.runs => Action::Pause { task: id },
                    // No task may stay paused because a place was refused.
                    Some(Given::Pause) if contexts.is_empty() || self.unplaceable.contains(&id) => {
                        Action::Release { task: id }
                    }
                    Some(Given::Place(now)) if *now == contexts => continue,
                    Some(Given::Place(_)) if contexts.is_empty() => Action::Release { task: id },
                    None if contexts.is_empty() => continue,
                    _ => Action::Place { task: id, contexts },
                };
                proposals.push(Proposal { reason: selection.reason(round, i, job, &action), action });
            }
        }
        // A task without any known allowed CPU belongs to no job.
        let nowhere = |task: &&TaskView| !task.info.allowed.intersects(round.ctx.topology.usable());
        for task in round.view.tasks.iter().filter(nowhere).map(|t| t.info.id) {
            if self.given.get(&task) == Some(&Given::Pause) {
                let reason = Reason::new("queue", "it may not run on any CPU of this machine: it is left alone");
                proposals.push(Proposal { action: Action::Release { task }, reason });
            }
        }
        proposals
    }
}

impl Policy for CoSchedule {
    const SECTION: &'static str = "quantum";
    type State = QuantumState;
    type Settings = QuantumSettings;

    fn name(&self) -> &'static str {
        match self.quantum {
            Quantum::Fifo => "fifo",
            Quantum::Mas => "mas",
            Quantum::Cas => "cas",
            Quantum::Das => "das",
        }
    }

    fn needs(&self) -> Needs {
        Needs { task_changes: true, pauses: true, profiles: true, ..Needs::default() }
    }

    fn runs(&self, state: &QuantumState, app: AppId) -> Option<bool> {
        Some(state.runs(app))
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: QuantumState,
        now: Time,
    ) -> Decision<QuantumState> {
        let round = Round { first_penalties: state.first_penalties, ..Round::new(self.quantum, ctx, view) };
        let levels = Levels::new(ctx.topology, &round.cpus);
        state.learn(&round, outcomes);
        let due = now >= state.due;
        let changed = state.enqueue(&round);
        if due {
            state.due = now + self.settings.quantum;
            if self.quantum != Quantum::Fifo {
                state.turn(&round, &levels, self.settings.progress);
                state.jobs.iter_mut().for_each(|job| job.runs = false);
            }
        }
        let mut selection = Selection::default();
        if changed || due {
            if self.settings.once && state.target.is_none() {
                state.target = select::once(&round, &state.jobs);
            }
            selection = select::select(&round, &mut state.jobs, state.target);
            if self.quantum.allocates() {
                allocate::allocate(&round, &levels, &mut state.jobs);
            }
        }
        if self.quantum != Quantum::Fifo && state.jobs.iter().any(|job| job.runs && job.said) {
            state.due = state.due.min(now + self.settings.quantum / FIRST);
        }
        let proposals = state.proposals(&round, &selection);
        let mut notes = Vec::new();
        // Before the first run there are no rates.
        let seen = due && view.tasks.iter().any(|task| task.ran() == Some(true));
        if self.quantum != Quantum::Fifo && seen && state.jobs.iter().all(|job| job.misses.is_none()) {
            notes.push(format!(
                "{}: no job has the signal {}, so jobs are taken in the order of the queue; characterize them, or see 'cotenant doctor'",
                self.name(),
                Signal::LlcMisses
            ));
        }
        let wake_at = state.due;
        Decision::new(proposals, state, wake_at, notes)
    }
}
