//! This machine as the studies use it, and what they share.

use super::super::row::{Row, row};
use anyhow::Result;
use cotenant_cli::messages::tell;
use cotenant_cli::scratch::Scratch;
use cotenant_linux::sense::executable;
use cotenant_model::stats::median::{Median, middle};
use cotenant_model::{CpuId, Topology};
use std::fs;
use std::path::PathBuf;
use std::process::Child;

/// Rounds of which the least and the most are an interval of 95 % of the median.
pub(super) const ROUNDS: usize = 6;
/// Asks a program to end.
pub(super) const SIGTERM: i32 = 15;

/// This machine, as the studies use it.
pub(super) struct Here {
    pub topology: Topology,
    /// Two cores that share a last-level cache, where there are such.
    pub cpus: [CpuId; 2],
    pub quick: bool,
    /// For what is compiled and read.
    pub folder: Scratch,
    /// The users' program, which has the kernels, the compiler and `qos`.
    pub cotenant: PathBuf,
}

impl Here {
    pub fn rounds(&self) -> usize {
        if self.quick { 2 } else { ROUNDS }
    }
}

/// So many lines with as much in common as source code has: a text, and C.
pub(super) fn text(lines: u64) -> String {
    let line = |i| format!("int f{i}(int x) {{ return x * {} + (x >> {}); }}\n", i * i % 9973, i % 31);
    (0..lines).map(line).collect()
}

/// A text for xz to compress; `None`, with a note, where one of these programs is missing.
pub(super) fn text_for_xz(here: &Here, needs: &[&str], notes: &mut Vec<String>) -> Result<Option<PathBuf>> {
    if let Some(missing) = needs.iter().find(|name| executable::find(name.as_ref()).is_none()) {
        notes.push(left_out("xz", format_args!("{missing} is not installed")));
        return Ok(None);
    }
    let path = here.folder.path().join("text");
    fs::write(&path, text(20_000))?;
    Ok(Some(path))
}

/// A program while it runs; ended when it is dropped.
pub(super) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A row of the median of some figures, each times this, with its interval.
pub(super) fn median_row(label: String, figures: &[f64], times: f64, unit: &'static str) -> Row {
    let Median { value, low, high } = middle(figures);
    row(label, value * times, unit).between([low * times, high * times])
}

/// Says that a part cannot be done here.
pub(super) fn left_out(what: &str, why: impl std::fmt::Display) -> String {
    let text = format!("{what} is left out: {why}.");
    tell(&text);
    text
}
