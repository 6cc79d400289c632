//! The promises of the help texts: subcommands, options, the syntax of their values, and defaults; one line each.

use super::commands::program;
use std::path::Path;
use std::process::Command;

/// All lines by subcommand, and the subcommands without their program.
pub fn lines() -> (Vec<String>, Vec<&'static str>) {
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    of_command(Path::new(&super::world::binary()), &[], &mut lines);
    match program("reproduce") {
        Some(lab) => of_command(&lab, &["reproduce"], &mut lines),
        None => skipped.push("reproduce"),
    }
    (lines, skipped)
}

fn of_command(program: &Path, path: &[&str], lines: &mut Vec<String>) {
    // `help cc`, since `cc --help` is clang's.
    let (nested, last) = path.split_at(path.len().saturating_sub(1));
    let words = nested.iter().chain(["help"].iter()).chain(last);
    let out = Command::new(program).args(words).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && !text.is_empty(), "help of {path:?}");
    let name = path.join(" ");
    let usage: Vec<&str> =
        text.lines().skip_while(|l| !l.starts_with("Usage: ")).take_while(|l| !l.is_empty()).collect();
    // The first word is the binary's name.
    let usage = usage.join(" ");
    lines.push(format!("usage {}", usage.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")));
    for item in items(&text) {
        lines.push(format!("option {name} {item}").replace("  ", " "));
    }
    let commands = text.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    // Descriptions continue in further indented lines.
    let named = commands.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    for sub in named.filter_map(|l| l.split_whitespace().next()).filter(|sub| *sub != "help") {
        of_command(program, &[path, &[sub]].concat(), lines);
    }
}

/// Options and arguments with their descriptions of values.
fn items(text: &str) -> Vec<String> {
    let (mut items, mut heading): (Vec<(String, String)>, &str) = (Vec::new(), "");
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match line.trim_start() {
            "" => {}
            _ if indent == 0 => heading = line,
            words if is_spec(heading, indent, words) => {
                let (spec, rest) = words.split_once("  ").unwrap_or((words, ""));
                items.push((spec.to_owned(), rest.trim().to_owned()));
            }
            words if indent > 6 => {
                if let Some((_, description)) = items.last_mut() {
                    description.push('\n');
                    description.push_str(words);
                }
            }
            _ => {}
        }
    }
    let line = |(spec, description): &(String, String)| {
        let listed = description.lines().skip_while(|line| *line != "Possible values:");
        let values: Vec<&str> = listed.filter_map(|line| line.strip_prefix("- ")?.split(':').next()).collect();
        let joined = description.replace('\n', " ");
        let brackets = joined.split('[').skip(1).filter_map(|rest| rest.split(']').next());
        let brackets = brackets.filter(|text| text.starts_with("default") || text.starts_with("possible values"));
        let values = (!values.is_empty()).then(|| format!("values {}", values.join(" ")));
        let parts = [spec.clone()].into_iter().chain(values).chain(brackets.map(|text| format!("[{text}]")));
        parts.collect::<Vec<_>>().join(" ")
    };
    items.iter().map(line).collect()
}

fn is_spec(heading: &str, indent: usize, words: &str) -> bool {
    let argument = heading == "Arguments:" && (words.starts_with('<') || words.starts_with('['));
    indent <= 6 && (words.starts_with('-') || argument)
}
