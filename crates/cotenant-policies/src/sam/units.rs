//! The places between which SAM chooses: the paper's sockets.

use cotenant_model::{CpuId, CpuSet, PlaceKind, Topology};
use std::borrow::Cow;
use std::cell::OnceCell;

/// "None" in dense arrays of indexes.
pub(super) const NONE: u32 = u32::MAX;

/// Which units a stage works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Of stage 1.
    Sharing = 0,
    /// Of stages 2 and 3.
    Memory = 1,
}

/// A partition of the usable CPUs.
#[derive(Clone)]
pub(super) struct Level<'a> {
    /// Unit of each CPU by its number; [`NONE`] unless it is a usable context.
    of: Vec<u32>,
    units: Vec<Unit<'a>>,
    kind: PlaceKind,
    /// Whether some package has several units; otherwise units are packages, with the same indexes.
    pub split: bool,
}

/// One part of the machine.
#[derive(Clone)]
pub(super) struct Unit<'a> {
    /// Its contexts in filling order: first contexts of all cores before second ones.
    pub contexts: Cow<'a, [CpuId]>,
    /// The same as a set, made on first use.
    set: OnceCell<CpuSet>,
    /// Index of its package.
    pub package: usize,
    /// Index of its memory node.
    pub node: Option<usize>,
    /// Its number in reasons.
    label: u32,
}

impl<'a> Unit<'a> {
    fn new(contexts: Cow<'a, [CpuId]>, package: usize, node: Option<usize>, label: usize) -> Self {
        Self { contexts, set: OnceCell::new(), package, node, label: label as u32 }
    }

    /// Its contexts.
    pub fn set(&self) -> &CpuSet {
        self.set.get_or_init(|| self.contexts.iter().copied().collect())
    }
}

impl<'a> Level<'a> {
    /// Units of stage 1: packages, or last-level-cache domains in packages with several of them.
    pub fn sharing(topology: &'a Topology, llc_domains: bool) -> Self {
        let domains = topology.llc_domains();
        if !llc_domains || domains.len() <= topology.packages().len() {
            return Self::packages(topology);
        }
        let units =
            domains.iter().enumerate().map(|(i, d)| Unit::new(Cow::Borrowed(&d.contexts), d.package, d.node, i));
        Self::new(topology, units.collect(), PlaceKind::LlcDomain, true)
    }

    /// Units of stages 2 and 3: packages, or their memory nodes in packages with several of them. A node that spans
    /// packages (front-side buses, virtual machines) still counts once per package, because each has its own path to
    /// memory.
    pub fn memory(topology: &'a Topology, nodes: bool) -> Self {
        let mut level = Self::packages(topology);
        if !nodes {
            return level;
        }
        if level.units.iter().any(|u| u.contexts.iter().any(|&c| topology.node_of(c) != u.node)) {
            let mut units: Vec<Unit<'a>> = Vec::new();
            for whole in &level.units {
                let start = units.len();
                for &cpu in whole.contexts.iter() {
                    let node = topology.node_of(cpu);
                    match units[start..].iter_mut().find(|u| u.node == node) {
                        Some(unit) => unit.contexts.to_mut().push(cpu),
                        None => units.push(Unit::new(Cow::Owned(vec![cpu]), whole.package, node, whole.package)),
                    }
                }
                units[start..].sort_by_key(|u| u.node);
            }
            level = Self::new(topology, units, PlaceKind::Package, true);
        }
        // A unit is named after its node if that is unique.
        let nodes: Vec<Option<usize>> = level.units.iter().map(|u| u.node).collect();
        let distinct = |n: &Option<usize>| n.is_some() && nodes.iter().filter(|m| *m == n).count() == 1;
        if nodes.iter().all(distinct) {
            level.kind = PlaceKind::Node;
            for unit in &mut level.units {
                unit.label = unit.node.map_or(unit.label, |n| topology.nodes()[n].id.0);
            }
        }
        level
    }

