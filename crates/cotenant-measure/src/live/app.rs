//! This machine as the bench on which characterization runs an application.

use super::leftovers::{children, end, end_orphans};
use crate::characterize::caches::{self, Geometry, Misses};
use crate::characterize::{Bench, Beside, RunResult, Stop, Trial};
use cotenant_cli::messages::{count, tell};
use cotenant_cli::progress::{Progress, REDRAW, about};
use cotenant_cli::scratch::Scratch;
use cotenant_kernels::{Caches, Config, Kernel, Report};
use cotenant_linux::host::{AppSpec, HostOptions, LinuxHost};
use cotenant_linux::sense::executable;
use cotenant_linux::sys;
use cotenant_linux::sys::launch::{self, Child};
use cotenant_linux::sys::waiter::{Event, Waiter};
use cotenant_model::sample::Sample;
use cotenant_model::signal::{Counters, Signal};
use cotenant_model::{CpuSet, Host, TaskId, Time, Topology, Wake};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sampling interval. What a thread does after its last sample is not counted.
const LOOK: Duration = Duration::from_millis(50);
/// Duration of a kernel's run alone.
const KERNEL: Duration = Duration::from_millis(250);
/// Limit of the wait for a kernel's first progress.
const PREPARED: Duration = Duration::from_secs(30);

/// Only its summary is read.
const NO_FILE: &str = "--cachegrind-out-file=/dev/null";

const LEFT: &str =
    "the command left processes behind when it ended; they were ended, and what they did is not in the figures";

fn timed_out(after: Duration) -> Stop {
    Stop::Failed(format!(
        "the command still ran after {:.1} s and was ended; give it less to do, or more time with --timeout",
        after.as_secs_f64()
    ))
}

fn failure(code: u8) -> Stop {
    Stop::Failed(format!(
        "the command failed with exit code {code}; a failing run cannot be measured; see its own messages with --show-output"
    ))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(why: impl std::fmt::Display) -> Stop {
    Stop::Failed(why.to_string())
}

/// Units per second of CPU time of all threads of a kernel at full speed, nearly independent of other programs.
pub fn pace(report: &Report) -> f64 {
    report.threads.iter().map(|thread| thread.units as f64 / thread.cpu_seconds.max(1e-9)).sum()
}

/// Runs one command on this machine.
pub struct AppBench<'a> {
    pub(super) topology: &'a Topology,
    pub(super) command: Vec<OsString>,
    name: String,
    /// Whether its own output is shown.
    shown: bool,
    /// The limit of a run.
    timeout: Duration,
    progress: Progress,
    /// Progress, and the current activity.
    doing: (f64, String),
    /// Remarks on the command's behaviour.
    pub notes: BTreeSet<String>,
    /// Whether it announces the expected duration.
    pub says: bool,
    /// Parallel runs on simulated caches.
    pub at_once: usize,
    waiter: Waiter,
    stopped: bool,
}

impl<'a> AppBench<'a> {
    /// Runs are called `name` and end after `timeout`; `shown`: the command's own output is shown.
    ///
    /// # Errors
    /// If signals cannot be awaited.
    pub fn new(
        topology: &'a Topology,
        command: Vec<OsString>,
        name: String,
        shown: bool,
        timeout: Duration,
        progress: Progress,
    ) -> io::Result<Self> {
        // Before any thread starts, because signals are blocked in all of them.
        let waiter = Waiter::new()?;
        Ok(Self {
            topology,
            command,
            name,
            shown,
            timeout,
            progress,
            doing: (0.0, "first run".to_owned()),
            notes: BTreeSet::new(),
            says: false,
            at_once: 1,
            waiter,
            stopped: false,
        })
    }

    fn look(&mut self) -> bool {
        self.show(None);
        self.stopped |= matches!(self.waiter.wait(Some(Instant::now())), Ok(Event::Signal(_)));
        !self.stopped
    }

    /// Shows progress; the instant is the start of the current run.
    fn show(&mut self, since: Option<Instant>) {
        let (done, what) = &self.doing;
        self.progress.show(*done, || match since {
            Some(since) => format!("{what}, {}", about(since.elapsed())),
            None => what.clone(),
        });
    }

    /// The command with its placeholders filled in.
    fn words(&self, cpus: &CpuSet) -> Vec<OsString> {
        let fill = |word: &OsString| match word.to_str() {
            Some(text) => {
                text.replace("{threads}", &cpus.len().to_string()).replace("{cpus}", &cpus.to_string()).into()
            }
            None => word.clone(),
        };
        self.command.iter().map(fill).collect()
    }

