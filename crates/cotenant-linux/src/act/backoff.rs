//! Time for which a task or a control group is left alone after a change by another agent.

use cotenant_model::Time;
use std::time::Duration;

/// After the first change.
const FIRST: Duration = Duration::from_secs(1);

/// Its limit.
const LONGEST: Duration = Duration::from_secs(60);

/// After this long without a change, the next one counts as the first.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// Whether it may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Free,
    /// Not yet.
    LeftAlone,
    /// Never again: two agents that overrule each other are useless.
    GivenUp,
}

/// Back-off for one of them: 1, 2, 4 … 60 s, then never again. A pure function of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackOff {
    last: Option<(Time, Duration)>,
    given_up: bool,
}

impl BackOff {
    /// Another agent has changed it.
    pub fn hit(&mut self, now: Time) {
        let pause = match self.last {
            Some((at, LONGEST)) if now - at < FORGIVEN_AFTER => {
                self.given_up = true;
                LONGEST
            }
            Some((at, pause)) if now - at < FORGIVEN_AFTER => (pause * 2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some((now, pause));
    }

    /// Whether it may be touched now.
    pub fn verdict(&self, now: Time) -> Verdict {
        match self.last {
            _ if self.given_up => Verdict::GivenUp,
            Some((at, pause)) if now - at < pause => Verdict::LeftAlone,
            _ => Verdict::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_then_gives_up() {
        let mut back_off = BackOff::default();
        let mut now = Time::from_secs(5);
        assert_eq!(back_off.verdict(now), Verdict::Free);
        for pause in [1, 2, 4, 8, 16, 32, 60] {
            back_off.hit(now);
            assert_eq!(back_off.verdict(now + Duration::from_millis(pause * 1000 - 1)), Verdict::LeftAlone);
            now = now + Duration::from_secs(pause);
            assert_eq!(back_off.verdict(now), Verdict::Free, "after {pause} s");
        }
        back_off.hit(now);
        assert_eq!(back_off.verdict(Time(u64::MAX)), Verdict::GivenUp);
    }

    #[test]
    fn rare_changes_are_forgiven() {
        let mut back_off = BackOff::default();
        for hour in 0..20 {
            let now = Time::from_secs(hour * 3600);
            back_off.hit(now);
            assert_eq!(back_off.verdict(now + FIRST), Verdict::Free);
        }
    }
}
