//! For metrics with long windows, such as a p99 over a second (ours): the duty of the low-priority programs by additive
//! increase and multiplicative decrease, from a baseline that pauses measure. They run in the background, since
//! latencies suffer most where a request has to wait for a CPU; beside the high-priority programs only where the goal
//! is kept although they run all the time, and on fewer CPUs where it is not.
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

/// How long the low-priority programs run while nothing is known.
const UNKNOWN: Duration = Duration::from_secs(1);

/// Where nothing was ever known, they run in the background for so many of these times, and beside the others then; of
/// a program that was silent for longer, the speed alone is forgotten.
const UNKNOWNS: u32 = 5;

/// The duty from which on they do so downwards: with so little there is hardly anybody left to blame.
const HARDLY: f64 = 0.05;

/// Readings in the background, at a duty of 1 and above the goal, until more is tried again: twice as many after each
/// time that it did not do.
const WAIT: [u32; 2] = [4, 64];

/// Who gets this share of the CPU time that it wants in the background does not run beside the others: all that is idle
/// it has, and what there is more to have is theirs. Beside an open queue at 60 % of what the server can answer, one
/// trial of that makes hundreds wait.
const ENOUGH: f64 = 0.1;

/// Who gets this share of it aside has nothing to gain elsewhere.
const ALL: f64 = 0.9;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Share of its speed alone that a program is to keep, 0–1, exclusive. Speeds are inverse latencies, so 0.9 allows
    /// a latency of baseline / 0.9.
    pub goal: f64,
    /// The first duty, 0–1.
    pub first: f64,
    /// The least duty, above 0. A p99 is kept only where less than a hundredth of all answers are disturbed.
    pub least: f64,
    /// Added to the duty while the goal is kept, but no more than half of it.
    pub increase: f64,
    /// The duty is multiplied by this when the goal is missed, 0–1, exclusive; the first time it is halved, as it was
    /// doubled before.
    pub decrease: f64,
    /// Up to this share above the goal, the duty stays as it is.
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
    /// The duty that is asked for.
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
    /// Misses in a row at a duty that puts the baseline in doubt.
    missed: u32,
    /// The goal was missed: a pause shows whether that is their doing, and this is the duty if it is; with how many
    /// answers were beyond the goal.
    #[serde(default)]
    accused: Option<(f64, Option<Excess>)>,
    /// What is known of others that make it slow.
    #[serde(default, skip_serializing_if = "is_default")]
    blame: Blame,
    /// Pauses since the speed alone was measured in which the goal was missed as well.
    #[serde(default)]
    slow: u32,
    /// The duty before they were let run all the time for a trial.
    #[serde(default)]
    before: Option<f64>,
    /// Readings in a row that were faster than the baseline.
    #[serde(default)]
    faster: u32,
    /// Pauses in a row that were made for such and did not confirm them.
    #[serde(default)]
    unconfirmed: u32,
    /// The figures of the bad moment for which the present pause tells whose doing it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accused_by: Option<Held>,
    /// Whether they run beside the others, not in the background.
    #[serde(default)]
    beside: bool,
    /// Whether they run away from the others, on fewer CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aside: bool,
    /// Readings until that is tried again, and as many as there were to be.
    #[serde(default)]
    wait: [u32; 2],
    /// Whether the goal was kept while they ran all the time as they do now, since they were last blamed for a miss.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    proven: bool,
    /// How many answers more than allowed were beyond the goal of each program, where single ones are known.
    #[serde(default)]
    owed: Vec<f64>,
    /// Pauses in a row that gave no speed alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    in_vain: u32,
    /// Times in a row that they ran while no speed was ever known, or nothing was heard any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    unknown: u32,
    /// Whether the last phase was a pause that makes up for that.
    #[serde(default)]
    making_up: bool,
}

impl Steady {
    /// With the parameters that the tests hold.
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
        // Where it is seen what they wait behind, nothing has to be tried.
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

