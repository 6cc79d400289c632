//! `cotenant compare`: alternating runs with and without Cotenant, and the speed-up with its confidence interval.

use super::managed;
use crate::cli::ManageArgs;
use crate::progress::{Progress, about};
use crate::settings::{self, Setup};
use crate::words::{count, raw, tell};
use anyhow::{Result, bail};
use cotenant_core::metric::Metric;
use cotenant_core::{Direction, stats};
use cotenant_linux::host::StartError;
use cotenant_linux::launch::{self, Child};
use cotenant_linux::metrics::{MetricSummary, Metrics};
use cotenant_linux::waiter::{Event, Waiter};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cotenant compare -- xz -T0 -k -f big.tar           five pairs of runs under the policy auto
  cotenant compare --runs 20 --policy static --map 'X.X.X.X.' -- ./a";

/// Arguments of `cotenant compare`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant compare [OPTIONS] [--] <CMD> [ARGS]...")]
pub struct Args {
    /// The command and its arguments; -- before it keeps its options apart from ours
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Pairs of runs, 2 to 1,000: each is one run without and one with Cotenant, in alternating order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// Let the command's own output through [default: discarded, so that it does not disturb the timing]
    #[arg(long)]
    show_output: bool,
    /// How to manage it
    #[command(flatten)]
    manage: ManageArgs,
}

/// What `--json` prints.
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
}

/// A metric in both kinds of runs: means over each run.
#[derive(Debug, Clone, Serialize)]
struct Compared {
    name: String,
    direction: Direction,
    /// Runs without and with, where both had readings.
    pairs: Vec<[f64; 2]>,
    /// How many times better with Cotenant; `None` below two pairs, or where a mean is not above 0.
    gain: Option<Interval>,
}

/// One pair of runs.
#[derive(Debug, Clone, Copy, Serialize)]
struct Pair {
    without_s: f64,
    with_s: f64,
}

/// A geometric mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, Serialize)]
struct Interval {
    mean: f64,
    ci95: [f64; 2],
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
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (topology, machine) = settings::live_machine(Some(&args.manage.policy))?;
    let setup = Setup::live(&args.manage, topology, machine, settings::program_of(&args.command))?;
    let policy = setup.policy.name();
    let output = &args.manage.output;
    let mut watch = Watch::new(args.runs * 2, !output.json && !output.quiet && !args.show_output);
    let mut pairs = Vec::new();
    let (mut moves, mut tier) = (0, String::new());
    let metrics = &args.manage.scope.metric;
    let mut compared: Vec<Compared> = metrics.iter().map(Compared::new).collect();
    let mut stopped = None;
    'pairs: for i in 0..args.runs {
        let mut pair = Pair { without_s: 0.0, with_s: 0.0 };
        let mut means = vec![[None, None]; metrics.len()];
        // Whatever drifts (heat, caches, neighbours) hits the first and the second run of a pair alike over the alternation.
        let order = if i % 2 == 0 { [false, true] } else { [true, false] };
        for managed in order {
            watch.begin(if managed { format!("with {policy}") } else { "without".to_owned() });
            let run = if managed {
                let mut progress = || watch.show();
                let start =
                    managed::Start { command: &args.command, shown: args.show_output, progress: Some(&mut progress) };
                let summary = managed::command(&setup, &args.manage, None, start)?;
                moves += summary.moves;
                tier = summary.tier;
                let (seconds, exit_code, signal) = (summary.seconds, summary.exit_code, summary.signal);
                Run { seconds, exit_code, signal, metrics: summary.metrics }
            } else {
                plain(&args.command, args.show_output, metrics, &mut watch)?
            };
            watch.end(run.seconds);
            if run.signal.is_some() {
                stopped = run.signal;
                break 'pairs;
            }
            if run.exit_code != 0 {
                let how = if managed { "with" } else { "without" };
                bail!(
                    "the command failed with exit code {} {how} Cotenant; a failing run cannot be compared; see its own \
                     messages with --show-output",
                    run.exit_code
                );
            }
            *(if managed { &mut pair.with_s } else { &mut pair.without_s }) = run.seconds;
            for ((compared, means), summary) in compared.iter_mut().zip(&mut means).zip(&run.metrics) {
                means[usize::from(managed)] = summary.mean;
                // Known once there are readings.
                if summary.mean.is_some() {
                    compared.direction = summary.direction;
                }
            }
        }
        for (compared, means) in compared.iter_mut().zip(means) {
            if let [Some(without), Some(with)] = means {
                compared.pairs.push([without, with]);
            }
        }
        if !output.json && !output.quiet {
            raw(&format!("pair {:>3}: {:8.3} s without, {:8.3} s with {policy}\n", i + 1, pair.without_s, pair.with_s));
        }
        pairs.push(pair);
    }
    drop(watch);
    let code = stopped.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(128 + signal as u8));
    if stopped.is_some() {
        tell(format_args!("stopped after {} of {}", pairs.len(), count(args.runs, "pair")));
        if pairs.is_empty() {
            return Ok(code);
        }
    }
    compared.iter_mut().for_each(Compared::judge);
    let report = Report { metrics: compared, ..judge(policy, pairs, moves, tier) };
    super::print(|out| {
        if output.json {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        } else {
            print_report(out, &report)?;
        }
        Ok(code)
    })
}

/// How far the comparison is.
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

