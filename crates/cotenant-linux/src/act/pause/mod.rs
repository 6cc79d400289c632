//! Pauses programs: by a freezer of control groups if available, otherwise by SIGSTOP and SIGCONT.
//!
//! A [`Job`] is a set of processes that pause and run together: a program that we start, with all its descendants; an
//! external control group; or already running processes. Everything that may be left paused is journaled before, with
//! its end. So the guardian, or `cotenant restore`, resumes it however Cotenant ends, and the guardian also if Cotenant
//! itself stops.
//!
//! A pause has been *requested* when [`Job::pause`] returns: the kernel stops each thread at its next opportunity. A
//! resume also cancels pending stops.

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

/// The mechanism that pauses programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// `cgroup.freeze` of version 2.
    CgroupV2,
    /// The freezer of version 1.
    CgroupV1,
    /// SIGSTOP and SIGCONT to the process group and to descendants outside of it. Too coarse for a few milliseconds,
    /// and visible to the program's parent.
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

/// Capabilities of this machine with our rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    mechanism: Mechanism,
    /// The folder of our control group, below which groups can be created.
    home: Option<PathBuf>,
}

impl Method {
    /// Every working mechanism, best first, tested with temporary groups. Signals always work.
    pub fn all() -> Vec<Self> {
        let groups = [(Mechanism::CgroupV2, Hierarchy::V2), (Mechanism::CgroupV1, Hierarchy::V1)];
        let usable = groups.into_iter().filter_map(|(mechanism, hierarchy)| {
            let home = groups::home(hierarchy).filter(|home| groups::works(hierarchy, home, home, freezes).is_ok())?;
            Some(Self { mechanism, home: Some(home) })
        });
        usable.chain([Self { mechanism: Mechanism::Signals, home: None }]).collect()
    }

    /// The best working one.
    pub fn best() -> Self {
        Self::all().swap_remove(0)
    }

    /// Its kind.
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

/// Why not, by the first usable hierarchy.
fn why_not() -> String {
    let mounted = [Hierarchy::V2, Hierarchy::V1].into_iter().find(|hierarchy| groups::mount(*hierarchy).is_some());
    let Some(hierarchy) = mounted else { return "no cgroup hierarchy that can freeze is mounted".to_owned() };
    let Some(home) = groups::home(hierarchy) else { return "our control group cannot be seen here".to_owned() };
    groups::works(hierarchy, &home, &home, freezes).err().unwrap_or_default()
}

/// Creates jobs. One per Cotenant: the groups of its jobs are in one folder, which is journaled once.
#[derive(Debug)]
pub struct Pauses {
    method: Method,
    folder: Option<Group>,
    made: u64,
}

impl Pauses {
    /// With these means, without changes yet.
    pub fn new(method: Method) -> Self {
        Self { method, folder: None, made: 0 }
    }

    /// A job for a new program, see [`Job::prepare`].
    ///
    /// # Errors
    /// If journaling or the group's creation fails.
    pub fn job(&mut self, journal: &mut Journal) -> Result<Job, PauseError> {
        let Some(home) = &self.method.home else { return Ok(Job::of_processes()) };
        let folder = self.folder.get_or_insert_with(|| {
            let hierarchy = if self.method.mechanism == Mechanism::CgroupV1 { Hierarchy::V1 } else { Hierarchy::V2 };
            let (pid, start) = journal.owner();
            Group { hierarchy, path: home.join(format!("cotenant-{pid}-{start}")), home: Some(home.clone()) }
        });
        // Again for each job: another agent may have removed an empty folder, and the journal drops such.
        folder.announce(journal).map_err(PauseError::Journal)?;
        self.made += 1;
        let job = Group { path: folder.path.join(format!("job-{}", self.made)), ..folder.clone() };
        around("pause.group", || folder.make().and_then(|()| job.make()))?;
        Ok(Job::new(How::Group(job, Switch::default())))
    }

    /// Removes the folder of the groups; remaining jobs continue in our group.
    pub fn finish(mut self, journal: &mut Journal) {
        if let Some(folder) = self.folder.take()
            && groups::dissolve(&folder).is_ok()
        {
            folder.strike(journal);
        }
    }
}

/// Processes that pause and run together.
#[derive(Debug)]
pub struct Job {
    how: How,
    paused: bool,
    /// The end of the pause, while paused.
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

