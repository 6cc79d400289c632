//! Recordings: one file with all inputs, observations and decisions of a run, and their readers: [`replay`],
//! [`mod@why`], [`snapshot`].
//!
//! A recording is self-contained (topology, profiles, settings, raw samples, decisions, outcomes), append-only and
//! compressed. Each block carries a checksum, so that a recording after a crash is usable up to its last good block.
//! `docs/reference/recording.md` describes the format.
//!
//! This crate has no file system: [`RecordWriter`] writes to any [`std::io::Write`], [`Recording`] reads from any
//! [`std::io::Read`].

#![forbid(unsafe_code)]

mod decode;
mod encode;
mod frame;
pub mod moves;
pub mod naps;
mod reader;
mod redact;
pub mod replay;
mod row;
pub mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod why;
mod writer;

pub use frame::MAX_BLOCK;
pub use reader::Recording;
pub use writer::{RecordWriter, Status, WriteError};

use cotenant_model::policy::{Config, Ctx};
use cotenant_model::profile::{AppProfile, MachineProfile};
use cotenant_model::{ActionOutcome, Decision, Mode, Order, Outcome, Owns, Sample, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The first bytes of every recording. The high bit and the line ends reveal a transfer that mangled bytes (as in PNG).
pub const MAGIC: [u8; 8] = *b"\x89CTN\r\n\x1a\n";

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Number of the policies' current defaults. Raise it when one changes, and add the former default to [`Header`]: 0 is
/// from before `whole-cores` of `sam` was on and `widest` of `resense` off by default.
pub const DEFAULTS: u32 = 1;

/// Facts known at the start of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the program that recorded.
    pub cotenant: String,
    /// The machine.
    pub topology: Topology,
    /// Its thresholds and clock.
    #[serde(default)]
    pub machine: MachineProfile,
    /// Profiles of applications, by name.
    #[serde(default)]
    pub apps: BTreeMap<String, AppProfile>,
    /// The user's settings, `--pin` among them.
    #[serde(default)]
    pub config: Config,
    /// The defaults for missing settings: [`DEFAULTS`] of the recording program.
    #[serde(default)]
    pub defaults: u32,
    /// Name of the policy; with several rules, of the first one.
    pub policy: String,
    /// The rules, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RecordedRule>,
    /// The loop's mode.
    #[serde(default)]
    pub mode: Mode,
    /// Seeds of everything random.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// Description of the host.
    #[serde(default)]
    pub host: HostDescription,
    /// The command, if one was run; empty when redacted.
    #[serde(default)]
    pub command: Vec<String>,
    /// Wall-clock time of [`cotenant_model::Time`] zero, seconds since 1970, as the caller gives it.
    #[serde(default)]
    pub started_unix_s: Option<u64>,
    /// Whether tasks and applications are named `task-ID` and `app-ID`, without the command.
    #[serde(default)]
    pub redacted: bool,
}

impl Header {
    /// The recorded policy's knowledge besides the view.
    pub fn ctx(&self) -> Ctx<'_> {
        self.ctx_with(&self.config)
    }

    /// The same with other settings.
    pub fn ctx_with<'a>(&'a self, config: &'a Config) -> Ctx<'a> {
        Ctx { topology: &self.topology, machine: &self.machine, apps: &self.apps, config }
    }

    /// Adds settings for defaults that have changed since the recording.
    fn spell_out(&mut self) {
        if self.defaults >= DEFAULTS {
            return;
        }
        let rules = self.rules.iter_mut().map(|rule| (rule.policy.as_str(), &mut rule.config.settings));
        let all = rules.chain([(self.policy.as_str(), &mut self.config.settings)]);
        for (policy, settings) in all {
            match policy {
                "sam" => settings.set_missing("sam", "whole-cores", false.into()),
                "resense" | "resense-sum" => settings.set_missing("resense", "widest", true.into()),
                _ => {}
            }
        }
        self.defaults = DEFAULTS;
    }
}

/// A rule of a run with several rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedRule {
    /// Name of the policy.
    pub policy: String,
    /// The applications that it decides about.
    pub owns: Owns,
    /// Its settings.
    pub config: Config,
}

/// Description of a host, without the machine's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostDescription {
    /// Release of the kernel.
    pub kernel: String,
    /// The tier of signals and the fraction of time that each counter ran, as text.
    pub tier: String,
}

/// One turn of the loop, as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRound {
    /// Index of the deciding rule, from 0.
    pub rule: usize,
    /// The sample of that rule's previous decision.
    pub prev: Arc<Sample>,
    /// The sample of this decision.
    pub sample: Arc<Sample>,
    /// The decision; `None` if the run only observed.
    pub decision: Option<Decision>,
    /// The orders.
    pub orders: Vec<Order>,
    /// The outcome of each order.
    pub outcomes: Vec<Outcome>,
}

impl RecordedRound {
    /// The outcomes that the next decision saw.
    pub fn results(&self) -> Vec<ActionOutcome> {
        let pair = |(order, &outcome): (&Order, &Outcome)| ActionOutcome { action: order.action.clone(), outcome };
        self.orders.iter().zip(&self.outcomes).map(pair).collect()
    }
}

/// End of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Tail {
    /// With its end mark: the run ended.
    Complete,
    /// With its end mark: the size limit was reached, the run went on.
    Limit,
    /// Without a valid end: the recorder was killed, the disk was full, or the file was damaged.
    Truncated {
        /// Bytes from the start of the file up to which everything is good.
        offset: u64,
        /// Good rounds before it.
        rounds: u64,
        /// The fault there.
        why: String,
    },
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Limit => {
                f.write_str("stopped at its size limit; the run went on (raise --record-limit to see the rest)")
            }
            Self::Truncated { offset, rounds, why } => {
                write!(f, "truncated at byte {offset}: {why}; the {rounds} rounds before it are used")
            }
        }
    }
}

/// Reasons why a file is not readable as a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another kind of file.
    #[error("this is not a recording of cotenant (wrong first bytes); give a file that `--record` wrote")]
    NotARecording,
    /// A newer version.
    #[error("the recording has format version {found}, this cotenant reads up to {VERSION}; use a newer cotenant")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// Its header is damaged, or has parts unknown to this version.
    #[error("the recording's header is not readable: {0}; record again, or use the cotenant version that recorded it")]
    Header(String),
    /// Reading failed.
    #[error("reading the recording failed: {0}; check the file and the disk")]
    Io(#[from] std::io::Error),
}
