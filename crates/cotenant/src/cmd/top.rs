//! `cotenant top`: places, speeds, interference and decisions.

use crate::top::{What, on_paper};
use anyhow::Result;
use cotenant_cli::{print_text, usage};
use cotenant_model::Time;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant top                        the daemon; without one, your own programs
  cotenant top a.rec                  a recording: ← and → go through time
  cotenant top --once --no-daemon     one screen as text, without the daemon
  cotenant top a.rec --at 13s --json | jq '.services[].cpus'";

/// Arguments of `cotenant top`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A recording to look at [default: what happens now]
    ///
    /// What `cotenant record` wrote, or `--record` of run, qos, sim and others.
    #[arg(value_name = "FILE", conflicts_with_all = ["socket", "no_daemon"])]
    file: Option<PathBuf>,
    /// Begin at this time of the recording, such as 12.3s [default: when something ran last]
    ///
    /// In seconds since its start.
    #[arg(long, value_name = "TIME", requires = "file")]
    at: Option<Time>,
    /// Look at this user's programs (root: all) instead of asking the daemon
    #[arg(long, conflicts_with = "socket")]
    no_daemon: bool,
    /// Print one screen as text and end
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print what one screen shows as JSON and end
    #[arg(long)]
    json: bool,
    /// The daemon's control socket [default: that of this user's daemon, else of root's; where none answers, as with
    /// --no-daemon]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    socket: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// Nothing can be observed; the file is not a recording; there is no terminal.
pub fn run(args: &Args) -> Result<ExitCode> {
    let what = What { file: args.file.as_deref(), at: args.at, socket: args.socket.as_deref(), own: args.no_daemon };
    // First, since errors need no terminal.
    let source = what.source()?;
    if args.json {
        let picture = what.picture(source)?;
        return cotenant_cli::answer(true, &picture, |_| Ok(()));
    }
    if args.once {
        return print_text(&on_paper(&what.picture(source)?));
    }
    if !std::io::stdout().is_terminal() || std::env::var_os("TERM").is_none_or(|term| term == "dumb") {
        return Err(usage(
            "standard output is not a terminal that can be drawn on; --once prints one screen, --json its data",
        ));
    }
    what.show(source)
}
