//! Countable signals of a task, and raw counts with their real counting time.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

macro_rules! signals {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One cumulative signal per task. Events, unless the name says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Signal {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Signal {
            /// All signals, in declaration order.
            pub const ALL: &[Signal] = &[$(Signal::$variant,)*];

            /// The name used in files and on screens.
            pub const fn name(self) -> &'static str {
                match self { $(Signal::$variant => $name,)* }
            }
        }
    };
}

signals! {
    /// Unhalted core cycles.
    Cycles = "cycles",
    /// Instructions retired.
    Instructions = "instructions",
    /// Cycles stalled on memory.
    StallCycles = "stall_cycles",
    /// Retired loads that missed the first-level data cache.
    L1Misses = "l1_misses",
    /// Retired loads that missed the last private level of cache (SAM §2.3: `L2_MISS`).
    PrivateMisses = "private_misses",
    /// Retired loads served by the last-level cache (SAM §2.3: `L3_HIT`).
    LlcHits = "llc_hits",
    /// Retired loads that missed the last-level cache (SAM §2.3: `L3_MISS`).
    LlcLoadMisses = "llc_load_misses",
    /// Last-level cache misses, reads and writes: the memory-bandwidth signal (SAM §2.3: `LLC_MISSES`).
    LlcMisses = "llc_misses",
    /// Coherence inside the last-level-cache domain: loads served from another core of the domain.
    Intra = "intra",
    /// Coherence outside the socket: loads served by a cache of another socket.
    Inter = "inter",
    /// Coherence that leaves the last-level-cache domain but not the socket (chiplets: Zen `near_cache`).
    Near = "near",
    /// Loads served by the DRAM of another memory node.
    Remote = "remote",
    /// Loads served by the DRAM of the own memory node.
    LocalDram = "local_dram",
    /// Lines brought into the second-level cache.
    L2LinesIn = "l2_lines_in",
    /// Lines brought into the third-level cache.
    L3LinesIn = "l3_lines_in",
    /// Bus transactions (front-side bus machines), else lines moved to and from memory.
    BusTransactions = "bus_transactions",
    /// Requests to the last-level cache for lines in shared state: other cores have them, or had them last (Tang §3:
    /// `sharing`).
    SharedRequests = "shared_requests",
    /// Time on a CPU, nanoseconds.
    CpuTime = "cpu_ns",
    /// Time runnable but waiting for a CPU, nanoseconds.
    RunQueueWait = "wait_ns",
    /// Page faults, minor and major.
    PageFaults = "page_faults",
    /// Migrations between CPUs.
    Migrations = "cpu_migrations",
    /// Context switches.
    ContextSwitches = "context_switches",
}

impl Signal {
    /// Signals counted by the kernel itself: always available and never multiplexed.
    pub const SOFTWARE: &[Signal] =
        &[Signal::CpuTime, Signal::RunQueueWait, Signal::PageFaults, Signal::Migrations, Signal::ContextSwitches];

    /// Number of signals.
    pub const COUNT: usize = Self::ALL.len();

    /// The signal of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|s| s.name() == name)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A raw cumulative count. `enabled_ns` is the time of requested counting while the task ran, `running_ns` its part
/// with an assigned counter. Software signals have both equal to their task's time, or increase both by 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Events since the counter was opened; never scaled.
    pub value: u64,
    /// Nanoseconds enabled.
    pub enabled_ns: u64,
    /// Nanoseconds of real counting, at most `enabled_ns`.
    pub running_ns: u64,
}

impl Count {
    /// A count without multiplexing and clock, such as schedstat's.
    pub const fn exact(value: u64) -> Self {
        Self { value, enabled_ns: 0, running_ns: 0 }
    }
}

/// The counts of one task. Uncountable signals are absent, never zero.
///
/// Clones share their counts until one is changed: most tasks sleep most of the time, and their samples hold the same
/// counts.
#[derive(Clone, Default, Eq)]
pub struct Counters(Arc<Counts>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Counts {
    present: u32,
    counts: [Count; Signal::COUNT],
}

impl Counters {
    /// The count of a signal, if it exists.
    pub fn get(&self, signal: Signal) -> Option<Count> {
        (self.0.present >> signal as u32 & 1 == 1).then(|| self.0.counts[signal as usize])
    }

    /// Sets the count of a signal.
    pub fn set(&mut self, signal: Signal, count: Count) {
        if self.get(signal) == Some(count) {
            return;
        }
        let own = Arc::make_mut(&mut self.0);
        own.present |= 1 << signal as u32;
        own.counts[signal as usize] = count;
    }

    /// Removes the count of a signal that is no longer counted.
    pub fn remove(&mut self, signal: Signal) {
        if self.get(signal).is_some() {
            Arc::make_mut(&mut self.0).present &= !(1 << signal as u32);
        }
    }

    /// Which signals are present: bit `n` for the n-th of [`Signal::ALL`].
    pub fn present(&self) -> u32 {
        self.0.present
    }

    /// Whether both are unchanged clones of one another, and so equal. Cheaper than comparing, and false for equal
    /// counts of different origin.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Signals that are present, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Signal, Count)> + '_ {
        let mut rest = self.0.present;
        std::iter::from_fn(move || {
            let i = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some((Signal::ALL[i], self.0.counts[i]))
        })
    }
}

impl PartialEq for Counters {
    /// Only examines present signals, because recorders compare every task in every round.
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
            || self.present() == other.present()
                && self.iter().all(|(signal, count)| count == other.0.counts[signal as usize])
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl FromIterator<(Signal, Count)> for Counters {
    fn from_iter<I: IntoIterator<Item = (Signal, Count)>>(iter: I) -> Self {
        let mut counts = Counts::default();
        for (signal, count) in iter {
            counts.present |= 1 << signal as u32;
            counts.counts[signal as usize] = count;
        }
        Self(Arc::new(counts))
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter().map(|(signal, c)| (signal, (c.value, c.enabled_ns, c.running_ns))))
    }
}

impl<'de> Deserialize<'de> for Counters {
    /// Signals of newer versions are skipped, so that an old program reads a new recording.
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, (u64, u64, u64)>::deserialize(d)?;
        Ok(map
            .into_iter()
            .filter_map(|(name, (value, enabled_ns, running_ns))| {
                Some((Signal::from_name(&name)?, Count { value, enabled_ns, running_ns }))
            })
            .collect())
    }
}
