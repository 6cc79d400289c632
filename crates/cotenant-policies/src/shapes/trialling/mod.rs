//! Trials of `shapes`: the incumbent with its knowledge, the candidate on trial, and the budget.
//!
//! Each turn takes current knowledge and places, and returns the request to the rest of the policy.

mod choosing;
mod judging;
mod measuring;

use super::crossing::Crossing;
use super::learned::{Learned, ShapeCandidate};
use super::learned_situation::LearnedSituation;
use super::ledger::TrialLedger;
use super::moves::CandidateKind;
use super::order::GroupCounts;
use super::outgoing::{IncumbentPlaces, JudgedTrial, PlacementReason};
use super::page_trial::PageTrial;
use super::rest::HeardSpeeds;
use super::settings::{KnownGroup, KnownShape};
use super::shape::Shape;
use super::shape_board::ShapePlaces;
use super::shapes_round::{CALMEST, ShapesRound};
use super::slowest::ThreadWork;
use super::speed_meter::SpeedMeter;
use super::still_memory::StillMemory;
use super::trial::{Clock, ShapeTrial, Side};
use cotenant_model::{AppId, Proposal, TaskId, Time, View};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Limit of situations with remembered results on other nodes.
const SITUATIONS: usize = 8;

/// The state of trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapesTrialling {
    phase: ShapesPhase,
    meter: SpeedMeter,
    learned: Option<Box<Learned>>,
    /// Cost of trials while nothing is known.
    ledger: Option<TrialLedger>,
    /// Results on other nodes in the last situations, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    crossings: Vec<(Vec<KnownGroup>, Crossing)>,
    /// Whether the incumbent is a past shape in which threads have started: the kernel's choice was not seen.
    begun: bool,
    /// State of random draws.
    seed: Option<u64>,
    /// Current number of doublings of the interval.
    calm: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ShapesPhase {
    /// Nothing is known yet.
    #[default]
    Fresh,
    /// Waits until the set of tasks has settled.
    Watch { since: Time },
    /// Measures the incumbent.
    Trace(SpeedTrace),
    /// A candidate competes.
    Trial(Box<RunningTrial>),
    /// Memory follows the threads in a trial: those of the incumbent, or of a candidate that was no better without.
    Pages { trial: Box<PageTrial>, candidate: Option<(Shape, ShapePlaces)> },
    /// No trials for now; `saving`: trials have cost enough.
    Rest { until: Time, saving: bool, heard: HeardSpeeds },
}

/// A measurement of the incumbent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SpeedTrace {
    /// Seconds of each point, and logarithms of the speeds.
    points: Vec<(f64, Vec<f64>)>,
    /// Whether speeds jump, which lengthens it.
    long: bool,
    /// If the kernel moves memory and places all threads: the time since it has settled, and the seconds of that wait.
    #[serde(default)]
    still: StillMemory,
    #[serde(default)]
    waited: f64,
    /// Time since threads are not in their places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Time>,
}

/// A trial with its candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunningTrial {
    candidate: ShapeCandidate,
    /// Its places of threads.
    places: ShapePlaces,
    trial: ShapeTrial,
    /// Work of each thread under the incumbent and under the candidate.
    #[serde(default, skip_serializing_if = "ThreadWork::is_empty")]
    work: [ThreadWork; 2],
    /// Time of the last change of the plan, while it is unconfirmed.
    asked: Option<Time>,
}

/// A turn's request to the rest of the policy.
#[derive(Debug)]
pub(super) enum TrialTurn {
    /// Nothing.
    Stay,
    /// Nothing is learned: observe the tasks again.
    Watch,
    /// The incumbent's measurement is complete; `None`: without a result.
    Traced(Option<Clock>),
    /// The incumbent cannot be put in place.
    Misplaced,
    /// These applications have been silent for this many seconds.
    Silent(Vec<AppId>, f64),
    Put(ShapePlaces, PlacementReason),
    /// Restore the incumbent instead of a candidate.
    PutBack(PlacementReason),
    /// Put the incumbent in place.
    PutIncumbent(PlacementReason),
    Judged(JudgedTrial),
    /// Move memory, and threads to these places.
    MoveMemory(Vec<Proposal>, Option<ShapePlaces>),
    /// A trial of memory has ended, with these last orders: the placement and its gain, if memory stays.
    Followed(Vec<Proposal>, Option<(KnownShape, f64)>),
}

