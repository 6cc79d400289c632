//! The places of CPUs: dense indices instead of lookups, for the simulator's inner loops.

use crate::machine::SimMachine;
use cotenant_model::CpuId;

/// One level of the machine, as groups of CPUs.
#[derive(Clone, Debug)]
pub struct Level {
    /// Per CPU number: its group.
    pub of: Vec<usize>,
    /// The CPUs of each group, in ascending order.
    pub groups: Vec<Vec<usize>>,
}

impl Level {
    fn new(cpus: &[usize], size: usize, group: impl Fn(CpuId) -> Option<usize>) -> Self {
        let mut of = vec![0; size];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &cpu in cpus {
            let g = group(CpuId(cpu as u32)).unwrap_or(0);
            of[cpu] = g;
            groups.resize(groups.len().max(g + 1), Vec::new());
            groups[g].push(cpu);
        }
        Self { of, groups }
    }
}

/// The place of each CPU.
#[derive(Clone, Debug)]
pub struct Places {
    /// Usable CPUs in ascending order.
    pub cpus: Vec<usize>,
    /// Physical cores.
    pub core: Level,
    /// Shared caches before the last level, from the cores outward; a CPU without one is in a group of its core.
    pub near: Vec<Level>,
    /// LLC domains.
    pub llc: Level,
    /// Packages.
    pub package: Level,
    /// Memory nodes.
    pub node: Level,
}

impl Places {
    /// Of a machine.
    pub fn new(machine: &SimMachine) -> Self {
        let topology = &machine.topology;
        let cpus: Vec<usize> = topology.usable().iter().map(CpuId::index).collect();
        let size = cpus.last().map_or(0, |c| c + 1);
        let near = machine.near.iter().map(|near| {
            let cache = |c: CpuId| near.of.get(c.index()).copied().flatten();
            Level::new(&cpus, size, |c| cache(c).or_else(|| Some(near.bytes.len() + topology.core_of(c)?)))
        });
        Self {
            near: near.collect(),
            core: Level::new(&cpus, size, |c| topology.core_of(c)),
            llc: Level::new(&cpus, size, |c| topology.llc_of(c)),
            package: Level::new(&cpus, size, |c| topology.package_of(c)),
            node: Level::new(&cpus, size, |c| topology.node_of(c)),
            cpus,
        }
    }
}
