//! Pausing programs: by a freezer of control groups where this machine has one, else by SIGSTOP and SIGCONT.
//!
//! A [`Job`] is a set of processes that wait and run together: a program that we start, with all its descendants; a
//! control group of somebody else; or processes that run already. Whatever may be left waiting is in the journal before
//! it waits, with the time until which it does, so that the guardian, or `cotenant restore`, lets it run again however
//! Cotenant ends, and the guardian also where Cotenant stands still itself.
//!
//! A pause has been *asked for* when [`Job::pause`] returns: the kernel stops each thread when it next comes by. What
//! is pending is taken back by a resume all the same.

mod error;
mod signals;
mod stopped;

use crate::act::groups::{self, Group, GroupError, Groups, Hierarchy, Switch};
use crate::fault::around;
use crate::sense::capability::{Capability, Standing};
use crate::sense::processes;
use crate::sys;
use crate::sys::thread::{Held, Identity, SetError};
use crate::undo::{ClaimError, End, GRACE, Journal};
use serde::Serialize;
use signals::Signalled;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use error::PauseError;
pub use stopped::Stopped;

/// How programs are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// `cgroup.freeze` of version 2.
    CgroupV2,
    /// The freezer of version 1.
    CgroupV1,
    /// SIGSTOP and SIGCONT to the process group and to the descendants that left it. Too coarse for a few milliseconds,
    /// and the program's parent sees it.
    Signals,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CgroupV2 => "the cgroup v2 freezer",
            Self::CgroupV1 => "the cgroup v1 freezer",
            Self::Signals => "SIGSTOP and SIGCONT",
        })
    }
}

/// What this machine and our rights allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    mechanism: Mechanism,
    /// The folder of the control group that we are in, below which groups can be made.
    home: Option<PathBuf>,
}

impl Method {
    /// Every one that works here, best first: groups were made and removed to find out. Signals always work.
    pub fn all() -> Vec<Self> {
        let groups = [(Mechanism::CgroupV2, Hierarchy::V2), (Mechanism::CgroupV1, Hierarchy::V1)];
        let usable = groups.into_iter().filter_map(|(mechanism, hierarchy)| {
            let home = groups::home(hierarchy).filter(|home| groups::works(hierarchy, home, home, freezes).is_ok())?;
            Some(Self { mechanism, home: Some(home) })
        });
        usable.chain([Self { mechanism: Mechanism::Signals, home: None }]).collect()
    }

    /// The best that works here.
    pub fn best() -> Self {
        Self::all().swap_remove(0)
    }

    /// Which it is.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }
}

fn freezes(group: &Group) -> io::Result<()> {
    [true, false].into_iter().try_for_each(|freeze| group.freeze(freeze)).map_err(|GroupError { why, .. }| why)
}

/// Whether programs can be frozen here, tried.
pub fn capability() -> Capability {
    let method = Method::best();
    let (standing, found) = match (method.mechanism, method.home) {
        (Mechanism::Signals, _) | (_, None) => (Standing::Missing, why_not()),
        (Mechanism::CgroupV2, Some(home)) => (Standing::Available, format!("cgroup v2, below {}", home.display())),
        (Mechanism::CgroupV1, Some(home)) => (Standing::Available, format!("cgroup v1, below {}", home.display())),
    };
    let cost = "pausing a program falls back to SIGSTOP, which is too coarse for a few milliseconds";
    let remedy = "run below systemd with Delegate=yes, or where control groups are mounted and may be written";
    Capability::new("freezer", standing, found, cost, remedy)
}

/// Why no group can be frozen, by the first hierarchy that could.
fn why_not() -> String {
    let mounted = [Hierarchy::V2, Hierarchy::V1].into_iter().find(|hierarchy| groups::mount(*hierarchy).is_some());
    let Some(hierarchy) = mounted else { return "no cgroup hierarchy that can freeze is mounted".to_owned() };
    let Some(home) = groups::home(hierarchy) else { return "our control group cannot be seen here".to_owned() };
    groups::works(hierarchy, &home, &home, freezes).err().unwrap_or_default()
}

/// Makes jobs. One per Cotenant: the groups of its jobs lie in one folder, which is journaled once.
#[derive(Debug)]
pub struct Pauses {
    method: Method,
    folder: Option<Group>,
    made: u64,
}

impl Pauses {
    /// With these means; changes nothing yet.
    pub fn new(method: Method) -> Self {
        Self { method, folder: None, made: 0 }
    }

