//! `cargo xtask package`: Debian's packages and a tarball with a static binary, in `packages` in cargo's target folder.
//! Debian's own tools make the packages (dpkg-dev) from the descriptions in `packaging/debian`.

mod build;
mod deb;
mod files;
mod licences;
mod tarball;

use crate::commands::{done, target_folder};
use anyhow::{Context, Result, bail};
use build::Build;
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Debian's packages.
    Deb,
    /// The package cotenant alone, packed in a hurry, in `test-packages`: for scripts/test-package.
    Cotenant,
    /// A tarball with a static binary (musl).
    Tarball,
}

/// Arguments of `cargo xtask package`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Only this
    #[arg(long, value_name = "KIND")]
    only: Option<Kind>,
    /// Cargo's profile of what is packaged; another one is built faster
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,
    /// Package this program, which is there already, instead of building one
    #[arg(long, value_name = "FILE", requires = "only")]
    binary: Option<PathBuf>,
    /// Debian's revision: of packages that are made again from the same version
    #[arg(long, value_name = "N", default_value_t = 1)]
    revision: u32,
}

/// Makes the packages.
///
/// # Errors
/// A missing tool; a failed build.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    // Packages for tests do not replace those for users.
    let folder = if args.only == Some(Kind::Cotenant) { "test-packages" } else { "packages" };
    let out = made(&target_folder(root).join(folder))?;
    let binary = args.binary.as_ref().map(|path| fs::canonicalize(path).with_context(|| path.display().to_string()));
    let build = Build { root, profile: &args.profile, binary: binary.transpose()?, time: commit_time(root)? };
    let mut made = Vec::new();
    if args.only == Some(Kind::Cotenant) {
        println!("{}", deb::cotenant(&build, args.revision, &out)?.display());
        return Ok(());
    }
    if args.only != Some(Kind::Tarball) {
        made.extend(deb::all(&build, args.revision, &out)?);
    }
    if args.only != Some(Kind::Deb) {
        match tarball::missing() {
            None => made.push(tarball::make(&build, &out)?),
            Some(why) => println!("tarball: skipped: {why}"),
        }
    }
    for path in &made {
        let bytes = fs::metadata(path).with_context(|| path.display().to_string())?.len();
        println!("{:>8.1} MiB  {}", bytes as f64 / 1_048_576.0, path.display());
    }
    lint(&made)
}

/// Runs Debian's checker on the packages, if it is installed.
fn lint(made: &[PathBuf]) -> Result<()> {
    let debs: Vec<&PathBuf> = made.iter().filter(|path| path.extension().is_some_and(|e| e == "deb")).collect();
    if debs.is_empty() {
        return Ok(());
    }
    if Command::new("lintian").arg("--version").output().is_err() {
        println!("lintian: skipped: it is not there; apt-get install --no-install-recommends lintian");
        return Ok(());
    }
    let status = Command::new("lintian").args(["--allow-root", "--fail-on", "error"]).args(debs).status()?;
    if !status.success() {
        bail!("lintian finds errors in the packages");
    }
    Ok(())
}

/// Makes a folder; returns its path from the root.
fn made(folder: &Path) -> Result<PathBuf> {
    let path = fs::create_dir_all(folder).and_then(|()| fs::canonicalize(folder));
    path.with_context(|| folder.display().to_string())
}

/// Seconds since 1970 of the last commit; the present without git.
fn commit_time(root: &Path) -> Result<String> {
    let git = done(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
    Ok(git.or_else(|_| done(Command::new("date").arg("+%s")))?.trim().to_owned())
}
