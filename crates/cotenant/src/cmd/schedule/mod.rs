//! `cotenant schedule`: a queue of more jobs than CPUs.

mod jobs;
mod ledger;
mod queue;
mod screen;

use crate::live_table::cut;
use crate::store::{Loaded, Store};
use crate::{registry, settings, units};
use anyhow::{Context, Result};
use clap::ValueEnum;
use cotenant_cli::progress::about;
use cotenant_cli::usage;
use cotenant_cli::words::{count, tell};
use cotenant_linux::act::pause::{Mechanism, Method};
use cotenant_linux::host::queue::{Gaps, SIGNALS};
use cotenant_linux::host::{HostOptions, LinuxHost, probe_tier};
use cotenant_linux::sys;
use cotenant_linux::{act, undo};
use cotenant_model::policy::{Config, Ctx, DynPolicy, Settings};
use cotenant_model::profile::AppProfile;
use cotenant_model::{Mode, Round, Signal, Topology, host};
use cotenant_policies::{CoSchedule, QuantumSettings, wanted as cpus_wanted};
use jobs::JobSpec;
use ledger::{Earlier, Ledger};
use queue::{JobReport, Jobs, Limits, Shared, State};
use screen::Screen;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cotenant schedule jobs.txt                          a command per line, each for the shell
  cotenant schedule --policy mas --quantum 100ms jobs.toml
  seq 12 | sed 's/.*/.\\/simulate --seed &/' | cotenant schedule -
  cotenant schedule --resume jobs.toml                go on after a crash

A queue in TOML: [[job]] tables with command (a line for the shell, or a list of words), and optionally name, env, cwd,
profile, memory (as in \"2G\"), retries, threads; env, cwd, memory and retries at the top are for all.";

/// Characters of a job's name in tables.
const NAME: usize = 30;

/// Programs that are started at once at most, per CPU, where jobs are let wait.
const PROGRAMS_PER_CPU: usize = 4;

/// Which jobs run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rival {
    /// linux where all can run at once; else the best for which the signals are known: das, cas, mas, else fifo
    Auto,
    /// All at once; Linux shares the CPUs among them
    Linux,
    /// As many threads as CPUs, in the order of the queue, each to its end
    Fifo,
    /// Together their memory traffic is the average of the batch
    Mas,
    /// As mas, and each shared cache gets an equal part of it
    Cas,
    /// As cas, and sensitive jobs get quieter company
    Das,
    /// As linux, but stopped and resumed in every quantum: what that alone costs
    Overhead,
}

/// How jobs are let wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PauseArg {
    /// The first of these that works here
    Auto,
    /// The freezer of cgroup version 2
    V2,
    /// The freezer of cgroup version 1
    V1,
    /// SIGSTOP and SIGCONT
    Signals,
}

/// Arguments of `cotenant schedule`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The queue: a file whose name ends in .toml, or a list with a command per line; - reads a list from standard
    /// input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which jobs run at the same time
    #[arg(long, value_enum, value_name = "NAME", default_value = "auto")]
    policy: Rival,
    /// Time between choices
    #[arg(long, value_name = "TIME", value_parser = units::interval, default_value = "200ms")]
    quantum: Duration,
    /// Most programs that are started at once [default: four per CPU; fifo: as many threads as CPUs; linux and
    /// overhead: all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Memory that jobs may need together, those that wait included, as in 16G [default: what is available]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    memory: Option<u64>,
    /// Use only these CPUs, as in 0-3,8
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Folder of the jobs' output, NAME.out and NAME.err (appended to), and of what became of them, state.jsonl
    /// [default: FILE.logs]
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Go on after a crash: jobs whose end was seen are not started again, those that still run are waited for, all
    /// others are started
    #[arg(long)]
    resume: bool,
    /// How waiting jobs are paused
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pause: PauseArg,
    /// Time between SIGTERM and SIGKILL when asked to stop
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "10s")]
    grace: Duration,
    /// Characteristics of applications: a TOML file with [app.NAME] tables [default: the stored profiles]
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Print the summary as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Print no summary and no progress
    #[arg(short, long)]
    quiet: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Summary {
    policy: &'static str,
    /// Why this one, under `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<String>,
    /// How jobs were let wait; absent where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<Mechanism>,
    quantum_ms: f64,
    cpus: usize,
    makespan_s: f64,
    jobs: Vec<JobReport>,
    failed: usize,
    /// Quanta in which all were stopped and resumed.
    quanta: u64,
    /// Time between the first stop and the last resume, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_us: Option<GapUs>,
    /// CPU time of Cotenant itself as a fraction of one CPU.
    overhead: f64,
    tier: String,
    notes: Vec<String>,
    #[serde(skip)]
    signal: Option<i32>,
}

