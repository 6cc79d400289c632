//! NUMA hinting faults: each thread's accesses as found by the kernel's balancing, from `/proc/PID/task/TID/sched`.
//! Reading costs the programs nothing; the kernel's scans do, with or without Cotenant.
//!
//! Besides events it is the only method that distinguishes a process's threads. It is slow: scans are a second apart,
//! and up to a minute for well-placed memory. Bound memory is not scanned, and for single-threaded processes only
//! remote memory is (`change_prot_numa`).

use super::Accessed;
use super::collector::{Collector, FASTEST, Found, Watched};
use crate::FsRoot;
use crate::bounded::{self, Limit};
use cotenant_model::areas::hinting::Faults;
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Scans are at least a second apart (`scan_period_min_ms`). Results of the last ones count until the next.
const EVERY: Duration = Duration::from_millis(500);

/// Reads the kernel's counts.
#[derive(Debug)]
pub struct HintingFaults {
    fs: FsRoot,
    /// Processes with their threads, and each one's run time at the last look.
    ran: HashMap<u32, HashMap<u32, u64>>,
    /// Covers single-threaded processes, for which it is better and faster, and those that are not scanned.
    otherwise: Option<Accessed>,
    /// Processes under observation.
    by_bits: HashSet<u32>,
}

impl HintingFaults {
    /// # Errors
    /// Why it cannot be used here.
    pub fn new(fs: &FsRoot) -> Result<Self, String> {
        match read(fs, "/proc/self/sched") {
            Err(_) => return Err("no /proc/PID/sched: the kernel was built without CONFIG_SCHED_DEBUG".to_owned()),
            Ok(faults) if faults.pages.is_empty() => {
                return Err("no numa_faults in /proc/PID/sched: the kernel has no CONFIG_NUMA_BALANCING, or is older \
                            than 4.4"
                    .to_owned());
            }
            Ok(_) => {}
        }
        if !numa_balancing(fs) {
            return Err(
                "the kernel scans nothing; sysctl kernel.numa_balancing=1 (which moves pages and threads, too)"
                    .to_owned(),
            );
        }
        Ok(Self { fs: fs.clone(), ran: HashMap::new(), otherwise: None, by_bits: HashSet::new() })
    }

    /// The same for processes whose threads it distinguishes, and accessed bits for the others.
    #[must_use]
    pub fn beside(self, bits: Accessed) -> Self {
        Self { otherwise: Some(bits), ..self }
    }

    fn of_thread(&self, pid: u32, tid: u32) -> io::Result<Faults> {
        read(&self.fs, &format!("/proc/{pid}/task/{tid}/sched"))
    }

    /// Whether it distinguishes existing threads.
    fn tells(&self, of: &Watched<'_>) -> bool {
        let scanned = |tid: &u32| self.of_thread(of.pid, *tid).is_ok_and(|it| it.pages.values().any(|n| *n > 0.0));
        of.threads.len() > 1 && of.threads.iter().any(scanned)
    }
}

/// Whether the kernel moves memory after threads: `kernel.numa_balancing`, whose bit 0 is for nodes, and bit 1 for slow
/// memory.
pub fn numa_balancing(fs: &FsRoot) -> bool {
    // A kernel without the feature has no such file.
    let mode = fs.read("/proc/sys/kernel/numa_balancing");
    mode.is_ok_and(|mode| mode.trim().parse().unwrap_or(0) & 1 == 1)
}

fn read(fs: &FsRoot, path: &str) -> io::Result<Faults> {
    Ok(Faults::parse(&bounded::read(fs.path(path), Limit::Value)?))
}

impl Collector for HintingFaults {
    fn name(&self) -> &'static str {
        if self.otherwise.is_some() { "faults and accessed" } else { "faults" }
    }

    fn fastest(&self, pid: u32) -> Duration {
        if self.by_bits.contains(&pid) { FASTEST } else { EVERY }
    }

    fn begin(&mut self, of: &Watched<'_>) -> io::Result<()> {
        let tells = self.otherwise.is_none() || self.tells(of);
        if let Some(bits) = self.otherwise.as_mut().filter(|_| !tells) {
            bits.begin(of)?;
            self.by_bits.insert(of.pid);
        }
        Ok(())
    }

    fn end(&mut self, of: &Watched<'_>) -> io::Result<Found> {
        if self.by_bits.remove(&of.pid)
            && let Some(bits) = &mut self.otherwise
        {
            return bits.end(of);
        }
        let (before, mut ran) = (self.ran.remove(&of.pid).unwrap_or_default(), HashMap::new());
        let mut found = HashMap::new();
        for &tid in of.threads {
            match self.of_thread(of.pid, tid) {
                Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(e),
                Ok(faults) => {
                    ran.insert(tid, faults.ran);
                    // The kernel's figures of a sleeping thread do not change, and it accesses nothing.
                    if before.get(&tid) != Some(&faults.ran) {
                        found.insert(tid, faults.pages);
                    }
                }
            }
        }
        self.ran.insert(of.pid, ran);
        Ok(Found::Apart(found))
    }

    fn hint(&self) -> Option<String> {
        self.otherwise.as_ref()?.hint()
    }

    fn forget(&mut self, pid: u32) {
        self.ran.remove(&pid);
        self.by_bits.remove(&pid);
        if let Some(bits) = &mut self.otherwise {
            bits.forget(pid);
        }
    }
}
