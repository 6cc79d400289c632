//! `shapes`: the best mapping, found by measuring. It needs nothing but a speed for each application. See
//! `docs/policies/shapes.md`.
//!
//! ```text
//!         nobody came or went          measured               candidate in place
//!   Watch ──────────────────▶ Trace ───────────▶ choose ───────────────────────▶ Trial
//!     ▲                         ▲                 ▲  │ nothing left, or no budget  │ better: it stands from now on
//!     │                         │                 └──┼─────────────────────────────┘ else: the one before
//!     │                         └───── Rest ◀────────┤       Rest goes back to Trace where a speed has shifted, too
//!     │                                              │ something was kept, and memory may move
//!     │                                              └──────▶ Pages ──▶ choose
//!     └── threads or applications came or went, or what they may use changed
//! ```

mod guard;
#[cfg(test)]
mod known_tests;
mod learned;
mod learned_situation;
mod ledger;
#[cfg(test)]
mod limits_tests;
mod moves;
#[cfg(test)]
mod null_tests;
mod order;
mod page_trial;
mod phases;
mod rest;
mod settings;
mod shape;
mod shape_board;
mod speed_meter;
#[cfg(test)]
mod tests;
mod trial;

pub use settings::{KnownGroup, KnownShape, Objective, ObjectiveError, ShapesSettings};

use super::plan::Plan;
use super::sam::{Sam, SamConfig};
use crate::atom::situation::Load;
use cotenant_model::policy::{Ctx, Needs, Policy};
use cotenant_model::speed::{self, Ladder};
use cotenant_model::{ActionOutcome, AppId, CpuSet, Decision, Outcome, Proposal, Reason, TaskId, Time, View};
use fastrand::Rng;
use learned::{Learned, ShapeCandidate};
use ledger::TrialLedger;
use order::GroupCounts;
use page_trial::PageTrial;
use rest::HeardSpeeds;
use serde::{Deserialize, Serialize};
use shape::Shape;
use shape_board::ShapePlaces;
use speed_meter::SpeedMeter;
use std::collections::{BTreeMap, BTreeSet};
use trial::{ShapeTrial, Side};

/// What became of a trial that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// When it was over.
    pub at: Time,
    /// What was tried, in words.
    pub shape: String,
    /// By how much it was faster than what stood: 0.05 is 5 %.
    pub gain: f64,
    /// The interval of that, which is valid at every look; `None` where it has no bounds.
    pub interval: Option<[f64; 2]>,
    /// Pairs of windows that were compared.
    pub pairs: usize,
    /// Whether it stands from now on.
    pub kept: bool,
}

/// A calm machine is sampled at most 2^this times less often.
const CALMEST: u32 = 3;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    settings: ShapesSettings,
    /// Whose ideas are tried, too, where its signals are counted.
    sam: Option<Sam>,
}

impl Shapes {
    /// The policy with these settings.
    pub fn new(settings: ShapesSettings) -> Self {
        Self { settings, sam: None }
    }

    /// `auto`: where `sam` would move threads is tried like any shape. Where nothing is set it is the recommended one.
    pub fn with_sam(settings: ShapesSettings, sam: SamConfig) -> Self {
        let sam = if sam == SamConfig::default() { SamConfig::recommended() } else { sam };
        Self { settings, sam: Some(Sam(sam)) }
    }
}

/// What `shapes` remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShapesState {
    /// On which all of this was learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<u64>,
    phase: ShapesPhase,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// How often in a row there was nothing to learn.
    fruitless: u32,
    /// Which tasks and CPUs were busy while it watched.
    load: Load,
    /// Threads that take part, ascending, each with its group.
    members: Vec<(TaskId, usize)>,
    /// Whether each thread runs much less than those that are like it otherwise; told once, behind a trace.
    weighed: BTreeMap<TaskId, bool>,
    /// What tells the speed of each application.
    ladders: BTreeMap<AppId, Ladder>,
    /// Applications that told a speed once, and have fallen silent: they do not count until they tell one again.
    silent: BTreeSet<AppId>,
    meter: SpeedMeter,
    plan: Plan,
    learned: Option<Box<Learned>>,
    /// What trials have cost, while nothing is known.
    ledger: Option<TrialLedger>,
    /// The best shapes of situations of before.
    memory: Vec<KnownShape>,
    /// Groups of those whose best shape is the kernel's, whatever was known before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    given_up: Vec<Vec<KnownGroup>>,
    /// Where what is drawn goes on.
    seed: Option<u64>,
    /// How often the interval is doubled now.
    calm: u32,
    /// How often in a row it was begun again after a trace.
    retraced: u32,
    /// Since when these programs are together, and for how many seconds the sets before them were.
    since: Time,
    lives: Vec<f64>,
    /// Threads that begin where their programs were fastest before; then, whether that is what stands: what the kernel
    /// would have chosen was not seen.
    born: ShapePlaces,
    begun: bool,
    /// Whether the masks of the incumbent are still to be widened.
    widens: bool,
    /// Why the plan is as it is.
    why: String,
    /// What became of the last trial, until it is told.
    result: String,
    /// The last trial that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tried: Option<Tried>,
    /// Orders about memory of this round.
    #[serde(skip)]
    moves: Vec<Proposal>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShapesPhase {
    /// Nothing is known yet.
    #[default]
    Fresh,
    /// Waits until the set of tasks has settled.
    Watch { since: Time },
    /// Measures the incumbent: seconds of each point, and logarithms of the speeds.
    Trace {
        points: Vec<(f64, Vec<f64>)>,
        long: bool,
        /// Since when what should stand does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Time>,
    },
    /// A candidate competes.
    Trial(Box<RunningTrial>),
    /// Memory follows the threads, for a trial: of the incumbent, or of a candidate that was no better without.
    Pages { trial: Box<PageTrial>, candidate: Option<(Shape, ShapePlaces)> },
    /// Nothing is left to try for now; `saving`: trials have cost enough.
    Rest { until: Time, saving: bool, heard: HeardSpeeds },
}

