//! A trial: a candidate against the incumbent, in blocks of four windows, by a test that is valid at every look.
//!
//! ```text
//!   A0 │settle│ B1 B2 │settle│ A1       or       B0 │settle│ A1 A2 │settle│ B1      (a coin says which)
//! ```

use super::speed_meter::{SpeedPoint, SpeedWindow};
use cotenant_model::stats::Summary;
use cotenant_model::stats::anytime::half_width;
use cotenant_model::stats::median::middle;
use cotenant_model::{Time, View};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Unmeasured time after a change: caches are cold, and queues level out.
pub(super) const SETTLE: Duration = Duration::from_millis(200);
/// Seconds of the incumbent's measurement before trials; and if its speed jumps.
pub(super) const TRACE: [f64; 2] = [3.0, 8.0];
/// Windows, seconds.
const WINDOWS: std::ops::RangeInclusive<f64> = 0.3..=2.6;
/// Scale of the expected gains, a parameter of the test, which is most powerful there.
const TAU: f64 = 0.03;
/// A window of the incumbent also serves the next trial while it is younger than this.
const FRESH: Duration = Duration::from_secs(2);
/// A loss beyond noise that ends a trial at once.
const HOPELESS: f64 = 0.03;
/// The least worthwhile gain.
const LEAST: f64 = 0.005;
/// Weight of the mean beside the slowest application, when that is maximized. Steps that help one application at a time
/// lead to mappings that help all, although none of them improves the slowest.
const OTHERS: f64 = 0.1;
/// Discarded blocks in a row that end a trial.
const THROWN: u32 = 3;
/// A difference between two windows of one placement beyond this many deviations is a change of the load.
const JUMP: f64 = 4.0;
/// Limit of remembered differences between successive windows.
const REMEMBERED: usize = 60;

/// The maximized value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    /// The geometric mean.
    Mean,
    /// One application's speed.
    App(usize),
    /// The least gain over the kernel's placement, plus [`OTHERS`] of the mean, given each application's current
    /// distance from that placement.
    Fair(Vec<f64>),
}

impl Goal {
    /// The value of a change of the logarithms.
    pub fn worth(&self, change: &[f64]) -> f64 {
        match self {
            Self::Mean => change.iter().sum::<f64>() / change.len().max(1) as f64,
            Self::App(app) => change.get(*app).copied().unwrap_or_default(),
            Self::Fair(standing) => {
                // Before the first kept candidate, all are at the kernel's placement.
                let before = |app: usize| standing.get(app).copied().unwrap_or_default();
                let least = |of: &dyn Fn(usize) -> f64| (0..change.len()).map(of).fold(f64::INFINITY, f64::min);
                let gain = least(&|app| before(app) + change[app]) - least(&before);
                if gain.is_finite() { (gain + OTHERS * Self::Mean.worth(change)) / (1.0 + OTHERS) } else { 0.0 }
            }
        }
    }
}

/// Length of windows, and their scatter without changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// Seconds of a window.
    pub window: f64,
    /// A loss in one round beyond this is not noise.
    pub quick: f64,
    /// Squared differences of successive windows.
    squares: Vec<f64>,
}

