//! `cotenant record`: watch, and keep raw samples and decisions.

use super::{attach, managed};
use crate::cli::{ManageArgs, ModeArg};
use crate::recorder;
use crate::settings::{self, Setup};
use crate::usage;
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `cotenant record`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The recording to write
    #[arg(short, long, value_name = "FILE", default_value = "cotenant.rec")]
    output: PathBuf,
    /// What runs already
    #[command(flatten)]
    target: attach::TargetArgs,
    /// How to watch it; the mode is observe unless another one is asked for
    #[command(flatten)]
    manage: ManageArgs,
    /// The command to start, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Records a command that it starts, or what runs already.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let manage = ManageArgs {
        record: recorder::Args {
            record: Some(args.manage.record.record.clone().unwrap_or_else(|| args.output.clone())),
            ..args.manage.record.clone()
        },
        mode: Some(args.manage.mode.unwrap_or(ModeArg::Observe)),
        ..args.manage.clone()
    };
    let (topology, machine) = settings::live_machine()?;
    let setup = Setup::live(&manage, topology, machine)?;
    let summary = match (args.target.target(), args.command.is_empty()) {
        (None, false) => managed::command(&setup, &manage, &args.command, managed::Output::Shown)?,
        (Some(target), true) => managed::attached(&setup, &manage, target)?,
        (Some(_), false) => return Err(usage("give either a command to start or what runs already, not both")),
        (None, true) => return Err(usage("nothing to record; give a command after --, or -p PID, or --cgroup PATH")),
    };
    managed::report(&summary, &manage)?;
    Ok(ExitCode::from(summary.exit_code))
}
