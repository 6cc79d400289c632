//! This machine as the studies use it.

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

/// Rounds whose minimum and maximum are a 95 % interval of the median.
pub(super) const ROUNDS: usize = 6;
/// Requests a process to end.
pub(super) const SIGTERM: i32 = 15;

/// This machine, as the studies use it.
pub(super) struct Here {
    pub topology: Topology,
    /// Two cores, sharing a last-level cache if possible.
    pub cpus: [CpuId; 2],
    pub quick: bool,
    /// Folder for compiled programs and input files.
    pub folder: Scratch,
    /// The users' binary, which has the kernels, the compiler and `qos`.
    pub cotenant: PathBuf,
}

impl Here {
    pub fn rounds(&self) -> usize {
        if self.quick { 2 } else { ROUNDS }
    }
}

/// Text with this many lines and the redundancy of source code, for compression and as C.
pub(super) fn text(lines: u64) -> String {
    let line = |i| format!("int f{i}(int x) {{ return x * {} + (x >> {}); }}\n", i * i % 9973, i % 31);
    (0..lines).map(line).collect()
}

/// A text for xz to compress; `None`, with a note, if one of these programs is missing.
pub(super) fn text_for_xz(here: &Here, needs: &[&str], notes: &mut Vec<String>) -> Result<Option<PathBuf>> {
    if let Some(missing) = needs.iter().find(|name| executable::find(name.as_ref()).is_none()) {
        notes.push(left_out("xz", format_args!("{missing} is not installed")));
        return Ok(None);
    }
    let path = here.folder.path().join("text");
    fs::write(&path, text(20_000))?;
    Ok(Some(path))
}

/// A running process, ended on drop.
pub(super) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A row with the median of some figures, scaled, with its interval.
pub(super) fn median_row(label: String, figures: &[f64], times: f64, unit: &'static str) -> Row {
    let Median { value, low, high } = middle(figures);
    row(label, value * times, unit).between([low * times, high * times])
}

/// Reports a part that cannot run here.
pub(super) fn left_out(what: &str, why: impl std::fmt::Display) -> String {
    let text = format!("{what} is left out: {why}.");
    tell(&text);
    text
}
