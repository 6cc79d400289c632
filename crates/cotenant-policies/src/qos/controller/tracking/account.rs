//! What was gained or lost against the goal: debts are paid back within a second or so, credit is spent slowly.

use super::{LEAST, Tracking, TrackingState, WEIGHT, Work};
use crate::qos::phase::{PhaseResult, Why, usable};

/// From here on there are no naps: the shortest one would be shorter than is well obeyed.
const ALL: f64 = 0.95;

/// The duty rises by no more than this factor at a time.
const RISE: f64 = 2.0;

/// Part of the way to the duty that the last turns say is right, in logarithms: steps of all of it overshoot where loss
/// grows faster than the duty.
const DAMPING: f64 = 0.7;

/// A speed alone that differs by more than this is that of another phase of the program: the ones before do not count.
const OTHER: f64 = 0.1;

/// Debts are paid back, and credit is spent, within about this many seconds.
const HORIZON_S: [f64; 2] = [1.0, 4.0];

/// For that, the allowed loss is multiplied by no less and no more.
const ALLOWANCE: [f64; 2] = [0.3, 1.25];

/// The account holds at most this many seconds of allowed loss: debt, and credit.
const ACCOUNT_S: [f64; 2] = [5.0, 1.0];

impl Tracking {
    /// The duty that is right where the loss is in proportion to it, or some of the way there.
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

    /// The loss that is allowed now, so that the account comes back to nothing.
    pub(super) fn allowed(&self, state: &TrackingState) -> f64 {
        let [pay, spend] = HORIZON_S;
        let horizon = if state.credit_s < 0.0 { pay } else { spend };
        let allowance = (1.0 + state.credit_s / ((1.0 - self.goal) * horizon)).clamp(ALLOWANCE[0], ALLOWANCE[1]);
        (1.0 - self.goal) * allowance
    }

    /// Enters what was done since this was looked at last into the account. Share of its speed alone that the program
    /// that suffers most, by its place, kept in that time.
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

    /// Enters into the account that the speed alone was not what it was taken for since the pause before: on average it
    /// was the mean of what the two pauses told. In work and not in shares of it, so that errors to both sides cancel.
    pub(super) fn correct(&self, state: &mut TrackingState, before: &[Option<f64>]) {
        let ratio = |(before, now): (&Option<f64>, &Option<f64>)| Some((*now)? / (*before)?);
        let Some(ratio) = before.iter().zip(&state.alone).filter_map(ratio).max_by(f64::total_cmp) else { return };
        let missed_s = self.goal * state.behind.as_secs_f64() * (ratio - 1.0) / 2.0;
        let [debt, credit] = ACCOUNT_S.map(|seconds| seconds * (1.0 - self.goal));
        state.credit_s = ((state.credit_s - missed_s) / ratio).clamp(-debt, credit);
    }
}

impl TrackingState {
    /// Adds what was done in the phase that has ended.
    pub(super) fn count(&mut self, seen: &PhaseResult, duty: f64) {
        let seconds = self.lasts.as_secs_f64();
        self.window_s = [self.window_s[0] + seconds, self.window_s[1] + seconds * duty];
        self.work.resize(seen.counted.len(), Work::default());
        for (work, speed) in self.work.iter_mut().zip(&seen.counted) {
            // None in this phase is a speed, too: the next batch is on its way.
            if let Some(speed) = speed.filter(|speed| speed.is_finite() && *speed >= 0.0) {
                *work = Work { done: work.done + speed * seconds, seconds: work.seconds + seconds };
            }
        }
    }

    /// Whether any program is still getting faster in the pause, by more than a share.
    pub(super) fn rises(&self, seen: &PhaseResult, by: f64) -> bool {
        let before = |i: usize| self.before.get(i).copied().flatten().and_then(|speed| usable(Some(speed)));
        seen.speeds.iter().enumerate().any(|(i, speed)| match (before(i), usable(*speed)) {
            (Some(before), Some(now)) => now > before * (1.0 + by),
            (None, now) => now.is_some(),
            _ => false,
        })
    }

    /// No program is faster beside others than alone: one that seems to be, by this factor, was slower when that was
    /// measured.
    pub(super) fn raise(&mut self, by: f64) {
        (self.raised, self.loss) = (true, None);
        self.alone.iter_mut().flatten().for_each(|alone| *alone *= by);
    }

    pub(super) fn learn(&mut self, speeds: &[Option<f64>]) {
        self.failed = 0;
        self.alone.resize(speeds.len(), None);
        for (alone, speed) in self.alone.iter_mut().zip(speeds) {
            // A program without a speed has none of before either: it may be another by now.
            *alone = usable(*speed).map(|speed| match *alone {
                Some(before) if (speed / before - 1.0).abs() <= OTHER => before + WEIGHT * (speed - before),
                other => {
                    self.sure = false;
                    if other.is_some() {
                        self.loss = None; // it was about another speed
                    }
                    speed
                }
            });
        }
    }
}
