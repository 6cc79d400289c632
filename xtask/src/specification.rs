//! `cargo xtask specification`: SPECIFICATION.md, from promises in comments directly above the tests that hold them.
//!
//! One test has the promise, as in `Promise undo/masks: Every CPU mask is given back.`; the others that hold it have
//! `Holds undo/masks.` In the comment at the top of a Rust file (`//!`), and anywhere in a script, either is about the
//! whole file.

use crate::commands::tracked;
use crate::reference::wrapped;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const PAGE: &str = "SPECIFICATION.md";
/// Limits of promises, and of words in each, for people to read them.
const PROMISES: usize = 120;
const WORDS: usize = 30;

/// Areas at the beginning of promises' names, and their headings.
const AREAS: [(&str, &str); 12] = [
    ("run", "Running programs and commands"),
    ("undo", "Doing no harm"),
    ("qos", "Keeping goals"),
    ("place", "Placing threads"),
    ("daemon", "Running as a service"),
    ("cluster", "In a cluster"),
    ("see", "Seeing the machine"),
    ("speed", "Knowing how fast programs run"),
    ("record", "Recordings and reports"),
    ("measure", "Measuring applications and machines"),
    ("sim", "Simulator and reproductions"),
    ("compile", "The compiler pass"),
];

/// A comment that names promises.
#[derive(Debug, PartialEq)]
enum Mark {
    Promise(String, String),
    Holds(Vec<String>),
}

/// A test by its path and name; without a name, the whole file.
type Holder = (String, String);

#[derive(Default)]
struct Specification {
    /// Name → sentence.
    promises: BTreeMap<String, String>,
    /// Name of a promise → tests that hold it.
    holders: BTreeMap<String, BTreeSet<Holder>>,
    wrong: Vec<String>,
}

/// Rewrites the page.
pub fn write(root: &Path) -> Result<()> {
    let specification = gathered(root)?;
    if !specification.wrong.is_empty() {
        bail!("{}", specification.wrong.join("\n"));
    }
    fs::write(root.join(PAGE), specification.page())?;
    println!("{PAGE} has {} promises", specification.promises.len());
    Ok(())
}

/// Invalid promises, and a page that differs from the comments.
pub fn wrong(root: &Path) -> Result<Vec<String>> {
    let mut specification = gathered(root)?;
    let mut wrong = std::mem::take(&mut specification.wrong);
    if !fs::read_to_string(root.join(PAGE)).is_ok_and(|there| there == specification.page()) {
        wrong.push(format!("{PAGE}: is not what the tests promise; run `cargo xtask specification`"));
    }
    Ok(wrong)
}

fn gathered(root: &Path) -> Result<Specification> {
    let mut specification = Specification::default();
    for file in tracked(root, &[])? {
        let is_page = file.extension().is_some_and(|extension| extension == "md");
        if is_page || file.starts_with("fixtures") {
            continue;
        }
        // Binary files have no comments.
        if let Ok(text) = fs::read_to_string(root.join(&file)) {
            specification.read(&file.display().to_string(), &text);
        }
    }
    specification.check();
    Ok(specification)
}

impl Specification {
    fn read(&mut self, file: &str, source: &str) {
        let lines: Vec<&str> = source.lines().collect();
        for at in 0..lines.len() {
            let Some(mark) = mark(file, &lines[at..]) else { continue };
            let Some(test) = test_below(file, &lines[at..]) else {
                self.wrong.push(format!("{file}:{}: a promise that stands above no test", at + 1));
                continue;
            };
            let names = match mark {
                Mark::Holds(names) => names,
                Mark::Promise(name, sentence) => {
                    if self.promises.insert(name.clone(), sentence).is_some() {
                        self.wrong.push(format!("{file}:{}: {name} is promised twice", at + 1));
                    }
                    vec![name]
                }
            };
            for name in names {
                self.holders.entry(name).or_default().insert((file.to_owned(), test.clone()));
            }
        }
    }

