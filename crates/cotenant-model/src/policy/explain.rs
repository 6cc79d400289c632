//! A policy's explanation of its state: plain values for screens, pages, reports and files.

use crate::speed::Source;
use crate::{AppId, CpuSet, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Explanation of a policy's state. A policy fills in what it knows; [`Policy::explain`](super::Policy::explain)
/// returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// Protected applications, in the order of the policy's settings.
    pub protected: Vec<ProtectedApp>,
    /// Applications throttled for them.
    pub throttled: Vec<AppId>,
    /// How the latter are throttled; `None`: the policy never throttles.
    pub throttling: Option<Throttling>,
    /// Whether the current placement is only a trial.
    pub trying: bool,
    /// The last trial of a placement that ended.
    pub trial: Option<TrialResult>,
}

/// A protected application.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtectedApp {
    /// The application.
    pub app: AppId,
    /// The source of its speed.
    pub source: Source,
    /// The fraction (0–1, exclusive) of its speed alone that it should keep; `None`: the controller has no goal.
    pub goal: Option<f64>,
    /// Its speed alone; `None` before it was measured.
    pub alone: Option<Alone>,
    /// Its speed times its weight, summed since the beginning.
    pub done: f64,
    /// The weight: cycles for instructions per cycle, otherwise seconds.
    pub weight: f64,
    /// The same sum as it would have been alone; `None` before its speed alone is known.
    pub expected: Option<f64>,
    /// Whether it has been silent for so long that these values are outdated.
    pub silent: bool,
    /// Further shown values.
    pub said: Statement,
}

/// A measured speed alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// The speed, in the unit of its source.
    pub speed: f64,
    /// Its 95 % interval by the block bootstrap; `None` with too few measurements.
    pub interval: Option<[f64; 2]>,
    /// Time of the measurement.
    pub at: Time,
}

/// A policy's further values for an application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statement {
    /// Its goal in seconds, if its answers are judged by latency.
    pub bound: Option<Bound>,
}

/// The goal for a service's answers: this fraction of them came within these seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The fraction, 0–1.
    pub quantile: f64,
    /// While it is alone.
    pub alone_s: f64,
    /// At its goal.
    pub goal_s: f64,
}

impl ProtectedApp {
    /// Its mean speed since the beginning; `None` before it was measured.
    pub fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.done / self.weight)
    }

    /// Its mean speed over its speed alone; `None` before both are known.
    pub fn kept(&self) -> Option<f64> {
        self.expected.filter(|alone| *alone > 0.0).map(|alone| self.done / alone)
    }
}

/// How applications are throttled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throttling {
    /// The goal of the controller, 0–1, exclusive; `None`: it has none.
    pub goal: Option<f64>,
    /// Its current action in words; `None`: it waits.
    pub doing: Option<String>,
    /// Whether the throttled applications run freely because no speed is known.
    pub blind: bool,
    /// Protected applications that miss their goal even while the throttled ones pause: others slow them.
    pub slowed: Vec<AppId>,
    /// End of more frequent probes of servers while the throttled applications run freely.
    pub watched_until: Option<Time>,
    /// Seconds in which the throttled applications should run, and all seconds since the beginning.
    pub duty_s: [f64; 2],
    /// Ordered naps.
    pub naps: u64,
    /// The CPUs to which throttled applications were moved; `None`: they were not moved.
    pub place: Option<CpuSet>,
    /// Why limits replaced naps; `None`: naps are in use.
    pub limited: Option<Limited>,
}

/// Why limits replaced naps.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// For JSON.
    pub name: &'static str,
    /// For people.
    pub text: &'static str,
}

/// Result of a trial of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Its end.
    pub at: Time,
    /// The placement in words: threads of each program in each cache domain.
    pub shape: String,
    /// Its speed-up over the previous one: 0.05 is 5 %.
    pub gain: f64,
    /// The interval of the gain, valid at every look; `None` without bounds.
    pub interval: Option<[f64; 2]>,
    /// Number of compared pairs of windows.
    pub pairs: usize,
    /// Whether the placement was kept.
    pub kept: bool,
}

/// Knowledge for later runs on this machine; see [`Policy::learned`](super::Policy::learned).
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Its subject, as JSON; of two entries on one subject, the later one counts.
    pub about: Value,
    /// The value for the policy's settings; `None`: earlier knowledge is wrong.
    pub value: Option<Value>,
}
