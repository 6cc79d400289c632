//! `cargo xtask tables`: tables of pages from files of results, and these files from the commands that they name.
//!
//! A page has the template of a table as a comment before it, which begins with `<!-- results: NAME…`;
//! each `NAME` is `docs/results/NAME.json`. Templates are `MiniJinja`'s: `run.KEY` is what the run KEY of a file gave.
//!
//! Figures in prose have a comment `<!-- figures: NAME…` before them. Each line of its template is a phrase that the
//! rest of the section says in just one place, such as `the gain is {{ run.all | fixed(1) }} % on average`; the page
//! gets its figures.

use crate::commands::{cargo, target_folder};
use anyhow::{Context, Result, anyhow, bail};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, context};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "docs/results";
const TABLE: &str = "\n<!-- results: ";
const FIGURES: &str = "\n<!-- figures: ";
const END: &str = "\n-->\n";
/// Longer JSON is broken up, a line for each element.
const COLUMNS: usize = 120;

#[derive(clap::Args)]
pub struct Args {
    /// Run the commands of docs/results/NAME.json again, or only its run KEY, and write what they give there; all: of
    /// every file
    #[arg(long, value_name = "NAME[/KEY]", num_args = 1..)]
    anew: Vec<String>,
}

/// A file of results: key of a run → run.
type Results = BTreeMap<String, Run>;

/// A command and what it gave.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// For bash, in an empty folder, with the release's programs on the path; it prints JSON, by `jq` what is needed.
    /// `$MACHINES` is the folder `machines`, and `$XDG_DATA_HOME` that empty one: a file in its `cotenant/machines` is
    /// taken instead of the machine of its name.
    command: String,
    /// `null` before the first time.
    gave: Value,
}

