//! A guest's file system: a cpio archive in the format `newc`
//! (`Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel), uncompressed, since unpacking is
//! what an emulated CPU is slowest at.

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
#[rustfmt::skip] // one a line says no more
pub const SCENARIOS: &[(&str, &str)] = scripts![
    "topology", "static", "sam", "shapes", "pages", "near", "fetch", "far-memory", "sam-nodes", "restore", "cpusets",
    "partitions", "freezer", "hotplug", "rival", "quota", "naps", "background", "ladder", "refused", "mappings",
    "damon", "faults", "idle-pages", "counters", "single", "unit", "unit-reload", "unit-kill", "unit-state",
    "unit-rights", "unit-class", "unit-idle", "unit-upgrade", "pods", "pod-cpus",
];

pub const FOLDER: u32 = 0o040_755;
pub const PROGRAM: u32 = 0o100_755;
pub const TEXT: u32 = 0o100_644;
pub const LINK: u32 = 0o120_777;

/// Writes the archive of a guest; returns its path.
///
/// # Errors
/// Where a part cannot be read or the archive not be written.
pub fn write(guest: &Guest, parts: &Parts) -> Result<PathBuf> {
    let mut archive = Archive::default();
    for folder in ["bin", "scenarios", "proc", "sys", "dev", "run", "tmp", "root"] {
        archive.add(folder, FOLDER, b"");
    }
    for (name, path) in [("busybox", &parts.busybox), ("cotenant", &parts.cotenant), ("spin", &parts.spin)] {
        let program = fs::read(path).with_context(|| path.display().to_string())?;
        archive.add(&format!("bin/{name}"), PROGRAM, &program);
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
        contents.add(&mut archive, parts)?;
    }
    archive.add("scenarios/list", TEXT, guest.scripts().collect::<Vec<_>>().join("\n").as_bytes());
    let path = parts.folder.join(format!("{}.cpio", guest.name));
    fs::write(&path, archive.close()).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// What init and the scenarios call.
#[rustfmt::skip] // one a line says no more
const APPLETS: &[&str] = &[
    "awk", "cat", "chown", "cp", "cttyhack", "cut", "echo", "env", "grep", "head", "ip", "kill", "killall", "ln", "ls",
    "mkdir", "mount", "nproc", "pidof", "poweroff", "printf", "ps", "rm", "sed", "seq", "setsid", "sh", "sha256sum",
    "sleep", "sort", "su", "tail", "tar", "taskset", "tee", "timeout", "tr", "true", "umount", "uname", "vi", "wc",
];

/// A file system that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// A file by its path without the first slash; its folder comes before it. The content of a link is where it leads.
    pub fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            1, // links
            0, // time
            content.len() as u32,
            0, // device, major
            0, // device, minor
            0,
            0,
            name.len() as u32 + 1,
            0, // checksum: unused in this format
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn close(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_entries_and_a_trailer() {
        let mut archive = Archive::default();
        archive.add("init", PROGRAM, b"abcde");
        let bytes = archive.close();
        assert_eq!(&bytes[..22], b"07070100000001000081ed");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..124], b"abcde\0\0\0");
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
