//! What a kernel is: its knobs, its memory, its loops.

use crate::caches::Caches;
use crate::ffi::Body;
use crate::table::KERNELS;

/// What a kernel's knob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    /// There is none.
    None,
    /// Steps of computation between two accesses to shared data; the default.
    Compute(u64),
    /// Bytes from one access to the next; the default.
    Stride(u64),
    /// Units per second.
    Rate,
    /// Fixed for this kernel: bytes of a piece, or the number of an operation.
    Fixed(u64),
}

/// How much memory each thread has by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Footprint {
    /// None of its own.
    None,
    /// None of its own: that many bytes belong to all threads together.
    Shared(u64),
    /// So many times all last-level caches, divided among the threads, but at least 8 times a private cache: what is
    /// touched in turn comes from memory.
    Memory(u64),
    /// Half of the second-level cache, but at least twice the first: what is touched in turn is found in the second.
    SecondLevel,
    /// So many hundredths of the last-level cache.
    LastLevelPercent(u64),
}

/// How wrong results are noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// They are not.
    None,
    /// The loop counts them.
    Inside,
    /// This counts them after the run.
    After(Body),
}

/// A program of known behaviour.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// What one unit of its progress is, in the plural.
    pub unit: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Bytes that a unit reads and writes, counted as STREAM counts (what the program moves, not what caches add),
    /// for kernels that are about bandwidth.
    pub bytes_per_unit: Option<u64>,
    pub(crate) knob: Knob,
    pub(crate) footprint: Footprint,
    pub(crate) init: Option<Body>,
    pub(crate) body: Body,
    /// Whether wrong results are counted: by the loop itself, or after the run.
    pub(crate) check: Check,
}

impl Kernel {
    /// All kernels.
    pub fn all() -> &'static [Self] {
        KERNELS
    }

    /// The kernel of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Steps of computation between two shared accesses where none are asked for; `None` where the kernel does not
    /// share.
    pub fn default_compute(&self) -> Option<u64> {
        if let Knob::Compute(steps) = self.knob { Some(steps) } else { None }
    }

    /// Bytes between two accesses where none are asked for; `None` where the kernel has no stride.
    pub fn default_stride(&self) -> Option<u64> {
        if let Knob::Stride(bytes) = self.knob { Some(bytes) } else { None }
    }

    /// Whether its rate can be set.
    pub fn has_rate(&self) -> bool {
        self.knob == Knob::Rate
    }

    /// Whether each thread has memory of its own, whose size can be set.
    pub fn has_size(&self) -> bool {
        !matches!(self.footprint, Footprint::None | Footprint::Shared(_))
    }

    /// Bytes of each thread's own memory where no size is asked for.
    pub fn default_size(&self, caches: &Caches, threads: usize) -> u64 {
        match self.footprint {
            Footprint::None | Footprint::Shared(_) => 0,
            Footprint::Memory(times) => (times * caches.llc_total / threads.max(1) as u64).max(8 * caches.l2),
            Footprint::SecondLevel => (caches.l2 / 2).max(2 * caches.l1d),
            Footprint::LastLevelPercent(percent) => caches.llc * percent / 100,
        }
    }

    pub(crate) fn shared_bytes(&self) -> u64 {
        if let Footprint::Shared(bytes) = self.footprint { bytes } else { 0 }
    }
}
