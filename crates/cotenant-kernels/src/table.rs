//! The table of kernels.

use crate::ffi::{
    Body, ck_blockie, ck_bst, ck_bst_init, ck_chase, ck_chase_init, ck_coherence, ck_cpu, ck_er_naive, ck_fill,
    ck_inject, ck_membench, ck_naive, ck_rmw, ck_sledge, ck_stream, ck_stream_check, ck_stream_init,
};
use crate::kernel::{Check, Footprint, Kernel, Knob};

impl Kernel {
    /// All kernels.
    pub fn all() -> &'static [Self] {
        KERNELS
    }

    /// The kernel of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }
}

/// Bytes of the words that coherence kernels share: 64 words, each alone in its line (`c/coherence.c`).
const SHARED_BYTES: u64 = 64 * 256;

/// Cycles of a step of computation (`ck_step`): a multiplication, 3, then an addition, 1.
const STEP_CYCLES: f64 = 4.0;

/// Steps of computation that fill the time between two accesses at a rate of `per_cycle`.
const fn steps(per_cycle: f64) -> u64 {
    (1.0 / per_cycle / STEP_CYCLES) as u64
}

/// The first of them; the others give only their differences.
const PLAIN: Kernel = Kernel {
    name: "cpu",
    unit: "steps",
    what: "computes in registers, touches no memory",
    source: "SAM §4.2 (the CPU-bound tasks of its mixes)",
    bytes_per_unit: None,
    knob: Knob::None,
    footprint: Footprint::None,
    init: None,
    body: ck_cpu,
    check: Check::None,
};

/// Threads that access the same words in turn, at this rate.
const fn coherence(name: &'static str, what: &'static str, per_cycle: f64) -> Kernel {
    Kernel {
        name,
        unit: "shared accesses",
        what,
        source: "SAM §2.1, §4.1",
        knob: Knob::Compute(steps(per_cycle)),
        footprint: Footprint::Shared(SHARED_BYTES),
        body: ck_coherence,
        ..PLAIN
    }
}

/// Copies memory in blocks of this many bytes.
const fn membench(name: &'static str, what: &'static str, source: &'static str, piece: u64) -> Kernel {
    Kernel {
        name,
        unit: "lines",
        what,
        source,
        bytes_per_unit: Some(128),
        knob: Knob::Fixed(piece),
        footprint: Footprint::Memory(4),
        init: Some(ck_fill),
        body: ck_membench,
        ..PLAIN
    }
}

/// One of STREAM's operations, by its number, or all of them in turn.
const fn stream(name: &'static str, what: &'static str, operation: u64, bytes_per_unit: u64) -> Kernel {
    Kernel {
        name,
        unit: "elements",
        what,
        source: "STREAM (McCalpin): arrays of 4 times the last-level caches",
        bytes_per_unit: Some(bytes_per_unit),
        knob: Knob::Fixed(operation),
        footprint: Footprint::Memory(12),
        init: Some(ck_stream_init),
        body: ck_stream,
        check: Check::After(ck_stream_check),
    }
}

/// Loads at a settable rate.
const fn inject(name: &'static str, what: &'static str, footprint: Footprint) -> Kernel {
    Kernel {
        name,
        unit: "loads",
        what,
        source: "Feliu et al. §4",
        bytes_per_unit: Some(64),
        knob: Knob::Rate,
        footprint,
        init: Some(ck_fill),
        body: ck_inject,
        ..PLAIN
    }
}

/// Random accesses of `SmashBench` in this many hundredths of the last-level cache.
const fn random(name: &'static str, what: &'static str, percent: u64, body: Body) -> Kernel {
    Kernel {
        name,
        unit: "accesses",
        what,
        source: "SmashBench: Tang, table 5.1; named after its sizes on the paper's machine, with 8 MB of cache",
        footprint: Footprint::LastLevelPercent(percent),
        init: Some(ck_fill),
        body,
        ..PLAIN
    }
}

/// Lookups of `SmashBench` in a tree of this many hundredths of the last-level cache.
const fn bst(name: &'static str, what: &'static str, percent: u64) -> Kernel {
    let init = Some(ck_bst_init as Body);
    Kernel { unit: "lookups", init, check: Check::Inside, ..random(name, what, percent, ck_bst) }
}

