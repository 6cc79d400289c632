//! The arguments of `cotenant qos`, and their programs.

use super::cast::{Cast, pids, unnamed_metric};
use super::rules;
use crate::run::{recorder, targets};
use anyhow::Result;
use cotenant_cli::messages::count;
use cotenant_cli::usage;
use cotenant_linux::host::{AppSpec, What};
use cotenant_linux::sense::processes::{self, Target};
use cotenant_linux::sys::thread;
use cotenant_model::Mode;
use cotenant_model::speed::Source;
use cotenant_policies::qos::controller::{Controller, PRESETS, Simple};
use cotenant_setup::args::{self, MetricArg, SetArgs};
use cotenant_setup::protect::{Means, are_windowed, usual_interval};
use cotenant_setup::{names, units};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cotenant qos --high-pid 4711 --metric redis:6379:p99 --low 'make -j8'
  cotenant qos --config /etc/cotenant/cotenant.toml    the daemon's rules
  cotenant qos --high './server' --low 'make -j8'      progress that it reports
  cotenant qos --high-pid 4711 --metric 'cmd:./speed' --low 'x264 …' --goal 80%
  cotenant qos --high ./a --low ./b --metric ipc --controller conservative-90";

/// Arguments of `cotenant qos`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
#[allow(clippy::struct_excessive_bools)] // each has its own option
pub struct Args {
    /// A command that keeps its speed; may be repeated
    ///
    /// It is a line for `sh -c`.
    #[arg(long, value_name = "CMD")]
    high: Vec<String>,
    /// The same of running programs, by process id
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = units::pid)]
    high_pid: Vec<u32>,
    /// The same of running programs, by the folder of their control group; may be repeated
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    high_cgroup: Vec<PathBuf>,
    /// A command that gives way; may be repeated
    ///
    /// It is a line for `sh -c`.
    #[arg(long, value_name = "CMD")]
    low: Vec<String>,
    /// The same of running programs, by process id
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = units::pid)]
    low_pid: Vec<u32>,
    /// The same of running programs, by the folder of their control group; may be repeated
    ///
    /// All programs in the group give way.
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    low_cgroup: Vec<PathBuf>,
    /// Rules in the daemon's language that name the programs
    ///
    /// They are about programs that run when it begins, and are read if no option names a program. Keys that concern
    /// only the daemon are ignored. [default: that of cotenant daemon]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to read the high-priority speed [default: progress]
    ///
    /// One for each high-priority program, in their order; the last one is for the rest. progress, `latency_p50_s` and
    /// `latency_p99_s` are what programs report. ipc reads hardware counters. A metric from outside is given as for
    /// cotenant run. Of a running server that reports nothing the default is what its clients wait: `clients:PORT:p99`.
    #[arg(long, value_name = "METRIC", value_parser = args::speed)]
    metric: Vec<MetricArg>,
    /// Go on where a metric is refused: its server comes later, or is about to get a password
    #[arg(long, hide_short_help = true)]
    pub wait_for_metric: bool,
    /// Share of its speed alone that each of them keeps [default: 90%, or that of the controller]
    ///
    /// 1% to 99.9%, as in 90% or 0.9. A latency may grow to its baseline / share.
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    pub goal: Option<f64>,
    /// End with exit code 3 if a goal was missed, and with 4 if it could not be judged
    #[arg(long, hide_short_help = true)]
    pub strict: bool,
    /// What decides how long the others run [default: tracking; steady for latencies and metrics from outside]
    ///
    /// tracking, steady, targeted or targeted-by-speed; conservative-90, relaxed-90 or conservative-80. With --metric
    /// ipc also utilisation-biased, balanced or qos-biased. simple:LOW,HIGH,A/B/C sets naps of A, B or C times 10 ms
    /// if the metric is below LOW, below HIGH, or neither.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    controller: Option<String>,
    /// How programs are throttled
    #[arg(long, value_name = "MEANS", default_value = "auto", hide_short_help = true)]
    pub means: Means,
    /// Longest time between two looks at the speed, from 1ms [default: 100ms; less if a metric from outside is read
    /// more often than once a second]
    ///
    /// The controller also looks at the ends of its phases.
    #[arg(long, value_name = "TIME", value_parser = units::interval, hide_short_help = true)]
    interval: Option<Duration>,
    /// How far it goes [default: enforce]
    #[arg(long, value_name = "MODE", value_parser = args::mode())]
    pub mode: Option<Mode>,
    /// Place only on these CPUs, as in 0-3,8 [default: all that the task itself may use]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub cpus: Option<String>,
    /// Settings of the policy qos
    #[command(flatten)]
    pub set: SetArgs,
    /// Ask the programs that Cotenant started to end after this time
    #[arg(long, value_name = "TIME", value_parser = units::length, hide_short_help = true)]
    pub time: Option<Duration>,
    /// Also look at and pause programs of other users (needs the right to)
    #[arg(long, hide_short_help = true)]
    pub all_users: bool,
    /// Do without BPF, which shows what programs wait for a CPU behind (needs root)
    #[arg(long, hide_short_help = true)]
    pub no_bpf: bool,
    /// What is said
    #[command(flatten)]
    pub output: Output,
    /// Whether and where to record
    #[command(flatten)]
    pub record: recorder::Args,
}

