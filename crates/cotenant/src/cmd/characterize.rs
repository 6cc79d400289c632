//! `cotenant characterize`: an application's profile.

use super::print;
use crate::app_bench::AppBench;
use crate::progress::{Progress, about};
use crate::replace::replace;
use crate::store::{self, Store};
use crate::words::{count, tell};
use crate::{calibrated, machine_arg, settings, units, usage};
use anyhow::{Context, Result, anyhow, bail};
use cotenant_core::calibrate::LeftOut;
use cotenant_core::characterize::{self, Characterization, PARTS, Plan, Stop, contention};
use cotenant_core::profile::{self, AppProfile, AppStamp, By};
use cotenant_core::{CpuSet, Topology};
use cotenant_kernels::Kernel;
use cotenant_linux::{executable, sys};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cotenant characterize -- ./solver --threads {threads}     {threads} is what the configuration has
  cotenant characterize -n web --only sensitivity -- ./bench-web
  cotenant characterize --runs 5 --kernels bst-8mb,sledge-large -- xz -T0 -k -f big.tar";

/// Arguments of `cotenant characterize`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant characterize [OPTIONS] [--] <CMD> [ARGS]...")]
pub struct Args {
    /// The command and its arguments. {threads} and {cpus} in it stand for the number of threads and the CPUs of each run
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// Name of the application, under which policies know it [default: that of the executable, and its build]
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<String>,
    /// Measure only these: sensitivity, corun, degradation, misses
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Runs of each kind, from which the spread follows
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// What to compare: cycles, progress, cpu-time or time; where the command or the machine does not tell that, as by default. On a
    /// machine that others use, cpu-time is the least disturbed [default: cycles, else progress, else time]
    #[arg(long, value_name = "WHAT")]
    by: Option<ByArg>,
    /// Programs to run beside it, by the names of cotenant kernel [default: all of `SmashBench`]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Run only on these CPUs, as in 0-3,8 [default: all that may be used]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// The longest that a run may take; then it is ended, and nothing is written
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = units::duration)]
    timeout: Duration,
    /// Write the profile into this file instead of the store
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let the command's own output through [default: discarded, so that it does not disturb the timing]
    #[arg(long)]
    show_output: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// `--by`.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ByArg {
    /// Unhalted cycles of all threads
    Cycles,
    /// Time per unit of work that the command reports itself
    Progress,
    /// CPU time of all threads
    CpuTime,
    /// Wall-clock time
    Time,
}

impl From<ByArg> for By {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Cycles => Self::Cycles,
            ByArg::Progress => Self::Progress,
            ByArg::CpuTime => Self::CpuTime,
            ByArg::Time => Self::Time,
        }
    }
}

