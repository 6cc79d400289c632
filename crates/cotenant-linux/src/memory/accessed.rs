//! Accessed bits: cleared by `/proc/PID/clear_refs`, read back from `/proc/PID/smaps` (`Documentation/filesystems/proc.rst`).
//!
//! The bits are shared with everybody: who else reads `Referenced` of that process sees fewer, and the kernel takes its pages for less used
//! while memory is short. So they are cleared only of processes that a policy asks about, one at a time.

use super::{Collector, files};
use crate::FsRoot;
use cotenant_core::areas::{self, Area, ByNode};
use std::io;

/// Clears the accessed bits of all pages.
const ALL: &str = "1";

/// Scans page tables.
#[derive(Debug)]
pub struct Accessed {
    fs: FsRoot,
}

impl Accessed {
    /// # Errors
    /// Why it cannot be used here.
    pub fn new(fs: &FsRoot) -> Result<Self, String> {
        match ["clear_refs", "smaps"].into_iter().find(|file| !fs.exists(&format!("/proc/self/{file}"))) {
            None => Ok(Self { fs: fs.clone() }),
            Some(file) => Err(format!("no /proc/PID/{file}: the kernel was built without CONFIG_PROC_PAGE_MONITOR")),
        }
    }
}

impl Collector for Accessed {
    fn name(&self) -> &'static str {
        "accessed"
    }

    fn begin(&mut self, pid: u32) -> io::Result<()> {
        let file = self.fs.path(&format!("/proc/{pid}/clear_refs"));
        // Not created where it is not there, as in a dump of another machine.
        io::Write::write_all(&mut std::fs::OpenOptions::new().write(true).open(file)?, ALL.as_bytes())
    }

    fn end(&mut self, pid: u32, areas: &[Area]) -> io::Result<ByNode> {
        Ok(areas::touched(areas, &files::referenced(&self.fs, pid)?))
    }

    fn forget(&mut self, _pid: u32) {}
}
