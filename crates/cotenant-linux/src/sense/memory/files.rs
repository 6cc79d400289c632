//! Files of `/proc` about a process's memory, read line by line with a limit, because they grow with its mappings.

use crate::FsRoot;
use crate::address_space::{self, What};
use crate::bounded::lines;
use cotenant_model::CpuSet;
use cotenant_model::areas::{Area, Referenced};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

/// Limit of a process's mappings: about the kernel's default (`vm.max_map_count`); a line of `numa_maps` takes at least
/// a microsecond.
pub const MOST_AREAS: usize = 1 << 16;

/// Base pages of this machine, KiB.
pub fn page_kb() -> u64 {
    crate::sys::page_size() as u64 / 1024
}

/// The areas of a process with pages, ascending.
///
/// # Errors
/// System errors; `FileTooLarge` beyond [`MOST_AREAS`]; [`address_space::is_late`].
pub fn areas(fs: &FsRoot, pid: u32) -> io::Result<Vec<Area>> {
    address_space::ask(fs, pid, What::NodeMaps, |door| {
        let (mut found, mut seen, kb) = (Vec::new(), 0, page_kb());
        lines(door.path(), |line| {
            seen += 1;
            if seen > MOST_AREAS {
                return Err(ErrorKind::FileTooLarge.into());
            }
            found.extend(Area::parse(line, kb).filter(|area| !area.pages.is_empty()));
            Ok(())
        })?;
        Ok(found)
    })
}

/// Areas by their first address, with pages accessed since the bits were cleared.
///
/// # Errors
/// As [`areas`].
pub fn referenced(fs: &FsRoot, pid: u32) -> io::Result<Vec<(u64, u64)>> {
    address_space::ask(fs, pid, What::Accessed, |door| {
        let (mut found, mut seen, mut state, kb) = (Vec::new(), 0, Referenced::default(), page_kb());
        lines(door.path(), |line| {
            if let Some((start, accessed)) = state.line(line) {
                seen += 1;
                if seen > MOST_AREAS {
                    return Err(ErrorKind::FileTooLarge.into());
                }
                if accessed > 0 {
                    found.push((start, accessed / kb.max(1)));
                }
            }
            Ok(())
        })?;
        Ok(found)
    })
}

/// End of each mapping, by its first address.
///
/// # Errors
/// As [`areas`].
pub fn ends(fs: &FsRoot, pid: u32) -> io::Result<BTreeMap<u64, u64>> {
    address_space::ask(fs, pid, What::Ends, |door| {
        let mut found = BTreeMap::new();
        lines(door.path(), |line| {
            if found.len() >= MOST_AREAS {
                return Err(ErrorKind::FileTooLarge.into());
            }
            let range =
                line.split(|b| *b == b' ').next().and_then(|range| std::str::from_utf8(range).ok()).unwrap_or_default();
            if let Some((start, end)) = range.split_once('-')
                && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
            {
                found.insert(start, end);
            }
            Ok(())
        })?;
        Ok(found)
    })
}

/// Memory nodes allowed for the process, as numbers.
///
/// # Errors
/// System errors; `InvalidData` if the kernel does not report it.
pub fn nodes_allowed(fs: &FsRoot, pid: u32) -> io::Result<CpuSet> {
    let mut found = None;
    lines(&fs.path(&format!("/proc/{pid}/status")), |line| {
        if let Some(list) = line.strip_prefix(b"Mems_allowed_list:") {
            found = std::str::from_utf8(list.trim_ascii()).ok().and_then(|list| CpuSet::parse_list(list).ok());
        }
        Ok(())
    })?;
    found.ok_or_else(|| ErrorKind::InvalidData.into())
}
