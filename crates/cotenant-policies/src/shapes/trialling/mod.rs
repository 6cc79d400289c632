//! What `shapes` tries: the incumbent with what is learned about it, the candidate on trial, what trials may cost.
//!
//! Each turn takes what is known and placed now, and returns what the rest of the policy is to do.

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

/// Situations of which it is remembered what is known of other nodes.
const SITUATIONS: usize = 8;

/// The state of trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapesTrialling {
    phase: ShapesPhase,
    meter: SpeedMeter,
    learned: Option<Box<Learned>>,
    /// What trials have cost, while nothing is known.
    ledger: Option<TrialLedger>,
    /// What is known of other nodes in the last situations, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    crossings: Vec<(Vec<KnownGroup>, Crossing)>,
    /// Whether the incumbent is a shape of the past in which threads have started: the kernel's choice was not seen.
    begun: bool,
    /// Where draws go on.
    seed: Option<u64>,
    /// How often the interval is doubled now.
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
    /// Memory follows the threads, for a trial: of the incumbent, or of a candidate that was no better without.
    Pages { trial: Box<PageTrial>, candidate: Option<(Shape, ShapePlaces)> },
    /// Nothing is left to try for now; `saving`: trials have cost enough.
    Rest { until: Time, saving: bool, heard: HeardSpeeds },
}

/// A measurement of the incumbent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SpeedTrace {
    /// Seconds of each point, and logarithms of the speeds.
    points: Vec<(f64, Vec<f64>)>,
    /// Whether speeds jump, so that it takes longer.
    long: bool,
    /// Where the kernel moves memory, and places all threads: since when it has settled, and seconds that were waited
    /// for that.
    #[serde(default)]
    still: StillMemory,
    #[serde(default)]
    waited: f64,
    /// Since when threads are not where they should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Time>,
}

/// A trial with its candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunningTrial {
    candidate: ShapeCandidate,
    /// Where the threads go for it.
    places: ShapePlaces,
    trial: ShapeTrial,
    /// What each thread did under the incumbent and under the candidate.
    #[serde(default, skip_serializing_if = "ThreadWork::is_empty")]
    work: [ThreadWork; 2],
    /// When the plan last changed, while it is not known to stand.
    asked: Option<Time>,
}

/// What the rest of the policy is to do after a turn.
#[derive(Debug)]
pub(super) enum TrialTurn {
    /// Nothing.
    Stay,
    /// Nothing is learned: watch the tasks again.
    Watch,
    /// The incumbent was measured for long enough; `None`: it tells nothing.
    Traced(Option<Clock>),
    /// The incumbent cannot be put in place.
    Misplaced,
    /// These applications have reported nothing for so many seconds.
    Silent(Vec<AppId>, f64),
    Put(ShapePlaces, PlacementReason),
    /// The incumbent takes its places, where a candidate stands now.
    PutBack(PlacementReason),
    /// The incumbent takes its places.
    PutIncumbent(PlacementReason),
    Judged(JudgedTrial),
    /// Memory moves, and threads to these places.
    MoveMemory(Vec<Proposal>, Option<ShapePlaces>),
    /// A trial of memory is over, with these last orders: what stands now and its gain, where memory stays.
    Followed(Vec<Proposal>, Option<(KnownShape, f64)>),
}

impl ShapesTrialling {
    /// Begins to draw by this seed, where nothing was drawn before.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed.get_or_insert(seed);
    }

    fn rng(&self) -> Rng {
        Rng::with_seed(self.seed.unwrap_or_default())
    }

    /// Takes the phase for a round that decides about the next one.
    pub fn take_phase(&mut self, now: Time) -> ShapesPhase {
        if !matches!(self.phase, ShapesPhase::Rest { until, .. } if now < until) {
            self.calm = 0;
        }
        std::mem::take(&mut self.phase)
    }

    pub fn phase(&self) -> &ShapesPhase {
        &self.phase
    }

    /// Whether threads or memory are not where the incumbent has them, or may not be.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, ShapesPhase::Trial(_) | ShapesPhase::Pages { .. })
    }

    /// Whether what stands is only tried.
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

    /// Where the incumbent's threads stand.
    pub fn incumbent(&self) -> Option<IncumbentPlaces<'_>> {
        let Learned { places, spots, is_kernel, .. } = &**self.learned.as_ref()?;
        Some(IncumbentPlaces { places, spots, is_kernel: *is_kernel })
    }

    pub fn watch(&mut self, since: Time) {
        self.phase = ShapesPhase::Watch { since };
        self.meter.clear();
    }

    /// Begins to measure the incumbent.
    pub fn trace(&mut self) {
        self.phase = ShapesPhase::Trace(SpeedTrace::default());
        self.meter.clear();
        if let Some(learned) = &mut self.learned {
            learned.counted = GroupCounts::default();
        }
    }

    /// Goes on with what was learned, where only single threads were replaced by similar ones; else returns false.
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

    /// Begins with a situation, and the best shape that is known for it. `begun`: threads have started in that shape.
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

    /// Forgets what was learned, but not what trials have cost.
    pub fn forget(&mut self) {
        if let Some(Learned { situation, ledger, crossing, .. }) = self.learned.take().map(|learned| *learned) {
            self.ledger = Some(ledger.anew());
            if !crossing.is_new() {
                self.crossings.push((situation.described(), crossing));
                self.crossings.drain(..self.crossings.len().saturating_sub(SITUATIONS));
            }
        }
    }

    /// The incumbent cannot be put in place: the kernel places all threads, and that is measured.
    pub fn give_up(&mut self) {
        let before = self.learned.take().map(|learned| *learned);
        self.learned = before.map(|before| Box::new(Learned::new(before.situation, before.ledger.anew())));
        self.begun = false;
        self.trace();
    }

    /// Ends what is being tried without a verdict; its cost counts. Returns orders that bring memory back.
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

    /// Tries whether memory is to follow the threads, of the incumbent or of a candidate.
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

    /// A round of rest. Returns when the next one is due; `None` where speeds have changed.
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

    /// Whether an application is faster or slower than when the rest began. What was learned is of another load then,
    /// and is forgotten but for what stands.
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

/// Whether all threads of a group are new: a program has started again, and its memory is where its threads started.
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
