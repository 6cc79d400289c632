//! The command line's definitions; `cargo xtask man` and `cargo xtask completions` read them too.

use crate::cmd;
use crate::registry;
use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use cotenant_cli::usage;
use cotenant_linux::sense::memory::Choice;
use cotenant_model::Mode;
use cotenant_model::metric::Metric;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Settings, settings};
use cotenant_policies::{AtomConfig, SamConfig};
use std::path::PathBuf;
use std::time::Duration;

/// Places and throttles the threads of co-located programs: those that share data sit together, those that fight over
/// caches and memory sit apart. Says why, and undoes everything when it ends.
#[derive(Debug, Parser)]
#[command(name = "cotenant", version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands. What each does is said here alone: the first line in the list of commands, all of it in its own
/// help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a command and manage it; its exit code and signals pass through
    ///
    /// The command keeps its terminal, standard streams, process group and signals: Ctrl-C and Ctrl-Z do what they
    /// always do, and SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 that are sent to cotenant are passed on.
    /// The exit code is the command's own, 128 + signal if a signal ended it, 127 if it was not found, 126 if it
    /// cannot be executed. A short summary follows on standard error, and every changed mask is given back.
    ///
    /// Without --, everything from the command on belongs to the command.
    Run(cmd::run::Args),
    /// Manage programs that run already
    ///
    /// Ends when the targets end, or when Ctrl-C, SIGTERM or SIGHUP asks it to stop, with exit code 0; then every
    /// changed mask is given back. The targets are never signalled. Cotenant itself is never managed.
    ///
    /// Threads are placed on CPUs that Cotenant may use itself, and on those that the targets may use when it
    /// attaches: their cpuset may be another one, such as a partition.
    Attach(cmd::attach::Args),
    /// Did it help? Run a command in turn with and without Cotenant
    ///
    /// The order alternates from pair to pair, so that drift hits both sides alike. The answer is the speed-up (time
    /// without / time with, geometric mean) with its 95 % confidence interval; the verdict is "faster" or "slower"
    /// only if the interval excludes 1. A run that fails ends the comparison with exit code 1; Ctrl-C ends it with
    /// the complete pairs and exit code 128 + signal.
    Compare(cmd::compare::Args),
    /// The same for a workload of many programs that come and go
    ///
    /// The programs of the file start real processes on this machine; if the file names a `machine`, they are
    /// simulated there. Each workload runs as often as the file says, in turn left to Linux and under each policy.
    /// The answer is the average response time and the throughput of each, with the improvement over Linux, its 95 %
    /// confidence interval, and a paired t-test. A program that fails or takes longer than `timeout_s` ends it with
    /// exit code 1; Ctrl-C ends it with the complete rounds and exit code 128 + signal. Either way nothing is left
    /// running.
    Bench(cmd::bench::Args),
    /// Record raw samples of a command, or of programs that run already
    ///
    /// By default it only observes. With --mode advise or enforce the decisions and what became of them are recorded,
    /// too. The recording is self-contained: `cotenant replay` and `cotenant why` read it on any machine.
    Record(cmd::record::Args),
    /// What would another policy have decided on a recording?
    ///
    /// Each round is decided anew from the recorded samples. The placements stay the recorded ones, whatever is
    /// decided: the answer is about single decisions and says nothing about speed. Moves that only the recorded
    /// policy made are marked `-`, those that only the replayed one makes `+`, and those of both `=`. A policy that
    /// needs thresholds which neither the recording nor --profile has refuses with exit code 2.
    Replay(cmd::replay::Args),
    /// Why was a task moved or not, an application throttled or not?
    ///
    /// The rates beside each move are those of the rounds up to the decision and, behind the bar, of the rounds after
    /// it. The exit code is 1 if the recording has nothing of that name.
    Why(cmd::why::Args),
    /// One page with tables and figures from recordings, simulations and reproductions
    ///
    /// The page is one HTML file that needs nothing else: no network, no scripts. Nothing is written unless all files
    /// are understood (exit code 2). What is damaged in a recording is left out, and page and standard error say so.
    Report(cmd::report::Args),
    /// One decision from files, printed with its reasons
    ///
    /// Nothing is changed and nothing of this machine is read: any machine and any situation can be tried.
    Decide(cmd::decide::Args),
    /// What this machine can measure and do, what is missing, and the least that would help
    ///
    /// ✓ is there, ~ is there in part, ✗ is missing, with what that costs and the least-privileged remedy. Changes
    /// nothing. Whether progress reports can be received is tried with a report of its own.
    Doctor(cmd::doctor::Args),
    /// Undo whatever a killed Cotenant left behind
    ///
    /// Needed only if Cotenant and its guardian process were both killed at once. Masks that another program has
    /// changed since are left alone. The exit code is 1 if something could not be given back.
    Restore(cmd::restore::Args),
    /// Which CPUs share what: caches, cores, memory nodes and distances of a machine
    Topo(cmd::topo::Args),
    /// Measure this machine once: thresholds, latencies, bandwidths
    ///
    /// Takes some seconds to minutes and keeps the machine busy meanwhile; best while nothing else runs. Writes a
    /// profile that the policies find by themselves. What this machine cannot tell is left out, with the reason. If
    /// interrupted, it writes nothing, and the exit code is 1.
    Calibrate(cmd::calibrate::Args),
    /// Measure an application once: what sharing costs it, what it costs others, how much cache it needs
    ///
    /// Runs the command from its start to its end, again and again: alone on CPUs that share a resource and on CPUs
    /// that do not, beside programs of known behaviour, and on simulated caches. Takes the command's own time × 2 ×
    /// shared resources × --runs, and as much again for everything that runs beside it; best while nothing else runs.
    /// The profile goes into the store, where policies find it. The command's standard input is empty. If the command
    /// fails, is too short or too long, or if interrupted, it writes nothing, leaves nothing of the command running,
    /// and the exit code is 1.
    Characterize(cmd::characterize::Args),
    /// Run a micro-benchmark, a program whose behaviour is known, and say how fast it was
    ///
    /// Sharing at a set ratio, memory bandwidth and latency, cache footprints, computation. Ctrl-C, SIGTERM or SIGHUP
    /// ends one early with the result so far and exit code 0. The exit code is 2 if the name, a size, a number of
    /// threads or a CPU is not possible here, and 1 if a limit of the system stands against it, or a checked result
    /// is wrong.
    Kernel(cmd::kernel::Args),
    /// List, show, remove, export and import what was measured of applications
    ///
    /// The profiles are below the data folder, one TOML file per machine and application, to be read and edited.
    /// Policies that need profiles find them there; --profiles takes precedence. NAME is what `list` shows, or the
    /// application alone if there is one build of it. A damaged file is named with line and column, and the others
    /// are used.
    Profiles(cmd::profiles::Args),
    /// Keep high-priority programs at their goal; the low-priority ones run less
    ///
    /// Measures how fast the high-priority programs are while the low-priority ones run and while they nap, and
    /// throttles these no more than the goal asks for. Programs that were built by `cotenant cc` nap by themselves;
    /// all others are paused. Ends when the high-priority programs and all that were started have ended; whatever
    /// happens to Cotenant, nothing stays paused. The exit code is that of the first high-priority program, 128 +
    /// signal if a signal ended it, 0 if it was not started here.
    ///
    /// Commands are lines for `sh -c`. Low-priority commands lead sessions of their own and get the signals that
    /// cotenant gets. No program may have both priorities. A control group that naps is frozen as a whole, with those
    /// below it, so it is refused if Cotenant itself is in it, or a process that is to be left alone: another user's
    /// (without --all-users), a real-time one, or one that another Cotenant manages.
    Qos(cmd::qos::Args),
    /// Find the contentious code of a command: how much it brings into shared caches
    ///
    /// Samples the processor's counters, or runs the command under cachegrind, with this machine's cache sizes in the
    /// nearest geometry that it can simulate: some fifty times slower, and the same each time. Writes a region file,
    /// which `cotenant cc` reads, the most contentious function first. Build the command with -g or
    /// -gline-tables-only. The exit code is the command's own.
    Regions(cmd::regions::Args),
    /// Clang for C with the compiler pass: the program naps when Cotenant orders it, or by itself
    ///
    /// Takes any command line of clang, and becomes clang: exit code, output and signals are its own, --help and
    /// --version too. Needs clang 19 and the pass, which scripts/install-pass builds and installs. If one of these or
    /// libcotenant is missing, or an option below is wrong, the exit code is 2.
    ///
    /// When clang is about to link a program, the mode `markers` adds libcotenant (statically: the program runs where
    /// there is no Cotenant), and -flto the linker lld with the pass.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Cc(cmd::cc::Args),
    /// The same for C++
    ///
    /// See `cotenant help cc`.
    #[command(name = "c++", disable_help_flag = true, disable_version_flag = true)]
    Cxx(cmd::cc::Args),
    /// Run a queue of jobs of which not all can run at once
    ///
    /// Which jobs run together decides how fast all of them end. Jobs run in a session of their own, without terminal
    /// and without standard input; their output goes to files. The exit code is 1 if a job failed, 128 + signal if
    /// Ctrl-C or SIGTERM ended the batch: jobs get SIGTERM then, and SIGKILL when asked twice or after --grace.
    /// However Cotenant ends, no job stays stopped.
    Schedule(cmd::schedule::Args),
    /// Simulate programs and policies on a machine that you do not have
    ///
    /// Runs the scenario under each policy and prints per application the seconds of a run and how much slower than
    /// alone that is. With --mix it predicts a steady state: every program on a core of its own, restarted until the
    /// slowest has ended once; they share the last-level cache and the memory. Everything comes from each program's
    /// measurements alone. Wrong input ends with exit code 2, a scenario that is not done at its end, or whose speeds
    /// do not settle, with 1.
    Sim(cmd::sim::Args),
}

