//! One managed application.

use crate::act::throttle::Enforcer;
use crate::sense::metrics::Metrics;
use crate::sense::processes::Target;
use crate::sys::launch::Child;
use cotenant_model::metric::Metric;
use std::process::Command;
use std::sync::Arc;

/// What an application is.
#[derive(Debug)]
pub enum What {
    /// A command that is started.
    Command(Command),
    /// Processes that run already.
    Running(Target),
}

impl What {
    /// The processes that run already.
    pub(super) fn pids(&self) -> Vec<u32> {
        if let Self::Running(target) = self { target.pids() } else { Vec::new() }
    }
}

/// An application that is to be managed.
#[derive(Debug)]
pub struct AppSpec {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: What,
    /// What tells its speed besides what it reports itself.
    pub metrics: Vec<Metric>,
    /// How it is throttled as a whole, where it is to be: a command is started in a session and in groups of its own
    /// then. Others can be made to nap by their marks or by signals alone.
    pub throttled: Option<Enforcer>,
    /// Whether those that are throttled give way to it.
    pub protected: bool,
}

impl AppSpec {
    /// Without metrics, not meant to be throttled, nor to be given way to.
    pub fn new(name: String, what: What) -> Self {
        Self { name, what, metrics: Vec::new(), throttled: None, protected: false }
    }

    /// A command of that name.
    pub fn command(name: String, command: Command) -> Self {
        Self::new(name, What::Command(command))
    }
}

/// An application that is managed.
#[derive(Debug)]
pub(super) struct App {
    pub child: Option<Child>,
    /// Its command has ended.
    pub ended: bool,
    /// Nothing is left of it, as of the last look.
    pub gone: bool,
    pub throttled: bool,
    pub metrics: Option<Arc<Metrics>>,
    /// Which job of the queue it is, and whether it was asked to end before it had.
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
