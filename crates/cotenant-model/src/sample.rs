//! A host's observation at one instant: raw and cumulative, never rates.

use crate::histogram::Clipped;
use crate::{AppId, Counters, CpuId, CpuSet, Histogram, NodeId, TaskId, Time, Waits};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A sample of everything that is managed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its time.
    pub at: Time,
    /// Tasks in ascending order of [`TaskInfo::id`].
    pub tasks: Vec<TaskSample>,
    /// CPUs in ascending order of id; invisible ones are absent.
    pub cpus: Vec<CpuSample>,
    /// Applications in ascending order of id.
    pub apps: Vec<AppSample>,
    /// Whether the kernel moves memory after the threads that use it: NUMA balancing, on several nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numa_balancing: bool,
}

impl Sample {
    /// The task of that id.
    pub fn task(&self, id: TaskId) -> Option<&TaskSample> {
        self.tasks.binary_search_by_key(&id, |t| t.info.id).ok().map(|i| &self.tasks[i])
    }
}

/// Rarely changing facts about a task. Shared between samples; replaced on a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Dense id.
    pub id: TaskId,
    /// Its application.
    pub app: AppId,
    /// Kernel thread id.
    pub tid: u32,
    /// Process (thread group) id.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc` stat field 22): with `tid`, the identity of a thread.
    pub start_ticks: u64,
    /// Command name from the kernel (at most 15 bytes), [cleaned](crate::text).
    #[serde(deserialize_with = "crate::text::name_of")]
    pub comm: String,
    /// CPUs allowed by the user, the cpuset and the task's own original mask. Every placement stays inside.
    pub allowed: CpuSet,
    /// Whether it had run for some seconds when first seen: its memory is where it started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old: bool,
}

/// A task at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSample {
    /// Rarely changing facts.
    pub info: Arc<TaskInfo>,
    /// The CPU on which it runs or ran last.
    pub cpu: Option<CpuId>,
    /// Cumulative counts.
    pub counters: Counters,
    /// Resident pages by memory node, if they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_by_node: Option<Vec<(NodeId, u64)>>,
    /// Its accesses to the memory of each node, cumulative, if counted; in lines or pages, depending on the collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touches_by_node: Option<Vec<(NodeId, u64)>>,
}

/// A CPU at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSample {
    /// Its id.
    pub id: CpuId,
    /// Cumulative busy time by any work, nanoseconds.
    pub busy_ns: u64,
}

/// An application at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppSample {
    /// Its id.
    pub id: AppId,
    /// Name: `-n NAME`, otherwise the executable's base name; [cleaned](crate::text).
    #[serde(deserialize_with = "crate::text::name_of")]
    pub name: String,
    /// Units of work done, as reported by the program itself; cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u64>,
    /// Latencies in nanoseconds, cumulative: reported by the program itself, or of answers to probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Histogram>,
    /// Iterations of loops, sections, tasks and parallel regions, as the tool in OpenMP's runtime counts them;
    /// cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openmp: Option<u64>,
    /// MPI calls that move data or wait for it, counted by the profiling interface; cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<u64>,
    /// CPU time of its processes and threads that ended before they were counted, nanoseconds; cumulative. Known with a
    /// delay of about a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Waits of its threads for a CPU, if the kernel's scheduler shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Time really lost to naps, its own or pauses from outside, nanoseconds; cumulative. Absent without throttling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ns: Option<u64>,
    /// Time in which its control group lacked CPUs, if the kernel counts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Bytes read and written by its processes, if a policy needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<Moved>,
    /// Bytes received, and sent and acknowledged, on its TCP connections, if a policy needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Moved>,
    /// The latest reading of each external metric, by name; unreadable ones are absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, Reading)>,
    /// The metrics, by name, whose quantile is now in a bucket open at one end: they have no reading.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clipped: Vec<(String, ClippedReading)>,
}

/// Bytes moved by an application according to the kernel. They are counted at their own interval, and repeated in every
/// sample until the next count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Total so far.
    pub bytes: u64,
    /// Time of the count.
    pub at: Time,
}

/// The kernel's pressure stall information (PSI) of a control group for CPUs. It is read at its own interval, and
/// repeated in every sample until the next reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Time in which at least one of its threads was ready to run without a CPU (`some`), microseconds; cumulative.
    pub us: u64,
    /// Time of the reading.
    pub at: Time,
}

/// Whether more of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Throughput-like.
    HigherIsBetter,
    /// Latency-like.
    LowerIsBetter,
}

/// An undetermined reading: a quantile outside of its histogram's resolution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClippedReading {
    /// Its range.
    pub clipped: Clipped,
    /// Its period.
    pub window: Duration,
    /// End of that period.
    pub at: Time,
}

impl ClippedReading {
    /// Start of the period.
    pub fn since(&self) -> Time {
        Time(self.at.0.saturating_sub(self.window.as_nanos() as u64))
    }
}

/// One reading of a signal of an application, with its context.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The value, in the metric's own unit.
    pub value: f64,
    /// The better direction.
    pub direction: Direction,
    /// Its period.
    pub window: Duration,
    /// Its number of observations.
    pub count: u64,
    /// End of the period: a metric is read at its own interval, and repeated in every sample until the next reading.
    #[serde(default)]
    pub at: Time,
}
