//! The simulated machine: predictions from measured figures of programs and machines.
#![forbid(unsafe_code)]

pub mod app;
pub mod band;
pub mod batch;
pub mod bench;
mod characterize;
pub mod course;
pub mod derived;
pub mod flat_machine;
pub mod follow;
pub mod host;
pub mod kernel;
pub mod machine;
pub mod mix;
pub mod occupancy;
pub mod optimum;
pub mod physics;
mod places;
pub mod reports;
pub mod run;
pub mod scenario;
pub mod shared_caches;
pub mod speed;
pub mod staged;
pub mod station;
pub mod world;

/// Nanoseconds.
pub(crate) type Ns = u64;

#[cfg(test)]
mod tests;
