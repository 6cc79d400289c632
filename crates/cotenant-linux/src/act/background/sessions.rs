//! The weight of sessions, if the kernel shares CPU time by session first (`sched_autogroup_enabled`, programs in the
//! root group of the CPU controller). Users may lower that of their own sessions, and raise it again.

use crate::FsRoot;
use crate::fault::around;
use crate::notes::Notes;
use crate::sense::nice::{self, autogroup};
use crate::sys::thread::{Held, numbers_in, process_stat};
use crate::undo::{Effect, Journal, Living, Record, RestoreReport, Undoer, number};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The nice value with the least weight.
const LEAST: i32 = 19;

/// Limit of remembered ended sessions.
const ENDED: usize = 16;

/// Without privileges the kernel accepts about ten writes a second from all users together.
const PATIENCE: Duration = Duration::from_secs(2);

/// The group of a session, by one of its processes: the open file refers to that process, not to its number.
struct Autogroup {
    file: File,
    id: u64,
    nice: i32,
}

impl Autogroup {
    fn open(pid: u32, write: bool) -> Option<Self> {
        let file = OpenOptions::new().read(true).write(write).open(format!("/proc/{pid}/autogroup")).ok()?;
        let mut text = [0; 64];
        let len = file.read_at(&mut text, 0).ok()?;
        let (id, nice) = autogroup(std::str::from_utf8(&text[..len]).ok()?)?;
        Some(Self { file, id, nice })
    }

    /// `WouldBlock` if others kept writing for this long.
    fn set(&self, nice: i32, patience: Duration) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            match around("background.session", || (&self.file).write_all(nice.to_string().as_bytes())) {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock && begin.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                done => return done,
            }
        }
    }
}

/// Whether a process gets its CPU time by its session.
pub fn by_session(pid: u32) -> bool {
    nice::is_by_session(&FsRoot::live(), pid)
}

/// Autogroups with a living process that is neither one of these nor a descendant.
fn of_others(pids: &BTreeSet<u32>) -> BTreeSet<u64> {
    let is_other = |pid: &u32| {
        let mut line = std::iter::successors(Some(*pid), |pid| Some(process_stat(*pid)?.ppid));
        let lives = process_stat(*pid).is_some_and(|stat| !stat.is_dead());
        lives && !line.by_ref().take_while(|pid| *pid > 0).any(|pid| pids.contains(&pid))
    };
    ids(numbers_in("/proc").into_iter().filter(is_other)).collect()
}

