//! The live table: a bar, and a line per job that is started. Nothing where standard error is no terminal.

use super::queue::{Job, Jobs, State};
use super::{NAME, estimate, is_shown};
use crate::live_table::{LiveTable, cut};
use cotenant_cli::progress::{Progress, about};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// What is on the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    progress: Progress,
    drawn: Option<Instant>,
    table: LiveTable,
}

impl Screen {
    pub fn new(wanted: bool) -> Self {
        Self { progress: Progress::new(wanted), drawn: None, table: LiveTable::default() }
    }

    /// Draws it where it is time.
    pub fn show(&mut self, jobs: &Jobs, elapsed: Duration) {
        let due = self.drawn.map_or_else(|| self.progress.next(), |drawn| drawn + Duration::from_millis(500));
        if !self.progress.is_on() || Instant::now() < due {
            return;
        }
        self.drawn = Some(Instant::now());
        let (width, height) = LiveTable::room();
        self.table.draw(&text(jobs, elapsed, width, height));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.table.erase();
    }
}

/// The table as text: at most so many characters per line, and so many lines.
pub(super) fn text(jobs: &Jobs, elapsed: Duration, width: usize, height: usize) -> String {
    let done = jobs.done();
    let over = jobs.all.iter().filter(|job| job.is_over()).count();
    let failed = jobs.all.iter().filter(|job| job.is_over() && !job.is_ok()).count();
    let mut lines = vec![format!(
        "{} {over} of {} jobs, {failed} failed, {}",
        cotenant_cli::progress::bar(done),
        jobs.all.len(),
        estimate(jobs.done_here(), elapsed)
    )];
    let mut shown: Vec<&Job> = jobs.all.iter().filter(|job| is_shown(&job.state)).collect();
    let room = height.saturating_sub(1).max(1);
    let mut rows = shown.len();
    if rows > room {
        rows = room - 1;
        shown.sort_by_key(|job| !matches!(job.state, State::Started { runs: true, .. }));
    }
    let name = shown.iter().take(rows).map(|job| job.spec.name.chars().count()).max().unwrap_or(0).min(NAME);
    for job in shown.iter().take(rows) {
        let State::Started { since, runs } = job.state else { continue };
        let mut line = format!("  {:name$}  {}", cut(&job.spec.name, name), if runs { "runs " } else { "waits" });
        let _ = write!(line, "  {:>7}", about(since.elapsed()));
        if let Some(rate) = job.rate {
            let _ = write!(line, "  {rate:7.2} LLC misses/µs");
        }
        lines.push(line);
    }
    if rows < shown.len() {
        lines.push(format!("  and {} more", shown.len() - rows));
    }
    lines.iter().fold(String::new(), |text, line| text + &cut(line, width) + "\n")
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Ledger;
    use super::super::queue::Limits;
    use super::*;
    use std::path::Path;

    fn table(jobs: usize, width: usize, height: usize) -> String {
        let folder = std::env::temp_dir().join(format!("cotenant-screen-{}-{jobs}-{width}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let job = |i| format!("[[job]]\nname = 'simulation number {i} of the whole series'\ncommand = 'a'\n");
        let specs = super::super::jobs::parse(Path::new("q.toml"), &(0..jobs).map(job).collect::<String>()).unwrap();
        let (ledger, earlier) = Ledger::open(&folder, &specs, false).unwrap();
        let mut jobs = Jobs::new(specs, Limits::default(), &folder, ledger, &earlier);
        let since = Instant::now() + Duration::from_secs(3_600); // so that no time has passed, however long this takes
        for (i, job) in jobs.all.iter_mut().enumerate() {
            job.state = State::Started { since, runs: [0, 39].contains(&i) };
            job.rate = Some(12.345);
        }
        let text = text(&jobs, Duration::from_secs(1), width, height);
        std::fs::remove_dir_all(&folder).unwrap();
        text
    }

    #[test]
    fn it_fits_the_terminal() {
        let bar = "[....................]   0 % 0 of 2 jobs, 0 failed, no estimate yet\n";
        let row = |state| format!("  simulation number {state}      0 s    12.35 LLC misses/µs\n");
        let rows = row("0 of the wh…  runs ") + &row("1 of the wh…  waits");
        assert_eq!(table(2, 79, 23), format!("{bar}{rows}"));
        for (width, height) in [(79, 23), (119, 40), (20, 4), (1, 1), (0, 0)] {
            let text = table(40, width, height);
            assert!(text.lines().count() <= height.max(2), "{height}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        let few = table(40, 79, 4);
        assert_eq!(few.lines().last(), Some("  and 38 more"));
        assert!(few.contains("number 0 of") && few.contains("number 39 of"), "those that run: {few}");
    }
}
