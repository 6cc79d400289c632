//! A group of ours that limits who is in it.

use super::{Group, GroupError, Hierarchy, dissolve, write};
use crate::fault::point;
use crate::sys;
use crate::undo::Journal;
use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Why there is no limit.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// No hierarchy has the controller where we may make groups.
    #[error(
        "CPU time cannot be limited here: no control group with the cpu controller in which groups can be made; \
         run as root, in a scope with that controller (systemd-run --scope -p CPUWeight=100 cotenant …), or use --means auto"
    )]
    NoController,
    /// A file of the group cannot be written.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Nothing can be journaled or made, so nothing is limited.
    #[error("nothing is limited: {0}")]
    Nothing(String),
}

/// The group; journaled before it is made, so that whoever undoes lifts its limits and removes it however Cotenant ends.
#[derive(Debug)]
pub struct LimitGroup(pub(in crate::act) Group);

impl LimitGroup {
    /// Makes the group of a program that is about to be started, under a name that no other has.
    ///
    /// # Errors
    /// [`LimitError::Nothing`]
    pub fn make(
        journal: &mut Journal,
        prefix: &str,
        hierarchy: Hierarchy,
        parent: &Path,
        home: PathBuf,
    ) -> Result<Self, LimitError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (me, n) = (journal.owner(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("{prefix}-{}-{}-{n}", me.pid, me.start));
        let group = Group { hierarchy, path, home: Some(home) };
        group.announce(journal).map_err(LimitError::Nothing)?;
        point("quota.make.before");
        group.make().map_err(|why| LimitError::Nothing(why.to_string()))?;
        point("quota.make.after");
        Ok(Self(group))
    }

    /// Where it lies.
    pub fn hierarchy(&self) -> Hierarchy {
        self.0.hierarchy
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Lets a command begin inside, by writing to that list of its members; what it starts stays there.
    ///
    /// # Errors
    /// Where the group is gone.
    pub fn enter(&self, list: &str, command: &mut Command) -> Result<(), LimitError> {
        let path = self.path().join(list);
        let members = OpenOptions::new().write(true).open(&path).map_err(|why| GroupError { path, why })?;
        // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
        unsafe {
            command.pre_exec(move || sys::write_some(members.as_fd(), b"0"));
        }
        Ok(())
    }

    /// Writes a setting.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set(&self, file: &str, value: &str) -> Result<(), LimitError> {
        let path = self.path().join(file);
        point("quota.set.before");
        let set = write(&path, value);
        point("quota.set.after");
        Ok(set.map_err(|why| GroupError { path, why })?)
    }

    /// Removes it; who is in it runs on in our own.
    ///
    /// # Errors
    /// Where that fails; it stays journaled, for whoever undoes it at the end.
    pub fn end(self, journal: &mut Journal) -> Result<(), LimitError> {
        dissolve(&self.0).map_err(|why| LimitError::Nothing(why.to_string()))?;
        point("quota.end.after");
        self.0.strike(journal);
        Ok(())
    }
}
