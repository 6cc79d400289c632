//! What a phase means for the low-priority programs: naps, turns of running and napping, limits, and the background.

use super::speed::quantile_of;
use super::{High, QosConfig, QosState};
use crate::qos::controller::{LONGEST_NAP, Lasts, Phase};
use cotenant_model::action::Action;
use cotenant_model::ids::{AppId, Time};
use cotenant_model::policy::Ctx;
use std::time::Duration;

/// A turn of running and napping where a duty is kept by both.
pub(super) const TURN: Duration = Duration::from_millis(20);

/// The same where all answers are short: each is in one part of a turn or the other anyway, and each switch disturbs those under way.
pub(super) const LONG_TURN: Duration = Duration::from_millis(200);

/// Answers are short up to here, seconds: half of a short turn. Longer ones have something of both parts.
const SHORT_ANSWER_S: f64 = 0.01;

/// Neither part of a turn is shorter, but for runs between the longest naps: marks are looked at every 2 ms or so.
const SHORTEST: Duration = Duration::from_millis(5);

/// In a pause that has no end yet, naps are ordered so far ahead: renewed by looks each 100 ms, which are made anyway.
const AHEAD: Duration = Duration::from_millis(150);

/// Naps that go on are ordered anew so long before they end.
pub(super) const RENEWED: Duration = Duration::from_millis(50);

/// What all low-priority programs are to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Nap(Time),
    /// Thousandths of all CPUs.
    Limit(Option<u32>),
    Caches(Option<u32>),
    Background(bool),
}

impl Step {
    pub(super) fn of(self, app: AppId, ctx: &Ctx<'_>) -> Action {
        match self {
            Self::Nap(until) => Action::Nap { app, until },
            Self::Limit(share) => {
                let cpus = ctx.topology.usable().len() as u32;
                Action::Limit { app, cpu_permille: share.map(|permille| (permille * cpus).max(1)) }
            }
            Self::Caches(permille) => Action::LimitCaches { app, permille },
            Self::Background(on) => Action::Background { app, on },
        }
    }
}

impl QosState {
    /// What is to be ordered now, in a phase that has just begun or goes on; without one, all is taken back.
    pub(super) fn steps(&mut self, config: &QosConfig, new: bool, now: Time) -> Vec<Step> {
        let background = config.climb && self.phase.is_some_and(|phase| phase.background);
        let background = self.background(background);
        background.into_iter().chain(self.naps_and_limits(config, new, now)).collect()
    }

    /// The order that brings about that they run in the background or not, where it is not so.
    fn background(&mut self, on: bool) -> Option<Step> {
        (std::mem::replace(&mut self.background, on) != on).then_some(Step::Background(on))
    }

    fn naps_and_limits(&mut self, config: &QosConfig, new: bool, now: Time) -> Vec<Step> {
        let Some(Phase { duty, lasts, .. }) = self.phase else { return self.free(config, now) };
        if duty >= 1.0 {
            return self.free(config, now);
        }
        let limits = config.limits.is_some() || self.ladder.limits();
        if duty <= 0.0 {
            let end = match lasts {
                Lasts::For(time) | Lasts::UntilKnown(time) => self.began + time,
                Lasts::Readings(_) => now + AHEAD,
            };
            let until = end.min(now + LONGEST_NAP);
            // A nap whose end is not yet ordered is renewed when that is near.
            let due = self.napping_until < end && self.napping_until - now <= RENEWED;
            self.total.naps += u64::from(new);
            let mut steps = if new || due { self.nap(until) } else { Vec::new() };
            // Who does not obey naps well is limited as far as that goes, too.
            if self.ladder.limits() {
                steps.extend(self.limit(config, Some(1)));
            }
            return steps;
        }
        if limits {
            let mut steps = if self.napping_until > now { vec![Step::Nap(now)] } else { Vec::new() };
            self.napping_until = self.napping_until.min(now);
            steps.extend(self.limit(config, Some(((duty * 1e3).round() as u32).max(1))));
            return steps;
        }
        let lifted = self.limit(config, None);
        let (run, nap) = match lasts {
            // A phase with an end is one turn.
            Lasts::For(time) if new => (time.mul_f64(duty), time.mul_f64(1.0 - duty).min(LONGEST_NAP)),
            Lasts::Readings(_) if now >= self.turn_ends => turn(duty, self.turn_length(config)),
            _ => return lifted,
        };
        // The turn begins with its nap.
        self.turn_ends = now + run + nap;
        self.total.naps += 1;
        lifted.into_iter().chain(self.nap(now + nap)).collect()
    }

    /// What ends a nap and limits.
    fn free(&mut self, config: &QosConfig, now: Time) -> Vec<Step> {
        let nap = (self.napping_until > now).then_some(Step::Nap(now));
        let limit = self.limit(config, None);
        self.napping_until = self.napping_until.min(now);
        nap.into_iter().chain(limit).collect()
    }

    fn turn_length(&self, config: &QosConfig) -> Duration {
        let alone = self.alone.iter().copied().chain(std::iter::repeat(None));
        let is_short = |(high, alone): (&High, Option<f64>)| {
            quantile_of(&high.metric).is_some() && alone.is_some_and(|per_s| per_s * SHORT_ANSWER_S >= 1.0)
        };
        if config.high.iter().zip(alone).all(is_short) { LONG_TURN } else { TURN }
    }

    /// The orders that make this share of all CPUs the limit, where it is not.
    fn limit(&mut self, config: &QosConfig, permille: Option<u32>) -> Vec<Step> {
        let [cpu, caches] = self.ladder.kinds(config, permille);
        let cpu = (std::mem::replace(&mut self.limited, cpu) != cpu).then_some(Step::Limit(cpu));
        let caches = (std::mem::replace(&mut self.caches, caches) != caches).then_some(Step::Caches(caches));
        cpu.into_iter().chain(caches).collect()
    }

    fn nap(&mut self, until: Time) -> Vec<Step> {
        self.napping_until = until;
        vec![Step::Nap(until)]
    }
}

/// Run and nap of a turn of about this length.
pub(super) fn turn(duty: f64, length: Duration) -> (Duration, Duration) {
    let (run, nap) = (length.as_secs_f64() * duty, length.as_secs_f64() * (1.0 - duty));
    let longer = (SHORTEST.as_secs_f64() / run.min(nap).max(1e-6)).max(1.0);
    // A duty that is to have longer naps than there are has shorter runs.
    let longer = longer.min(LONGEST_NAP.as_secs_f64() / nap.max(1e-6));
    [run, nap].map(|part| Duration::from_secs_f64((part * longer).min(1.0))).into()
}
