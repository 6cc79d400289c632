//! Steadiness of a speed between windows, and so the smallest detectable change.
//!
//! Only neighbouring windows are compared, as in trials: a slowly drifting speed is steady.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Least number of windows for a spread, and number of kept windows.
const LEAST: usize = 8;
const KEPT: usize = 64;

/// Fraction of the differences that counts. An outlying window affects two of them, so one window in ten may be an
/// outlier.
const COUNTED: f64 = 0.8;

/// |z| of a normal value is smaller than this in that share of all cases.
const Z_COUNTED: f64 = 1.2816;

/// Normal quantiles of an error of 5 % to either side and of nine detections in ten: 1.960 + 1.282.
const Z_TOLD: f64 = 3.242;

/// Speeds of the latest windows of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// `None`: no comparison across this place.
    windows: VecDeque<Option<f64>>,
}

impl Steady {
    /// The next window's speed, 0 or more.
    pub fn add(&mut self, speed: f64) {
        self.push(Some(speed));
    }

    /// Later windows are not compared with earlier ones: a placement has changed, or windows are missing.
    pub fn cut(&mut self) {
        if self.windows.back().is_some_and(Option::is_some) {
            self.push(None);
        }
    }

    fn push(&mut self, window: Option<f64>) {
        self.windows.push_back(window);
        while self.windows.len() > KEPT {
            self.windows.pop_front();
        }
    }

    /// Scatter between windows; `None` with fewer than eight comparisons.
    pub fn spread(&self) -> Option<Spread> {
        let pair = |(a, b): (&Option<f64>, &Option<f64>)| Some(distance((*a)?, (*b)?));
        let mut distances: Vec<f64> = self.windows.iter().zip(self.windows.iter().skip(1)).filter_map(pair).collect();
        if distances.len() + 1 < LEAST {
            return None;
        }
        distances.sort_by(f64::total_cmp);
        let counted = (COUNTED * distances.len() as f64).ceil() as usize;
        let windows = self.windows.iter().flatten().count();
        Some(Spread { relative: distances[counted - 1] / Z_COUNTED / f64::sqrt(2.0), windows })
    }
}

/// Of the logarithms; infinite if one of them is not a speed.
fn distance(a: f64, b: f64) -> f64 {
    if a > 0.0 && b > 0.0 { (b / a).ln().abs() } else { f64::INFINITY }
}

/// Scatter of a speed between windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Standard deviation of a window, relative to the speed; exact for a normal distribution, with up to one outlier
    /// in ten windows. Infinite if more have no speed at all.
    pub relative: f64,
    /// Its number of windows.
    pub windows: usize,
}

impl Spread {
    /// Windows, half with and half without a change by this fraction, after which it is detected in nine of ten cases,
    /// at an error of 5 %. A sequential test needs up to twice as many.
    pub fn windows_for(self, change: f64) -> f64 {
        let ratio = self.relative / change.ln_1p().abs();
        (4.0 * (Z_TOLD * ratio).powi(2)).max(2.0)
    }

    /// Whether this many windows reveal a change by this fraction.
    pub fn tells(self, change: f64, windows: usize) -> bool {
        self.windows_for(change) <= windows as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(windows: &[f64]) -> Option<Spread> {
        let mut steady = Steady::default();
        for speed in windows {
            steady.add(*speed);
        }
        steady.spread()
    }

    /// Up and down by e^±d: every difference is d, of which the standard deviation of a window is d / 1.2816 / √2.
    fn zigzag(d: f64, n: usize) -> Vec<f64> {
        (0..n).map(|i| if i % 2 == 0 { 100.0 } else { 100.0 * f64::exp(d) }).collect()
    }

    #[test]
    fn the_spread_by_hand() {
        let found = spread(&zigzag(0.018_124, 8)).unwrap();
        assert!((found.relative - 0.01).abs() < 1e-5 && found.windows == 8, "{found:?}");
        assert_eq!(spread(&zigzag(0.018_124, 7)), None, "too few");
        assert_eq!(spread(&[5.0; 20]).unwrap().relative, 0.0);
        // Ten differences of which eight count: 0.01 … 0.10, in any order; the eighth is 0.08.
        let steps = [3, 10, 1, 8, 5, 2, 9, 6, 4, 7].map(|n| f64::from(n) / 100.0);
        let path = steps.iter().enumerate().scan(0.0, |at, (i, step)| {
            *at += if i % 2 == 0 { *step } else { -step };
            Some(at.exp())
        });
        let found = spread(&std::iter::once(1.0).chain(path).collect::<Vec<_>>()).unwrap();
        assert!((found.relative - 0.08 / 1.2816 / 2.0_f64.sqrt()).abs() < 1e-9, "{found:?}");
    }

    /// 3.242² · 4 · (0.01 / 0.02956)² = 4.81 windows; five times the spread needs 25 times as many.
    /// Holds speed/proxies.
    #[test]
    fn how_many_windows_tell_a_change() {
        let of = |relative| Spread { relative, windows: 20 };
        assert!((of(0.01).windows_for(0.03) - 4.81).abs() < 0.01);
        assert!((of(0.05).windows_for(0.03) - 120.3).abs() < 0.1);
        assert_eq!((of(0.05).tells(0.03, 121), of(0.05).tells(0.03, 120)), (true, false));
        assert_eq!((of(0.0).windows_for(0.03), of(f64::INFINITY).windows_for(0.03)), (2.0, f64::INFINITY));
        assert!(of(0.01).windows_for(-0.03) < of(0.01).windows_for(0.03), "ln 0.97 is the larger step");
    }

    /// Holds speed/proxies.
    #[test]
    fn drift_is_steady_and_bursts_are_not() {
        let drift: Vec<f64> = (0..40).map(|i| 100.0 * f64::exp(0.001 * f64::from(i))).collect();
        assert!(spread(&drift).unwrap().relative < 0.001);
        let mut windows = vec![100.0; 41];
        (windows[10], windows[20], windows[30]) = (0.0, 900.0, 0.0);
        assert_eq!(spread(&windows).unwrap().relative, 0.0, "six of 40 differences");
        for burst in [0.0, 900.0] {
            let bursts: Vec<f64> = (0..40).map(|i| if i % 5 == 0 { burst } else { 100.0 }).collect();
            assert!(spread(&bursts).unwrap().relative > 1.0, "{burst}");
        }
        assert_eq!(spread(&[0.0; 20]).unwrap().relative, f64::INFINITY, "nothing is no speed");
    }

    #[test]
    fn nothing_is_compared_across_a_cut() {
        let mut steady = Steady::default();
        steady.cut();
        for round in 0..4 {
            steady.cut();
            (0..3).for_each(|_| steady.add(f64::from(1 << round)));
        }
        let found = steady.spread().unwrap();
        assert_eq!((found.relative, found.windows), (0.0, 12), "eight differences, all 0");
        let text = serde_json::to_string(&steady).unwrap();
        assert_eq!(serde_json::from_str::<Steady>(&text).unwrap(), steady);
        (0..1_000).for_each(|_| steady.add(1.0));
        assert_eq!(steady.spread().unwrap().windows, KEPT);
    }
}
