//! `shapes`: the best mapping, found by measuring. It needs nothing but a speed for each application. See
//! `docs/policies/shapes.md`.
//!
//! ```text
//!         nobody came or went          measured               candidate in place
//!   Watch ──────────────────▶ Trace ───────────▶ choose ───────────────────────▶ Trial
//!     ▲                         ▲                 ▲  │ nothing left, or no budget  │ better: it stands from now on
//!     │                         │                 └──┼─────────────────────────────┘ else: the one before
//!     │                         └───── Rest ◀────────┤
//!     │                                              │ something was kept, and memory may move
//!     │                                              └──────▶ Pages ──▶ choose
//!     └── threads or applications came or went, or what they may use changed
//! ```

mod board;
mod learned;
mod ledger;
mod moves;
mod pages;
mod settings;
mod shape;
mod situation;
#[cfg(test)]
mod tests;
mod trial;

pub use settings::{KnownShape, Objective, ObjectiveError, ShapesSettings};

use super::plan::Plan;
use super::sam::{Sam, SamConfig};
use crate::atom::situation::Load;
use board::Board;
use cotenant_model::policy::{Ctx, Needs, Policy};
use cotenant_model::speed::{self, Ladder};
use cotenant_model::{ActionOutcome, AppId, CpuSet, Decision, Proposal, Reason, TaskId, TaskView, Time, View};
use fastrand::Rng;
use learned::{Candidate, Learned, Places, REST};
use ledger::Ledger;
use moves::Kind;
use pages::{Next, PageTrial};
use serde::{Deserialize, Serialize};
use shape::Shape;
use situation::{Meter, Survey, domain_of, survey};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trial::{Ask, Clock, Estimate, FRESH, STAGES, Side, Trial, Verdict};

/// The set of tasks counts as settled after this long without a change.
const WATCH: Duration = Duration::from_millis(500);
/// How long the incumbent is measured before anything is tried, seconds; where its speed jumps.
const TRACE: [f64; 2] = [3.0, 8.0];
/// Points that a trace has at least.
const POINTS: usize = 12;
/// An application that tells nothing for so many seconds ends what is being measured.
const PATIENCE: f64 = 30.0;
/// Fruitless looks after which it looks less often.
const UNHEARD: u32 = 20;
/// False decisions that are accepted, per trial: a decision is taken where the interval of this confidence is clear.
const ALPHA: f64 = 0.05;
/// Pairs of windows after which the guard believes an application's loss.
const GUARDED: usize = 4;
/// A calm machine is sampled at most 2^this times less often.
const CALMEST: u32 = 3;
/// Traces that may show that other threads are busy than it seemed.
const RETRACED: u32 = 3;
/// Situations whose best shape is remembered.
const REMEMBERED: usize = 16;

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
    phase: Phase,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// How often in a row there was nothing to learn.
    fruitless: u32,
    /// Which tasks and CPUs were busy while it watched.
    load: Load,
    /// Threads that take part, ascending, each with its group.
    members: Vec<(TaskId, usize)>,
    /// What tells the speed of each application.
    ladders: BTreeMap<AppId, Ladder>,
    /// Applications that told a speed once, and have fallen silent: they do not count until they tell one again.
    silent: BTreeSet<AppId>,
    meter: Meter,
    plan: Plan,
    learned: Option<Box<Learned>>,
    /// The best shapes of situations of before.
    memory: Vec<KnownShape>,
    /// Where what is drawn goes on.
    seed: Option<u64>,
    /// How often the interval is doubled now.
    calm: u32,
    /// How often in a row it was begun again after a trace.
    retraced: u32,
    /// Why the plan is as it is.
    why: String,
    /// What became of the last trial, until it is told.
    result: String,
    /// Orders about memory of this round.
    #[serde(skip)]
    moves: Vec<Proposal>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Nothing is known yet.
    #[default]
    Fresh,
    /// Waits until the set of tasks has settled.
    Watch { since: Time },
    /// Measures the incumbent: seconds of each point, and logarithms of the speeds.
    Trace { points: Vec<(f64, Vec<f64>)>, long: bool },
    /// A candidate competes.
    Trial(Box<Running>),
    /// Memory follows the threads, for a trial: of the incumbent, or of a candidate that was no better without.
    Pages { trial: Box<PageTrial>, candidate: Option<(Shape, Places)> },
    /// Nothing is left to try for now; `saving`: trials have cost enough.
    Rest { until: Time, saving: bool },
}

