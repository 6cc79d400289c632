//! Controllers that keep a high-priority program at its goal by letting low-priority programs nap (Tang, chapter 6: Reactive-Niceness).
//!
//! A controller is a pure state machine over *phases*: it says what the low-priority programs do next and for how long, is told how fast the
//! high-priority programs were meanwhile, and says what comes then. Who carries the phases out is the host's affair.

mod simple;
mod steady;
mod targeted;
mod tracking;

pub use simple::Simple;
pub use steady::{Steady, SteadyState};
pub use targeted::{Targeted, TargetedState};
pub use tracking::{Tracking, TrackingState};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// No nap that a controller asks for is longer, but for pauses that measure, which are ordered in pieces of at most this.
pub const LONGEST_NAP: Duration = Duration::from_millis(200);

/// So many standard deviations from what may be chance are told from it.
const SURE: f64 = 2.0;

/// So many answers beyond the goal are no chance among a few dozen.
const ALARMING: f64 = 3.0;

/// What the low-priority programs do for some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Share of the time in which they run: 0 = they nap, 1 = they run, between = both in quick turns.
    pub duty: f64,
    /// For how long.
    pub lasts: Lasts,
    /// Why.
    pub why: Why,
    /// Whether they run only where nobody else wants the CPU, as far as that can be had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// The figures that decided, where any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

/// A figure of a high-priority program, and what it was held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Whose, by its place.
    pub high: usize,
    /// What.
    pub figure: Figure,
    /// The figure.
    pub value: f64,
    /// The threshold.
    pub threshold: f64,
}

/// What is held against a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// A speed.
    Speed,
    /// The share of its speed alone that was kept.
    Kept,
    /// The share of its speed alone that was lost.
    Lost,
}

impl Held {
    /// `None` where one is no finite number, which recordings do not hold.
    fn new(high: usize, figure: Figure, value: f64, threshold: f64) -> Option<Self> {
        (value.is_finite() && threshold.is_finite()).then_some(Self { high, figure, value, threshold })
    }
}

impl fmt::Display for Held {
    /// `{app} kept 0.871 of its speed alone < 0.900`, with the program's place left to who knows its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, value, threshold, .. } = *self;
        let relation = if value < threshold { '<' } else { '≥' };
        match figure {
            Figure::Speed => write!(f, "{{app}} had a speed of {value:.3e} {relation} {threshold:.3e}"),
            Figure::Kept => write!(f, "{{app}} kept {value:.3} of its speed alone {relation} {threshold:.3}"),
            Figure::Lost => write!(f, "{{app}} lost {value:.3} of its speed alone {relation} {threshold:.3}"),
        }
    }
}

impl Phase {
    /// The same with the figures that decided.
    fn by(self, held: Option<Held>) -> Self {
        Self { held, ..self }
    }
}

/// How long a phase lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    /// So long.
    For(Duration),
    /// So long at most, and only until a speed is known.
    UntilKnown(Duration),
    /// Until the metric has been read so many times about this phase alone.
    Readings(u32),
}

/// Why a phase is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The speed alone is measured.
    Baseline,
    /// A pause that tells whether those who ran are to blame for a miss.
    Blame,
    /// A pause that makes up for answers beyond the goal.
    MakeUp,
    /// Contention is looked for: a short nap, then a short run.
    Check,
    /// Nothing is wrong.
    Fine,
    /// Naps keep the goal.
    Contention,
    /// Between naps.
    Between,
    /// The speed is not known: nobody is made to nap for it.
    Unknown,
    /// More is tried.
    Increase,
    /// The goal was missed.
    Decrease,
    /// At the goal.
    Hold,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Baseline => "a pause that measures the speed alone",
            Self::Blame => "a pause that tells whose doing that is",
            Self::MakeUp => "a pause that makes up for what was beyond the goal",
            Self::Check => "looks for contention",
            Self::Fine => "no contention",
            Self::Contention => "contention",
            Self::Between => "runs between naps",
            Self::Unknown => "the speed is not known",
            Self::Increase => "above the goal, more is tried",
            Self::Decrease => "below the goal",
            Self::Hold => "at the goal",
        })
    }
}

