//! Which file of a crate imports which, by the paths in its text. Tests and other crates are left out.
//!
//! A path counts for the file that defines its target, even if other modules re-export it.

use super::lexer::{Token, tokens};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Imports of one file from another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: PathBuf,
    pub to: PathBuf,
    /// The path that names it.
    pub path: String,
}

/// All imports within a crate; `root` is its first file, such as src/lib.rs, and `read` returns the text of files.
pub fn imports(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Result<BTreeSet<Import>> {
    let text = read(root).with_context(|| root.display().to_string())?;
    let mut krate = Crate { modules: Vec::new(), read };
    krate.add(&tokens(&text), root, root.parent().unwrap_or(root), None);
    let all = krate.modules.iter().enumerate().flat_map(|(at, from)| from.paths.iter().map(move |path| (at, path)));
    let all = all.filter_map(|(at, path)| {
        let from = krate.modules[at].file.clone();
        let to = krate.file(at, path).filter(|to| **to != from)?.clone();
        Some(Import { from, to, path: path.join("::") })
    });
    Ok(all.collect())
}

/// All modules of a crate; the first one is its root.
struct Crate<'a> {
    modules: Vec<Module>,
    read: &'a dyn Fn(&Path) -> Option<String>,
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names brought into scope by `use`, and their origins.
    used: BTreeMap<String, Vec<String>>,
    /// Modules brought into scope as a whole by `use`.
    globs: Vec<Vec<String>>,
    /// The module's own definitions.
    items: BTreeSet<String>,
    /// The paths in its code.
    paths: BTreeSet<Vec<String>>,
}

/// The target of a path.
#[derive(Clone, Copy)]
enum Found {
    Module(usize),
    /// An item of this module.
    Item(usize),
}

impl Crate<'_> {
    /// Adds a module and those below it; the files of its children are in `folder`.
    fn add(&mut self, tokens: &[Token], file: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let this = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        // A name that is only passed on is no import.
        let mut passed_on = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while at < tokens.len() {
            let is = |ahead: usize, text: &str| tokens.get(at + ahead).is_some_and(|token| token.is(text));
            if is(0, "#") && is(1, "[") {
                let end = group_end(tokens, at + 1);
                at = if only_in_tests(&tokens[at..end]) { item_end(tokens, end) } else { end };
            } else if is(0, "mod")
                && let Some(Token::Word(name)) = tokens.get(at + 1)
            {
                let end = if is(2, "{") { group_end(tokens, at + 2) } else { at + 3 };
                let child = self.add_child(&tokens[at + 2..end], name, file, folder, this);
                self.modules[this].children.extend(child.map(|child| (name.clone(), child)));
                at = end;
            } else if is(0, "use") && !is(1, "<") {
                let end = at + tokens[at..].iter().position(|token| token.is(";")).unwrap_or(tokens.len() - at);
                let is_public = at > 0 && (tokens[at - 1].is("pub") || tokens[at - 1].is(")"));
                let module = &mut self.modules[this];
                for (name, path) in use_tree(&mut tokens[at + 1..end].iter(), &[]) {
                    if name == "*" {
                        module.globs.push(path);
                        continue;
                    }
                    if is_public {
                        passed_on.push(name.clone());
                    } else {
                        module.paths.insert(path.clone());
                    }
                    module.used.insert(name, path);
                }
                at = end;
            } else if let Token::Word(word) = &tokens[at] {
                let module = &mut self.modules[this];
                if depth == 0
                    && DEFINES.contains(&&**word)
                    && let Some(Token::Word(name)) = tokens[at + 1..].iter().find(|token| !token.is("!"))
                {
                    module.items.insert(name.clone());
                }
                let (path, end) = path_at(tokens, at);
                if at == 0 || !(tokens[at - 1].is("::") || tokens[at - 1].is(".")) {
                    module.paths.insert(path);
                }
                at = end;
            } else {
                depth += i32::from(is(0, "{")) - i32::from(is(0, "}"));
                at += 1;
            }
        }
        let module = &mut self.modules[this];
        let own: Vec<_> = passed_on.iter().filter(|name| module.paths.iter().any(|path| path[0] == **name)).collect();
        let own: Vec<_> = own.into_iter().map(|name| module.used[name].clone()).collect();
        module.paths.extend(own);
        this
    }

    /// Adds a child whose body is in `tokens`, or in its own file; `None` if `#[path]` leads elsewhere.
    fn add_child(&mut self, tokens: &[Token], name: &str, file: &Path, folder: &Path, this: usize) -> Option<usize> {
        let folder = folder.join(name);
        if let [open, body @ .., _] = tokens
            && open.is("{")
        {
            return Some(self.add(body, file, &folder, Some(this)));
        }
        let mut files = [folder.with_extension("rs"), folder.join("mod.rs")].into_iter();
        let (file, text) = files.find_map(|file| (self.read)(&file).map(|text| (file, text)))?;
        Some(self.add(&self::tokens(&text), &file, &folder, Some(this)))
    }

    /// The file that a path of a module leads to; a module alone is only the beginning of other paths.
    fn file(&self, from: usize, path: &[String]) -> Option<&PathBuf> {
        match self.resolve(from, path, 0)? {
            Found::Item(at) => Some(&self.modules[at].file),
            Found::Module(_) => None,
        }
    }

    /// `None` outside of this crate.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Found> {
        let (first, mut rest) = path.split_first()?;
        let mut found = match &**first {
            "crate" => Found::Module(0),
            "self" => Found::Module(from),
            "super" => Found::Module(self.modules[from].parent?),
            name => self.member(from, name, depth)?,
        };
        while let (Found::Module(at), Some((name, after))) = (found, rest.split_first()) {
            found = match &**name {
                "super" => Found::Module(self.modules[at].parent?),
                name => self.member(at, name, depth).unwrap_or(Found::Item(at)),
            };
            rest = after;
        }
        Some(found)
    }

    /// Resolves a name in a module.
    fn member(&self, at: usize, name: &str, depth: usize) -> Option<Found> {
        let module = &self.modules[at];
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Found::Item(at));
        }
        // Modules may pass names on to each other in a circle.
        if depth > 16 {
            return None;
        }
        if let Some(path) = module.used.get(name) {
            // `use name;` names another crate.
            return (path.len() > 1).then(|| self.resolve(at, path, depth + 1)).flatten();
        }
        module.globs.iter().find_map(|path| match self.resolve(at, path, depth + 1)? {
            Found::Module(module) if module != at => self.member(module, name, depth + 1),
            _ => None,
        })
    }
}

