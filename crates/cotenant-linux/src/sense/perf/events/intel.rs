//! Intel: Ivy Bridge-EP to Granite Rapids, and the client parts that share their cores.

use super::{Entry, Event, NO_STATES, Table, event};
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

const fn entry(signal: Signal, events: &'static [Event]) -> Entry {
    Entry { signal, events }
}

const LLC_MISS: &[Event] = &[event("LONGEST_LAT_CACHE.MISS", 0x412e)];

// Ivy Bridge to Broadwell: an inclusive last-level cache; an "LLC hit" is a hit without a snoop.

const STALLS_LDM: Entry = entry(StallCycles, &[event("CYCLE_ACTIVITY.STALLS_LDM_PENDING", 0x0600_06a3)]);
const OLD_L2_LINES: Entry = entry(L2LinesIn, &[event("L2_LINES_IN.ALL", 0x07f1)]);
const OLD_L1_MISS: Entry = entry(L1Misses, &[event("MEM_LOAD_UOPS_RETIRED.L1_MISS", 0x08d1)]);
const OLD_L2_MISS: Entry = entry(PrivateMisses, &[event("MEM_LOAD_UOPS_RETIRED.L2_MISS", 0x10d1)]);
const OLD_L3_HIT: Entry = entry(LlcHits, &[event("MEM_LOAD_UOPS_RETIRED.L3_HIT", 0x04d1)]);
const OLD_L3_MISS: Entry = entry(LlcLoadMisses, &[event("MEM_LOAD_UOPS_RETIRED.L3_MISS", 0x20d1)]);
const OLD_ABSENT: &[(Signal, &str)] =
    &[(Intra, DERIVED), (Near, ONE_DOMAIN), (BusTransactions, UNCORE), (SharedRequests, NO_STATES)];

static IVT: Table = Table {
    name: "Ivy Bridge-EP",
    counters: 4,
    fixed: true,
    entries: &[
        STALLS_LDM,
        OLD_L1_MISS,
        OLD_L2_MISS,
        entry(LlcHits, &[event("MEM_LOAD_UOPS_RETIRED.LLC_HIT", 0x04d1)]),
        entry(LlcLoadMisses, &[event("MEM_LOAD_UOPS_RETIRED.LLC_MISS", 0x20d1)]),
        entry(LlcMisses, LLC_MISS),
        entry(
            Inter,
            &[
                event("MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_HITM", 0x10d3),
                event("MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_FWD", 0x20d3),
            ],
        ),
        entry(Remote, &[event("MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM", 0x0cd3)]),
        entry(LocalDram, &[event("MEM_LOAD_UOPS_LLC_MISS_RETIRED.LOCAL_DRAM", 0x03d3)]),
        OLD_L2_LINES,
        entry(L3LinesIn, LLC_MISS),
    ],
    absent: OLD_ABSENT,
};

const HSX_ENTRIES: &[Entry] = &[
    STALLS_LDM,
    OLD_L1_MISS,
    OLD_L2_MISS,
    OLD_L3_HIT,
    OLD_L3_MISS,
    entry(LlcMisses, LLC_MISS),
    entry(Inter, &[event("MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_HITM|REMOTE_FWD", 0x30d3)]),
    entry(Remote, &[event("MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_DRAM", 0x04d3)]),
    entry(LocalDram, &[event("MEM_LOAD_UOPS_L3_MISS_RETIRED.LOCAL_DRAM", 0x01d3)]),
    OLD_L2_LINES,
    entry(L3LinesIn, LLC_MISS),
];
static HSX: Table = Table { name: "Haswell-EP", counters: 4, fixed: true, entries: HSX_ENTRIES, absent: OLD_ABSENT };
static BDX: Table = Table { name: "Broadwell-EP", counters: 4, fixed: true, entries: HSX_ENTRIES, absent: OLD_ABSENT };

// Skylake onward: a victim last-level cache; snoop hits are events of their own.

