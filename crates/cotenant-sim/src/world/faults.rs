//! State of NUMA balancing for a process and its threads.

use crate::Ns;

/// From the start of a process to its first scan: `scan_delay_ms`.
pub const SCAN_DELAY: Ns = 1_000_000_000;

/// Scan state of a process.
#[derive(Clone, Debug, Default)]
pub struct NumaProcess {
    /// The earliest time of the next scan.
    pub next_scan: Ns,
    /// The fraction of its memory scanned in this pass.
    pub at: f64,
    /// Passes that have begun their last scan: `numa_scan_seq`.
    pub passes: u32,
    /// Nodes of its threads' shared memory, as fractions; now, and at the beginning of this pass.
    pub common: Vec<f64>,
    pub before: Vec<f64>,
    /// Nodes that caused its faults in the last pass, and in this one.
    pub last: Vec<f64>,
    pub faulted: Vec<f64>,
}

/// NUMA hinting faults of a thread.
#[derive(Clone, Debug, Default)]
pub struct NumaThread {
    /// Nodes of its own memory, as fractions.
    pub own: Vec<f64>,
    /// The CPU time, nanoseconds, at which it scans if its process is due.
    pub due_ns: f64,
    /// Scan period, milliseconds; 0: none yet.
    pub period_ms: f64,
    /// The pass of its last placement.
    pub passes: u32,
    pub preferred: Option<usize>,
    /// Its node at the last scan, and passes over its memory since it came there.
    pub node: usize,
    pub since: f64,
    /// CPU time and time at its last placement, nanoseconds.
    pub placed_ns: (f64, Ns),
    /// Faults on the memory of each node, shared and private, and from each node: decayed, and since the last
    /// placement.
    pub memory: Vec<[f64; 2]>,
    pub cpu: Vec<f64>,
    pub new_memory: Vec<[f64; 2]>,
    pub new_cpu: Vec<f64>,
    /// Faults on remote and on local memory.
    pub locality: [f64; 2],
}

impl NumaProcess {
    /// A newly started process.
    pub fn new(now: Ns, common: Vec<f64>) -> Self {
        let none = vec![0.0; common.len()];
        let (last, faulted) = (none.clone(), none);
        Self { next_scan: now + SCAN_DELAY, before: common.clone(), common, last, faulted, ..Self::default() }
    }

    /// Passes that have begun their last scan.
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// Nodes of its threads' shared memory, as fractions.
    pub fn common(&self) -> &[f64] {
        &self.common
    }
}

impl NumaThread {
    /// A thread with its memory on these nodes.
    pub fn new(own: Vec<f64>) -> Self {
        let nodes = own.len();
        Self {
            own,
            memory: vec![[0.0; 2]; nodes],
            cpu: vec![0.0; nodes],
            new_memory: vec![[0.0; 2]; nodes],
            new_cpu: vec![0.0; nodes],
            ..Self::default()
        }
    }

    pub fn on(&self, node: usize) -> f64 {
        self.memory[node].iter().sum()
    }

    /// Thousandths of its faults that are on the memory of a node.
    pub fn weight(&self, node: usize) -> f64 {
        let all: f64 = self.memory.iter().flatten().sum();
        if all > 0.0 { 1_000.0 * self.on(node) / all } else { 0.0 }
    }

    /// Counts faults from one node on the memory of another, shared or private.
    pub fn count(&mut self, memory: usize, from: usize, shared: f64, private: f64, is_local: impl Fn(bool) -> bool) {
        self.new_memory[memory][0] += shared;
        self.new_memory[memory][1] += private;
        self.new_cpu[from] += shared + private;
        self.locality[usize::from(is_local(false))] += shared;
        self.locality[usize::from(is_local(true))] += private;
    }
}
