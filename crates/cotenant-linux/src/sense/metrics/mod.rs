//! Metrics from outside: each is fetched by a thread of its own, at its own pace, so that nothing slow ever delays
//! the loop.
//!
//! The loop only copies the latest readings. A reading that fails leaves no value behind; what a source says of it is
//! told once.

mod ask;
mod command;
pub(crate) mod credentials;
mod error;
mod fetcher;
mod http;
mod log;
pub(crate) mod login;
mod probe;
mod stop;
pub(crate) mod wire;

pub use ask::{Unanswered, ask, check};
pub use error::StartError;

use crate::sys;
use crate::worker::{BackOff, caught};
use cotenant_model::histogram::Histogram;
use cotenant_model::metric::{Measured, Metric};
use cotenant_model::sample::ClippedReading;
use cotenant_model::{Direction, Reading, Time};
use error::{FetchError, MOST};
use fetcher::{Fetcher, is_command};
use probe::Answers;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use stop::{Stop, Stopper};

/// A reading that is older than so many periods says nothing about now.
const STALE: u32 = 10;

/// Failures in a row that are told.
const TELL_AFTER: u32 = 3;

/// Whether what programs report themselves is called so already.
fn is_reserved(name: &str) -> bool {
    name == "progress" || name.starts_with("latency_p") && name.ends_with("_s")
}

/// What a metric came to over a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricSummary {
    /// Its name.
    pub name: String,
    /// Which way is better; before the first reading `HigherIsBetter` unless the user said it.
    pub direction: Direction,
    /// Readings.
    pub readings: u64,
    /// Their mean over the time that they are about; `None` without any.
    pub mean: Option<f64>,
    /// The last of them.
    pub last: Option<f64>,
    /// Readings that failed.
    pub failed: u64,
    /// Why the last of these did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether it was refused ever since the start, in a way that stays so until somebody does something about it.
    #[serde(skip)]
    pub refused: bool,
}

/// What a thread and the loop share.
#[derive(Debug)]
struct Shared {
    /// Which way is better, where the user said it.
    direction: Option<Direction>,
    reading: Option<Reading>,
    /// Why there is none, where its quantile is not known.
    clipped: Option<ClippedReading>,
    stale_after: Duration,
    summary: MetricSummary,
    /// Seconds that its readings are about.
    seconds: f64,
    /// Failures since the source was last read without one, whether it had something new or not.
    in_a_row: u32,
    /// Whether it was reported that it fails, since it was last read without a failure.
    told: bool,
    /// Since when [`MetricSummary::refused`] holds.
    refused_at: Option<Time>,
}

impl Shared {
    fn take(&mut self, result: Result<Option<Measured>, FetchError>, at: Time) {
        let summary = &mut self.summary;
        match &result {
            Err(FetchError::Stopped) => {}
            Err(why) if why.is_certain() && summary.readings == 0 => drop(self.refused_at.get_or_insert(at)),
            _ => self.refused_at = None,
        }
        summary.refused = self.refused_at.is_some();
        match result {
            Err(FetchError::Stopped) => {}
            Ok(None) => (self.in_a_row, self.told, self.clipped) = (0, false, None),
            Ok(Some(Measured { value, window, count, direction })) => {
                summary.direction = self.direction.unwrap_or(direction);
                self.reading = Some(Reading { value, direction: summary.direction, window, count, at });
                summary.readings += 1;
                // Each counts for as long as it is about.
                self.seconds += window.as_secs_f64();
                let mean = summary.mean.unwrap_or(value);
                let part = (window.as_secs_f64() / self.seconds.max(f64::MIN_POSITIVE)).min(1.0);
                summary.mean = Some(mean + (value - mean) * part);
                summary.last = Some(value);
                (self.in_a_row, self.told, self.clipped) = (0, false, None);
            }
            Err(why) => {
                self.reading = None;
                self.clipped = why.clipped().map(|(clipped, window)| ClippedReading { clipped, window, at });
                summary.failed += 1;
                summary.why = Some(why.line());
                self.in_a_row += 1;
            }
        }
    }

    /// Why it fails again and again: a server that was started just now may not answer yet.
    fn failing(&self) -> Option<String> {
        let why = self.summary.why.as_ref().filter(|_| self.in_a_row >= TELL_AFTER)?;
        Some(format!("metric {}: {why}", self.summary.name))
    }
}

/// Metrics that are being read. Dropped, it ends their commands and leaves nothing running.
#[derive(Debug)]
pub struct Metrics {
    shared: Vec<Arc<Mutex<Shared>>>,
    /// What the first server that is asked answered.
    answers: Option<Answers>,
    /// Those that must end before this does: they have started programs.
    threads: Vec<JoinHandle<()>>,
    stopper: Option<Stopper>,
    start: Instant,
}

