//! Measured memory latencies, from calibration or the operator, and their use as distances.

use super::{DistanceUnit, Distances, MemoryNode, Parts, Topology};
use crate::stats::median::middle;
use crate::{CpuSet, NodeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Idle latencies of loads from CPUs to memory nodes. Without rows it is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryLatencies {
    /// The nodes of the columns.
    pub nodes: Vec<NodeId>,
    /// From groups of CPUs.
    pub rows: Vec<LatencyRow>,
}

/// From some CPUs with equal access to memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyRow {
    /// These CPUs.
    pub cpus: CpuSet,
    /// To the memory of each of [`MemoryLatencies::nodes`], ns.
    pub ns: Vec<f64>,
    /// Tolerance of another measurement to either side, ns; absent if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_ns: Vec<f64>,
}

/// A latency with its error to either side; ns.
#[derive(Clone, Copy)]
struct Cell {
    ns: f64,
    spread: f64,
}

/// Why measured latencies do not fit a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A column without a node.
    #[error("there is no memory node {0} here")]
    NoNode(NodeId),
    /// A node without a column.
    #[error("no latency of node {0}, which holds memory")]
    Untold(NodeId),
    /// CPUs without a row, also of any other CPU of their node.
    #[error("no latency from CPUs {0}")]
    NoRow(CpuSet),
}

impl MemoryLatencies {
    /// A fault independent of the machine; one line.
    pub fn fault(&self) -> Option<String> {
        let mut cpus = CpuSet::new();
        if self.nodes.iter().collect::<BTreeSet<_>>().len() != self.nodes.len() {
            return Some("names a node twice".to_owned());
        }
        for row in &self.rows {
            if row.cpus.is_empty() || row.cpus.intersects(&cpus) {
                return Some(format!("needs CPUs in each row, each in one row alone, not '{}'", row.cpus));
            }
            cpus = cpus.or(&row.cpus);
            if row.ns.len() != self.nodes.len() || ![0, row.ns.len()].contains(&row.spread_ns.len()) {
                return Some(format!("needs one number per node ({}) from CPUs {}", self.nodes.len(), row.cpus));
            }
            let positive = row.ns.iter().all(|ns| ns.is_finite() && *ns > 0.0);
            if !positive || row.spread_ns.iter().any(|ns| !ns.is_finite() || *ns < 0.0) {
                return Some(format!("needs positive, finite nanoseconds from CPUs {}", row.cpus));
            }
        }
        None
    }

    /// The machine with these as its distances; `source` is their origin. Nodes without usable memory get the distance
    /// of the farthest measured one; unmeasured CPUs that of the first measured one of their node.
    ///
    /// Differences within the error are removed, so that noise alone neither separates nodes nor attracts tasks to a
    /// core. Cores of a node, otherwise of a last-level cache, with overlapping intervals for every memory get the
    /// median of theirs. Then cells within the spread of their group's least one, from the least on, get the group's
    /// median.
    ///
    /// # Errors
    /// [`Unfit`], if they belong to another machine.
    pub fn applied(&self, topology: &Topology, source: &str) -> Result<Topology, Unfit> {
        if self.rows.is_empty() {
            return Ok(topology.clone());
        }
        let nodes = topology.nodes();
        if let Some(node) = self.nodes.iter().find(|id| !nodes.iter().any(|node| node.id == **id)) {
            return Err(Unfit::NoNode(*node));
        }
        let column = |node: &MemoryNode| self.nodes.iter().position(|id| *id == node.id);
        let columns: Vec<Option<usize>> = nodes.iter().map(column).collect();
        let untold = |(node, column): (&MemoryNode, &Option<usize>)| {
            (column.is_none() && node.allowed && node.bytes != Some(0)).then_some(node.id)
        };
        if let Some(node) = nodes.iter().zip(&columns).find_map(untold) {
            return Err(Unfit::Untold(node));
        }
        let own = |cpus: &CpuSet| self.rows.iter().find(|row| row.cpus.intersects(cpus));
        let row = |core: &CpuSet| {
            let node = core.first().and_then(|cpu| topology.node_of(cpu));
            let row = own(core).or_else(|| own(&nodes[node?].cpus)).ok_or_else(|| Unfit::NoRow(core.clone()))?;
            let farthest = row.ns.iter().copied().fold(0.0, f64::max);
            let cell = |column: &Option<usize>| match *column {
                Some(i) => Cell { ns: row.ns[i], spread: row.spread_ns.get(i).copied().unwrap_or(0.0) },
                None => Cell { ns: farthest, spread: 0.0 },
            };
            Ok(columns.iter().map(cell).collect())
        };
        let mut rows = topology.cores().iter().map(row).collect::<Result<Vec<Vec<Cell>>, _>>()?;
        even_out_cores(topology, &mut rows);
        even_out_cells(&mut rows);
        let mut rows: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(|cell| cell.ns).collect()).collect();
        if rows.len() == nodes.len() {
            // As many rows as nodes count as rows of nodes. Rows of nodes without CPUs are not used.
            let first = |node: &MemoryNode| node.cpus.first().and_then(|cpu| topology.core_of(cpu));
            rows = nodes.iter().map(|node| rows[first(node).unwrap_or(0)].clone()).collect();
        }
        let distances = Distances { unit: DistanceUnit::Nanoseconds, rows, source: Some(source.to_owned()) };
        let parts = Parts { distances: Some(distances), ..topology.parts().clone() };
        Ok(Topology::new(parts).unwrap_or_else(|_| topology.clone()))
    }
}

