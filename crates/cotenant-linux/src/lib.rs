//! The Linux host of Cotenant: reads sysfs and `/proc`, opens perf events, sets affinities, and undoes what it changed.
//!
//! All system calls and all `unsafe` of the project live here. Every reader takes a file-system root, so that a dump of another
//! machine reads like this one.

pub mod ends;
pub mod events;
pub mod fsroot;
pub mod observe;
pub mod perf;
pub mod tasks;
pub mod tier;

pub use fsroot::FsRoot;
