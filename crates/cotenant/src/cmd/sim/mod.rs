//! `cotenant sim`: co-running programs on a simulated machine.

mod args;
mod assumed;
mod mix;
mod scenario;

pub use args::Args;
use std::process::ExitCode;

/// Runs the subcommand.
///
/// # Errors
/// If a file, a program, a machine or a policy is unknown or invalid, or the solver does not converge.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.file, &args.machine) {
        (Some(file), _) => scenario::run(args, file),
        (None, machine) => mix::run(args, machine.as_deref().unwrap_or_default()),
    }
}