    /// A job for a program that is about to be started, see [`Job::prepare`].
    ///
    /// # Errors
    /// Where nothing can be journaled, or no group can be made.
    pub fn job(&mut self, journal: &mut Journal) -> Result<Job, PauseError> {
        let Some(home) = &self.method.home else { return Ok(Job::of_processes()) };
        let folder = self.folder.get_or_insert_with(|| {
            let hierarchy = if self.method.mechanism == Mechanism::CgroupV1 { Hierarchy::V1 } else { Hierarchy::V2 };
            let (pid, start) = journal.owner();
            Group { hierarchy, path: home.join(format!("cotenant-{pid}-{start}")), home: Some(home.clone()) }
        });
        // Again for each job: whoever tidies up may have removed an empty folder, and the journal forgets such.
        folder.announce(journal).map_err(PauseError::Journal)?;
        self.made += 1;
        let job = Group { path: folder.path.join(format!("job-{}", self.made)), ..folder.clone() };
        around("pause.group", || folder.make().and_then(|()| job.make()))?;
        Ok(Job::new(How::Group(job, Switch::default())))
    }

    /// Removes the folder of the groups; jobs that are left in it run on, in the group in which we are.
    pub fn finish(mut self, journal: &mut Journal) {
        if let Some(folder) = self.folder.take()
            && groups::dissolve(&folder).is_ok()
        {
            folder.strike(journal);
        }
    }
}

/// Processes that wait and run together.
#[derive(Debug)]
pub struct Job {
    how: How,
    paused: bool,
    /// Until when, while it is paused.
    until: End,
}

#[derive(Debug)]
enum How {
    Group(Group, Switch),
    Signals(Signalled),
}

impl Job {
    fn new(how: How) -> Self {
        Self { how, paused: false, until: None }
    }

    /// Processes that run already, named at each pause: by signals.
    pub fn of_processes() -> Self {
        Self::new(How::Signals(Signalled::default()))
    }

    /// The control group of somebody else, with those below it. Freeze it only where all its members are to wait.
    ///
    /// # Errors
    /// Where it has no freezer, stands still already, holds us or a process that is to be left alone, or nothing can be
    /// journaled.
    pub fn of_group(journal: &mut Journal, path: &Path) -> Result<Self, PauseError> {
        let members = processes::members(path);
        if members.contains(&std::process::id()) {
            return Err(PauseError::Ourselves(path.to_owned()));
        }
        let group = Group::foreign(path)?;
        if group.asked_to_freeze() {
            return Err(PauseError::Frozen(path.to_owned()));
        }
        let refused = |pid, why| PauseError::Member { path: path.to_owned(), pid, why };
        for &pid in &members {
            match Held::open(pid, pid) {
                Err(SetError::Gone | SetError::Recycled) => {}
                Err(why) => return Err(refused(pid, why.to_string())),
                Ok(held) => held.may_wait().and_then(|()| journal.admits(&held)).map_err(|why| refused(pid, why))?,
            }
        }
        // Together with the first: writing the claims costs more than what is in them.
        for &pid in &members {
            journal.claim_along(pid);
        }
        for pid in members {
            match journal.claim(pid) {
                Ok(()) | Err(ClaimError::Gone) => {}
                Err(why) => return Err(refused(pid, why.to_string())),
            }
        }
        group.announce(journal).map_err(PauseError::Journal)?;
        Ok(Self::new(How::Group(group, Switch::default())))
    }

    /// A group that another actuator made and removes: what is limited there can be frozen there, too. Not to be
    /// ended by [`Job::end`].
    pub(crate) fn lent(group: &Group) -> Self {
        Self::new(How::Group(group.clone(), Switch::default()))
    }

    /// Lets a command that is about to be started begin inside the job, in a session and process group of its own.
    ///
    /// # Errors
    /// Where the group has gone.
    pub fn prepare(&self, command: &mut Command) -> Result<(), PauseError> {
        signals::lead(command);
        if let How::Group(group, _) = &self.how {
            group.enter("cgroup.procs", command)?;
        }
        Ok(())
    }

    /// The program that was prepared runs as this process. From now on its process group tells what is to be stopped,
    /// too.
    ///
    /// # Errors
    /// Where nothing can be journaled: it runs, and will not be paused.
    pub fn started(&mut self, journal: &mut Journal, root: Identity) -> Result<(), PauseError> {
        if let How::Signals(signalled) = &mut self.how { signalled.lead_by(journal, root) } else { Ok(()) }
    }

    /// How it is paused.
    pub fn mechanism(&self) -> Mechanism {
        match &self.how {
            How::Group(Group { hierarchy: Hierarchy::V2, .. }, _) => Mechanism::CgroupV2,
            How::Group(..) => Mechanism::CgroupV1, // a job has no group of the CPU hierarchy
            How::Signals(_) => Mechanism::Signals,
        }
    }

