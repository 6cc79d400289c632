//! Observations per bucket: the cumulative form of latencies from any source.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Observations by size. A cumulative count like any other: the difference of two moments gives the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(Vec<Bucket>);

/// A bucket: lower bound (inclusive), upper bound, number of observations. JSON has no infinity, so null means it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, Option<f64>, u64)", into = "(f64, Option<f64>, u64)")]
pub struct Bucket {
    /// Lower bound of its observations.
    pub low: f64,
    /// Their upper bound; infinite for the last bucket of some sources.
    pub high: f64,
    /// Their number.
    pub count: u64,
}

impl From<(f64, f64, u64)> for Bucket {
    fn from((low, high, count): (f64, f64, u64)) -> Self {
        Self { low, high, count }
    }
}

impl From<(f64, Option<f64>, u64)> for Bucket {
    fn from((low, high, count): (f64, Option<f64>, u64)) -> Self {
        Self { low, high: high.unwrap_or(f64::INFINITY), count }
    }
}

impl From<Bucket> for (f64, Option<f64>, u64) {
    fn from(bucket: Bucket) -> Self {
        (bucket.low, Some(bucket.high).filter(|high| high.is_finite()), bucket.count)
    }
}

/// A bucket with bounds further apart than this factor is useless for a goal, because a quantile in it hardly changes.
/// The usual bounds of Prometheus' libraries differ by 2 to 2.5 times.
const WIDE: f64 = 4.0;

/// Range of a quantile that a histogram does not determine: its bucket is open at one end, or too wide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clipped {
    /// Beyond the last bound.
    Beyond(f64),
    /// Below the first bound: anywhere down to 0.
    Below(f64),
    /// Anywhere: no bound is above 0.
    Unbounded,
    /// Anywhere between these bounds.
    Between(f64, f64),
}

impl Clipped {
    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        match self {
            Self::Beyond(bound) => Self::Beyond(bound * factor),
            Self::Below(bound) => Self::Below(bound * factor),
            Self::Unbounded => self,
            Self::Between(low, high) => Self::Between(low * factor, high * factor),
        }
    }

    /// The remedy.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Beyond(_) => "give its histogram buckets that reach further",
            Self::Below(_) => "give its histogram finer buckets below that",
            Self::Unbounded => "give it buckets",
            Self::Between(..) => "its buckets are too wide, give its histogram finer ones between these",
        }
    }
}

impl fmt::Display for Clipped {
    /// `beyond the last bound 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond(bound) => write!(f, "beyond the last bound {bound}"),
            Self::Below(bound) => write!(f, "below the first bound {bound}"),
            Self::Between(low, high) => write!(f, "anywhere between the bounds {low} and {high}"),
            Self::Unbounded => f.write_str("in a histogram without a bound above 0"),
        }
    }
}

impl Bucket {
    /// The known bound of its observations, if there is no other information.
    fn clips(&self) -> Option<Clipped> {
        match () {
            () if self.high.is_infinite() && (self.low == 0.0 || self.low.is_infinite()) => Some(Clipped::Unbounded),
            () if self.high.is_infinite() => Some(Clipped::Beyond(self.low)),
            () if self.low.is_infinite() || self.low == 0.0 && self.high > 0.0 => Some(Clipped::Below(self.high)),
            () if self.low > 0.0 && self.high > WIDE * self.low => Some(Clipped::Between(self.low, self.high)),
            () => None,
        }
    }
}

/// Number of observations that determine a quantile: about five beyond it, at least 20 and at most 100 (one beyond the
/// 0.99).
pub fn answers(quantile: f64) -> u32 {
    (5.0 / (1.0 - quantile).max(1e-9)).round().clamp(20.0, 100.0) as u32
}

impl Histogram {
    /// From these buckets, in any order; empty ones may be left out.
    pub fn new(buckets: impl IntoIterator<Item = Bucket>) -> Self {
        let mut buckets: Vec<Bucket> = buckets.into_iter().filter(|bucket| bucket.count > 0).collect();
        buckets.sort_by(|a, b| a.low.total_cmp(&b.low));
        Self(buckets)
    }

