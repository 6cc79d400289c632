//! What a policy may ask for, why it asks, and what became of it.

use crate::policy::State;
use crate::{AppId, CpuSet, NodeId, Signal, TaskId, Time, number};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run the task on these hardware contexts (widened by `--pin` when applied), also where it was paused.
    Place {
        /// Which task.
        task: TaskId,
        /// One context, or a domain's contexts where there are more tasks than contexts.
        contexts: CpuSet,
    },
    /// Give the task back the mask that it had before Cotenant touched it.
    Release {
        /// Which task.
        task: TaskId,
    },
    /// Let the task wait until it is placed or released.
    Pause {
        /// Which task.
        task: TaskId,
    },
    /// Let all of an application sleep until a time, and run on by itself then; a time that has passed ends a nap.
    Nap {
        /// Which application.
        app: AppId,
        /// Until when.
        until: Time,
    },
    /// Let an application use no more CPU time than this, from now on.
    Limit {
        /// Which application.
        app: AppId,
        /// Thousandths of one CPU; `None` = as much as it likes.
        cpu_permille: Option<u32>,
    },
    /// Let an application have no more of the last-level caches and of the memory bandwidth than this, from now on.
    LimitCaches {
        /// Which application.
        app: AppId,
        /// Thousandths of the ways of the caches, and of the bandwidth that it was seen to use without a limit;
        /// `None` = as much as it likes.
        permille: Option<u32>,
    },
    /// Let an application run only where nobody else wants the CPU, or, `on` being false, beside the others again.
    Background {
        /// Which application.
        app: AppId,
        /// Whether it is to.
        on: bool,
    },
    /// Bring the memory that the task uses to these nodes: its own pages, and with those of the other threads what
    /// they have in common. Where it runs is as it was.
    Pages {
        /// Which task.
        task: TaskId,
        /// Where its pages go, in equal parts.
        nodes: Vec<NodeId>,
    },
}

/// What an action changes. Of the actions with one effect on the same task or application, the last one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Where a task runs, and whether.
    Placement,
    /// Where its pages are.
    Pages,
    /// Sleep until a time.
    Nap,
    /// A limit of CPU time.
    CpuTime,
    /// A limit of cache ways and memory bandwidth.
    Caches,
    /// Whether it runs where others want the CPU as well.
    Background,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Placement => "placement",
            Self::Pages => "pages",
            Self::Nap => "nap",
            Self::CpuTime => "CPU time",
            Self::Caches => "caches and bandwidth",
            Self::Background => "background",
        })
    }
}

impl Action {
    /// By what it has its effect.
    pub fn effect(&self) -> Effect {
        match self {
            Self::Place { .. } | Self::Release { .. } | Self::Pause { .. } => Effect::Placement,
            Self::Pages { .. } => Effect::Pages,
            Self::Nap { .. } => Effect::Nap,
            Self::Limit { .. } => Effect::CpuTime,
            Self::LimitCaches { .. } => Effect::Caches,
            Self::Background { .. } => Effect::Background,
        }
    }

    /// The task that it concerns; `None` where that is a whole application.
    pub fn task(&self) -> Option<TaskId> {
        match self {
            Self::Place { task, .. } | Self::Release { task } | Self::Pause { task } | Self::Pages { task, .. } => {
                Some(*task)
            }
            Self::Nap { .. } | Self::Limit { .. } | Self::LimitCaches { .. } | Self::Background { .. } => None,
        }
    }

    /// The application that it concerns as a whole.
    pub fn app(&self) -> Option<AppId> {
        match self {
            Self::Nap { app, .. }
            | Self::Limit { app, .. }
            | Self::LimitCaches { app, .. }
            | Self::Background { app, .. } => Some(*app),
            Self::Place { .. } | Self::Release { .. } | Self::Pause { .. } | Self::Pages { .. } => None,
        }
    }
}

/// An action as a policy returns it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// An action as a host carries it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// The mask to set: the decided contexts, widened by `--pin`, inside what the task is allowed. Empty for all else.
    pub affinity: CpuSet,
    /// Why.
    pub reason: Reason,
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done.
    Applied,
    /// The task is no more.
    Gone,
    /// The task is not as the decision assumed: another agent changed its mask, or its id was recycled.
    Stale,
    /// Not permitted, or a cpuset forbids it.
    Denied,
    /// The host is not the machine that the decision is about (replay, advise).
    NotThisMachine,
}

/// An action's outcome, as the next decision sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionOutcome {
    /// What was asked.
    pub action: Action,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a policy returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision<S = State> {
    /// What to do, in this order. Each task stands at most once, and its pages at most once.
    pub proposals: Vec<Proposal>,
    /// What to remember until the next round.
    pub state: S,
    /// When to decide next; [`Time::NEVER`]: not any more.
    pub wake_at: Time,
    /// Something is tried until then: latencies that are measured by asking are wanted more often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_until: Option<Time>,
    /// Remarks for people: signals that are missing, limits that were hit. Same remark, same text.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::text::lines_of")]
    pub notes: Vec<String>,
}

