//! `cotenant sim --mix`: the steady state of programs on one shared cache and one memory.

use super::Args;
use crate::units;
use anyhow::Context as _;
use cotenant_cli::progress::simulating;
use cotenant_cli::table::Table;
use cotenant_cli::usage;
use cotenant_sim::app::{Phase, embedded};
use cotenant_sim::machine::SimMachine;
use cotenant_sim::mix::{MixError, Share, Steady, steady};
use cotenant_sim::scenario::unknown;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    let machine = super::machine(name, Path::new("")).map_err(|e| usage(format!("--machine: {e}")))?;
    let sim = SimMachine::new(&machine).map_err(|e| usage(format!("--machine {name}: its [simulator]: {e}")))?;
    let programs: Vec<&Phase> = args.mix.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
    let solve = |programs: &[&Phase]| -> anyhow::Result<Steady> {
        steady(&sim, programs).map_err(|e| match e {
            MixError::TooMany { .. } | MixError::Several { .. } => usage(format!("--mix on {name}: {e}")),
            other => anyhow::Error::new(other),
        })
    };
    let all = programs.len() + 1;
    let (together, alone) = simulating(|progress| -> anyhow::Result<(Steady, Vec<Share>)> {
        progress(0, all);
        let together = solve(&programs)?;
        let alone = (1..).zip(&programs).map(|(done, program)| {
            progress(done, all);
            Ok(solve(&[program])?.shares[0])
        });
        Ok((together, alone.collect::<anyhow::Result<_>>()?))
    })?;
    let apps = args.mix.iter().zip(&together.shares).zip(&alone);
    let apps = apps.map(|((name, share), alone)| (name.as_str(), *share, share.cpi / alone.cpi));
    let apps: Vec<(&str, Share, f64)> = apps.collect();
    let gbs: f64 = together.shares.iter().map(|s| s.gbs).sum();
    cotenant_cli::answer(args.json, &report(&machine.name, &apps, together.memory_ns, gbs), |out| {
        let mut table = Table::new(["program", ">slowdown", ">IPC", ">LLC MiB", ">miss %", ">GB/s"]);
        for (name, share, slowdown) in &apps {
            let (ipc, mib, miss) = (1.0 / share.cpi, share.held / 1_048_576.0, share.miss_ratio * 100.0);
            let figures = [format!("{slowdown:.3}"), format!("{ipc:.2}"), format!("{mib:.2}"), format!("{miss:.1}")];
            table.row([&[(*name).to_owned()][..], &figures, &[format!("{:.2}", share.gbs)]].concat());
        }
        out.table(&table)?;
        let (limit, idle) = (sim.stations[0].high / 1e9, sim.memory_s[0][0] * 1e9);
        Ok(writeln!(out, "memory: {gbs:.1} of {limit:.0} GB/s, {:.0} ns ({idle:.0} ns idle)", together.memory_ns)?)
    })
    .context("sim")
}

/// The keys of `sim --json`, as far as a steady state has them; and what it knows besides.
fn report(machine: &str, apps: &[(&str, Share, f64)], memory_ns: f64, gbs: f64) -> serde_json::Value {
    let progress = || apps.iter().map(|a| 1.0 / a.2);
    let app = |(name, share, slowdown): &(&str, Share, f64)| {
        json!({
            "name": name, "slowdown": slowdown, "progress": 1.0 / slowdown, "ipc": 1.0 / share.cpi,
            "llc_bytes": share.held.round(), "llc_miss_ratio": share.miss_ratio, "gbs": share.gbs,
        })
    };
    let apps: Vec<serde_json::Value> = apps.iter().map(app).collect();
    let weighted = progress().sum::<f64>();
    let (min, max) = units::ends(progress());
    let fairness = json!({ "min": min, "max": max });
    json!({
        "machine": machine,
        "memory": { "latency_ns": memory_ns, "gbs": gbs },
        "weighted_speedup": weighted,
        "fairness": fairness,
        "apps": apps,
        "policies": [{ "name": "none", "kernel": "eevdf", "seeds": 1, "apps": apps, "weighted_speedup": weighted,
            "fairness": fairness, "migrations": 0 }],
    })
}

fn find(name: &str) -> anyhow::Result<&'static Phase> {
    let program = embedded().get(name).ok_or_else(|| usage(format!("--mix: {}", unknown(name, std::iter::empty()))))?;
    Ok(&program.phases[0])
}
