//! Masks as inherited settings.

use crate::act::inherited::{Setting, SettingRecord, Settings};
use crate::sys;
use crate::sys::thread::{Held, SetError};
use cotenant_model::CpuSet;
use std::io;

/// All masks set by Cotenant.
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

/// Restores a task's mask; returns the resulting one. A task without a restriction in its cpuset becomes unrestricted
/// again, following its cpuset, instead of being bound to the current CPUs; so does one whose mask has no CPU left in
/// the cpuset.
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
