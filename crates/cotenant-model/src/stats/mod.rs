//! Basic statistics for decisions: a mean with its interval, and the difference of two means. The modules below serve
//! reports.

pub mod anytime;
pub mod bootstrap;
pub mod median;
pub mod paired;
pub mod regression;
pub mod repeated;
pub mod steady;

use serde::{Deserialize, Serialize};

/// Two-sided 95 % quantiles of Student's t for 1–30 degrees of freedom (Abramowitz & Stegun, table 26.10).
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same for more degrees of freedom.
const T_95_ABOVE: [(f64, f64); 3] = [(120.0, 1.980), (60.0, 2.000), (40.0, 2.021)];

/// The value that |t| exceeds with probability 5 %. Between table entries it uses the lower one, which is never too
/// small. Infinite below one degree of freedom.
pub fn student_t_95(degrees_of_freedom: f64) -> f64 {
    if let Some(&(_, t)) = T_95_ABOVE.iter().find(|(from, _)| degrees_of_freedom >= *from) {
        return t;
    }
    match degrees_of_freedom as usize {
        0 => f64::INFINITY,
        n => T_95[n.min(T_95.len()) - 1],
    }
}

/// Mean and variance of some observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of observations.
    pub n: usize,
    /// Their mean; 0 without any.
    pub mean: f64,
    /// Their sample variance; 0 below two observations.
    pub variance: f64,
}

impl Summary {
    /// Of these observations.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        if n == 0 {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Self { n, mean, variance: if n > 1 { squares / (n - 1) as f64 } else { 0.0 } }
    }

    /// The mean with its interval; `None` below two observations.
    pub fn estimate(&self) -> Option<Estimate> {
        let n = (self.n > 1).then_some(self.n as f64)?;
        Some(Estimate { value: self.mean, half_width: student_t_95(n - 1.0) * (self.variance / n).sqrt() })
    }
}

/// A value with its 95 % confidence interval `value ± half_width`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Half the width of the interval; infinite with too few observations.
    pub half_width: f64,
}

impl Estimate {
    /// The lower end.
    pub fn low(self) -> f64 {
        self.value - self.half_width
    }

    /// The upper end.
    pub fn high(self) -> f64 {
        self.value + self.half_width
    }
}

/// The mean over pairs of `after − before`, each pair with its own variances and sizes (Welch's interval, degrees of
/// freedom after Welch and Satterthwaite). `None` without pairs, or if a side has fewer than two observations.
pub fn mean_difference(pairs: &[(Summary, Summary)]) -> Option<Estimate> {
    if pairs.is_empty() || pairs.iter().any(|(before, after)| before.n < 2 || after.n < 2) {
        return None;
    }
    let k = pairs.len() as f64;
    let value = pairs.iter().map(|(before, after)| after.mean - before.mean).sum::<f64>() / k;
    let (mut variance, mut spread) = (0.0, 0.0);
    for side in pairs.iter().flat_map(|(before, after)| [before, after]) {
        let of_mean = side.variance / side.n as f64 / (k * k);
        variance += of_mean;
        spread += of_mean * of_mean / (side.n - 1) as f64;
    }
    let half_width = if variance > 0.0 { student_t_95(variance * variance / spread) * variance.sqrt() } else { 0.0 };
    Some(Estimate { value, half_width })
}

