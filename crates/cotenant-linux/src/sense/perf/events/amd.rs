//! AMD: Zen 1 to Zen 5. Fills of the first-level data cache, by their source.
//!
//! Zen counts fills, not retired loads: Intel's misses of a level are here the fills from beyond it.

use super::table::{Absent, Event, NO_STATES, Table, event};
use Signal::{
    BusTransactions, Inter, Intra, L1Misses, L2LinesIn, L3LinesIn, LlcHits, LlcLoadMisses, LlcMisses, LocalDram, Near,
    PrivateMisses, Remote, SharedRequests, StallCycles,
};
use cotenant_model::Signal;

const L3_PMU: &str = "the L3 counts per cache, not per task";
const SAME_CCX: &str = "a fill from the own CCX may come from its L3 or from a sibling's L2; they are one event";
const NO_SPLIT: &str = "fills count loads and stores alike";
const NO_STALLS: &str = "no event counts cycles stalled on memory";
const NO_L2_FILLS: &str = "no event counts lines that enter L2";
const MIXED: &str = "fills from local caches include plain L3 hits";

const ABSENT: &[Absent] = &[
    (NO_STALLS, &[StallCycles]),
    (SAME_CCX, &[LlcHits, Intra]),
    (NO_SPLIT, &[LlcLoadMisses]),
    (NO_L2_FILLS, &[L2LinesIn]),
    (L3_PMU, &[L3LinesIn, BusTransactions]),
    (NO_STATES, &[SharedRequests]),
];
const ZEN2_ABSENT: &[Absent] = &[
    (NO_STALLS, &[StallCycles]),
    (SAME_CCX, &[LlcHits]),
    (NO_SPLIT, &[LlcLoadMisses]),
    (MIXED, &[Intra, Near]),
    (NO_L2_FILLS, &[L2LinesIn]),
    (L3_PMU, &[L3LinesIn, BusTransactions]),
    (NO_STATES, &[SharedRequests]),
];

const fn core(name: &'static str, events: &'static [&'static [Event]], absent: &'static [Absent]) -> Table {
    Table { name, counters: 6, fixed: false, events, absent }
}

const ZEN2_EVENTS: &[Event] = &[
    event(
        L1Misses,
        "ls_refills_from_sys.ls_mabresp_lcl_l2|ls_mabresp_lcl_cache|ls_mabresp_lcl_dram|ls_mabresp_rmt_cache|ls_mabresp_rmt_dram",
        0x5b43,
    ),
    event(
        PrivateMisses,
        "ls_refills_from_sys.ls_mabresp_lcl_cache|ls_mabresp_lcl_dram|ls_mabresp_rmt_cache|ls_mabresp_rmt_dram",
        0x5a43,
    ),
    event(LlcMisses, "ls_refills_from_sys.ls_mabresp_lcl_dram|ls_mabresp_rmt_dram", 0x4843),
    event(Inter, "ls_refills_from_sys.ls_mabresp_rmt_cache", 0x1043),
    event(Remote, "ls_refills_from_sys.ls_mabresp_rmt_dram", 0x4043),
    event(LocalDram, "ls_refills_from_sys.ls_mabresp_lcl_dram", 0x0843),
];
const ZEN3_EVENTS: &[Event] = &[
    event(
        L1Misses,
        "ls_dmnd_fills_from_sys.lcl_l2|int_cache|ext_cache_local|mem_io_local|ext_cache_remote|mem_io_remote",
        0x5f43,
    ),
    event(
        PrivateMisses,
        "ls_any_fills_from_sys.int_cache|ext_cache_local|mem_io_local|ext_cache_remote|mem_io_remote",
        0x5e44,
    ),
    event(LlcMisses, "ls_any_fills_from_sys.mem_io_local|mem_io_remote", 0x4844),
    event(Inter, "ls_any_fills_from_sys.ext_cache_remote", 0x1044),
    event(Near, "ls_any_fills_from_sys.ext_cache_local", 0x0444),
    event(Remote, "ls_any_fills_from_sys.mem_io_remote", 0x4044),
    event(LocalDram, "ls_any_fills_from_sys.mem_io_local", 0x0844),
];
const ZEN4_EVENTS: &[Event] = &[
    event(
        L1Misses,
        "ls_dmnd_fills_from_sys.local_l2|local_ccx|near_cache|dram_io_near|far_cache|dram_io_far|alternate_memories",
        0xdf43,
    ),
    event(
        PrivateMisses,
        "ls_any_fills_from_sys.local_ccx|near_cache|dram_io_near|far_cache|dram_io_far|alternate_memories",
        0xde44,
    ),
    event(LlcMisses, "ls_any_fills_from_sys.dram_io_near|dram_io_far", 0x4844),
    event(Inter, "ls_any_fills_from_sys.far_cache", 0x1044),
    event(Near, "ls_any_fills_from_sys.near_cache", 0x0444),
    event(Remote, "ls_any_fills_from_sys.dram_io_far", 0x4044),
    event(LocalDram, "ls_any_fills_from_sys.dram_io_near", 0x0844),
];
static ZEN1: Table = core("Zen", &[ZEN2_EVENTS], ZEN2_ABSENT);
static ZEN2: Table = core("Zen 2", &[ZEN2_EVENTS], ZEN2_ABSENT);
static ZEN3: Table = core("Zen 3", &[ZEN3_EVENTS], ABSENT);
static ZEN4: Table = core("Zen 4", &[ZEN4_EVENTS], ABSENT);
static ZEN5: Table = core("Zen 5", &[ZEN4_EVENTS], ABSENT);

/// The table of a family and model (the kernel's `arch/x86/kernel/cpu/amd.c` and perf's `mapfile.csv`).
pub(super) fn table(family: u32, model: u32) -> Option<&'static Table> {
    Some(match (family, model) {
        (0x17, 0x00..=0x2f) | (0x18, _) => &ZEN1,
        (0x17, _) => &ZEN2,
        (0x19, 0x00..=0x0f | 0x20..=0x5f) => &ZEN3,
        (0x19, _) => &ZEN4,
        (0x1a, _) => &ZEN5,
        _ => return None,
    })
}
