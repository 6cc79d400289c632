//! How it stands: a table while it runs, and the summary.

use super::args::{Args, MetricArg};
use crate::live_table::{LiveTable, fit};
use anyhow::Result;
use cotenant_cli::words::{self, count, tell};
use cotenant_linux::act::throttle::Slept;
use cotenant_linux::sense::metrics::MetricSummary;
use cotenant_model::{Mode, Round, Signal};
use cotenant_policies::{Climbed, Qos, QosConfig, QosState};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between two tables.
const EVERY: Duration = Duration::from_secs(1);

/// What a run came to; `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub mode: Mode,
    pub controller: String,
    /// Absent for controllers without one.
    pub goal: Option<f64>,
    pub exit_code: u8,
    pub seconds: f64,
    pub rounds: u64,
    pub high: Vec<HighRow>,
    pub low: Vec<LowRow>,
    /// Share of the time in which the programs of low priority were to run.
    pub duty_asked: Option<f64>,
    /// Naps that were ordered.
    pub naps_ordered: u64,
    /// CPUs to which the programs of low priority were sent; absent where they run where they did.
    pub place: Option<String>,
    /// Why limits came behind naps; absent where they did not.
    pub climbed: Option<Climbed>,
    /// CPU time of Cotenant itself as a fraction of one CPU.
    pub overhead: f64,
    pub tier: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<PathBuf>,
    pub notes: Vec<String>,
}

/// A program of high priority.
#[derive(Debug, Serialize)]
pub struct HighRow {
    pub name: String,
    pub metric: String,
    /// Speed while the others napped; of latencies, their inverse.
    pub alone: Option<f64>,
    /// Mean speed over all.
    pub mean: Option<f64>,
    /// What it did over what it would have done alone, as the speed alone was at the time.
    pub achieved: Option<f64>,
}

impl HighRow {
    /// With the speed alone as it was over the whole run, by which `achieved` goes, instead of the last one that was measured.
    fn over_all(self) -> Self {
        let achieved = self.achieved.filter(|achieved| *achieved > 0.0);
        Self { alone: self.mean.zip(achieved).map(|(mean, achieved)| mean / achieved).or(self.alone), ..self }
    }
}

/// A program of low priority.
#[derive(Debug, Serialize)]
pub struct LowRow {
    pub name: String,
    /// CPU time per second.
    pub cpus: f64,
    /// Share of the time in which it really ran, by what it or its freezer says; absent where CPU time is limited instead.
    pub duty: Option<f64>,
    #[serde(flatten)]
    pub slept: Slept,
}

/// What is added up while it runs.
#[derive(Debug)]
pub struct Table {
    names: Vec<String>,
    metrics: Vec<String>,
    controller: String,
    goal: Option<f64>,
    high: usize,
    /// Whether anything is said while it runs.
    told: bool,
    live: bool,
    plain: bool,
    drawn: LiveTable,
    next: Instant,
    start: Instant,
    rounds: u64,
    state: QosState,
    /// Where the programs of low priority were sent last.
    place: Option<String>,
    /// CPU time of each program so far, seconds.
    cpu_s: Vec<f64>,
    /// How long each of low priority was there, seconds.
    there_s: Vec<f64>,
    slept: Vec<Slept>,
    notes: BTreeSet<String>,
}

