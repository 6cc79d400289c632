//! State of SAM between rounds.

use super::task::{Class, Origin};
use cotenant_model::{Action, ActionOutcome, Outcome, TaskId, Time};
use serde::{Deserialize, Serialize};

/// A move requested by the last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// Its time.
    pub at: Time,
    /// Whether it shared data (class inter or intra) at the request.
    pub sharer: bool,
    /// Its former origin, restored if the move fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Origin>,
}

/// How long a task has had its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The task.
    pub task: TaskId,
    /// Its class in the last interval in which it ran.
    pub(super) class: Class,
    /// Intervals in a row including that one, capped.
    pub(super) times: u8,
    /// Intervals in a row above the threshold of remote accesses.
    pub(super) remote: u8,
}

/// State of SAM: plain values, in ascending order of task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamState {
    /// Reluctantly moved tasks that have not returned.
    pub origins: Vec<Origin>,
    /// The moves of the last decision.
    pub moves: Vec<Move>,
    /// Class histories, if needed ([`super::SamConfig::hysteresis`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Past>,
    /// Whether more CPUs than cores were wanted in the last interval ([`super::SamConfig::whole_cores`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crowded: Option<bool>,
    /// Whether sharers may still be on second contexts from a time with too few cores.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
}

impl SamState {
    /// Undoes failed moves: a move counts only if its outcome is applied.
    pub(super) fn learn(&mut self, outcomes: &[ActionOutcome]) {
        let mut applied: Vec<TaskId> = outcomes
            .iter()
            .filter(|o| o.outcome == Outcome::Applied && matches!(o.action, Action::Place { .. }))
            .filter_map(|o| o.action.task())
            .collect();
        applied.sort_unstable();
        let origins = &mut self.origins;
        self.moves.retain(|m| {
            let happened = applied.binary_search(&m.task).is_ok();
            if !happened {
                match (origins.binary_search_by_key(&m.task, |o| o.task), m.before) {
                    (Ok(i), Some(before)) => origins[i] = before,
                    (Ok(i), None) => drop(origins.remove(i)),
                    (Err(i), Some(before)) => origins.insert(i, before),
                    (Err(_), None) => {}
                }
            }
            happened
        });
    }
}
