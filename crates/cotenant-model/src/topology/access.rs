//! Speed of memory for its nearest nodes.

use crate::NodeId;
use serde::{Deserialize, Serialize};

/// Speed of a memory node for its nearest nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// The memory.
    pub node: NodeId,
    /// The nodes nearest to it, ascending.
    pub initiators: Vec<NodeId>,
    /// Latency of reads from these, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<u64>,
    /// Latency of writes, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_ns: Option<u64>,
    /// Bandwidth of reads, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<u64>,
    /// Bandwidth of writes, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_s: Option<u64>,
}

impl Access {
    /// The latency that slows programs down: reads; writes only if reads are not reported.
    pub(super) fn latency(&self) -> Option<f64> {
        self.read_ns.or(self.write_ns).map(|ns| ns as f64)
    }
}
