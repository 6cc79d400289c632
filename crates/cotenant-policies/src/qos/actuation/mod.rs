//! From phases to actions, the mildest means first: another place, naps, limits of CPU time, limits of caches and
//! memory bandwidth.

mod away;
pub(super) mod ladder;
mod named;
pub(super) mod step;
pub(super) mod steps;

pub use away::Away;
pub use ladder::{Climbed, Ladder};
pub use named::Named;

/// Why orders are undone at the end.
pub(super) const NOBODY: &str = "no goal is to be kept any more";
