//! `cotenant kernel`: the micro-benchmarks and `SmashBench` as programs.

use anyhow::{Result, bail};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::page::Sheet;
use cotenant_cli::progress::Progress;
use cotenant_cli::table::Table;
use cotenant_cli::{machine_arg, usage};
use cotenant_kernels::{Caches, Config, Error, Kernel, Report};
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_model::number::{scaled, significant};
use cotenant_model::{CpuId, CpuSet};
use cotenant_setup::units;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cotenant kernel hubench --threads 2 --pin 0,1    two threads that share data
  cotenant kernel chase --size 8M --seconds 2      latency of what holds 8 MiB
  cotenant kernel inject-memory --rate 5e6         5 million loads per second
  cotenant compare -- cotenant kernel lubench --threads 8 --units 2000000";

/// Longest run: a year; a longer one may as well run until Ctrl-C.
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

/// Arguments of `cotenant kernel`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The kernel, see --list
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub name: Option<String>,
    /// List the kernels
    ///
    /// What each does, its unit of work, its settings, and its memory on this machine.
    #[arg(long, conflicts_with = "name")]
    pub list: bool,
    /// Threads, 1 to 16384 [default: 1; kernels whose threads share data: 2]
    ///
    /// They end in time however many wait for a CPU, and the result says how many had no turn.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Time to run, without preparation [default: 10, or none with --units]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// Units of work of each thread: the same work every time
    #[arg(long, value_name = "N")]
    pub units: Option<u64>,
    /// Memory of each thread, such as 64M [default: see --list]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub size: Option<u64>,
    /// Units per second and thread, for injectors [default: as many as possible]
    ///
    /// The result says how many were reached.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// Steps of computation (4 cycles) between two accesses to shared data [default: see --list]
    #[arg(long, value_name = "STEPS", hide_short_help = true)]
    pub compute: Option<u64>,
    /// Bytes from one access to the next, a multiple of 8 [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, hide_short_help = true)]
    pub stride: Option<u64>,
    /// CPUs of the threads, as in 0,2 or 0-3 [default: wherever the system puts them]
    ///
    /// In this order, and again from the first.
    #[arg(long, value_name = "LIST")]
    pub pin: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// Invalid names or settings; errors of getting threads or memory; and wrong results.