/// Keywords before a name that the module defines.
const DEFINES: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];

/// `#[cfg(test)]`, also together with other conditions; not `#[cfg(not(test))]`.
fn only_in_tests(attribute: &[Token]) -> bool {
    let has = |word: &str| attribute.iter().any(|token| token.is(word));
    has("cfg") && has("test") && !has("not") && !has("any")
}

/// The position after the bracket that closes the one at `open`.
fn group_end(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += i32::from(["(", "[", "{"].iter().any(|sign| token.is(sign)));
        depth -= i32::from([")", "]", "}"].iter().any(|sign| token.is(sign)));
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The position after the item, field or statement that begins at `at`.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while at < tokens.len() {
        match &tokens[at] {
            Token::Sign(';' | ',') => return at + 1,
            Token::Sign('{') => return group_end(tokens, at),
            Token::Sign('(' | '[') => at = group_end(tokens, at),
            Token::Sign('}') => return at,
            _ => at += 1,
        }
    }
    at
}

/// The path that begins with the word at `at`, and its end.
fn path_at(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(Token::Word(word)) = tokens.get(at) {
        path.push(word.clone());
        at += 1;
        match (tokens.get(at), tokens.get(at + 1)) {
            (Some(Token::Path), Some(Token::Word(_))) => at += 1,
            _ => break,
        }
    }
    (path, at)
}

/// The names that a `use` brings in, each with its path; `*` for all of a module.
fn use_tree<'a>(tokens: &mut impl Iterator<Item = &'a Token>, before: &[String]) -> Vec<(String, Vec<String>)> {
    let mut leaves = Vec::new();
    let mut path = before.to_vec();
    let mut renamed = None;
    loop {
        let token = tokens.next();
        match token {
            Some(Token::Word(word)) if word == "as" => {
                if let Some(Token::Word(name)) = tokens.next() {
                    renamed = Some(name.clone());
                }
            }
            Some(Token::Word(word)) => path.push(word.clone()),
            Some(Token::Sign('*')) => path.push("*".to_owned()),
            Some(Token::Sign('{')) => {
                leaves.extend(use_tree(tokens, &path));
                before.clone_into(&mut path);
            }
            None | Some(Token::Sign(',' | '}')) => {
                let is_leaf = path.len() > before.len();
                path.pop_if(|last| last == "self");
                let last = renamed.take().or_else(|| path.last().cloned());
                path.pop_if(|last| last == "*");
                leaves.extend(last.filter(|_| is_leaf).map(|name| (name, path.clone())));
                before.clone_into(&mut path);
                if !token.is_some_and(|token| token.is(",")) {
                    return leaves;
                }
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate of these files, as `from -> to`.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let read =
            |file: &Path| files.iter().find(|(name, _)| Path::new(name) == file).map(|(_, text)| (*text).to_owned());
        let imports = imports(Path::new("lib.rs"), &read).unwrap();
        let mut arrows: Vec<String> =
            imports.iter().map(|import| format!("{} -> {}", import.from.display(), import.to.display())).collect();
        arrows.dedup();
        arrows
    }

    #[test]
    fn a_path_counts_for_the_file_that_defines_what_it_names() {
        let files = [
            ("lib.rs", "mod a; pub mod b; pub use a::Thing; use std::fmt;"),
            (
                "a/mod.rs",
                "mod deep; pub(crate) use deep::{Inner, self as below}; pub struct Thing; fn a() { deep::run() }",
            ),
            (
                "a/deep.rs",
                "use super::super::b::{one::*, Two as Other}; pub struct Inner; pub fn run(_: Other) { three() }",
            ),
            ("b/mod.rs", "pub mod one { pub fn three() {} } pub struct Two; mod c;"),
            ("b/c.rs", "fn c() -> crate::Thing { crate::a::Inner; crate::a::below::run() }"),
        ];
        assert_eq!(
            arrows(&files),
            ["a/deep.rs -> b/mod.rs", "a/mod.rs -> a/deep.rs", "b/c.rs -> a/deep.rs", "b/c.rs -> a/mod.rs"]
        );
    }

    #[test]
    fn tests_comments_and_what_is_passed_on_are_no_imports() {
        let files = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            ("a.rs", "pub use crate::b::B; // crate::b::B\n#[cfg(all(test, unix))]\nmod tests { use crate::b::B; }"),
            (
                "b.rs",
                "pub struct B; impl B { #[cfg(test)] fn a() -> crate::a::A { crate::a::A } } fn f() {} const T: &str = \"crate::a::A\";",
            ),
            ("tests.rs", "use crate::b::B;"),
        ];
        assert_eq!(arrows(&files), Vec::<String>::new());
    }
}
