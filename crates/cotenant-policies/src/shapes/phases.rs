//! The round of `shapes`: the calls of each phase to its four parts.

use super::learned_situation::LearnedSituation;
use super::outgoing::{JudgedTrial, PlacementReason, ShapesOutgoing};
use super::settings::{KnownGroup, KnownShape, Objective};
use super::shape_board::{ShapePlaces, fingerprint};
use super::shapes_memory::ShapesMemory;
use super::shapes_round::{CALMEST, ShapesRound};
use super::shapes_situation::{ShapesSituation, Surveyed};
use super::trial::Clock;
use super::trialling::{ShapesPhase, ShapesTrialling, TrialTurn};
use cotenant_model::policy::TrialResult;
use cotenant_model::{ActionOutcome, AppId, Decision, TaskId, Time, View};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The set of tasks counts as settled after this long without a change.
const WATCH: Duration = Duration::from_millis(500);

/// State of `shapes` in four parts. Each part changes only its own fields; they exchange plain values here.
///
/// In JSON the fields of all parts form one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShapesState {
    #[serde(flatten)]
    pub(super) situation: ShapesSituation,
    #[serde(flatten)]
    pub(super) trialling: ShapesTrialling,
    #[serde(flatten)]
    pub(super) memory: ShapesMemory,
    #[serde(flatten)]
    pub(super) outgoing: ShapesOutgoing,
}

/// Each part picks its fields: `flatten` reads no maps with numbers as keys.
impl<'de> Deserialize<'de> for ShapesState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        fn part<P: DeserializeOwned, E: Error>(all: &Value) -> Result<P, E> {
            P::deserialize(all).map_err(E::custom)
        }
        let all = Value::deserialize(from)?;
        let (situation, trialling) = (part(&all)?, part(&all)?);
        Ok(Self { situation, trialling, memory: part(&all)?, outgoing: part(&all)? })
    }
}

impl ShapesState {
    /// The best shapes of past situations, the latest last, for the next run.
    pub fn memory(&self) -> &[KnownShape] {
        self.memory.memory()
    }

    /// Groups of past situations whose known shape has lost against the kernel's placement.
    pub fn given_up(&self) -> &[Vec<KnownGroup>] {
        self.memory.given_up()
    }

    /// Whether the current placement is only a trial.
    pub fn is_trying(&self) -> bool {
        self.trialling.is_trying()
    }

    /// Result of the last trial.
    pub fn last_tried(&self) -> Option<&TrialResult> {
        self.outgoing.last_tried()
    }

    /// Decides about a round. `outcomes` are those of the last decision.
    pub(super) fn decide(mut self, round: &ShapesRound<'_>, outcomes: &[ActionOutcome]) -> Decision<Self> {
        let machine = fingerprint(round.ctx.topology);
        if self.situation.is_of_another(machine) {
            self = Self::default();
        }
        self.situation.set_machine(machine);
        self.trialling.set_seed(round.settings.seed);
        self.outgoing.hear(round, outcomes);
        let wake_at = self.step(round);
        let (proposals, notes) = self.outgoing.send(round.now);
        Decision::new(proposals, self, wake_at, notes)
    }

    /// One round. Returns the time of the next one.
    fn step(&mut self, round: &ShapesRound<'_>) -> Time {
        let (view, now) = (round.view, round.now);
        self.situation.listen(view, self.trialling.is_under_way());
        if self.situation.loses_bystanders(view) {
            self.outgoing.recount(view);
        }
        let (fresh, watches) = match self.trialling.phase() {
            ShapesPhase::Fresh => (true, false),
            phase => (false, matches!(phase, ShapesPhase::Watch { .. })),
        };
        if fresh || (!watches && !self.outgoing.fits(round)) || self.situation.has_changed(view) {
            self.tasks_changed(round, fresh);
        }
        self.outgoing.widen(view, self.trialling.incumbent());
        match self.trialling.take_phase(now) {
            ShapesPhase::Fresh => self.watch(now),
            ShapesPhase::Watch { since } => return self.watched(round, since),
            ShapesPhase::Trace(trace) => {
                self.situation.add_load(view);
                let stands = self.outgoing.placed().stands;
                let turn = self.trialling.measure(round, trace, self.situation.members(), stands);
                self.follow_up(round, turn);
            }
            ShapesPhase::Trial(running) => {
                let turn = self.trialling.go_on_trying(
                    round,
                    running,
                    self.situation.members(),
                    self.outgoing.placed().stands,
                );
                self.follow_up(round, turn);
            }
            ShapesPhase::Pages { trial, candidate } => {
                let stands = self.outgoing.placed().stands;
                let turn = self.trialling.go_on_following(round, trial, candidate, self.situation.members(), stands);
                self.follow_up(round, turn);
            }
            ShapesPhase::Rest { until, saving, heard } if now < until => {
                self.outgoing.let_go(view, self.trialling.incumbent());
                if let Some(wake_at) = self.trialling.go_on_resting(round, until, saving, heard) {
                    return wake_at;
                }
                self.outgoing.speeds_changed();
                self.trialling.trace();
            }
            ShapesPhase::Rest { saving: true, .. } => self.choose(round),
            ShapesPhase::Rest { saving: false, .. } => self.trialling.trace(),
        }
        round.tick()
    }

