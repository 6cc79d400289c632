//! The simulated machine: predictions from measured figures of programs and machines.
#![forbid(unsafe_code)]

pub mod app;
pub mod machine;
pub mod mix;
pub mod occupancy;
pub mod speed;
pub mod workload;

#[cfg(test)]
mod tests;
