//! How a host is set up, why it cannot begin, and how it ends.

use crate::act::pause::Method;
use crate::sense::observer::ObserveError;
use crate::sense::{memory, metrics};
use crate::sys::launch::LaunchError;
use crate::undo::{JournalOptions, OpenError, RestoreReport};
use cotenant_model::profile::AppProfile;
use cotenant_model::{CpuSet, Signal};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// When a run is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// The first command has ended, whatever it leaves behind; where none was started: nothing is left, or a signal
    /// came.
    #[default]
    FirstEnds,
    /// All commands have ended, and those that are not throttled have left nobody behind; sooner where a signal asked
    /// all to end.
    AllEnd,
    /// A signal came.
    Asked,
}

/// How a live machine is managed.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each answers a question of its own
pub struct HostOptions {
    /// CPUs that the user allows; `None` = all.
    pub cpus: Option<CpuSet>,
    /// Whether anything is to be changed. Without it no journal, no guardian and no claim comes into being.
    pub act: bool,
    /// Whether tasks of other users are managed.
    pub other_users: bool,
    /// What is counted by hardware; `None`: what most policies want.
    pub signals: Option<Vec<Signal>>,
    /// What is looked at of the memory of each process: dear.
    pub memory: memory::Options,
    /// Whether what programs read, write, send and receive is counted, as a speed of those that report none.
    pub proxies: bool,
    /// Whether to see by BPF what threads wait for, where that is allowed.
    pub waits: bool,
    /// Whether the memory of programs may be moved, too.
    pub move_pages: bool,
    /// Applications by name, of which rates stand in for signals that cannot be counted.
    pub profiles: BTreeMap<String, AppProfile>,
    /// When a run is over.
    pub until: Until,
    /// When the commands that were started are asked to end.
    pub after: Option<Duration>,
    /// After so long, or as soon as its command has ended, a metric that was refused ever since the start ends the run
    /// in the same way; `None`: never.
    pub refused: Option<Duration>,
    /// How programs that are started to be throttled are paused; `None`: as is best here.
    pub method: Option<Method>,
    /// How changes are journaled; `None`: as [`JournalOptions::new`] says.
    pub journal: Option<JournalOptions>,
}

/// Why a host could not begin, or an application not be added.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing can be changed.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// Nothing can be observed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The metrics cannot be read.
    #[error(transparent)]
    Metrics(#[from] metrics::StartError),
    /// The kernel gave no descriptors to wait with.
    #[error("cannot wait for events: {0}; raise the limit of open files (ulimit -n)")]
    Wait(io::Error),
    /// A means of throttling programs is missing.
    #[error("{0}")]
    Means(String),
}

/// How a managed run ended.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The exit code of the first application's command, 128 + signal where a signal ended it; 0 where it was not
    /// started here, or ended because the time of the run was up.
    pub exit_code: u8,
    /// The last signal that asked to stop: the commands have got it, too.
    pub signal: Option<i32>,
    /// What was given back.
    pub restored: RestoreReport,
}
