//! Work that may never finish, such as reading a file system served by another program: each piece has its own thread,
//! abandoned at its time limit.
//!
//! An abandoned thread ends with its work, if ever. Until then it holds one of four places; with all taken, no new work
//! begins.

use crate::sys::SignalMask;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Threads at once.
const MOST: usize = 4;

/// Places for threads, and the number in use.
struct Places(AtomicUsize);

static PLACES: Places = Places(AtomicUsize::new(0));

/// A place in use, freed on drop.
struct Place(&'static Places);

impl Places {
    fn take(&'static self) -> Option<Place> {
        let one_more = |taken: usize| (taken < MOST).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Place(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Work in progress.
#[derive(Debug)]
pub struct Work<T> {
    answer: Receiver<T>,
    until: Instant,
}

/// State of work.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// Finished with this answer.
    Done(T),
    /// Within its time limit.
    GoesOn,
    /// Beyond its time limit, or failed.
    GivenUp,
}

impl<T: Send + 'static> Work<T> {
    /// Begins it; `None` if too much is stuck, or without a thread.
    pub fn begin(within: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        Self::begin_in(&PLACES, within, work)
    }

    fn begin_in(places: &'static Places, within: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        let place = places.take()?;
        let (tell, answer) = channel();
        let run = move || {
            let _place = place;
            let _ = SignalMask::of(1..=64).apply(); // signals are for threads that wait for them
            let _ = tell.send(work()); // the receiver may be gone
        };
        thread::Builder::new().name("worker".to_owned()).stack_size(1 << 20).spawn(run).ok()?;
        Some(Self { answer, until: Instant::now() + within })
    }

    /// Its state, without waiting.
    pub fn progress(&self) -> Progress<T> {
        match self.answer.try_recv() {
            Ok(answer) => Progress::Done(answer),
            Err(TryRecvError::Empty) if Instant::now() < self.until => Progress::GoesOn,
            Err(_) => Progress::GivenUp,
        }
    }

    /// Waits for its end; `None` if it is abandoned.
    pub fn wait(self) -> Option<T> {
        self.answer.recv_timeout(self.until.saturating_duration_since(Instant::now())).ok()
    }
}

/// Runs it and waits; `None` beyond the time limit, or if too much is stuck.
pub fn with_deadline<T: Send + 'static>(within: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    Work::begin(within, work)?.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::eventually;

    static OWN: Places = Places(AtomicUsize::new(0));

    /// Holds daemon/hostile.
    #[test]
    fn what_is_stuck_is_given_up_and_four_of_it_are_the_most() {
        let stuck: Vec<_> = (0..MOST)
            .map(|_| {
                let (release, stuck) = channel::<()>();
                let work = Work::begin_in(&OWN, Duration::ZERO, move || stuck.recv().is_ok()).unwrap();
                assert_eq!(work.progress(), Progress::GivenUp);
                assert_eq!(work.wait(), None);
                release
            })
            .collect();
        assert!(Work::begin_in(&OWN, Duration::from_secs(60), || ()).is_none(), "all places are taken");
        drop(stuck);
        eventually("the places are free", || OWN.0.load(Ordering::Relaxed) == 0);
        let work = Work::begin_in(&OWN, Duration::from_secs(60), || 7).unwrap();
        assert_eq!(work.wait(), Some(7));
        assert_eq!(with_deadline(Duration::from_secs(60), || 8), Some(8));
    }

    #[test]
    fn work_that_fails_is_given_up() {
        static OWN: Places = Places(AtomicUsize::new(0));
        let work = Work::begin_in(&OWN, Duration::from_secs(60), || assert!(OWN.0.load(Ordering::Relaxed) == 9));
        assert_eq!(work.unwrap().wait(), None);
        eventually("its place is free", || OWN.0.load(Ordering::Relaxed) == 0);
    }
}