/// A trial with its candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RunningTrial {
    candidate: ShapeCandidate,
    /// Where the threads go for it.
    places: ShapePlaces,
    trial: ShapeTrial,
    /// When the plan last changed, while it is not known to stand.
    asked: Option<Time>,
}

/// A round of the loop.
struct ShapesRound<'a> {
    ctx: &'a Ctx<'a>,
    policy: &'a Shapes,
    view: &'a View,
    now: Time,
    /// Whether nothing is changed here: what is ordered is advice.
    advises: bool,
    rng: Rng,
    notes: Vec<String>,
}

impl ShapesRound<'_> {
    fn tick(&self) -> Time {
        self.now + self.ctx.config.interval
    }

    /// Whether memory may move, and there is anywhere to move it.
    fn moves_memory(&self, board: &shape_board::ShapeBoard) -> bool {
        self.ctx.config.move_pages && board.labels.len() > 1
    }
}

impl ShapesState {
    /// The best shapes of the situations so far, the latest last: for the next run.
    pub fn memory(&self) -> &[KnownShape] {
        &self.memory
    }

    /// Groups of those whose shape of before has lost against the kernel's placement.
    pub fn given_up(&self) -> &[Vec<KnownGroup>] {
        &self.given_up
    }

    /// Whether what stands is only tried.
    pub fn is_trying(&self) -> bool {
        match &self.phase {
            ShapesPhase::Trial(running) => running.trial.side() == Side::Candidate,
            ShapesPhase::Pages { candidate, .. } => candidate.is_some(),
            _ => false,
        }
    }

    /// What became of the last trial.
    pub fn last_tried(&self) -> Option<&Tried> {
        self.tried.as_ref()
    }

    /// Puts threads in place; those that it does not name are the kernel's, as is who may not be there any more.
    fn put(&mut self, view: &View, places: &ShapePlaces, why: impl Into<String>) {
        let may = |(task, set): &(&TaskId, &CpuSet)| {
            !set.is_empty() && view.task(**task).is_some_and(|t| set.is_subset(&t.info.allowed))
        };
        let wanted = places.iter().filter(may).map(|(task, set)| (*task, set.clone())).collect();
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
        self.widens = false;
        // Whoever asks why threads moved hears what became of the trial before.
        self.why = match std::mem::take(&mut self.result) {
            before if before.is_empty() => why.into(),
            before => format!("{before}; {}", why.into()),
        };
    }

    /// Puts the incumbent in place. What the kernel had chosen is put back, too, before it is the kernel's again: the
    /// kernel leaves threads where they are, as long as the load is even.
    fn put_back(&mut self, view: &View, why: impl Into<String>) {
        let Some(learned) = &self.learned else { return };
        if !(learned.is_kernel && self.plan.wanted().is_empty()) {
            self.put_incumbent(view, why);
        }
    }

    /// Puts the incumbent in place, also where it was the kernel's all the time.
    fn put_incumbent(&mut self, view: &View, why: impl Into<String>) {
        let Some(learned) = &self.learned else { return };
        // Where nobody was moved, all are where the kernel has put them.
        if learned.is_kernel && !self.plan.has_placed() {
            return self.put(view, &BTreeMap::new(), why);
        }
        let widens = learned.is_kernel && !learned.spots.is_empty();
        let mut places = learned.places.clone();
        if widens {
            places.extend(learned.spots.clone());
        }
        self.put(view, &places, why);
        self.widens = widens;
    }

    /// The plan is about the tasks that are there now; where they are stays as it is.
    fn recount(&mut self, view: &View) {
        let wanted = self.plan.wanted().clone();
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
    }

    /// Gives threads that are where they stood the whole domain again.
    fn widen(&mut self, view: &View) {
        let Some(learned) = self.learned.as_ref().filter(|_| self.widens && self.plan.stands()) else { return };
        let places = learned.places.clone();
        self.put(view, &places, "from where it stood, the kernel chooses again");
    }

