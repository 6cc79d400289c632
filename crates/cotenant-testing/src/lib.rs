//! The common parts of tests and benchmarks of several crates.
//!
//! It depends on no other crate of Cotenant, so that unit tests of any of them can use it.
#![allow(clippy::missing_panics_doc)] // a test fails where its helper does

pub mod bench;
pub mod browser;
mod elf;
mod folder;
pub mod pass;
mod process;
mod time;

pub use elf::{Section, elf};
pub use folder::TempDir;
pub use process::{Player, spawn_fresh};
pub use time::{eventually, kills, pass};
