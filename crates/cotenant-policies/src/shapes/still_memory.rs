//! Whether memory is on its way.

use cotenant_model::{TaskId, Time, View};
use serde::{Deserialize, Serialize};

/// Where the kernel moves memory, it has settled when not more than this part of it has moved for so many seconds.
pub(super) const MOVED: f64 = 0.02;
pub(super) const STILL: f64 = 5.0;
/// Seconds that are waited for it at most.
pub(super) const LONGEST: f64 = 60.0;

/// Pages by node of all tasks, and since when they are so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StillMemory {
    seen: Vec<u64>,
    since: Time,
}

impl StillMemory {
    /// Takes a round; returns for how many seconds not more than this part has moved.
    pub fn add(&mut self, view: &View, own: impl Fn(TaskId) -> bool, part: f64) -> f64 {
        let own = view.tasks.iter().filter(|t| own(t.info.id));
        let pages: Vec<u64> = own.flat_map(|t| t.pages_by_node.iter().flatten().map(|(_, n)| *n)).collect();
        let moved: u64 = pages.iter().zip(&self.seen).map(|(now, before)| now.abs_diff(*before)).sum();
        let all: u64 = pages.iter().sum();
        if pages.len() != self.seen.len() || moved as f64 > part * all as f64 {
            *self = Self { seen: pages, since: view.at };
        }
        (view.at - self.since).as_secs_f64()
    }
}
