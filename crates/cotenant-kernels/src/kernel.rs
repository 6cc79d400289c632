//! The kernels: what each does, its knobs and its memory.

use crate::caches::Caches;
use crate::ffi::{self, Body};

/// What a knob means to a kernel, and within which bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    /// There is none.
    None,
    /// Steps of computation between two accesses to shared data; the default.
    Compute(u64),
    /// Bytes copied in one piece; fixed.
    Chunk(u64),
}

/// How much memory a kernel touches by default, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Footprint {
    /// None of its own.
    None,
    /// Memory of all threads together.
    Shared,
    /// Far more than all last-level caches hold, so that every line comes from memory: 4 times the last-level caches, divided among the
    /// threads, but at least 8 times a private cache each.
    Memory,
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
    pub(crate) knob: Knob,
    pub(crate) footprint: Footprint,
    pub(crate) init: Option<Body>,
    pub(crate) body: Body,
}

/// Bytes of the words that coherence kernels share: 64 words, each alone in its line (c/coherence.c).
const SHARED_BYTES: u64 = 64 * 256;

/// Cycles of a step of computation (`ck_step`: a multiplication, 3, and an addition, 1, one after the other).
const STEP_CYCLES: f64 = 4.0;

/// Steps of computation whose duration is what `per_cycle` accesses leave between two of them.
const fn steps(per_cycle: f64) -> u64 {
    (1.0 / per_cycle / STEP_CYCLES) as u64
}

/// All of them, in the order in which they are listed.
static KERNELS: &[Kernel] = &[
    Kernel {
        name: "cpu",
        unit: "steps",
        what: "computes in registers, touches no memory",
        source: "SAM §4 (the CPU-bound tasks of its mixes)",
        knob: Knob::None,
        footprint: Footprint::None,
        init: None,
        body: ffi::ck_cpu,
    },
    Kernel {
        name: "hubench",
        unit: "shared accesses",
        what: "threads take turns at the same words, at a high rate (1.3e-3 per cycle less the transfers' own time)",
        source: "SAM §2.1, §4.1",
        knob: Knob::Compute(steps(1.3e-3)),
        footprint: Footprint::Shared,
        init: None,
        body: ffi::ck_coherence,
    },
    Kernel {
        name: "lubench",
        unit: "shared accesses",
        what: "the same near SAM's threshold (2.6e-4 per cycle less the transfers' own time)",
        source: "SAM §2.1, §4.1",
        knob: Knob::Compute(steps(2.6e-4)),
        footprint: Footprint::Shared,
        init: None,
        body: ffi::ck_coherence,
    },
    Kernel {
        name: "membench-high",
        unit: "lines",
        what: "copies memory a DRAM row (4 KiB) at a time: high row-buffer locality",
        source: "SAM §2.2",
        knob: Knob::Chunk(4096),
        footprint: Footprint::Memory,
        init: Some(ffi::ck_membench_init),
        body: ffi::ck_membench,
    },
    Kernel {
        name: "membench-low",
        unit: "lines",
        what: "copies memory a line (64 bytes) at a time, each in another row: low row-buffer locality",
        source: "SAM §2.2",
        knob: Knob::Chunk(64),
        footprint: Footprint::Memory,
        init: Some(ffi::ck_membench_init),
        body: ffi::ck_membench,
    },
    Kernel {
        name: "chase",
        unit: "loads",
        what: "follows a random cycle through all lines of its memory: one load waits for the other",
        source: "the usual measure of latency, as in lmbench's lat_mem_rd",
        knob: Knob::None,
        footprint: Footprint::Memory,
        init: Some(ffi::ck_chase_init),
        body: ffi::ck_chase,
    },
];

impl Kernel {
    /// All kernels.
    pub fn all() -> &'static [Self] {
        KERNELS
    }

    /// The kernel of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Steps of computation between two shared accesses where none are asked for; `None` where the kernel does not share.
    pub fn default_compute(&self) -> Option<u64> {
        if let Knob::Compute(steps) = self.knob { Some(steps) } else { None }
    }

    /// Bytes of each thread's own memory where no size is asked for.
    pub fn default_size(&self, caches: &Caches, threads: usize) -> u64 {
        match self.footprint {
            Footprint::None | Footprint::Shared => 0,
            Footprint::Memory => (4 * caches.llc_total / threads.max(1) as u64).max(8 * caches.l2),
        }
    }

    pub(crate) fn shared_bytes(&self) -> u64 {
        if self.footprint == Footprint::Shared { SHARED_BYTES } else { 0 }
    }
}