/// A trial with its candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Running {
    candidate: Candidate,
    /// Where the threads go for it.
    places: Places,
    trial: Trial,
    /// When the plan last changed, while it is not known to stand.
    asked: Option<Time>,
}

/// A round.
struct Turn<'a> {
    ctx: &'a Ctx<'a>,
    policy: &'a Shapes,
    view: &'a View,
    now: Time,
    rng: Rng,
    notes: Vec<String>,
}

impl Turn<'_> {
    fn tick(&self) -> Time {
        self.now + self.ctx.config.interval
    }

    /// Whether memory may move, and there is anywhere to move it.
    fn moves_memory(&self, board: &Board) -> bool {
        self.ctx.config.move_pages && board.labels.len() > 1
    }
}

impl ShapesState {
    /// The best shapes of the situations so far, the latest last: for the next run.
    pub fn memory(&self) -> &[KnownShape] {
        &self.memory
    }

    /// Puts threads in place; those that it does not name are the kernel's.
    fn put(&mut self, view: &View, places: &Places, why: impl Into<String>) {
        let here = |task: &TaskId| view.task(*task).is_some();
        let wanted = places.iter().filter(|(task, _)| here(task)).map(|(task, set)| (*task, set.clone())).collect();
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
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
        if learned.is_kernel && self.plan.wanted().is_empty() {
            return;
        }
        let places = learned.places.clone();
        self.put(view, &places, why);
    }

    /// Gives back to the kernel what it had chosen, once everybody is there again.
    fn let_go(&mut self, view: &View) {
        let kernels = self.learned.as_ref().is_some_and(|learned| learned.is_kernel);
        if kernels && self.plan.stands() && !self.plan.wanted().is_empty() {
            self.put(view, &BTreeMap::new(), "nothing better than the kernel's placement is known");
        }
    }

    /// Hears what tells the speed of the applications, while nothing is changed.
    fn listen(&mut self, view: &View) {
        if matches!(self.phase, Phase::Trial(_) | Phase::Pages { .. }) {
            self.ladders.values_mut().for_each(|ladder| ladder.cut(view.at));
            return;
        }
        self.ladders.retain(|id, _| view.app(*id).is_some());
        let speaks = |id: &AppId| view.app(*id).is_none_or(|app| speed::told(view, app).is_some());
        self.silent.retain(|id| !speaks(id));
        for app in &view.apps {
            self.ladders.entry(app.id).or_default().add(view, app);
        }
    }

    fn watch(&mut self, now: Time) {
        self.retraced = 0;
        self.phase = Phase::Watch { since: now };
        self.load = Load::default();
        self.meter.clear();
    }

    fn trace(&mut self) {
        self.phase = Phase::Trace { points: Vec::new(), long: false };
        self.meter.clear();
    }

    /// One round. Returns when the next one is due.
    fn step(&mut self, turn: &mut Turn<'_>) -> Time {
        let (view, now) = (turn.view, turn.now);
        self.listen(view);
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        // Who takes no part may go without notice.
        let none_new = tasks.iter().all(|task| self.tasks.binary_search(task).is_ok());
        if tasks.len() < self.tasks.len() && none_new && self.members.iter().all(|(task, _)| view.task(*task).is_some())
        {
            self.tasks.clone_from(&tasks);
            let wanted = self.plan.wanted().clone();
            self.plan.set(tasks.clone(), wanted);
        }
        let watching = matches!(self.phase, Phase::Watch { .. });
        let left = !watching && !self.plan.fits(turn.ctx, view.tasks.iter());
        if tasks != self.tasks || left || matches!(self.phase, Phase::Fresh) {
            if matches!(self.phase, Phase::Trial(_) | Phase::Pages { .. }) {
                self.put_back(view, "threads came or went");
            }
            self.tasks = tasks;
            self.watch(now);
        }
        let calm = std::mem::take(&mut self.calm);
        match std::mem::take(&mut self.phase) {
            Phase::Fresh => self.watch(now),
            Phase::Watch { since } => return self.watched(turn, since),
            Phase::Trace { points, long } => self.traced(turn, points, long),
            Phase::Trial(running) => self.tried(turn, running),
            Phase::Pages { trial, candidate } => self.followed(turn, trial, candidate),
            Phase::Rest { until, saving } if now < until => {
                self.phase = Phase::Rest { until, saving };
                self.let_go(view);
                self.calm = (calm + 1).min(CALMEST);
                return until.min(now + turn.ctx.config.interval * 2_u32.pow(self.calm));
            }
            Phase::Rest { saving: true, .. } => self.choose(turn),
            Phase::Rest { saving: false, .. } => self.trace(),
        }
        turn.tick()
    }

