//! `cotenant sim --mix`: the steady state of programs on one shared cache and one memory.

use super::args::Args;
use super::assumed::{self, Assumed};
use anyhow::Context as _;
use cotenant_cli::progress::simulating;
use cotenant_cli::table::Table;
use cotenant_cli::{machine_arg, usage};
use cotenant_setup::units;
use cotenant_sim::app::{Phase, Program, embedded};
use cotenant_sim::band::{DRAWS, draws, ends};
use cotenant_sim::flat_machine;
use cotenant_sim::machine::SimMachine;
use cotenant_sim::mix::{MixError, Share, Steady, steady};
use cotenant_sim::scenario::unknown;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    let machine = machine_arg::resolve_beside(name, Path::new(""), flat_machine::of);
    let machine = machine.map_err(|e| usage(format!("--machine: {e}")))?;
    let sim = SimMachine::of(&machine).map_err(|e| usage(format!("--machine: {e}")))?;
    let programs: Vec<&Program> = args.mix.iter().map(|name| find(name)).collect::<Result<_, _>>()?;
    let on = |sim: &SimMachine, programs: &[&Phase]| -> anyhow::Result<Steady> {
        steady(sim, programs).map_err(|e| match e {
            MixError::TooMany { .. } | MixError::Several { .. } => usage(format!("--mix on {name}: {e}")),
            other => anyhow::Error::new(other),
        })
    };
    // This machine and these programs, and their alternatives where they are guesses.
    let itself = (sim.clone(), programs.iter().map(|p| (*p).clone()).collect());
    let drawn = if args.no_band { Vec::new() } else { draws(&sim, &programs) };
    let states: Vec<(SimMachine, Vec<Program>)> = std::iter::once(itself).chain(drawn).collect();
    let all = states.len() * (programs.len() + 1);
    let solved = simulating(|progress| -> anyhow::Result<Vec<(Steady, Vec<f64>)>> {
        let mut done = 0;
        let mut solve = |sim: &SimMachine, programs: &[&Phase]| {
            progress(done, all);
            done += 1;
            on(sim, programs)
        };
        let mut one = |(sim, programs): &(SimMachine, Vec<Program>)| {
            let programs: Vec<&Phase> = programs.iter().map(|p| &p.phases[0]).collect();
            let together = solve(sim, &programs)?;
            let slowdown = |(program, share): (&&Phase, &Share)| Ok(share.cpi / solve(sim, &[*program])?.shares[0].cpi);
            let slowdowns = programs.iter().zip(&together.shares).map(slowdown).collect::<anyhow::Result<_>>()?;
            Ok((together, slowdowns))
        };
        states.iter().map(&mut one).collect()
    })?;
    let (together, slowdowns) = &solved[0];
    let band = |i: usize| ends(solved[1..].iter().map(|(_, slowdowns)| slowdowns[i]));
    let apps = args.mix.iter().zip(&together.shares).zip(slowdowns).enumerate();
    let apps =
        apps.map(|(i, ((name, share), slowdown))| App { name, share: *share, slowdown: *slowdown, band: band(i) });
    let apps: Vec<App<'_>> = apps.collect();
    let (guessed, assumed) = (sim.guessed(), assumed::of(args.mix.iter().map(String::as_str).zip(programs)));
    let gbs: f64 = together.shares.iter().map(|s| s.gbs).sum();
    cotenant_cli::answer(args.json, &report(&machine.name, &guessed, &assumed, &apps, together.memory_ns, gbs), |out| {
        let band = solved.len() > 1;
        let columns = ["program", ">slowdown", ">band", ">IPC", ">LLC MiB", ">miss %", ">GB/s"];
        let mut table = Table::new(columns.into_iter().filter(|column| band || *column != ">band"));
        for App { name, share, slowdown, band } in &apps {
            let (ipc, mib, miss) = (1.0 / share.cpi, share.held / 1_048_576.0, share.miss_ratio * 100.0);
            let slowdown = [format!("{slowdown:.3}")].into_iter();
            let slowdown = slowdown.chain(band.map(|(least, most)| format!("{least:.2} to {most:.2}")));
            let figures = [format!("{ipc:.2}"), format!("{mib:.2}"), format!("{miss:.1}")];
            let cells = [(*name).to_owned()].into_iter().chain(slowdown).chain(figures);
            table.row(cells.chain([format!("{:.2}", share.gbs)]));
        }
        out.table(&table)?;
        let (limit, idle) = (sim.stations[0].high / 1e9, sim.memory_s[0][0] * 1e9);
        writeln!(out, "memory: {gbs:.1} of {limit:.0} GB/s, {:.0} ns ({idle:.0} ns idle)", together.memory_ns)?;
        if !band && !args.no_band {
            return Ok(writeln!(out, "band: none, since no figure is a guess")?);
        }
        if band {
            writeln!(out, "band: least and most of {DRAWS} draws of what is a guess")?;
        }
        if !guessed.is_empty() {
            writeln!(out, "guessed for this machine: {}", guessed.join(", "))?;
        }
        assumed::say(out, &assumed)?;
        Ok(())
    })
    .context("sim")
}

/// A program of the mix.
struct App<'a> {
    name: &'a str,
    share: Share,
    slowdown: f64,
    /// Least and most slowdown over the draws of guesses.
    band: Option<(f64, f64)>,
}

/// The keys of `sim --json` that apply to a steady state, and further ones.
fn report(
    machine: &str,
    guessed: &[&str],
    assumed: &Assumed<'_>,
    apps: &[App<'_>],
    memory_ns: f64,
    gbs: f64,
) -> serde_json::Value {
    let progress = || apps.iter().map(|a| 1.0 / a.slowdown);
    let app = |App { name, share, slowdown, band }: &App<'_>| {
        json!({
            "name": name, "slowdown": slowdown, "slowdown_band": band.map(|(least, most)| [least, most]), "progress": 1.0 / slowdown, "ipc": 1.0 / share.cpi,
            "llc_bytes": share.held.round(), "llc_miss_ratio": share.miss_ratio, "gbs": share.gbs,
        })
    };
    let apps: Vec<serde_json::Value> = apps.iter().map(app).collect();
    let weighted = progress().sum::<f64>();
    let (min, max) = units::ends(progress());
    let fairness = json!({ "min": min, "max": max });
    json!({
        "machine": machine, "guessed": guessed, "assumed": assumed,
        "memory": { "latency_ns": memory_ns, "gbs": gbs },
        "weighted_speedup": weighted,
        "fairness": fairness,
        "apps": apps,
        "policies": [{ "name": "none", "kernel": "eevdf", "seeds": 1, "apps": apps, "weighted_speedup": weighted,
            "fairness": fairness, "migrations": 0 }],
    })
}

fn find(name: &str) -> anyhow::Result<&'static Program> {
    embedded().get(name).ok_or_else(|| usage(format!("--mix: {}", unknown(name, std::iter::empty()))))
}
