//! Carrying out orders: journal first, then set; never outside what a task was allowed, never against another agent.

use crate::affinity::{self, Held, Leaves, SetError};
use crate::backoff::{BackOff, Verdict};
use crate::book::{self, Book, Identity};
use crate::claims::{ClaimError, Claims};
use crate::fault::point;
use crate::guardian::{Guardian, GuardianCommand};
use crate::journal::{self, Here, Journal, Owner, Record};
use crate::observe::NewTask;
use crate::restore::{self, RestoreReport};
use crate::sys;
use cotenant_model::{Action, CpuSet, Order, Outcome, TaskId, TaskInfo, Time};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::env;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tasks whose mask is looked at per [`Applier::tend`], in turn: a few microseconds, and 1,000 tasks within 125 rounds.
const LOOKED_AT_PER_ROUND: usize = 8;

/// Remarks that are kept at most.
const MOST_NOTES: usize = 100;

/// How changes are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Where the journal and the claims are. Local to the machine, and the same for all Cotenants of a user.
    pub state_dir: PathBuf,
    /// Whether tasks of other users may be touched.
    pub other_users: bool,
    /// How the guardian is started.
    pub guardian: GuardianCommand,
    /// A journal is compacted when it exceeds this and twice what the last compaction left, bytes.
    pub compact_above: u64,
}

impl ApplyOptions {
    /// With the folder of this user, own tasks only, and this binary as guardian.
    ///
    /// # Errors
    /// As [`default_state_dir`].
    pub fn new() -> Result<Self, ApplyError> {
        let state_dir = default_state_dir()?;
        Ok(Self { state_dir, other_users: false, guardian: GuardianCommand::default(), compact_above: 1 << 20 })
    }
}

/// Where a user's Cotenants keep their state: `/run/cotenant` for root; `$XDG_STATE_HOME/cotenant`, else
/// `$HOME/.local/state/cotenant`, else `/run/user/UID/cotenant` for others. The latter goes at the last logout, while programs that
/// were started under nohup go on, so it comes last.
///
/// # Errors
/// Where the environment names none of them.
pub fn default_state_dir() -> Result<PathBuf, ApplyError> {
    let uid = sys::euid();
    if uid == 0 {
        return Ok("/run/cotenant".into()); // not by environment: a shell and a systemd unit must agree
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let run = PathBuf::from(format!("/run/user/{uid}"));
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .or_else(|| run.is_dir().then_some(run))
        .map(|base| base.join("cotenant"))
        .ok_or(ApplyError::NoStateDir)
}

/// Why nothing can be changed at all.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// No place for the journal.
    #[error("no place for the journal: neither XDG_STATE_HOME nor HOME is set; set one of them")]
    NoStateDir,
    /// `/proc` cannot be read.
    #[error("cannot read /proc: {0}; mount it")]
    Proc(io::Error),
}

impl NewTask {
    /// A held thread with that mask.
    pub fn of(held: &Held, mask: CpuSet) -> Self {
        let Held { tid, pid, ref stat, .. } = *held;
        Self { tid, pid, ppid: stat.ppid, start_ticks: stat.start_ticks, mask }
    }
}

/// What is known of a task that has been touched.
#[derive(Clone, Debug)]
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

/// Journal and guardian, from the first change on.
#[derive(Debug)]
struct Active {
    journal: Journal,
    guardian: Guardian,
    /// Size above which the journal is compacted next, bytes.
    compact_above: u64,
}

/// Carries out orders and undoes them. One per process: it is what the guardian watches over.
#[derive(Debug)]
pub struct Applier {
    options: ApplyOptions,
    here: Here,
    me: Owner,
    active: Option<Active>,
    book: Book,
    claims: Claims,
    tasks: BTreeMap<Identity, TaskState>,
    cursor: Identity,
    /// Threads that are allowed other CPUs since [`Applier::take_changed`], because of another agent or their cpuset.
    changed: Vec<(u32, CpuSet)>,
    notes: BTreeSet<String>,
}

