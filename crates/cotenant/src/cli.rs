//! The command line's definition; `cargo xtask man`, `completions` and `reference` read it too.

use crate::cmd::{Command, GROUPS};
use clap::{Arg, ArgAction, Parser, Subcommand};
use std::fmt::Write as _;

/// Places and throttles the threads of co-located programs, and says why.
#[derive(Debug, Parser)]
#[command(
    name = "cotenant",
    version,
    max_term_width = COLUMNS,
    help_template = help(),
    mut_subcommands = in_short
)]
pub struct Cli {
    /// What to do. Nothing: this machine and some commands to try are shown.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Help is as wide as man pages are.
const COLUMNS: usize = 80;

/// The first screen.
fn help() -> String {
    let commands = Command::augment_subcommands(clap::Command::new(""));
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{title}\n");
        for name in names {
            let about = commands.find_subcommand(name).and_then(clap::Command::get_about);
            let _ = writeln!(text, "  {name:<14}{}", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    text + "\n'cotenant COMMAND -h' shows the common options, '--help' all of them."
}

/// A subcommand whose `-h` leaves out `-V` and all but two examples.
fn in_short(command: clap::Command) -> clap::Command {
    let long = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (before, examples) = long.split_at(long.find("Examples").unwrap_or(long.len()));
    let short: Vec<&str> = examples.split("\n\n").next().unwrap_or_default().lines().take(3).collect();
    let command = if before.is_empty() { command.after_help(short.join("\n")).after_long_help(long) } else { command };
    if command.is_disable_help_flag_set() {
        return command; // its words are clang's
    }
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version).help("Print version");
    let command = command.disable_version_flag(true).version(env!("CARGO_PKG_VERSION"));
    command.arg(version.hide_short_help(true)).mut_subcommands(in_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeMap;

    /// Most lines of what `-h` prints, and of `cotenant --help`.
    const LINES: usize = 25;
    const SCREEN: usize = 50;
    /// Most words of a sentence.
    const WORDS: usize = 30;

    fn commands() -> Vec<clap::Command> {
        let mut cli = Cli::command();
        cli.build();
        cli.get_subcommands().filter(|command| command.get_name() != "help").cloned().collect()
    }

    /// Holds run/documented.
    #[test]
    fn every_command_stands_in_one_group() {
        let mut times = BTreeMap::new();
        GROUPS.iter().flat_map(|(_, names)| *names).for_each(|name| *times.entry((*name).to_owned()).or_insert(0) += 1);
        let once = commands().iter().map(|command| (command.get_name().to_owned(), 1)).collect();
        assert_eq!(times, once);
        let help = Cli::command().render_help().to_string();
        assert!(help.lines().count() <= SCREEN && help.lines().all(|line| line.chars().count() <= COLUMNS), "{help}");
    }

    /// Holds run/documented.
    #[test]
    fn short_help_fits_a_terminal() {
        let wrong: Vec<String> = commands()
            .into_iter()
            .flat_map(|command| command.get_subcommands().cloned().chain([command.clone()]).collect::<Vec<_>>())
            .filter(|command| !["cc", "c++"].contains(&command.get_name())) // their -h is clang's
            .filter_map(|mut command| {
                let help = command.render_help().to_string();
                let wide = help.lines().map(|line| line.chars().count()).max()?;
                let lines = help.lines().count();
                (lines > LINES || wide > COLUMNS).then(|| format!("{lines} lines, {wide} columns:\n{help}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{} commands: {}", wrong.len(), wrong.join("\n"));
        for mut command in commands() {
            let examples = command.get_after_long_help().or(command.get_after_help());
            let examples = examples.map(ToString::to_string).unwrap_or_default();
            let wide: Vec<&str> = examples.lines().filter(|line| line.chars().count() > COLUMNS).collect();
            assert!(wide.is_empty(), "{}: {wide:#?}", command.get_name());
            let version = command.render_long_help().to_string().contains("--version");
            assert!(version || command.is_disable_help_flag_set(), "{}", command.get_name());
        }
    }

    /// Holds run/documented.
    #[test]
    fn no_sentence_of_a_help_is_long() {
        let mut long = Vec::new();
        for command in commands() {
            let of = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
            let mut texts = vec![of(command.get_long_about().or(command.get_about()))];
            texts.extend(command.get_arguments().map(|arg| of(arg.get_long_help().or(arg.get_help()))));
            texts.extend(command.get_arguments().flat_map(|arg| {
                arg.get_possible_values().iter().map(|value| of(value.get_help())).collect::<Vec<_>>()
            }));
            for sentence in texts.iter().flat_map(|text| text.split("\n\n")).flat_map(|text| text.split(". ")) {
                if sentence.split_whitespace().count() > WORDS {
                    long.push(format!("{}: {sentence}", command.get_name()));
                }
            }
        }
        assert!(long.is_empty(), "{} sentences:\n{}", long.len(), long.join("\n"));
    }

    /// Holds run/documented.
    #[test]
    fn a_list_of_policies_names_those_that_the_command_takes() {
        let registry = cotenant_policies::standard();
        let taken = |queue: bool| registry.listed().filter(move |entry| crate::cmd::policies::pauses(entry) == queue);
        for command in commands().iter().filter(|command| command.get_name() != "schedule") {
            let Some(policy) = command.get_arguments().find(|arg| arg.get_id() == "policy") else { continue };
            let help = policy.get_help().unwrap().to_string();
            assert!(help.contains("cotenant policies"), "{}: {help}", command.get_name());
            let words: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
            let rivals = registry.listed().filter(|entry| entry.is_rival());
            for entry in rivals.chain(taken(true)) {
                assert!(!words.contains(&entry.name()), "{}: {help}", command.get_name());
            }
        }
        let schedule = commands().into_iter().find(|command| command.get_name() == "schedule").unwrap();
        let policy = schedule.get_arguments().find(|arg| arg.get_id() == "policy").unwrap();
        let values: Vec<String> =
            policy.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        assert!(taken(true).all(|entry| values.iter().any(|value| value == entry.name())), "{values:?}");
    }
}
