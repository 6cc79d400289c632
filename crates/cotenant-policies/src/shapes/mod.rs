//! `shapes`: the best mapping, found by measuring. It needs nothing but a speed for each application. See
//! `docs/policies/shapes.md`.
//!
//! ```text
//!         nobody came or went          measured               candidate in place
//!   Watch ──────────────────▶ Trace ───────────▶ Choose ───────────────────────▶ Trial
//!     ▲                         ▲                 ▲  │ nothing left, or no budget  │ better: it stands from now on
//!     │                         │                 └──┼─────────────────────────────┘ else: the one before
//!     │                         └───── Rest ◀────────┘
//!     └── threads or applications came or went, or what they may use changed
//! ```

mod board;
mod ledger;
mod moves;
mod pages;
mod settings;
mod shape;
mod situation;
#[cfg(test)]
mod tests;
mod trial;

pub use settings::{Objective, ObjectiveError, ShapesSettings};

use super::plan::Plan;
use super::sam::{Sam, SamConfig, SamState};
use crate::atom::situation::Load;
use board::Board;
use cotenant_model::policy::{Ctx, Needs, Policy};
use cotenant_model::speed::Ladder;
use cotenant_model::{Action, ActionOutcome, AppId, CpuSet, Decision, Proposal, Reason, TaskId, Time, View};
use fastrand::Rng;
use ledger::Ledger;
use moves::{KINDS, Kind, neighbour, seeds};
use pages::{Next, PageTrial};
use serde::{Deserialize, Serialize};
use shape::Shape;
use situation::{Meter, Situation, Survey, domain_of, survey};
use std::collections::BTreeMap;
use std::time::Duration;
use trial::{Ask, Clock, Estimate, FRESH, Goal, STAGES, Side, Trial, Verdict};

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
/// Draws of a neighbour before all of them count as tried.
const DRAWS: u32 = 60;
/// Trials in a row that found nothing before it rests.
const FRUITLESS: u32 = 60;
/// `sam` is asked before every so manieth trial.
const ASKED: u32 = 5;
/// Trials in a row that found nothing before memory is tried to follow.
const SETTLED: u32 = 6;
/// With memory that follows, shapes are tried again that were worse by no more than this, and so many of them.
const NEAR: f64 = 0.12;
const NEAREST: usize = 4;
/// Candidates that are remembered for a finer look.
const PROMISING: usize = 16;
/// Shapes that are known to be no better.
const TRIED: usize = 1_024;
/// The first rest; it doubles each time.
const REST: Duration = Duration::from_secs(20);
const LONGEST_REST: Duration = Duration::from_secs(3_600);
/// False decisions that are accepted, per trial: a decision is taken where the interval of this confidence is clear.
const ALPHA: f64 = 0.05;
/// Pairs of windows after which the guard believes an application's loss.
const GUARDED: usize = 4;
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
    meter: Meter,
    plan: Plan,
    learned: Option<Box<Learned>>,
    /// Where what is drawn goes on.
    seed: Option<u64>,
    /// How often the interval is doubled now.
    calm: u32,
    /// Why the plan is as it is.
    why: String,
    /// Orders about memory of this round.
    #[serde(skip)]
    extra: Vec<Proposal>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Waits until the set of tasks has settled.
    #[default]
    Fresh,
    Watch {
        since: Time,
    },
    /// Measures the incumbent.
    Trace {
        /// Seconds and worth of each point.
        points: Vec<(f64, Vec<f64>)>,
        long: bool,
    },
    /// A candidate competes.
    Trial(Box<Running>),
    /// Memory follows the threads, for a trial: of the incumbent, or of a candidate that was no better without.
    Pages {
        trial: Box<PageTrial>,
        candidate: Option<(Shape, BTreeMap<TaskId, CpuSet>)>,
    },
    /// Nothing is left to try for now, or trials have cost enough.
    Rest {
        until: Time,
        /// Whether it is for the cost alone.
        saving: bool,
    },
}

/// A trial with its candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Running {
    candidate: Candidate,
    /// Where the threads go for it.
    places: BTreeMap<TaskId, CpuSet>,
    trial: Trial,
    /// When the plan last changed, while it is not known to stand.
    asked: Option<Time>,
}

