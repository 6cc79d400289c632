//! `cotenant compare`: alternating runs with and without Cotenant, and the speed-up with its confidence interval.

use super::{managed, print};
use crate::cli::ManageArgs;
use crate::settings::Setup;
use crate::usage;
use anyhow::{Context, Result, bail};
use cotenant_core::stats;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Arguments of `cotenant compare`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Pairs of runs: each is one run without and one with Cotenant, in alternating order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// Let the command's own output through (default: discarded, so that it does not disturb the timing)
    #[arg(long)]
    show_output: bool,
    /// How to manage it
    #[command(flatten)]
    manage: ManageArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
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

/// Runs the comparison.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.manage.record.record.is_some() {
        return Err(usage("compare makes many runs and records none; use 'cotenant run --record FILE' for one"));
    }
    let (topology, machine) = crate::settings::live_machine()?;
    let setup = Setup::live(&args.manage, topology, machine)?;
    let mut pairs = Vec::new();
    let (mut moves, mut tier) = (0, String::new());
    for i in 0..args.runs {
        let mut pair = Pair { without_s: 0.0, with_s: 0.0 };
        // Whatever drifts (heat, caches, neighbours) hits the first and the second run of a pair alike over the alternation.
        let order = if i % 2 == 0 { [false, true] } else { [true, false] };
        for managed in order {
            if managed {
                let output = if args.show_output { managed::Output::Shown } else { managed::Output::Discarded };
                let summary = managed::command(&setup, &args.manage, &args.command, output)?;
                if summary.exit_code != 0 {
                    bail!(
                        "the command failed with exit code {} under Cotenant; a failing run cannot be compared",
                        summary.exit_code
                    );
                }
                pair.with_s = summary.seconds;
                moves += summary.moves;
                tier = summary.tier;
            } else {
                pair.without_s = plain(&args.command, args.show_output)?;
            }
        }
        if !args.manage.json && !args.manage.quiet {
            crate::say!(
                "pair {:>3}: {:8.3} s without, {:8.3} s with {}",
                i + 1,
                pair.without_s,
                pair.with_s,
                setup.policy.name()
            );
        }
        pairs.push(pair);
    }
    let report = judge(setup.policy.name(), pairs, moves, tier);
    print(|out| {
        if args.manage.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            print_report(out, &report)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn plain(command: &[OsString], show: bool) -> Result<f64> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    if !show {
        child.stdout(Stdio::null()).stderr(Stdio::null());
    }
    cotenant_linux::launch::as_from_outside(&mut child);
    let start = Instant::now();
    let status = child.status().with_context(|| format!("cannot start '{}'", command[0].to_string_lossy()))?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        bail!("the command failed without Cotenant ({status}); a failing run cannot be compared");
    }
    Ok(seconds)
}

/// Speed-up = time without / time with; pairs are compared by the logarithm of their ratio, so that 2× and ½× weigh alike.
fn judge(policy: &'static str, pairs: Vec<Pair>, moves: u64, tier: String) -> Report {
    let logs: Vec<f64> = pairs.iter().map(|p| (p.without_s / p.with_s).ln()).collect();
    let speedup = stats::Summary::of(&logs)
        .estimate()
        .map(|e| Interval { mean: e.value.exp(), ci95: [e.low().exp(), e.high().exp()] });
    let verdict = match speedup {
        Some(s) if s.ci95[0] > 1.0 => format!("faster by {:.1} %", (s.mean - 1.0) * 100.0),
        Some(s) if s.ci95[1] < 1.0 => format!("slower by {:.1} %", (1.0 / s.mean - 1.0) * 100.0),
        Some(_) => "no difference that these runs can show".to_owned(),
        None => "too few runs to tell".to_owned(),
    };
    Report { policy, pairs, speedup, verdict, moves, tier }
}

fn print_report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
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
    writeln!(out, "{}; {} moves over all managed runs; counters: {}", report.verdict, report.moves, report.tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        ratios.iter().map(|r| Pair { without_s: *r, with_s: 1.0 }).collect()
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
}
