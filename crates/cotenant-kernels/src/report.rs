//! Results of a kernel.

use cotenant_model::CpuId;
use serde::Serialize;
use std::sync::atomic::AtomicU64;

/// A progress counter alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Slot(pub AtomicU64);

/// Results of one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadReport {
    /// The CPU that it was bound to.
    pub cpu: Option<CpuId>,
    /// Units of work.
    pub units: u64,
    /// Wall-clock seconds from the common start to the end of its loop, including the wait for its first turn on a CPU.
    pub seconds: f64,
    /// CPU seconds of its loop, without times when other threads had the CPU.
    pub cpu_seconds: f64,
    /// Accesses that found another thread's write, for sharing kernels.
    pub transfers: Option<u64>,
    /// Accuracy of a set rate.
    pub pace: Option<Pace>,
    /// Number of wrong results, for checked kernels.
    pub wrong: Option<u64>,
}

impl ThreadReport {
    /// Units per second.
    pub fn per_second(&self) -> f64 {
        self.units as f64 / self.seconds.max(1e-9)
    }
}

/// Accuracy of a set rate. By the thread's own clock, `units` is at most `rate × (span_s − skipped_s)` plus the work
/// between two reads of the clock, and at least `rate × (span_s − skipped_s − 0.01)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// From the first read of the clock to the last.
    pub span_s: f64,
    /// Time dropped from the schedule when it was more than 10 ms behind.
    pub skipped_s: f64,
}

/// Results of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The kernel.
    pub kernel: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Bytes of each thread's own memory.
    pub size: u64,
    /// Steps of computation between two shared accesses, for sharing kernels.
    pub compute: Option<u64>,
    /// Bytes from one access to the next, for kernels with a stride.
    pub stride: Option<u64>,
    /// Requested units per second and thread.
    pub rate: Option<f64>,
    /// Bytes that a unit moves ([`Kernel::bytes_per_unit`](crate::Kernel::bytes_per_unit)).
    pub bytes_per_unit: Option<u64>,
    /// Each thread.
    pub threads: Vec<ThreadReport>,
    /// Wall-clock seconds from the common start to the last loop's end, without initialization and checks.
    pub seconds: f64,
}

impl Report {
    /// Units of all threads.
    pub fn units(&self) -> u64 {
        self.threads.iter().map(|thread| thread.units).sum()
    }

    /// Units per second of all threads, each over its own time.
    pub fn per_second(&self) -> f64 {
        self.threads.iter().map(ThreadReport::per_second).sum()
    }

    /// Bytes per second moved by all threads, for bandwidth kernels.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_unit.map(|bytes| bytes as f64 * self.per_second())
    }

    /// Wrong results of all threads, for checked kernels.
    pub fn wrong(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.wrong).sum()
    }

    /// Transfers of all threads, for sharing kernels.
    pub fn transfers(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.transfers).sum()
    }
}
