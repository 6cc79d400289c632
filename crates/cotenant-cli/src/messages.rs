//! Messages on standard error.

use crate::table::Table;
use crate::terminal::stderr_columns;
use cotenant_model::metric::NO_PASSWORD;
use cotenant_model::text::{LINE, within};
use std::fmt::Display;
use std::io::Write;

/// Beginning of each message.
const WHO: &str = "cotenant: ";

/// Prints one line on standard error, with any `text`. A closed reader (`2>&1 | head`) or a full disk must not harm a
/// managed program.
pub fn tell(text: impl Display) {
    raw(&format!("{WHO}{}\n", within(&text.to_string(), LINE)));
}

/// Prints a table on standard error, as wide as its terminal.
pub fn table(table: &Table) {
    let room = stderr_columns().map(|columns| columns.saturating_sub(WHO.len()));
    let lines = table.lines(room).into_iter().map(|(_, line)| format!("{WHO}{line}\n"));
    raw(&lines.collect::<String>());
}

/// Writes to standard error in one call, so that the program's simultaneous output does not interleave.
pub fn raw(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// An error and its causes as one line, without causes that the error already quotes.
pub fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    within(&text.lines().map(str::trim).collect::<Vec<_>>().join(" "), LINE).into_owned()
}

/// Parts of the argument parser's message that one line omits: usage, a hint at help, and the unlikely advice to pass
/// an option on to a command.
const LEFT_OUT: [&str; 3] = ["Usage:", "For more information", "tip: to pass '"];

/// The argument parser's message as one line that ends with the command for help.
pub fn one_line(rendered: &str, command: &str) -> String {
    // Usage goes on in the lines below it.
    let kept = rendered
        .split("\n\n")
        .filter(|part| !part.starts_with(LEFT_OUT[0]))
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|line| !line.is_empty() && !LEFT_OUT.iter().any(|begin| line.starts_with(begin)));
    let mut text = String::new();
    for line in kept {
        let line = line.strip_prefix("error: ").unwrap_or(line);
        if line.starts_with("tip: ")
            && quoted(&text).next().is_some_and(|word| !quoted(line).any(|it| is_near(word, it)))
        {
            continue;
        }
        // A value with a password in it is not repeated.
        let hidden = line.contains(NO_PASSWORD).then(|| line.split_once("' for '")).flatten();
        let line = hidden.map_or_else(|| line.to_owned(), |(_, rest)| format!("invalid value for '{rest}"));
        let gap = match (text.is_empty(), line.starts_with("tip:")) {
            (true, _) => "",
            (false, true) => "; ",
            (false, false) => " ",
        };
        text = format!("{text}{gap}{line}");
    }
    let negative = quoted(&text)
        .next()
        .and_then(|word| word.strip_prefix('-'))
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()) && text.starts_with("unexpected argument"));
    let negative = if negative { ", for no value here is negative" } else { "" };
    format!("{text}{negative}; see {command} --help")
}

/// What stands in quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').skip(1).step_by(2)
}

/// Whether one word may be a slip for the other: a third of it differs at most, or it is an abbreviation.
fn is_near(said: &str, known: &str) -> bool {
    let known: Vec<char> = known.chars().collect();
    let mut rest = known.iter().peekable();
    let mut before: Vec<usize> = (0..=known.len()).collect();
    for (i, c) in said.chars().enumerate() {
        rest.next_if(|next| **next == c);
        let mut row = vec![i + 1];
        for (j, other) in known.iter().enumerate() {
            row.push((before[j] + usize::from(c != *other)).min(before[j + 1] + 1).min(row[j] + 1));
        }
        before = row;
    }
    rest.peek().is_none() || before[known.len()] * 3 <= said.chars().count().max(known.len())
}

/// `1 task`, `2 tasks`, `2 processes`.
pub fn count(n: impl Into<u64>, what: &str) -> String {
    let n = n.into();
    let plural = if what.ends_with('s') { "es" } else { "s" };
    format!("{n} {what}{}", if n == 1 { "" } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_is_said_once() {
        let error = Err::<(), _>(anyhow!("disk full")).context("a.rec: disk full; free space").unwrap_err();
        assert_eq!(chain(&error), "a.rec: disk full; free space");
        let error = Err::<(), _>(anyhow!("disk full")).context("a.rec").unwrap_err();
        assert_eq!(chain(&error), "a.rec: disk full");
    }

    /// Holds speed/passwords.
    #[test]
    fn tips_that_mislead_are_left_out() {
        let tip = |word: &str, tip: &str| {
            let rendered =
                format!("error: unrecognized subcommand '{word}'\n\n  tip: a similar subcommand exists: '{tip}'");
            one_line(&rendered, "cotenant").contains("tip")
        };
        assert!(!tip("nosuch", "bench") && !tip("start", "status") && tip("statsu", "status") && tip("remove", "rm"));
        let negative =
            one_line("error: unexpected argument '-5' found\n\nUsage: cotenant run [OPTIONS]", "cotenant run");
        assert_eq!(negative, "unexpected argument '-5' found, for no value here is negative; see cotenant run --help");
    }

    #[test]
    fn usage_errors_are_one_line() {
        let rendered = "error: unexpected argument '--polcy' found\n\n  tip: a similar argument exists: '--policy'\n\n\
                        \x20 tip: to pass '--polcy' as a value, use '-- --polcy'\n\nUsage: cotenant run --policy <NAME> <CMD>...\n       cotenant run --live\n\nFor more information, try '--help'.\n";
        let line =
            "unexpected argument '--polcy' found; tip: a similar argument exists: '--policy'; see cotenant run --help";
        assert_eq!(one_line(rendered, "cotenant run"), line);
        let secret = "error: invalid value 'http://a:b@c' for '--metric <METRIC>': no password stands in a metric: so";
        let line = "invalid value for '--metric <METRIC>': no password stands in a metric: so; see cotenant qos --help";
        assert_eq!(one_line(secret, "cotenant qos"), line);
    }

    #[test]
    fn nouns_follow_their_number() {
        assert_eq!((count(1u8, "move"), count(0u8, "move")), ("1 move".to_owned(), "0 moves".to_owned()));
    }
}
