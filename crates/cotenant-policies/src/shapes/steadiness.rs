//! Whether the load is steady: its changes could distort comparisons with earlier times.

use super::speed_meter::SpeedPoint;
use cotenant_model::stats::Summary;
use serde::{Deserialize, Serialize};

/// Seconds of a block. Phases of programs are mostly shorter.
const BLOCK: f64 = 10.0;
/// A block is at another level if it differs by this many standard errors of readings, and by this logarithm.
const ERRORS: f64 = 8.0;
const LEVEL: f64 = 0.02;
/// Seconds within which one reading is as informative as all.
pub(super) const INDEPENDENT: f64 = 0.5;
/// The load is steady when its level has not changed for this many seconds, or stays for this many at a time, which is
/// rare compared with a trial.
const STEADY: f64 = 120.0;
const RARELY: f64 = 1_000.0;

/// Levels of speed under the current placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Steadiness {
    /// The block in progress: means of the logarithms of the speeds.
    values: Vec<f64>,
    seconds: f64,
    /// Means and squared errors of the two previous ones: a level may change in the middle of a block.
    before: Vec<[f64; 2]>,
    /// Seconds, and the number of level changes in them.
    watched: f64,
    changes: f64,
}

impl Steadiness {
    /// Adds a reading under the current placement.
    pub fn add(&mut self, point: &SpeedPoint) {
        self.values.push(point.logs.iter().sum::<f64>() / point.logs.len().max(1) as f64);
        self.seconds += point.seconds;
        if self.seconds < BLOCK {
            return;
        }
        // Scatter between successive readings, which excludes changes of level.
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

    /// Starts with another placement, which has another level.
    pub fn begin(&mut self) {
        (self.values, self.seconds, self.before) = Default::default();
    }

    /// Seconds until the load counts as steady, if its level stays.
    pub fn left(&self) -> f64 {
        (f64::max(STEADY, RARELY * self.changes) - self.watched).max(0.0)
    }
}
