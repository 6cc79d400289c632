//! The machine for shapes: cache domains, their cores or modules, and equivalent domains.

use cotenant_model::topology::shared::levels;
use cotenant_model::{CpuSet, TaskId, Topology, View};
use std::collections::BTreeMap;

/// The available places.
pub(super) type ShapePlaces = BTreeMap<TaskId, CpuSet>;

/// A last-level-cache domain, limited to CPUs that the threads may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShapeDomain {
    /// Its usable CPUs.
    pub cpus: CpuSet,
    /// Its cores or, if cores share a cache before the last one, its modules. Threads double up in these.
    pub units: Vec<CpuSet>,
    /// Index among the used packages.
    pub package: usize,
    /// Index among the used memory nodes.
    pub node: usize,
    /// Domains with the same number of CPUs and units are equivalent.
    pub class: u32,
}

impl ShapeDomain {
    /// Threads that fit with one per unit.
    pub fn room(&self) -> usize {
        self.units.len()
    }

    /// CPUs.
    pub fn seats(&self) -> usize {
        self.cpus.len()
    }
}

/// The usable part of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShapeBoard {
    pub domains: Vec<ShapeDomain>,
    /// Per memory node: its difference from equal nodes, such as the owners of its pages.
    pub labels: Vec<u64>,
}

impl ShapeBoard {
    /// The usable part of these CPUs. `label` distinguishes nodes by their index in the topology.
    pub fn new(topology: &Topology, cpus: &CpuSet, label: impl Fn(usize) -> u64) -> Self {
        let cpus = cpus.and(topology.usable());
        let shared = levels(topology, &cpus);
        let (mut domains, mut packages, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        let index = |list: &mut Vec<usize>, of: usize| {
            list.iter().position(|known| *known == of).unwrap_or_else(|| {
                list.push(of);
                list.len() - 1
            })
        };
        for domain in topology.llc_domains() {
            let own = domain.cpus.and(&cpus);
            if own.is_empty() {
                continue;
            }
            // Its largest parts that share a resource below its cache; otherwise its cores.
            let modules = shared.iter().find_map(|level| {
                let parts = || level.instances.iter().filter(|part| part.intersects(&own));
                let below = parts().all(|part| part.is_subset(&own)) && parts().count() > 1;
                below.then(|| parts().cloned().collect::<Vec<_>>())
            });
            let cores = || topology.cores().iter().map(|core| core.and(&own)).filter(|core| !core.is_empty()).collect();
            let units: Vec<CpuSet> = modules.filter(|all| covers(all, &own)).unwrap_or_else(cores);
            let class = (own.len() * 65_536 + units.len()) as u32;
            let package = index(&mut packages, domain.package);
            let node = index(&mut nodes, domain.node.unwrap_or(usize::MAX));
            domains.push(ShapeDomain { cpus: own, units, package, node, class });
        }
        let labels = nodes.iter().map(|node| if *node == usize::MAX { 0 } else { label(*node) }).collect();
        Self { domains, labels }
    }

    /// Threads that fit with one per unit.
    pub fn room(&self) -> usize {
        self.domains.iter().map(ShapeDomain::room).sum()
    }

    /// CPUs.
    pub fn seats(&self) -> usize {
        self.domains.iter().map(ShapeDomain::seats).sum()
    }

    /// The domains of each package or memory node.
    pub fn parts(&self, of: fn(&ShapeDomain) -> usize) -> Vec<Vec<usize>> {
        let count = self.domains.iter().map(|d| of(d) + 1).max().unwrap_or(0);
        (0..count).map(|part| (0..self.domains.len()).filter(|&d| of(&self.domains[d]) == part).collect()).collect()
    }

    /// Domains in dealing order: from one package to the next, and inside from node to node.
    pub fn dealt(&self) -> Vec<usize> {
        let rank = |d: usize, of: fn(&ShapeDomain) -> (usize, usize)| {
            (0..d).filter(|&before| of(&self.domains[before]) == of(&self.domains[d])).count()
        };
        let mut order: Vec<usize> = (0..self.domains.len()).collect();
        // A node may have several packages.
        order.sort_by_key(|&d| (rank(d, |x| (x.node, x.package)), rank(d, |x| (x.package, 0)), d));
        order
    }

    /// The domain of a thread: its place, otherwise where it runs. A thread that sleeps on a forbidden CPU will wake up
    /// elsewhere.
    pub fn domain_of(&self, view: &View, home: &ShapePlaces, task: TaskId) -> Option<usize> {
        if let Some(cpu) = home.get(&task).and_then(CpuSet::first) {
            return self.domains.iter().position(|domain| domain.cpus.contains(cpu));
        }
        let thread = view.task(task)?;
        let cpu = thread.cpu.filter(|cpu| thread.info.allowed.contains(*cpu));
        let cpus = cpu.map_or_else(|| thread.info.allowed.clone(), CpuSet::single);
        self.domains.iter().position(|domain| domain.cpus.intersects(&cpus))
    }
}

/// Equal for machines with the same domains and usable CPUs.
pub(super) fn fingerprint(topology: &Topology) -> u64 {
    let numbers = topology.llc_domains().iter().flat_map(|domain| {
        let at = [u64::MAX, domain.package as u64, domain.node.map_or(u64::MAX, |node| node as u64)];
        at.into_iter().chain(domain.cpus.iter().map(|cpu| u64::from(cpu.0)))
    });
    digest(numbers)
}

/// FNV-1a of numbers.
pub(super) fn digest(numbers: impl Iterator<Item = u64>) -> u64 {
    let bytes = numbers.flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn covers(parts: &[CpuSet], all: &CpuSet) -> bool {
    parts.iter().map(CpuSet::len).sum::<usize>() == all.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::{clovertown, machine};

    #[test]
    fn domains_units_and_the_order_in_which_they_are_dealt() {
        let topology = machine(2, 2, 4, 2);
        let board = ShapeBoard::new(&topology, topology.usable(), |node| node as u64);
        assert_eq!((board.domains.len(), board.room(), board.seats()), (4, 16, 32));
        assert_eq!(board.parts(|d| d.package), [[0, 1], [2, 3]]);
        assert_eq!(board.dealt(), [0, 2, 1, 3]);
        // One node, two packages.
        let uniform = clovertown();
        assert_eq!(ShapeBoard::new(&uniform, uniform.usable(), |_| 0).dealt(), [0, 2, 1, 3]);
        let some = ShapeBoard::new(&topology, &topology.llc_domains()[3].cpus, |_| 0);
        assert_eq!((some.domains.len(), some.domains[0].package, some.room()), (1, 0, 4));
    }
}