    /// Non-empty buckets in ascending order.
    pub fn buckets(&self) -> &[Bucket] {
        &self.0
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// Counts one observation in the bucket of values with the same six leading binary digits: none is wider than a
    /// 32nd of its values.
    pub fn count_one(&mut self, value: u64) {
        let below = (u64::BITS - value.leading_zeros()).saturating_sub(6);
        let low = value >> below << below;
        let (low, high) = (low as f64, low as f64 + (1_u64 << below) as f64);
        self.add(&Self(vec![Bucket { low, high, count: 1 }]));
    }

    /// Number of observations above a value, assuming an even spread inside a bucket; `None` if any are in a bucket
    /// without an upper bound that begins below it.
    pub fn above(&self, value: f64) -> Option<f64> {
        let part = |bucket: &Bucket| match () {
            () if bucket.low >= value => Some(1.0),
            () if bucket.high <= value => Some(0.0),
            () if bucket.high.is_infinite() => None,
            () => Some((bucket.high - value) / (bucket.high - bucket.low)),
        };
        self.0.iter().map(|bucket| Some(part(bucket)? * bucket.count as f64)).sum()
    }

    /// How far observations exceed this value, in sum: each by what it has above it.
    pub fn beyond(&self, value: f64) -> Option<f64> {
        let excess = |bucket: &Bucket| match () {
            () if bucket.high <= value => Some(0.0),
            () if bucket.high.is_infinite() => None,
            () if bucket.low >= value => Some(f64::midpoint(bucket.low, bucket.high) - value),
            () => Some((bucket.high - value).powi(2) / (2.0 * (bucket.high - bucket.low))),
        };
        self.0.iter().map(|bucket| Some(excess(bucket)? * bucket.count as f64)).sum()
    }

    /// Counts it several times.
    #[must_use]
    pub fn times(&self, times: u64) -> Self {
        Self(self.0.iter().map(|bucket| Bucket { count: bucket.count.saturating_mul(times), ..*bucket }).collect())
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        for bucket in &other.0 {
            let at = self.0.partition_point(|known| (known.low, known.high) < (bucket.low, bucket.high));
            match self.0.get_mut(at).filter(|known| known.low == bucket.low && known.high == bucket.high) {
                Some(known) => known.count = known.count.saturating_add(bucket.count),
                None => self.0.insert(at, *bucket),
            }
        }
    }

    /// Observations since `before`; `None` if a count decreased, which means that the source restarted.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let mut old = before.0.iter().peekable();
        let mut added = Vec::with_capacity(self.0.len());
        for bucket in &self.0 {
            let mut count = bucket.count;
            if let Some(old) = old.next_if(|old| old.low <= bucket.low) {
                if old.low != bucket.low || old.high != bucket.high {
                    return None;
                }
                count = count.checked_sub(old.count)?;
            }
            added.push(Bucket { count, ..*bucket });
        }
        old.next().is_none().then(|| Self::new(added))
    }

