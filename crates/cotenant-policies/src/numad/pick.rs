//! The nodes of a process: the daemon's own arithmetic, in its units and integers (hundredths of a CPU, MiB).

use cotenant_model::topology::DistanceUnit;
use cotenant_model::{Topology, View};

/// Hundredths of a CPU for a second context of a core (`-t`).
const SECOND_CONTEXT: u64 = 20;
/// MiB of a node that are never assigned.
const MEMORY_MARGIN: u64 = 100;
/// Hundredths of a CPU at full load.
const WHOLE: f64 = 100.0;

/// Resources of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub cpus_total: u64,
    pub cpus_free: u64,
    /// Total and free memory, if known.
    pub memory: Option<(u64, u64)>,
}

/// Use and demand of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    /// CPUs in use.
    pub cpus_used: u64,
    /// CPUs required.
    pub cpus: u64,
    /// MiB required.
    pub mbs: u64,
    /// MiB in use on each node.
    pub on_node: Vec<u64>,
    /// The nodes to which it is bound; empty: unbound.
    pub bound: Vec<usize>,
    /// The nodes allowed for its threads.
    pub allowed: Vec<bool>,
    /// Whether the nodes' CPUs are assumed to suffice, so that memory decides.
    pub enough_cpus: bool,
}

/// CPUs of a node and their idle time; a CPU with unknown load counts as busy with its managed tasks.
pub(super) fn nodes(topology: &Topology, view: &View, used: &[u64]) -> Vec<Node> {
    let mut busy = vec![0.0; topology.usable().last().map_or(0, |c| c.index() + 1)];
    for task in &view.tasks {
        if let Some(slot) = task.cpu.and_then(|cpu| busy.get_mut(cpu.index())) {
            *slot += task.cpu_share().unwrap_or(0.0);
        }
    }
    for cpu in &view.cpus {
        if let Some(slot) = busy.get_mut(cpu.id.index()) {
            *slot = cpu.busy;
        }
    }
    let mut nodes = vec![Node::default(); topology.nodes().len()];
    let mut idle = vec![0u64; nodes.len()];
    let (mut contexts, mut cores) = (vec![0u64; nodes.len()], vec![0u64; nodes.len()]);
    let mut last_core = vec![None; topology.cores().len()];
    for cpu in topology.usable().iter() {
        let Some(node) = topology.node_of(cpu) else { continue };
        // Rounded to ten-thousandths, so that the order of CPUs cannot change the sum.
        idle[node] += (WHOLE * WHOLE * (1.0 - busy[cpu.index()].clamp(0.0, 1.0))).round() as u64;
        contexts[node] += 1;
        let first = topology.core_of(cpu).is_none_or(|core| last_core[core].replace(node) != Some(node));
        cores[node] += u64::from(first);
    }
    for (i, node) in nodes.iter_mut().enumerate() {
        let discount = (contexts[i] - cores[i]) * (WHOLE as u64 - SECOND_CONTEXT);
        node.cpus_total = contexts[i] * WHOLE as u64 - discount;
        node.cpus_free = (idle[i] / WHOLE as u64).saturating_sub(discount).min(node.cpus_total);
        node.memory = topology.nodes()[i].bytes.map(|bytes| {
            let total = bytes >> 20;
            (total, total.saturating_sub(used[i]))
        });
    }
    nodes
}

/// Distances of the firmware, 10 = local; without any, Linux's 20 for other nodes.
pub(super) fn distances(topology: &Topology) -> Vec<Vec<u64>> {
    let unit = topology.parts().distances.as_ref().map(|d| d.unit);
    let nodes = topology.nodes();
    let of = |from: usize, to: usize| {
        let assumed = if from == to { 10 } else { 20 };
        let Some(cpu) = nodes[from].cpus.first() else { return assumed };
        let (Some(unit), Some(there), Some(here)) = (unit, topology.distance(cpu, to), topology.distance(cpu, from))
        else {
            return assumed;
        };
        let relative = match unit {
            DistanceUnit::Slit => there,
            DistanceUnit::Nanoseconds if here > 0.0 => 10.0 * there / here,
            DistanceUnit::Nanoseconds => return assumed,
            DistanceUnit::Hops => 10.0 * (1.0 + there),
        };
        (relative.round() as u64).max(1)
    };
    (0..nodes.len()).map(|from| (0..nodes.len()).map(|to| of(from, to)).collect()).collect()
}

