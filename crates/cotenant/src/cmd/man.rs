//! `cotenant man`: the man pages.

use anyhow::Context;
use cotenant_cli::generated;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant man run | man -l -                        read one
  cotenant man --output ~/.local/share/man/man1      install all";

/// Arguments of `cotenant man`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The subcommand whose page is printed [default: the page of cotenant itself]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    /// Write all pages into this folder instead
    #[arg(short, long, value_name = "DIR", conflicts_with = "command")]
    output: Option<PathBuf>,
}

/// Prints a page, or writes all.
///
/// # Errors
/// An unknown subcommand; errors of writing the pages.
pub fn run(args: &Args, definition: &clap::Command) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.output {
        let cannot = || format!("{}: cannot be written; choose another folder with --output", folder.display());
        generated::man_pages(definition.clone(), folder).with_context(cannot)?;
        return Ok(ExitCode::SUCCESS);
    }
    cotenant_cli::print(|out| {
        generated::man_page(definition.clone(), args.command.as_deref(), out)?;
        Ok(ExitCode::SUCCESS)
    })
}