impl Metrics {
    /// Starts to read, with times counted from `start`. The threads inherit what signals the caller blocks, and block
    /// all others.
    ///
    /// # Errors
    /// [`StartError`]; nothing is read then.
    pub fn start(metrics: &[Metric], start: Instant) -> Result<Self, StartError> {
        if metrics.len() > MOST {
            return Err(StartError::TooMany(metrics.len()));
        }
        for (i, metric) in metrics.iter().enumerate() {
            if metrics[..i].iter().any(|other| other.name == metric.name) {
                return Err(StartError::Twice(metric.name.clone()));
            }
            if is_reserved(&metric.name) {
                return Err(StartError::Reserved(metric.name.clone()));
            }
        }
        let fetchers = metrics.iter().map(Fetcher::new).collect::<Result<Vec<_>, _>>()?;
        let (stopper, stop) = stop::pair()?;
        let answers = fetchers.iter().find_map(|fetcher| match fetcher {
            Fetcher::Probe(probe) => Some(probe.answers()),
            _ => None,
        });
        let mut started = Self { shared: Vec::new(), answers, threads: Vec::new(), stopper: Some(stopper), start };
        for (metric, mut fetcher) in metrics.iter().zip(fetchers) {
            let shared = Arc::new(Mutex::new(Shared {
                direction: metric.direction,
                reading: None,
                clipped: None,
                stale_after: metric.every * STALE,
                summary: MetricSummary {
                    name: metric.name.clone(),
                    direction: metric.direction.unwrap_or(Direction::HigherIsBetter),
                    readings: 0,
                    mean: None,
                    last: None,
                    failed: 0,
                    why: None,
                    refused: false,
                },
                seconds: 0.0,
                in_a_row: 0,
                told: false,
                refused_at: None,
            }));
            let has_programs = is_command(metric);
            let (every, stop, to) = (metric.every, stop.clone(), shared.clone());
            let name = format!("metric {}", metric.name);
            let thread = thread::Builder::new().name(name.chars().take(15).collect()).stack_size(256 << 10);
            let fetch = move |at, since, stop: &Stop| fetcher.fetch(at, since, stop);
            let thread = thread.spawn(move || read(&name, fetch, every, start, &stop, &to))?;
            started.shared.push(shared);
            if has_programs {
                started.threads.push(thread);
            }
        }
        Ok(started)
    }

    /// The latest reading of each metric that has one. Does not wait for any source.
    pub fn readings(&self) -> Vec<(String, Reading)> {
        let now = Time::default() + self.start.elapsed();
        let reading = |shared: &Arc<Mutex<Shared>>| {
            let shared = lock(shared);
            let reading = shared.reading.filter(|reading| now - reading.at <= shared.stale_after)?;
            Some((shared.summary.name.clone(), reading))
        };
        self.shared.iter().filter_map(reading).collect()
    }

    /// Each metric whose quantile lies in a bucket that is open at one end.
    pub fn clipped(&self) -> Vec<(String, ClippedReading)> {
        let clipped = |shared: &Arc<Mutex<Shared>>| {
            let shared = lock(shared);
            Some((shared.summary.name.clone(), shared.clipped?))
        };
        self.shared.iter().filter_map(clipped).collect()
    }

    /// How long the first server that is asked took to answer, nanoseconds, since the beginning; `None` where none is
    /// asked.
    pub fn latency_ns(&self) -> Option<Histogram> {
        self.answers.as_ref().map(Answers::so_far)
    }

    /// The first server that is asked is asked more often until then.
    pub fn watch(&self, until: Time) {
        if let Some(answers) = &self.answers {
            answers.watch(self.start + Duration::from_nanos(until.0));
        }
    }

    /// One line for each metric that fails again and again, once until it is read again.
    pub fn news(&self) -> Vec<String> {
        let line = |shared: &Arc<Mutex<Shared>>| {
            let mut shared = lock(shared);
            let line = shared.failing().filter(|_| !shared.told)?;
            shared.told = true;
            Some(line)
        };
        self.shared.iter().filter_map(line).collect()
    }

    /// The same of the first metric that fails now, as long as it does.
    pub fn failing(&self) -> Option<String> {
        self.shared.iter().find_map(|shared| lock(shared).failing())
    }

    /// Why the first metric that was refused ever since the start was, where that is so long ago.
    pub fn refused_for(&self, long: Duration) -> Option<String> {
        let now = Time::default() + self.start.elapsed();
        self.shared.iter().find_map(|shared| {
            let shared = lock(shared);
            shared.refused_at.filter(|at| now >= *at + long)?;
            Some(format!("metric {}: {}", shared.summary.name, shared.summary.why.as_deref().unwrap_or_default()))
        })
    }

    /// What each metric came to so far.
    pub fn summaries(&self) -> Vec<MetricSummary> {
        self.shared.iter().map(|shared| lock(shared).summary.clone()).collect()
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stopper = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread of a metric. What fetches it may panic: libraries do where no thread can be had.
fn read(
    name: &str,
    mut fetch: impl FnMut(Time, Duration, &Stop) -> Result<Option<Measured>, FetchError>,
    every: Duration,
    start: Instant,
    stop: &Stop,
    shared: &Mutex<Shared>,
) {
    stop::block_signals();
    sys::wake_on_time(); // what is late counts
    let mut before = start.elapsed();
    let mut next = Instant::now();
    let mut back_off = BackOff::default();
    loop {
        let at = start.elapsed();
        let fetched = caught(name, || fetch(Time::default() + at, at.saturating_sub(before), stop));
        let wait = if fetched.is_err() { back_off.panicked().max(every) } else { every };
        let result = fetched.unwrap_or_else(|why| Err(FetchError::Panicked(why)));
        // Of what a command prints, nobody knows which moment it is about: it is one within its run.
        let at = Time::default() + start.elapsed();
        before = start.elapsed();
        lock(shared).take(result, at);
        next = (next + wait).max(Instant::now());
        if stop.within(next.saturating_duration_since(Instant::now())) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
