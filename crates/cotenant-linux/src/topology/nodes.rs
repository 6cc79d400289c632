//! Memory nodes and the distances between them.

use super::sysfs::{NODE, Sysfs};
use cotenant_core::parse;
use cotenant_core::topology::assembly::Assembly;
use cotenant_core::topology::{DistanceUnit, Distances, MemoryNode};
use cotenant_core::{CpuSet, NodeId};

/// Reads the nodes; none where the kernel knows no NUMA. As in hwloc, a node whose CPUs belong to an earlier node already (buggy
/// firmware) is left out, except where the user asked for such nodes (`numa=fake=`).
pub(super) fn read(fs: &Sysfs<'_>, online: &CpuSet, out: &mut Assembly) -> (Vec<MemoryNode>, Option<Distances>) {
    let listed = match fs.list(&format!("{NODE}/online")) {
        Some(list) => list.iter().map(|n| n.0).collect(),
        None => fs.numbered(NODE, "node").unwrap_or_default(),
    };
    let fake = fs.text("/proc/cmdline").is_some_and(|line| line.contains("numa=fake="));
    let mut taken = CpuSet::new();
    let mut nodes = Vec::new();
    // Which of the listed nodes are kept: the rows and columns of the distance table have one entry per listed node.
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
        nodes.push(MemoryNode { id: NodeId(id), cpus: cpus.and(online), bytes, allowed: true, coord: None });
        kept.push(column);
    }
    let distances = if nodes.len() > 1 { distances(fs, &listed, &kept) } else { None };
    if nodes.len() > 1 && distances.is_none() {
        out.note(format!("{NODE}/node*/distance is absent or malformed; distances between nodes are unknown"));
    }
    (nodes, distances)
}

fn distances(fs: &Sysfs<'_>, listed: &[u32], kept: &[usize]) -> Option<Distances> {
    let row = |&from: &usize| {
        let row = parse::distances(&fs.text(&format!("{NODE}/node{}/distance", listed[from]))?).ok()?;
        (row.len() == listed.len()).then(|| kept.iter().map(|&to| row[to]).collect())
    };
    let rows = kept.iter().map(row).collect::<Option<Vec<Vec<f64>>>>()?;
    Some(Distances { unit: DistanceUnit::Slit, rows })
}
