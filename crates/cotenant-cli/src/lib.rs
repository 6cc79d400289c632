//! The common parts of the command lines of Cotenant's programs.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod generated;
pub mod live_view;
pub mod machine_arg;
pub mod messages;
pub mod page;
pub mod progress;
pub mod scratch;
pub mod table;
mod terminal;

use clap::error::ErrorKind;
use cotenant_model::text::Clean;
use page::{Page, Sheet};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code for failures that are not the user's words.
pub const FAILED: u8 = 1;
/// Exit code for wrong arguments.
pub const USAGE: u8 = 2;

/// A failure caused by the user's arguments or files: exit code 2.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Shorthand for [`UsageError`] inside `anyhow`.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    UsageError(text.into()).into()
}

/// The exit code of an error that has none of its own.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<UsageError>() { USAGE } else { FAILED }
}

/// Prints an error in one line.
pub fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    messages::tell(messages::chain(error));
    ExitCode::from(code)
}

/// Prints requested help or the version; otherwise one line on wrong arguments, with the command that prints help.
pub fn misused(error: &clap::Error, program: &clap::Command) -> ExitCode {
    let shown =
        [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if shown.contains(&error.kind()) {
        let _ = error.print(); // the reader may have gone, as with `| head`
        return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
    }
    let subcommand = std::env::args().nth(1).filter(|word| program.find_subcommand(word).is_some());
    let command =
        subcommand.map_or_else(|| program.get_name().to_owned(), |name| format!("{} {name}", program.get_name()));
    messages::tell(messages::one_line(&error.to_string(), &command));
    ExitCode::from(USAGE)
}

/// A folder of the user's: by its XDG variable, else below the home folder.
pub fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    of(variable).or_else(|| Some(of("HOME")?.join(below_home)))
}

/// Runs a subcommand that writes to standard output, where terminals obey nothing of it. A reader that goes away
/// early, such as `head`, is no error.
///
/// # Errors
/// Errors of `write` and of standard output.
pub fn print(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    to_stdout(|out| write(&mut Clean(out)))
}

/// As [`print`], for people: lines and tables as wide as the terminal, in its colours.
///
/// # Errors
/// As [`print`].
pub fn print_page(write: impl FnOnce(&mut Sheet<'_>) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    to_stdout(|out| {
        let mut sheet = Sheet::new(Page::of_stdout(), out);
        let code = write(&mut sheet)?;
        sheet.flush()?;
        Ok(code)
    })
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = write(&mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match result {
        Err(e) if broken_pipe(&e) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

/// Prints an answer, as JSON or as a page.
///
/// # Errors
/// As [`print`].
pub fn answer(
    json: bool,
    value: &(impl Serialize + ?Sized),
    text: impl FnOnce(&mut Sheet<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    if json {
        return print(|out| pretty(out, value).map(|()| ExitCode::SUCCESS));
    }
    print_page(|sheet| text(sheet).map(|()| ExitCode::SUCCESS))
}

/// Prints a text as it is.
///
/// # Errors
/// As [`print`].
pub fn print_text(text: &str) -> anyhow::Result<ExitCode> {
    print(|out| {
        out.write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes JSON for people and programs, with the end of its last line.
///
/// # Errors
/// A closed `out`.
pub fn pretty(out: &mut dyn Write, value: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        kind.or(json) == Some(io::ErrorKind::BrokenPipe)
    })
}
