//! What threads queue for.

/// Something with a bandwidth and a queue before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// For errors and reports: `node 0`, `link 0-1`, `bus 1`, `llc 0`.
    pub name: String,
    /// Bytes per second when accesses are scattered (no row-buffer locality).
    pub low: f64,
    /// Bytes per second when they are in order.
    pub high: f64,
    /// Extra latency at half load, seconds: it grows as `queue · u / (1 − u)`.
    pub queue_s: f64,
}

impl Station {
    /// From GB/s and ns.
    pub(crate) fn new(name: String, low: f64, high: f64, queue_ns: f64) -> Self {
        Self { name, low: low * 1e9, high: high * 1e9, queue_s: queue_ns / 1e9 }
    }
}
