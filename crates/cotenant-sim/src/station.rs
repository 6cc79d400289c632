//! Resources for which threads queue.

/// A resource with a bandwidth and a queue.
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
    /// Idle latency of a memory, seconds; infinite for a station without a longest wait.
    pub idle_s: f64,
}

impl Station {
    /// From GB/s and ns.
    pub(crate) fn new(name: String, low: f64, high: f64, queue_ns: f64) -> Self {
        Self { name, low: low * 1e9, high: high * 1e9, queue_s: queue_ns / 1e9, idle_s: f64::INFINITY }
    }

    /// The memory of a node, with a longest wait: GB/s of scattered and ordered accesses, and ns.
    pub(crate) fn node(node: usize, [low, high]: [f64; 2], queue_ns: f64, idle_ns: f64) -> Self {
        Self { idle_s: idle_ns / 1e9, ..Self::new(format!("node {node}"), low, high, queue_ns) }
    }

    /// The longest wait, seconds: that at the load with the greatest throughput over latency (Kleinrock, *Power and
    /// deterministic rules of thumb*, ICC 1979), `u/(1 − u) = √(idle/queue)`. Beyond it, more lines in flight only
    /// lengthen queues, and these form at the cores that exceed their share.
    pub fn longest_s(&self) -> f64 {
        (self.idle_s * self.queue_s).sqrt()
    }
}
