//! `cargo xtask package`: Debian's packages and a tarball with a static binary, in `packages` in cargo's target folder.
//! Debian's own tools make the packages (dpkg-dev); what they are stands in `packaging/debian`.

mod deb;
mod licences;
mod tarball;

use crate::{cargo_program, done, target_folder};
use anyhow::{Context, Result, bail};
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use cotenant_cli::generated;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What lies in `/usr/share/cotenant`, by its path below `packaging`.
const DATA: &[&str] = &[
    "grafana/cotenant.json",
    "prometheus/cotenant.rules.yml",
    "prometheus/cotenant.scrape.yml",
    "slurm/cotenant-slurm-table",
    "slurm/cotenant-slurm-table@.service",
    "slurm/cotenant-slurm-table@.timer",
    "slurm/job_submit.lua",
    "slurm/prolog",
    "systemd/network.conf",
    "systemd/throttle.conf",
];

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

/// Where a program was built, with its debug symbols, and how.
struct Build<'a> {
    root: &'a Path,
    profile: &'a str,
    /// What is packaged, where it is not to be built.
    binary: Option<PathBuf>,
    /// Seconds since 1970 of the last commit: what is made twice from it is the same.
    time: String,
}

impl Build<'_> {
    /// Builds `cotenant` and returns its path.
    fn cotenant(&self, target: Option<&str>) -> Result<PathBuf> {
        if let Some(binary) = &self.binary {
            return Ok(binary.clone());
        }
        let folder = if self.profile == "dev" { "debug" } else { self.profile };
        let mut cargo = Command::new(cargo_program());
        cargo.args(["build", "--package", "cotenant", "--profile", self.profile]).current_dir(self.root);
        cargo.args(target.into_iter().flat_map(|target| ["--target", target]));
        // Symbols are taken out afterwards, into a file of their own.
        cargo.env(strip_variable(self.profile), "none");
        if !cargo.status().context("cargo")?.success() {
            bail!("cotenant cannot be built with the profile {}", self.profile);
        }
        Ok(target_folder(self.root).join(target.unwrap_or_default()).join(folder).join("cotenant"))
    }
}

/// Makes the packages.
///
/// # Errors
/// Where a tool is missing, or something cannot be built.
pub fn run(root: &Path, args: &Args) -> Result<()> {
    // What is only for tests does not take the place of what is for others.
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

/// Has Debian's checker look at the packages, where it is installed.
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

/// What tells cargo what it strips from the programs of a profile.
fn strip_variable(profile: &str) -> String {
    format!("CARGO_PROFILE_{}_STRIP", profile.to_uppercase())
}

/// Makes a folder; returns its path from the root.
fn made(folder: &Path) -> Result<PathBuf> {
    let path = fs::create_dir_all(folder).and_then(|()| fs::canonicalize(folder));
    path.with_context(|| folder.display().to_string())
}

/// Seconds since 1970 of the last commit; of now, where there is no git.
fn commit_time(root: &Path) -> Result<String> {
    let git = done(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
    Ok(git.or_else(|_| done(Command::new("date").arg("+%s")))?.trim().to_owned())
}

/// Man pages, completions and the files for other programs, below `share`; zsh has a folder of its own for each kind
/// of package.
fn shared(root: &Path, share: &Path, zsh: &str) -> Result<()> {
    let program = cotenant::cli::Cli::command();
    generated::man_pages(program.clone(), &share.join("man/man1"))?;
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/cotenant"),
        (Shell::Zsh, zsh),
        (Shell::Fish, "fish/vendor_completions.d/cotenant.fish"),
    ] {
        let mut text = Vec::new();
        generated::completions(program.clone(), shell, &mut text)?;
        write(&share.join(path), &text)?;
    }
    DATA.iter().try_for_each(|path| {
        let (from, to) = (root.join("packaging").join(path), share.join("cotenant").join(path));
        let is_program = fs::metadata(&from).is_ok_and(|what| what.permissions().mode() & 0o100 != 0);
        if is_program { copy_program(&from, &to) } else { copy(&from, &to) }
    })
}

/// The book, which help texts and comments name as `docs`.
fn book(root: &Path, doc: &Path) -> Result<()> {
    done(Command::new("cp").arg("--recursive").args([root.join("docs"), doc.join("docs")])).map(drop)
}

/// Writes a file into a folder that is made.
fn write(to: &Path, text: &[u8]) -> Result<()> {
    let cannot = || to.display().to_string();
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(cannot)?;
    fs::write(to, text).with_context(cannot)
}

/// Copies a file into a folder that is made.
fn copy(from: &Path, to: &Path) -> Result<()> {
    write(to, &fs::read(from).with_context(|| from.display().to_string())?)
}

/// Copies a file that can be executed.
fn copy_program(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).with_context(|| to.display().to_string())
}

/// An empty folder to put a package together in.
fn stage(out: &Path, name: &str) -> Result<PathBuf> {
    let stage = out.join("stage").join(name);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| stage.display().to_string())?;
    }
    fs::create_dir_all(&stage).with_context(|| stage.display().to_string())?;
    Ok(stage)
}
