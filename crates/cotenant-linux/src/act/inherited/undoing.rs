//! Restores every task whose current value is ours.

use super::{Entry, Setting, SettingRecord, Settings};
use crate::fault::around;
use crate::sys::thread::{Held, Identity, SetError, numbers_in, process_stat};
use crate::undo::{RestoreReport, Undoer};
use cotenant_model::proc_text::TaskStat;
use std::collections::{HashMap, HashSet};

/// Limit of rounds through `/proc`, against programs that fork faster than the walk.
const MAX_PASSES: u32 = 100;

pub(super) struct Undoing<'a, S: Setting> {
    settings: &'a Settings<S>,
    by: &'a Undoer<'a>,
    report: &'a mut RestoreReport,
    /// Finished tasks.
    done: HashSet<Identity>,
    /// Processes with a living journaled thread other than the leader.
    alive: HashSet<u32>,
    /// Records that could not be undone.
    left: Vec<SettingRecord<S>>,
}

impl<'a, S: Setting> Undoing<'a, S> {
    pub fn new(settings: &'a Settings<S>, by: &'a Undoer<'a>, report: &'a mut RestoreReport) -> Self {
        Self { settings, by, report, done: HashSet::new(), alive: HashSet::new(), left: Vec::new() }
    }

    /// Undoes everything; returns records of what failed.
    pub fn undo(mut self) -> Vec<SettingRecord<S>> {
        let (settings, of_process) = (self.settings, |id: &Identity, task: &Entry<S>| id.0 == task.pid);
        // Leaders last: the absence of its threads shows that a leader survived an exec.
        for leaders in [false, true] {
            for (id, task) in settings.tasks.iter().filter(|(id, task)| of_process(id, task) == leaders) {
                self.known_task(*id, task);
            }
        }
        if (0..MAX_PASSES).all(|_| around("restore.pass", || self.pass())) {
            self.report.notes.push("a program forks faster than it can be followed: run restore again".to_owned());
            self.left.extend(settings.tasks.keys().flat_map(|id| settings.records(*id)));
        }
        self.left
    }

    /// A changed task.
    fn known_task(&mut self, id: Identity, entry: &Entry<S>) {
        let held = around("restore.read", || Held::open_exactly(entry.pid, id.0, id.1));
        let (held, current) = match held.and_then(|h| of(h.tid).map(|s| (h, s))) {
            Ok(both) => both,
            Err(SetError::Gone | SetError::Recycled) => return self.report.gone += 1,
            Err(e) => {
                self.left.extend(self.settings.records(id));
                return self.failed(id.0, &e);
            }
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
            if self.give_back(&held, &original).is_err() {
                self.left.extend(self.settings.records(id));
            }
        } else {
            self.report.foreign += 1;
            self.report.notes.push(format!(
                "task {} ({}) keeps the {} {current}, which another agent has given it",
                held.tid,
                held.stat.comm,
                S::NAME
            ));
        }
    }

    /// The value to restore, if the current one is ours: set by us, the kernel's remainder of one, or brought by
    /// another thread of its process through an exec.
    fn original_of(&self, held: &Held, entry: &Entry<S>, current: &S) -> Option<S> {
        if let Some((_, original)) = entry.set.iter().rev().find(|(set, _)| set == current) {
            return Some(original.clone());
        }
        // A value set a second time is not entered again, so the current one need not be the last.
        if let Some((_, original)) = entry.set.iter().rev().find(|(set, _)| set.has_become(current, held)) {
            return Some(original.clone());
        }
        let survivor = held.tid == held.pid && !self.alive.contains(&held.pid);
        survivor.then(|| self.settings.inherited(held.pid, held.stat.start_ticks, None, current).cloned()).flatten()
    }

    /// Whether the task is restored; it may have ended.
    ///
    /// # Errors
    /// The kernel's error, which is in the report.
    fn give_back(&mut self, held: &Held, original: &S) -> Result<bool, SetError> {
        match around("restore.set", || original.give(held)) {
            Ok(()) => {
                self.report.restored += 1;
                Ok(true)
            }
            Err(SetError::Gone | SetError::Recycled) => {
                self.report.gone += 1;
                Ok(false)
            }
            Err(why) => {
                self.failed(held.tid, &why);
                self.report.notes.push(format!("remedy: as root, {}", original.remedy(held.tid)));
                Err(why)
            }
        }
    }