/// `--set`, wherever a policy decides.
#[derive(Debug, Clone, Default, Args)]
pub struct SetArgs {
    /// A setting of a policy, such as sam.cooldown=false or atom.turn=2s; may be repeated
    #[arg(long, value_name = "POLICY.KEY=VALUE", value_parser = setting)]
    set: Vec<Setting>,
}

#[derive(Debug, Clone)]
struct Setting {
    /// The section of the settings that the policy reads.
    section: &'static str,
    key: String,
    value: String,
}

fn setting(text: &str) -> Result<Setting, String> {
    let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
    let ((policy, key), value) = parts.ok_or("expected POLICY.KEY=VALUE, as in sam.cooldown=false")?;
    Ok(Setting { section: registry().section(policy)?, key: key.to_owned(), value: value.to_owned() })
}

impl SetArgs {
    /// Changes settings for these policies.
    ///
    /// # Errors
    /// Where none of them has such a setting, or it does not take the value.
    pub(crate) fn apply<'a>(
        &self,
        settings: &mut Settings,
        policies: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<()> {
        let entries: Vec<_> = policies.into_iter().filter_map(|name| registry().find(name).ok()).collect();
        for Setting { section, key, value } in &self.set {
            let wrong = |why: &dyn std::fmt::Display| usage(format!("--set {section}.{key}={value}: {why}"));
            if !entries.iter().any(|entry| entry.reads().contains(section)) {
                let names: Vec<&str> = entries.iter().map(|entry| entry.name()).collect();
                return Err(wrong(&format!("the policy here is {}, which has no such settings", names.join(", "))));
            }
            settings.set(section, key, settings::value(value));
            registry().check(section, settings).map_err(|why| wrong(&why.why))?;
        }
        Ok(())
    }
}

