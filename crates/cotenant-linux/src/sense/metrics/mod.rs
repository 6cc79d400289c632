//! External metrics: each is fetched by its own thread at its own interval, so that a slow one never delays the loop.
//!
//! The loop only copies the latest readings. A failed reading leaves no value; a source's message is reported once.

mod ask;
mod clients;
mod command;
pub(crate) mod credentials;
mod error;
mod fetcher;
mod http;
mod log;
pub(crate) mod login;
mod probe;
mod seen;
mod stop;
mod windows;
pub(crate) mod wire;

pub use ask::{Unanswered, ask, check};
pub use clients::sees_clients;
pub use error::StartError;
pub use seen::SeenRequests;

use crate::sys;
use crate::worker::{BackOff, caught};
use cotenant_model::histogram::Histogram;
use cotenant_model::metric::{Measured, Metric};
use cotenant_model::sample::ClippedReading;
use cotenant_model::{Direction, Reading, Time};
use error::{FetchError, MOST};
use fetcher::{Fetcher, is_command, stack};
use probe::Answers;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use stop::{Stop, Stopper};

/// A reading older than this many periods is outdated.
const STALE: u32 = 10;

/// Failures in a row until a report.
const TELL_AFTER: u32 = 3;

/// Whether the program's own reports already use this name.
fn is_reserved(name: &str) -> bool {
    name == "progress" || name.starts_with("latency_p") && name.ends_with("_s")
}

/// Summary of a metric over a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricSummary {
    /// Its name.
    pub name: String,
    /// The better direction; before the first reading `HigherIsBetter` unless given by the user.
    pub direction: Direction,
    /// Readings.
    pub readings: u64,
    /// Their mean over their periods; `None` without any.
    pub mean: Option<f64>,
    /// The last of them.
    pub last: Option<f64>,
    /// Readings that failed.
    pub failed: u64,
    /// Why the last of these did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Requests that were seen of a server's clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<SeenRequests>,
    /// Whether it was refused ever since the start, in a way that stays so until somebody does something about it.
    #[serde(skip)]
    pub refused: bool,
}

/// What a thread and the loop share.
#[derive(Debug)]
struct Shared {
    /// The better direction, if given by the user.
    direction: Option<Direction>,
    reading: Option<Reading>,
    /// Why there is none, where its quantile is not known.
    clipped: Option<ClippedReading>,
    stale_after: Duration,
    summary: MetricSummary,
    /// Seconds covered by its readings.
    seconds: f64,
    /// Failures since the last successful read, with or without a new value.
    in_a_row: u32,
    /// Whether the current failures were reported.
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
                // Each is weighted by its period.
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

    /// Why it fails repeatedly: a server that was just started may not answer yet.
    fn failing(&self) -> Option<String> {
        let why = self.summary.why.as_ref().filter(|_| self.in_a_row >= TELL_AFTER)?;
        Some(format!("metric {}: {why}", self.summary.name))
    }
}

/// Running metrics. Dropping ends their commands and threads.
#[derive(Debug)]
pub struct Metrics {
    shared: Vec<Arc<Mutex<Shared>>>,
    /// What each server answered that is asked, or whose clients are seen.
    answers: Vec<Option<Answers>>,
    /// Those that must end before this does: they have started programs.
    threads: Vec<JoinHandle<()>>,
    stopper: Option<Stopper>,
    start: Instant,
}

impl Metrics {
    /// Starts reading, with times counted from `start`. The threads block all signals.
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
        let answers = fetchers.iter().map(Fetcher::answers).collect();
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
                    requests: None,
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
            let thread = thread::Builder::new().name(name.chars().take(15).collect()).stack_size(stack(metric));
            let fetch = move |at, since, stop: &Stop| fetcher.fetch(at, since, stop);
            let thread = thread.spawn(move || read(&name, fetch, every, start, &stop, &to))?;
            started.shared.push(shared);
            if has_programs {
                started.threads.push(thread);
            }
        }
        Ok(started)
    }

    /// The latest reading of each metric with one. Never waits.
    pub fn readings(&self) -> Vec<(String, Reading)> {
        let now = Time::default() + self.start.elapsed();
        let reading = |shared: &Arc<Mutex<Shared>>| {
            let shared = lock(shared);
            let reading = shared.reading.filter(|reading| now - reading.at <= shared.stale_after)?;
            Some((shared.summary.name.clone(), reading))
        };
        self.shared.iter().filter_map(reading).collect()
    }

    /// Each metric whose quantile is in a bucket open at one end.
    pub fn clipped(&self) -> Vec<(String, ClippedReading)> {
        let clipped = |shared: &Arc<Mutex<Shared>>| {
            let shared = lock(shared);
            Some((shared.summary.name.clone(), shared.clipped?))
        };
        self.shared.iter().filter_map(clipped).collect()
    }

    /// How long the first server took to answer that is asked, or whose clients are seen, nanoseconds, since the
    /// beginning; `None` where there is none.
    pub fn latency_ns(&self) -> Option<Histogram> {
        self.answers.iter().flatten().next().map(Answers::so_far)
    }

    /// Probes the first server more often until then.
    pub fn watch(&self, until: Time) {
        if let Some(answers) = self.answers.iter().flatten().next() {
            answers.watch(self.start + Duration::from_nanos(until.0));
        }
    }

    /// One line per newly failing metric, again only after a success.
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

    /// Why the first metric that was always refused since the start was refused, if that lasted this long.
    pub fn refused_for(&self, long: Duration) -> Option<String> {
        let now = Time::default() + self.start.elapsed();
        self.shared.iter().find_map(|shared| {
            let shared = lock(shared);
            shared.refused_at.filter(|at| now >= *at + long)?;
            Some(format!("metric {}: {}", shared.summary.name, shared.summary.why.as_deref().unwrap_or_default()))
        })
    }

    /// Summaries of all metrics so far.
    pub fn summaries(&self) -> Vec<MetricSummary> {
        let requests = |answers: &Option<Answers>| answers.as_ref()?.requests();
        let summary = |(shared, answers): (&Arc<Mutex<Shared>>, &Option<Answers>)| MetricSummary {
            requests: requests(answers),
            ..lock(shared).summary.clone()
        };
        self.shared.iter().zip(&self.answers).map(summary).collect()
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

/// The thread of a metric. Its fetcher may panic: libraries do when no thread is available.
fn read(
    name: &str,
    mut fetch: impl FnMut(Time, Duration, &Stop) -> Result<Option<Measured>, FetchError>,
    every: Duration,
    start: Instant,
    stop: &Stop,
    shared: &Mutex<Shared>,
) {
    stop::block_signals();
    sys::wake_on_time(); // late answers count
    let mut before = start.elapsed();
    let mut next = Instant::now();
    let mut back_off = BackOff::default();
    loop {
        let at = start.elapsed();
        let fetched = caught(name, || fetch(Time::default() + at, at.saturating_sub(before), stop));
        let wait = if fetched.is_err() { back_off.panicked().max(every) } else { every };
        let result = fetched.unwrap_or_else(|why| Err(FetchError::Panicked(why)));
        // The moment of a command's output is unknown: it is within its run.
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
