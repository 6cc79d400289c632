//! `cotenant slurm`: whether the jobs of this node are known.

use super::status::DaemonArgs;
use anyhow::Result;
use cotenant_cli::print_page;
use cotenant_daemon::client::{ask, socket_or_default};
use cotenant_daemon::jobs::{Step, steps};
use cotenant_daemon::protocol::Request;
use cotenant_linux::FsRoot;
use cotenant_status::status::Status;
use std::io::Write;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant slurm --check";

/// Arguments of `cotenant slurm`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Check each step from the prolog to the daemon's rule
    #[arg(long, required = true)]
    check: bool,
    /// Which daemon
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Runs the subcommand; the exit code is 1 if a step is missing.
///
/// # Errors
/// There is no folder for a socket; standard output takes no more.
pub fn run(args: &Args) -> Result<ExitCode> {
    let socket = socket_or_default(args.daemon.socket())?;
    let status = ask::<Status>(Some(&socket), Request::Status).map_err(|why| format!("{why:#}"));
    let all = steps(&FsRoot::live(), &socket.with_file_name("slurm"), &status);
    print_page(|out| {
        for Step { what, found, remedy, checked } in &all {
            let sign = match (remedy, checked) {
                (Some(_), _) => '✗',
                (None, true) => '✓',
                (None, false) => '?',
            };
            writeln!(out, "{sign} {what}: {found}")?;
            if let Some(remedy) = remedy {
                writeln!(out, "    {remedy}")?;
            }
        }
        Ok(if all.iter().any(Step::fails) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}
