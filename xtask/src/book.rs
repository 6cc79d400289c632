//! `cargo xtask book`: the book, with its search.

use crate::commands::{cargo_program, done, target_folder};
use anyhow::{Context, Result, anyhow, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The release that is installed if none is present.
const VERSION: &str = "0.5.4";

/// Builds the book into `target/book`, and serves it unless it is only to be built.
///
/// # Errors
/// mdBook cannot be installed, or fails: it refuses a table of contents with a page twice or a missing one. A broken
/// link of the built book.
pub fn make(root: &Path, only_build: bool) -> Result<()> {
    let (mdbook, source) = (mdbook(root)?, target_folder(root).join("book-source"));
    // Pages removed from the sources must disappear from the book.
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
    }
    lay_out(root, &source)?;
    let book = target_folder(root).join("book");
    let mdbook = |verb: &str| {
        let mut command = Command::new(&mdbook);
        command.arg(verb).arg(&source).arg("--dest-dir").arg(&book);
        command
    };
    if !mdbook("build").status().context("mdbook")?.success() {
        bail!("mdbook failed");
    }
    let dead = dead_links(&fs::canonicalize(&book)?)?;
    if !dead.is_empty() {
        bail!("links of the built book lead nowhere:\n{}", dead.join("\n"));
    }
    if only_build {
        return Ok(());
    }
    println!("the book is at http://localhost:3000; Ctrl-C ends it");
    let mut serves = mdbook("serve").spawn().context("mdbook")?;
    loop {
        if let Some(status) = serves.try_wait()? {
            return if status.success() { Ok(()) } else { Err(anyhow!("mdbook failed")) };
        }
        // It checks for changes, as often as a reader would.
        thread::sleep(Duration::from_secs(1));
        lay_out(root, &source)?;
    }
}

/// The book's folder for linked files that are no pages.
const SOURCES: &str = "source";

/// The book in mdBook's form: `docs`, whose links to files elsewhere in the repository lead to copies.
fn lay_out(root: &Path, to: &Path) -> Result<()> {
    let place = |file: &Path| to.join("docs").join(file);
    update(&root.join("book.toml"), &to.join("book.toml"), None)?;
    let list = done(Command::new("git").args(["ls-files", "-co", "--exclude-standard", "docs"]).current_dir(root))?;
    for file in list.lines().map(Path::new).filter(|file| root.join(file).exists()) {
        let inside = file.strip_prefix("docs")?;
        if inside.extension().is_none_or(|e| e != "md") {
            update(&root.join(file), &place(inside), None)?;
            continue;
        }
        let text = fs::read_to_string(root.join(file)).with_context(|| file.display().to_string())?;
        let (text, linked) = inward(inside, &crate::tables::without_templates(&text));
        update(&root.join(file), &place(inside), Some(text.as_bytes()))?;
        for file in linked {
            // As text, which a browser shows for any language.
            let (from, to) = (root.join(&file), place(Path::new(SOURCES)).join(format!("{file}.txt")));
            let is_page = from.extension().is_some_and(|e| e == "md");
            let page = if is_page { Some(fs::read_to_string(&from).with_context(|| file.clone())?) } else { None };
            let page = page.map(|text| crate::tables::without_templates(&text));
            update(&from, &to, page.as_ref().map(String::as_bytes))?;
        }
    }
    Ok(())
}

/// Copies a file, or writes a text in its place, if it differs: mdBook notices changed files.
fn update(from: &Path, to: &Path, text: Option<&[u8]>) -> Result<()> {
    let text = text.map_or_else(|| fs::read(from), |text| Ok(text.to_owned()));
    let text = text.with_context(|| from.display().to_string())?;
    if fs::read(to).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::write(to, text).with_context(|| to.display().to_string())
}

