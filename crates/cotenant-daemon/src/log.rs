//! The log: to journald where the service manager has connected standard error to it, with fields; else lines there.
//!
//! Each kind of event has an id of its own (`MESSAGE_ID`), by which `journalctl` finds all of them.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::env;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// A service is managed from now on, or no more.
pub(crate) const SERVICE: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a01";
/// Something was changed, or advised.
pub(crate) const DECISION: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a02";
/// The configuration was read, or refused.
pub(crate) const CONFIG: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a03";
/// A remark: what is missing, or was not done.
pub(crate) const NOTE: &str = "0d5e0d2bd4a54a03a1a4a7c2c3d90a04";
/// The daemon begins, ends, pauses or goes on.
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

/// Begins to log.
///
/// # Errors
/// Where journald is connected and does not answer.
pub fn begin(level: Level) -> Result<()> {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    let registry = tracing_subscriber::registry().with(level);
    if is_journal() {
        // Fields are called as they are: COTENANT_RULE, MESSAGE_ID.
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
                _ => Ok(()), // what the fields say stands in the message, too
            }));
        registry.with(lines).try_init()?;
    }
    Ok(())
}

/// Whether standard error is journald's, as systemd says by device and inode.
fn is_journal() -> bool {
    let Some(stream) = env::var("JOURNAL_STREAM").ok() else { return false };
    let meta = std::fs::metadata("/proc/self/fd/2");
    meta.is_ok_and(|meta| stream == format!("{}:{}", meta.dev(), meta.ino()))
}

/// Remarks that are told again and again: each at once, then once an hour.
#[derive(Debug, Default)]
pub struct Seldom(BTreeMap<String, Instant>);

/// Remarks that are told in an hour; more wait for the next one, so that nothing fills the log.
const REMARKS: usize = 512;

const AGAIN: Duration = Duration::from_secs(3600);

impl Seldom {
    /// Whether it is to be told now.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
