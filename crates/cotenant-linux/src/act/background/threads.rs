//! `SCHED_IDLE`, thread by thread. Used only if it can be undone: any thread may enter it, but leaving needs
//! `CAP_SYS_NICE`, or a `RLIMIT_NICE` that permits the nice value.

use crate::act::inherited::{Setting, SettingRecord, Settings};
use crate::fault::around;
use crate::notes::Notes;
use crate::sys;
use crate::sys::thread::{Held, Identity, SetError, process_stat};
use crate::undo::Journal;
use cotenant_model::TaskInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

/// A scheduling policy, with `SCHED_RESET_ON_FORK` if set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(c_int);

/// All that were set.
pub type Classes = Settings<Class>;

type ClassRecord = SettingRecord<Class>;

impl Class {
    /// Without the flag, which is independent of the policy.
    fn plain(self) -> c_int {
        self.0 & !libc::SCHED_RESET_ON_FORK
    }

    fn idle(self) -> Self {
        Self(self.0 & libc::SCHED_RESET_ON_FORK | libc::SCHED_IDLE)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Setting for Class {
    const WORDS: [&'static str; 2] = ["class", "unclass"];
    const NAME: &'static str = "scheduling policy";

    fn parse(word: &str) -> Option<Self> {
        word.parse().ok().map(Self)
    }

    fn of(tid: u32) -> io::Result<Self> {
        sys::getscheduler(tid).map(Self)
    }

    fn has_become(&self, _: &Self, _: &Held) -> bool {
        false
    }

    fn passed_on(&self) -> Self {
        Self(self.plain())
    }

    fn give(&self, held: &Held) -> Result<(), SetError> {
        held.set_policy(self.0)
    }

    fn remedy(&self, tid: u32) -> String {
        format!("chrt --{} -p 0 {tid}", if self.plain() == libc::SCHED_BATCH { "batch" } else { "other" })
    }
}

/// A thread of an application with a background history.
#[derive(Clone, Copy, Debug)]
enum Thread {
    /// It has its own policy.
    Own,
    /// It has `SCHED_IDLE` because of us, and had this before.
    Idle { pid: u32, original: Class },
    /// Its policy is left alone: another agent has changed it, or it could not be restored.
    Left,
    /// It must not be touched.
    Barred,
}

/// Threads of one application.
#[derive(Debug, Default)]
pub struct Policies(BTreeMap<Identity, Thread>);

impl Policies {
    /// Whether any has `SCHED_IDLE` because of us.
    pub fn any(&self) -> bool {
        self.0.values().any(|thread| matches!(thread, Thread::Idle { .. }))
    }

    /// Whether it must not be touched.
    pub fn is_barred(&self, info: &TaskInfo) -> bool {
        matches!(self.0.get(&(info.tid, info.start_ticks)), Some(Thread::Barred))
    }

    /// Whether they have ever been examined.
    pub fn is_used(&self) -> bool {
        !self.0.is_empty()
    }

    /// Gives the threads chosen by `idle` `SCHED_IDLE`, and restores the others.
    pub fn tend(
        &mut self,
        journal: &mut Journal,
        idle: impl Fn(&TaskInfo) -> bool,
        foreign: bool,
        tasks: &[Arc<TaskInfo>],
        notes: &mut Notes,
    ) {
        let there: BTreeSet<Identity> = tasks.iter().map(|info| (info.tid, info.start_ticks)).collect();
        self.0.retain(|id, _| there.contains(id));
        for info in tasks {
            let id = (info.tid, info.start_ticks);
            let Ok(current) = Class::of(info.tid) else { continue };
            let on = idle(info);
            let thread = self.0.get(&id).copied().unwrap_or_else(|| newcomer(journal, info, current));
            let next = match thread {
                Thread::Idle { .. } if current.plain() != libc::SCHED_IDLE => {
                    journal.strike(&ClassRecord::Left(id));
                    let (name, tid) = (&info.comm, info.tid);
                    notes.add(format!("{name} (thread {tid}) keeps scheduling policy {current} of another agent"));
                    Thread::Left
                }
                Thread::Idle { pid, original } if !on => give_back(journal, id, pid, original, notes),
                Thread::Own if on && matches!(current.plain(), libc::SCHED_OTHER | libc::SCHED_BATCH) => {
                    set(journal, info, current, foreign).unwrap_or_else(|why| {
                        notes.add(format!("{} ({}) is left alone: {why}", info.comm, info.pid));
                        Thread::Barred
                    })
                }
                known => known,
            };
            self.0.insert(id, next);
        }
    }

    /// Restores all.
    pub fn end(&mut self, journal: &mut Journal, notes: &mut Notes) {
        for (id, thread) in std::mem::take(&mut self.0) {
            if let Thread::Idle { pid, original } = thread {
                give_back(journal, id, pid, original, notes);
            }
        }
    }
}

/// A new thread. One created in the background has inherited it, even if it is off by now.
fn newcomer(journal: &mut Journal, info: &TaskInfo, current: Class) -> Thread {
    let stat = process_stat(info.pid).filter(|_| current.plain() == libc::SCHED_IDLE);
    let before = stat.and_then(|stat| {
        let kin = [info.pid, stat.ppid];
        let original = journal.outstanding::<Classes>().before(journal.owner(), kin, info.start_ticks, &current)?;
        Some((original, stat.session))
    });
    let Some((original, sid)) = before else { return Thread::Own };
    // If the journal rejects it, the walk at the end finds it through its creator.
    let _ = journal.write(&ClassRecord::set((info.tid, info.start_ticks), info.pid, sid, original, current));
    Thread::Idle { pid: info.pid, original }
}

/// Gives a thread `SCHED_IDLE`.
///
/// # Errors
/// Why it must not be touched.
fn set(journal: &mut Journal, info: &TaskInfo, own: Class, foreign: bool) -> Result<Thread, String> {
    let id = (info.tid, info.start_ticks);
    let Ok(held) = Held::open_exactly(info.pid, info.tid, info.start_ticks) else { return Ok(Thread::Own) };
    held.may_wait()?;
    if foreign { journal.may_touch(&held) } else { journal.admits(&held) }?;
    if !is_privileged() && !sys::may_leave_idle(info.pid, info.tid) {
        return Ok(Thread::Left);
    }
    journal.announce(&ClassRecord::set(id, info.pid, held.stat.session, own, own.idle()))?;
    match around("background.thread", || held.set_policy(own.idle().0)) {
        Ok(()) => Ok(Thread::Idle { pid: info.pid, original: own }),
        Err(SetError::Gone | SetError::Recycled) => Ok(Thread::Own),
        Err(why) => Err(why.to_string()),
    }
}

fn give_back(journal: &mut Journal, id: Identity, pid: u32, original: Class, notes: &mut Notes) -> Thread {
    let held = Held::open_exactly(pid, id.0, id.1);
    match held.and_then(|held| around("background.thread", || original.give(&held))) {
        Ok(()) | Err(SetError::Gone | SetError::Recycled) => {
            journal.strike(&ClassRecord::Left(id));
            Thread::Own
        }
        Err(why) => {
            notes.add(format!("thread {} keeps SCHED_IDLE: {why}; as root, {}", id.0, original.remedy(id.0)));
            Thread::Idle { pid, original }
        }
    }
}

/// Whether we have `CAP_SYS_NICE` for the kernel: tested on a separate thread, which needs it to restore both its
/// policy and its flag. Limits do not suffice for the flag.
pub fn is_privileged() -> bool {
    static PRIVILEGED: OnceLock<bool> = OnceLock::new();
    let set = |policy| sys::setscheduler(0, policy).is_ok();
    let tried = move || set(libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK) && set(libc::SCHED_OTHER);
    *PRIVILEGED
        .get_or_init(|| std::thread::Builder::new().spawn(tried).is_ok_and(|tried| tried.join().is_ok_and(|t| t)))
}
