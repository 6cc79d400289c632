//! Capabilities of this machine: each with the cost of its absence and the smallest remedy.

use serde::Serialize;

/// Status of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// There, and usable.
    Available,
    /// There in part.
    Limited,
    /// Missing, or not permitted.
    Missing,
}

/// One line of `cotenant doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// What.
    pub name: String,
    /// Its status.
    pub standing: Standing,
    /// The finding.
    pub found: String,
    /// The loss; empty without one.
    pub cost: String,
    /// The remedy with the least privileges; empty if none is needed or possible.
    pub remedy: String,
}

impl Capability {
    pub(crate) fn new(name: &str, standing: Standing, found: impl Into<String>, cost: &str, remedy: &str) -> Self {
        let (cost, remedy) = if standing == Standing::Available { ("", "") } else { (cost, remedy) };
        Self { name: name.into(), standing, found: found.into(), cost: cost.into(), remedy: remedy.into() }
    }
}