impl Clock {
    /// From a trace of the incumbent: the most informative window per time. `None` if the trace is too short.
    pub fn from_trace(values: &[(f64, f64)]) -> Option<Self> {
        let step = values.iter().map(|(seconds, _)| seconds).sum::<f64>() / values.len().max(1) as f64;
        let means = |values: &[(f64, f64)], per: usize| -> Vec<f64> {
            values.chunks_exact(per).map(|c| c.iter().map(|(_, v)| v).sum::<f64>() / per as f64).collect()
        };
        // As far apart as in a trial.
        let gap = (SETTLE.as_secs_f64() / step).round() as usize;
        let differences = |per: usize| -> Vec<f64> {
            let later = means(&values[(per + gap).min(values.len())..], per);
            means(values, per).iter().zip(later).map(|(before, now)| now - before).collect()
        };
        // Cost, seconds of a window, squared differences.
        let mut best: Option<(f64, f64, Vec<f64>)> = None;
        let least = (WINDOWS.start() / step).ceil().max(1.0) as usize;
        for per in least..=(values.len() / 4).max(least) {
            let seconds = per as f64 * step;
            let found = differences(per);
            if found.len() < 3 || (seconds > *WINDOWS.end() && best.is_some()) {
                break;
            }
            let squares: Vec<f64> = found.iter().map(|d| d * d).collect();
            let variance = Summary::of(&squares).mean;
            let far = JUMP * deviation(&found);
            let outliers = found.iter().filter(|d| d.abs() > far).count() as f64 / found.len() as f64;
            let cost = variance * (seconds + SETTLE.as_secs_f64()) / (1.0 - outliers).powi(4).max(1e-3);
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, seconds, squares));
            }
        }
        let (_, window, squares) = best?;
        let mut rounds: Vec<f64> = values.windows(2).map(|w| (w[1].1 - w[0].1).abs()).collect();
        rounds.sort_by(f64::total_cmp);
        let quick = 1.3 * rounds[(rounds.len() * 98 / 100).min(rounds.len() - 1)];
        Some(Self { window, quick, squares })
    }

    /// Whether the trace jumps, so that a longer one is needed.
    pub fn jumps(values: &[(f64, f64)]) -> bool {
        let differences: Vec<f64> = values.windows(2).map(|w| w[1].1 - w[0].1).collect();
        let usual = deviation(&differences);
        differences.iter().any(|d| d.abs() > 6.0 * usual.max(1e-4))
    }

    /// Variance of the difference of two successive windows, whose mean is 0.
    fn mean_square(&self) -> f64 {
        Summary::of(&self.squares).mean
    }

    /// Adds a difference between adjacent windows of one placement; a jump counts as the largest non-jump.
    fn add(&mut self, difference: f64) {
        let square = difference.powi(2).min(JUMP.powi(2) * self.mean_square().max(1e-12));
        self.squares.push(square);
        if self.squares.len() > REMEMBERED {
            self.squares.remove(0);
        }
    }
}

/// Required certainty of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TrialStage {
    /// A candidate that cannot be better by this is dropped.
    pub delta: f64,
    /// Blocks after which it is undecided.
    pub blocks: usize,
}

/// From coarse to fine, because excluding small gains of half a percent costs most.
pub(super) const STAGES: [TrialStage; 3] = [
    TrialStage { delta: 0.02, blocks: 2 },
    TrialStage { delta: 0.01, blocks: 6 },
    TrialStage { delta: 0.005, blocks: 12 },
];

/// An estimate with an interval that is valid at every look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TrialEstimate {
    pub mean: f64,
    pub radius: f64,
    /// Pairs of windows.
    pub pairs: usize,
}

impl TrialEstimate {
    /// Whether it is a worthwhile gain.
    fn is_gain(self) -> bool {
        self.mean - self.radius > 0.0 && self.mean >= LEAST
    }

    /// Whether it is below what a stage looks for.
    fn is_lost(self, stage: TrialStage) -> bool {
        let Self { mean, radius, .. } = self;
        mean + radius < stage.delta || (mean < -HOPELESS && mean + 0.6 * radius < 0.0)
    }
}

/// The current placement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    Incumbent,
    Candidate,
}

/// A trial's next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Stay.
    Stay,
    /// Change to the other one.
    Switch(Side),
    /// It is over.
    Done(TrialVerdict),
}

/// End of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TrialVerdict {
    Better,
    Worse,
    Undecided,
    /// The load changes too often for a verdict.
    Restless,
}

