//! Derives what policies need to know of a machine from its `[simulator]` section where its file is silent.

use crate::machine::SimMachine;
use cotenant_model::Topology;
use cotenant_model::machine::Machine;
use cotenant_model::topology::{DistanceUnit, Distances};

/// One line for people per derived figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// The thresholds of `sam`.
    pub thresholds: Option<String>,
    /// Distances to memory.
    pub distances: Option<String>,
}

/// Adds thresholds ([`SimMachine::thresholds`]) and the latencies of its nodes as distances, if the file has only a
/// `[simulator]` section.
///
/// # Errors
/// If that section is malformed; the message names the file.
pub fn complete(machine: &mut Machine) -> Result<Derived, String> {
    let mut derived = Derived::default();
    if machine.simulator.is_none() {
        return Ok(derived);
    }
    let sim = SimMachine::of(machine)?;
    let of = |what: &str, keys: &[&str]| {
        let guessed = sim.guesses.iter().filter(|guess| keys.iter().any(|key| guess.starts_with(key)));
        let guessed: Vec<&str> = guessed.map(String::as_str).collect();
        let keys = keys.join(", ");
        let guessed = if guessed.is_empty() { String::new() } else { format!("; guessed: {}", guessed.join(", ")) };
        format!("{} has no {what} of its own: derived, not measured ({keys} of its file{guessed})", machine.name)
    };
    if machine.profile.thresholds.is_none() && sim.thresholds().is_some() {
        let keys = ["clock_hz", "coherence_ns", "memory_gbs", "bus_gbs", "memory_ns", "remote_ns"];
        derived.thresholds = Some(of("thresholds", &keys));
    }
    if machine.topology.parts().distances.is_none() && sim.nodes() > 1 {
        let rows = sim.memory_s.iter().map(|row| row.iter().map(|s| (s * 1e10).round() / 10.0).collect()).collect();
        let source = Some("derived from memory_ns and remote_ns of the machine file".to_owned());
        let mut parts = machine.topology.parts().clone();
        parts.distances = Some(Distances { unit: DistanceUnit::Nanoseconds, rows, source });
        if let Ok(topology) = Topology::new(parts) {
            machine.topology = topology;
            derived.distances = Some(of("distances", &["memory_ns", "remote_ns"]));
        }
    }
    machine.profile.thresholds = machine.profile.thresholds.or_else(|| sim.thresholds());
    Ok(derived)
}
