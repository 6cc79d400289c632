//! The gate where threads wait until all are ready, and where the caller waits for their ends.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which the caller is asked whether to continue.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// A start gate that a caller watches. Threads and caller have separate wake-ups, because a thousand threads must not
/// wake each other. Starting threads take no lock: a holder could wait for a CPU behind threads that already compute.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Wakes the caller.
    changed: Condvar,
    /// The start; `None`: threads leave without running.
    opened: OnceLock<Option<Start>>,
}

/// Start and end of the loops.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub began: Instant,
    /// By the clock of the loops; `u64::MAX`: no time limit.
    pub deadline_ns: u64,
}

#[derive(Default)]
pub(crate) struct State {
    pub ready: usize,
    pub ended: usize,
}

impl Gate {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the gate, once: to run or to leave.
    pub fn open(&self, start: Option<Start>) {
        let _ = self.opened.set(start);
    }

    /// Registers a ready thread and waits for the start; `None`: the thread must not run.
    pub fn enter(&self) -> Option<Start> {
        self.lock().ready += 1;
        self.changed.notify_one();
        *self.opened.wait()
    }

    /// A thread has ended.
    pub fn leave(&self) {
        self.lock().ended += 1;
        self.changed.notify_one();
    }

    /// Waits until `done`, until `deadline`, or until the caller stops it; returns whether it is done.
    pub fn wait(
        &self,
        deadline: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
        done: impl Fn(&State) -> bool,
    ) -> bool {
        loop {
            if !go_on() {
                return false;
            }
            let left = deadline.map_or(ASKED_EVERY, |at| at.saturating_duration_since(Instant::now()).min(ASKED_EVERY));
            if left.is_zero() {
                return false;
            }
            let (state, _) = self
                .changed
                .wait_timeout_while(self.lock(), left, |s| !done(s))
                .unwrap_or_else(PoisonError::into_inner);
            if done(&state) {
                return true;
            }
        }
    }
}
