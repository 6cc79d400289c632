//! What calibration asks of a machine.

use cotenant_model::ids::{CpuId, NodeId};

/// A program to run on all these CPUs at once, one thread each.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Name of the kernel, as `cotenant kernel --list` knows it.
    pub kernel: &'static str,
    /// One thread on each.
    pub cpus: Vec<CpuId>,
    /// Steps of computation between two shared accesses, for kernels that share.
    pub compute: Option<u64>,
    /// The node that its memory is to come from; `None` = where each thread runs.
    pub memory: Option<NodeId>,
}

impl Load {
    pub(super) fn new(kernel: &'static str, cpus: &[CpuId]) -> Self {
        Self { kernel, cpus: cpus.to_vec(), compute: None, memory: None }
    }
}

/// What a thread of a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadRate {
    /// Units of work per second of wall-clock time.
    pub per_s: f64,
    /// Units of work per second of its CPU time, which hardly notices other programs.
    pub per_cpu_s: f64,
    /// Bytes moved per second.
    pub bytes_per_s: f64,
    /// Fraction of the units that were transfers from another CPU, 0–1.
    pub transfers: f64,
}

/// A machine that can be measured.
pub trait Bench {
    /// Runs loads beside each other for a while; one result per load and thread.
    ///
    /// # Errors
    /// Why it could not.
    fn run(&mut self, loads: &[Load]) -> Result<Vec<Vec<ThreadRate>>, String>;

    /// One-way latency of a line between two CPUs, nanoseconds.
    ///
    /// # Errors
    /// Why it could not be measured.
    fn latency_ns(&mut self, a: CpuId, b: CpuId) -> Result<f64, String>;

    /// Time that it takes to move a thread between two CPUs, microseconds.
    ///
    /// # Errors
    /// Why it could not be measured.
    fn migration_us(&mut self, a: CpuId, b: CpuId) -> Result<f64, String>;

    /// Cycles of one step of the kernel `cpu`: 4 on x86, where it is a multiplication and an addition that wait for
    /// each other; `None` where it is not known.
    fn cycles_per_step(&self) -> Option<f64>;

    /// Tells how far the whole is (0–1) and what comes next; false where it shall end.
    fn goes_on(&mut self, done: f64, what: &str) -> bool;
}

/// What one load does alone.
pub(super) fn alone(bench: &mut dyn Bench, load: Load) -> Result<Vec<ThreadRate>, String> {
    Ok(bench.run(&[load])?.remove(0))
}
