//! One query per metric before anything starts that depends on it.

use super::error::{MOST, StartError};
use super::fetcher::{Fetcher, is_command, stack};
use super::log::Log;
use super::stop;
use cotenant_model::metric::{Metric, MetricSource};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Why a metric gives no value, in one line with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// It.
    pub why: String,
    /// Whether it stays so until someone intervenes: a password, a role, a missing server.
    pub certain: bool,
}

/// Checks what can be checked before the first reading: the pattern of a log.
///
/// # Errors
/// [`StartError::Pattern`]
pub fn check(metric: &Metric) -> Result<(), StartError> {
    match &metric.source {
        MetricSource::Log { path, pattern } => Log::new(path, pattern).map(drop),
        _ => Ok(()),
    }
}

/// Asks all of them at the same time, each once, and waits for no answer beyond `within`. `None`: it answers.
///
/// # Errors
/// [`StartError`]; then none or only some were queried.
pub fn ask(metrics: &[Metric], within: Duration) -> Result<Vec<Option<Unanswered>>, StartError> {
    let until = Instant::now() + within;
    let (stopper, stop) = stop::pair()?;
    let (said, heard) = channel();
    let mut commands = Vec::new();
    for (i, metric) in metrics.iter().enumerate().take(MOST) {
        let metric = Metric { timeout: metric.timeout.min(within), ..metric.clone() };
        let (mut fetcher, stop, said) = (Fetcher::new(&metric)?, stop.clone(), said.clone());
        let thread =
            thread::Builder::new().name("metric asked".to_owned()).stack_size(stack(&metric)).spawn(move || {
                stop::block_signals();
                let _ = said.send((i, fetcher.ask(&stop)));
            })?;
        if is_command(&metric) {
            commands.push(thread);
        }
    }
    drop(said);
    let late = |i| {
        let why = if i < MOST { "it did not answer in time" } else { "it was not asked: there are too many" };
        Some(Unanswered { why: why.to_owned(), certain: false })
    };
    let mut answers: Vec<_> = (0..metrics.len()).map(late).collect();
    while let Ok((i, answer)) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
        answers[i] = answer.err().map(|why| Unanswered { certain: why.is_certain(), why: why.line() });
    }
    // Programs do not outlive the query. Look-ups of names and servers have deadlines and no side effects.
    drop(stopper);
    for thread in commands {
        let _ = thread.join();
    }
    Ok(answers)
}
