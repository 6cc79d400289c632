//! Memory nodes and the distances between them.

use super::sysfs::{NODE, Sysfs};
use cotenant_model::parse;
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::topology::hmat::{self, Access};
use cotenant_model::topology::{DistanceUnit, Distances, MemoryNode};
use cotenant_model::{CpuSet, NodeId};

/// The memory of a machine.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) nodes: Vec<MemoryNode>,
    pub(super) distances: Option<Distances>,
    pub(super) accesses: Vec<Access>,
}

/// The node, by its index in the list, with some of these CPUs.
pub(super) fn home(nodes: &[MemoryNode], cpus: &CpuSet) -> Option<usize> {
    nodes.iter().position(|node| node.cpus.intersects(cpus))
}

/// Reads the nodes; empty without NUMA. As in hwloc, a node whose CPUs belong to an earlier node (buggy firmware) is
/// left out, unless the user requested such nodes (`numa=fake=`).
pub(super) fn read(fs: &Sysfs<'_>, online: &CpuSet, out: &mut Assembly) -> Memory {
    let listed = match fs.list(&format!("{NODE}/online")) {
        Some(list) => list.iter().map(|n| n.0).collect(),
        None => fs.numbered(NODE, "node").unwrap_or_default(),
    };
    let fake = fs.text("/proc/cmdline").is_some_and(|line| line.contains("numa=fake="));
    let mut taken = CpuSet::new();
    let mut nodes = Vec::new();
    // The kept ones of the listed nodes: the rows and columns of the distance table have one entry per listed node.
    let mut kept = Vec::new();
    for (column, &id) in listed.iter().enumerate() {
        let folder = format!("{NODE}/node{id}");
        let Some(cpus) = fs.mask(&[format!("{folder}/cpumap")]) else {
            out.note(format!("{folder}/cpumap cannot be read; the node is left out"));
            continue;
        };
        if taken.intersects(&cpus) && !fake {
            out.note(format!("node {id} claims CPUs {cpus}, some of which belong to an earlier node; it is left out"));
            continue;
        }
        taken = taken.or(&cpus);
        let bytes = fs.text(&format!("{folder}/meminfo")).and_then(|text| parse::mem_total(&text));
        // Reserved by firmware for devices with memory.
        if cpus.is_empty() && bytes == Some(0) {
            continue;
        }
        nodes.push(MemoryNode { id: NodeId(id), cpus: cpus.and(online), bytes, allowed: true, coord: None });
        kept.push(column);
    }
    let accesses: Vec<Access> = nodes.iter().filter_map(|node| access(fs, node.id, out)).collect();
    let slit = if nodes.len() > 1 { distances(fs, &listed, &kept) } else { None };
    // Nanoseconds are more informative than the SLIT's ratios, which are often equal on all machines.
    let told = (nodes.len() > 1 && !accesses.is_empty()).then(|| hmat::distances(&nodes, &accesses, slit.as_ref()));
    let distances = match told {
        Some(Ok(told)) => Some(told),
        Some(Err(why)) => {
            out.note(format!("the firmware's HMAT is not used as distance: {why}"));
            slit
        }
        None => slit,
    };
    if nodes.len() > 1 && distances.is_none() {
        out.note(format!(
            "{NODE}/node*/distance is absent, malformed or cannot be; distances between nodes are unknown"
        ));
    }
    Memory { nodes, distances, accesses }
}

/// Speed of a node for its nearest ones: for CPUs if the kernel separates them from devices (class 1, Linux 5.10 and
/// later), otherwise for all.
fn access(fs: &Sysfs<'_>, node: NodeId, out: &mut Assembly) -> Option<Access> {
    let class = |class: u32| {
        let folder = format!("{NODE}/node{node}/access{class}/initiators");
        let near = fs.numbered(&folder, "node").filter(|near| !near.is_empty())?;
        Some((folder, near.into_iter().map(NodeId).collect()))
    };
    let (folder, initiators) = class(1).or_else(|| class(0))?;
    let mut value = |name: &str, plausible: &std::ops::RangeInclusive<u64>| {
        let path = format!("{folder}/{name}");
        // A missing file or 0 means unknown.
        let text = fs.text(&path)?;
        let value = parse::number(&text).ok();
        if value == Some(0) {
            return None;
        }
        let believed = value.filter(|value| plausible.contains(value));
        if believed.is_none() {
            out.note(format!(
                "{path} says '{}', which is not believed",
                text.trim().chars().take(40).collect::<String>()
            ));
        }
        believed
    };
    let bytes = |megabytes: u64| megabytes * 1_000_000;
    Some(Access {
        node,
        initiators,
        read_ns: value("read_latency", &hmat::PLAUSIBLE_NS),
        write_ns: value("write_latency", &hmat::PLAUSIBLE_NS),
        read_bytes_per_s: value("read_bandwidth", &hmat::PLAUSIBLE_MBS).map(bytes),
        write_bytes_per_s: value("write_bandwidth", &hmat::PLAUSIBLE_MBS).map(bytes),
    })
}

fn distances(fs: &Sysfs<'_>, listed: &[u32], kept: &[usize]) -> Option<Distances> {
    let row = |&from: &usize| {
        let row = parse::distances(&fs.text(&format!("{NODE}/node{}/distance", listed[from]))?).ok()?;
        (row.len() == listed.len()).then(|| kept.iter().map(|&to| row[to]).collect())
    };
    let rows = kept.iter().map(row).collect::<Option<Vec<Vec<f64>>>>()?;
    // Nothing is nearer than a node's own memory, and nothing at no distance.
    let can_be = |(i, row): (usize, &Vec<f64>)| row.iter().all(|to| *to > 0.0 && *to >= row[i]);
    if !rows.iter().enumerate().all(can_be) {
        return None;
    }
    Some(Distances { unit: DistanceUnit::Slit, rows, source: None })
}
