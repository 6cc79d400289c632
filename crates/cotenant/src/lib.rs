//! What the `cotenant` command consists of.

pub mod machine_arg;
