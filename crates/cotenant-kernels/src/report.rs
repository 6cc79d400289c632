//! What a kernel did.

use cotenant_model::CpuId;
use serde::Serialize;
use std::sync::atomic::AtomicU64;

/// A progress counter alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Slot(pub AtomicU64);

/// What one thread did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadReport {
    /// The CPU that it was bound to.
    pub cpu: Option<CpuId>,
    /// Units of work.
    pub units: u64,
    /// Wall-clock seconds from the common start to the end of its loop: also those that it waited for its first turn
    /// on a CPU.
    pub seconds: f64,
    /// Seconds of CPU time of its loop: fewer where others, or another thread of ours, had the CPU meanwhile.
    pub cpu_seconds: f64,
    /// Accesses that found another thread's write, for kernels that share data.
    pub transfers: Option<u64>,
    /// How a set rate was kept.
    pub pace: Option<Pace>,
    /// Results that are wrong, for kernels that are checked.
    pub wrong: Option<u64>,
}

impl ThreadReport {
    /// Units per second.
    pub fn per_second(&self) -> f64 {
        self.units as f64 / self.seconds.max(1e-9)
    }
}

/// How a set rate was kept. By the thread's own clock, whatever else happens, `units` is at most
/// `rate × (span_s − skipped_s)` and what is done between two looks at the clock, and at least
/// `rate × (span_s − skipped_s − 0.01)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// From the first look at the clock to the last.
    pub span_s: f64,
    /// Time for which the schedule was given up, because it was more than 10 ms behind.
    pub skipped_s: f64,
}

/// What a kernel did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The kernel.
    pub kernel: &'static str,
    /// What a unit is.
    pub unit: &'static str,
    /// Bytes of each thread's own memory.
    pub size: u64,
    /// Steps of computation between two shared accesses, for kernels that share data.
    pub compute: Option<u64>,
    /// Bytes from one access to the next, for kernels that have a stride.
    pub stride: Option<u64>,
    /// Units per second and thread that were asked for.
    pub rate: Option<f64>,
    /// Bytes that a unit moves ([`Kernel::bytes_per_unit`](crate::Kernel::bytes_per_unit)).
    pub bytes_per_unit: Option<u64>,
    /// Each thread.
    pub threads: Vec<ThreadReport>,
    /// Wall-clock seconds from the common start to the last loop's end, without preparing and checking.
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

    /// Bytes per second that all threads moved, for kernels that are about bandwidth.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_unit.map(|bytes| bytes as f64 * self.per_second())
    }

    /// Wrong results of all threads, for kernels that are checked.
    pub fn wrong(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.wrong).sum()
    }

    /// Transfers of all threads, for kernels that share data.
    pub fn transfers(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.transfers).sum()
    }
}