    /// Tasks have started or exited, or their masks have changed.
    fn tasks_changed(&mut self, round: &ShapesRound<'_>, fresh: bool) {
        let view = round.view;
        if self.trialling.is_under_way() {
            self.put_back(view, PlacementReason::ThreadsChanged);
            self.break_off(view, round.now);
        }
        self.memory.retain(round);
        // Programs that ran before this policy are measured first: a known shape must win a trial.
        let late = fresh && view.tasks.iter().any(|task| task.info.old);
        if !late && !self.situation.is_passing(round.now) {
            let placed = self.outgoing.placed();
            if let Some(places) = self.memory.start_threads(round, self.situation.tasks(), placed.wanted) {
                self.outgoing.put(view, &places, PlacementReason::KnownProgram);
            }
        }
        self.situation.take_tasks(view);
        self.watch(round.now);
    }

    fn watch(&mut self, now: Time) {
        self.situation.watch();
        self.trialling.watch(now);
    }

    /// A round without a change of tasks. Returns the time of the next one.
    fn watched(&mut self, round: &ShapesRound<'_>, since: Time) -> Time {
        self.trialling.watch(since);
        // There are no rates yet in the round in which a task has started.
        if round.now > since {
            self.situation.add_load(round.view);
        }
        if round.now - since < WATCH {
            // After a long silence, the next survey can wait.
            let calm = if self.situation.is_fruitless() { 2_u32.pow(CALMEST) } else { 1 };
            return (round.now + round.interval() * calm).min(since + WATCH * calm);
        }
        self.begin(round);
        round.tick()
    }

    /// The set of tasks has settled, or a trace has corrected the last survey.
    fn begin(&mut self, round: &ShapesRound<'_>) {
        let born = self.memory.take_born();
        let Surveyed { situation, before, unmeasured, has_dropped } = match self.situation.survey(round) {
            Ok(seen) => seen,
            Err(why) => {
                if self.situation.is_fruitless_again() {
                    self.outgoing.no_decision(why);
                }
                self.trialling.forget();
                self.outgoing.put(round.view, &ShapePlaces::new(), PlacementReason::NoSpeeds);
                return self.watch(round.now);
            }
        };
        self.outgoing.surveyed(&unmeasured, has_dropped);
        if let Some(Objective::App(name)) = &round.settings.objective
            && situation.measured(round.view, name).is_none()
        {
            self.outgoing.misses_objective(name);
        }
        if self.trialling.goes_on(&situation, &before, self.situation.members()) {
            self.put_back(round.view, PlacementReason::ThreadsReplaced);
        } else {
            self.begin_anew(round, situation, &born);
        }
        self.outgoing.recount(round.view);
        self.trialling.trace();
    }

