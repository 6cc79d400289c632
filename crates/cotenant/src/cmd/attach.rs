//! `cotenant attach`: manage what runs already.

use super::managed;
use crate::cli::ManageArgs;
use crate::settings::{self, Setup};
use crate::usage;
use anyhow::Result;
use cotenant_linux::tasks::Target;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `cotenant attach`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to attach to
    #[command(flatten)]
    target: TargetArgs,
    /// How to manage it
    #[command(flatten)]
    manage: ManageArgs,
}

/// What runs already.
#[derive(Debug, Clone, clap::Args)]
#[group(multiple = false)]
pub(super) struct TargetArgs {
    /// Processes, by id
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// All processes of a control group, by its folder
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

impl TargetArgs {
    /// As the observer takes it; `None` where nothing is named.
    pub(super) fn target(&self) -> Option<Target> {
        match &self.cgroup {
            Some(path) => Some(Target::Cgroup(path.clone())),
            None => (!self.pid.is_empty()).then(|| Target::Pids(self.pid.clone())),
        }
    }
}

/// Attaches until the targets end or a signal asks to stop; then everything is undone.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let target = args.target.target().ok_or_else(|| usage("name what to attach to: -p PID, or --cgroup PATH"))?;
    let (topology, machine) = settings::live_machine()?;
    let setup = Setup::live(&args.manage, topology, machine)?;
    let summary = managed::attached(&setup, &args.manage, target)?;
    managed::report(&summary, &args.manage)?;
    Ok(ExitCode::SUCCESS)
}
