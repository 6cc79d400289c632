//! Output of `shapes`: orders and all texts: reasons, notes, the last trial's result.

use super::settings::KnownShape;
use super::shape::GROUPS;
use super::shape_board::ShapePlaces;
use super::shapes_round::ShapesRound;
use super::trial::TrialEstimate;
use crate::plan::Plan;
use cotenant_model::policy::TrialResult;
use cotenant_model::{ActionOutcome, AppId, CpuSet, Proposal, Reason, TaskId, Time, View};
use serde::{Deserialize, Serialize};

/// Orders and texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapesOutgoing {
    plan: Plan,
    /// Whether the incumbent's masks are still to be widened.
    widens: bool,
    /// The reason of the plan.
    why: String,
    /// Result of the last trial, until a reason has mentioned it.
    result: String,
    /// The last finished trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tried: Option<TrialResult>,
    /// Orders about memory of this round.
    #[serde(skip)]
    moves: Vec<Proposal>,
    /// Notes of this round.
    #[serde(skip)]
    notes: Vec<String>,
}

/// The places of the incumbent's threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncumbentPlaces<'a> {
    pub places: &'a ShapePlaces,
    /// Places of threads in crowded domains under the kernel's choice.
    pub spots: &'a ShapePlaces,
    /// Whether the incumbent is the kernel's choice.
    pub is_kernel: bool,
}

/// Target places of threads, and whether all are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedNow<'a> {
    pub wanted: &'a ShapePlaces,
    pub stands: bool,
}

/// A finished trial.
#[derive(Clone, Debug)]
pub(super) struct JudgedTrial {
    /// The candidate, in words.
    pub shape: String,
    pub estimate: TrialEstimate,
    /// The new incumbent, if it is the candidate.
    pub kept: Option<KnownShape>,
    /// Whether the candidate is the kernel's placement.
    pub is_kernel: bool,
    /// Whether the load changes too often for a verdict.
    pub is_restless: bool,
}

/// The reason of the threads' places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlacementReason {
    ThreadsChanged,
    ThreadsReplaced,
    NoSpeeds,
    KnownPrograms,
    KnownProgram,
    KernelFirst,
    NotPlaced,
    FellSilent,
    BudgetSpent,
    BriefPrograms,
    NothingBetter,
    /// A candidate, in words.
    Tried(String),
    Compared,
    Stands,
    Restless,
    WithMemory,
    Widened,
    LetGo,
}

impl PlacementReason {
    fn text(self) -> String {
        let text = match self {
            Self::ThreadsChanged => "threads came or went",
            Self::ThreadsReplaced => "threads take the places of like ones",
            Self::NoSpeeds => "nothing tells how fast it is",
            Self::KnownPrograms => "where these programs were fastest before",
            Self::KnownProgram => "where its program was fastest before",
            Self::KernelFirst => "programs came or went: the kernel chooses first",
            Self::NotPlaced => "threads could not be placed",
            Self::FellSilent => "an application does not tell its speed any more",
            Self::BudgetSpent => "trials have cost enough for now",
            Self::BriefPrograms => "programs have come and gone all the time",
            Self::NothingBetter => "nothing better is known",
            Self::Tried(shape) => return format!("tried: {shape}"),
            Self::Compared => "the one that stands, to compare",
            Self::Stands => "it stands",
            Self::Restless => "the load changes too often to tell",
            Self::WithMemory => "where its memory goes",
            Self::Widened => "from where it stood, the kernel chooses again",
            Self::LetGo => "nothing better than the kernel's placement is known",
        };
        text.to_owned()
    }
}

impl ShapesOutgoing {
    /// Records the outcomes of the last orders.
    pub fn hear(&mut self, round: &ShapesRound<'_>, outcomes: &[ActionOutcome]) {
        self.plan.learn(round.ctx, round.view, outcomes, round.now);
    }

