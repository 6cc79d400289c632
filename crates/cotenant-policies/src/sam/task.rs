//! A task as the stages see it: its signals, its class, and where it is.

use super::units::{At, NONE};
use cotenant_model::TaskId;
use serde::{Deserialize, Serialize};

/// CPUs that a helper wants at most.
const HELPERS: f64 = 0.1;

/// Where a task was before it was moved reluctantly (the paper's `Soc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Which task.
    pub task: TaskId,
    /// The memory node's place in the order of packages and their nodes: where each package has one node, the
    /// package's index.
    pub unit: u32,
    /// It lost its place to a task that came home, and takes no memory-bound task's place in turn
    /// ([`super::SamConfig::no_chains`]).
    #[serde(default)]
    pub displaced: bool,
}

/// What a task is to the algorithm. The classes exclude each other: of a sharer's memory traffic the stages know
/// nothing, since bandwidth is balanced "without affecting coherence traffic" (§4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    /// It holds no context: it did not run, nothing tells where, or it needs no core of its own.
    #[default]
    Absent,
    /// It runs, but a signal that other tasks have is missing: neither mover nor victim.
    Unknown,
    /// It shares data with tasks of other units.
    Inter,
    /// It shares data inside its unit.
    Intra,
    /// Memory-bound.
    Mem,
    /// None of these: bound by its core.
    Cpu,
}

impl Class {
    pub fn shares(self) -> bool {
        matches!(self, Self::Inter | Self::Intra)
    }
}

/// The four signals of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Coherence that leaves the unit of stage 1, per cycle.
    pub inter: Option<f64>,
    /// Coherence inside it, per cycle.
    pub intra: Option<f64>,
    /// Accesses to remote memory, per cycle.
    pub remote: Option<f64>,
    /// LLC misses per second.
    pub mem: Option<f64>,
    /// Cycles stalled on memory, per cycle; read for latency tolerance only.
    pub stalls: Option<f64>,
    /// Instructions per cycle; read for core sharing only.
    pub ipc: Option<f64>,
}

/// A task, at its position in the view.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    pub rates: Rates,
    /// Whether it ran, where that is known.
    pub ran: Option<bool>,
    /// How many CPUs it wants, 0–1.
    pub wants: f64,
    pub class: Class,
    /// Where it is, by level; [`NONE`] where it holds no place.
    pub units: [u32; 2],
    /// Where it was before it was moved reluctantly.
    pub origin: Option<Origin>,
    /// The same at the start of the round.
    pub before: Option<Origin>,
    /// It is a sharer that was moved in the last round.
    pub settling: bool,
    /// No task moves twice in a round.
    pub moved: bool,
    /// Where it meets remote memory, it has for long enough to be taken home.
    pub stray: bool,
    /// Its place in the order in which tasks of its class are taken.
    pub rank: u32,
}

impl Task {
    /// A task of which the signals are known, and nothing else yet.
    pub fn new(rates: Rates, ran: Option<bool>, wants: f64) -> Self {
        Self { rates, ran, wants, units: [NONE; 2], stray: true, ..Self::default() }
    }

    /// Whether it wants so little that it needs no core of its own: a helper of a runtime, a monitor.
    pub fn is_helper(&self) -> bool {
        self.ran == Some(true) && self.wants < HELPERS
    }

    /// The unit where it is.
    pub fn unit(&self, at: At) -> Option<usize> {
        let unit = self.units[at as usize];
        (unit != NONE).then_some(unit as usize)
    }

    /// LLC misses per second; 0 where unknown.
    pub fn demand(&self) -> f64 {
        self.rates.mem.unwrap_or(0.0)
    }
}