/// A run without Cotenant: started alike, left alone.
fn plain(command: &[OsString], shown: bool, metrics: &[Metric], watch: &mut Watch) -> Result<Run> {
    let start = Instant::now();
    let mut waiter = Waiter::new().map_err(StartError::Wait)?;
    let metrics = Metrics::start(metrics, start).map_err(StartError::Metrics)?;
    let child = Child::spawn_command(managed::Start::prepare(command, shown)).map_err(StartError::Launch)?;
    waiter.watch(&child);
    let mut signal = None;
    loop {
        let wake =
            watch.progress.is_on().then(|| watch.progress.next().max(Instant::now() + Duration::from_millis(50)));
        match waiter.wait(wake).map_err(StartError::Wait)? {
            Event::ChildExited(status) => {
                let seconds = start.elapsed().as_secs_f64();
                let exit_code = launch::exit_code(status);
                return Ok(Run { seconds, exit_code, signal, metrics: metrics.summaries() });
            }
            Event::Signal(number) => signal = Some(number),
            Event::Tick => watch.show(),
            Event::Other(_) | Event::JobExited(..) => {}
        }
    }
}

/// Speed-up = time without / time with; pairs are compared by the logarithm of their ratio, so that 2× and ½× weigh alike.
fn judge(policy: &'static str, pairs: Vec<Pair>, moves: u64, tier: String) -> Report {
    let speedup = ratio(pairs.iter().map(|p| p.without_s / p.with_s));
    let verdict = match speedup {
        Some(s) if s.ci95[0] > 1.0 => format!("faster by {:.1} %", (s.mean - 1.0) * 100.0),
        Some(s) if s.ci95[1] < 1.0 => format!("slower by {:.1} %", (1.0 / s.mean - 1.0) * 100.0),
        Some(_) => "no difference that these runs can show".to_owned(),
        None => "too few runs to tell".to_owned(),
    };
    Report { policy, pairs, speedup, verdict, moves, tier, metrics: Vec::new() }
}

/// The geometric mean of ratios.
fn ratio(ratios: impl Iterator<Item = f64>) -> Option<Interval> {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    let estimate = stats::Summary::of(&logs).estimate().filter(|e| e.value.is_finite())?;
    Some(Interval { mean: estimate.value.exp(), ci95: [estimate.low().exp(), estimate.high().exp()] })
}

impl Compared {
    fn new(metric: &Metric) -> Self {
        let direction = metric.direction.unwrap_or(Direction::HigherIsBetter);
        Self { name: metric.name.clone(), direction, pairs: Vec::new(), gain: None }
    }

    fn judge(&mut self) {
        let better = |[without, with]: &[f64; 2]| match self.direction {
            Direction::HigherIsBetter => with / without,
            Direction::LowerIsBetter => without / with,
        };
        let positive = self.pairs.iter().flatten().all(|mean| *mean > 0.0);
        self.gain = ratio(self.pairs.iter().map(better)).filter(|_| positive);
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, direction, pairs, gain } = self;
        let verdict = match gain {
            Some(g) if g.ci95[0] > 1.0 => "better",
            Some(g) if g.ci95[1] < 1.0 => "worse",
            Some(_) => "no difference that these runs can show",
            None => return write!(f, "metric {name}: too few readings to tell ({} pairs with readings)", pairs.len()),
        };
        let (mean, [low, high]) = gain.map_or((1.0, [1.0; 2]), |g| (g.mean, g.ci95));
        let side = |i: usize| super::progress::digits(pairs.iter().map(|p| p[i]).sum::<f64>() / pairs.len() as f64);
        let way = super::progress::better(*direction);
        write!(f, "metric {name} ({way} is better): {} without, {} with; ", side(0), side(1))?;
        write!(f, "{verdict}: {mean:.3} times as good (95 % interval {low:.3} to {high:.3})")
    }
}

fn print_report(out: &mut dyn Write, report: &Report) -> Result<()> {
    if let Some(s) = report.speedup {
        writeln!(
            out,
            "speed-up with {}: {:.3} (95 % interval {:.3} to {:.3}, {} pairs)",
            report.policy,
            s.mean,
            s.ci95[0],
            s.ci95[1],
            report.pairs.len()
        )?;
    }
    let moves = count(report.moves, "move");
    writeln!(out, "{}; {moves} over all managed runs; counters: {}", report.verdict, report.tier)?;
    for metric in &report.metrics {
        writeln!(out, "{metric}")?;
    }
    Ok(())
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
        let faster = judge("sam", pairs(&[1.2, 1.22, 1.24, 1.21, 1.23]), 0, String::new());
        assert!(faster.verdict.starts_with("faster by 22"), "{}", faster.verdict);
        let slower = judge("sam", pairs(&[0.8, 0.81, 0.79, 0.8, 0.8]), 0, String::new());
        assert!(slower.verdict.starts_with("slower by 25"), "{}", slower.verdict);
        let same = judge("sam", pairs(&[0.9, 1.1, 1.0, 0.95, 1.05]), 0, String::new());
        assert!(same.verdict.starts_with("no difference"), "{}", same.verdict);
    }

    #[test]
    fn a_metric_is_judged_by_what_is_better() {
        let mut compared = Compared::new(&"cmd:true,lower,name=p99".parse().unwrap());
        compared.pairs = vec![[2.0, 1.0], [2.2, 1.1], [1.9, 0.96]];
        compared.judge();
        let text = compared.to_string();
        assert!(text.starts_with("metric p99 (lower is better): 2.03 without, 1.02 with; better: 1.99"), "{text}");
        compared.direction = Direction::HigherIsBetter;
        compared.judge();
        assert!(compared.to_string().contains("worse: 0.50"), "{compared}");
        compared.pairs = vec![[0.0, 1.0], [2.0, 3.0]];
        compared.judge();
        assert!(compared.to_string().contains("too few readings"), "a ratio to 0 says nothing");
    }
}
