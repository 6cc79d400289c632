//! `atom`: mapping classes compete, and the one with the highest measured speed wins (Tang, ch. 4.2). See
//! `docs/policies/atom.md`.
//!
//! ```text
//!           nobody came or went              turn over             all turns over, or one class left
//!   Watch ────────────────────▶ Turn (settle, measure) ─▶ Turn … ─────────────────────────▶ Execute
//!     ▲                           │                                                            │
//!     └───────────────────────────┴── threads or applications came or went, or what they may use changed
//! ```

mod classes;
mod config;
mod contest;
pub(crate) mod situation;
#[cfg(test)]
mod tests;

pub use config::{AtomConfig, AtomConfigError};

use super::plan::Plan;
use classes::{Class, field, seats};
use contest::{Contest, Meter};
use cotenant_model::policy::{Ctx, Needs, Policy, Refusal};
use cotenant_model::speed::Source;
use cotenant_model::{ActionOutcome, Decision, Proposal, Reason, TaskId, Time, View};
use serde::{Deserialize, Serialize};
use situation::{Load, Participants, best, is_sensitive, look, page_labels};
use std::collections::BTreeMap;
use std::time::Duration;

/// The set of tasks counts as settled after this long without a change.
const WATCH: Duration = Duration::from_millis(500);
/// Turns without data end after this multiple of their length.
const PATIENCE: u32 = 4;

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Atom(pub AtomConfig);

/// State of `atom`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtomState {
    phase: Phase,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// Rounds in a row without anything to learn.
    #[serde(default)]
    fruitless: u32,
    /// The subject of learning.
    contest: Option<Contest>,
    /// Threads in the competition, each with its group.
    members: Vec<(TaskId, usize)>,
    /// Busy tasks and CPUs while it watched or executed.
    load: Load,
    plan: Plan,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Waits until the set of tasks has settled.
    Watch { since: Time },
    /// A class is in place, and caches warm up.
    Settle { since: Time },
    /// It is being measured.
    Measure { until: Time, meter: Meter },
    /// The winner runs, or there is no choice.
    Execute { since: Time },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Watch { since: Time(0) }
    }
}

impl AtomState {
    fn watch(&mut self, now: Time) {
        self.phase = Phase::Watch { since: now };
        self.load = Load::default();
    }

