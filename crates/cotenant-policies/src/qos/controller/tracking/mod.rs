//! For speeds known within a fraction of a second (ours): the duty follows the results of whole turns of running and
//! napping, relative to a speed alone measured in pauses long enough for caches to fill.
//!
//! `targeted` takes the speed in a nap of some milliseconds for the speed alone. But a program that lost its data in a
//! cache of some MB has not reloaded it by then: it is as slow in a nap as in a run, no difference appears, and nothing
//! is throttled. Here a pause lasts until the speed stops rising, and the mean over a turn includes cold caches.
//!
//! The promise concerns the mean over everything, pauses and learning included. So it begins with a pause and a small
//! duty, and keeps [an account](account) of gains and losses against the goal. On a machine with varying capacity, an
//! old speed alone is wrong, and errors do not cancel: too low a value lets the others run freely, too high a value
//! cannot be reached. So it is measured as often as is free. Batched progress is counted over enough turns to see
//! enough batches; no batch is lost between two windows, so that the account stays exact.
//!
//! ```text
//!   start ──▶ Pause ────────────────────────────────▶ Turn ↺ the duty follows the loss over whole turns
//!             ↺ while the speed rises: twice as long    │
//!             ▲                                         │ due, in doubt, or before the first throttling
//!             ├─────────────────────────────────────────┘
//!             │ a speed is known, and pauses that told nothing are far enough apart
//!          Unknown ◀── no progress for long, from anywhere
//! ```

mod account;

use crate::qos::phase::{Figure, Held, Lasts, Phase, PhaseResult, Why, usable};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The least duty.
pub(super) const LEAST: f64 = 0.05;

/// The first duty.
const FIRST: f64 = 0.1;

/// Weight of a new measurement against those before.
const WEIGHT: f64 = 0.5;

/// A part of a pause that gains less than this fraction of the allowed loss over the previous one does not count as
/// faster.
const RISEN: f64 = 0.2;

/// A program faster than alone by more than this was measured alone in a slow moment.
const TOO_FAST: f64 = 0.1;

/// Least length of a pause, without and with batched progress: noise, or the moments of batches, distort shorter ones.
const SHORTEST_PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(400)];

/// Its limit, even if the speed still rises.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// After this long without any progress, and the time of four batches, the speed is unknown.
const SILENT: Duration = Duration::from_millis(500);

/// Number of batches that give a speed.
const BATCHES: u32 = 20;

/// Factor for rarer measurements of the speed alone while no naps are needed.
const CALM: u32 = 4;

/// With naps, measurements are more frequent, because the capacity of shared machines varies: pauses take this fraction
/// of the time in which the others nap anyway.
const PAUSED: f64 = 0.5;

/// Limit of that increase.
const OFTEN: u32 = 4;

/// Futile pauses make the next ones rarer, each time by half, up to this many times.
const FAILURES: u32 = 5;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tracking {
    /// Fraction (0–1, exclusive) of its speed alone that a program should keep.
    pub goal: f64,
    /// A turn of running and napping; at most the longest nap.
    pub turn: Duration,
    /// The first part of a pause; each further part is as long as all before it.
    pub shortest: Duration,
    /// Longest time between two measurements of the speed alone while others nap.
    pub between: Duration,
}

/// State.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackingState {
    step: Step,
    /// Length of the current phase.
    lasts: Duration,
    /// Speed alone of each program.
    pub(super) alone: Vec<Option<f64>>,
    /// Speeds in the previous part of a pause.
    before: Vec<Option<f64>>,
    /// Work of each program since its last look.
    work: Vec<Work>,
    /// Time since then, and of it the time in which the others ran, seconds.
    window_s: [f64; 2],
    /// Loss of the program that suffers most, as a fraction of its speed alone, over the duty; a moving mean.
    loss: Option<f64>,
    /// Seconds of its speed alone that the program that suffers most has beyond its goal.
    credit_s: f64,
    /// The duty.
    duty: f64,
    /// Duration of the pause so far.
    paused: Duration,
    /// Time since the last pause.
    since: Duration,
    /// Time without any progress.
    silent: Duration,
    /// Time between batches of progress.
    grain: Duration,
    /// Futile pauses in a row.
    failed: u32,
    /// Time between this pause and the one before.
    #[serde(default)]
    behind: Duration,
    /// Whether a pause taken in doubt confirmed the known speed, and the doubt continues.
    sure: bool,
    /// Whether the speed alone is only a lower bound: programs have been faster beside the others since the last pause.
    #[serde(default)]
    raised: bool,
}

/// Work of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Work {
    /// Speed × seconds.
    done: f64,
    /// Seconds with known work.
    seconds: f64,
}

/// The last phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// A part of a pause.
    #[default]
    Pause,
    /// A turn.
    Turn,
    /// A run while the speed is unknown.
    Unknown,
}

impl Tracking {
    /// With the parameters of the tests: turns of 200 ms, because caches of some MB fill in tens of milliseconds, once
    /// per turn.
    pub fn new(goal: f64) -> Self {
        let ms = Duration::from_millis;
        Self { goal, turn: ms(200), shortest: ms(25), between: ms(4_000) }
    }

    pub(super) fn start(&self) -> (Phase, TrackingState) {
        self.pause(TrackingState { duty: FIRST, silent: SILENT, ..TrackingState::default() })
    }

