//! `cotenant characterize`: an application's profile.

use anyhow::{Context, Result};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::page::Sheet;
use cotenant_cli::progress::{Progress, about, beside};
use cotenant_cli::table::Table;
use cotenant_cli::{machine_arg, usage};
use cotenant_linux::host::StartError;
use cotenant_linux::sense::executable;
use cotenant_linux::sys;
use cotenant_linux::sys::launch::LaunchError;
use cotenant_measure::characterize::{self, Characterization, INJECTORS, Injectors, PARTS, Plan, Stop, contention};
use cotenant_measure::live::app::AppBench;
use cotenant_model::number::significant;
use cotenant_model::profile::calibration::LeftOut;
use cotenant_model::profile::{self, AppProfile, AppStamp, By};
use cotenant_model::{CpuSet, Topology};
use cotenant_setup::replace::{can_replace, replace};
use cotenant_setup::store::{self, Store};
use cotenant_setup::{args, calibrated, names, settings, units};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cotenant characterize -- ./solver --threads {threads}
  cotenant characterize -n web --only sensitivity -- ./bench-web
  cotenant characterize --runs 5 --kernels sledge-large -- xz -T0 -k -f big.tar";

/// Values of `--by`.
const BY: [[&str; 2]; 4] = [
    ["cycles", "Unhalted cycles of all threads"],
    ["progress", "Time per unit of work that the command reports itself"],
    ["cpu-time", "CPU time of all threads"],
    ["time", "Wall-clock time"],
];

/// Arguments of `cotenant characterize`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant characterize [OPTIONS] [--] <CMD> [ARGS]...")]
pub struct Args {
    /// The command and its arguments
    ///
    /// {threads} and {cpus} in it stand for the number of threads and the CPUs of each run.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Name under which policies know it [default: that of the executable, and its build]
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<String>,
    /// Measure only these: sensitivity, corun, degradation, misses
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Runs of each kind, from which the spread follows
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// What to compare [default: cycles, else progress, else time]
    ///
    /// If the command or the machine does not have it, the default is taken. On a machine that others use, cpu-time is
    /// the least disturbed.
    #[arg(long, hide_short_help = true, value_name = "WHAT", value_parser = args::value_of::<By>(&BY))]
    by: Option<By>,
    /// Programs to run beside it, by the names of cotenant kernel [default: all of `SmashBench`]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', hide_short_help = true)]
    kernels: Vec<String>,
    /// Run only on these CPUs, as in 0-3,8 [default: all that may be used]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    cpus: Option<String>,
    /// CPUs of the injectors for degradation [default: one, on the last core of a last-level cache]
    ///
    /// One injector runs on each of these CPUs, and the command does not use them.
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    injectors: Option<String>,
    /// Rates of each injector, lines per second, as in memory=5e6,3e7; levels are l2 and memory [default: ¼, ½, ¾ and
    /// all of what one reaches alone]
    #[arg(long, hide_short_help = true, value_name = "LEVEL=RATE,…", value_parser = rates)]
    rates: Vec<(String, Vec<f64>)>,
    /// Memory traffic, its own included, at which it counts as sensitive or not, in lines per second [default: that of
    /// the batch in which das finds it]
    #[arg(long, hide_short_help = true, value_name = "RATE", value_parser = rate)]
    traffic: Option<f64>,
    /// The longest that a run may take
    ///
    /// After that time it is ended, and nothing is written.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = units::length)]
    timeout: Duration,
    /// Runs on simulated caches side by side, at most one per CPU
    ///
    /// For a command that can run beside itself. One that writes a file or serves a port cannot.
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    at_once: u32,
    /// Write the profile into this file instead of the store
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let the command's own output through [default: discarded, so that it does not disturb the timing]
    #[arg(long, hide_short_help = true)]
    show_output: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
    rate.ok_or_else(|| format!("'{text}' is not a rate; give lines per second, as in 5e6"))
}

fn rates(text: &str) -> Result<(String, Vec<f64>), String> {
    let level = |(name, _): &(&str, &str)| INJECTORS.iter().any(|(level, _)| level == name);
    let (level, list) =
        text.split_once('=').filter(level).ok_or("give a level and its rates, as in memory=5e6,3e7 or l2=1e8")?;
    Ok((level.to_owned(), list.split(',').map(rate).collect::<Result<_, _>>()?))
}

