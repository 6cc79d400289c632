//! Checks beyond those of the compiler and clippy.

use crate::commands::tracked;
use crate::house::words;
use crate::tables;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Marks of unfinished work, split so that this file does not carry them.
const UNFINISHED: &[&str] =
    &[concat!("to", "do!("), concat!("unimple", "mented!("), concat!("FIX", "ME"), concat!("#[ig", "nore")];

/// Runs every check and fails with the list of problems.
pub fn check(root: &Path) -> Result<()> {
    let files = tracked(root, &[])?;
    let longer = fs::read_to_string(root.join(LONGER)).context(LONGER)?;
    let mut wrong = Vec::new();
    for file in &files {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        let name = file.display();
        match file.extension().and_then(|e| e.to_str()) {
            Some("rs") => {
                let unfinished = UNFINISHED.iter().filter(|m| text.contains(**m));
                wrong.extend(unfinished.map(|m| format!("{name}: contains '{m}'; finish it or leave it out")));
                wrong.extend(wide_lines(file, &text));
                wrong.extend(embedded_from_outside(file, &text));
                wrong.extend(asks_past_the_door(file, &text));
                wrong.extend(unread_as_empty(file, &text));
            }
            Some("md") => {
                wrong.extend(broken_links(root, file, &text));
                wrong.extend(wide_lines(file, &text));
                wrong.extend(long_page(file, &text, &longer));
            }
            Some("toml") if file.starts_with("machines") && !text.contains("source") => {
                wrong.push(format!("{name}: no source; say where its figures come from"));
            }
            _ => {}
        }
    }
    wrong.extend(pages_left_out(root, &files)?);
    wrong.extend(words::count(root)?.wrong());
    wrong.extend(crate::reference::wrong(root));
    wrong.extend(crate::specification::wrong(root)?);
    wrong.extend(crate::pictures::wrong(root));
    wrong.extend(tables::wrong(root)?);
    wrong.extend(undocumented_dependencies(root)?);
    wrong.extend(unknown_tests(root, &files)?);
    let circles = crate::house::circles(root)?;
    wrong.extend(other_circles(&circles, &fs::read_to_string(root.join("ARCHITECTURE.md"))?));
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("tidy found {} problem(s):\n{}", wrong.len(), wrong.join("\n"))
}

/// Files embedded by a program must be in its package: `cargo install` does not find others. Tests and unshipped
/// programs may embed from anywhere.
fn embedded_from_outside(file: &Path, text: &str) -> Vec<String> {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let ["crates", package, "src", inside @ ..] = &parts[..] else { return Vec::new() };
    if *package == "cotenant-fuzz" || inside.contains(&"tests") || inside.contains(&"tests.rs") {
        return Vec::new();
    }
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    ["include_str!(", "include_bytes!("]
        .iter()
        .flat_map(|call| shipped.split(call).skip(1).zip(shipped.split(call)))
        .filter(|(_, before)| !before.ends_with("#[doc = "))
        .map(|(after, _)| after.trim_start_matches("concat!(").trim_start_matches('"'))
        .filter(|path| path.matches("../").count() > inside.len())
        .map(|path| {
            let path = path.split('"').next().unwrap_or_default();
            format!("{}: embeds '{path}' from outside of its package; link to it beside src", file.display())
        })
        .collect()
}

/// Files of a process for which the kernel takes the lock of its address space, or the one of execution.
const LOCKED: [&str; 15] = [
    "environ",
    "cmdline",
    "maps",
    "numa_maps",
    "smaps",
    "smaps_rollup",
    "pagemap",
    "clear_refs",
    "io",
    "auxv",
    "mem",
    "map_files",
    "stack",
    "syscall",
    "personality",
];

