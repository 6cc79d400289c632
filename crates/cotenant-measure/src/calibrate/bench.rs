//! What calibration needs of a machine.

use cotenant_model::ids::{CpuId, NodeId};

/// A program to run on all these CPUs at once, one thread each.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Name of the kernel, as in `cotenant kernel --list`.
    pub kernel: &'static str,
    /// One thread on each.
    pub cpus: Vec<CpuId>,
    /// Steps of computation between two shared accesses, for sharing kernels.
    pub compute: Option<u64>,
    /// The node of its memory; `None`: where each thread runs.
    pub memory: Option<NodeId>,
}

impl Load {
    pub(super) fn new(kernel: &'static str, cpus: &[CpuId]) -> Self {
        Self { kernel, cpus: cpus.to_vec(), compute: None, memory: None }
    }
}

/// Results of a thread of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadRate {
    /// Units of work per second of wall-clock time.
    pub per_s: f64,
    /// Units of work per second of its CPU time, which is nearly independent of other programs.
    pub per_cpu_s: f64,
    /// Bytes moved per second.
    pub bytes_per_s: f64,
    /// Fraction (0–1) of the units that were transfers from another CPU.
    pub transfers: f64,
}

/// A machine that can be measured.
pub trait Bench {
    /// Runs co-running loads for a while; one result per load and thread.
    ///
    /// # Errors
    /// The reason if it could not.
    fn run(&mut self, loads: &[Load]) -> Result<Vec<Vec<ThreadRate>>, String>;

    /// One-way latency of a line between two CPUs, nanoseconds.
    ///
    /// # Errors
    /// The reason if it could not be measured.
    fn latency_ns(&mut self, a: CpuId, b: CpuId) -> Result<f64, String>;

    /// Time of a thread's move between two CPUs, microseconds.
    ///
    /// # Errors
    /// The reason if it could not be measured.
    fn migration_us(&mut self, a: CpuId, b: CpuId) -> Result<f64, String>;

    /// Cycles per step of the kernel `cpu`: 4 on x86, a dependent multiplication and addition; `None` if unknown.
    fn cycles_per_step(&self) -> Option<f64>;

    /// Shows the progress of the whole (0–1) and the next step; false to stop.
    fn goes_on(&mut self, done: f64, what: &str) -> bool;
}

/// Result of one load alone.
pub(super) fn alone(bench: &mut dyn Bench, load: Load) -> Result<Vec<ThreadRate>, String> {
    Ok(bench.run(&[load])?.remove(0))
}
