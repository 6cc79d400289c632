//! This machine as a bench for kernels and applications.

pub mod app;
pub mod kernel;
pub mod leftovers;
pub mod machine;
