//! The Linux host of Cotenant: observes programs, places and throttles them, and undoes its changes.
//!
//! ```text
//! host   the live machine: which programs are managed, the loop's waiting, starting and ending   uses all below
//!  ├── sense   one reader per source: tasks, counters, progress, metrics, memory, topology       uses sys
//!  └── act     one actuator per effect: placement, pause, nap, CPU time, background, caches      uses undo, sense, sys
//!       └── undo   the journal of what is changed, the guardian, claims, restoring               uses sys
//! ```
//!
//! All system calls and all `unsafe` of the project are here. Every reader takes a file-system root, so that another
//! machine's dump reads like this one, and uses [`bounded`]; queries that programs can delay use [`address_space`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod act;
pub mod address_space;
pub mod bounded;
pub mod deadline;
pub mod fault;
pub mod fsroot;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod given;
pub mod host;
pub mod notes;
pub mod sense;
pub mod sys;
pub mod undo;
pub mod worker;

pub use fsroot::FsRoot;

#[cfg(test)]
mod tests;