impl Applier {
    /// Undoes first what killed Cotenants of this user left behind, so that the masks that are seen are the tasks' own. Starts
    /// no guardian and writes nothing before the first change.
    ///
    /// # Errors
    /// [`ApplyError::Proc`].
    pub fn new(mut options: ApplyOptions) -> Result<Self, ApplyError> {
        // The guardian works in another folder.
        options.state_dir = std::path::absolute(&options.state_dir).map_err(|_| ApplyError::NoStateDir)?;
        let here = Here::read().map_err(ApplyError::Proc)?;
        let me = Owner::me().map_err(ApplyError::Proc)?;
        let mut notes = BTreeSet::new();
        let left = restore::restore(&options.state_dir);
        if left.restored > 0 {
            notes.insert(format!("{} task(s) that a killed cotenant had left were restored first", left.restored));
        }
        let claims = Claims::new(&options.state_dir, here.clone(), me);
        let (book, tasks) = (Book::default(), BTreeMap::new());
        Ok(Self { options, here, me, active: None, book, claims, tasks, cursor: (0, 0), changed: Vec::new(), notes })
    }

    /// Remarks for people: what was refused and why. Same remark, same text.
    pub fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().collect()
    }

    /// Says of a process whether another Cotenant manages it: its tasks will be left alone as long as that does.
    pub fn look_for_rival(&mut self, pid: u32) {
        if let Some(other) = self.claims.holder(pid) {
            self.note(format!(
                "process {pid} is left alone: another cotenant (process {other}) manages it or its parent"
            ));
        }
    }

    /// Threads to which another agent or another cpuset has given another mask since the last call: what they are allowed from now on.
    pub fn take_changed(&mut self) -> Vec<(u32, CpuSet)> {
        std::mem::take(&mut self.changed)
    }

    /// Keeps a remark for people.
    pub fn note(&mut self, note: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.insert(note);
        }
    }

    /// The guardian's process id and a descriptor that hangs up when it dies; `None` before the first change.
    pub fn guardian(&self) -> Option<(u32, BorrowedFd<'_>)> {
        self.active.as_ref().map(|a| (a.guardian.pid(), a.guardian.fd()))
    }

    /// Whether the mask of the thread of that id and start time is looked after here.
    pub fn knows(&self, tid: u32, start_ticks: u64) -> bool {
        self.tasks.contains_key(&(tid, start_ticks))
    }

    /// The mask that a task would have without us. A child inherits our mask: its original is its creator's. Such a task is
    /// entered in the journal at once, so that it is given back even if its creator is long gone by then.
    pub fn original_mask(&mut self, task: &NewTask) -> CpuSet {
        let id = (task.tid, task.start_ticks);
        if let Some(state) = self.tasks.get(&id) {
            return state.original.clone();
        }
        match self.inherited(task) {
            None => task.mask.clone(),
            Some(original) => {
                let sid = affinity::process_stat(task.pid).map_or(0, |s| s.session);
                // Where the journal cannot take it, the walk at the end finds it through its creator.
                let _ = self.enter(id, task.pid, sid, &original, &task.mask);
                let _ = self.claims.claim(task.pid);
                let ours = Some(task.mask.clone());
                let state = TaskState {
                    pid: task.pid,
                    original: original.clone(),
                    ours,
                    asked: task.mask.clone(),
                    back_off: BackOff::default(),
                    cut: false,
                };
                self.tasks.insert(id, state);
                original
            }
        }
    }

    fn inherited(&self, task: &NewTask) -> Option<CpuSet> {
        self.book.knows_mask(&task.mask).then_some(())?;
        let from = |pid: u32| {
            self.book.knows_process(pid).then_some(())?;
            let leader = affinity::process_stat(pid)?.start_ticks;
            self.book.inherited(pid, leader, Some(task.start_ticks), &task.mask)
        };
        let orphan = || {
            let adopted = task.ppid == self.me.pid && task.pid != task.ppid;
            adopted.then(|| self.book.inherited_by_orphan(None, task.start_ticks, &task.mask)).flatten()
        };
        let mut ancestors = std::iter::successors(Some(task.ppid), |pid| Some(affinity::process_stat(*pid)?.ppid));
        from(task.pid).or_else(|| ancestors.by_ref().take_while(|pid| *pid > 0).find_map(from)).or_else(orphan).cloned()
    }

    /// Carries out orders, one outcome each, in order.
    pub fn apply(
        &mut self,
        now: Time,
        orders: &[Order],
        lookup: &dyn Fn(TaskId) -> Option<Arc<TaskInfo>>,
    ) -> Vec<Outcome> {
        self.tend(now);
        let outcomes = orders.iter().map(|order| match order.action.task().map(lookup) {
            None => Outcome::NotThisMachine, // of whole applications: the affair of cotenant_linux::qos
            Some(None) => Outcome::Gone,
            Some(Some(info)) => self.one(now, order, &info).unwrap_or_else(|refusal| self.refused(&info, refusal)),
        });
        outcomes.collect()
    }

    /// What is due in every round, whether there are orders or not: replaces a guardian that was killed, and looks whether another
    /// agent has changed the mask of some of our tasks.
    pub fn tend(&mut self, now: Time) {
        self.claims.refresh();
        if self.active.is_some()
            && let Err(why) = self.activate()
        {
            self.note(why);
        }
        let next = self.tasks.range((Bound::Excluded(self.cursor), Bound::Unbounded)).map(|(id, _)| *id);
        let due: Vec<Identity> = next.take(LOOKED_AT_PER_ROUND).collect();
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
                    self.is_ours(now, &held, &mask);
                }
                Err(_) => {
                    self.tasks.remove(&id);
                }
            }
        }
        self.compact();
    }

    fn refused(&mut self, info: &TaskInfo, refusal: Refusal) -> Outcome {
        match refusal {
            Refusal::Gone => {
                self.tasks.remove(&(info.tid, info.start_ticks));
                Outcome::Gone
            }
            Refusal::Stale => Outcome::Stale,
            Refusal::Denied(why) => {
                self.note(format!("{} ({}) is left alone: {why}", info.comm, info.pid));
                Outcome::Denied
            }
            Refusal::Nothing(why) => {
                self.note(why);
                Outcome::Denied
            }
        }
    }

    fn one(&mut self, now: Time, order: &Order, info: &TaskInfo) -> Result<Outcome, Refusal> {
        if matches!(order.action, Action::Pages { .. }) {
            let why =
                "pages stay where they are: moving the memory of running programs was not asked for (--move-pages)";
            return Err(Refusal::Nothing(why.to_owned()));
        }
        let id = (info.tid, info.start_ticks);
        match self.tasks.get(&id).map(|t| t.back_off.verdict(now)) {
            Some(Verdict::LeftAlone) => return Err(Refusal::Stale),
            Some(Verdict::GivenUp) => return Err(Refusal::Denied("another agent keeps changing its mask".to_owned())),
            Some(Verdict::Free) | None => {}
        }
        let held = Held::open_exactly(info.pid, info.tid, info.start_ticks)?;
        if let Some(why) = held.stat.off_limits() {
            return Err(Refusal::Denied(why.to_owned()));
        }
        if held.uid != sys::euid() && !self.options.other_users {
            return Err(Refusal::Denied(format!("it belongs to user {}", held.uid)));
        }
        let current = held.mask()?;
        if self.tasks.contains_key(&id) && !self.is_ours(now, &held, &current) {
            return Err(Refusal::Stale);
        }
        match &order.action {
            Action::Release { .. } => self.release(&held),
            Action::Place { .. } => self.place(&held, &order.affinity, &current),
            Action::Pause { .. } | Action::Pages { .. } => {
                Err(Refusal::Denied("nothing here can let a task wait".to_owned()))
            }
            Action::Nap { .. } | Action::Limit { .. } | Action::LimitCaches { .. } | Action::Background { .. } => {
                Ok(Outcome::NotThisMachine)
            }
        }
    }

    /// Whether a known task has the mask that we know of. If not, another agent has changed it: that mask is the task's own from
    /// now on, and the task is left alone for a while.
    fn is_ours(&mut self, now: Time, held: &Held, current: &CpuSet) -> bool {
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
        // The cpuset or the CPUs that are on may have changed under our mask; what is left of it is still ours. Since Linux 6.2 the
        // kernel remembers all that was asked for, before what it left of that.
        let left = |leaves: &&Leaves| leaves.of(&state.asked, current) || leaves.of(known, current);
        if let Some(Leaves { cpuset, moving }) = leaves.as_ref().filter(left) {
            state.cut = true;
            self.changed.push((held.tid, affinity::under_cpuset(&state.original, &cpuset.minus(moving))));
            return true;
        }
        if held.mask().is_ok_and(|mask| mask != *current) {
            return false; // it changes just now, perhaps with a CPU that is switched: the next look tells
        }
        // Before Linux 6.2 a cpuset that changes gives all of itself to each of its tasks, whatever their masks were. Where it is
        // what the task had before, somebody else may have given it back.
        let reset = leaves.is_some_and(|l| l.cpuset == *current && (state.cut || l.cpuset != state.original));
        state.cut = false;
        state.original = current.clone();
        self.changed.push((held.tid, current.clone()));
        if state.ours.take().is_none() {
            return false; // not against us
        }
        if reset {
            self.leave(id);
            return false;
        }
        state.back_off.hit(now);
        let how = match state.back_off.verdict(now) {
            Verdict::GivenUp => "is left alone for good: another agent changes its mask again and again",
            _ => "is left alone for a while: another agent has changed its mask",
        };
        self.note(format!("{} (thread {}) {how}", held.stat.comm, held.tid));
        self.leave(id);
        false
    }

    fn release(&mut self, held: &Held) -> Result<Outcome, Refusal> {
        let id = (held.tid, held.stat.start_ticks);
        let Some(state) = self.tasks.get_mut(&id).filter(|t| t.ours.is_some()) else { return Ok(Outcome::Applied) };
        point("set.before");
        let holds = restore::give(held, &state.original);
        point("set.after");
        state.original = holds?;
        state.ours = None;
        self.leave(id);
        Ok(Outcome::Applied)
    }

    fn place(&mut self, held: &Held, wanted: &CpuSet, current: &CpuSet) -> Result<Outcome, Refusal> {
        let id = (held.tid, held.stat.start_ticks);
        if wanted == current {
            return Ok(Outcome::Applied);
        }
        if !self.tasks.contains_key(&id) {
            self.claims.claim(held.pid)?;
            // The mask once more: before the claim it may have been another Cotenant's.
            let task = NewTask::of(held, held.mask()?);
            let original = self.original_mask(&task);
            // One that inherited our mask is known by now.
            let asked = original.clone();
            let new =
                TaskState { pid: held.pid, original, ours: None, asked, back_off: BackOff::default(), cut: false };
            self.tasks.entry(id).or_insert(new);
        }
        let original = self.tasks[&id].original.clone();
        if wanted.is_empty() || !wanted.is_subset(&original) {
            return Err(Refusal::Denied(format!(
                "CPUs {wanted} are not all among those that it is allowed, {original}"
            )));
        }
        self.activate().map_err(Refusal::Nothing)?;
        self.enter(id, held.pid, held.stat.session, &original, wanted).map_err(|e| {
            Refusal::Nothing(format!("nothing is changed: the journal cannot be written ({e}); make room for it"))
        })?;
        point("set.before");
        let set = held.set(wanted);
        point("set.after");
        let holds = set?;
        if holds != *wanted {
            // The kernel has cut it. Where this record is lost, undoing finds out by asking what it leaves.
            let _ = self.enter(id, held.pid, held.stat.session, &original, &holds);
        }
        point("readback.after");
        let state = self.tasks.get_mut(&id).expect("entered above");
        (state.ours, state.asked) = (Some(holds), wanted.clone());
        Ok(Outcome::Applied)
    }

    /// Makes sure that there is a journal and a living guardian.
    fn activate(&mut self) -> Result<(), String> {
        let start = |journal: &Journal| {
            Guardian::start(&self.options.guardian, journal.path())
                .map_err(|e| format!("nothing is changed: the guardian cannot be started ({e})"))
        };
        match &mut self.active {
            Some(active) if active.guardian.lives() => {}
            Some(active) => {
                let next = start(&active.journal)?;
                std::mem::replace(&mut active.guardian, next).bury();
                self.note("the guardian was killed; another has taken its place".to_owned());
            }
            None => {
                let dir = &self.options.state_dir;
                let journal = Journal::create(dir, &self.here, self.me)
                    .map_err(|e| format!("nothing is changed: no journal can be made in {} ({e})", dir.display()))?;
                match start(&journal) {
                    Ok(guardian) => {
                        let compact_above = self.options.compact_above;
                        self.active = Some(Active { journal, guardian, compact_above });
                    }
                    Err(why) => {
                        journal.remove();
                        return Err(why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Journals who may wait because of us, before it does, or that it does not any more.
    ///
    /// # Errors
    /// Why nothing can be journaled, or nobody would undo it.
    pub fn journal_pause(&mut self, record: &Record) -> Result<(), String> {
        if self.book.waiting.knows(record) {
            return Ok(());
        }
        self.activate()?;
        let Some(active) = &mut self.active else { return Err("there is no journal".to_owned()) };
        active.journal.append(record).map_err(|e| format!("the journal cannot be written ({e}); make room for it"))?;
        self.book.note(record);
        Ok(())
    }

    /// Whether a process that we have not started may be touched, and takes it for us alone.
    ///
    /// # Errors
    /// Why not.
    pub fn may_touch(&mut self, held: &Held) -> Result<(), String> {
        if let Some(why) = held.stat.off_limits() {
            return Err(why.to_owned());
        }
        if held.uid != sys::euid() && !self.options.other_users {
            return Err(format!("it belongs to user {}", held.uid));
        }
        self.claims.claim(held.pid).map_err(|e| e.to_string())
    }

    /// Journals that a mask is about to be set, or has been found to hold because of us.
    fn enter(&mut self, id: Identity, pid: u32, sid: u32, original: &CpuSet, set: &CpuSet) -> io::Result<()> {
        if self.book.knows(id, set, original) {
            return Ok(());
        }
        let Some(active) = &mut self.active else { return Err(io::ErrorKind::NotFound.into()) };
        let (original, set) = (original.clone(), set.clone());
        let record = Record::Set { tid: id.0, start: id.1, pid, sid, at: sys::boot_ticks(), original, set };
        active.journal.append(&record)?;
        self.book.note(&record);
        Ok(())
    }

    /// Journals that a task is not ours any more. Where that cannot be written, undoing still sees it by its mask.
    fn leave(&mut self, id: Identity) {
        let record = Record::Left { tid: id.0, start: id.1 };
        if let Some(active) = &mut self.active {
            let _ = active.journal.append(&record);
        }
        self.book.note(&record);
    }

    /// Drops from the journal what nobody alive needs, once it has grown. Where that fails it grows on.
    fn compact(&mut self) {
        let Some(active) = self.active.as_mut().filter(|a| a.journal.len() > a.compact_above) else { return };
        let Ok(Some(contents)) = File::open(active.journal.path()).and_then(|mut f| journal::read(&mut f)) else {
            return;
        };
        let stats: HashMap<u32, u32> = affinity::numbers_in("/proc")
            .into_iter()
            .filter_map(|pid| Some((pid, affinity::process_stat(pid)?.session)))
            .collect();
        let sessions: HashSet<u32> = stats.values().copied().collect();
        let pids: HashMap<Identity, u32> = self.book.tasks.iter().map(|(id, entry)| (*id, entry.pid)).collect();
        let records = book::essential(
            contents.records,
            |id| pids.get(&id).is_some_and(|pid| Held::open_exactly(*pid, id.0, id.1).is_ok()),
            |pid| stats.contains_key(&pid),
            |sid| sessions.contains(&sid),
        );
        if active.journal.compact(&records).is_ok() {
            self.book = Book::from_records(&records);
        }
        active.compact_above = self.options.compact_above.max(active.journal.len() * 2);
    }

    /// Undoes everything and ends the guardian. Dropping does the same, without the report.
    pub fn finish(mut self) -> RestoreReport {
        self.undo()
    }

    fn undo(&mut self) -> RestoreReport {
        let mut report = RestoreReport::default();
        if let Some(Active { journal, guardian, .. }) = self.active.take() {
            report = restore::undo(&self.book, self.me, &[guardian.pid()]);
            report.journals = 1;
            journal.remove();
            self.claims.release();
            guardian.dismiss();
        }
        self.claims.release();
        report
    }

    /// The journal's folder.
    pub fn state_dir(&self) -> &Path {
        &self.options.state_dir
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Why an order was not carried out.
#[derive(Debug)]
enum Refusal {
    Gone,
    Stale,
    /// This task.
    Denied(String),
    /// Any task.
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
