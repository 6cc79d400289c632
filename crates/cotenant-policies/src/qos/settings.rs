//! Settings of `qos`.

use super::controller::Controller;
use super::phase::{Figure, Held, LONGEST_NAP, Lasts, Phase, PhaseResult, Why};
use cotenant_model::AppId;
use cotenant_model::policy::settings;
use cotenant_model::speed::{Source, by_name};
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// A program that is to keep its speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct High {
    /// The program.
    pub app: AppId,
    /// What tells its speed.
    #[serde(with = "by_name")]
    pub metric: Source,
    /// The share of its speed alone that it is to keep, 0–1, exclusive, where that is another one than the
    /// controller's. `tracking` and `steady` heed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
}

/// What is limited.
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
    /// What decides.
    pub controller: Controller,
    /// The high-priority programs, which are to keep the goal.
    pub high: Vec<High>,
    /// The low-priority programs, which are throttled for it.
    pub low: Vec<AppId>,
    /// Answer contention first by moving the low-priority programs, where there is room elsewhere.
    #[serde(default)]
    pub place: bool,
    /// Keep duties between nap and run by these limits instead of turns.
    pub limits: Option<Limits>,
    /// Turn to limits where naps are not obeyed or do not keep the goal; run throttled programs in the background where
    /// the controller wants that.
    #[serde(default)]
    pub climb: bool,
    /// How late naps may take effect: this much of the beginning of a phase is not measured; at most half of the phase.
    #[serde(deserialize_with = "a_while")]
    pub settle: Duration,
    /// How long to wait for a reading of a metric.
    #[serde(deserialize_with = "a_while")]
    pub patience: Duration,
    /// What was read this long ago says nothing of now, nor what is older than [`WINDOWS`] of its windows; zero: the
    /// same as `patience`.
    #[serde(default, deserialize_with = "a_while", skip_serializing_if = "Duration::is_zero")]
    pub silence: Duration,
}

/// Windows without a reading after which what was read says nothing of now.
pub(super) const WINDOWS: u32 = 5;

fn a_while<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    settings::duration(from, &(Duration::ZERO..=Duration::MAX))
}

/// How long nothing need be heard of progress and counters before what was known says nothing of now.
const SILENCE: Duration = Duration::from_secs(5);

impl QosConfig {
    /// After how long a program is silent of which the last reading covered such a window; `None`: there was none yet.
    pub(super) fn silence(&self, window: Option<Duration>) -> Duration {
        let [first, later] = [self.patience, self.silence].map(|time| if time.is_zero() { SILENCE } else { time });
        window.map_or(first.max(later), |window| later.max(window * WINDOWS))
    }

    /// The high-priority program that a phase is for: that of the figures that decided, else the only one.
    pub(super) fn beneficiary(&self, phase: &Phase) -> Option<AppId> {
        let only = (self.high.len() == 1).then_some(0);
        let high = phase.held.map(|held| held.high).or(only)?;
        self.high.get(high).map(|high| high.app)
    }

    /// What a program is to keep; `None`: the controller has no such goal.
    pub(super) fn goal(&self, high: &High) -> Option<f64> {
        high.goal.or(self.controller.goal())
    }

    /// By how much a program's losses are multiplied to be those of one with the controller's goal.
    fn weight(&self, high: usize) -> f64 {
        let weight = |of: f64| Some((1.0 - of) / (1.0 - self.high.get(high)?.goal?));
        self.controller.goal().and_then(weight).unwrap_or(1.0)
    }

    /// Makes what programs lose of their speed `alone` what ones with the controller's goal would have lost.
    pub(super) fn to_one_goal(&self, seen: &mut PhaseResult, alone: &[Option<f64>]) {
        for (high, alone) in alone.iter().enumerate() {
            let (weight, Some(alone)) = (self.weight(high), alone) else { continue };
            for speed in [&mut seen.speeds, &mut seen.counted].into_iter().filter_map(|of| of.get_mut(high)?.as_mut()) {
                *speed = (alone - (alone - *speed) * weight).max(0.0);
            }
        }
    }

    /// The figures that decided, as the program itself has them.
    pub(super) fn to_its_own(&self, held: Held) -> Held {
        let weight = self.weight(held.high);
        let own = |figure: f64| match held.figure {
            Figure::Speed => figure,
            Figure::Kept | Figure::Left => 1.0 - (1.0 - figure) / weight,
            Figure::Lost => figure / weight,
        };
        Held { value: own(held.value), threshold: own(held.threshold), ..held }
    }

    /// How much of the beginning of a phase is not measured.
    pub(super) fn settling(&self, phase: &Phase) -> Duration {
        match phase.lasts {
            _ if self.controller.counts_all() => Duration::ZERO,
            Lasts::For(time) | Lasts::UntilKnown(time) => self.settle.min(time / 2),
            // Answers that had to wait before come first.
            Lasts::Readings(_) if phase.why == Why::Blame => LONGEST_NAP,
            Lasts::Readings(_) => self.settle,
        }
    }
}