/// A page whose links to files outside of `docs` lead to their copies, and these files by their path in the repository.
fn inward(page: &Path, text: &str) -> (String, BTreeSet<String>) {
    let depth = page.components().count() - 1;
    let outside = format!("]({}", "../".repeat(depth + 1));
    let mut parts = text.split(&outside);
    let (mut out, mut linked) = (parts.next().unwrap_or_default().to_owned(), BTreeSet::new());
    for part in parts {
        let (link, rest) = part.split_once(')').unwrap_or((part, ""));
        let file = link.split('#').next().unwrap_or(link);
        out.extend(["](", &"../".repeat(depth), SOURCES, "/", file, ".txt)", rest]);
        linked.insert(file.to_owned());
    }
    (out, linked)
}

/// Links of the built pages to files, or to places in pages, that are not there.
fn dead_links(book: &Path) -> Result<Vec<String>> {
    let (mut folders, mut pages) = (vec![book.to_owned()], BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "html") && path.file_name().is_some_and(|n| n != "404.html")
            {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                pages.insert(path, text);
            }
        }
    }
    let leads = |page: &Path, link: &str| {
        let (file, place) = link.split_once('#').unwrap_or((link, ""));
        let to = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
        let to = fs::canonicalize(&to).unwrap_or(to);
        match pages.get(&to) {
            Some(text) => place.is_empty() || text.contains(&format!("id=\"{place}\"")),
            None => to.exists(),
        }
    };
    let mut dead = Vec::new();
    for (page, text) in &pages {
        let links = ["href=\"", "src=\""].iter().flat_map(|kind| text.split(kind).skip(1));
        let links = links.filter_map(|rest| rest.split('"').next()).filter(|link| !link.contains(':'));
        dead.extend(links.filter(|link| !leads(page, link)).map(|link| format!("{}: {link}", page.display())));
    }
    Ok(dead)
}

/// mdBook: the one in `PATH`, else one of our own, which is installed once.
fn mdbook(root: &Path) -> Result<PathBuf> {
    if Command::new("mdbook").arg("--version").output().is_ok() {
        return Ok("mdbook".into());
    }
    let tools = root.join("target/tools");
    let ours = tools.join("bin/mdbook");
    if !ours.exists() {
        println!("mdbook is missing; installing it into {} once, which takes some minutes", tools.display());
        let mut install = Command::new(cargo_program());
        install.args(["install", "mdbook", "--version", VERSION, "--locked", "--root"]).arg(&tools);
        if !install.status()?.success() {
            bail!("mdbook cannot be installed; `cargo install mdbook --locked` says why");
        }
    }
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_copies() {
        let (text, linked) = inward(Path::new("a/b.md"), "[x](../../crates/c.rs#L3), [y](../d.md), [z](../../e.csv)");
        assert_eq!(text, "[x](../source/crates/c.rs.txt), [y](../d.md), [z](../source/e.csv.txt)");
        assert_eq!(linked.into_iter().collect::<Vec<_>>(), ["crates/c.rs", "e.csv"]);
        assert_eq!(inward(Path::new("b.md"), "[x](../c.rs)").0, "[x](source/c.rs.txt)");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let book = std::env::temp_dir().join(format!("cotenant-book-{}", std::process::id()));
        fs::create_dir_all(book.join("a")).unwrap();
        fs::write(
            book.join("a/b.html"),
            "<a href=\"../c.html#d\"> <a href=\"#e\" id=\"e\"> <a href=\"http://f/\"> <img src=\"g.png\"> <a href=\"../c.html#h\">",
        )
        .unwrap();
        fs::write(book.join("c.html"), "<h2 id=\"d\">").unwrap();
        let dead = dead_links(&fs::canonicalize(&book).unwrap()).unwrap();
        fs::remove_dir_all(&book).unwrap();
        let dead: Vec<_> = dead.iter().map(|link| link.rsplit_once("a/").unwrap().1).collect();
        assert_eq!(dead, ["b.html: ../c.html#h", "b.html: g.png"]);
    }
}
