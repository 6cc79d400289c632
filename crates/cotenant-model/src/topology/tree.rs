//! The machine as a tree of nested resources.
//!
//! Topology order, symmetries and drawings all follow this one tree. Resources that cross others (a bus over halves of
//! two packages, firmware with nodes across packages) do not fit; their whole class is left out and listed apart.

use super::{CacheType, Kind, Topology};
use crate::{CpuId, CpuSet};
use std::cmp::Reverse;

/// Kind of a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// The whole machine, the root.
    Machine,
    /// A resource, by its index in [`Topology::resources`].
    Resource(usize),
    /// A memory node, by its index in [`Topology::nodes`].
    Node(usize),
    /// An online CPU: a leaf.
    Cpu(CpuId),
}

/// A vertex of the tree.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// Its kind.
    pub item: Item,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// Its children in [`Tree::vertices`], in ascending order of lowest CPU.
    pub children: Vec<usize>,
}

/// The tree; vertex 0 is the machine.
#[derive(Clone, Debug)]
pub struct Tree {
    /// All vertices, each before its children.
    pub vertices: Vec<Vertex>,
    /// Resources and nodes with CPUs in a class that crosses another.
    pub crossing: Vec<Item>,
    /// Memory nodes without CPUs.
    pub cpuless: Vec<usize>,
}

/// Order of classes when two of them cross: the first one stays in the tree.
fn precedence(kind: Option<Kind>, level: u8) -> (u8, Reverse<u8>) {
    let rank = match kind {
        Some(Kind::Package) => 0,
        Some(Kind::Core) => 1,
        Some(Kind::Cache(CacheType::Unified | CacheType::Data)) => 2,
        Some(Kind::Die) => 3,
        Some(Kind::Cluster) => 4,
        Some(Kind::Cache(CacheType::Instruction)) => 5,
        None => 6, // memory nodes
        Some(Kind::MemoryController) => 7,
        Some(Kind::Bus) => 8,
        Some(Kind::Link) => 9,
    };
    (rank, Reverse(level))
}

/// Of two vertices with the same CPUs, the lower one is the outer.
fn nesting(kind: Option<Kind>, level: u8) -> (u8, Reverse<u8>) {
    let rank = match kind {
        Some(Kind::Link) => 0,
        Some(Kind::Package) => 1,
        Some(Kind::Bus) => 2,
        Some(Kind::MemoryController) => 3,
        None => 4, // memory nodes
        Some(Kind::Die) => 5,
        Some(Kind::Cluster) => 6,
        Some(Kind::Cache(_)) => 7,
        Some(Kind::Core) => 8,
    };
    (rank, Reverse(level))
}

