//! Student's t-test of pairs, with the distribution of a statistics library: for measurements, not for decisions.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// The differences that contradict the null hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Only greater second values.
    Greater,
    /// Any.
    Both,
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Mean difference, second minus first.
    pub mean: f64,
    /// Lower end of its two-sided confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Student's t with n − 1 degrees of freedom; infinite if all differences are equal and not 0.
    pub t: f64,
    /// Probability of such a t, or a more extreme one, without a difference, 0–1.
    pub p: f64,
}

/// Tests whether second values differ from first ones of the same pairs. `None` below two pairs, for different lengths,
/// or if `confidence` is not between 0 and 1.
pub fn paired(first: &[f64], second: &[f64], confidence: f64, tail: Tail) -> Option<Paired> {
    let n = first.len() as f64;
    if first.len() < 2 || first.len() != second.len() || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let differences: Vec<f64> = first.iter().zip(second).map(|(first, second)| second - first).collect();
    let summary = super::Summary::of(&differences);
    let error = (summary.variance / n).sqrt();
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let t = if summary.mean == 0.0 { 0.0 } else { summary.mean / error };
    let p = match tail {
        Tail::Greater => student.sf(t),
        Tail::Both => 2.0 * student.sf(t.abs()),
    };
    let half = student.inverse_cdf(f64::midpoint(confidence, 1.0)) * error;
    Some(Paired { mean: summary.mean, low: summary.mean - half, high: summary.mean + half, t, p })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's sleep data (Biometrika, 1908), as `t.test(extra ~ group, paired = TRUE)` of R has it: t = −4.0621, p
    /// = 0.002833, interval −2.4598858 to −0.7001142 for group 1 − group 2.
    /// Promise measure/statistics: The paired t-test gives what R gives, regressions what is worked out by hand, and
    /// the contentiousness model what made its points.
    #[test]
    fn students_own_example() {
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let both = paired(&one, &two, 0.95, Tail::Both).unwrap();
        let near = |a: f64, b: f64, to: f64| assert!((a - b).abs() < to, "{a} is not {b}");
        near(both.mean, 1.58, 1e-12);
        near(both.t, 4.0621, 1e-4);
        near(both.p, 0.002_833, 1e-6);
        near(both.low, 0.700_114, 1e-5);
        near(both.high, 2.459_886, 1e-5);
        near(paired(&one, &two, 0.95, Tail::Greater).unwrap().p, both.p / 2.0, 1e-12);
        near(paired(&two, &one, 0.95, Tail::Greater).unwrap().p, 1.0 - both.p / 2.0, 1e-12);
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(paired(&[1.0], &[2.0], 0.95, Tail::Both), None);
        assert_eq!(paired(&[1.0, 2.0], &[2.0], 0.95, Tail::Both), None);
        assert_eq!(paired(&[1.0, 2.0], &[2.0, 3.0], 1.0, Tail::Both), None);
        let same = paired(&[1.0, 2.0], &[1.0, 2.0], 0.95, Tail::Both).unwrap();
        assert_eq!((same.mean, same.t, same.p), (0.0, 0.0, 1.0));
        let sure = paired(&[1.0, 2.0], &[2.0, 3.0], 0.95, Tail::Greater).unwrap();
        assert_eq!((sure.low, sure.high, sure.p), (1.0, 1.0, 0.0));
    }
}
