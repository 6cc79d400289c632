//! Windows in which requests are counted, where there are so many that counting all would cost too much.
//!
//! A window begins with all requests that begin in it. Then those are followed to their answers: without the long ones
//! all would look short. Then nothing is counted until the next window.

use cotenant_bpf::Counted;
use std::time::{Duration, Instant};

/// Up to so many requests per second are all counted.
const MOST: f64 = 10_000.0;

/// Of more, so many are counted per second on average: for a p99 of a second, forty beyond it.
const ENOUGH: f64 = 4_000.0;

/// Mean time from a window to the next, and the time in which the rate is measured outside of windows.
const CYCLE: Duration = Duration::from_millis(250);

/// Lengths of cycles vary by this part of them, so that no rhythm of the clients is hit or missed.
const VARIES: f64 = 0.4;

/// The golden ratio spreads any number of cycles evenly over these lengths.
const GOLDEN: f64 = 0.618_034;

/// Requests without an answer that may be left out: a tenth of what is beyond a p99. Some never get one.
const LEFT_OUT: f64 = 0.001;

/// The first look for answers after a window: most need less.
const SOON: Duration = Duration::from_millis(5);

/// The longest time to wait for answers.
const LONGEST: Duration = Duration::from_secs(1);

/// Requests at the server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub begun: u64,
    pub answered: u64,
}

/// What is counted now, and until when.
#[derive(Debug)]
pub struct Windows {
    counted: Counted,
    /// Share of the time in which requests are counted; 1: always.
    share: f64,
    /// When the window began, and the requests until then.
    began: Instant,
    before: Requests,
    /// When what is counted changed last.
    changed: Instant,
    /// Time of the windows until the present one.
    past: Duration,
    cycles: u32,
}

impl Windows {
    pub fn new(now: Instant, before: Requests) -> Self {
        let (counted, past) = (Counted::All, Duration::ZERO);
        Self { counted, share: 1.0, began: now, before, changed: now, past, cycles: 0 }
    }

    /// Time in which requests were counted, so far.
    pub fn time(&self, now: Instant) -> Duration {
        self.past + if self.counted == Counted::All { now - self.began } else { Duration::ZERO }
    }

    /// When to look next, if sooner than usual.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let at = match self.counted {
            Counted::All => self.began + self.length(),
            Counted::Begun => self.changed + SOON,
            Counted::None => self.began + self.cycle(),
        };
        (at > now).then_some(at)
    }

    /// What is counted from now on, if that changes.
    pub fn step(&mut self, now: Instant, requests: Requests) -> Option<Counted> {
        let begun = (requests.begun - self.before.begun) as f64;
        let next = match self.counted {
            Counted::All if now >= self.began + self.length() => {
                let time = now - self.began;
                let per_s = begun / time.as_secs_f64();
                self.share = if per_s > MOST { ENOUGH / per_s } else { 1.0 };
                self.past += time;
                if self.share >= 1.0 {
                    (self.began, self.before) = (now, requests);
                    return None;
                }
                Counted::Begun
            }
            Counted::Begun => {
                let open = begun - (requests.answered - self.before.answered) as f64;
                (open <= begun * LEFT_OUT || now >= self.changed + LONGEST).then_some(Counted::None)?
            }
            Counted::None if now >= self.began + self.cycle() => {
                self.cycles += 1;
                (self.began, self.before) = (now, requests);
                Counted::All
            }
            Counted::All | Counted::None => return None,
        };
        (self.counted, self.changed) = (next, now);
        Some(next)
    }

    fn length(&self) -> Duration {
        CYCLE.mul_f64(self.share)
    }

    fn cycle(&self) -> Duration {
        let place = (f64::from(self.cycles) * GOLDEN).fract() - 0.5;
        CYCLE.mul_f64(1.0 + VARIES * place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with so many requests per second, each of which takes so long, looked at each 5 ms for some time: how
    /// often a window began, the time in which requests were counted, and those that began in it and were not answered.
    fn watched(per_s: f64, takes: Duration, seconds: u64) -> (u32, f64, f64) {
        let start = Instant::now();
        let mut windows = Windows::new(start, Requests::default());
        let (mut requests, mut last) = (Requests::default(), start);
        let (mut times, mut left_out, mut counted) = (0, 0, Counted::All);
        while last < start + Duration::from_secs(seconds) {
            let now = last + Duration::from_millis(5);
            let begin = |from: Instant, to: Instant| (to.saturating_duration_since(from).as_secs_f64() * per_s) as u64;
            if counted == Counted::All {
                requests.begun += begin(last, now);
            }
            // Those of the window that had begun long enough ago.
            let of_window = requests.begun - windows.before.begun;
            if counted != Counted::None {
                requests.answered = windows.before.answered + begin(windows.began + takes, now).min(of_window);
            }
            last = now;
            if let Some(next) = windows.step(now, requests) {
                if next == Counted::None {
                    left_out += of_window - (requests.answered - windows.before.answered);
                }
                times += u32::from(next == Counted::All);
                counted = next;
            }
        }
        (times, windows.time(last).as_secs_f64() / seconds as f64, left_out as f64 / requests.begun as f64)
    }

    #[test]
    fn few_requests_are_all_counted() {
        let (times, share, left_out) = watched(9_000.0, Duration::from_millis(1), 20);
        assert_eq!((times, left_out), (0, 0.0));
        assert!((share - 1.0).abs() < 1e-9, "{share}");
    }

    /// 100,000 per second are 25 times as many as are enough: a 25th of the time, four times a second.
    #[test]
    fn of_many_requests_as_many_are_counted_as_may_be() {
        let (times, share, left_out) = watched(100_000.0, Duration::from_millis(1), 20);
        assert!((70..=80).contains(&times), "{times}");
        assert!((0.035..0.09).contains(&share), "{share}");
        assert!(left_out <= LEFT_OUT, "{left_out}");
    }

    /// What takes as long as a window is followed to its answer; what never gets one is not waited for.
    #[test]
    fn long_requests_are_counted_to_their_answer() {
        let (_, share, left_out) = watched(50_000.0, Duration::from_millis(300), 20);
        assert!(left_out <= LEFT_OUT && (0.02..0.15).contains(&share), "{left_out} {share}");
        let (times, _, left_out) = watched(50_000.0, Duration::from_secs(1_000), 20);
        assert!(times >= 15 && left_out > 0.9, "{times} {left_out}");
    }
}