/// Where the profile goes.
enum Target<'a> {
    Store(&'a Store),
    File(&'a Path),
}

/// Runs the subcommand.
///
/// # Errors
/// Where a name is wrong, the command fails, or the profile cannot be written; and where it was interrupted.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(name) = args.only.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(usage(format!("--only {name}: there is no such measurement; there are {}", PARTS.join(", "))));
    }
    let parts: Vec<&str> = match args.only.as_slice() {
        [] => PARTS.to_vec(),
        only => only.iter().map(String::as_str).collect(),
    };
    if let Some(name) = args.kernels.iter().find(|name| Kernel::by_name(name).is_none()) {
        return Err(usage(format!("--kernels {name}: there is no such kernel; see cotenant kernel --list")));
    }
    let kernels = match args.kernels.as_slice() {
        [] => Kernel::all().iter().filter(|k| k.source.starts_with("SmashBench")).map(|k| k.name.to_owned()).collect(),
        named => named.to_vec(),
    };
    let topology = machine_arg::resolve(None)?.machine.topology;
    let mut cpus = sys::getaffinity(0)?.and(topology.usable());
    if let Some(list) = &args.cpus {
        let wanted = CpuSet::parse_list(list).map_err(|e| usage(format!("--cpus: {e}")))?;
        if !wanted.intersects(&cpus) {
            return Err(usage(format!("--cpus {wanted}: none of these CPUs can be used here; usable: {cpus}")));
        }
        cpus = cpus.and(&wanted);
    }
    let file = settings::executable_of(&args.command[0])
        .ok_or_else(|| usage(format!("{}: command not found; check the name and PATH", args.command[0].display())))?;
    let program = executable::look(&file);
    let base = || file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let name = args.name.clone().unwrap_or_else(base);
    let key = store::key(args.name.as_deref(), &name, program.as_ref());
    let store = Store::of_this_machine(&topology);
    let target = match (&args.output, &store) {
        (Some(path), _) => Target::File(path),
        (None, Some(store)) => {
            store.check(&key)?; // before anything is measured: whatever could be measured would be lost
            Target::Store(store)
        }
        (None, None) => return Err(usage("there is no home folder for profiles; name a file with -o")),
    };
    let wait = || tell("another characterization runs on this machine; waiting for its end");
    let _turn = store.as_ref().and_then(|store| store.turn(wait));
    let begin = Instant::now();
    let progress = Progress::new(!args.quiet && !args.json && !args.show_output);
    let mut bench =
        AppBench::new(&topology, args.command.clone(), name.clone(), args.show_output, args.timeout, progress)?;
    bench.says = !args.quiet && !args.json;
    let plan = Plan {
        topology: &topology,
        cpus: cpus.clone(),
        parts: parts.clone(),
        rounds: args.runs as usize,
        kernels,
        by: args.by.map(By::from),
    };
    let result = characterize::characterize(&plan, &mut bench);
    let result = result.and_then(|found| predict(found, &parts, &topology, &mut bench));
    let notes = std::mem::take(&mut bench.notes);
    drop(bench);
    let mut found = match result {
        Ok(found) => found,
        Err(Stop::Interrupted) => bail!("interrupted: nothing was written, and what was measured is lost"),
        Err(Stop::Failed(why) | Stop::Missing(why)) => return Err(anyhow!("{why}")),
    };
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
    print(|out| {
        if args.json {
            serde_json::to_writer_pretty(&mut *out, &json(&name, &path, &found))?;
            writeln!(out)?;
        } else {
            table(out, &name, &found, &cpus)?;
            let (runs, time) = (count(found.runs as u64, "run"), about(begin.elapsed()));
            writeln!(out, "{runs} in {time}, one alone {:.2} s; the profile is in {}", found.alone_s, path.display())?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Adds what this machine's contentiousness model says of the application. A run on simulated caches is for who wants such.
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
    let mut leave_out = |reason: String| found.left_out.push(LeftOut { name: NAME.to_owned(), reason });
    let model = match calibrated::load(topology).map(|(profile, _)| calibrated::contentiousness(&profile, topology)) {
        Ok((Some(model), _)) => model,
        Ok((None, Some(why))) => {
            leave_out(why);
            return Ok(found);
        }
        Ok((None, None)) => {
            leave_out("this machine has no such model; cotenant calibrate --contentiousness fits it".to_owned());
            return Ok(found);
        }
        Err(why) => {
            leave_out(why.to_string());
            return Ok(found);
        }
    };
    match contention::predicted(&model, &found, topology, bench) {
        Ok(score) => found.profile.contentiousness_model = Some(score),
        Err(Stop::Missing(why)) => found.left_out.push(LeftOut { name: NAME.to_owned(), reason: why }),
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
    serde_json::json!({
        "app": name,
        "path": path,
        "profile": found.profile,
        "left_out": found.left_out,
        "notes": found.notes,
        "runs": found.runs,
        "alone_s": found.alone_s,
    })
}

fn table(out: &mut dyn Write, name: &str, found: &Characterization, cpus: &CpuSet) -> Result<()> {
    let p = &found.profile;
    writeln!(out, "{name} on CPUs {cpus}")?;
    for (level, s) in &p.sensitivity {
        let what = format!("sensitivity.{level}");
        let (low, high, by) = (s.low, s.high, s.by);
        writeln!(out, "{what:<28} {:>+8.2} %   {low:+.2} to {high:+.2}, by {by}: {} | {}", s.score, s.base, s.contend)?;
    }
    let percent = |loss: f64| format!("{:+.1} %", loss * 100.0);
    for (kernel, c) in &p.corun {
        let what = format!("beside {kernel}");
        let (suffers, range) = (percent(c.suffers.loss), (percent(c.suffers.low), percent(c.suffers.high)));
        let causes = c.causes.as_ref().map_or("?".to_owned(), |l| percent(l.loss));
        writeln!(
            out,
            "{what:<28} loses {suffers:>8} ({} to {}), by {}; costs it {causes}",
            range.0, range.1, c.suffers.by
        )?;
    }
    if let (Some(suffers), Some(causes)) = (p.corun_sensitivity, p.contentiousness) {
        let (suffers, causes) = (percent(suffers), percent(causes));
        writeln!(
            out,
            "{:<28} loses {suffers} on average, and costs others {causes}: its contentiousness",
            "beside all of these"
        )?;
    }
    if let Some(costs) = p.contentiousness_model {
        writeln!(
            out,
            "{:<28} costs others {} by this machine's model of lines per ns",
            "contentiousness",
            percent(costs)
        )?;
    }
    for (level, points) in &p.degradation {
        for point in points {
            let what = format!("{level}, {:.3e} lines/s", point.reached_per_s);
            let (loss, asked) = (percent(point.loss.loss), point.target_per_s);
            writeln!(out, "{what:<28} loses {loss:>8}, by {}; asked for {asked:.3e}", point.loss.by)?;
        }
    }
    if let Some(curve) = &p.misses {
        for point in &curve.points {
            let size = format!("simulated l{} of {} KiB", point.level, point.bytes >> 10);
            let (ways, line) = (point.ways, point.line);
            writeln!(
                out,
                "{size:<28} {:>8.3} % of references miss, {:.3} per 1,000 instructions ({ways} ways, {line}-byte lines)",
                point.ratio * 100.0,
                point.mpki
            )?;
        }
        let footprint = p.footprint_bytes.unwrap_or(0) >> 10;
        writeln!(out, "{:<28} {footprint:>8} KiB, of those sizes; cachegrind's model, not the machine", "footprint")?;
    }
    let rates = [("bus_per_ms", p.bus_per_ms), ("sharing", p.sharing), ("footprint_per_ms", p.footprint_per_ms)];
    for (what, value) in rates.iter().filter_map(|(what, value)| Some((what, (*value)?))) {
        writeln!(out, "{what:<28} {value:>8.3}   counted")?;
    }
    for left in &found.left_out {
        writeln!(out, "{:<28} left out: {}", left.name, left.reason)?;
    }
    for note in &found.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