/// Spearman's rank correlation, -1 to 1; equal values share their mean rank. `None` below two pairs, for different
/// lengths, or if all values of a side are equal.
pub fn rank_correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let ranks = |values: &[f64]| -> Vec<f64> {
        let below = |v: f64| values.iter().filter(|w| **w < v).count() as f64;
        let equal = |v: f64| values.iter().filter(|w| **w == v).count() as f64;
        values.iter().map(|&v| below(v) + (equal(v) - 1.0) / 2.0).collect()
    };
    if one.len() != other.len() || one.len() < 2 {
        return None;
    }
    let (one, other) = (ranks(one), ranks(other));
    let (a, b) = (Summary::of(&one), Summary::of(&other));
    let products: f64 = one.iter().zip(&other).map(|(x, y)| (x - a.mean) * (y - b.mean)).sum();
    let spread = (a.variance * b.variance).sqrt() * (a.n - 1) as f64;
    (spread > 0.0).then(|| products / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_correlated() {
        let rho = |one: &[f64], other: &[f64]| rank_correlation(one, other);
        assert!((rho(&[1.0, 2.0, 3.0], &[10.0, 100.0, 101.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!((rho(&[1.0, 2.0, 3.0], &[3.0, 2.0, -5.0]).unwrap() + 1.0).abs() < 1e-12);
        // Without ties 1 - 6 Σd²/(n(n²-1)): d = 0, 1, 1, 0: 1 - 12/60.
        assert!((rho(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0]).unwrap() - 0.8).abs() < 1e-12);
        assert_eq!((rho(&[1.0], &[1.0]), rho(&[1.0, 2.0], &[1.0]), rho(&[1.0, 2.0], &[3.0, 3.0])), (None, None, None));
    }
    use std::f64::consts::FRAC_PI_2;

    /// P(|t| < x) = ∫₀^atan(x/√ν) cos^(ν−1) / ∫₀^(π/2) cos^(ν−1): the substitution x = √ν·tan θ in Student's density.
    fn inside(x: f64, nu: f64) -> f64 {
        let integral = |to: f64| {
            let steps = 20_000;
            let h = to / f64::from(steps);
            let f = |i: i32| (f64::from(i) * h).cos().max(0.0).powf(nu - 1.0);
            (1..steps).map(|i| f(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum::<f64>() + f(0) + f(steps)
        };
        let to = (x / nu.sqrt()).atan();
        integral(to) * to / (integral(FRAC_PI_2) * FRAC_PI_2)
    }

    #[test]
    fn a_mean_has_an_interval() {
        // 1, 2, 3: mean 2, variance 1, t(2) = 4.303, half width 4.303/√3 = 2.484.
        let e = Summary::of(&[1.0, 2.0, 3.0]).estimate().unwrap();
        assert_eq!(e.value, 2.0);
        assert!((e.half_width - 2.484).abs() < 1e-3 && (e.high() - e.low() - 2.0 * e.half_width).abs() < 1e-12);
        assert_eq!(Summary::of(&[1.0]).estimate(), None);
    }

    #[test]
    fn quantiles_leave_five_percent_outside() {
        for nu in (1..=30).map(f64::from).chain([40.0, 60.0, 120.0]) {
            let p = inside(student_t_95(nu), nu);
            assert!((p - 0.95).abs() < 1e-4, "{nu} degrees of freedom: {p}");
        }
    }

    #[test]
    fn between_entries_the_interval_is_never_too_narrow() {
        assert_eq!(student_t_95(0.9), f64::INFINITY);
        assert_eq!(student_t_95(2.9), 4.303);
        assert_eq!((student_t_95(35.0), student_t_95(59.9), student_t_95(1e6)), (2.042, 2.021, 1.980));
    }

    #[test]
    fn welch_by_hand() {
        // before 1 2 3: mean 2, s² 1; after 4 6 8: mean 6, s² 4. Variance of the difference 1/3 + 4/3 = 5/3; ν =
        // (5/3)² / ((1/9)/2 + (16/9)/2) = (25/9) / (17/18) = 50/17 = 2.94 → t(2) = 4.303; half width 4.303·√(5/3) =
        // 5.555.
        let e = mean_difference(&[(Summary::of(&[1.0, 2.0, 3.0]), Summary::of(&[4.0, 6.0, 8.0]))]).unwrap();
        assert!((e.value - 4.0).abs() < 1e-12 && (e.half_width - 5.555).abs() < 1e-3, "{e:?}");
        assert!((e.low() + 1.555).abs() < 1e-3);
    }

    #[test]
    fn pairs_are_averaged_and_too_few_tell_nothing() {
        let steady = |v: f64| Summary::of(&[v, v, v]);
        let e = mean_difference(&[(steady(1.0), steady(2.0)), (steady(1.0), steady(4.0))]).unwrap();
        assert_eq!((e.value, e.half_width), (2.0, 0.0));
        assert_eq!(mean_difference(&[]), None);
        assert_eq!(mean_difference(&[(Summary::of(&[1.0]), steady(1.0))]), None);
    }
}