impl ShapesTrialling {
    /// Seeds the random draws unless already done.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed.get_or_insert(seed);
    }

    fn rng(&self) -> Rng {
        Rng::with_seed(self.seed.unwrap_or_default())
    }

    /// Takes the phase for a round that decides the next one.
    pub fn take_phase(&mut self, now: Time) -> ShapesPhase {
        if !matches!(self.phase, ShapesPhase::Rest { until, .. } if now < until) {
            self.calm = 0;
        }
        std::mem::take(&mut self.phase)
    }

    pub fn phase(&self) -> &ShapesPhase {
        &self.phase
    }

    /// Whether threads or memory are not, or perhaps not, in the incumbent's places.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, ShapesPhase::Trial(_) | ShapesPhase::Pages { .. })
    }

    /// Whether the current placement is only a trial.
    pub fn is_trying(&self) -> bool {
        match &self.phase {
            ShapesPhase::Trial(running) => running.trial.side() == Side::Candidate,
            ShapesPhase::Pages { candidate, .. } => candidate.is_some(),
            _ => false,
        }
    }

    pub fn has_learned(&self) -> bool {
        self.learned.is_some()
    }

    /// The places of the incumbent's threads.
    pub fn incumbent(&self) -> Option<IncumbentPlaces<'_>> {
        let Learned { places, spots, is_kernel, .. } = &**self.learned.as_ref()?;
        Some(IncumbentPlaces { places, spots, is_kernel: *is_kernel })
    }

    pub fn watch(&mut self, since: Time) {
        self.phase = ShapesPhase::Watch { since };
        self.meter.clear();
    }

    /// Begins the measurement of the incumbent.
    pub fn trace(&mut self) {
        self.phase = ShapesPhase::Trace(SpeedTrace::default());
        self.meter.clear();
        if let Some(learned) = &mut self.learned {
            learned.counted = GroupCounts::default();
        }
    }

    /// Continues with what was learned if only single threads were replaced by similar ones; otherwise returns false.
    pub fn goes_on(
        &mut self,
        situation: &LearnedSituation,
        before: &[(TaskId, usize)],
        members: &[(TaskId, usize)],
    ) -> bool {
        let Some(learned) = &mut self.learned else { return false };
        let same = learned.situation.is_like(situation) && !is_renewed(before, members);
        if same {
            learned.replace(before, members);
        }
        same
    }

    /// Begins a situation with the best known shape for it. `begun`: threads have started in that shape.
    pub fn begin(&mut self, situation: LearnedSituation, known: Option<Shape>, begun: bool, now: Time) {
        self.forget();
        let ledger = self.ledger.take().unwrap_or_else(|| TrialLedger::new(now));
        let groups = situation.described();
        let mut learned = Learned::new(situation, ledger);
        if let Some(i) = self.crossings.iter().position(|(of, _)| *of == groups) {
            learned.crossing = self.crossings.remove(i).1;
            learned.crossing.steadiness.begin();
        }
        self.begun = begun;
        match known {
            Some(shape) if begun => learned.incumbent = shape,
            known => learned.first = known.map(|shape| ShapeCandidate::new(shape, CandidateKind::Known)),
        }
        self.learned = Some(Box::new(learned));
    }

    /// Drops what was learned, except for the cost of trials.
    pub fn forget(&mut self) {
        if let Some(Learned { situation, ledger, crossing, .. }) = self.learned.take().map(|learned| *learned) {
            self.ledger = Some(ledger.anew());
            if !crossing.is_new() {
                self.crossings.push((situation.described(), crossing));
                self.crossings.drain(..self.crossings.len().saturating_sub(SITUATIONS));
            }
        }
    }

    /// The incumbent cannot be put in place: the kernel's placement of all threads is measured instead.
    pub fn give_up(&mut self) {
        let before = self.learned.take().map(|learned| *learned);
        self.learned = before.map(|before| Box::new(Learned::new(before.situation, before.ledger.anew())));
        self.begun = false;
        self.trace();
    }

    /// Ends the current trial without a verdict; its cost counts. Returns orders that return memory.
    pub fn break_off(&mut self, view: &View, now: Time) -> Vec<Proposal> {
        let (cost, orders) = match &self.phase {
            ShapesPhase::Trial(running) => (running.trial.cost, Vec::new()),
            ShapesPhase::Pages { trial, .. } => (trial.cost, trial.undo(view)),
            _ => return Vec::new(),
        };
        if let Some(learned) = &mut self.learned {
            learned.ledger.spent(cost, 0.0, now);
        }
        orders
    }

    /// Tries following memory, with the incumbent or a candidate.
    fn follow(&mut self, candidate: Option<(Shape, ShapePlaces)>) -> TrialTurn {
        self.meter.clear();
        self.phase = ShapesPhase::Pages { trial: Box::default(), candidate };
        TrialTurn::PutBack(PlacementReason::Stands)
    }

    fn rest(&mut self, until: Time, saving: bool, why: PlacementReason) -> TrialTurn {
        self.meter.clear();
        self.phase = ShapesPhase::Rest { until, saving, heard: HeardSpeeds::default() };
        TrialTurn::PutBack(why)
    }

    /// A round of rest. Returns the time of the next one; `None` if speeds have changed.
    pub fn go_on_resting(
        &mut self,
        round: &ShapesRound<'_>,
        until: Time,
        saving: bool,
        mut heard: HeardSpeeds,
    ) -> Option<Time> {
        let calm = std::mem::take(&mut self.calm);
        if !saving && self.is_another_speed(round.view, &mut heard) {
            return None;
        }
        self.phase = ShapesPhase::Rest { until, saving, heard };
        self.calm = (calm + 1).min(CALMEST);
        Some(until.min(round.now + round.interval() * 2_u32.pow(self.calm)))
    }

    /// Whether an application's speed has changed since the rest began. Then what was learned belongs to another load,
    /// and only the current placement is kept.
    fn is_another_speed(&mut self, view: &View, heard: &mut HeardSpeeds) -> bool {
        let Some(learned) = &mut self.learned else { return false };
        let point = self.meter.add(view, &learned.situation.measures);
        if let Some(point) = &point {
            learned.crossing.steadiness.add(point);
        }
        let shifted = point.is_some_and(|point| heard.add(&point, learned.shifts));
        if shifted {
            learned.again();
        }
        shifted
    }
}

/// Whether all threads of a group are new: a program has restarted, and its memory is where its threads started.
fn is_renewed(before: &[(TaskId, usize)], after: &[(TaskId, usize)]) -> bool {
    let stays = |group: usize| after.iter().any(|member| member.1 == group && before.contains(member));
    after.iter().any(|member| !stays(member.1))
}

#[cfg(test)]
impl ShapesTrialling {
    pub fn learned(&self) -> Option<&Learned> {
        self.learned.as_deref()
    }

    pub fn has_begun(&self) -> bool {
        self.begun
    }
}
