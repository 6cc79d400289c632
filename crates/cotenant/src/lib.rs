//! The `cotenant` command as a library, so that man pages and completions come from the same definitions.
#![forbid(unsafe_code)]

mod app_bench;
mod calibrated;
pub mod cli;
pub mod cmd;
mod kernel_bench;
mod leftovers;
mod live_bench;
mod live_table;
pub mod machine_arg;
mod names;
mod others;
mod progress;
pub mod recorder;
mod replace;
pub mod report;
mod scratch;
mod settings;
mod store;
mod units;
mod words;

use clap::Parser;
use clap::error::ErrorKind;
use cotenant_linux::host::StartError;
use cotenant_linux::metrics;
use std::process::ExitCode;

/// Exit code for failures that are not the user's words.
const FAILED: u8 = 1;
/// Exit code for wrong arguments.
const USAGE: u8 = 2;

/// A failure whose cause is what the user typed or a file that the user named: exit code 2.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

/// Shorthand for [`UsageError`] inside `anyhow`.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    UsageError(text.into()).into()
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == cotenant_linux::guardian::SUBCOMMAND) {
        return cotenant_linux::guardian::main(args);
    }
    // A recording that reaches `ulimit -f` ends; the run does not.
    cotenant_linux::sys::survive_file_limit();
    // Before clap looks at it: every word behind these is clang's, `--help` and `--` included.
    let mut args = std::env::args_os().skip(1);
    let result = match args.next().as_deref().and_then(cmd::cc::language) {
        Some(cxx) => cmd::cc::run(cxx, args),
        None => match cli::Cli::try_parse() {
            Ok(cli) => cmd::run(&cli.command),
            Err(error) => return misused(&error),
        },
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            words::tell(words::chain(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Prints help or the version where it was asked for; else says in one line what is wrong with the arguments.
fn misused(error: &clap::Error) -> ExitCode {
    let shown =
        [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if shown.contains(&error.kind()) {
        let _ = error.print(); // who asked may be gone, as after `| head`
        return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
    }
    let first = std::env::args().nth(1).filter(|word| cli::is_subcommand(word));
    words::tell(words::one_line(&error.to_string(), first.as_deref()));
    ExitCode::from(USAGE)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<StartError>() {
        Some(StartError::Metrics(metrics::StartError::Io(_))) => FAILED,
        Some(StartError::Metrics(_) | StartError::Means(_)) => USAGE,
        Some(StartError::Launch(why)) => why.exit_code(), // as shells say it: 127 not found, 126 not executable
        _ if error.is::<UsageError>() => USAGE,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::cli::Cli::command().debug_assert();
    }

    #[test]
    fn every_option_has_help() {
        for command in super::cli::Cli::command().get_subcommands() {
            let silent = command.get_arguments().find(|arg| arg.get_help().is_none());
            assert!(silent.is_none(), "{}: {silent:?} has no help", command.get_name());
        }
    }
}
