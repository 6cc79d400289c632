//! The table while it runs, and the summary.

use super::args::{Args, Output};
use super::cast::with_class;
use crate::run::Observer;
use crate::run::lived::Lived;
use crate::run::summary::{self, NOT_JUDGED, Summary};
use anyhow::Result;
use cotenant_cli::USAGE;
use cotenant_cli::live_view::{LiveView, fit};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::table::wrapped;
use cotenant_linux::FsRoot;
use cotenant_linux::act::throttle::Slept;
use cotenant_linux::host::{self, LinuxHost};
use cotenant_linux::sense::nice;
use cotenant_linux::sys::thread::process_stat;
use cotenant_model::policy::{Explanation, Limited};
use cotenant_model::usage::{Seen, Usage, slowed_by_others};
use cotenant_model::{AppId, Behind, Mode, Round};
use cotenant_record::naps::Naps;
use cotenant_setup::args::MetricArg;
use cotenant_status::goals::{Goals, Standing};
use cotenant_status::hurts;
use cotenant_status::verdict::Verdict;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time between two tables.
const EVERY: Duration = Duration::from_secs(1);

/// Until then an unknown speed is not reported: programs need time to start.
const SILENT: Duration = Duration::from_secs(10);

/// Time after which programs count as started; checked processes of each.
const BEGUN: Duration = Duration::from_secs(1);
const LOOKED_AT: usize = 64;

/// Exit code of a missed goal with `--strict`.
const GOAL_MISSED: u8 = 3;

/// The additions of `--json` to the summary of every run.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    run: &'a Summary,
    controller: &'a str,
    /// Absent for controllers without one.
    goal: Option<f64>,
    high: Vec<HighRow>,
    low: Vec<LowRow>,
    /// Requested share of the time in which low-priority programs run.
    duty_asked: Option<f64>,
    /// Ordered naps of all programs.
    naps_ordered: u64,
    /// CPUs of the low-priority programs; absent if they were not moved.
    place: Option<&'a str>,
    /// Why limits followed naps; absent if they did not.
    climbed: Option<&'static str>,
    /// The same in words.
    #[serde(skip)]
    why_limited: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recording: Option<PathBuf>,
}

/// A program of high priority.
#[derive(Debug, Serialize)]
struct HighRow {
    pub name: String,
    pub metric: String,
    /// Average number of threads that were ready to run without a CPU; absent if uncounted.
    pub waiting: Option<f64>,
    /// The work that occupied the CPU meanwhile, if BPF is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    #[serde(flatten)]
    pub standing: Standing,
    /// Its end, if Cotenant started it and it has ended.
    #[serde(flatten)]
    pub ended: Option<Ended>,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ended {
    /// Its exit code, or 128 + signal.
    #[serde(rename = "ended_with")]
    code: u8,
    /// Seconds since the beginning.
    #[serde(rename = "ended_at_s")]
    at_s: f64,
    /// Whether its shell started nothing.
    #[serde(skip)]
    empty: bool,
}

impl Ended {
    /// Why it never ran.
    fn not_started(self) -> Option<&'static str> {
        match self.code {
            126 if self.empty => Some("it cannot be executed"),
            127 if self.empty => Some("it was not found"),
            _ => None,
        }
    }

    /// The notable facts in a line.
    fn line(self) -> String {
        let Self { code, at_s, .. } = self;
        match self.not_started() {
            Some(why) => format!("it never ran: exit code {code}, {why}"),
            None => format!("it ended after {at_s:.1} s with exit code {code}"),
        }
    }

    fn is_remarkable(&self) -> bool {
        self.code != 0 || self.at_s < MOMENT_S
    }
}

/// A command that ends within this, seconds, did no measurable work.
const MOMENT_S: f64 = 1.0;

/// A program of low priority.
#[derive(Debug, Serialize)]
struct LowRow {
    pub name: String,
    /// CPU time per second.
    pub cpus: f64,
    /// Average number of threads that were ready to run without a CPU; absent if uncounted.
    pub waiting: Option<f64>,
    /// The work that occupied the CPU meanwhile, if BPF is allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// Share of the time in which it really ran, as reported by it or its freezer; absent if CPU time is limited
    /// instead.
    pub duty: Option<f64>,
    /// Naps ordered for it, and those carried out.
    pub naps_ordered: u64,
    pub naps_carried_out: u64,
    #[serde(flatten)]
    pub slept: Slept,
    /// Why it never ran: the exit code of a command that could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_started: Option<u8>,
    /// Its end, if Cotenant started it and it has ended.
    #[serde(flatten)]
    pub ended: Option<Ended>,
}