/// The autogroups of these processes.
fn ids(pids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = u64> {
    pids.into_iter().filter_map(|pid| Some(Autogroup::open(pid, false)?.id))
}

/// Restores the weight of sessions with any of these processes. Returns each former nice value, or why it cannot be
/// changed.
fn give_back(
    ours: &BTreeMap<u64, i32>,
    pids: impl IntoIterator<Item = u32>,
    patience: Duration,
) -> BTreeMap<u64, Result<i32, String>> {
    let mut had = BTreeMap::new();
    let mut pids = pids.into_iter();
    while had.len() < ours.len()
        && let Some(pid) = pids.next()
    {
        let Some(group) = Autogroup::open(pid, true).filter(|group| !had.contains_key(&group.id)) else { continue };
        let Some(original) = ours.get(&group.id) else { continue };
        let set = if group.nice == LEAST { group.set(*original, patience) } else { Ok(()) };
        if set.as_ref().is_err_and(|why| why.raw_os_error() == Some(libc::ESRCH)) {
            continue; // it has ended; others of its session may not have
        }
        let failed =
            |why| format!("process {pid} gets little CPU time: {why}; echo {original} > /proc/{pid}/autogroup");
        had.insert(group.id, set.map(|()| group.nice).map_err(failed));
    }
    had
}

fn may_touch(journal: &mut Journal, pid: u32, foreign: bool) -> bool {
    let Ok(held) = Held::open(pid, pid) else { return false };
    let mut may = || if foreign { journal.may_touch(&held) } else { journal.admits(&held) };
    held.may_wait().and_then(|()| may()).is_ok()
}

/// The note about a session that another agent has changed.
fn foreign(id: u64, nice: i32) -> String {
    format!("autogroup {id} keeps nice {nice}, which another agent has given it")
}

/// Sessions of one application with the least weight.
#[derive(Debug, Default)]
pub struct Weights {
    /// With their former nice values.
    ours: BTreeMap<u64, i32>,
    /// Those among them that get it with the next look.
    waiting: BTreeSet<u64>,
    /// Left alone.
    left: BTreeSet<u64>,
}

impl Weights {
    /// Whether any has the least weight because of us.
    pub fn any(&self) -> bool {
        !self.ours.is_empty()
    }

    /// Gives the sessions of these processes the least weight, or their own back. `foreign`: we have not started them.
    /// Returns those whose sessions have it because of us, or will have.
    pub fn tend(
        &mut self,
        journal: &mut Journal,
        on: bool,
        foreign: bool,
        pids: &BTreeSet<u32>,
        notes: &mut Notes,
    ) -> BTreeSet<u32> {
        let mut light = BTreeSet::new();
        if !on {
            self.left.clear();
            self.waiting.clear();
            self.give_back(journal, pids.iter().copied(), Duration::ZERO, notes);
            return light;
        }
        if self.ours.len() > pids.len() + ENDED {
            let living: BTreeSet<u64> = ids(numbers_in("/proc")).collect();
            for id in self.ours.keys().filter(|id| !living.contains(id)) {
                journal.strike(&SessionRecord::Left(*id));
            }
            self.ours.retain(|id, _| living.contains(id));
        }
        let mut others = None;
        for pid in pids {
            let Some(group) = Autogroup::open(*pid, true) else { continue };
            let (id, nice) = (group.id, group.nice);
            let known = self.ours.contains_key(&id);
            if known {
                light.insert(*pid);
            }
            let waits = self.waiting.contains(&id);
            // Below 0 the return may need privileges.
            if known && !waits || self.left.contains(&id) || !(0..LEAST).contains(&nice) {
                continue;
            }
            // The reason is reported with the process's threads.
            if !known && !may_touch(journal, *pid, foreign) {
                continue;
            }
            self.left.insert(id);
            if !by_session(*pid) {
                continue;
            }
            // All members of a session led by one of them are its descendants.
            let led = process_stat(*pid).is_some_and(|stat| pids.contains(&stat.session));
            if !led && others.get_or_insert_with(|| of_others(pids)).contains(&id) {
                notes.add(format!(
                    "process {pid} shares its session with other programs, and in the background gives way to these \
                     alone (kernel.sched_autogroup_enabled)"
                ));
                continue;
            }
            if let Err(why) = journal.announce(&SessionRecord::Least(id, nice)) {
                notes.add(why);
                continue;
            }
            match group.set(LEAST, Duration::ZERO) {
                Ok(()) => drop(self.waiting.remove(&id)),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => drop(self.waiting.insert(id)),
                Err(_) => continue,
            }
            self.ours.insert(id, nice);
            self.left.remove(&id);
            light.insert(*pid);
        }
        light
    }

    /// Restores all.
    pub fn end(&mut self, journal: &mut Journal, notes: &mut Notes) {
        self.give_back(journal, [], PATIENCE, notes);
    }

    fn give_back(
        &mut self,
        journal: &mut Journal,
        pids: impl IntoIterator<Item = u32>,
        patience: Duration,
        notes: &mut Notes,
    ) {
        if self.ours.is_empty() {
            return;
        }
        let anybody = std::iter::once("/proc").flat_map(numbers_in); // listed if these do not suffice
        let had = give_back(&self.ours, pids.into_iter().chain(anybody), patience);
        self.ours.retain(|id, original| match had.get(id) {
            Some(Err(_)) => true, // again with the next look, or at the end
            had => {
                if let Some(Ok(nice)) = had.filter(|had| ![Ok(LEAST), Ok(*original)].contains(had)) {
                    notes.add(foreign(*id, *nice));
                }
                journal.strike(&SessionRecord::Left(*id));
                false
            }
        });
    }
}

/// A session gets the least weight, or no longer has it because of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRecord {
    /// It may have it from now on; its former nice value.
    Least(u64, i32),
    /// It has its own again.
    Left(u64),
}

impl fmt::Display for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least(id, nice) => write!(f, "autogroup {id} {nice}"),
            Self::Left(id) => write!(f, "unautogroup {id}"),
        }
    }
}

impl Record for SessionRecord {
    type Effect = Sessions;

    fn parse(line: &str) -> Option<Self> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["autogroup", id, nice] => Some(Self::Least(number(Some(id))?, number(Some(nice))?)),
            ["unautogroup", id] => Some(Self::Left(number(Some(id))?)),
            _ => None,
        }
    }
}

/// Sessions that may have the least weight because of us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions(BTreeMap<u64, i32>);

impl Effect for Sessions {
    type Record = SessionRecord;

    fn enter(&mut self, record: &SessionRecord) {
        match record {
            SessionRecord::Least(id, nice) => drop(self.0.insert(*id, *nice)),
            SessionRecord::Left(id) => drop(self.0.remove(id)),
        }
    }

    fn knows(&self, record: &SessionRecord) -> bool {
        match record {
            SessionRecord::Least(id, nice) => self.0.get(id) == Some(nice),
            SessionRecord::Left(id) => !self.0.contains_key(id),
        }
    }

    fn essential(&self, _: Vec<SessionRecord>, living: &Living) -> Vec<SessionRecord> {
        let live: BTreeSet<u64> = ids(living.processes.iter().copied()).collect();
        let needed = self.0.iter().filter(|(id, _)| live.contains(id));
        needed.map(|(id, nice)| SessionRecord::Least(*id, *nice)).collect()
    }

    fn undo(&self, _: &Undoer<'_>, report: &mut RestoreReport) -> Vec<SessionRecord> {
        let mut left = Vec::new();
        if self.0.is_empty() {
            return left;
        }
        let mut had = give_back(&self.0, numbers_in("/proc"), PATIENCE);
        for (id, original) in &self.0 {
            match had.remove(id) {
                None => report.gone += 1,
                Some(Ok(LEAST)) => report.restored += 1,
                Some(Ok(nice)) if nice == *original => report.unchanged += 1,
                Some(Ok(nice)) => {
                    report.foreign += 1;
                    report.notes.push(foreign(*id, nice));
                }
                Some(Err(why)) => {
                    report.fail(why);
                    left.push(SessionRecord::Least(*id, *original));
                }
            }
        }
        left
    }
}
