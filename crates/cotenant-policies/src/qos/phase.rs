//! The words between measurement, controllers and actuation: a [`Phase`] is the low-priority programs' next behaviour
//! with its length and reason; [`Seen`] is its result.

use cotenant_model::number;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The longest nap. Only measuring pauses are longer, and are ordered in pieces of at most this.
pub const LONGEST_NAP: Duration = Duration::from_millis(200);

/// Differences of this many standard deviations are not chance.
const SURE: f64 = 2.0;

/// This many answers beyond the goal are no chance among a few dozen.
const ALARMING: f64 = 3.0;

/// With this many allowed beyond a quantile, those beyond it suffice without older answers.
pub(super) const MANY: f64 = 10.0;

/// Behaviour of the low-priority programs for some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Fraction of time in which they run: 0 = nap, 1 = run, between = both in quick turns.
    pub duty: f64,
    /// Its duration.
    pub lasts: Lasts,
    /// Why.
    pub why: Why,
    /// Whether they run in the background: only on otherwise idle CPUs, as far as the kernel supports that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Whether they run away from the high-priority programs, as far as there is room; only `steady` requests it
    /// itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aside: bool,
    /// The deciding figures, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

impl Phase {
    /// A phase of fixed length.
    pub(super) fn new(duty: f64, lasts: Duration, why: Why) -> Self {
        Self { duty, lasts: Lasts::For(lasts), why, held: None, background: false, aside: false }
    }

    /// A nap, cut to the longest allowed.
    pub(super) fn nap(lasts: Duration, why: Why) -> Self {
        Self::new(0.0, lasts.min(LONGEST_NAP), why)
    }

    /// Whether its reason is an unknown speed.
    pub(super) fn is_blind(&self) -> bool {
        matches!(self.why, Why::Unknown | Why::Silent)
    }

    /// The same with the deciding figures.
    pub(super) fn by(self, held: Option<Held>) -> Self {
        Self { held, ..self }
    }

    /// These figures as the beginning of a reason.
    pub(super) fn figures(&self) -> String {
        self.held.map_or_else(String::new, |held| format!("{held}; "))
    }
}

/// A figure of a high-priority program, with its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The program's index among those of high priority.
    pub high: usize,
    /// The kind of figure.
    pub figure: Figure,
    /// The figure.
    pub value: f64,
    /// The threshold.
    pub threshold: f64,
}

/// What is compared with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// A speed.
    Speed,
    /// The fraction of its speed alone that a program kept.
    Kept,
    /// The fraction of its speed alone that it lost.
    Lost,
    /// The fraction kept of what others leave of its speed alone.
    Left,
}

impl Held {
    /// `None` for a non-finite number, which recordings cannot hold.
    pub(super) fn new(high: usize, figure: Figure, value: f64, threshold: f64) -> Option<Self> {
        (value.is_finite() && threshold.is_finite()).then_some(Self { high, figure, value, threshold })
    }
}

impl fmt::Display for Held {
    /// `{app} kept 87.1 % of its speed alone < 90.0 %`: the reader of a reason fills in the program's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, value, threshold, .. } = *self;
        let relation = if value < threshold { '<' } else { '≥' };
        let [value, threshold] = number::apart([value, threshold], 3, |value, digits| match figure {
            Figure::Speed => number::significant(value, digits + 1),
            _ => format!("{:.*} %", digits.saturating_sub(2), value * 100.0),
        });
        match figure {
            Figure::Speed => write!(f, "{{app}} had a speed of {value} {relation} {threshold}"),
            Figure::Kept => write!(f, "{{app}} kept {value} of its speed alone {relation} {threshold}"),
            Figure::Left => {
                write!(f, "{{app}} kept {value} of what others leave of its speed alone {relation} {threshold}")
            }
            Figure::Lost => write!(f, "{{app}} lost {value} of its speed alone {relation} {threshold}"),
        }
    }
}

/// Duration of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    /// This long.
    For(Duration),
    /// At most this long, and only until a speed is known.
    UntilKnown(Duration),
    /// Until the source has been read this many times for this phase alone.
    Readings(u32),
}

/// Reason of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The speed alone is measured.
    Baseline,
    /// A pause that checks whether low-priority programs caused a miss.
    Blame,
    /// A pause that repays answers beyond the goal.
    MakeUp,
    /// A check for contention: a short nap, then a short run.
    Check,
    /// No contention.
    Fine,
    /// Naps keep the goal.
    Contention,
    /// Between naps.
    Between,
    /// Unknown speed, for which nothing is throttled.
    Unknown,
    /// Unknown for so long that the last known speed is outdated.
    Silent,
    /// A higher duty is tried.
    Increase,
    /// The goal was missed.
    Decrease,
    /// The goal was missed, and the waits for a CPU were behind low-priority programs.
    Waits,
    /// At the goal.
    Hold,
    /// The goal is missed in a pause too, or the waits for a CPU are behind others.
    Others,
    /// Others use nearly all of the machine.
    Crowded,
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
            Self::Silent => "no reading comes any more",
            Self::Increase => "above the goal, more is tried",
            Self::Decrease => "below the goal",
            Self::Waits => "below the goal, it waits for a CPU behind the low-priority programs",
            Self::Hold => "at the goal",
            Self::Others => "others make it slow, not the low-priority programs",
            Self::Crowded => "others fill the machine, so that no pause would tell anything",
        })
    }
}

