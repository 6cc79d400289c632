//! For metrics with long windows, such as a p99 over a second (ours): additive increase and multiplicative decrease of
//! the low-priority programs' duty, from a baseline that pauses measure. They run in the background, because latencies
//! suffer most when requests wait for a CPU. They run beside the high-priority programs only if the goal holds at full
//! duty, and on fewer CPUs if it does not.
//!
//! ```text
//!                           goal kept: the duty rises, up to all the time, then on all CPUs, then beside the others
//!   start ──▶ Baseline ──▶ Run ↺ missed: back to the background, then aside, then the duty falls
//!                ▲          │
//!                ├──────────┤ 60 readings, misses at the least duty, or faster than alone again and again
//!                │          ├── surely missed at a duty of 1 ───▶ Blame ──▶ Run, throttled if the pause does better;
//!                │          │                                     where the goal was kept like this, only the second time
//!                │          ├── three misses at a lower duty ───▶ Blame ──▶ Run, all the time if the pause misses as much:
//!                │          │                                     what others leave is to be kept then, and it is asked
//!                │          │                                     again ever more seldom whether they are still there
//!                │          └── more answers beyond than may be ─▶ MakeUp ↺ until they are made up for ──▶ Run
//!   Others fill the machine: in the background all the time, without any pause, until they do not any more.
//!   No speed known, in any phase: they run for a second, and it goes on as after Run. Where nothing is heard of any
//!   program any more, or none was ever known for five such seconds, they run beside the others; after five, the speed
//!   alone is measured anew.
//! ```

mod baseline;
mod blame;

use crate::qos::phase::{Behind, Excess, Figure, Held, Lasts, Phase, PhaseResult, Why};
use blame::{Blame, DOUBT, FASTER, is_default, slowest};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Run time of low-priority programs while nothing is known.
const UNKNOWN: Duration = Duration::from_secs(1);

/// Without any known speed, this many such runs are in the background, then beside the others; after a longer silence
/// of a program, its speed alone is dropped.
const UNKNOWNS: u32 = 5;

/// The duty below which misses question the baseline: low-priority programs run too little to be the cause.
const HARDLY: f64 = 0.05;

/// Readings in the background, at a duty of 1 and above the goal, until more is tried again: doubled after each
/// failure.
const WAIT: [u32; 2] = [4, 64];

/// Low-priority programs that get this fraction of their wanted CPU time in the background do not run beside the
/// others: the rest belongs to these. Beside an open queue at 60 % of the server's capacity, one such trial makes
/// hundreds of requests wait.
const ENOUGH: f64 = 0.1;

/// Low-priority programs that get this fraction aside gain nothing elsewhere.
const ALL: f64 = 0.9;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Fraction (0–1, exclusive) of its speed alone that a program should keep. Speeds are inverse latencies, so 0.9
    /// allows a latency of baseline / 0.9.
    pub goal: f64,
    /// The first duty, 0–1.
    pub first: f64,
    /// The least duty, above 0. A p99 holds only if fewer than a hundredth of all answers are disturbed.
    pub least: f64,
    /// Increase of the duty while the goal holds, at most half of the duty.
    pub increase: f64,
    /// Factor for the duty on a miss, 0–1, exclusive; the first miss halves, because the duty was doubled before.
    pub decrease: f64,
    /// Up to this fraction above the goal, the duty stays.
    pub hold: f64,
    /// Readings of a pause.
    #[serde(alias = "first_baseline")]
    pub baseline: u32,
    /// Readings between two pauses.
    pub between_baselines: u32,
}

/// State.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct SteadyState {
    /// Speed alone of each program.
    pub(super) baseline: Vec<Option<f64>>,
    /// The requested duty.
    duty: f64,
    /// Whether the last phase was a pause for the baseline.
    pause: bool,
    /// No goal was missed yet: the duty doubles.
    doubling: bool,
    /// Readings since the last pause.
    since: u32,
    /// Misses in a row.
    #[serde(default)]
    misses: u32,
    /// Misses in a row at a duty that questions the baseline.
    missed: u32,
    /// After a miss: a pause checks whether they are the cause, and this is the duty if so; with the number of answers
    /// beyond the goal.
    #[serde(default)]
    accused: Option<(f64, Option<Excess>)>,
    /// Knowledge about others that make it slow.
    #[serde(default, skip_serializing_if = "is_default")]
    blame: Blame,
    /// Pauses since the measurement of the speed alone that missed the goal as well.
    #[serde(default)]
    slow: u32,
    /// The duty before a trial at full duty.
    #[serde(default)]
    before: Option<f64>,
    /// Readings in a row that were faster than the baseline.
    #[serde(default)]
    faster: u32,
    /// Pauses in a row that were made for such readings and did not confirm them.
    #[serde(default)]
    unconfirmed: u32,
    /// The figures of the bad moment whose cause the current pause checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accused_by: Option<Held>,
    /// Whether they run beside the others, not in the background.
    #[serde(default)]
    beside: bool,
    /// Whether they run away from the others, on fewer CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aside: bool,
    /// Readings until the next trial, and the full number.
    #[serde(default)]
    wait: [u32; 2],
    /// Whether the goal held at full duty in the current place, since they last caused a miss.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    proven: bool,
    /// Answers beyond the allowed number for each program, if single ones are known.
    #[serde(default)]
    owed: Vec<f64>,
    /// Pauses in a row without a speed alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    in_vain: u32,
    /// Runs in a row without any known speed, or in silence.
    #[serde(default, skip_serializing_if = "is_zero")]
    unknown: u32,
    /// Whether the last phase was a pause that repays that.
    #[serde(default)]
    making_up: bool,
}

