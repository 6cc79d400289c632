//! The policies: pure functions from observations to orders, one folder each.
//!
//! [`cotenant_model::policy`] defines a policy. [`standard`] lists ours by their users' names; a program adds its own
//! with [`Registry::with`].
//!
//! # Ask a policy what it would do
//!
//! A policy is made by name with the settings of a run, and decides on two samples. Here `static` gets a map for a
//! machine of two CPUs (`X`: this application, `.`: free) and finds one of its threads on the wrong one:
//!
//! ```
//! use cotenant_model::host::decide_once;
//! use cotenant_model::policy::{Config, Ctx, State};
//! use cotenant_model::profile::MachineProfile;
//! use cotenant_model::{
//!     Action, AppId, AppSample, Count, Counters, CpuId, CpuSet, Rule, Sample, Signal, TaskId, TaskInfo, TaskSample,
//!     Time, topology,
//! };
//! # use std::collections::BTreeMap;
//! # use std::sync::Arc;
//!
//! let topology = topology::synthetic::parse("package:1 core:2 pu:1")?;
//! let sample = |at_ms: u64| {
//!     let mut counters = Counters::default();
//!     counters.set(Signal::CpuTime, Count::exact(at_ms * 1_000_000)); // it always runs
//!     let info = TaskInfo { id: TaskId(7), app: AppId(0), allowed: topology.online().clone(), ..TaskInfo::default() };
//!     Sample {
//!         at: Time::from_millis(at_ms),
//!         tasks: vec![TaskSample { info: Arc::new(info), cpu: Some(CpuId(1)), counters, ..TaskSample::default() }],
//!         apps: vec![AppSample { id: AppId(0), name: "db".to_owned(), ..AppSample::default() }],
//!         ..Sample::default()
//!     }
//! };
//!
//! let mut config = Config::default();
//! config.settings.set("static", "map", "X.".into());
//! let policy = cotenant_policies::standard().make("static", &config)?;
//!
//! let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
//! let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
//! policy.check(&ctx)?; // whether it can work with what is known here
//! let decided = decide_once(&[Rule::all(&*policy, &ctx)], 0, &sample(0), &sample(100), &[], State::default());
//!
//! let order = &decided.orders[0];
//! assert_eq!(order.action, Action::Place { task: TaskId(7), contexts: CpuSet::single(CpuId(0)) });
//! println!("{}", order.reason); // why, in the policy's own terms
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Registry::with`]: cotenant_model::policy::Registry::with
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
pub use mesh::{Mesh, MeshSettings, MeshState};
pub use none::None;
pub use numad::{Numad, NumadState};
pub use qos::{High, Limits, Qos, QosConfig};
pub use quantum::{CoSchedule, Quantum, QuantumSettings, QuantumState, wanted};
pub use resense::{Resense, ResenseSettings, ResenseState};
pub use sam::{Sam, SamConfig, SamState};
pub use shapes::{KnownGroup, KnownShape, Objective, ObjectiveError, Shapes, ShapesSettings, ShapesState};

use cotenant_model::policy::{Entry, Policy, Registry};

/// Our own policies.
pub fn standard() -> Registry {
    let quantum = |name, quantum| Entry::new(name, move |settings| CoSchedule { quantum, settings });
    let mesh = |name, mesh: Mesh| Entry::new(name, move |_| mesh);
    let assignment = |settings: MeshSettings| if settings.load { Mesh::Balanced } else { Mesh::Assignment };
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
        Entry::new("assignment", assignment),
        mesh("overhead", Mesh::Overhead),
        Entry::composed("auto", [Shapes::SECTION, Sam::SECTION], |settings| {
            Ok(Shapes::with_sam(settings.of::<Shapes>()?, settings.of::<Sam>()?))
        }),
        // It needs each program's priority, as `cotenant qos` and its recordings have.
        Entry::new("qos", Qos).unlisted(),
    ])
}