/// One row for indistinguishable cores of a node, otherwise of its last-level caches.
fn even_out_cores(topology: &Topology, rows: &mut [Vec<Cell>]) {
    let place = |core: usize| {
        let cpu = topology.cores()[core].first();
        (cpu.and_then(|cpu| topology.node_of(cpu)), cpu.and_then(|cpu| topology.llc_of(cpu)))
    };
    let mut cores: Vec<usize> = (0..rows.len()).collect();
    cores.sort_by_key(|&core| (place(core), core));
    for of_node in cores.chunk_by(|&a, &b| place(a).0 == place(b).0) {
        if !even_out(rows, of_node) {
            for of_cache in of_node.chunk_by(|&a, &b| place(a).1 == place(b).1) {
                even_out(rows, of_cache);
            }
        }
    }
}

/// Gives these cores one row, if their intervals overlap for every memory; returns whether they did.
fn even_out(rows: &mut [Vec<Cell>], cores: &[usize]) -> bool {
    let columns = rows[cores[0]].len();
    let of = |rows: &[Vec<Cell>], column: usize| cores.iter().map(|&core| rows[core][column]).collect::<Vec<_>>();
    let alike = (0..columns).all(|column| {
        let cells = of(rows, column);
        let low = cells.iter().map(|cell| cell.ns - cell.spread).fold(f64::MIN, f64::max);
        low <= cells.iter().map(|cell| cell.ns + cell.spread).fold(f64::MAX, f64::min)
    });
    if alike {
        for column in 0..columns {
            let cells = of(rows, column);
            let median = |of: fn(&Cell) -> f64| middle(&cells.iter().map(of).collect::<Vec<_>>()).value;
            let (ns, spread) = (median(|cell| cell.ns), median(|cell| cell.spread));
            for &core in cores {
                rows[core][column] = Cell { ns, spread };
            }
        }
    }
    alike
}

/// One value for cells that are indistinguishable from the least of their group.
fn even_out_cells(rows: &mut [Vec<Cell>]) {
    let mut cells: Vec<&mut Cell> = rows.iter_mut().flatten().collect();
    cells.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    let mut rest = &mut cells[..];
    while let Some(least) = rest.first().map(|cell| **cell) {
        let beyond = |cell: &&mut Cell| cell.ns - least.ns > cell.spread.max(least.spread);
        let (group, others) = rest.split_at_mut(rest.iter().position(beyond).unwrap_or(rest.len()));
        let ns = group[group.len() / 2].ns;
        for cell in group {
            cell.ns = ns;
        }
        rest = others;
    }
}

#[cfg(test)]
mod tests;
