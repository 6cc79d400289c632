//! The background: programs run only where nobody else wants the CPU. By the group of their CPU time where they have
//! one, else by what can be had of these: each of their threads has `SCHED_IDLE`, and their sessions the least weight.
//!
//! Where the kernel portions out CPU time by session first (autogroup), `SCHED_IDLE` gives way within its session only.

pub mod group;
mod sessions;
pub(crate) mod threads;

use crate::act::groups::LimitError;
use crate::notes::Notes;
use crate::undo::Journal;
use cotenant_model::TaskInfo;
use sessions::Weights;
use std::collections::BTreeSet;
use std::sync::Arc;
use threads::Policies;

pub use sessions::Sessions;
pub use threads::Classes;

/// The background of one application that has no group of CPU time.
#[derive(Debug, Default)]
pub struct Background {
    on: bool,
    threads: Policies,
    sessions: Weights,
}

impl Background {
    /// Turns it on or off, of these threads; see [`Background::tend`]. What is in force, as people read it.
    ///
    /// # Errors
    /// Where there is none here.
    pub fn turn(
        &mut self,
        journal: &mut Journal,
        on: bool,
        tasks: &[Arc<TaskInfo>],
        foreign: bool,
        notes: &mut Notes,
    ) -> Result<Option<String>, LimitError> {
        self.on = on;
        self.tend(journal, tasks, foreign, notes);
        if !on {
            return Ok(None);
        }
        let means = [self.threads.any().then_some("SCHED_IDLE"), self.sessions.any().then_some("autogroup nice 19")];
        let means: Vec<&str> = means.into_iter().flatten().collect();
        if means.is_empty() { Err(LimitError::NoBackground) } else { Ok(Some(means.join(" and "))) }
    }

    /// Brings those that were born since, and those that could not be changed before, to what is to be. `foreign`: we
    /// have not started them.
    pub fn tend(&mut self, journal: &mut Journal, tasks: &[Arc<TaskInfo>], foreign: bool, notes: &mut Notes) {
        // First: it finds out who may be touched.
        self.threads.tend(journal, self.on, foreign, tasks, notes);
        let barred: BTreeSet<u32> =
            tasks.iter().filter(|info| self.threads.is_barred(info)).map(|info| info.pid).collect();
        let pids = tasks.iter().map(|info| info.pid).filter(|pid| !barred.contains(pid)).collect();
        self.sessions.tend(journal, self.on, &pids, notes);
    }

    /// Whether it has ever been turned on.
    pub fn is_used(&self) -> bool {
        self.threads.is_used()
    }

    /// Gives back what was changed; lines about what fails, which is tried again at the end of all.
    pub fn end(mut self, journal: &mut Journal) -> Vec<String> {
        let mut notes = Notes::default();
        self.threads.end(journal, &mut notes);
        self.sessions.end(journal, &mut notes);
        notes.iter().cloned().collect()
    }
}
