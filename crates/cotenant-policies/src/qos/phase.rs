//! What measurement, controllers and actuation tell each other: a [`Phase`] is what the low-priority programs do next,
//! for how long, and why; [`Seen`] is how it went.

use cotenant_model::number;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The longest nap. Only the pauses that measure are longer; they are ordered in pieces of at most this.
pub const LONGEST_NAP: Duration = Duration::from_millis(200);

/// Differences of this many standard deviations are not chance.
const SURE: f64 = 2.0;

/// This many answers beyond the goal are no chance among a few dozen.
const ALARMING: f64 = 3.0;

/// Where so many may be beyond a quantile, what is beyond it tells enough for older answers not to be needed.
pub(super) const MANY: f64 = 10.0;

/// What the low-priority programs do for some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Share of the time in which they run: 0 = they nap, 1 = they run, between = both in quick turns.
    pub duty: f64,
    /// For how long.
    pub lasts: Lasts,
    /// Why.
    pub why: Why,
    /// Whether they run in the background: only where no other program wants the CPU, as far as the kernel can do that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Whether they run away from the high-priority programs, as far as there is room; only `steady` says so itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aside: bool,
    /// The figures that decided, where any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

impl Phase {
    /// A phase of fixed length.
    pub(super) fn new(duty: f64, lasts: Duration, why: Why) -> Self {
        Self { duty, lasts: Lasts::For(lasts), why, held: None, background: false, aside: false }
    }

    /// A nap, cut to the longest that is allowed.
    pub(super) fn nap(lasts: Duration, why: Why) -> Self {
        Self::new(0.0, lasts.min(LONGEST_NAP), why)
    }

    /// Whether it is so because no speed is known.
    pub(super) fn is_blind(&self) -> bool {
        matches!(self.why, Why::Unknown | Why::Silent)
    }

    /// The same with the figures that decided.
    pub(super) fn by(self, held: Option<Held>) -> Self {
        Self { held, ..self }
    }

    /// These figures as the beginning of a reason.
    pub(super) fn figures(&self) -> String {
        self.held.map_or_else(String::new, |held| format!("{held}; "))
    }
}

/// A figure of a high-priority program, and the threshold that it was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// The program, by its place among those of high priority.
    pub high: usize,
    /// What the figure is.
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
    /// The share of its speed alone that a program kept.
    Kept,
    /// The share of its speed alone that it lost.
    Lost,
    /// The share that a program kept of what others leave of its speed alone.
    Left,
}

impl Held {
    /// `None` where one is no finite number, which recordings do not hold.
    pub(super) fn new(high: usize, figure: Figure, value: f64, threshold: f64) -> Option<Self> {
        (value.is_finite() && threshold.is_finite()).then_some(Self { high, figure, value, threshold })
    }
}

impl fmt::Display for Held {
    /// `{app} kept 87.1 % of its speed alone < 90.0 %`: the reader of a reason knows the program's name, and puts it
    /// in.
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

/// How long a phase lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    /// This long.
    For(Duration),
    /// This long at most, and only until a speed is known.
    UntilKnown(Duration),
    /// Until the source has been read this many times about this phase alone.
    Readings(u32),
}

/// Why a phase is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The speed alone is measured.
    Baseline,
    /// A pause that tells whether the low-priority programs caused a miss.
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
    /// The speed is not known: nothing is throttled for it.
    Unknown,
    /// It has not been known for so long that what was known says nothing of now.
    Silent,
    /// A higher duty is tried.
    Increase,
    /// The goal was missed.
    Decrease,
    /// The goal was missed, and the waits for a CPU were behind the low-priority programs.
    Waits,
    /// At the goal.
    Hold,
    /// The goal is missed as much in a pause as without, or the waits for a CPU are behind others.
    Others,
    /// Others leave next to nothing of the machine.
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

/// How a phase went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseResult {
    /// Mean speed of each high-priority program in it, higher is better, in any unit; `None` where nothing is known.
    pub speeds: Vec<Option<f64>>,
    /// The same as measured, where programs with goals of their own are made ones with the controller's.
    pub measured: Vec<Option<f64>>,
    /// The same by all that was counted in it, however coarsely: nothing is lost between one phase and the next.
    pub counted: Vec<Option<f64>>,
    /// How far each is from its goal, where single latencies tell that.
    pub excess: Vec<Option<Excess>>,
    /// The speed alone by all pauses so far, where single latencies tell that, and this was one.
    pub alone: Vec<Option<f64>>,
    /// Of the CPU time that the low-priority programs wanted, the share that they had.
    pub taken: Option<f64>,
    /// Whether they can go aside.
    pub room: bool,
    /// Whether the background is no means: they run beside the others all the time.
    pub no_background: bool,
    /// Whether others, and the high-priority programs, fill the machine.
    pub crowded: bool,
    /// Time between two batches of progress, where the phase showed that; the longest of all programs.
    pub grain: Option<Duration>,
    /// Whether nothing has been heard of each for long.
    pub silent: Vec<bool>,
    /// What each waited for a CPU behind; `None` where the kernel does not show that.
    pub waited: Vec<Option<Waited>>,
}

