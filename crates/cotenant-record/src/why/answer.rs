//! The answer to a query.

use super::query::Query;
use super::standing::Standing;
use super::told::Told;
use cotenant_model::{AppId, CpuSet, Mode, Signal, TaskId, Unit};
use serde::Serialize;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The query.
    pub query: Query,
    /// The recorded policy.
    pub policy: String,
    /// The recorded loop's mode.
    pub mode: Mode,
    /// Rounds in the recording.
    pub rounds: u64,
    /// Time of the last of them, seconds.
    pub last_s: f64,
    /// The moment of [`Self::standing`]: the requested one, otherwise the end, seconds.
    pub moment_s: f64,
    /// Orders in order of time: for a time all of them; for tasks and applications those about single tasks, unless a
    /// moment is given.
    pub moves: Vec<Told>,
    /// Orders in force at the moment: the last of each other effect.
    pub standing: Vec<Standing>,
    /// Matching tasks without any order.
    pub unmoved: Vec<Unmoved>,
    /// For a time without orders: the times of the previous and the next order, seconds.
    pub nearest_s: (Option<f64>, Option<f64>),
    /// The policy's remarks in the matching rounds (for a task: all), with the time of the first and their number.
    pub notes: Vec<Note>,
    /// If nothing matched: up to 20 names from the recording.
    pub known: Vec<String>,
}

/// A remark of the policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// Time of the first one, seconds.
    pub first_s: f64,
    /// Number of rounds.
    pub rounds: u64,
    /// The remark.
    pub text: String,
}

/// A task without orders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmoved {
    /// The task.
    pub task: TaskId,
    /// Its kernel thread id.
    pub tid: u32,
    /// Its command name.
    pub comm: String,
    /// Its application.
    pub app: AppId,
    /// Name of the application.
    pub app_name: Option<String>,
    /// Rounds in which it existed.
    pub rounds: u64,
    /// CPUs on which it was observed.
    pub cpus: CpuSet,
    /// The policies' signals against the recorded thresholds.
    pub checks: Vec<Check>,
    /// Their meaning in one line.
    pub verdict: String,
}

/// A signal of a task against its threshold over the whole recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The signal.
    pub signal: Signal,
    /// Whether it is summed over the task's package.
    pub of_package: bool,
    /// Its unit.
    pub unit: Unit,
    /// The largest value, and its time in seconds; `None` if it was never measured.
    pub max: Option<(f64, f64)>,
    /// The threshold; `None` if the recorded profile has none.
    pub threshold: Option<f64>,
    /// Rounds with a full sample of tasks in which it was measured.
    pub measured: u64,
    /// Those in which it exceeded the threshold.
    pub above: u64,
}
