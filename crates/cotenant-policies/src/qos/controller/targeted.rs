//! Heuristic 2 (Algorithm 5): naps as long as their measured effect requires.
//!
//! Equation 6.1 with its left side inverted, `(1 − goal)/goal = (s_nap − s_exec)/s_exec · exec/(exec + nap)`, requires
//! a mean slowdown of `1/goal`: `nap = exec · (goal/(1 − goal) · Δ/(1 − Δ) − 1)` with `Δ = (s_nap − s_exec)/s_nap`. As
//! printed, a goal of 90 % would start naps only at a ten-fold slowdown. The kept speed is at least the goal, because a
//! mean of slowdowns weighs the slow part more than a mean of speeds. Algorithm 5 compares Δ with `conservative_factor
//! × QoS_goal`; only the allowed loss, `1 − goal`, makes sense there. Between that threshold and the allowed loss the
//! nap is below 0: the shortest one is taken.
//!
//! ```text
//!                                               at least the threshold
//!   start ──▶ CheckNap ──▶ CheckRun ──▶ loss Δ ───────────────────────▶ Nap ──▶ Run ──▶ loss Δ
//!                ▲                        │ below it
//!                └──────── Execute ◀──────┘ (also from everywhere else where the speed is not known)
//! ```

use crate::qos::phase::{Figure, Held, LONGEST_NAP, Phase, PhaseResult, Why, usable};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Targeted {
    /// Fraction (0–1, exclusive) of its speed alone that a program should keep.
    pub goal: f64,
    /// Fraction of the allowed loss (above 0 to 1) from which naps begin: lower is stricter.
    pub conservative_factor: f64,
    /// Run time of low-priority programs before the next check for contention.
    pub execute_period: Duration,
    /// Length of the two halves of a check, and the shortest nap.
    pub check_interval: Duration,
    /// Run time between two naps.
    pub exec: Duration,
    /// Whether the speed in *execution* also counts (ours): in the short run after a nap, caches are still warm from
    /// it, which hides part of the loss.
    pub execution_counts: bool,
    /// Weight of a new measurement, above 0 to 1; 1 is the paper's: only the last one counts.
    pub weight: f64,
    /// Whether naps follow equation 6.1; otherwise only `mean speed ≥ goal · s_nap`, `exec · (Δ/(1 − goal) − 1)` (ours,
    /// and the meaning in recordings without this key).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_slowdown: bool,
}

/// State.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetedState {
    /// The last phase.
    step: Step,
    /// Speed of each program while the others napped.
    napping: Vec<Option<f64>>,
    /// Speed of each program while the others ran.
    running: Vec<Option<f64>>,
}

/// The state of Figure 6.4, and its half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// *Execution*.
    #[default]
    Execute,
    /// *Check*, first half.
    CheckNap,
    /// *Check*, second half.
    CheckRun,
    /// *Intermittent nap*, first half.
    Nap,
    /// *Intermittent nap*, second half.
    Run,
}

impl Targeted {
    /// As in the paper: naps and runs of 2 ms, the period of its engine (`check_interval` is not given; two samples of
    /// its monitor).
    pub fn paper(goal: f64, conservative_factor: f64, execute_period: Duration) -> Self {
        let short = Duration::from_millis(2);
        Self {
            goal,
            conservative_factor,
            execute_period,
            check_interval: short,
            exec: short,
            execution_counts: false,
            weight: 1.0,
            by_slowdown: true,
        }
    }

    /// Ours, for programs that report progress in batches on noisy machines: longer phases, and a mean over several.
    pub fn new(goal: f64) -> Self {
        let ms = Duration::from_millis;
        Self {
            goal,
            conservative_factor: 0.7,
            execute_period: ms(100),
            check_interval: ms(10),
            exec: ms(10),
            execution_counts: true,
            weight: 0.3,
            by_slowdown: true,
        }
    }

    /// The same with the shortest naps that keep the goal.
    pub fn by_speed(goal: f64) -> Self {
        Self { by_slowdown: false, ..Self::new(goal) }
    }

    pub(super) fn start(&self) -> (Phase, TargetedState) {
        self.check(TargetedState::default())
    }

    pub(super) fn next(&self, mut state: TargetedState, seen: &PhaseResult) -> (Phase, TargetedState) {
        let known = seen.is_known();
        match state.step {
            // A program that has fallen silent: no nap would show its speed.
            _ if seen.is_silent() => {
                Self::step(state, Step::Execute, Phase::new(1.0, self.execute_period, Why::Unknown))
            }
            Step::Execute => {
                if self.execution_counts && known {
                    self.remember(&mut state.running, seen);
                }
                self.check(state)
            }
            _ if !known => Self::step(state, Step::Execute, Phase::new(1.0, self.execute_period, Why::Unknown)),
            Step::CheckNap => {
                self.remember(&mut state.napping, seen);
                Self::step(state, Step::CheckRun, Phase::new(1.0, self.check_interval, Why::Check))
            }
            Step::Nap => {
                self.remember(&mut state.napping, seen);
                Self::step(state, Step::Run, Phase::new(1.0, self.exec, Why::Between))
            }
            Step::CheckRun | Step::Run => {
                self.remember(&mut state.running, seen);
                let least = self.conservative_factor * (1.0 - self.goal);
                let delta = state.delta();
                let held = delta.and_then(|(high, delta)| Held::new(high, Figure::Lost, delta, least));
                let Some((_, delta)) = delta.filter(|(_, delta)| *delta >= least) else {
                    return Self::step(state, Step::Execute, Phase::new(1.0, self.execute_period, Why::Fine).by(held));
                };
                let nap = self.nap(delta).max(self.check_interval);
                Self::step(state, Step::Nap, Phase::nap(nap, Why::Contention).by(held))
            }
        }
    }

    /// The nap required by such a loss.
    fn nap(&self, delta: f64) -> Duration {
        let times = if self.by_slowdown {
            self.goal / (1.0 - self.goal) * delta / (1.0 - delta)
        } else {
            delta / (1.0 - self.goal)
        };
        Duration::try_from_secs_f64(self.exec.as_secs_f64() * (times - 1.0).max(0.0)).unwrap_or(LONGEST_NAP)
    }

    fn check(&self, state: TargetedState) -> (Phase, TargetedState) {
        Self::step(state, Step::CheckNap, Phase::nap(self.check_interval, Why::Check))
    }

    fn step(mut state: TargetedState, step: Step, phase: Phase) -> (Phase, TargetedState) {
        state.step = step;
        (phase, state)
    }

    fn remember(&self, means: &mut Vec<Option<f64>>, seen: &PhaseResult) {
        means.resize(seen.speeds.len(), None);
        for (mean, speed) in means.iter_mut().zip(&seen.speeds) {
            // A program without a speed has no earlier one either: it may have changed.
            *mean = usable(*speed).map(|speed| mean.map_or(speed, |mean| mean + self.weight * (speed - mean)));
        }
    }
}

impl TargetedState {
    /// The largest loss that running causes to any program, by its index; below 0 without a loss.
    fn delta(&self) -> Option<(usize, f64)> {
        let loss = |(high, (napping, running)): (usize, (&Option<f64>, &Option<f64>))| {
            Some((high, 1.0 - (*running)? / (*napping)?))
        };
        self.napping.iter().zip(&self.running).enumerate().filter_map(loss).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}