/// Runs the selected measurements, and rewrites the tables and figures.
pub fn write(root: &Path, args: &Args) -> Result<()> {
    // Before a build of minutes.
    for name in args.anew.iter().filter(|name| *name != "all") {
        read(root, name.split('/').next().unwrap_or_default())?;
    }
    if !args.anew.is_empty() {
        let release = ["build", "--release", "--package", "cotenant", "--package", "cotenant-lab"];
        cargo(root, &release, &[])?;
    }
    for name in &args.anew {
        let all = if name == "all" { files(root) } else { vec![name.clone()] };
        all.iter().try_for_each(|name| measure(root, name))?;
    }
    let mut wrong = Vec::new();
    for page in pages(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        let text = fs::read_to_string(&page)?;
        match rendered(root, &text) {
            Ok(written) if written == text => {}
            Ok(written) => {
                fs::write(&page, written)?;
                println!("{name}");
            }
            Err(why) => wrong.push(format!("{name}: {why:#}")),
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Pages whose tables or figures differ from their results, and results without a page.
pub fn wrong(root: &Path) -> Result<Vec<String>> {
    let (mut wrong, mut shown) = (Vec::new(), BTreeSet::new());
    for page in pages(root)? {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        let text = fs::read_to_string(&page)?;
        match rendered(root, &text) {
            Ok(written) if written == text => {}
            Ok(_) => wrong
                .push(format!("{name}: a table or a figure is not what its results give; run `cargo xtask tables`")),
            Err(why) => wrong.push(format!("{name}: {why:#}")),
        }
        let templates = [TABLE, FIGURES].into_iter().flat_map(|mark| text.split(mark).skip(1));
        shown.extend(templates.flat_map(names).map(str::to_owned));
    }
    for name in files(root) {
        if !shown.contains(&name) {
            wrong.push(format!("{FOLDER}/{name}.json: no page shows it; remove it"));
        }
    }
    Ok(wrong)
}

/// Names of the files of results.
fn files(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten().map(|file| file.path());
    let mut names: Vec<String> =
        files.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// The pages of the book, those of measurements, and the README.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let list = ["ls-files", "-co", "--exclude-standard", "docs/*.md", "lab/docs/*.md", "README.md"];
    let list = crate::commands::done(Command::new("git").args(list).current_dir(root))?;
    Ok(list.lines().map(|file| root.join(file)).filter(|file| file.exists()).collect())
}

/// The files named after a template's mark.
fn names(template: &str) -> impl Iterator<Item = &str> {
    template.lines().next().unwrap_or_default().split_whitespace()
}

/// The page as it is read.
pub fn without_templates(text: &str) -> String {
    [TABLE, FIGURES].into_iter().fold(text.to_owned(), |text, mark| {
        let (mut out, mut rest) = (String::new(), &*text);
        while let Some((before, (_, after))) =
            rest.split_once(mark).and_then(|(before, from)| Some((before, from.split_once(END)?)))
        {
            out = out + before + "\n";
            rest = after.trim_start_matches('\n');
        }
        out + rest
    })
}

/// The page with each table and each figure written again.
fn rendered(root: &Path, text: &str) -> Result<String> {
    with_figures(root, &with_tables(root, text)?)
}

/// What the template behind this mark gives, and the texts up to its end and behind it.
fn template<'a>(root: &Path, text: &'a str, from: &'a str, mark: &str) -> Result<(String, &'a str, &'a str)> {
    let heads = from[mark.len()..].lines().next().unwrap_or_default();
    let line = text[..text.len() - from.len()].lines().count() + 2;
    let end = from.find(END).with_context(|| format!("line {line}: the template has no line '-->'"))?;
    let template = from[mark.len() + heads.len()..end].trim_start_matches('\n');
    let mut results = Results::new();
    for name in names(heads) {
        for (key, run) in read(root, name)? {
            if results.insert(key.clone(), run).is_some() {
                bail!("the template in line {line} names two files with a run {key}");
            }
        }
    }
    let filled = fill(&results, template).with_context(|| format!("the template in line {line}"))?;
    Ok((filled, &from[..end], &from[end + END.len()..]))
}

/// The page with each templated table rendered again.
fn with_tables(root: &Path, text: &str) -> Result<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(TABLE) {
        let (before, from) = rest.split_at(at);
        let line = text[..text.len() - from.len()].lines().count() + 2;
        let (block, template, after) = template(root, text, from, TABLE)?;
        let after = after.trim_start_matches('\n');
        let block = block.trim();
        if !block.starts_with('|') || block.contains("\n\n") {
            bail!("the template in line {line} gives no table, or more than one");
        }
        if let Some(row) = block.lines().find(|row| cells(row) != cells(block.lines().next().unwrap_or_default())) {
            bail!("the template in line {line} gives a row with other cells than its head: {row}");
        }
        let old = if after.starts_with('|') { after.find("\n\n").map_or(after.len(), |end| end + 1) } else { 0 };
        let gap = if old > 0 || after.is_empty() { "" } else { "\n" };
        let _ = write!(out, "{before}{template}\n-->\n\n{block}\n{gap}");
        rest = &after[old..];
    }
    Ok(out + rest)
}

/// The page with the figures of each phrase as its template gives them.
fn with_figures(root: &Path, text: &str) -> Result<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(FIGURES) {
        let (before, from) = rest.split_at(at);
        let line = text[..text.len() - from.len()].lines().count() + 2;
        let (phrases, template, after) = template(root, text, from, FIGURES)?;
        let (section, more) = after.split_at(after.find("\n#").unwrap_or(after.len()));
        let mut section = section.to_owned();
        for phrase in phrases.lines().filter(|phrase| !phrase.trim().is_empty()) {
            section = said(&section, phrase).with_context(|| format!("the phrases in line {line}"))?;
        }
        let _ = write!(out, "{before}{template}{END}{section}");
        rest = more;
    }
    Ok(out + rest)
}

/// The section with the figures of this phrase, which is in it in one place, however its lines are broken.
fn said(section: &str, phrase: &str) -> Result<String> {
    let (has, wants) = (words(section), words(phrase));
    let same = |at: &usize| {
        let found = has[*at..].iter().zip(&wants);
        *at + wants.len() <= has.len() && found.into_iter().all(|(a, b)| shape(a.1) == shape(b.1))
    };
    let places: Vec<usize> = (0..has.len()).filter(same).collect();
    let [at] = places[..] else {
        bail!("{} places, not one, say with some figures: {phrase}", places.len());
    };
    let mut section = section.to_owned();
    for ((start, old), (_, new)) in has[at..].iter().zip(&wants).rev() {
        section.replace_range(*start..start + old.len(), new);
    }
    Ok(section)
}

