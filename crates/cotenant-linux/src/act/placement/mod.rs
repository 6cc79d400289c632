//! Placement: which CPUs a task may use. Journal first, then set; never outside what a task was allowed, never against
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

/// Tasks whose mask is looked at per [`Placement::tend`], in turn: a few microseconds.
const LOOKED_AT_PER_ROUND: usize = 8;

/// All of them are looked at within so many rounds: those that have ended are forgotten then.
const ROUNDS_FOR_ALL: usize = 125;

impl NewTask {
    /// A held thread with that mask.
    pub fn of(held: &Held, mask: CpuSet) -> Self {
        let Held { tid, pid, ref stat, .. } = *held;
        Self { tid, pid, ppid: stat.ppid, start_ticks: stat.start_ticks, mask }
    }
}

/// What is known of a task that has been touched.
#[derive(Clone, Debug, Default)]
struct TaskState {
    pid: u32,
    /// What it may have at most, and gets back.
    original: CpuSet,
    /// The mask that holds because of us, if one does.
    ours: Option<CpuSet>,
    /// The mask that was asked for then, of which the kernel may have left less.
    asked: CpuSet,
    back_off: BackOff,
    /// Its cpuset, or a CPU that is off, leaves it less than `original`, and this has been told.
    cut: bool,
}

/// Sets masks, and looks after those that it has set.
#[derive(Debug, Default)]
pub struct Placement {
    tasks: BTreeMap<Identity, TaskState>,
    cursor: Identity,
    /// Threads that are allowed other CPUs since [`Placement::take_changed`], because of another agent or their cpuset.
    changed: Vec<(u32, CpuSet)>,
    /// Remarks for people.
    pub notes: Notes,
}

impl Placement {
    /// Threads to which another agent or another cpuset has given another mask since the last call: what they are
    /// allowed from now on.
    pub fn take_changed(&mut self) -> Vec<(u32, CpuSet)> {
        std::mem::take(&mut self.changed)
    }

    /// Whether the mask of the thread of that id and start time is looked after here.
    pub fn knows(&self, tid: u32, start_ticks: u64) -> bool {
        self.tasks.contains_key(&(tid, start_ticks))
    }

    /// Threads that have a mask of ours now. Those that have ended are forgotten within some seconds.
    pub fn outstanding(&self) -> usize {
        self.tasks.values().filter(|task| task.ours.is_some()).count()
    }

    /// The mask that a task would have without us. A child inherits our mask: its original is its creator's. Such a
    /// task is entered in the journal at once, so that it is given back even if its creator is long gone by then.
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
                // Where the journal cannot take it, the walk at the end finds it through its creator.
                let _ = journal.write(&MaskRecord::set(id, task.pid, sid, original.clone(), task.mask.clone()));
                journal.claim_along(task.pid);
                let (ours, asked) = (Some(task.mask.clone()), task.mask.clone());
                let new = TaskState { pid: task.pid, original: original.clone(), ours, asked, ..TaskState::default() };
                self.tasks.insert(id, new);
                original
            }
        }
    }

    /// What is due in every round, whether there are orders or not: looks whether another agent has changed the mask of
    /// some tasks.
    pub fn tend(&mut self, journal: &mut Journal, now: Time) {
        let next = self.tasks.range((Bound::Excluded(self.cursor), Bound::Unbounded)).map(|(id, _)| *id);
        let due: Vec<Identity> = next.take(LOOKED_AT_PER_ROUND.max(self.tasks.len() / ROUNDS_FOR_ALL)).collect();
        self.cursor = due.last().copied().unwrap_or_default();
        for id in due {
            let TaskState { pid, original, ours, cut, .. } = &self.tasks[&id];
            let (pid, known) = (*pid, ours.as_ref().unwrap_or(original));
            // Cheap, and enough for most: whoever the id belongs to by now, nothing is to be done about it.
            if !cut && sys::getaffinity(id.0).is_ok_and(|mask| mask == *known) {
                continue;
            }
            match Held::open_exactly(pid, id.0, id.1).and_then(|held| held.mask().map(|mask| (held, mask))) {
                Ok((held, mask)) => {
                    self.is_ours(journal, now, &held, &mask);
                }
                Err(_) => {
                    self.tasks.remove(&id);
                }
            }
        }
    }

    /// Gives a task this mask, or its own back.
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

    /// Gives a task its own mask back, and does not look after it any more.
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

    /// Whether a known task has the mask that we know of. If not, another agent has changed it: that mask is the task's
    /// own from now on, and the task is left alone for a while.
    fn is_ours(&mut self, journal: &mut Journal, now: Time, held: &Held, current: &CpuSet) -> bool {
        let id = (held.tid, held.stat.start_ticks);
        let Some(state) = self.tasks.get_mut(&id) else { return false };
        let known = state.ours.as_ref().unwrap_or(&state.original);
        if known == current || (state.ours.is_some() && state.asked == *current) {
            // Also a mask that was set since lies in what the cpuset leaves: it alone says when all is allowed again.
            if state.cut && held.cpuset().is_some_and(|cpuset| state.original.is_subset(&cpuset)) {
                state.cut = false;
                self.changed.push((held.tid, state.original.clone()));
            }
            return true;
        }
        let leaves = state.ours.as_ref().and_then(|_| held.leaves(&state.asked, current));
        // The cpuset or the CPUs that are on may have changed under our mask; what is left of it is still ours. Since
        // Linux 6.2 the kernel remembers all that was asked for, before what it left of that.
        let left = |leaves: &&Leaves| leaves.of(&state.asked, current) || leaves.of(known, current);
        if let Some(Leaves { cpuset, moving }) = leaves.as_ref().filter(left) {
            state.cut = true;
            self.changed.push((held.tid, thread::under_cpuset(&state.original, &cpuset.minus(moving))));
            return true;
        }
        if held.mask().is_ok_and(|mask| mask != *current) {
            return false; // it changes just now, perhaps with a CPU that is switched: the next look tells
        }
        // Before Linux 6.2 a cpuset that changes gives all of itself to each of its tasks, whatever their masks were.
        // Where it is what the task had before, somebody else may have given it back.
        let reset = leaves.is_some_and(|l| l.cpuset == *current && (state.cut || l.cpuset != state.original));
        state.cut = false;
        state.original = current.clone();
        self.changed.push((held.tid, current.clone()));
        if state.ours.take().is_none() {
            return false; // not against us
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
            // The mask once more: before the claim it may have been another Cotenant's.
            let task = NewTask::of(held, held.mask()?);
            let original = self.original_mask(journal, &task);
            // One that inherited our mask is known by now.
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
                // The kernel has cut it. Where this record is lost, undoing finds out by asking what it leaves.
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
    /// Any task: the journal has made a remark.
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