impl Steady {
    /// With the parameters of the tests.
    pub fn new(goal: f64) -> Self {
        Self {
            goal,
            first: 0.25,
            least: 0.01,
            increase: 0.05,
            decrease: 0.7,
            hold: 0.03,
            baseline: 3,
            between_baselines: 60,
        }
    }

    pub(super) fn start(&self) -> (Phase, SteadyState) {
        let state = SteadyState { duty: self.first, pause: true, doubling: true, ..SteadyState::default() };
        (self.pause(&state), state)
    }

    pub(super) fn next(&self, mut state: SteadyState, seen: &PhaseResult) -> (Phase, SteadyState) {
        let known = seen.is_known();
        // If the cause of waits is observed, no trial is needed.
        let theirs = (0..seen.speeds.len()).any(|high| seen.behind(high) == Some(Behind::Low));
        if seen.crowded && !theirs && (known || state.pause || state.making_up) {
            return (state.give_up(), state);
        }
        if !known {
            return Self::unknown(state, seen);
        }
        state.unknown = 0;
        self.judge(state, seen)
    }

    /// By its result.
    fn judge(&self, mut state: SteadyState, seen: &PhaseResult) -> (Phase, SteadyState) {
        if state.pause {
            state.note(seen, false);
            return self.after_pause(state, seen);
        }
        if state.making_up {
            state.note(seen, false);
            if state.is_others_doing(seen, None, true, self.goal) && self.is_missed(&state, seen) {
                state.blame.enter(true, seen);
                state.let_run(true);
            }
            self.measure_soon(&mut state);
            return self.go_on(state, Why::Hold, None);
        }
        let Some((high, speed)) = slowest(&seen.speeds, &state.reference()) else {
            // Known now, unknown in the pause: each futile pause makes the next rarer.
            state.since += 1;
            let due = state.since >> state.in_vain.min(6) > 0 || state.since >= self.between_baselines;
            return if due || state.in_vain < 2 { self.measure(state) } else { (unjudged(&state), state) };
        };
        let excess = seen.excess.get(high).copied().flatten();
        let (full, hardly) = (state.duty >= 1.0, state.duty <= HARDLY);
        let missed = speed < self.goal && !(full && excess.is_some_and(|excess| !excess.is_missed()));
        // Unseen others slow it for a second now and then, and of many readings some are slow by chance. So at full
        // duty, low-priority programs are suspected only at a second miss, or at one that cannot be chance.
        let known_others = state.is_others();
        let suspected = state.misses > 0 || excess.map_or(!known_others, |excess| excess.is_certain());
        let ample = speed >= self.goal * (1.0 + self.hold);
        state.since += 1;
        state.blame.note(seen, missed, &state.baseline, self.goal);
        let in_a_row = if missed { state.misses + 1 } else { 0 };
        let others_too = state.is_others();
        let behind = seen.behind(high).filter(|behind| missed || others_too && *behind == Behind::Others);
        if behind == Some(Behind::Others) {
            return self.others_do(state, seen, in_a_row);
        }
        let may_ask = behind.is_some() || state.before.is_some() || state.blame.may_ask(in_a_row);
        // In the background this is normal with spare CPUs: one that never idles wakes faster.
        let usual = full && !state.beside && excess.is_some();
        state.faster = if speed >= FASTER && !usual { state.faster + 1 } else { 0 };
        let far = excess.map_or(1.0, |excess| excess.seen().recip());
        let decrease = if state.doubling { 0.5 } else { self.decrease };
        let mut why = if missed && full && !(suspected && may_ask) {
            Why::Hold
        } else if missed && full {
            state.accused = Some((decrease * far, excess));
            Why::Decrease
        } else if missed && behind.is_none() && state.blame.is_doubtful(in_a_row) || state.blame.is_due() {
            // The less they run, the less they can be the cause.
            state.accused = Some((state.duty * decrease, excess));
            Why::Decrease
        } else if missed && state.beside {
            state.retreat(1.0, seen.room);
            Why::Decrease
        } else if missed {
            let far = if state.doubling || state.misses > 0 { far } else { 1.0 };
            state.duty = (state.duty * decrease.min(far)).max(self.least);
            Why::Decrease
        } else if ample && state.duty < 1.0 {
            let sure = excess.is_some_and(|excess| excess.most() <= 1.0);
            let step = if state.doubling || sure { state.duty } else { self.increase.min(state.duty / 2.0) };
            state.duty = (state.duty + step).min(1.0);
            Why::Increase
        } else {
            Why::Hold
        };
        state.note(seen, (full || state.is_others()) && state.accused.is_none());
        state.missed = if missed && hardly { state.missed + 1 } else { 0 };
        state.misses = in_a_row;
        state.doubling &= why == Why::Increase;
        if full && !missed {
            (state.before, state.proven) = (None, true);
        }
        let gains = seen.taken.is_none_or(|share| share < if state.aside { ALL } else { ENOUGH });
        // Without a background they already run beside the others.
        let gains = gains && (state.aside || !seen.no_background);
        let may = !state.beside && !state.is_others() && if full { ample && gains } else { excess.is_some() };
        let tries = may && !missed && state.wait[0] == 0;
        state.wait[0] = state.wait[0].saturating_sub(u32::from(may));
        if tries {
            self.try_more(&mut state, full, excess.is_some());
            why = Why::Increase;
        }
        // A speed alone that includes slow moments stays slower than most readings.
        let faster = (DOUBT << (2 * state.unconfirmed).min(8)).min(self.between_baselines);
        // Where harm is waiting, its causes are known, and a pause would only measure the speed later.
        let doubts = state.since >= self.between_baselines || state.missed >= DOUBT || state.faster >= faster;
        if doubts && behind.is_none() {
            return self.measure(state);
        }
        let threshold = if why == Why::Increase { self.goal * (1.0 + self.hold) } else { self.goal };
        let held = Held::new(high, if known_others { Figure::Left } else { Figure::Kept }, speed, threshold);
        if let (Some(Behind::Low), Some((duty, _))) = (behind, state.accused) {
            return self.they_do(state, seen, duty, held);
        }
        if state.accused.is_some() {
            (state.pause, state.accused_by) = (true, held);
            (state.misses, state.missed) = (0, 0);
            state.blame.ask(seen);
            return (Phase { lasts: Lasts::Readings(1), why: Why::Blame, ..self.pause(&state) }.by(held), state);
        }
        let why = if why == Why::Decrease && behind == Some(Behind::Low) { Why::Waits } else { why };
        self.go_on(state, why, held)
    }

