//! The elements of the lists of parsers.

use std::fs;
use std::path::{Path, PathBuf};

/// A parser.
pub struct Target {
    /// The name of its input.
    pub name: &'static str,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Parses an input, and uses the result as a user would.
    pub parse: fn(&[u8]),
    /// Mutations in a usual test.
    pub mutations: u64,
}

/// Parsers that libFuzzer exercises in one program. The first byte of an input selects the parser of the rest.
pub struct Group {
    /// The program: a file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// New ones are added at the end, because the corpus uses their numbers.
    pub targets: &'static [Target],
    /// The longest input, bytes.
    pub longest: usize,
}

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

pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Passes valid text to a parser of text.
pub(crate) fn with(bytes: &[u8], parse: impl FnOnce(&str)) {
    if let Some(text) = text(bytes) {
        parse(text);
    }
}

pub(crate) fn list(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}

/// The files below a folder of the repository with this ending.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
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
