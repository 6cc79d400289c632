//! The kernel's data access monitor, for address spaces (`Documentation/admin-guide/mm/damon/usage.rst`, from Linux
//! 6.2 on).
//!
//! Its settings are machine-wide: foreign monitors are left alone. A monitor ends with its process and outlives a
//! killed Cotenant until then, so it is only used on request.

use super::collector::{Collector, Found, Watched};
use crate::FsRoot;
use crate::sys::page_size;
use cotenant_model::areas;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};

const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Limit of simultaneously monitored processes: each has a kernel thread.
const SLOTS: usize = 8;

/// A page of each region is checked every 5 ms, accesses are summed over 100 ms, and the number of regions adapts
/// between these limits: the kernel's defaults, documented with less than 1 % of a CPU.
const ATTRIBUTES: [(&str, &str); 5] = [
    ("intervals/sample_us", "5000"),
    ("intervals/aggr_us", "100000"),
    ("intervals/update_us", "1000000"),
    ("nr_regions/min", "10"),
    ("nr_regions/max", "1000"),
];

/// Monitors of the kernel, one per process.
#[derive(Debug)]
pub struct Damon {
    fs: FsRoot,
    /// The process of each monitor; empty before the first one.
    slots: Vec<Option<u32>>,
}

impl Damon {
    /// # Errors
    /// Why it cannot be used here. Nothing is changed by asking.
    pub fn new(fs: &FsRoot) -> Result<Self, String> {
        let monitors = match fs.read(&format!("{ADMIN}/nr_kdamonds")) {
            Ok(text) => text.trim().to_owned(),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err("only root may use it".to_owned()),
            Err(_) => return Err("the kernel has no /sys/kernel/mm/damon (CONFIG_DAMON_SYSFS)".to_owned()),
        };
        if !fs.read("/proc/kallsyms").is_ok_and(|names| names.contains(" damon_va_")) {
            return Err("the kernel's DAMON knows no address spaces (CONFIG_DAMON_VADDR)".to_owned());
        }
        if monitors != "0" {
            return Err(format!("another program has made {monitors} monitor(s) of it, which are left alone"));
        }
        Ok(Self { fs: fs.clone(), slots: Vec::new() })
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let path = self.fs.path(&format!("{ADMIN}/{path}"));
        OpenOptions::new().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
    }

    fn start(&self, slot: usize, pid: u32) -> io::Result<()> {
        let set = |path: &str, value: &str| self.write(&format!("{slot}/contexts/{path}"), value);
        set("nr_contexts", "1")?;
        set("0/operations", "vaddr")?;
        for (name, value) in ATTRIBUTES {
            set(&format!("0/monitoring_attrs/{name}"), value)?;
        }
        set("0/targets/nr_targets", "1")?;
        set("0/targets/0/pid_target", &pid.to_string())?;
        // A scheme that does nothing, and lists every region.
        set("0/schemes/nr_schemes", "1")?;
        set("0/schemes/0/action", "stat")?;
        for (what, most) in [("sz", u64::MAX), ("nr_accesses", u32::MAX.into()), ("age", u32::MAX.into())] {
            set(&format!("0/schemes/0/access_pattern/{what}/max"), &most.to_string())?;
        }
        self.write(&format!("{slot}/state"), "on")
    }

    /// Regions of the last sum: first address, end, and the number of samples with an access.
    fn regions(&self, slot: usize) -> io::Result<Vec<(u64, u64, u64)>> {
        self.write(&format!("{slot}/state"), "update_schemes_tried_regions")?;
        let folder = format!("{ADMIN}/{slot}/contexts/0/schemes/0/tried_regions");
        let numbers = self.fs.list(&folder)?.into_iter().filter(|name| name.parse::<u32>().is_ok());
        let value = |region: &str, name: &str| -> io::Result<u64> {
            let text = self.fs.read(&format!("{folder}/{region}/{name}"))?;
            text.trim().parse().map_err(|_| io::Error::from(ErrorKind::InvalidData))
        };
        numbers.map(|n| Ok((value(&n, "start")?, value(&n, "end")?, value(&n, "nr_accesses")?))).collect()
    }
}

impl Collector for Damon {
    fn name(&self) -> &'static str {
        "damon"
    }

    fn begin(&mut self, &Watched { pid, .. }: &Watched<'_>) -> io::Result<()> {
        if self.slots.contains(&Some(pid)) {
            return Ok(());
        }
        if self.slots.is_empty() {
            self.write("nr_kdamonds", &SLOTS.to_string())?;
            self.slots = vec![None; SLOTS];
        }
        let Some(slot) = self.slots.iter().position(Option::is_none) else {
            return Err(io::Error::other(format!("DAMON is asked to watch {SLOTS} processes at most")));
        };
        self.start(slot, pid)?;
        self.slots[slot] = Some(pid);
        Ok(())
    }

    fn end(&mut self, &Watched { pid, areas, .. }: &Watched<'_>) -> io::Result<Found> {
        let slot = self.slots.iter().position(|slot| *slot == Some(pid));
        let regions = self.regions(slot.ok_or(ErrorKind::NotFound)?)?;
        Ok(Found::Together(areas::touched_in(areas, &regions, page_size() as u64)))
    }

    fn forget(&mut self, pid: u32) {
        if let Some(slot) = self.slots.iter().position(|slot| *slot == Some(pid)) {
            // One that ended with its process is off already.
            let _ = self.write(&format!("{slot}/state"), "off");
            self.slots[slot] = None;
        }
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let watched: Vec<u32> = self.slots.iter().copied().flatten().collect();
        for pid in watched {
            self.forget(pid);
        }
        let _ = self.write("nr_kdamonds", "0");
    }
}
