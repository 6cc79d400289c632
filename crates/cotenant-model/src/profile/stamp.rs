//! Validity of measured figures.

use crate::Topology;
use crate::topology::Parts;
use serde::{Deserialize, Serialize};

/// The validity of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// Day and time, UTC.
    pub date: String,
    /// The processor's name.
    pub processor: String,
    /// The running kernel.
    pub kernel: String,
    /// The processor's microcode; empty if not reported.
    pub microcode: String,
    /// [`fingerprint`] of the topology.
    pub topology: String,
}

impl Stamp {
    /// Changes since, for people; the date does not count.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let pairs = [
            ("processor", &self.processor, &now.processor),
            ("kernel", &self.kernel, &now.kernel),
            ("microcode", &self.microcode, &now.microcode),
            ("topology", &self.topology, &now.topology),
        ];
        let changed = pairs.into_iter().filter(|(_, then, now)| then != now);
        changed.map(|(what, then, now)| format!("{what} was '{then}' and is '{now}'")).collect()
    }
}

/// A short text that changes with a topology's CPUs, resources, nodes and distances; permissions and memory sizes do
/// not count.
pub fn fingerprint(topology: &Topology) -> String {
    print(topology, topology.parts().clone())
}

/// The same without distances, which measured latencies replace.
pub fn structure(topology: &Topology) -> String {
    print(topology, Parts { distances: None, ..topology.parts().clone() })
}

fn print(topology: &Topology, mut parts: Parts) -> String {
    parts.cpus.iter_mut().for_each(|cpu| cpu.allowed = true);
    parts.nodes.iter_mut().for_each(|node| (node.allowed, node.bytes) = (true, None));
    parts.distances.iter_mut().for_each(|distances| distances.source = None);
    let parts = serde_json::to_vec(&parts).unwrap_or_default();
    format!("{}c{}n-{:08x}", topology.online().len(), topology.nodes().len(), crc32fast::hash(&parts))
}
