//! The baseline from pauses, the cause of misses, and the debt against the goal.

use super::blame::{DOUBT, FASTER, slowest};
use super::{SteadyState, WAIT};
use crate::qos::phase::{Excess, Lasts, Phase, PhaseResult, Why, usable};

/// Weight of a new baseline against those before.
const BASELINE_WEIGHT: f64 = 0.5;

/// Limits of saved and owed answers beyond the goal: a trial takes about as many as the first.
const ACCOUNT: [f64; 2] = [3.0, 10.0];

impl SteadyState {
    /// The last trial failed: back to the background if they ran beside the others, otherwise aside if there is room,
    /// otherwise this duty.
    pub(super) fn retreat(&mut self, duty: f64, room: bool) {
        self.wait = [(self.wait[1] * 2).clamp(WAIT[0], WAIT[1]); 2];
        let milder = std::mem::take(&mut self.beside) || room && !std::mem::replace(&mut self.aside, true);
        self.duty = if milder { 1.0 } else { duty };
    }

    /// Records answers beyond the goal; `spared`: records only credit, because no program is suspected.
    pub(super) fn note(&mut self, seen: &PhaseResult, spared: bool) {
        let most = if spared { 0.0 } else { f64::INFINITY };
        self.owed.resize(seen.excess.len(), 0.0);
        for (owed, excess) in self.owed.iter_mut().zip(&seen.excess) {
            let over = excess.map_or(0.0, |excess| excess.over).min(most);
            *owed = (*owed + over).clamp(-ACCOUNT[0], ACCOUNT[1]);
        }
        // A pause cannot help a silent program.
        for (owed, _) in self.owed.iter_mut().zip(&seen.silent).filter(|(_, silent)| **silent) {
            *owed = 0.0;
        }
    }

    pub(super) fn measured(&mut self, seen: &PhaseResult) {
        self.baseline.resize(seen.speeds.len(), None);
        // A program that is also faster alone has another load now, which invalidates older measurements.
        let faster = self.faster >= DOUBT;
        let weight = if faster { 1.0 } else { BASELINE_WEIGHT };
        (self.faster, self.slow, self.in_vain) = (0, 0, 0);
        let before = self.baseline.clone();
        for (high, (baseline, speed)) in self.baseline.iter_mut().zip(&seen.speeds).enumerate() {
            if let Some(alone) = seen.alone.get(high).copied().flatten() {
                *baseline = Some(alone);
            } else if let Some(speed) = usable(*speed) {
                *baseline = Some(baseline.map_or(speed, |before| before + weight * (speed - before)));
            }
        }
        let confirms = |(now, before): (&Option<f64>, &Option<f64>)| {
            now.zip(*before).is_some_and(|(now, before)| now >= FASTER * before)
        };
        if self.baseline.iter().zip(&before).any(confirms) {
            self.unconfirmed = 0;
        } else if faster {
            self.unconfirmed += 1;
        }
    }

    /// The reference of the goal: the speed alone, or what others leave.
    pub(in crate::qos::controller) fn reference(&self) -> Vec<Option<f64>> {
        self.blame.reference(&self.baseline)
    }

    /// Whether others make it slow.
    pub(super) fn is_others(&self) -> bool {
        self.blame.is_others()
    }

    /// Without measurements, open questions are dropped: low-priority programs take what is left in the background.
    pub(super) fn give_up(&mut self) -> Phase {
        (self.pause, self.accused, self.accused_by, self.making_up) = (false, None, None, false);
        (self.misses, self.missed, self.faster, self.beside) = (0, 0, 0, false);
        self.owed.clear();
        if self.duty < 1.0 {
            self.before.get_or_insert(self.duty);
            self.duty = 1.0;
        }
        let (lasts, aside) = (Lasts::Readings(1), self.aside);
        Phase { duty: 1.0, lasts, why: Why::Crowded, held: None, background: true, aside }
    }

    /// Acts on the result of a pause: if others make it equally slow, low-priority programs run all the time.
    pub(super) fn let_run(&mut self, others: bool) {
        let (full, others) = (self.duty >= 1.0, others && self.is_others());
        self.blame.answer(others, full);
        if others && !full {
            self.before = Some(std::mem::replace(&mut self.duty, 1.0));
        }
    }

    /// Whether the pause missed the goal as well: the accused moment had not certainly more answers beyond the goal, or
    /// the pause itself had too many; by speeds alone, the pause was hardly faster (`as_slow`).
    pub(super) fn is_others_doing(
        &mut self,
        seen: &PhaseResult,
        trial: Option<Excess>,
        as_slow: bool,
        goal: f64,
    ) -> bool {
        let Some((high, speed)) = slowest(&seen.speeds, &self.baseline) else { return false };
        let missed = speed < goal;
        let others = match (trial, seen.excess.get(high).copied().flatten()) {
            (Some(trial), Some(pause)) => pause.is_alarming() || !trial.is_worse_than(&pause),
            (None, Some(pause)) => pause.is_alarming(),
            (_, None) => missed && as_slow,
        };
        self.slow += u32::from(missed);
        if others || self.slow >= DOUBT {
            self.owed.clear();
        }
        others
    }
}
