//! The root of a file system that holds `sys/`, `proc/` and cpusets: the live one, or a dump of another machine.

use crate::bounded::{self, Limit};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where sysfs, `/proc` and cpusets are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRoot {
    path: PathBuf,
}

impl FsRoot {
    /// This machine.
    pub fn live() -> Self {
        Self { path: PathBuf::from("/") }
    }

    /// A folder that holds a `sys/` tree, such as hwloc's `hwloc-gather-topology` packs.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Whether it is this machine's.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Where `path`, which is written from `/`, lies. `..` is refused by every reader here, so that a dump cannot
    /// point outside.
    pub fn path(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The whole file.
    ///
    /// # Errors
    /// What the system says; `InvalidData` where it is no text, `InvalidInput` where the path climbs (`..`),
    /// `FileTooLarge`.
    pub fn read(&self, path: &str) -> io::Result<String> {
        bounded::text(self.checked(path)?, Limit::Machine)
    }

    /// The names in a folder, sorted; those that are no text are left out.
    ///
    /// # Errors
    /// What the system says.
    pub fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.checked(path)?)?;
        let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The numbers of a folder's entries that are called `prefix` and a number, ascending.
    ///
    /// # Errors
    /// What the system says.
    pub fn numbered(&self, path: &str, prefix: &str) -> io::Result<Vec<u32>> {
        let names = self.list(path)?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.checked(path).is_ok_and(|p| p.exists())
    }

    fn checked(&self, path: &str) -> io::Result<PathBuf> {
        if path.split('/').any(|part| part == "..") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_cannot_point_outside() {
        let root = FsRoot::at("/tmp/dump");
        assert_eq!(root.path("/sys/x"), Path::new("/tmp/dump/sys/x"));
        assert_eq!(root.read("/../etc/passwd").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(!root.exists("/../../etc") && root.list("/..").is_err());
        assert!(FsRoot::live().is_live() && !root.is_live());
    }
}
