//! What SAM remembers between rounds.

use super::task::{Class, Origin};
use cotenant_model::{Action, ActionOutcome, Outcome, TaskId, Time};
use serde::{Deserialize, Serialize};

/// A move that the last decision asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Which task.
    pub task: TaskId,
    /// When.
    pub at: Time,
    /// Whether it shared data (class inter or intra) when it was asked to move.
    pub sharer: bool,
    /// What was remembered of it before, to be restored where the move did not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Origin>,
}

/// How long a task has been what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Which task.
    pub task: TaskId,
    /// What it was in the last interval in which it ran.
    pub(super) class: Class,
    /// Intervals in a row, that one included; no more than matter.
    pub(super) times: u8,
    /// Intervals in a row above the threshold of remote accesses, likewise.
    pub(super) remote: u8,
}

/// What SAM remembers: plain values, in ascending order of task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamState {
    /// Tasks that were moved reluctantly and are not home again.
    pub origins: Vec<Origin>,
    /// The moves of the last decision.
    pub moves: Vec<Move>,
    /// What tasks were, where that counts ([`super::SamConfig::hysteresis`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Past>,
    /// Whether more CPUs than cores were wanted in the last interval ([`super::SamConfig::whole_cores`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crowded: Option<bool>,
    /// Whether sharers may still stand on second contexts since cores were too few.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub packed: bool,
}

impl SamState {
    /// Takes back what did not happen: a move is believed only where its outcome says that it was applied.
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