/// Free memory for the process: its need if the node's size is unknown, so that only CPUs and its own pages decide.
fn memory_free(node: &Node, mbs: u64, own: u64) -> u64 {
    node.memory.map_or(mbs + own, |(total, free)| (free + own).min(total))
}

/// Product of free memory and CPUs: up to the request they weigh 10 and 6, beyond it 4 and 1.
fn magnitude(mbs: u64, cpus: u64, mbs_free: u64, cpus_free: u64) -> u64 {
    let memory = mbs_free.min(mbs) * 10 + mbs_free.saturating_sub(mbs) * 4;
    let cpu = cpus_free.min(cpus) * 6 + cpus_free.saturating_sub(cpus);
    memory.saturating_mul(cpu)
}

/// The target nodes of a process, in ascending order; empty if it may use no node with CPUs.
pub(super) fn pick(nodes: &[Node], distances: &[Vec<u64>], request: &Request, utilization: u64) -> Vec<usize> {
    let usable: Vec<usize> = (0..nodes.len()).filter(|&i| request.allowed[i] && nodes[i].cpus_total > 0).collect();
    let Some(&first) = usable.first() else { return Vec::new() };
    let own_mbs: u64 = request.on_node.iter().sum::<u64>().max(1);
    let bound_free: u64 = request.bound.iter().map(|&i| nodes[i].cpus_free).sum::<u64>() + request.cpus_used;
    let mut left: Vec<(u64, u64)> = Vec::new();
    let mut all_cpus_free = 0;
    for (i, node) in nodes.iter().enumerate() {
        // Its own use counts as free; if bound, its memory weighs more.
        let own = request.on_node[i];
        let (mbs, cpus) = if request.bound.is_empty() {
            (own * 17 / 16, node.cpus_free + request.cpus_used * own / own_mbs)
        } else if request.bound.contains(&i) {
            (own * 5 / 4, bound_free / request.bound.len() as u64)
        } else {
            (own * 5 / 4, node.cpus_free)
        };
        all_cpus_free += if request.allowed[i] { cpus } else { 0 };
        left.push((memory_free(node, request.mbs, mbs), cpus.min(node.cpus_total).max(1)));
    }
    let size: Vec<u64> = left.iter().map(|&(mbs, cpus)| magnitude(request.mbs, request.cpus, mbs, cpus)).collect();
    let enough_cpus = request.enough_cpus || request.cpus > all_cpus_free;
    let flex = 100u64.saturating_sub(utilization) * nodes[first].cpus_total / 200;
    let needed = |want: u64, of: u64| if of == 0 { 1 } else { want.div_ceil(of) };
    let by_memory = nodes[first].memory.map_or(1, |(total, _)| needed(request.mbs, total));
    let by_cpus = needed(request.cpus.saturating_sub(flex), nodes[first].cpus_total);
    let mut required = by_memory.max(by_cpus).min(usable.len() as u64);
    let near = |centre: usize| {
        let mut order = usable.clone();
        order.sort_by_key(|&i| (distances[i][centre], std::cmp::Reverse(size[i]), i));
        order
    };
    let worth = |centre: usize| -> u64 {
        let square = |i: usize| distances[i][centre] * distances[i][centre];
        near(centre).into_iter().take(required as usize).map(|i| size[i] / square(i)).fold(0, u64::saturating_add)
    };
    let best = usable.iter().copied().max_by_key(|&i| (worth(i), std::cmp::Reverse(i))).unwrap_or(first);
    let (mut mbs, mut cpus, mut picked) = (request.mbs, request.cpus, Vec::new());
    for i in near(best) {
        if required == 0 && mbs == 0 && (cpus <= flex || enough_cpus) {
            break;
        }
        picked.push(i);
        required = required.saturating_sub(1);
        let (free_mbs, free_cpus) = left[i];
        mbs = if nodes[i].memory.is_none() || free_mbs >= mbs + MEMORY_MARGIN {
            0
        } else {
            mbs - free_mbs.saturating_sub(MEMORY_MARGIN).min(mbs)
        };
        cpus = cpus.saturating_sub(free_cpus);
    }
    picked.sort_unstable();
    picked
}
