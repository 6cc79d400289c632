//! The levels of a description, and their faults.

use super::super::CacheType;

/// A text that is not a synthetic description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "synthetic description, column {column}: {what}; expected levels such as package:2 l3:1(size=8MiB) core:4 pu:2"
)]
pub struct SyntheticError {
    /// Column in bytes, from 1.
    pub column: usize,
    what: String,
}

/// Limit of CPUs (and memory nodes) in a description: Linux's largest `NR_CPUS`.
pub const MAX_CPUS: usize = 8192;
/// The most levels.
pub(super) const MAX_LEVELS: usize = 32;

/// Kind of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Machine,
    Package,
    Die,
    Group(Option<u8>),
    Node,
    Cache(u8, CacheType),
    Core,
    Pu,
}

/// The value of an `indexes=` attribute, as text until the widths of all levels are known.
#[derive(Debug)]
pub(super) struct Indexes {
    pub(super) text: Option<String>,
    /// The start of the value, from 0.
    pub(super) at: usize,
}

impl Indexes {
    pub(super) fn none(at: usize) -> Self {
        Self { text: None, at }
    }

    pub(super) fn read(text: &str, at: usize) -> Self {
        Self { text: Some(text.to_owned()), at }
    }

    pub(super) fn is_given(&self) -> bool {
        self.text.is_some()
    }
}

#[derive(Debug)]
pub(super) struct Level {
    /// `None` until the types of bare numbers are chosen.
    pub of: Option<Type>,
    /// Its place in the text, from 0.
    pub at: usize,
    /// Children below each object of the level above.
    pub arity: usize,
    /// Objects in the whole machine.
    pub width: usize,
    pub bytes: Option<u64>,
    pub indexes: Indexes,
    /// Memory nodes attached to each object of the level: their sizes.
    pub attached: Vec<Option<u64>>,
}

pub(super) fn error(at: usize, what: impl Into<String>) -> SyntheticError {
    SyntheticError { column: at + 1, what: what.into() }
}
