//! Stops by signals: the process group at once, and processes outside of it one by one. Only running ones are stopped,
//! and only those are resumed, so that a process stopped by its user stays stopped.

use super::error::PauseError;
use super::stopped::{STOPPED, StopRecord, Stopped, stops_again};
use crate::fault::around;
use crate::sys;
use crate::sys::thread::{Held, Identity, SetError, numbers_in, process_stat};
use crate::undo::{End, Journal};
use cotenant_model::proc_text::TaskStat;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a command start as the leader of its own session and process group.
pub(super) fn lead(command: &mut Command) {
    // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
    unsafe {
        command.pre_exec(sys::setsid);
    }
}

/// Processes that are stopped by signals.
#[derive(Debug, Default)]
pub(super) struct Signalled {
    /// The leader of the process group of a program that we started.
    leader: Option<Identity>,
    /// Whether we have stopped that group at once.
    whole: bool,
    /// Its processes that were already stopped.
    theirs: BTreeSet<Identity>,
    /// Processes that we may stop.
    members: BTreeMap<Identity, Member>,
}

/// A process.
#[derive(Debug)]
struct Member {
    by: By,
    /// Whether we have stopped it.
    stopped: bool,
}

/// The handle for signals to a process.
#[derive(Debug)]
enum By {
    /// A descriptor of it, immune to a reuse of its id.
    Held(OwnedFd),
    /// Before Linux 5.3.
    Number,
}

impl Signalled {
    /// Whether this process's group is stopped with it.
    pub fn lead_by(&mut self, journal: &mut Journal, root: Identity) -> Result<(), PauseError> {
        journal.begin().map_err(PauseError::Journal)?;
        self.leader = Some(root);
        self.members.insert(root, Member::of(root.0));
        Ok(())
    }

    /// Stops running ones until then; on repetition also new ones.
    pub fn stop(&mut self, journal: &mut Journal, members: &[Identity], until: End) -> Result<(), PauseError> {
        let mut first = Ok(());
        for id in members.iter().filter(|id| !self.members.contains_key(id)).copied().collect::<Vec<_>>() {
            match admit(journal, id, self.leader.is_none()) {
                Ok(Some(member)) => drop(self.members.insert(id, member)),
                Ok(None) => {}
                Err(why) => first = first.and(Err(why)),
            }
        }
        let (group, leader, was_whole) = (self.group(), self.leader, self.whole);
        let in_group = |stat: &TaskStat| group == Some(stat.pgrp);
        let stats: BTreeMap<Identity, TaskStat> =
            self.members.keys().filter_map(|id| Some((*id, stat_of(*id)?))).collect();
        let stands = |stat: &TaskStat| stat.state == STOPPED;
        if was_whole && let Some(leader) = leader {
            first = first.and(journal.announce(&StopRecord::Stop(leader, true, until)).map_err(PauseError::Journal));
        } else if let Some(leader) = leader.filter(|_| group.is_some()) {
            let theirs = stats.iter().filter(|(_, stat)| in_group(stat) && stands(stat));
            self.theirs = theirs.map(|(id, _)| *id).collect();
            let left = self.theirs.iter().map(|id| StopRecord::Left(*id));
            let mut records = left.chain([StopRecord::Stop(leader, true, until)]);
            match records.try_for_each(|record| journal.announce(&record)) {
                Ok(()) => self.whole = true,
                Err(why) => first = first.and(Err(PauseError::Journal(why))),
            }
        }
        let mut alone = BTreeSet::new();
        for (id, stat) in &stats {
            let Some(member) = self.members.get_mut(id) else { continue };
            // No process is stopped twice in one pause: a second stop is another agent's, see [`stops_again`].
            if self.whole && in_group(stat) {
                member.stopped = !self.theirs.contains(id);
            } else if member.stopped || !stands(stat) {
                match journal.announce(&StopRecord::Stop(*id, false, until)) {
                    Ok(()) if member.stopped => {} // its end differs
                    Ok(()) => drop(alone.insert(*id)),
                    Err(why) => first = first.and(Err(PauseError::Journal(why))),
                }
            }
        }
        around("pause.stop", || {
            if let Some(pgid) = group.filter(|_| self.whole && !was_whole) {
                // At once: no process in the group can fork in between.
                let _ = sys::signal_group(pgid, libc::SIGSTOP);
            }
            // Ended ones are dropped; the leader's zombie keeps the number of its group.
            self.members.retain(|id, member| {
                let lives = if alone.contains(id) {
                    member.stopped = member.signal(*id, libc::SIGSTOP);
                    member.stopped
                } else {
                    stats.contains_key(id)
                };
                lives || leader == Some(*id)
            });
        });
        first
    }

