//! Why metrics cannot be started or read.

use cotenant_model::histogram::Clipped;
use cotenant_model::metric::{MeterError, QueryError, ScrapeError, Service};
use cotenant_model::text::within;
use std::io;
use std::time::Duration;

/// Limit of metrics: each has a thread.
pub(super) const MOST: usize = 32;

/// Limit of a failure's text in characters, because servers and files contribute to it.
const MOST_WHY: usize = 300;

/// Why metrics cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Two of one name.
    #[error("two metrics are called '{0}'; add ,name=NAME to one of them")]
    Twice(String),
    /// A reserved name.
    #[error("a metric cannot be called '{0}', which the program itself reports; add ,name=NAME")]
    Reserved(String),
    /// Too many.
    #[error("{0} metrics are more than {MOST}; leave some out")]
    TooMany(usize),
    /// A pattern that is none.
    #[error("'{pattern}' is not a regular expression: {why}; try it with grep -E")]
    Pattern {
        /// As given.
        pattern: String,
        /// The error.
        why: String,
    },
    /// No thread or descriptor.
    #[error("cannot start to read metrics: {0}; see ulimit -u and ulimit -n")]
    Io(#[from] io::Error),
}

/// Why a reading failed. One line each.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Meter(#[from] MeterError),
    #[error(transparent)]
    Scrape(#[from] ScrapeError),
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("it took longer than {0:?} and was given up; make it quicker, or add ,timeout=TIME")]
    Slow(Duration),
    #[error("it printed more than {0} KiB; print one number and nothing else")]
    Huge(usize),
    #[error("it ended with exit code {0}; run it by hand to see why")]
    Failed(String),
    #[error("{path}: {why}")]
    File { path: String, why: String, certain: bool },
    #[error("{path}: none of {lines} new lines matches the pattern; try it with grep -E")]
    Unheard { path: String, lines: u64 },
    #[error("{url}: {why}")]
    Http { url: String, why: String, certain: bool },
    #[error("{what}: {why}")]
    Probe { what: String, why: String, certain: bool },
    #[error("clients:{service}: {why}")]
    Clients { service: Service, why: String, certain: bool },
    #[error("it cannot be started: {0}; see ulimit -u and ulimit -n")]
    Io(#[from] io::Error),
    #[error("its reader failed: {0}; it is tried again")]
    Panicked(String),
    #[error("it was stopped")]
    Stopped,
}

impl FetchError {
    /// The range of a quantile that a histogram does not determine, and its period.
    pub(crate) fn clipped(&self) -> Option<(Clipped, Duration)> {
        match self {
            Self::Meter(MeterError::Clipped { clipped, window, .. }) => Some((*clipped, *window)),
            _ => None,
        }
    }

    /// In one line of limited length.
    pub fn line(&self) -> String {
        within(&self.to_string(), MOST_WHY).into_owned()
    }

    /// Whether the next reading will fail in the same way until someone intervenes.
    pub fn is_certain(&self) -> bool {
        match self {
            Self::Probe { certain, .. }
            | Self::Http { certain, .. }
            | Self::File { certain, .. }
            | Self::Clients { certain, .. } => *certain,
            // What prints nothing yet, or NaN, may come to a number.
            Self::Meter(why) => matches!(why, MeterError::NoNumber(_) | MeterError::NoHistogram),
            // A later line may be cut; where the first one is wrong, it is another format.
            Self::Scrape(ScrapeError::Line { line, .. }) => *line == 1,
            Self::Scrape(why) => !matches!(why, ScrapeError::Buckets(_)),
            Self::Query(why) => matches!(why, QueryError::Refused(_) | QueryError::Several(_) | QueryError::Kind(_)),
            // From the shell: the command is missing, or no program.
            Self::Failed(code) => matches!(code.as_str(), "126" | "127"),
            _ => false,
        }
    }
}

/// Advice, unless the path is wrong.
pub(super) fn status_cure(status: u16) -> Option<&'static str> {
    let logs_in = "it asks for a login: name a path without one, or write cmd: with a program that logs in";
    matches!(status, 401 | 403).then_some(logs_in)
}

/// Whether a web server's refusal is permanent.
pub(super) fn is_no(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 410)
}