    pub(super) fn next(&self, mut state: TrackingState, seen: &PhaseResult) -> (Phase, TrackingState) {
        let known = seen.is_known();
        let heard = seen.counted.iter().any(|speed| usable(*speed).is_some());
        state.silent = if heard { Duration::ZERO } else { state.silent.saturating_add(state.lasts) };
        state.grain = seen.grain.unwrap_or(state.grain);
        if state.silent > SILENT + state.grain * 4 {
            let since = if state.step == Step::Unknown { state.since } else { Duration::ZERO };
            // A program that has not started is silent too.
            let in_vain = state.step == Step::Pause && state.paused > self.shortest;
            let failed = (state.failed + u32::from(in_vain)).min(FAILURES);
            return self.unknown(TrackingState { since, failed, ..TrackingState::default() });
        }
        match state.step {
            Step::Unknown if known && !self.waits(&state) => {
                self.pause(TrackingState { duty: FIRST, failed: state.failed, ..TrackingState::default() })
            }
            Step::Unknown => self.unknown(state),
            Step::Pause => {
                state.count(seen, 0.0);
                let least = SHORTEST_PAUSE[usize::from(!state.grain.is_zero())];
                let more = state.paused < least || !known || state.rises(seen, RISEN * (1.0 - self.goal));
                if more && state.paused < LONGEST_PAUSE {
                    state.before.clone_from(&seen.speeds);
                    (state.lasts, state.paused) = (state.paused, state.paused * 2);
                    return (Phase::new(0.0, state.lasts, Why::Baseline), state);
                }
                if !known {
                    let failed = (state.failed + 1).min(FAILURES);
                    return self.unknown(TrackingState { failed, ..TrackingState::default() });
                }
                let before = state.alone.clone();
                state.learn(&seen.speeds);
                self.correct(&mut state, &before);
                self.settle(&mut state);
                self.turn(state, Why::Between)
            }
            Step::Turn => {
                let duty = state.duty;
                state.count(seen, duty);
                state.since += self.turn;
                if state.window_s[0] < (state.grain * BATCHES).as_secs_f64() {
                    let why = if duty < 1.0 { Why::Hold } else { Why::Fine };
                    return self.turn(state, why);
                }
                let share = state.window_s[1] / state.window_s[0];
                let first = state.since.as_secs_f64() < state.window_s[0] + self.turn.as_secs_f64() / 2.0;
                let Some((high, kept)) = self.settle(&mut state) else { return self.pause(state) }; // known now, unknown in the pause
                let loss = (1.0 - kept) / share;
                let loss = state.loss.map_or(loss, |mean| mean + WEIGHT * (loss - mean));
                state.loss = Some(loss);
                let held = Held::new(high, Figure::Lost, loss * duty, self.allowed(&state));
                let why = self.adapt(&mut state, loss);
                if duty >= 1.0 && state.duty < 1.0 && !first {
                    // All have run, and low-priority programs are to nap. A pause is a nap too, and shows at once
                    // whether only the machine has slowed down.
                    return self.pause(TrackingState { duty, loss: None, ..state });
                }
                let too_fast = kept > 1.0 + TOO_FAST;
                if too_fast && duty >= 1.0 {
                    state.raise(kept);
                }
                let doubtful = state.duty <= LEAST && kept < self.goal || too_fast && duty < 1.0;
                let due = if doubtful && !state.sure { self.between / OFTEN } else { self.due(&state) };
                state.sure = doubtful && (state.sure || state.since >= due);
                if state.since >= due {
                    return self.pause(state);
                }
                let (phase, state) = self.turn(state, why);
                (phase.by(held), state)
            }
        }
    }

    /// Time from the last pause to the next.
    fn due(&self, state: &TrackingState) -> Duration {
        if state.duty >= 1.0 {
            return if state.raised { self.between / OFTEN } else { self.between * CALM };
        }
        // At least two decisions about the duty, which batches lengthen, are between two pauses.
        let least = (state.grain * BATCHES * 2).clamp(self.between / OFTEN, self.between);
        state.paused.div_f64(PAUSED * (1.0 - state.duty)).clamp(least, self.between)
    }

    /// Whether the last pause was futile, and it is too early for the next.
    fn waits(&self, state: &TrackingState) -> bool {
        state.failed > 0 && state.since < self.between * (1_u32 << state.failed.min(FAILURES))
    }

    fn turn(&self, mut state: TrackingState, why: Why) -> (Phase, TrackingState) {
        (state.step, state.lasts) = (Step::Turn, self.turn);
        (Phase::new(state.duty, self.turn, why), state)
    }

    fn pause(&self, state: TrackingState) -> (Phase, TrackingState) {
        let (step, lasts, paused) = (Step::Pause, self.shortest, self.shortest);
        let (before, work, window_s, behind) = (Vec::new(), Vec::new(), [0.0; 2], state.since);
        let (since, raised) = (Duration::ZERO, false);
        let state = TrackingState { step, lasts, before, work, window_s, paused, since, behind, raised, ..state };
        (Phase::nap(paused, Why::Baseline), state)
    }

    /// A run until a speed is known.
    fn unknown(&self, mut state: TrackingState) -> (Phase, TrackingState) {
        state.silent = SILENT;
        state.since += self.turn;
        (state.step, state.lasts) = (Step::Unknown, self.turn);
        let lasts = if self.waits(&state) { Lasts::For(self.turn) } else { Lasts::UntilKnown(self.turn) };
        (Phase { lasts, ..Phase::new(1.0, self.turn, Why::Unknown) }, state)
    }
}
