//! `cotenant compare`: alternating runs with and without Cotenant, and the speed-up with its confidence interval; for
//! running programs, windows with and without it.

mod args;
mod notes;
mod windows;

use crate::run::Observer;
use crate::run::one::{self, One};
use crate::run::summary::Summary;
use anyhow::{Result, bail};
pub use args::Args;
use cotenant_cli::messages::{count, raw, tell};
use cotenant_cli::progress::{Progress, about};
use cotenant_cli::usage as misuse;
use cotenant_linux::host::StartError;
use cotenant_linux::sense::metrics::{MetricSummary, Metrics};
use cotenant_linux::sense::usage;
use cotenant_linux::sys::launch::{self, Child};
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_measure::compare::{Compared, Interval, Pair, alternate};
use cotenant_model::metric::Metric;
use cotenant_model::usage::Seen;
use cotenant_model::{Direction, Round};
use cotenant_setup::settings::{self, Setup};
use cotenant_status::quantities::{better, digits};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    policy: &'static str,
    pairs: Vec<Pair>,
    speedup: Option<Interval>,
    verdict: String,
    moves: u64,
    tier: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<Compared>,
    /// Other use of this machine.
    usage: Seen,
    /// Whether others filled it, so that nothing is said to be better or worse.
    #[serde(skip)]
    crowded: bool,
    /// Of all managed runs.
    notes: BTreeSet<String>,
}

/// One run of the command.
struct Run {
    seconds: f64,
    exit_code: u8,
    signal: Option<i32>,
    metrics: Vec<MetricSummary>,
}

/// Runs the comparison.
///
/// # Errors
/// One line with the fault, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    match (args.target.target(), args.command.is_empty()) {
        (None, false) if args.windows.is_some() || args.seed.is_some() => {
            Err(misuse("--windows and --seed are for programs that run already; add -p PID, or leave them out"))
        }
        (None, false) => runs(args),
        (Some(One::Running { target, all }), true) if !args.show_output => windows::run(args, &target, all),
        (Some(_), true) => Err(misuse("--show-output is for a command that is started; leave it out")),
        (Some(_), false) => Err(misuse("give either a command to start or what runs already, not both")),
        (None, true) => Err(misuse("nothing to compare; give a command after --, or -p PID, or --cgroup PATH")),
    }
}

/// Runs of a command.
fn runs(args: &Args) -> Result<ExitCode> {
    args.manage.scope.only_from_outside()?;
    let (topology, machine) = settings::live_machine(Some(&args.manage.policy))?;
    let setup = Setup::live(&args.manage, topology, machine, settings::program_of(&args.command))?;
    let policy = setup.policy();
    let output = &args.manage.output;
    let mut usage = usage::Watch::new(setup.topology.usable());
    let mut seen = Seen { before: usage.moment(&usage::Own::default()), during: None };
    usage.catch_up(&usage::Own::default());
    let mut watch = Watch::new(args.runs * 2, !output.json && !output.quiet && !args.show_output);
    let mut pairs = Vec::new();
    let (mut moves, mut tier, mut notes) = (0, String::new(), BTreeSet::new());
    let metrics = &args.manage.scope.outside();
    let mut compared: Vec<Compared> = metrics.iter().map(compared).collect();
    let run = |managed: bool| {
        watch.begin(if managed { format!("with {policy}") } else { "without".to_owned() });
        let run = if managed {
            let command = (&args.command[..], args.show_output);
            let mut summary = one::command(&setup, &args.manage, None, command, Some(&mut watch))?;
            summary.check()?;
            let Summary { seconds, exit_code, signal, metrics, .. } = summary;
            (moves, tier) = (moves + summary.tally.moves, summary.tier);
            notes.extend(summary.notes);
            Run { seconds, exit_code, signal, metrics }
        } else {
            plain(&args.command, args.show_output, metrics, &mut watch)?
        };
        watch.end(run.seconds);
        if run.signal.is_none() && run.exit_code != 0 {
            let (code, how) = (run.exit_code, if managed { "with" } else { "without" });
            bail!(
                "the command failed with exit code {code} {how} Cotenant; a failing run cannot be compared; see its own \
                 messages with --show-output"
            );
        }
        Ok(run.signal.map_or(ControlFlow::Continue(run), ControlFlow::Break))
    };
    let took = |i, [without, with]: [Run; 2]| {
        for ((compared, without), with) in compared.iter_mut().zip(&without.metrics).zip(&with.metrics) {
            // Known once there are readings.
            if let Some(read) = [with, without].into_iter().find(|summary| summary.mean.is_some()) {
                compared.direction = read.direction;
            }
            compared.pairs.extend(without.mean.zip(with.mean).map(|(without, with)| [without, with]));
        }
        let pair = Pair { without_s: without.seconds, with_s: with.seconds };
        if !output.json && !output.quiet {
            raw(&format!("pair {:>3}: {:8.3} s without, {:8.3} s with {policy}\n", i + 1, pair.without_s, pair.with_s));
        }
        pairs.push(pair);
        usage.catch_up(&usage::Own::default());
    };
    let stopped = alternate(args.runs, run, took)?;
    drop(watch);
    let code = stopped.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal as u8));
    if stopped.is_some() {
        tell(format_args!("stopped after {} of {}", pairs.len(), count(args.runs, "pair")));
        if pairs.is_empty() {
            return Ok(code);
        }
    }
    compared.iter_mut().for_each(Compared::judge);
    notes.extend(notes::nothing_changed(moves, policy));
    seen.during = usage.whole().cloned();
    let report = judge(policy, pairs, seen.busy(setup.topology.usable().len() as f64));
    let report = Report { metrics: compared, moves, tier, usage: seen, notes, ..report };
    cotenant_cli::answer(output.json, &report, |out| print_report(out, &report))?;
    if !output.json && !output.quiet {
        notes::say(&report.notes);
    }
    Ok(code)
}