/// Copies of `SmashBench` in this many hundredths of the last-level cache.
const fn copies(name: &'static str, what: &'static str, percent: u64, body: Body) -> Kernel {
    Kernel {
        name,
        unit: "words",
        what,
        source: "SmashBench: Tang, table 5.1; sizes in the ratio of the others' to the paper's 8 MB of cache",
        bytes_per_unit: Some(16),
        footprint: Footprint::LastLevelPercent(percent),
        init: Some(ck_fill),
        body,
        ..PLAIN
    }
}

/// All of them, in listing order.
pub(crate) static KERNELS: &[Kernel] = &[
    PLAIN,
    coherence(
        "hubench",
        "threads take turns at the same words, at a high rate: 0.0013 per cycle, less the time of the transfers",
        1.3e-3,
    ),
    coherence("lubench", "the same near SAM's threshold: 0.00026 per cycle, less the time of the transfers", 2.6e-4),
    membench(
        "membench-high",
        "copies memory a DRAM row (4 KiB) at a time: high row-buffer locality",
        "SAM §2.2, §4.1 (its MemBench)",
        4096,
    ),
    membench(
        "membench-low",
        "copies memory a line (64 bytes) at a time, each in another row: low row-buffer locality",
        "SAM §2.2",
        64,
    ),
    stream("stream", "copy, scale, add and triad in turn over three arrays; every result is checked", 4, 20),
    stream("stream-copy", "c = a; every result is checked", 0, 16),
    stream("stream-scale", "b = q·c; every result is checked", 1, 16),
    stream("stream-add", "c = a + b; every result is checked", 2, 24),
    stream("stream-triad", "a = b + q·c; every result is checked", 3, 24),
    Kernel {
        name: "rmw",
        unit: "accesses",
        what: "reads, changes and writes a word every --stride bytes, in order",
        source: "Tumanov et al. §3, without its flushes",
        knob: Knob::Stride(64),
        footprint: Footprint::Memory(4),
        init: Some(ck_fill),
        body: ck_rmw,
        ..PLAIN
    },
    Kernel {
        name: "chase",
        unit: "loads",
        what: "follows a random cycle through all lines of its memory: one load waits for the other",
        source: "lmbench's lat_mem_rd, in random order",
        footprint: Footprint::Memory(4),
        init: Some(ck_chase_init),
        body: ck_chase,
        ..PLAIN
    },
    inject(
        "inject-l2",
        "loads that miss the first-level cache and hit the second, --rate per second",
        Footprint::SecondLevel,
    ),
    inject("inject-memory", "loads from memory, --rate per second", Footprint::Memory(4)),
    bst(
        "bst-4mb",
        "looks up random keys in a binary search tree; every one must be found (0.5 × the last-level cache)",
        50,
    ),
    bst(
        "bst-8mb",
        "looks up random keys in a binary search tree; every one must be found (1 × the last-level cache)",
        100,
    ),
    bst(
        "bst-50mb",
        "looks up random keys in a binary search tree; every one must be found (6.25 × the last-level cache)",
        625,
    ),
    random(
        "naive-4mb",
        "changes random words of an array, one after the other (0.5 × the last-level cache)",
        50,
        ck_naive,
    ),
    random(
        "naive-8mb",
        "changes random words of an array, one after the other (1 × the last-level cache)",
        100,
        ck_naive,
    ),
    random(
        "naive-50mb",
        "changes random words of an array, one after the other (6.25 × the last-level cache)",
        625,
        ck_naive,
    ),
    random("er-naive-4mb", "changes random words of an array, faster (0.5 × the last-level cache)", 50, ck_er_naive),
    random("er-naive-8mb", "changes random words of an array, faster (1 × the last-level cache)", 100, ck_er_naive),
    random("er-naive-50mb", "changes random words of an array, faster (6.25 × the last-level cache)", 625, ck_er_naive),
    copies("blockie-small", "copies blocks from one 3D array to the next (0.5 × the last-level cache)", 50, ck_blockie),
    copies("blockie-medium", "copies blocks from one 3D array to the next (1 × the last-level cache)", 100, ck_blockie),
    copies(
        "blockie-large",
        "copies blocks from one 3D array to the next (6.25 × the last-level cache)",
        625,
        ck_blockie,
    ),
    copies("sledge-small", "copies two arrays back and forth (0.5 × the last-level cache)", 50, ck_sledge),
    copies("sledge-medium", "copies two arrays back and forth (1 × the last-level cache)", 100, ck_sledge),
    copies("sledge-large", "copies two arrays back and forth (6.25 × the last-level cache)", 625, ck_sledge),
];