    fn check(&mut self) {
        let mut sentences = BTreeSet::new();
        for (name, sentence) in &self.promises {
            let words = sentence.split_whitespace().count();
            if words > WORDS {
                self.wrong.push(format!("{name}: {words} words, {WORDS} at most"));
            }
            if !sentence.ends_with('.') {
                self.wrong.push(format!("{name}: is not a sentence with a full stop"));
            }
            if !sentences.insert(sentence) {
                self.wrong.push(format!("{name}: says the same as another promise"));
            }
            if !AREAS.iter().any(|(area, _)| name.split('/').next() == Some(area)) {
                self.wrong.push(format!("{name}: is in none of the areas of xtask/src/specification.rs"));
            }
        }
        let unknown = self.holders.keys().filter(|name| !self.promises.contains_key(*name));
        self.wrong.extend(unknown.map(|name| format!("{name}: tests hold it, and none has its sentence")));
        if self.promises.len() > PROMISES {
            self.wrong
                .push(format!("{} promises, {PROMISES} at most; which say nearly the same?", self.promises.len()));
        }
    }

    fn page(&self) -> String {
        let mut out = "# Specification\n\nWhat Cotenant promises. Below, each promise's name leads to the tests and \
            benchmarks that hold it.\n`cargo xtask specification` writes this page from the comments above those \
            tests.\n"
            .to_owned();
        let item = |text: &str| format!("* {}\n", wrapped(text).replace('\n', "\n  "));
        for (area, title) in AREAS {
            let _ = write!(out, "\n## {title}\n\n");
            let own = self.promises.iter().filter(|(name, _)| name.split('/').next() == Some(area));
            out.extend(own.map(|(name, sentence)| item(&format!("`{name}`: {sentence}"))));
        }
        out.push_str("\n## What holds them\n\n");
        for (name, holders) in &self.holders {
            let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for (file, test) in holders {
                let tests = files.entry(file).or_default();
                if !test.is_empty() {
                    tests.push(format!("`{test}`"));
                }
            }
            let files = files.into_iter().map(|(file, tests)| {
                if tests.is_empty() { format!("`{file}`") } else { format!("`{file}`: {}", tests.join(", ")) }
            });
            out.push_str(&item(&format!("`{name}` in {}", files.collect::<Vec<_>>().join("; "))));
        }
        out
    }
}

/// The mark in the comment that begins with the first of these lines.
fn mark(file: &str, lines: &[&str]) -> Option<Mark> {
    let first = comment(file, lines.first()?)?;
    if let Some(names) = first.strip_prefix("Holds ") {
        let names: Vec<String> = names.trim_end_matches('.').split(", ").map(str::to_owned).collect();
        return names.iter().all(|name| is_name(name)).then_some(Mark::Holds(names));
    }
    let (name, begin) = first.strip_prefix("Promise ")?.split_once(':')?;
    let mut sentence = begin.trim().to_owned();
    for line in &lines[1..] {
        match comment(file, line) {
            Some(more) if !sentence.ends_with('.') => sentence = format!("{sentence} {more}"),
            _ => break,
        }
    }
    is_name(name).then(|| Mark::Promise(name.to_owned(), sentence))
}

fn is_name(text: &str) -> bool {
    let is_word = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || "-_".contains(c) || c.is_ascii_digit())
    };
    text.split_once('/').is_some_and(|(area, name)| is_word(area) && is_word(name))
}

fn extension(file: &str) -> &str {
    Path::new(file).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// The words of a line that is a comment in the language of its file.
fn comment<'a>(file: &str, line: &'a str) -> Option<&'a str> {
    let signs: &[&str] = match extension(file) {
        "rs" => &["///", "//!"],
        "go" | "c" | "cpp" => &["//"],
        "ll" => &[";"],
        "py" | "sh" | "" => &["#"],
        _ => &[],
    };
    signs.iter().find_map(|sign| line.trim_start().strip_prefix(sign)).map(str::trim)
}

