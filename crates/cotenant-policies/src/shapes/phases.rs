//! The phases of `shapes`: what each of them does with a round.

use super::guard::{DOUBTED, GUARDED, guards};
use super::learned::{Learned, REST, ShapeCandidate};
use super::learned_situation::{Survey, much_lighter, survey};
use super::ledger::{ADVANCE, TrialLedger};
use super::moves::CandidateKind;
use super::page_trial::{PageNext, PageTrial};
use super::rest::HeardSpeeds;
use super::settings::{KnownShape, Objective, ShapesSettings};
use super::shape::Shape;
use super::shape_board::{ShapeBoard, ShapePlaces};
use super::trial::{Ask, Clock, STAGES, ShapeTrial, Side, TrialEstimate, TrialVerdict};
use super::{CALMEST, RunningTrial, ShapesPhase, ShapesRound, ShapesState, Tried};
use cotenant_model::speed::{Ladder, Source};
use cotenant_model::stats::median::middle;
use cotenant_model::{AppId, CpuSet, TaskId, TaskView, Time, View};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The set of tasks counts as settled after this long without a change.
const WATCH: Duration = Duration::from_millis(500);
/// How long the incumbent is measured before anything is tried, seconds; where its speed jumps.
const TRACE: [f64; 2] = [3.0, 8.0];
/// Points that a trace has at least.
const POINTS: usize = 12;
/// An application that tells nothing for so many seconds, or so many of its readings, ends what is being measured.
const PATIENCE: f64 = 30.0;
const READINGS: f64 = 4.0;
/// What should stand and does not for so long is given up.
const PLACED: Duration = Duration::from_secs(5);
/// Fruitless looks after which it looks less often.
const UNHEARD: u32 = 20;
/// False decisions that are accepted, per trial: a decision is taken where the interval of this confidence is clear.
const ALPHA: f64 = 0.05;
/// Traces that may show that other threads are busy than it seemed.
const RETRACED: u32 = 3;
/// Situations whose best shape is remembered.
const REMEMBERED: usize = 16;
/// Where sets of programs, one after the other, are mostly together for less than this, seconds, what is found is soon
/// worth nothing, and whoever comes meanwhile touches memory where a trial leaves room: nothing is tried until a set
/// has been together for as long. The last so many say it, from the second on; those in which nothing could be tried
/// do not.
const LASTING: f64 = 60.0;
const LIVES: std::ops::RangeInclusive<usize> = 2..=5;

impl ShapesState {
    /// Nobody has come or gone for a while?
    pub(super) fn watched(&mut self, round: &mut ShapesRound<'_>, since: Time) -> Time {
        self.phase = ShapesPhase::Watch { since };
        // Nothing is known yet of the round in which somebody came.
        if round.now > since {
            self.load.add(round.view);
        }
        if round.now - since < WATCH {
            // Where nothing has told any speed for long there is no hurry to ask again.
            let calm = if self.fruitless > UNHEARD { 2_u32.pow(CALMEST) } else { 1 };
            return (round.now + round.ctx.config.interval * calm).min(since + WATCH * calm);
        }
        self.begin(round);
        round.tick()
    }