/// A trial in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapeTrial {
    /// Whether the block is B A A B.
    reversed: bool,
    /// Finished windows of the block.
    windows: Vec<Vec<f64>>,
    window: SpeedWindow,
    /// Measurement starts at this time.
    from: Time,
    /// Candidate over incumbent, per pair of windows: logarithms per application.
    pub pairs: Vec<Vec<f64>>,
    /// Least number of pairs, however clear the whole result is.
    pub least: usize,
    /// Gains of pairs by order, of valid blocks: A B B A, and B A A B.
    orders: [Vec<f64>; 2],
    /// Discarded blocks in a row.
    thrown: u32,
    /// The last pair covers a part of a window.
    glanced: bool,
    /// Cost so far, in seconds of the incumbent's speed; below 0: a gain.
    pub cost: f64,
    /// The last window of incumbent and candidate, and its end.
    pub last: [Option<(Time, Vec<f64>)>; 2],
}

impl ShapeTrial {
    /// A new trial with the incumbent in place, or with the candidate if the incumbent was just measured. Earlier
    /// measurements of the candidate count.
    pub fn new(now: Time, recent: Option<(Time, Vec<f64>)>, pairs: Vec<Vec<f64>>) -> (Self, Side) {
        let fresh = recent.filter(|(at, _)| now - *at < FRESH);
        let mut trial = Self { from: now, pairs, ..Self::default() };
        if let Some((at, logs)) = fresh {
            trial.last[Side::Incumbent as usize] = Some((at, logs.clone()));
            trial.windows.push(logs);
        }
        let side = trial.side();
        (trial, side)
    }

    /// The placement to use now.
    pub fn side(&self) -> Side {
        let outer = matches!(self.windows.len(), 0 | 3);
        if outer == self.reversed { Side::Candidate } else { Side::Incumbent }
    }

    /// The other one has been put in place.
    pub fn switched(&mut self, now: Time) {
        self.from = now + SETTLE;
        self.window = SpeedWindow::default();
    }

