//! Rest: no trials, only a check that the current placement keeps its speed.

use super::speed_meter::{SpeedPoint, SpeedWindow};
use serde::{Deserialize, Serialize};

/// Seconds of a window. Phases of programs are shorter.
const WINDOW: f64 = 10.0;
/// Least number of windows that establish each application's speed; doubled after each change, up to an hour, because
/// some programs keep jumping.
const KNOWN: u32 = 4;
const LONGEST: u32 = 360;
/// Number of deviating windows in a row that count.
const SURE: usize = 2;
/// Deviation as a logarithm, and in standard deviations between windows.
const SHIFT: f64 = 0.1;
const DEVIATIONS: f64 = 4.0;

/// Speeds of the applications during a rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HeardSpeeds {
    window: SpeedWindow,
    /// The last windows: logarithms of the speeds.
    last: Vec<Vec<f64>>,
    /// Earlier ones: their number, and for each application the sum and the sum of squares.
    before: u32,
    sums: Vec<[f64; 2]>,
}

impl HeardSpeeds {
    /// Adds a round; returns whether some application's speed has certainly changed, after `shifts` earlier changes.
    pub fn add(&mut self, point: &SpeedPoint, shifts: u32) -> bool {
        self.window.add(point);
        if self.window.seconds() < WINDOW {
            return false;
        }
        self.last.push(std::mem::take(&mut self.window).logs());
        let known = KNOWN.saturating_mul(2_u32.saturating_pow(shifts)).min(LONGEST);
        let shifted =
            self.before >= known && self.last.len() == SURE && (0..point.logs.len()).any(|i| self.is_apart(i));
        if self.last.len() == SURE {
            let oldest = self.last.remove(0);
            self.before += 1;
            self.sums.resize(oldest.len(), [0.0; 2]);
            for ([sum, squares], log) in self.sums.iter_mut().zip(oldest) {
                *sum += log;
                *squares += log * log;
            }
        }
        shifted
    }

    /// Whether an application was faster in each of the last windows than before, or slower in each.
    fn is_apart(&self, app: usize) -> bool {
        let (n, [sum, squares]) = (f64::from(self.before), self.sums.get(app).copied().unwrap_or_default());
        let (mean, variance) = (sum / n, ((squares - sum * sum / n) / (n - 1.0)).max(0.0));
        let far = SHIFT.max(DEVIATIONS * variance.sqrt());
        let mut now = self.last.iter().map(|logs| logs.get(app).copied().unwrap_or(mean) - mean);
        now.clone().all(|log| log > far) || now.all(|log| log < -far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::Time;

    /// Time of detection, seconds: an application is slower by this much from 100 s on, with this variation between
    /// windows.
    fn heard(slower: f64, varies: f64, shifts: u32) -> Option<u64> {
        let mut heard = HeardSpeeds::default();
        (1..=4_000_u64).find(|&s| {
            let at = |s: u64| if s > 100 { -slower } else { 0.0 };
            let varies = if s.div_ceil(10) % 2 == 0 { varies } else { -varies };
            heard.add(&SpeedPoint { at: Time::from_secs(s), seconds: 1.0, logs: vec![0.0, at(s) + varies] }, shifts)
        })
    }

    #[test]
    fn who_is_slower_for_twenty_seconds_is_heard() {
        assert_eq!(heard(0.12, 0.0, 0), Some(120));
        assert_eq!(heard(-0.12, 0.0, 0), Some(120), "or faster");
        assert_eq!((heard(0.08, 0.0, 0), heard(0.0, 0.3, 0)), (None, None), "too little, or as usual");
        assert_eq!(heard(0.12, 0.04, 0), None, "no more than three deviations");
        assert_eq!(heard(0.3, 0.04, 0), Some(120));
        assert_eq!((heard(0.12, 0.0, 1), heard(0.12, 0.0, 2)), (Some(120), None), "16 windows are asked for by then");
        assert_eq!([30, 31, 32, u32::MAX].map(|shifts| heard(0.12, 0.0, shifts)), [None; 4]);
    }
}
