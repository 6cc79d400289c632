//! The simulated machine: predictions from measured figures of programs and machines.
#![forbid(unsafe_code)]

pub mod app;
pub mod batch;
pub mod bench;
mod characterize;
pub mod host;
pub mod kernel;
pub mod machine;
pub mod mix;
pub mod near;
pub mod occupancy;
pub mod optimum;
mod places;
pub mod run;
pub mod scenario;
pub mod small;
pub mod speed;
pub mod staged;
pub mod station;
pub mod world;

#[cfg(test)]
mod tests;
