//! `cotenant run`: start a command and manage it.

use super::managed;
use crate::cli::ManageArgs;
use crate::settings::{self, Setup};
use anyhow::Result;
use std::ffi::OsString;
use std::process::ExitCode;

/// Arguments of `cotenant run`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How to manage it
    #[command(flatten)]
    manage: ManageArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command; returns its exit code, 128 + signal where a signal ended it.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (topology, machine) = settings::live_machine()?;
    let setup = Setup::live(&args.manage, topology, machine)?;
    let summary = managed::command(&setup, &args.manage, &args.command, managed::Output::Shown)?;
    managed::report(&summary, &args.manage)?;
    Ok(ExitCode::from(summary.exit_code))
}