/// What decides and how; common to everything that decides.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What decides")]
pub struct PolicyArgs {
    /// The policy: auto, sam, atom, heuristic, resense, resense-sum, static or none; weighted, brute-force,
    /// assignment or overhead to place tasks near their memory; numad or dino to compare with; for more jobs than
    /// CPUs (sim and decide; live: cotenant schedule) fifo, mas, cas or das [default: auto]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// The mapping of the policy static: one character per online CPU in the order of `cotenant topo`, X = use, . =
    /// free, as in 'XX..XX..'
    #[arg(long, value_name = "MAP")]
    pub map: Option<String>,
    /// Switches of the policy sam: paper, default, recommended or mph, then +NAME or -NAME of one, as in
    /// 'default,-cooldown'; auto takes recommended [default: default]
    #[arg(long, value_name = "SETTING", allow_hyphen_values = true, hide_short_help = true)]
    pub sam: Option<SamConfig>,
    /// How the policy atom learns: turn=TIME, rounds=N, settle=PERCENT, classes=N (at most so many compete), all
    /// (unbalanced ones, too), kernel (its placement competes, too), execute=TIME (then learn again), or paper
    /// [default: turn=1s,rounds=5,settle=20%,classes=32]
    #[arg(long, value_name = "SETTING", hide_short_help = true)]
    pub atom: Option<AtomConfig>,
    /// Settings of single policies
    #[command(flatten)]
    pub set: SetArgs,
    /// Time between decisions, 1ms to 60min, with unit us, ms, s or min [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::interval)]
    pub interval: Option<Duration>,
    /// How far a decided CPU is widened when it is applied [default: llc]
    #[arg(long, value_name = "TO")]
    pub pin: Option<PinArg>,
    /// Let policies that place near memory, numad and dino also move the memory of programs. What the program or its
    /// user has bound stays; what was moved is not moved back at the end
    #[arg(long, hide_short_help = true)]
    pub move_pages: bool,
    /// What is known of the machine: a machine file, or a TOML file with [thresholds] or `memory_latency`. The rest
    /// is taken from the machine's own file, if there is one
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub profile: Option<PathBuf>,
    /// Characteristics of applications: a TOML file with [app.NAME] tables [default: the stored profiles, see
    /// cotenant profiles]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub profiles: Option<PathBuf>,
    /// Settings file; the command line takes precedence [default: cotenant/config.toml in the XDG configuration
    /// directory]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub config: Option<PathBuf>,
}