/// Waits of a high-priority program for a CPU, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    /// How long that was counted.
    pub of_s: f64,
    /// Behind the low-priority programs.
    pub low_s: f64,
    /// Behind other programs, the kernel and the host.
    pub others_s: f64,
}

/// What a high-priority program waited behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The low-priority programs.
    Low,
    /// Others.
    Others,
}

/// Seconds of waiting per second that may make latencies longer: a wait of 1 ms each second. Less is how CPUs wake up.
const HARMFUL: f64 = 1e-3;

/// From this share of the waits on it is their doing, and below the other one it is not.
const THEIRS: f64 = 0.5;
const NOT_THEIRS: f64 = 0.1;

impl Waited {
    /// What it waited behind, where that is beyond doubt.
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

    /// What a program, by its place, waited for a CPU behind, where that is beyond doubt.
    pub(super) fn behind(&self, high: usize) -> Option<Behind> {
        self.waited.get(high).copied().flatten()?.behind()
    }

    /// Whether nothing has been heard of any program for long.
    pub(super) fn is_silent(&self) -> bool {
        !self.silent.is_empty() && self.silent.iter().all(|silent| *silent)
    }
}

/// A usable speed.
pub(super) fn usable(speed: Option<f64>) -> Option<f64> {
    speed.filter(|speed| cotenant_model::speed::usable(*speed))
}

/// How many latencies are beyond the goal for their quantile, against how many may be. Single latencies tell more than
/// their quantile does: while few are disturbed, their number is in proportion to the time in which others disturb
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excess {
    /// How many were beyond it.
    beyond: f64,
    /// How many may be.
    may: f64,
    /// Distance from the goal, in standard deviations.
    deviations: f64,
    /// How many more than may be were beyond it, without what is chance; below 0: fewer.
    pub over: f64,
    /// Whether it is surely more than alone, as far as that is known.
    worse: bool,
    /// Whether all answers since the last pause say so.
    lasting: bool,
}

impl Excess {
    /// Where `beyond` of `count` latencies are beyond the goal for their quantile `q` (0–1).
    pub fn of(beyond: f64, count: u64, q: f64) -> Self {
        let may = (1.0 - q) * count as f64;
        let deviations = (beyond - may).abs() / (q * may).sqrt();
        Self { beyond, may, deviations, over: beyond - may, worse: true, lasting: false }
    }

    /// The same next to what was beyond the goal alone, of which few answers tell, and in all the time since.
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

    /// Of those that may be, the share that was beyond it; 1 is at the goal.
    pub fn seen(&self) -> f64 {
        self.beyond / self.may
    }

    /// That share at most, given how few were seen.
    pub fn most(&self) -> f64 {
        // A count of k is up to k + 1 + 2 √(k + 1) at nearly 95 %: exactly 3.0, 4.7, 6.3, 7.8 for k = 0, 1, 2, 3
        // (Poisson, one-sided).
        (self.beyond + 1.0 + SURE * (self.beyond + 1.0).sqrt()) / self.may
    }

    /// Standard deviation of the square root of that share: the roots of counts have one of a half, whatever the count.
    fn deviation(&self) -> f64 {
        0.5 / self.may.sqrt()
    }

    /// Whether it is certain on which side of the goal this is.
    pub fn is_sure(&self) -> bool {
        self.deviations >= SURE && (self.worse || self.beyond <= self.may)
    }

    /// Whether it is certain that the goal is missed, and not so alone.
    pub fn is_missed(&self) -> bool {
        self.lasting || self.worse && self.beyond > self.may
    }

    /// Whether that is no chance: in this moment, or by all the time since the last pause.
    pub fn is_certain(&self) -> bool {
        self.lasting || self.is_alarming()
    }

    /// Whether this is no chance, however often it is asked.
    pub fn is_alarming(&self) -> bool {
        let deviations = (self.seen().sqrt() - 1.0) / self.deviation();
        self.worse && self.beyond >= ALARMING && deviations >= 1.3 * SURE
    }

    /// Whether surely a larger share of the answers is beyond it than in `other`, by the square roots of both shares.
    pub fn is_worse_than(&self, other: &Self) -> bool {
        self.seen().sqrt() - other.seen().sqrt() >= SURE * self.deviation().hypot(other.deviation())
    }

    /// Whether the goal is likely enough kept, where a miss would soon be seen.
    pub fn is_likely_kept(&self) -> bool {
        self.seen() <= 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a p99: one in a hundred may be beyond the goal.
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
            // 2.86 deviations are no chance; however often it is asked, 2.39 of square roots may be one.
            (19.0, 1_000, 9.0, [true, true, false, false]),
            (20.0, 1_000, 10.0, [true, true, true, false]),
            // Two alone alarm nobody.
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
            // All the time since the last pause tells more, if it was long enough.
            (20.0, p99(30.0, 1_000), 2.675, true, true),
            (20.0, p99(29.0, 990), 2.675, false, false),
        ] {
            let excess = p99(now, 1_000).against(&alone, &since);
            assert!((excess.over - over).abs() < 1e-3, "{excess:?}");
            assert_eq!((excess.is_missed(), excess.is_certain()), (missed, certain), "{now}: {excess:?}");
        }
    }
}
