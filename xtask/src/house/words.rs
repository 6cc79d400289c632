//! Words: the length of the book, and the frequency of dialect in comments, messages and pages.

use super::lexer;
use crate::commands::tracked;
use crate::tables;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Programs are treated as persons, or plain words are avoided. A pair is one entry with a space.
const DIALECT: [&str; 19] = [
    "who",
    "whom",
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "told",
    "dear",
    "dearer",
    "let wait",
    "lets wait",
    "let nap",
    "lets nap",
    "comes to",
    "came to",
    "takes part",
    "take part",
];

/// Nouns for people may take this pronoun.
const PEOPLE: [&str; 12] = [
    "people",
    "person",
    "user",
    "users",
    "operator",
    "operators",
    "administrator",
    "administrators",
    "author",
    "authors",
    "reader",
    "readers",
];

/// The most dialect in 1,000 words of each limited kind of text.
const LIMIT: f64 = 0.5;
const LIMITED: [&str; 3] = ["pages", "comments", "messages"];

/// A literal with fewer words is a name or a key, not a message.
const MESSAGE: usize = 3;

/// The most words of a message's sentence.
const SENTENCE: usize = 30;

/// The counted words.
#[derive(Default, Serialize)]
pub struct Words {
    /// All pages of the book; examples of code and templates of tables are left out.
    book: usize,
    /// Of those, on pages that a command writes.
    written_by_command: usize,
    /// Pages of the book over the budget, with their words; generated pages are exempt.
    long_pages: Vec<(String, usize)>,
    /// Of measurements, which are not in the book.
    measurements: usize,
    changelog_unreleased: usize,
    changelog_unreleased_lines: usize,
    promises: usize,
    /// Dialect in 1,000 words, with the words themselves.
    dialect: BTreeMap<&'static str, Dialect>,
    /// Sentences of messages that are too long, with their files.
    long_sentences: Vec<(String, String)>,
}

/// The frequency of the dialect in a kind of text.
#[derive(Serialize)]
struct Dialect {
    words: usize,
    per_thousand: f64,
    found: BTreeMap<&'static str, usize>,
}

/// Counts the words of the repository.
pub fn count(root: &Path) -> Result<Words> {
    let read = |file: &Path| {
        fs::read_to_string(root.join(file)).map_err(anyhow::Error::from).with_context(|| file.display().to_string())
    };
    let (mut book, mut written_by_command, mut long_pages, mut pages) = (0, 0, Vec::new(), String::new());
    for page in tracked(root, &["docs/*.md"])? {
        let text = read(&page)?;
        let words = words_of_page(&text);
        book += words;
        if page.starts_with(WRITTEN) {
            written_by_command += words;
            continue;
        }
        pages.push_str(&prose(&text));
        if page != Path::new("docs/SUMMARY.md") && words > PAGE_WORDS {
            long_pages.push((page.display().to_string(), words));
        }
    }
    long_pages.sort_by_key(|(_, words)| std::cmp::Reverse(*words));
    let (mut measurements, mut measured) = (0, String::new());
    for page in tracked(root, &["lab/docs/*.md"])? {
        let text = read(&page)?;
        measurements += words_of_page(&text);
        measured.push_str(&prose(&text));
    }
    let (mut comments, mut messages, mut long_sentences) = (String::new(), String::new(), Vec::new());
    for file in tracked(root, &["*.rs"])? {
        let text = read(&file)?;
        let is_test = file
            .iter()
            .any(|part| ["tests", "tests.rs", "benches", "cotenant-testing"].map(Path::new).contains(&Path::new(part)));
        let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        comments.push_str(&lexer::comments(&text));
        if !is_test {
            for message in lexer::strings(shipped).filter(|text| text.split_whitespace().count() >= MESSAGE) {
                let long = sentences(&message).filter(|sentence| words_of(sentence) > SENTENCE);
                long_sentences.extend(long.map(|sentence| (file.display().to_string(), sentence.to_owned())));
                messages.extend([&message, "\n"]);
            }
        }
    }
    let changelog = read(Path::new("CHANGELOG.md"))?;
    let unreleased = changelog.split("\n## ").find(|part| part.starts_with("Unreleased")).unwrap_or_default();
    let unreleased = unreleased.split_once('\n').map_or("", |(_, below)| below);
    let specification = read(Path::new("SPECIFICATION.md"))?;
    let promises = specification
        .lines()
        .filter(|line| line.starts_with("* `") && line.split('`').nth(2).is_some_and(|after| after.starts_with(": ")));
    Ok(Words {
        book,
        written_by_command,
        long_pages,
        measurements,
        changelog_unreleased: words_of_page(unreleased),
        changelog_unreleased_lines: unreleased.lines().filter(|line| !line.trim().is_empty()).count(),
        promises: promises.count(),
        dialect: [("comments", comments), ("messages", messages), ("pages", pages), ("measurements", measured)]
            .map(|(kind, text)| (kind, dialect(&text)))
            .into(),
        long_sentences,
    })
}