    /// Nobody has come or gone for a while?
    fn watched(&mut self, turn: &mut Turn<'_>, since: Time) -> Time {
        self.phase = Phase::Watch { since };
        // Nothing is known yet of the round in which somebody came.
        if turn.now > since {
            self.load.add(turn.view);
        }
        if turn.now - since < WATCH {
            // Where nothing has told any speed for long there is no hurry to ask again.
            let calm = if self.fruitless > UNHEARD { 2_u32.pow(CALMEST) } else { 1 };
            return (turn.now + turn.ctx.config.interval * calm).min(since + WATCH * calm);
        }
        self.begin(turn);
        turn.tick()
    }

    /// The set of tasks has settled.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        let heard: BTreeMap<AppId, &Ladder> =
            self.ladders.iter().filter(|(id, _)| !self.silent.contains(id)).map(|(id, ladder)| (*id, ladder)).collect();
        let Survey { situation, members, notes } = match survey(turn.ctx, turn.view, &self.load, &heard) {
            Ok(seen) => seen,
            Err(why) => {
                self.fruitless += 1;
                let note = || format!("no decision: {why}; placement is left to the kernel");
                turn.notes.extend((self.fruitless > 1).then(note));
                self.learned = None;
                self.put(turn.view, &BTreeMap::new(), "nothing tells how fast it is");
                return self.watch(turn.now);
            }
        };
        self.fruitless = 0;
        turn.notes.extend(notes);
        if let Objective::App(name) = &turn.policy.settings.objective {
            let known = situation.measures.keys().any(|id| turn.view.app(*id).is_some_and(|app| app.name == *name));
            let note = || format!("no application {name} tells its speed: the mean of all is made as high as possible");
            turn.notes.extend((!known).then(note));
        }
        let before = std::mem::replace(&mut self.members, members);
        let groups = situation.described();
        match &mut self.learned {
            Some(learned) if learned.situation.is_like(&situation) => {
                learned.replace(&before, &self.members);
                self.put_back(turn.view, "threads take the places of like ones");
            }
            _ => {
                // Who was placed before stays there; whoever has come is the kernel's.
                let stands = self.plan.wanted().clone();
                self.put(turn.view, &stands, "");
                let (board, threads) = (situation.board(turn.ctx), situation.threads());
                let ledger = self.learned.take().map_or_else(|| Ledger::new(turn.now), |before| before.ledger.anew());
                let mut learned = Learned::new(situation, ledger);
                let known = self.memory.iter().chain(&turn.policy.settings.known);
                let sound = |known: &&KnownShape| known.groups == groups && known.shape.is_for(&board, &threads);
                let known = { known }.find(sound);
                learned.first = known.map(|known| Candidate::new(known.shape.clone(), Kind::Known));
                self.learned = Some(Box::new(learned));
            }
        }
        let stands = self.plan.wanted().clone();
        let why = std::mem::take(&mut self.why);
        self.put(turn.view, &stands, why);
        self.trace();
    }

    /// A round of the incumbent was measured.
    fn traced(&mut self, turn: &mut Turn<'_>, mut points: Vec<(f64, Vec<f64>)>, mut long: bool) {
        self.load.add(turn.view);
        let Some(learned) = &self.learned else { return self.watch(turn.now) };
        let point = self.meter.add(turn.view, &learned.situation).filter(|_| self.plan.stands());
        points.extend(point.map(|point| (point.seconds, point.logs)));
        let goal = learned.goal(&turn.policy.settings.objective, turn.view);
        let first = points.first().map(|(_, logs)| logs.clone()).unwrap_or_default();
        let worth = |logs: &[f64]| goal.worth(&logs.iter().zip(&first).map(|(a, b)| a - b).collect::<Vec<_>>());
        let values: Vec<(f64, f64)> = points.iter().map(|(seconds, logs)| (*seconds, worth(logs))).collect();
        let seconds: f64 = points.iter().map(|(seconds, _)| seconds).sum();
        if seconds + 1e-6 >= TRACE[usize::from(long)] && points.len() >= POINTS {
            if !long && Clock::jumps(&values) {
                long = true;
            } else if self.retraced < RETRACED && self.has_others(turn) {
                // Over all of the trace others are busy than it seemed at first.
                self.retraced += 1;
                return self.begin(turn);
            } else if let Some(clock) = Clock::from_trace(&values) {
                return self.known(turn, clock);
            }
        }
        if self.meter.waits() > PATIENCE {
            return self.unheard(turn);
        }
        self.phase = Phase::Trace { points, long };
    }

    /// Whether other threads take part than those that did when it began to measure.
    fn has_others(&self, turn: &Turn<'_>) -> bool {
        let active = |task: &&TaskView| self.load.is_active(task.info.id) == Some(true);
        let now: Vec<TaskId> = turn.view.tasks.iter().filter(active).map(|task| task.info.id).collect();
        now.iter().any(|task| self.members.binary_search_by_key(task, |member| member.0).is_err())
    }

    /// Somebody who told a speed has told none for long: the others go on without it.
    fn unheard(&mut self, turn: &Turn<'_>) {
        if let Some(learned) = &self.learned {
            self.silent.extend(self.meter.silent(&learned.situation));
        }
        self.put_back(turn.view, "an application does not tell its speed any more");
        self.watch(turn.now);
    }

    /// The incumbent was measured for long enough.
    fn known(&mut self, turn: &mut Turn<'_>, clock: Clock) {
        let home = self.plan.wanted();
        let Some(learned) = &mut self.learned else { return self.watch(turn.now) };
        learned.clock = clock;
        let board = learned.situation.board(turn.ctx);
        let mut shape = Shape::empty(learned.situation.groups.len(), board.domains.len());
        let mut standing: Vec<Vec<&TaskView>> = vec![Vec::new(); board.domains.len()];
        for &(task, group) in &self.members {
            let domain = domain_of(&board, turn.view, home, task);
            let Some((domain, task)) = domain.zip(turn.view.task(task)) else { continue };
            shape.counts[group][domain] += 1;
            standing[domain].push(task);
        }
        let mut places = BTreeMap::new();
        for (domain, tasks) in board.domains.iter().zip(standing) {
            // Whose cores are shared is the kernel's choice, too: what stands is held as it is, where each thread has
            // a CPU. Else all of the domain is everybody's.
            let cpus: CpuSet = tasks.iter().filter_map(|task| task.cpu).collect();
            let exact = tasks.len() > domain.room() && cpus.len() == tasks.len() && cpus.is_subset(&domain.cpus);
            for task in tasks {
                let own = task.cpu.filter(|_| exact).map(CpuSet::single);
                let place = own.unwrap_or_else(|| domain.cpus.clone()).and(&task.info.allowed);
                places.insert(task.info.id, place);
            }
        }
        if learned.kernel.counts.is_empty() || (learned.is_kernel && learned.kernel != shape) {
            learned.begin_with(&board, shape, places);
        }
        self.choose(turn);
    }

    /// The next trial, or rest.
    fn choose(&mut self, turn: &mut Turn<'_>) {
        let Some(mut learned) = self.learned.take() else { return self.watch(turn.now) };
        let board = learned.situation.board(turn.ctx);
        let due = learned.ledger.due(turn.policy.settings.regret, turn.now);
        if turn.moves_memory(&board) && learned.may_follow(due > turn.now) {
            self.learned = Some(learned);
            return self.follow(turn.view, None);
        }
        if due > turn.now {
            self.learned = Some(learned);
            return self.rest(turn.view, due, true);
        }
        if let Some(sam) = &turn.policy.sam {
            learned.ask(sam, turn, &board, &self.members);
        }
        let home = learned.places.clone();
        let allowed = learned.situation.allowed();
        let seats = |shape: &Shape| {
            shape.seats(&board, &self.members, &allowed, |task| domain_of(&board, turn.view, &home, task))
        };
        let next = loop {
            let Some(candidate) = learned.next(&board, &mut turn.rng) else { break None };
            if candidate.kind == Kind::Kernel {
                let places = learned.kernel_places.clone();
                break Some((candidate, places));
            }
            let places = seats(&candidate.shape);
            if places != home {
                break Some((candidate, places));
            }
        };
        let Some((candidate, places)) = next else {
            let memory = turn.moves_memory(&board);
            let follows = memory && learned.may_follow(true);
            let near = if memory && !follows { learned.near() } else { None };
            let near = near.map(|shape| (shape.clone(), seats(&shape)));
            let rest = if follows || near.is_some() { None } else { Some(learned.rest()) };
            self.learned = Some(learned);
            return match rest {
                Some(rest) => self.rest(turn.view, turn.now + rest, false),
                None => self.follow(turn.view, near),
            };
        };
        let (mut trial, side) = Trial::new(turn.now, learned.recent.take(), candidate.pairs.clone());
        let text = candidate.shape.text(&learned.situation.names(), &board);
        learned.trials += 1;
        self.learned = Some(learned);
        let away = !self.plan.wanted().is_empty() && (*self.plan.wanted() != home || !self.plan.stands());
        let changes = side == Side::Candidate || away;
        if changes {
            trial.switched(turn.now);
            match side {
                Side::Candidate => self.put(turn.view, &places, format!("tried: {text}")),
                Side::Incumbent => self.put(turn.view, &home, "the one that stands, to compare"),
            }
        }
        let asked = changes.then_some(turn.now);
        self.phase = Phase::Trial(Box::new(Running { candidate, places, trial, asked }));
    }

    /// Tries whether memory is to follow the threads.
    fn follow(&mut self, view: &View, candidate: Option<(Shape, Places)>) {
        self.put_back(view, "it stands");
        self.meter.clear();
        self.phase = Phase::Pages { trial: Box::default(), candidate };
    }

    fn rest(&mut self, view: &View, until: Time, saving: bool) {
        self.put_back(view, if saving { "trials have cost enough for now" } else { "nothing better is known" });
        self.phase = Phase::Rest { until, saving };
    }

    /// A round of a trial.
    fn tried(&mut self, turn: &mut Turn<'_>, mut running: Box<Running>) {
        let Some(learned) = &mut self.learned else { return self.watch(turn.now) };
        if let Some(asked) = running.asked {
            if self.plan.stands() {
                running.asked = None;
            } else if turn.now - asked > 3 * turn.ctx.config.interval {
                learned.forget(&running.candidate, &learned.situation.board(turn.ctx));
                self.put_back(turn.view, "threads could not be placed");
                self.phase = Phase::Rest { until: turn.now + REST, saving: true };
                return;
            }
        }
        let goal = learned.goal(&turn.policy.settings.objective, turn.view);
        let stage = STAGES[running.candidate.stage.min(STAGES.len() - 1)];
        let Some(point) = self.meter.add(turn.view, &learned.situation) else {
            if self.meter.waits() > PATIENCE {
                return self.unheard(turn);
            }
            self.phase = Phase::Trial(running);
            return;
        };
        match running.trial.add(&point, &goal, &mut learned.clock, stage, ALPHA, &mut turn.rng) {
            Ask::Stay => self.phase = Phase::Trial(running),
            Ask::Switch(side) => {
                let (places, why) = match side {
                    Side::Candidate => {
                        let board = learned.situation.board(turn.ctx);
                        let text = running.candidate.shape.text(&learned.situation.names(), &board);
                        (running.places.clone(), format!("tried: {text}"))
                    }
                    Side::Incumbent => (learned.places.clone(), "the one that stands, to compare".to_owned()),
                };
                running.trial.switched(turn.now);
                running.asked = Some(turn.now);
                self.phase = Phase::Trial(running);
                self.put(turn.view, &places, why);
            }
            Ask::Done(verdict) => self.judge(turn, *running, verdict),
        }
    }

    /// A trial is over.
    fn judge(&mut self, turn: &mut Turn<'_>, running: Running, verdict: Verdict) {
        let Running { candidate, places, trial, .. } = running;
        let settings = &turn.policy.settings;
        let Some(learned) = &mut self.learned else { return self.watch(turn.now) };
        let board = learned.situation.board(turn.ctx);
        let estimate = trial.estimate(&learned.goal(&settings.objective, turn.view), &learned.clock, ALPHA);
        let changes = trial.changes();
        let is_kernel = candidate.kind == Kind::Kernel;
        let guarded = !is_kernel && estimate.pairs >= 2 && learned.guarded(settings.guard, &changes);
        // The audit shows that somebody is further below the kernel's placement than may be.
        let against: Vec<f64> = changes.iter().map(|change| -change).collect();
        let violated =
            is_kernel && estimate.pairs >= GUARDED && guards(settings.guard, &vec![0.0; against.len()], &against);
        let kept = (verdict == Verdict::Better && !guarded) || violated;
        learned.count(&candidate, kept);
        learned.recent = trial.last.clone().filter(|(at, _)| turn.now - *at < FRESH);
        learned.ledger.spent(trial.cost, if kept { estimate.mean } else { 0.0 }, turn.now);
        let said = format!("{}: {}", candidate.shape.text(&learned.situation.names(), &board), said(&estimate));
        if kept {
            learned.keep(candidate.shape, places, &changes, is_kernel, false);
            turn.notes.push(format!("kept: {said}"));
            self.remember();
            self.result = format!("kept: {said}");
            self.put_back(turn.view, "it stands");
        } else {
            if is_kernel && estimate.pairs >= GUARDED {
                learned.standing = against;
            }
            let open = verdict == Verdict::Undecided && estimate.mean > 0.0 && !guarded;
            learned.dismiss(candidate, trial.pairs, estimate.mean, open);
            self.result = format!("not kept: {said}");
        }
        if verdict == Verdict::Restless {
            self.put_back(turn.view, "the load changes too often to tell");
            return self.trace();
        }
        self.choose(turn);
    }

    /// A round of a trial of memory.
    fn followed(&mut self, turn: &mut Turn<'_>, mut trial: Box<PageTrial>, candidate: Option<(Shape, Places)>) {
        let settings = &turn.policy.settings;
        let Some(learned) = &mut self.learned else { return self.watch(turn.now) };
        let goal = learned.goal(&settings.objective, turn.view);
        let point = self.meter.add(turn.view, &learned.situation).filter(|_| self.plan.stands());
        if self.meter.waits() > PATIENCE {
            return self.unheard(turn);
        }
        let places = candidate.as_ref().map_or(&learned.places, |(_, places)| places).clone();
        let refused = |changes: &[f64]| learned.guarded(settings.guard, changes);
        let worth = |change: &[f64]| goal.worth(change);
        match trial.add(turn.ctx.topology, [&learned.places, &places], turn.view, point, worth, refused) {
            Next::Wait => self.phase = Phase::Pages { trial, candidate },
            Next::Move { orders, back } => {
                self.moves = orders;
                if back || candidate.is_some() {
                    let to = if back { learned.places.clone() } else { places };
                    self.put(turn.view, &to, "where its memory goes");
                }
                self.phase = Phase::Pages { trial, candidate };
            }
            Next::Done(changes, stays) => {
                let gain = goal.worth(&changes);
                learned.ledger.spent(trial.cost, if stays { gain } else { 0.0 }, turn.now);
                learned.recent = None;
                if stays {
                    turn.notes.push(format!("memory follows the threads: {:+.1} %", gain.exp_m1() * 100.0));
                    let (shape, places) =
                        candidate.unwrap_or_else(|| (learned.incumbent.clone(), learned.places.clone()));
                    learned.keep(shape, places, &changes, false, true);
                    self.remember();
                }
                self.choose(turn);
            }
        }
    }

    /// Remembers the incumbent for when the same programs run again.
    fn remember(&mut self) {
        let Some(learned) = &self.learned else { return };
        let groups = learned.situation.described();
        self.memory.retain(|known| known.groups != groups);
        if !learned.is_kernel {
            self.memory.push(KnownShape { groups, shape: learned.incumbent.clone() });
        }
        if self.memory.len() > REMEMBERED {
            self.memory.remove(0);
        }
    }
}