/// Queries that a program can delay belong in one place, which never waits long. Tests may wait.
fn asks_past_the_door(file: &Path, text: &str) -> Vec<String> {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let ["crates", package, "src", inside @ ..] = &parts[..] else { return Vec::new() };
    let is_door = *package == "cotenant-linux" && inside == ["address_space.rs"];
    if is_door || *package == "cotenant-testing" || inside.contains(&"tests") || inside.contains(&"tests.rs") {
        return Vec::new();
    }
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let opens = |name: &str| {
        let opened = format!("\"{name}\")");
        let opens = |line: &str| line.contains("open_file") && line.contains(&opened);
        !shipped.contains("address_space::ask") && shipped.lines().any(opens)
    };
    // A stranger's file may lie where a program has to be asked that never answers.
    let looks = shipped.lines().any(|line| line.contains("metadata(") && line.contains("}/exe\""));
    let asked = LOCKED.iter().filter(|name| shipped.contains(&format!("}}/{name}\"")) || opens(name));
    let asked = asked.chain(looks.then_some(&"exe"));
    let asked = asked.copied().chain(shipped.contains("mempolicy::move_pages").then_some("move_pages"));
    asked.map(|what| format!("{}: asks for {what} of a process; do it through address_space", file.display())).collect()
}

/// Functions that read a file or list a folder.
const READS: [&str; 10] = [
    "bounded::text(",
    "bounded::read(",
    "bounded::rest(",
    "bounded::rest_text(",
    "bounded::named_text(",
    "fs::read_to_string(",
    "fs::read_dir(",
    "fs.read(",
    "fs.list(",
    "fs.numbered(",
];

/// What makes nothing of an error.
const EMPTY: [&str; 6] = [
    ".unwrap_or_default()",
    ".unwrap_or(vec![])",
    ".unwrap_or(Vec::new())",
    ".unwrap_or(String::new())",
    ".into_iter().flatten()",
    ".ok().into_iter().flatten()",
];

/// An unreadable file is not an empty one. Clippy finds unused results; this finds their conversions. Tests may expect
/// to read; topology readers report what they could not read.
fn unread_as_empty(file: &Path, text: &str) -> Vec<String> {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let ["crates", package, "src", inside @ ..] = &parts[..] else { return Vec::new() };
    if ["cotenant-testing", "cotenant-fuzz"].contains(package)
        || inside.starts_with(&["sense", "topology"])
        || inside.contains(&"tests")
        || inside.contains(&"tests.rs")
    {
        return Vec::new();
    }
    let shipped: String =
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().split_whitespace().collect();
    let ends = |after: &str| {
        let close = after.char_indices().scan(1, |depth, (at, c)| {
            *depth += i32::from(c == '(') - i32::from(c == ')');
            Some((at, *depth))
        });
        close.skip_while(|(_, depth)| *depth > 0).map(|(at, _)| after[at + 1..].to_owned()).next()
    };
    let is_empty =
        |rest: String| EMPTY.iter().any(|empty| rest.strip_prefix(".ok()").unwrap_or(&rest).starts_with(empty));
    let found = READS.iter().flat_map(|read| shipped.split(read).skip(1).map(move |after| (read, after)));
    let found = found.filter(|(_, after)| ends(after).is_some_and(is_empty));
    found
        .map(|(read, _)| {
            format!("{}: an error of {read}…) is taken as nothing there; say what it means", file.display())
        })
        .collect()
}

/// Links to files of the repository, or to headings of pages, that are not there.
fn broken_links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let leads = |link: &str| {
        let (to, heading) = link.split_once('#').unwrap_or((link, ""));
        let to = if to.is_empty() { root.join(file) } else { root.join(file).with_file_name(to) };
        let is_page = to.extension().is_some_and(|e| e == "md");
        to.exists()
            && (heading.is_empty()
                || !is_page
                || anchors(&fs::read_to_string(to).unwrap_or_default()).contains(heading))
    };
    text.match_indices("](")
        .filter_map(|(at, _)| text[at + 2..].split(')').next())
        .filter(|link| !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:") && !link.contains(' '))
        .filter(|link| !leads(link))
        .map(|link| format!("{}: the link to '{link}' leads nowhere", file.display()))
        .collect()
}

