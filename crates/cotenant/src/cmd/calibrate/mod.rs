//! `cotenant calibrate`: figures measured on this machine.

mod args;
mod contention;
mod noise;

use crate::run::summary::NOT_JUDGED;
use anyhow::{Context, Result, anyhow, bail};
pub use args::Args;
use cotenant_cli::messages::count;
use cotenant_cli::page::Sheet;
use cotenant_cli::table::Table;
use cotenant_cli::{machine_arg, usage};
use cotenant_kernels::Caches;
use cotenant_linux::sense::usage::Own;
use cotenant_linux::sys;
use cotenant_measure::calibrate::{self, Calibration, PARTS, picture};
use cotenant_measure::live::machine::MachineBench;
use cotenant_model::CpuSet;
use cotenant_model::number::{scaled, significant};
use cotenant_model::profile::MachineProfile;
use cotenant_model::profile::calibration::{Difference, LeftOut, Record};
use cotenant_model::topology::hidden::Role;
use cotenant_model::topology::latency::MemoryLatencies;
use cotenant_setup::args::only;
use cotenant_setup::replace::{can_replace, replace};
use cotenant_setup::{calibrated, units};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Runs the subcommand.
///
/// # Errors
/// Invalid names, failed measurements, an unwritable profile, and interruption.
pub fn run(args: &Args) -> Result<ExitCode> {
    let parts = only(&args.only, &PARTS)?;
    let path = match &args.output {
        Some(path) => path.clone(),
        None => calibrated::default_path()
            .ok_or_else(|| usage("there is no home folder for the profile; name a file with -o"))?,
    };
    let make = |folder: &Path, instead: &str| {
        let said = |why| usage(format!("{}: the folder cannot be made: {why}; {instead}", folder.display()));
        fs::create_dir_all(folder).map_err(said)
    };
    // Before anything is measured: whatever could be measured would be lost.
    if let (None, Some(folder)) = (&args.output, path.parent()) {
        make(folder, "name a file with -o")?;
    }
    can_replace(&path).map_err(|why| {
        usage(format!("{}: the profile cannot be written: {why}; name another file with -o", path.display()))
    })?;
    args.svg_dir.as_deref().map_or(Ok(()), |folder| make(folder, "name another one with --svg-dir"))?;
    let topology = machine_arg::resolve(None)?.machine.topology;
    let cpus = sys::getaffinity(0)?.and(topology.usable());
    if args.contentiousness {
        return contention::run(args, &path, &topology, &cpus);
    }
    let (rounds, length) = if args.quick { (3, 50) } else { (5, 200) };
    let mut bench = MachineBench::new(Caches::of(&topology), Duration::from_millis(length))?;
    let (mut watch, mut seen) = noise::look_first(&cpus, args.force);
    let result = calibrate::calibrate(&topology, &cpus, &parts, rounds, &mut bench);
    drop(bench);
    let calibration = result.map_err(|why| anyhow!("{why}"))?;
    if calibration.interrupted {
        bail!("interrupted: nothing was written, and what was measured is lost");
    }
    let mut record = calibration.record(calibrated::stamp(&topology));
    seen.during = watch.catch_up(&Own::default());
    record.used_by_others = noise::remark(seen.during.as_ref());
    let written = noise::may_write(noise::is_too_noisy(seen.during.as_ref()), args, &path);
    record.usage = seen;
    if written {
        // A damaged one is replaced, since that is a reason to calibrate again.
        calibrated::update(&path, |before| {
            Ok(record.clone().profile(before.unwrap_or_else(|_| MachineProfile::default())))
        })?;
    }
    if let Some(folder) = &args.svg_dir {
        draw(folder, &calibration)?;
    }
    let code = cotenant_cli::answer(args.json, &record, |out| {
        table(out, &calibration, &record, &cpus)?;
        Ok(writeln!(out, "{}", noise::whither(written.then_some(&*path)))?)
    })?;
    Ok(if written { code } else { NOT_JUDGED.into() })
}

fn draw(folder: &Path, calibration: &Calibration) -> Result<()> {
    let write = |name: &str, picture: String| {
        let path = folder.join(format!("{name}.svg"));
        replace(&path, picture.as_bytes()).with_context(|| format!("{}: the picture cannot be written", path.display()))
    };
    if let Some(latencies) = &calibration.latencies {
        write("core-to-core", picture::heat_map(latencies, &calibration.latency_spread_ns))?;
    }
    calibration.curves.iter().try_for_each(|curve| write(&curve.name, picture::curve(curve)))
}

