//! Orders of a policy, their reasons, and their outcomes.

use crate::{AppId, CpuSet, NodeId, Signal, TaskId, Time, number};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run the task on these hardware contexts (widened by `--pin` when applied), also if it was paused.
    Place {
        /// The task.
        task: TaskId,
        /// One context, or a domain's contexts with more tasks than contexts.
        contexts: CpuSet,
    },
    /// Restore the mask that the task had before Cotenant.
    Release {
        /// The task.
        task: TaskId,
    },
    /// Pause the task until it is placed or released.
    Pause {
        /// The task.
        task: TaskId,
    },
    /// Pause a whole application until a time, after which it resumes by itself; a past time ends a nap.
    Nap {
        /// The application.
        app: AppId,
        /// End of the nap.
        until: Time,
    },
    /// Limit an application's CPU time from now on.
    Limit {
        /// The application.
        app: AppId,
        /// Thousandths of one CPU; `None`: unlimited.
        cpu_permille: Option<u32>,
    },
    /// Limit an application's last-level cache ways and memory bandwidth from now on.
    LimitCaches {
        /// The application.
        app: AppId,
        /// Thousandths of the cache ways, and of the bandwidth that it used without a limit; `None`: unlimited.
        permille: Option<u32>,
    },
    /// Run an application only on otherwise idle CPUs or, with `on` false, normally again.
    Background {
        /// The application.
        app: AppId,
        /// Whether it runs in the background.
        on: bool,
    },
    /// Move the memory of a task to these nodes: its own pages and, together with other threads, the shared ones. Its
    /// CPUs stay.
    Pages {
        /// The task.
        task: TaskId,
        /// Target nodes of its pages, in equal parts.
        nodes: Vec<NodeId>,
    },
}

/// What an action changes. Of several actions with one effect on the same task or application, the last one is in
/// force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The CPUs of a task, and whether it runs.
    Placement,
    /// The place of its pages.
    Pages,
    /// A pause until a time.
    Nap,
    /// A limit of CPU time.
    CpuTime,
    /// A limit of cache ways and memory bandwidth.
    Caches,
    /// Whether it competes with others for CPUs.
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
    /// The effect.
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

    /// The task that it concerns; `None` for a whole application.
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
    /// The action.
    pub action: Action,
    /// Its reason.
    pub reason: Reason,
}

/// An action as a host carries it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The action.
    pub action: Action,
    /// The mask to set: the decided contexts, widened by `--pin`, within the task's allowed CPUs. Otherwise empty.
    pub affinity: CpuSet,
    /// Its reason.
    pub reason: Reason,
}

/// Outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done.
    Applied,
    /// The task has ended.
    Gone,
    /// The task differs from the decision's assumption: another agent changed its mask, or its id was recycled.
    Stale,
    /// Not permitted, or forbidden by a cpuset.
    Denied,
    /// The host is not the decision's machine (replay, advise).
    NotThisMachine,
}

/// An action's outcome for the next decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionOutcome {
    /// The action.
    pub action: Action,
    /// Its outcome.
    pub outcome: Outcome,
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

/// A measured value with its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The measured quantity.
    pub signal: Signal,
    /// Its unit.
    pub unit: Unit,
    /// The value.
    pub value: f64,
    /// The threshold.
    pub threshold: f64,
}

/// The kind of place in a reason.
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

/// Why a policy acts, in the terms of its algorithm. Stored as parts, so that deciding does not format text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The stage of the algorithm, such as `stage 1`.
    #[serde(deserialize_with = "crate::text::line_of")]
    pub stage: Cow<'static, str>,
    /// The measurement that triggered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The effect, with `{app}`, `{task}` and `{place}` standing for the fields below.
    #[serde(deserialize_with = "crate::text::line_of")]
    pub what: Cow<'static, str>,
    /// The application that the task joins, or that benefits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppId>,
    /// The task with which it swaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Its target place.
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
    /// One line, as [`Display`](fmt::Display) prints it, with the application's name if `name` returns one.
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
