//! Placement: the CPUs of a task. Journaled before setting; never outside of a task's allowed CPUs, never against
//! another agent.

mod masks;

use crate::act::backoff::{BackOff, Verdict};
use crate::fault::around;
use crate::notes::Notes;
use crate::sense::observer::NewTask;
use crate::sys;
use crate::sys::thread::{self, Held, Identity, Leaves, SetError, process_stat};
use crate::undo::{ClaimError, Journal};
use cotenant_model::{CpuSet, Outcome, TaskInfo, Time};
use std::collections::BTreeMap;
use std::ops::Bound;

pub use masks::{MaskRecord, Masks};

/// Tasks checked per [`Placement::tend`], in turn: a few microseconds.
const LOOKED_AT_PER_ROUND: usize = 8;

/// Rounds within which all are checked, and ended ones dropped.
const ROUNDS_FOR_ALL: usize = 125;

impl NewTask {
    /// An open thread with that mask.
    pub fn of(held: &Held, mask: CpuSet) -> Self {
        let Held { tid, pid, ref stat, .. } = *held;
        Self { tid, pid, ppid: stat.ppid, start_ticks: stat.start_ticks, mask }
    }
}

/// State of a changed task.
#[derive(Clone, Debug, Default)]
struct TaskState {
    pid: u32,
    /// Its original mask: upper limit, and value to restore.
    original: CpuSet,
    /// Its mask because of us, if any.
    ours: Option<CpuSet>,
    /// The requested mask then; the kernel may have reduced it.
    asked: CpuSet,
    back_off: BackOff,
    /// Whether its cpuset or an offline CPU leaves less than `original`, which was reported.
    cut: bool,
}

/// Sets masks, and checks them afterwards.
#[derive(Debug, Default)]
pub struct Placement {
    tasks: BTreeMap<Identity, TaskState>,
    cursor: Identity,
    /// Threads with changed allowed CPUs since [`Placement::take_changed`], by another agent or their cpuset.
    changed: Vec<(u32, CpuSet)>,
    /// Remarks for people.
    pub notes: Notes,
}

impl Placement {
    /// Threads whose mask was changed by another agent or cpuset since the last call, with their allowed CPUs.
    pub fn take_changed(&mut self) -> Vec<(u32, CpuSet)> {
        std::mem::take(&mut self.changed)
    }

    /// Whether the mask of the thread with that id and start time is managed here.
    pub fn knows(&self, tid: u32, start_ticks: u64) -> bool {
        self.tasks.contains_key(&(tid, start_ticks))
    }

    /// Threads with a mask of ours now. Ended ones are dropped within some seconds.
    pub fn outstanding(&self) -> usize {
        self.tasks.values().filter(|task| task.ours.is_some()).count()
    }

    /// A task's mask without us. A child inherits our mask, and its original is its creator's. Such a task is journaled
    /// at once, so that it is restored even if its creator has ended by then.
    pub fn original_mask(&mut self, journal: &mut Journal, task: &NewTask) -> CpuSet {
        let id = (task.tid, task.start_ticks);
        if let Some(state) = self.tasks.get(&id) {
            return state.original.clone();
        }
        let kin = [task.pid, task.ppid];
        match journal.outstanding::<Masks>().before(journal.owner(), kin, task.start_ticks, &task.mask) {
            None => task.mask.clone(),
            Some(original) => {
                let sid = process_stat(task.pid).map_or(0, |s| s.session);
                // If the journal rejects it, the walk at the end finds it through its creator.
                let _ = journal.write(&MaskRecord::set(id, task.pid, sid, original.clone(), task.mask.clone()));
                journal.claim_along(task.pid);
                let (ours, asked) = (Some(task.mask.clone()), task.mask.clone());
                let new = TaskState { pid: task.pid, original: original.clone(), ours, asked, ..TaskState::default() };
                self.tasks.insert(id, new);
                original
            }
        }
    }

