//! This machine as a bench: kernels and applications are run on it, and what others do meanwhile is watched.

pub mod app;
pub mod foreign_load;
pub mod kernel;
pub mod leftovers;
pub mod machine;