/// Result of a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseResult {
    /// Mean speed of each high-priority program in it, higher is better, in any unit; `None` if unknown.
    pub speeds: Vec<Option<f64>>,
    /// The same as measured; programs with goals of their own are converted to the controller's goal.
    pub measured: Vec<Option<f64>>,
    /// The same by everything counted in it, however coarsely: nothing is lost between phases.
    pub counted: Vec<Option<f64>>,
    /// Distance of each from its goal, if single latencies show it.
    pub excess: Vec<Option<Excess>>,
    /// The speed alone over all pauses so far, if single latencies show it and this was a pause.
    pub alone: Vec<Option<f64>>,
    /// Fraction of the wanted CPU time that low-priority programs got.
    pub taken: Option<f64>,
    /// Whether they can go aside.
    pub room: bool,
    /// Whether there is no background class: they run beside the others all the time.
    pub no_background: bool,
    /// Whether others, and the high-priority programs, fill the machine.
    pub crowded: bool,
    /// Time between two batches of progress, if the phase showed it; the longest of all programs.
    pub grain: Option<Duration>,
    /// Whether each has been silent for long.
    pub silent: Vec<bool>,
    /// Causes of each one's waits for a CPU; `None` if the kernel does not show them.
    pub waited: Vec<Option<Waited>>,
}

/// Waits of a high-priority program for a CPU, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    /// Observed seconds.
    pub of_s: f64,
    /// Waits behind low-priority programs.
    pub low_s: f64,
    /// Waits behind other programs, the kernel and the host.
    pub others_s: f64,
}

/// The cause of a high-priority program's waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The low-priority programs.
    Low,
    /// Others.
    Others,
}

/// Seconds of waiting per second that may lengthen latencies: 1 ms each second. Less is normal for CPU wake-ups.
const HARMFUL: f64 = 1e-3;

/// Fractions of the waits: from the first on low-priority programs are the cause, below the second they are not.
const THEIRS: f64 = 0.5;
pub(super) const NOT_THEIRS: f64 = 0.1;

impl Waited {
    /// The certain cause of its waits.
    fn behind(&self) -> Option<Behind> {
        let all = self.low_s + self.others_s;
        let share = self.low_s / all;
        let harmful = |seconds: f64| seconds >= HARMFUL * self.of_s;
        match () {
            () if harmful(self.low_s) && share >= THEIRS => Some(Behind::Low),
            () if harmful(self.others_s) && share < NOT_THEIRS => Some(Behind::Others),
            () => None,
        }
    }
}

impl PhaseResult {
    /// Whether the speed of any program is known.
    pub(super) fn is_known(&self) -> bool {
        self.speeds.iter().any(|speed| usable(*speed).is_some())
    }

    /// The certain cause of waits for a CPU of a program, by its index.
    pub(super) fn behind(&self, high: usize) -> Option<Behind> {
        self.waited.get(high).copied().flatten()?.behind()
    }

    /// Whether all programs have been silent for long.
    pub(super) fn is_silent(&self) -> bool {
        !self.silent.is_empty() && self.silent.iter().all(|silent| *silent)
    }
}

/// A usable speed.
pub(super) fn usable(speed: Option<f64>) -> Option<f64> {
    speed.filter(|speed| cotenant_model::speed::usable(*speed))
}

/// Number of latencies beyond the goal for their quantile, against the allowed number. Single latencies are more
/// precise than their quantile: while few are disturbed, their number is proportional to the time of disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excess {
    /// Number beyond it.
    beyond: f64,
    /// Allowed number.
    may: f64,
    /// Distance from the goal, in standard deviations.
    deviations: f64,
    /// Certain excess over the allowed number, without chance; below 0: fewer.
    pub over: f64,
    /// Whether it is certainly more than alone, as far as that is known.
    worse: bool,
    /// Whether all answers since the last pause confirm it.
    lasting: bool,
}

impl Excess {
    /// `beyond` of `count` latencies are beyond the goal for their quantile `q` (0–1).
    pub fn of(beyond: f64, count: u64, q: f64) -> Self {
        let may = (1.0 - q) * count as f64;
        let deviations = (beyond - may).abs() / (q * may).sqrt();
        Self { beyond, may, deviations, over: beyond - may, worse: true, lasting: false }
    }

    /// The same compared with the few answers known alone, and with all since.
    #[must_use]
    pub fn against(self, alone: &Self, since: &Self) -> Self {
        let bound = (alone.seen().sqrt() + SURE * alone.deviation()).powi(2);
        let over = self.over.min((self.beyond - bound * self.may).max(0.0));
        let lasting = since.may >= MANY && since.beyond > since.may && since.is_worse_than(alone);
        Self { over, worse: self.is_worse_than(alone), lasting, ..self }
    }