/// Pages that a command writes.
pub const WRITTEN: &str = "docs/reference/commands";

/// The most words of a page of the book.
pub const PAGE_WORDS: usize = 600;

/// Words of a page, also in its tables, but not in examples of code and in templates of tables.
pub fn words_of_page(text: &str) -> usize {
    prose(text).split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// A page without examples, templates, and the targets of links.
fn prose(text: &str) -> String {
    let mut example = false;
    let mut out = String::new();
    for line in tables::without_templates(text).lines() {
        let fence = line.trim_start().starts_with("```");
        if !fence && !example {
            let mut parts = line.split("](");
            out.push_str(parts.next().unwrap_or_default());
            parts.for_each(|part| out.push_str(part.split_once(')').map_or(part, |(_, rest)| rest)));
            out.push('\n');
        }
        example ^= fence;
    }
    out
}

/// The sentences of a message; a line ends one as well.
fn sentences(message: &str) -> impl Iterator<Item = &str> {
    message.lines().flat_map(|line| line.split(". ")).flat_map(|text| text.split("? "))
}

/// Words of a message, with holes for values, but without numbers and marks.
fn words_of(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(|c: char| c.is_alphabetic() || c == '{')).count()
}

fn dialect(text: &str) -> Dialect {
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphabetic() && c != '\'').filter(|word| !word.is_empty()).collect();
    let mut found = BTreeMap::new();
    for (at, word) in words.iter().enumerate() {
        let after_people = at > 0 && PEOPLE.contains(&words[at - 1]);
        let pair = format!("{word} {}", words.get(at + 1).unwrap_or(&""));
        let of_dialect = DIALECT.into_iter().find(|entry| entry == word || **entry == pair);
        if let Some(entry) = of_dialect.filter(|entry| *entry != "who" || !after_people) {
            *found.entry(entry).or_default() += 1;
        }
    }
    let count: usize = found.values().sum();
    Dialect { words: words.len(), per_thousand: 1000.0 * count as f64 / words.len().max(1) as f64, found }
}

impl Words {
    /// Texts with more dialect than allowed, and the words that they should not use.
    pub fn wrong(&self) -> Vec<String> {
        let wrong = |kind: &&str| {
            let Dialect { per_thousand, found, .. } = self.dialect.get(*kind)?;
            let words = found.keys().copied().collect::<Vec<_>>().join(", ");
            (*per_thousand > LIMIT).then(|| {
                format!(
                    "{kind}: {per_thousand:.2} of 1,000 words are dialect ({words}), {LIMIT} at most; write the sentences \
                     anew (`cargo xtask house --words` counts them)"
                )
            })
        };
        let long = self.long_sentences.iter().map(|(file, sentence)| {
            format!("{file}: a message's sentence has more than {SENTENCE} words, write several: {sentence}")
        });
        LIMITED.iter().filter_map(wrong).chain(long).collect()
    }