/// How a live machine is managed; common to `run`, `attach`, `compare` and `record`.
#[derive(Debug, Clone, Args)]
pub struct ManageArgs {
    /// What decides
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// What is managed
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// What is said
    #[command(flatten)]
    pub output: OutputArgs,
}

const METRIC: &str = "A metric of the program's speed: cmd:COMMAND (prints a number), log:PATH:REGEX (last number in a growing file), \
    http://HOST[:PORT]/PATH[#SERIES] (a number, or OpenMetrics), redis:PORT:p99, postgres:PORT:p99 or http:PORT/PATH:p99 (time to \
    answer); then ,higher or ,lower (what is better), ,name=NAME, ,every=TIME, ,timeout=TIME, ,q=QUANTILE. May be repeated";

/// What is managed, and how far.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What is managed")]
pub struct ScopeArgs {
    /// Observe only, say what would be done, or do it [default: enforce; record: observe]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<ModeArg>,
    /// Place only on these CPUs, as in 0-3,8 [default: all that the task itself may use]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Name of the application, under which profiles know it [default: that of the executable, of the process alone,
    /// or of the control group]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Metrics from outside
    #[arg(long, value_name = "SOURCE[,OPTION]...", help = METRIC)]
    pub metric: Vec<Metric>,
    /// How policies learn which memory is accessed: auto (hardware, else accessed), hardware (events), damon (the
    /// kernel's monitor), accessed (accessed bits of page tables) or placement (where pages are stands in) [default:
    /// auto]
    #[arg(long, value_name = "HOW", hide_short_help = true)]
    pub collector: Option<Choice>,
    /// What --collector may cost, in percent of one CPU, 0.01 to 100 [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = units::collector_budget, hide_short_help = true)]
    pub collector_budget: Option<f64>,
    /// Also manage tasks of other users (needs the right to)
    #[arg(long, hide_short_help = true)]
    pub all_users: bool,
}

/// What is said.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print the summary as JSON; on standard error, since standard output is the command's (compare: on standard
    /// output)
    #[arg(long)]
    pub json: bool,
    /// Print every move and its reason as it is made
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `--pin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PinArg {
    /// Exactly the decided CPU
    Cpu,
    /// The CPUs that share its last-level cache
    Llc,
    /// The CPUs of its memory node
    Node,
}

impl From<PinArg> for Pin {
    fn from(pin: PinArg) -> Self {
        match pin {
            PinArg::Cpu => Self::Cpu,
            PinArg::Llc => Self::Llc,
            PinArg::Node => Self::Node,
        }
    }
}

/// `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Sample only
    Observe,
    /// Decide, but change nothing
    Advise,
    /// Decide and act
    Enforce,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Observe => Self::Observe,
            ModeArg::Advise => Self::Advise,
            ModeArg::Enforce => Self::Enforce,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_help_names_every_policy() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        let help = run.get_arguments().find(|arg| arg.get_id() == "policy").unwrap().get_help().unwrap().to_string();
        let words: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
        for name in cotenant_policies::standard().names() {
            assert!(words.contains(&name), "{name}: {help}");
        }
    }
}
