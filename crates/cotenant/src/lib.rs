//! The `cotenant` command as a library, so that man pages and completions come from the same definitions.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod cli;
pub mod cmd;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod open;
mod recorded;
pub mod report;
pub mod run;
mod top;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use cotenant_cli::{FAILED, USAGE, fail, usage};
use cotenant_linux::host::StartError;
use cotenant_linux::sense::metrics;
use cotenant_model::policy::Registry;
use std::process::ExitCode;

/// Runs the command line of this process with the standard policies.
pub fn main() -> ExitCode {
    main_with(cotenant_policies::standard())
}

/// Runs the command line of this process with these policies, which `run`, `sim`, `replay` and all others offer.
pub fn main_with(policies: Registry) -> ExitCode {
    cotenant_setup::registry::set(policies);
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == cotenant_linux::undo::SUBCOMMAND) {
        return cotenant_linux::act::guard(args);
    }
    cotenant_linux::sys::end_by_sent_faults();
    // At `ulimit -f` a recording ends, not the run.
    cotenant_linux::sys::survive_file_limit();
    // Before clap, since every word after these is clang's, including `--help` and `--`.
    let mut args = std::env::args_os().skip(1);
    let result = match args.next().as_deref().and_then(cmd::cc::language) {
        Some(cxx) => cmd::cc::run(cxx, args, &cli::Cli::command()),
        None => match cli::Cli::try_parse() {
            Ok(cli) => match &cli.command {
                Some(command) => cmd::run(command, cli::Cli::command),
                None => cmd::outlook::run(),
            },
            Err(error) => return misused(&error),
        },
    };
    result.unwrap_or_else(|error| fail(&error, exit_code(&error)))
}

/// Reports an error in the arguments, or prints help.
fn misused(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand && std::env::args().nth(1).is_some_and(|word| word == "reproduce") {
        return fail(
            &usage("the papers' experiments are a program of their own; see cotenant-lab reproduce --help"),
            USAGE,
        );
    }
    cotenant_cli::misused(error, &cli::Cli::command())
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<StartError>() {
        Some(StartError::Metrics(metrics::StartError::Io(_))) => FAILED,
        Some(StartError::Metrics(_) | StartError::Means(_)) => USAGE,
        // by the shells' convention: 127 not found, 126 not executable
        Some(StartError::Launch(why)) => why.exit_code(),
        _ => cotenant_cli::exit_code(error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::cli::Cli::command().debug_assert();
    }

    /// Holds run/documented.
    #[test]
    fn every_option_has_help() {
        for command in super::cli::Cli::command().get_subcommands() {
            let silent = command.get_arguments().find(|arg| arg.get_help().is_none());
            assert!(silent.is_none(), "{}: {silent:?} has no help", command.get_name());
        }
    }
}
