//! Gains and losses against the goal: debts are repaid within about a second, credit is spent slowly.

use super::{LEAST, Tracking, TrackingState, WEIGHT, Work};
use crate::qos::phase::{PhaseResult, Why, usable};

/// Above this duty there are no naps: the shortest one would be obeyed poorly.
const ALL: f64 = 0.95;

/// Limit of the duty's increase in one step.
const RISE: f64 = 2.0;

/// Fraction of the step to the duty that the last turns suggest, in logarithms: full steps overshoot if loss grows
/// faster than the duty.
const DAMPING: f64 = 0.7;

/// A speed alone that differs by more than this belongs to another phase of the program and replaces older ones.
const OTHER: f64 = 0.1;

/// Time, in seconds, over which debts are repaid and credit is spent.
const HORIZON_S: [f64; 2] = [1.0, 4.0];

/// Limits of the factor on the allowed loss for that.
const ALLOWANCE: [f64; 2] = [0.3, 1.25];

/// Limits of the account in seconds of allowed loss: debt, and credit.
const ACCOUNT_S: [f64; 2] = [5.0, 1.0];

impl Tracking {
    /// The right duty if loss is proportional to it, or a part of the way there.
    pub(super) fn adapt(&self, state: &mut TrackingState, loss: f64) -> Why {
        let before = state.duty;
        let way = self.allowed(state) / (loss * before).max(f64::MIN_POSITIVE);
        state.duty = (before * way.powf(DAMPING).min(RISE)).clamp(LEAST, 1.0);
        if state.duty > ALL {
            state.duty = 1.0;
        }
        match () {
            () if state.duty >= 1.0 => Why::Fine,
            () if state.duty > before * 1.1 => Why::Increase,
            () => Why::Contention,
        }
    }

    /// The currently allowed loss, which brings the account back to zero.
    pub(super) fn allowed(&self, state: &TrackingState) -> f64 {
        let [pay, spend] = HORIZON_S;
        let horizon = if state.credit_s < 0.0 { pay } else { spend };
        let allowance = (1.0 + state.credit_s / ((1.0 - self.goal) * horizon)).clamp(ALLOWANCE[0], ALLOWANCE[1]);
        (1.0 - self.goal) * allowance
    }

    /// Adds the work since the last look to the account. Returns the fraction of its speed alone kept by the program
    /// that suffers most, with its index.
    pub(super) fn settle(&self, state: &mut TrackingState) -> Option<(usize, f64)> {
        let share = |(high, (work, alone)): (usize, (&Work, &Option<f64>))| {
            (work.seconds > 0.0).then_some((high, work.done / work.seconds / (*alone)?, work.seconds))
        };
        let kept = state.work.iter().zip(&state.alone).enumerate().filter_map(share).min_by(|a, b| a.1.total_cmp(&b.1));
        state.work.clear();
        state.window_s = [0.0; 2];
        let (high, kept, seconds) = kept?;
        let [debt, credit] = ACCOUNT_S.map(|seconds| seconds * (1.0 - self.goal));
        state.credit_s = (state.credit_s + (kept - self.goal) * seconds).clamp(-debt, credit);
        Some((high, kept))
    }

    /// Corrects the account because the speed alone has changed since the previous pause: on average it was the mean of
    /// the two measurements. In work rather than shares, so that errors in both directions cancel.
    pub(super) fn correct(&self, state: &mut TrackingState, before: &[Option<f64>]) {
        let ratio = |(before, now): (&Option<f64>, &Option<f64>)| Some((*now)? / (*before)?);
        let Some(ratio) = before.iter().zip(&state.alone).filter_map(ratio).max_by(f64::total_cmp) else { return };
        let missed_s = self.goal * state.behind.as_secs_f64() * (ratio - 1.0) / 2.0;
        let [debt, credit] = ACCOUNT_S.map(|seconds| seconds * (1.0 - self.goal));
        state.credit_s = ((state.credit_s - missed_s) / ratio).clamp(-debt, credit);
    }
}

impl TrackingState {
    /// Adds the work of the ended phase.
    pub(super) fn count(&mut self, seen: &PhaseResult, duty: f64) {
        let seconds = self.lasts.as_secs_f64();
        self.window_s = [self.window_s[0] + seconds, self.window_s[1] + seconds * duty];
        self.work.resize(seen.counted.len(), Work::default());
        for (work, speed) in self.work.iter_mut().zip(&seen.counted) {
            // Zero in this phase is also a speed: the next batch is on its way.
            if let Some(speed) = speed.filter(|speed| speed.is_finite() && *speed >= 0.0) {
                *work = Work { done: work.done + speed * seconds, seconds: work.seconds + seconds };
            }
        }
    }

    /// Whether any program still speeds up in the pause, by more than a fraction.
    pub(super) fn rises(&self, seen: &PhaseResult, by: f64) -> bool {
        let before = |i: usize| self.before.get(i).copied().flatten().and_then(|speed| usable(Some(speed)));
        seen.speeds.iter().enumerate().any(|(i, speed)| match (before(i), usable(*speed)) {
            (Some(before), Some(now)) => now > before * (1.0 + by),
            (None, now) => now.is_some(),
            _ => false,
        })
    }

    /// A program cannot be faster beside others than alone: one that seems so, by this factor, was measured alone in a
    /// slow moment.
    pub(super) fn raise(&mut self, by: f64) {
        (self.raised, self.loss) = (true, None);
        self.alone.iter_mut().flatten().for_each(|alone| *alone *= by);
    }

    pub(super) fn learn(&mut self, speeds: &[Option<f64>]) {
        self.failed = 0;
        self.alone.resize(speeds.len(), None);
        for (alone, speed) in self.alone.iter_mut().zip(speeds) {
            // A program without a speed has no earlier one either: it may have changed.
            *alone = usable(*speed).map(|speed| match *alone {
                Some(before) if (speed / before - 1.0).abs() <= OTHER => before + WEIGHT * (speed - before),
                other => {
                    self.sure = false;
                    if other.is_some() {
                        self.loss = None; // it applied to another speed
                    }
                    speed
                }
            });
        }
    }
}
