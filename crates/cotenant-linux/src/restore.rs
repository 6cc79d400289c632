//! Undoing: gives every task back the mask that it had, where the one that it has now is ours.

use crate::affinity::{self, Held, SetError};
use crate::book::{Book, Entry, Identity};
use crate::fault::point;
use crate::journal::{self, Contents, Here, Owner};
use crate::sys::{self, Lock};
use cotenant_model::CpuSet;
use cotenant_model::proc_text::TaskStat;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Rounds through `/proc` at most. A program that forks faster than it can be walked would keep us forever otherwise.
const MAX_PASSES: u32 = 100;

/// How long [`restore`] waits for a guardian that is at work.
const GUARDIAN_PATIENCE: Duration = Duration::from_secs(30);

/// What undoing came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RestoreReport {
    /// Tasks that have their own mask again.
    pub restored: usize,
    /// Of these, tasks that Cotenant had never seen: born under a mask of ours.
    pub inherited: usize,
    /// Tasks that had it already.
    pub unchanged: usize,
    /// Tasks that have ended.
    pub gone: usize,
    /// Tasks that were left alone because another agent has changed their mask since.
    pub foreign: usize,
    /// Tasks that could not be changed.
    pub failed: usize,
    /// Groups and processes that Cotenant had let wait, and that run again.
    pub resumed: usize,
    /// Journals that were undone.
    pub journals: usize,
    /// Lines for people: what was left alone and why, what failed and what to do.
    pub notes: Vec<String>,
}

impl RestoreReport {
    /// Adds another report to this one.
    pub fn add(&mut self, other: Self) {
        self.restored += other.restored;
        self.inherited += other.inherited;
        self.unchanged += other.unchanged;
        self.gone += other.gone;
        self.foreign += other.foreign;
        self.failed += other.failed;
        self.resumed += other.resumed;
        self.journals += other.journals;
        self.notes.extend(other.notes);
    }
}

/// Undoes whatever killed Cotenants of this user left: every journal in `state_dir` whose owner no longer lives. Waits for a
/// guardian that is doing just that. Journals of an earlier boot are void and are deleted; those of other machines and other pid
/// namespaces are left alone.
pub fn restore(state_dir: &Path) -> RestoreReport {
    let mut report = RestoreReport::default();
    let entries = match fs::read_dir(state_dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return report,
        Err(e) => {
            report.failed += 1;
            report.notes.push(format!("cannot read {}: {e}", state_dir.display()));
            return report;
        }
    };
    let here = match Here::read() {
        Ok(here) => here,
        Err(e) => {
            report.failed += 1;
            report.notes.push(format!("cannot read the boot id: {e}; mount /proc"));
            return report;
        }
    };
    let mut paths: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for path in paths.iter().filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("journal-"))) {
        match restore_one(path, &here) {
            Ok(one) => report.add(one),
            Err(e) => {
                report.failed += 1;
                report.notes.push(format!("cannot undo {}: {e}", path.display()));
            }
        }
    }
    report
}

fn restore_one(path: &Path, here: &Here) -> io::Result<RestoreReport> {
    let mut report = RestoreReport::default();
    let deadline = Instant::now() + GUARDIAN_PATIENCE;
    let mut file = loop {
        match lock(path, Lock::Try) {
            Ok(Some(file)) => break file,
            Ok(None) => return Ok(report),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if let Some(owner) = owner_of(path)?.filter(|owner| owner.lives()) {
                    report.notes.push(format!("process {} is at work: its changes stay", owner.pid));
                    return Ok(report);
                }
                if Instant::now() > deadline {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "another process has held its lock for 30 s"));
                }
                std::thread::sleep(Duration::from_millis(5)); // its guardian is at work
            }
            Err(e) => return Err(e),
        }
    };
    // A draft is renamed when it is whole, so that nothing can have been applied under one.
    let is_draft = path.extension().is_some();
    match journal::read(&mut file)? {
        Some(c) if is_draft && c.owner.lives() => return Ok(report),
        Some(c) if c.here.host != here.host && c.here.boot != here.boot => return Ok(report),
        Some(c) if c.here.boot == here.boot && c.here.pidns != here.pidns => {
            report.notes.push(format!("{} is from another container: run restore there", path.display()));
            return Ok(report);
        }
        Some(c) if c.here.boot == here.boot && !is_draft => report.add(undo_journal(&c)),
        _ => {} // another boot, or nothing in it
    }
    journal::remove(path);
    Ok(report)
}

