//! The command line's definition; `cargo xtask man`, `completions` and `reference` read it too.

use crate::cmd::Command;
use clap::Parser;

/// Places and throttles the threads of co-located programs: those that share data sit together, those that fight over
/// caches and memory sit apart. Says why, and undoes everything when it ends.
#[derive(Debug, Parser)]
#[command(name = "cotenant", version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// What to do. Nothing: this machine and some commands to try are shown.
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_help_names_every_policy() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        let help = run.get_arguments().find(|arg| arg.get_id() == "policy").unwrap().get_help().unwrap().to_string();
        let words: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        for name in cotenant_policies::standard().names() {
            assert!(words.contains(&name), "{name}: {help}");
        }
    }
}