    /// Handles resumes in the journal; returns whether any of it is still stopped.
    pub fn heed(&mut self, journal: &Journal) -> bool {
        let stopped: &Stopped = journal.outstanding();
        self.whole &= self.leader.is_some_and(|leader| stopped.holds(leader));
        if !self.whole {
            self.theirs.clear();
        }
        for (id, member) in &mut self.members {
            member.stopped &= self.whole || stopped.holds(*id);
        }
        self.whole || self.members.values().any(|member| member.stopped)
    }

    /// Resumes the processes that we have stopped, except for those stopped again by another process.
    pub fn cont(&mut self, journal: &mut Journal) {
        let again = |(id, member): (&Identity, &mut Member)| {
            let again = member.stopped && stat_of(*id).is_some_and(|stat| stops_again(&stat));
            member.stopped &= !again;
            again.then_some(*id)
        };
        let again: Vec<Identity> = self.members.iter_mut().filter_map(again).collect();
        self.theirs.extend(again);
        if let Some(pgid) = self.group().filter(|_| self.whole) {
            if self.theirs.is_empty() {
                let _ = sys::signal_group(pgid, libc::SIGCONT);
            } else {
                self.cont_all_but_theirs(pgid);
            }
        }
        let stopped: Vec<Identity> =
            self.members.iter().filter(|(_, member)| member.stopped).map(|(id, _)| *id).collect();
        for id in &stopped {
            if let Some(member) = self.members.get_mut(id) {
                member.stopped = false;
                let lives = member.signal(*id, libc::SIGCONT);
                if !lives && self.leader != Some(*id) {
                    self.members.remove(id);
                }
            }
        }
        self.whole = false;
        let theirs = std::mem::take(&mut self.theirs);
        for id in stopped.into_iter().chain(theirs).chain(self.leader) {
            journal.strike(&StopRecord::Cont(id));
        }
    }

    fn cont_all_but_theirs(&self, pgid: u32) {
        for pid in numbers_in("/proc") {
            let stat = process_stat(pid).filter(|stat| stat.pgrp == pgid);
            if stat.is_some_and(|stat| !self.theirs.contains(&(pid, stat.start_ticks))) {
                let _ = sys::kill(pid, libc::SIGCONT);
            }
        }
    }

    /// The process group while it is ours. Its number is reserved by its members, the leader's zombie included.
    fn group(&self) -> Option<u32> {
        let (pgid, start) = self.leader?;
        process_stat(pgid).is_none_or(|stat| stat.start_ticks == start).then_some(pgid)
    }

    pub fn signal(&self, signal: c_int, members: &[Identity]) {
        if let Some(pgid) = self.group() {
            let _ = sys::signal_group(pgid, signal);
        }
        for id in members.iter().filter(|id| Some(**id) != self.leader) {
            if Held::open_exactly(id.0, id.0, id.1).is_ok() {
                let _ = sys::kill(id.0, signal);
            }
        }
    }
}

/// The state of a process; `None` if it has ended.
fn stat_of(id: Identity) -> Option<TaskStat> {
    process_stat(id.0).filter(|stat| stat.start_ticks == id.1)
}

/// Adds a process that may be stopped from now on; `None` if it has ended.
fn admit(journal: &mut Journal, id: Identity, foreign: bool) -> Result<Option<Member>, PauseError> {
    let refused = |why: String| PauseError::Process { pid: id.0, why };
    let member = Member::of(id.0);
    // Checked after opening, so that the handle is for this process.
    let held = match Held::open_exactly(id.0, id.0, id.1) {
        Err(SetError::Gone | SetError::Recycled) => return Ok(None),
        other => other.map_err(|why| refused(why.to_string()))?,
    };
    if foreign {
        held.may_wait().and_then(|()| journal.may_touch(&held)).map_err(refused)?;
    }
    Ok(Some(member))
}

impl Member {
    fn of(pid: u32) -> Self {
        Self { by: sys::pidfd_open(pid).map_or(By::Number, By::Held), stopped: false }
    }

    /// Whether it is alive.
    fn signal(&self, id: Identity, signal: c_int) -> bool {
        match &self.by {
            By::Held(pidfd) => sys::pidfd_signal(pidfd, signal).is_ok(),
            By::Number => Held::open_exactly(id.0, id.0, id.1).is_ok() && sys::kill(id.0, signal).is_ok(),
        }
    }
}
