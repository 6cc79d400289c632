//! A move as screens and JSON show it: one form for `decide`, `replay` and `why`.

use crate::action::{Action, Evidence, Order, Reason, Unit};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, CpuId, NodeId, TaskId};
use crate::sample::Sample;
use crate::signal::Signal;
use serde::Serialize;
use std::fmt;

/// A move: which task, from where to where, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// Its kernel thread id, where the sample has it.
    pub tid: Option<u32>,
    /// Its command name; empty where the sample lacks it.
    pub comm: String,
    /// Its application.
    pub app: Option<AppId>,
    /// Where it ran.
    pub from_cpu: Option<CpuId>,
    /// The contexts decided; empty where its own mask is given back.
    pub to_cpus: Vec<CpuId>,
    /// The mask set; empty where its own mask is given back.
    pub affinity: Vec<CpuId>,
    /// Whether it has to wait until it is placed or released.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Where its pages go; empty where they stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pages_to: Vec<NodeId>,
    /// Why.
    pub reason: MoveReason,
}

/// A reason in parts and as text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveReason {
    /// The part of the algorithm.
    pub stage: String,
    /// What was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Its unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// The value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// What it was held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// All of it as one line.
    pub text: String,
}

impl From<&Reason> for MoveReason {
    fn from(reason: &Reason) -> Self {
        let evidence: Option<Evidence> = reason.evidence;
        Self {
            stage: reason.stage.to_string(),
            signal: evidence.map(|e| e.signal),
            unit: evidence.map(|e| e.unit),
            value: evidence.map(|e| e.value),
            threshold: evidence.map(|e| e.threshold),
            text: reason.to_string(),
        }
    }
}

impl Move {
    /// The move that an order about the tasks of `sample` makes; `None` where it is about an application as a whole.
    pub fn new(sample: &Sample, order: &Order) -> Option<Self> {
        let task = order.action.task()?;
        let seen = sample.tasks.binary_search_by_key(&task, |t| t.info.id).ok().map(|i| &sample.tasks[i]);
        let to = match &order.action {
            Action::Place { contexts, .. } => contexts.iter().collect(),
            _ => Vec::new(),
        };
        let pages_to = if let Action::Pages { nodes, .. } = &order.action { nodes.clone() } else { Vec::new() };
        Some(Self {
            task,
            tid: seen.map(|t| t.info.tid),
            comm: seen.map(|t| t.info.comm.clone()).unwrap_or_default(),
            app: seen.map(|t| t.info.app),
            from_cpu: seen.and_then(|t| t.cpu),
            to_cpus: to,
            affinity: order.affinity.iter().collect(),
            paused: matches!(order.action, Action::Pause { .. }),
            pages_to,
            reason: (&order.reason).into(),
        })
    }
}

impl fmt::Display for Move {
    /// `task 7 (worker, tid 1007): CPU 3 → 12, may use 10-19; stage 1: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |cpus: &[CpuId]| cpus.iter().copied().collect::<CpuSet>().to_string();
        write!(f, "task {}", self.task)?;
        match self.tid {
            Some(tid) if self.comm.is_empty() => write!(f, " (tid {tid})")?,
            Some(tid) => write!(f, " ({}, tid {tid})", self.comm)?,
            None => {}
        }
        match self.from_cpu {
            Some(cpu) => write!(f, ": CPU {cpu}")?,
            None => write!(f, ": CPU ?")?,
        }
        if let Some((first, rest)) = self.pages_to.split_first() {
            write!(f, " → pages to node {first}")?;
            rest.iter().try_for_each(|node| write!(f, ", {node}"))?;
        } else if self.paused {
            write!(f, " → waits")?;
        } else if self.to_cpus.is_empty() {
            write!(f, " → its own mask")?;
        } else {
            write!(f, " → {}", list(&self.to_cpus))?;
            if self.affinity != self.to_cpus {
                write!(f, ", may use {}", list(&self.affinity))?;
            }
        }
        write!(f, "; {}", self.reason.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ViewBuilder, machine};

    #[test]
    fn as_text_and_json() {
        let topology = machine(2, 1, 2, 1);
        let (_, sample) = ViewBuilder::new(&topology).task(7, 1, 3).samples();
        let evidence = Some(Evidence { signal: Signal::Inter, unit: Unit::PerCycle, value: 9.1e-4, threshold: 2.5e-4 });
        let reason = Reason { evidence, ..Reason::new("stage 1", "colocate") };
        let affinity = CpuSet::parse_list("0-1").unwrap();
        let action = Action::Place { task: TaskId(7), contexts: CpuSet::single(CpuId(1)) };
        let moved = Move::new(&sample, &Order { action, affinity, reason: reason.clone() }).unwrap();
        let text = "task 7 (task7, tid 1007): CPU 3 → 1, may use 0-1; stage 1: inter 9.100e-4/cycle > 2.500e-4/cycle; colocate";
        assert_eq!(moved.to_string(), text);
        let json = serde_json::to_value(&moved).unwrap();
        assert_eq!(
            (&json["from_cpu"], &json["to_cpus"], &json["affinity"]),
            (&3.into(), &vec![1].into(), &vec![0, 1].into())
        );
        assert_eq!((&json["reason"]["signal"], &json["reason"]["threshold"]), (&"inter".into(), &2.5e-4.into()));
        let away = Order { action: Action::Release { task: TaskId(9) }, affinity: CpuSet::new(), reason };
        assert!(Move::new(&sample, &away).unwrap().to_string().starts_with("task 9: CPU ? → its own mask; stage 1"));
    }
}
