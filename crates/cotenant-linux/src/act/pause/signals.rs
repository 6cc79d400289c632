//! Stopping by signals: the process group at once, and processes that have left it one by one.

use super::error::PauseError;
use super::stopped::StopRecord;
use crate::fault::around;
use crate::sys;
use crate::sys::thread::{Held, Identity, SetError, process_stat};
use crate::undo::Journal;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets a command begin as the leader of a session and process group of its own.
pub(super) fn lead(command: &mut Command) {
    // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
    unsafe {
        command.pre_exec(sys::setsid);
    }
}

/// Processes that are stopped by signals.
#[derive(Debug, Default)]
pub(super) struct Signalled {
    /// The leader of the process group in which a program that we started began.
    leader: Option<Identity>,
    /// Processes that we may stop: all of them are journaled.
    members: BTreeMap<Identity, Member>,
}

/// A process, by a descriptor that stands for it and never for one that takes over its id.
#[derive(Debug)]
enum Member {
    Held(OwnedFd),
    /// Before Linux 5.3.
    Number,
}

impl Signalled {
    /// The group of this process is stopped with it.
    pub fn lead_by(&mut self, journal: &mut Journal, root: Identity) -> Result<(), PauseError> {
        journal.announce(&StopRecord::Stop(root, true)).map_err(PauseError::Journal)?;
        self.leader = Some(root);
        self.members.insert(root, Member::of(root.0));
        Ok(())
    }

    pub fn stop(&mut self, journal: &mut Journal, members: &[Identity]) -> Result<(), PauseError> {
        let mut first = Ok(());
        for id in members.iter().filter(|id| !self.members.contains_key(id)).copied().collect::<Vec<_>>() {
            match admit(journal, id, self.leader.is_none()) {
                Ok(Some(member)) => drop(self.members.insert(id, member)),
                Ok(None) => {}
                Err(why) => first = first.and(Err(why)),
            }
        }
        around("pause.stop", || self.send(libc::SIGSTOP));
        first
    }

    pub fn cont(&mut self) {
        self.send(libc::SIGCONT);
    }

    /// Members that have ended are forgotten on the way.
    fn send(&mut self, signal: c_int) {
        if let Some(pgid) = self.group() {
            // At once: nobody in the group can fork in between.
            let _ = sys::signal_group(pgid, signal);
        }
        self.members.retain(|id, member| member.signal(*id, signal) || self.leader == Some(*id));
    }

    /// The process group, as long as it is ours. Its number is kept from others by its members, the leader's corpse
    /// included, not by its leader alone.
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

    /// They will not be stopped any more.
    pub fn forget(self, journal: &mut Journal) {
        self.members.into_keys().for_each(|id| journal.strike(&StopRecord::Cont(id)));
    }
}

/// Journals that a process may be stopped from now on; `None` where it has ended.
fn admit(journal: &mut Journal, id: Identity, foreign: bool) -> Result<Option<Member>, PauseError> {
    let refused = |why: String| PauseError::Process { pid: id.0, why };
    let member = Member::of(id.0);
    // After it is held: so it is this one that is held.
    let held = match Held::open_exactly(id.0, id.0, id.1) {
        Err(SetError::Gone | SetError::Recycled) => return Ok(None),
        other => other.map_err(|why| refused(why.to_string()))?,
    };
    if foreign {
        held.may_wait().and_then(|()| journal.may_touch(&held)).map_err(refused)?;
    }
    journal.announce(&StopRecord::Stop(id, false)).map_err(PauseError::Journal)?;
    Ok(Some(member))
}

impl Member {
    fn of(pid: u32) -> Self {
        sys::pidfd_open(pid).map_or(Self::Number, Self::Held)
    }

    /// Whether it lives.
    fn signal(&self, id: Identity, signal: c_int) -> bool {
        match self {
            Self::Held(pidfd) => sys::pidfd_signal(pidfd, signal).is_ok(),
            Self::Number => Held::open_exactly(id.0, id.0, id.1).is_ok() && sys::kill(id.0, signal).is_ok(),
        }
    }
}
