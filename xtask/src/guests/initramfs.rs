//! A guest's file system: a cpio archive in the format `newc`
//! (`Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel), uncompressed, since unpacking is
//! what an emulated CPU is slowest at.

use super::archive::{Archive, FOLDER, LINK, PROGRAM, TEXT};
use super::contents;
use super::machine::Guest;
use super::parts::Parts;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// Scenarios with their scripts.
macro_rules! scripts {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("scenarios/", $name, ".sh")))),*]
    };
}

/// Every scenario with its script.
#[rustfmt::skip] // a line per item would add nothing
pub const SCENARIOS: &[(&str, &str)] = scripts![
    "topology", "static", "sam", "shapes", "balancing", "pages", "near", "fetch", "far-memory", "sam-nodes", "restore",
    "cpusets", "partitions", "freezer", "hotplug", "rival", "quota", "naps", "background", "ladder", "refused",
    "mappings", "damon", "numa-balancing", "faults", "idle-pages", "counters", "single", "unit", "unit-reload",
    "unit-kill", "unit-state", "unit-rights", "unit-class", "unit-idle", "unit-level", "unit-upgrade", "pods",
    "pod-cpus", "newest", "pressure", "waits",
];

/// Writes the archive of a guest; returns its path.
///
/// # Errors
/// A part cannot be read or the archive cannot be written.
pub fn write(guest: &Guest, parts: &Parts) -> Result<PathBuf> {
    let mut archive = Archive::default();
    for folder in ["bin", "scenarios", "proc", "sys", "dev", "run", "tmp", "root"] {
        archive.add(folder, FOLDER, b"");
    }
    for (name, path) in
        [("busybox", &parts.busybox)].into_iter().chain(parts.programs.iter().map(|(n, path)| (*n, path)))
    {
        let program = fs::read(path).with_context(|| path.display().to_string())?;
        archive.add(&format!("bin/{name}"), PROGRAM, &program);
    }
    for path in &parts.libraries {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        for folder in contents::above(name) {
            archive.add(folder, FOLDER, b"");
        }
        archive.add(name, PROGRAM, &fs::read(path).with_context(|| path.display().to_string())?);
    }
    for applet in APPLETS {
        archive.add(&format!("bin/{applet}"), LINK, b"busybox");
    }
    archive.add("init", PROGRAM, include_bytes!("scenarios/init.sh"));
    archive.add("scenarios/lib.sh", TEXT, include_bytes!("scenarios/lib.sh"));
    for (name, script) in SCENARIOS {
        archive.add(&format!("scenarios/{name}.sh"), TEXT, script.as_bytes());
    }
    if let Some(contents) = guest.system.contents() {
        contents.add(&mut archive, &parts.packages, &parts.built)?;
    }
    archive.add("scenarios/list", TEXT, guest.scripts().collect::<Vec<_>>().join("\n").as_bytes());
    let path = parts.folder.join(format!("{}.cpio", guest.name));
    fs::write(&path, archive.close()).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The programs of init and the scenarios.
#[rustfmt::skip] // a line per item would add nothing
const APPLETS: &[&str] = &[
    "awk", "cat", "chown", "cp", "cttyhack", "cut", "echo", "env", "grep", "head", "ip", "kill", "killall", "ln", "ls",
    "mkdir", "mount", "nproc", "pidof", "poweroff", "printf", "ps", "rm", "sed", "seq", "setsid", "sh", "sha256sum",
    "sleep", "sort", "su", "tail", "tar", "taskset", "tee", "timeout", "tr", "true", "umount", "uname", "vi", "wc",
];
