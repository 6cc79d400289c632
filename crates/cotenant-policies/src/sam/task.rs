//! A task in the stages: its signals, its class, and its place.

use super::units::{At, NONE};
use cotenant_model::TaskId;
use serde::{Deserialize, Serialize};

/// Limit of CPUs wanted by a helper.
const HELPERS: f64 = 0.1;

/// The place of a task before a reluctant move (the paper's `Soc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The task.
    pub task: TaskId,
    /// The memory node's index in the order of packages and their nodes: with one node per package, the package's
    /// index.
    pub unit: u32,
    /// It was displaced by a returning task, and displaces no memory-bound task in turn
    /// ([`super::SamConfig::no_chains`]).
    #[serde(default)]
    pub displaced: bool,
}

/// The class of a task in the algorithm. Classes exclude each other: the stages ignore a sharer's memory traffic,
/// because bandwidth is balanced "without affecting coherence traffic" (§4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    /// It holds no context: it did not run, its place is unknown, or it needs no core of its own.
    #[default]
    Absent,
    /// It runs, but lacks a signal that other tasks have: neither mover nor victim.
    Unknown,
    /// It shares data with tasks of other units.
    Inter,
    /// It shares data inside its unit.
    Intra,
    /// Memory-bound.
    Mem,
    /// None of these: core-bound.
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
    /// Whether it ran, if known.
    pub ran: Option<bool>,
    /// Number of CPUs that it wants, 0–1.
    pub wants: f64,
    pub class: Class,
    /// Its place, by level; [`NONE`] without one.
    pub units: [u32; 2],
    /// Its place before a reluctant move.
    pub origin: Option<Origin>,
    /// The same at the start of the round.
    pub before: Option<Origin>,
    /// It is a sharer that was moved in the last round.
    pub settling: bool,
    /// No task moves twice in a round.
    pub moved: bool,
    /// Its remote accesses have lasted long enough for a return.
    pub stray: bool,
    /// Its rank within its class.
    pub rank: u32,
}

impl Task {
    /// A task with known signals only.
    pub fn new(rates: Rates, ran: Option<bool>, wants: f64) -> Self {
        Self { rates, ran, wants, units: [NONE; 2], stray: true, ..Self::default() }
    }

    /// Whether it needs no core of its own: a helper of a runtime, a monitor.
    pub fn is_helper(&self) -> bool {
        self.ran == Some(true) && self.wants < HELPERS
    }

    /// Its present unit.
    pub fn unit(&self, at: At) -> Option<usize> {
        let unit = self.units[at as usize];
        (unit != NONE).then_some(unit as usize)
    }

    /// LLC misses per second; 0 where unknown.
    pub fn demand(&self) -> f64 {
        self.rates.mem.unwrap_or(0.0)
    }
}
