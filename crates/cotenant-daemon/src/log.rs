//! The log: with fields to journald if the service manager has connected standard error to it; otherwise lines on
//! standard error.
//!
//! Each kind of event has its own id (`MESSAGE_ID`), by which `journalctl` finds all of them.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use cotenant_cli::messages::count;
use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fmt};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

/// A service begins or ends to be managed.
pub(crate) const SERVICE: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a01";
/// A change or advice.
pub(crate) const DECISION: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a02";
/// The configuration was read or refused.
pub(crate) const CONFIG: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a03";
/// A remark about missing or omitted things.
pub(crate) const NOTE: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a04";
/// The daemon starts, ends, pauses or resumes.
pub(crate) const DAEMON: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a05";

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What stands against managing.
    Error,
    /// And remarks: what is missing, or was not done.
    Warn,
    /// And what begins, ends and is read.
    Info,
    /// And every decision.
    Debug,
}

/// Starts logging.
///
/// # Errors
/// A connected journald that does not answer.
pub fn begin(level: Level) -> Result<()> {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let registry = tracing_subscriber::registry().with(level).with(Limited(LIMITER.clone()));
    if is_journal() {
        // Fields keep their names: COTENANT_RULE, MESSAGE_ID.
        let journal = tracing_journald::layer().context("journald does not answer")?.with_field_prefix(None);
        registry.with(journal).try_init()?;
    } else {
        let lines = tracing_subscriber::fmt::layer()
            .without_time()
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none())
            .with_writer(std::io::stderr)
            .fmt_fields(tracing_subscriber::fmt::format::debug_fn(|writer, field, value| match field.name() {
                "message" => write!(writer, "{value:?}"),
                _ => Ok(()), // the message has the fields' values, too
            }));
        registry.with(lines).try_init()?;
    }
    Ok(())
}

/// Whether standard error is journald's, by systemd's device and inode.
fn is_journal() -> bool {
    let Some(stream) = env::var("JOURNAL_STREAM").ok() else { return false };
    let meta = std::fs::metadata("/proc/self/fd/2");
    meta.is_ok_and(|meta| stream == format!("{}:{}", meta.dev(), meta.ino()))
}

/// Lines of a kind that are logged at once, and then per minute: programs could cause any number.
const AT_ONCE: f64 = 512.0;
const A_MINUTE: f64 = 10.0;
const MINUTE: Duration = Duration::from_secs(60);

/// Marks the lines with sums, which are not limited.
const SUMS: &str = "cotenant::sums";

static LIMITER: LazyLock<Arc<Limiter>> = LazyLock::new(Arc::default);

/// Limits the log. A kind is the place in the code that logs a line; decisions at the level `debug`, which is asked
/// for, are unlimited.
#[derive(Debug, Default)]
struct Limiter(Mutex<HashMap<Identifier, Kind>>);

/// Lines of a kind.
#[derive(Debug)]
struct Kind {
    /// Lines that may follow at once, as of the given time.
    left: f64,
    at: Instant,
    /// Lines dropped since the last sum, and the first of them.
    more: u64,
    such_as: String,
    summed: Instant,
}

impl Kind {
    fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, at: now, more: 0, such_as: String::new(), summed: now }
    }

    /// Whether a line is logged.
    fn takes(&mut self, now: Instant, line: impl FnOnce() -> String) -> bool {
        let minutes = now.saturating_duration_since(self.at).as_secs_f64() / MINUTE.as_secs_f64();
        (self.left, self.at) = ((self.left + minutes * A_MINUTE).min(AT_ONCE), now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            return true;
        }
        if self.more == 0 {
            self.such_as = line();
        }
        self.more += 1;
        false
    }

    /// The dropped lines, once a minute has passed.
    fn sum(&mut self, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.summed) < MINUTE {
            return None;
        }
        self.summed = now;
        let more = std::mem::take(&mut self.more);
        (more > 0).then(|| format!("{} such as: {}", count(more, "more line"), self.such_as))
    }
}

impl Limiter {
    fn kinds(&self) -> MutexGuard<'_, HashMap<Identifier, Kind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sum_up(&self, now: Instant) {
        let sums: Vec<String> = self.kinds().values_mut().filter_map(|kind| kind.sum(now)).collect();
        for sum in sums {
            tracing::warn!(target: SUMS, MESSAGE_ID = NOTE, "{sum}");
        }
    }
}

