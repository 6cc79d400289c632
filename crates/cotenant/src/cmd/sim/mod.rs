//! `cotenant sim`: programs beside each other on a machine that is not there.

mod args;
mod assumed;
mod mix;
mod scenario;

pub use args::Args;
use std::process::ExitCode;

/// Runs the subcommand.
///
/// # Errors
/// Where a file, a program, a machine or a policy is unknown or wrong, and where no state of the machine is found.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.file, &args.machine) {
        (Some(file), _) => scenario::run(args, file),
        (None, machine) => mix::run(args, machine.as_deref().unwrap_or_default()),
    }
}
