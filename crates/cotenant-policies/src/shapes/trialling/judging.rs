//! Rounds of trials, and their verdicts.

use super::{RunningTrial, ShapesPhase, ShapesTrialling, TrialTurn};
use crate::shapes::guard::{DOUBTED, GUARDED, guards};
use crate::shapes::learned::REST;
use crate::shapes::moves::CandidateKind;
use crate::shapes::outgoing::{JudgedTrial, PlacementReason};
use crate::shapes::page_trial::{PageNext, PageTrial};
use crate::shapes::shape::Shape;
use crate::shapes::shape_board::ShapePlaces;
use crate::shapes::shapes_round::ShapesRound;
use crate::shapes::slowest::{ThreadWork, fell_behind};
use crate::shapes::trial::{Ask, STAGES, Side, TrialVerdict};
use cotenant_model::TaskId;

/// Accepted rate of false decisions per trial: a decision needs a clear interval of this confidence.
const ALPHA: f64 = 0.05;

impl ShapesTrialling {
    /// A round of a trial.
    pub fn go_on_trying(
        &mut self,
        round: &ShapesRound<'_>,
        mut running: Box<RunningTrial>,
        members: &[(TaskId, usize)],
        stands: bool,
    ) -> TrialTurn {
        let mut rng = self.rng();
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        running.asked = running.asked.filter(|_| !stands);
        if let Some(asked) = running.asked {
            if round.advises {
                // Nothing can be measured: the suggested candidate stays visible.
                self.phase = ShapesPhase::Trial(running);
                return TrialTurn::Stay;
            }
            if round.now - asked > 3 * round.interval() {
                learned.ledger.spent(running.trial.cost, 0.0, round.now);
                learned.forget(&running.candidate, &learned.situation.board(round.ctx));
                return self.rest(round.now + REST, true, PlacementReason::NotPlaced);
            }
        }
        let goal = learned.goal(round.settings.objective.as_ref(), round.view);
        let stage = STAGES[running.candidate.stage.min(STAGES.len() - 1)];
        if running.asked.is_none() && running.trial.has_settled(round.view) {
            running.work[running.trial.side() as usize].add(round.view, members);
        }
        let Some(point) = self.meter.add(round.view, &learned.situation.measures) else {
            self.phase = ShapesPhase::Trial(running);
            return self.patience(round.view);
        };
        let side = running.trial.side();
        if side == Side::Incumbent && running.asked.is_none() && running.trial.has_settled(round.view) {
            learned.crossing.steadiness.add(&point);
        }
        let mut ask = running.trial.add(&point, &goal, &mut learned.clock, stage, ALPHA, &mut rng);
        // Better for the whole, but whether any application loses more than the guard allows is open.
        if ask == Ask::Done(TrialVerdict::Better)
            && running.candidate.kind != CandidateKind::Kernel
            && running.trial.pairs.len() < DOUBTED
            && learned.is_doubtful(round.settings.guard, &running.trial.pairs)
        {
            ask = running.trial.another_block(side, false, &mut rng);
        }
        self.seed = Some(rng.get_seed());
        let turn = match ask {
            Ask::Stay => TrialTurn::Stay,
            // The kernel has moved a thread to another memory node meanwhile.
            Ask::Switch(Side::Candidate) if round.drags_memory(&running.places) => {
                learned.ledger.spent(running.trial.cost, 0.0, round.now);
                learned.forget(&running.candidate, &learned.situation.board(round.ctx));
                return TrialTurn::Watch;
            }
            Ask::Switch(side) => running.switch(side, learned, &learned.situation.board(round.ctx), round.now),
            Ask::Done(verdict) => return self.judge(round, *running, members, verdict),
        };
        self.phase = ShapesPhase::Trial(running);
        turn
    }

    /// A trial has ended.
    fn judge(
        &mut self,
        round: &ShapesRound<'_>,
        running: RunningTrial,
        members: &[(TaskId, usize)],
        verdict: TrialVerdict,
    ) -> TrialTurn {
        let RunningTrial { candidate, places, trial, work, .. } = running;
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        let (goal, guard) = (learned.goal(round.settings.objective.as_ref(), round.view), round.settings.guard);
        let estimate = trial.estimate(&goal, &learned.clock, ALPHA);
        let (mut changes, variances) = learned.changes(&trial.pairs);
        let behind = fell_behind(work.each_ref(), &learned.situation, members);
        changes.iter_mut().zip(behind).for_each(|(change, behind)| *change += behind);
        learned.measured(&trial.pairs[candidate.pairs.len()..]);
        let is_kernel = candidate.kind == CandidateKind::Kernel;
        let guarded = |changes: &[f64]| !is_kernel && estimate.pairs >= 2 && guards(guard, &learned.standing, changes);
        // Including past audits, an application is further below the kernel's placement than allowed.
        let audited = is_kernel && estimate.pairs >= GUARDED;
        let (standing, doubts) = if audited { learned.audited(&changes, &variances) } else { Default::default() };
        let violated = audited && guards(guard, &standing, &vec![0.0; standing.len()]);
        // A program whose slowest thread loses ends later, whatever its threads gain together.
        let better = verdict == TrialVerdict::Better && (is_kernel || goal.worth(&changes) > 0.0);
        let kept = (better && !guarded(&learned.at_worst(&changes, &variances))) || violated;
        let open = verdict == TrialVerdict::Undecided && estimate.mean > 0.0 && !guarded(&changes);
        learned.count(&candidate, kept);
        // The latest window of the placement from now on; the kernel chooses again.
        learned.recent = match (kept, is_kernel) {
            (false, _) => trial.last[Side::Incumbent as usize].clone(),
            (true, false) => trial.last[Side::Candidate as usize].clone(),
            (true, true) => None,
        };
        if kept && is_kernel {
            learned.ledger.forfeit();
        }
        learned.ledger.spent(trial.cost, if kept && !is_kernel { estimate.mean } else { 0.0 }, round.now);
        let shape = candidate.shape.text(&learned.situation.names(), &learned.situation.board(round.ctx));
        if kept {
            learned.keep(candidate.shape, places, (&changes, &variances), is_kernel, false);
        } else {
            if audited {
                (learned.standing, learned.doubts) = (standing, doubts);
            }
            learned.dismiss(candidate, trial.pairs, estimate.mean, open);
        }
        let kept = kept.then(|| learned.known());
        let is_restless = verdict == TrialVerdict::Restless;
        TrialTurn::Judged(JudgedTrial { shape, estimate, kept, is_kernel, is_restless })
    }