#[derive(Debug, Serialize)]
struct GapUs {
    mean: f64,
    longest: f64,
    /// Fraction of the makespan.
    share: f64,
}

impl GapUs {
    fn of(gaps: &Gaps, makespan: Duration) -> Option<Self> {
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        (gaps.count > 0).then(|| Self {
            mean: us(gaps.total) / gaps.count as f64,
            longest: us(gaps.longest),
            share: gaps.total.as_secs_f64() / makespan.as_secs_f64().max(f64::MIN_POSITIVE),
        })
    }
}

/// Runs the queue; exit code 1 where a job failed, 128 + signal where one asked to stop.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let specs = jobs::parse(&args.file, &read(&args.file)?)?;
    let (topology, machine) = settings::live_machine(None)?;
    let cpus = args.cpus.as_deref().map(|text| settings::user_cpus(text, &topology)).transpose()?;
    let usable = cpus.as_ref().map_or_else(|| topology.usable().clone(), |cpus| cpus.and(topology.usable()));
    let apps = profiles(args, &topology, &specs)?;
    let (rival, chosen) = choose(args.policy, &topology, &apps, &specs, usable.len())?;
    let limits = limits(args, rival, usable.len(), &specs)?;
    let logs = args.logs.clone().unwrap_or_else(|| default_logs(&args.file));
    std::fs::create_dir_all(&logs).map_err(|e| usage(format!("{}: {e}; name a folder with --logs", logs.display())))?;
    let (ledger, earlier) = Ledger::open(&logs, &specs, args.resume)?;
    let shared = Shared(Rc::new(RefCell::new(Jobs::new(specs, limits, &logs, ledger, &earlier))));
    wait_for_left(&shared, &earlier)?;

    let method = match (rival, args.pause) {
        (Rival::Linux | Rival::Fifo | Rival::Auto, _) => None,
        (_, how) => Some(method(how)?),
    };
    let config = Config {
        interval: args.quantum,
        settings: Settings::default().with::<CoSchedule>(&QuantumSettings { quantum: args.quantum }),
        ..Config::default()
    };
    let policy = policy_of(rival, &config);
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    policy.check(&ctx).map_err(|refusal| usage(refusal.to_string()))?;
    let mode = if method.is_some() { Mode::Enforce } else { Mode::Observe };
    let pause = method.as_ref().map(Method::mechanism);
    let options = HostOptions {
        cpus,
        act: method.is_some(),
        signals: Some(SIGNALS.to_vec()),
        profiles: apps.clone(),
        method,
        ..HostOptions::default()
    };
    let (start, cpu_before) = (Instant::now(), sys::own_cpu_time());
    let host = LinuxHost::new(&topology, Vec::new(), options)?;
    let mut live = host.with_queue(Box::new(shared.clone()), args.grace);
    let mut screen = Screen::new(!args.quiet && !args.json);
    let mut decided = std::collections::BTreeSet::new();
    let ended = host::drive(&mut live, policy.as_ref(), &ctx, mode, |round| {
        let mut jobs = shared.0.borrow_mut();
        account(&mut jobs, round);
        decided.extend(round.decision.iter().flat_map(|d| d.notes.iter().cloned()));
        screen.show(&jobs, start.elapsed());
    });
    drop(screen);
    let makespan = start.elapsed();
    let (tier, gaps, live_notes) = (live.tier().to_string(), live.gaps(), live.notes());
    let end = live.finish();
    let jobs = shared.0.borrow();
    let mut notes: Vec<String> = decided.into_iter().chain(live_notes).collect();
    notes.extend(end.restored.notes);
    notes.extend(jobs.notes.iter().cloned());
    let silent = jobs.all.iter().filter(|job| job.spec.memory.is_none()).count();
    if silent > 0 && silent < jobs.all.len() {
        notes.push(format!(
            "{} not say how much memory they need: they count as needing none",
            count(silent as u64, "job") + if silent == 1 { " does" } else { " do" }
        ));
    }
    let summary = Summary {
        policy: rival.name(),
        chosen,
        pause,
        quantum_ms: args.quantum.as_secs_f64() * 1e3,
        cpus: usable.len(),
        makespan_s: makespan.as_secs_f64(),
        jobs: jobs.all.iter().map(|job| JobReport::of(job, &logs)).collect(),
        failed: jobs.all.iter().filter(|job| !job.is_ok()).count(),
        quanta: gaps.count,
        gap_us: GapUs::of(&gaps, makespan),
        overhead: sys::own_cpu_time().saturating_sub(cpu_before).as_secs_f64()
            / makespan.as_secs_f64().max(f64::MIN_POSITIVE),
        tier,
        notes,
        signal: end.signal,
    };
    report(&summary, args)?;
    ended.context("the loop ended early; jobs that still run go on")?;
    Ok(match summary.signal {
        Some(signal) => ExitCode::from((128 + signal) as u8),
        None => ExitCode::from(u8::from(summary.failed > 0)),
    })
}