    /// The quantile `q` (0–1) of the observations, assuming an even spread inside a bucket. `None` without
    /// observations, and if it is [clipped](Self::clipped).
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let (bucket, inside) = self.bucket_of(q).filter(|(bucket, _)| bucket.clips().is_none())?;
        Some(bucket.low + (bucket.high - bucket.low) * inside)
    }

    /// Why the quantile is unknown despite observations: its bucket is open at one end, or too wide.
    pub fn clipped(&self, q: f64) -> Option<Clipped> {
        self.bucket_of(q)?.0.clips()
    }

    /// The bucket of a quantile, and the fraction of its observations below the quantile.
    fn bucket_of(&self, q: f64) -> Option<(&Bucket, f64)> {
        let rank = q * self.count() as f64;
        let mut below = 0.0;
        for bucket in &self.0 {
            let count = bucket.count as f64;
            if below + count >= rank {
                return Some((bucket, ((rank - below) / count).clamp(0.0, 1.0)));
            }
            below += count;
        }
        self.0.last().map(|last| (last, 0.0)) // rounding of huge counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: &[(f64, f64, u64)]) -> Histogram {
        Histogram::new(buckets.iter().map(|b| Bucket::from(*b)))
    }

    #[test]
    fn quantiles_lie_evenly_in_their_bucket() {
        let h = of(&[(10.0, 20.0, 90), (0.0, 10.0, 0), (20.0, 40.0, 10)]);
        assert_eq!(h.count(), 100);
        assert_eq!(h.quantile(0.5), Some(10.0 + 10.0 * 50.0 / 90.0));
        assert_eq!(h.quantile(0.95), Some(30.0), "the 5th of 10 between 20 and 40");
        assert_eq!((h.quantile(0.0), h.quantile(1.0)), (Some(10.0), Some(40.0)));
        assert_eq!(of(&[]).quantile(0.5), None);
        assert_eq!(of(&[(0.0, 0.0, 3)]).quantile(0.5), Some(0.0), "a first bound of 0: none is below");
    }

    /// Twenty below 0.1, seventy up to 1, ten beyond.
    /// Holds speed/metrics.
    #[test]
    fn a_quantile_in_an_open_bucket_is_not_known() {
        let h = of(&[(0.0, 0.1, 20), (0.1, 0.4, 70), (0.4, f64::INFINITY, 10)]);
        let told = |q| (h.quantile(q).is_some(), h.clipped(q));
        assert_eq!(told(0.1), (false, Some(Clipped::Below(0.1))));
        assert_eq!(told(0.5), (true, None));
        assert_eq!(told(0.95), (false, Some(Clipped::Beyond(0.4))));
        assert_eq!(Clipped::Beyond(1.0).to_string(), "beyond the last bound 1");
        assert_eq!(Clipped::Below(0.005).to_string(), "below the first bound 0.005");
        for low in [0.0, f64::NEG_INFINITY] {
            let told = of(&[(low, f64::INFINITY, 9)]).clipped(0.5).unwrap();
            assert_eq!(told.to_string(), "in a histogram without a bound above 0");
            let text = serde_json::to_string(&told).unwrap();
            assert_eq!(serde_json::from_str::<Clipped>(&text).unwrap(), told);
        }
        let text = serde_json::to_string(&h).unwrap();
        assert_eq!(text, "[[0.0,0.1,20],[0.1,0.4,70],[0.4,null,10]]");
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), h);
    }

    /// Of 0.001 to 1000 its 0.99 would be 990, however long requests take.
    #[test]
    fn a_quantile_in_a_wide_bucket_is_not_known() {
        let wide = of(&[(0.001, 1_000.0, 500)]);
        assert_eq!((wide.quantile(0.99), wide.clipped(0.99)), (None, Some(Clipped::Between(0.001, 1_000.0))));
        let told = Clipped::Between(1e-3, 1e3);
        assert_eq!(told.to_string(), "anywhere between the bounds 0.001 and 1000");
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<Clipped>(&text).unwrap(), told);
        for [low, high] in [[0.005, 0.01], [0.01, 0.025], [2.5, 5.0], [1.0, 4.0]] {
            assert!(of(&[(low, high, 500)]).quantile(0.99).is_some(), "{low} to {high}");
        }
    }

    #[test]
    fn observations_above_a_value_lie_evenly_in_their_bucket() {
        let h = of(&[(0.0, 10.0, 90), (20.0, 40.0, 10), (40.0, f64::INFINITY, 2)]);
        let above = [0.0, 5.0, 15.0, 25.0, 40.0, 50.0].map(|value| h.above(value));
        assert_eq!(above, [Some(102.0), Some(57.0), Some(12.0), Some(9.5), Some(2.0), None]);
    }

    /// Of 8 between 10 and 20 the upper half exceeds 15 by 2.5 on average, and 2 between 30 and 50 by 25.
    #[test]
    fn what_observations_exceed_a_value_by() {
        let seen = of(&[(10.0, 20.0, 8), (30.0, 50.0, 2)]);
        assert_eq!(seen.beyond(15.0), Some(4.0 * 2.5 + 2.0 * 25.0));
        assert_eq!(seen.beyond(20.0), Some(2.0 * 20.0));
        assert_eq!(seen.beyond(50.0), Some(0.0));
        assert_eq!(Histogram::default().beyond(1.0), Some(0.0));
        assert_eq!(of(&[(1.0, f64::INFINITY, 1)]).beyond(2.0), None);
    }

    #[test]
    fn one_by_one_they_are_counted_by_size() {
        let mut h = Histogram::default();
        for value in [0, 1, 63, 64, 65, 100_000, 100_100, u64::MAX] {
            h.count_one(value);
        }
        // 100,000 = 0b1_1000_0110_1010_0000: six digits are 0b110000, 11 more follow.
        let big = (63.0 * f64::from(1 << 29) * f64::from(1 << 29), f64::from(1 << 29) * f64::from(1 << 29) * 64.0, 1);
        let small = [(0.0, 1.0, 1), (1.0, 2.0, 1), (63.0, 64.0, 1), (64.0, 66.0, 2), (98_304.0, 100_352.0, 2)];
        assert_eq!(h, of(&[&small[..], &[big]].concat()));
        for value in (0..33).map(|i| 3_u64.pow(i)) {
            let mut h = Histogram::default();
            h.count_one(value);
            let bucket = h.buckets()[0];
            let value = value as f64;
            assert!(bucket.low <= value && value < bucket.high);
            assert!((bucket.high - bucket.low) <= (value / 32.0).max(1.0), "{value}: {bucket:?}");
        }
    }

    #[test]
    fn sums_hold_both() {
        let mut sum = of(&[(0.0, 1.0, 5), (2.0, 3.0, 1)]);
        sum.add(&of(&[(1.0, 2.0, 4), (2.0, 3.0, 2), (9.0, f64::INFINITY, 1)]));
        assert_eq!(sum, of(&[(0.0, 1.0, 5), (1.0, 2.0, 4), (2.0, 3.0, 3), (9.0, f64::INFINITY, 1)]));
    }

    #[test]
    fn differences_are_what_came_since() {
        let (a, b) = (of(&[(0.0, 1.0, 5), (2.0, 3.0, 1)]), of(&[(0.0, 1.0, 7), (1.0, 2.0, 4), (2.0, 3.0, 1)]));
        assert_eq!(b.since(&a), Some(of(&[(0.0, 1.0, 2), (1.0, 2.0, 4)])));
        assert_eq!(b.since(&b), Some(of(&[])));
        assert_eq!(a.since(&of(&[])), Some(a.clone()));
        assert_eq!(a.since(&b), None, "went back");
        assert_eq!(of(&[]).since(&a), None, "began anew");
        assert_eq!(of(&[(0.0, 4.0, 9), (2.0, 3.0, 1)]).since(&a), None, "other buckets");
    }
}