    /// The set of tasks has settled.
    fn begin(&mut self, round: &mut ShapesRound<'_>) {
        let heard: BTreeMap<AppId, &Ladder> =
            self.ladders.iter().filter(|(id, _)| !self.silent.contains(id)).map(|(id, ladder)| (*id, ladder)).collect();
        let born = std::mem::take(&mut self.born);
        let light = |task| self.weighed.get(&task) == Some(&true);
        let Survey { situation, members, notes } = match survey(round.ctx, round.view, &self.load, &heard, light) {
            Ok(seen) => seen,
            Err(why) => {
                self.fruitless += 1;
                let note = || format!("no decision: {why}; placement is left to the kernel");
                round.notes.extend((self.fruitless > 1).then(note));
                self.ledger = self.learned.take().map(|learned| learned.ledger.anew()).or(self.ledger.take());
                self.put(round.view, &BTreeMap::new(), "nothing tells how fast it is");
                return self.watch(round.now);
            }
        };
        self.fruitless = 0;
        round.notes.extend(notes);
        if let Some(Objective::App(name)) = &round.policy.settings.objective {
            let known = situation.measures.keys().any(|id| round.view.app(*id).is_some_and(|app| app.name == *name));
            let note = || format!("no application {name} tells its speed: the mean of all is made as high as possible");
            round.notes.extend((!known).then(note));
        }
        let before = std::mem::replace(&mut self.members, members);
        let groups = situation.described();
        match &mut self.learned {
            Some(learned) if learned.situation.is_like(&situation) && !renewed(&before, &self.members) => {
                learned.replace(&before, &self.members);
                self.put_back(round.view, "threads take the places of like ones");
            }
            _ => {
                let (board, threads) = (situation.board(round.ctx), situation.threads());
                let before = self.learned.take();
                // Behind a trace the programs are those of before.
                if self.retraced == 0 {
                    if before.is_some() {
                        self.lives = self.lived(round.now);
                    }
                    self.since = round.now;
                }
                let ledger = before.map(|before| before.ledger.anew()).or(self.ledger.take());
                let mut learned = Learned::new(situation, ledger.unwrap_or_else(|| TrialLedger::new(round.now)));
                let allowed = learned.situation.allowed();
                let sound = |known: &KnownShape| {
                    known.of(&groups).filter(|shape| shape.is_for(&board, &threads) && shape.fits(&board, &allowed))
                };
                let known = self.remembered(&round.policy.settings).find_map(sound);
                let begun = known.as_ref().filter(|_| !born.is_empty()).map(|shape| {
                    let here = |task| board.domain_of(round.view, &born, task);
                    shape.seats(&board, &self.members, &allowed, here, |_| None)
                });
                self.begun = begun.is_some();
                match known {
                    Some(shape) if self.begun => learned.incumbent = shape,
                    known => learned.first = known.map(|shape| ShapeCandidate::new(shape, CandidateKind::Known)),
                }
                self.learned = Some(Box::new(learned));
                if let Some(places) = begun {
                    self.put(round.view, &places, "where these programs were fastest before");
                } else if !self.plan.wanted().is_empty() {
                    // What was best before may leave CPUs idle now, or take new threads from their memory. The kernel
                    // moves nobody where the load is even.
                    self.put(round.view, &BTreeMap::new(), "programs came or went: the kernel chooses first");
                }
            }
        }
        self.recount(round.view);
        self.trace();
    }

    /// A round of the incumbent was measured.
    pub(super) fn traced(
        &mut self,
        round: &mut ShapesRound<'_>,
        mut points: Vec<(f64, Vec<f64>)>,
        mut long: bool,
        asked: Option<Time>,
    ) {
        self.load.add(round.view);
        let asked = asked.or(Some(round.now)).filter(|_| !self.plan.stands());
        if asked.is_some_and(|asked| round.now - asked > PLACED.max(3 * round.ctx.config.interval)) {
            return self.give_up(round.view);
        }
        let Some(learned) = &mut self.learned else { return self.watch(round.now) };
        if self.plan.stands() {
            learned.counted.add(round.view, &self.members, learned.situation.groups.len());
        }
        let point = self.meter.add(round.view, &learned.situation.measures).filter(|_| self.plan.stands());
        points.extend(point.map(|point| (point.seconds, point.logs)));
        let goal = learned.goal(round.policy.settings.objective.as_ref(), round.view);
        let first = points.first().map(|(_, logs)| logs.clone()).unwrap_or_default();
        let worth = |logs: &[f64]| goal.worth(&logs.iter().zip(&first).map(|(a, b)| a - b).collect::<Vec<_>>());
        let values: Vec<(f64, f64)> = points.iter().map(|(seconds, logs)| (*seconds, worth(logs))).collect();
        let seconds: f64 = points.iter().map(|(seconds, _)| seconds).sum();
        if seconds + 1e-6 >= TRACE[usize::from(long)] && points.len() >= POINTS {
            if !long && Clock::jumps(&values) {
                long = true;
            } else if self.retraced < RETRACED && (self.weigh(round.view) || self.has_others(round)) {
                // Over all of the trace others are busy, or busier, than it seemed at first.
                self.retraced += 1;
                return self.begin(round);
            } else if let Some(clock) = Clock::from_trace(&values) {
                return self.known(round, clock);
            }
        }
        if self.is_unheard(round.view) {
            return self.unheard(round);
        }
        self.phase = ShapesPhase::Trace { points, long, asked };
    }

