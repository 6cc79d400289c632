//! The machine as JSON for tools, with stable keys.

use super::hmat::Access;
use super::render::{cpus_of, is_last_level, offline};
use super::tree::{Item, Tree};
use super::{CacheType, Distances, Kind, Topology};
use crate::CpuSet;
use serde::Serialize;

/// Output of `topo --json`. Keys are stable; others may be added.
#[derive(Debug, Serialize)]
pub struct Report<'t> {
    /// The machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'t str>,
    /// Packages with an online CPU.
    pub packages: usize,
    /// Memory nodes, those without CPUs included.
    pub numa_nodes: usize,
    /// Last-level-cache domains.
    pub llc_domains: usize,
    /// Cores with an online CPU.
    pub cores: usize,
    /// Online CPUs.
    pub cpus: usize,
    /// Online CPUs that the cpuset allows.
    pub usable_cpus: usize,
    /// The nesting of resources.
    pub tree: Branch,
    /// Resources and nodes outside of the tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crossing: Vec<Branch>,
    /// Memory nodes without CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_only: Vec<Branch>,
    /// CPUs that are switched off, as a list.
    #[serde(skip_serializing_if = "CpuSet::is_empty")]
    pub offline: CpuSet,
    /// Distances to memory, as in [`Distances`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distances: Option<&'t Distances>,
    /// The firmware's HMAT, as in [`Access`].
    #[serde(skip_serializing_if = "<[Access]>::is_empty")]
    pub accesses: &'t [Access],
}

/// A vertex in JSON.
#[derive(Debug, Default, Serialize)]
pub struct Branch {
    /// `machine`, `package`, `die`, `cluster`, `cache`, `core`, `bus`, `memory_controller`, `link`, `memory_node` or
    /// `cpu`.
    pub kind: &'static str,
    /// The operating system's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Of caches: 1, 2, 3, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// Of caches: contents.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheType>,
    /// Of caches and memory nodes: size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Of buses, controllers and links: bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// Whether it is the last-level cache of its CPUs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub llc: bool,
    /// Its online CPUs, as a list.
    pub cpus: CpuSet,
    /// Of CPUs and memory nodes: false if the cpuset forbids it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
    /// Of CPUs: 0 = slowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency_class: Option<u8>,
    /// Position in hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coord: Option<(i32, i32)>,
    /// Its contents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Branch>,
}

/// A machine in the form of `topo --json`.
pub fn json(topology: &Topology) -> serde_json::Value {
    let tree = Tree::new(topology);
    let alone = |item| branch(topology, item, cpus_of(topology, item));
    let report = Report {
        name: topology.name(),
        packages: topology.packages().len(),
        numa_nodes: topology.nodes().len(),
        llc_domains: topology.llc_domains().len(),
        cores: topology.cores().len(),
        cpus: topology.online().len(),
        usable_cpus: topology.usable().len(),
        tree: nested(topology, &tree, 0),
        crossing: tree.crossing.iter().map(|&item| alone(item)).collect(),
        memory_only: tree.cpuless.iter().map(|&i| alone(Item::Node(i))).collect(),
        offline: offline(topology),
        distances: topology.parts().distances.as_ref(),
        accesses: &topology.parts().accesses,
    };
    serde_json::json!(report)
}

fn nested(topology: &Topology, tree: &Tree, at: usize) -> Branch {
    let vertex = &tree.vertices[at];
    let children = vertex.children.iter().map(|&child| nested(topology, tree, child)).collect();
    Branch { children, ..branch(topology, vertex.item, &vertex.cpus) }
}

fn branch(topology: &Topology, item: Item, cpus: &CpuSet) -> Branch {
    let plain = Branch { kind: "machine", cpus: cpus.clone(), ..Branch::default() };
    match item {
        Item::Machine => plain,
        Item::Cpu(id) => {
            let cpu = topology.cpu(id);
            Branch {
                kind: "cpu",
                index: Some(id.0),
                allowed: cpu.map(|c| c.allowed),
                efficiency_class: cpu.and_then(|c| c.efficiency_class),
                coord: cpu.and_then(|c| c.coord),
                ..plain
            }
        }
        Item::Node(i) => {
            let node = &topology.nodes()[i];
            let (index, bytes, allowed, coord) = (Some(node.id.0), node.bytes, Some(node.allowed), node.coord);
            Branch { kind: "memory_node", index, bytes, allowed, coord, ..plain }
        }
        Item::Resource(i) => {
            let r = &topology.resources()[i];
            let resource = |kind| Branch { kind, index: r.os_index, bytes_per_s: r.capacity, ..plain };
            match r.kind {
                Kind::Package => resource("package"),
                Kind::Die => resource("die"),
                Kind::Cluster => resource("cluster"),
                Kind::Core => resource("core"),
                Kind::Bus => resource("bus"),
                Kind::MemoryController => resource("memory_controller"),
                Kind::Link => resource("link"),
                Kind::Cache(cache) => Branch {
                    level: Some(r.level),
                    cache: Some(cache),
                    bytes: r.capacity,
                    bytes_per_s: None,
                    llc: is_last_level(topology, i),
                    ..resource("cache")
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;

    #[test]
    fn json_has_the_stable_keys() {
        let machine = Topology::new(regular(2, 2, 2, 2)).unwrap();
        let json = json(&machine);
        let counts = ["packages", "numa_nodes", "llc_domains", "cores", "cpus"].map(|key| json[key].as_u64());
        assert_eq!(counts, [2, 2, 4, 8, 16].map(Some));
        let mut leaves = Vec::new();
        let mut open = vec![&json["tree"]];
        while let Some(at) = open.pop() {
            open.extend(at["children"].as_array().into_iter().flatten());
            leaves.extend((at["kind"] == "cpu").then(|| at["index"].as_u64().unwrap()));
        }
        leaves.sort_unstable();
        assert_eq!(leaves, (0..16).collect::<Vec<_>>());
        assert_eq!(json["tree"]["children"][0]["kind"], "package");
    }
}