    fn quiet(&self, words: &[OsString]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        if !self.shown {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        command
    }

    /// Runs a command to its end on these CPUs.
    fn launch(&mut self, words: &[OsString], cpus: &CpuSet) -> Result<RunResult, Stop> {
        // The child inherits this thread's mask, which belongs to this process only and needs no restoring.
        let own = sys::getaffinity(0).map_err(failed)?;
        sys::setaffinity(0, &cpus.and(&own)).map_err(|e| failed(format!("CPUs {cpus} cannot be used: {e}")))?;
        let before = sys::children_cpu_time();
        let ours = children();
        let begin = Instant::now();
        let app = AppSpec::command(self.name.clone(), self.quiet(words));
        let host = LinuxHost::new(self.topology, vec![app], HostOptions::default());
        sys::setaffinity(0, &own).map_err(failed)?;
        let mut host = host.map_err(failed)?;
        let mut tally = Tally::default();
        loop {
            let wake = host.wait(Time::default() + begin.elapsed() + LOOK);
            if wake == Wake::Exit {
                break;
            }
            self.show(Some(begin));
            tally.add(host.sample().map_err(failed)?);
            if host.is_asked_to_stop() {
                end(&mut host);
                return Err(Stop::Interrupted);
            }
            if begin.elapsed() > self.timeout {
                end(&mut host);
                return Err(timed_out(self.timeout));
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let left = end(&mut host) + end_orphans(&ours); // a process that lived only between two looks is in no sample
        if left > 0 {
            self.notes.insert(LEFT.to_owned());
        }
        let units = host.reported().map(|reported| reported.units as f64);
        let asked = host.is_asked_to_stop();
        let code = host.finish().exit_code;
        let used = sys::children_cpu_time().saturating_sub(before).as_secs_f64();
        match (asked, code) {
            (true, _) => Err(Stop::Interrupted),
            (false, 0) => Ok(RunResult { seconds, cpu_s: Some(used), units, ..tally.ran() }),
            (false, code) => Err(failure(code)),
        }
    }

    /// The command under cachegrind.
    fn simulated(&self, first: Geometry, last: Geometry, folder: &Summaries) -> Result<Vec<OsString>, Stop> {
        if executable::find(OsStr::new("valgrind")).is_none() {
            return Err(Stop::Missing("valgrind, whose cachegrind simulates caches, is not installed".to_owned()));
        }
        let options = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--trace-children=yes", NO_FILE];
        let log = format!("--log-file={}/%p", folder.0.path().display());
        let (first, last) = (first.option(), last.option());
        let caches = [format!("--I1={first}"), format!("--D1={first}"), format!("--LL={last}")];
        let options = options.iter().map(OsString::from).chain([log].into_iter().chain(caches).map(OsString::from));
        Ok(options.chain(self.words(self.topology.usable())).collect())
    }

    /// Runs several commands in parallel, each to its end.
    fn side_by_side(&mut self, all: &[&[OsString]]) -> Result<(), Stop> {
        let ours = children();
        let done = Waiter::new().map_err(failed).and_then(|mut waiter| {
            let mut running = BTreeSet::new();
            for words in all {
                let child = Child::spawn_command(self.quiet(words)).map_err(failed)?;
                running.insert(child.pid());
                waiter.watch(&child, false);
            }
            let begin = Instant::now();
            let deadline = begin + self.timeout;
            while !running.is_empty() {
                self.show(Some(begin));
                let wake = if self.progress.is_on() { deadline.min(Instant::now() + REDRAW) } else { deadline };
                match waiter.wait(Some(wake)).map_err(failed)? {
                    Event::Exited(pid, status, _) if status.success() => {
                        running.remove(&pid);
                    }
                    Event::Exited(_, status, _) => loop {
                        // A signal that ended the command reaches this process too, and gives the reason.
                        match waiter.wait(Some(Instant::now())) {
                            Ok(Event::Signal(_)) => return Err(Stop::Interrupted),
                            Ok(Event::Tick) | Err(_) => return Err(failure(launch::exit_code(status))),
                            Ok(_) => {}
                        }
                    },
                    Event::Signal(_) => return Err(Stop::Interrupted),
                    Event::Tick if Instant::now() >= deadline => return Err(timed_out(self.timeout)),
                    Event::Tick => {}
                }
            }
            Ok(())
        });
        let left = end_orphans(&ours);
        if left > 0 && done.is_ok() {
            self.notes.insert(LEFT.to_owned());
        }
        done
    }

    fn kernel(beside: &Beside, caches: Caches, length: Option<Duration>) -> Result<(&'static Kernel, Config), Stop> {
        let kernel = Kernel::by_name(&beside.kernel)
            .ok_or_else(|| Stop::Failed(format!("there is no kernel {}; see cotenant kernel --list", beside.kernel)))?;
        let config = Config {
            duration: length,
            rate: beside.rate,
            cpus: beside.cpus.clone(),
            ..Config::new(beside.cpus.len(), caches)
        };
        Ok((kernel, config))
    }
}

/// Observations of a program.
#[derive(Default)]
struct Tally {
    last: BTreeMap<TaskId, Counters>,
    alive: usize,
    most: usize,
}

impl Tally {
    fn add(&mut self, sample: Sample) {
        self.alive = sample.tasks.len();
        self.most = self.most.max(self.alive);
        self.last.extend(sample.tasks.into_iter().map(|task| (task.info.id, task.counters)));
    }

    fn ran(&self) -> RunResult {
        let mut counts: BTreeMap<Signal, (f64, usize)> = BTreeMap::new();
        for (signal, count) in self.last.values().flat_map(Counters::iter) {
            let scale = if count.running_ns > 0 { count.enabled_ns as f64 / count.running_ns as f64 } else { 1.0 };
            let (sum, tasks) = counts.entry(signal).or_default();
            (*sum, *tasks) = (*sum + count.value as f64 * scale, *tasks + 1);
        }
        // A signal missing for some threads, or for threads that ended between two looks, would understate the cost.
        let whole = self.alive == self.last.len();
        let counts: BTreeMap<Signal, f64> = counts
            .into_iter()
            .filter(|(_, (_, tasks))| whole && *tasks == self.last.len())
            .map(|(signal, (sum, _))| (signal, sum))
            .collect();
        RunResult { cycles: counts.get(&Signal::Cycles).copied(), threads: self.most, counts, ..RunResult::default() }
    }
}

impl Bench for AppBench<'_> {
    fn run(&mut self, trial: &Trial) -> Result<RunResult, Stop> {
        let words = self.words(&trial.cpus);
        let Some(beside) = &trial.beside else { return self.launch(&words, &trial.cpus) };
        let (kernel, config) = Self::kernel(beside, Caches::of(self.topology), None)?;
        let (done, units) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (done, units) = (&done, &units);
            let runner = scope.spawn(move || {
                let counter = |_: usize| units;
                kernel.run(&config, Some(&counter), &mut || !done.load(Ordering::Relaxed))
            });
            // Its memory is initialized before the application starts.
            let patience = Instant::now() + PREPARED;
            while units.load(Ordering::Relaxed) == 0 && !runner.is_finished() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
            let ran = self.launch(&words, &trial.cpus);
            done.store(true, Ordering::Relaxed);
            let report = runner.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
            let report: Report = report.map_err(|e| Stop::Failed(format!("{}: {e}", kernel.name)))?;
            let per_s = if beside.rate.is_some() { report.per_second() } else { pace(&report) };
            Ok(RunResult { beside_per_s: Some(per_s), ..ran? })
        })
    }

