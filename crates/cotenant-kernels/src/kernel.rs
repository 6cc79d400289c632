//! A kernel: its knobs, memory and loops.

use crate::caches::Caches;
use crate::ffi::Body;

/// The knob of a kernel.
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
    /// Fixed for this kernel: bytes of a block, or the number of an operation.
    Fixed(u64),
}

/// Default memory of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Footprint {
    /// None of its own.
    None,
    /// None of its own: all threads share this many bytes.
    Shared(u64),
    /// This multiple of all last-level caches, divided among the threads, but at least 8 times a private cache:
    /// sequential accesses come from memory.
    Memory(u64),
    /// Half of the second-level cache, but at least twice the first: sequential accesses hit the second.
    SecondLevel,
    /// This many hundredths of the last-level cache.
    LastLevelPercent(u64),
}

/// How wrong results are detected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// Not at all.
    None,
    /// The loop counts them.
    Inside,
    /// By this function after the run.
    After(Body),
}

/// A program with known behaviour.
#[derive(Debug)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// The unit of its progress, in the plural.
    pub unit: &'static str,
    /// A one-line description.
    pub what: &'static str,
    /// Its origin.
    pub source: &'static str,
    /// Bytes read and written per unit, counted as STREAM counts (without cache effects), for bandwidth kernels.
    pub bytes_per_unit: Option<u64>,
    pub(crate) knob: Knob,
    pub(crate) footprint: Footprint,
    pub(crate) init: Option<Body>,
    pub(crate) body: Body,
    /// How wrong results are counted: by the loop itself, or after the run.
    pub(crate) check: Check,
}

impl Kernel {
    /// Default steps of computation between two shared accesses; `None` if the kernel does not share.
    pub fn default_compute(&self) -> Option<u64> {
        if let Knob::Compute(steps) = self.knob { Some(steps) } else { None }
    }

    /// Default bytes between two accesses; `None` if the kernel has no stride.
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

    /// Default bytes of each thread's own memory.
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