/// Who wrote a journal; `None` where nothing in it says so, or its guardian has just finished and deleted it.
fn owner_of(path: &Path) -> io::Result<Option<Owner>> {
    match open(path) {
        Ok(mut file) => Ok(journal::read(&mut file)?.map(|contents| contents.owner)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn open(path: &Path) -> io::Result<File> {
    journal::open_own(OpenOptions::new().read(true), path)
}

/// Opens and locks a journal; `None` where there is none any more.
///
/// # Errors
/// `WouldBlock` under [`Lock::Try`] where its owner lives.
pub fn lock(path: &Path, how: Lock) -> io::Result<Option<File>> {
    loop {
        let file = match open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        sys::flock(&file, how)?;
        // It may have been replaced or removed while we waited.
        match fs::symlink_metadata(path) {
            Ok(now) if now.ino() == file.metadata()?.ino() => return Ok(Some(file)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

/// Undoes what one journal tells.
pub fn undo_journal(contents: &Contents) -> RestoreReport {
    let mut report = undo(&Book::from_records(&contents.records), contents.owner, &[]);
    report.journals = 1;
    if contents.torn > 0 {
        report.notes.push(format!("{} torn record(s) of the journal were skipped", contents.torn));
    }
    report
}

/// Undoes everything in a book. `owner` is the Cotenant that wrote it; `spare` are processes to leave alone.
pub fn undo(book: &Book, owner: Owner, spare: &[u32]) -> RestoreReport {
    let mut undoing =
        Undoing { book, owner, spare, report: RestoreReport::default(), done: HashSet::new(), alive: HashSet::new() };
    // First: nobody is to wait for the rest.
    book.waiting.resume(&mut undoing.report);
    // Leaders last: whether one is an exec's survivor shows in its threads being gone.
    let (leaders, threads): (Vec<_>, Vec<_>) = book.tasks.iter().partition(|((tid, _), entry)| *tid == entry.pid);
    for (id, entry) in threads.into_iter().chain(leaders) {
        undoing.known_task(*id, entry);
    }
    for _ in 0..MAX_PASSES {
        if !undoing.pass() {
            return undoing.report;
        }
    }
    undoing.report.notes.push("a program forks faster than it can be followed: run restore again".to_owned());
    undoing.report
}

/// What became of an attempt to give a task its mask back.
enum Gave {
    Back,
    Nothing,
}

struct Undoing<'a> {
    book: &'a Book,
    owner: Owner,
    spare: &'a [u32],
    report: RestoreReport,
    /// Tasks that need no further look.
    done: HashSet<Identity>,
    /// Processes in which a journaled thread other than the leader lives.
    alive: HashSet<u32>,
}

impl Undoing<'_> {
    /// A task of the book.
    fn known_task(&mut self, id: Identity, entry: &Entry) {
        point("restore.read.before");
        let held = Held::open_exactly(entry.pid, id.0, id.1);
        point("restore.read.after");
        let (held, current) = match held.and_then(|h| h.mask().map(|m| (h, m))) {
            Ok(both) => both,
            Err(SetError::Gone | SetError::Recycled) => return self.report.gone += 1,
            Err(e) => return self.failed(id.0, &e),
        };
        self.done.insert(id);
        if id.0 != entry.pid {
            self.alive.insert(entry.pid);
        }
        if entry.left {
            return;
        }
        let Some((_, last_original)) = entry.set.last() else { return };
        if current == *last_original {
            return self.report.unchanged += 1;
        }
        if let Some(original) = self.original_of(&held, entry, &current) {
            self.give_back(&held, &original);
        } else {
            self.report.foreign += 1;
            self.report.notes.push(format!(
                "task {} ({}) keeps the mask {current}, which another agent has given it",
                held.tid, held.stat.comm
            ));
        }
    }

    /// The mask to go back to, where the current one is ours: one that we set, what the kernel leaves of one, or one that another
    /// thread of its process brought along through an exec.
    fn original_of(&self, held: &Held, entry: &Entry, current: &CpuSet) -> Option<CpuSet> {
        if let Some((_, original)) = entry.set.iter().rev().find(|(set, _)| set == current) {
            return Some(original.clone());
        }
        // A mask that was set a second time is not entered again: the one that holds need not be the last.
        let left = |set: &CpuSet| held.leaves(set, current).is_some_and(|leaves| leaves.of(set, current));
        if let Some((_, original)) = entry.set.iter().rev().find(|(set, _)| left(set)) {
            return Some(original.clone());
        }
        let survivor = held.tid == held.pid && !self.alive.contains(&held.pid);
        survivor.then(|| self.book.inherited(held.pid, held.stat.start_ticks, None, current).cloned()).flatten()
    }

    fn give_back(&mut self, held: &Held, original: &CpuSet) -> Gave {
        point("restore.set.before");
        let given = give(held, original);
        point("restore.set.after");
        match given {
            Ok(_) => {
                self.report.restored += 1;
                return Gave::Back;
            }
            Err(SetError::Gone | SetError::Recycled) => self.report.gone += 1,
            Err(e) => {
                self.failed(held.tid, &e);
                self.report.notes.push(format!("remedy: as root, taskset -pc {original} {}", held.tid));
            }
        }
        Gave::Nothing
    }

    fn failed(&mut self, tid: u32, e: &SetError) {
        self.report.failed += 1;
        self.report.notes.push(format!("task {tid} could not be restored: {e}"));
    }

    /// Walks `/proc` for tasks that inherited a mask of ours without being in the book; whether there was one. A task that has
    /// been given back can have forked just before, hence passes until one finds nothing.
    fn pass(&mut self) -> bool {
        point("restore.pass.before");
        let stats: HashMap<u32, TaskStat> = affinity::numbers_in("/proc")
            .into_iter()
            .filter(|pid| !self.spare.contains(pid) && *pid != std::process::id())
            .filter_map(|pid| Some((pid, affinity::process_stat(pid)?)))
            .collect();
        let mut found = false;
        for (&pid, leader) in &stats {
            let kin = Kin { pid, leader, ancestors: ancestors(pid, &stats), orphan: self.orphan(leader, &stats) };
            if kin.orphan == Orphan::No && !kin.ancestors.iter().any(|(a, _)| self.book.knows_process(*a)) {
                continue;
            }
            for tid in affinity::numbers_in(&format!("/proc/{pid}/task")) {
                found |= self.unknown_task(tid, &kin);
            }
        }
        point("restore.pass.after");
        found
    }

    /// Whether a process has lost a parent that may be in the book.
    fn orphan(&self, leader: &TaskStat, stats: &HashMap<u32, TaskStat>) -> Orphan {
        let parent = stats.get(&leader.ppid);
        if leader.ppid == self.owner.pid && parent.is_none_or(|p| p.start_ticks == self.owner.start) {
            return Orphan::OfOwner; // Cotenant adopts what its program leaves behind
        }
        // A session is inherited; only who was adopted by init or a subreaper has its parent in another.
        let adopted = parent.is_none_or(|p| p.session != leader.session);
        if adopted && self.book.knows_session(leader.session) { Orphan::OfSession } else { Orphan::No }
    }

    fn unknown_task(&mut self, tid: u32, kin: &Kin<'_>) -> bool {
        let Ok(current) = sys::getaffinity(tid) else { return false };
        let (book, pid) = (self.book, kin.pid);
        let survivor = tid == pid && !self.alive.contains(&pid);
        let candidate = |born: u64| {
            let exec = || book.inherited(pid, kin.leader.start_ticks, None, &current);
            let by_birth =
                || kin.ancestors.iter().find_map(|(a, start)| book.inherited(*a, *start, Some(born), &current));
            let orphan = || match kin.orphan {
                Orphan::No => None,
                Orphan::OfOwner => book.inherited_by_orphan(None, born, &current),
                Orphan::OfSession => book.inherited_by_orphan(Some(kin.leader.session), born, &current),
            };
            survivor.then(exec).flatten().or_else(by_birth).or_else(orphan).cloned()
        };
        // A first look without opening anything: most tasks have a mask of their own.
        if candidate(u64::MAX).is_none() {
            return false;
        }
        let Ok(held) = Held::open(pid, tid) else { return false };
        if self.done.contains(&(tid, held.stat.start_ticks)) {
            return false;
        }
        let Some(original) = candidate(held.stat.start_ticks) else { return false };
        if held.mask().ok().as_ref() != Some(&current) {
            return true; // it moves: look again in the next pass
        }
        self.done.insert((tid, held.stat.start_ticks));
        match self.give_back(&held, &original) {
            Gave::Back => {
                self.report.inherited += 1;
                true
            }
            Gave::Nothing => false,
        }
    }
}

/// Whether a process was left behind by its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Orphan {
    /// It was not, or not by one of ours.
    No,
    /// By a descendant of the Cotenant that wrote the journal.
    OfOwner,
    /// By some process of a session in which we have set masks.
    OfSession,
}

/// Where a process comes from.
struct Kin<'a> {
    pid: u32,
    leader: &'a TaskStat,
    ancestors: Vec<(u32, u64)>,
    orphan: Orphan,
}

/// A process and its living ancestors, nearest first, with the start times of their leaders.
fn ancestors(pid: u32, stats: &HashMap<u32, TaskStat>) -> Vec<(u32, u64)> {
    let mut chain: Vec<(u32, u64)> = Vec::new();
    let mut next = pid;
    while let Some(stat) = stats.get(&next)
        && !chain.iter().any(|(seen, _)| *seen == next)
    {
        chain.push((next, stat.start_ticks));
        next = stat.ppid;
    }
    chain
}

/// Gives a task its mask back; returns the one that holds then. A task that was free to run anywhere in its cpuset becomes that
/// again, whatever the cpuset will be, instead of being tied to the CPUs that happen to be in it now; so does one for whose mask
/// the cpuset has no CPU left.
///
/// # Errors
/// [`SetError`].
pub fn give(held: &Held, original: &CpuSet) -> Result<CpuSet, SetError> {
    if held.cpuset().is_some_and(|cpuset| cpuset.is_subset(original)) {
        return held.set_free();
    }
    match held.set(original) {
        Err(SetError::OutsideCpuset) => held.set_free(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::testing::TempDir;

    #[test]
    fn a_journal_that_its_guardian_has_just_deleted_is_no_failure() {
        let dir = TempDir::new("deleted");
        let me = Owner::me().unwrap();
        let journal = Journal::create(dir.path(), &Here::read().unwrap(), me).unwrap();
        let path = journal.path().to_owned();
        assert_eq!(owner_of(&path).unwrap(), Some(me));
        journal.remove();
        assert_eq!(owner_of(&path).unwrap(), None);
        assert_eq!(restore(dir.path()), RestoreReport::default());
    }
}