impl Rival {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Linux => "linux",
            Self::Fifo => "fifo",
            Self::Mas => "mas",
            Self::Cas => "cas",
            Self::Das => "das",
            Self::Overhead => "overhead",
        }
    }
}

/// `fifo` starts no more than may run, so that nobody has to wait; `linux` and `overhead` choose nobody.
fn policy_of(rival: Rival, config: &Config) -> Box<dyn DynPolicy> {
    let name = match rival {
        Rival::Mas | Rival::Cas | Rival::Das => rival.name(),
        Rival::Auto | Rival::Linux | Rival::Fifo | Rival::Overhead => "none",
    };
    registry().make(name, config).expect("a name of ours, and sound settings")
}

fn read(file: &Path) -> Result<String> {
    if file != Path::new("-") {
        return settings::read(file);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| usage(format!("standard input: {e}; give a command per line")))?;
    Ok(text)
}

fn default_logs(file: &Path) -> PathBuf {
    if file == Path::new("-") {
        return "cotenant.logs".into();
    }
    let mut name = file.as_os_str().to_owned();
    name.push(".logs");
    name.into()
}

fn profiles(args: &Args, topology: &Topology, specs: &[JobSpec]) -> Result<BTreeMap<String, AppProfile>> {
    let mut apps = if let Some(path) = &args.profiles {
        settings::read_profiles(path)?
    } else {
        let Loaded { apps, notes } =
            Store::of_this_machine(topology).map(|store| store.load(&BTreeMap::new())).unwrap_or_default();
        notes.iter().for_each(tell);
        apps
    };
    apps.retain(|name, _| specs.iter().any(|spec| spec.app == *name));
    for app in apps.values_mut() {
        app.stamp = None;
    }
    for spec in specs {
        let threads = apps.entry(spec.app.clone()).or_default().threads.get_or_insert(1);
        *threads = spec.threads.try_into().unwrap_or(u32::MAX).max(*threads);
    }
    Ok(apps)
}

