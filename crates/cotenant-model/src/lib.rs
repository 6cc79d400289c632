//! What things are in Cotenant, as plain values.
//!
//! One loop — wait → sample → view → decide → apply — drives every host ([`host`]). This crate holds the words that
//! the loop speaks ([`topology`], [`sample`], [`view`], [`action`]), the loop itself, and the contract of policies
//! ([`policy`]). It touches no file system, clock, environment or thread: those belong to the hosts, so that every
//! decision can be tested, recorded and replayed anywhere.
#![forbid(unsafe_code)]

pub mod action;
pub mod areas;
pub mod cpuset;
pub mod histogram;
pub mod host;
pub mod ids;
pub mod interference;
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
pub mod view;

pub use action::{
    Action, ActionOutcome, Decision, Effect, Evidence, Order, Outcome, PlaceKind, Proposal, Reason, Unit,
};
pub use cpuset::CpuSet;
pub use histogram::Histogram;
pub use host::{Host, Mode, Round, Wake};
pub use ids::{AppId, CpuId, NodeId, TaskId, Time};
pub use rule::{Owns, Rule};
pub use sample::{AppSample, CpuSample, Direction, Moved, Reading, Sample, TaskInfo, TaskSample};
pub use signal::{Count, Counters, Signal};
pub use topology::Topology;
pub use view::{AppView, TaskView, View};