/// The anchors of a page's headings in links by GitHub and mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut example) = (BTreeSet::new(), false);
    for line in text.lines() {
        example ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        let Some(title) = title.strip_prefix(' ').filter(|_| !example && title.len() < line.len()) else { continue };
        // Of a link its words count.
        let words = title
            .split("](")
            .enumerate()
            .filter_map(|(n, part)| if n == 0 { Some(part) } else { part.split_once(')').map(|(_, rest)| rest) });
        let kept = words.flat_map(str::chars).filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        let anchor: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// Pages of the book that are longer than the budget, each with the most words that it may have. A limit only shrinks.
const LONGER: &str = "xtask/src/tidy/longer.txt";

/// A page of the book that has more words than it may, or a limit that it does not need.
fn long_page(file: &Path, text: &str, longer: &str) -> Option<String> {
    let exempt = file == Path::new("docs/SUMMARY.md") || file.starts_with(words::WRITTEN);
    if !file.starts_with("docs") || exempt {
        return None;
    }
    let name = file.display().to_string();
    let listed = longer.lines().find_map(|line| line.strip_prefix(&*name)?.trim().parse().ok());
    let (count, limit) = (words::words_of_page(text), listed.unwrap_or(words::PAGE_WORDS));
    if count > limit {
        return Some(format!("{name}: {count} words, {limit} at most; what can go, or stand on its own?"));
    }
    let needless = listed.is_some() && count <= words::PAGE_WORDS;
    needless.then(|| format!("{name}: {count} words need no limit; take it out of {LONGER}"))
}

/// Lines of prose, in pages and comments, that are wider than 120 columns. Tables, phrases with figures and examples
/// are as wide as they have to be, and so are the pages that `--help` writes.
fn wide_lines(file: &Path, text: &str) -> Vec<String> {
    if file.starts_with("docs/reference/commands") {
        return Vec::new();
    }
    let code = file.extension().is_some_and(|e| e == "rs");
    let (mut example, mut phrases) = (false, false);
    text.lines()
        .enumerate()
        .filter(|(_, line)| {
            let words = line.trim_start();
            let comment = words.starts_with("//");
            let words = words.trim_start_matches(['/', '!']).trim_start();
            let fence = words.starts_with("```") && comment == code;
            example ^= fence;
            phrases = !code && (phrases && words != "-->" || words.starts_with("<!-- figures: "));
            let prose =
                comment == code && !fence && !example && !phrases && !words.starts_with('|') && words.contains(' ');
            prose && line.chars().count() > 120
        })
        .map(|(n, _)| format!("{}:{}: wider than 120 columns", file.display(), n + 1))
        .collect()
}

/// Pages missing in their table of contents: of the book, and of measurements.
fn pages_left_out(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for (folder, contents) in [("docs", "docs/SUMMARY.md"), ("lab/docs", "lab/docs/README.md")] {
        let text = fs::read_to_string(root.join(contents)).context(contents)?;
        let pages = files.iter().filter(|file| *file != Path::new(contents));
        let pages = pages
            .filter_map(|file| file.strip_prefix(folder).ok())
            .filter(|page| page.extension() == Some("md".as_ref()));
        let unnamed = pages.filter(|page| !text.contains(&format!("]({})", page.display())));
        missing.extend(unnamed.map(|page| format!("{contents}: the page '{}' is missing", page.display())));
    }
    Ok(missing)
}

/// Every dependency has a line in CONTRIBUTING.md with its reason.
fn undocumented_dependencies(root: &Path) -> Result<Vec<String>> {
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let why = fs::read_to_string(root.join("CONTRIBUTING.md"))?;
    let dependencies = manifest["workspace"]["dependencies"].as_table().context("workspace.dependencies is a table")?;
    Ok(dependencies
        .keys()
        .filter(|name| !name.starts_with("cotenant") && !why.contains(&format!("`{name}`")))
        .map(|name| format!("CONTRIBUTING.md: no line says why '{name}' is a dependency"))
        .collect())
}

/// Tests and benchmarks that the promises name, as `several_words_with_underscores`, and that no source file defines
/// or is.
fn unknown_tests(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let rust = files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs"));
    let sources: Vec<String> = rust.filter_map(|f| fs::read_to_string(root.join(f)).ok()).collect();
    let mut wrong = Vec::new();
    for document in ["ARCHITECTURE.md", "lab/docs/departures.md", "lab/docs/threats-tests.md"] {
        let text = fs::read_to_string(root.join(document))?;
        let quoted = text.split('`').skip(1).step_by(2);
        let is_test = |name: &&str| {
            name.matches('_').count() >= 2
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let missing = quoted.filter(is_test).filter(|name| {
            let definition = format!("fn {name}(");
            let is_file = files.iter().any(|f| f.file_stem().is_some_and(|stem| stem == *name));
            !is_file && !sources.iter().any(|source| source.contains(&definition))
        });
        wrong.extend(missing.map(|name| format!("{document}: there is no test or benchmark `{name}`")));
    }
    Ok(wrong)
}

/// Files that import each other without being listed as a pair, and pairs of the list that do not.
fn other_circles(circles: &[BTreeSet<String>], architecture: &str) -> Vec<String> {
    let section = architecture.split("### Files that import each other").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let listed: BTreeSet<BTreeSet<&str>> =
        cells.map(|cell| cell.split('`').step_by(2).filter(|file| file.contains('/')).collect()).collect();
    let found: BTreeSet<BTreeSet<&str>> =
        circles.iter().map(|circle| circle.iter().map(String::as_str).collect()).collect();
    let names = |circle: &BTreeSet<&str>| circle.iter().copied().collect::<Vec<_>>().join(", ");
    let unlisted = found.difference(&listed).map(|circle| {
        format!("{}: import each other; move what they share into a file below them (cargo xtask house)", names(circle))
    });
    let gone =
        listed.difference(&found).map(|circle| format!("ARCHITECTURE.md: {} do not import each other", names(circle)));
    let large = listed.iter().filter(|circle| circle.len() > 2);
    let large = large.map(|circle| format!("ARCHITECTURE.md: {}: only two files may be one thing", names(circle)));
    unlisted.chain(gone).chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_those_of_the_list() {
        let list = "# A\n### Files that import each other\n\n| pair | one thing |\n|---|---|\n\
            | `a/b.rs`, `a/c.rs` | b | `x` |\n\n## Invariants\n| `a/d.rs`, `a/e.rs` | no list |\n";
        let circle = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<BTreeSet<_>>();
        let wrong =
            |circles: &[&[&str]]| other_circles(&circles.iter().map(|files| circle(files)).collect::<Vec<_>>(), list);
        assert_eq!(wrong(&[&["a/b.rs", "a/c.rs"]]), Vec::<String>::new());
        assert_eq!(wrong(&[]), ["ARCHITECTURE.md: a/b.rs, a/c.rs do not import each other"]);
        let unlisted = wrong(&[&["a/b.rs", "a/c.rs"], &["a/d.rs", "a/e.rs"]]);
        assert_eq!(unlisted.len(), 1);
        assert!(unlisted[0].starts_with("a/d.rs, a/e.rs: import each other"), "{unlisted:?}");
        let large = other_circles(
            &[circle(&["a/b", "a/c", "a/d"])],
            &list.replace("`a/b.rs`, `a/c.rs`", "`a/b`, `a/c`, `a/d`"),
        );
        assert_eq!(large, ["ARCHITECTURE.md: a/b, a/c, a/d: only two files may be one thing"]);
    }

    #[test]
    fn headings_are_called_as_in_the_book() {
        let page =
            "# A *b*: `c_d`, [e](f.md#g)\n```sh\n# no heading\n```\n## Über 3.5 — x\n## Again\n## Again\n#hash\n";
        assert_eq!(anchors(page), ["a-b-c_d-e", "again", "again-1", "über-35--x"].map(str::to_owned).into());
    }

    #[test]
    fn a_page_keeps_its_budget_or_its_limit() {
        let wrong = |count: usize, longer: &str| long_page(Path::new("docs/a.md"), &"word ".repeat(count), longer);
        assert_eq!(wrong(600, ""), None);
        assert!(wrong(601, "").is_some());
        assert_eq!(wrong(700, "docs/a.md 700\n"), None);
        assert!(wrong(701, "docs/a.md 700\n").is_some());
        assert!(wrong(600, "docs/b.md 9\ndocs/a.md 700\n").is_some());
        assert_eq!(long_page(Path::new("docs/reference/commands/a.md"), &"word ".repeat(601), ""), None);
        assert_eq!(long_page(Path::new("lab/docs/a.md"), &"word ".repeat(601), ""), None);
    }

    /// Holds undo/pauses.
    #[test]
    fn asking_past_the_door_is_found() {
        let wrong = |file: &str, text: &str| asks_past_the_door(Path::new(file), text).len();
        let past = "fs::read(format!(\"/proc/{pid}/environ\")); use crate::sys::mempolicy::move_pages;";
        assert_eq!(wrong("crates/cotenant-linux/src/sense/a.rs", past), 2);
        assert_eq!(wrong("crates/cotenant-linux/src/address_space.rs", past), 0);
        assert_eq!(wrong("crates/cotenant-linux/src/sense/memory/tests.rs", past), 0);
        assert_eq!(wrong("crates/a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{\n{past}}}")), 0);
        assert_eq!(wrong("crates/a/src/b.rs", "format!(\"/proc/{pid}/stat\")"), 0);
        let opened =
            "process.open_file_of_all(\"io\")?.read_at(&mut buffer, 0)?;\nfs::metadata(format!(\"/proc/{pid}/exe\"))";
        assert_eq!(wrong("crates/a/src/b.rs", opened), 2);
    }

    #[test]
    fn taking_an_error_for_an_empty_file_is_found() {
        let wrong = |file: &str, text: &str| unread_as_empty(Path::new(file), text).len();
        let file = "crates/cotenant-linux/src/sense/a.rs";
        for empty in [
            "bounded::text(path.join(\"x\"), Limit::Ids).unwrap_or_default()",
            "bounded::text(path, Limit::Ids)\n    .ok()\n    .unwrap_or_default()",
            "fs::read_dir(\"/proc\").into_iter().flatten()",
            "self.fs.list(folder).unwrap_or(vec![])",
        ] {
            assert_eq!(wrong(file, empty), 1, "{empty}");
            assert_eq!(wrong("crates/cotenant-linux/tests/all/a.rs", empty), 0);
            assert_eq!(wrong(file, &format!("#[cfg(test)]\nmod tests {{\n{empty}}}")), 0);
        }
        let says = "bounded::text(path, l).is_ok_and(|text| text.split(' ').next().unwrap_or_default() == \"max\")";
        assert_eq!(wrong(file, says), 0);
    }

    #[test]
    fn what_is_embedded_from_outside_is_found() {
        let wrong = |file: &str, text: &str| embedded_from_outside(Path::new(file), text).len();
        let far = "let a = include_str!(\"../../../machines/a.toml\");";
        assert_eq!(wrong("crates/a/src/b/c.rs", far), 1);
        assert_eq!(wrong("crates/a/src/lib.rs", "include_str!(concat!(\"../../machines/\", $name))"), 1);
        assert_eq!(wrong("crates/a/src/b/c/d.rs", far), 0, "that is beside src");
        assert_eq!(wrong("crates/a/src/b/tests.rs", far), 0);
        assert_eq!(wrong("crates/a/tests/b.rs", far), 0);
        assert_eq!(wrong("crates/a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{\n{far}}}")), 0);
        assert_eq!(wrong("crates/a/src/b.rs", "#[doc = include_str!(\"../../../docs/a.md\")]"), 0);
    }
}
