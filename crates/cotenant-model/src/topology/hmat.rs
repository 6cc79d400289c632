//! Memory figures of the firmware's heterogeneous memory attribute table (HMAT, ACPI 6.2 and later) as the kernel
//! passes them on: each node's speed for its nearest nodes only (`Documentation/admin-guide/mm/numaperf.rst`).

pub use super::access::Access;
use super::quantity::{per_second, scaled};
use super::{DistanceUnit, Distances, MemoryNode, Topology};
use std::ops::RangeInclusive;

/// Plausible latencies, ns. The kernel writes 0 without information; no memory answers within a nanosecond, or takes
/// longer than a disk.
pub const PLAUSIBLE_NS: RangeInclusive<u64> = 1..=100_000;
/// Plausible bandwidths, MB/s: up to 100 TB/s.
pub const PLAUSIBLE_MBS: RangeInclusive<u64> = 1..=100_000_000;

/// Distances in nanoseconds from the figures of nearest nodes; others in proportion to the SLIT, whose distances are
/// defined as relative latencies.
///
/// # Errors
/// Why there are none: figures must cover every node with memory, to avoid comparing latencies with ratios; and without
/// a SLIT, every pair.
pub fn distances(nodes: &[MemoryNode], told: &[Access], slit: Option<&Distances>) -> Result<Distances, String> {
    let holds_memory = |node: &MemoryNode| node.bytes != Some(0);
    let of = |node: &MemoryNode| {
        let access = told.iter().find(|access| access.node == node.id)?;
        let near = |other: &MemoryNode| access.initiators.contains(&other.id);
        nodes.iter().any(near).then_some((access, access.latency()?))
    };
    let silent: Vec<String> =
        nodes.iter().filter(|node| holds_memory(node) && of(node).is_none()).map(|node| node.id.to_string()).collect();
    if !silent.is_empty() {
        return Err(format!("no latency of node {}", silent.join(", ")));
    }
    // Nodes without memory have no pages; their cell is never read, but a table has no holes.
    let slowest = nodes.iter().filter_map(of).map(|(_, ns)| ns).fold(0.0, f64::max);
    let cell = |from: usize, to: usize| {
        let Some((access, ns)) = of(&nodes[to]) else { return Ok(slowest) };
        let near = |node: usize| access.initiators.contains(&nodes[node].id);
        if near(from) {
            return Ok(ns);
        }
        let untold = || format!("no latency from node {} to node {}, and no SLIT", nodes[from].id, nodes[to].id);
        let rows = &slit.ok_or_else(untold)?.rows;
        let nearest =
            (0..nodes.len()).filter(|&node| near(node)).map(|node| rows[node][to]).fold(f64::INFINITY, f64::min);
        // A node that is not among the nearest cannot be nearer than they are, whatever the SLIT.
        if nearest > 0.0 { Ok((ns * rows[from][to] / nearest).max(ns)) } else { Err(untold()) }
    };
    let row = |from| (0..nodes.len()).map(|to| cell(from, to)).collect::<Result<Vec<f64>, String>>();
    let rows = (0..nodes.len()).map(row).collect::<Result<_, String>>()?;
    Ok(Distances { unit: DistanceUnit::Nanoseconds, rows, source: Some("the firmware's HMAT".to_owned()) })
}

/// One line of text per node with firmware figures.
pub(super) fn lines(topology: &Topology) -> impl Iterator<Item = String> {
    topology.parts().accesses.iter().map(|access| {
        let both = |read: Option<String>, write: Option<String>| match (read, write) {
            (Some(read), Some(write)) if read == write => Some(read),
            (Some(read), Some(write)) => Some(format!("{read} (writes {write})")),
            (Some(read), None) => Some(read),
            (None, write) => write.map(|write| format!("writes {write}")),
        };
        let ns = |ns: Option<u64>| ns.map(|ns| scaled(ns as f64, 1000.0, &["ns", "µs"]));
        let latency = both(ns(access.read_ns), ns(access.write_ns));
        let bandwidth = both(access.read_bytes_per_s.map(per_second), access.write_bytes_per_s.map(per_second));
        let figures: Vec<String> = [latency, bandwidth].into_iter().flatten().collect();
        let from: Vec<String> = access.initiators.iter().map(ToString::to_string).collect();
        let figures = if figures.is_empty() { "nothing that can be believed".to_owned() } else { figures.join(", ") };
        format!("Node {} from node {} (HMAT): {figures}", access.node, from.join(","))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{node, slit};
    use super::*;
    use crate::NodeId;

    fn access(of: u32, initiators: &[u32], read_ns: Option<u64>, write_ns: Option<u64>) -> Access {
        let initiators = initiators.iter().map(|n| NodeId(*n)).collect();
        Access { node: NodeId(of), initiators, read_ns, write_ns, read_bytes_per_s: None, write_bytes_per_s: None }
    }

    #[test]
    fn the_nearest_are_told_and_the_others_in_proportion() {
        let nodes = [node(0, "0"), node(1, "1"), node(2, "")];
        let slit = slit(&[&[10.0, 21.0, 14.0], &[20.0, 10.0, 28.0], &[17.0, 28.0, 10.0]]);
        let told =
            [access(0, &[0], Some(100), Some(150)), access(1, &[1], None, Some(110)), access(2, &[0], Some(250), None)];
        let found = distances(&nodes, &told, Some(&slit)).unwrap();
        assert_eq!(found.unit, DistanceUnit::Nanoseconds);
        // 110 × 21 / 10; 100 × 20 / 10; 250 from node 0, so 250 × 28 / 14 from node 1, and never nearer than node 0.
        assert_eq!(found.rows, [[100.0, 231.0, 250.0], [200.0, 110.0, 500.0], [170.0, 308.0, 250.0]]);
    }

    #[test]
    fn what_is_told_of_some_alone_is_not_mixed_with_ratios() {
        let mut nodes = [node(0, "0"), node(1, "1")];
        let slit = slit(&[&[10.0, 20.0], &[20.0, 10.0]]);
        let one = [access(0, &[0], Some(100), None)];
        assert_eq!(distances(&nodes, &one, Some(&slit)).unwrap_err(), "no latency of node 1");
        assert_eq!(distances(&nodes, &[], Some(&slit)).unwrap_err(), "no latency of node 0, 1");
        // Initiators that do not exist, and non-numbers.
        let strange = [one[0].clone(), access(1, &[7], Some(100), None)];
        assert!(distances(&nodes, &strange, Some(&slit)).is_err());
        assert!(distances(&nodes, &[one[0].clone(), access(1, &[1], None, None)], Some(&slit)).is_err());
        // A node without memory needs no latency.
        nodes[1].bytes = Some(0);
        assert_eq!(distances(&nodes, &one, Some(&slit)).unwrap().rows, [[100.0, 100.0], [200.0, 100.0]]);
    }

    #[test]
    fn without_a_slit_every_pair_is_to_be_told() {
        let nodes = [node(0, "0-1"), node(1, "")];
        let told = [access(0, &[0, 1], Some(90), None), access(1, &[0, 1], Some(300), None)];
        assert_eq!(distances(&nodes, &told, None).unwrap().rows, [[90.0, 300.0], [90.0, 300.0]]);
        let told = [access(0, &[0], Some(90), None), access(1, &[0], Some(300), None)];
        assert_eq!(distances(&nodes, &told, None).unwrap_err(), "no latency from node 1 to node 0, and no SLIT");
        let zero = slit(&[&[0.0, 0.0], &[0.0, 0.0]]);
        assert!(distances(&nodes, &told, Some(&zero)).is_err());
    }
}
