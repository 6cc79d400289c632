//! The Linux host of Cotenant: reads sysfs and `/proc`, opens perf events, sets affinities, and undoes what it changed.
//!
//! All system calls and all `unsafe` of the project live here. Every reader takes a file-system root, so that a dump of another
//! machine reads like this one.

pub mod affinity;
pub mod apply;
pub mod backoff;
mod bandwidth;
pub mod batch;
pub mod book;
pub mod capabilities;
pub mod claims;
pub mod ends;
pub mod events;
pub mod executable;
pub mod fault;
pub mod fsroot;
pub mod gather;
pub mod guardian;
pub mod host;
pub mod journal;
pub mod launch;
pub mod memory;
pub mod mempolicy;
pub mod metrics;
pub mod observe;
pub mod pause;
pub mod perf;
pub mod progress;
pub mod qos;
pub mod quota;
pub mod resctrl;
pub mod restore;
pub mod rivals;
pub mod sys;
pub mod tasks;
pub mod tier;
pub mod topology;
pub mod waiter;

pub use fsroot::FsRoot;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
