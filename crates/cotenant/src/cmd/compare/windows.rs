//! `cotenant compare -p`: windows with and without Cotenant, of programs that run already.

use super::args::Args;
use super::notes;
use crate::run::summary::{NOT_JUDGED, Summary};
use crate::run::{self, Observer, one, targets};
use anyhow::{Result, bail};
use cotenant_cli::live_view::fit;
use cotenant_cli::messages::{count, tell};
use cotenant_cli::progress::about;
use cotenant_cli::usage;
use cotenant_linux::sense::processes::Target;
use cotenant_measure::compare::{Compared, Interval};
use cotenant_measure::windows::{Windows, WindowsState, order, settling};
use cotenant_model::speed::Source;
use cotenant_model::usage::Seen;
use cotenant_model::{Action, Direction, Mode, Outcome, Round};
use cotenant_policies as policies;
use cotenant_setup::args::MetricArg;
use cotenant_setup::settings::Setup;
use cotenant_status::quantities::{Unit, better, digits};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Duration of a window.
const WINDOW: Duration = Duration::from_secs(10);

/// Least length of a window in intervals between decisions, and of its measured part in readings of a metric.
const INTERVALS: u32 = 10;
const READINGS: u32 = 2;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    policy: &'static str,
    window_s: f64,
    settling_s: f64,
    seed: u64,
    /// Of the complete windows, in order: whether they were with the policy.
    order: Vec<bool>,
    metrics: Vec<Row>,
    /// That of the first metric.
    verdict: String,
    moves: u64,
    seconds: f64,
    tier: String,
    /// Other use of this machine.
    usage: Seen,
    notes: Vec<String>,
}

/// A metric in all windows.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    compared: Compared,
    verdict: String,
    /// Value of each complete window; absent without one.
    windows: Vec<Option<f64>>,
    #[serde(skip)]
    unit: Unit,
}

/// Compares windows until there are enough, the programs end, or a signal requests a stop.
pub(super) fn run(args: &Args, target: &Target, all: bool) -> Result<ExitCode> {
    let mut setup = one::around(&args.manage, target, all)?;
    let (length, seed) = (args.windows.unwrap_or(WINDOW), args.seed.unwrap_or(1));
    let mut metrics = args.manage.scope.metric.clone();
    if metrics.is_empty() {
        metrics.push(MetricArg::default());
    }
    let sources: Vec<Source> = metrics.iter().map(|metric| metric.source.clone()).collect();
    check(args, &setup, length, &metrics)?;
    run::can_count(&sources, &setup.topology)?;
    let order = order(args.runs, seed);
    let decider = &mut setup.deciders[0];
    let policy = std::mem::replace(&mut decider.policy, Box::new(policies::None));
    decider.policy = Box::new(Windows { policy, sources: sources.clone(), order: order.clone(), length });

    let mut watch =
        Watch { order, length, policy: setup.policy(), state: WindowsState::default(), moves: 0, window: None };
    let mut summary = one::attached(&setup, &args.manage, None, target.clone(), Some(&mut watch))?;
    let Watch { order, state, moves, .. } = watch;
    let (done, asked) = (state.values.len() / 2, count(args.runs, "pair"));
    let rows = metrics.iter().enumerate().map(|(i, metric)| Row::new(metric, i, &state, &order));
    let rows: Vec<Row> = rows.collect();
    let silent = rows.iter().find(|row| done > 0 && row.compared.pairs.is_empty());
    if let Some(signal) = summary.signal {
        tell(format_args!("stopped after {done} of {asked}"));
        if done == 0 {
            return Ok(ExitCode::from(128 + signal as u8));
        }
    } else if done == 0 {
        bail!(
            "what was compared ended before the first pair of windows was over; give shorter --windows than {length:?}"
        );
    } else if state.values.len() < order.len() && silent.is_none() {
        summary.notes.push(format!("what was compared ended after {done} of {asked}"));
    } else if let Some(why) = targets::missing(target) {
        summary.notes.push(format!("{why} any more: the windows after its end are without it"));
    }
    let code = match (summary.signal, silent) {
        (Some(signal), _) => 128 + signal as u8,
        (None, Some(Row { compared: Compared { name, .. }, .. })) => {
            let why = summary.metrics.iter().find_map(|metric| metric.why.as_ref().filter(|_| metric.name == *name));
            let why = why.map_or("it reported nothing", String::as_str);
            tell(format_args!("{name} cannot be judged, no pair of windows has readings of it: {why}"));
            NOT_JUDGED
        }
        (None, None) => 0,
    };
    let Summary { policy, seconds, tier, usage: others, mut notes, .. } = summary;
    notes.extend(notes::nothing_changed(moves, policy));
    notes.extend(others.busy(setup.topology.usable().len() as f64));
    let report = Report {
        policy,
        window_s: length.as_secs_f64(),
        settling_s: settling(length).as_secs_f64(),
        seed,
        order: order[..state.values.len()].to_vec(),
        verdict: rows[0].verdict.clone(),
        metrics: rows,
        moves,
        seconds,
        tier,
        usage: others,
        notes,
    };
    let output = &args.manage.output;
    cotenant_cli::answer(output.json, &report, |out| print(out, &report))?;
    if !output.json && !output.quiet {
        notes::say(&report.notes);
    }
    Ok(ExitCode::from(code))
}

