//! This machine as a bench: kernels and applications are run on it.

pub mod app;
pub mod kernel;
pub mod leftovers;
pub mod machine;
