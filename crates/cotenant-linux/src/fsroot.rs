//! The root of a file system with `sys/`, `proc/` and cpusets: the live one, or a dump of another machine.

use crate::bounded::{self, Limit};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The root for sysfs, `/proc` and cpusets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRoot {
    path: PathBuf,
}

impl FsRoot {
    /// This machine.
    pub fn live() -> Self {
        Self { path: PathBuf::from("/") }
    }

    /// A folder with a `sys/` tree, such as an archive of hwloc's `hwloc-gather-topology`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Whether it is the live machine's.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The place of `path`, which starts at `/`. Every reader here refuses `..`, so that a dump cannot point outside.
    pub fn path(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The whole file.
    ///
    /// # Errors
    /// System errors; `InvalidData` if it is not text, `InvalidInput` for paths with `..`, `FileTooLarge`.
    pub fn read(&self, path: &str) -> io::Result<String> {
        bounded::text(self.checked(path)?, Limit::Machine)
    }

    /// The names in a folder, sorted, without non-text ones.
    ///
    /// # Errors
    /// System errors.
    pub fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.checked(path)?)?;
        let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The numbers in a folder's entries named `prefix` plus a number, ascending.
    ///
    /// # Errors
    /// System errors.
    pub fn numbered(&self, path: &str, prefix: &str) -> io::Result<Vec<u32>> {
        let names = self.list(path)?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Whether a path exists.
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
