//! Intel: Ivy Bridge-EP to Granite Rapids, and the client parts that share their cores.

use super::table::{Absent, Event, NO_STATES, Table, event};
use Signal::{
    BusTransactions, Inter, Intra, L1Misses, L2LinesIn, L3LinesIn, LlcHits, LlcLoadMisses, LlcMisses, LocalDram, Near,
    PrivateMisses, Remote, SharedRequests, StallCycles,
};
use cotenant_model::Signal;

const UNCORE: &str = "memory traffic is counted per socket by the uncore, not per task";
const ONE_DOMAIN: &str = "one last-level cache per socket: all coherence is inside it or outside the socket";
const DERIVED: &str = "derived from private misses, LLC hits and LLC load misses on this processor";
const VICTIM: &str = "lines enter this last-level cache as victims of L2, which no core event counts";
const ONE_SOCKET: &str = "client processors have one socket";

const fn core(name: &'static str, events: &'static [&'static [Event]], absent: &'static [Absent]) -> Table {
    Table { name, counters: 4, fixed: true, events, absent }
}

const LLC_MISS: Event = event(LlcMisses, "LONGEST_LAT_CACHE.MISS", 0x412e);

// Ivy Bridge to Broadwell: an inclusive last-level cache; an "LLC hit" is a hit without a snoop.

const OLD: &[Event] = &[
    event(StallCycles, "CYCLE_ACTIVITY.STALLS_LDM_PENDING", 0x0600_06a3),
    event(L1Misses, "MEM_LOAD_UOPS_RETIRED.L1_MISS", 0x08d1),
    event(PrivateMisses, "MEM_LOAD_UOPS_RETIRED.L2_MISS", 0x10d1),
    LLC_MISS,
    event(L2LinesIn, "L2_LINES_IN.ALL", 0x07f1),
    Event { signal: L3LinesIn, ..LLC_MISS },
];
const OLD_ABSENT: &[Absent] =
    &[(DERIVED, &[Intra]), (ONE_DOMAIN, &[Near]), (UNCORE, &[BusTransactions]), (NO_STATES, &[SharedRequests])];
const IVT_LOADS: &[Event] = &[
    event(LlcHits, "MEM_LOAD_UOPS_RETIRED.LLC_HIT", 0x04d1),
    event(LlcLoadMisses, "MEM_LOAD_UOPS_RETIRED.LLC_MISS", 0x20d1),
    event(Inter, "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_HITM", 0x10d3),
    event(Inter, "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_FWD", 0x20d3),
    event(Remote, "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM", 0x0cd3),
    event(LocalDram, "MEM_LOAD_UOPS_LLC_MISS_RETIRED.LOCAL_DRAM", 0x03d3),
];
const HSX_LOADS: &[Event] = &[
    event(LlcHits, "MEM_LOAD_UOPS_RETIRED.L3_HIT", 0x04d1),
    event(LlcLoadMisses, "MEM_LOAD_UOPS_RETIRED.L3_MISS", 0x20d1),
    event(Inter, "MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_HITM|REMOTE_FWD", 0x30d3),
    event(Remote, "MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_DRAM", 0x04d3),
    event(LocalDram, "MEM_LOAD_UOPS_L3_MISS_RETIRED.LOCAL_DRAM", 0x01d3),
];
static IVT: Table = core("Ivy Bridge-EP", &[OLD, IVT_LOADS], OLD_ABSENT);
static HSX: Table = core("Haswell-EP", &[OLD, HSX_LOADS], OLD_ABSENT);
static BDX: Table = core("Broadwell-EP", &[OLD, HSX_LOADS], OLD_ABSENT);

// Skylake onward: a victim last-level cache; snoop hits are events of their own.

const NEW: &[Event] = &[
    event(L1Misses, "MEM_LOAD_RETIRED.L1_MISS", 0x08d1),
    event(PrivateMisses, "MEM_LOAD_RETIRED.L2_MISS", 0x10d1),
    event(LlcHits, "MEM_LOAD_RETIRED.L3_HIT", 0x04d1),
    event(LlcLoadMisses, "MEM_LOAD_RETIRED.L3_MISS", 0x20d1),
    LLC_MISS,
];
const STALLS_MEM: Event = event(StallCycles, "CYCLE_ACTIVITY.STALLS_MEM_ANY", 0x1400_14a3);
const SNOOP_FWD: Event = event(Intra, "MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD|XSNP_FWD", 0x06d2);
const F1_L2_LINES: Event = event(L2LinesIn, "L2_LINES_IN.ALL", 0x1ff1);
const SKL: &[Event] = &[STALLS_MEM, event(Intra, "MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT|XSNP_HITM", 0x06d2), F1_L2_LINES];
const ICL: &[Event] = &[STALLS_MEM, SNOOP_FWD, F1_L2_LINES];
const GLC: &[Event] = &[
    event(StallCycles, "EXE_ACTIVITY.BOUND_ON_LOADS", 0x0500_21a6),
    SNOOP_FWD,
    event(L2LinesIn, "L2_LINES_IN.ALL", 0x1f25),
];
const SOCKETS: &[Event] = &[
    event(Inter, "MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM|REMOTE_FWD", 0x0cd3),
    event(Remote, "MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM", 0x02d3),
    event(LocalDram, "MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", 0x01d3),
];
const SERVER_ABSENT: &[Absent] =
    &[(ONE_DOMAIN, &[Near]), (VICTIM, &[L3LinesIn]), (UNCORE, &[BusTransactions]), (NO_STATES, &[SharedRequests])];
static SKX: Table = core("Skylake-SP", &[NEW, SKL, SOCKETS], SERVER_ABSENT);
static CLX: Table = core("Cascade Lake-SP", &[NEW, SKL, SOCKETS], SERVER_ABSENT);
static ICX: Table = core("Ice Lake-SP", &[NEW, ICL, SOCKETS], SERVER_ABSENT);
static SPR: Table = core("Sapphire Rapids", &[NEW, GLC, SOCKETS], SERVER_ABSENT);
static EMR: Table = core("Emerald Rapids", &[NEW, GLC, SOCKETS], SERVER_ABSENT);
static GNR: Table = core("Granite Rapids", &[NEW, GLC, SOCKETS], SERVER_ABSENT);

// Client parts: the same cores, one socket, fewer events. An inclusive last-level cache up to Ice Lake.

const CLIENT_ABSENT: &[Absent] = &[
    (ONE_SOCKET, &[Inter, Remote, LocalDram]),
    (ONE_DOMAIN, &[Near]),
    (VICTIM, &[L3LinesIn]),
    (UNCORE, &[BusTransactions]),
    (NO_STATES, &[SharedRequests]),
];
static SKYLAKE: Table = core("Skylake (client)", &[NEW, SKL], CLIENT_ABSENT);
static GOLDEN_COVE: Table = core("Golden Cove (client)", &[NEW, GLC], CLIENT_ABSENT);

/// Efficiency cores of hybrid processors, and models without a table: the architecture's guaranteed events.
pub(super) static ARCHITECTURAL: Table = core("Intel architectural events", &[&[LLC_MISS]], ARCHITECTURAL_ABSENT);
const ARCHITECTURAL_ABSENT: &[Absent] = &[
    (
        "no event table for this kind of core; only architectural events are counted",
        &[
            StallCycles,
            L1Misses,
            PrivateMisses,
            LlcHits,
            LlcLoadMisses,
            Intra,
            Inter,
            Near,
            Remote,
            LocalDram,
            L2LinesIn,
            L3LinesIn,
        ],
    ),
    (UNCORE, &[BusTransactions]),
    (NO_STATES, &[SharedRequests]),
];

/// Whether the kernel counts with half of a model's programmable counters while SMT is on: Sandy Bridge, Ivy Bridge,
/// Haswell (`intel_ht_bug` in `arch/x86/events/intel/core.c`; errata BJ122, BV98, HSD29).
pub(super) fn halved(model: u32) -> bool {
    matches!(model, 0x2a | 0x2d | 0x3a | 0x3e | 0x3c | 0x3f | 0x45 | 0x46)
}

/// The table of a model of family 6 (Intel SDM volume 4, table 2-1; perfmon's `mapfile.csv`).
pub(super) fn table(model: u32, stepping: u32) -> &'static Table {
    match model {
        0x3e => &IVT,
        0x3f => &HSX,
        0x4f | 0x56 => &BDX,
        0x55 if stepping < 5 => &SKX,
        0x55 => &CLX,
        0x6a | 0x6c => &ICX,
        0x8f => &SPR,
        0xcf => &EMR,
        0xad | 0xae => &GNR,
        0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6 => &SKYLAKE,
        0x97 | 0x9a | 0xb7 | 0xba | 0xbf => &GOLDEN_COVE,
        _ => &ARCHITECTURAL,
    }
}
