//! Arm Neoverse N1, V1, N2, V2: the architecture's common events (Arm ARM, "PMU events").
//!
//! `REMOTE_ACCESS` does not distinguish another chip's caches from its memory, so that neither inter-socket coherence
//! nor remote DRAM can be derived; `CMN` and SPE are per mesh and sampled.

use super::table::{Absent, Event, NO_STATES, Table, event};
use Signal::{
    BusTransactions, Inter, Intra, L1Misses, L2LinesIn, L3LinesIn, LlcHits, LlcLoadMisses, LlcMisses, LocalDram, Near,
    PrivateMisses, Remote, SharedRequests, StallCycles,
};
use cotenant_model::Signal;

const NOT_SPLIT: &str = "REMOTE_ACCESS does not tell a remote cache from remote memory";
const NO_EVENT: &str = "no core event counts it";
const NO_STALLS: &str = "STALL_BACKEND_MEM came with Armv8.4";

const COMMON: &[Event] = &[
    event(L1Misses, "L1D_CACHE_REFILL", 0x03),
    event(PrivateMisses, "L2D_CACHE_REFILL", 0x17),
    event(LlcLoadMisses, "LL_CACHE_MISS_RD", 0x37),
    // Reads only: write misses have no separate event.
    event(LlcMisses, "LL_CACHE_MISS_RD", 0x37),
    event(L2LinesIn, "L2D_CACHE_REFILL", 0x17),
];
const STALLS: &[Event] = &[event(StallCycles, "STALL_BACKEND_MEM", 0x4005)];

const UNCOUNTED: Absent = (NO_EVENT, &[LlcHits, Intra, Near, LocalDram, L3LinesIn, BusTransactions]);
const REMOTE: Absent = (NOT_SPLIT, &[Inter, Remote]);
const STATES: Absent = (NO_STATES, &[SharedRequests]);

const fn core(name: &'static str, events: &'static [&'static [Event]], absent: &'static [Absent]) -> Table {
    // The cycle counter is fixed, instructions are not: neither counts as fixed here.
    Table { name, counters: 6, fixed: false, events, absent }
}
static N1: Table = core("Neoverse N1", &[COMMON], &[(NO_STALLS, &[StallCycles]), UNCOUNTED, REMOTE, STATES]);
static V1: Table = core("Neoverse V1", &[COMMON, STALLS], &[UNCOUNTED, REMOTE, STATES]);
static N2: Table = core("Neoverse N2", &[COMMON, STALLS], &[UNCOUNTED, REMOTE, STATES]);
static V2: Table = core("Neoverse V2", &[COMMON, STALLS], &[UNCOUNTED, REMOTE, STATES]);

/// The table of a part number (`MIDR_EL1`).
pub(super) fn table(part: u32) -> Option<&'static Table> {
    Some(match part {
        0xd0c => &N1,
        0xd40 => &V1,
        0xd49 => &N2,
        0xd4f => &V2,
        _ => return None,
    })
}
