//! A machine of some cores with one last-level cache and one memory: eight lines of TOML.

use serde::Deserialize;
use thiserror::Error;

/// How the last-level cache chooses what to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Any line, whoever's and however old.
    Random,
    /// The line that was not used for longest.
    Lru,
}

/// A machine of some cores with one last-level cache and one memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name, for the output.
    pub name: String,
    /// Cores, ≥ 1.
    pub cores: usize,
    /// Clock of the cores, GHz.
    pub clock_ghz: f64,
    /// Capacity of the cache that all cores share, bytes.
    pub llc_bytes: f64,
    /// Its load-to-use latency, ns.
    #[serde(default = "default_llc_ns")]
    pub llc_ns: f64,
    /// Load-to-use latency of idle memory, ns.
    pub memory_ns: f64,
    /// Bandwidth that memory cannot exceed, reads and write-backs together, GB/s.
    pub memory_gbs: f64,
    /// Extra latency at half load, ns. Default: 0.11 of the idle latency, the median of the measured curves in `workloads/memory.toml`.
    pub memory_queue_ns: Option<f64>,
    /// Lines that one core can have under way to memory. Default: 16.
    #[serde(default = "default_lines_in_flight")]
    pub lines_in_flight: f64,
    /// Replacement of the shared cache.
    pub replacement: Replacement,
}

fn default_llc_ns() -> f64 {
    25.0
}

fn default_lines_in_flight() -> f64 {
    16.0
}

/// What is wrong with a machine's description.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Not TOML, or not these keys.
    #[error("{0}")]
    Toml(String),
    /// A value out of range.
    #[error("{0} is {1}; it must be a number above 0")]
    Value(&'static str, f64),
}

impl Machine {
    /// Reads TOML.
    ///
    /// # Errors
    /// Where it is not TOML, a key is unknown or missing, or a figure is not above zero.
    pub fn parse(text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text).map_err(|e| MachineError::Toml(place(text, &e)))?;
        let figures = [
            ("cores", machine.cores as f64),
            ("clock_ghz", machine.clock_ghz),
            ("llc_bytes", machine.llc_bytes),
            ("llc_ns", machine.llc_ns),
            ("memory_ns", machine.memory_ns),
            ("memory_gbs", machine.memory_gbs),
            ("memory_queue_ns", machine.queue_ns()),
            ("lines_in_flight", machine.lines_in_flight),
        ];
        match figures.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            Some((name, value)) => Err(MachineError::Value(name, value)),
            None => Ok(machine),
        }
    }

    /// Extra memory latency at half load, ns.
    pub fn queue_ns(&self) -> f64 {
        self.memory_queue_ns.unwrap_or(0.11 * self.memory_ns)
    }

    /// Memory latency in ns when `gbs` pass: a queue with one server.
    pub fn latency_ns(&self, gbs: f64) -> f64 {
        let u = (gbs / self.memory_gbs).clamp(0.0, 1.0 - 1e-9);
        self.memory_ns + self.queue_ns() * u / (1.0 - u)
    }
}

/// `line:column: message`, on one line.
fn place(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    error.span().map_or(message.clone(), |span| {
        let before = &text[..span.start.min(text.len())];
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        format!("{}:{column}: {message}", before.matches('\n').count() + 1)
    })
}
