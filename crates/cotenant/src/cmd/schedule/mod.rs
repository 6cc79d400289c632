//! `cotenant schedule`: a queue of more jobs than CPUs.

mod args;
pub(crate) mod jobs;
mod ledger;
mod queue;
mod report;
mod screen;

use crate::run::Run;
use anyhow::Result;
pub use args::Args;
use args::{Discipline, PauseArg};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::usage;
use cotenant_linux::act::pause::{Mechanism, Method};
use cotenant_linux::host::queue::SIGNALS;
use cotenant_linux::host::{HostOptions, probe_tier};
use cotenant_linux::sys;
use cotenant_linux::{act, undo};
use cotenant_model::policy::{Config, Settings};
use cotenant_model::profile::AppProfile;
use cotenant_model::{Mode, Signal, Topology};
use cotenant_policies::{CoSchedule, QuantumSettings};
use cotenant_setup::settings::{self, Decider, Setup};
use cotenant_setup::{files, registry::registry};
use jobs::JobSpec;
use ledger::{Earlier, Ledger, Start};
use queue::{JobReport, Jobs, Limits, Shared};
use report::{GapUs, Report};
use screen::Screen;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// Limit of simultaneously started programs per CPU, with pausable jobs.
const PROGRAMS_PER_CPU: usize = 4;

/// Runs the queue; exit code 1 if a job failed, 128 + signal on a requested stop.
///
/// # Errors
/// One line with the fault, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    let specs = jobs::parse(&args.file, &files::read_or_input(&args.file)?)?;
    let (machine, cpus) = settings::machine_within(args.cpus.as_deref())?;
    let topology = &machine.0;
    let usable = topology.usable().len();
    let apps = profiles(args, topology, &specs)?;
    let (rival, chosen) = match args.policy {
        Discipline::Auto => choose(topology, &apps, &specs).map(|(rival, why)| (rival, Some(why)))?,
        asked => (asked, None),
    };
    let limits = limits(args, rival, usable, &specs)?;
    let config = config(args)?;
    let quantum = config.interval;
    let policy = registry().make(rival.policy(), &config).map_err(usage)?;
    let mut setup = Setup::of(machine, cpus, apps, Decider::all(policy, config))?;
    setup.mode = if rival.pauses() { Mode::Enforce } else { Mode::Observe };
    let names = specs.iter().map(|spec| spec.name.clone()).collect();
    let mut run = Run::new(&setup, args.record.target(), names)?;

    let logs = args.logs.clone().unwrap_or_else(|| default_logs(&args.file));
    undo::open_dir(&logs).map_err(|e| usage(format!("{}: {e}; name a folder with --logs", logs.display())))?;
    let (ledger, earlier) = Ledger::open(&logs, &specs, Start::of(args))?;
    let shared = Shared(Rc::new(RefCell::new(Jobs::new(specs, limits, &logs, ledger, &earlier))));
    wait_for_left(&shared, &earlier)?;

    let method = if rival.pauses() { Some(method(args.pause)?) } else { None };
    let pause = method.as_ref().map(Method::mechanism);
    run.options = HostOptions { signals: Some(SIGNALS.to_vec()), method, ..run.options };
    run.queue = Some((Box::new(shared.clone()), args.grace));
    run.told = !args.quiet && !args.json;
    run.view = if run.told { screen::live_view() } else { None };
    let mut screen = Screen::new(shared.clone());
    let mut run = run.go(&mut [&mut screen])?;
    let jobs = shared.0.borrow();
    let failed = jobs.all.iter().filter(|job| job.has_failed()).count();
    run.policy = rival.name();
    run.exit_code = run.signal.map_or(u8::from(failed > 0), |signal| (128 + signal) as u8);
    let makespan = screen.makespan;
    let report = Report {
        run: &run,
        chosen,
        pause,
        quantum_ms: quantum.as_secs_f64() * 1e3,
        cpus: usable,
        makespan_s: makespan.as_secs_f64(),
        jobs: jobs.all.iter().map(|job| JobReport::of(job, &logs)).collect(),
        failed,
        left: jobs.all.iter().filter(|job| job.is_left()).count(),
        quanta: screen.gaps.count,
        gap_us: GapUs::of(&screen.gaps, makespan),
    };
    report.print(args)?;
    run.exit()
}

impl Start {
    fn of(args: &Args) -> Self {
        match (args.resume, args.anew) {
            (true, _) => Self::Resume,
            (_, true) => Self::Anew,
            _ => Self::First,
        }
    }
}

