//! Place of a large process's pages, from a random sample: `move_pages(2)` gives the node of single pages, while
//! `numa_maps` walks all.

use crate::FsRoot;
use crate::address_space::{self, Door, What};
use crate::sys::page_size;
use cotenant_model::NodeId;
use cotenant_model::areas::Area;
use cotenant_model::areas::page_samples::{self, Estimate, Found, Stratum};
use std::collections::{BTreeMap, HashMap};
use std::io;

/// Processes with more resident pages are sampled: 256 MiB of small pages, which take about 6 ms as a whole.
pub const LARGE: u64 = 1 << 16;

/// Pages per sample. The fraction of any node is then within 1.6 percentage points (one standard error, at worst).
pub const DRAWS: u64 = 1024;

/// Pages per call, which blocks the process's mapping of memory.
const BATCH: usize = 256;

/// Ranges to sample, each by its last known content; mappings since `before` (ends by first address) by their size.
pub fn strata(areas: &[Area], before: &BTreeMap<u64, u64>, now: &BTreeMap<u64, u64>) -> Vec<Stratum> {
    let page = page_size() as u64;
    let held: HashMap<u64, u64> = areas.iter().map(|area| (area.start, area.resident())).collect();
    let range = |(&start, &end): (&u64, &u64)| {
        let fresh = end.saturating_sub(before.get(&start).copied().unwrap_or(start)) / page;
        (start, end, held.get(&start).copied().unwrap_or(0).saturating_add(fresh))
    };
    page_samples::strata(&now.iter().map(range).collect::<Vec<_>>(), DRAWS, page)
}

/// Resident pages by node of a process of this machine, estimated.
///
/// # Errors
/// System errors; [`address_space::is_late`].
pub fn placement(pid: u32, strata: &[Stratum], rng: &mut fastrand::Rng) -> io::Result<Estimate> {
    let (strata, mut rng) = (strata.to_vec(), rng.fork());
    address_space::ask(&FsRoot::live(), pid, What::Place, move |door| look(door, &strata, &mut rng))
}

fn look(door: &Door, strata: &[Stratum], rng: &mut fastrand::Rng) -> io::Result<Estimate> {
    let page = page_size() as u64;
    let found = strata.iter().map(|stratum| {
        let mut found = Found::default();
        for pages in stratum.draw(page, rng).chunks(BATCH) {
            let mut status = vec![-libc::ENOENT; pages.len()];
            door.move_pages(pages, None, &mut status)?;
            found.looked += pages.len() as u64;
            for node in status.into_iter().filter_map(|on| u32::try_from(on).ok()) {
                *found.hits.entry(NodeId(node)).or_default() += 1;
            }
        }
        Ok::<_, io::Error>((*stratum, found))
    });
    Ok(page_samples::estimate(found.collect::<Result<Vec<_>, _>>()?))
}