const STALLS_MEM: Entry = entry(StallCycles, &[event("CYCLE_ACTIVITY.STALLS_MEM_ANY", 0x1400_14a3)]);
const BOUND_ON_LOADS: Entry = entry(StallCycles, &[event("EXE_ACTIVITY.BOUND_ON_LOADS", 0x0500_21a6)]);
const L1_MISS: Entry = entry(L1Misses, &[event("MEM_LOAD_RETIRED.L1_MISS", 0x08d1)]);
const L2_MISS: Entry = entry(PrivateMisses, &[event("MEM_LOAD_RETIRED.L2_MISS", 0x10d1)]);
const L3_HIT: Entry = entry(LlcHits, &[event("MEM_LOAD_RETIRED.L3_HIT", 0x04d1)]);
const L3_MISS: Entry = entry(LlcLoadMisses, &[event("MEM_LOAD_RETIRED.L3_MISS", 0x20d1)]);
const SNOOP_HIT: Entry = entry(Intra, &[event("MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT|XSNP_HITM", 0x06d2)]);
const SNOOP_FWD: Entry = entry(Intra, &[event("MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD|XSNP_FWD", 0x06d2)]);
const REMOTE_CACHE: Entry = entry(Inter, &[event("MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM|REMOTE_FWD", 0x0cd3)]);
const REMOTE_DRAM: Entry = entry(Remote, &[event("MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM", 0x02d3)]);
const LOCAL_DRAM: Entry = entry(LocalDram, &[event("MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", 0x01d3)]);
const F1_L2_LINES: Entry = entry(L2LinesIn, &[event("L2_LINES_IN.ALL", 0x1ff1)]);
const X25_L2_LINES: Entry = entry(L2LinesIn, &[event("L2_LINES_IN.ALL", 0x1f25)]);
const MISS: Entry = entry(LlcMisses, LLC_MISS);
const NEW_ABSENT: &[(Signal, &str)] =
    &[(Near, ONE_DOMAIN), (L3LinesIn, VICTIM), (BusTransactions, UNCORE), (SharedRequests, NO_STATES)];

const SKX_ENTRIES: &[Entry] = &[
    STALLS_MEM,
    L1_MISS,
    L2_MISS,
    L3_HIT,
    L3_MISS,
    MISS,
    SNOOP_HIT,
    REMOTE_CACHE,
    REMOTE_DRAM,
    LOCAL_DRAM,
    F1_L2_LINES,
];
const ICX_ENTRIES: &[Entry] = &[
    STALLS_MEM,
    L1_MISS,
    L2_MISS,
    L3_HIT,
    L3_MISS,
    MISS,
    SNOOP_FWD,
    REMOTE_CACHE,
    REMOTE_DRAM,
    LOCAL_DRAM,
    F1_L2_LINES,
];
const SPR_ENTRIES: &[Entry] = &[
    BOUND_ON_LOADS,
    L1_MISS,
    L2_MISS,
    L3_HIT,
    L3_MISS,
    MISS,
    SNOOP_FWD,
    REMOTE_CACHE,
    REMOTE_DRAM,
    LOCAL_DRAM,
    X25_L2_LINES,
];

const fn server(name: &'static str, entries: &'static [Entry]) -> Table {
    Table { name, counters: 4, fixed: true, entries, absent: NEW_ABSENT }
}
static SKX: Table = server("Skylake-SP", SKX_ENTRIES);
static CLX: Table = server("Cascade Lake-SP", SKX_ENTRIES);
static ICX: Table = server("Ice Lake-SP", ICX_ENTRIES);
static SPR: Table = server("Sapphire Rapids", SPR_ENTRIES);
static EMR: Table = server("Emerald Rapids", SPR_ENTRIES);
static GNR: Table = server("Granite Rapids", SPR_ENTRIES);

// Client parts: the same cores, one socket, fewer events. An inclusive last-level cache up to Ice Lake.

const CLIENT_ABSENT: &[(Signal, &str)] = &[
    (Inter, ONE_SOCKET),
    (Near, ONE_DOMAIN),
    (Remote, ONE_SOCKET),
    (LocalDram, ONE_SOCKET),
    (L3LinesIn, VICTIM),
    (BusTransactions, UNCORE),
    (SharedRequests, NO_STATES),
];
static SKYLAKE: Table = Table {
    name: "Skylake (client)",
    counters: 4,
    fixed: true,
    entries: &[STALLS_MEM, L1_MISS, L2_MISS, L3_HIT, L3_MISS, MISS, SNOOP_HIT, F1_L2_LINES],
    absent: CLIENT_ABSENT,
};
static GOLDEN_COVE: Table = Table {
    name: "Golden Cove (client)",
    counters: 4,
    fixed: true,
    entries: &[BOUND_ON_LOADS, L1_MISS, L2_MISS, L3_HIT, L3_MISS, MISS, SNOOP_FWD, X25_L2_LINES],
    absent: CLIENT_ABSENT,
};

const NO_TABLE: &str = "no event table for this kind of core; only architectural events are counted";

/// Efficiency cores of hybrid processors, and models without a table: what the architecture itself promises.
pub(super) static ARCHITECTURAL: Table = Table {
    name: "Intel architectural events",
    counters: 4,
    fixed: true,
    entries: &[MISS],
    absent: &[
        (StallCycles, NO_TABLE),
        (L1Misses, NO_TABLE),
        (PrivateMisses, NO_TABLE),
        (LlcHits, NO_TABLE),
        (LlcLoadMisses, NO_TABLE),
        (Intra, NO_TABLE),
        (Inter, NO_TABLE),
        (Near, NO_TABLE),
        (Remote, NO_TABLE),
        (LocalDram, NO_TABLE),
        (L2LinesIn, NO_TABLE),
        (L3LinesIn, NO_TABLE),
        (BusTransactions, UNCORE),
        (SharedRequests, NO_STATES),
    ],
};

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
