//! Newly created threads, to be observed if they stay.
//!
//! Adding a thread costs some 70 µs, mostly for counters, and dropping it some 20. A thread that ends within an
//! interval never has a rate. So young threads wait, and adding has a budget: beyond it, the youngest are added first,
//! which have the longest to live. Those that stay are added later at any cost, so that none waits for long.

use cotenant_model::Time;
use std::collections::HashSet;
use std::time::Duration;

/// A thread is added after two looks this far apart.
const YOUNG: Duration = Duration::from_millis(50);

/// With rarer looks, each takes all new threads.
const RARE_LOOKS: Duration = Duration::from_millis(500);

/// Long-term cost of adding threads, as a fraction of one CPU, and the savings for simultaneous ones.
const BUDGET: f64 = 0.003;
const SAVED: f64 = 0.1;

/// A thread that has waited this long needs no budget: observing it as long costs about as much as adding it (100 looks
/// of some 0.4 µs; docs/reference/overhead.md).
const LONG: Duration = Duration::from_secs(10);

/// Adding threads may take this fraction of the time since the last look, so that the next look is not late.
const PART: f64 = 0.2;

/// Waiting threads, and the budget for adding them.
#[derive(Debug)]
pub struct Newcomers {
    /// Waiting threads, the youngest last.
    waiting: Vec<Newcomer>,
    /// Available CPU seconds; negative after overspending.
    left: f64,
    /// Approximate cost of one, seconds.
    each: f64,
    /// Number of the last added ones without a need for budget.
    free: usize,
    /// Threads that ended while waiting.
    pub missed: usize,
}

/// A thread that waits.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    pid: u32,
    tid: u32,
    since: Time,
    /// Whether it has stayed long enough but was not affordable.
    put_off: bool,
}

impl Default for Newcomers {
    fn default() -> Self {
        Self { waiting: Vec::new(), left: SAVED, each: 1e-4, free: 0, missed: 0 }
    }
}

impl Newcomers {
    /// Registers a new thread.
    pub fn add(&mut self, pid: u32, tid: u32, since: Time) {
        self.waiting.push(Newcomer { pid, tid, since, put_off: false });
    }

    /// These threads have ended.
    pub fn remove(&mut self, tids: &[u32]) {
        if self.waiting.is_empty() || tids.is_empty() {
            return;
        }
        let gone: HashSet<u32> = tids.iter().copied().collect();
        self.missed += self.waiting.extract_if(.., |n| gone.contains(&n.tid)).filter(|n| n.put_off).count();
    }

    /// The threads to add now, in the order of discovery: process, thread. `interval` is the time since the last look.
    pub fn take(&mut self, at: Time, interval: Duration) -> Vec<(u32, u32)> {
        let earned = interval.as_secs_f64() * BUDGET;
        self.left = (self.left + earned).min(SAVED);
        let stayed = |n: &Newcomer| interval >= RARE_LOOKS || at - n.since >= YOUNG;
        let stayed = self.waiting.partition_point(stayed);
        // At least one at any cost, so that the cost becomes known.
        let affords = |seconds: f64| ((seconds / self.each) as usize).max(1);
        let at_most = affords(interval.as_secs_f64() * PART);
        self.free = self.waiting.partition_point(|n| at - n.since >= LONG).min(stayed).min(at_most);
        let young = if self.left > 0.0 { affords(self.left).min(at_most - self.free) } else { 0 };
        let first = stayed.saturating_sub(young).max(self.free);
        for newcomer in &mut self.waiting[self.free..first] {
            newcomer.put_off = true;
        }
        let young = self.waiting.drain(first..stayed).collect::<Vec<_>>();
        self.waiting.drain(..self.free).chain(young).map(|n| (n.pid, n.tid)).collect()
    }

