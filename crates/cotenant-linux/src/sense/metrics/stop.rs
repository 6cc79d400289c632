//! Ending threads that wait.

use crate::sys;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Dropping it ends all waits on its [`Stop`]s.
#[derive(Debug)]
pub struct Stopper(#[allow(dead_code)] PipeWriter); // held, never written to

/// The descriptor that ends a thread's wait.
#[derive(Clone, Debug)]
pub struct Stop(Arc<PipeReader>);

/// Both.
pub fn pair() -> io::Result<(Stopper, Stop)> {
    let (reader, writer) = io::pipe()?;
    Ok((Stopper(writer), Stop(Arc::new(reader))))
}

impl Stop {
    /// Waits; returns true as soon as it must end.
    pub fn within(&self, time: Duration) -> bool {
        sys::hung_up(&*self.0, time)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Leaves all signals to the threads that handle them.
pub fn block_signals() {
    let _ = sys::SignalMask::of(1..=64).apply();
}