/// Single latencies tell more than their quantile does: how many are beyond what is the goal for it, over how many may be. While few are
/// disturbed, that is in proportion to the time in which somebody disturbs them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excess {
    /// As it was seen; 1 is at the goal.
    pub seen: f64,
    /// So many were beyond it.
    beyond: f64,
    /// So many times the standard deviation it is from the goal.
    deviations: f64,
    /// At most, given how few were seen.
    pub most: f64,
    /// So many more than may be were beyond it; below 0: fewer.
    pub over: f64,
}

impl Excess {
    /// Where `beyond` of `count` latencies are beyond what is the goal for their quantile `q` (0–1).
    pub fn of(beyond: f64, count: u64, q: f64) -> Self {
        let may = (1.0 - q) * count as f64;
        // A count of k is up to k + 1 + 2 √(k + 1) at nearly 95 %: exactly 3.0, 4.7, 6.3, 7.8 for k = 0, 1, 2, 3 (Poisson, one-sided).
        let most = beyond + 1.0 + SURE * (beyond + 1.0).sqrt();
        Self {
            seen: beyond / may,
            beyond,
            deviations: (beyond - may).abs() / (q * may).sqrt(),
            most: most / may,
            over: beyond - may,
        }
    }

    /// Whether it is told on which side of the goal that is.
    pub fn is_sure(&self) -> bool {
        self.deviations >= SURE
    }

    /// Whether that is no chance, though it was asked again and again: square roots of counts have a deviation of a half, however many there are.
    pub fn is_alarming(&self) -> bool {
        self.beyond >= ALARMING && 2.0 * (self.beyond.sqrt() - (self.beyond / self.seen).sqrt()) >= 1.3 * SURE
    }

    /// Whether surely a larger share of the answers is beyond it than in `other`, where some were: by the square roots of both shares.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        let variance = |excess: &Self| 0.25 * excess.seen / excess.beyond.max(1.0);
        self.seen.sqrt() - other.seen.sqrt() >= SURE * (variance(self) + variance(other)).sqrt()
    }

    /// Whether it is likely enough that the goal is kept, where it would soon be seen that it is not.
    pub fn is_likely_kept(&self) -> bool {
        self.seen <= 0.5
    }
}

/// How a phase went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Mean speed of each high-priority program in it, higher is better, in any unit; `None` where nothing is known.
    pub speeds: Vec<Option<f64>>,
    /// The same by all that was counted in it, however coarsely: nothing is lost between one phase and the next.
    pub counted: Vec<Option<f64>>,
    /// How far each is from its goal, where single latencies tell that.
    pub excess: Vec<Option<Excess>>,
    /// The speed alone by all pauses so far, where single latencies tell that, and this was one.
    pub alone: Vec<Option<f64>>,
    /// How far apart batches of progress are, where the phase told that; the longest of all programs.
    pub grain: Option<Duration>,
}

impl Seen {
    /// Of one program.
    pub fn one(speed: f64) -> Self {
        Self::of(vec![Some(speed)])
    }

    /// Of several.
    pub fn of(speeds: Vec<Option<f64>>) -> Self {
        Self { counted: speeds.clone(), speeds, ..Self::default() }
    }
}

/// A controller with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Naps by thresholds of the speed (Algorithm 4).
    Simple(Simple),
    /// Naps by the difference that they make (Algorithm 5).
    Targeted(Targeted),
    /// A duty that follows what whole turns come to (ours).
    Tracking(Tracking),
    /// For metrics with long windows (ours).
    Steady(Steady),
}

/// What a controller remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Of `simple`: whether the last phase was a run.
    Simple(bool),
    /// Of `targeted`.
    Targeted(TargetedState),
    /// Of `tracking`.
    Tracking(TrackingState),
    /// Of `steady`.
    Steady(SteadyState),
}

/// Names that [`Controller::preset`] knows: the six configurations of tables 6.1 and 6.2, and ours.
pub const PRESETS: [&str; 9] = [
    "utilisation-biased",
    "balanced",
    "qos-biased",
    "conservative-90",
    "relaxed-90",
    "conservative-80",
    "targeted",
    "tracking",
    "steady",
];

