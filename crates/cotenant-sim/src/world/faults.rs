//! What NUMA balancing knows of a process and of its threads.

use crate::Ns;

/// From the start of a process to its first scan: `scan_delay_ms`.
pub const SCAN_DELAY: Ns = 1_000_000_000;

/// What the scan of a process has come to.
#[derive(Clone, Debug, Default)]
pub struct NumaProcess {
    /// No scan begins before.
    pub next_scan: Ns,
    /// The part of its memory that this pass has scanned.
    pub at: f64,
    /// Passes that have begun their last scan: `numa_scan_seq`.
    pub passes: u32,
    /// Where what its threads have in common is: share per node; now, and when this pass began.
    pub common: Vec<f64>,
    pub before: Vec<f64>,
    /// From which nodes it had its faults in the last pass, and has them in this one.
    pub last: Vec<f64>,
    pub faulted: Vec<f64>,
}

/// What hinting faults say of a thread.
#[derive(Clone, Debug, Default)]
pub struct NumaThread {
    /// Where its own memory is: share per node.
    pub own: Vec<f64>,
    /// The CPU time, nanoseconds, at which it scans if its process is due.
    pub due_ns: f64,
    /// From scan to scan, milliseconds; 0: none yet.
    pub period_ms: f64,
    /// The pass of its last placement.
    pub passes: u32,
    pub preferred: Option<usize>,
    /// Where it stood at the last scan, and passes over its memory since it came there.
    pub node: usize,
    pub since: f64,
    /// CPU time and time at its last placement, nanoseconds.
    pub placed_ns: (f64, Ns),
    /// Faults on the memory of each node, shared and private, and from each node: decayed, and since the last stock.
    pub memory: Vec<[f64; 2]>,
    pub cpu: Vec<f64>,
    pub new_memory: Vec<[f64; 2]>,
    pub new_cpu: Vec<f64>,
    /// Faults on memory of other nodes and of its own.
    pub locality: [f64; 2],
}

impl NumaProcess {
    /// A process that begins now.
    pub fn new(now: Ns, common: Vec<f64>) -> Self {
        let none = vec![0.0; common.len()];
        let (last, faulted) = (none.clone(), none);
        Self { next_scan: now + SCAN_DELAY, before: common.clone(), common, last, faulted, ..Self::default() }
    }

    /// Passes that have begun their last scan.
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// Where what its threads have in common is: share per node.
    pub fn common(&self) -> &[f64] {
        &self.common
    }
}

impl NumaThread {
    /// A thread whose memory is there.
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

    /// Counts faults on the memory of a node from another, shared or private.
    pub fn count(&mut self, memory: usize, from: usize, shared: f64, private: f64, is_local: impl Fn(bool) -> bool) {
        self.new_memory[memory][0] += shared;
        self.new_memory[memory][1] += private;
        self.new_cpu[from] += shared + private;
        self.locality[usize::from(is_local(false))] += shared;
        self.locality[usize::from(is_local(true))] += private;
    }
}