    /// Prints the counts.
    pub fn print(&self) {
        let Self { book, written_by_command, measurements, .. } = self;
        println!("words of the book: {book}, of which {written_by_command} are written by a command");
        println!("words of measurements, outside of the book: {measurements}");
        println!(
            "changelog, Unreleased: {} lines, {} words",
            self.changelog_unreleased_lines, self.changelog_unreleased
        );
        println!("promises of SPECIFICATION.md: {}", self.promises);
        println!("dialect in 1,000 words");
        for (kind, dialect) in &self.dialect {
            let mut found: Vec<_> = dialect.found.iter().collect();
            found.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let found: Vec<String> = found.iter().map(|(word, count)| format!("{word} {count}")).collect();
            println!("  {kind:<12} {:>5.2} of {:>7} words: {}", dialect.per_thousand, dialect.words, found.join(", "));
        }
        println!("sentences of messages above {SENTENCE} words: {}", self.long_sentences.len());
        println!("pages above {PAGE_WORDS} words: {}", self.long_pages.len());
        for (page, words) in &self.long_pages {
            println!("  {words:>5}  {page}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_templates_and_numbers_of_links_are_no_words() {
        let page = "# A [b c](d/e-f.md)\n\n| 1 | – | two |\n\n```sh\nnot counted\n```\nend\n";
        assert_eq!(words_of_page(page), 6);
        let templated = "a\n<!-- results: x\n| b |\n-->\n\n| c |\n";
        assert_eq!(words_of_page(templated), 2);
    }

    #[test]
    fn programs_are_not_who() {
        let found = |text: &str| dialect(text).found;
        assert_eq!(
            found("Who takes part may let wait, as told."),
            [("let wait", 1), ("takes part", 1), ("told", 1), ("who", 1)].into()
        );
        assert_eq!(found("users who wait").len(), 0);
        assert!((dialect("a b c who").per_thousand - 250.0).abs() < 1e-9);
    }

    #[test]
    fn dialect_is_limited_but_in_measurements() {
        let one_in = |words: usize| dialect(&format!("who {}", "a ".repeat(words - 1)));
        let wrong = |pages, comments, messages| {
            let limited = [("pages", pages), ("comments", comments), ("messages", messages), ("measurements", 1)];
            Words { dialect: limited.map(|(kind, words)| (kind, one_in(words))).into(), ..Words::default() }.wrong()
        };
        assert!(wrong(2_000, 2_000, 2_000).is_empty());
        assert!(wrong(1_999, 2_000, 2_000)[0].starts_with("pages: "));
        assert!(wrong(2_000, 1_999, 2_000)[0].starts_with("comments: "));
        assert!(wrong(2_000, 2_000, 1_999)[0].starts_with("messages: "));
    }

    #[test]
    fn a_message_has_short_sentences() {
        let message = format!("{}. {}\n{}", "a ".repeat(30).trim_end(), "{} ".repeat(30), "a 1 ".repeat(30));
        assert_eq!(sentences(&message).map(words_of).collect::<Vec<_>>(), [30, 30, 30]);
        let long_sentences = vec![("a.rs".to_owned(), "b c".to_owned())];
        assert!(Words { long_sentences, ..Words::default() }.wrong()[0].starts_with("a.rs: "));
    }

    #[test]
    fn comments_and_messages_are_kept_apart() {
        let source = "//! One two.\nfn a() { let b = \"three // four\"; /* five */ } // six\n";
        assert_eq!(lexer::comments(source).split_whitespace().collect::<Vec<_>>(), ["One", "two.", "five", "six"]);
        assert_eq!(lexer::strings(source).collect::<Vec<_>>(), ["three // four"]);
        assert_eq!(lexer::strings("a(\"b \\\n    c\\nd\", r#\"e\"#)").collect::<Vec<_>>(), ["b c\nd", "e"]);
    }
}
