//! Accessed bits: cleared by `/proc/PID/clear_refs`, read back from `/proc/PID/smaps`
//! (`Documentation/filesystems/proc.rst`); for large processes those of random pages, if the kernel allows single pages
//! ([`IdlePages`]).
//!
//! Whole address spaces cannot be sampled: `clear_refs` has no range, `smaps` walks all pages of a mapping and all
//! mappings before it, and neither `pagemap` nor its scan has accessed bits.
//!
//! The bits are shared: other readers of `Referenced` see fewer accesses, and under memory pressure the kernel
//! underestimates the use of pages. So they are only cleared for processes that a policy needs, one at a time.

use super::collector::{Collector, Found, Watched, resident};
use super::idle::{IdlePages, Marked};
use super::page_samples::LARGE;
use super::{files, page_samples};
use crate::FsRoot;
use crate::address_space::{self, What};
use cotenant_model::areas;
use std::collections::HashMap;
use std::io;

/// Clears the accessed bits of all pages.
const ALL: &str = "1";

/// Scans page tables, or random pages.
#[derive(Debug)]
pub struct Accessed {
    fs: FsRoot,
    /// For large processes; or the obstacle.
    idle: Result<IdlePages, String>,
    /// Processes sampled by random pages.
    marked: HashMap<u32, Marked>,
    rng: fastrand::Rng,
}

impl Accessed {
    /// `seed` determines the random pages.
    ///
    /// # Errors
    /// Why it cannot be used here.
    pub fn new(fs: &FsRoot, seed: u64) -> Result<Self, String> {
        let (fs, rng) = (fs.clone(), fastrand::Rng::with_seed(seed));
        if let Some(file) = ["clear_refs", "smaps"].into_iter().find(|file| !fs.exists(&format!("/proc/self/{file}"))) {
            return Err(format!("no /proc/PID/{file}: the kernel was built without CONFIG_PROC_PAGE_MONITOR"));
        }
        match std::fs::OpenOptions::new().write(true).open(fs.path("/proc/self/clear_refs")) {
            Ok(_) => Ok(Self { idle: IdlePages::new(&fs), fs, marked: HashMap::new(), rng }),
            Err(why) => Err(format!("/proc/PID/clear_refs cannot be written: {why}")),
        }
    }

    /// Whether large processes are sampled by random pages.
    ///
    /// # Errors
    /// Why they are not.
    pub fn draws(&self) -> Result<(), &str> {
        self.idle.as_ref().map(|_| ()).map_err(String::as_str)
    }
}

impl Collector for Accessed {
    fn name(&self) -> &'static str {
        "accessed"
    }

    fn begin(&mut self, &Watched { pid, areas, .. }: &Watched<'_>) -> io::Result<()> {
        if resident(areas) > LARGE
            && let Ok(idle) = &self.idle
        {
            let ends = files::ends(&self.fs, pid)?;
            let strata = page_samples::strata(areas, &ends, &ends);
            self.marked.insert(pid, idle.mark(pid, strata, &mut self.rng)?);
            return Ok(());
        }
        address_space::ask(&self.fs, pid, What::ClearAccessed, |door| {
            // Not created if missing, as in another machine's dump.
            io::Write::write_all(&mut std::fs::OpenOptions::new().write(true).open(door.path())?, ALL.as_bytes())
        })
    }

    fn end(&mut self, &Watched { pid, areas, .. }: &Watched<'_>) -> io::Result<Found> {
        match (self.marked.get(&pid), &self.idle) {
            (Some(marked), Ok(idle)) => {
                let seen = idle.look(pid, marked)?;
                self.marked.remove(&pid);
                Ok(Found::Together(seen.pages))
            }
            _ => Ok(Found::Together(areas::touched(areas, &files::referenced(&self.fs, pid)?))),
        }
    }

    fn hint(&self) -> Option<String> {
        let why = self.draws().err()?;
        Some(format!("all of its pages are looked at, since single ones cannot be: {why}"))
    }

    fn forget(&mut self, pid: u32) {
        self.marked.remove(&pid);
    }
}