    /// A round of a trial of memory.
    pub fn go_on_following(
        &mut self,
        round: &ShapesRound<'_>,
        mut trial: Box<PageTrial>,
        candidate: Option<(Shape, ShapePlaces)>,
        members: &[(TaskId, usize)],
        stands: bool,
    ) -> TrialTurn {
        let Some(learned) = &self.learned else { return TrialTurn::Watch };
        // The kernel has moved threads to other memory nodes since.
        if trial.is_by_kernel() && trial.is_before() && learned.is_kernel && round.drags_memory(&learned.places) {
            return TrialTurn::Watch;
        }
        let point = self.meter.add(round.view, &learned.situation.measures).filter(|_| stands);
        let silent = self.patience(round.view);
        if matches!(silent, TrialTurn::Silent(..)) {
            self.phase = ShapesPhase::Pages { trial, candidate };
            return silent;
        }
        let Some(learned) = &mut self.learned else { return TrialTurn::Watch };
        point.iter().filter(|_| trial.is_before()).for_each(|point| learned.crossing.steadiness.add(point));
        let goal = learned.goal(round.settings.objective.as_ref(), round.view);
        let audits = trial.audits();
        let places = candidate.as_ref().map_or(&learned.places, |(_, places)| places).clone();
        let stays = |changes: &[f64], gains: bool| {
            let lost: Vec<f64> = changes.iter().map(|change| -change).collect();
            let none = vec![0.0; lost.len()];
            if audits {
                gains || guards(round.settings.guard, &none, &lost)
            } else {
                gains && !guards(round.settings.guard, &learned.standing, changes)
            }
        };
        let worth = |change: &[f64]| goal.worth(change);
        let slowest = |work: [&ThreadWork; 2]| fell_behind(work, &learned.situation, members);
        let homes = [&learned.places, if audits { &learned.places } else { &places }];
        match trial.add(round.ctx.topology, homes, round.view, point, members, worth, slowest, stays) {
            PageNext::Wait => {
                self.phase = ShapesPhase::Pages { trial, candidate };
                TrialTurn::Stay
            }
            PageNext::Move { orders, back } => {
                let to = if back { Some(learned.places.clone()) } else { candidate.is_some().then_some(places) };
                self.phase = ShapesPhase::Pages { trial, candidate };
                TrialTurn::MoveMemory(orders, to)
            }
            PageNext::Done(changes, stays) => {
                let gain = goal.worth(&changes);
                learned.ledger.spent(trial.cost, if stays { gain } else { 0.0 }, round.now);
                learned.recent = None;
                if let Some((shape, places)) = candidate.clone().filter(|_| trial.is_by_kernel()) {
                    let board = learned.situation.board(round.ctx);
                    if !audits {
                        learned.crossing.count(&shape, &board, trial.cost, [stays, trial.dear]);
                    }
                    learned.trials += 1;
                    let (estimate, text) = (trial.found, shape.text(&learned.situation.names(), &board));
                    let kept = stays.then(|| {
                        learned.keep(shape, places, (&changes, &[]), audits, true);
                        learned.known()
                    });
                    if stays && audits {
                        learned.ledger.forfeit();
                    }
                    return TrialTurn::Judged(JudgedTrial {
                        shape: text,
                        estimate,
                        kept,
                        is_kernel: audits,
                        is_restless: false,
                    });
                }
                if !stays {
                    // Without a result in time it is also undone.
                    return TrialTurn::Followed(trial.undo(round.view), None);
                }
                let (shape, places) = candidate.unwrap_or_else(|| (learned.incumbent.clone(), learned.places.clone()));
                learned.keep(shape, places, (&changes, &[]), false, true);
                TrialTurn::Followed(Vec::new(), Some((learned.known(), gain)))
            }
        }
    }
}
