//! Where the threads wait until all are prepared, and where the caller waits for their ends.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the caller is asked whether to go on.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// A start line that a caller watches. Threads and caller are woken apart: a thousand threads do not wake each other.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// The caller waits for it.
    changed: Condvar,
    /// The threads wait for it.
    opened: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub ready: usize,
    pub ended: usize,
    /// Whether to start; `Some(false)` = go home.
    start: Option<bool>,
}

impl Gate {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the gate: to run, or to go home.
    pub fn open(&self, start: bool) {
        self.lock().start = Some(start);
        self.opened.notify_all();
    }

    /// A thread is ready and waits for the start; whether to run.
    pub fn enter(&self) -> bool {
        let mut state = self.lock();
        state.ready += 1;
        self.changed.notify_one();
        let state = self.opened.wait_while(state, |state| state.start.is_none());
        state.unwrap_or_else(PoisonError::into_inner).start == Some(true)
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