    /// What should stand cannot be put in place: the kernel places everybody, and that is measured.
    fn give_up(&mut self, view: &View) {
        let before = self.learned.take().map(|learned| *learned);
        self.learned = before.map(|before| Box::new(Learned::new(before.situation, before.ledger.anew())));
        self.begun = false;
        self.put(view, &BTreeMap::new(), "threads could not be placed");
        self.trace();
    }

    /// Tells threads that run much less than like ones from these, each once; whether there are any.
    fn weigh(&mut self, view: &View) -> bool {
        self.weighed.retain(|task, _| view.task(*task).is_some());
        let mut groups: BTreeMap<usize, Vec<(f64, TaskId)>> = BTreeMap::new();
        for &(task, group) in &self.members {
            let share = self.load.share(task).unwrap_or(1.0);
            groups.entry(group).or_default().push((share, task));
        }
        let mut any = false;
        for alike in groups.into_values() {
            if alike.iter().all(|(_, task)| self.weighed.contains_key(task)) {
                continue;
            }
            self.weighed.extend(alike.iter().map(|(_, task)| (*task, false)));
            let light = much_lighter(alike);
            any |= !light.is_empty();
            self.weighed.extend(light.into_iter().map(|task| (task, true)));
        }
        any
    }

    /// Whether other threads take part than those that did when it began to measure.
    fn has_others(&self, round: &ShapesRound<'_>) -> bool {
        let active = |task: &&TaskView| self.load.is_active(task.info.id) == Some(true);
        let now: Vec<TaskId> = round.view.tasks.iter().filter(active).map(|task| task.info.id).collect();
        now.iter().any(|task| self.members.binary_search_by_key(task, |member| member.0).is_err())
    }

    /// The best shapes of before, the latest first, but those that have lost against the kernel's placement since.
    fn remembered<'a>(&'a self, settings: &'a ShapesSettings) -> impl Iterator<Item = &'a KnownShape> {
        let holds = |known: &&KnownShape| !self.given_up.contains(&known.groups);
        self.memory.iter().rev().chain(settings.known.iter().filter(holds))
    }

    /// Where the best shape of the programs that are there now is known, threads that have just come begin in it: they
    /// are to touch their memory there. A process' first thread waits for the others, which would have its mask.
    pub(super) fn give_birth(&mut self, round: &ShapesRound<'_>) {
        let (view, settings) = (round.view, &round.policy.settings);
        self.born.retain(|task, _| view.task(*task).is_some());
        // Where somebody was there before all of this began, what is known must win a trial.
        let late = matches!(self.phase, ShapesPhase::Fresh) && view.tasks.iter().any(|task| task.info.old);
        if late || self.remembered(settings).next().is_none() || changes(&self.lived(round.now)) {
            return;
        }
        let name = |app: AppId| view.app(app).map_or("", |app| app.name.as_str());
        let present: BTreeSet<&str> = view.tasks.iter().map(|task| name(task.info.app)).collect();
        let board = ShapeBoard::new(round.ctx.topology, round.ctx.topology.usable(), |_| 0);
        let of = |known: &&KnownShape| {
            let names: BTreeSet<&str> = known.groups.iter().map(|group| group.app.as_str()).collect();
            let threads: Vec<usize> = known.groups.iter().map(|group| group.threads).collect();
            names == present && known.shape.is_for(&board, &threads)
        };
        let Some(known) = self.remembered(settings).find(of).cloned() else { return };
        let mut left = known.shape.counts.clone();
        let mut seat = |app: &str, on: Option<&CpuSet>| {
            let own = |group: &usize| known.groups[*group].app == app;
            let fits = |d: &usize| on.is_none_or(|on| on.is_subset(&board.domains[*d].cpus));
            let free = (0..left.len()).filter(own).flat_map(|g| (0..board.domains.len()).map(move |d| (g, d)));
            let (group, domain) = { free }.find(|(g, d)| left[*g][*d] > 0 && fits(d))?;
            left[group][domain] -= 1;
            Some(domain)
        };
        let mut places = self.plan.wanted().clone();
        for (task, on) in &places {
            if let Some(task) = view.task(*task) {
                seat(name(task.info.app), Some(on));
            }
        }
        let new =
            |t: &&TaskView| self.tasks.binary_search(&t.info.id).is_err() && t.info.tid != t.info.pid && !t.info.old;
        for task in view.tasks.iter().filter(new) {
            let Some(domain) = seat(name(task.info.app), None) else { continue };
            let on = board.domains[domain].cpus.and(&task.info.allowed);
            if !on.is_empty() {
                self.born.insert(task.info.id, on.clone());
                places.insert(task.info.id, on);
            }
        }
        if places != *self.plan.wanted() {
            self.put(view, &places, "where its program was fastest before");
        }
    }

