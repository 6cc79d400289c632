//! The plan of what is measured on a machine.

use cotenant_model::{CpuId, CpuSet, NodeId, Topology};

/// Limit of CPUs with measured latencies; on larger machines, the first ones.
const MOST_CPUS: usize = 256;

/// The measured parts of a machine.
pub(super) struct Plan<'a> {
    pub topology: &'a Topology,
    /// Usable CPUs.
    pub cpus: CpuSet,
    /// CPUs with measured latencies.
    pub pairs_of: Vec<CpuId>,
    /// First and second thread of a core.
    pub siblings: Option<(CpuId, CpuId)>,
    /// Two CPUs on different cores.
    pub two: Option<(CpuId, CpuId)>,
    /// Two cores of one last-level cache, and two without a common one, of different packages if possible.
    pub together: Option<(CpuId, CpuId)>,
    pub apart: Option<(CpuId, CpuId)>,
    /// By memory node: the first thread of each of its cores.
    pub nodes: Vec<(NodeId, Vec<CpuId>)>,
}

impl<'a> Plan<'a> {
    pub fn new(topology: &'a Topology, cpus: &CpuSet) -> Self {
        let firsts: Vec<CpuId> = topology.cores().iter().filter_map(|core| core.and(cpus).first()).collect();
        let pair = |fits: &dyn Fn(CpuId, CpuId) -> bool| {
            let second = |(i, a): (usize, &CpuId)| Some((*a, *firsts[i + 1..].iter().find(|b| fits(*a, **b))?));
            firsts.iter().enumerate().find_map(second)
        };
        let siblings = topology.cores().iter().map(|core| core.and(cpus)).find(|core| core.len() > 1);
        let several = topology.packages().len() > 1;
        let nodes = topology.nodes().iter().map(|node| {
            let own = firsts.iter().copied().filter(|cpu| node.cpus.contains(*cpu)).collect();
            (node.id, own)
        });
        Self {
            topology,
            cpus: cpus.clone(),
            pairs_of: cpus.iter().take(MOST_CPUS).collect(),
            siblings: siblings.and_then(|core| Some((core.first()?, core.iter().nth(1)?))),
            two: pair(&|_, _| true),
            together: pair(&|a, b| topology.llc_of(a) == topology.llc_of(b)),
            apart: pair(&|a, b| {
                let of = |cpu| if several { topology.package_of(cpu) } else { topology.llc_of(cpu) };
                of(a) != of(b)
            }),
            nodes: nodes.collect(),
        }
    }

    /// 1, 2, 4, …, half of them and all of them.
    pub fn steps(all: usize) -> Vec<usize> {
        let powers = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(move |n| *n < all);
        let mut steps: Vec<usize> = powers.chain([all / 2, all]).filter(|n| *n > 0).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }
}