impl Tree {
    /// The tree of a machine.
    pub fn new(topology: &Topology) -> Self {
        let class = |item: Item| match item {
            Item::Resource(i) => (Some(topology.resources()[i].kind), topology.resources()[i].level),
            _ => (None, 0),
        };
        let mut sets: Vec<(Item, &CpuSet)> = Vec::new();
        sets.extend(topology.resources().iter().enumerate().map(|(i, r)| (Item::Resource(i), &r.cpus)));
        sets.extend(topology.nodes().iter().enumerate().map(|(i, n)| (Item::Node(i), &n.cpus)));
        let cpuless = (0..topology.nodes().len()).filter(|&i| topology.nodes()[i].cpus.is_empty()).collect();
        sets.retain(|(_, cpus)| !cpus.is_empty());
        sets.sort_by_key(|(item, _)| {
            let (kind, level) = class(*item);
            (precedence(kind, level), kind)
        });

        // A class is kept or dropped as a whole, so that every symmetry of the machine is one of the tree.
        let mut kept: Vec<(Item, &CpuSet)> = Vec::new();
        let mut crossing = Vec::new();
        let mut holding: Vec<Vec<usize>> = vec![Vec::new(); topology.online().last().map_or(0, |c| c.index() + 1)];
        for members in sets.chunk_by(|a, b| class(a.0) == class(b.0)) {
            let before = kept.len();
            let nests = members.iter().all(|&(item, cpus)| {
                let fits = cpus.iter().all(|cpu| {
                    holding[cpu.index()].iter().all(|&k| {
                        let other: &CpuSet = kept[k].1;
                        cpus.is_subset(other) || other.is_subset(cpus)
                    })
                });
                cpus.iter().for_each(|cpu| holding[cpu.index()].push(kept.len()));
                kept.push((item, cpus));
                fits
            });
            if !nests {
                kept.truncate(before);
                for of_cpu in &mut holding {
                    of_cpu.retain(|&k| k < before);
                }
                crossing.extend(members.iter().map(|m| m.0));
            }
        }

        kept.sort_by_key(|(item, cpus)| {
            let (kind, level) = class(*item);
            (Reverse(cpus.len()), nesting(kind, level), kind, cpus.first())
        });
        let mut vertices = vec![Vertex { item: Item::Machine, cpus: topology.online().clone(), children: Vec::new() }];
        let mut innermost = vec![0usize; holding.len()];
        let singles: Vec<CpuSet> = topology.online().iter().map(CpuSet::single).collect();
        let leaves = topology.online().iter().map(Item::Cpu).zip(&singles);
        for (item, cpus) in kept.into_iter().chain(leaves) {
            let Some(first) = cpus.first() else { continue };
            let at = vertices.len();
            vertices[innermost[first.index()]].children.push(at);
            cpus.iter().for_each(|cpu| innermost[cpu.index()] = at);
            vertices.push(Vertex { item, cpus: cpus.clone(), children: Vec::new() });
        }
        let lowest: Vec<Option<CpuId>> = vertices.iter().map(|v| v.cpus.first()).collect();
        for vertex in &mut vertices {
            vertex.children.sort_by_key(|&child| lowest[child]);
        }
        Self { vertices, crossing, cpuless }
    }

    /// Vertices in depth-first order, each with its depth below the root.
    pub fn depth_first(&self) -> Vec<(usize, usize)> {
        let mut order = Vec::with_capacity(self.vertices.len());
        let mut open = vec![(0, 0)];
        while let Some((at, depth)) = open.pop() {
            order.push((at, depth));
            open.extend(self.vertices[at].children.iter().rev().map(|&child| (child, depth + 1)));
        }
        order
    }

    /// The online CPUs in topology order.
    pub fn cpus(&self) -> Vec<CpuId> {
        self.depth_first()
            .into_iter()
            .filter_map(|(at, _)| match self.vertices[at].item {
                Item::Cpu(cpu) => Some(cpu),
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::topology::Parts;

    #[test]
    fn equal_sets_nest_from_package_to_core() {
        let mut parts = Parts { cpus: cpus(2), nodes: vec![node(0, "0-1")], ..Parts::default() };
        for (kind, level, list) in [
            (Kind::Core, 0, "0-1"),
            (Kind::Cache(CacheType::Unified), 2, "0-1"),
            (Kind::Cache(CacheType::Unified), 3, "0-1"),
            (Kind::Package, 0, "0-1"),
            (Kind::Bus, 0, "0-1"),
        ] {
            parts.resources.push(resource(kind, level, list));
        }
        let topology = Topology::new(parts).unwrap();
        let tree = Tree::new(&topology);
        let chain: Vec<String> = tree
            .depth_first()
            .iter()
            .filter_map(|&(at, _)| match tree.vertices[at].item {
                Item::Resource(i) => {
                    Some(format!("{:?}{}", topology.resources()[i].kind, topology.resources()[i].level))
                }
                Item::Node(_) => Some("Node".to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(chain, ["Package0", "Bus0", "Node", "Cache(Unified)3", "Cache(Unified)2", "Core0"]);
    }

    #[test]
    fn a_class_that_crosses_stands_apart() {
        let mut parts = Parts { cpus: cpus(4), ..Parts::default() };
        parts.resources = vec![
            resource(Kind::Package, 0, "0-1"),
            resource(Kind::Package, 0, "2-3"),
            resource(Kind::Bus, 0, "0"),
            resource(Kind::Bus, 0, "1-2"),
        ];
        let topology = Topology::new(parts).unwrap();
        let tree = Tree::new(&topology);
        assert_eq!(tree.crossing.len(), 2);
        assert_eq!(tree.vertices.len(), 1 + 2 + 4);
    }
}
