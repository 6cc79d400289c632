//! `auto`: do what the signals allow, and take back what did not help. See `docs/policies/auto.md`.
//!
//! ```text
//!            inner policy proposes              some were applied             window full
//!   Watch ───────────────────────────▶ Asked ─────────────────────▶ Trial ───────────────▶ judge
//!     ▲ ▲                                │ none applied               gain above the noise  │ │
//!     │ └────────────────────────────────┴──────────────────────────────────────────────────┘ │ otherwise
//!     └──────────────────────────────────── Undoing ◀──────────────────────────────────────────┘ (its stage waits, twice as long)
//! ```

#[cfg(test)]
mod tests;

use super::sam::classify::intra;
use super::{Atom, AtomConfig, AtomState, Sam, SamConfig};
use cotenant_model::policy::{Ctx, DynPolicy, Needs, NoSettings, Policy, State};
use cotenant_model::speed::{self, Source};
use cotenant_model::stats::{Estimate, Summary, mean_difference};
use cotenant_model::{
    Action, ActionOutcome, AppId, AppView, CpuSet, Decision, Outcome, Proposal, Reading, Reason, Signal, TaskId, Time,
    View,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds over which speed is measured before and after a change.
pub const WINDOW: usize = 10;
/// A gain below this is not worth a change (§11 of the design).
pub const MIN_GAIN: f64 = 0.01;
/// Rounds after which a trial whose speed cannot be told is given up.
const LONGEST_TRIAL: u32 = 4 * WINDOW as u32;
/// The first wait of a stage that did not help, in intervals. It doubles each time, up to [`LONGEST_WAIT`].
const FIRST_WAIT: u32 = 100;
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// A calm machine is sampled at most 2^this times less often.
const CALMEST: u32 = 4;

/// The policy: another one, on probation.
pub struct Auto {
    inner: Box<dyn DynPolicy>,
    atom: Atom,
}

/// What `auto` remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AutoState {
    phase: Phase,
    /// Speed of each application since the last change.
    speed: BTreeMap<AppId, Series>,
    /// When that change was known to have happened: readings of before say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed_at: Option<Time>,
    /// Placements that proved themselves, and still stand.
    kept: BTreeMap<TaskId, CpuSet>,
    /// Stages that did not help last time.
    waiting: BTreeMap<String, Wait>,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// How often the interval is doubled now.
    calm: u32,
    /// The inner policy's memory, and the outcomes that it has not seen yet.
    inner: State,
    unseen: Vec<ActionOutcome>,
    /// The memory of `atom`, while it decides instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    atom: Option<Box<AtomState>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Measures, and lets the inner policy decide.
    #[default]
    Watch,
    /// Has asked for a change; its outcomes are not known yet.
    Asked(Box<Trial>),
    /// Measures again.
    Trial(Box<Trial>),
    /// Has asked for the change to be taken back.
    Undoing,
}

/// A change on probation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    moved: Vec<Moved>,
    /// Stages that asked for it.
    stages: BTreeSet<String>,
    /// Speed before it.
    before: BTreeMap<AppId, Series>,
    /// The inner policy's memory before it.
    inner_before: State,
    rounds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Moved {
    task: TaskId,
    /// Where it was put; `None` = let go.
    to: Option<CpuSet>,
    /// Where it had been put before; `None` = nowhere.
    back: Option<CpuSet>,
}

/// When a stage may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Wait {
    until: Time,
    wait: Duration,
}

/// The last readings of an application's speed, as natural logarithms: differences are relative changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Series {
    /// The metric that tells it …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metric: Option<String>,
    /// … or else whether the program reports it itself; if neither, it is instructions per cycle.
    progress: bool,
    logs: Vec<f64>,
}

impl Series {
    fn is_like(&self, other: &Self) -> bool {
        self.progress == other.progress && self.metric == other.metric
    }
}

/// What tells an application's speed in this round, still without readings, and the reading: higher is better, above 0.
/// Instructions per cycle where nothing better is told.
fn speed_of(view: &View, app: &AppView) -> Option<(Series, Reading)> {
    let counted = || Source::Ipc.speed(view, app).filter(|_| app.progress_per_s.is_none());
    let (source, reading) = speed::told(view, app).or_else(counted)?;
    let progress = source == Source::Progress;
    let metric = if let Source::Metric(name) = source { Some(name) } else { None };
    Some((Series { metric, progress, logs: Vec::new() }, reading))
}