    /// Whether somebody who told a speed has told none for long: longer than what is read seldom takes.
    fn is_unheard(&self, view: &View) -> bool {
        let waits = self.meter.waits();
        let Some(learned) = self.learned.as_ref().filter(|_| waits > PATIENCE) else { return false };
        let reading = |(id, source): (&AppId, &Source)| source.reading(view, view.app(*id)?);
        let longest = learned.situation.measures.iter().filter_map(reading).map(|reading| reading.window).max();
        waits > READINGS * longest.unwrap_or_default().as_secs_f64()
    }

    /// Somebody who told a speed has told none for long: the others go on without it.
    fn unheard(&mut self, round: &mut ShapesRound<'_>) {
        if let Some(learned) = &self.learned {
            let silent = self.meter.silent(&learned.situation.measures);
            let names: Vec<&str> = silent.iter().filter_map(|id| Some(round.view.app(*id)?.name.as_str())).collect();
            let (names, waits) = (names.join(", "), self.meter.waits());
            round
                .notes
                .push(format!("for {waits:.0} s nothing told how fast these are, so they do not count: {names}"));
            self.silent.extend(silent);
        }
        self.put_back(round.view, "an application does not tell its speed any more");
        self.break_off(round.view, round.now);
        self.watch(round.now);
    }

    /// What is being tried ends without a verdict; what it has cost counts, and memory goes back.
    pub(super) fn break_off(&mut self, view: &View, now: Time) {
        let cost = match &self.phase {
            ShapesPhase::Trial(running) => running.trial.cost,
            ShapesPhase::Pages { trial, .. } => {
                self.moves = trial.undo(view);
                trial.cost
            }
            _ => return,
        };
        if let Some(learned) = &mut self.learned {
            learned.ledger.spent(cost, 0.0, now);
        }
    }

    /// The incumbent was measured for long enough.
    fn known(&mut self, round: &mut ShapesRound<'_>, clock: Clock) {
        let Some(mut learned) = self.learned.take() else { return self.watch(round.now) };
        learned.clock = clock;
        let board = learned.situation.board(round.ctx);
        if std::mem::take(&mut self.begun) {
            // Who shares cores although others are free is not to be seen from where threads stand.
            learned.begin_with(&board, learned.incumbent.clone(), self.plan.wanted().clone(), BTreeMap::new());
            learned.doubt(&board, round.view, &self.members);
        } else {
            let (shape, places, spots) = self.standing(round.view, &board, learned.situation.groups.len());
            if learned.kernel.counts.is_empty() || (learned.is_kernel && learned.kernel != shape) {
                learned.begin_with(&board, shape, places, spots);
            }
        }
        learned.predict(&board, round.view, &self.members);
        self.learned = Some(learned);
        self.choose(round);
    }

