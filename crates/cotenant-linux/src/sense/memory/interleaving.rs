//! Memory interleaved over controllers by pages or lines, which hides the controller of each page.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sense::capability::{Capability, Standing};
use cotenant_model::areas::{Area, Binding};
use std::collections::BTreeSet;

/// Offsets in a memory device's mapped address, structure type 20 of SMBIOS (DSP0134 §7.21): its array's mapping, and
/// its place in an interleaved range (0: not interleaved, 255: unknown).
const MAPPED_ARRAY: usize = 0x0e;
const POSITION: usize = 0x11;

/// Memory controllers and nodes according to firmware and kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Controllers {
    /// Memory nodes.
    nodes: usize,
    /// Their controllers, from the kernel's error detection (EDAC); 0 if unknown.
    served_by: usize,
    /// Memory devices interleaved over one range, from SMBIOS; 0 if unknown.
    interleaved: usize,
}

fn look(fs: &FsRoot) -> Controllers {
    let entries = "/sys/firmware/dmi/entries";
    // Firmware without SMBIOS has no such folder.
    let names = fs.list(entries).unwrap_or_else(|_| Vec::new());
    let mapped = names.into_iter().filter(|name| name.starts_with("20-"));
    let raw = mapped.filter_map(|name| bounded::read(fs.path(&format!("{entries}/{name}/raw")), Limit::Value).ok());
    let in_turn = raw.filter_map(|bytes| {
        let array = bytes.get(MAPPED_ARRAY..MAPPED_ARRAY + 2)?;
        Some(([array[0], array[1]], *bytes.get(POSITION)?))
    });
    let positions: BTreeSet<([u8; 2], u8)> = in_turn.filter(|(_, at)| !matches!(at, 0 | 255)).collect();
    let count = |folder: &str, prefix: &str| fs.numbered(folder, prefix).map_or(0, |found| found.len());
    Controllers {
        nodes: count("/sys/devices/system/node", "node").max(1),
        served_by: count("/sys/devices/system/edac/mc", "mc"),
        interleaved: positions.len(),
    }
}

impl Controllers {
    /// The known reason for hidden controllers.
    fn hidden(self) -> Option<String> {
        let Self { nodes, served_by, interleaved } = self;
        if interleaved > 1 {
            let devices = format!("{interleaved} memory devices share their addresses in turns (SMBIOS)");
            return (interleaved > nodes).then(|| format!("{devices} and there are {nodes} memory node(s)"));
        }
        (served_by > nodes)
            .then(|| format!("{served_by} memory controllers (EDAC) stand behind {nodes} memory node(s)"))
    }
}

/// Whether nodes correspond to controllers here; `None` without information on controllers.
pub fn capability(fs: &FsRoot) -> Option<Capability> {
    let found = look(fs);
    let cost = "physical addresses are interleaved: which controller serves a page cannot be seen, and no core can be put near it";
    let remedy = "firmware settings: one node per cluster or quadrant (SNC, NPS), node interleaving off";
    let (standing, what) = match found.hidden() {
        Some(why) => (Standing::Limited, why),
        None if found.served_by > 0 => {
            (Standing::Available, format!("{} behind {} memory node(s)", found.served_by, found.nodes))
        }
        None => return None,
    };
    Some(Capability::new("memory controllers", standing, what, cost, remedy))
}

/// One line if controllers are hidden on this machine.
pub fn note(fs: &FsRoot) -> Option<String> {
    look(fs)
        .hidden()
        .map(|why| format!("node and controller are not the same here: {why}; accesses are split by node alone"))
}

/// One line if most of a process's memory is interleaved over several nodes by its own or its user's choice: then none
/// is nearer.
pub fn of_process(pid: u32, areas: &[Area]) -> Option<String> {
    let pages = |kind: &dyn Fn(&&Area) -> bool| areas.iter().filter(kind).map(Area::resident).sum::<u64>();
    let spread = pages(&|area| area.binding == Binding::Interleaved);
    (spread * 2 > pages(&|_| true)).then(|| {
        format!(
            "process {pid}: a memory policy interleaves its memory over nodes, so no CPU is nearer to it; remove \
                 the policy (numactl) to place it near its memory"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    fn device(array: u16, position: u8) -> Vec<u8> {
        let mut raw = vec![0; 0x13];
        raw[0] = 20;
        raw[MAPPED_ARRAY..MAPPED_ARRAY + 2].copy_from_slice(&array.to_le_bytes());
        raw[POSITION] = position;
        raw
    }

    /// Promise see/topology: Packages, nodes, caches, cores and allowed CPUs are those that hwloc and `lscpu` see;
    /// differences and interleaved memory controllers are named.
    #[test]
    fn hidden_controllers_are_found_and_said() {
        let tree = TempDir::new("interleaving");
        let fs = FsRoot::at(tree.path());
        tree.write("sys/devices/system/node/node0/cpulist", "0-3\n");
        assert_eq!((note(&fs), capability(&fs)), (None, None), "nothing tells of controllers");
        tree.write("sys/devices/system/edac/mc/mc0/size_mb", "1\n");
        assert_eq!(capability(&fs).unwrap().standing, Standing::Available);
        tree.write("sys/devices/system/edac/mc/mc1/size_mb", "1\n");
        assert!(note(&fs).unwrap().contains("2 memory controllers (EDAC) stand behind 1 memory node(s)"));
        assert_eq!(capability(&fs).unwrap().standing, Standing::Limited);
        tree.write("sys/devices/system/node/node1/cpulist", "4-7\n");
        assert_eq!(note(&fs), None);
    }

    /// Holds see/topology.
    #[test]
    fn firmware_tells_of_interleaved_devices() {
        let tree = TempDir::new("interleaving");
        let fs = FsRoot::at(tree.path());
        let entry = |n: usize, raw: &[u8]| tree.write(&format!("sys/firmware/dmi/entries/20-{n}/raw"), raw);
        entry(0, &device(1, 0));
        entry(1, &device(1, 255));
        assert_eq!(note(&fs), None, "not interleaved, and unknown");
        entry(2, &device(2, 1));
        entry(3, &device(2, 2));
        entry(4, b"short");
        assert!(note(&fs).unwrap().contains("2 memory devices share their addresses in turns (SMBIOS)"));
    }

    /// Holds see/topology.
    #[test]
    fn a_process_that_is_interleaved_is_named() {
        let areas = |text: &str| text.lines().filter_map(|l| Area::parse(l.as_bytes(), 4)).collect::<Vec<_>>();
        assert_eq!(of_process(7, &areas("1000 default anon=9 N0=9\n9000 interleave:0-1 anon=8 N0=4 N1=4")), None);
        assert!(of_process(7, &areas("1000 default anon=1 N0=1\n9000 interleave:0-1 anon=8 N0=4 N1=4")).is_some());
        assert_eq!(of_process(7, &[]), None);
    }
}