/// A shape that may be better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Candidate {
    shape: Shape,
    kind: Kind,
    /// What was measured so far: candidate over incumbent, per application.
    pairs: Vec<Vec<f64>>,
    /// Which of [`STAGES`] is next.
    stage: usize,
}

/// What is known about a situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Learned {
    situation: Situation,
    clock: Clock,
    /// What the kernel had chosen, and where each thread stood then.
    kernel: Shape,
    kernel_places: BTreeMap<TaskId, CpuSet>,
    /// The best so far.
    incumbent: Shape,
    places: BTreeMap<TaskId, CpuSet>,
    /// Whether that is what the kernel had chosen.
    is_kernel: bool,
    /// How far each application is above its speed under the kernel's placement, as logarithms.
    standing: Vec<f64>,
    /// Seeds that have been drawn.
    seeds: usize,
    /// Keys of shapes that were tried.
    tried: Vec<u64>,
    promising: Vec<Candidate>,
    /// Trials and successes of each of [`KINDS`].
    luck: [[u32; 2]; KINDS.len()],
    /// The incumbent's last window.
    recent: Option<(Time, Vec<f64>)>,
    ledger: Ledger,
    rest: Duration,
    /// Trials since something was kept.
    idle: u32,
    /// Whether the incumbent is to be held against the kernel's placement next.
    audit: bool,
    /// Whether it has been tried, since the incumbent stands, to let memory follow.
    followed: bool,
    /// Where `sam` would move threads to.
    asked: Option<Shape>,
    /// Shapes that were not much worse with the memory where it is, and by how much.
    near: Vec<(Shape, f64)>,
    trials: u32,
    kept: u32,
}

impl Learned {
    fn goal(&self, settings: &ShapesSettings, view: &View) -> Goal {
        match &settings.objective {
            Objective::Mean => Goal::Mean,
            Objective::Fair => Goal::Fair(self.standing.clone()),
            Objective::App(name) => {
                let named = |id: &AppId| view.app(*id).is_some_and(|app| app.name == *name);
                self.situation.measures.keys().position(named).map_or(Goal::Mean, Goal::App)
            }
        }
    }

    fn knows(&self, key: u64) -> bool {
        self.tried.contains(&key)
    }

    fn note(&mut self, key: u64) {
        if !self.knows(key) {
            self.tried.push(key);
            if self.tried.len() > TRIED {
                self.tried.remove(0);
            }
        }
    }

    /// Asks `sam` what it would move, if it can tell.
    fn ask(&mut self, sam: &Sam, ctx: &Ctx<'_>, view: &View, board: &Board, members: &[(TaskId, usize)]) {
        if self.incumbent.counts.is_empty() || Policy::check(sam, ctx).is_err() {
            return;
        }
        let Decision { proposals, .. } = Policy::decide(sam, ctx, view, &[], SamState::default(), view.at);
        let mut shape = self.incumbent.clone();
        for proposal in &proposals {
            let Action::Place { task, contexts } = &proposal.action else { continue };
            let Ok(member) = members.binary_search_by_key(task, |member| member.0) else { continue };
            let to = board.domains.iter().position(|domain| contexts.is_subset(&domain.cpus));
            let from = domain_of(board, view, &self.places, *task);
            if let (Some(from), Some(to)) = (from, to)
                && shape.counts[members[member].1][from] > 0
            {
                shape.counts[members[member].1][from] -= 1;
                shape.counts[members[member].1][to] += 1;
            }
        }
        if shape.doubling.order.is_empty() {
            shape.doubling.order = (0..shape.counts.len() as u8).collect();
        }
        let key = shape.key(board);
        if shape.fits(board, &self.situation.allowed()) && !self.knows(key) {
            self.note(key);
            self.asked = Some(shape);
        }
    }