    /// Starts another situation. `born` are threads that started in its known shape.
    fn begin_anew(&mut self, round: &ShapesRound<'_>, situation: LearnedSituation, born: &ShapePlaces) {
        self.situation.begin(round.now, self.trialling.has_learned());
        let board = situation.board(round.ctx);
        let known = self.memory.best_for(&situation, &board, round.settings);
        let begun = known.as_ref().filter(|_| !born.is_empty()).map(|shape| {
            let here = |task| board.domain_of(round.view, born, task);
            shape.seats(&board, self.situation.members(), &situation.allowed(), here, |_| None)
        });
        // Its first threads join the others of the new program.
        let apps: Vec<AppId> = born.keys().filter_map(|task| Some(round.view.task(*task)?.info.app)).collect();
        let begun = begun.filter(|places| {
            let others = |task: &TaskId| round.view.task(*task).is_some_and(|task| !apps.contains(&task.info.app));
            !round
                .drags_memory(&places.iter().filter(|(task, _)| others(task)).map(|(t, on)| (*t, on.clone())).collect())
        });
        if round.memory_is_dragged(&board) {
            self.outgoing.memory_is_dragged(round.sees_memory(self.situation.members()));
        }
        self.trialling.begin(situation, known, begun.is_some(), round.now);
        if let Some(places) = begun {
            self.outgoing.put(round.view, &places, PlacementReason::KnownPrograms);
        } else if !self.outgoing.placed().wanted.is_empty() {
            // The former best may now leave CPUs idle, or take new threads from their memory. The kernel moves no
            // thread while the load is even.
            self.outgoing.put(round.view, &ShapePlaces::new(), PlacementReason::KernelFirst);
        }
    }

    fn choose(&mut self, round: &ShapesRound<'_>) {
        let lasts_from = self.situation.lasts_from();
        let turn = self.trialling.choose(round, self.situation.members(), lasts_from, self.outgoing.placed());
        self.follow_up(round, turn);
    }

    /// Carries out a turn's request.
    fn follow_up(&mut self, round: &ShapesRound<'_>, turn: TrialTurn) {
        let view = round.view;
        match turn {
            TrialTurn::Stay => {}
            TrialTurn::Watch => self.watch(round.now),
            TrialTurn::Traced(clock) => self.traced(round, clock),
            TrialTurn::Misplaced => {
                self.outgoing.put(view, &ShapePlaces::new(), PlacementReason::NotPlaced);
                self.trialling.give_up();
            }
            TrialTurn::Silent(apps, seconds) => {
                self.outgoing.fell_silent(view, seconds, &apps);
                self.situation.silence(apps);
                self.put_back(view, PlacementReason::FellSilent);
                self.break_off(view, round.now);
                self.watch(round.now);
            }
            TrialTurn::Put(places, why) => self.outgoing.put(view, &places, why),
            TrialTurn::PutBack(why) => self.put_back(view, why),
            TrialTurn::PutIncumbent(why) => self.outgoing.put_incumbent(view, self.trialling.incumbent(), why),
            TrialTurn::Judged(trial) => self.judged(round, trial),
            TrialTurn::MoveMemory(orders, to) => {
                self.outgoing.move_memory(orders);
                if let Some(places) = to {
                    self.outgoing.put(view, &places, PlacementReason::WithMemory);
                }
            }
            TrialTurn::Followed(orders, kept) => {
                self.outgoing.move_memory(orders);
                if let Some((known, gain)) = kept {
                    self.outgoing.memory_follows(gain);
                    self.memory.remember(known, false);
                }
                self.choose(round);
            }
        }
    }

    /// The incumbent's measurement is complete.
    fn traced(&mut self, round: &ShapesRound<'_>, clock: Option<Clock>) {
        if self.situation.was_misjudged(round.view) {
            return self.begin(round);
        }
        let Some(clock) = clock else {
            let turn = self.trialling.patience(round.view);
            return self.follow_up(round, turn);
        };
        self.trialling.take_clock(round, clock, self.situation.members(), self.outgoing.placed().wanted);
        self.choose(round);
    }

    fn judged(&mut self, round: &ShapesRound<'_>, trial: JudgedTrial) {
        self.outgoing.judged(round.now, &trial);
        if trial.is_kernel && trial.kept.is_some() && round.view.numa_balancing {
            // The kernel places threads and memory from here on, which remains to be observed.
            trial.kept.into_iter().for_each(|known| self.memory.remember(known, true));
            self.outgoing.put(round.view, &ShapePlaces::new(), PlacementReason::LetGo);
            return self.watch(round.now);
        }
        if let Some(known) = trial.kept {
            self.memory.remember(known, trial.is_kernel);
            self.put_back(round.view, PlacementReason::Stands);
        }
        if trial.is_restless {
            self.put_back(round.view, PlacementReason::Restless);
            return self.trialling.trace();
        }
        self.choose(round);
    }

    fn put_back(&mut self, view: &View, why: PlacementReason) {
        self.outgoing.put_back(view, self.trialling.incumbent(), why);
    }

    fn break_off(&mut self, view: &View, now: Time) {
        self.outgoing.move_memory(self.trialling.break_off(view, now));
    }
}