/// What is said.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Print the summary as JSON on standard error
    #[arg(long)]
    pub json: bool,
    /// Print once a second how it stands, also if standard error is no terminal
    #[arg(short, long, hide_short_help = true)]
    pub verbose: bool,
    /// Print no table and no summary
    #[arg(short, long, hide_short_help = true)]
    pub quiet: bool,
}

impl Args {
    /// Commands first, then processes, then groups; by default from the rules of the settings file.
    pub(super) fn cast(&self) -> Result<Cast> {
        let cast = self.named()?;
        apart(&cast)?;
        Ok(cast)
    }

    fn named(&self) -> Result<Cast> {
        if self.low_pid.contains(&1) && descends_from_the_first() {
            return Err(usage(
                "every program here descends from process 1, and would pause: name the low-priority \
                              ones",
            ));
        }
        let twice =
            |pids: &[u32]| pids.iter().enumerate().find(|(i, pid)| pids[..*i].contains(pid)).map(|(_, pid)| *pid);
        if let Some(pid) = twice(&self.high_pid).or_else(|| twice(&self.low_pid)) {
            return Err(usage(format!("process {pid} is named twice; leave one out")));
        }
        let high = programs(&self.high, &self.high_pid, &self.high_cgroup, processes::can_follow, self.all_users)?;
        // What gives way has to be pausable.
        let low = programs(&self.low, &self.low_pid, &self.low_cgroup, processes::can_manage, self.all_users)?;
        if let Some(path) = self.high_cgroup.iter().find(|path| Target::Cgroup((*path).clone()).pids().is_empty()) {
            let (group, remedy) = (path.display(), "start the high-priority program first, or name it with --high");
            return Err(usage(format!("control group {group} is empty; {remedy}")));
        }
        if high.is_empty() && low.is_empty() {
            return rules::cast(self.config.as_deref(), &self.metric, self.all_users, !self.no_bpf);
        }
        if self.config.is_some() {
            return Err(usage("--config names the programs by its rules; leave it out, or --high and --low"));
        }
        if high.is_empty() {
            return Err(usage("no high-priority program is named; add one with --high, --high-pid or --high-cgroup"));
        }
        if low.is_empty() {
            return Err(usage("no low-priority program is named; add one with --low, --low-pid or --low-cgroup"));
        }
        let mut notes = Vec::new();
        let metrics = self.metrics(&high, &mut notes)?;
        Ok(Cast { high, low, metrics, notes, ..Cast::default() })
    }

    /// One for each program of high priority.
    fn metrics(&self, programs: &[AppSpec], notes: &mut Vec<String>) -> Result<Vec<MetricArg>> {
        if self.metric.len() > programs.len() {
            let times = self.metric.len();
            let programs = count(programs.len() as u64, "program");
            return Err(usage(format!("--metric is given {times} times for {programs} of high priority")));
        }
        let mut of = |(i, program)| match self.metric.get(i).or(self.metric.last()) {
            Some(metric) => metric.clone(),
            None => unnamed_metric(program, !self.no_bpf, notes),
        };
        Ok(programs.iter().enumerate().map(&mut of).collect())
    }