    /// Whether observations belong to the current placement only: the last change is over.
    pub fn has_settled(&self, view: &View) -> bool {
        Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64)).0 + 1_000_000 >= self.from.0
    }

    /// The candidate's estimated gain.
    pub fn estimate(&self, goal: &Goal, clock: &Clock, alpha: f64) -> TrialEstimate {
        let gains: Vec<f64> = self.pairs.iter().map(|pair| goal.worth(pair)).collect();
        let known = estimate(&gains, clock, alpha);
        // The scatter of a part of a window is unknown.
        if self.pairs.len() < 2 && self.glanced { TrialEstimate { radius: f64::INFINITY, ..known } } else { known }
    }

    /// Adds two windows; the second one is the inner one of the block.
    fn enter(&mut self, [outer, inner]: [&[f64]; 2], goal: &Goal) {
        let pair = if self.reversed { lead(outer, inner) } else { lead(inner, outer) };
        self.orders[usize::from(self.reversed)].push(goal.worth(&pair));
        self.pairs.push(pair);
    }

    /// Adds a round.
    pub fn add(
        &mut self,
        point: &SpeedPoint,
        goal: &Goal,
        clock: &mut Clock,
        stage: TrialStage,
        alpha: f64,
        rng: &mut Rng,
    ) -> Ask {
        let side = self.side();
        let stood = &self.last[Side::Incumbent as usize];
        if let Some((_, last)) = stood.as_ref().filter(|(_, last)| last.len() == point.logs.len()) {
            // The loss on the way back is a cost too; noise added here is subtracted there.
            if side == Side::Candidate || point.at - self.from < SETTLE {
                self.cost -= goal.worth(&lead(&point.logs, last)) * point.seconds;
            }
        }
        let began = Time(point.at.0.saturating_sub((point.seconds * 1e9) as u64));
        // A reading that began before the end of the change mixes both.
        if began.0 + 1_000_000 < self.from.0 {
            return Ask::Stay;
        }
        self.window.add(point);
        let logs = self.window.logs();
        if side == Side::Candidate
            && let Some((_, last)) = &self.last[Side::Incumbent as usize]
        {
            let lead = lead(&logs, last);
            if goal.worth(&lead) < -HOPELESS - clock.quick && self.pairs.len() >= self.least {
                self.pairs.push(lead);
                self.glanced = true;
                return Ask::Done(TrialVerdict::Worse);
            }
        }
        if self.window.seconds() + 0.05 < clock.window {
            return Ask::Stay;
        }
        self.window = SpeedWindow::default();
        self.last[side as usize] = Some((point.at, logs.clone()));
        self.windows.push(logs);
        if let [outer, inner] = &self.windows.clone()[..] {
            self.enter([outer, inner], goal);
            if let Some(verdict) = self.judge(goal, clock, stage, alpha).filter(|seen| *seen != TrialVerdict::Undecided)
            {
                return Ask::Done(verdict);
            }
            // All four windows decide whether it counts.
            self.pairs.pop();
            self.orders[usize::from(self.reversed)].pop();
        }
        if self.windows.len() < 4 {
            return if self.side() == side { Ask::Stay } else { Ask::Switch(self.side()) };
        }
        let block = std::mem::take(&mut self.windows);
        let [inner, outer] = [(2, 1), (3, 0)].map(|(now, before)| goal.worth(&lead(&block[now], &block[before])));
        let limit = JUMP * clock.mean_square().sqrt().max(1e-6);
        clock.add(inner);
        if inner.abs() > limit || outer.abs() > limit * std::f64::consts::SQRT_2 {
            self.thrown += 1;
            if self.thrown >= THROWN {
                return Ask::Done(TrialVerdict::Restless);
            }
        } else {
            self.thrown = 0;
            for (outer, inner) in [(0, 1), (3, 2)] {
                self.enter([&block[outer], &block[inner]], goal);
            }
        }
        match self.judge(goal, clock, stage, alpha) {
            Some(verdict) => Ask::Done(verdict),
            None => self.another_block(side, self.estimate(goal, clock, alpha).is_gain(), rng),
        }
    }

    /// Continues with another block; `side` stays in place. `other`: in the other order, if only one was used.
    pub fn another_block(&mut self, side: Side, other: bool, rng: &mut Rng) -> Ask {
        self.windows.clear();
        // By the third block each order was used; otherwise it is random.
        let blocks = self.orders.each_ref().map(|pairs| pairs.len().div_ceil(2));
        self.reversed = match blocks {
            [n, 0] if n > 1 || n == 1 && other => true,
            [0, n] if n > 1 || n == 1 && other => false,
            _ => rng.bool(),
        };
        if self.side() == side { Ask::Stay } else { Ask::Switch(self.side()) }
    }

    fn judge(&self, goal: &Goal, clock: &Clock, stage: TrialStage, alpha: f64) -> Option<TrialVerdict> {
        let gains: Vec<f64> = self.pairs.iter().map(|pair| goal.worth(pair)).collect();
        if gains.len() < self.least.max(1) {
            return None;
        }
        let estimate = estimate(&gains, clock, alpha);
        // A change of the load within a block may look like a gain, but is a loss in the other order.
        let both = self.orders.iter().all(|gains| !gains.is_empty());
        if estimate.is_gain() && self.orders.iter().all(|gains| Summary::of(gains).mean > 0.0) {
            return Some(TrialVerdict::Better);
        }
        if estimate.is_lost(stage) {
            return Some(TrialVerdict::Worse);
        }
        (estimate.pairs >= 2 * stage.blocks && both).then_some(TrialVerdict::Undecided)
    }
}

/// The estimate from gains of pairs.
fn estimate(gains: &[f64], clock: &Clock, alpha: f64) -> TrialEstimate {
    let Summary { n: pairs, mean, variance } = Summary::of(gains);
    // The variance of few differences is uncertain.
    let doubt = 1.2 + 6.0 / (clock.squares.len() as f64).max(6.0);
    let variance = (clock.mean_square().max(variance) * doubt).max(1e-12);
    TrialEstimate { mean, radius: half_width(variance, pairs as f64, TAU, alpha), pairs }
}

