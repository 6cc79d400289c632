//! Letting everybody run again whom a journal names.

use super::PauseError;
use super::group::{self, Group, Hierarchy};
use crate::affinity::{self, Held};
use crate::book::Identity;
use crate::fault::point;
use crate::journal::Record;
use crate::restore::RestoreReport;
use crate::sys;
use cotenant_model::proc_text::TaskStat;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Rounds through the members of a group that come at once; further ones after a moment each.
const AT_ONCE: u32 = 100;

/// How long that may go on: one that forks all the time could keep us forever otherwise. On a busy machine it takes its time until those who
/// were killed have had the turn in which they end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who may wait because of us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    groups: BTreeMap<PathBuf, Group>,
    /// Processes, and whether their process group and session wait with them.
    stopped: BTreeMap<Identity, bool>,
}

impl Waiting {
    /// Enters a record; those of other kinds are nothing to us.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Group { hierarchy, path, home } => {
                let group = Group { hierarchy: *hierarchy, path: path.clone(), home: home.clone() };
                self.groups.insert(path.clone(), group);
            }
            Record::Ungroup { path } => drop(self.groups.remove(path)),
            Record::Stop { pid, start, leads } => {
                let known = self.stopped.entry((*pid, *start)).or_default();
                *known |= leads;
            }
            Record::Cont { pid, start } => drop(self.stopped.remove(&(*pid, *start))),
            Record::Set { .. } | Record::Left { .. } => {}
        }
    }

    /// Whether the record tells nothing new.
    pub fn knows(&self, record: &Record) -> bool {
        match record {
            Record::Group { path, .. } => self.groups.contains_key(path),
            Record::Stop { pid, start, leads } => self.stopped.get(&(*pid, *start)).is_some_and(|l| l >= leads),
            Record::Ungroup { path } => !self.groups.contains_key(path),
            Record::Cont { pid, start } => !self.stopped.contains_key(&(*pid, *start)),
            Record::Set { .. } | Record::Left { .. } => false,
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.stopped.is_empty()
    }

    /// Lets everybody run.
    pub fn resume(&self, report: &mut RestoreReport) {
        // First: nobody is to wait for the end of a group that others keep for a moment.
        self.groups.values().filter(|group| group.home.is_some()).for_each(thaw);
        for group in self.groups.values() {
            point("resume.group.before");
            match if group.home.is_some() { dissolve(group) } else { thaw_foreign(group) } {
                Ok(()) => report.resumed += 1,
                Err(why) => {
                    report.failed += 1;
                    report.notes.push(format!("{} may stand still: {why}", group.path.display()));
                }
            }
            point("resume.group.after");
        }
        if !self.stopped.is_empty() {
            self.cont(report);
        }
    }

    fn cont(&self, report: &mut RestoreReport) {
        // By descent as well: the group may have grown after the last look at it.
        for pid in affinity::numbers_in("/proc") {
            let Some(stat) = affinity::process_stat(pid).filter(|stat| !stat.is_dead()) else { continue };
            if !self.concerns(pid, &stat) {
                continue;
            }
            let Ok(held) = Held::open_exactly(pid, pid, stat.start_ticks) else { continue };
            point("resume.signal.before");
            // Whether it stands still or not: a stop may be on its way to it, and is taken back by this.
            let sent = sys::kill(pid, libc::SIGCONT);
            point("resume.signal.after");
            match sent {
                Ok(()) if held.stat.state == b'T' => report.resumed += 1,
                Ok(()) => {}
                Err(_) if !held.lives() => {}
                Err(why) => {
                    report.failed += 1;
                    report.notes.push(format!("process {pid} may stand still: {why}; as root, kill -CONT {pid}"));
                }
            }
        }
    }

    /// Whether a process may wait because of us: by itself, or with the group or session of one that does.
    fn concerns(&self, pid: u32, stat: &TaskStat) -> bool {
        let of = |leader: u32| {
            let mut leaders = self.stopped.range((leader, 0)..=(leader, u64::MAX));
            leaders.any(|((_, start), leads)| *leads && stat.start_ticks >= *start)
        };
        self.stopped.contains_key(&(pid, stat.start_ticks)) || of(stat.pgrp) || of(stat.session)
    }
}

/// Thaws a group of ours and those below it, as far as they are there.
fn thaw(group: &Group) {
    let _ = group.freeze(false);
    below(group).iter().for_each(thaw);
}

/// The groups of ours directly below one.
fn below(group: &Group) -> Vec<Group> {
    if group.hierarchy == Hierarchy::Resctrl {
        return Vec::new();
    }
    let folders = fs::read_dir(&group.path).into_iter().flatten().flatten();
    let folders = folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| Group { path: entry.path(), ..group.clone() }).collect()
}

/// Thaws a group of ours and those below it, takes the members home and removes the folders. Nothing to do where it is gone.
pub(crate) fn dissolve(group: &Group) -> Result<(), PauseError> {
    let failed = |why| PauseError::Group { path: group.path.clone(), why };
    let home = group.home.as_deref().unwrap_or(Path::new("/")).join("cgroup.procs");
    let (begin, mut passes) = (Instant::now(), 0);
    loop {
        below(group).iter().try_for_each(dissolve)?;
        match group.freeze(false) {
            Err(PauseError::Group { why, .. }) if gone(&why) => return Ok(()),
            other => other?,
        }
        for pid in group.members() {
            match group::write(&home, &pid.to_string()) {
                Err(why) if why.raw_os_error() != Some(libc::ESRCH) => return Err(failed(why)),
                _ => {}
            }
        }
        match fs::remove_dir(&group.path) {
            Ok(()) => return Ok(()),
            Err(why) if gone(&why) => return Ok(()),
            // Corpses and newborn are no members, and keep the folder for a moment.
            Err(why) if why.raw_os_error() == Some(libc::EBUSY) => {}
            Err(why) => return Err(failed(why)),
        }
        passes += 1;
        if passes < AT_ONCE {
            std::thread::yield_now();
        } else if begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            let why = "its members cannot be taken out: they fork faster than that, or have not ended yet";
            return Err(failed(io::Error::other(why)));
        }
    }
}

/// `ENODEV`: a folder that is just being removed.
fn gone(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn thaw_foreign(group: &Group) -> Result<(), PauseError> {
    match group.freeze(false) {
        Err(PauseError::Group { why, .. }) if gone(&why) => Ok(()),
        other => other,
    }
}
