//! The observer of a batch: sums the jobs' usage, and draws a bar and a line per started job.

use super::queue::{self, Job, Jobs, NAME, Shared, State};
use crate::run::Observer;
use cotenant_cli::live_view::{LiveView, cut_middle, fit};
use cotenant_cli::messages::count;
use cotenant_cli::progress::about;
use cotenant_linux::host::LinuxHost;
use cotenant_linux::host::queue::Gaps;
use cotenant_model::{Round, Signal};
use cotenant_policies::wanted as cpus_wanted;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Shorter batches need no table.
const FIRST: Duration = Duration::from_secs(2);

/// Time between two tables.
const EVERY: Duration = Duration::from_millis(500);

/// The table, if standard error is a terminal; at the end the summary replaces it.
pub(super) fn live_view() -> Option<LiveView> {
    LiveView::on_terminal(FIRST, EVERY, false)
}

/// The observations of a batch.
#[derive(Debug)]
pub(super) struct Screen {
    jobs: Shared,
    start: Instant,
    /// Duration of the batch.
    pub makespan: Duration,
    /// Time for stopping and resuming.
    pub gaps: Gaps,
}

impl Screen {
    pub fn new(jobs: Shared) -> Self {
        Self { jobs, start: Instant::now(), makespan: Duration::ZERO, gaps: Gaps::default() }
    }
}

impl Observer for Screen {
    fn round(&mut self, round: &Round<'_>) {
        account(&mut self.jobs.0.borrow_mut(), round);
    }

    fn view(&mut self, room: (usize, usize)) -> Option<String> {
        Some(text(&self.jobs.0.borrow(), self.start.elapsed(), room))
    }

    fn end(&mut self, host: &LinuxHost) {
        (self.makespan, self.gaps) = (self.start.elapsed(), host.gaps());
    }

    fn notes(&mut self) -> Vec<String> {
        let jobs = self.jobs.0.borrow();
        let mut notes: Vec<String> = jobs.notes.iter().cloned().collect();
        let silent = jobs.all.iter().filter(|job| job.spec.memory.is_none()).count();
        if silent > 0 && silent < jobs.all.len() {
            notes.push(format!(
                "{} not say how much memory they need: they count as needing none",
                count(silent as u64, "job") + if silent == 1 { " does" } else { " do" }
            ));
        }
        notes
    }
}

/// The signals shown per job.
const TOLD: [Signal; 6] = {
    use Signal::{CpuTime, L1Misses, L2LinesIn, L3LinesIn, LlcMisses, PrivateMisses};
    [CpuTime, LlcMisses, PrivateMisses, L1Misses, L2LinesIn, L3LinesIn]
};

/// Adds the events since the last sample to the jobs.
fn account(jobs: &mut Jobs, round: &Round<'_>) {
    let seconds = round.view.interval.as_secs_f64();
    let mut rates: BTreeMap<usize, f64> = BTreeMap::new();
    let mut wanted: BTreeMap<usize, f64> = BTreeMap::new();
    for task in &round.view.tasks {
        let Some(&key) = jobs.apps.get(task.info.app.0 as usize) else { continue };
        if task.ran() == Some(true) {
            *wanted.entry(key).or_default() += cpus_wanted(task);
        }
        for signal in TOLD {
            if let Some(rate) = task.per_s(signal) {
                *jobs.all[key].events.entry(signal).or_default() += rate * seconds;
            }
        }
        if let (Some(rate), Some(true)) = (task.per_s(Signal::LlcMisses), task.ran()) {
            *rates.entry(key).or_default() += rate / 1e6;
        }
    }
    for (key, rate) in rates {
        jobs.all[key].rate = Some(rate);
    }
    for (key, wanted) in wanted {
        jobs.all[key].width = wanted.round() as usize;
    }
}

/// The table as text: at most so many characters per line, and so many lines.
fn text(jobs: &Jobs, elapsed: Duration, room: (usize, usize)) -> String {
    let height = room.1;
    let (done, left) = (jobs.done(), queue::left(jobs.done_here(), elapsed));
    let over = jobs.all.iter().filter(|job| job.is_over()).count();
    let failed = jobs.all.iter().filter(|job| job.has_failed()).count();
    let left = left.map_or_else(|| "no estimate yet".to_owned(), |left| format!("about {} left", about(left)));
    let (bar, all) = (cotenant_cli::progress::bar(done), jobs.all.len());
    let mut lines = vec![format!("{bar} {over} of {all} jobs, {failed} failed, {left}")];
    let mut shown: Vec<&Job> = jobs.all.iter().filter(|job| matches!(job.state, State::Started { .. })).collect();
    if shown.len() >= height {
        shown.sort_by_key(|job| !matches!(job.state, State::Started { runs: true, .. }));
    }
    let name = shown.iter().map(|job| job.spec.title.chars().count()).max().unwrap_or(0).min(NAME);
    for job in shown {
        let State::Started { since, runs } = job.state else { continue };
        let mut line =
            format!("  {:name$}  {}", cut_middle(&job.spec.title, name), if runs { "runs " } else { "waits" });
        let _ = write!(line, "  {:>7}", about(since.elapsed()));
        if let Some(rate) = job.rate {
            let _ = write!(line, "  {rate:7.2} LLC misses/µs");
        }
        lines.push(line);
    }
    fit(lines, room)
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Ledger, Start};
    use super::super::queue::Limits;
    use super::*;
    use std::path::Path;

    fn table(jobs: usize, width: usize, height: usize) -> String {
        let folder = std::env::temp_dir().join(format!("cotenant-screen-{}-{jobs}-{width}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let job = |i| format!("[[job]]\nname = 'simulation number {i} of the whole series'\ncommand = 'a'\n");
        let specs = super::super::jobs::parse(Path::new("q.toml"), &(0..jobs).map(job).collect::<String>()).unwrap();
        let (ledger, earlier) = Ledger::open(&folder, &specs, Start::First).unwrap();
        let mut jobs = Jobs::new(specs, Limits::default(), &folder, ledger, &earlier);
        let since = Instant::now() + Duration::from_secs(3_600); // in the future, so that the elapsed time is zero
        for (i, job) in jobs.all.iter_mut().enumerate() {
            job.state = State::Started { since, runs: [0, 39].contains(&i) };
            job.rate = Some(12.345);
        }
        let text = text(&jobs, Duration::from_secs(1), (width, height));
        std::fs::remove_dir_all(&folder).unwrap();
        text
    }

    /// Holds run/terminal.
    #[test]
    fn it_fits_the_terminal() {
        let bar = "[....................]   0 % 0 of 2 jobs, 0 failed, no estimate yet\n";
        let row = |state| format!("  simulation number {state}      0 s    12.35 LLC misses/µs\n");
        let rows = row("0 …le series  runs ") + &row("1 …le series  waits");
        assert_eq!(table(2, 79, 23), format!("{bar}{rows}"));
        for (width, height) in [(79, 23), (119, 40), (20, 4), (1, 1), (0, 0)] {
            let text = table(40, width, height);
            assert!(text.lines().count() <= height.max(2), "{height}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        let few = table(40, 79, 4);
        assert_eq!(few.lines().last(), Some("  and 38 more"));
        assert!(few.contains("number 0 …") && few.contains("number 39…"), "those that run: {few}");
    }
}
