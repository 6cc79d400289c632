//! Which low-priority programs are throttled: where a high-priority program waits for a CPU behind some of them, these
//! alone, until a trial, which is always with all.

use super::step::Step;
use crate::qos::phase::{NOT_THEIRS, Phase, Why};
use cotenant_model::AppId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Those that waits name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    /// Seconds of waiting in this phase behind each low-priority program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    behind: BTreeMap<AppId, f64>,
    /// The only ones to throttle; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    only: Option<BTreeSet<AppId>>,
}

impl Named {
    /// Adds waiting behind a low-priority program.
    pub(in crate::qos) fn add(&mut self, app: AppId, seconds: f64) {
        *self.behind.entry(app).or_default() += seconds;
    }

    /// Another phase begins; returns whether others are throttled from now on.
    pub(in crate::qos) fn begin(&mut self, before: Option<Phase>, phase: &Phase) -> bool {
        let behind = std::mem::take(&mut self.behind);
        let was = self.only.clone();
        let by_trial = before.is_some_and(|before| before.why == Why::Blame) && phase.why == Why::Decrease;
        if phase.duty >= 1.0 || by_trial {
            self.only = None;
        } else if phase.why == Why::Waits {
            let all: f64 = behind.values().sum();
            let named = behind.into_iter().filter(|(_, seconds)| *seconds >= NOT_THEIRS * all).map(|(app, _)| app);
            match &mut self.only {
                Some(only) => only.extend(named),
                None if before.is_none_or(|before| before.duty >= 1.0) => {
                    self.only = Some(named.collect()).filter(|only: &BTreeSet<_>| !only.is_empty());
                }
                None => {} // all were throttled for something else
            }
        }
        self.only != was
    }

    /// Whether a phase throttles a program. Pauses are with all.
    pub(in crate::qos) fn throttles(&self, app: AppId, phase: &Phase) -> bool {
        phase.duty <= 0.0 || self.only.as_ref().is_none_or(|only| only.contains(&app))
    }

    /// Of an order to all, what a program gets.
    pub(in crate::qos) fn step(&self, step: Step, app: AppId, phase: Option<Phase>) -> Option<Step> {
        if phase.is_none_or(|phase| self.throttles(app, &phase)) {
            return Some(step);
        }
        match step {
            Step::Nap(_) => None, // earlier naps end by themselves
            Step::Limit(_) => Some(Step::Limit(None)),
            Step::Caches(_) => Some(Step::Caches(None)),
            Step::Background(_) => Some(step),
        }
    }

    /// Whether any of these runs on while others are throttled.
    pub(in crate::qos) fn spares(&self, low: &[AppId], phase: &Phase) -> bool {
        phase.duty < 1.0 && low.iter().any(|app| !self.throttles(*app, phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn phase(duty: f64, why: Why) -> Phase {
        Phase::new(duty, Duration::from_secs(1), why)
    }

    /// Which of three programs are throttled in each phase, after waits behind each in the phase before.
    fn throttled(phases: &[([f64; 3], f64, Why)]) -> Vec<[bool; 3]> {
        let (mut named, mut before) = (Named::default(), None);
        let mut next = |(behind, duty, why): &([f64; 3], f64, Why)| {
            (0..3).for_each(|i| named.add(AppId(i), behind[i as usize]));
            let phase = phase(*duty, *why);
            named.begin(before, &phase);
            before = Some(phase);
            [0, 1, 2].map(|app| named.throttles(AppId(app), &phase))
        };
        phases.iter().map(&mut next).collect()
    }

    #[test]
    fn only_those_that_waits_or_a_trial_name_are_throttled() {
        let none = [0.0; 3];
        let seen = throttled(&[
            (none, 1.0, Why::Hold),
            ([0.3, 0.02, 0.0], 0.5, Why::Waits),
            (none, 0.55, Why::Increase),
            (none, 0.0, Why::Baseline),
            (none, 0.5, Why::Hold),
            // A second one is to blame, too.
            ([0.1, 0.1, 0.0], 0.35, Why::Waits),
            (none, 0.25, Why::Decrease),
            (none, 0.0, Why::Blame),
            (none, 0.2, Why::Decrease),
            ([0.1, 0.0, 0.0], 0.1, Why::Waits),
            (none, 1.0, Why::Hold),
        ]);
        let (first, two, all) = ([true, false, false], [true, true, false], [true; 3]);
        assert_eq!(seen, [all, first, first, all, first, two, two, all, all, all, all]);
    }

    #[test]
    fn who_is_not_named_neither_naps_nor_is_limited() {
        let mut named = Named::default();
        named.add(AppId(0), 1.0);
        let waits = phase(0.5, Why::Waits);
        assert!(named.begin(Some(phase(1.0, Why::Hold)), &waits) && named.spares(&[AppId(0), AppId(1)], &waits));
        assert!(!named.spares(&[AppId(0)], &waits));
        let step = |app, step| named.step(step, AppId(app), Some(waits));
        let until = cotenant_model::Time(5);
        assert!(matches!(step(0, Step::Nap(until)), Some(Step::Nap(_))) && step(1, Step::Nap(until)).is_none());
        assert!(matches!(step(0, Step::Limit(Some(500))), Some(Step::Limit(Some(500)))));
        assert!(matches!(step(1, Step::Limit(Some(500))), Some(Step::Limit(None))));
        assert!(matches!(step(1, Step::Caches(Some(500))), Some(Step::Caches(None))));
        assert!(matches!(step(1, Step::Background(true)), Some(Step::Background(true))));
    }
}