    /// What stands: its shape, the CPUs of each thread, and the CPU of each where that is not held.
    fn standing(&self, view: &View, board: &ShapeBoard, groups: usize) -> (Shape, ShapePlaces, ShapePlaces) {
        let mut shape = Shape::empty(groups, board.domains.len());
        let mut standing: Vec<Vec<&TaskView>> = vec![Vec::new(); board.domains.len()];
        for &(task, group) in &self.members {
            let domain = board.domain_of(view, self.plan.wanted(), task);
            let Some((domain, task)) = domain.zip(view.task(task)) else { continue };
            shape.counts[group][domain] += 1;
            standing[domain].push(task);
        }
        let (mut places, mut spots) = (BTreeMap::new(), BTreeMap::new());
        for (domain, tasks) in board.domains.iter().zip(standing) {
            // Whose cores are shared is the kernel's choice, too: what stands is held as it is, where each thread has
            // a CPU. Else all of the domain is everybody's, from where each stands.
            let cpus: CpuSet = tasks.iter().filter_map(|task| task.cpu).collect();
            let exact = tasks.len() > domain.room() && cpus.len() == tasks.len() && cpus.is_subset(&domain.cpus);
            let crowded = tasks.len() > domain.room();
            for task in tasks {
                let spot = task.cpu.filter(|cpu| crowded && task.info.allowed.contains(*cpu)).map(CpuSet::single);
                if let Some(spot) = spot.clone().filter(|_| !exact) {
                    spots.insert(task.info.id, spot);
                }
                let place = spot.filter(|_| exact).unwrap_or_else(|| domain.cpus.and(&task.info.allowed));
                places.insert(task.info.id, place);
            }
        }
        (shape, places, spots)
    }

    /// For how many seconds each of the last sets of programs was together, if that of now ends at this time.
    fn lived(&self, now: Time) -> Vec<f64> {
        let last = (now - self.since).as_secs_f64();
        let lives = self.lives.iter().copied().chain((last > TRACE[0]).then_some(last));
        let lives: Vec<f64> = lives.collect();
        lives[lives.len().saturating_sub(*LIVES.end())..].to_vec()
    }

    /// From when on something may be tried with this set of programs.
    fn lasting(&self) -> Time {
        let wait = if changes(&self.lives) { LASTING } else { 0.0 };
        self.since + Duration::from_secs_f64(wait)
    }

