//! `cotenant calibrate --contentiousness`: the mutual cost of programs on this machine, from the lines they bring into
//! caches.

use super::args::Args;
use super::noise::{self, whither};
use crate::run::summary::NOT_JUDGED;
use anyhow::{Context, Result};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::page::Sheet;
use cotenant_cli::progress::{about, beside};
use cotenant_cli::table::Table;
use cotenant_cli::usage;
use cotenant_linux::given;
use cotenant_linux::sense::usage::Own;
use cotenant_measure::live::kernel::Study;
use cotenant_model::machine::Machine;
use cotenant_model::number::significant;
use cotenant_model::profile::contentiousness::{FEWEST, Model, model};
use cotenant_model::profile::{Contentiousness, MachineProfile};
use cotenant_model::{CpuSet, Topology};
use cotenant_setup::store::Store;
use cotenant_setup::{args, calibrated};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Overhead of a run: a program's start, and the preparation of its memory.
const START: Duration = Duration::from_millis(100);

/// The kernels for the fit.
fn kernels(args: &Args) -> Result<Vec<String>> {
    let mut kernels = args::kernels(&args.kernels)?;
    kernels.sort();
    kernels.dedup();
    if kernels.len() < FEWEST {
        let text = format!("--kernels: a model of three coefficients needs {FEWEST} kernels or more; name others, too");
        return Err(usage(text));
    }
    Ok(kernels)
}

/// Fits the model, and writes it into the profile, whose other parts stay.
pub(super) fn run(args: &Args, path: &Path, topology: &Topology, cpus: &CpuSet) -> Result<ExitCode> {
    let kernels = kernels(args)?;
    // A damaged profile is found before the measurement, which would otherwise be lost.
    let other = "name another file with -o";
    calibrated::read(path).map_err(|why| usage(format!("{why}; mend or remove it, or {other}")))?;
    if path.is_file() && given::text(path).is_ok_and(|text| Machine::parse(&text).is_ok()) {
        let path = path.display();
        return Err(usage(format!("{path}: this is a machine file, which would lose its topology; {other}")));
    }
    let (rounds, length) = if args.quick { (1, Duration::from_millis(200)) } else { (3, Duration::from_millis(500)) };
    let store = Store::of_this_machine(topology);
    let wait = || tell("another characterization runs on this machine; waiting for its end");
    let _turn = store.as_ref().and_then(|store| {
        fs::create_dir_all(store.folder()).ok()?;
        beside(|| (0.0, "waiting for the end of another characterization".to_owned()), || store.turn(wait))
    });
    let runs = kernels.len() * (1 + rounds * (1 + kernels.len()));
    if !args.json {
        let time = about((length + START) * u32::try_from(runs).unwrap_or(u32::MAX));
        let (runs, simulated) = (count(runs as u64, "run"), count(2 * kernels.len() as u64, "run"));
        tell(format_args!(
            "{runs} to come, about {time}; where lines cannot be counted, {simulated} on simulated caches besides, each some \
             seconds; Ctrl-C ends it, and nothing is written"
        ));
    }
    let begin = Instant::now();
    let program = std::env::current_exe().context("this program's own file is not known")?;
    let study = Study::new(kernels, rounds, length, topology, cpus, program, !args.json)?;
    let (mut watch, _) = noise::look_first(cpus, args.force);
    let points = study.points()?;
    let model = model(points).context("these programs are too much alike to fit a model; name other --kernels")?;
    let fitted = Contentiousness::new(&model, rounds, calibrated::stamp(topology));
    let mut fitted = fitted.context("the fit has no three coefficients")?;
    let usage = watch.catch_up(&Own::default());
    fitted.used_by_others = noise::remark(usage.as_ref());
    let doubt = fitted.doubt();
    if let Some(why) = &doubt {
        tell(format_args!(
            "this model is not going to be used: {why}; measure again when the machine is quiet, with all kernels"
        ));
    }
    let written = noise::may_write(noise::is_too_noisy(usage.as_ref()) || doubt.is_some(), args, path);
    if written {
        calibrated::update(path, |before| {
            Ok(MachineProfile { contentiousness: Some(Box::new(fitted.clone())), ..before? })
        })?;
    }
    let path = written.then_some(path);
    let json = serde_json::json!({"contentiousness": fitted, "points": model.points, "doubt": doubt, "path": path});
    let code = cotenant_cli::answer(args.json, &json, |out| {
        table(out, &model, &fitted)?;
        let (runs, time) = (count(runs as u64, "run"), about(begin.elapsed()));
        Ok(writeln!(out, "{runs} in {time}; {}", whither(path))?)
    })?;
    Ok(if written { code } else { NOT_JUDGED.into() })
}

fn table(out: &mut Sheet<'_>, model: &Model, fitted: &Contentiousness) -> Result<()> {
    writeln!(
        out,
        "C = a·(L2 lines in − L3 lines in)/ns + b·L3 lines in/ns + c, the part of its speed that a co-runner loses"
    )?;
    let mut table = Table::new(["program", ">costs others", ">model says", ">suffers", ">L2 lines/ns", ">L3 lines/ns"]);
    let percent = |loss: f64| format!("{:+.1} %", loss * 100.0);
    for point in &model.points {
        let (l2, l3) = (point.l2_lines_per_ns, point.l3_lines_per_ns);
        let [costs, says, suffers] = [point.contentiousness, fitted.at(l2, l3), point.sensitivity].map(percent);
        let [l2, l3] = [l2, l3].map(|lines| format!("{lines:.5}"));
        table.row([point.program.clone(), costs, says, suffers, l2, l3]);
    }
    out.table(&table)?;
    let mut table = Table::new(["", ">value", "", ">standard error", ">p"]);
    for (name, unit, c) in [("a", "ns/line", fitted.a), ("b", "ns/line", fitted.b), ("c", "", fitted.c)] {
        let [value, error] = [c.value, c.error].map(|number| significant(number, 4));
        table.row([name, &value, unit, &error, &format!("{:.4}", c.p)]);
    }
    out.table(&table)?;
    let Contentiousness { r2, p, method, .. } = fitted;
    let missed = fitted.leave_one_out * 100.0;
    writeln!(
        out,
        "R² {r2:.2}, p = {p:.4}; each program as predicted from the others is missed by {missed:.1} points on average"
    )?;
    let alone = |r2: Option<f64>| r2.map_or("unknown".to_owned(), |r2| format!("{r2:.2}"));
    let (miss_rate, requests) = (alone(fitted.miss_rate_r2), alone(fitted.requests_r2));
    writeln!(
        out,
        "R² of the last level's miss rate alone {miss_rate}, of the rate of requests to it alone {requests}"
    )?;
    Ok(writeln!(out, "{method}")?)
}
