//! The live machine as a [`Host`].

use crate::apply::{Applier, ApplyError, ApplyOptions, NewTask};
use crate::launch::{Child, Event, LaunchError, Output, Status, Waiter};
use crate::observe::{AppTarget, ObserveError, Observer, Options, Target};
use crate::restore::RestoreReport;
use crate::tier::TierReport;
use cotenant_core::host::HostError;
use cotenant_core::{CpuSet, Host, Order, Outcome, Sample, TaskId, TaskInfo, Time, Topology, Wake};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

/// How a live machine is managed.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// CPUs that the user allows; `None` = all.
    pub cpus: Option<CpuSet>,
    /// Whether anything is to be changed. Without it no journal, no guardian and no claim comes into being.
    pub act: bool,
    /// Whether tasks of other users are managed.
    pub other_users: bool,
}

/// Why a host could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing can be changed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Nothing can be observed.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The command could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// How a managed run ended.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The command's exit code, 128 + signal where a signal ended it; 0 for attached processes.
    pub exit_code: u8,
    /// What was given back.
    pub restored: RestoreReport,
}
