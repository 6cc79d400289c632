//! Observing: one reader per source. Nothing here changes anything.

pub mod called;
pub mod capability;
pub mod census;
pub mod cpus;
pub mod doctor;
pub mod ends;
pub mod executable;
pub mod listening;
pub mod memory;
pub mod metrics;
pub mod nice;
pub mod observer;
pub mod perf;
pub mod processes;
pub mod progress;
pub mod proxies;
pub mod rivals;
pub mod sharing;
pub mod tier;
pub mod topology;
pub mod usage;
mod waits;
