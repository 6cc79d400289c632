//! Whether the load stays as it is: what is held against what was before could be misled by its changes.

use super::speed_meter::SpeedPoint;
use cotenant_model::stats::Summary;
use serde::{Deserialize, Serialize};

/// Seconds of a block. Phases of programs are mostly shorter.
const BLOCK: f64 = 10.0;
/// A block is another level if it differs by so many of the errors that readings alone explain, and by so much as a
/// logarithm.
const ERRORS: f64 = 8.0;
const LEVEL: f64 = 0.02;
/// Seconds of readings of which one tells as much as all.
pub(super) const INDEPENDENT: f64 = 0.5;
/// The load is steady when its level has never changed for so many seconds, or has stayed for so many at a time, which
/// is rare enough beside what a trial takes.
const STEADY: f64 = 120.0;
const RARELY: f64 = 1_000.0;

/// Levels of the speed under what stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Steadiness {
    /// The block that is being measured: means of the logarithms of the speeds.
    values: Vec<f64>,
    seconds: f64,
    /// Means and squared errors of the two before: a level may change in the middle of a block.
    before: Vec<[f64; 2]>,
    /// Seconds, and how often the level has changed in them.
    watched: f64,
    changes: f64,
}

impl Steadiness {
    /// A reading under what stands.
    pub fn add(&mut self, point: &SpeedPoint) {
        self.values.push(point.logs.iter().sum::<f64>() / point.logs.len().max(1) as f64);
        self.seconds += point.seconds;
        if self.seconds < BLOCK {
            return;
        }
        // By how much readings differ from the next one: a level that changes meanwhile is not in that.
        let squares: Vec<f64> = self.values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2) / 2.0).collect();
        let error = Summary::of(&squares).mean * INDEPENDENT / self.seconds;
        let now = [Summary::of(&self.values).mean, error];
        let jumps =
            |[before, error]: &[f64; 2]| (now[0] - before).abs() > f64::max(LEVEL, ERRORS * (error + now[1]).sqrt());
        self.watched += self.seconds;
        if self.before.iter().any(jumps) {
            self.changes += 1.0;
            self.before.clear();
        }
        self.before.push(now);
        if self.before.len() > 2 {
            self.before.remove(0);
        }
        (self.values, self.seconds) = (Vec::new(), 0.0);
    }

    /// Something else stands: its level is another one.
    pub fn begin(&mut self) {
        (self.values, self.seconds, self.before) = Default::default();
    }

    /// Seconds that are left until the load counts as steady, if its level stays.
    pub fn left(&self) -> f64 {
        (f64::max(STEADY, RARELY * self.changes) - self.watched).max(0.0)
    }
}