/// The destination of the profile.
enum Target<'a> {
    Store(&'a Store),
    File(&'a Path),
}

/// Runs the subcommand.
///
/// # Errors
/// Invalid names, a failing command, an unwritable profile, and interruption.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (parts, kernels) = (args::only(&args.only, &PARTS)?, args::kernels(&args.kernels)?);
    let topology = machine_arg::resolve(None)?.machine.topology;
    let usable = sys::getaffinity(0)?.and(topology.usable());
    let some = |option, list: &Option<String>| -> Result<Option<CpuSet>> {
        let named = list.as_ref().map(|list| settings::user_cpus(option, list, &usable)).transpose()?;
        Ok(named.map(|cpus| usable.and(&cpus)))
    };
    let cpus = some("--cpus", &args.cpus)?.unwrap_or_else(|| usable.clone());
    let injectors = Injectors {
        cpus: some("--injectors", &args.injectors)?.unwrap_or_default(),
        rates: args.rates.iter().cloned().collect(),
        traffic_per_s: args.traffic,
    };
    if cpus.is_subset(&injectors.cpus) {
        let on = &injectors.cpus;
        return Err(usage(format!("--injectors {on}: no CPU is left for the command; it may use {cpus}")));
    }
    let file = executable::find(&args.command[0])
        .ok_or_else(|| StartError::Launch(LaunchError::NotFound(args.command[0].clone())))?;
    let program = executable::look(&file);
    let name = args.name.clone().unwrap_or_else(|| names::of_command(&args.command));
    let key = store::key(args.name.as_deref(), &name, program.as_ref());
    let store = Store::of_this_machine(&topology);
    let target = match (&args.output, &store) {
        (Some(path), _) => {
            can_replace(path).map_err(|why| {
                usage(format!("{}: the profile cannot be written: {why}; name another file with -o", path.display()))
            })?;
            Target::File(path)
        }
        (None, Some(store)) => {
            store.check(&key)?; // checked before the measurement, which would otherwise be lost
            Target::Store(store)
        }
        (None, None) => return Err(usage("there is no home folder for profiles; name a file with -o")),
    };
    let wait = || tell("another characterization runs on this machine; waiting for its end");
    let waiting = || (0.0, "waiting for the end of another characterization".to_owned());
    let _turn = store.as_ref().and_then(|store| beside(waiting, || store.turn(wait)));
    let begin = Instant::now();
    let progress = Progress::new(!args.quiet && !args.json && !args.show_output);
    let mut bench =
        AppBench::new(&topology, args.command.clone(), name.clone(), args.show_output, args.timeout, progress)?;
    bench.says = !args.quiet && !args.json;
    bench.at_once = (args.at_once as usize).min(usable.len());
    let plan = Plan {
        topology: &topology,
        cpus: cpus.clone(),
        parts: parts.clone(),
        rounds: args.runs as usize,
        kernels,
        by: args.by,
        injectors,
    };
    let result = characterize::characterize(&plan, &mut bench);
    let result = result.and_then(|found| predict(found, &parts, &topology, &mut bench));
    let notes = std::mem::take(&mut bench.notes);
    drop(bench);
    let mut found = result?;
    found.notes.extend(notes);
    let stamp = AppStamp {
        date: calibrated::stamp(&topology).date,
        cotenant: env!("CARGO_PKG_VERSION").to_owned(),
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        executable: program.unwrap_or_default(),
        machine: calibrated::stamp(&topology),
    };
    found.profile.stamp = Some(Box::new(stamp));
    let path = match target {
        Target::Store(store) => store.merge(&key, &name, found.profile.clone())?,
        Target::File(path) => write(path, &name, &found.profile)?,
    };
    cotenant_cli::answer(args.json, &json(&name, &path, &found), |out| {
        table(out, &name, &found, &cpus)?;
        let (runs, time) = (count(found.runs as u64, "run"), about(begin.elapsed()));
        writeln!(out, "{runs} in {time}, one alone {:.2} s; the profile is in {}", found.alone_s, path.display())?;
        Ok(())
    })
}

/// Adds the prediction of this machine's contentiousness model. A run on simulated caches is optional.
fn predict(
    mut found: Characterization,
    parts: &[&str],
    topology: &Topology,
    bench: &mut AppBench<'_>,
) -> Result<Characterization, Stop> {
    const NAME: &str = "contentiousness_model";
    let simulates = parts.contains(&"misses");
    if !simulates && found.profile.per_cpu_s.is_empty() {
        return Ok(found);
    }
    let none = "this machine has no such model; cotenant calibrate --contentiousness fits it";
    let score = match calibrated::load(topology).map(|(profile, _)| calibrated::contentiousness(&profile, topology)) {
        Ok((Some(model), _)) => contention::predicted(&model, &found, topology, bench),
        Ok((None, why)) => Err(Stop::Missing(why.unwrap_or_else(|| none.to_owned()))),
        Err(why) => Err(Stop::Missing(why.to_string())),
    };
    match score {
        Ok(score) => found.profile.contentiousness_model = Some(score),
        Err(Stop::Missing(reason)) => found.left_out.push(LeftOut { name: NAME.to_owned(), reason }),
        Err(stop) => return Err(stop),
    }
    Ok(found)
}