/// The progress of the comparison.
struct Watch {
    progress: Progress,
    runs: u32,
    done: u32,
    spent: f64,
    what: String,
    since: Instant,
}

impl Watch {
    fn new(runs: u32, wanted: bool) -> Self {
        let (progress, what) = (Progress::new(wanted), String::new());
        Self { progress, runs, done: 0, spent: 0.0, what, since: Instant::now() }
    }

    fn begin(&mut self, what: String) {
        self.what = what;
        self.since = Instant::now();
        self.show();
    }

    fn end(&mut self, seconds: f64) {
        self.done += 1;
        self.spent += seconds;
        self.progress.clear();
    }

    /// The time that is left, judged by the runs so far; unknown before the first has ended.
    fn left(&self, running: f64) -> Option<(f64, Duration)> {
        let each = self.spent / f64::from((self.done > 0).then_some(self.done)?);
        let ahead = f64::from(self.runs - self.done - 1) * each + (each - running).max(0.0);
        let done = (self.spent + running) / (self.spent + running + ahead);
        Some((done, Duration::from_secs_f64(ahead)))
    }

    fn show(&mut self) {
        let running = self.since.elapsed().as_secs_f64();
        let left = self.left(running);
        let (run, runs, what) = (self.done + 1, self.runs, &self.what);
        self.progress.show(left.map_or(0.0, |l| l.0), || match left {
            Some((_, time)) => format!("run {run} of {runs} ({what}), about {} left", about(time)),
            None => format!("run {run} of {runs} ({what}), {}", about(Duration::from_secs_f64(running))),
        });
    }
}

impl Observer for Watch {
    fn round(&mut self, _: &Round<'_>) {
        self.show();
    }
}

/// A run without Cotenant: started the same way, left alone.
fn plain(command: &[OsString], shown: bool, metrics: &[Metric], watch: &mut Watch) -> Result<Run> {
    let start = Instant::now();
    let mut waiter = Waiter::new().map_err(StartError::Wait)?;
    let metrics = Metrics::start(metrics, start).map_err(StartError::Metrics)?;
    let child = Child::spawn_command(one::prepare(command, shown)).map_err(StartError::Launch)?;
    waiter.watch(&child, true);
    let mut signal = None;
    loop {
        let wake =
            watch.progress.is_on().then(|| watch.progress.next().max(Instant::now() + Duration::from_millis(50)));
        match waiter.wait(wake).map_err(StartError::Wait)? {
            Event::Exited(_, status, _) => {
                let seconds = start.elapsed().as_secs_f64();
                let exit_code = launch::exit_code(status);
                return Ok(Run { seconds, exit_code, signal, metrics: metrics.summaries() });
            }
            Event::Signal(number) => signal = Some(number),
            Event::Tick => watch.show(),
        }
    }
}

/// Speed-up = time without / time with. `busy`: why it is not judged.
fn judge(policy: &'static str, pairs: Vec<Pair>, busy: Option<String>) -> Report {
    let speedup = Interval::of(pairs.iter().map(|p| p.without_s / p.with_s));
    let crowded = busy.is_some();
    let verdict = match speedup {
        _ if crowded => format!("not judged: {}", busy.unwrap_or_default()),
        Some(s) if s.ci95[0] > 1.0 => format!("faster by {:.1} %", (s.mean - 1.0) * 100.0),
        Some(s) if s.ci95[1] < 1.0 => format!("slower by {:.1} %", (1.0 / s.mean - 1.0) * 100.0),
        Some(s) => format!("cannot tell ({} times as fast)", notes::range(s)),
        None => "cannot tell: too few runs".to_owned(),
    };
    Report {
        policy,
        pairs,
        speedup,
        verdict,
        moves: 0,
        tier: String::new(),
        metrics: Vec::new(),
        usage: Seen::default(),
        crowded,
        notes: BTreeSet::new(),
    }
}

