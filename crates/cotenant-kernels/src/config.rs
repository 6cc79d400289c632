//! How a kernel is to run, and why it may not.

use crate::caches::Caches;
use cotenant_model::CpuId;
use std::io;
use std::time::Duration;

/// The most threads that are accepted: one for each CPU of the largest machine, so that a typo cannot exhaust the
/// process table.
pub const MAX_THREADS: usize = cotenant_model::topology::MAX_CPUS;

/// Steps of computation between two shared accesses that are accepted: a second's worth.
pub(crate) const MAX_COMPUTE: u64 = 1 << 30;

/// Largest stride that is accepted, in bytes.
pub(crate) const MAX_STRIDE: u64 = 1 << 30;

/// Rates that are accepted, per second: from one in a thousand seconds to more than any core can do.
pub(crate) const MIN_RATE: f64 = 1e-3;
pub(crate) const MAX_RATE: f64 = 1e12;

/// Smallest memory that a thread may be given: a page.
pub(crate) const MIN_SIZE: u64 = 4096;

/// How a kernel is to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Threads, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// Wall-clock time of the loops, without preparation; `None` = until the limit, or until the caller says so.
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
    /// Units per second and thread, for injectors; `None` = as many as possible. Where it cannot be reached, the
    /// report says how many were.
    pub rate: Option<f64>,
    /// Thread `i` runs on the CPU `i` modulo the length; empty = wherever the system puts it.
    pub cpus: Vec<CpuId>,
    /// The machine's caches, from which default sizes follow.
    pub caches: Caches,
}

impl Config {
    /// That many threads and defaults for everything else: no end but the caller's.
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

/// Why a kernel cannot run. Each names the value and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No thread, or more than any machine needs.
    #[error("{0} threads are not possible; give 1 to {MAX_THREADS}")]
    Threads(usize),
    /// The process may not have that many threads.
    #[error(
        "thread {0} could not be started: {1}; give fewer threads, or raise the limit (ulimit -u and -v, pids.max, vm.max_map_count)"
    )]
    Spawn(usize, io::Error),
    /// Too little memory to work on.
    #[error("{kernel} cannot work on {size} bytes per thread; give at least {least}")]
    TooSmall {
        /// The kernel.
        kernel: &'static str,
        /// What was asked for.
        size: u64,
        /// The least that it can work on.
        least: u64,
    },
    /// More memory than there is.
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
    /// More than the process may have.
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
        /// What is possible.
        range: String,
    },
    /// A thread cannot run where it was put.
    #[error("thread {thread} cannot run on CPU {cpu}: {why}; name CPUs that are online and in this process' cpuset")]
    Pin {
        /// The thread, from 0.
        thread: usize,
        /// The CPU.
        cpu: CpuId,
        /// What the system said.
        why: io::Error,
    },
}
