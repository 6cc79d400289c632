//! The part `distances`: load latency from each core to each memory.

use super::bench::{Bench, Load, alone};
use super::found::{Calibration, Values};
use super::plan::Plan;
use cotenant_model::stats::repeated::Repeated;
use cotenant_model::topology::latency::{LatencyRow, MemoryLatencies};
use cotenant_model::{CpuId, CpuSet, NodeId, Topology};
use std::collections::BTreeMap;

/// Limit of loads per round before rows get coarser: each takes half a second or more with initialization, over five
/// rounds.
const MOST_CELLS: usize = 64;

/// The nodes with usable memory.
fn columns(topology: &Topology) -> Vec<NodeId> {
    let usable = topology.nodes().iter().filter(|node| node.allowed && node.bytes != Some(0));
    usable.map(|node| node.id).collect()
}

/// A CPU to measure, and the CPUs that it represents: cores if affordable, otherwise parts of last-level caches on a
/// node, otherwise nodes.
fn rows(plan: &Plan<'_>, columns: usize) -> Vec<(CpuId, CpuSet)> {
    let t = plan.topology;
    let core = |cpu| (None, None, t.core_of(cpu));
    let cache = |cpu| (t.node_of(cpu), t.llc_of(cpu), None);
    let node = |cpu| (t.node_of(cpu), None, None);
    let mut found = Vec::new();
    for place in [&core as &dyn Fn(CpuId) -> (Option<usize>, Option<usize>, Option<usize>), &cache, &node] {
        let mut by_place: BTreeMap<_, CpuSet> = BTreeMap::new();
        for cpu in plan.cpus.iter() {
            let cpus = by_place.entry(place(cpu)).or_default();
            *cpus = cpus.or(&CpuSet::single(cpu));
        }
        found = by_place.into_values().filter_map(|cpus| Some((cpus.first()?, cpus))).collect();
        if found.len() * columns <= MOST_CELLS {
            break;
        }
    }
    found
}

fn name(from: CpuId, to: NodeId) -> String {
    format!("memory {from} {to}")
}

/// Measures each cell once; false to stop.
pub(super) fn measure(part: &str, plan: &Plan<'_>, bench: &mut dyn Bench, values: &mut Values, done: f64) -> bool {
    let columns = columns(plan.topology);
    if columns.len() < 2 {
        return true;
    }
    for (cpu, _) in rows(plan, columns.len()) {
        if !bench.goes_on(done, part) {
            return false;
        }
        for &node in &columns {
            if values.no_distances.is_some() {
                return true;
            }
            match alone(bench, Load { memory: Some(node), ..Load::new("chase", &[cpu]) }) {
                Ok(ran) => values.numbers.entry(name(cpu, node)).or_default().push(1e9 / ran[0].per_cpu_s),
                Err(why) => values.no_distances = Some(format!("node {node}: {why}")),
            }
        }
    }
    true
}

/// A partial matrix cannot be compared, so it is all or nothing.
pub(super) fn conclude(plan: &Plan<'_>, values: &Values, c: &mut Calibration) {
    let nodes = columns(plan.topology);
    if nodes.len() < 2 {
        return c.leave_out(NAME, "one memory node: as far as this machine tells, all memory is equally far");
    }
    if let Some(why) = &values.no_distances {
        return c.leave_out(NAME, why.clone());
    }
    let (mut noisy, mut cells) = (0, 0);
    let rows = rows(plan, nodes.len()).into_iter().map(|(cpu, cpus)| {
        let of = |node: &NodeId| Repeated::of(values.get(&name(cpu, *node)));
        let row: Vec<Repeated> = nodes.iter().map(of).collect::<Option<_>>()?;
        noisy += row.iter().filter(|cell| cell.is_noisy()).count();
        cells += row.len();
        let tenths = |of: &dyn Fn(&Repeated) -> f64| row.iter().map(|cell| (of(cell) * 10.0).round() / 10.0).collect();
        Some(LatencyRow { cpus, ns: tenths(&|cell| cell.value), spread_ns: tenths(&Repeated::to_either_side) })
    });
    match rows.collect::<Option<Vec<_>>>() {
        None => c.leave_out(NAME, "not every CPU and memory was measured in any round"),
        Some(_) if noisy > 0 => {
            let why = format!("{noisy} of {cells} latencies differ by more than a quarter from round to round");
            c.leave_out(NAME, why);
        }
        Some(rows) => c.memory = Some(MemoryLatencies { nodes, rows }),
    }
}

const NAME: &str = "memory_latency";

#[cfg(test)]
pub(super) mod tests;
