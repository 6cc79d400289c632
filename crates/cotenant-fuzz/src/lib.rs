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
mod wire;

use std::fs;
use std::path::{Path, PathBuf};

pub use command::COMMAND;
pub use machines::MACHINES;
pub use proc::PROC;
pub use recordings::RECORDINGS;
pub use simulator::SIMULATOR;
pub use state::STATE;
pub use wire::WIRE;

/// A parser.
pub struct Target {
    /// What it reads.
    pub name: &'static str,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Gives it an input, and does with the result what a user would do.
    pub parse: fn(&[u8]),
    /// Mutations in a usual test.
    pub mutations: u64,
}

/// Parsers that libFuzzer looks through in one program. The first byte of an input says which of them reads the rest.
pub struct Group {
    /// The program: a file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// New ones stand at the end: the corpus goes by their numbers.
    pub targets: &'static [Target],
    /// The longest input, bytes.
    pub longest: usize,
}

/// All of them.
pub const GROUPS: [&Group; 7] = [&RECORDINGS, &MACHINES, &PROC, &WIRE, &SIMULATOR, &COMMAND, &STATE];

impl Group {
    /// Gives an input to the parser that it names.
    pub fn run(&self, bytes: &[u8]) {
        if let Some((first, rest)) = bytes.split_first() {
            (self.targets[usize::from(*first) % self.targets.len()].parse)(rest);
        }
    }

    /// Good inputs of all of its parsers, as far as they are short enough.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let of = |(number, target): (u8, &Target)| {
            (target.seeds)().into_iter().map(move |seed| [&[number][..], &seed].concat()).collect::<Vec<_>>()
        };
        (0..).zip(self.targets).flat_map(of).filter(|seed| seed.len() <= self.longest).collect()
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Gives a parser of text what is text.
fn with(bytes: &[u8], parse: impl FnOnce(&str)) {
    if let Some(text) = text(bytes) {
        parse(text);
    }
}

fn list(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}

/// The files below a folder of the repository whose names end so.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder), &mut paths);
    paths.retain(|path| path.to_string_lossy().ends_with(ending));
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { collect(&entry.path(), into) } else { into.push(entry.path()) }
    }
}
