//! The next trial, and whether any is allowed.

use super::{RunningTrial, ShapesPhase, ShapesTrialling, TrialTurn};
use crate::shapes::guard::{GUARDED, guards};
use crate::shapes::learned::{Learned, ShapeCandidate, TrialScope};
use crate::shapes::ledger::ADVANCE;
use crate::shapes::moves::CandidateKind;
use crate::shapes::outgoing::{PlacedNow, PlacementReason};
use crate::shapes::page_trial::PageTrial;
use crate::shapes::shape::Shape;
use crate::shapes::shape_board::{ShapeBoard, ShapePlaces};
use crate::shapes::shapes_round::ShapesRound;
use crate::shapes::trial::{ShapeTrial, Side};
use cotenant_model::{TaskId, Time};
use std::time::Duration;

impl ShapesTrialling {
    /// Begins the next trial, or rests. There are no trials before `lasts_from`.
    pub fn choose(
        &mut self,
        round: &ShapesRound<'_>,
        members: &[(TaskId, usize)],
        lasts_from: Time,
        plan: PlacedNow<'_>,
    ) -> TrialTurn {
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        // The kernel has moved threads to other memory nodes since.
        if learned.is_kernel && plan.wanted.is_empty() && round.drags_memory(&learned.places) {
            return TrialTurn::Watch;
        }
        let board = learned.situation.board(round.ctx);
        let due = |advance| learned.ledger.due(round.settings.regret, advance, round.now);
        // Two threads on one CPU without a gain lose half of their speed at once: a program that has not run for long
        // does not pay for that.
        let (affordable, dares) = (due(ADVANCE), due(0.0) <= round.now);
        let due = affordable.max(lasts_from);
        if round.moves_memory(&board) && learned.may_follow(due > round.now) {
            return self.follow(None);
        }
        if due > round.now {
            let brief = lasts_from > affordable;
            let why = if brief { PlacementReason::BriefPrograms } else { PlacementReason::BudgetSpent };
            return self.rest(due, true, why);
        }
        let by_kernel = round.memory_is_dragged(&board);
        if by_kernel
            && learned.crossing_affordable(round) <= round.now
            && let Some(turn) = self.cross(round, &board, members, dares)
        {
            return turn;
        }
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        let scope = TrialScope { idles: dares, crosses: !by_kernel };
        if let Some(sam) = round.sam {
            learned.ask(sam, (round.ctx, round.view), &board, members, scope);
        }
        match self.next(round, &board, members, scope) {
            Some((candidate, places)) => self.try_candidate(round, &board, candidate, places, plan),
            None => self.exhausted(round, &board, members),
        }
    }

    /// The next candidate that moves any thread, and the target of all threads.
    fn next(
        &mut self,
        round: &ShapesRound<'_>,
        board: &ShapeBoard,
        members: &[(TaskId, usize)],
        scope: TrialScope,
    ) -> Option<(ShapeCandidate, ShapePlaces)> {
        let mut rng = self.rng();
        let learned = self.learned.as_mut()?;
        let goal = learned.goal(round.settings.objective.as_ref(), round.view);
        let next = loop {
            let Some(candidate) = learned.next(board, &goal, scope, &mut rng) else { break None };
            let is_kernel = candidate.kind == CandidateKind::Kernel;
            let places = if is_kernel {
                learned.kernel_places.clone()
            } else {
                learned.seats(&candidate.shape, board, round.view, members)
            };
            if (is_kernel || places != learned.places) && !round.drags_memory(&places) {
                break Some((candidate, places));
            }
        };
        self.seed = Some(rng.get_seed());
        next
    }

    /// Tries candidates that move threads to other nodes while the kernel moves their memory.
    fn cross(
        &mut self,
        round: &ShapesRound<'_>,
        board: &ShapeBoard,
        members: &[(TaskId, usize)],
        idles: bool,
    ) -> Option<TrialTurn> {
        if !round.sees_memory(members) {
            return None;
        }
        let mut rng = self.rng();
        let learned = self.learned.as_mut()?;
        if !learned.kernel.has_nodes_of(&learned.incumbent, board) && learned.take_audit() {
            let trial = PageTrial::audit(learned.crossing.cost_s());
            let kernel = learned.kernel.clone();
            return Some(self.with_memory(trial, kernel, ShapePlaces::new()));
        }
        // Releasing threads by mistake is harmless, moving them is not.
        if learned.crossing.steadiness.left() > 0.0 {
            return None;
        }
        let goal = learned.goal(round.settings.objective.as_ref(), round.view);
        let standing = learned.standing.clone();
        let refused = |change: &[f64]| guards(round.settings.guard, &standing, change);
        let candidate = learned.across(board, &goal, refused, idles, &mut rng);
        let trial = PageTrial::by_kernel(learned.crossing.cost_s());
        let places = candidate.map(|c| (learned.seats(&c.shape, board, round.view, members), c.shape));
        self.seed = Some(rng.get_seed());
        places.map(|(places, shape)| self.with_memory(trial, shape, places))
    }

