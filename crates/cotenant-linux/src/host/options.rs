//! Options, start errors and results of a host.

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

/// The end condition of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// The first command has ended, regardless of its children; without a command: no process is left, or a signal
    /// came.
    #[default]
    FirstEnds,
    /// All commands have ended, and unthrottled ones have no processes left; sooner after a signal to all.
    AllEnd,
    /// A signal came.
    Asked,
}

/// Options of managing a live machine.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent options
pub struct HostOptions {
    /// CPUs allowed by the user; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Whether changes are allowed. Without, there is no journal, guardian or claim.
    pub act: bool,
    /// Whether tasks of other users are managed.
    pub other_users: bool,
    /// Hardware signals to count; `None`: those of most policies.
    pub signals: Option<Vec<Signal>>,
    /// Observations of each process's memory, which are expensive.
    pub memory: memory::Options,
    /// Whether to count bytes read, written, sent and received, as a speed of programs without reports.
    pub proxies: bool,
    /// Whether to observe threads' waits by BPF, if allowed.
    pub waits: bool,
    /// Whether programs' memory may be moved.
    pub move_pages: bool,
    /// Applications by name, whose rates replace uncountable signals.
    pub profiles: BTreeMap<String, AppProfile>,
    /// End condition.
    pub until: Until,
    /// Time after which the started commands are requested to end.
    pub after: Option<Duration>,
    /// After this long, or when its command has ended, a metric that has always been refused ends the run in the same
    /// way; `None`: never.
    pub refused: Option<Duration>,
    /// How new throttled programs are paused; `None`: by the best means.
    pub method: Option<Method>,
    /// Journaling; `None`: as in [`JournalOptions::new`].
    pub journal: Option<JournalOptions>,
}

/// Why a host could not start, or an application not be added.
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

/// Result of a managed run.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The exit code of the first application's command, 128 + signal if killed; 0 if it was not started here, or ended
    /// at its time limit.
    pub exit_code: u8,
    /// The last signal that requested a stop: the commands have got it too.
    pub signal: Option<i32>,
    /// What was restored.
    pub restored: RestoreReport,
}