impl Row {
    /// Of the metric in this place.
    fn new(metric: &MetricArg, i: usize, state: &WindowsState, order: &[bool]) -> Self {
        let direction = state.directions.get(i).copied().flatten();
        let usual = match &metric.source {
            Source::Latency(_) => Direction::LowerIsBetter,
            _ => Direction::HigherIsBetter,
        };
        let direction = direction.or(metric.outside.as_ref().and_then(|metric| metric.direction)).unwrap_or(usual);
        let pairs = state.pairs(order, i).into_iter().flatten().collect();
        let mut compared = Compared { name: metric.name(), direction, pairs, gain: None };
        compared.judge();
        let verdict = match compared.gain {
            None => "cannot tell: too few readings".to_owned(),
            Some(Interval { ci95: [low, _], .. }) if low > 1.0 => "helped".to_owned(),
            Some(Interval { ci95: [_, high], .. }) if high < 1.0 => "hurt".to_owned(),
            Some(gain) => format!("cannot tell ({} times as good)", notes::range(gain)),
        };
        let windows = state.values.iter().map(|values| values[i]).collect();
        Self { compared, verdict, windows, unit: Unit::of(&metric.source, direction) }
    }
}

/// Refuses arguments that are impossible with windows.
fn check(args: &Args, setup: &Setup, length: Duration, metrics: &[MetricArg]) -> Result<()> {
    if setup.mode != Mode::Enforce {
        return Err(usage("windows with the policy are compared with windows without: leave --mode (or mode = …) out"));
    }
    if args.manage.policy.move_pages {
        return Err(usage("pages that were moved are not moved back after a window; leave --move-pages out"));
    }
    if metrics.iter().filter(|metric| matches!(metric.source, Source::Latency(_))).count() > 1 {
        return Err(usage("only one --metric can be of latencies or of a server that is asked; compare once for each"));
    }
    let least = setup.deciders[0].config.interval * INTERVALS;
    if length < least {
        return Err(usage(format!(
            "--windows {length:?}: a window has {INTERVALS} decisions at least; give {least:?} or more"
        )));
    }
    let slow = metrics.iter().flat_map(|metric| &metric.outside);
    match slow
        .max_by_key(|metric| metric.every)
        .filter(|slow| length.saturating_sub(settling(length)) < slow.every * READINGS)
    {
        Some(slow) => Err(usage(format!(
            "--windows {length:?}: too short for {}, which is read every {:?}; give {:?} or more, or read it more often \
             (every=TIME)",
            slow.name,
            slow.every,
            slow.every * (READINGS + 1),
        ))),
        None => Ok(()),
    }
}

/// A table for each metric, with its result.
fn print(out: &mut dyn Write, report: &Report) -> Result<()> {
    let policy = format!("with {}", report.policy);
    for row in report.metrics.iter().filter(|row| !row.compared.pairs.is_empty()) {
        let Row { compared: Compared { name, direction, pairs, gain }, verdict, windows, unit } = row;
        let text = |value| unit.text(value);
        let way = better(*direction);
        match gain {
            Some(Interval { mean, ci95: [low, high] }) if *low > 1.0 || *high < 1.0 => writeln!(
                out,
                "{name}: {verdict}, {} times as good {policy} ({} to {}); {way} is better",
                digits(*mean),
                digits(*low),
                digits(*high)
            )?,
            _ => writeln!(out, "{name}: {verdict}; {way} is better")?,
        }
        writeln!(out, "{:<6}{:<9}{:>14}{:>18}", "pair", "first", "without", policy)?;
        for (i, (pair, with)) in windows.chunks_exact(2).zip(report.order.chunks_exact(2)).enumerate() {
            let [without, by] = if with[0] { [pair[1], pair[0]] } else { [pair[0], pair[1]] };
            let first = if with[0] { "with" } else { "without" };
            writeln!(out, "{:<6}{first:<9}{:>14}{:>18}", i + 1, text(without), text(by))?;
        }
        let mean =
            |i: usize| text((!pairs.is_empty()).then(|| pairs.iter().map(|p| p[i]).sum::<f64>() / pairs.len() as f64));
        writeln!(out, "{:<15}{:>14}{:>18}", "mean", mean(0), mean(1))?;
    }
    let Report { window_s, settling_s, seed, moves, tier, .. } = report;
    Ok(writeln!(
        out,
        "windows of {window_s} s without their first {settling_s} s, in random order (--seed {seed}); {} in all windows \
         {policy}; counters: {tier}",
        count(*moves, "move")
    )?)
}

/// Follows the windows.
struct Watch {
    order: Vec<bool>,
    length: Duration,
    policy: &'static str,
    state: WindowsState,
    /// Moves in windows with the policy.
    moves: u64,
    /// When the present window began.
    window: Option<Instant>,
}

impl Observer for Watch {
    fn round(&mut self, round: &Round<'_>) {
        let Some(state) = round.decision.and_then(|decision| decision.state.read::<Windows>()) else { return };
        if self.window.is_none() || state.values.len() > self.state.values.len() {
            self.window = Some(Instant::now());
            self.state = state.into_owned();
        }
        if self.order.get(self.state.values.len()) == Some(&true) {
            let released = |action: &Action| matches!(action, Action::Release { .. });
            let moved = round.orders.iter().zip(round.outcomes);
            self.moves +=
                moved.filter(|(order, done)| **done == Outcome::Applied && !released(&order.action)).count() as u64;
        }
    }

    fn view(&mut self, room: (usize, usize)) -> Option<String> {
        let (done, all) = (self.state.values.len(), self.order.len());
        let left = self.length * (all - done) as u32;
        let left = left.saturating_sub(self.window.map_or(Duration::ZERO, |began| began.elapsed()));
        let what = if *self.order.get(done)? { format!("with {}", self.policy) } else { "without".to_owned() };
        Some(fit(vec![format!("window {} of {all} ({what}), about {} left", done + 1, about(left))], room))
    }
}
