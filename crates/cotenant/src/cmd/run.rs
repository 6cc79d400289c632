//! `cotenant run`: start a command and manage it.

use crate::run::one::{self, One};
use crate::run::recorder;
use anyhow::Result;
use cotenant_setup::args::ManageArgs;
use std::ffi::OsString;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant run -- make -j8                           let the policy auto do what the machine allows
  cotenant run --mode advise -v -- ./server          say what would be done, change nothing
  cotenant run --policy static --map 'XX......' --pin cpu -- ./a   use the first two CPUs
  cotenant run --policy sam --profile my-machine.toml --record a.rec -- ./a";

/// Arguments of `cotenant run`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant run [OPTIONS] [--] <CMD> [ARGS]...")]
pub struct Args {
    /// The command and its arguments; -- before it keeps its options apart from ours
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// How to manage it
    #[command(flatten)]
    manage: ManageArgs,
    /// Whether and where to record
    #[command(flatten)]
    record: recorder::Args,
}

/// Runs the command; returns its exit code, or 128 + signal.
///
/// # Errors
/// One line with the error, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    one::run(&args.manage, args.record.target(), One::Command(&args.command))
}