/// Statistics of pairs of windows for each application.
pub(super) fn by_app(pairs: &[Vec<f64>]) -> Vec<Summary> {
    let apps = pairs.first().map_or(0, Vec::len);
    (0..apps).map(|app| Summary::of(&pairs.iter().map(|pair| pair[app]).collect::<Vec<_>>())).collect()
}

/// The differences of logarithms.
pub(super) fn lead(now: &[f64], before: &[f64]) -> Vec<f64> {
    now.iter().zip(before).map(|(now, before)| now - before).collect()
}

/// A robust standard deviation of normal values, by the median of their sizes.
fn deviation(values: &[f64]) -> f64 {
    let sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    middle(&sizes).value / 0.6745
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial in windows of 0.3 s, with speeds of each side over time in seconds: its end, the number of pairs, and
    /// the rounds of 0.1 s of each side.
    fn tried(speed: impl Fn(Side, f64) -> f64) -> (TrialVerdict, usize, [u32; 2]) {
        let mut clock = Clock { window: 0.3, quick: 0.01, squares: vec![1e-6; REMEMBERED] };
        let (mut trial, mut side) = ShapeTrial::new(Time(0), None, Vec::new());
        let (mut rng, mut rounds) = (Rng::with_seed(1), [0; 2]);
        for round in 1.. {
            let at = Time::from_millis(100 * round);
            let point = SpeedPoint { at, seconds: 0.1, logs: vec![speed(side, round as f64 / 10.0 - 0.05)] };
            rounds[side as usize] += 1;
            match trial.add(&point, &Goal::Mean, &mut clock, STAGES[0], 0.05, &mut rng) {
                Ask::Stay => {}
                Ask::Switch(to) => {
                    side = to;
                    trial.switched(at);
                }
                Ask::Done(verdict) => return (verdict, trial.pairs.len(), rounds),
            }
        }
        unreachable!("stages have an end")
    }

    /// Each change takes two rounds, each window three.
    #[test]
    fn two_windows_show_a_loss_and_a_block_and_a_half_a_gain() {
        let of = |gain: f64| tried(|side, _| if side == Side::Candidate { gain } else { 0.0 });
        assert_eq!(of(-0.02), (TrialVerdict::Worse, 1, [3, 2 + 3]));
        assert_eq!(of(-0.1), (TrialVerdict::Worse, 1, [3, 2 + 1]));
        // A B B A, and then B A.
        assert_eq!(of(0.05), (TrialVerdict::Better, 3, [3 + 2 + 3 + 2 + 3, 2 + 6 + 2 + 3]));
    }

    /// Faster for 0.8 of each 1.6 s, which is when the first candidate stands.
    #[test]
    fn phases_as_long_as_a_block_are_no_gain() {
        let (verdict, ..) = tried(|_, s| if (0.4..1.2).contains(&(s % 1.6)) { 0.05 } else { 0.0 });
        assert_ne!(verdict, TrialVerdict::Better);
    }

    /// 0.05 and a tenth of the mean; before anything was kept, too.
    #[test]
    fn what_the_slowest_gains_counts_and_a_little_of_the_mean() {
        for (standing, change, worth) in [
            (vec![0.1, 0.0], vec![0.0, 0.05], (0.05 + 0.1 * 0.025) / 1.1),
            (vec![0.1, 0.0], vec![0.05, 0.0], 0.1 * 0.025 / 1.1),
            (vec![0.0, 0.0], vec![-0.01, 0.1], (-0.01 + 0.1 * 0.045) / 1.1),
            (vec![], vec![0.07], 0.07),
            (vec![], vec![], 0.0),
        ] {
            assert!((Goal::Fair(standing.clone()).worth(&change) - worth).abs() < 1e-12, "{standing:?} {change:?}");
        }
    }
}
