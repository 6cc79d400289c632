//! The policies: pure functions from what is known to what should be done, one folder each.
//!
//! What a policy is stands in [`cotenant_model::policy`]. [`standard`] lists ours by the names that users give them.
#![forbid(unsafe_code)]

pub mod atom;
mod dino;
mod fixed;
mod heuristic;
mod mesh;
mod none;
mod numad;
mod plan;
pub mod qos;
mod quantum;
mod resense;
pub mod sam;
mod shapes;

pub use atom::{Atom, AtomConfig, AtomState};
pub use dino::{DEVIL, Dino, DinoState};
pub use fixed::{Static, StaticSettings, StaticState, map_has_room};
pub use heuristic::{Heuristic, HeuristicState, Leaf, Spread};
pub use mesh::{Mesh, MeshState};
pub use none::None;
pub use numad::{Numad, NumadState};
pub use qos::{Away, Climbed, High, Ladder, Limits, Qos, QosConfig, QosState, QosSums};
pub use quantum::{CoSchedule, Quantum, QuantumSettings, QuantumState, wanted};
pub use resense::{Resense, ResenseSettings, ResenseState};
pub use sam::{Sam, SamConfig, SamState};
pub use shapes::{KnownShape, Objective, ObjectiveError, Shapes, ShapesSettings, ShapesState, Tried};

use cotenant_model::policy::{Entry, Policy, Registry};

/// Our own policies.
pub fn standard() -> Registry {
    let quantum = |name, quantum| Entry::new(name, move |settings| CoSchedule { quantum, settings });
    let mesh = |name, mesh: Mesh| Entry::new(name, move |_| mesh);
    Registry::new([
        Entry::new("none", |_| None),
        Entry::new("static", Static),
        Entry::new("heuristic", |_| Heuristic),
        Entry::new("atom", Atom),
        Entry::new("resense", |settings| Resense { sum: false, settings }),
        Entry::new("resense-sum", |settings| Resense { sum: true, settings }),
        Entry::new("sam", Sam),
        Entry::new("shapes", Shapes::new),
        Entry::new("numad", |_| Numad),
        Entry::new("dino", |_| Dino),
        quantum("fifo", Quantum::Fifo),
        quantum("mas", Quantum::Mas),
        quantum("cas", Quantum::Cas),
        quantum("das", Quantum::Das),
        mesh("weighted", Mesh::Weighted),
        mesh("brute-force", Mesh::BruteForce),
        mesh("assignment", Mesh::Assignment),
        mesh("overhead", Mesh::Overhead),
        Entry::composed("auto", [Shapes::SECTION, Sam::SECTION], |settings| {
            Ok(Shapes::with_sam(settings.of::<Shapes>()?, settings.of::<Sam>()?))
        }),
        // It has to be told which program has which priority, as `cotenant qos` and its recordings do.
        Entry::new("qos", Qos).unlisted(),
    ])
}