    fn packages(topology: &'a Topology) -> Self {
        let units = topology.package_contexts().iter().enumerate().map(|(i, contexts)| {
            let node = contexts.first().and_then(|&c| topology.node_of(c));
            Unit::new(Cow::Borrowed(contexts), i, node, i)
        });
        Self::new(topology, units.collect(), PlaceKind::Package, false)
    }

    fn new(topology: &Topology, units: Vec<Unit<'a>>, kind: PlaceKind, split: bool) -> Self {
        let mut of = vec![NONE; topology.usable().last().map_or(0, |c| c.index() + 1)];
        for (i, unit) in units.iter().enumerate() {
            for cpu in unit.contexts.iter() {
                of[cpu.index()] = i as u32;
            }
        }
        Self { of, units, kind, split }
    }

    /// All contexts.
    pub fn contexts(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.units.iter().flat_map(|unit| unit.contexts.iter().copied())
    }

    /// Number of units.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// The unit of that index.
    pub fn unit(&self, unit: usize) -> &Unit<'a> {
        &self.units[unit]
    }

    /// The unit of a CPU, if it is a usable context.
    pub fn of(&self, cpu: CpuId) -> Option<usize> {
        self.of.get(cpu.index()).filter(|u| **u != NONE).map(|u| *u as usize)
    }

    /// The unit of a package's CPUs that belong to a node.
    pub fn of_node(&self, package: usize, node: Option<usize>) -> Option<usize> {
        if !self.split {
            return Some(package);
        }
        self.units.iter().position(|u| u.package == package && u.node == node)
    }

    /// The name of a unit in reasons.
    pub fn place(&self, unit: usize) -> (PlaceKind, u32) {
        (self.kind, self.units[unit].label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::{machine, parts};

    fn contexts(level: &Level<'_>) -> Vec<Vec<u32>> {
        level.units.iter().map(|u| u.contexts.iter().map(|c| c.0).collect()).collect()
    }

    #[test]
    fn domains_count_only_where_a_package_has_several() {
        let plain = machine(2, 1, 2, 2);
        assert_eq!(Level::sharing(&plain, true).place(1), (PlaceKind::Package, 1));
        let chiplets = machine(2, 2, 1, 1);
        assert_eq!(contexts(&Level::sharing(&chiplets, true)), [[0], [1], [2], [3]]);
        assert_eq!(contexts(&Level::sharing(&chiplets, false)), [[0, 1], [2, 3]]);
    }

    #[test]
    fn memory_is_by_package_and_node() {
        // Ordinary: one node per package.
        let plain = machine(2, 1, 2, 1);
        let level = Level::memory(&plain, true);
        assert_eq!((contexts(&level), level.place(1)), (vec![vec![0, 1], vec![2, 3]], (PlaceKind::Node, 1)));
        // Sub-NUMA clusters: two nodes in one package, each with both contexts of its core.
        let mut split = parts(1, 1, 2, 2);
        let mut other = split.nodes[0].clone();
        split.nodes[0].cpus = CpuSet::parse_list("0,2").unwrap();
        other.id.0 = 1;
        other.cpus = CpuSet::parse_list("1,3").unwrap();
        split.nodes.push(other);
        split.distances = None;
        let split = Topology::new(split).unwrap();
        assert_eq!(contexts(&Level::memory(&split, true)), [[0, 2], [1, 3]]);
        assert_eq!(contexts(&Level::memory(&split, false)), [[0, 1, 2, 3]]);
        // Two packages on one node: each package has its own way to memory.
        let mut uma = parts(2, 1, 1, 1);
        uma.nodes.pop();
        uma.nodes[0].cpus = CpuSet::parse_list("0-1").unwrap();
        uma.distances = None;
        let uma = Topology::new(uma).unwrap();
        let level = Level::memory(&uma, true);
        assert_eq!((contexts(&level), level.place(1)), (vec![vec![0], vec![1]], (PlaceKind::Package, 1)));
    }
}
