//! The common parts of benchmarks.

pub mod cost;
pub mod daemon;
pub mod program;
mod report;
pub mod servers;

pub use report::Report;
