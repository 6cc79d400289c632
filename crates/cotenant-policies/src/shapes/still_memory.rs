//! Whether memory is on its way.

use cotenant_model::{TaskId, Time, View};
use serde::{Deserialize, Serialize};

/// How little of a process' memory may move while it counts as still.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stillness {
    /// For how long, seconds.
    pub seconds: f64,
    /// A part of it, or so many pages if that is more.
    pub part: f64,
    pub pages: u64,
}

/// Where this policy has moved it, it has arrived once nothing moves.
pub(super) const ARRIVED: Stillness = Stillness { seconds: 0.5, part: 0.0, pages: 0 };
/// Where the kernel moves it, some always does: a few pages that threads on several nodes have in common go to and fro.
pub(super) const SETTLED: Stillness = Stillness { seconds: 5.0, part: 0.02, pages: 1_024 };
/// Seconds that are waited for it at most.
pub(super) const LONGEST: f64 = 60.0;

/// Pages by node of each task, and since when they are so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StillMemory {
    seen: Vec<Vec<u64>>,
    since: Time,
}

impl StillMemory {
    /// Takes a round; returns for how many seconds the memory of these tasks has been still.
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