fn table(out: &mut Sheet<'_>, c: &Calibration, record: &Record, cpus: &CpuSet) -> Result<()> {
    writeln!(out, "{}: CPUs {cpus}, Linux {}", record.stamp.processor, record.stamp.kernel)?;
    let mut table = Table::new(["", ">", ">", ""]);
    for figure in &c.figures {
        let m = figure.measured;
        let noisy = if m.is_noisy() { "noisy" } else { "" };
        let [value, low, high] = [m.value, m.low, m.high].map(|value| quantity(value, &figure.unit));
        table.row([&figure.name, &value, &format!("{low} to {high}"), noisy]);
    }
    out.table(&table)?;
    if c.figures.iter().any(|figure| figure.measured.is_noisy()) {
        writeln!(out, "this machine is too noisy for what is marked so: the next calibration may say something else")?;
    }
    if let Some(latencies) = &c.latencies {
        let n = latencies.cpus().len();
        let pairs = (0..n).flat_map(|a| (0..a).filter_map(move |b| latencies.get(a, b)));
        let (least, most) = units::ends(pairs);
        writeln!(out, "latency from CPU to CPU, one way: {least:.1} to {most:.1} ns")?;
    }
    if let Some(MemoryLatencies { nodes, rows }) = &c.memory {
        let (least, most) = units::ends(rows.iter().flat_map(|row| &row.ns).copied());
        let way = format!("from {} of CPUs to memory of {} nodes", count(rows.len() as u64, "group"), nodes.len());
        writeln!(out, "latency {way}: {least:.1} to {most:.1} ns; cotenant topo shows them")?;
    }
    sharing(out, c)?;
    Ok(out.table(&left_out(&c.left_out))?)
}

/// Shared resources found by latencies, and differences from the system's information.
fn sharing(out: &mut dyn Write, c: &Calibration) -> Result<()> {
    let noun = |role| match role {
        Role::Core => "cores",
        Role::Llc => "last-level caches",
        Role::Die => "dies",
        Role::Package => "packages",
        Role::LlcOrPackage => "last-level caches or packages",
    };
    for level in &c.levels {
        let differs = c.differences.iter().any(|difference| difference.role == level.role);
        let system = if differs { "" } else { ", as the system claims" };
        let (found, within, between) = (level.groups.len(), level.within_ns, level.between_ns);
        let noun = noun(level.role);
        writeln!(out, "latencies show {found} {noun}: {within:.0} ns inside, {between:.0} ns between{system}")?;
    }
    for Difference { role, found, claimed } in &c.differences {
        let noun = noun(*role);
        match (found.as_slice(), claimed.as_slice()) {
            ([], claimed) => writeln!(out, "the system claims {noun} that latencies do not show: {}", groups(claimed))?,
            (found, []) => writeln!(out, "the system does not say so of these {noun}: {}", groups(found))?,
            (found, claimed) => {
                let (claimed, found) = (groups(claimed), groups(found));
                writeln!(out, "the system groups {noun} differently: {claimed} where latencies show {found}")?;
            }
        }
    }
    Ok(())
}

/// Groups of CPUs, at most eight.
fn groups(groups: &[CpuSet]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = groups.iter().take(SHOWN).map(|group| format!("[{group}]")).collect();
    let more = groups.len().saturating_sub(SHOWN);
    shown.join(" ") + &if more > 0 { format!(" and {more} more (all in the profile)") } else { String::new() }
}

/// Failed measurements and the reasons.
pub(super) fn left_out(left_out: &[LeftOut]) -> Table {
    let mut table = Table::new([""; 2]);
    for left in left_out {
        table.row([&left.name, &format!("left out: {}", left.reason)]);
    }
    table
}

/// With its unit and a fitting prefix.
fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "ns" => format!("{}s", scaled(value * 1e-9)),
        "us" => format!("{}s", scaled(value * 1e-6)),
        "Hz" => {
            let text = significant(value, 4);
            let gap = if text.ends_with(|c: char| c.is_ascii_digit()) { " " } else { "" };
            format!("{text}{gap}Hz")
        }
        "1" => significant(value, 4),
        "1/cycle" => format!("{}/cycle", significant(value, 4)),
        unit => format!("{} {unit}", significant(value, 4)),
    }
}
