//! `cargo xtask reference`: a page of the book for each command, from the definitions that `--help` prints.

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const FOLDER: &str = "docs/reference/commands";
const COLUMNS: usize = 118;
/// The pages that explain the keys of `--json`, a section for each command.
const JSON: [&str; 2] = ["json.md", "json-data.md"];

/// Rewrites the pages.
pub fn write(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join(FOLDER))?;
    for (path, text) in pages(root) {
        fs::write(root.join(&path), text).context(path)?;
    }
    println!("the pages are in {FOLDER}");
    Ok(())
}

/// Pages that differ from the definitions, and commands with unexplained JSON.
pub fn wrong(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let pages = pages(root);
    let there = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    let named = there.map(|entry| format!("{FOLDER}/{}", entry.file_name().to_string_lossy()));
    wrong
        .extend(named.filter(|path| !pages.contains_key(path)).map(|path| format!("{path}: of no command; remove it")));
    for (path, text) in pages {
        if fs::read_to_string(root.join(&path)).is_ok_and(|there| there == text) {
            continue;
        }
        wrong.push(format!("{path}: is not what the command's definition gives; run `cargo xtask reference`"));
    }
    for (_, command) in commands().filter(|(_, command)| has_json(command)) {
        if json_page(root, command.get_name()).is_none() {
            wrong.push(format!("docs/reference/json.md: no section '## {}'", command.get_name()));
        }
    }
    wrong
}

/// The subcommands of our programs, each with the name of its program.
fn commands() -> impl Iterator<Item = (String, Command)> {
    let subcommands = |mut cli: Command| {
        cli.build();
        let named = |sub: &Command| (cli.get_name().to_owned(), sub.clone());
        cli.get_subcommands().filter(|sub| sub.get_name() != "help").map(named).collect::<Vec<_>>()
    };
    [cotenant::cli::Cli::command(), cotenant_lab::Cli::command()].into_iter().flat_map(subcommands)
}

/// Path from the repository's root → text.
fn pages(root: &Path) -> BTreeMap<String, String> {
    commands()
        .map(|(program, command)| (format!("{FOLDER}/{}.md", command.get_name()), page(root, &program, &command)))
        .collect()
}

/// The page that explains the keys of a command's `--json`.
fn json_page(root: &Path, command: &str) -> Option<&'static str> {
    let section = format!("\n## {command}\n");
    let has = |page: &&str| {
        fs::read_to_string(root.join("docs/reference").join(page)).is_ok_and(|text| text.contains(&section))
    };
    JSON.into_iter().find(has)
}

fn page(root: &Path, program: &str, command: &Command) -> String {
    let mut out = format!("# `{program} {}`\n", command.get_name());
    section(&mut out, command, 2);
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let _ = write!(out, "\n## `{}`\n", sub.get_name());
        section(&mut out, sub, 3);
    }
    if has_json(command) {
        let keys = json_page(root, command.get_name()).unwrap_or(JSON[0]);
        let _ = write!(out, "\nKeys of `--json`: [JSON output](../{keys}#{}).\n", command.get_name());
    }
    out.push_str("\nWritten by `cargo xtask reference` from what `--help` prints.\n");
    out
}

fn has_json(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == "json")
}

fn section(out: &mut String, command: &Command, depth: usize) {
    let about = command.get_long_about().or_else(|| command.get_about());
    for paragraph in about.map(ToString::to_string).unwrap_or_default().split("\n\n") {
        let _ = write!(out, "\n{}\n", wrapped(paragraph));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
    let _ = write!(out, "\n```\n{usage}\n```\n");
    let mut groups: Vec<(String, Vec<&Arg>)> = Vec::new();
    for arg in command.get_arguments().filter(|arg| shown(command, arg)) {
        let heading = match arg.get_help_heading() {
            Some(heading) => heading,
            None if arg.is_positional() => "Arguments",
            None => "Options",
        };
        match groups.iter_mut().find(|(name, _)| name == heading) {
            Some((_, args)) => args.push(arg),
            None => groups.push((heading.to_owned(), vec![arg])),
        }
    }
    for (heading, args) in groups {
        let _ = write!(out, "\n{} {heading}\n\n| option | default | is |\n|---|---|---|\n", "#".repeat(depth));
        for arg in args {
            row(out, arg);
        }
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        let _ = write!(out, "\n```text\n{}\n```\n", after.to_string().trim_end());
    }
}

/// An option that a subcommand inherits is in the parent's table.
fn shown(command: &Command, arg: &Arg) -> bool {
    let inherited = arg.is_global_set() && !command.has_subcommands();
    !(arg.is_hide_set() || inherited || ["help", "version"].contains(&arg.get_id().as_str()))
}

fn row(out: &mut String, arg: &Arg) {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let values = if arg.get_action().takes_values() { values } else { String::new() };
    let long = arg.get_long().map(|long| format!("--{long} {values}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = short.into_iter().chain(long).map(|name| format!("`{}`", name.trim_end())).collect();
    let name = if names.is_empty() { format!("`{values}`") } else { names.join(", ") };

    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut default = String::new();
    if arg.get_action().takes_values() && !arg.get_default_values().is_empty() {
        let values: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        default = format!("`{}`", values.join(","));
    } else if let Some(at) = help.find(" [default: ").filter(|_| help.ends_with(']')) {
        help[at + " [default: ".len()..help.len() - 1].clone_into(&mut default);
        help.truncate(at);
    }
    let explained =
        arg.get_possible_values().into_iter().filter(|value| value.get_help().is_some() && !value.is_hide_set());
    let explained: Vec<String> = explained
        .map(|value| {
            format!("`{}`: {}", value.get_name(), value.get_help().map(ToString::to_string).unwrap_or_default())
        })
        .collect();
    if arg.get_action().takes_values() && !explained.is_empty() {
        let _ = write!(help, ". {}", explained.join("; "));
    }
    let cell = |text: &str| text.replace('|', "\\|");
    let _ = writeln!(out, "| {} | {} | {} |", cell(&name), cell(&default), cell(&help));
}

/// One paragraph in lines of at most [`COLUMNS`].
pub fn wrapped(paragraph: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}
