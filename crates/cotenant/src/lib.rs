//! What the `cotenant` command consists of.

pub mod cmd;
pub mod recorder;
