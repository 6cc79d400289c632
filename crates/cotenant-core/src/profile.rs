//! What is known beforehand about a machine and about applications.

use serde::{Deserialize, Serialize};

/// What is known about a machine besides its topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineProfile {
    /// Nominal clock, Hz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Thresholds of the policies, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// Where the figures come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// SAM's thresholds (ATC'15 §2.1–2.2); units are in the names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Coherence events per unhalted cycle of a task above which separating sharers costs > 5 %.
    pub coherence_per_cycle: f64,
    /// LLC misses per second of a whole socket above which its memory bandwidth is taken as exhausted.
    pub socket_bandwidth_per_s: f64,
    /// LLC misses per second of one task above which it counts as memory-bound; absent: `socket_bandwidth_per_s` divided by the
    /// cores of the socket (ours; see `docs/policies/sam.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_bandwidth_per_s: Option<f64>,
    /// Loads from remote DRAM per unhalted cycle of a task above which it is repaired; absent: stage 2 needs it and says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_per_cycle: Option<f64>,
}

/// What is known about an application, measured alone (Tang §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppProfile {
    /// Bus transactions, or lines to and from memory, per millisecond and thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_per_ms: Option<f64>,
    /// Share of LLC requests to lines in shared state, 0–1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<f64>,
    /// LLC misses per millisecond × (1 − sharing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footprint_per_ms: Option<f64>,
    /// Whether the application is the latency-sensitive one, P.
    #[serde(default)]
    pub latency_sensitive: bool,
}
