//! Acting: one actuator per effect. What is to be undone is announced to the [`Journal`] before it is done.

pub mod background;
pub mod caches;
pub mod cpu_time;
pub mod groups;
pub mod nap;
pub mod pages;
pub mod pause;
pub mod placement;

use crate::FsRoot;
use crate::notes::Notes;
use crate::sense::observer::NewTask;
use crate::sys::thread::{Held, SetError};
use crate::undo::{self, ClaimError, Journal, JournalOptions, Kind, OpenError, RestoreReport, Table};
use cotenant_core::{Action, CpuSet, NodeId, Order, Outcome, TaskId, TaskInfo, Time};
use pages::Mover;
use placement::Placement;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// What is journaled, in the order in which it is undone: nobody is to wait for the masks of others.
///
/// Naps of programs with marks end by themselves, and pages stay where they were brought.
pub const EFFECTS: Table =
    &[Kind::of::<groups::Groups>(), Kind::of::<pause::Stopped>(), Kind::of::<placement::Masks>()];

/// Undoes whatever killed Cotenants of this user have left.
pub fn restore(state_dir: &Path) -> RestoreReport {
    undo::restore(state_dir, EFFECTS)
}

/// The guardian's program.
pub fn guard(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    undo::guard(args, EFFECTS)
}

/// Why an order was not carried out.
#[derive(Debug)]
pub enum Refusal {
    /// Whom it is about has ended.
    Gone,
    /// Something has changed since.
    Stale,
    /// Not for this task.
    Denied(String),
    /// Not for any.
    Nothing(String),
}

impl From<SetError> for Refusal {
    fn from(e: SetError) -> Self {
        match e {
            SetError::Gone => Self::Gone,
            SetError::Recycled => Self::Stale,
            SetError::OutsideCpuset | SetError::Refused(_) => Self::Denied(e.to_string()),
        }
    }
}

impl From<ClaimError> for Refusal {
    fn from(e: ClaimError) -> Self {
        match e {
            ClaimError::Gone => Self::Gone,
            ClaimError::Taken(_) => Self::Denied(e.to_string()),
            ClaimError::File(_) => Self::Nothing(format!("nothing is changed: {e}")),
        }
    }
}

/// All actuators of one host.
#[derive(Debug)]
pub struct Actuators {
    /// What they journal.
    pub journal: Journal,
    placement: Placement,
    /// Where the memory of programs may be moved.
    pages: Option<Mover>,
    notes: Notes,
}

impl Actuators {
    /// Changes nothing yet, but for what killed Cotenants have left; see [`Journal::open`].
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(options: JournalOptions) -> Result<Self, OpenError> {
        let journal = Journal::open(options, EFFECTS)?;
        Ok(Self { journal, placement: Placement::default(), pages: None, notes: Notes::default() })
    }

    /// Allows that memory is moved.
    pub fn move_pages(&mut self, fs: &FsRoot) {
        self.pages = Some(Mover::new(fs));
    }

    /// Remarks for people: what was refused and why. Same remark, same text.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let of_pages = self.pages.iter().flat_map(Mover::notes);
        self.journal.notes().into_iter().chain(&self.notes).chain(self.placement.notes()).cloned().chain(of_pages)
    }

    /// Says of a process whether another Cotenant manages it: its tasks will be left alone as long as that does.
    pub fn look_for_rival(&mut self, pid: u32) {
        if let Some(other) = self.journal.rival(pid) {
            let who = format!("another cotenant (process {other}) manages it or its parent");
            self.notes.add(format!("process {pid} is left alone: {who}"));
        }
    }

    /// Whether the mask of the thread of that id and start time is looked after here.
    pub fn knows(&self, tid: u32, start_ticks: u64) -> bool {
        self.placement.knows(tid, start_ticks)
    }

    /// The mask that a task would have without us, see [`Placement::original_mask`].
    pub fn original_mask(&mut self, task: &NewTask) -> CpuSet {
        self.placement.original_mask(&mut self.journal, task)
    }

    /// Threads that are allowed other CPUs since the last call, because of another agent or their cpuset.
    pub fn take_changed(&mut self) -> Vec<(u32, CpuSet)> {
        self.placement.take_changed()
    }

    /// What is due in every round, whether there are orders or not.
    pub fn tend(&mut self, now: Time) {
        self.journal.tend();
        self.placement.tend(&mut self.journal, now);
    }

    /// Carries out an order about a task.
    pub fn apply(&mut self, now: Time, order: &Order, info: &TaskInfo) -> Outcome {
        let done = match &order.action {
            Action::Place { .. } => self.placement.apply(&mut self.journal, now, info, Some(&order.affinity)),
            Action::Release { .. } => self.placement.apply(&mut self.journal, now, info, None),
            Action::Pages { nodes, .. } => self.bring(info, nodes),
            Action::Pause { .. } => Err(Refusal::Denied("nothing here can let a task wait".to_owned())),
            Action::Nap { .. } | Action::Limit { .. } | Action::LimitCaches { .. } | Action::Background { .. } => {
                return Outcome::NotThisMachine;
            }
        };
        match done {
            Ok(outcome) => outcome,
            Err(Refusal::Gone) => Outcome::Gone,
            Err(Refusal::Stale) => Outcome::Stale,
            Err(Refusal::Denied(why)) => {
                self.notes.add(format!("{} ({}) is left alone: {why}", info.comm, info.pid));
                Outcome::Denied
            }
            Err(Refusal::Nothing(why)) => {
                self.notes.add(why);
                Outcome::Denied
            }
        }
    }

    fn bring(&mut self, info: &TaskInfo, nodes: &[NodeId]) -> Result<Outcome, Refusal> {
        let Some(pages) = &mut self.pages else {
            let why =
                "pages stay where they are: moving the memory of running programs was not asked for (--move-pages)";
            return Err(Refusal::Nothing(why.to_owned()));
        };
        let held = Held::open_exactly(info.pid, info.tid, info.start_ticks)?;
        let brought =
            self.journal.may_touch(&held).and_then(|()| pages.bring(info.pid, nodes).map_err(|e| e.to_string()));
        let stays = |why| format!("{} ({}): its memory stays where it is: {why}", info.comm, info.pid);
        brought.map(|()| Outcome::Applied).map_err(|why| Refusal::Nothing(stays(why)))
    }

    /// Carries out orders about tasks, one outcome each, in order.
    pub fn apply_all(
        &mut self,
        now: Time,
        orders: &[Order],
        lookup: &dyn Fn(TaskId) -> Option<Arc<TaskInfo>>,
    ) -> Vec<Outcome> {
        self.tend(now);
        let outcomes = orders.iter().map(|order| match order.action.task().map(lookup) {
            None => Outcome::NotThisMachine, // of whole applications
            Some(None) => Outcome::Gone,
            Some(Some(info)) => self.apply(now, order, &info),
        });
        let outcomes = outcomes.collect();
        if let Some(pages) = &mut self.pages {
            pages.go_on();
        }
        outcomes
    }

    /// Undoes everything and ends the guardian. Dropping does the same, without the report.
    pub fn finish(self) -> RestoreReport {
        self.journal.finish()
    }
}
