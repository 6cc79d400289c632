//! What a host saw at one instant: raw and cumulative, never rates.

use crate::histogram::Clipped;
use crate::{AppId, Counters, CpuId, CpuSet, Histogram, NodeId, TaskId, Time, Waits};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// One look at everything that is managed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken.
    pub at: Time,
    /// Tasks in ascending order of [`TaskInfo::id`].
    pub tasks: Vec<TaskSample>,
    /// CPUs in ascending order of id; those that the host cannot see are absent.
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

/// What rarely changes about a task. Shared between samples; replaced when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Dense id.
    pub id: TaskId,
    /// The application that it belongs to.
    pub app: AppId,
    /// Kernel thread id.
    pub tid: u32,
    /// Process (thread group) id.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc` stat field 22): with `tid`, the identity of a thread.
    pub start_ticks: u64,
    /// Command name, as the kernel knows it (at most 15 bytes), [cleaned](crate::text).
    #[serde(deserialize_with = "crate::text::name_of")]
    pub comm: String,
    /// CPUs that the user, the cpuset and the task's own original mask allow. Every placement stays inside.
    pub allowed: CpuSet,
    /// Whether it had run for some seconds when it was first seen: its memory lies where it began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old: bool,
}

/// A task at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSample {
    /// What rarely changes.
    pub info: Arc<TaskInfo>,
    /// The CPU on which it runs or ran last.
    pub cpu: Option<CpuId>,
    /// Cumulative counts.
    pub counters: Counters,
    /// Resident pages by memory node, where they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_by_node: Option<Vec<(NodeId, u64)>>,
    /// Its accesses to the memory of each node, cumulative, where they were counted; lines or pages, as the collector
    /// counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touches_by_node: Option<Vec<(NodeId, u64)>>,
}

/// A CPU at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSample {
    /// Which.
    pub id: CpuId,
    /// Cumulative busy time, whoever used it, nanoseconds.
    pub busy_ns: u64,
}

/// An application at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppSample {
    /// Which.
    pub id: AppId,
    /// Name: `-n NAME`, else the executable's base name; [cleaned](crate::text).
    #[serde(deserialize_with = "crate::text::name_of")]
    pub name: String,
    /// Units of work done, as reported by the program itself; cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u64>,
    /// Latencies in nanoseconds, as reported by the program itself, or of the answers to questions that somebody asks
    /// it; cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Histogram>,
    /// Iterations of loops, sections, tasks and parallel regions, as the tool in OpenMP's runtime counts them;
    /// cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openmp: Option<u64>,
    /// Calls of MPI that move data or wait for it, as counted by its profiling interface; cumulative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<u64>,
    /// CPU time of its processes and threads that ended before they were counted, nanoseconds; cumulative. What they
    /// used is known late, by a second or so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Waits of its threads for a CPU, where the kernel's scheduler shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// How long it was really kept from running by naps, its own or pauses from outside, nanoseconds; cumulative.
    /// Absent where it is not throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ns: Option<u64>,
    /// How long its control group was short of CPUs, where the kernel counts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Bytes that its processes read and wrote, where a policy asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<Moved>,
    /// Bytes received, and sent and acknowledged, on its TCP connections, where a policy asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Moved>,
    /// The latest reading of each metric from outside, by name; one that cannot be read now is absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, Reading)>,
    /// The metrics, by name, whose quantile now lies in a bucket that is open at one end: they have no reading.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clipped: Vec<(String, ClippedReading)>,
}

/// Bytes that the kernel saw an application move. They are counted at their own pace, and the same count stands in
/// every sample until the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// How many so far.
    pub bytes: u64,
    /// When they were counted.
    pub at: Time,
}

/// The kernel's pressure stall information (PSI) of a control group for CPUs. It is read at its own pace, and the same
/// count stands in every sample until the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Time in which one of its threads at least was ready to run and had no CPU (`some`), microseconds; cumulative.
    pub us: u64,
    /// When it was read.
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

/// A reading that is none: a quantile that its histogram does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClippedReading {
    /// Where it lies.
    pub clipped: Clipped,
    /// The time that it is about.
    pub window: Duration,
    /// When that time ended.
    pub at: Time,
}

impl ClippedReading {
    /// When the time that it is about began.
    pub fn since(&self) -> Time {
        Time(self.at.0.saturating_sub(self.window.as_nanos() as u64))
    }
}

/// One reading of a signal of an application: a value with what is needed to judge it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The value, in the metric's own unit.
    pub value: f64,
    /// Which way is better.
    pub direction: Direction,
    /// The time that it summarises.
    pub window: Duration,
    /// How many observations it summarises.
    pub count: u64,
    /// When that time ended: a metric is read at its own pace, and the same reading stands in every sample until the
    /// next.
    #[serde(default)]
    pub at: Time,
}
