//! The vocabulary of Cotenant as plain values.
//!
//! One loop — wait → sample → view → decide → apply — drives every host ([`host`]). This crate has the loop's
//! vocabulary ([`topology`], [`sample`], [`view`], [`action`]), the loop itself, and the contract of policies
//! ([`policy`]). It uses no file system, clock, environment or thread: those belong to the hosts, so that every
//! decision can be tested, recorded and replayed anywhere.
//!
//! # A policy of your own
//!
//! A [`Policy`](policy::Policy) is a pure function: from a [`View`] (rates since its last decision) and the outcomes of
//! its last orders, it returns a [`Decision`]: proposals with reasons, its new state, and the time of its next
//! decision. This one moves a thread that waits for its CPU to an idle one:
//!
//! ```
//! use cotenant_model::policy::{Ctx, NoSettings, Policy};
//! use cotenant_model::{
//!     Action, ActionOutcome, CpuId, CpuSet, Decision, Proposal, Reason, Signal, TaskView, Time, View,
//! };
//!
//! struct Spread;
//!
//! impl Policy for Spread {
//!     const SECTION: &'static str = "spread"; // names its state in recordings, and its settings
//!     type State = (); // it remembers nothing
//!     type Settings = NoSettings;
//!
//!     fn decide(&self, ctx: &Ctx, view: &View, _: &[ActionOutcome], (): (), now: Time) -> Decision<()> {
//!         let mut idle: Vec<CpuId> = view.cpus.iter().filter(|cpu| cpu.busy < 0.01).map(|cpu| cpu.id).collect();
//!         // Nanoseconds of waiting per second. What was not counted is `None`: then nothing is decided.
//!         let waits = |task: &&TaskView| task.per_s(Signal::RunQueueWait).is_some_and(|ns| ns > 0.2e9);
//!         let mut proposals = Vec::new();
//!         for task in view.tasks.iter().filter(waits) {
//!             // A proposal names only CPUs that the task may use.
//!             let Some(at) = idle.iter().position(|cpu| task.info.allowed.contains(*cpu)) else { continue };
//!             let action = Action::Place { task: task.info.id, contexts: CpuSet::single(idle.swap_remove(at)) };
//!             proposals.push(Proposal { action, reason: Reason::new("spread", "it waits, and this CPU is idle") });
//!         }
//!         Decision::new(proposals, (), now + ctx.config.interval, Vec::new())
//!     }
//! }
//!
//! // Two samples of two threads that share CPU 0: each waits for half of the time. CPU 1 is idle.
//! use cotenant_model::policy::Config;
//! use cotenant_model::profile::MachineProfile;
//! use cotenant_model::{Count, Counters, CpuSample, Sample, TaskId, TaskInfo, TaskSample, topology};
//! # use std::collections::BTreeMap;
//! # use std::sync::Arc;
//!
//! let topology = topology::synthetic::parse("package:1 core:2 pu:1")?;
//! let task = |id: u32, at_ms: u64| {
//!     let mut counters = Counters::default();
//!     counters.set(Signal::RunQueueWait, Count::exact(at_ms * 500_000));
//!     let info = TaskInfo { id: TaskId(id), allowed: topology.online().clone(), ..TaskInfo::default() };
//!     TaskSample { info: Arc::new(info), cpu: Some(CpuId(0)), counters, ..TaskSample::default() }
//! };
//! let sample = |at_ms: u64| Sample {
//!     at: Time::from_millis(at_ms),
//!     tasks: vec![task(1, at_ms), task(2, at_ms)],
//!     cpus: vec![
//!         CpuSample { id: CpuId(0), busy_ns: at_ms * 1_000_000 },
//!         CpuSample { id: CpuId(1), busy_ns: 0 },
//!     ],
//!     ..Sample::default()
//! };
//! let view = View::new(&sample(0), &sample(100));
//!
//! let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
//! let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
//! let decision = Spread.decide(&ctx, &view, &[], (), view.at);
//! let moved = Action::Place { task: TaskId(1), contexts: CpuSet::single(CpuId(1)) };
//! assert_eq!(decision.proposals.iter().map(|p| &p.action).collect::<Vec<_>>(), [&moved]);
//! # Ok::<(), cotenant_model::topology::synthetic::SyntheticError>(())
//! ```
//!
//! `docs/how-to/write-a-policy.md` makes a program of a policy, with `run`, `sim` and `replay`; `cotenant_policies` has
//! ours, and [`host::drive`] is the loop for a [`Host`] of your own.
#![forbid(unsafe_code)]

pub mod action;
pub mod areas;
pub mod cpuset;
pub mod histogram;
pub mod host;
pub mod ids;
pub mod interference;
pub mod looks;
pub mod machine;
pub mod metric;
pub mod number;
pub mod parse;
pub mod pin;
pub mod policy;
pub mod proc_text;
pub mod profile;
pub mod region;
pub mod rule;
pub mod sample;
pub mod signal;
pub mod speed;
pub mod stats;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod topology;
pub mod usage;
pub mod view;
pub mod waits;

pub use action::{Action, ActionOutcome, Effect, Evidence, Order, Outcome, PlaceKind, Proposal, Reason, Unit};
pub use cpuset::CpuSet;
pub use histogram::Histogram;
pub use host::{Host, Mode, Round, Wake};
pub use ids::{AppId, CpuId, NodeId, TaskId, Time};
pub use looks::{Look, Looks};
pub use policy::Decision;
pub use rule::{Owns, Rule};
pub use sample::{AppSample, CpuSample, Direction, Moved, Pressure, Reading, Sample, TaskInfo, TaskSample};
pub use signal::{Count, Counters, Signal};
pub use topology::Topology;
pub use view::{AppView, ByApp, TaskView, View};
pub use waits::{Behind, BehindKind, Cause, Waiting, Waits};
