//! The `cotenant` command.

fn main() {}