    /// Leaves all placements to the kernel.
    fn let_go(&mut self, view: &View) {
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), BTreeMap::new());
    }

    /// Puts a class in place unless done.
    fn place(&mut self, ctx: &Ctx<'_>, view: &View, class: &Class) {
        let wanted = seats(ctx, view, &self.members, class);
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
    }

    /// Begins the next turn, or the execution of the winner.
    fn proceed(&mut self, ctx: &Ctx<'_>, view: &View, now: Time, notes: &mut Vec<String>) {
        let Some(contest) = self.contest.take() else { return self.watch(now) };
        let class = contest.winner.unwrap_or_else(|| contest.turn());
        if contest.winner.is_some() {
            notes.extend(contest.result().filter(|_| contest.classes.len() > 1));
            self.phase = Phase::Execute { since: now };
            self.load = Load::default();
        } else {
            self.phase = Phase::Settle { since: now };
        }
        if contest.classes.len() == 1 {
            self.let_go(view);
        } else {
            self.place(ctx, view, &contest.classes[class]);
        }
        self.contest = Some(contest);
    }

    /// The set of tasks has settled: continues, or begins to learn.
    fn begin(&mut self, ctx: &Ctx<'_>, config: &AtomConfig, view: &View, now: Time, notes: &mut Vec<String>) {
        let Participants { mut situation, members, mut silent } =
            match look(ctx, view, &self.load, |app| best(view, app)) {
                Ok(seen) => seen,
                Err(why) => {
                    self.fruitless += 1;
                    // Programs begin to report, and metrics are read, some time after the start.
                    notes.extend((self.fruitless > 1).then(|| format!("no decision: {why}")));
                    self.contest = None;
                    self.let_go(view);
                    return self.watch(now);
                }
            };
        self.fruitless = 0;
        // If one is marked as latency-sensitive, only its speed counts, as in the paper.
        if situation.measures.keys().any(|id| is_sensitive(ctx, view, *id)) {
            situation.measures.retain(|id, _| is_sensitive(ctx, view, *id));
            silent.clear();
        }
        if !silent.is_empty() {
            notes.push(format!("the speed of these is not reported, so they do not count: {}", silent.join(", ")));
        }
        self.members = members;
        let known = self.contest.as_ref().is_some_and(|c| c.situation == situation);
        if !known {
            let labels = page_labels(ctx, view, &situation.groups);
            let mut field = field(ctx, config, &situation.groups, &labels);
            notes.extend(field.how);
            if field.classes.len() > 1 && config.kernel {
                field.classes.push(Class { cpus: Vec::new(), text: "of the kernel".to_owned() });
            }
            let threads = self.members.len();
            match field.classes.len() {
                0 => {
                    notes.push(format!("no decision: {threads} busy threads do not have a CPU each; placement is left to the kernel"));
                    self.contest = None;
                    self.let_go(view);
                    return self.watch(now);
                }
                1 => notes.push(format!(
                    "there is one mapping class only, {}: all mappings of {threads} thread{} are alike here; placement is left to the kernel",
                    field.classes[0].text,
                    if threads == 1 { "" } else { "s" }
                )),
                _ => {}
            }
            self.contest = Some(Contest::new(situation, field.classes, now));
        }
        self.proceed(ctx, view, now, notes);
    }

    /// Whether a better measure than the current one is available.
    fn is_outdated(&self, view: &View) -> bool {
        let Some(contest) = &self.contest else { return false };
        view.apps.iter().any(|app| {
            let now = best(view, app).filter(|source| matches!(source, Source::Metric(_)));
            now.is_some() && contest.situation.measures.get(&app.id).is_some_and(|before| now.as_ref() != Some(before))
        })
    }

    /// Whether a thread outside the competition was recently busy.
    fn has_newcomers(&self) -> bool {
        let of_old = |task: TaskId| self.members.binary_search_by_key(&task, |m| m.0).is_ok();
        self.tasks.iter().any(|&task| self.load.is_active(task) == Some(true) && !of_old(task))
    }

    /// One round. Returns the time of the next one.
    fn step(&mut self, ctx: &Ctx<'_>, config: &AtomConfig, view: &View, now: Time, notes: &mut Vec<String>) -> Time {
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        let watching = matches!(self.phase, Phase::Watch { .. });
        let left = !watching && !self.plan.fits(ctx, view.tasks.iter());
        if tasks != self.tasks || left || (!watching && self.is_outdated(view)) {
            self.tasks = tasks;
            self.watch(now);
        }
        let tick = now + ctx.config.interval;
        match &mut self.phase {
            Phase::Watch { since } => {
                // The round in which a task arrived has no data yet.
                if now > *since {
                    self.load.add(view);
                }
                if now - *since < WATCH {
                    return tick.min(*since + WATCH);
                }
                self.begin(ctx, config, view, now, notes);
            }
            Phase::Settle { since } => {
                if !self.plan.stands() {
                    *since = now; // restarts when the class is in place
                } else if now - *since >= config.settling() {
                    let measured = config.turn.saturating_sub(config.settling());
                    self.phase = Phase::Measure { until: now + measured, meter: Meter::new(now) };
                }
            }
            Phase::Measure { until, meter } => {
                let (Some(contest), until) = (&mut self.contest, *until) else {
                    self.watch(now);
                    return tick;
                };
                meter.add(view, &contest.situation);
                match meter.score(&contest.situation) {
                    Some(score) if now >= until => {
                        contest.record(score, config.rounds);
                        self.proceed(ctx, view, now, notes);
                    }
                    None if now - until >= config.turn * (PATIENCE - 1) => {
                        notes.push("no speed was reported in this turn; it is repeated".to_owned());
                        self.watch(now);
                    }
                    _ => {}
                }
            }
            Phase::Execute { since } => {
                self.load.add(view);
                if config.execute.is_some_and(|execute| now - *since >= execute) {
                    self.contest = None;
                    self.watch(now);
                } else if self.load.seconds >= WATCH.as_secs_f64() {
                    if self.contest.is_some() && self.has_newcomers() {
                        self.watch(now);
                    }
                    self.load = Load::default();
                }
            }
        }
        match &self.phase {
            Phase::Settle { since } => tick.min((*since + config.settling()).max(Time(now.0 + 1))),
            Phase::Measure { until, .. } if *until > now => tick.min(*until),
            _ => tick,
        }
    }

    /// The reason of a task's placement.
    fn reason(&self) -> Reason {
        let Some(contest) = &self.contest else { return Reason::new("learning", "placement is left to the kernel") };
        let class = contest.winner.unwrap_or_else(|| contest.turn());
        let text = &contest.classes[class].text;
        let turn = || format!("it is the turn of class {text}, one of {} that compete", contest.competing());
        let (stage, what) = match contest.winner {
            Some(_) => ("execution", contest.result().unwrap_or_default()),
            None => ("learning", turn()),
        };
        Reason { what: what.into(), ..Reason::new(stage, "") }
    }

    fn proposals(&self, now: Time) -> Vec<Proposal> {
        // While the running tasks are unknown, the plan may be outdated.
        if matches!(self.phase, Phase::Watch { .. }) && !self.plan.wanted().is_empty() {
            return Vec::new();
        }
        let reason = self.reason();
        self.plan.proposals(now, |_| reason.clone())
    }
}

impl Policy for Atom {
    const SECTION: &'static str = "atom";
    type State = AtomState;
    type Settings = AtomConfig;

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        if ctx.topology.usable().len() > 1 {
            return Ok(());
        }
        let why = "there is only one CPU to use, so no two mappings differ";
        Err(Refusal::new("atom", why, "allow more CPUs, or take --policy none"))
    }

    fn needs(&self) -> Needs {
        Needs { task_changes: true, profiles: true, pages: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: AtomState,
        now: Time,
    ) -> Decision<AtomState> {
        let mut notes = Vec::new();
        state.plan.learn(ctx, view, outcomes, now);
        let wake_at = state.step(ctx, &self.0, view, now, &mut notes);
        let proposals = state.proposals(now);
        Decision::new(proposals, state, wake_at, notes)
    }
}