    /// Begins a trial of a shape whose memory the kernel moves. Masks would prevent the kernel's own moves.
    fn with_memory(&mut self, trial: PageTrial, shape: Shape, places: ShapePlaces) -> TrialTurn {
        self.meter.clear();
        self.phase = ShapesPhase::Pages { trial: Box::new(trial), candidate: Some((shape, places)) };
        if self.learned.as_ref().is_some_and(|learned| learned.is_kernel) {
            TrialTurn::Put(ShapePlaces::new(), PlacementReason::Stands)
        } else {
            TrialTurn::PutBack(PlacementReason::Stands)
        }
    }

    /// Only following memory is left to try.
    fn exhausted(&mut self, round: &ShapesRound<'_>, board: &ShapeBoard, members: &[(TaskId, usize)]) -> TrialTurn {
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        if round.moves_memory(board) {
            if learned.may_follow(true) {
                return self.follow(None);
            }
            if let Some(shape) = learned.near() {
                let places = learned.seats(&shape, board, round.view, members);
                if !round.drags_memory(&places) {
                    return self.follow(Some((shape, places)));
                }
            }
        }
        let until = round.now + learned.rest();
        let crossing =
            Some(learned.crossing_due(round)).filter(|due| round.memory_is_dragged(board) && *due > round.now);
        let until = crossing.map_or(until, |due| until.min(due));
        self.rest(until, false, PlacementReason::NothingBetter)
    }

    fn try_candidate(
        &mut self,
        round: &ShapesRound<'_>,
        board: &ShapeBoard,
        candidate: ShapeCandidate,
        places: ShapePlaces,
        plan: PlacedNow<'_>,
    ) -> TrialTurn {
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        let (mut trial, side) = ShapeTrial::new(round.now, learned.recent.take(), candidate.pairs.clone());
        // An application may lose more than the guard allows although the whole is clearly better.
        let looks_closely = candidate.kind == CandidateKind::Kernel && learned.is_near(round.settings.guard);
        trial.least = if looks_closely { GUARDED } else { 0 };
        learned.trials += 1;
        let away = !plan.wanted.is_empty() && (*plan.wanted != learned.places || !plan.stands);
        let changes = side == Side::Candidate || away;
        let mut running = RunningTrial { candidate, places, trial, work: Default::default(), asked: None };
        let turn = if changes { running.switch(side, learned, board, round.now) } else { TrialTurn::Stay };
        self.phase = ShapesPhase::Trial(Box::new(running));
        turn
    }
}

impl Learned {
    /// The time at which a trial with kernel-moved memory can be paid for.
    fn crossing_affordable(&self, round: &ShapesRound<'_>) -> Time {
        self.ledger.due_for(self.crossing.cost_s(), round.settings.regret, ADVANCE, round.now)
    }

    /// The earliest time of such a trial.
    fn crossing_due(&self, round: &ShapesRound<'_>) -> Time {
        let steady = round.now + Duration::from_secs_f64(self.crossing.steadiness.left());
        self.crossing_affordable(round).max(steady)
    }
}

impl RunningTrial {
    /// Places one of the two.
    pub(super) fn switch(&mut self, side: Side, learned: &Learned, board: &ShapeBoard, now: Time) -> TrialTurn {
        self.trial.switched(now);
        self.asked = Some(now);
        match side {
            Side::Candidate => {
                let text = self.candidate.shape.text(&learned.situation.names(), board);
                TrialTurn::Put(self.places.clone(), PlacementReason::Tried(text))
            }
            Side::Incumbent => TrialTurn::PutIncumbent(PlacementReason::Compared),
        }
    }
}