/// Whether somebody would be further below the kernel's placement than may be.
fn guards(guard: Option<f64>, standing: &[f64], changes: &[f64]) -> bool {
    let least = guard.map_or(f64::NEG_INFINITY, |guard| (1.0 - guard).ln());
    standing.iter().zip(changes).any(|(standing, change)| standing + change < least)
}

/// `+4.2 % (+1.1 to +7.3 %), 4 pairs of windows`.
fn said(estimate: &Estimate) -> String {
    let percent = |log: f64| log.exp_m1() * 100.0;
    let Estimate { mean, radius, pairs } = *estimate;
    if !radius.is_finite() {
        return format!("{:+.1} % at a glance", percent(mean));
    }
    let (low, high) = (percent(mean - radius), percent(mean + radius));
    format!("{:+.1} % ({low:+.1} to {high:+.1} %), {pairs} pairs of windows", percent(mean))
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
        s.plan.learn(ctx, view, outcomes, now);
        let rng = Rng::with_seed(s.seed.unwrap_or(self.settings.seed));
        let mut turn = Turn { ctx, policy: self, view, now, rng, notes: Vec::new() };
        let wake_at = s.step(&mut turn);
        s.seed = Some(turn.rng.get_seed());
        let why = s.why.clone();
        let reason = |_: TaskId| Reason { what: why.clone().into(), ..Reason::new("shapes", "") };
        let mut proposals: Vec<Proposal> = s.plan.proposals(now, reason);
        proposals.append(&mut s.moves);
        Decision::new(proposals, s, wake_at, turn.notes)
    }
}
