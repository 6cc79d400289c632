//! A closed loop on memory bandwidth (ours): hardware throttles inexactly, so that the setting follows measurements.

use serde::{Deserialize, Serialize};

/// Relative distance below its target within which the setting stays.
const BELOW: f64 = 0.1;

/// The possible settings of the hardware, percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// The least setting, 1–100.
    pub least: u32,
    /// Settings are multiples of this, 1–100.
    pub step: u32,
}

impl Throttle {
    /// The setting that follows `percent`, with `measured` and allowed `target` in bytes per second.
    pub fn next(self, percent: u32, measured: f64, target: f64) -> u32 {
        let step = self.step.max(1);
        let next = if measured > target {
            // At least a step, by the square root: a proportional change would forever overshoot on hardware that
            // throttles disproportionately.
            let wanted = (f64::from(percent) * (target / measured).sqrt()) as u32;
            (wanted / step * step).min(percent.saturating_sub(step))
        } else if measured < target * (1.0 - BELOW) {
            percent + step
        } else {
            percent
        };
        next.clamp(self.least.min(100), 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Promise qos/limits: Limits on CPU time, cache ways and memory bandwidth follow what is measured, come to rest,
    /// and are reported.
    #[test]
    fn settings_follow_what_is_measured() {
        let hardware = Throttle { least: 10, step: 10 };
        // Four times the allowed: half. Slightly too much: a step. Too little: a step back. Within a tenth below: stay.
        assert_eq!(
            [(100, 20.0), (50, 5.2), (40, 4.0), (40, 4.6), (100, 1.0), (10, 90.0)]
                .map(|(at, gbs)| hardware.next(at, gbs, 5.0)),
            [50, 40, 50, 40, 100, 10]
        );
    }

    proptest! {
        /// Whatever the hardware makes of a setting, as long as more is not less: it comes to rest at, or one step
        /// around, the highest setting that keeps the target.
        /// Holds qos/limits.
        #[test]
        fn it_comes_to_rest(full in 1.0..100.0f64, bend in 0.3..3.0f64, share in 0.2..1.0f64) {
            let hardware = Throttle { least: 10, step: 10 };
            let gives = |percent: u32| full * (f64::from(percent) / 100.0).powf(bend);
            let target = share * full;
            let mut at = 100;
            let mut seen = Vec::new();
            for round in 0..40 {
                at = hardware.next(at, gives(at), target);
                if round >= 20 {
                    seen.push(at);
                }
            }
            let best = (1..=10).map(|i| i * 10).filter(|p| gives(*p) <= target).max().unwrap_or(10);
            prop_assert!(seen.iter().all(|p| p.abs_diff(best) <= 10), "{seen:?}, best {best}");
        }
    }
}