    fn alone(&mut self, beside: &Beside) -> Result<f64, Stop> {
        let (kernel, config) = Self::kernel(beside, Caches::of(self.topology), Some(KERNEL))?;
        let report = kernel.run(&config, None, &mut || self.look());
        let report = report.map_err(|e| Stop::Failed(format!("{}: {e}", kernel.name)))?;
        if self.stopped { Err(Stop::Interrupted) } else { Ok(pace(&report)) }
    }

    fn simulate(&mut self, caches: &[[Geometry; 2]]) -> Result<Vec<Misses>, Stop> {
        let (topology, mut runs) = (self.topology, Vec::new());
        for [first, last] in caches {
            let folder = Summaries::new()?;
            runs.push((self.simulated(*first, *last, &folder)?, folder));
        }
        let mut units = None;
        match &runs[..] {
            // A single run reports its own units.
            [(words, _)] => units = self.launch(words, topology.usable())?.units.map(|units| units as u64),
            all => self.side_by_side(&all.iter().map(|(words, _)| words.as_slice()).collect::<Vec<_>>())?,
        }
        runs.iter().map(|(_, folder)| Ok(Misses { units, ..folder.sum()? })).collect()
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn goes_on(&mut self, done: f64, what: &str) -> bool {
        self.doing = (done, what.to_owned());
        self.look()
    }

    fn expect(&mut self, runs: usize, simulated: usize, seconds: f64) {
        if !self.says {
            return;
        }
        self.progress.clear();
        let (time, runs) = (about(Duration::from_secs_f64(seconds)), count(runs as u64, "run"));
        let side = if self.at_once > 1 { format!(", {} side by side", self.at_once) } else { String::new() };
        let besides = match simulated {
            0 => String::new(),
            n => format!(", and {} on simulated caches, each 20 to 100 times as long{side}", count(n as u64, "run")),
        };
        tell(format_args!(
            "{runs} to come, about {time} by the first{besides}; Ctrl-C ends it, and nothing is written"
        ));
    }
}

/// Output of the processes of one run on simulated caches, one file each at their ends.
struct Summaries(Scratch);

impl Summaries {
    fn new() -> Result<Self, Stop> {
        Scratch::new("cachegrind").map(Self).map_err(unkept)
    }

    /// A process that executed another program has no summary; the other program has.
    fn sum(&self) -> Result<Misses, Stop> {
        let mut all = Misses::default();
        for log in fs::read_dir(self.0.path()).map_err(unkept)? {
            let text = fs::read_to_string(log.map_err(unkept)?.path()).map_err(unkept)?;
            let Ok(one) = caches::parse(&text) else { continue };
            all.instructions += one.instructions;
            all.references += one.references;
            all.first_misses += one.first_misses;
            all.misses += one.misses;
        }
        if all.references == 0 {
            return Err(Stop::Missing("cachegrind gave no summary; it needs valgrind 3.15 or newer".to_owned()));
        }
        Ok(all)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unkept(why: io::Error) -> Stop {
    Stop::Failed(format!("the simulated caches' results cannot be kept: {why}"))
}
