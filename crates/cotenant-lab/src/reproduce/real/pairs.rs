//! What programs cost each other on this machine, and its model, by the scripts of `cotenant characterize` and
//! `cotenant calibrate --contentiousness`.

use super::super::contentiousness::{coefficients, properties};
use super::super::row::{Found, Row, mean, row};
use super::here::{Here, left_out, text};
use anyhow::{Context, Result};
use cotenant_cli::progress::Progress;
use cotenant_linux::sense::executable;
use cotenant_measure::characterize::{Bench, Plan, Stop, characterize};
use cotenant_measure::live::app::AppBench;
use cotenant_measure::live::kernel::Study;
use cotenant_model::CpuSet;
use cotenant_model::profile::Corun;
use cotenant_model::profile::contentiousness::{self, FEWEST};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

/// A part of `SmashBench` whose pairs take a minute: in and beyond caches, random and sequential.
const KERNELS: [&str; 7] =
    ["bst-4mb", "bst-50mb", "naive-4mb", "naive-50mb", "blockie-large", "sledge-small", "sledge-large"];
/// The number of these used with `--quick`.
const FEW: [&str; FEWEST] = ["bst-4mb", "naive-50mb", "sledge-large", "blockie-large"];
/// Limit for a real program's run.
const TIMEOUT: Duration = Duration::from_secs(60);

fn study(here: &Here, few: usize) -> Result<Study<'_>> {
    let kernels: &[&str] = if here.quick { &FEW[..few] } else { &KERNELS };
    let kernels = kernels.iter().map(|name| (*name).to_owned()).collect();
    let cpus: CpuSet = here.cpus.into_iter().collect();
    let (rounds, length) = if here.quick { (2, 100) } else { (5, 200) };
    let program = here.cotenant.clone();
    Ok(Study::new(kernels, rounds, Duration::from_millis(length), &here.topology, &cpus, program, true)?)
}

/// Real programs with at most a second of work.
fn programs(here: &Here) -> Result<Vec<(&'static str, Vec<OsString>)>> {
    let input = here.folder.path().join("input");
    fs::write(&input, text(30_000))?;
    let source = here.folder.path().join("input.c");
    fs::write(&source, text(1_500))?;
    let words = |line: &[&str], file: &std::path::Path| {
        line.iter().map(OsString::from).chain([file.as_os_str().to_owned()]).collect::<Vec<OsString>>()
    };
    Ok(vec![
        ("xz", words(&["xz", "-6", "-k", "-c"], &input)),
        ("cc", words(&["cc", "-O1", "-S", "-o", "/dev/null"], &source)),
    ])
}

fn rows_of(program: &str, corun: &BTreeMap<String, Corun>) -> Vec<Row> {
    let of = |(other, corun): (&String, &Corun)| {
        let loss = &corun.suffers;
        let label = format!("{program} beside {other}: loses");
        row(label, loss.loss * 100.0, "%").between([loss.low * 100.0, loss.high * 100.0])
    };
    corun.iter().map(of).collect()
}