/// The shell that starts commands; one that failed to start anything has only this process, with almost no CPU time,
/// seconds.
const SHELL: &str = "sh";
const IDLE_S: f64 = 0.1;

/// Sums during the run.
#[derive(Debug)]
pub struct Table {
    names: Vec<String>,
    metrics: Vec<String>,
    controller: String,
    goals: Goals,
    naps: Naps,
    start: Instant,
    /// Whether an unknown speed was reported.
    unknown_told: bool,
    news: Vec<String>,
    /// The latest place of the low-priority programs.
    place: Option<String>,
    lived: Lived,
    /// At the last full look.
    told: Rc<RefCell<Vec<Slept>>>,
    slept: Vec<Slept>,
    /// Our own command name.
    own: Option<String>,
    /// Programs with processes besides the shell that starts them.
    started: BTreeSet<AppId>,
    /// Commands that have ended.
    ended: BTreeMap<AppId, Ended>,
    notes: Vec<String>,
    /// Recent other use of the machine.
    usage: Option<Usage>,
    /// What used it before the start, and all the time since.
    seen: Seen,
    /// How long others made each high-priority program miss its goal, seconds; said once it is so.
    slowed_s: Vec<f64>,
    /// Time of the next check for priorities without effect; absent once some were found.
    compare_at: Option<Duration>,
}

