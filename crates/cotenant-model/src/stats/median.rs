//! The median and its certainty, for any distribution.

/// A median with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The median of these values with the rank-based interval that contains the distribution's median with at least 95 %.
/// Its ends are values, as near to the middle as the binomial distribution of the number below it allows. `None` for
/// fewer than six values, for more than a thousand, and with non-finite ones.
pub fn median(values: &[f64]) -> Option<Median> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // Probability that at most `below` of n fall below the median, summed from zero.
    let (mut chance, mut sum, mut below) = (0.5f64.powi(n.try_into().ok()?), 0.0, 0);
    while sum + chance <= 0.025 && below < n {
        sum += chance;
        chance *= (n - below) as f64 / (below + 1) as f64;
        below += 1;
    }
    if below == 0 || n > 1_000 || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let value = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
    Some(Median { value, low: sorted[below - 1], high: sorted[n - below] })
}

/// The same; with fewer than six values or more than a thousand, minimum and maximum. `NaN`s if empty.
pub fn middle(values: &[f64]) -> Median {
    median(values).unwrap_or_else(|| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Median { value: f64::midpoint(at(last / 2), at(sorted.len() / 2)), low: at(0), high: at(last) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds sim/reproduce.
    #[test]
    fn ends_are_the_ranks_of_the_tables() {
        let of = |n: u32| {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            median(&values).map(|m| (m.value, m.low, m.high))
        };
        // Ranks for the sign test at 95 %: 6: 1 and 6; 10: 2 and 9; 20: 6 and 15; 60: 22 and 39; 100: 40 and 61.
        assert_eq!(of(6), Some((3.5, 1.0, 6.0)));
        assert_eq!(of(10), Some((5.5, 2.0, 9.0)));
        assert_eq!(of(20), Some((10.5, 6.0, 15.0)));
        assert_eq!(of(60), Some((30.5, 22.0, 39.0)));
        assert_eq!(of(100), Some((50.5, 40.0, 61.0)));
        assert_eq!((of(0), of(5)), (None, None), "2 · 0.5⁵ is above 0.05");
        assert_eq!(median(&[f64::NAN; 10]), None);
    }

    /// Holds sim/reproduce.
    #[test]
    fn few_values_have_their_ends() {
        let of = |values: &[f64]| {
            let m = middle(values);
            (m.value, m.low, m.high)
        };
        assert_eq!(of(&[1.0]), (1.0, 1.0, 1.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
        assert_eq!(of(&[5.0, 1.0, 3.0, 2.0, 4.0]), (3.0, 1.0, 5.0), "93.75 %");
        assert!(middle(&[]).value.is_nan());
    }
}