/// The quantum, with the changes by `--set`.
fn config(args: &Args) -> Result<Config> {
    let quantum = QuantumSettings { quantum: args.quantum, ..QuantumSettings::default() };
    let mut settings = Settings::default().with::<CoSchedule>(&quantum);
    let policies = match args.policy {
        Discipline::Auto => vec![Discipline::Mas, Discipline::Cas, Discipline::Das],
        named => vec![named],
    };
    args.set.apply(&mut settings, policies.into_iter().map(Discipline::policy))?;
    let interval = settings.of::<CoSchedule>()?.quantum;
    Ok(Config { interval, settings, ..Config::default() })
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
    let is_wanted = |name: &str| specs.iter().any(|spec| spec.app == name);
    let mut apps = settings::profiles_here(args.profiles.as_deref(), topology, &BTreeMap::new(), is_wanted)?;
    for spec in specs {
        let threads = apps.entry(spec.app.clone()).or_default().threads.get_or_insert(1);
        *threads = spec.threads.try_into().unwrap_or(u32::MAX).max(*threads);
    }
    Ok(apps)
}

/// The choice of `auto`, with the reason.
fn choose(topology: &Topology, apps: &BTreeMap<String, AppProfile>, specs: &[JobSpec]) -> Result<(Discipline, String)> {
    let (threads, cpus) = (specs.iter().map(|spec| spec.threads).sum::<usize>(), topology.usable().len());
    if threads <= cpus {
        let (threads, cpus) = (count(threads as u64, "thread"), count(cpus as u64, "CPU"));
        return Ok((Discipline::Linux, format!("{threads} and {cpus}")));
    }
    let counted: Vec<Signal> = probe_tier(topology)?.present.iter().map(|p| p.signal).collect();
    let known = |signal: Signal| {
        let in_profile = |spec: &JobSpec| apps.get(&spec.app).is_some_and(|app| app.per_cpu_s.contains_key(&signal));
        counted.contains(&signal) || specs.iter().all(in_profile)
    };
    let shared = topology.llc_domains().len() >= 2
        && topology.llc_domains().iter().any(|domain| domain.cpus.len() > 1)
        && [Signal::PrivateMisses, Signal::L2LinesIn, Signal::L1Misses].into_iter().any(known);
    let sensitivity = |app: &AppProfile| app.average_traffic_loss.is_some() || app.degradation.contains_key("memory");
    let (rival, why) = if !known(Signal::LlcMisses) {
        (Discipline::Fifo, "this machine cannot count llc_misses, and not every job has a profile with its rate")
    } else if !shared {
        (Discipline::Mas, "no two caches are shared, or what arrives at them is not known")
    } else if specs.iter().any(|spec| apps.get(&spec.app).is_some_and(sensitivity)) {
        (Discipline::Das, "the sensitivity of jobs is known")
    } else {
        (Discipline::Cas, "what arrives at several shared caches is known")
    };
    Ok((rival, why.to_owned()))
}

fn limits(args: &Args, rival: Discipline, cpus: usize, specs: &[JobSpec]) -> Result<Limits> {
    let memory = args.memory.or_else(cotenant_kernels::available_memory);
    for spec in specs {
        if let (Some(need), Some(memory)) = (spec.memory, memory)
            && need > memory
        {
            let (file, JobSpec { line, name, .. }) = (args.file.display(), spec);
            let why = format!("{name} needs {need} bytes of memory, and there are {memory}; see --memory");
            return Err(usage(format!("{file}:{line}: {why}")));
        }
    }
    let programs = args.jobs.map(|n| n as usize);
    Ok(match rival {
        Discipline::Linux | Discipline::Overhead => Limits { programs, threads: None, memory },
        Discipline::Fifo | Discipline::Auto => Limits { programs, threads: programs.is_none().then_some(cpus), memory },
        Discipline::Mas | Discipline::Cas | Discipline::Das => {
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

/// Waits for running jobs of a killed run. Its guardian, or this process, has resumed them.
fn wait_for_left(shared: &Shared, earlier: &Earlier) -> Result<()> {
    if earlier.running.is_empty() {
        return Ok(());
    }
    act::restore(&undo::default_state_dir()?);
    let names: Vec<String> = {
        let jobs = shared.0.borrow();
        earlier.running.iter().map(|(job, ..)| jobs.all[*job].spec.name.clone()).collect()
    };
    let names = names.join(", ");
    tell(format_args!("waiting for what the earlier run has left running: {names}; its exit code stays unknown"));
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