/// The test below the first line; an empty name for the whole file.
fn test_below(file: &str, lines: &[&str]) -> Option<String> {
    let (definition, begin) = match extension(file) {
        "rs" if lines[0].starts_with("//!") => return Some(String::new()),
        "rs" => ("fn ", ""),
        "go" => ("func ", "Test"),
        "py" => ("def ", "test_"),
        _ => return Some(String::new()),
    };
    let mut is_test = extension(file) != "rs";
    let mut attribute = false;
    for line in lines.iter().map(|line| line.trim()).filter(|line| comment(file, line).is_none()) {
        is_test |= line == "#[test]";
        attribute |= line.starts_with("#[") || line.starts_with('@');
        if attribute {
            attribute = extension(file) == "rs" && !line.ends_with(']');
            continue;
        }
        let name = line.strip_prefix(definition)?.split(['(', '<']).next()?;
        return (is_test && name.starts_with(begin)).then(|| name.to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::done;
    use cotenant_testing::TempDir;
    use std::process::Command;

    fn of(file: &str, text: &str) -> Specification {
        let mut specification = Specification::default();
        specification.read(file, text);
        specification.check();
        specification
    }

    #[test]
    fn promises_stand_with_all_that_hold_them() {
        let mut specification = Specification::default();
        let rust =
            "//! Holds run/a.\n\n/// Why.\n/// Promise run/a: One\n/// two.\n#[test]\n#[cfg(\n  unix\n)]\nfn b() {\n";
        specification.read("a.rs", rust);
        specification.read("b_test.go", "// Holds run/a, run/c.\nfunc TestB(t *testing.T) {\n");
        specification.read("test_c.py", "# Promise run/c: Three.\n@pytest.mark.slow\ndef test_c():\n");
        specification.read("d.sh", "#!/bin/sh\n# Holds run/c.\nfalse\n");
        specification.check();
        assert_eq!(specification.wrong, [""; 0]);
        let page = specification.page();
        let found = |part: &str| assert!(page.contains(part), "no {part:?} in {page}");
        found("\n* `run/a`: One two.\n* `run/c`: Three.\n");
        found("\n* `run/a` in `a.rs`: `b`; `b_test.go`: `TestB`\n");
        found("\n* `run/c` in `b_test.go`: `TestB`; `d.sh`; `test_c.py`: `test_c`\n");
    }

    #[test]
    fn a_page_that_differs_from_the_comments_is_named() {
        let root = TempDir::new("specification");
        done(Command::new("git").args(["init", "--quiet"]).current_dir(root.path())).unwrap();
        let promise = |sentence: &str| {
            let source = format!("/// Promise run/a: {sentence}\n#[test]\nfn a() {{}}\n");
            fs::write(root.path().join("a.rs"), source).unwrap();
        };
        promise("One.");
        write(root.path()).unwrap();
        assert_eq!(wrong(root.path()).unwrap(), [""; 0]);
        promise("Two.");
        assert!(wrong(root.path()).unwrap()[0].contains("run `cargo xtask specification`"));
        promise("Three");
        assert!(write(root.path()).is_err());
        assert!(fs::read_to_string(root.path().join(PAGE)).unwrap().contains("One."));
    }

    #[test]
    fn other_comments_promise_nothing() {
        let others = "/// Promise me: nothing.\n/// Holds the lock.\n// Holds run/a.\n# Holds run/a.\nfn a() {}\n";
        let specification = of("a.rs", others);
        assert_eq!((specification.promises.len(), specification.holders.len(), specification.wrong.len()), (0, 0, 0));
    }

    #[test]
    fn what_cannot_stand_is_said() {
        let wrong = |text: &str| of("a.rs", text).wrong.join("\n");
        let test = |comments: &str| wrong(&format!("{comments}\n#[test]\nfn a() {{}}\n"));
        let long = format!("/// Promise run/a: {}end.", "word ".repeat(30));
        assert_eq!(test(&long), "run/a: 31 words, 30 at most");
        assert_eq!(test(&long.replacen("word ", "", 1)), "");
        assert_eq!(test("/// Promise run/a: No end"), "run/a: is not a sentence with a full stop");
        assert_eq!(test("/// Promise run/a: A.\n/// Promise run/a: B."), "a.rs:2: run/a is promised twice");
        assert_eq!(test("/// Promise run/a: A.\n/// Promise run/b: A."), "run/b: says the same as another promise");
        assert!(test("/// Promise sun/a: A.").starts_with("sun/a: is in none of the areas"));
        assert_eq!(test("/// Holds run/a."), "run/a: tests hold it, and none has its sentence");
        assert_eq!(wrong("/// Holds run/a.\nfn a() {}\n"), "a.rs:1: a promise that stands above no test");
        let many = (0..121).fold(String::new(), |all, n| all + &format!("/// Promise run/a{n}: Sentence {n}.\n"));
        assert!(test(many.trim_end()).starts_with("121 promises, 120 at most"));
    }
}
