//! From decided contexts to the applied mask.

use crate::{CpuSet, Topology};
use serde::{Deserialize, Serialize};

/// How far a decided context is widened when applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// No widening.
    Cpu,
    /// To its last-level-cache domain: Linux still balances inside it.
    #[default]
    Llc,
    /// To its memory node.
    Node,
}

/// The mask for `contexts` under `pin`, within `allowed` and the online CPUs. Empty if nothing is left.
pub fn affinity(topology: &Topology, contexts: &CpuSet, pin: Pin, allowed: &CpuSet) -> CpuSet {
    let contexts = contexts.and(allowed).and(topology.usable());
    let widened = match pin {
        Pin::Cpu => contexts,
        Pin::Llc => contexts
            .iter()
            .filter_map(|cpu| topology.llc_of(cpu))
            .fold(contexts.clone(), |mask, domain| mask.or(&topology.llc_domains()[domain].cpus)),
        Pin::Node => contexts
            .iter()
            .filter_map(|cpu| topology.node_of(cpu))
            .fold(contexts.clone(), |mask, node| mask.or(&topology.nodes()[node].cpus)),
    };
    widened.and(allowed).and(topology.usable())
}
