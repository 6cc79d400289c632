//! Plausibility of a process's counts: limited by time.

use super::Reported;
use std::time::Duration;

/// Limit of units, or latencies, per second: a thousand per nanosecond.
const MOST_PER_S: u64 = 1 << 50;

/// Limit of units, or latencies, at once, after any silence. A negative difference of two times exceeds it.
const MOST_AT_ONCE: u64 = 1 << 62;

/// The note for other cases.
pub const IMPOSSIBLE: &str = "counts that fall, or that rise by more than 2^50 in a second: its progress is unknown \
     for that interval; see what the program gives libcotenant";

/// The reports of one process.
#[derive(Debug, Default)]
pub struct Account {
    /// Its own counts at the last look.
    seen: Reported,
    believed: Reported,
    /// Time of the last change of counts, by [`crate::sys::monotonic`].
    changed: Duration,
}

impl Account {
    /// Its reports without impossible changes.
    pub fn believed(&self) -> &Reported {
        &self.believed
    }

    /// Reads its counts; returns whether the change since the last look is possible, otherwise they count from here.
    pub fn take(&mut self, now: Reported, at: Duration) -> bool {
        if now == self.seen {
            return now.units < u64::MAX; // beyond this, sums stay constant
        }
        let seconds = at.saturating_sub(self.changed).as_secs().max(1);
        let most = MOST_PER_S.saturating_mul(seconds).min(MOST_AT_ONCE);
        let change = now.since(&self.seen).filter(|change| change.units <= most && change.count() <= most);
        (self.seen, self.changed) = (now, at);
        if let Some(change) = &change {
            self.believed.add(change);
        }
        change.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_rt::layout::BUCKETS;

    const SECOND: Duration = Duration::from_secs(1);

    fn reported(units: u64, latencies: &[(usize, u64)]) -> Reported {
        let mut counts = vec![0; if latencies.is_empty() { 0 } else { BUCKETS }];
        for (bucket, count) in latencies {
            counts[*bucket] = *count;
        }
        let mut reported = Reported::default();
        reported.units = units;
        reported.add_latencies(counts.into_iter());
        reported
    }

    #[test]
    fn what_time_allows_is_believed() {
        let mut account = Account::default();
        assert!(account.take(reported(5, &[]), SECOND) && account.take(reported(7, &[(3, 1), (9, 2)]), 2 * SECOND));
        assert!(account.take(reported(7 + (1 << 50), &[(3, 4), (9, 2)]), 3 * SECOND));
        assert!(!account.take(reported(8 + (1 << 51), &[(3, 4), (9, 2)]), 4 * SECOND), "one more than that");
        assert!(account.take(reported(8 + (1 << 52), &[(3, 5), (9, 2)]), 8 * SECOND), "in four seconds");
        assert_eq!(*account.believed(), reported(7 + (1 << 50) + (1 << 51), &[(3, 5), (9, 2)]));
    }

    #[test]
    fn a_sum_that_stands_still_tells_nothing() {
        let mut account = Account::default();
        let most = reported(u64::MAX, &[]);
        assert!(!account.take(most.clone(), SECOND) && !account.take(most, 2 * SECOND));
        assert_eq!(*account.believed(), Reported::default());
    }

    #[test]
    fn what_cannot_be_is_left_out_and_what_follows_counts() {
        let late = Duration::from_secs(1 << 40);
        for absurd in [
            reported(u64::MAX - 9, &[(3, 4)]),
            reported(1 << 63, &[(3, 4)]),
            reported(4, &[(3, 4)]),
            reported(5, &[(3, 3)]),
            reported(5, &[]),
            reported(5, &[(3, 1 << 63)]),
            reported(5, &[(3, 4), (0, 1 << 62), (1, 1 << 62), (2, 1 << 62), (4, u64::MAX)]),
        ] {
            let mut account = Account::default();
            assert!(account.take(reported(5, &[(3, 4)]), SECOND));
            assert!(!account.take(absurd.clone(), late), "{absurd:?}");
            assert_eq!(*account.believed(), reported(5, &[(3, 4)]));
            let mut next = absurd.clone();
            next.add(&reported(0, &[(7, 1)]));
            assert!(account.take(next, late + SECOND), "{absurd:?}");
            assert_eq!(*account.believed(), reported(5, &[(3, 4), (7, 1)]));
        }
    }
}