/// Logs the number of dropped lines at the end of each minute.
pub(crate) fn sum_up() {
    LIMITER.sum_up(Instant::now());
}

/// A layer that passes the lines accepted by its limiter.
struct Limited(Arc<Limiter>);

impl<S: Subscriber> Layer<S> for Limited {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let meta = event.metadata();
        if *meta.level() > tracing::Level::INFO || meta.target() == SUMS {
            return true;
        }
        let now = Instant::now();
        let line = || {
            let mut message = Message(String::new());
            event.record(&mut message);
            message.0
        };
        self.0.kinds().entry(meta.callsite()).or_insert_with(|| Kind::new(now)).takes(now, line)
    }
}

/// The text of a line.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Repeated remarks: each is logged at once, then once an hour.
#[derive(Debug, Default)]
pub struct Seldom(BTreeMap<String, Instant>);

/// Remarks logged in an hour; more are logged in the next, to bound the log.
const REMARKS: usize = 512;

const AGAIN: Duration = Duration::from_secs(3600);

impl Seldom {
    /// Whether it is to be logged now.
    pub fn is_due(&mut self, remark: &str) -> bool {
        let now = Instant::now();
        if self.0.get(remark).is_some_and(|last| now - *last < AGAIN) {
            return false;
        }
        if self.0.len() >= REMARKS {
            self.0.retain(|_, last| now - *last < AGAIN);
        }
        let due = self.0.len() < REMARKS;
        if due {
            self.0.insert(remark.to_owned(), now);
        }
        due
    }

    /// Ends a remark, so that its next occurrence is logged at once.
    pub fn forget(&mut self, remark: &str) {
        self.0.remove(remark);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The text written to the log.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    /// The lines of this thread during `run`.
    pub fn logged(run: impl FnOnce()) -> Vec<String> {
        // With a single dispatcher, callsites first reached by other tests' threads would be off for all.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let lines = Lines::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.clone()), run);
        std::mem::take(&mut *lines.0.lock().unwrap())
    }

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut message = Message(String::new());
            event.record(&mut message);
            self.0.lock().unwrap().push(message.0);
        }
    }

    /// Programs that come and go in turn cause any number of lines; a day of them is some 30,000 short ones.
    /// Holds daemon/hostile.
    #[test]
    fn the_log_is_bounded_and_says_what_it_left_out() {
        let (lines, limiter) = (Lines::default(), Arc::new(Limiter::default()));
        let log = tracing_subscriber::registry().with(Limited(limiter.clone())).with(lines.clone());
        tracing::subscriber::with_default(log, || {
            for i in 0..10_000 {
                tracing::info!("svc-{i} is managed");
            }
            tracing::error!("another kind is reported");
            tracing::debug!("and what the log level asks for");
            limiter.sum_up(Instant::now() + MINUTE);
            limiter.sum_up(Instant::now() + 3 * MINUTE);
        });
        let lines = lines.0.lock().unwrap();
        let told = lines.iter().filter(|line| line.starts_with("svc-")).count();
        assert_eq!(told, AT_ONCE as usize);
        let sum = "9488 more lines such as: svc-512 is managed";
        assert_eq!(lines[told..], ["another kind is reported", "and what the log level asks for", sum]);
    }

    #[test]
    fn after_many_lines_some_are_logged_each_minute() {
        let begin = Instant::now();
        let mut kind = Kind::new(begin);
        let mut day = 0;
        for second in 0..24 * 3_600 {
            let now = begin + Duration::from_secs(second);
            day += (0..500).filter(|_| kind.takes(now, String::new)).count();
        }
        assert!((14_000..16_000).contains(&day), "{day} lines of 43,200,000");
    }

    #[test]
    fn a_remark_is_told_once_an_hour_and_not_too_many_are() {
        let mut seldom = Seldom::default();
        assert!(seldom.is_due("a") && !seldom.is_due("a"));
        let told = (0..2 * REMARKS).filter(|i| seldom.is_due(&i.to_string())).count();
        assert_eq!((told, seldom.0.len()), (REMARKS - 1, REMARKS));
        // An hour later.
        seldom.0.values_mut().for_each(|last| *last -= AGAIN);
        assert!(seldom.is_due("a") && seldom.is_due("new"));
    }
}