    /// No speed is known.
    fn unknown(mut state: SteadyState, seen: &PhaseResult) -> (Phase, SteadyState) {
        state.in_vain = state.in_vain.saturating_add(u32::from(state.pause));
        (state.pause, state.accused, state.making_up) = (false, None, false);
        let never = state.baseline.iter().all(Option::is_none);
        state.unknown = state.unknown.saturating_add(u32::from(never || seen.is_silent()));
        let let_go = state.unknown > UNKNOWNS || seen.is_silent() && !never;
        if seen.is_silent() {
            state.owed.clear();
        }
        if state.unknown > UNKNOWNS {
            // A service may have changed by its next report.
            (state.baseline, state.blame) = (Vec::new(), Blame::default());
        }
        let (background, aside) = (!state.beside && !let_go, state.aside && !let_go);
        (Phase { background, aside, ..Phase::new(1.0, UNKNOWN, Why::Unknown) }, state)
    }

    /// It waits for a CPU behind others: no pause is needed to find that out, and low-priority programs run on.
    fn others_do(&self, mut state: SteadyState, seen: &PhaseResult, misses: u32) -> (Phase, SteadyState) {
        state.note(seen, true);
        state.misses = misses;
        state.blame.enter(true, seen);
        state.let_run(true);
        self.go_on(state, Why::Hold, None)
    }

    /// It waits for a CPU behind low-priority programs, likewise.
    fn they_do(
        &self,
        mut state: SteadyState,
        seen: &PhaseResult,
        duty: f64,
        held: Option<Held>,
    ) -> (Phase, SteadyState) {
        (state.accused, state.proven) = (None, false);
        state.blame.enter(false, seen);
        state.let_run(false);
        self.throttle(&mut state, duty, seen.room);
        self.go_on(state, Why::Waits, held)
    }