    fn failed(&mut self, tid: u32, e: &SetError) {
        self.report.fail(format!("task {tid} could not be restored: {e}"));
    }

    /// Walks `/proc` for unseen tasks that inherited our values; returns whether there was one. A task may have forked
    /// just before its restoration, so passes repeat until one finds nothing.
    fn pass(&mut self) -> bool {
        let stats: HashMap<u32, TaskStat> = numbers_in("/proc")
            .into_iter()
            .filter(|pid| !self.by.spare.contains(pid) && *pid != std::process::id())
            .filter_map(|pid| Some((pid, process_stat(pid)?)))
            .collect();
        let mut found = false;
        for (&pid, leader) in &stats {
            let kin = Kin { pid, leader, ancestors: ancestors(pid, &stats), orphan: self.orphan(leader, &stats) };
            if kin.orphan == Orphan::No && !kin.ancestors.iter().any(|(a, _)| self.settings.knows_process(*a)) {
                continue;
            }
            for tid in numbers_in(&format!("/proc/{pid}/task")) {
                found |= self.unknown_task(tid, &kin);
            }
        }
        found
    }

    /// Whether a process may have inherited a value from a lost parent.
    fn orphan(&self, leader: &TaskStat, stats: &HashMap<u32, TaskStat>) -> Orphan {
        let parent = stats.get(&leader.ppid);
        if leader.ppid == self.by.owner.0 && parent.is_none_or(|p| p.start_ticks == self.by.owner.1) {
            return Orphan::OfOwner; // Cotenant adopts its program's orphans
        }
        // Sessions are inherited; only a process adopted by init or a subreaper has its parent in another.
        let adopted = parent.is_none_or(|p| p.session != leader.session);
        if adopted && self.settings.knows_session(leader.session) { Orphan::OfSession } else { Orphan::No }
    }

    fn unknown_task(&mut self, tid: u32, kin: &Kin<'_>) -> bool {
        let Ok(current) = of::<S>(tid) else { return false };
        let (settings, pid) = (self.settings, kin.pid);
        let survivor = tid == pid && !self.alive.contains(&pid);
        let candidate = |born: u64| {
            let exec = || settings.inherited(pid, kin.leader.start_ticks, None, &current);
            let by_birth =
                || kin.ancestors.iter().find_map(|(a, start)| settings.inherited(*a, *start, Some(born), &current));
            let orphan = || match kin.orphan {
                Orphan::No => None,
                Orphan::OfOwner => settings.inherited_by_orphan(None, born, &current),
                Orphan::OfSession => settings.inherited_by_orphan(Some(kin.leader.session), born, &current),
            };
            survivor.then(exec).flatten().or_else(by_birth).or_else(orphan).cloned()
        };
        // A first check without opening anything: most tasks have their own value.
        if candidate(u64::MAX).is_none() {
            return false;
        }
        let Ok(held) = Held::open(pid, tid) else { return false };
        if self.done.contains(&(tid, held.stat.start_ticks)) {
            return false;
        }
        let Some(original) = candidate(held.stat.start_ticks) else { return false };
        if of(tid).ok().as_ref() != Some(&current) {
            return true; // it changes: check again in the next pass
        }
        self.done.insert((tid, held.stat.start_ticks));
        let given = self.give_back(&held, &original);
        self.report.inherited += usize::from(matches!(given, Ok(true)));
        if given.is_err() {
            let (id, sid) = ((tid, held.stat.start_ticks), held.stat.session);
            self.left.push(SettingRecord::Set { id, pid, sid, at: id.1, original, set: current });
        }
        matches!(given, Ok(true))
    }
}

/// Whether a process was orphaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Orphan {
    /// No, or not from one of ours.
    No,
    /// By a descendant of the Cotenant of the journal.
    OfOwner,
    /// By some process of a session in which we have set values.
    OfSession,
}

/// Origin of a process.
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

fn of<S: Setting>(tid: u32) -> Result<S, SetError> {
    S::of(tid).map_err(SetError::from_errno)
}
