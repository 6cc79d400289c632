//! Scripts that measure machines, applications and workloads, over a bench or a launcher that carries them out: this
//! machine, a simulated one, or one that is made up for a test.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod characterize;
pub mod compare;
#[cfg(feature = "live")]
pub mod live;
pub mod windows;
pub mod workload;
