//! Allowed cost of trials.

use cotenant_model::Time;
use serde::{Deserialize, Serialize};

/// Seconds that may be lost before anything is known.
pub(super) const ADVANCE: f64 = 0.5;
/// Number of trials over which cost and gain are compared.
const LOOK_BACK: usize = 30;
/// Assumed cost of a trial before the first one, seconds.
const USUAL: f64 = 0.1;

/// Losses and gains in seconds of the incumbent's speed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TrialLedger {
    began: Time,
    /// Over all trials.
    lost: f64,
    /// The last trials: cost, gain per second since then, time.
    last: Vec<(f64, f64, Time)>,
}

impl TrialLedger {
    pub fn new(began: Time) -> Self {
        Self { began, ..Self::default() }
    }

    /// The same for another situation: losses remain, gains belong to the previous one.
    pub fn anew(self) -> Self {
        Self { last: Vec::new(), ..self }
    }

    /// Records a trial's cost in seconds, and its gain per second from now on.
    pub fn spent(&mut self, cost: f64, gain: f64, now: Time) {
        self.lost += cost;
        self.last.push((cost, gain, now));
        if self.last.len() > LOOK_BACK {
            self.last.remove(0);
        }
    }

    /// The kernel's placement is back: earlier gains end.
    pub fn forfeit(&mut self) {
        self.last.iter_mut().for_each(|(_, gain, _)| *gain = 0.0);
    }

    /// The earliest time of the next trial: losses plus its expected cost are at most the advance (seconds) plus this
    /// fraction of the time, unless the last trials have gained more than they cost.
    pub fn due(&self, regret: f64, advance: f64, now: Time) -> Time {
        let mut costs: Vec<f64> = self.last.iter().map(|(cost, ..)| cost.max(0.0)).collect();
        costs.sort_by(f64::total_cmp);
        self.due_for(costs.get(costs.len() / 2).copied().unwrap_or(USUAL), regret, advance, now)
    }

    /// The same for a trial that may cost `next` seconds.
    pub fn due_for(&self, next: f64, regret: f64, advance: f64, now: Time) -> Time {
        let earned: f64 = self.last.iter().map(|(cost, gain, at)| gain * (now - *at).as_secs_f64() - cost).sum();
        if earned > next {
            return now;
        }
        let needed = (self.lost + next - advance) / regret.max(1e-9);
        let at = self.began.0 as f64 + needed * 1e9;
        if at <= now.0 as f64 { now } else { Time(at.min(u64::MAX as f64 / 2.0) as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two trials of a second each; one has kept 10 %, which pays for both after 20 s and a third one after 30 s.
    #[test]
    fn gains_pay_for_trials_until_the_kernel_s_placement_is_back() {
        let mut ledger = TrialLedger::new(Time(0));
        ledger.spent(1.0, 0.0, Time::from_secs(10));
        ledger.spent(1.0, 0.1, Time::from_secs(10));
        let due = |ledger: &TrialLedger, s| ledger.due(0.01, ADVANCE, Time::from_secs(s));
        assert_eq!(due(&ledger, 41), Time::from_secs(41));
        let waits = Time::from_secs(250); // 2 s lost and one more, minus the advance, at 1 %
        assert_eq!(due(&ledger, 39), waits);
        ledger.forfeit();
        assert_eq!(due(&ledger, 41), waits);
        assert_eq!(due(&ledger, 251), Time::from_secs(251));
    }
}