    /// Whether somebody else has frozen the control group of somebody else. Then it is not ours to thaw, however
    /// Cotenant ends, until we freeze it.
    pub fn is_theirs(&mut self, journal: &mut Journal) -> bool {
        let How::Group(group, switch) = &mut self.how else { return false };
        let theirs = group.home.is_none() && !self.paused && switch.asked_to_freeze(group);
        if theirs {
            group.strike(journal);
        }
        theirs
    }

    /// Takes note where its guardian has let it run, since this Cotenant stood still: for how long it has run by now.
    pub fn heed(&mut self, journal: &mut Journal) -> Option<Duration> {
        let late = sys::monotonic().checked_sub(self.until.filter(|_| self.paused)? + GRACE)?;
        journal.hear();
        self.paused = match &mut self.how {
            How::Group(group, _) => journal.outstanding::<Groups>().is_frozen(&group.path),
            How::Signals(signalled) => signalled.heed(journal),
        };
        (!self.paused).then_some(late)
    }

    /// Pauses it; the guardian ends that some time after `until`. `members` are its processes as far as the caller
    /// knows them; a control group knows its own. Calling it again also stops processes that were seen since.
    ///
    /// # Errors
    /// [`PauseError`]; what could be stopped is stopped, and a resume resumes it.
    pub fn pause(&mut self, journal: &mut Journal, members: &[Identity], until: End) -> Result<(), PauseError> {
        self.heed(journal);
        if let How::Group(group, switch) = &mut self.how
            && self.paused
        {
            self.paused = switch.asked_to_freeze(group); // somebody may have thawed it
        }
        let theirs = self.is_theirs(journal);
        let before = std::mem::replace(&mut self.until, until);
        match &mut self.how {
            How::Group(group, _) if self.paused => group.announce_freeze(journal, until).map_err(|why| {
                self.until = before;
                PauseError::Journal(why)
            }),
            How::Group(group, _) if theirs => Err(PauseError::Frozen(group.path.clone())),
            How::Group(group, switch) => {
                // Again: it may have been frozen by somebody else, or removed and made anew.
                if group.home.is_none() {
                    group.announce(journal).map_err(PauseError::Journal)?;
                }
                group.announce_freeze(journal, until).map_err(PauseError::Journal)?;
                let stopped = around("pause.stop", || switch.set(group, true));
                // A group that may not be written runs on, and is not to be told as paused.
                self.paused = stopped.is_ok() || group.asked_to_freeze();
                if !self.paused {
                    group.strike_freeze(journal, until);
                }
                Ok(stopped?)
            }
            How::Signals(signalled) => {
                self.paused = true;
                signalled.stop(journal, members, until)
            }
        }
    }

    /// Whether any of it may be paused now.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Lets it run.
    ///
    /// # Errors
    /// Where a group cannot be thawed; it counts as paused still.
    pub fn resume(&mut self, journal: &mut Journal) -> Result<(), PauseError> {
        self.heed(journal);
        if !self.paused {
            return Ok(());
        }
        let until = self.until;
        around("pause.cont", || match &mut self.how {
            How::Group(group, switch) => {
                match switch.set(group, false) {
                    Err(GroupError { why, .. }) if groups::gone(&why) => {} // no member is left
                    thawed => thawed?,
                }
                group.strike_freeze(journal, until);
                Ok::<_, GroupError>(())
            }
            How::Signals(signalled) => {
                signalled.cont(journal);
                Ok(())
            }
        })?;
        self.paused = false;
        Ok(())
    }

    /// Sends a signal to all its processes. One that waits acts on it when it runs again; a version 2 freezer lets
    /// SIGKILL through.
    ///
    /// # Errors
    /// Where its group does not tell them.
    pub fn signal(&self, signal: i32, members: &[Identity]) -> Result<(), GroupError> {
        match &self.how {
            How::Group(group, _) => group.signal(signal),
            How::Signals(signalled) => {
                signalled.signal(signal, members);
                Ok(())
            }
        }
    }

    /// Lets it run and is done with it: what is left of a program that we started runs on in our own group.
    ///
    /// # Errors
    /// As [`Job::resume`]; what is journaled stays so, and is undone at the end.
    pub fn end(mut self, journal: &mut Journal) -> Result<(), PauseError> {
        self.resume(journal)?;
        match self.how {
            How::Group(group, _) if group.home.is_some() => groups::dissolve(&group)?,
            How::Group(group, _) => group.strike(journal),
            How::Signals(_) => {}
        }
        Ok(())
    }
}
