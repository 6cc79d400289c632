//! The simulated machine: predictions from measured figures of programs and machines.
#![forbid(unsafe_code)]

pub mod mix;
pub mod workload;