    /// By how it went.
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
            // Known now, unknown in the pause: each one in vain makes the next rarer.
            state.since += 1;
            let due = state.since >> state.in_vain.min(6) > 0 || state.since >= self.between_baselines;
            return if due || state.in_vain < 2 { self.measure(state) } else { (unjudged(&state), state) };
        };
        let excess = seen.excess.get(high).copied().flatten();
        let (full, hardly) = (state.duty >= 1.0, state.duty <= HARDLY);
        let missed = speed < self.goal && !(full && excess.is_some_and(|excess| !excess.is_missed()));
        // Others that nobody here sees make it slow for a second now and then, and of many readings some are slow by
        // chance: who runs all the time is suspected by a second one, or by one that is no chance at all.
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
        // In the background that is usual where CPUs are to spare: one that never idles wakes sooner.
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
            // The less they run the less it can be their doing.
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
        // Without a background they are beside the others already.
        let gains = gains && (state.aside || !seen.no_background);
        let may = !state.beside && !state.is_others() && if full { ample && gains } else { excess.is_some() };
        let tries = may && !missed && state.wait[0] == 0;
        state.wait[0] = state.wait[0].saturating_sub(u32::from(may));
        if tries {
            self.try_more(&mut state, full, excess.is_some());
            why = Why::Increase;
        }
        // A speed alone that has slow moments in it stays slower than most readings.
        let faster = (DOUBT << (2 * state.unconfirmed).min(8)).min(self.between_baselines);
        if state.since >= self.between_baselines || state.missed >= DOUBT || state.faster >= faster {
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
            // A service that reports again may be another by then.
            (state.baseline, state.blame) = (Vec::new(), Blame::default());
        }
        let (background, aside) = (!state.beside && !let_go, state.aside && !let_go);
        (Phase { background, aside, ..Phase::new(1.0, UNKNOWN, Why::Unknown) }, state)
    }

    /// What it waits for a CPU behind is others' doing: no pause is needed to find that out, and they run on.
    fn others_do(&self, mut state: SteadyState, seen: &PhaseResult, misses: u32) -> (Phase, SteadyState) {
        state.note(seen, true);
        state.misses = misses;
        state.blame.enter(true, seen);
        state.let_run(true);
        self.go_on(state, Why::Hold, None)
    }

    /// What it waits for a CPU behind is theirs, likewise.
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

    /// They made it slow: in the background again where they were beside the others, else this duty.
    fn throttle(&self, state: &mut SteadyState, duty: f64, room: bool) {
        if state.duty >= 1.0 || state.beside {
            let before = state.before.take();
            state.retreat(before.unwrap_or(duty).max(self.least), room);
        } else {
            state.duty = duty.max(self.least);
        }
    }

    /// What was decided, once what is owed is made up for.
    fn go_on(&self, mut state: SteadyState, why: Why, held: Option<Held>) -> (Phase, SteadyState) {
        if state.is_others() {
            state.owed.clear(); // whose doing that was is unknown
        }
        state.making_up = state.owed.iter().any(|owed| *owed > 0.0);
        let pause = Phase { lasts: Lasts::Readings(1), why: Why::MakeUp, ..self.pause(&state) };
        (if state.making_up { pause } else { together(&state, why) }.by(held), state)
    }

    /// All the time in the background, then on all CPUs, then beside the others: where single answers soon tell that it
    /// is too much, at once, else by steps.
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
            // The pause was made because the moment was bad: it tells nothing of the speed alone at other times.
            let as_slow = state.blame.is_as_slow(seen);
            let others = state.is_others_doing(seen, trial, as_slow, self.goal);
            let full = state.duty >= 1.0;
            state.blame.enter(self.is_missed(&state, seen), seen);
            state.let_run(others);
            self.measure_soon(&mut state);
            if others && state.beside && !as_slow {
                // Others miss the goal without them, and it is slower yet with them: the background takes only what
                // others leave.
                state.retreat(1.0, seen.room);
                (Why::Decrease, held)
            } else if others && state.duty >= 1.0 {
                (Why::Hold, None)
            } else if full && std::mem::take(&mut state.proven) && trial.is_some() {
                // A moment that somebody else made slow may have ended just before the pause; if not, single answers
                // soon tell.
                (Why::Hold, held)
            } else {
                self.throttle(&mut state, duty, seen.room);
                (Why::Decrease, held)
            }
        } else {
            // Single answers are known, and will soon tell where that is too much.
            if state.baseline.is_empty() && seen.excess.iter().any(Option::is_some) {
                state.duty = 1.0;
            }
            state.measured(seen);
            state.blame.enter(self.is_missed(&state, seen), seen);
            (if state.doubling { Why::Increase } else { Why::Hold }, None)
        };
        self.go_on(state, why, held)
    }

    /// Whether the goal is missed in a pause: where few answers tell that, surely so, unless that is expected.
    fn is_missed(&self, state: &SteadyState, seen: &PhaseResult) -> bool {
        let is_sure = |high: usize| {
            state.is_others() || seen.excess.get(high).copied().flatten().is_none_or(|excess| excess.is_alarming())
        };
        let missed = |(high, share): (usize, f64)| share < self.goal && is_sure(high);
        slowest(&seen.speeds, &state.baseline).is_some_and(missed)
    }

    /// Pauses that missed the goal as well put the speed alone in doubt.
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

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde asks
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Nothing is throttled for a speed that cannot be compared.
fn unjudged(state: &SteadyState) -> Phase {
    Phase { duty: 1.0, ..together(state, Why::Unknown) }
}

fn together(state: &SteadyState, why: Why) -> Phase {
    let SteadyState { duty, beside, aside, .. } = *state;
    let why = if why == Why::Hold && state.is_others() { Why::Others } else { why };
    Phase { duty, lasts: Lasts::Readings(1), why, held: None, background: !beside, aside }
}
