//! Estimates all of a process's pages from a random sample, for memory too large to inspect page by page.
//!
//! Draws are stratified by area in proportion to its contents, so that small areas stay visible beside large untouched
//! ones. Estimates are unbiased, with textbook standard errors (Cochran, *Sampling Techniques*, §5.3, without the
//! correction for small populations, because areas far exceed their samples).

use super::ByNode;
use crate::NodeId;
use std::collections::BTreeMap;

/// A range of addresses to draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stratum {
    /// Its first address.
    pub start: u64,
    /// Its pages, resident or not.
    pub pages: u64,
    /// Number of drawn pages.
    pub draws: u64,
}

/// Divides draws among ranges (first address, end, last known resident pages) in proportion to their contents, with at
/// least one for each non-empty range; so the total may exceed the request by the number of ranges.
pub fn strata(ranges: &[(u64, u64, u64)], draws: u64, page_bytes: u64) -> Vec<Stratum> {
    let total: u64 = ranges.iter().fold(0, |sum, r| sum.saturating_add(r.2));
    let stratum = |&(start, end, resident): &(u64, u64, u64)| {
        let pages = end.saturating_sub(start) / page_bytes.max(1);
        let share = draws as f64 * resident as f64 / total.max(1) as f64;
        let draws = (share.round() as u64).clamp(1, pages.max(1));
        (resident > 0 && pages > 0).then_some(Stratum { start, pages, draws })
    };
    ranges.iter().filter_map(stratum).collect()
}

impl Stratum {
    /// The addresses drawn, with replacement, ascending.
    pub fn draw(&self, page_bytes: u64, rng: &mut fastrand::Rng) -> Vec<u64> {
        let mut drawn: Vec<u64> = (0..self.draws).map(|_| self.start + rng.u64(0..self.pages) * page_bytes).collect();
        drawn.sort_unstable();
        drawn
    }
}

/// Results of a stratum: the inspected pages, and the matching ones by node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Inspected pages.
    pub looked: u64,
    /// Matching ones.
    pub hits: BTreeMap<NodeId, u64>,
}

/// An estimate of pages by node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Base pages.
    pub pages: ByNode,
    /// Standard error of their sum.
    pub error: f64,
}

/// Scales up the results of each stratum; one that could not be inspected counts as empty.
pub fn estimate(found: impl IntoIterator<Item = (Stratum, Found)>) -> Estimate {
    let (mut pages, mut variance) = (ByNode::new(), 0.0);
    for (stratum, found) in found.into_iter().filter(|(_, found)| found.looked > 0) {
        let (size, looked) = (stratum.pages as f64, found.looked as f64);
        for (&node, &hits) in &found.hits {
            *pages.entry(node).or_default() += size * hits as f64 / looked;
        }
        let part = found.hits.values().sum::<u64>() as f64 / looked;
        variance += size * size * part * (1.0 - part) / looked;
    }
    Estimate { pages, error: variance.sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn draws_follow_what_areas_hold() {
        let ranges =
            [(0, 1000 * PAGE, 900), (PAGE << 20, (PAGE << 20) + 1000 * PAGE, 100), (PAGE << 21, PAGE << 22, 0)];
        let all = strata(&ranges, 50, PAGE);
        assert_eq!(all.iter().map(|s| (s.pages, s.draws)).collect::<Vec<_>>(), [(1000, 45), (1000, 5)]);
        // At least one, and no more than the pages.
        let all = strata(&[(0, PAGE, 1), (PAGE << 20, (PAGE << 20) + 10_000_000 * PAGE, 10_000_000)], 50, PAGE);
        assert_eq!(all.iter().map(|s| s.draws).collect::<Vec<_>>(), [1, 50]);
        assert_eq!(strata(&[], 50, PAGE), []);
        assert_eq!(strata(&[(5, 3, 7)], 50, 0), [], "an end before its start");
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn = Stratum { start: 7 * PAGE, pages: 3, draws: 100 }.draw(PAGE, &mut rng);
        assert!(drawn.len() == 100 && drawn.iter().all(|a| (7..10).contains(&(a / PAGE)) && a % PAGE == 0));
    }

    /// Many samples of memory of which everything is known: their mean is the truth, and they spread as their errors
    /// say.
    /// Holds see/large-processes.
    #[test]
    fn estimates_have_no_bias_and_the_error_that_they_state() {
        // Of 10,000 pages a third is accessed, on node 1; of 50,000 one in ten, on node 0 and 1 alternately; of 5,000
        // none.
        let accessed = |stratum: usize, page: u64| match stratum {
            0 => page.is_multiple_of(3).then_some(NodeId(1)),
            1 => page.is_multiple_of(10).then_some(NodeId(u32::from(page.is_multiple_of(20)))),
            _ => None,
        };
        let ranges = [
            (0, 10_000 * PAGE, 10_000),
            (1 << 32, (1 << 32) + 50_000 * PAGE, 50_000),
            (1 << 40, (1 << 40) + 5_000 * PAGE, 5_000),
        ];
        let all = strata(&ranges, 1_000, PAGE);
        let mut rng = fastrand::Rng::with_seed(7);
        let rounds = 400;
        let (mut sums, mut totals, mut errors) = ([0.0; 2], Vec::new(), 0.0);
        for _ in 0..rounds {
            let found = all.iter().enumerate().map(|(i, stratum)| {
                let mut found = Found::default();
                for address in stratum.draw(PAGE, &mut rng) {
                    found.looked += 1;
                    if let Some(node) = accessed(i, (address - stratum.start) / PAGE) {
                        *found.hits.entry(node).or_default() += 1;
                    }
                }
                (*stratum, found)
            });
            let one = estimate(found.collect::<Vec<_>>());
            let on = |node| one.pages.get(&NodeId(node)).copied().unwrap_or(0.0);
            sums = [sums[0] + on(0), sums[1] + on(1)];
            totals.push(on(0) + on(1));
            errors += one.error;
        }
        let n = f64::from(rounds);
        let (mean, error) = ((sums[0] + sums[1]) / n, errors / n);
        let spread = (totals.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let truth = [2_500.0, 3_334.0 + 2_500.0];
        assert!((mean - truth[0] - truth[1]).abs() < 4.0 * error / n.sqrt(), "{mean} ± {error}");
        assert!((sums[0] / n - truth[0]).abs() < 4.0 * error / n.sqrt(), "{sums:?}");
        assert!((0.85..1.15).contains(&(spread / error)), "they spread by {spread}, their errors say {error}");
    }

    #[test]
    fn what_was_not_looked_at_is_not_made_up() {
        let stratum = Stratum { start: 0, pages: 100, draws: 10 };
        assert_eq!(estimate([(stratum, Found::default())]), Estimate::default());
        let found = Found { looked: 4, hits: BTreeMap::from([(NodeId(0), 1)]) };
        let one = estimate([(stratum, found)]);
        assert_eq!(one.pages, ByNode::from([(NodeId(0), 25.0)]));
        assert!((one.error - 100.0 * (0.25_f64 * 0.75 / 4.0).sqrt()).abs() < 1e-9);
    }
}