/// Adds the view's readings that are new and began after the last change. An application that has none now, or turns
/// from one measure to another, begins anew. True where an application had nothing new to tell: metrics are read at
/// their own pace.
fn measure(view: &View, speed: &mut BTreeMap<AppId, Series>, changed_at: Option<Time>) -> bool {
    let mut before = std::mem::take(speed);
    let mut waits = false;
    for app in &view.apps {
        let Some((empty, reading)) = speed_of(view, app) else { continue };
        let mut series = before.remove(&app.id).filter(|old| old.is_like(&empty)).unwrap_or(empty);
        let of_before = |changed: Time| reading.at - changed < reading.window;
        if view.is_new(&reading) && !(series.metric.is_some() && changed_at.is_some_and(of_before)) {
            if series.logs.len() == WINDOW {
                series.logs.remove(0);
            }
            series.logs.push(reading.value.ln());
        } else {
            waits = true;
        }
        speed.insert(app.id, series);
    }
    waits
}

fn full(speed: &BTreeMap<AppId, Series>) -> bool {
    !speed.is_empty() && speed.values().all(|s| s.logs.len() == WINDOW)
}

/// The relative change of the geometric mean of the applications' speeds, as a logarithm; over those that are known
/// on both sides.
fn gain(before: &BTreeMap<AppId, Series>, after: &BTreeMap<AppId, Series>) -> Option<Estimate> {
    let pairs: Vec<(Summary, Summary)> = before
        .iter()
        .filter_map(|(id, b)| {
            let a = after.get(id).filter(|a| a.is_like(b))?;
            Some((Summary::of(&b.logs), Summary::of(&a.logs)))
        })
        .collect();
    mean_difference(&pairs)
}

/// What stands between the view and a decision.
fn obstacle(inner: &dyn DynPolicy, ctx: &Ctx<'_>, view: &View) -> Option<String> {
    let known = |signal| {
        view.tasks.iter().any(|t| match signal {
            Signal::Intra => intra(|part| t.per_s(part)).is_some(),
            _ => t.per_s(signal).is_some(),
        })
    };
    let missing: Vec<&str> = [Signal::Cycles, Signal::Inter, Signal::Intra, Signal::LlcMisses]
        .into_iter()
        .filter(|&s| !known(s))
        .map(Signal::name)
        .collect();
    if view.tasks.is_empty() {
        return None;
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Some(format!(
            "no decision: placement is left to the kernel; needed: the signals {missing} (`cotenant doctor` tells how to get them)"
        ));
    }
    inner.check(ctx).err().map(|refusal| format!("no decision: {}; {}", refusal.why, refusal.remedy))
}

/// Whether no signal is above its threshold. Without thresholds nothing is known to be above.
fn calm(ctx: &Ctx<'_>, view: &View) -> bool {
    let Some(thresholds) = ctx.machine.thresholds else { return true };
    let above = |signal, threshold: f64| view.tasks.iter().any(|t| t.per_cycle(signal).is_some_and(|v| v > threshold));
    let mut traffic = vec![0.0; ctx.topology.packages().len()];
    for task in &view.tasks {
        if let Some(package) = task.cpu.and_then(|cpu| ctx.topology.package_of(cpu)) {
            traffic[package] += task.per_s(Signal::LlcMisses).unwrap_or(0.0);
        }
    }
    !above(Signal::Inter, thresholds.coherence_per_cycle)
        && !above(Signal::Near, thresholds.coherence_per_cycle)
        && !thresholds.remote_per_cycle.is_some_and(|threshold| above(Signal::Remote, threshold))
        && !traffic.iter().any(|t| *t > thresholds.socket_bandwidth_per_s)
}

/// Splits a batch into what may be tried now and what must wait: proposals of waiting stages, and those that count on
/// the room that one of these would make.
fn split(view: &View, proposals: Vec<Proposal>, waits: impl Fn(&Proposal) -> bool) -> (Vec<Proposal>, Vec<Proposal>) {
    let (mut held, mut tried): (Vec<_>, Vec<_>) = proposals.into_iter().partition(waits);
    loop {
        let stays: CpuSet = held.iter().filter_map(|p| view.task(p.action.task()?)?.cpu).collect();
        let needs_room =
            |p: &Proposal| matches!(&p.action, Action::Place { contexts, .. } if contexts.is_subset(&stays));
        let (more, rest): (Vec<_>, Vec<_>) = tried.into_iter().partition(needs_room);
        tried = rest;
        if more.is_empty() {
            return (tried, held);
        }
        held.extend(more);
    }
}

/// Whether something tells an application's speed, although counters do not say what it suffers from.
fn speed_is_told(view: &View) -> bool {
    view.apps.iter().any(|app| app.progress_per_s.is_some() || speed::told(view, app).is_some())
}

