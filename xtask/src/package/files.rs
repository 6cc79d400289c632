//! Files of packages.

use crate::commands::done;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use cotenant_cli::generated;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Content of `/usr/share/cotenant`, by its path below `packaging`.
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

/// Man pages, completions and the files for other programs, below `share`; zsh has a folder of its own for each kind
/// of package.
pub(super) fn shared(root: &Path, share: &Path, zsh: &str) -> Result<()> {
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

/// The book, which help texts and comments name as `docs`, and the measurements that it links to.
pub(super) fn book(root: &Path, doc: &Path) -> Result<()> {
    ["docs", "lab/docs"].iter().try_for_each(|folder| {
        let to = doc.join(folder);
        fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
        done(Command::new("cp").arg("--recursive").args([root.join(folder).join("."), to])).map(drop)
    })
}

/// Writes a file into a folder that is made.
pub(super) fn write(to: &Path, text: &[u8]) -> Result<()> {
    let cannot = || to.display().to_string();
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(cannot)?;
    fs::write(to, text).with_context(cannot)
}

/// Copies a file into a folder that is made.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    write(to, &fs::read(from).with_context(|| from.display().to_string())?)
}

/// Copies a file that can be executed.
pub(super) fn copy_program(from: &Path, to: &Path) -> Result<()> {
    copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).with_context(|| to.display().to_string())
}

/// An empty folder to put a package together in.
pub(super) fn stage(out: &Path, name: &str) -> Result<PathBuf> {
    let stage = out.join("stage").join(name);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| stage.display().to_string())?;
    }
    fs::create_dir_all(&stage).with_context(|| stage.display().to_string())?;
    Ok(stage)
}
