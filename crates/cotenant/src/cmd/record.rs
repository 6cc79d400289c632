//! `cotenant record`: observe, and keep raw samples and decisions.

use super::attach;
use crate::run::one::{self, One};
use crate::run::recorder;
use anyhow::Result;
use cotenant_cli::usage;
use cotenant_model::Mode;
use cotenant_setup::args::ManageArgs;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant record -- make -j8                        into cotenant.rec
  cotenant record -o redis.rec -p \"$(pidof redis-server)\"
  cotenant record --mode enforce --policy sam --profile my-machine.toml -- ./a";

/// Arguments of `cotenant record`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "cotenant record [OPTIONS] [--] <CMD> [ARGS]...\n       \
                      cotenant record [OPTIONS] (-p <PID>[,<PID>]... | --cgroup <PATH>)"
)]
pub struct Args {
    /// The command to start, with its arguments; -- before it keeps its options apart from ours
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// What runs already
    #[command(flatten)]
    target: attach::TargetArgs,
    /// The recording to write. A recording that is already there is kept as FILE.old; any other file is left alone
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "cotenant.rec",
        help_heading = "Recording",
        alias = "record"
    )]
    output: PathBuf,
    /// How to record
    #[command(flatten)]
    how: recorder::How,
    /// How to watch it; the mode is observe unless another one is asked for
    #[command(flatten)]
    manage: ManageArgs,
}

/// Records a command that it starts, or running programs.
///
/// # Errors
/// One line with the error, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut manage = args.manage.clone();
    manage.scope.mode = manage.scope.mode.or(Some(Mode::Observe));
    let to = Some(recorder::Target { path: &args.output, how: &args.how });
    let one = match (args.target.target(), args.command.is_empty()) {
        (None, false) => One::Command(&args.command),
        (Some(running), true) => running,
        (Some(_), false) => return Err(usage("give either a command to start or what runs already, not both")),
        (None, true) => return Err(usage("nothing to record; give a command after --, or -p PID, or --cgroup PATH")),
    };
    one::run(&manage, to, one)
}
