//! Why a job cannot be paused or resumed.

use crate::act::groups::GroupError;
use std::path::PathBuf;

/// Why a job cannot be paused or resumed.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// Journaling fails, so nothing is paused.
    #[error("nothing is paused: {0}")]
    Journal(String),
    /// A file of a control group cannot be written.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An external control group is already frozen, and we would thaw it.
    #[error("{path} is frozen by another program, and is left alone until it is thawed", path = .0.display())]
    Frozen(PathBuf),
    /// It contains us, so that we could not thaw it.
    #[error(
        "cotenant itself is in {path}, and would freeze with it for ever; start it in another control group, as by \
         systemd-run --scope",
        path = .0.display()
    )]
    Ourselves(PathBuf),
    /// An external control group contains a process that must be left alone and would wait too.
    #[error(
        "not all of {path} may be paused: process {pid}: {why}; name the others by their process ids, or add \
         --all-users for those of other users",
        path = .path.display()
    )]
    Member {
        /// The group's folder.
        path: PathBuf,
        /// The process.
        pid: u32,
        /// Why it must be left alone.
        why: String,
    },
    /// A process cannot be signalled.
    #[error("process {pid} cannot be paused: {why}")]
    Process {
        /// Its id.
        pid: u32,
        /// Why.
        why: String,
    },
}
