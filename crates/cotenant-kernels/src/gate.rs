//! Where the threads wait until all are prepared, and where the caller waits for their ends.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the caller is asked whether to go on.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// A start line that a caller watches.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub ready: usize,
    pub ended: usize,
    /// Whether to start; `Some(false)` = go home.
    pub start: Option<bool>,
}

impl Gate {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.lock());
        self.changed.notify_all();
    }

    /// Reports to be ready and waits for the start.
    pub fn enter(&self) -> bool {
        self.change(|state| state.ready += 1);
        let state = self.changed.wait_while(self.lock(), |state| state.start.is_none());
        state.unwrap_or_else(PoisonError::into_inner).start == Some(true)
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
