//! A phase as orders to low-priority programs: naps, turns of running and napping, limits, and the background.

use super::Ladder;
use super::step::Step;
use crate::qos::phase::{LONGEST_NAP, Lasts, Phase};
use crate::qos::settings::{High, QosConfig};
use cotenant_model::Time;
use cotenant_model::speed::Source;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Length of a turn that keeps a duty by running and napping.
pub(in crate::qos) const TURN: Duration = Duration::from_millis(20);

/// The same if all answers are short: each falls into one part of a turn anyway, and each switch disturbs those in
/// progress.
pub(in crate::qos) const LONG_TURN: Duration = Duration::from_millis(200);

/// Answers count as short up to half of a short turn, seconds. Longer ones fall into both parts.
const SHORT_ANSWER_S: f64 = 0.01;

/// Least length of both parts of a turn, except runs between the longest naps: programs look for naps about every 2 ms.
const SHORTEST: Duration = Duration::from_millis(5);

/// In a pause without an end yet, naps are ordered this far ahead; the regular rounds each 100 ms renew them.
const AHEAD: Duration = Duration::from_millis(150);

/// Continued naps are renewed this long before they end.
pub(in crate::qos) const RENEWED: Duration = Duration::from_millis(50);

/// The last orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ordered {
    /// End of the naps.
    pub napping_until: Time,
    /// End of the current turn, if a duty is kept by turns.
    pub turn_ends: Time,
    /// Whether the programs run in the background.
    #[serde(default)]
    background: bool,
    /// The limit of CPU time, thousandths of all CPUs.
    limited: Option<u32>,
    /// The limit of cache ways and memory bandwidth, thousandths.
    #[serde(default)]
    caches: Option<u32>,
}

/// Inputs of orders.
pub(in crate::qos) struct Moment<'a> {
    pub config: &'a QosConfig,
    pub ladder: &'a Ladder,
    /// `None`: everything is undone.
    pub phase: Option<Phase>,
    pub began: Time,
    /// Whether the phase begins now.
    pub new: bool,
    pub now: Time,
    /// Speed alone of each high-priority program.
    pub alone: &'a [Option<f64>],
}

impl Ordered {
    /// Whether any limit is in use.
    pub fn is_limited(&self) -> bool {
        (self.limited, self.caches) != (None, None)
    }

    /// Limits in use are ordered again, for other programs.
    pub(in crate::qos) fn limit_again(&mut self) {
        for limit in [&mut self.limited, &mut self.caches] {
            *limit = limit.map(|_| u32::MAX); // unlike any order
        }
    }

    /// The due orders. Naps are counted in `naps`.
    pub(in crate::qos) fn steps(&mut self, at: &Moment<'_>, naps: &mut u64) -> Vec<Step> {
        let on = at.config.climb && at.phase.is_some_and(|phase| phase.background);
        let background = (std::mem::replace(&mut self.background, on) != on).then_some(Step::Background(on));
        background.into_iter().chain(self.naps_and_limits(at, naps)).collect()
    }

    fn naps_and_limits(&mut self, at: &Moment<'_>, naps: &mut u64) -> Vec<Step> {
        let (new, now) = (at.new, at.now);
        let Some(Phase { duty, lasts, .. }) = at.phase.filter(|phase| phase.duty < 1.0) else {
            return self.run(at, None);
        };
        if duty <= 0.0 {
            let end = match lasts {
                Lasts::For(time) | Lasts::UntilKnown(time) => at.began + time,
                Lasts::Readings(_) => now + AHEAD,
            };
            // An open-ended nap is renewed near its ordered end.
            let due = self.napping_until < end && self.napping_until - now <= RENEWED;
            *naps += u64::from(new);
            let mut steps = Vec::new();
            if new || due {
                steps.push(self.nap(end.min(now + LONGEST_NAP)));
            }
            // A program that obeys naps poorly is also limited as far as possible.
            if at.ladder.limits() {
                steps.extend(self.limit(at, Some(1)));
            }
            return steps;
        }
        if at.config.limits.is_some() || at.ladder.limits() {
            return self.run(at, Some(((duty * 1e3).round() as u32).max(1)));
        }
        let mut steps = self.limit(at, None);
        let (run, nap) = match lasts {
            // A phase with an end is one turn.
            Lasts::For(time) if new => (time.mul_f64(duty), time.mul_f64(1.0 - duty).min(LONGEST_NAP)),
            Lasts::Readings(_) if now >= self.turn_ends => turn(duty, turn_length(at)),
            _ => return steps,
        };
        // The turn begins with its nap.
        self.turn_ends = now + run + nap;
        *naps += 1;
        steps.push(self.nap(now + nap));
        steps
    }

    /// Ends naps, with this share of all CPUs as the limit.
    fn run(&mut self, at: &Moment<'_>, permille: Option<u32>) -> Vec<Step> {
        let nap = (self.napping_until > at.now).then_some(Step::Nap(at.now));
        self.napping_until = self.napping_until.min(at.now);
        nap.into_iter().chain(self.limit(at, permille)).collect()
    }

    /// The orders that change the limit to this share of all CPUs.
    fn limit(&mut self, at: &Moment<'_>, permille: Option<u32>) -> Vec<Step> {
        let [cpu, caches] = at.ladder.kinds(at.config, permille);
        let cpu = (std::mem::replace(&mut self.limited, cpu) != cpu).then_some(Step::Limit(cpu));
        let caches = (std::mem::replace(&mut self.caches, caches) != caches).then_some(Step::Caches(caches));
        cpu.into_iter().chain(caches).collect()
    }

    fn nap(&mut self, until: Time) -> Step {
        self.napping_until = until;
        Step::Nap(until)
    }
}

fn turn_length(at: &Moment<'_>) -> Duration {
    let alone = at.alone.iter().copied().chain(std::iter::repeat(None));
    let is_short = |(high, alone): (&High, Option<f64>)| {
        matches!(high.metric, Source::Latency(_)) && alone.is_some_and(|per_s| per_s * SHORT_ANSWER_S >= 1.0)
    };
    if at.config.high.iter().zip(alone).all(is_short) { LONG_TURN } else { TURN }
}

/// Run and nap of a turn of about this length.
pub(in crate::qos) fn turn(duty: f64, length: Duration) -> (Duration, Duration) {
    let (run, nap) = (length.as_secs_f64() * duty, length.as_secs_f64() * (1.0 - duty));
    let longer = (SHORTEST.as_secs_f64() / run.min(nap).max(1e-6)).max(1.0);
    // A duty that needs longer naps than allowed gets shorter runs.
    let longer = longer.min(LONGEST_NAP.as_secs_f64() / nap.max(1e-6));
    [run, nap].map(|part| Duration::from_secs_f64((part * longer).min(1.0))).into()
}
