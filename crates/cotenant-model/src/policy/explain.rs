//! What a policy says of its state: plain values for screens, pages, reports and files.

use crate::speed::Source;
use crate::{AppId, CpuSet, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a policy's state says. A policy fills in what it knows; [`Policy::explain`](super::Policy::explain) returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// Applications that are to keep their speed, in the order of the policy's settings.
    pub protected: Vec<ProtectedApp>,
    /// Applications that give way for these.
    pub throttled: Vec<AppId>,
    /// How the latter are throttled; `None`: the policy throttles nothing.
    pub throttling: Option<Throttling>,
    /// Whether the placement that stands now is only tried.
    pub trying: bool,
    /// The last trial of a placement that ended.
    pub trial: Option<TrialResult>,
}

/// An application that is to keep its speed.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtectedApp {
    /// Which one.
    pub app: AppId,
    /// The source of its speed.
    pub source: Source,
    /// The share of its speed alone that it is to keep, 0–1, exclusive; `None`: the controller has no goal.
    pub goal: Option<f64>,
    /// Its speed alone; `None` before it was measured.
    pub alone: Option<Alone>,
    /// Its speed times its weight, added up since the beginning.
    pub done: f64,
    /// The weight: cycles for instructions per cycle, else seconds.
    pub weight: f64,
    /// What `done` would have been alone; `None` before its speed alone is known.
    pub expected: Option<f64>,
    /// Whether nothing has been heard of it for so long that none of this says anything of now.
    pub silent: bool,
    /// What is shown with it as it is.
    pub said: Statement,
}

/// A speed alone, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// The speed, in the unit of its source.
    pub speed: f64,
    /// Its 95 % interval by the block bootstrap; `None` where too little was measured.
    pub interval: Option<[f64; 2]>,
    /// When it was measured.
    pub at: Time,
}

/// What a policy says of an application, shown with it as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statement {
    /// What its goal means in seconds, where its answers are judged by how long they take.
    pub bound: Option<Bound>,
}

/// What a goal means for the answers of a service: this share of them came within so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The share, 0–1.
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

    /// Its speed since the beginning as a share of its speed alone; `None` before both are known.
    pub fn kept(&self) -> Option<f64> {
        self.expected.filter(|alone| *alone > 0.0).map(|alone| self.done / alone)
    }
}

/// How applications are throttled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throttling {
    /// The goal of the controller, 0–1, exclusive; `None`: it has none.
    pub goal: Option<f64>,
    /// What it does now, in words; `None`: it waits.
    pub doing: Option<String>,
    /// Whether the throttled applications run freely because no speed is known.
    pub blind: bool,
    /// Protected applications that miss their goal as much while the throttled ones pause: others make them slow.
    pub slowed: Vec<AppId>,
    /// Until when servers are asked more often, since the throttled applications run freely.
    pub watched_until: Option<Time>,
    /// Seconds in which the throttled applications were to run, and all seconds since the beginning.
    pub duty_s: [f64; 2],
    /// Naps that were ordered.
    pub naps: u64,
    /// The CPUs that the throttled applications were sent to; `None`: they run where they did.
    pub place: Option<CpuSet>,
    /// Why limits replaced naps; `None`: naps are in force.
    pub limited: Option<Limited>,
}

/// Why limits replaced naps.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    /// As JSON has it.
    pub name: &'static str,
    /// As people read it.
    pub text: &'static str,
}

/// What became of the trial of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// When it ended.
    pub at: Time,
    /// The placement in words: threads of each program in each cache domain.
    pub shape: String,
    /// How much faster it was than the one before it: 0.05 is 5 %.
    pub gain: f64,
    /// The interval of the gain, valid at every look; `None` where it has no bounds.
    pub interval: Option<[f64; 2]>,
    /// Pairs of windows that were compared.
    pub pairs: usize,
    /// Whether the placement was kept.
    pub kept: bool,
}

/// Something that later runs on this machine should begin with; see [`Policy::learned`](super::Policy::learned).
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// What it is about, as JSON; of two entries about the same, the later one counts.
    pub about: Value,
    /// The value for the policy's settings; `None`: what was known before is wrong.
    pub value: Option<Value>,
}
