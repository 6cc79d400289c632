//! Results of several rounds of one measurement.

use super::{Summary, student_t_95};
use serde::{Deserialize, Serialize};

/// A value is noisy if half of its spread exceeds this fraction of it.
const NOISY: f64 = 0.25;

/// Standard error of a median over that of a mean, for many normal values: √(π/2).
const MEDIAN_ERROR: f64 = 1.2533;

/// A value with its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Median of the rounds.
    pub value: f64,
    /// With [`Repeated::high`], the interval that contains another calibration's median with 95 %, given as many
    /// independent rounds; never narrower than the rounds' own range shows.
    pub low: f64,
    /// See [`Repeated::low`].
    pub high: f64,
    /// Rounds.
    pub rounds: usize,
}

impl Repeated {
    /// Of these values; `None` if empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let value = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let half = match n {
            1 => 0.0,
            _ => student_t_95((n - 1) as f64) * MEDIAN_ERROR * (2.0 * Summary::of(&sorted).variance / n as f64).sqrt(),
        };
        // No measured quantity here can be negative.
        Some(Self { value, low: least.min((value - half).max(0.0)), high: most.max(value + half), rounds: n })
    }

    /// Whether it varies so much between rounds that another calibration may differ.
    pub fn is_noisy(&self) -> bool {
        self.rounds < 2 || (self.high - self.low) / 2.0 > NOISY * self.value.abs()
    }

    /// A set value, not a measured one.
    pub fn set(value: f64) -> Self {
        Self { value, low: value, high: value, rounds: 0 }
    }

    /// The farther of both ends.
    pub fn to_either_side(&self) -> f64 {
        (self.high - self.value).max(self.value - self.low)
    }

    /// Every number multiplied.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor, ..self }
    }
}
