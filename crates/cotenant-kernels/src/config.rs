//! Settings of a kernel, and their errors.

use crate::caches::Caches;
use cotenant_model::CpuId;
use std::io;
use std::time::Duration;

/// Limit of threads: one per CPU of the largest machine, so that a typo cannot exhaust the process table.
pub const MAX_THREADS: usize = cotenant_model::topology::MAX_CPUS;

/// Limit of computation steps between two shared accesses: a second's worth.
pub(crate) const MAX_COMPUTE: u64 = 1 << 30;

/// Limit of the stride, in bytes.
pub(crate) const MAX_STRIDE: u64 = 1 << 30;

/// Accepted rates per second: from one in a thousand seconds to more than any core can reach.
pub(crate) const MIN_RATE: f64 = 1e-3;
pub(crate) const MAX_RATE: f64 = 1e12;

/// Smallest memory of a thread: a page.
pub(crate) const MIN_SIZE: u64 = 4096;

/// Settings of a kernel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// Wall-clock time of the loops without initialization; `None`: until the limit, or until the caller stops them.
    pub duration: Option<Duration>,
    /// Units of work per thread; `None` = no limit.
    pub limit: Option<u64>,
    /// Bytes of each thread's own memory; `None` = [`Kernel::default_size`](crate::Kernel::default_size).
    pub size: Option<u64>,
    /// Steps of computation between two accesses to shared data; `None` =
    /// [`Kernel::default_compute`](crate::Kernel::default_compute).
    pub compute: Option<u64>,
    /// Bytes from one access to the next, a multiple of 8; `None` =
    /// [`Kernel::default_stride`](crate::Kernel::default_stride).
    pub stride: Option<u64>,
    /// Units per second and thread, for injectors; `None`: as many as possible. The report gives the rate that was
    /// reached.
    pub rate: Option<f64>,
    /// Thread `i` runs on the CPU `i` modulo the length; empty: wherever the system puts it.
    pub cpus: Vec<CpuId>,
    /// The machine's caches, which determine default sizes.
    pub caches: Caches,
}

impl Config {
    /// This many threads and defaults for the rest: only the caller ends it.
    pub fn new(threads: usize, caches: Caches) -> Self {
        Self {
            threads,
            duration: None,
            limit: None,
            size: None,
            compute: None,
            stride: None,
            rate: None,
            cpus: Vec::new(),
            caches,
        }
    }
}

/// Reasons why a kernel cannot run, with the value and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No thread, or more than [`MAX_THREADS`].
    #[error("{0} threads are not possible; give 1 to {MAX_THREADS}")]
    Threads(usize),
    /// The process may not create this many threads.
    #[error(
        "thread {0} could not be started: {1}; give fewer threads, or raise the limit (ulimit -u and -v, pids.max, vm.max_map_count)"
    )]
    Spawn(usize, io::Error),
    /// Too little memory.
    #[error("{kernel} cannot work on {size} bytes per thread; give at least {least}")]
    TooSmall {
        /// The kernel.
        kernel: &'static str,
        /// The requested size.
        size: u64,
        /// The minimum.
        least: u64,
    },
    /// More memory than available.
    #[error(
        "{threads} × {size} bytes are more than the {available} bytes of memory that are available; give a smaller size or fewer threads"
    )]
    TooLarge {
        /// Threads.
        threads: usize,
        /// Bytes per thread.
        size: u64,
        /// Bytes available.
        available: u64,
    },
    /// More than the process may use.
    #[error(
        "the system gives this process no {threads} × {size} bytes; give a smaller size or fewer threads, or raise the limit (ulimit -v)"
    )]
    NoRoom {
        /// Threads.
        threads: usize,
        /// Bytes per thread.
        size: u64,
    },
    /// The kernel has no such setting.
    #[error("{kernel} has no {setting}; leave it out")]
    Setting {
        /// The kernel.
        kernel: &'static str,
        /// The setting.
        setting: &'static str,
    },
    /// A setting is out of its range.
    #[error("{setting} {value} is out of range; give {range}")]
    Range {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        range: String,
    },
    /// A thread cannot run on its CPU.
    #[error("thread {thread} cannot run on CPU {cpu}: {why}; name CPUs that are online and in this process' cpuset")]
    Pin {
        /// The thread, from 0.
        thread: usize,
        /// The CPU.
        cpu: CpuId,
        /// The system's error.
        why: io::Error,
    },
}
