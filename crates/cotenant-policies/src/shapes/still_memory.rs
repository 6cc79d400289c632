//! Whether memory is on its way.

use cotenant_model::{TaskId, Time, View};
use serde::{Deserialize, Serialize};

/// Fraction of a process's memory that may move while it counts as still.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stillness {
    /// Required seconds.
    pub seconds: f64,
    /// A fraction of it, or this many pages if that is more.
    pub part: f64,
    pub pages: u64,
}

/// Memory moved by this policy has arrived when nothing moves.
pub(super) const ARRIVED: Stillness = Stillness { seconds: 0.5, part: 0.0, pages: 0 };
/// With the kernel as the mover, some always moves: a few pages shared by threads on several nodes go back and forth.
pub(super) const SETTLED: Stillness = Stillness { seconds: 5.0, part: 0.02, pages: 1_024 };
/// Limit of the wait for it, seconds.
pub(super) const LONGEST: f64 = 60.0;

/// Pages by node of each task, and the time since they are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StillMemory {
    seen: Vec<Vec<u64>>,
    since: Time,
}

impl StillMemory {
    /// Adds a round; returns the seconds for which these tasks' memory has been still.
    pub fn add(&mut self, view: &View, own: impl Fn(TaskId) -> bool, stillness: Stillness) -> f64 {
        let own = view.tasks.iter().filter(|t| own(t.info.id));
        let seen: Vec<Vec<u64>> = own.map(|t| t.pages_by_node.iter().flatten().map(|(_, n)| *n).collect()).collect();
        let moves = |(now, before): (&Vec<u64>, &Vec<u64>)| {
            let moved: u64 = now.iter().zip(before).map(|(now, before)| now.abs_diff(*before)).sum();
            let part = stillness.part * now.iter().sum::<u64>() as f64;
            now.len() != before.len() || moved as f64 > part.max(stillness.pages as f64)
        };
        if seen.len() != self.seen.len() || seen.iter().zip(&self.seen).any(moves) {
            *self = Self { seen, since: view.at };
        }
        (view.at - self.since).as_secs_f64()
    }
}
