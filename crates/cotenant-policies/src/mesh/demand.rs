//! How much each task accesses the memory of each node: the count vectors `c(t)` of Tumanov et al. §4.1, with a memory
//! of the past.

use cotenant_model::{NodeId, Signal, TaskView, Topology};
use serde::{Deserialize, Serialize};

/// How much the latest interval counts against those before it (ours: the paper polls its statistics "at its own
/// parameterizable rate" and prints no rule). Half of what was is forgotten after three intervals.
const LATEST: f64 = 0.2;

/// What a task wants from each memory node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Demand {
    /// Share of its accesses that go to each node, in the order of [`Topology::nodes`]; they add up to 1.
    pub shares: Vec<f64>,
    /// Accesses per second: those counted by node, else misses of the last cache; 1 where neither is known.
    pub rate: f64,
    /// Accesses were counted; else pages stand in for them.
    #[serde(default)]
    pub counted: bool,
}

impl Demand {
    /// What the interval says, by accesses where they are counted, else by where pages are; `None` where it says
    /// nothing, because nobody looked or nothing was accessed.
    pub fn seen(topology: &Topology, task: &TaskView) -> Option<Self> {
        let touches = task.touches_by_node.clone().filter(|counts| counts.iter().any(|(_, n)| *n > 0.0));
        let counted: Option<f64> = touches.as_ref().map(|counts| counts.iter().map(|(_, n)| n).sum());
        let pages = || Some(task.pages_by_node.as_ref()?.iter().map(|&(node, n)| (node, n as f64)).collect());
        let counts: Vec<(NodeId, f64)> = touches.or_else(pages)?;
        let on = |id| counts.iter().filter(|(node, _)| *node == id).map(|(_, n)| n).sum::<f64>();
        let on_nodes: Vec<f64> = topology.nodes().iter().map(|node| on(node.id)).collect();
        let total: f64 = on_nodes.iter().sum();
        let shares = on_nodes.into_iter().map(|n| n / total).collect();
        let rate = counted.or_else(|| task.per_s(Signal::LlcMisses)).unwrap_or(1.0);
        (total > 0.0).then_some(Self { shares, rate, counted: counted.is_some() })
    }

    /// Mixes the latest interval into what was before. Collectors look now and then: where accesses have once been
    /// counted, pages do not stand in for them in between.
    pub fn update(&mut self, latest: Self) {
        if self.shares.len() != latest.shares.len() || (latest.counted && !self.counted) {
            *self = latest; // nothing was before, or it was another machine
            return;
        }
        if self.counted && !latest.counted {
            return;
        }
        let mix = |before: &mut f64, now: f64| *before += LATEST * (now - *before);
        self.shares.iter_mut().zip(latest.shares).for_each(|(before, now)| mix(before, now));
        mix(&mut self.rate, latest.rate);
    }

    /// The node to which most accesses go, and their share.
    pub fn most(&self) -> Option<(usize, f64)> {
        self.shares.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    }
}