    /// Records the cost of adding this many.
    pub fn spent(&mut self, number: usize, cost: Duration) {
        if number > 0 {
            let each = cost.as_secs_f64() / number as f64;
            self.left -= each * (number - self.free) as f64;
            self.each += (each - self.each) / 4.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    fn at(round: u64) -> Time {
        Time::from_millis(100 * round)
    }

    #[test]
    fn only_who_stays_is_taken_on() {
        let mut newcomers = Newcomers::default();
        newcomers.add(1, 11, at(0));
        newcomers.add(1, 12, at(0));
        assert_eq!(newcomers.take(at(0), TENTH), []);
        newcomers.remove(&[11]);
        assert_eq!(newcomers.take(Time::from_millis(49), Duration::from_millis(49)), []);
        newcomers.add(1, 13, at(1));
        assert_eq!(newcomers.take(at(1), TENTH), [(1, 12)]);
        newcomers.add(1, 14, at(2));
        assert_eq!(newcomers.take(at(2), Duration::from_millis(500)), [(1, 13), (1, 14)], "looks are rare");
        assert_eq!(newcomers.missed, 0, "nobody was put off");
    }

    /// Forty threads in each tenth of a second, each of which lives for five seconds and costs 100 µs: a second of it
    /// would cost 4 % of a CPU.
    #[test]
    fn a_storm_costs_no_more_than_its_budget() {
        let (mut newcomers, mut taken, mut most) = (Newcomers::default(), Vec::new(), 0);
        for round in 0..600 {
            let born = |round| (40 * round..40 * round + 40).collect::<Vec<u32>>();
            for tid in born(round) {
                newcomers.add(1, tid, at(u64::from(round)));
            }
            if round >= 50 {
                newcomers.remove(&born(round - 50));
            }
            let on = newcomers.take(at(u64::from(round)), TENTH);
            newcomers.spent(on.len(), Duration::from_micros(100) * on.len() as u32);
            most = most.max(on.len());
            taken.extend(on.iter().map(|(_, tid)| (round, *tid)));
        }
        // 60 s at 0.3 %, plus earlier savings, at 100 µs each; of 24,000 births.
        assert!((1_700..=2_900).contains(&taken.len()), "{}", taken.len());
        assert!(most <= 200, "a fifth of the interval: {most}");
        assert!(taken.iter().all(|(round, tid)| round - tid / 40 <= 2), "the youngest that have stayed");
        assert!(newcomers.waiting.len() <= 50 * 40 && newcomers.missed > 10_000, "those that ended are not kept");
    }

    /// As many as there may be on a machine, each of which costs a whole millisecond.
    #[test]
    fn whoever_stays_is_taken_on_whatever_it_costs() {
        let mut newcomers = Newcomers::default();
        for tid in 0..4_000 {
            newcomers.add(1, tid, at(0));
        }
        let (mut taken, mut last) = (0, 0);
        for round in 1..=400 {
            let on = newcomers.take(at(round), TENTH);
            assert!(on.len() <= 200, "a fifth of the interval at 100 µs each: {}", on.len());
            newcomers.spent(on.len(), Duration::from_millis(1) * on.len() as u32);
            taken += on.len();
            last = if on.is_empty() { last } else { round };
        }
        assert_eq!((taken, newcomers.missed), (4_000, 0));
        assert!(last <= 320, "10 s, and 20 at each look: {last}");
        for tid in 4_000..4_100 {
            newcomers.add(1, tid, at(400));
        }
        let on = newcomers.take(at(401), TENTH).len();
        assert!(on > 0, "those that needed no budget have spent none");
    }

    #[test]
    fn a_thousand_that_come_at_once_are_taken_on_in_a_few_looks() {
        let mut newcomers = Newcomers::default();
        for tid in 0..1_000 {
            newcomers.add(1, tid, at(0));
        }
        let mut taken = Vec::new();
        for round in 1..=10 {
            let on = newcomers.take(at(round), TENTH);
            newcomers.spent(on.len(), Duration::from_micros(70) * on.len() as u32);
            taken.push(on.len());
        }
        assert_eq!(taken.iter().sum::<usize>(), 1_000, "{taken:?}");
        assert!(taken[0] >= 200 && taken[5..].iter().all(|n| *n == 0), "{taken:?}");
    }
}