impl AutoState {
    /// Lets mapping classes compete where the inner policy cannot decide and something tells the speed; `None` where
    /// that is not so. The kernel's own placement competes, too, so that what does not help for certain is taken back
    /// here as well.
    fn compete(
        &mut self,
        competition: &Atom,
        obstacle: Option<&str>,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        now: Time,
    ) -> Option<Decision<()>> {
        let idle = matches!(self.phase, Phase::Watch);
        if self.atom.is_none() && obstacle.is_some() && idle && speed_is_told(view) {
            self.atom = Some(Box::default());
        }
        let mut atom = self.atom.take()?;
        let Some(why) = obstacle.filter(|_| !view.tasks.is_empty()) else {
            let (proposals, given_back) = atom.stop(ctx, view, outcomes, now);
            self.speed.clear();
            self.atom = (!given_back).then_some(atom);
            let wake_at = now + ctx.config.interval;
            return Some(Decision::new(proposals, (), wake_at, Vec::new()));
        };
        let Decision { proposals, state: atom, mut wake_at, mut notes, .. } =
            Policy::decide(competition, ctx, view, outcomes, *atom, now);
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        self.calm = if atom.is_calm() && tasks == self.tasks { (self.calm + 1).min(CALMEST) } else { 0 };
        self.tasks = tasks;
        if self.calm > 0 {
            wake_at = now + ctx.config.interval * 2u32.pow(self.calm);
        }
        self.atom = Some(Box::new(atom));
        let why = why.trim_start_matches("no decision: ");
        notes.push(format!("mapping classes compete by the speed that is told (atom), because {why}"));
        Some(Decision::new(proposals, (), wake_at, notes))
    }

    /// Takes note of what became of the last round's proposals. True where the view spans a change, so that it tells
    /// no speed.
    fn learn(&mut self, outcomes: &[ActionOutcome], now: Time, first_wait: Duration) -> bool {
        let applied: BTreeSet<TaskId> =
            outcomes.iter().filter(|o| o.outcome == Outcome::Applied).filter_map(|o| o.action.task()).collect();
        match std::mem::take(&mut self.phase) {
            Phase::Asked(mut trial) => {
                self.unseen.extend_from_slice(outcomes);
                trial.moved.retain(|m| applied.contains(&m.task));
                if trial.moved.is_empty() {
                    if outcomes.iter().any(|o| matches!(o.outcome, Outcome::Denied | Outcome::Stale)) {
                        self.back_off(&trial.stages, now, first_wait);
                    }
                    return false;
                }
                trial.before = std::mem::take(&mut self.speed);
                self.phase = Phase::Trial(trial);
                true
            }
            Phase::Undoing => {
                for outcome in outcomes.iter().filter(|o| o.outcome == Outcome::Applied) {
                    match &outcome.action {
                        Action::Place { task, contexts } => drop(self.kept.insert(*task, contexts.clone())),
                        Action::Release { task } => drop(self.kept.remove(task)),
                        _ => {} // nothing else is undone
                    }
                }
                self.speed.clear();
                true
            }
            phase => {
                self.phase = phase;
                false
            }
        }
    }

    fn back_off(&mut self, stages: &BTreeSet<String>, now: Time, first_wait: Duration) {
        for stage in stages {
            let wait = self.waiting.get(stage).map_or(first_wait, |w| (w.wait * 2).min(LONGEST_WAIT));
            self.waiting.insert(stage.clone(), Wait { until: now + wait, wait });
        }
    }

    /// Lets the inner policy decide, and puts what may be tried on probation.
    fn ask(
        &mut self,
        inner: &dyn DynPolicy,
        ctx: &Ctx<'_>,
        view: &View,
        now: Time,
        notes: &mut Vec<String>,
    ) -> Vec<Proposal> {
        let decision = inner.decide(ctx, view, &self.unseen, self.inner.clone(), now);
        notes.extend(decision.notes);
        let waits = |p: &Proposal| self.waiting.get(&*p.reason.stage).is_some_and(|w| w.until > now);
        let (tried, held) = split(view, decision.proposals, waits);
        if tried.is_empty() {
            // Nothing is done, so the inner policy was not asked: it remembers what it did before.
            if held.is_empty() {
                self.inner = decision.state;
                self.unseen.clear();
            }
            return tried;
        }
        let inner_before = std::mem::replace(&mut self.inner, decision.state);
        let denied = |p: &Proposal| ActionOutcome { action: p.action.clone(), outcome: Outcome::Denied };
        self.unseen = held.iter().map(denied).collect();
        let moved = |p: &Proposal| {
            let task = p.action.task()?;
            let to = match &p.action {
                Action::Place { contexts, .. } => Some(contexts.clone()),
                _ => None,
            };
            Some(Moved { task, to, back: self.kept.get(&task).cloned() })
        };
        self.phase = Phase::Asked(Box::new(Trial {
            moved: tried.iter().filter_map(moved).collect(),
            stages: tried.iter().map(|p| p.reason.stage.to_string()).collect(),
            before: BTreeMap::new(),
            inner_before,
            rounds: 0,
        }));
        tried
    }

