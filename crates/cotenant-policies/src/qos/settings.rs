//! Settings of `qos`.

use super::controller::Controller;
use super::phase::{Figure, Held, LONGEST_NAP, Lasts, Phase, PhaseResult, Why};
use cotenant_model::AppId;
use cotenant_model::policy::settings;
use cotenant_model::speed::{Source, by_name};
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// A protected program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct High {
    /// The program.
    pub app: AppId,
    /// The source of its speed.
    #[serde(with = "by_name")]
    pub metric: Source,
    /// The fraction (0–1, exclusive) of its speed alone that it should keep, if different from the controller's. Used
    /// by `tracking` and `steady`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
}

/// The limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limits {
    /// CPU time.
    CpuTime,
    /// Ways of the last-level cache, and memory bandwidth.
    Caches,
}

/// Settings of `qos`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosConfig {
    /// The controller.
    pub controller: Controller,
    /// The high-priority programs, protected by the goal.
    pub high: Vec<High>,
    /// The low-priority programs, throttled for it.
    pub low: Vec<AppId>,
    /// Answer contention first by moving low-priority programs, if there is room elsewhere.
    #[serde(default)]
    pub place: bool,
    /// Keep duties between nap and run by these limits instead of turns.
    pub limits: Option<Limits>,
    /// Use limits if naps are not obeyed or miss the goal; run throttled programs in the background if the controller
    /// requests it.
    #[serde(default)]
    pub climb: bool,
    /// Delay until naps take effect: this much of the beginning of a phase is not measured; at most half of the phase.
    #[serde(deserialize_with = "a_while")]
    pub settle: Duration,
    /// Time limit for a reading of a metric.
    #[serde(deserialize_with = "a_while")]
    pub patience: Duration,
    /// Age at which a reading is outdated; also when it is older than [`WINDOWS`] of its windows. Zero: the same as
    /// `patience`.
    #[serde(default, deserialize_with = "a_while", skip_serializing_if = "Duration::is_zero")]
    pub silence: Duration,
}

/// Windows without a reading after which the last one is outdated.
pub(super) const WINDOWS: u32 = 5;

fn a_while<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    settings::duration(from, &(Duration::ZERO..=Duration::MAX))
}

/// Silence of progress and counters after which the last speed is outdated.
const SILENCE: Duration = Duration::from_secs(5);

impl QosConfig {
    /// The age at which a program counts as silent, given the window of its last reading; `None`: no reading yet.
    pub(super) fn silence(&self, window: Option<Duration>) -> Duration {
        let [first, later] = [self.patience, self.silence].map(|time| if time.is_zero() { SILENCE } else { time });
        window.map_or(first.max(later), |window| later.max(window * WINDOWS))
    }

    /// The high-priority program behind a phase: that of the deciding figures, otherwise the only one.
    pub(super) fn beneficiary(&self, phase: &Phase) -> Option<AppId> {
        let only = (self.high.len() == 1).then_some(0);
        let high = phase.held.map(|held| held.high).or(only)?;
        self.high.get(high).map(|high| high.app)
    }

    /// The goal of a program; `None`: the controller has none.
    pub(super) fn goal(&self, high: &High) -> Option<f64> {
        high.goal.or(self.controller.goal())
    }

    /// Factor that converts a program's losses to the controller's goal.
    fn weight(&self, high: usize) -> f64 {
        let weight = |of: f64| Some((1.0 - of) / (1.0 - self.high.get(high)?.goal?));
        self.controller.goal().and_then(weight).unwrap_or(1.0)
    }

    /// Converts speeds relative to `alone` to the controller's goal.
    pub(super) fn to_one_goal(&self, seen: &mut PhaseResult, alone: &[Option<f64>]) {
        for (high, alone) in alone.iter().enumerate() {
            let (weight, Some(alone)) = (self.weight(high), alone) else { continue };
            for speed in [&mut seen.speeds, &mut seen.counted].into_iter().filter_map(|of| of.get_mut(high)?.as_mut()) {
                *speed = (alone - (alone - *speed) * weight).max(0.0);
            }
        }
    }

    /// The deciding figures in the program's own terms.
    pub(super) fn to_its_own(&self, held: Held) -> Held {
        let weight = self.weight(held.high);
        let own = |figure: f64| match held.figure {
            Figure::Speed => figure,
            Figure::Kept | Figure::Left => 1.0 - (1.0 - figure) / weight,
            Figure::Lost => figure / weight,
        };
        Held { value: own(held.value), threshold: own(held.threshold), ..held }
    }

    /// Unmeasured beginning of a phase.
    pub(super) fn settling(&self, phase: &Phase) -> Duration {
        match phase.lasts {
            _ if self.controller.counts_all() => Duration::ZERO,
            Lasts::For(time) | Lasts::UntilKnown(time) => self.settle.min(time / 2),
            // Answers that waited earlier come first.
            Lasts::Readings(_) if phase.why == Why::Blame => LONGEST_NAP,
            Lasts::Readings(_) => self.settle,
        }
    }
}