/// Words without the punctuation around them, and where they begin.
fn words(text: &str) -> Vec<(usize, &str)> {
    text.split_whitespace()
        .filter_map(|word| {
            let word = word.trim_matches(['.', ',', ';', ':', '(', ')', '[', ']', '*', '`', '"']);
            (!word.is_empty()).then(|| (word.as_ptr().addr() - text.as_ptr().addr(), word))
        })
        .collect()
}

/// The word with one mark for each figure, whatever its sign and value.
fn shape(word: &str) -> String {
    let figure = |c: char| c.is_ascii_digit() || ".,+−".contains(c);
    let mut shape = String::new();
    for (i, c) in word.char_indices() {
        let inside =
            figure(c) && (c.is_ascii_digit() || word[i + c.len_utf8()..].starts_with(|c: char| c.is_ascii_digit()));
        match inside {
            true if shape.ends_with('#') => {}
            true => shape.push('#'),
            false => shape.push(c),
        }
    }
    shape
}

/// Number of cells in a row of a table.
fn cells(row: &str) -> usize {
    row.replace("\\|", "").matches('|').count()
}

fn fill(results: &Results, template: &str) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("fixed", |value: f64, digits: usize| minus(format!("{value:.digits$}")));
    environment.add_filter("signed", |value: f64, digits: usize| minus(format!("{value:+.digits$}")));
    environment.add_filter("short", |value: f64| minus(cotenant_model::number::short(value)));
    environment.add_function("row", row);
    let run: BTreeMap<&str, &Value> = results.iter().map(|(key, run)| (&**key, &run.gave)).collect();
    Ok(environment.render_str(template, context! { run => minijinja::Value::from(Serde(run)) })?)
}

/// The single row of an experiment of `cotenant-lab reproduce` with this label, or this beginning of it.
#[allow(clippy::needless_pass_by_value)] // as MiniJinja calls it
fn row(outcome: minijinja::Value, label: &str) -> Result<minijinja::Value, Error> {
    let labelled = |is: &dyn Fn(&str) -> bool| -> Result<Vec<minijinja::Value>, Error> {
        let labelled = |row: &minijinja::Value| row.get_attr("label").is_ok_and(|own| own.as_str().is_some_and(is));
        Ok(outcome.get_attr("rows")?.try_iter()?.filter(labelled).collect())
    };
    let mut found = labelled(&|own| own == label)?;
    if found.is_empty() {
        found = labelled(&|own| own.starts_with(label))?;
    }
    match &found[..] {
        [row] => Ok(row.clone()),
        rows => {
            let what = format!("the label of {} rows, not of one, begins with '{label}'", rows.len());
            Err(Error::new(ErrorKind::InvalidOperation, what))
        }
    }
}

/// With the sign for minus instead of a hyphen; zero has none.
fn minus(figure: String) -> String {
    let size = figure.trim_start_matches(['-', '+']);
    if !size.contains(|c: char| ('1'..='9').contains(&c)) {
        size.to_owned()
    } else if figure.starts_with('-') {
        format!("−{size}")
    } else {
        figure
    }
}

fn file(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{name}.json"))
}

fn read(root: &Path, name: &str) -> Result<Results> {
    let text = fs::read_to_string(file(root, name)).with_context(|| format!("{FOLDER}/{name}.json"))?;
    serde_json::from_str(&text).with_context(|| format!("{FOLDER}/{name}.json"))
}

/// Runs the commands of a file, all or one, and writes each result at once.
fn measure(root: &Path, name: &str) -> Result<()> {
    let (name, only) = name.split_once('/').map_or((name, None), |(name, key)| (name, Some(key)));
    let mut results = read(root, name)?;
    let keys: Vec<String> = results.keys().filter(|key| only.is_none_or(|only| only == *key)).cloned().collect();
    if keys.is_empty() {
        bail!("{FOLDER}/{name}.json has no such run; it has: {}", results.into_keys().collect::<Vec<_>>().join(", "));
    }
    for key in keys {
        let Some(run) = results.get_mut(&key) else { continue };
        eprintln!("{name}/{key}: {}", run.command);
        let printed = output(root, &run.command).with_context(|| format!("{name}/{key}"))?;
        run.gave = serde_json::from_str(&printed).with_context(|| format!("{name}/{key}: what it printed"))?;
        round(&mut run.gave);
        let mut text = String::new();
        lay_out(&serde_json::to_value(&results)?, 0, &mut text);
        fs::write(file(root, name), text + "\n")?;
    }
    Ok(())
}

