//! Arm Neoverse N1, V1, N2, V2: the architecture's common events (Arm ARM, "PMU events").
//!
//! `REMOTE_ACCESS` counts data from another chip without telling a cache there from its memory, so neither inter-socket
//! coherence nor remote DRAM can be had from it; `CMN` and SPE are per mesh and sampled.

use super::{Entry, NO_STATES, Table, event};
use Signal::{
    BusTransactions, Inter, Intra, L1Misses, L2LinesIn, L3LinesIn, LlcHits, LlcLoadMisses, LlcMisses, LocalDram, Near,
    PrivateMisses, Remote, SharedRequests, StallCycles,
};
use cotenant_model::Signal;

const NOT_SPLIT: &str = "REMOTE_ACCESS does not tell a remote cache from remote memory";
const NO_EVENT: &str = "no core event counts it";
const NO_STALLS: &str = "STALL_BACKEND_MEM came with Armv8.4";

const COMMON: [Entry; 5] = [
    Entry { signal: L1Misses, events: &[event("L1D_CACHE_REFILL", 0x03)] },
    Entry { signal: PrivateMisses, events: &[event("L2D_CACHE_REFILL", 0x17)] },
    Entry { signal: LlcLoadMisses, events: &[event("LL_CACHE_MISS_RD", 0x37)] },
    // Reads only: writes that miss have no event of their own.
    Entry { signal: LlcMisses, events: &[event("LL_CACHE_MISS_RD", 0x37)] },
    Entry { signal: L2LinesIn, events: &[event("L2D_CACHE_REFILL", 0x17)] },
];
const STALLS: Entry = Entry { signal: StallCycles, events: &[event("STALL_BACKEND_MEM", 0x4005)] };
const WITH_STALLS: &[Entry] = &[COMMON[0], COMMON[1], COMMON[2], COMMON[3], COMMON[4], STALLS];

const ABSENT: &[(Signal, &str)] = &[
    (LlcHits, NO_EVENT),
    (Intra, NO_EVENT),
    (Inter, NOT_SPLIT),
    (Near, NO_EVENT),
    (Remote, NOT_SPLIT),
    (LocalDram, NO_EVENT),
    (L3LinesIn, NO_EVENT),
    (BusTransactions, NO_EVENT),
    (SharedRequests, NO_STATES),
];
const N1_ABSENT: &[(Signal, &str)] = &[
    (StallCycles, NO_STALLS),
    (LlcHits, NO_EVENT),
    (Intra, NO_EVENT),
    (Inter, NOT_SPLIT),
    (Near, NO_EVENT),
    (Remote, NOT_SPLIT),
    (LocalDram, NO_EVENT),
    (L3LinesIn, NO_EVENT),
    (BusTransactions, NO_EVENT),
    (SharedRequests, NO_STATES),
];

// The cycle counter is fixed, instructions are not: neither counts as fixed here.
static N1: Table = Table { name: "Neoverse N1", counters: 6, fixed: false, entries: &COMMON, absent: N1_ABSENT };
static V1: Table = Table { name: "Neoverse V1", counters: 6, fixed: false, entries: WITH_STALLS, absent: ABSENT };
static N2: Table = Table { name: "Neoverse N2", counters: 6, fixed: false, entries: WITH_STALLS, absent: ABSENT };
static V2: Table = Table { name: "Neoverse V2", counters: 6, fixed: false, entries: WITH_STALLS, absent: ABSENT };

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
