//! What this machine can or cannot do for Cotenant: each thing with what its absence costs and the least that would
//! help.

use serde::Serialize;

/// Status of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// There, and usable.
    Available,
    /// There in part.
    Limited,
    /// Not there, or not for us.
    Missing,
}

/// One line of `cotenant doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// What.
    pub name: String,
    /// Its status.
    pub standing: Standing,
    /// What was found.
    pub found: String,
    /// What is lost; empty where nothing is.
    pub cost: String,
    /// The least-privileged thing that would help; empty where nothing is needed or nothing can.
    pub remedy: String,
}

impl Capability {
    pub(crate) fn new(name: &str, standing: Standing, found: impl Into<String>, cost: &str, remedy: &str) -> Self {
        let (cost, remedy) = if standing == Standing::Available { ("", "") } else { (cost, remedy) };
        Self { name: name.into(), standing, found: found.into(), cost: cost.into(), remedy: remedy.into() }
    }
}