    /// Duties of every round, with or without orders: checks some tasks for changes by another agent.
    pub fn tend(&mut self, journal: &mut Journal, now: Time) {
        let next = self.tasks.range((Bound::Excluded(self.cursor), Bound::Unbounded)).map(|(id, _)| *id);
        let due: Vec<Identity> = next.take(LOOKED_AT_PER_ROUND.max(self.tasks.len() / ROUNDS_FOR_ALL)).collect();
        self.cursor = due.last().copied().unwrap_or_default();
        for id in due {
            let TaskState { pid, original, ours, cut, .. } = &self.tasks[&id];
            let (pid, known) = (*pid, ours.as_ref().unwrap_or(original));
            // Cheap, and sufficient for most: even for a reused id there is nothing to do.
            let is_settled = !cut && sys::getaffinity(id.0).is_ok_and(|mask| mask == *known);
            if is_settled && (ours.is_none() || !sys::is_real_time(id.0)) {
                continue;
            }
            match Held::open_exactly(pid, id.0, id.1).and_then(|held| held.mask().map(|mask| (held, mask))) {
                Ok((held, mask)) => {
                    // It wants a CPU at once when it wants one, and is managed no more.
                    if self.is_ours(journal, now, &held, &mask)
                        && held.stat.is_real_time()
                        && self.release(journal, &held).is_ok()
                    {
                        let who = format!("{} (thread {})", held.stat.comm, held.tid);
                        self.notes.add(format!("{who} took a real-time or deadline policy, and got its CPUs back"));
                    }
                }
                Err(_) => {
                    self.tasks.remove(&id);
                }
            }
        }
    }

    /// Sets a task's mask, or restores its own.
    pub fn apply(&mut self, journal: &mut Journal, now: Time, info: &TaskInfo, mask: Option<&CpuSet>) -> Outcome {
        match self.set(journal, now, info, mask) {
            Ok(outcome) => outcome,
            Err(Refusal::Gone) => {
                self.tasks.remove(&(info.tid, info.start_ticks));
                Outcome::Gone
            }
            Err(Refusal::Stale) => Outcome::Stale,
            Err(Refusal::Denied(why)) => {
                self.notes.add(format!("{} ({}) is left alone: {why}", info.comm, info.pid));
                Outcome::Denied
            }
            Err(Refusal::Nothing) => Outcome::Denied,
        }
    }

    /// Restores a task's own mask, and stops managing it.
    pub fn forget(&mut self, journal: &mut Journal, now: Time, info: &TaskInfo) {
        if self.knows(info.tid, info.start_ticks) {
            self.apply(journal, now, info, None);
            self.tasks.remove(&(info.tid, info.start_ticks));
        }
    }

    fn set(
        &mut self,
        journal: &mut Journal,
        now: Time,
        info: &TaskInfo,
        mask: Option<&CpuSet>,
    ) -> Result<Outcome, Refusal> {
        let id = (info.tid, info.start_ticks);
        match self.tasks.get(&id).map(|t| t.back_off.verdict(now)) {
            Some(Verdict::LeftAlone) => return Err(Refusal::Stale),
            Some(Verdict::GivenUp) => return Err(Refusal::Denied("another agent keeps changing its mask".to_owned())),
            Some(Verdict::Free) | None => {}
        }
        let held = Held::open_exactly(info.pid, info.tid, info.start_ticks)?;
        journal.admits(&held).map_err(Refusal::Denied)?;
        let current = held.mask()?;
        if self.tasks.contains_key(&id) && !self.is_ours(journal, now, &held, &current) {
            return Err(Refusal::Stale);
        }
        match mask {
            None => self.release(journal, &held),
            Some(mask) => self.place(journal, &held, mask, &current),
        }
    }

