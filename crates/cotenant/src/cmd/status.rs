//! `cotenant status`, `pause` and `resume`: the daemon's activity, and its pauses.

use anyhow::Result;
use cotenant_cli::{answer, print_text};
use cotenant_daemon::client::ask;
use cotenant_daemon::protocol::Request;
use cotenant_status::status::Status;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `cotenant status`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Which daemon
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Which daemon is asked.
#[derive(Debug, Clone, clap::Args)]
pub struct DaemonArgs {
    /// Its control socket [default: that of this user's daemon, else of root's]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    socket: Option<PathBuf>,
}

impl DaemonArgs {
    /// The socket, where one is named.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }
}

/// Arguments of `cotenant pause` and `cotenant resume`.
#[derive(Debug, Clone, clap::Args)]
pub struct ServiceArgs {
    /// The service, as cotenant status names it [default: all]
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
    /// Which daemon
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Shows the daemon's status.
///
/// # Errors
/// No daemon.
pub fn run(args: &Args) -> Result<ExitCode> {
    let status: Status = ask(args.daemon.socket(), Request::Status)?;
    answer(args.json, &status, |out| status.print(out))
}

/// Lets the daemon change nothing from now on.
///
/// # Errors
/// No daemon; a refusal.
pub fn pause(args: &ServiceArgs) -> Result<ExitCode> {
    tell(args, |service| Request::Pause { service })
}

/// Lets it go on.
///
/// # Errors
/// No daemon; a refusal.
pub fn resume(args: &ServiceArgs) -> Result<ExitCode> {
    tell(args, |service| Request::Resume { service })
}

fn tell(args: &ServiceArgs, request: impl FnOnce(Option<String>) -> Request) -> Result<ExitCode> {
    let done: String = ask(args.daemon.socket(), request(args.service.clone()))?;
    print_text(&format!("{done}\n"))
}
