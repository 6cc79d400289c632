//! `cargo xtask book`: the book, with its search.

use crate::cargo_program;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that is installed where none is there.
const VERSION: &str = "0.5.4";

/// Builds the book into `target/book`, and serves it unless it is only to be built.
///
/// # Errors
/// Where mdBook cannot be installed, or fails: it refuses a table of contents that names a page twice or one that is
/// missing.
pub fn make(root: &Path, only_build: bool) -> Result<()> {
    let mdbook = mdbook(root)?;
    let mut command = Command::new(&mdbook);
    command.current_dir(root).arg(if only_build { "build" } else { "serve" });
    if !only_build {
        println!("the book is at http://localhost:3000; Ctrl-C ends it");
    }
    let status = command.status().with_context(|| mdbook.display().to_string())?;
    if !status.success() {
        bail!("mdbook failed");
    }
    Ok(())
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