    /// The next candidate; `None` where nothing is left.
    fn next(&mut self, board: &Board, rng: &mut Rng) -> Option<Candidate> {
        let fresh = |shape, kind| Candidate { shape, kind, pairs: Vec::new(), stage: 0 };
        if std::mem::take(&mut self.audit) && !self.is_kernel {
            return Some(Candidate { stage: 1, ..fresh(self.kernel.clone(), Kind::Kernel) });
        }
        if let Some(shape) = self.asked.take() {
            return Some(fresh(shape, Kind::Sam));
        }
        let allowed = self.situation.allowed();
        let seeds = seeds(board, &self.situation.threads());
        while let Some(shape) = seeds.get(self.seeds) {
            self.seeds += 1;
            let key = shape.key(board);
            if shape.fits(board, &allowed) && !self.knows(key) {
                self.note(key);
                return Some(fresh(shape.clone(), Kind::Seed));
            }
        }
        if self.idle < FRUITLESS {
            for _ in 0..DRAWS {
                let weight = |[trials, kept]: [u32; 2]| f64::from(kept + 1) / f64::from(trials + 2);
                let all: f64 = self.luck.iter().map(|luck| weight(*luck)).sum();
                let mut at = rng.f64() * all;
                let drawn = self.luck.iter().position(|luck| {
                    at -= weight(*luck);
                    at < 0.0
                });
                let kind = KINDS[drawn.unwrap_or(0)];
                let Some(shape) = neighbour(board, &self.incumbent, kind, rng) else { continue };
                let key = shape.key(board);
                if shape.fits(board, &allowed) && !self.knows(key) {
                    self.note(key);
                    return Some(fresh(shape, kind));
                }
            }
        }
        // Nothing new: those that looked good, the best first, are looked at more closely.
        let worth = |candidate: &Candidate| -> f64 {
            let means = candidate.pairs.iter().map(|pair| Goal::Mean.worth(pair));
            means.sum::<f64>() / candidate.pairs.len().max(1) as f64
        };
        let best = (0..self.promising.len())
            .max_by(|&a, &b| worth(&self.promising[a]).total_cmp(&worth(&self.promising[b])))?;
        Some(self.promising.swap_remove(best))
    }
}

