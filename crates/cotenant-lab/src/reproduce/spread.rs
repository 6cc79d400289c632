//! The spread of values over trials, for box plots.

use serde::Serialize;

/// Quartiles, whiskers and outliers (Tukey 1977; quartiles by linear interpolation between order statistics, Hyndman
/// and Fan's definition 7).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    /// A plot, `median task`; a group of boxes in it, `16 copies`; and one box, `weighted`.
    pub of: String,
    pub group: String,
    pub series: String,
    /// Number of trials.
    pub n: usize,
    /// The lowest and highest value within 1.5 interquartile ranges of the box.
    pub low: f64,
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub high: f64,
    /// Values beyond the whiskers, ascending.
    pub outliers: Vec<f64>,
}

/// The quantile `part` of sorted values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}

impl Spread {
    /// Requires at least one value.
    pub fn of(values: &[f64], of: &str, group: &str, series: &str) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|part| quantile(&sorted, part));
        let reach = 1.5 * (q3 - q1);
        let (inside, outliers): (Vec<f64>, Vec<f64>) =
            sorted.iter().copied().partition(|value| (q1 - reach..=q3 + reach).contains(value));
        let (low, high) = (inside.first().map_or(q1, |v| v.min(q1)), inside.last().map_or(q3, |v| v.max(q3)));
        let [of, group, series] = [of, group, series].map(str::to_owned);
        Self { of, group, series, n: sorted.len(), low, q1, median, q3, high, outliers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_whiskers_and_outliers() {
        let values = [7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 30.0, -20.0];
        let s = Spread::of(&values, "a", "b", "c");
        // Sorted: -20 1 2 3 4 5 6 7 30; quartiles at 2, 4 and 6, so whiskers reach at most to -4 and 12.
        assert_eq!((s.n, s.low, s.q1, s.median, s.q3, s.high), (9, 1.0, 2.0, 4.0, 6.0, 7.0));
        assert_eq!(s.outliers, [-20.0, 30.0]);
        let s = Spread::of(&[1.0, 2.0], "a", "b", "c");
        assert_eq!((s.low, s.q1, s.median, s.q3, s.high), (1.0, 1.25, 1.5, 1.75, 2.0));
        let s = Spread::of(&[3.0], "a", "b", "c");
        assert_eq!((s.low, s.median, s.high, s.outliers.len()), (3.0, 3.0, 3.0, 0));
    }
}
