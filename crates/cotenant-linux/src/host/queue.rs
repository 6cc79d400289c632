//! A queue of jobs, of which some run and the others wait.
//!
//! Where jobs can be paused, each quantum is: stop all, sample, decide, place, resume those that run. The time between
//! the first stop and the last resume is measured ([`Gaps`]). Jobs that end or begin within a quantum are decided
//! about without stopping the others.

use crate::sys::Usage;
use crate::sys::thread::Identity;
use cotenant_model::Signal;
use std::fmt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// What is counted of jobs: transactions at each level of cache, and speed.
pub const SIGNALS: [Signal; 7] = [
    Signal::Cycles,
    Signal::Instructions,
    Signal::LlcMisses,
    Signal::PrivateMisses,
    Signal::L1Misses,
    Signal::L2LinesIn,
    Signal::L3LinesIn,
];

/// A program that is to be started.
#[derive(Debug)]
pub struct Program {
    /// Which job it is, for the queue.
    pub key: usize,
    /// Its name, under which profiles know it.
    pub name: String,
    /// How it is started.
    pub command: Command,
}

/// Jobs, in the order and number in which they are to be started.
pub trait Queue: fmt::Debug {
    /// The next program to start, if one may start now.
    fn next(&mut self) -> Option<Program>;
    /// It runs, as this process.
    fn started(&mut self, key: usize, id: Identity);
    /// It cannot be started beside those that run: it is to be the next one again.
    fn put_back(&mut self, key: usize);
    /// It does not run.
    fn not_started(&mut self, key: usize, why: String);
    /// It has ended; whether it was asked to.
    fn ended(&mut self, key: usize, status: ExitStatus, usage: Usage, asked: bool);
    /// A job runs, or waits from now on.
    fn turned(&mut self, key: usize, runs: bool);
    /// Nothing more is to be started: somebody asked to stop.
    fn stop(&mut self);
    /// Whether no job is left to be started; those that run are the host's.
    fn is_done(&self) -> bool;
}

/// What stopping and resuming took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Quanta.
    pub count: u64,
    /// From the first stop to the last resume, summed up.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// The queue of a host, and where in a quantum it is.
#[derive(Debug)]
pub(super) struct Line {
    pub queue: Box<dyn Queue>,
    /// After being asked to stop, jobs get SIGTERM, and SIGKILL after so long.
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

    /// Whether everybody is stopped for a decision.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// What was not chosen to wait runs again.
    pub fn resumed(&mut self) {
        if let Some(since) = self.stopped.take() {
            let gap = since.elapsed();
            self.gaps.count += 1;
            self.gaps.total += gap;
            self.gaps.longest = self.gaps.longest.max(gap);
        }
    }
}
