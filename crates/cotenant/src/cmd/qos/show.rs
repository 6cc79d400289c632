//! The table while it runs, and the summary.

use super::args::{Args, MetricArg, Output};
use crate::run::Observer;
use crate::run::summary::{self, Summary};
use anyhow::Result;
use cotenant_cli::live_view::{LiveView, fit};
use cotenant_cli::words::{count, tell};
use cotenant_linux::act::throttle::Slept;
use cotenant_linux::host::LinuxHost;
use cotenant_model::{Round, Signal};
use cotenant_policies::{Climbed, Qos, QosConfig, QosState};
use serde::Serialize;
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two tables.
const EVERY: Duration = Duration::from_secs(1);

/// What `--json` prints beside what every run comes to.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    run: &'a Summary,
    controller: &'a str,
    /// Absent for controllers without one.
    goal: Option<f64>,
    high: Vec<HighRow>,
    low: Vec<LowRow>,
    /// Share of the time in which the programs of low priority were to run.
    duty_asked: Option<f64>,
    /// Naps that were ordered.
    naps_ordered: u64,
    /// CPUs to which the programs of low priority were sent; absent where they run where they did.
    place: Option<&'a str>,
    /// Why limits came behind naps; absent where they did not.
    climbed: Option<Climbed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<PathBuf>,
}

/// A program of high priority.
#[derive(Debug, Serialize)]
struct HighRow {
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
    /// With the speed alone as it was over the whole run, by which `achieved` goes, instead of the last one that was
    /// measured.
    fn over_all(self) -> Self {
        let achieved = self.achieved.filter(|achieved| *achieved > 0.0);
        Self { alone: self.mean.zip(achieved).map(|(mean, achieved)| mean / achieved).or(self.alone), ..self }
    }
}

/// A program of low priority.
#[derive(Debug, Serialize)]
struct LowRow {
    pub name: String,
    /// CPU time per second.
    pub cpus: f64,
    /// Share of the time in which it really ran, by what it or its freezer says; absent where CPU time is limited
    /// instead.
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
    start: Instant,
    state: QosState,
    /// Where the programs of low priority were sent last.
    place: Option<String>,
    /// CPU time of each program so far, seconds.
    cpu_s: Vec<f64>,
    /// How long each of low priority was there, seconds.
    there_s: Vec<f64>,
    /// As of the last full look.
    told: Rc<RefCell<Vec<Slept>>>,
    slept: Vec<Slept>,
    notes: Vec<String>,
}

/// The table once a second, where anybody wants it.
pub fn live_view(args: &Args) -> Option<LiveView> {
    match args.output {
        Output { quiet: true, .. } | Output { json: true, .. } => None,
        Output { verbose: true, .. } => Some(LiveView::as_lines(EVERY, EVERY, true)),
        Output { .. } => LiveView::on_terminal(EVERY, EVERY, true),
    }
}

impl Observer for Table {
    fn begin(&mut self, host: &LinuxHost) {
        self.told = host.told();
    }

    fn round(&mut self, round: &Round<'_>) {
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
    }

    fn view(&mut self, room: (usize, usize)) -> Option<String> {
        self.slept.clone_from(&self.told.borrow());
        let goal = self.goal.map_or_else(String::new, |goal| format!(", goal {:.1} %", goal * 100.0));
        let doing = self.state.phase.map_or_else(|| "waits".to_owned(), |phase| phase.why.to_string());
        let seconds = self.start.elapsed().as_secs_f64();
        let means = means(self.place.as_deref(), self.climbed());
        let mut lines = vec![format!("{seconds:.0} s{goal}; {doing}{means}")];
        lines.extend(self.high_rows().iter().map(|row| format!("  {}", high_line(row))));
        lines.extend(self.low_rows().iter().map(|row| format!("  {}", low_line(row))));
        Some(fit(lines, room))
    }

    fn end(&mut self, host: &LinuxHost) {
        self.slept = host.slept();
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

impl Table {
    pub fn new(
        args: &Args,
        names: Vec<String>,
        metrics: &[MetricArg],
        config: Option<&QosConfig>,
        notes: Vec<String>,
    ) -> Self {
        let programs = names.len();
        Self {
            names,
            metrics: metrics.iter().map(MetricArg::name).collect(),
            controller: args.controller_name(metrics),
            goal: config.and_then(|qos| qos.controller.goal()),
            high: metrics.len(),
            start: Instant::now(),
            state: QosState::default(),
            place: None,
            cpu_s: vec![0.0; programs],
            there_s: vec![0.0; programs],
            told: Rc::default(),
            slept: Vec::new(),
            notes,
        }
    }

    fn climbed(&self) -> Option<Climbed> {
        self.state.ladder.climbed()
    }

    fn high_rows(&self) -> Vec<HighRow> {
        let row = |i: usize| {
            let (name, metric) = (self.names[i].clone(), self.metrics[i].clone());
            let alone = self.state.alone.get(i).copied().flatten();
            HighRow { name, metric, alone, mean: self.state.mean(i), achieved: self.state.kept(i) }
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

    /// Says what it came to.
    pub fn report(&self, mut run: Summary, args: &Args) -> Result<ExitCode> {
        let total = &self.state.total;
        let recording = run.recording.take().map(|recorded| recorded.path);
        let report = Report {
            run: &run,
            controller: &self.controller,
            goal: self.goal,
            high: self.high_rows().into_iter().map(HighRow::over_all).collect(),
            low: self.low_rows(),
            duty_asked: (total.seconds > 0.0).then(|| total.duty_s / total.seconds),
            naps_ordered: total.naps,
            place: self.place.as_deref(),
            climbed: self.climbed(),
            recording,
        };
        match args.output {
            Output { json: true, .. } => summary::json(&report)?,
            Output { quiet: true, .. } => {}
            Output { .. } => report.tell(),
        }
        run.exit()
    }
}

impl Report<'_> {
    fn tell(&self) {
        let goal = self.goal.map_or_else(String::new, |goal| format!(", goal {:.1} %", goal * 100.0));
        let Self { controller, run: Summary { seconds, overhead, tally, .. }, .. } = self;
        let (naps, rounds) = (count(self.naps_ordered, "nap"), count(tally.rounds, "round"));
        let own = format!("own cost {:.2} % of a CPU in {rounds}", overhead * 100.0);
        tell(format_args!("{seconds:.1} s with {controller}{goal}; {naps} ordered; {own}"));
        self.high.iter().for_each(|row| tell(high_line(row)));
        self.low.iter().for_each(|row| tell(low_line(row)));
        if let Some(duty) = self.duty_asked {
            tell(format_args!("the programs of low priority were to run {:.1} % of the time", duty * 100.0));
        }
        if let Some(means) = means(self.place, self.climbed).strip_prefix("; ") {
            tell(format_args!("means besides naps: {means}"));
        }
        self.run.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
        if let Some(path) = &self.recording {
            tell(format_args!("recorded to {}", path.display()));
        }
    }
}

fn high_line(row: &HighRow) -> String {
    let value = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.4e}"));
    let HighRow { name, metric, alone, mean, achieved } = row;
    let achieved = achieved.map_or_else(|| "?".to_owned(), |share| format!("{:.1} %", share * 100.0));
    format!("high {name}: {achieved} of its speed alone ({metric} {}, alone {})", value(*mean), value(*alone))
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