    /// The orders and notes of this round.
    pub fn send(&mut self, now: Time) -> (Vec<Proposal>, Vec<String>) {
        let reason = |_: TaskId| Reason { what: self.why.clone().into(), ..Reason::new("shapes", "") };
        let mut orders = self.plan.proposals(now, reason);
        orders.append(&mut self.moves);
        (orders, std::mem::take(&mut self.notes))
    }

    pub fn placed(&self) -> PlacedNow<'_> {
        PlacedNow { wanted: self.plan.wanted(), stands: self.plan.stands() }
    }

    /// Whether the plan covers the current tasks and their masks.
    pub fn fits(&self, round: &ShapesRound<'_>) -> bool {
        self.plan.fits(round.ctx, round.view.tasks.iter())
    }

    /// Result of the last trial.
    pub fn last_tried(&self) -> Option<&TrialResult> {
        self.tried.as_ref()
    }

    /// Places threads; the kernel places all others, and threads whose target is no longer allowed.
    pub fn put(&mut self, view: &View, places: &ShapePlaces, why: PlacementReason) {
        let may = |(task, set): &(&TaskId, &CpuSet)| {
            !set.is_empty() && view.task(**task).is_some_and(|t| set.is_subset(&t.info.allowed))
        };
        let wanted = places.iter().filter(may).map(|(task, set)| (*task, set.clone())).collect();
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
        self.widens = false;
        // The reason of an order also reports the previous trial.
        self.why = match std::mem::take(&mut self.result) {
            before if before.is_empty() => why.text(),
            before => format!("{before}; {}", why.text()),
        };
    }

    /// Restores the incumbent, unless all threads are in the kernel's placement. Each thread returns to its place there
    /// before it is released, because the kernel moves no thread while the load is even.
    pub fn put_back(&mut self, view: &View, incumbent: Option<IncumbentPlaces<'_>>, why: PlacementReason) {
        if incumbent.is_some_and(|incumbent| !(incumbent.is_kernel && self.plan.wanted().is_empty())) {
            self.put_incumbent(view, incumbent, why);
        }
    }

    /// Places the incumbent, even if all threads are in the kernel's placement.
    pub fn put_incumbent(&mut self, view: &View, incumbent: Option<IncumbentPlaces<'_>>, why: PlacementReason) {
        let Some(IncumbentPlaces { places, spots, is_kernel }) = incumbent else { return };
        // If no thread was moved, all are where the kernel put them.
        if is_kernel && !self.plan.has_placed() {
            return self.put(view, &ShapePlaces::new(), why);
        }
        let widens = is_kernel && !spots.is_empty();
        let mut places = places.clone();
        if widens {
            places.extend(spots.clone());
        }
        self.put(view, &places, why);
        self.widens = widens;
    }

    /// Adapts the plan to the current tasks, without changing places.
    pub fn recount(&mut self, view: &View) {
        let wanted = self.plan.wanted().clone();
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
    }

    /// Gives threads that have returned the whole domain again.
    pub fn widen(&mut self, view: &View, incumbent: Option<IncumbentPlaces<'_>>) {
        let Some(incumbent) = incumbent.filter(|_| self.widens && self.plan.stands()) else { return };
        self.put(view, incumbent.places, PlacementReason::Widened);
    }

    /// Releases threads to the kernel after all have returned to their places.
    pub fn let_go(&mut self, view: &View, incumbent: Option<IncumbentPlaces<'_>>) {
        let kernels = incumbent.is_some_and(|incumbent| incumbent.is_kernel);
        if kernels && !self.widens && self.plan.stands() && !self.plan.wanted().is_empty() {
            self.put(view, &ShapePlaces::new(), PlacementReason::LetGo);
        }
    }

    /// Orders about memory of this round.
    pub fn move_memory(&mut self, orders: Vec<Proposal>) {
        self.moves = orders;
    }

    /// Records a finished trial.
    pub fn judged(&mut self, now: Time, trial: &JudgedTrial) {
        let JudgedTrial { shape, estimate, kept, is_kernel, .. } = trial;
        let said = format!("{shape}: {}", said(estimate));
        self.tried = tried(now, shape.clone(), estimate, kept.is_some());
        self.result = match (kept, is_kernel) {
            (None, _) => format!("not kept: {said}"),
            (Some(_), false) => format!("kept: {said}"),
            (Some(_), true) => format!("given back to the kernel: {said}"),
        };
        if kept.is_some() {
            self.notes.push(self.result.clone());
        }
    }

    /// Memory stays with the threads, for this gain as a logarithm.
    pub fn memory_follows(&mut self, gain: f64) {
        self.notes.push(format!("memory follows the threads: {:+.1} %", gain.exp_m1() * 100.0));
    }

    /// The kernel moves memory after threads. `sees_memory`: the place of memory can be read.
    pub fn memory_is_dragged(&mut self, sees_memory: bool) {
        let then = if sees_memory {
            "what takes threads to other memory nodes is tried seldom, and for as long as their memory takes"
        } else {
            "where it is cannot be read, so each thread stays on its memory node"
        };
        self.notes.push(format!("the kernel moves memory after threads (kernel.numa_balancing): {then}"));
    }

    /// No trials are possible.
    pub fn no_decision(&mut self, why: &str) {
        self.notes.push(format!("no decision: {why}; placement is left to the kernel"));
    }

    /// Omissions of a survey.
    pub fn surveyed(&mut self, unmeasured: &[String], has_dropped: bool) {
        if !unmeasured.is_empty() {
            let names = unmeasured.join(", ");
            self.notes.push(format!("the speed of these is not reported, so they do not count: {names}"));
        }
        if has_dropped {
            let note = format!("of the groups of threads, the {GROUPS} largest are placed; the others are left alone");
            self.notes.push(note);
        }
    }

    /// The prioritized application does not run, or reports no speed.
    pub fn misses_objective(&mut self, app: &str) {
        let note = format!("no application {app} reports its speed: the mean of all is made as high as possible");
        self.notes.push(note);
    }

    /// Applications have been silent for this many seconds.
    pub fn fell_silent(&mut self, view: &View, seconds: f64, apps: &[AppId]) {
        let names: Vec<&str> = apps.iter().filter_map(|id| Some(view.app(*id)?.name.as_str())).collect();
        let names = names.join(", ");
        self.notes.push(format!(
            "for {seconds:.0} s the speed of these was not reported, so they do not count: \
                                 {names}"
        ));
    }

    /// Speeds have changed outside of trials.
    pub fn speeds_changed(&mut self) {
        self.notes.push("speeds are others than before: all of it is measured again".to_owned());
    }
}

/// `None` without measurements.
fn tried(at: Time, shape: String, estimate: &TrialEstimate, kept: bool) -> Option<TrialResult> {
    let TrialEstimate { mean, radius, pairs } = *estimate;
    let interval = radius.is_finite().then(|| [mean - radius, mean + radius].map(f64::exp_m1));
    mean.is_finite().then(|| TrialResult { at, shape, gain: mean.exp_m1(), interval, pairs, kept })
}

/// `+4.2 % (+1.1 to +7.3 %), 4 pairs of windows`.
fn said(estimate: &TrialEstimate) -> String {
    let percent = |log: f64| log.exp_m1() * 100.0;
    let TrialEstimate { mean, radius, pairs } = *estimate;
    if !radius.is_finite() {
        return format!("{:+.1} % at a glance", percent(mean));
    }
    let (low, high) = (percent(mean - radius), percent(mean + radius));
    let s = if pairs == 1 { "" } else { "s" };
    format!("{:+.1} % ({low:+.1} to {high:+.1} %), {pairs} pair{s} of windows", percent(mean))
}

#[cfg(test)]
impl ShapesOutgoing {
    pub fn why(&self) -> &str {
        &self.why
    }
}
