//! For speeds that can be told within a fraction of a second (ours): the duty of the low-priority programs follows what
//! whole turns of running and napping come to, from a speed alone that is measured in pauses long enough for caches to
//! fill.
//!
//! `targeted` takes the speed in a nap of some milliseconds for the speed alone. A program whose data others have
//! pushed out of a cache of some MB has not got it back by then: it is as slow in a nap as in a run, no difference is
//! seen, and nothing is throttled. Here a pause goes on until the speed has stopped rising, and what naps really gain,
//! cold caches included, is in the mean over a turn.
//!
//! The promise is about the mean over everything, pauses and learning included. So it begins with a pause and a small
//! duty, and keeps [an account](account) of what was gained or lost against the goal. On a machine that gives more or
//! less from second to second, a speed alone that is seconds old is wrong, and errors do not cancel: too low a one lets
//! the others take what they like, too high a one cannot make the program faster than alone. So it is measured as often
//! as costs nothing. Progress that comes in batches is counted over as many turns as it takes to see enough of them; no
//! batch is lost between two such windows, so the account stays right.
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

/// A part of a pause that is faster than the one before by less than this share of the allowed loss is not faster.
const RISEN: f64 = 0.2;

/// A program that is faster than alone by more than this was slower when that was measured.
const TOO_FAST: f64 = 0.1;

/// A pause lasts at least this long, without and with batches of progress: noise, or the moments of the batches, spoil
/// shorter ones.
const SHORTEST_PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(400)];

/// And at most, however long the speed goes on rising.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// Without any progress for this long, and the time of four batches, nothing is known any more.
const SILENT: Duration = Duration::from_millis(500);

/// This many batches tell a speed.
const BATCHES: u32 = 20;

/// Where no naps are needed, the speed alone is measured this much less often.
const CALM: u32 = 4;

/// Where they are needed, it is measured more often, since shared machines give more and less from second to second:
/// pauses take this share of the time in which the others nap anyway.
const PAUSED: f64 = 0.5;

/// But at most this much more often.
const OFTEN: u32 = 4;

/// Pauses that told nothing make the next ones rarer: twice as rare each, up to so often.
const FAILURES: u32 = 5;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tracking {
    /// Share of its speed alone that a program is to keep, 0–1, exclusive.
    pub goal: f64,
    /// A turn of running and napping; at most the longest nap.
    pub turn: Duration,
    /// The first part of a pause; each further part is as long as all before it.
    pub shortest: Duration,
    /// Time between two pauses that measure the speed alone, at most, while others nap.
    pub between: Duration,
}

/// State.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackingState {
    step: Step,
    /// Length of the phase that goes on.
    lasts: Duration,
    /// Speed alone of each program.
    pub(super) alone: Vec<Option<f64>>,
    /// Speeds in the part of a pause before.
    before: Vec<Option<f64>>,
    /// What each program did since this was looked at last.
    work: Vec<Work>,
    /// Time since then, and of it that in which the others ran, seconds.
    window_s: [f64; 2],
    /// What the program that suffers most loses of its speed alone, over the duty; a moving mean.
    loss: Option<f64>,
    /// Seconds of its speed alone that the program that suffers most has beyond its goal.
    credit_s: f64,
    /// The duty.
    duty: f64,
    /// How long the pause has lasted.
    paused: Duration,
    /// Time since the last pause.
    since: Duration,
    /// Time without any progress.
    silent: Duration,
    /// How far apart batches of progress are.
    grain: Duration,
    /// Pauses in a row that told nothing.
    failed: u32,
    /// Time between this pause and the one before.
    #[serde(default)]
    behind: Duration,
    /// Whether a pause that was taken in doubt told what was known, and the doubt goes on.
    sure: bool,
    /// Whether the speed alone is but the least that it can be: programs have been faster beside the others since the
    /// last pause.
    #[serde(default)]
    raised: bool,
}

/// What a program did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Work {
    /// Speed × seconds.
    done: f64,
    /// Seconds of which that is known.
    seconds: f64,
}

/// What the last phase was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// A part of a pause.
    #[default]
    Pause,
    /// A turn.
    Turn,
    /// A run while the speed is not known.
    Unknown,
}

impl Tracking {
    /// With the parameters that the tests hold: turns of 200 ms, since caches of some MB take tens of milliseconds to
    /// fill, and fill once per turn.
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
            // Before it has begun, a program says nothing either.
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
                    // All have run, and somebody is to nap. A pause is a nap as well, and tells at once whether it is
                    // not only the machine that gives less.
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
        // Two looks at the duty, which batches make long ones, are between two pauses at least.
        let least = (state.grain * BATCHES * 2).clamp(self.between / OFTEN, self.between);
        state.paused.div_f64(PAUSED * (1.0 - state.duty)).clamp(least, self.between)
    }

    /// Whether the last pause told nothing, and it is too early for the next.
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

    /// A run until something is known.
    fn unknown(&self, mut state: TrackingState) -> (Phase, TrackingState) {
        state.silent = SILENT;
        state.since += self.turn;
        (state.step, state.lasts) = (Step::Unknown, self.turn);
        let lasts = if self.waits(&state) { Lasts::For(self.turn) } else { Lasts::UntilKnown(self.turn) };
        (Phase { lasts, ..Phase::new(1.0, self.turn, Why::Unknown) }, state)
    }
}
