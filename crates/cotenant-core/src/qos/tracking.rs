//! For speeds that can be told within milliseconds (ours): the duty of the low-priority programs follows what whole turns of running and
//! napping come to, from a speed alone that is measured in pauses long enough for caches to fill.
//!
//! `targeted` takes the speed in a nap of some milliseconds for the speed alone. A program whose data others have pushed out of a cache of
//! some MB has not got it back by then: it is as slow asleep as awake, no difference is seen, and nobody naps. Here a pause goes on until
//! the speed has stopped rising, and what naps really gain, cold caches included, is in the mean over a turn.

use super::{LONGEST_NAP, Phase, Seen, Why, nap, phase, usable};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The least duty.
const LEAST: f64 = 0.05;

/// From here on there are no naps: the shortest one would end a turn that is longer than programs stay the same.
const ALL: f64 = 0.95;

/// The duty rises by no more than this factor per turn.
const RISE: f64 = 1.5;

/// Part of the way to the duty that the last turn says is right, in logarithms: steps of all of it overshoot where loss grows faster than
/// the duty.
const DAMPING: f64 = 0.7;

/// Up to so much above the goal the duty stays as it is.
const HOLD: f64 = 0.01;

/// Weight of a new turn, or of a new speed alone, against those before.
const WEIGHT: f64 = 0.5;

/// A speed alone that differs by more than this is that of another phase of the program: the ones before do not count.
const OTHER: f64 = 0.1;

/// A part of a pause that is faster than the one before by less than this is not faster.
const RISEN: f64 = 0.02;

/// Its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tracking {
    /// Share of its speed alone that a program is to keep, 0–1, exclusive.
    pub goal: f64,
    /// A turn of running and napping.
    pub turn: Duration,
    /// The shortest part of a turn, and the first part of a pause; each further part is as long as all before it.
    pub shortest: Duration,
    /// Time between two pauses that measure the speed alone.
    pub between: Duration,
}

/// What it remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackingState {
    step: Step,
    /// Speed alone of each program.
    alone: Vec<Option<f64>>,
    /// Speeds in the part before, of a pause or of a turn.
    before: Vec<Option<f64>>,
    /// What the program that suffers most loses of its speed alone, over the duty; a moving mean.
    loss: Option<f64>,
    /// The duty.
    duty: f64,
    /// How long the pause has lasted.
    paused: Duration,
    /// Time since the last pause.
    since: Duration,
}

/// What the last phase was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// A part of a pause.
    #[default]
    Pause,
    /// The nap of a turn.
    Nap,
    /// The run of a turn.
    Run,
    /// A run while the speed is not known.
    Unknown,
}

impl Tracking {
    /// With the parameters that the tests hold: turns of 100 ms, since caches of some MB take tens of milliseconds to fill.
    pub fn new(goal: f64) -> Self {
        let ms = Duration::from_millis;
        Self { goal, turn: ms(100), shortest: ms(10), between: ms(2_000) }
    }

    pub(super) fn start(&self) -> (Phase, TrackingState) {
        self.pause(TrackingState { duty: 1.0, ..TrackingState::default() })
    }

    pub(super) fn next(&self, mut state: TrackingState, seen: &Seen) -> (Phase, TrackingState) {
        if !seen.speeds.iter().any(|speed| usable(*speed).is_some()) {
            let unknown = TrackingState { step: Step::Unknown, ..TrackingState::default() };
            return (phase(1.0, self.turn, Why::Unknown), unknown);
        }
        match state.step {
            Step::Unknown => self.start(),
            Step::Pause => {
                let longer = state.paused + state.paused;
                if longer <= LONGEST_NAP && state.rises(seen) {
                    state.before.clone_from(&seen.speeds);
                    let part = state.paused;
                    state.paused = longer;
                    return (nap(part, Why::Baseline), state);
                }
                state.learn(seen);
                self.turn(state, Why::Between)
            }
            Step::Nap => {
                state.before.clone_from(&seen.speeds);
                state.step = Step::Run;
                let (run, _) = self.parts(state.duty);
                state.since += run;
                (phase(1.0, run, Why::Between), state)
            }
            Step::Run => {
                let Some(kept) = self.kept(&state, seen) else { return self.pause(state) }; // known now, unknown in the pause
                let loss = (1.0 - kept) / state.duty;
                let loss = state.loss.map_or(loss, |mean| mean + WEIGHT * (loss - mean));
                state.loss = Some(loss);
                let why = self.adapt(&mut state, loss);
                let doubtful = state.duty <= LEAST && state.since >= self.between / 4;
                if state.since >= self.between || doubtful { self.pause(state) } else { self.turn(state, why) }
            }
        }
    }