    /// The next trial, or rest.
    pub(super) fn choose(&mut self, round: &mut ShapesRound<'_>) {
        let Some(mut learned) = self.learned.take() else { return self.watch(round.now) };
        let board = learned.situation.board(round.ctx);
        let due = |advance| learned.ledger.due(round.policy.settings.regret, advance, round.now);
        // Two threads on one CPU that gain nothing there lose half of their speed at once: a program that has not run
        // for long does not pay for that.
        let (affordable, dares, lasting) = (due(ADVANCE), due(0.0) <= round.now, self.lasting());
        let due = affordable.max(lasting);
        if round.moves_memory(&board) && learned.may_follow(due > round.now) {
            self.learned = Some(learned);
            return self.follow(round.view, None);
        }
        if due > round.now {
            self.learned = Some(learned);
            let costly = "trials have cost enough for now";
            let why = if lasting > affordable { "programs have come and gone all the time" } else { costly };
            return self.rest(round.view, due, true, why);
        }
        if let Some(sam) = &round.policy.sam {
            learned.ask(sam, (round.ctx, round.view), &board, &self.members);
        }
        let (home, memory) = (learned.places.clone(), learned.memory.clone());
        let allowed = learned.situation.allowed();
        let stands = |places: &ShapePlaces, task| board.domain_of(round.view, places, task);
        let seats = |shape: &Shape| {
            shape.seats(&board, &self.members, &allowed, |task| stands(&home, task), |task| stands(&memory, task))
        };
        let goal = learned.goal(round.policy.settings.objective.as_ref(), round.view);
        let next = loop {
            let Some(candidate) = learned.next(&board, &goal, dares, &mut round.rng) else { break None };
            if candidate.kind == CandidateKind::Kernel {
                let places = learned.kernel_places.clone();
                break Some((candidate, places));
            }
            let places = seats(&candidate.shape);
            if places != home {
                break Some((candidate, places));
            }
        };
        let Some((candidate, places)) = next else {
            let memory = round.moves_memory(&board);
            let follows = memory && learned.may_follow(true);
            let near = if memory && !follows { learned.near() } else { None };
            let near = near.map(|shape| (shape.clone(), seats(&shape)));
            let rest = if follows || near.is_some() { None } else { Some(learned.rest()) };
            self.learned = Some(learned);
            return match rest {
                Some(rest) => self.rest(round.view, round.now + rest, false, "nothing better is known"),
                None => self.follow(round.view, near),
            };
        };
        let (mut trial, side) = ShapeTrial::new(round.now, learned.recent.take(), candidate.pairs.clone());
        // Also where the whole is clearly better off: somebody may be worse off than the guard allows.
        let looks_closely = candidate.kind == CandidateKind::Kernel && learned.is_near(round.policy.settings.guard);
        trial.least = if looks_closely { GUARDED } else { 0 };
        let text = candidate.shape.text(&learned.situation.names(), &board);
        learned.trials += 1;
        self.learned = Some(learned);
        let away = !self.plan.wanted().is_empty() && (*self.plan.wanted() != home || !self.plan.stands());
        let changes = side == Side::Candidate || away;
        if changes {
            trial.switched(round.now);
            match side {
                Side::Candidate => self.put(round.view, &places, format!("tried: {text}")),
                Side::Incumbent => self.put_incumbent(round.view, "the one that stands, to compare"),
            }
        }
        let asked = changes.then_some(round.now);
        self.phase = ShapesPhase::Trial(Box::new(RunningTrial { candidate, places, trial, asked }));
    }

    /// Tries whether memory is to follow the threads.
    fn follow(&mut self, view: &View, candidate: Option<(Shape, ShapePlaces)>) {
        self.put_back(view, "it stands");
        self.meter.clear();
        self.phase = ShapesPhase::Pages { trial: Box::default(), candidate };
    }

    fn rest(&mut self, view: &View, until: Time, saving: bool, why: &str) {
        self.put_back(view, why);
        self.meter.clear();
        self.phase = ShapesPhase::Rest { until, saving, heard: HeardSpeeds::default() };
    }

    /// Whether an application is faster or slower than when the rest began: what was learnt is of another load, and is
    /// forgotten but for what stands.
    pub(super) fn is_another_speed(&mut self, view: &View, heard: &mut HeardSpeeds) -> bool {
        let Some(learned) = &mut self.learned else { return false };
        let point = self.meter.add(view, &learned.situation.measures);
        let shifted = point.is_some_and(|point| heard.add(&point, learned.shifts));
        if shifted {
            learned.again();
        }
        shifted
    }

