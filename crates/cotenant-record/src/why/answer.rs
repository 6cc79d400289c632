//! What is answered.

use super::query::Query;
use super::standing::Standing;
use super::told::Told;
use cotenant_model::{AppId, CpuSet, Mode, Signal, TaskId, Unit};
use serde::Serialize;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// What was asked.
    pub query: Query,
    /// The recorded policy.
    pub policy: String,
    /// How far the recorded loop went.
    pub mode: Mode,
    /// Rounds in the recording.
    pub rounds: u64,
    /// Time of the last of them, seconds.
    pub last_s: f64,
    /// The moment that [`Self::standing`] is about: the one asked about, else the end, seconds.
    pub moment_s: f64,
    /// What was ordered, in order of time: for a time all of it; for tasks and applications what is about single
    /// tasks, unless a moment is asked about.
    pub moves: Vec<Told>,
    /// What holds at the moment, or held: of all other orders the last ones of each effect.
    pub standing: Vec<Standing>,
    /// Tasks asked about for which nothing was ever ordered.
    pub unmoved: Vec<Unmoved>,
    /// For a time without orders: the times of the last one before and of the first one after, seconds.
    pub nearest_s: (Option<f64>, Option<f64>),
    /// The policy's remarks in the rounds asked about (for a task: all), with the time of the first and how often
    /// they were made.
    pub notes: Vec<Note>,
    /// Where nothing matched: names that are in the recording, up to 20.
    pub known: Vec<String>,
}

/// A remark of the policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Note {
    /// When it was first made, seconds.
    pub first_s: f64,
    /// In how many rounds.
    pub rounds: u64,
    /// The remark.
    pub text: String,
}

/// A task for which nothing was ordered.
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
    /// Rounds in which it was there.
    pub rounds: u64,
    /// CPUs on which it was seen.
    pub cpus: CpuSet,
    /// What policies look at, held against the recorded thresholds.
    pub checks: Vec<Check>,
    /// What that means, in one line.
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
    /// The largest value seen, and when, seconds; `None` where it was never measured.
    pub max: Option<(f64, f64)>,
    /// The threshold; `None` where the recorded profile has none.
    pub threshold: Option<f64>,
    /// Rounds with a look at all tasks in which it was measured.
    pub measured: u64,
    /// Of these, those in which it was above the threshold.
    pub above: u64,
}