pub fn run(args: &Args) -> Result<ExitCode> {
    let found = machine_arg::resolve(None)?;
    let caches = Caches::of(&found.machine.topology);
    let Some(name) = &args.name else { return list(&caches, args.json) };
    let kernel = Kernel::by_name(name).ok_or_else(|| usage(unknown(name)))?;
    let config = config(args, kernel, caches)?;
    let (report, signal) = go(kernel, &config, !args.json)?;
    if signal {
        tell("stopped; this is the result so far");
    }
    let late: f64 = report.threads.iter().filter_map(|thread| thread.pace).map(|pace| pace.skipped_s).sum();
    if let (Some(rate), true) = (report.rate, late > 0.0) {
        let reached = report.per_second() / report.threads.len() as f64;
        let [rate, reached] = [rate, reached].map(|rate| significant(rate, 4));
        tell(format_args!("of the rate of {rate} per second and thread, {reached} were reached"));
    }
    let waited = report.threads.iter().filter(|thread| thread.units == 0).count();
    if waited > 0 && !signal {
        let all = count(report.threads.len() as u64, "thread");
        tell(format_args!(
            "{waited} of {all} did nothing: no CPU was free for them in time; give more time or fewer threads"
        ));
    }
    let code = cotenant_cli::answer(args.json, &as_json(&report), |out| table(out, &report))?;
    match report.wrong() {
        Some(wrong) if wrong > 0 => {
            bail!("{} wrong; this machine computes or remembers wrongly", count(wrong, "result"))
        }
        _ => Ok(code),
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = Kernel::all().iter().map(|kernel| kernel.name).collect();
    format!("there is no kernel '{name}'; there are {}", names.join(", "))
}

fn config(args: &Args, kernel: &Kernel, caches: Caches) -> Result<Config> {
    let seconds = match (args.seconds, args.units) {
        (None, None) => Some(10.0),
        (seconds, _) => seconds,
    };
    if let Some(bad) = seconds.filter(|s| !(*s > 0.0 && *s <= MAX_SECONDS)) {
        return Err(usage(format!("--seconds {bad:?} is out of range; give more than 0 and at most {MAX_SECONDS}")));
    }
    if args.units == Some(0) {
        return Err(usage("--units 0 is no work; give at least 1"));
    }
    Ok(Config {
        duration: seconds.map(Duration::from_secs_f64),
        limit: args.units,
        size: args.size,
        compute: args.compute,
        stride: args.stride,
        rate: args.rate,
        cpus: args.pin.as_deref().map_or(Ok(Vec::new()), cpus)?,
        ..Config::new(args.threads.unwrap_or(if kernel.default_compute().is_some() { 2 } else { 1 }), caches)
    })
}

/// A list of CPUs in the written order; one may occur more than once.
fn cpus(text: &str) -> Result<Vec<CpuId>> {
    let sets: Result<Vec<CpuSet>, _> = text.split(',').map(CpuSet::parse_list).collect();
    let cpus: Vec<CpuId> = sets.map_err(|e| usage(format!("--pin: {e}")))?.iter().flat_map(CpuSet::iter).collect();
    if cpus.is_empty() { Err(usage("--pin: the list is empty; give CPUs as in 0,2 or 0-3")) } else { Ok(cpus) }
}

/// Runs it; returns whether a signal ended it. With `shown`, a terminal shows its progress.
fn go(kernel: &'static Kernel, config: &Config, shown: bool) -> Result<(Report, bool)> {
    let mut waiter = Waiter::new()?;
    let (mut progress, start, mut stopped) = (Progress::new(shown), Instant::now(), false);
    // Through libcotenant, like any program, so that a manager sees each thread's progress.
    let counter: &(dyn Fn(usize) -> &'static AtomicU64 + Sync) = &|_| cotenant_rt::units_slot();
    let report = kernel.run(config, Some(counter), &mut || {
        stopped |= matches!(waiter.wait(Some(Instant::now())), Ok(Event::Signal(_)));
        if let Some(duration) = config.duration {
            let done = start.elapsed().as_secs_f64() / duration.as_secs_f64();
            progress.show(done.min(1.0), || kernel.name.to_owned());
        }
        !stopped
    });
    drop(progress);
    let report = report.map_err(|error| match error {
        Error::Spawn(..) | Error::NoRoom { .. } => error.into(),
        error => usage(error.to_string()),
    })?;
    Ok((report, stopped))
}

fn as_json(report: &Report) -> Value {
    let threads = report.threads.iter().map(|thread| {
        let mut value = json!(thread);
        value["per_second"] = thread.per_second().into();
        value
    });
    json!({
        "kernel": report.kernel, "unit": report.unit, "size": report.size, "compute": report.compute,
        "stride": report.stride, "rate": report.rate, "bytes_per_unit": report.bytes_per_unit,
        "seconds": report.seconds, "units": report.units(), "per_second": report.per_second(),
        "bytes_per_second": report.bytes_per_second(), "transfers": report.transfers(), "wrong": report.wrong(),
        "threads": threads.collect::<Vec<_>>(),
    })
}

fn table(out: &mut Sheet<'_>, report: &Report) -> Result<()> {
    let mut settings = vec![count(report.threads.len() as u64, "thread")];
    if report.size > 0 {
        settings.push(format!("{} each", size(report.size)));
    }
    settings.extend(report.compute.map(|steps| format!("{steps} steps between shared accesses")));
    settings.extend(report.stride.map(|bytes| format!("stride {bytes}")));
    settings.extend(report.rate.map(|rate| format!("{} per second each wanted", significant(rate, 4))));
    writeln!(out, "{}: {}, {:.3} s", report.kernel, settings.join(", "), report.seconds)?;
    let unit = format!(">{}", report.unit);
    let mut table = Table::new([">thread", ">cpu", &unit, ">per second", ">CPU time"]);
    for (i, thread) in report.threads.iter().enumerate() {
        let cpu = thread.cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        let (units, rate, cpu_s) = (thread.units.to_string(), scaled(thread.per_second()), thread.cpu_seconds);
        table.row([i.to_string(), cpu, units, rate, format!("{cpu_s:.3} s")]);
    }
    table.row(["all", "", &report.units().to_string(), &scaled(report.per_second())]);
    out.table(&table)?;
    if let Some(bytes) = report.bytes_per_second() {
        writeln!(out, "moved: {:.3} GB/s", bytes * 1e-9)?;
    }
    if let Some(transfers) = report.transfers() {
        let share = 100.0 * transfers as f64 / report.units().max(1) as f64;
        writeln!(out, "accesses that found another thread's write: {transfers} ({share:.1} %)")?;
    }
    if report.wrong() == Some(0) {
        writeln!(out, "all results are right")?;
    }
    Ok(())
}

/// A size for people, if it is a round number of some unit.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >= 1 << shift);
    unit.map_or(format!("{bytes} B"), |(shift, unit)| format!("{:.4} {unit}", bytes as f64 / (1u64 << shift) as f64))
        .replace(".0000", "")
}

fn list(caches: &Caches, as_json: bool) -> Result<ExitCode> {
    let rows = Kernel::all().iter().map(|kernel| {
        json!({
            "kernel": kernel.name, "unit": kernel.unit, "what": kernel.what, "source": kernel.source,
            "size": kernel.has_size().then(|| kernel.default_size(caches, 1)),
            "compute": kernel.default_compute(), "stride": kernel.default_stride(), "has_rate": kernel.has_rate(),
            "bytes_per_unit": kernel.bytes_per_unit,
        })
    });
    cotenant_cli::answer(as_json, &rows.collect::<Vec<_>>(), |out| {
        let mut table = Table::new(["kernel", "unit", "settings (one thread)", "what it does"]);
        for kernel in Kernel::all() {
            let size = kernel.has_size().then(|| format!("size {}", size(kernel.default_size(caches, 1))));
            let compute = kernel.default_compute().map(|steps| format!("compute {steps}"));
            let stride = kernel.default_stride().map(|bytes| format!("stride {bytes}"));
            let rate = kernel.has_rate().then(|| "rate".to_owned());
            let settings: Vec<String> = [size, compute, stride, rate].into_iter().flatten().collect();
            table.row([kernel.name, kernel.unit, &settings.join(", "), kernel.what]);
        }
        out.table(&table)?;
        if caches.assumed {
            let guesses = "This machine does not report all of its caches: sizes that follow from them are guesses";
            writeln!(out, "{guesses}; give --size.")?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_keep_their_order() {
        assert_eq!(cpus("3,0-1,3").unwrap(), [3, 0, 1, 3].map(CpuId));
        for bad in ["", ",", "x", "1-0", "0,70000"] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_short_where_they_are_round() {
        assert_eq!(size(128 << 20), "128 MiB");
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size((1 << 20) + (1 << 19)), "1.5000 MiB");
        assert_eq!(size(100), "100 B");
    }
}