/// Figures 5.2–5.4.
pub(super) fn pairs(here: &Here) -> Result<Found> {
    let study = study(here, 3)?;
    let names = study.plan.kernels.clone();
    let mut rows = Vec::new();
    let mut losses: Vec<Vec<f64>> = Vec::new();
    let mut beyond_chance = 0;
    for name in &names {
        let mut bench = study.bench(name);
        let found = characterize(&study.plan, &mut bench)?.profile.corun;
        rows.extend(rows_of(name, &found));
        beyond_chance += found.values().filter(|corun| corun.suffers.low > 0.0).count();
        let loss = |by: &String| -> Result<f64> {
            let corun = found.get(by).with_context(|| format!("{name} beside {by}: nothing was measured"))?;
            Ok(corun.suffers.loss)
        };
        losses.push(names.iter().map(loss).collect::<Result<_>>()?);
    }
    let properties = properties(&losses);
    rows.extend(properties.of_each(&names));
    let Study { plan, .. } = study; // its bench ends here: only one at a time can hold signals back
    let mut notes = Vec::new();
    for (name, command) in programs(here)?.into_iter().take(if here.quick { 1 } else { 2 }) {
        match real(here, &plan, name, command) {
            Ok(found) => {
                rows.extend(rows_of(name, &found));
                let suffers = mean(found.values().map(|c| c.suffers.loss));
                rows.push(row(format!("{name}: suffers, mean"), suffers * 100.0, "%"));
                let causes: Vec<f64> = found.values().filter_map(|c| Some(c.causes.as_ref()?.loss)).collect();
                rows.push(row(format!("{name}: costs the kernels, mean"), mean(causes) * 100.0, "%"));
            }
            Err(Stop::Interrupted) => return Err(Stop::Interrupted.into()),
            Err(Stop::Failed(why) | Stop::Missing(why)) => notes.push(left_out(name, why)),
        }
    }
    let pairs = names.len().pow(2);
    // Of pairs without loss, one in forty has an interval above 0; up to twice as many are accepted.
    let chance = if beyond_chance * 20 <= pairs { " Orders among them are chance, too." } else { "" };
    notes.push(format!("{beyond_chance} of {pairs} pairs of kernels lose more than chance explains.{chance}"));
    rows.extend(properties.rows);
    let note = format!(
        "Kernels of SmashBench, one thread each, and real programs (xz -6 of a text of 1.5 MB, cc -O1 of 1,500 \
         functions) beside them. Part of the speed by CPU time that is lost, mean of {} rounds with its 95 % \
         interval, each round alone and beside all. The paper takes SPEC CPU2006. {}",
        plan.rounds,
        notes.join(" ")
    );
    Ok(Found::tallied(rows, note.trim_end()))
}

fn real(here: &Here, plan: &Plan<'_>, name: &str, command: Vec<OsString>) -> Result<BTreeMap<String, Corun>, Stop> {
    if executable::find(&command[0]).is_none() {
        return Err(Stop::Missing("it is not installed".to_owned()));
    }
    let bench = AppBench::new(&here.topology, command, name.to_owned(), false, TIMEOUT, Progress::new(true));
    let mut bench = bench.map_err(|e| Stop::Failed(e.to_string()))?;
    Ok(characterize(plan, &mut bench as &mut dyn Bench)?.profile.corun)
}

/// Equation 5.9.
pub(super) fn model(here: &Here) -> Result<Found> {
    let study = study(here, FEWEST)?;
    let points = study.points()?;
    let mut rows: Vec<Row> = Vec::new();
    for p in &points {
        let label = format!(
            "{}: costs others, at {:.4} and {:.4} lines/ns into the last private cache and the last level",
            p.program, p.l2_lines_per_ns, p.l3_lines_per_ns
        );
        rows.push(row(label, p.contentiousness * 100.0, "%"));
    }
    let counted = points.iter().all(|p| p.counted);
    let programs = points.len();
    let model = contentiousness::model(points).context("these kernels are too much alike here to fit a model")?;
    rows.extend(coefficients(&model.fit));
    for (name, paper, fit) in [
        ("R², the last level's miss rate alone", 0.223_8, &model.miss_rate),
        ("R², the rate of requests to the last level alone", 0.076_32, &model.requests),
    ] {
        rows.extend(fit.as_ref().map(|fit| super::super::row::level(name, paper, fit.r2, "")));
    }
    let chance =
        if model.fit.p > 0.05 { " Chance explains it as well (p above 0.05): policies would not use it." } else { "" };
    let lines = if counted { "were counted" } else { "are those of simulated caches, since this machine counts none" };
    let note = format!(
        "{programs} kernels of SmashBench beside each other, {} rounds; lines {lines}. The coefficients belong to a machine. cotenant calibrate --contentiousness does the same \
         with all fifteen, and keeps it.{chance}",
        study.plan.rounds
    );
    Ok(Found::tallied(rows, note))
}
