//! The live table: a bar, and a line per job that is started. Nothing where standard error is no terminal.

use super::queue::{Job, Jobs, State};
use super::{estimate, is_shown};
use crate::progress::{Progress, about};
use crate::words;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Lines of jobs at most.
const ROWS: usize = 20;

/// What is on the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    progress: Progress,
    drawn: Option<Instant>,
    /// Lines below the one where the cursor was.
    lines: usize,
}

impl Screen {
    pub fn new(wanted: bool) -> Self {
        Self { progress: Progress::new(wanted), drawn: None, lines: 0 }
    }

    /// Draws it where it is time.
    pub fn show(&mut self, jobs: &Jobs, elapsed: Duration) {
        let due = self.drawn.map_or_else(|| self.progress.next(), |drawn| drawn + Duration::from_millis(500));
        if !self.progress.is_on() || Instant::now() < due {
            return;
        }
        self.drawn = Some(Instant::now());
        let text = text(jobs, elapsed);
        let back = if self.lines > 0 { format!("\x1b[{}A", self.lines) } else { String::new() };
        self.lines = text.lines().count();
        words::raw(&format!("{back}\r{}\x1b[J", text.replace('\n', "\x1b[K\r\n")));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.lines > 0 {
            words::raw(&format!("\x1b[{}A\r\x1b[J", self.lines));
        }
    }
}

/// The table as text.
pub(super) fn text(jobs: &Jobs, elapsed: Duration) -> String {
    let done = jobs.done();
    let over = jobs.all.iter().filter(|job| job.is_over()).count();
    let failed = jobs.all.iter().filter(|job| job.is_over() && !job.is_ok()).count();
    let mut text = format!(
        "{} {over} of {} jobs, {failed} failed, {}\n",
        crate::progress::bar(done),
        jobs.all.len(),
        estimate(done, elapsed)
    );
    let shown: Vec<&Job> = jobs.all.iter().filter(|job| is_shown(&job.state)).collect();
    for job in shown.iter().take(ROWS) {
        let State::Started { since, runs } = job.state else { continue };
        let name: String = job.spec.name.chars().take(30).collect();
        let rate = job.rate.map(|rate| format!("  {rate:7.2} LLC misses/µs")).unwrap_or_default();
        let state = if runs { "runs " } else { "waits" };
        let _ = writeln!(text, "  {name:30} {state} {:>8}{rate}", about(since.elapsed()));
    }
    if shown.len() > ROWS {
        let _ = writeln!(text, "  and {} more", shown.len() - ROWS);
    }
    text
}