    /// They made it slow: back to the background if they ran beside the others, otherwise this duty.
    fn throttle(&self, state: &mut SteadyState, duty: f64, room: bool) {
        if state.duty >= 1.0 || state.beside {
            let before = state.before.take();
            state.retreat(before.unwrap_or(duty).max(self.least), room);
        } else {
            state.duty = duty.max(self.least);
        }
    }

    /// The decision, after the debt is repaid.
    fn go_on(&self, mut state: SteadyState, why: Why, held: Option<Held>) -> (Phase, SteadyState) {
        if state.is_others() {
            state.owed.clear(); // the cause of that is unknown
        }
        state.making_up = state.owed.iter().any(|owed| *owed > 0.0);
        let pause = Phase { lasts: Lasts::Readings(1), why: Why::MakeUp, ..self.pause(&state) };
        (if state.making_up { pause } else { together(&state, why) }.by(held), state)
    }

    /// Full time in the background, then on all CPUs, then beside the others: at once if single answers soon show an
    /// excess, otherwise by steps.
    fn try_more(&self, state: &mut SteadyState, full: bool, told: bool) {
        state.proven = false;
        if full && std::mem::take(&mut state.aside) {
            state.wait[0] = state.wait[1];
        } else if full {
            state.beside = true;
            (state.doubling, state.duty) = if told { (false, 1.0) } else { (true, self.first) };
        } else {
            state.before = Some(std::mem::replace(&mut state.duty, 1.0));
        }
    }

    fn after_pause(&self, mut state: SteadyState, seen: &PhaseResult) -> (Phase, SteadyState) {
        state.pause = false;
        let held = state.accused_by.take();
        let (why, held) = if let Some((duty, trial)) = state.accused.take() {
            // The pause was made because of a bad moment: it says nothing about the speed alone at other times.
            let as_slow = state.blame.is_as_slow(seen);
            let others = state.is_others_doing(seen, trial, as_slow, self.goal);
            let full = state.duty >= 1.0;
            state.blame.enter(self.is_missed(&state, seen), seen);
            state.let_run(others);
            self.measure_soon(&mut state);
            if others && state.beside && !as_slow {
                // Others miss the goal without them, and it is even slower with them: the background takes only what
                // others leave.
                state.retreat(1.0, seen.room);
                (Why::Decrease, held)
            } else if others && state.duty >= 1.0 {
                (Why::Hold, None)
            } else if full && std::mem::take(&mut state.proven) && trial.is_some() {
                // A moment made slow by others may have ended just before the pause; if not, single answers soon show
                // it.
                (Why::Hold, held)
            } else {
                self.throttle(&mut state, duty, seen.room);
                (Why::Decrease, held)
            }
        } else {
            // Single answers are known, and soon show an excess.
            if state.baseline.is_empty() && seen.excess.iter().any(Option::is_some) {
                state.duty = 1.0;
            }
            state.measured(seen);
            state.blame.enter(self.is_missed(&state, seen), seen);
            (if state.doubling { Why::Increase } else { Why::Hold }, None)
        };
        self.go_on(state, why, held)
    }

    /// Whether a pause misses the goal: certainly so if few answers are known, unless a miss is expected.
    fn is_missed(&self, state: &SteadyState, seen: &PhaseResult) -> bool {
        let is_sure = |high: usize| {
            state.is_others() || seen.excess.get(high).copied().flatten().is_none_or(|excess| excess.is_alarming())
        };
        let missed = |(high, share): (usize, f64)| share < self.goal && is_sure(high);
        slowest(&seen.speeds, &state.baseline).is_some_and(missed)
    }

    /// If the goal is missed even in pauses, the speed alone may be out of date: it is measured again soon.
    fn measure_soon(&self, state: &mut SteadyState) {
        if state.slow >= DOUBT {
            state.since = self.between_baselines;
        }
    }

    fn measure(&self, state: SteadyState) -> (Phase, SteadyState) {
        (self.pause(&state), SteadyState { pause: true, since: 0, missed: 0, accused: None, ..state })
    }

    fn pause(&self, state: &SteadyState) -> Phase {
        Phase { duty: 0.0, lasts: Lasts::Readings(self.baseline), ..together(state, Why::Baseline) }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // required by serde
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Without a comparison, no program is throttled for a speed.
fn unjudged(state: &SteadyState) -> Phase {
    Phase { duty: 1.0, ..together(state, Why::Unknown) }
}

fn together(state: &SteadyState, why: Why) -> Phase {
    let SteadyState { duty, beside, aside, .. } = *state;
    let why = if why == Why::Hold && state.is_others() { Why::Others } else { why };
    Phase { duty, lasts: Lasts::Readings(1), why, held: None, background: !beside, aside }
}