/// Which policy, and for `auto` why.
fn choose(
    asked: Rival,
    topology: &Topology,
    apps: &BTreeMap<String, AppProfile>,
    specs: &[JobSpec],
    cpus: usize,
) -> Result<(Rival, Option<String>)> {
    if asked != Rival::Auto {
        return Ok((asked, None));
    }
    let threads: usize = specs.iter().map(|spec| spec.threads).sum();
    if threads <= cpus {
        return Ok((
            Rival::Linux,
            Some(format!("{} and {}", count(threads as u64, "thread"), count(cpus as u64, "CPU"))),
        ));
    }
    let counted: Vec<Signal> = probe_tier(topology)?.present.iter().map(|p| p.signal).collect();
    let known = |signal: Signal| {
        let in_profile = |spec: &JobSpec| apps.get(&spec.app).is_some_and(|app| app.per_cpu_s.contains_key(&signal));
        counted.contains(&signal) || specs.iter().all(in_profile)
    };
    if !known(Signal::LlcMisses) {
        let why = "this machine cannot count llc_misses, and not every job has a profile with its rate";
        return Ok((Rival::Fifo, Some(why.to_owned())));
    }
    let shared = topology.llc_domains().len() >= 2
        && topology.llc_domains().iter().any(|domain| domain.cpus.len() > 1)
        && [Signal::PrivateMisses, Signal::L2LinesIn, Signal::L1Misses].into_iter().any(known);
    if !shared {
        return Ok((Rival::Mas, Some("no two caches are shared, or what arrives at them is not known".to_owned())));
    }
    let sensitivity = |app: &AppProfile| app.average_traffic_loss.is_some() || app.degradation.contains_key("memory");
    if specs.iter().any(|spec| apps.get(&spec.app).is_some_and(sensitivity)) {
        return Ok((Rival::Das, Some("the sensitivity of jobs is known".to_owned())));
    }
    Ok((Rival::Cas, Some("what arrives at several shared caches is known".to_owned())))
}

fn limits(args: &Args, rival: Rival, cpus: usize, specs: &[JobSpec]) -> Result<Limits> {
    let memory = args.memory.or_else(cotenant_kernels::available_memory);
    for spec in specs {
        if let (Some(need), Some(memory)) = (spec.memory, memory)
            && need > memory
        {
            return Err(usage(format!(
                "{}:{}: {} needs {need} bytes of memory, and there are {memory}; see --memory",
                args.file.display(),
                spec.line,
                spec.name
            )));
        }
    }
    let programs = args.jobs.map(|n| n as usize);
    Ok(match rival {
        Rival::Linux | Rival::Overhead => Limits { programs, threads: None, memory },
        Rival::Fifo | Rival::Auto => Limits { programs, threads: programs.is_none().then_some(cpus), memory },
        Rival::Mas | Rival::Cas | Rival::Das => {
            Limits { programs: programs.or(Some(PROGRAMS_PER_CPU * cpus)), threads: None, memory }
        }
    })
}

fn method(how: PauseArg) -> Result<Method> {
    let mechanism = match how {
        PauseArg::Auto => return Ok(Method::best()),
        PauseArg::V2 => Mechanism::CgroupV2,
        PauseArg::V1 => Mechanism::CgroupV1,
        PauseArg::Signals => Mechanism::Signals,
    };
    let found = Method::all().into_iter().find(|method| method.mechanism() == mechanism);
    found.ok_or_else(|| usage(format!("{mechanism} cannot be used here; leave --pause out, and see cotenant doctor")))
}

/// Waits for what a killed run has left running. Its guardian, or this, has resumed it.
fn wait_for_left(shared: &Shared, earlier: &Earlier) -> Result<()> {
    if earlier.running.is_empty() {
        return Ok(());
    }
    act::restore(&undo::default_state_dir()?);
    let names: Vec<String> = {
        let jobs = shared.0.borrow();
        earlier.running.iter().map(|(job, ..)| jobs.all[*job].spec.name.clone()).collect()
    };
    tell(format_args!(
        "waiting for what the earlier run has left running: {}; nobody will know its exit code",
        names.join(", ")
    ));
    for &(job, pid, start) in &earlier.running {
        if let Ok(pidfd) = sys::pidfd_open(pid) {
            use std::os::fd::AsFd;
            while ledger::lives(pid, start) {
                sys::poll_readable([Some(pidfd.as_fd())], Duration::from_secs(1))?;
            }
        }
        while ledger::lives(pid, start) {
            std::thread::sleep(Duration::from_millis(100)); // before Linux 5.3
        }
        shared.0.borrow_mut().left_ended(job);
    }
    Ok(())
}