impl<S> Decision<S> {
    /// A decision that asks for nothing to be watched more closely.
    pub fn new(proposals: Vec<Proposal>, state: S, wake_at: Time, notes: Vec<String>) -> Self {
        Self { proposals, state, wake_at, watch_until: None, notes }
    }
}

/// The unit of a piece of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Events per unhalted cycle of the task.
    PerCycle,
    /// Events per second of wall-clock time.
    PerSecond,
    /// Events per retired instruction of the task.
    PerInstruction,
    /// A fraction, 0–1.
    Fraction,
}

impl Unit {
    /// The suffix on screens.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::PerCycle => "/cycle",
            Self::PerSecond => "/s",
            Self::PerInstruction => "/instruction",
            Self::Fraction => "",
        }
    }
}

/// A measured value and the threshold that it was held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was measured.
    pub signal: Signal,
    /// Its unit.
    pub unit: Unit,
    /// The value.
    pub value: f64,
    /// The threshold.
    pub threshold: f64,
}

/// The kind of a place that a reason names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// A package (socket).
    Package,
    /// A last-level-cache domain.
    LlcDomain,
    /// A memory node.
    Node,
    /// One hardware context.
    Cpu,
}

/// Why a policy asks for something, in the terms of its algorithm. Kept as parts so that deciding does not format text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The part of the algorithm, such as `stage 1`.
    #[serde(deserialize_with = "crate::text::line_of")]
    pub stage: Cow<'static, str>,
    /// The measurement that triggered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// What it does, with `{app}`, `{task}` and `{place}` standing for the fields below.
    #[serde(deserialize_with = "crate::text::line_of")]
    pub what: Cow<'static, str>,
    /// The application with which the task is brought together, or for whose sake it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppId>,
    /// The task with which it changes places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<(PlaceKind, u32)>,
}

impl Reason {
    /// A reason without measurement or partners.
    pub fn new(stage: &'static str, what: &'static str) -> Self {
        Self { stage: stage.into(), evidence: None, what: what.into(), app: None, task: None, place: None }
    }
}

impl Reason {
    /// One line, as [`Display`](fmt::Display) has it, with the application by its name, where `name` knows one.
    pub fn told(&self, name: impl FnOnce(AppId) -> Option<String>) -> String {
        let mut what = self.what.to_string();
        if let Some(app) = self.app {
            what = what.replace("{app}", &name(app).unwrap_or_else(|| format!("app {app}")));
        }
        if let Some(task) = self.task {
            what = what.replace("{task}", &format!("task {task}"));
        }
        if let Some((kind, index)) = self.place {
            let kind = match kind {
                PlaceKind::Package => "package",
                PlaceKind::LlcDomain => "LLC domain",
                PlaceKind::Node => "node",
                PlaceKind::Cpu => "CPU",
            };
            what = what.replace("{place}", &format!("{kind} {index}"));
        }
        let evidence = self.evidence.map_or_else(String::new, |e| {
            let relation = if e.value > e.threshold { '>' } else { '≤' };
            let unit = e.unit.suffix();
            let [value, threshold] = number::apart([e.value, e.threshold], 4, number::significant);
            format!("{} {value}{unit} {relation} {threshold}{unit}; ", e.signal)
        });
        format!("{}: {evidence}{what}", self.stage)
    }
}

impl fmt::Display for Reason {
    /// One line: `stage 1: inter 0.0009100/cycle > 0.0002500/cycle; colocate with app 3 on package 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(|_| None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds run/terminal.
    #[test]
    fn a_reason_shows_why_in_every_unit() {
        let reason = |signal, unit, value, threshold| {
            let evidence = Some(Evidence { signal, unit, value, threshold });
            Reason { evidence, ..Reason::new("stage 1", "colocate") }.to_string()
        };
        for (unit, value, threshold, shown) in [
            (Unit::PerCycle, 9.091e-4, 2.5e-4, "inter 0.0009091/cycle > 0.0002500/cycle"),
            (Unit::PerCycle, 2.500_004e-4, 2.5e-4, "inter 0.0002500004/cycle > 0.0002500000/cycle"),
            (Unit::PerCycle, 2.5e-4, 2.5e-4, "inter 0.0002500/cycle ≤ 0.0002500/cycle"),
            (Unit::PerSecond, 7.500_04e7, 7.5e7, "inter 75.0004 M/s > 75.0000 M/s"),
            (Unit::Fraction, 0.1, 0.100_02, "inter 0.10000 ≤ 0.10002"),
        ] {
            assert_eq!(reason(Signal::Inter, unit, value, threshold), format!("stage 1: {shown}; colocate"));
        }
    }
}