/// A metric before its first pair.
fn compared(metric: &Metric) -> Compared {
    let direction = metric.direction.unwrap_or(Direction::HigherIsBetter);
    Compared { name: metric.name.clone(), direction, pairs: Vec::new(), gain: None }
}

/// A metric's line.
fn line(Compared { name, direction, pairs, gain }: &Compared, crowded: bool) -> String {
    let Some(gain) = *gain else {
        return format!("metric {name}: cannot tell: too few readings ({} pairs with readings)", pairs.len());
    };
    let (mean, range) = (digits(gain.mean), notes::range(gain));
    let verdict = match gain.ci95 {
        _ if crowded => format!("not judged ({range} times as good)"),
        [low, _] if low > 1.0 => format!("better, {mean} times as good ({range})"),
        [_, high] if high < 1.0 => format!("worse, {mean} times as good ({range})"),
        _ => format!("cannot tell ({range} times as good)"),
    };
    let side = |i: usize| digits(pairs.iter().map(|p| p[i]).sum::<f64>() / pairs.len() as f64);
    let way = better(*direction);
    format!("metric {name}: {verdict}; {} without, {} with, {way} is better", side(0), side(1))
}

fn print_report(out: &mut dyn Write, report: &Report) -> Result<()> {
    let (policy, pairs) = (report.policy, report.pairs.len());
    writeln!(out, "{}", report.verdict)?;
    if let Some(Interval { mean, ci95: [low, high] }) = report.speedup {
        writeln!(out, "speed-up with {policy}: {mean:.3} (95 % interval {low:.3} to {high:.3}, {pairs} pairs)")?;
    }
    let moves = count(report.moves, "move");
    writeln!(out, "{moves} over all managed runs; counters: {}", report.tier)?;
    Ok(report.metrics.iter().try_for_each(|metric| writeln!(out, "{}", line(metric, report.crowded)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        ratios.iter().map(|r| Pair { without_s: *r, with_s: 1.0 }).collect()
    }

    #[test]
    fn the_time_left_follows_the_runs_so_far() {
        let mut watch = Watch::new(4, false);
        assert_eq!(watch.left(5.0), None, "nothing is known yet");
        watch.end(10.0);
        assert_eq!(watch.left(4.0), Some((14.0 / 40.0, Duration::from_secs(26))));
        assert_eq!(watch.left(15.0).unwrap().1, Duration::from_secs(20), "a run that takes longer is about to end");
    }

    #[test]
    fn verdicts_follow_the_interval() {
        // ln ratios 0.18…0.22 around ln 1.22: the interval excludes 0.
        let faster = judge("sam", pairs(&[1.2, 1.22, 1.24, 1.21, 1.23]), None);
        assert!(faster.verdict.starts_with("faster by 22"), "{}", faster.verdict);
        let slower = judge("sam", pairs(&[0.8, 0.81, 0.79, 0.8, 0.8]), None);
        assert!(slower.verdict.starts_with("slower by 25"), "{}", slower.verdict);
        let same = judge("sam", pairs(&[0.9, 1.1, 1.0, 0.95, 1.05]), None);
        assert_eq!(same.verdict, "cannot tell (0.904 to 1.10 times as fast)");
        let busy = judge("sam", pairs(&[0.8, 0.81, 0.79]), Some("this machine was busy".to_owned()));
        assert_eq!(busy.verdict, "not judged: this machine was busy", "and in no direction");
    }

    #[test]
    fn a_metric_is_judged_by_what_is_better() {
        let mut compared = compared(&"cmd:true,lower,name=p99".parse().unwrap());
        compared.pairs = vec![[2.0, 1.0], [2.2, 1.1], [1.9, 0.96]];
        compared.judge();
        let text = line(&compared, false);
        assert!(text.starts_with("metric p99: better, 1.99 times as good (1.96 to "), "{text}");
        assert!(text.ends_with("; 2.03 without, 1.02 with, lower is better"), "{text}");
        let busy = line(&compared, true);
        assert!(
            busy.starts_with("metric p99: not judged (1.96 to ") && busy.contains("; 2.03 without, 1.02 with"),
            "{busy}"
        );
        compared.direction = Direction::HigherIsBetter;
        compared.judge();
        assert!(line(&compared, false).contains("worse, 0.50"), "{}", line(&compared, false));
        compared.pairs = vec![[0.0, 1.0], [2.0, 3.0]];
        compared.judge();
        assert!(line(&compared, false).contains("too few readings"), "a ratio to 0 says nothing");
    }
}