    /// The duty that is right where the loss is in proportion to it, or some of the way there.
    fn adapt(&self, state: &mut TrackingState, loss: f64) -> Why {
        let before = state.duty;
        let kept = 1.0 - loss * before;
        if !(self.goal..=self.goal + HOLD).contains(&kept) {
            let way = (1.0 - self.goal) / (1.0 - kept).max(f64::MIN_POSITIVE);
            state.duty = (before * way.powf(DAMPING).min(RISE)).clamp(LEAST, 1.0);
        }
        if state.duty > ALL && kept >= self.goal {
            state.duty = 1.0;
        }
        match () {
            () if state.duty >= 1.0 => Why::Fine,
            () if kept < self.goal => Why::Contention,
            () if state.duty > before => Why::Increase,
            () => Why::Hold,
        }
    }

    /// Run and nap of a turn.
    fn parts(&self, duty: f64) -> (Duration, Duration) {
        let (run, nap) = (self.turn.mul_f64(duty), self.turn.mul_f64(1.0 - duty));
        if duty > ALL {
            (self.turn, Duration::ZERO)
        } else if run < self.shortest {
            (self.shortest, self.shortest.mul_f64((1.0 - duty) / duty))
        } else if nap < self.shortest {
            (self.shortest.mul_f64(duty / (1.0 - duty)), self.shortest)
        } else {
            (run, nap)
        }
    }

    /// A turn, which begins with its nap, if it has one.
    fn turn(&self, mut state: TrackingState, why: Why) -> (Phase, TrackingState) {
        state.before.clear();
        let (run, asleep) = self.parts(state.duty);
        if asleep.is_zero() {
            state.step = Step::Run;
            state.since += run;
            return (phase(1.0, run, why), state);
        }
        state.step = Step::Nap;
        state.since += asleep;
        (nap(asleep, why), state)
    }

    fn pause(&self, state: TrackingState) -> (Phase, TrackingState) {
        let (step, paused) = (Step::Pause, self.shortest);
        let since = Duration::ZERO;
        (nap(paused, Why::Baseline), TrackingState { step, paused, since, before: Vec::new(), ..state })
    }

    /// Share of its speed alone that the program that suffers most kept over the turn that ends with a run.
    fn kept(&self, state: &TrackingState, seen: &Seen) -> Option<f64> {
        let (run, nap) = self.parts(state.duty);
        let (run, nap) = (run.as_secs_f64(), nap.as_secs_f64());
        let share = |(i, speed): (usize, &Option<f64>)| {
            let (running, alone) = (usable(*speed)?, state.alone.get(i).copied().flatten()?);
            let mean = match state.before.get(i).copied().flatten().and_then(|speed| usable(Some(speed))) {
                Some(napping) => (run * running + nap * napping) / (run + nap),
                None => running,
            };
            Some(mean / alone)
        };
        seen.speeds.iter().enumerate().filter_map(share).min_by(f64::total_cmp)
    }
}

impl TrackingState {
    pub(super) fn alone(&self) -> &[Option<f64>] {
        &self.alone
    }

    /// Whether any program is still getting faster in the pause.
    fn rises(&self, seen: &Seen) -> bool {
        let before = |i: usize| self.before.get(i).copied().flatten();
        seen.speeds.iter().enumerate().any(|(i, speed)| match (before(i), usable(*speed)) {
            (Some(before), Some(now)) => now > before * (1.0 + RISEN),
            (None, now) => now.is_some(),
            _ => false,
        })
    }

    fn learn(&mut self, seen: &Seen) {
        self.alone.resize(seen.speeds.len(), None);
        for (alone, speed) in self.alone.iter_mut().zip(&seen.speeds) {
            // A program without a speed has none of before either: it may be another by now.
            *alone = usable(*speed).map(|speed| match *alone {
                Some(before) if (speed / before - 1.0).abs() <= OTHER => before + WEIGHT * (speed - before),
                _ => speed,
            });
        }
    }
}