fn write(path: &Path, name: &str, profile: &AppProfile) -> Result<PathBuf> {
    let text = profile::write_apps(&BTreeMap::from([(name.to_owned(), profile.clone())]));
    replace(path, text.as_bytes())
        .with_context(|| format!("{}: the profile cannot be written; name another file with -o", path.display()))?;
    Ok(path.to_owned())
}

fn json(name: &str, path: &Path, found: &Characterization) -> serde_json::Value {
    let classes = found.profile.degradation.iter().map(|(level, points)| {
        let from = profile::sensitive_from(points);
        (level, serde_json::json!({ "sensitive": from.is_some(), "from_per_s": from }))
    });
    let classes: BTreeMap<&String, serde_json::Value> = classes.collect();
    let Characterization { profile, left_out, notes, runs, alone_s, .. } = found;
    serde_json::json!({
        "app": name, "path": path, "classes": classes, "profile": profile, "left_out": left_out, "notes": notes,
        "runs": runs, "alone_s": alone_s,
    })
}

fn table(out: &mut Sheet<'_>, name: &str, found: &Characterization, cpus: &CpuSet) -> Result<()> {
    let p = &found.profile;
    writeln!(out, "{name} on CPUs {cpus}")?;
    let mut table = Table::new([""; 2]);
    for (level, s) in &p.sensitivity {
        let (low, high, by) = (s.low, s.high, s.by);
        let says = format!("{:+.2} % ({low:+.2} to {high:+.2}), by {by}: {} | {}", s.score, s.base, s.contend);
        table.row([format!("sensitivity.{level}"), says]);
    }
    let percent = |loss: f64| format!("{:+.1} %", loss * 100.0);
    for (kernel, c) in &p.corun {
        let by = c.suffers.by;
        let [suffers, low, high] = [c.suffers.loss, c.suffers.low, c.suffers.high].map(percent);
        let causes = c.causes.as_ref().map_or("?".to_owned(), |l| percent(l.loss));
        table.row([
            format!("beside {kernel}"),
            format!("loses {suffers:>8} ({low} to {high}), by {by}; costs it {causes}"),
        ]);
    }
    if let (Some(suffers), Some(causes)) = (p.corun_sensitivity, p.contentiousness) {
        let (suffers, causes) = (percent(suffers), percent(causes));
        let says = format!("loses {suffers:>8} on average, and costs others {causes}: its contentiousness");
        table.row(["beside all of these", &says]);
    }
    if let Some(costs) = p.contentiousness_model {
        let says = format!("costs others {} by this machine's model of lines per ns", percent(costs));
        table.row(["contentiousness", &says]);
    }
    for (level, points) in &p.degradation {
        for point in points {
            let (loss, by) = (percent(point.loss.loss), point.loss.by);
            let [reached, asked] = [point.reached_per_s, point.target_per_s].map(|rate| significant(rate, 3));
            table.row([
                format!("{level}, {reached} lines/s"),
                format!("loses {loss:>8}, by {by}; asked for {asked}, on CPUs {}", point.cpus),
            ]);
        }
        let most = points.iter().map(|point| point.reached_per_s).fold(0.0, f64::max);
        let says = match profile::sensitive_from(points) {
            Some(from) => format!("sensitive: it loses 5 % from {} lines/s of others on", significant(from, 4)),
            None => {
                format!("little sensitive: it loses less than 5 % up to {} lines/s of others", significant(most, 4))
            }
        };
        table.row([level, &says]);
    }
    if let Some(curve) = &p.misses {
        for point in &curve.points {
            let misses = format!("{:>8.3} % of references miss, {:.3} per 1,000", point.ratio * 100.0, point.mpki);
            let (ways, line) = (point.ways, point.line);
            table.row([
                format!("simulated l{} of {} KiB", point.level, point.bytes >> 10),
                format!("{misses} instructions ({ways} ways, {line}-byte lines)"),
            ]);
        }
        for used in &curve.footprints {
            let (kib, more) = (used.bytes >> 10, if used.or_more { " or more" } else { "" });
            table.row([
                format!("footprint at l{}", used.level),
                format!("{kib} KiB{more}, of those sizes; cachegrind's model, not the machine"),
            ]);
        }
    }
    let rates = [("bus_per_ms", p.bus_per_ms), ("sharing", p.sharing), ("footprint_per_ms", p.footprint_per_ms)];
    for (what, value) in rates.iter().filter_map(|(what, value)| Some((what, (*value)?))) {
        table.row([*what, &format!("{value:>8.3}   counted")]);
    }
    if let Some(loss) = p.average_traffic_loss {
        let class = if loss >= profile::SENSITIVE { "sensitive" } else { "little sensitive" };
        table.row(["at the traffic asked for", &format!("loses {:>8}: {class}", percent(loss))]);
    }
    for left in &found.left_out {
        table.row([&left.name, &format!("left out: {}", left.reason)]);
    }
    out.table(&table)?;
    for note in &found.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
