//! Our groups with limits.

use super::{Group, GroupError, Hierarchy, Holder, Manager, dissolve, write};
use crate::fault::around;
use crate::undo::Journal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Why there is no limit.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// No hierarchy has the controller where we may create groups.
    #[error(
        "CPU time cannot be limited here: no control group with the cpu controller allows new groups. Run in a scope \
         with it, as root (systemd-run --scope -p CPUWeight=100 cotenant …), or use --means auto"
    )]
    NoController,
    /// Resctrl is not available.
    #[error("resctrl is not mounted here, or limits nothing; see cotenant doctor, or use --means auto")]
    NoResctrl,
    /// Neither a control group, nor `SCHED_IDLE`, nor a lighter session is available.
    #[error(
        "programs cannot run in the background here, so they nap instead. They have no control group with the cpu \
         controller, and the kernel does not portion out CPU time to their sessions. SCHED_IDLE could not be taken \
         back (CAP_SYS_NICE, or a hard limit of nice values: prlimit --nice=40)"
    )]
    NoBackground,
    /// An external control group has a share of CPU time, and is not made idle: its threads yield by no other means.
    #[error("{path} runs beside the others: its cpu.idle is left as it is", path = .0.display())]
    NotIdle(PathBuf),
    /// A file of the group cannot be written.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Journaling or creation fails, so nothing is limited.
    #[error("nothing is limited: {0}")]
    Nothing(String),
}

impl Group {
    /// A group for a new program, with a unique name. Journaled before its creation, so that its limits are lifted and
    /// it is removed however Cotenant ends.
    ///
    /// # Errors
    /// [`LimitError::Nothing`]
    pub fn limiting(
        journal: &mut Journal,
        prefix: &str,
        hierarchy: Hierarchy,
        parent: &Path,
        home: PathBuf,
    ) -> Result<Self, LimitError> {
        let group = Self::announced(journal, [prefix, ""], hierarchy, parent, home)?;
        around("quota.make", || group.make()).map_err(|why| LimitError::Nothing(why.to_string()))?;
        Ok(group)
    }

    /// The same, created by systemd, with a process that holds it until the program is inside.
    ///
    /// # Errors
    /// [`LimitError::Nothing`]; then it does not exist.
    pub fn asked(
        journal: &mut Journal,
        prefix: &str,
        manager: &Manager,
        parent: &Path,
        home: PathBuf,
    ) -> Result<(Self, Holder), LimitError> {
        let group = Self::announced(journal, [prefix, ".scope"], Hierarchy::V2, parent, home)?;
        match around("quota.make", || manager.make("systemd-run", &group.path)) {
            Ok(holder) => Ok((group, holder)),
            Err(why) => {
                group.end(journal)?;
                Err(LimitError::Nothing(why))
            }
        }
    }

    fn announced(
        journal: &mut Journal,
        [prefix, suffix]: [&str; 2],
        hierarchy: Hierarchy,
        parent: &Path,
        home: PathBuf,
    ) -> Result<Self, LimitError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let ((pid, start), n) = (journal.owner(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("{prefix}-{pid}-{start}-{n}{suffix}"));
        let group = Self { hierarchy, path, home: Some(home) };
        group.announce(journal).map_err(LimitError::Nothing)?;
        Ok(group)
    }

    /// Writes a limit.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn limit(&self, file: &str, value: &str) -> Result<(), LimitError> {
        let path = self.path.join(file);
        Ok(around("quota.set", || write(&path, value)).map_err(|why| GroupError { path, why })?)
    }

    /// Removes it; its members continue in our own group.
    ///
    /// # Errors
    /// If that fails; it stays journaled, and is undone at the end.
    pub fn end(self, journal: &mut Journal) -> Result<(), LimitError> {
        around("quota.end", || dissolve(&self)).map_err(|why| LimitError::Nothing(why.to_string()))?;
        self.strike(journal);
        Ok(())
    }
}