    /// Gives back to the kernel what it had chosen, once everybody is there again.
    fn let_go(&mut self, view: &View) {
        let kernels = self.learned.as_ref().is_some_and(|learned| learned.is_kernel);
        if kernels && !self.widens && self.plan.stands() && !self.plan.wanted().is_empty() {
            self.put(view, &BTreeMap::new(), "nothing better than the kernel's placement is known");
        }
    }

    /// Hears what tells the speed of the applications, while nothing is changed.
    fn listen(&mut self, view: &View) {
        if matches!(self.phase, ShapesPhase::Trial(_) | ShapesPhase::Pages { .. }) {
            self.ladders.values_mut().for_each(|ladder| ladder.cut(view.at));
            return;
        }
        self.ladders.retain(|id, _| view.app(*id).is_some());
        let speaks = |id: &AppId| view.app(*id).is_none_or(|app| speed::told(view, app).is_some());
        self.silent.retain(|id| !speaks(id));
        let tasks = view.by_app();
        for app in &view.apps {
            self.ladders.entry(app.id).or_default().add(view, app, tasks.of(app.id));
        }
    }

    fn watch(&mut self, now: Time) {
        self.retraced = 0;
        self.phase = ShapesPhase::Watch { since: now };
        self.load = Load::default();
        self.meter.clear();
    }

    fn trace(&mut self) {
        self.phase = ShapesPhase::Trace { points: Vec::new(), long: false, asked: None };
        self.meter.clear();
        if let Some(learned) = &mut self.learned {
            learned.counted = GroupCounts::default();
        }
    }

    /// One round. Returns when the next one is due.
    fn step(&mut self, round: &mut ShapesRound<'_>) -> Time {
        let (view, now) = (round.view, round.now);
        self.listen(view);
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        // Who takes no part may go without notice.
        let none_new = tasks.iter().all(|task| self.tasks.binary_search(task).is_ok());
        if tasks.len() < self.tasks.len() && none_new && self.members.iter().all(|(task, _)| view.task(*task).is_some())
        {
            self.tasks.clone_from(&tasks);
            self.recount(view);
        }
        let watching = matches!(self.phase, ShapesPhase::Watch { .. });
        let left = !watching && !self.plan.fits(round.ctx, view.tasks.iter());
        if tasks != self.tasks || left || matches!(self.phase, ShapesPhase::Fresh) {
            if matches!(self.phase, ShapesPhase::Trial(_) | ShapesPhase::Pages { .. }) {
                self.put_back(view, "threads came or went");
                self.break_off(view, now);
            }
            self.give_birth(round);
            self.tasks = tasks;
            self.watch(now);
        }
        self.widen(view);
        let calm = std::mem::take(&mut self.calm);
        match std::mem::take(&mut self.phase) {
            ShapesPhase::Fresh => self.watch(now),
            ShapesPhase::Watch { since } => return self.watched(round, since),
            ShapesPhase::Trace { points, long, asked } => self.traced(round, points, long, asked),
            ShapesPhase::Trial(running) => self.tried(round, running),
            ShapesPhase::Pages { trial, candidate } => self.followed(round, trial, candidate),
            ShapesPhase::Rest { until, saving, mut heard } if now < until => {
                self.let_go(view);
                if !saving && self.is_another_speed(view, &mut heard) {
                    round.notes.push("speeds are others than before: all of it is measured again".to_owned());
                    self.trace();
                    return round.tick();
                }
                self.phase = ShapesPhase::Rest { until, saving, heard };
                self.calm = (calm + 1).min(CALMEST);
                return until.min(now + round.ctx.config.interval * 2_u32.pow(self.calm));
            }
            ShapesPhase::Rest { saving: true, .. } => self.choose(round),
            ShapesPhase::Rest { saving: false, .. } => self.trace(),
        }
        round.tick()
    }
}

impl Policy for Shapes {
    const SECTION: &'static str = "shapes";
    type State = ShapesState;
    type Settings = ShapesSettings;

    fn name(&self) -> &'static str {
        if self.sam.is_some() { "auto" } else { Self::SECTION }
    }

    fn needs(&self) -> Needs {
        Needs { pages: true, proxies: true, exact: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut s: ShapesState,
        now: Time,
    ) -> Decision<ShapesState> {
        let machine = Some(shape_board::fingerprint(ctx.topology));
        if s.machine != machine {
            let anew = Self::State { machine, ..Default::default() };
            s = if s.machine.is_none() { Self::State { machine, ..s } } else { anew };
        }
        s.plan.learn(ctx, view, outcomes, now);
        let rng = Rng::with_seed(s.seed.unwrap_or(self.settings.seed));
        let advises = outcomes.iter().any(|o| o.outcome == Outcome::NotThisMachine);
        let mut round = ShapesRound { ctx, policy: self, view, now, advises, rng, notes: Vec::new() };
        let wake_at = s.step(&mut round);
        s.seed = Some(round.rng.get_seed());
        let why = s.why.clone();
        let reason = |_: TaskId| Reason { what: why.clone().into(), ..Reason::new("shapes", "") };
        let mut proposals: Vec<Proposal> = s.plan.proposals(now, reason);
        proposals.append(&mut s.moves);
        Decision::new(proposals, s, wake_at, round.notes)
    }
}
