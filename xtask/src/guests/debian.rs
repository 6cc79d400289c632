//! A guest that is Debian as it is installed: mmdebstrap makes it, with systemd, dpkg and what these need, and a
//! scenario installs our package there as a user does.

use super::initramfs::{Archive, FOLDER, LINK, PROGRAM, TEXT};
use super::parts::Parts;
use super::systemd::{FILES, LINKS};
use crate::{done, package};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What nobody reads in a guest whose memory it fills. Folders that packages share stay.
const SPARE: &[&str] = &[
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "usr/lib/udev/hwdb.d",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/share/doc",
    "usr/share/i18n",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl",
    "usr/share/zoneinfo",
    "var/cache",
    "var/lib/apt",
];

/// Makes a Debian 12 from a mirror, once; returns its root.
///
/// # Errors
/// Where mmdebstrap is missing, or the mirror does not have it.
pub fn root(folder: &Path, mirror: &str) -> Result<PathBuf> {
    let root = folder.join("debian");
    let whole = folder.join("debian-whole");
    if whole.exists() {
        return Ok(root);
    }
    if Command::new("mmdebstrap").arg("--version").output().is_err() {
        bail!("there is no mmdebstrap; apt-get install --no-install-recommends mmdebstrap");
    }
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
    }
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=essential", "--include=systemd,systemd-sysv", "bookworm"]);
    done(make.arg(&root).arg(mirror)).context("Debian 12 cannot be had")?;
    fs::write(&whole, "").with_context(|| whole.display().to_string())?;
    Ok(root)
}

/// Our package in two versions, the older one first.
///
/// # Errors
/// Where Debian's tools are missing or fail.
pub fn packages(root: &Path, folder: &Path, cotenant: &Path) -> Result<Vec<PathBuf>> {
    (1..=2).map(|revision| package::cotenant(root, &folder.join("packages"), cotenant, revision)).collect()
}

/// Adds all of it to a guest's file system.
///
/// # Errors
/// Where a file cannot be read.
pub fn add(archive: &mut Archive, parts: &Parts) -> Result<()> {
    below(archive, &parts.root, Path::new(""))?;
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    archive.add("usr/bin/spin", PROGRAM, &read(&parts.spin)?);
    archive.add("packages", FOLDER, b"");
    for (name, package) in ["old", "new"].iter().zip(&parts.packages) {
        archive.add(&format!("packages/{name}.deb"), TEXT, &read(package)?);
    }
    // After what is there by then: the last one counts.
    for (path, text) in FILES {
        archive.add(path, TEXT, text.as_bytes());
    }
    for (path, to) in LINKS {
        archive.add(path, LINK, to.as_bytes());
    }
    Ok(())
}

/// Adds what is in a folder, in the order of names.
fn below(archive: &mut Archive, root: &Path, folder: &Path) -> Result<()> {
    let cannot = || root.join(folder).display().to_string();
    let entries = fs::read_dir(root.join(folder)).with_context(cannot)?.collect::<Result<Vec<_>, _>>();
    let mut paths: Vec<PathBuf> = entries.with_context(cannot)?.iter().map(|e| folder.join(e.file_name())).collect();
    paths.sort();
    for path in paths {
        let name = path.to_str().with_context(|| format!("{}: its name is no text", path.display()))?;
        let file = root.join(&path);
        let kind = fs::symlink_metadata(&file).with_context(|| file.display().to_string())?;
        let mode = kind.permissions().mode();
        if kind.is_symlink() {
            archive.add(name, LINK, fs::read_link(&file)?.as_os_str().as_bytes());
        } else if kind.is_dir() {
            archive.add(name, mode, b"");
            if !SPARE.contains(&name) {
                below(archive, root, &path)?;
            }
        } else if kind.is_file() {
            archive.add(name, mode, &fs::read(&file).with_context(|| file.display().to_string())?);
        }
    }
    Ok(())
}
