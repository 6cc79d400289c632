//! One managed application.

use crate::act::throttle::Enforcer;
use crate::sense::metrics::Metrics;
use crate::sense::processes::Target;
use crate::sys::launch::Child;
use cotenant_model::metric::Metric;
use std::process::Command;
use std::sync::Arc;

/// Kind of an application.
#[derive(Debug)]
pub enum What {
    /// A command to start.
    Command(Command),
    /// Running processes.
    Running(Target),
}

impl What {
    /// The running processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        if let Self::Running(target) = self { target.pids() } else { Vec::new() }
    }
}

/// An application to manage.
#[derive(Debug)]
pub struct AppSpec {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub what: What,
    /// Sources of its speed besides its own reports.
    pub metrics: Vec<Metric>,
    /// How it is throttled as a whole, if at all: a command then starts in its own session and groups. Others can only
    /// nap by their marks or by signals.
    pub throttled: Option<Enforcer>,
    /// Whether throttled programs yield to it.
    pub protected: bool,
}

impl AppSpec {
    /// Without metrics, throttling and protection.
    pub fn new(name: String, what: What) -> Self {
        Self { name, what, metrics: Vec::new(), throttled: None, protected: false }
    }

    /// A command with that name.
    pub fn command(name: String, command: Command) -> Self {
        Self::new(name, What::Command(command))
    }
}

/// A managed application.
#[derive(Debug)]
pub(super) struct App {
    pub child: Option<Child>,
    /// Its command has ended.
    pub ended: bool,
    /// All its processes had ended at the last look.
    pub gone: bool,
    pub throttled: bool,
    pub metrics: Option<Arc<Metrics>>,
    /// Its job in the queue, and whether it was requested to end before it had.
    pub job: Option<(usize, bool)>,
}

impl App {
    /// Whether its command was started and has not ended.
    pub fn is_awaited(&self) -> bool {
        self.child.is_some() && !self.ended
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::pid)
    }
}
