//! Each task's accesses to each node's memory: the count vectors `c(t)` of Tumanov et al. §4.1, smoothed over time.

use cotenant_model::{NodeId, Signal, TaskView, Topology};
use serde::{Deserialize, Serialize};

/// Weight of the latest interval (ours: the paper polls its statistics "at its own parameterizable rate" and prints no
/// rule). The past decays by half in three intervals.
const LATEST: f64 = 0.2;

/// Demand of a task for each memory node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Demand {
    /// Fraction of its accesses to each node, in the order of [`Topology::nodes`]; the sum is 1.
    pub shares: Vec<f64>,
    /// Accesses per second: counted by node, otherwise misses of the last cache; 1 if neither is known.
    pub rate: f64,
    /// Whether accesses were counted; otherwise pages represent them.
    #[serde(default)]
    pub counted: bool,
}

impl Demand {
    /// The interval's demand, by accesses if counted, otherwise by pages; `None` without a look at pages or without
    /// accesses.
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

    /// Adds the latest interval. Collectors count accesses only now and then: pages do not replace them in between.
    pub fn update(&mut self, latest: Self) {
        if self.shares.len() != latest.shares.len() || (latest.counted && !self.counted) {
            *self = latest; // no earlier demand, or from another machine
            return;
        }
        if self.counted && !latest.counted {
            return;
        }
        let mix = |before: &mut f64, now: f64| *before += LATEST * (now - *before);
        self.shares.iter_mut().zip(latest.shares).for_each(|(before, now)| mix(before, now));
        mix(&mut self.rate, latest.rate);
    }

    /// The most accessed node, and its fraction.
    pub fn most(&self) -> Option<(usize, f64)> {
        self.shares.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
    }
}
