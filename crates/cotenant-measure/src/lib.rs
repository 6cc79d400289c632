//! Scripts that measure machines, applications and workloads on a bench or a launcher: this machine, a simulated one,
//! or one made up for a test.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod characterize;
pub mod compare;
#[cfg(feature = "live")]
pub mod live;
pub mod windows;
pub mod workload;
