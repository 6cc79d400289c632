//! `cotenant completions`: for the user's shell.

use clap_complete::Shell;
use cotenant_cli::generated;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant completions bash > ~/.local/share/bash-completion/completions/cotenant
  cotenant completions zsh > ~/.zfunc/_cotenant       with fpath+=~/.zfunc before compinit
  cotenant completions fish > ~/.config/fish/completions/cotenant.fish";

/// Arguments of `cotenant completions`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints them.
///
/// # Errors
/// Standard output is closed.
pub fn run(args: &Args, definition: &clap::Command) -> anyhow::Result<ExitCode> {
    cotenant_cli::print(|out| {
        generated::completions(definition.clone(), args.shell, out)?;
        Ok(ExitCode::SUCCESS)
    })
}
