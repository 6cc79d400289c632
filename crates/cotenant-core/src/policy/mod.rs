//! Policies: pure functions from what is known to what should be done.

pub mod atom;
mod auto;
mod dino;
mod fixed;
mod heuristic;
mod mesh;
mod none;
mod numad;
mod plan;
mod qos;
mod quantum;
mod resense;
pub mod sam;
mod speed;

pub use atom::{Atom, AtomConfig, AtomState};
pub use auto::{Auto, AutoState};
pub(crate) use dino::DEVIL;
pub use dino::{Dino, DinoState};
pub use fixed::{Static, StaticState, map_has_room};
pub use heuristic::{Heuristic, HeuristicState, Leaf, Spread};
pub use mesh::{Mesh, MeshState};
pub use none::None;
pub use numad::{Numad, NumadState};
pub use qos::{Away, Climbed, High, Ladder, Limits, Qos, QosConfig, QosState, QosSums};
pub use quantum::{Quantum, QuantumState, wanted};
pub use resense::{Resense, ResenseState};
pub use sam::{Sam, SamConfig, SamState};

use crate::action::{ActionOutcome, Decision};
use crate::ids::Time;
use crate::pin::Pin;
use crate::profile::{AppProfile, MachineProfile};
use crate::topology::Topology;
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a policy may know besides the view. All of it is in a recording.
#[derive(Clone, Copy, Debug)]
pub struct Ctx<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Thresholds and clock of the machine.
    pub machine: &'a MachineProfile,
    /// Profiles of applications, by name.
    pub apps: &'a BTreeMap<String, AppProfile>,
    /// The user's settings.
    pub config: &'a Config,
}

/// The user's settings that policies and the loop read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Time between decisions.
    pub interval: Duration,
    /// How far contexts are widened when applied.
    pub pin: Pin,
    /// A CPU that others keep busy for more than this fraction of an interval is not idle.
    pub foreign_busy: f64,
    /// The mapping of `static`, in the notation `X*X*..`.
    pub map: Option<String>,
    /// Which of our additions to `sam` are on.
    pub sam: SamConfig,
    /// Time between the choices of `mas`, `cas` and `das` (TPDS §6.1: 200 ms).
    pub quantum: Duration,
    /// How long `atom` learns, and what competes.
    pub atom: AtomConfig,
    /// Whether the memory of programs may be moved, too, by policies that can.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub move_pages: bool,
    /// Whom `qos` keeps at which goal, and by whose naps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<QosConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            pin: Pin::default(),
            foreign_busy: 0.1,
            map: Option::None,
            sam: SamConfig::default(),
            quantum: Duration::from_millis(200),
            atom: AtomConfig::default(),
            move_pages: false,
            qos: Option::None,
        }
    }
}

/// Why a policy cannot work here, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy}: {why}; {remedy}")]
pub struct Refusal {
    /// Which policy.
    pub policy: &'static str,
    /// What is missing.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// What a policy remembers between rounds: plain and serialisable, so that any situation can be tested and replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing.
    #[default]
    Empty,
    /// Of `static`.
    Static(Box<StaticState>),
    /// Of `auto`.
    Auto(Box<AutoState>),
    /// Of `heuristic`.
    Heuristic(Box<HeuristicState>),
    /// What `sam` remembers.
    Sam(SamState),
    /// Of `numad`.
    Numad(Box<NumadState>),
    /// Of `dino`.
    Dino(Box<DinoState>),
    /// Of `fifo`, `mas`, `cas` and `das`.
    Quantum(Box<QuantumState>),
    /// Of `resense`.
    Resense(Box<ResenseState>),
    /// Of `atom`.
    Atom(Box<AtomState>),
    /// Of `qos`.
    Qos(Box<QosState>),
    /// Of `weighted`, `brute-force`, `assignment` and `overhead`.
    Mesh(Box<MeshState>),
}

/// A policy. Implementations do no I/O, read no clock, and return the same decision for the same input.
pub trait Policy {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether it can work with what is known about the machine and the applications.
    ///
    /// # Errors
    /// [`Refusal`] where it cannot, with the remedy.
    fn check(&self, _ctx: &Ctx<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether it wants to decide as soon as tasks come or go, rather than at the next tick.
    fn wants_task_changes(&self) -> bool {
        false
    }

    /// Whether it lets tasks wait, so that its host must be able to pause them.
    fn pauses(&self) -> bool {
        false
    }

    /// Whether it reads profiles of applications, so that stored ones are looked up for it.
    fn wants_profiles(&self) -> bool {
        false
    }

    /// Whether it asks where the pages of programs are, so that its host reads that where there are several memory nodes.
    fn wants_pages(&self) -> bool {
        false
    }

    /// Whether it asks which node's memory tasks access, so that its host counts that by what means it has, at a budgeted cost.
    fn wants_accesses(&self) -> bool {
        false
    }

    /// Until when it wants latencies that are measured by questions more often, with this state; see [`crate::host::Host::watch`].
    fn watches_until(&self, _state: &State) -> Option<Time> {
        Option::None
    }

    /// Decides. `outcomes` are those of its previous decision, `state` is what that decision returned.
    fn decide(&self, ctx: &Ctx<'_>, view: &View, outcomes: &[ActionOutcome], state: State, now: Time) -> Decision;
}

/// Names that [`by_name`] knows.
pub const NAMES: &[&str] = &[
    "none",
    "static",
    "heuristic",
    "atom",
    "resense",
    "resense-sum",
    "sam",
    "numad",
    "dino",
    "fifo",
    "mas",
    "cas",
    "das",
    "weighted",
    "brute-force",
    "assignment",
    "overhead",
    "auto",
];

/// The policy of that name.
///
/// # Errors
/// A line that lists the known names.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, String> {
    match name {
        "none" => Ok(Box::new(None)),
        "static" => Ok(Box::new(Static)),
        "heuristic" => Ok(Box::new(Heuristic)),
        "resense" => Ok(Box::new(Resense::Printed)),
        "resense-sum" => Ok(Box::new(Resense::Sum)),
        "atom" => Ok(Box::new(Atom)),
        "sam" => Ok(Box::new(Sam)),
        "numad" => Ok(Box::new(Numad)),
        "dino" => Ok(Box::new(Dino)),
        "fifo" => Ok(Box::new(Quantum::Fifo)),
        "mas" => Ok(Box::new(Quantum::Mas)),
        "cas" => Ok(Box::new(Quantum::Cas)),
        "das" => Ok(Box::new(Quantum::Das)),
        // Not in the list: it needs to be told who is who, which `cotenant qos` and its recordings do.
        "qos" => Ok(Box::new(Qos)),
        "weighted" => Ok(Box::new(Mesh::Weighted)),
        "brute-force" => Ok(Box::new(Mesh::BruteForce)),
        "assignment" => Ok(Box::new(Mesh::Assignment)),
        "overhead" => Ok(Box::new(Mesh::Overhead)),
        "auto" => Ok(Box::new(Auto::new(Box::new(Sam)))),
        _ => Err(format!("there is no policy '{name}'; known: {}", NAMES.join(", "))),
    }
}
