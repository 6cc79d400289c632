//! Where the threads wait until all are prepared, and where the caller waits for their ends.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often the caller is asked whether to go on.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// A start line that a caller watches. Threads and caller are woken apart: a thousand threads do not wake each other.
/// Nor do threads that start take a lock: each holder could wait for a turn beside all those that already compute.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// The caller waits for it.
    changed: Condvar,
    /// The threads wait for it: `None` = go home at once.
    opened: OnceLock<Option<Start>>,
}

/// When the loops began, and when they end.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    pub began: Instant,
    /// By the clock of the loops; `u64::MAX` = not by the clock.
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

    /// Opens the gate, once: to run, or to go home.
    pub fn open(&self, start: Option<Start>) {
        let _ = self.opened.set(start);
    }

    /// A thread is ready and waits for the start; `None` = it shall not run.
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

    /// Waits until `done`, `deadline`, or the caller says no; whether it is done.
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