    /// Ends a trial: keeps the change or takes it back.
    fn judge(&mut self, trial: Trial, view: &View, now: Time, first_wait: Duration) -> Vec<Proposal> {
        for moved in &trial.moved {
            match &moved.to {
                Some(contexts) => drop(self.kept.insert(moved.task, contexts.clone())),
                None => drop(self.kept.remove(&moved.task)),
            }
        }
        let gain = gain(&trial.before, &self.speed);
        if gain.is_some_and(|g| g.low() > 0.0 && g.value.exp_m1() >= MIN_GAIN) {
            for stage in &trial.stages {
                self.waiting.remove(stage);
            }
            return Vec::new();
        }
        self.back_off(&trial.stages, now, first_wait);
        self.inner = trial.inner_before;
        self.unseen.clear();
        self.phase = Phase::Undoing;
        let what = match gain {
            Some(g) => format!(
                "the change did not help: speed {:+.1} % ± {:.1} %, and at least {:.0} % is asked of it",
                g.value.exp_m1() * 100.0,
                g.half_width * 100.0,
                MIN_GAIN * 100.0
            ),
            None => "whether the change helped cannot be told".to_owned(),
        };
        let undo = |m: Moved| {
            let task = view.task(m.task)?;
            let back = m.back.filter(|contexts| contexts.intersects(&task.info.allowed));
            let action = match back {
                Some(contexts) => Action::Place { task: m.task, contexts: contexts.and(&task.info.allowed) },
                None => Action::Release { task: m.task },
            };
            Some(Proposal { action, reason: Reason { what: what.clone().into(), ..Reason::new("undo", "") } })
        };
        trial.moved.into_iter().filter_map(undo).collect()
    }
}

impl Auto {
    /// `auto` over a policy that needs counters, and `atom` with these settings where there are none.
    pub fn new(inner: Box<dyn DynPolicy>, atom: AtomConfig) -> Self {
        Self { inner, atom: Atom(AtomConfig { kernel: true, ..atom }) }
    }

    /// `auto` over `sam`, with what helped simulated mixes, though the paper's figures do not say it, unless
    /// something is set.
    pub fn over_sam(sam: SamConfig, atom: AtomConfig) -> Self {
        let sam = if sam == SamConfig::default() { SamConfig::recommended() } else { sam };
        Self::new(Box::new(Sam(sam)), atom)
    }
}

impl Policy for Auto {
    const SECTION: &'static str = "auto";
    type State = AutoState;
    type Settings = NoSettings;

    fn needs(&self) -> Needs {
        Needs { pages: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut s: AutoState,
        now: Time,
    ) -> Decision<AutoState> {
        let interval = ctx.config.interval;
        let first_wait = interval * FIRST_WAIT;
        s.kept.retain(|id, _| view.task(*id).is_some());
        let obstacle = obstacle(&*self.inner, ctx, view);
        if let Some(decision) = s.compete(&self.atom, obstacle.as_deref(), ctx, view, outcomes, now) {
            return Decision::new(decision.proposals, s, decision.wake_at, decision.notes);
        }
        let measured = !s.learn(outcomes, now, first_wait);
        let mut waits = false;
        if measured {
            waits = measure(view, &mut s.speed, s.changed_at);
        } else {
            s.changed_at = Some(now);
        }
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        let new_tasks = tasks.iter().any(|id| s.tasks.binary_search(id).is_err());
        s.tasks = tasks;

        let mut notes = Vec::new();
        let mut is_calm = false;
        let mut proposals = Vec::new();
        match std::mem::take(&mut s.phase) {
            Phase::Trial(mut trial) => {
                trial.rounds += u32::from(measured && !waits);
                if full(&s.speed) || trial.rounds >= LONGEST_TRIAL {
                    proposals = s.judge(*trial, view, now, first_wait);
                } else {
                    s.phase = Phase::Trial(trial);
                }
            }
            _ => match obstacle {
                Some(note) => {
                    notes.push(note);
                    is_calm = true; // nothing can be decided, so there is no hurry to look again
                }
                None if !measured => {}
                None if calm(ctx, view) => is_calm = true,
                None if !full(&s.speed) => {
                    if s.speed.is_empty() && !view.tasks.is_empty() {
                        notes.push(
                            "no decision: whether it helps could not be told; needed: instructions, or progress reported by the program"
                                .to_owned(),
                        );
                    }
                }
                None => proposals = s.ask(&*self.inner, ctx, view, now, &mut notes),
            },
        }
        s.calm = if is_calm && !new_tasks { (s.calm + 1).min(CALMEST) } else { 0 };
        let wake_at = now + interval * 2u32.pow(s.calm);
        Decision::new(proposals, s, wake_at, notes)
    }
}