    /// The controller, with its goal.
    pub(super) fn controller(&self, metrics: &[MetricArg], goals: &[f64]) -> Result<Controller> {
        let name = self.controller_name(metrics);
        let name = name.as_str();
        let goal = self.goal.or(goals.iter().copied().reduce(f64::max)).unwrap_or(0.9);
        let ipc = metrics.iter().all(|metric| metric.source == Source::Ipc);
        if let Some(parameters) = name.strip_prefix("simple:") {
            let Some(simple) = simple(parameters) else {
                return Err(usage(format!(
                    "simple:{parameters} is not known; give simple:LOW,HIGH,A/B/C, as in simple:0.5,1.0,2/1/0"
                )));
            };
            return if self.goal.is_none() { Ok(Controller::Simple(simple)) } else { Err(goalless(name)) };
        }
        let Some(controller) = Controller::preset(name, goal) else {
            return Err(usage(format!(
                "--controller {name} is not known; use {}, or simple:LOW,HIGH,A/B/C",
                PRESETS.join(", ")
            )));
        };
        if matches!(controller, Controller::Simple(_)) && !ipc {
            return Err(usage(format!(
                "--controller {name} has thresholds of instructions per cycle; use --metric ipc, or simple:LOW,HIGH,A/B/C in the metric's own unit"
            )));
        }
        match (controller.goal(), self.goal) {
            (None, Some(_)) => Err(goalless(name)),
            (Some(own), Some(asked)) if own.to_bits() != asked.to_bits() => {
                Err(usage(format!("--controller {name} has a goal of its own, {} %; leave --goal out", own * 100.0)))
            }
            _ => Ok(controller),
        }
    }

    /// The name of the controller.
    pub fn controller_name(&self, metrics: &[MetricArg]) -> String {
        let usual = if are_windowed(metrics) { "steady" } else { "tracking" };
        self.controller.clone().unwrap_or_else(|| usual.to_owned())
    }

    /// Time between two looks.
    pub fn interval(&self, metrics: &[MetricArg]) -> Duration {
        self.interval.unwrap_or_else(|| usual_interval(metrics))
    }
}

/// Whether this process is among what the first one has started: in a container it may have come from outside.
fn descends_from_the_first() -> bool {
    let parent = |pid: &u32| thread::process_stat(*pid).map(|stat| stat.ppid);
    std::iter::successors(Some(std::process::id()), parent).take_while(|pid| *pid > 0).any(|pid| pid == 1)
}

/// No process may have both priorities.
fn apart(cast: &Cast) -> Result<()> {
    let high: BTreeSet<u32> = cast.high.iter().flat_map(pids).collect();
    match cast.low.iter().flat_map(pids).find(|pid| high.contains(pid)) {
        Some(pid) => Err(usage(format!(
            "process {pid} is of high and of low priority; name it, or a control group that it is in, only once"
        ))),
        None => Ok(()),
    }
}

fn goalless(controller: &str) -> anyhow::Error {
    usage(format!("--controller {controller} goes by thresholds of the speed and has no goal; leave --goal out"))
}

fn programs(
    commands: &[String],
    pids: &[u32],
    cgroups: &[PathBuf],
    may: impl Fn(u32, bool) -> Result<(), String>,
    all_users: bool,
) -> Result<Vec<AppSpec>> {
    let mut programs = Vec::new();
    for line in commands {
        if line.trim().is_empty() {
            return Err(usage("a command is empty; name a program to start"));
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        programs.push(AppSpec::new(names::of_line(line), What::Command(command)));
    }
    for pid in pids {
        let name = names::of_process(*pid).ok_or_else(|| usage(format!("there is no process {pid}")))?;
        may(*pid, all_users).map_err(|why| usage(format!("process {pid} {why}")))?;
        programs.push(AppSpec::new(name, What::Running(Target::Trees(vec![*pid]))));
    }
    for path in cgroups {
        let target = Target::Cgroup(path.clone());
        targets::missing(&target).map_or(Ok(()), |why| Err(usage(why)))?;
        programs.push(AppSpec::new(names::base(path), What::Running(target)));
    }
    Ok(programs)
}

/// `LOW,HIGH,A/B/C`.
fn simple(text: &str) -> Option<Simple> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
    let mut parts = text.split(',');
    let (low, high) = (number(parts.next()?)?, number(parts.next()?)?);
    let naps: Vec<f64> = parts.next()?.split('/').map(number).collect::<Option<_>>()?;
    let naps: [f64; 3] = naps.try_into().ok()?;
    (parts.next().is_none() && low <= high && naps.iter().all(|nap| *nap <= 20.0)).then(|| Simple::new(low, high, naps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_simple() {
        assert_eq!(simple("0.5,1.0,2/1/0"), Some(Simple::new(0.5, 1.0, [2.0, 1.0, 0.0])));
        for text in ["", "1", "1,2", "2,1,1/1/1", "1,2,1/1", "1,2,1/1/1,4", "1,2,1/1/99", "1,2,a/1/1"] {
            assert_eq!(simple(text), None, "{text}");
        }
    }
}
