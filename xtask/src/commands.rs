//! Programs that chores run, and cargo's target folder.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs cargo in the repository.
pub fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    let status = Command::new(cargo_program()).args(args).envs(env.iter().copied()).current_dir(root).status()?;
    if !status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

/// Cargo's target folder.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs a command to its end; returns its output.
pub fn done(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| format!("{name} cannot be started"))?;
    if !out.status.success() {
        bail!("{name}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Files of the repository that match git's patterns, or all files; untracked ones included, deleted ones not.
pub fn tracked(root: &Path, patterns: &[&str]) -> Result<Vec<PathBuf>> {
    let list = ["ls-files", "-co", "--exclude-standard"].iter().chain(patterns);
    let list = done(Command::new("git").args(list).current_dir(root))?;
    Ok(list.lines().map(PathBuf::from).filter(|file| root.join(file).exists()).collect())
}

/// Cargo: the one that runs this.
pub fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