    /// Whether a known task has its known mask. If not, another agent has changed it: that mask becomes the task's own,
    /// and the task is left alone for a while.
    fn is_ours(&mut self, journal: &mut Journal, now: Time, held: &Held, current: &CpuSet) -> bool {
        let id = (held.tid, held.stat.start_ticks);
        let Some(state) = self.tasks.get_mut(&id) else { return false };
        let known = state.ours.as_ref().unwrap_or(&state.original);
        if known == current || (state.ours.is_some() && state.asked == *current) {
            // A later mask also lies in the rest of the cpuset, which alone shows when everything is allowed again.
            if state.cut && held.cpuset().is_some_and(|cpuset| state.original.is_subset(&cpuset)) {
                state.cut = false;
                self.changed.push((held.tid, state.original.clone()));
            }
            return true;
        }
        let leaves = state.ours.as_ref().and_then(|_| held.leaves(&state.asked, current));
        // The cpuset or the online CPUs may have changed under our mask; the rest is still ours. Since Linux 6.2 the
        // kernel remembers the full request beside the rest.
        let left = |leaves: &&Leaves| leaves.of(&state.asked, current) || leaves.of(known, current);
        if let Some(Leaves { cpuset, moving }) = leaves.as_ref().filter(left) {
            state.cut = true;
            self.changed.push((held.tid, thread::under_cpuset(&state.original, &cpuset.minus(moving))));
            return true;
        }
        if held.mask().is_ok_and(|mask| mask != *current) {
            return false; // it is changing, perhaps with a CPU going online or offline: the next look decides
        }
        // Before Linux 6.2 a changing cpuset resets each of its tasks to all of itself, whatever their masks. If that
        // equals the former mask, another agent may have restored it.
        let reset = leaves.is_some_and(|l| l.cpuset == *current && (state.cut || l.cpuset != state.original));
        state.cut = false;
        state.original = current.clone();
        self.changed.push((held.tid, current.clone()));
        if state.ours.take().is_none() {
            return false; // not directed against us
        }
        if reset {
            journal.strike(&MaskRecord::Left(id));
            return false;
        }
        state.back_off.hit(now);
        let how = match state.back_off.verdict(now) {
            Verdict::GivenUp => "is left alone for good: another agent changes its mask again and again",
            _ => "is left alone for a while: another agent has changed its mask",
        };
        self.notes.add(format!("{} (thread {}) {how}", held.stat.comm, held.tid));
        journal.strike(&MaskRecord::Left(id));
        false
    }

    fn release(&mut self, journal: &mut Journal, held: &Held) -> Result<Outcome, Refusal> {
        let id = (held.tid, held.stat.start_ticks);
        let Some(state) = self.tasks.get_mut(&id).filter(|t| t.ours.is_some()) else { return Ok(Outcome::Applied) };
        state.original = around("set", || masks::give(held, &state.original))?;
        state.ours = None;
        journal.strike(&MaskRecord::Left(id));
        Ok(Outcome::Applied)
    }

    fn place(
        &mut self,
        journal: &mut Journal,
        held: &Held,
        wanted: &CpuSet,
        current: &CpuSet,
    ) -> Result<Outcome, Refusal> {
        let id = (held.tid, held.stat.start_ticks);
        if wanted == current {
            return Ok(Outcome::Applied);
        }
        if !self.tasks.contains_key(&id) {
            journal.claim(held.pid)?;
            // Reads the mask again: before the claim it may have been another Cotenant's.
            let task = NewTask::of(held, held.mask()?);
            let original = self.original_mask(journal, &task);
            // A thread that inherited our mask is known by now.
            let asked = original.clone();
            let new = TaskState { pid: held.pid, original, asked, ..TaskState::default() };
            self.tasks.entry(id).or_insert(new);
        }
        let original = self.tasks[&id].original.clone();
        if wanted.is_empty() || !wanted.is_subset(&original) {
            return Err(Refusal::Denied(format!(
                "CPUs {wanted} are not all among those that it is allowed, {original}"
            )));
        }
        journal.begin().map_err(|_| Refusal::Nothing)?;
        let record = |mask: &CpuSet| MaskRecord::set(id, held.pid, held.stat.session, original.clone(), mask.clone());
        journal.write(&record(wanted)).map_err(|_| Refusal::Nothing)?;
        let holds = around("set", || held.set(wanted))?;
        around("readback", || {
            if holds != *wanted {
                // The kernel has reduced it. If this record is lost, undoing queries the rest.
                let _ = journal.write(&record(&holds));
            }
        });
        let state = self.tasks.get_mut(&id).expect("entered above");
        (state.ours, state.asked) = (Some(holds), wanted.clone());
        Ok(Outcome::Applied)
    }
}

/// Why an order was not carried out.
#[derive(Debug)]
enum Refusal {
    Gone,
    Stale,
    /// This task.
    Denied(String),
    /// Any task: the journal has a remark.
    Nothing,
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
            ClaimError::File(_) => Self::Nothing,
        }
    }
}
