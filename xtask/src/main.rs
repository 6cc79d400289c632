//! Chores of the repository: `cargo xtask TASK`.

fn main() {}
