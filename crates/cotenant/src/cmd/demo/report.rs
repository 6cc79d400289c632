//! The report of the demonstration, as plain values.

use super::verdict::{Phase, Verdict};
use crate::cmd::outlook::Outlook;
use cotenant_model::stats::Estimate;
use cotenant_model::usage::Seen;
use serde::Serialize;
use serde_json::Value;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    /// Questions per second.
    pub asked_per_s: f64,
    /// The batch program, its threads, and bytes of each.
    pub batch: String,
    pub threads: usize,
    pub bytes: u64,
    pub phases: [&'a Phase; 5],
    /// The means that put the batch program into the background.
    pub by_hand: &'a str,
    /// Other use of this machine.
    pub usage: &'a Seen,
    pub verdict: &'a Verdict,
    /// Output of `cotenant qos --json`.
    pub qos: &'a Value,
    pub simulated: &'a Simulated,
    pub outlook: &'a Outlook,
}

/// A machine where placement pays.
#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    pub machine: String,
    pub policy: &'static str,
    pub apps: Vec<App>,
    /// Speed-up over Linux, the mean over the programs: 0.05 is 5 %.
    pub over_linux: Option<Estimate>,
}

/// A program there: how long it takes where Linux, and where the policy, places its threads.
#[derive(Debug, Serialize)]
pub(super) struct App {
    pub name: String,
    pub threads: usize,
    pub linux_s: f64,
    pub placed_s: f64,
}