impl Controller {
    /// The controller of that name. `goal` (0–1, exclusive) is that of `targeted`, `tracking` and `steady`; the paper's presets bring theirs along.
    pub fn preset(name: &str, goal: f64) -> Option<Self> {
        let ms = Duration::from_millis;
        Some(match name {
            "utilisation-biased" => Self::Simple(Simple::new(0.5, 1.0, [2.0, 1.0, 0.0])),
            "balanced" => Self::Simple(Simple::new(0.8, 1.5, [2.0, 1.0, 0.0])),
            "qos-biased" => Self::Simple(Simple::new(0.5, 1.0, [3.0, 2.0, 1.0])),
            "conservative-90" => Self::Targeted(Targeted::paper(0.9, 0.4, ms(6))),
            "relaxed-90" => Self::Targeted(Targeted::paper(0.9, 1.0, ms(12))),
            "conservative-80" => Self::Targeted(Targeted::paper(0.8, 0.4, ms(9))),
            "targeted" => Self::Targeted(Targeted::new(goal)),
            "tracking" => Self::Tracking(Tracking::new(goal)),
            "steady" => Self::Steady(Steady::new(goal)),
            _ => return None,
        })
    }

    /// The share of its speed alone that a program is to keep; `None` for `simple`, which has no such goal.
    pub fn goal(&self) -> Option<f64> {
        match self {
            Self::Simple(_) => None,
            Self::Targeted(targeted) => Some(targeted.goal),
            Self::Tracking(tracking) => Some(tracking.goal),
            Self::Steady(steady) => Some(steady.goal),
        }
    }

    /// Whether it goes by whole turns, of which nothing may be left out.
    pub fn counts_all(&self) -> bool {
        matches!(self, Self::Tracking(_))
    }

    /// Whether it asks for duties, which limits of CPU time keep as well as naps do.
    pub fn keeps_duties(&self) -> bool {
        self.least_duty().is_some()
    }

    /// The least duty that it asks for besides pauses, 0–1; `None` where it asks for naps, not for duties.
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
            Self::Simple(simple) => (simple.run(), State::Simple(true)),
            Self::Targeted(targeted) => {
                let (phase, state) = targeted.start();
                (phase, State::Targeted(state))
            }
            Self::Tracking(tracking) => {
                let (phase, state) = tracking.start();
                (phase, State::Tracking(state))
            }
            Self::Steady(steady) => {
                let (phase, state) = steady.start();
                (phase, State::Steady(state))
            }
        }
    }

    /// The phase after one that went as `seen`. A state that is another controller's counts as none.
    pub fn next(&self, state: State, seen: &Seen) -> (Phase, State) {
        match (self, state) {
            (Self::Simple(simple), State::Simple(ran)) => {
                let phase = if ran { simple.after_run(seen) } else { simple.run() };
                let runs = phase.duty > 0.0;
                (phase, State::Simple(runs))
            }
            (Self::Targeted(targeted), State::Targeted(state)) => {
                let (phase, state) = targeted.next(state, seen);
                (phase, State::Targeted(state))
            }
            (Self::Tracking(tracking), State::Tracking(state)) => {
                let (phase, state) = tracking.next(state, seen);
                (phase, State::Tracking(state))
            }
            (Self::Steady(steady), State::Steady(state)) => {
                let (phase, state) = steady.next(state, seen);
                (phase, State::Steady(state))
            }
            _ => self.start(),
        }
    }
}

impl State {
    /// The speed alone of each program, where the controller keeps one; else the last naps tell.
    pub fn alone(&self) -> Option<&[Option<f64>]> {
        match self {
            Self::Tracking(state) => Some(state.alone()),
            Self::Steady(state) => Some(state.alone()),
            Self::Simple(_) | Self::Targeted(_) => None,
        }
    }
}

/// A phase of fixed length.
fn phase(duty: f64, lasts: Duration, why: Why) -> Phase {
    Phase { duty, lasts: Lasts::For(lasts), why, held: None, background: false }
}

/// A nap, cut to the longest that is allowed.
fn nap(lasts: Duration, why: Why) -> Phase {
    phase(0.0, lasts.min(LONGEST_NAP), why)
}

/// A usable speed.
fn usable(speed: Option<f64>) -> Option<f64> {
    speed.filter(|speed| speed.is_finite() && *speed > 0.0)
}

#[cfg(test)]
mod tests;
