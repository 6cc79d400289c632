//! Masks as settings that children inherit.

use crate::act::inherited::{Setting, SettingRecord, Settings};
use crate::sys;
use crate::sys::thread::{Held, SetError};
use cotenant_model::CpuSet;
use std::io;

/// All masks that Cotenant has set.
pub type Masks = Settings<CpuSet>;

/// A mask is set, or left.
pub type MaskRecord = SettingRecord<CpuSet>;

impl Setting for CpuSet {
    const WORDS: [&'static str; 2] = ["set", "left"];
    const NAME: &'static str = "mask";

    fn parse(word: &str) -> Option<Self> {
        Self::parse_list(word).ok()
    }

    fn of(tid: u32) -> io::Result<Self> {
        sys::getaffinity(tid)
    }

    fn has_become(&self, current: &Self, held: &Held) -> bool {
        held.leaves(self, current).is_some_and(|leaves| leaves.of(self, current))
    }

    fn passed_on(&self) -> Self {
        self.clone()
    }

    fn give(&self, held: &Held) -> Result<(), SetError> {
        give(held, self).map(|_| ())
    }

    fn remedy(&self, tid: u32) -> String {
        format!("taskset -pc {self} {tid}")
    }
}

/// Gives a task its mask back; returns the one that holds then. A task that was free to run anywhere in its cpuset
/// becomes that again, whatever the cpuset will be, instead of being tied to the CPUs that happen to be in it now; so
/// does one for whose mask the cpuset has no CPU left.
///
/// # Errors
/// [`SetError`].
pub(super) fn give(held: &Held, original: &CpuSet) -> Result<CpuSet, SetError> {
    if held.cpuset().is_some_and(|cpuset| cpuset.is_subset(original)) {
        return held.set_free();
    }
    match held.set(original) {
        Err(SetError::OutsideCpuset) => held.set_free(),
        other => other,
    }
}
