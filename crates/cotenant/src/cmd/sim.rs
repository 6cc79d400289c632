//! `cotenant sim`: programs beside each other on a machine that is not there.

use super::print;
use crate::usage;
use anyhow::Context as _;
use cotenant_sim::mix::{self, Machine, Share};
use cotenant_sim::workload::{self, Workload};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant sim --mix mcf06,milc06,povray06,lbm06 --machine server.toml
  cotenant sim --mix mcf06,mcf06 --machine server.toml --json | jq '.apps[].slowdown'";

/// Arguments of `cotenant sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Programs of workloads/ that run beside each other, each on a core of its own
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', required = true)]
    pub mix: Vec<String>,
    /// The machine: a TOML file of eight lines, see docs/reference/workloads.md
    #[arg(long, value_name = "FILE")]
    pub machine: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// Where a program or the machine is unknown or wrong, and where no steady state is found.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.machine.display();
    let text =
        fs::read_to_string(&args.machine).map_err(|e| usage(format!("{path}: {e}; give a machine's TOML file")))?;
    let machine = Machine::parse(&text).map_err(|e| usage(format!("{path}:{e}")))?;
    let programs: Vec<&Workload> = args.mix.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
    if programs.len() > machine.cores {
        let (programs, cores) = (programs.len(), machine.cores);
        return Err(usage(format!("--mix: {programs} programs, but {path} has {cores} cores; name at most {cores}")));
    }
    let together = mix::steady(&machine, &programs)?;
    let alone: Vec<Share> = programs
        .iter()
        .map(|program| mix::steady(&machine, &[program]).map(|state| state.shares[0]))
        .collect::<Result<_, _>>()?;
    let apps: Vec<(&str, Share, f64)> = args
        .mix
        .iter()
        .zip(&together.shares)
        .zip(&alone)
        .map(|((name, share), alone)| (name.as_str(), *share, share.cpi / alone.cpi))
        .collect();
    let gbs: f64 = together.shares.iter().map(|s| s.gbs).sum();
    print(|out| {
        if args.json {
            let progress = || apps.iter().map(|a| 1.0 / a.2);
            let report = json!({
                "machine": machine.name,
                "memory": { "latency_ns": together.memory_ns, "gbs": gbs },
                "weighted_speedup": progress().sum::<f64>(),
                "fairness": { "min": progress().fold(f64::INFINITY, f64::min), "max": progress().fold(0.0, f64::max) },
                "apps": apps.iter().map(|(name, share, slowdown)| json!({
                    "name": name, "slowdown": slowdown, "progress": 1.0 / slowdown, "ipc": 1.0 / share.cpi,
                    "llc_bytes": share.held.round(), "llc_miss_ratio": share.miss_ratio, "gbs": share.gbs,
                })).collect::<Vec<_>>(),
            });
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        writeln!(out, "{:<14}{:>9}{:>7}{:>11}{:>8}{:>8}", "program", "slowdown", "IPC", "LLC MiB", "miss %", "GB/s")?;
        for (name, share, slowdown) in &apps {
            let (ipc, mib, miss) = (1.0 / share.cpi, share.held / 1_048_576.0, share.miss_ratio * 100.0);
            writeln!(out, "{name:<14}{slowdown:>9.3}{ipc:>7.2}{mib:>11.2}{miss:>8.1}{:>8.2}", share.gbs)?;
        }
        writeln!(
            out,
            "memory: {gbs:.1} of {} GB/s, {:.0} ns ({} ns idle)",
            machine.memory_gbs, together.memory_ns, machine.memory_ns
        )?;
        Ok(ExitCode::SUCCESS)
    })
    .context("sim")
}

fn find(name: &str) -> anyhow::Result<&'static Workload> {
    workload::all().get(name).ok_or_else(|| {
        let near: Vec<&str> = workload::all()
            .keys()
            .map(String::as_str)
            .filter(|known| {
                !name.is_empty() && (known.contains(name) || name.contains(known.trim_end_matches(char::is_numeric)))
            })
            .collect();
        let near = if near.is_empty() { workload::all().keys().map(String::as_str).collect() } else { near };
        usage(format!("--mix: no program '{name}'; there are {}", near.join(", ")))
    })
}
