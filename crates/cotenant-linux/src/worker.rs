//! Threads that work as long as the program runs: a panic is reported, and the thread restarts after a pause.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

/// The wait after a first panic, and the longest.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];

/// Panics kept until [`news`] takes them.
const MOST: usize = 64;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// How long a worker that has panicked waits: twice as long each time, and from the beginning after a longest wait
/// without a panic.
#[derive(Clone, Debug)]
pub struct BackOff {
    wait: Duration,
    last: Instant,
}

impl Default for BackOff {
    fn default() -> Self {
        Self { wait: WAITS[0], last: Instant::now() }
    }
}

impl BackOff {
    /// It has panicked now.
    pub fn panicked(&mut self) -> Duration {
        if self.last.elapsed() > self.wait + WAITS[1] {
            self.wait = WAITS[0];
        }
        self.last = Instant::now();
        let next = (self.wait * 2).min(WAITS[1]);
        mem::replace(&mut self.wait, next)
    }
}

/// Runs a named worker's work; a panic is returned as its message, and also passed to [`news`].
///
/// # Errors
/// Its message.
pub fn caught<T>(name: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            if !is_reported() {
                before(what);
            }
        }));
    });
    CAUGHT.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(false);
    done.map_err(|why| report(name, &*why))
}

/// Whether [`news`] reports a panic of this thread in one line instead of a backtrace.
pub fn is_reported() -> bool {
    CAUGHT.get() && std::env::var_os("RUST_BACKTRACE").is_none()
}

/// Keeps a named worker's panic `why` for [`news`]; returns its message.
pub fn report(name: &str, why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = text.or_else(|| why.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned());
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    if panics.len() < MOST {
        panics.push(format!("{name} failed and goes on: {said}; memory or threads are used up, or it is a bug"));
    }
    said
}

/// Starts a named thread that works until `work` returns, and again after each panic.
///
/// # Errors
/// No thread can be started.
pub fn spawn(name: &str, stack: usize, mut work: impl FnMut() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let title = name.to_owned();
    thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(move || {
        let mut back_off = BackOff::default();
        while caught(&title, &mut work).is_err() {
            thread::sleep(back_off.panicked());
        }
    })
}

/// Panics since the last call.
pub fn news() -> Vec<String> {
    mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_panics_goes_on_and_is_reported() {
        let mut times = 0;
        let work = move || {
            times += 1;
            assert!(CAUGHT.get(), "its panic is told once");
            assert!(times == 3, "time {times}");
        };
        spawn("a worker", 64 << 10, work).unwrap().join().unwrap();
        assert!(!CAUGHT.get());
        let news = news();
        let of = |time: usize| {
            news.iter().any(|line| line.starts_with(&format!("a worker failed and goes on: time {time};")))
        };
        assert!(of(1) && of(2) && !of(3), "{news:?}");
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let mut back_off = BackOff::default();
        let waits: Vec<u128> = (0..12).map(|_| back_off.panicked().as_millis()).collect();
        assert_eq!(waits[..4], [100, 200, 400, 800]);
        assert_eq!(waits[9..], [51_200, 60_000, 60_000]);
    }
}
