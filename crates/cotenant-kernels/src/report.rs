//! What a kernel did.

use cotenant_core::CpuId;
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
    /// Wall-clock seconds of its loop.
    pub seconds: f64,
    /// Accesses that found another thread's write, for kernels that share data.
    pub transfers: Option<u64>,
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
    /// Each thread.
    pub threads: Vec<ThreadReport>,
    /// Wall-clock seconds from the first loop's start to the last one's end.
    pub seconds: f64,
}

impl Report {
    /// Units of all threads.
    pub fn units(&self) -> u64 {
        self.threads.iter().map(|thread| thread.units).sum()
    }

    /// Units per second of all threads, each over its own time.
    pub fn per_second(&self) -> f64 {
        self.threads.iter().map(|thread| thread.units as f64 / thread.seconds.max(1e-9)).sum()
    }

    /// Transfers of all threads, for kernels that share data.
    pub fn transfers(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.transfers).sum()
    }
}