fn output(root: &Path, command: &str) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("cotenant-tables-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let release = target_folder(root).join("release");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(release).chain(std::env::split_paths(&path)))?;
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", command]).current_dir(&folder).env("PATH", path);
    bash.env("MACHINES", root.join("machines")).env("XDG_DATA_HOME", &folder);
    let out = bash.output().context("bash cannot be started");
    fs::remove_dir_all(&folder)?;
    let out = out?;
    if out.status.success() {
        return Ok(String::from_utf8(out.stdout)?);
    }
    Err(anyhow!("{}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))
}

/// Leaves eight digits.
fn round(value: &mut Value) {
    match value {
        Value::Object(entries) => entries.values_mut().for_each(round),
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().and_then(|value| format!("{value:.7e}").parse().ok());
            *value = rounded.and_then(serde_json::Number::from_f64).map_or(Value::Null, Value::Number);
        }
        _ => {}
    }
}

/// JSON with one line per element if it fits, for readable diffs.
fn lay_out(value: &Value, depth: usize, out: &mut String) {
    let line = value.to_string();
    let (open, close, elements): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(entries) => {
            ('{', '}', entries.iter().map(|(key, value)| (format!("{}: ", Value::from(&**key)), value)).collect())
        }
        Value::Array(values) => ('[', ']', values.iter().map(|value| (String::new(), value)).collect()),
        _ => return out.push_str(&line),
    };
    if 2 * depth + line.len() <= COLUMNS && depth > 1 {
        return out.push_str(&line);
    }
    out.push(open);
    for (n, (key, value)) in elements.into_iter().enumerate() {
        let _ = write!(out, "{}\n{}{key}", if n > 0 { "," } else { "" }, "  ".repeat(depth + 1));
        lay_out(value, depth + 1, out);
    }
    let _ = write!(out, "\n{}{close}", "  ".repeat(depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn results(gave: Value) -> Results {
        [("all".to_owned(), Run { command: "true".to_owned(), gave })].into()
    }

    #[test]
    fn a_template_becomes_a_table() {
        let template = "| m | gain |\n|---|---|\n{% for one in run.all %}\n| {{ one.m }} | {{ one.gain | fixed(1) }} |\n{% endfor %}";
        let table = fill(&results(json!([{"m": "a", "gain": -0.04}, {"m": "b", "gain": -1.26}])), template);
        assert_eq!(
            table.map_err(|why| why.to_string()),
            Ok("| m | gain |\n|---|---|\n| a | 0.0 |\n| b | −1.3 |\n".into())
        );
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error() {
        let why = fill(&results(json!([])), "{{ run.all.nothing | fixed(1) }}").map_err(|why| format!("{why:#}"));
        assert!(why.as_ref().is_err_and(|why| why.contains("undefined")), "{why:?}");
        let [most, mean] = ["l, the most (mix 1)", "l, mean"].map(|label| json!({"label": label, "measured": 2.0}));
        let outcome = json!({"rows": [most, mean, {"label": "l, mean of others", "measured": 3.0}]});
        let of = |label: &str| fill(&results(outcome.clone()), &format!("{{{{ row(run.all, '{label}').measured }}}}"));
        assert_eq!(of("l, the most").map_err(|why| why.to_string()), Ok("2.0".to_owned()));
        assert_eq!(of("l, mean").map_err(|why| why.to_string()), Ok("2.0".to_owned()), "the label itself");
        for (label, rows) in [("m", "0 rows"), ("l, m", "2 rows")] {
            let why = of(label).map_err(|why| format!("{why:#}"));
            assert!(why.as_ref().is_err_and(|why| why.contains(rows) && why.contains(label)), "{why:?}");
        }
    }

    #[test]
    fn only_the_block_behind_a_template_changes() -> Result<()> {
        let root = std::env::temp_dir().join(format!("cotenant-tables-test-{}", std::process::id()));
        fs::create_dir_all(root.join(FOLDER))?;
        let mut json = String::new();
        lay_out(&serde_json::to_value(results(json!({"a": 1.5})))?, 0, &mut json);
        fs::write(file(&root, "some"), json)?;
        assert_eq!(without_templates(&format!("a\n{TABLE}x\n| t |\n-->\n\n| b |\n")), "a\n\n| b |\n");
        let prose = "`<!-- results: x` in prose, and <!-- results: y\n";
        assert_eq!((without_templates(prose), rendered(&root, prose)?), (prose.to_owned(), prose.to_owned()));
        let page = |block: &str| format!("# Page\n{TABLE}some\n| {{{{ run.all.a }}}} |\n-->\n\n{block}\n\nMore.\n");
        let written = rendered(&root, &page("| old |\n| table |"))?;
        assert_eq!(written, page("| 1.5 |"));
        assert_eq!(rendered(&root, &written)?, written);
        let new = page("Prose.").replace("\n\nMore.\n", "\n");
        assert_eq!(rendered(&root, &new)?, page("| 1.5 |").replace("More.", "Prose."), "a new template takes no prose");
        let open = format!("{TABLE}some\n| no end |\n");
        assert!(rendered(&root, &open).is_err_and(|why| why.to_string().contains("line 2")));
        assert!(
            rendered(&root, &page("").replace("| {{", "{{")).is_err_and(|why| why.to_string().contains("no table"))
        );
        assert!(rendered(&root, &page("").replace("some", "none")).is_err());
        let wider = |row: &str| rendered(&root, &page("").replace("}} |\n", &format!("}}}} |\n{row}\n")));
        for row in ["| {{ run.all.a }} |", r"| a \| b |"] {
            wider(row)?;
        }
        assert!(wider("| a | b |").is_err_and(|why| why.to_string().contains("other cells than its head: | a | b |")));
        fs::copy(file(&root, "some"), file(&root, "same"))?;
        assert!(
            rendered(&root, &page("").replace("some", "some same"))
                .is_err_and(|why| why.to_string().contains("a run all"))
        );
        let other = fs::read_to_string(file(&root, "some"))?.replace("\"all\"", "\"more\"").replace("1.5", "2.5");
        fs::write(file(&root, "same"), other)?;
        let both =
            rendered(&root, &page("").replace("some", "some same").replace("run.all.a", "run.all.a + run.more.a"))?;
        assert!(both.contains("\n| 4.0 |\n"), "{both}");
        fs::remove_dir_all(root)?;
        Ok(())
    }

    #[test]
    fn figures_in_prose_are_those_of_the_results() -> Result<()> {
        let root = std::env::temp_dir().join(format!("cotenant-figures-test-{}", std::process::id()));
        fs::create_dir_all(root.join(FOLDER))?;
        fs::write(file(&root, "some"), serde_json::to_string(&results(json!({"a": -1.5, "n": 12})))?)?;
        let head =
            format!("# Page\n{FIGURES}some\ngains {{{{ run.all.a | signed(1) }}}} % in {{{{ run.all.n }}}}\n-->\n");
        let page = |prose: &str| format!("{head}\n{prose}");
        let old = "It *gains +22 %\nin 3*, and\nmore.\n\n## Next\n\nIt gains 7 % in 8.\n";
        let new = old.replace("+22 %\nin 3*", "−1.5 %\nin 12*");
        assert_eq!(rendered(&root, &page(old))?, page(&new), "only in its section");
        assert_eq!(rendered(&root, &page(&new))?, page(&new));
        assert_eq!(without_templates(&page(&new)), format!("# Page\n\n{new}"));
        for (prose, places) in [("It loses.\n", "0 places"), ("It gains 1 % in 2, gains 3 % in 4.\n", "2 places")] {
            let why = rendered(&root, &page(prose)).map_err(|why| format!("{why:#}"));
            assert!(why.as_ref().is_err_and(|why| why.contains("line 3") && why.contains(places)), "{why:?}");
        }
        fs::remove_dir_all(root)?;
        Ok(())
    }

    #[test]
    fn results_keep_eight_digits() {
        let mut value = json!({"a": [1.234_567_891_2, 3], "b": {"x": 1e-9}});
        round(&mut value);
        assert_eq!(value, json!({"a": [1.234_567_9, 3], "b": {"x": 1e-9}}));
    }

    #[test]
    fn what_fits_in_a_line_has_one() {
        let (mut out, row) = (String::new(), json!({"a": 1, "b": [2]}));
        lay_out(&json!({"run": {"gave": [row, row], "more": "x".repeat(100)}}), 0, &mut out);
        assert!(out.contains("    \"gave\": [{\"a\":1,\"b\":[2]},{\"a\":1,\"b\":[2]}],\n"), "{out}");
    }
}
