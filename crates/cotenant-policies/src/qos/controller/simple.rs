//! Heuristic 1 (Algorithm 4): the slower the high-priority program, the longer the nap.
//!
//! ```text
//!         slow: as long as its bin says
//!   ┌─▶ Run ───────────────────────────▶ Nap ─┐
//!   │    ↺ fast, or the speed is not known    │
//!   └─────────────────────────────────────────┘
//! ```

use crate::qos::phase::{Figure, Held, Phase, PhaseResult, Why, usable};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simple {
    /// Speed (IPC in the paper) below which the nap is the longest.
    pub low: f64,
    /// Speed below which it is the middle one.
    pub high: f64,
    /// Naps in multiples of `exec`: below `low`, below `high`, from `high` on.
    pub naps: [f64; 3],
    /// How long the low-priority programs run before the speed is judged.
    pub exec: Duration,
}

impl Simple {
    /// With the execution time of 10 ms that §5.4 found better than 1 ms, since caches have to warm up after each nap.
    /// (§6.3 gives none.)
    pub fn new(low: f64, high: f64, naps: [f64; 3]) -> Self {
        Self { low, high, naps, exec: Duration::from_millis(10) }
    }

    pub(super) fn run(&self) -> Phase {
        Phase::new(1.0, self.exec, Why::Between)
    }

    /// The slowest program decides; one whose speed is unknown asks for nothing.
    pub(super) fn after_run(&self, seen: &PhaseResult) -> Phase {
        let known = seen.speeds.iter().enumerate().filter_map(|(high, speed)| Some((high, usable(*speed)?)));
        let Some((high, speed)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return Phase::new(1.0, self.exec, Why::Unknown);
        };
        let ratio = self.naps[usize::from(speed >= self.low) + usize::from(speed >= self.high)];
        let held = Held::new(high, Figure::Speed, speed, if speed < self.low { self.low } else { self.high });
        let phase = if ratio > 0.0 {
            Phase::nap(self.exec.mul_f64(ratio), Why::Contention)
        } else {
            Phase::new(1.0, self.exec, Why::Fine)
        };
        phase.by(held)
    }
}
