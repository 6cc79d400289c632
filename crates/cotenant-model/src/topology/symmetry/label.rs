//! Properties of CPUs, nodes and resources that a symmetry must preserve.

use super::super::{Kind, Topology};
use crate::{CpuId, NodeId};
use std::collections::BTreeMap;

/// Further labels that a symmetry must preserve; the default is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Of CPUs.
    pub cpus: BTreeMap<CpuId, u64>,
    /// Of memory nodes, for instance the number of pages that an application has there.
    pub nodes: BTreeMap<NodeId, u64>,
}

/// Properties in which isomorphic vertices agree, apart from their children.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Machine,
    Group,
    Resource { kind: Kind, level: u8, capacity: Option<u64>, line_size: Option<u32>, ways: Option<u32> },
    Node { size: Option<u64>, allowed: bool, mapped: bool, extra: u64 },
    Cpu { efficiency: Option<u8>, allowed: bool, mapped: bool, extra: u64 },
}

/// A memory node's size for symmetries: rounded up to an eighth of the power of two below, because firmware and kernel
/// keep one to a few percent, differently on nodes with the same modules.
pub(super) fn installed_size(bytes: u64) -> u64 {
    let eighth = (1u64 << bytes.max(1).ilog2()).div_ceil(8);
    bytes.div_ceil(eighth).saturating_mul(eighth)
}

pub(super) fn node_label(topology: &Topology, labels: &Labels, index: usize) -> Label {
    let node = &topology.nodes()[index];
    Label::Node {
        size: node.bytes.map(installed_size),
        allowed: node.allowed,
        mapped: node.coord.is_some(),
        extra: labels.nodes.get(&node.id).copied().unwrap_or(0),
    }
}