impl Table {
    pub fn new(args: &Args, names: &[String], metrics: &[MetricArg], config: Option<&QosConfig>) -> Self {
        let terminal = io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let told = !args.output.quiet && !args.output.json;
        let controller = config.map(|qos| &qos.controller);
        Self {
            names: names.to_vec(),
            metrics: metrics.iter().map(MetricArg::name).collect(),
            controller: args.controller_name(metrics),
            goal: controller.and_then(cotenant_policies::qos::controller::Controller::goal),
            high: metrics.len(),
            told,
            live: told && terminal && !args.output.verbose,
            plain: told && args.output.verbose,
            drawn: LiveTable::default(),
            next: Instant::now() + EVERY,
            start: Instant::now(),
            rounds: 0,
            state: QosState::default(),
            place: None,
            cpu_s: vec![0.0; names.len()],
            there_s: vec![0.0; names.len()],
            slept: Vec::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Whether it is to be drawn now.
    fn is_due(&self) -> bool {
        (self.live || self.plain) && Instant::now() >= self.next
    }

    /// How the programs slept in all.
    pub fn slept(&mut self, slept: Vec<Slept>) {
        self.slept = slept;
    }

    pub fn round(&mut self, round: &Round<'_>, slept: &[Slept]) {
        self.rounds += 1;
        let seconds = round.view.interval.as_secs_f64();
        for task in &round.view.tasks {
            if let (Some(sum), Some(rate)) = (self.cpu_s.get_mut(task.info.app.index()), task.per_s(Signal::CpuTime)) {
                *sum += rate * seconds / 1e9;
            }
        }
        for app in &round.view.apps {
            self.there_s[app.id.index()] += seconds;
        }
        if let Some(state) = round.decision.and_then(|decision| decision.state.read::<Qos>()) {
            self.state = state.into_owned();
            self.place = self.state.away.place().map(ToString::to_string).or(self.place.take());
        }
        if self.is_due() {
            self.slept = slept.to_vec();
            self.draw();
        }
    }

    /// Says at once what is wrong with a metric: without it nobody naps for long, and nobody would know why.
    pub fn news(&mut self, line: String) {
        if self.told {
            self.drawn.erase();
            tell(line);
        } else {
            self.notes.insert(line);
        }
    }

    pub fn note(&mut self, note: Option<String>) {
        self.notes.extend(note);
    }

    fn draw(&mut self) {
        self.next = Instant::now() + EVERY;
        let goal = self.goal.map_or_else(String::new, |goal| format!(", goal {:.1} %", goal * 100.0));
        let doing = self.state.phase.map_or_else(|| "waits".to_owned(), |phase| phase.why.to_string());
        let seconds = self.start.elapsed().as_secs_f64();
        let means = means(self.place.as_deref(), self.climbed());
        let mut lines = vec![format!("{seconds:.0} s{goal}; {doing}{means}")];
        lines.extend(self.high_rows().iter().map(|row| format!("  {}", high_line(row))));
        lines.extend(self.low_rows().iter().map(|row| format!("  {}", low_line(row))));
        if self.live {
            self.drawn.draw(&fit(lines, LiveTable::room()));
        } else {
            words::raw(&(lines.join("\n") + "\n"));
        }
    }

    fn climbed(&self) -> Option<Climbed> {
        self.state.ladder.climbed()
    }

    fn high_rows(&self) -> Vec<HighRow> {
        let row = |i: usize| {
            let alone = self.state.alone.get(i).copied().flatten();
            let mean = self.state.mean(i);
            let achieved = self.state.kept(i);
            HighRow { name: self.names[i].clone(), metric: self.metrics[i].clone(), alone, mean, achieved }
        };
        (0..self.high).map(row).collect()
    }

    fn low_rows(&self) -> Vec<LowRow> {
        let row = |(i, name): (usize, &String)| {
            let slept = self.slept.get(i - self.high).cloned().unwrap_or_default();
            let there = self.there_s[i].max(f64::MIN_POSITIVE);
            let inside = slept.inside_s / f64::from(slept.threads.max(1) as u32);
            let limited = slept.limits > 0 || slept.means.starts_with("cpu.") || slept.means == "resctrl";
            let duty = (!limited).then(|| (1.0 - (inside + slept.outside_s) / there).clamp(0.0, 1.0));
            LowRow { name: name.clone(), cpus: self.cpu_s[i] / there, duty, slept }
        };
        self.names.iter().enumerate().skip(self.high).map(row).collect()
    }

    pub fn summary(
        &self,
        mode: Mode,
        seconds: f64,
        overhead: f64,
        tier: String,
        metrics: Vec<MetricSummary>,
        notes: Vec<String>,
    ) -> Summary {
        let total = &self.state.total;
        Summary {
            mode,
            controller: self.controller.clone(),
            goal: self.goal,
            exit_code: 0,
            seconds,
            rounds: self.rounds,
            high: self.high_rows().into_iter().map(HighRow::over_all).collect(),
            low: self.low_rows(),
            duty_asked: (total.seconds > 0.0).then(|| total.duty_s / total.seconds),
            naps_ordered: total.naps,
            place: self.place.clone(),
            climbed: self.climbed(),
            overhead,
            tier,
            metrics,
            recording: None,
            notes: notes.into_iter().chain(self.notes.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect(),
        }
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "?".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn high_line(row: &HighRow) -> String {
    let value = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.4e}"));
    format!(
        "high {}: {} of its speed alone ({} {}, alone {})",
        row.name,
        percent(row.achieved),
        row.metric,
        value(row.mean),
        value(row.alone)
    )
}

fn low_line(row: &LowRow) -> String {
    let Slept { means, naps, pauses, limit, .. } = &row.slept;
    let duty = row.duty.map_or_else(String::new, |duty| format!("ran {:.1} % of the time, ", duty * 100.0));
    let slept = match (naps, pauses) {
        (0, 0) => String::new(),
        (naps, 0) => format!(", {}", count(*naps, "nap")),
        (0, pauses) => format!(", {}", count(*pauses, "pause")),
        (naps, pauses) => format!(", {} and {}", count(*naps, "nap"), count(*pauses, "pause")),
    };
    let by = if means.is_empty() { String::new() } else { format!(" by {means}") };
    let limit = limit.as_ref().map_or_else(String::new, |limit| format!(", limit in force: {limit}"));
    format!("low {}: {duty}{:.2} CPUs{slept}{by}{limit}", row.name, row.cpus)
}

/// Which means are in force besides naps.
fn means(place: Option<&str>, climbed: Option<Climbed>) -> String {
    let place = place.map_or_else(String::new, |cpus| format!("; low on CPUs {cpus}"));
    let limits = climbed.map_or_else(String::new, |climbed| format!("; limits, since {climbed}"));
    format!("{place}{limits}")
}

/// Says the summary.
pub fn report(summary: &Summary, args: &Args) -> Result<()> {
    if args.output.json {
        words::raw(&format!("{}\n", serde_json::to_string(summary)?));
        return Ok(());
    }
    if args.output.quiet {
        return Ok(());
    }
    let goal = summary.goal.map_or_else(String::new, |goal| format!(", goal {:.1} %", goal * 100.0));
    tell(format_args!(
        "{:.1} s with {}{goal}; {} ordered; own cost {:.2} % of a CPU in {}",
        summary.seconds,
        summary.controller,
        count(summary.naps_ordered, "nap"),
        summary.overhead * 100.0,
        count(summary.rounds, "round")
    ));
    summary.high.iter().for_each(|row| tell(high_line(row)));
    summary.low.iter().for_each(|row| tell(low_line(row)));
    if let Some(duty) = summary.duty_asked {
        tell(format_args!("the programs of low priority were to run {:.1} % of the time", duty * 100.0));
    }
    let means = means(summary.place.as_deref(), summary.climbed);
    if let Some(means) = means.strip_prefix("; ") {
        tell(format_args!("means besides naps: {means}"));
    }
    summary.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
    if let Some(path) = &summary.recording {
        tell(format_args!("recorded to {}", path.display()));
    }
    Ok(())
}
