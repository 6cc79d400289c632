//! The results of observing a command.

use anyhow::Result;
use cotenant_linux::sys::launch::{self, Child};
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_model::region::Region;
use std::process::Command;
use std::time::{Duration, Instant};

/// The result, and the method.
pub(super) struct Found {
    /// The command's own exit code.
    pub status: u8,
    pub regions: Vec<Region>,
    /// In the file's first line.
    pub by: String,
}

/// Runs a command to its end, and does something each time that this time has passed; its exit code.
pub(super) fn run_to_end(command: Command, every: Option<Duration>, mut tick: impl FnMut()) -> Result<u8> {
    let mut waiter = Waiter::new()?;
    let child = Child::spawn_command(command)?;
    waiter.watch(&child, true);
    let wake = || every.map(|every| Instant::now() + every);
    let mut next = wake();
    loop {
        match waiter.wait(next)? {
            Event::Exited(_, status, _) => return Ok(launch::exit_code(status)),
            Event::Signal(_) => {} // it has got the signal, too
            Event::Tick => {
                tick();
                next = wake();
            }
        }
    }
}
