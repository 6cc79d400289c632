//! Heuristic 1 (Algorithm 4): the slower the high-priority program, the longer the nap.
//!
//! ```text
//!         not judged     slow: as long as its bin says
//!   ┌─▶ Run ────────▶ Sample ─────────────────────────▶ Nap ─┐
//!   │    ▲               │ fast, or the speed is not known   │
//!   │    └───────────────┘                                   │
//!   └────────────────────────────────────────────────────────┘
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
    /// Time that the low-priority programs run before the speed is judged.
    pub exec: Duration,
    /// The last part of that, whose speed counts; zero: all of it (ours, and the meaning in recordings without this
    /// key).
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub sample: Duration,
}

/// The last phase: a run whose speed counts, or a nap; `None`: the beginning of a run.
pub(super) type Ran = Option<bool>;

impl Simple {
    /// As in the paper: the engine acts after 2 ms of execution, on the latest sample of a monitor with one per
    /// millisecond (§6.3.1).
    pub fn paper(low: f64, high: f64, naps: [f64; 3]) -> Self {
        let [exec, sample] = [2, 1].map(Duration::from_millis);
        Self { exec, sample, ..Self::new(low, high, naps) }
    }

    /// Ours, for programs that report progress in batches: runs of 10 ms, judged as a whole.
    pub fn new(low: f64, high: f64, naps: [f64; 3]) -> Self {
        Self { low, high, naps, exec: Duration::from_millis(10), sample: Duration::ZERO }
    }

    pub(super) fn start(&self) -> (Phase, Ran) {
        self.run(Why::Between, None)
    }

    pub(super) fn next(&self, ran: Ran, seen: &PhaseResult) -> (Phase, Ran) {
        match ran {
            None => (Phase::new(1.0, self.sample, Why::Between), Some(true)),
            Some(true) => self.judge(seen),
            Some(false) => self.start(),
        }
    }

    fn run(&self, why: Why, held: Option<Held>) -> (Phase, Ran) {
        let begins = self.exec.saturating_sub(self.sample);
        let (length, ran) =
            if self.sample.is_zero() || begins.is_zero() { (self.exec, Some(true)) } else { (begins, None) };
        (Phase::new(1.0, length, why).by(held), ran)
    }

    /// The slowest program decides; programs with unknown speed are ignored.
    fn judge(&self, seen: &PhaseResult) -> (Phase, Ran) {
        let known = seen.speeds.iter().enumerate().filter_map(|(high, speed)| Some((high, usable(*speed)?)));
        let Some((high, speed)) = known.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return self.run(Why::Unknown, None);
        };
        let ratio = self.naps[usize::from(speed >= self.low) + usize::from(speed >= self.high)];
        let held = Held::new(high, Figure::Speed, speed, if speed < self.low { self.low } else { self.high });
        if ratio > 0.0 {
            (Phase::nap(self.exec.mul_f64(ratio), Why::Contention).by(held), Some(false))
        } else {
            self.run(Why::Fine, held)
        }
    }
}