/// The table once a second, if requested.
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
        self.lived.add(round.view);
        // Before its first instruction, the shell has our name.
        let is_shell = |comm: &str| comm == SHELL || self.own.as_deref() == Some(comm);
        let started = round.view.tasks.iter().filter(|task| !is_shell(&task.info.comm)).map(|task| task.info.app);
        self.started.extend(started);
        self.naps.round(round.sample.at, round.orders, round.outcomes);
        self.goals.round(round.view, round.explain());
        self.find_slowed(seconds);
        let place = self.goals.throttling().and_then(|throttling| throttling.place.as_ref());
        self.place = place.map(ToString::to_string).or(self.place.take());
        self.news.extend(round.decision.iter().flat_map(|decision| decision.notes.iter().cloned()));
        self.tell_unknown();
        self.find_in_vain(round);
    }

    fn usage(&mut self, usage: &Usage) {
        self.usage = Some(usage.clone());
        self.seen.during = Some(self.seen.during.as_ref().map_or_else(|| usage.clone(), |before| before.and(usage)));
        self.goals.crowded = self.seen.busy(self.wanted());
    }

    fn view(&mut self, room: (usize, usize)) -> Option<String> {
        self.slept.clone_from(&self.told.borrow());
        let doing = self.goals.throttling().and_then(|throttling| throttling.doing.as_deref()).unwrap_or("waits");
        let seconds = self.start.elapsed().as_secs_f64();
        let means = means(self.place.as_deref(), self.limited().map(|limited| limited.text));
        let high = self.high_rows(false);
        // On a small terminal other lines are cut, not these.
        let mut lines: Vec<String> = high.iter().flat_map(|row| wrapped(&high_line(row), room.0)).collect();
        lines.push(format!("{seconds:.0} s; {doing}{means}"));
        lines.extend(self.low_rows().iter().map(|row| format!("  {}", low_line(row))));
        Some(fit(lines, room))
    }

    fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    fn end(&mut self, host: &LinuxHost) {
        self.slept = host.slept();
        let ended = |ended: &host::Ended| {
            let ran = ended.usage.had_children || ended.usage.cpu.as_secs_f64() >= IDLE_S;
            let empty = !ran && !self.started.contains(&ended.app);
            (ended.app, Ended { code: ended.code, at_s: ended.at.as_secs_f64(), empty })
        };
        self.ended = host.ended().iter().map(ended).collect();
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

impl Table {
    pub fn new(args: &Args, names: Vec<String>, metrics: &[MetricArg], start: Explanation, notes: Vec<String>) -> Self {
        Self {
            names,
            metrics: metrics.iter().map(MetricArg::name).collect(),
            controller: args.controller_name(metrics),
            goals: Goals::new(start, args.mode.unwrap_or_default() == Mode::Enforce),
            naps: Naps::default(),
            start: Instant::now(),
            unknown_told: false,
            news: Vec::new(),
            place: None,
            lived: Lived::default(),
            told: Rc::default(),
            slept: Vec::new(),
            own: process_stat(std::process::id()).map(|stat| stat.comm),
            started: BTreeSet::new(),
            ended: BTreeMap::new(),
            notes,
            usage: None,
            seen: Seen::default(),
            slowed_s: vec![0.0; metrics.len()],
            compare_at: Some(BEGUN),
        }
    }

    /// Takes over the use of the machine before the start.
    pub fn begin_on(&mut self, told: bool, seen: &Seen) {
        self.usage.clone_from(&seen.before); // until there is a later one
        self.seen.clone_from(seen);
        self.goals.crowded = seen.busy(self.wanted());
        if let Some(busy) = self.goals.crowded.as_ref().filter(|_| told) {
            tell(format_args!("{busy}: no verdict"));
        }
    }

    /// Checks, after the programs' start and then ever more rarely, for set priorities without effect on the protected
    /// ones.
    fn find_in_vain(&mut self, round: &Round<'_>) {
        let Some(at) = self.compare_at.filter(|at| *at <= self.start.elapsed()) else { return };
        let protected = self.metrics.len();
        let mut pids = vec![BTreeSet::new(); self.names.len()];
        for task in &round.sample.tasks {
            pids[task.info.app.index()].insert(task.info.pid);
        }
        let programs =
            self.names.iter().cloned().zip(pids.iter().map(|of| of.iter().copied().take(LOOKED_AT).collect()));
        let mut high: Vec<nice::Program> = programs.collect();
        let low = high.split_off(protected);
        let remarks = nice::in_vain(&FsRoot::live(), &low, &high);
        self.compare_at = remarks.is_empty().then_some(at * 2);
        self.notes.extend(remarks);
    }

    /// Counts for how long other programs slow each one, and reports the beginning.
    fn find_slowed(&mut self, seconds: f64) {
        for app in self.goals.slowed() {
            let high = app.index();
            if self.slowed_s[high] <= 0.0 {
                self.news.push(slowed_by_others(&self.names[high], self.usage.as_ref()));
            }
            self.slowed_s[high] += seconds;
        }
    }

    /// CPUs needed by the protected programs.
    fn wanted(&self) -> f64 {
        self.lived.wanted(self.goals.programs())
    }

    /// Why limits replaced naps, if they did.
    fn limited(&self) -> Option<&Limited> {
        self.goals.throttling()?.limited.as_ref()
    }

    /// Reports once that the low-priority programs run because the speeds are unknown.
    fn tell_unknown(&mut self) {
        let runs = self.goals.throttling().is_some_and(|throttling| throttling.blind);
        let Some(high) = (0..self.metrics.len()).find(|high| !self.goals.is_known(*high)) else { return };
        if self.unknown_told || !runs || self.start.elapsed() < SILENT {
            return;
        }
        self.unknown_told = true;
        let (name, metric) = (&self.names[high], &self.metrics[high]);
        let seconds = self.start.elapsed().as_secs_f64();
        self.news.push(format!(
            "{name}: no reading of {metric} for {seconds:.0} s; the low-priority programs run unthrottled until one \
             comes"
        ));
    }

    /// Of the whole run, or at present.
    fn high_rows(&self, whole: bool) -> Vec<HighRow> {
        let row = |(i, metric): (usize, &String)| {
            let (name, metric) = (self.names[i].clone(), metric.clone());
            HighRow {
                name,
                metric,
                waiting: self.lived.waiting(AppId(i as u32)),
                behind: self.lived.behind(AppId(i as u32), &self.names),
                standing: self.goals.standing(i, whole),
                ended: self.ended.get(&AppId(i as u32)).copied(),
            }
        };
        self.metrics.iter().enumerate().map(row).collect()
    }

    fn low_rows(&self) -> Vec<LowRow> {
        let row = |(i, name): (usize, &String)| {
            let app = AppId(i as u32);
            let slept = self.slept.get(i - self.metrics.len()).cloned().unwrap_or_default();
            let limited = slept.limits > 0 || slept.means.starts_with("cpu.") || slept.means == "resctrl";
            let duty = (!limited)
                .then(|| (1.0 - slept.waited_s() / self.lived.there_s(app).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0));
            let ended = self.ended.get(&app).copied();
            let not_started = ended.filter(|ended| ended.not_started().is_some()).map(|ended| ended.code);
            let duty = duty.filter(|_| not_started.is_none());
            let (naps_ordered, naps_carried_out) = (self.naps.ordered(app), self.naps.carried_out(app));
            let (name, cpus, waiting) = (name.clone(), self.lived.cpus(app), self.lived.waiting(app));
            let behind = self.lived.behind(app, &self.names);
            LowRow { name, cpus, waiting, behind, duty, naps_ordered, naps_carried_out, slept, not_started, ended }
        };
        self.names.iter().enumerate().skip(self.metrics.len()).map(row).collect()
    }

    /// Reports the result.
    pub fn report(mut self, mut run: Summary, args: &Args) -> Result<ExitCode> {
        let [duty_s, seconds] = self.goals.throttling().map_or([0.0; 2], |throttling| throttling.duty_s);
        self.goals.crowded = run.usage.busy(self.wanted());
        let high = self.high_rows(true);
        let verdicts: Vec<Verdict> = high.iter().filter_map(|row| row.standing.verdict).collect();
        let had_time = self.start.elapsed() >= SILENT || run.metrics.iter().any(|m| m.readings == 0 && m.failed > 0);
        let unknown = had_time && (0..high.len()).any(|i| !self.goals.is_known(i));
        let mut not_started = self.ended.values().filter(|ended| ended.not_started().is_some());
        let own = not_started.find(|_| run.exit_code == 0).map_or(run.exit_code, |ended| ended.code);
        run.exit_code = exit_code(own, args.strict, &verdicts, unknown);
        let refused = run.metrics.iter().filter(|metric| metric.refused).map(|metric| {
            let why = metric.why.as_deref().unwrap_or_default();
            let later = "where its server comes later, add --wait-for-metric";
            format!("metric {} was refused all the time: {why}; {later}", metric.name)
        });
        let refused: Vec<String> = refused.collect();
        if !refused.is_empty() && run.signal.is_none() && !args.wait_for_metric {
            run.exit_code = USAGE;
            run.notes.extend(refused);
        }
        let slowed = self.slowed_s.iter().enumerate().filter(|(_, s)| **s > 0.0).map(|(high, s)| {
            let said = slowed_by_others(&self.names[high], run.usage.during.as_ref());
            format!("for {s:.0} s of {:.0} s {said}", run.seconds)
        });
        run.notes.extend(slowed);
        let low = self.low_rows();
        run.lived.clear(); // their own rows have it
        let recording = run.recording.take().map(|recorded| recorded.path);
        let report = Report {
            run: &run,
            controller: &self.controller,
            goal: self.goals.goal(),
            high,
            naps_ordered: low.iter().map(|row| row.naps_ordered).sum(),
            low,
            duty_asked: (seconds > 0.0).then(|| duty_s / seconds),
            place: self.place.as_deref(),
            climbed: self.limited().map(|limited| limited.name),
            why_limited: self.limited().map(|limited| limited.text),
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

/// That of the first program, or of one that could not be started, unless a missed goal or an unknown speed has its
/// own.
fn exit_code(own: u8, strict: bool, verdicts: &[Verdict], unknown: bool) -> u8 {
    let unsure = |verdict: &Verdict| matches!(verdict, Verdict::Unsure | Verdict::Unknown);
    match () {
        () if strict && verdicts.contains(&Verdict::Missed) => GOAL_MISSED,
        () if strict && verdicts.iter().any(unsure) => NOT_JUDGED,
        () if own == 0 && unknown => NOT_JUDGED,
        () => own,
    }
}

impl Report<'_> {
    fn tell(&self) {
        self.high.iter().for_each(|row| tell(high_line(row)));
        self.low.iter().for_each(|row| tell(low_line(row)));
        let Self { controller, run: Summary { seconds, overhead, tally, .. }, .. } = self;
        let (naps, rounds) = (count(self.naps_ordered, "nap"), count(tally.rounds, "round"));
        let own = format!("own cost {:.2} % of a CPU in {rounds}", overhead * 100.0);
        tell(format_args!("{seconds:.1} s with {controller}; {naps} ordered; {own}"));
        if let Some(duty) = self.duty_asked {
            tell(format_args!("low-priority programs were allowed to run {:.1} % of the time", duty * 100.0));
        }
        if let Some(means) = means(self.place, self.why_limited).strip_prefix("; ") {
            tell(format_args!("means besides naps: {means}"));
        }
        hurts::lines(&self.run.interference).iter().for_each(tell);
        self.run.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
        if let Some(path) = &self.recording {
            tell(format_args!("recorded to {}", path.display()));
        }
    }
}

fn high_line(row: &HighRow) -> String {
    let HighRow { name, standing, waiting, behind, .. } = row;
    let behind = if behind.is_empty() { String::new() } else { format!(": {}", Behind::text(behind)) };
    let waits = waiting.map_or_else(String::new, |threads| format!("; {threads:.2} threads waited for a CPU{behind}"));
    if let Some(ended) = row.ended.filter(|ended| ended.not_started().is_some()) {
        return format!("{}: {}", with_class("high", name), ended.line());
    }
    let verdict = standing.judgement.clone().unwrap_or_else(|| standing.share());
    format!("{}: {verdict}; {}{waits}", with_class("high", name), standing.figures())
}

fn low_line(row: &LowRow) -> String {
    let ended = row.ended.filter(Ended::is_remarkable).map(Ended::line);
    if let Some(ended) = ended.as_ref().filter(|_| row.not_started.is_some()) {
        return format!("{}: {ended}", with_class("low", &row.name));
    }
    let ended = ended.map_or_else(String::new, |ended| format!("; {ended}"));
    let Slept { means, naps, pauses, limit, .. } = &row.slept;
    let duty = row.duty.map_or_else(String::new, |duty| format!("ran {:.1} % of the time, ", duty * 100.0));
    // Threads that nap by their marks are counted separately, and a renewed nap may be several pauses.
    let slept = match (naps, pauses) {
        (0, 0) => String::new(),
        (naps, 0) => format!(": {} of threads", count(*naps, "nap")),
        (0, pauses) => format!(": {}", count(*pauses, "pause")),
        (naps, pauses) => format!(": {} of threads and {}", count(*naps, "nap"), count(*pauses, "pause")),
    };
    let slept = match row.naps_carried_out {
        0 if slept.is_empty() => slept,
        naps => format!(", {}{slept}", count(naps, "nap")),
    };
    // Unused means are not named.
    let used = !slept.is_empty() || row.slept.limits > 0;
    let by = if used && !means.is_empty() { format!(" by {means}") } else { String::new() };
    let limit = limit.as_ref().map_or_else(String::new, |limit| format!(", limit in force: {limit}"));
    format!("{}: {duty}{:.2} CPUs{slept}{by}{limit}{ended}", with_class("low", &row.name), row.cpus)
}

/// The means in force besides naps.
fn means(place: Option<&str>, why_limited: Option<&str>) -> String {
    let place = place.map_or_else(String::new, |cpus| format!("; low on CPUs {cpus}"));
    let limits = why_limited.map_or_else(String::new, |why| format!("; limits, since {why}"));
    format!("{place}{limits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_that_were_not_used_are_not_named() {
        let row = |pauses, limits| {
            let slept = Slept { means: "the freezer".to_owned(), pauses, limits, ..Slept::default() };
            let name = "xz".to_owned();
            low_line(&LowRow {
                name,
                cpus: 0.96,
                waiting: None,
                behind: Vec::new(),
                duty: Some(1.0),
                naps_ordered: 0,
                naps_carried_out: 0,
                slept,
                not_started: None,
                ended: None,
            })
        };
        assert_eq!(row(0, 0), "low xz: ran 100.0 % of the time, 0.96 CPUs");
        assert_eq!(row(2, 0), "low xz: ran 100.0 % of the time, 0.96 CPUs, 0 naps: 2 pauses by the freezer");
        assert!(row(0, 1).ends_with("0.96 CPUs by the freezer"));
    }

    #[test]
    fn a_missed_goal_has_an_exit_code_where_that_is_asked_for() {
        use Verdict::{AtGoal, Kept, Missed, Unknown, Unsure};
        for (own, strict, verdicts, unknown, code) in [
            (0, false, &[Missed][..], false, 0),
            (0, true, &[Kept, Missed], false, 3),
            (143, true, &[Missed, Unsure], false, 3),
            (143, true, &[Kept, Unsure], false, 4),
            (143, true, &[Kept, AtGoal], false, 143),
            (0, true, &[Unknown], true, 4),
            (0, false, &[Unknown], true, 4),
            (1, false, &[Unknown], true, 1),
            (0, false, &[], true, 4),
        ] {
            assert_eq!(exit_code(own, strict, verdicts, unknown), code, "{own} {strict} {verdicts:?} {unknown}");
        }
    }
}