impl ShapesState {
    /// Puts threads in place; those that it does not name are the kernel's.
    fn put(&mut self, view: &View, places: &BTreeMap<TaskId, CpuSet>, why: String) {
        let here = |task: &TaskId| view.task(*task).is_some();
        let wanted = places.iter().filter(|(task, _)| here(task)).map(|(task, set)| (*task, set.clone())).collect();
        self.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), wanted);
        self.why = why;
    }

    /// Puts the incumbent in place. What the kernel had chosen is put back, too, before it is the kernel's again:
    /// the kernel leaves threads where they are, as long as the load is even.
    fn put_back(&mut self, view: &View, why: String) {
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
            self.put(view, &BTreeMap::new(), "nothing better than the kernel's placement is known".to_owned());
        }
    }

    /// Hears what tells the speed of the applications, while nothing is changed.
    fn listen(&mut self, view: &View) {
        if matches!(self.phase, Phase::Trial(_) | Phase::Pages { .. }) {
            self.ladders.values_mut().for_each(|ladder| ladder.cut(view.at));
            return;
        }
        self.ladders.retain(|id, _| view.app(*id).is_some());
        for app in &view.apps {
            self.ladders.entry(app.id).or_default().add(view, app);
        }
    }

    fn watch(&mut self, now: Time) {
        self.phase = Phase::Watch { since: now };
        self.load = Load::default();
        self.meter.clear();
    }

    fn trace(&mut self) {
        self.phase = Phase::Trace { points: Vec::new(), long: false };
        self.meter.clear();
    }

    /// The set of tasks has settled.
    fn begin(&mut self, ctx: &Ctx<'_>, view: &View, now: Time, notes: &mut Vec<String>) {
        let Survey { situation, members, notes: remarks } = match survey(ctx, view, &self.load, &self.ladders) {
            Ok(seen) => seen,
            Err(why) => {
                self.fruitless += 1;
                notes.extend((self.fruitless > 1).then(|| format!("no decision: {why}; placement is left to the kernel")));
                self.learned = None;
                self.put(view, &BTreeMap::new(), "nothing tells how fast it is".to_owned());
                return self.watch(now);
            }
        };
        self.fruitless = 0;
        notes.extend(remarks);
        self.members = members;
        // Who was placed before stays there; whoever has come is the kernel's.
        let before = self.plan.wanted().clone();
        self.put(view, &before, String::new());
        let known = self.learned.as_ref().is_some_and(|learned| learned.situation.is_like(&situation));
        if !known {
            self.learned = Some(Box::new(Learned {
                situation,
                rest: REST,
                is_kernel: true,
                ledger: Ledger::new(now),
                ..Learned::default()
            }));
        }
        self.trace();
    }

    /// Draws what stands as a shape: what the kernel has chosen.
    fn draw(&self, board: &Board, view: &View, home: &BTreeMap<TaskId, CpuSet>) -> (Shape, BTreeMap<TaskId, CpuSet>) {
        let groups = self.learned.as_ref().map_or(0, |learned| learned.situation.groups.len());
        let mut shape = Shape::empty(groups, board.domains.len());
        let mut places = BTreeMap::new();
        for &(task, group) in &self.members {
            let Some(domain) = domain_of(board, view, home, task) else { continue };
            shape.counts[group][domain] += 1;
            if let Some(t) = view.task(task) {
                places.insert(task, board.domains[domain].cpus.and(&t.info.allowed));
            }
        }
        (shape, places)
    }

    /// The incumbent was measured for long enough.
    fn traced(&mut self, ctx: &Ctx<'_>, view: &View, clock: Clock) -> bool {
        let home = self.plan.wanted().clone();
        let Some(mut learned) = self.learned.take() else { return false };
        let board = learned.situation.board(ctx);
        learned.clock = clock;
        self.learned = Some(learned);
        let (shape, places) = self.draw(&board, view, &home);
        let Some(learned) = &mut self.learned else { return false };
        if learned.kernel.counts.is_empty() || (learned.is_kernel && learned.kernel != shape) {
            let key = shape.key(&board);
            (learned.seeds, learned.idle) = (0, 0);
            learned.tried.clear();
            learned.note(key);
            (learned.kernel, learned.kernel_places) = (shape.clone(), places.clone());
            (learned.incumbent, learned.places, learned.is_kernel) = (shape, places, true);
            learned.standing = vec![0.0; learned.situation.measures.len()];
        }
        true
    }

    /// The next trial, or rest.
    fn choose(&mut self, ctx: &Ctx<'_>, policy: &Shapes, view: &View, now: Time, rng: &mut Rng) {
        let Some(mut learned) = self.learned.take() else { return self.watch(now) };
        let board = learned.situation.board(ctx);
        let due = learned.ledger.due(policy.settings.regret, now);
        let memory = ctx.config.move_pages && !learned.is_kernel && !learned.followed && board.labels.len() > 1;
        if memory && (learned.idle >= SETTLED || due > now) {
            learned.followed = true;
            self.learned = Some(learned);
            return self.follow(view, None);
        }
        if due > now {
            self.learned = Some(learned);
            self.put_back(view, "trials have cost enough for now".to_owned());
            self.phase = Phase::Rest { until: due, saving: true };
            return;
        }
        let home = learned.places.clone();
        if let Some(sam) = policy.sam.as_ref().filter(|_| learned.trials.is_multiple_of(ASKED)) {
            learned.ask(sam, ctx, view, &board, &self.members);
        }
        loop {
            let Some(candidate) = learned.next(&board, rng) else {
                if memory {
                    learned.followed = true;
                    self.learned = Some(learned);
                    return self.follow(view, None);
                }
                if ctx.config.move_pages && board.labels.len() > 1 && !learned.near.is_empty() {
                    let (shape, _) = learned.near.remove(0);
                    let places = shape.seats(&board, &self.members, &learned.situation.allowed(), |task| {
                        domain_of(&board, view, &home, task)
                    });
                    self.learned = Some(learned);
                    return self.follow(view, Some((shape, places)));
                }
                let until = now + learned.rest;
                (learned.idle, learned.audit) = (0, learned.kept > 0);
                learned.rest = (learned.rest * 2).min(LONGEST_REST);
                self.learned = Some(learned);
                self.put_back(view, "nothing better is known".to_owned());
                self.phase = Phase::Rest { until, saving: false };
                return;
            };
            let places = match candidate.kind {
                Kind::Kernel => learned.kernel_places.clone(),
                _ => candidate.shape.seats(&board, &self.members, &learned.situation.allowed(), |task| {
                    domain_of(&board, view, &home, task)
                }),
            };
            if places == home && candidate.kind != Kind::Kernel {
                continue;
            }
            let recent = learned.recent.take();
            let (trial, side) = Trial::new(now, recent, candidate.pairs.clone());
            let text = candidate.shape.text(&learned.situation.names(), &board);
            learned.trials += 1;
            self.learned = Some(learned);
            let mut running = Running { candidate, places, trial, asked: None };
            if side == Side::Candidate {
                self.put(view, &running.places, format!("tried: {text}"));
                running.trial.switched(now);
                running.asked = Some(now);
            } else if !self.plan.wanted().is_empty() && (*self.plan.wanted() != home || !self.plan.stands()) {
                self.put(view, &home, "the one that stands, to compare".to_owned());
                running.trial.switched(now);
                running.asked = Some(now);
            }
            self.phase = Phase::Trial(Box::new(running));
            return;
        }
    }

    /// Tries whether memory is to follow the threads.
    fn follow(&mut self, view: &View, candidate: Option<(Shape, BTreeMap<TaskId, CpuSet>)>) {
        self.put_back(view, "it stands".to_owned());
        self.meter.clear();
        self.phase = Phase::Pages { trial: Box::default(), candidate };
    }

    /// A trial is over.
    fn judge(
        &mut self,
        ctx: &Ctx<'_>,
        settings: &ShapesSettings,
        view: &View,
        now: Time,
        running: Running,
        verdict: Verdict,
        notes: &mut Vec<String>,
    ) {
        let Running { mut candidate, places, trial, .. } = running;
        let Some(learned) = &mut self.learned else { return self.watch(now) };
        let board = learned.situation.board(ctx);
        let goal = learned.goal(settings, view);
        let estimate = trial.estimate(&goal, &learned.clock, ALPHA);
        let changes = trial.changes();
        let names = learned.situation.names();
        let text = candidate.shape.text(&names, &board);
        let (candidate_kind, candidate_shape) = (candidate.kind, candidate.shape.clone());
        let result = said(&estimate);
        if let Some(i) = KINDS.iter().position(|kind| *kind == candidate.kind) {
            learned.luck[i][0] += u32::from(candidate.stage == 0);
        }
        learned.idle += 1;
        learned.recent = trial.last.clone().filter(|(at, _)| now - *at < FRESH);
        let guarded = candidate.kind != Kind::Kernel
            && estimate.pairs >= 2
            && guards(settings.guard, &learned.standing, &changes);
        let violated = candidate.kind == Kind::Kernel
            && estimate.pairs >= GUARDED
            && settings.guard.is_some_and(|guard| changes.iter().any(|change| *change > -(1.0 - guard).ln()));
        let kept = (verdict == Verdict::Better && !guarded) || violated;
        learned.ledger.spent(trial.cost, if kept { estimate.mean } else { 0.0 }, now);
        if kept {
            if let Some(i) = KINDS.iter().position(|kind| *kind == candidate.kind) {
                learned.luck[i][1] += 1;
            }
            learned.is_kernel = candidate.kind == Kind::Kernel;
            for (standing, change) in learned.standing.iter_mut().zip(&changes) {
                *standing = if learned.is_kernel { 0.0 } else { *standing + change };
            }
            (learned.incumbent, learned.places) = (candidate.shape, places);
            learned.promising.clear();
            learned.near.clear();
            (learned.idle, learned.recent) = (0, None);
            learned.followed = learned.is_kernel;
            learned.kept += 1;
            learned.rest = REST;
            notes.push(format!("kept: {text}: {result}"));
            self.put_back(view, format!("kept: {text}: {result}"));
        } else {
            if candidate.kind == Kind::Kernel && estimate.pairs >= GUARDED {
                learned.standing = changes.iter().map(|change| -change).collect();
            }
            let open = verdict == Verdict::Undecided && estimate.mean > 0.0 && !guarded;
            if open && candidate.stage + 1 < STAGES.len() && candidate.kind != Kind::Kernel {
                candidate.stage += 1;
                candidate.pairs = trial.pairs;
                learned.promising.push(candidate);
                if learned.promising.len() > PROMISING {
                    learned.promising.remove(0);
                }
            }
            if estimate.mean > -NEAR && !matches!(candidate_kind, Kind::Kernel | Kind::Share) {
                learned.near.push((candidate_shape, estimate.mean));
                learned.near.sort_by(|a, b| b.1.total_cmp(&a.1));
                learned.near.truncate(NEAREST);
            }
            self.why = format!("not kept: {text}: {result}");
        }
        if verdict == Verdict::Restless {
            self.put_back(view, "the load changes too often to tell".to_owned());
            return self.trace();
        }
        self.phase = Phase::Fresh; // until the next candidate is chosen
    }

    /// One round. Returns when the next one is due.
    fn step(
        &mut self,
        ctx: &Ctx<'_>,
        policy: &Shapes,
        view: &View,
        now: Time,
        rng: &mut Rng,
        notes: &mut Vec<String>,
    ) -> Time {
        let settings = &policy.settings;
        let tick = now + ctx.config.interval;
        self.listen(view);
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        let watching = matches!(self.phase, Phase::Watch { .. });
        let left = !watching && !self.plan.fits(ctx, view.tasks.iter());
        if tasks != self.tasks || left || matches!(self.phase, Phase::Fresh) {
            if matches!(self.phase, Phase::Trial(_)) {
                self.put_back(view, "threads came or went".to_owned());
            }
            self.tasks = tasks;
            self.watch(now);
        }
        match std::mem::take(&mut self.phase) {
            Phase::Fresh => self.watch(now),
            Phase::Watch { since } => {
                // Nothing is known yet of the round in which somebody came.
                if now > since {
                    self.load.add(view);
                }
                self.phase = Phase::Watch { since };
                if now - since < WATCH {
                    // Where nothing has told any speed for long there is no hurry to ask again.
                    let calm = if self.fruitless > UNHEARD { 2_u32.pow(CALMEST) } else { 1 };
                    return (now + ctx.config.interval * calm).min(since + WATCH * calm);
                }
                self.begin(ctx, view, now, notes);
            }
            Phase::Trace { mut points, mut long } => {
                self.load.add(view);
                let Some(learned) = &self.learned else {
                    self.watch(now);
                    return tick;
                };
                let point = self.meter.add(view, &learned.situation).filter(|_| self.plan.stands());
                points.extend(point.map(|point| (point.seconds, point.logs)));
                let goal = learned.goal(settings, view);
                let first = points.first().map(|(_, logs)| logs.clone()).unwrap_or_default();
                let worth = |logs: &Vec<f64>| {
                    goal.worth(&logs.iter().zip(&first).map(|(a, b)| a - b).collect::<Vec<_>>())
                };
                let values: Vec<(f64, f64)> = points.iter().map(|(seconds, logs)| (*seconds, worth(logs))).collect();
                let seconds: f64 = points.iter().map(|(seconds, _)| seconds).sum();
                let enough = seconds + 1e-6 >= TRACE[usize::from(long)] && points.len() >= POINTS;
                if enough && !long && Clock::jumps(&values) {
                    long = true;
                } else if enough && let Some(clock) = Clock::from_trace(&values) {
                    self.traced(ctx, view, clock);
                    self.choose(ctx, policy, view, now, rng);
                    return tick;
                }
                if self.meter.waits() > PATIENCE {
                    self.watch(now); // somebody is silent: who counts is looked at anew
                    return tick;
                }
                self.phase = Phase::Trace { points, long };
            }
            Phase::Trial(mut running) => {
                let Some(learned) = &mut self.learned else {
                    self.watch(now);
                    return tick;
                };
                if let Some(asked) = running.asked {
                    if self.plan.stands() {
                        running.asked = None;
                    } else if now - asked > 3 * ctx.config.interval {
                        // It cannot be had now, which says nothing about it.
                        let key = running.candidate.shape.key(&learned.situation.board(ctx));
                        learned.tried.retain(|tried| *tried != key);
                        (learned.seeds, learned.recent) = (0, None);
                        self.put_back(view, "threads could not be placed".to_owned());
                        self.phase = Phase::Rest { until: now + REST, saving: true };
                        return tick;
                    }
                }
                let goal = learned.goal(settings, view);
                let stage = STAGES[running.candidate.stage.min(STAGES.len() - 1)];
                let Some(point) = self.meter.add(view, &learned.situation) else {
                    if self.meter.waits() > PATIENCE {
                        self.put_back(view, "nothing tells how fast it is".to_owned());
                        self.watch(now);
                        return tick;
                    }
                    self.phase = Phase::Trial(running);
                    return tick;
                };
                match running.trial.add(&point, &goal, &mut learned.clock, stage, ALPHA, rng) {
                    Ask::Stay => self.phase = Phase::Trial(running),
                    Ask::Switch(side) => {
                        let places = if side == Side::Candidate { &running.places } else { &learned.places };
                        let places = places.clone();
                        running.trial.switched(now);
                        running.asked = Some(now);
                        let why = if side == Side::Candidate { "tried again" } else { "the one that stands, to compare" };
                        self.phase = Phase::Trial(running);
                        self.put(view, &places, why.to_owned());
                    }
                    Ask::Done(verdict) => {
                        self.judge(ctx, settings, view, now, *running, verdict, notes);
                        if matches!(self.phase, Phase::Fresh) {
                            self.choose(ctx, policy, view, now, rng);
                        }
                    }
                }
            }
            Phase::Pages { mut trial, candidate } => {
                let Some(learned) = &mut self.learned else {
                    self.watch(now);
                    return tick;
                };
                let goal = learned.goal(settings, view);
                let point = self.meter.add(view, &learned.situation).filter(|_| self.plan.stands());
                let places = candidate.as_ref().map_or(&learned.places, |(_, places)| places).clone();
                match trial.add(ctx.topology, [&learned.places, &places], view, point, |change| goal.worth(change)) {
                    Next::Wait => self.phase = Phase::Pages { trial, candidate },
                    Next::Move { orders, back } => {
                        self.extra = orders;
                        let to = if back { learned.places.clone() } else { places };
                        if back || candidate.is_some() {
                            self.put(view, &to, "where its memory goes".to_owned());
                        }
                        self.phase = Phase::Pages { trial, candidate };
                    }
                    Next::Done(changes, stays) => {
                        let gain = goal.worth(&changes);
                        learned.ledger.spent(trial.cost, if stays { gain } else { 0.0 }, now);
                        for (standing, change) in learned.standing.iter_mut().zip(&changes) {
                            *standing += change;
                        }
                        learned.recent = None;
                        if stays {
                            notes.push(format!("memory follows the threads: {:+.1} %", gain.exp_m1() * 100.0));
                            if let Some((shape, places)) = candidate {
                                (learned.incumbent, learned.places, learned.is_kernel) = (shape, places, false);
                                (learned.idle, learned.followed) = (0, true);
                                learned.kept += 1;
                                learned.near.clear();
                                learned.promising.clear();
                            }
                        }
                        self.choose(ctx, policy, view, now, rng);
                    }
                }
            }
            Phase::Rest { until, saving } => {
                if now >= until {
                    if saving {
                        self.choose(ctx, policy, view, now, rng);
                    } else {
                        self.trace();
                    }
                    return tick;
                }
                self.phase = Phase::Rest { until, saving };
                self.let_go(view);
                self.calm = (self.calm + 1).min(CALMEST);
                return until.min(now + ctx.config.interval * 2_u32.pow(self.calm));
            }
        }
        self.calm = 0;
        tick
    }
}

/// Whether somebody would be further below the kernel's placement than may be.
fn guards(guard: Option<f64>, standing: &[f64], changes: &[f64]) -> bool {
    let least = guard.map_or(f64::NEG_INFINITY, |guard| (1.0 - guard).ln());
    standing.iter().zip(changes).any(|(standing, change)| standing + change < least)
}

/// `+4.2 % (1.1 to 7.3 %) of 4 pairs`.
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
        let mut rng = Rng::with_seed(s.seed.unwrap_or(self.settings.seed));
        let mut notes = Vec::new();
        let wake_at = s.step(ctx, self, view, now, &mut rng, &mut notes);
        s.seed = Some(rng.get_seed());
        let why = s.why.clone();
        let reason = |_: TaskId| Reason { what: why.clone().into(), ..Reason::new("shapes", "") };
        let mut proposals: Vec<Proposal> = s.plan.proposals(now, reason);
        proposals.append(&mut s.extra);
        Decision::new(proposals, s, wake_at, notes)
    }
}
