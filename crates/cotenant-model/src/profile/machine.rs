//! Prior knowledge about a machine.

#[cfg(doc)]
use super::AppProfile;
use super::contentiousness::Contentiousness;
use super::record::Record;
use super::stamp::fingerprint;
use crate::Topology;
use crate::topology::latency::{MemoryLatencies, Unfit};
use serde::{Deserialize, Serialize};

/// Profile of a machine besides its topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineProfile {
    /// Nominal clock, Hz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Thresholds of the policies, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// The thresholds for "high" in the decision tree of `heuristic`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heuristic: Option<High>,
    /// Source of the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Calibration's measurements and their validity, the source of the figures above. Not in recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Box<Record>>,
    /// The costs that programs cause each other here, by the lines that they bring in. Not in recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness: Option<Box<Contentiousness>>,
    /// Memory latencies written by the user; measured ones are in the calibration. In recordings they are the
    /// topology's distances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_latency: Option<Box<MemoryLatencies>>,
}

impl MachineProfile {
    /// This profile, completed from another.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            clock_hz: self.clock_hz.or(other.clock_hz),
            thresholds: self.thresholds.or(other.thresholds),
            heuristic: self.heuristic.or(other.heuristic),
            source: self.source.or(other.source),
            calibration: self.calibration.or(other.calibration),
            contentiousness: self.contentiousness.or(other.contentiousness),
            memory_latency: self.memory_latency.or(other.memory_latency),
        }
    }

    /// The part used by policies: figures without their origin, and without latencies, which are the topology's
    /// distances by then.
    #[must_use]
    pub fn figures(self) -> Self {
        Self { calibration: None, contentiousness: None, memory_latency: None, ..self }
    }

    /// The machine with known memory latencies instead of its firmware's distances: those written by the user,
    /// otherwise those measured with the same topology; and one line on why measured ones are not used. `topology` is
    /// the system's, and is returned if nothing is known.
    ///
    /// # Errors
    /// If the user's latencies belong to another machine.
    pub fn measured(&self, topology: Topology) -> Result<(Topology, Option<String>), Unfit> {
        if let Some(latencies) = &self.memory_latency {
            return Ok((latencies.applied(&topology, "as the profile has them")?, None));
        }
        let record = self.calibration.as_deref();
        let Some((record, latencies)) = record.and_then(|record| Some((record, record.memory_latency.as_ref()?)))
        else {
            return Ok((topology, None));
        };
        let applied = if record.stamp.topology == fingerprint(&topology) {
            latencies.applied(&topology, &format!("measured {}", record.stamp.date)).map_err(|why| why.to_string())
        } else {
            Err("the topology was another one".to_owned())
        };
        let refused = |why| format!("the measured memory latencies are not used: {why}; calibrate again");
        Ok(match applied {
            Ok(applied) => (applied, None),
            Err(why) => (topology, Some(refused(why))),
        })
    }
}

/// Thresholds for *high* characteristics in the decision tree of `heuristic` (Tang §4.1, Algorithm 1, without printed
/// values: both are calibrated per machine; see `docs/policies/heuristic.md`). Units as in [`AppProfile`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct High {
    /// [`AppProfile::sharing`] from which threads gain from a common last-level cache, 0–1.
    pub sharing: f64,
    /// [`AppProfile::footprint_per_ms`] from which threads suffer from a common last-level cache.
    pub footprint_per_ms: f64,
}

/// SAM's thresholds (ATC'15 §2.1–2.2); units are in the names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Coherence events per unhalted cycle of a task above which separating sharers costs > 5 %.
    pub coherence_per_cycle: f64,
    /// LLC misses per second of a socket above which its memory bandwidth counts as exhausted.
    pub socket_bandwidth_per_s: f64,
    /// LLC misses per second of one task above which it counts as memory-bound; absent: `socket_bandwidth_per_s`
    /// divided by the cores of the socket (ours; see `docs/policies/sam.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_bandwidth_per_s: Option<f64>,
    /// Loads from remote DRAM per unhalted cycle of a task above which it is repaired; without it, stage 2 is disabled
    /// with a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_per_cycle: Option<f64>,
}
