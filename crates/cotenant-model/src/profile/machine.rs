//! What is known beforehand about a machine.

#[cfg(doc)]
use super::AppProfile;
use super::contentiousness::Contentiousness;
use super::record::Record;
use super::stamp::fingerprint;
use crate::Topology;
use crate::topology::latency::{MemoryLatencies, Unfit};
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
    /// What counts as high in the decision tree of `heuristic`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heuristic: Option<High>,
    /// Where the figures come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What calibration measured, and what it holds for; the figures above come from it. Recordings do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Box<Record>>,
    /// What programs cost each other here, by the lines that they bring in. Recordings do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contentiousness: Option<Box<Contentiousness>>,
    /// Latencies of memory that the user wrote down; those that were measured stand in the calibration. In recordings
    /// they are the topology's distances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_latency: Option<Box<MemoryLatencies>>,
}

impl MachineProfile {
    /// This profile, with what it lacks taken from another.
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

    /// What of it policies go by: the figures without how they came about, and without latencies, which are the
    /// topology's distances by then.
    #[must_use]
    pub fn figures(self) -> Self {
        Self { calibration: None, contentiousness: None, memory_latency: None, ..self }
    }

    /// The machine with the memory latencies that are known of it in place of the distances that its firmware tells:
    /// those that the user wrote down, else those that were measured while its topology was the same; and why
    /// measured ones are not used, one line. `topology` is the machine as the system tells it, which is what is given
    /// back where nothing is known.
    ///
    /// # Errors
    /// Where what the user wrote is of another machine.
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

/// From where on the decision tree of `heuristic` calls a characteristic *high* (Tang §4.1, Algorithm 1, which prints
/// no value: both belong to a machine and are calibrated; see `docs/policies/heuristic.md`). Units as in
/// [`AppProfile`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct High {
    /// [`AppProfile::sharing`] at and above which threads gain from a common last-level cache, 0–1.
    pub sharing: f64,
    /// [`AppProfile::footprint_per_ms`] at and above which threads suffer from a common last-level cache.
    pub footprint_per_ms: f64,
}

/// SAM's thresholds (ATC'15 §2.1–2.2); units are in the names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thresholds {
    /// Coherence events per unhalted cycle of a task above which separating sharers costs > 5 %.
    pub coherence_per_cycle: f64,
    /// LLC misses per second of a whole socket above which its memory bandwidth is taken as exhausted.
    pub socket_bandwidth_per_s: f64,
    /// LLC misses per second of one task above which it counts as memory-bound; absent: `socket_bandwidth_per_s`
    /// divided by the cores of the socket (ours; see `docs/policies/sam.md`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_bandwidth_per_s: Option<f64>,
    /// Loads from remote DRAM per unhalted cycle of a task above which it is repaired; absent: stage 2 needs it and
    /// says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_per_cycle: Option<f64>,
}