    /// Running processes, listed at each pause: by signals.
    pub fn of_processes() -> Self {
        Self::new(How::Signals(Signalled::default()))
    }

    /// An external control group, with those below it. To be frozen only if all its members may wait.
    ///
    /// # Errors
    /// If it has no freezer, is already frozen, contains us or a process that must be left alone, or journaling fails.
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
        // Together with the first, because writing claims has a fixed cost.
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

    /// A group of another actuator, which creates and removes it: a limited group can also be frozen. Must not be ended
    /// by [`Job::end`].
    pub(crate) fn lent(group: &Group) -> Self {
        Self::new(How::Group(group.clone(), Switch::default()))
    }

    /// Makes a new command start inside the job, in its own session and process group.
    ///
    /// # Errors
    /// If the group has gone.
    pub fn prepare(&self, command: &mut Command) -> Result<(), PauseError> {
        signals::lead(command);
        if let How::Group(group, _) = &self.how {
            group.enter("cgroup.procs", command)?;
        }
        Ok(())
    }

    /// The prepared program runs as this process. Its process group then also identifies its members.
    ///
    /// # Errors
    /// If journaling fails: it runs, and will not be paused.
    pub fn started(&mut self, journal: &mut Journal, root: Identity) -> Result<(), PauseError> {
        if let How::Signals(signalled) = &mut self.how { signalled.lead_by(journal, root) } else { Ok(()) }
    }

    /// The mechanism.
    pub fn mechanism(&self) -> Mechanism {
        match &self.how {
            How::Group(Group { hierarchy: Hierarchy::V2, .. }, _) => Mechanism::CgroupV2,
            How::Group(..) => Mechanism::CgroupV1, // a job has no group of the CPU hierarchy
            How::Signals(_) => Mechanism::Signals,
        }
    }

    /// Whether another agent has frozen an external control group. Then we never thaw it, however Cotenant ends, until
    /// we freeze it.
    pub fn is_theirs(&mut self, journal: &mut Journal) -> bool {
        let How::Group(group, switch) = &mut self.how else { return false };
        let theirs = group.home.is_none() && !self.paused && switch.asked_to_freeze(group);
        if theirs {
            group.strike(journal);
        }
        theirs
    }

    /// Handles a resume by the guardian during a stop of this Cotenant; returns the time since.
    pub fn heed(&mut self, journal: &mut Journal) -> Option<Duration> {
        let late = sys::monotonic().checked_sub(self.until.filter(|_| self.paused)? + GRACE)?;
        journal.hear();
        self.paused = match &mut self.how {
            How::Group(group, _) => journal.outstanding::<Groups>().is_frozen(&group.path),
            How::Signals(signalled) => signalled.heed(journal),
        };
        (!self.paused).then_some(late)
    }

    /// Pauses it; the guardian ends that some time after `until`. `members` are its processes as far as known; a
    /// control group knows its own. A repeated call also stops new processes.
    ///
    /// # Errors
    /// [`PauseError`]; partial stops remain, and a resume resumes them.
    pub fn pause(&mut self, journal: &mut Journal, members: &[Identity], until: End) -> Result<(), PauseError> {
        self.heed(journal);
        if let How::Group(group, switch) = &mut self.how
            && self.paused
        {
            self.paused = switch.asked_to_freeze(group); // another agent may have thawed it
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
                // Again: it may have been frozen by another agent, or re-created.
                if group.home.is_none() {
                    group.announce(journal).map_err(PauseError::Journal)?;
                }
                group.announce_freeze(journal, until).map_err(PauseError::Journal)?;
                let stopped = around("pause.stop", || switch.set(group, true));
                // An unwritable group runs on, and must not be reported as paused.
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

    /// Resumes it.
    ///
    /// # Errors
    /// If a group cannot be thawed; it still counts as paused.
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

    /// Sends a signal to all its processes. A paused one handles it after its resume; a version 2 freezer lets SIGKILL
    /// through.
    ///
    /// # Errors
    /// If its group does not list them.
    pub fn signal(&self, signal: i32, members: &[Identity]) -> Result<(), GroupError> {
        match &self.how {
            How::Group(group, _) => group.signal(signal),
            How::Signals(signalled) => {
                signalled.signal(signal, members);
                Ok(())
            }
        }
    }

    /// Resumes it and ends the job: remaining processes of a program that we started continue in our own group.
    ///
    /// # Errors
    /// As [`Job::resume`]; its journal entry stays, and is undone at the end.
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
