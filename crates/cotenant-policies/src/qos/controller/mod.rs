//! Controllers that keep a high-priority program at its goal by throttling low-priority ones (Tang, chapter 6:
//! Reactive-Niceness).
//!
//! A controller is a pure state machine over [phases](super::phase): it chooses the low-priority programs' next phase
//! and its length, receives [the result](PhaseResult), and chooses the next one. It has neither clock nor machine.

mod simple;
mod steady;
mod targeted;
mod tracking;

pub use simple::Simple;
pub use steady::{Steady, SteadyState};
pub use targeted::{Targeted, TargetedState};
pub use tracking::{Tracking, TrackingState};

use super::phase::{Phase, PhaseResult};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A controller with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Naps by thresholds of the speed (Algorithm 4).
    Simple(Simple),
    /// Naps by the measured difference that they make (Algorithm 5).
    Targeted(Targeted),
    /// A duty that follows the results of whole turns (ours).
    Tracking(Tracking),
    /// For metrics with long windows (ours).
    Steady(Steady),
}

/// State of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Of `simple`: whether the last phase was a run whose speed counts, or a nap; `None`: the beginning of a run.
    Simple(Option<bool>),
    /// Of `targeted`.
    Targeted(TargetedState),
    /// Of `tracking`.
    Tracking(TrackingState),
    /// Of `steady`.
    Steady(SteadyState),
}

/// Names for [`Controller::preset`]: the six configurations of tables 6.1 and 6.2, and ours.
pub const PRESETS: [&str; 10] = [
    "utilisation-biased",
    "balanced",
    "qos-biased",
    "conservative-90",
    "relaxed-90",
    "conservative-80",
    "targeted",
    "targeted-by-speed",
    "tracking",
    "steady",
];

impl Controller {
    /// The controller of that name. `goal` (0–1, exclusive) is for `targeted`, `tracking` and `steady`; the paper's
    /// presets have their own.
    pub fn preset(name: &str, goal: f64) -> Option<Self> {
        let ms = Duration::from_millis;
        Some(match name {
            "utilisation-biased" => Self::Simple(Simple::paper(0.5, 1.0, [2.0, 1.0, 0.0])),
            "balanced" => Self::Simple(Simple::paper(0.8, 1.5, [2.0, 1.0, 0.0])),
            "qos-biased" => Self::Simple(Simple::paper(0.5, 1.0, [3.0, 2.0, 1.0])),
            "conservative-90" => Self::Targeted(Targeted::paper(0.9, 0.4, ms(6))),
            "relaxed-90" => Self::Targeted(Targeted::paper(0.9, 1.0, ms(12))),
            "conservative-80" => Self::Targeted(Targeted::paper(0.8, 0.4, ms(9))),
            "targeted" => Self::Targeted(Targeted::new(goal)),
            "targeted-by-speed" => Self::Targeted(Targeted::by_speed(goal)),
            "tracking" => Self::Tracking(Tracking::new(goal)),
            "steady" => Self::Steady(Steady::new(goal)),
            _ => return None,
        })
    }

    /// The fraction of its speed alone that a program should keep; `None` for `simple`, which has no such goal.
    pub fn goal(&self) -> Option<f64> {
        match self {
            Self::Simple(_) => None,
            Self::Targeted(targeted) => Some(targeted.goal),
            Self::Tracking(tracking) => Some(tracking.goal),
            Self::Steady(steady) => Some(steady.goal),
        }
    }

    /// Whether it measures whole turns, without exclusions.
    pub fn counts_all(&self) -> bool {
        matches!(self, Self::Tracking(_))
    }

    /// The least duty besides pauses, 0–1; `None` for controllers that order naps, not duties.
    pub fn least_duty(&self) -> Option<f64> {
        match self {
            Self::Simple(_) | Self::Targeted(_) => None,
            Self::Tracking(_) => Some(tracking::LEAST),
            Self::Steady(steady) => Some(steady.least),
        }
    }

    /// The first phase.
    pub fn start(&self) -> (Phase, State) {
        match self {
            Self::Simple(simple) => with(simple.start(), State::Simple),
            Self::Targeted(targeted) => with(targeted.start(), State::Targeted),
            Self::Tracking(tracking) => with(tracking.start(), State::Tracking),
            Self::Steady(steady) => with(steady.start(), State::Steady),
        }
    }

    /// The phase after one with the result `seen`. A state of another controller counts as none.
    pub fn next(&self, state: State, seen: &PhaseResult) -> (Phase, State) {
        match (self, state) {
            (Self::Simple(simple), State::Simple(ran)) => with(simple.next(ran, seen), State::Simple),
            (Self::Targeted(targeted), State::Targeted(state)) => with(targeted.next(state, seen), State::Targeted),
            (Self::Tracking(tracking), State::Tracking(state)) => with(tracking.next(state, seen), State::Tracking),
            (Self::Steady(steady), State::Steady(state)) => with(steady.next(state, seen), State::Steady),
            _ => self.start(),
        }
    }
}

impl State {
    /// The speed alone of each program, if the controller keeps one; otherwise the last naps give it.
    pub fn alone(&self) -> Option<&[Option<f64>]> {
        match self {
            Self::Tracking(state) => Some(&state.alone),
            Self::Steady(state) => Some(&state.baseline),
            Self::Simple(_) | Self::Targeted(_) => None,
        }
    }

    /// The reference of the goal while low-priority programs run: the speed alone, or what others leave of it.
    pub fn reference(&self) -> Option<Vec<Option<f64>>> {
        match self {
            Self::Steady(state) => Some(state.reference()),
            _ => self.alone().map(<[_]>::to_vec),
        }
    }
}

fn with<S>((phase, state): (Phase, S), of: fn(S) -> State) -> (Phase, State) {
    (phase, of(state))
}

#[cfg(test)]
mod tests;