/// Adds what happened since the last sample to the jobs.
fn account(jobs: &mut Jobs, round: &Round<'_>) {
    let seconds = round.view.interval.as_secs_f64();
    let mut rates: BTreeMap<usize, f64> = BTreeMap::new();
    let mut wanted: BTreeMap<usize, f64> = BTreeMap::new();
    for task in &round.view.tasks {
        let Some(&key) = jobs.apps.get(task.info.app.0 as usize) else { continue };
        if task.ran() == Some(true) {
            *wanted.entry(key).or_default() += cpus_wanted(task);
        }
        for &signal in &[
            Signal::CpuTime,
            Signal::LlcMisses,
            Signal::PrivateMisses,
            Signal::L1Misses,
            Signal::L2LinesIn,
            Signal::L3LinesIn,
        ] {
            if let Some(rate) = task.per_s(signal) {
                *jobs.all[key].events.entry(signal).or_default() += rate * seconds;
            }
        }
        if let (Some(rate), Some(true)) = (task.per_s(Signal::LlcMisses), task.ran()) {
            *rates.entry(key).or_default() += rate / 1e6;
        }
    }
    for (key, rate) in rates {
        jobs.all[key].rate = Some(rate);
    }
    for (key, wanted) in wanted {
        jobs.all[key].width = wanted.round() as usize;
    }
}

fn report(summary: &Summary, args: &Args) -> Result<()> {
    if args.json {
        cotenant_cli::print(|out| {
            serde_json::to_writer_pretty(&mut *out, summary)?;
            writeln!(out)?;
            Ok(ExitCode::SUCCESS)
        })?;
        return Ok(());
    }
    if args.quiet {
        return Ok(());
    }
    cotenant_cli::print(|out| {
        let width = summary.jobs.iter().map(|job| job.name.chars().count()).max().unwrap_or(0).clamp(4, NAME);
        writeln!(
            out,
            "{:width$}  {:>12}  {:>8}  {:>9}  {:>8}  LLC misses/µs",
            "job", "result", "attempts", "seconds", "CPU s"
        )?;
        for job in &summary.jobs {
            let result = job
                .exit_code
                .filter(|code| *code != 0)
                .map_or_else(|| job.result.to_owned(), |code| format!("failed ({code})"));
            let rate = job
                .per_cpu_us
                .get(Signal::LlcMisses.name())
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}"));
            writeln!(
                out,
                "{:width$}  {result:>12}  {:>8}  {:>9.2}  {:>8.2}  {rate:>13}",
                cut(&job.name, width),
                job.attempts,
                job.seconds,
                job.cpu_s
            )?;
        }
        let chosen = summary.chosen.as_ref().map(|why| format!(" (auto: {why})")).unwrap_or_default();
        writeln!(
            out,
            "{} under {}{chosen} in {:.2} s, {} failed; own cost {:.2} % of a CPU",
            count(summary.jobs.len() as u64, "job"),
            summary.policy,
            summary.makespan_s,
            summary.failed,
            summary.overhead * 100.0
        )?;
        if let (Some(pause), Some(gap)) = (&summary.pause, &summary.gap_us) {
            writeln!(
                out,
                "{} by {pause}: {:.0} µs from the first stop to the last resume on average, {:.0} at most, {:.2} % of the time",
                count(summary.quanta, "quantum").replace("quantums", "quanta"),
                gap.mean,
                gap.longest,
                gap.share * 100.0
            )?;
        }
        writeln!(out, "counters: {}", summary.tier)?;
        for job in summary.jobs.iter().filter(|job| job.why.is_some()) {
            writeln!(out, "{}: {}", cut(&job.name, NAME), job.why.as_deref().unwrap_or_default())?;
        }
        for note in &summary.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(ExitCode::SUCCESS)
    })?;
    Ok(())
}

/// How long the batch takes still, in words.
fn estimate(done: f64, elapsed: Duration) -> String {
    queue::left(done, elapsed)
        .map_or_else(|| "no estimate yet".to_owned(), |left| format!("about {} left", about(left)))
}

/// Whether a job stands in the live table.
fn is_shown(state: &State) -> bool {
    matches!(state, State::Started { .. })
}