    /// Whether any latencies were seen.
    pub fn is_any(&self) -> bool {
        self.may > 0.0
    }

    /// Number beyond over the allowed number; 1 is at the goal.
    pub fn seen(&self) -> f64 {
        self.beyond / self.may
    }

    /// Upper bound of that ratio, given the small count.
    pub fn most(&self) -> f64 {
        // A count of k is at most k + 1 + 2 √(k + 1) at nearly 95 %: exactly 3.0, 4.7, 6.3, 7.8 for k = 0, 1, 2, 3
        // (Poisson, one-sided).
        (self.beyond + 1.0 + SURE * (self.beyond + 1.0).sqrt()) / self.may
    }

    /// Standard deviation of the square root of that ratio: roots of counts have one of a half for any count.
    fn deviation(&self) -> f64 {
        0.5 / self.may.sqrt()
    }

    /// Whether the side of the goal is certain.
    pub fn is_sure(&self) -> bool {
        self.deviations >= SURE && (self.worse || self.beyond <= self.may)
    }

    /// Whether the goal is certainly missed, and not when alone.
    pub fn is_missed(&self) -> bool {
        self.lasting || self.worse && self.beyond > self.may
    }

    /// Whether it is no chance: in this moment, or over all the time since the last pause.
    pub fn is_certain(&self) -> bool {
        self.lasting || self.is_alarming()
    }

    /// Whether it is no chance even after many checks.
    pub fn is_alarming(&self) -> bool {
        let deviations = (self.seen().sqrt() - 1.0) / self.deviation();
        self.worse && self.beyond >= ALARMING && deviations >= 1.3 * SURE
    }

    /// Whether certainly a larger fraction of answers is beyond it than in `other`, by the square roots of both.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        self.seen().sqrt() - other.seen().sqrt() >= SURE * self.deviation().hypot(other.deviation())
    }

    /// Whether the goal probably holds, where a miss would soon show.
    pub fn is_likely_kept(&self) -> bool {
        self.seen() <= 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a p99: one in a hundred may be beyond the goal.
    fn p99(beyond: f64, count: u64) -> Excess {
        Excess::of(beyond, count, 0.99)
    }

    /// Ten may be beyond, with a standard deviation of 3.15; of square roots of shares it is 0.158.
    #[test]
    fn what_is_beyond_the_goal_by_hand() {
        assert!(!p99(0.0, 0).is_any() && p99(0.0, 1).is_any());
        for (beyond, count, over, [sure, missed, alarming, kept]) in [
            (3.0, 1_000, -7.0, [true, false, false, true]),
            (5.0, 1_000, -5.0, [false, false, false, true]),
            (5.1, 1_000, -4.9, [false, false, false, false]),
            (10.0, 1_000, 0.0, [false, false, false, false]),
            (11.0, 1_000, 1.0, [false, true, false, false]),
            // 2.86 deviations are no chance; after many checks, 2.39 of square roots may be one.
            (19.0, 1_000, 9.0, [true, true, false, false]),
            (20.0, 1_000, 10.0, [true, true, true, false]),
            // Two alone are no alarm.
            (2.0, 1, 1.99, [true, true, false, false]),
            (3.0, 1, 2.99, [true, true, true, false]),
        ] {
            let excess = p99(beyond, count);
            let got = [excess.is_sure(), excess.is_missed(), excess.is_alarming(), excess.is_likely_kept()];
            assert_eq!((got, excess.is_certain()), ([sure, missed, alarming, kept], alarming), "{beyond} of {count}");
            assert!((excess.over - over).abs() < 1e-9, "{excess:?}");
        }
        assert!((p99(20.0, 1_000).seen() - 2.0).abs() < 1e-9);
        assert!((p99(20.0, 1_000).most() - (2.1 + 0.2 * 21f64.sqrt())).abs() < 1e-9);
    }

    /// Alone it is at the goal, give or take: up to 17.3 of ten are not the low-priority programs' doing, and less than
    /// 0.447 of square roots tells nothing.
    #[test]
    fn what_is_beyond_it_alone_is_nobodys_doing() {
        let alone = p99(10.0, 1_000);
        for (now, since, over, missed, certain) in [
            (20.0, p99(20.0, 1_000), 2.675, false, false),
            (30.0, p99(30.0, 1_000), 12.675, true, true),
            (17.0, p99(10.0, 1_000), 0.0, false, false),
            (5.0, p99(5.0, 1_000), -5.0, false, false),
            // The whole time since the last pause is more precise if long enough.
            (20.0, p99(30.0, 1_000), 2.675, true, true),
            (20.0, p99(29.0, 990), 2.675, false, false),
        ] {
            let excess = p99(now, 1_000).against(&alone, &since);
            assert!((excess.over - over).abs() < 1e-3, "{excess:?}");
            assert_eq!((excess.is_missed(), excess.is_certain()), (missed, certain), "{now}: {excess:?}");
        }
    }
}