    /// A round of a trial.
    pub(super) fn tried(&mut self, round: &mut ShapesRound<'_>, mut running: Box<RunningTrial>) {
        let Some(learned) = &mut self.learned else { return self.watch(round.now) };
        running.asked = running.asked.filter(|_| !self.plan.stands());
        if let Some(asked) = running.asked {
            if round.advises {
                // There is nothing to measure: what would be tried stays on show.
                self.phase = ShapesPhase::Trial(running);
                return;
            }
            if round.now - asked > 3 * round.ctx.config.interval {
                learned.ledger.spent(running.trial.cost, 0.0, round.now);
                learned.forget(&running.candidate, &learned.situation.board(round.ctx));
                return self.rest(round.view, round.now + REST, true, "threads could not be placed");
            }
        }
        let goal = learned.goal(round.policy.settings.objective.as_ref(), round.view);
        let stage = STAGES[running.candidate.stage.min(STAGES.len() - 1)];
        let Some(point) = self.meter.add(round.view, &learned.situation.measures) else {
            self.phase = ShapesPhase::Trial(running);
            if self.is_unheard(round.view) {
                self.unheard(round);
            }
            return;
        };
        let side = running.trial.side();
        let mut ask = running.trial.add(&point, &goal, &mut learned.clock, stage, ALPHA, &mut round.rng);
        // Better for the whole, and nobody is known to lose too much, nor not to.
        if ask == Ask::Done(TrialVerdict::Better)
            && running.candidate.kind != CandidateKind::Kernel
            && running.trial.pairs.len() < DOUBTED
            && learned.is_doubtful(round.policy.settings.guard, &running.trial.pairs)
        {
            ask = running.trial.another_block(side, false, &mut round.rng);
        }
        match ask {
            Ask::Stay => self.phase = ShapesPhase::Trial(running),
            Ask::Switch(side) => {
                running.trial.switched(round.now);
                running.asked = Some(round.now);
                let (board, names) = (learned.situation.board(round.ctx), learned.situation.names());
                let (text, places) = (running.candidate.shape.text(&names, &board), running.places.clone());
                self.phase = ShapesPhase::Trial(running);
                match side {
                    Side::Candidate => self.put(round.view, &places, format!("tried: {text}")),
                    Side::Incumbent => self.put_incumbent(round.view, "the one that stands, to compare"),
                }
            }
            Ask::Done(verdict) => self.judge(round, *running, verdict),
        }
    }

    /// A trial is over.
    fn judge(&mut self, round: &mut ShapesRound<'_>, running: RunningTrial, verdict: TrialVerdict) {
        let RunningTrial { candidate, places, trial, .. } = running;
        let settings = &round.policy.settings;
        let Some(learned) = &mut self.learned else { return self.watch(round.now) };
        let board = learned.situation.board(round.ctx);
        let estimate = trial.estimate(&learned.goal(settings.objective.as_ref(), round.view), &learned.clock, ALPHA);
        let (changes, variances) = learned.changes(&trial.pairs);
        learned.measured(&trial.pairs[candidate.pairs.len()..]);
        let is_kernel = candidate.kind == CandidateKind::Kernel;
        let guarded =
            |changes: &[f64]| !is_kernel && estimate.pairs >= 2 && guards(settings.guard, &learned.standing, changes);
        // With what audits before have shown, somebody is further below the kernel's placement than may be.
        let audited = is_kernel && estimate.pairs >= GUARDED;
        let (standing, doubts) = if audited { learned.audited(&changes, &variances) } else { Default::default() };
        let violated = audited && guards(settings.guard, &standing, &vec![0.0; standing.len()]);
        let kept = (verdict == TrialVerdict::Better && !guarded(&learned.at_worst(&changes, &variances))) || violated;
        let open = verdict == TrialVerdict::Undecided && estimate.mean > 0.0 && !guarded(&changes);
        learned.count(&candidate, kept);
        // The window of what stands from now on; the kernel chooses again.
        learned.recent = match (kept, is_kernel) {
            (false, _) => trial.last[Side::Incumbent as usize].clone(),
            (true, false) => trial.last[Side::Candidate as usize].clone(),
            (true, true) => None,
        };
        if kept && is_kernel {
            learned.ledger.forfeit();
        }
        learned.ledger.spent(trial.cost, if kept && !is_kernel { estimate.mean } else { 0.0 }, round.now);
        let shape = candidate.shape.text(&learned.situation.names(), &board);
        let said = format!("{shape}: {}", said(&estimate));
        self.tried = tried(round.now, shape, &estimate, kept);
        if kept {
            learned.keep(candidate.shape, places, (&changes, &variances), is_kernel, false);
            let what = if is_kernel { "given back to the kernel" } else { "kept" };
            round.notes.push(format!("{what}: {said}"));
            self.remember();
            self.result = format!("{what}: {said}");
            self.put_back(round.view, "it stands");
        } else {
            if audited {
                (learned.standing, learned.doubts) = (standing, doubts);
            }
            learned.dismiss(candidate, trial.pairs, estimate.mean, open);
            self.result = format!("not kept: {said}");
        }
        if verdict == TrialVerdict::Restless {
            self.put_back(round.view, "the load changes too often to tell");
            return self.trace();
        }
        self.choose(round);
    }

