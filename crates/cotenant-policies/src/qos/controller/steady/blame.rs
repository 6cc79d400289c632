//! Finds the cause of a miss by a pause. If others are the cause, the goal applies to the speed that they leave, and
//! pauses become rarer because low-priority programs stop for them in vain.

use crate::qos::phase::{PhaseResult, usable};
use serde::{Deserialize, Serialize};

/// Readings in a row that question the baseline itself: misses, or readings beside others that are faster than alone.
pub(super) const DOUBT: u32 = 3;

/// Readings count as faster from this factor over the speed alone: p99s of a few hundred answers each differ by some
/// hundredths.
pub(super) const FASTER: f64 = 1.25;

/// Readings between two pauses with the same answer: at first, doubled each time, and at most.
const BETWEEN: [u32; 2] = [4, 32];

/// Knowledge about others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Blame {
    /// Speeds in the last pauses that missed the goal as well: what others leave.
    #[serde(skip_serializing_if = "is_default")]
    left: Vec<Option<f64>>,
    /// Speeds in the moment with which the current pause is compared.
    #[serde(skip_serializing_if = "is_default")]
    accused: Vec<Option<f64>>,
    /// Whether others were the cause according to the last pause.
    #[serde(skip_serializing_if = "is_default")]
    others: bool,
    /// Readings since that pause, and until the next one without doubt.
    #[serde(skip_serializing_if = "is_default")]
    since: u32,
    #[serde(skip_serializing_if = "is_default")]
    wait: u32,
    /// Misses since that pause.
    #[serde(skip_serializing_if = "is_default")]
    misses: u32,
    /// Readings in a row that were faster than the limit set by other programs.
    #[serde(skip_serializing_if = "is_default")]
    faster: u32,
}

impl Blame {
    /// Whether others make it slow.
    pub fn is_others(&self) -> bool {
        !self.left.is_empty()
    }

    /// The reference of the goal: the speed alone, or what others leave of it.
    pub fn reference(&self, alone: &[Option<f64>]) -> Vec<Option<f64>> {
        let left = self.left.iter().copied().map(usable).chain(std::iter::repeat(None));
        let least = |(alone, left): (&Option<f64>, Option<f64>)| alone.map(|alone| alone.min(left.unwrap_or(alone)));
        alone.iter().zip(left).map(least).collect()
    }

    /// Adds a reading; `goal` is the goal's fraction of the speed `alone`.
    pub fn note(&mut self, seen: &PhaseResult, missed: bool, alone: &[Option<f64>], goal: f64) {
        self.since = self.since.saturating_add(1);
        self.misses += u32::from(missed);
        if slowest(&seen.measured, alone).is_some_and(|(_, kept)| kept >= goal) {
            self.left.clear(); // they have gone, or do less
        }
        let faster = slowest(&seen.measured, &self.left).is_some_and(|(_, share)| share >= FASTER);
        self.faster = if faster { self.faster + 1 } else { 0 };
    }

    /// Whether a miss at a duty of 1, the last of this many in a row, is worth a pause.
    pub fn may_ask(&self, misses: u32) -> bool {
        !self.others || self.has_waited(misses)
    }

    /// Whether misses continue however little the low-priority programs run.
    pub fn is_doubtful(&self, misses: u32) -> bool {
        self.misses >= DOUBT && self.has_waited(misses)
    }

    /// Whether to check if others still make it slow.
    pub fn is_due(&self) -> bool {
        self.is_others() && self.has_waited(self.faster)
    }

    /// Whether to ask again; this many readings in a row indicate a change.
    fn has_waited(&self, changed: u32) -> bool {
        let [least, _] = BETWEEN;
        self.since >= if changed >= DOUBT { least } else { self.wait.max(least) }
    }

    /// Starts a pause that is compared with this moment.
    pub fn ask(&mut self, seen: &PhaseResult) {
        self.accused.clone_from(&seen.measured);
    }

    /// By speeds alone: whether the pause was hardly faster than the moment that caused it.
    pub fn is_as_slow(&mut self, pause: &PhaseResult) -> bool {
        let accused = std::mem::take(&mut self.accused);
        slowest(&accused, &pause.measured).is_none_or(|(_, kept)| kept * FASTER >= 1.0)
    }

    /// Records whether a pause missed the goal as well.
    pub fn enter(&mut self, missed: bool, seen: &PhaseResult) {
        (self.since, self.misses, self.faster) = (0, 0, 0);
        let before = std::mem::take(&mut self.left);
        if missed {
            self.left.clone_from(&seen.measured);
            for (left, before) in self.left.iter_mut().zip(before) {
                *left = left.zip(before).map(|(left, before)| f64::midpoint(left, before)).or(*left);
            }
        }
    }

    /// The result of the pause; `all`: they had run all the time, so that they are throttled from now on if they were
    /// the cause.
    pub fn answer(&mut self, others: bool, all: bool) {
        let [least, most] = BETWEEN;
        let same = std::mem::replace(&mut self.others, others) == others && (others || !all);
        self.wait = if same { (self.wait * 2).clamp(least, most) } else { least };
    }
}

/// The program furthest below these speeds: its index and fraction.
pub(super) fn slowest(speeds: &[Option<f64>], of: &[Option<f64>]) -> Option<(usize, f64)> {
    let share =
        |(high, (speed, of)): (usize, (&Option<f64>, &Option<f64>))| Some((high, usable(*speed)? / usable(*of)?));
    speeds.iter().zip(of).enumerate().filter_map(share).min_by(|a, b| a.1.total_cmp(&b.1))
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
