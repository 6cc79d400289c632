//! Every parser of foreign input as a function of bytes, with good input to begin with: files of users, texts of the
//! kernel, answers of servers, messages of other programs, and what a crash left behind.
//!
//! `tests/all/malformed.rs` gives each of them good input and some thousand mutations of it; `cargo xtask fuzz` gives
//! them to libFuzzer, one program per [`Group`] (`fuzz/`). A parser gets in with one [`Target`]. An error is a good
//! answer; a panic, a hang and unbounded memory are not, and where there is a writer, what was read and is written
//! reads as the same.
#![forbid(unsafe_code)]

mod command;
mod machines;
mod proc;
mod recordings;
mod simulator;
mod state;
mod target;
mod wire;

pub use command::COMMAND;
pub use machines::MACHINES;
pub use proc::PROC;
pub use recordings::RECORDINGS;
pub use simulator::SIMULATOR;
pub use state::STATE;
pub use target::{Group, Target};
pub use wire::WIRE;

/// All of them.
pub const GROUPS: [&Group; 7] = [&RECORDINGS, &MACHINES, &PROC, &WIRE, &SIMULATOR, &COMMAND, &STATE];
