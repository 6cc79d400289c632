//! Napping from inside: programs with marks sleep by themselves where they are ordered to.

pub mod orders;

pub use orders::{Naps, Orders};