    /// A round of a trial of memory.
    pub(super) fn followed(
        &mut self,
        round: &mut ShapesRound<'_>,
        mut trial: Box<PageTrial>,
        candidate: Option<(Shape, ShapePlaces)>,
    ) {
        let settings = &round.policy.settings;
        let Some(learned) = &self.learned else { return self.watch(round.now) };
        let point = self.meter.add(round.view, &learned.situation.measures).filter(|_| self.plan.stands());
        if self.is_unheard(round.view) {
            self.phase = ShapesPhase::Pages { trial, candidate };
            return self.unheard(round);
        }
        let Some(learned) = &mut self.learned else { return self.watch(round.now) };
        let goal = learned.goal(settings.objective.as_ref(), round.view);
        let places = candidate.as_ref().map_or(&learned.places, |(_, places)| places).clone();
        let refused = |changes: &[f64]| guards(settings.guard, &learned.standing, changes);
        let worth = |change: &[f64]| goal.worth(change);
        match trial.add(round.ctx.topology, [&learned.places, &places], round.view, point, worth, refused) {
            PageNext::Wait => self.phase = ShapesPhase::Pages { trial, candidate },
            PageNext::Move { orders, back } => {
                self.moves = orders;
                if back || candidate.is_some() {
                    let to = if back { learned.places.clone() } else { places };
                    self.put(round.view, &to, "where its memory goes");
                }
                self.phase = ShapesPhase::Pages { trial, candidate };
            }
            PageNext::Done(changes, stays) => {
                let gain = goal.worth(&changes);
                learned.ledger.spent(trial.cost, if stays { gain } else { 0.0 }, round.now);
                learned.recent = None;
                // Where nothing was found out in time it goes back, too.
                self.moves = if stays { Vec::new() } else { trial.undo(round.view) };
                if stays {
                    round.notes.push(format!("memory follows the threads: {:+.1} %", gain.exp_m1() * 100.0));
                    let (shape, places) =
                        candidate.unwrap_or_else(|| (learned.incumbent.clone(), learned.places.clone()));
                    learned.keep(shape, places, (&changes, &[]), false, true);
                    self.remember();
                }
                self.choose(round);
            }
        }
    }

    /// Remembers the incumbent for when the same programs run again.
    fn remember(&mut self) {
        let Some(learned) = &self.learned else { return };
        let known = KnownShape::new(&learned.situation.described(), &learned.incumbent);
        self.memory.retain(|before| before.groups != known.groups);
        self.given_up.retain(|groups| *groups != known.groups);
        if learned.is_kernel {
            self.given_up.push(known.groups);
        } else {
            self.memory.push(known);
        }
        self.memory.drain(..self.memory.len().saturating_sub(REMEMBERED));
        self.given_up.drain(..self.given_up.len().saturating_sub(REMEMBERED));
    }
}

/// Whether sets of programs that were together for so many seconds each, one after the other, do not last.
fn changes(lives: &[f64]) -> bool {
    lives.len() >= *LIVES.start() && middle(lives).value < LASTING
}

/// Whether all threads of a group are new: a program has begun anew, and its memory is where its threads began.
fn renewed(before: &[(TaskId, usize)], after: &[(TaskId, usize)]) -> bool {
    let stays = |group: usize| after.iter().any(|member| member.1 == group && before.contains(member));
    after.iter().any(|member| !stays(member.1))
}

/// `None` where nothing was measured.
fn tried(at: Time, shape: String, estimate: &TrialEstimate, kept: bool) -> Option<Tried> {
    let TrialEstimate { mean, radius, pairs } = *estimate;
    let interval = radius.is_finite().then(|| [mean - radius, mean + radius].map(f64::exp_m1));
    mean.is_finite().then(|| Tried { at, shape, gain: mean.exp_m1(), interval, pairs, kept })
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
