//! A queue of jobs, some running and the others waiting.
//!
//! With pausable jobs, each quantum is: stop all, sample, decide, place, resume the chosen ones. The time between the
//! first stop and the last resume is measured ([`Gaps`]). Starts and ends of jobs within a quantum are handled without
//! stopping the others.

use crate::sys::Usage;
use crate::sys::thread::Identity;
use cotenant_model::Signal;
use std::fmt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Counted signals of jobs: transactions at each cache level, and speed.
pub const SIGNALS: [Signal; 7] = [
    Signal::Cycles,
    Signal::Instructions,
    Signal::LlcMisses,
    Signal::PrivateMisses,
    Signal::L1Misses,
    Signal::L2LinesIn,
    Signal::L3LinesIn,
];

/// A program to start.
#[derive(Debug)]
pub struct Program {
    /// Its job in the queue.
    pub key: usize,
    /// Its name in profiles.
    pub name: String,
    /// Its command.
    pub command: Command,
}

/// Source of jobs, in the order and number of their start.
pub trait Queue: fmt::Debug {
    /// The next program to start, if allowed now.
    fn next(&mut self) -> Option<Program>;
    /// It runs, as this process.
    fn started(&mut self, key: usize, id: Identity);
    /// It cannot be started beside the running ones: it becomes the next one again.
    fn put_back(&mut self, key: usize);
    /// It does not run.
    fn not_started(&mut self, key: usize, why: String);
    /// It has ended; `asked`: after a request.
    fn ended(&mut self, key: usize, status: ExitStatus, usage: Usage, asked: bool);
    /// A job runs, or waits from now on.
    fn turned(&mut self, key: usize, runs: bool);
    /// No more starts: a stop was requested.
    fn stop(&mut self);
    /// Whether no job is left to start; running ones belong to the host.
    fn is_done(&self) -> bool;
}

/// The cost of stopping and resuming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Quanta.
    pub count: u64,
    /// From the first stop to the last resume, summed up.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// The queue of a host, and its state within a quantum.
#[derive(Debug)]
pub(super) struct Line {
    pub queue: Box<dyn Queue>,
    /// On a stop, jobs get SIGTERM, and SIGKILL after this.
    pub grace: Duration,
    /// The quantum is over.
    pub due: bool,
    pub stopped: Option<Instant>,
    pub gaps: Gaps,
}

impl Line {
    pub fn new(queue: Box<dyn Queue>, grace: Duration) -> Self {
        Self { queue, grace, due: false, stopped: None, gaps: Gaps::default() }
    }

    /// Whether all are stopped for a decision.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Resumes what was not chosen to wait.
    pub fn resumed(&mut self) {
        if let Some(since) = self.stopped.take() {
            let gap = since.elapsed();
            self.gaps.count += 1;
            self.gaps.total += gap;
            self.gaps.longest = self.gaps.longest.max(gap);
        }
    }
}
