//! The subcommands: each has a file with its arguments and the function that runs them, and is listed here as a module,
//! in [`Command`], in [`GROUPS`] and in [`run`].

pub mod attach;
pub mod bench;
pub mod calibrate;
pub mod cc;
pub mod characterize;
pub mod compare;
pub mod completions;
pub mod daemon;
pub mod decide;
pub mod demo;
pub mod doctor;
pub mod kernel;
pub mod man;
pub(crate) mod outlook;
pub mod policies;
pub mod profiles;
pub mod qos;
pub mod record;
pub mod regions;
pub mod replay;
pub mod report;
pub mod restore;
pub mod run;
pub mod schedule;
pub mod sharing;
pub mod sim;
pub mod slurm;
pub mod status;
pub mod top;
pub mod topo;
pub mod why;

use clap::Subcommand;
use cotenant_linux::sys::waiter::Waiter;
use std::process::ExitCode;

/// The subcommands. What each does is said here alone: the first line in the list of commands, all of it in its own
/// help.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// See how a batch job hurts a server here, and what helps
    ///
    /// Both are built in: nothing is installed, and no privilege is needed. The server is asked at random moments, by a
    /// schedule that does not wait for it, and a latency counts from when its question was due. It is measured alone,
    /// beside the batch program, beside it at nice 19, with it in the background by hand, and under `cotenant qos`.
    ///
    /// The verdict follows from the 95 % intervals of the p99. It says so if nothing is gained, if one line does as
    /// well, or if other programs kept the machine busy. Then comes a simulated machine on which placing threads pays,
    /// and what to try on this one. Ctrl-C ends all of it with exit code 128 + signal; nothing is left behind.
    Demo(demo::Args),
    /// Start a command and manage it
    ///
    /// The command keeps its terminal, standard streams, process group and signals: Ctrl-C and Ctrl-Z do what they
    /// always do. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 that are sent to cotenant are passed on. The
    /// exit code is the command's own, or 128 + signal if a signal ended it. It is 127 if the command was not found,
    /// and 126 if it cannot be executed. A short summary follows on standard error, and every changed mask is given
    /// back.
    ///
    /// Without --, everything from the command on belongs to the command.
    Run(run::Args),
    /// Manage programs that run already
    ///
    /// Ends with exit code 0 when the targets end, or when Ctrl-C, SIGTERM or SIGHUP asks it to stop. Then every
    /// changed mask is given back. The targets are never signalled. Cotenant itself is never managed.
    ///
    /// Threads are placed on CPUs that Cotenant may use itself, and on those that the targets may use when it
    /// attaches. Their cpuset may be another one, such as a partition.
    Attach(attach::Args),
    /// Run a command or watch a server with and without Cotenant
    ///
    /// The order alternates from pair to pair, so that drift hits both sides alike. The answer is the speed-up (time
    /// without / time with, geometric mean) with its 95 % confidence interval. The verdict is "faster" or "slower"
    /// only if the interval excludes 1. A run that fails ends the comparison with exit code 1. Ctrl-C ends it with
    /// the complete pairs and exit code 128 + signal.
    ///
    /// With -p or --cgroup, windows of time with and without the policy take turns in random order. --metric says how
    /// fast the programs are in each. Every window begins with everything given back. Its first fifth is not measured,
    /// since threads move and caches fill. The policy begins anew in each, so one that learns needs longer windows.
    /// The verdict is "helped" or "hurt" only if the 95 % interval of the ratio excludes 1. Ends after --runs pairs, or
    /// when the programs end; the exit code is 4 if a metric had no values.
    Compare(compare::Args),
    /// Compare policies on a workload of programs that come and go
    ///
    /// The programs of the file start real processes on this machine; if the file names a `machine`, they are simulated
    /// there. Each workload runs as often as the file says, in turn left to Linux and under each policy. The answer is
    /// the average response time and the throughput of each. It comes with the improvement over Linux, its 95 %
    /// confidence interval, and a paired t-test. A program that fails or takes longer than `timeout_s` ends it with
    /// exit code 1. Ctrl-C ends it with the complete rounds and exit code 128 + signal. Either way nothing is left
    /// running.
    Bench(bench::Args),
    /// Record samples of a command, or of programs that run already
    ///
    /// By default it only observes. With --mode advise or enforce the decisions and what became of them are recorded,
    /// too. The recording is self-contained: `cotenant replay` and `cotenant why` read it on any machine.
    Record(record::Args),
    /// Show what another policy would have decided on a recording
    ///
    /// Each round is decided anew from the recorded samples. The placements stay the recorded ones, whatever is
    /// decided: the answer is about single decisions and says nothing about speed. Moves that only the recorded policy
    /// made are marked `-`, those that only the replayed one makes `+`, and those of both `=`. The exit code is 2 if
    /// the policy needs thresholds that neither the recording nor --profile has.
    Replay(replay::Args),
    /// Show why a task was moved or an application throttled, or not
    ///
    /// The rates beside each move are those of the rounds up to the decision and, behind the bar, of the rounds after
    /// it. The exit code is 1 if the recording has nothing of that name.
    Why(why::Args),
    /// Make one page with tables and figures from recordings
    ///
    /// The page is one HTML file that needs no network; what it draws with is in it. Nothing is written unless all
    /// files are understood (exit code 2). What is damaged in a recording is left out, and page and standard error say
    /// so.
    Report(report::Args),
    /// Print one decision from files, with its reasons
    ///
    /// Nothing is changed and nothing of this machine is read: any machine and any situation can be tried.
    Decide(decide::Args),
    /// Check what this machine can measure and do, and what is missing
    ///
    /// ✓ is there, ~ is there in part, ✗ is missing, with what that costs and the least-privileged remedy. Changes
    /// nothing. Whether progress reports can be received is tried with a report of its own.
    Doctor(doctor::Args),
    /// Undo what a killed Cotenant left behind
    ///
    /// Needed only if Cotenant and its guardian process were both killed at once. Masks that another program has
    /// changed since are left alone. The exit code is 1 if something could not be given back.
    Restore(restore::Args),
    /// Run as a service: apply the rules in cotenant.toml
    ///
    /// A service is all of a unit, all of a control group, or the processes that execute one program. The first rule
    /// that matches says which. Services come, go and restart; what was learnt of them stays. By default it only
    /// observes. SIGHUP reads the configuration again. If it is wrong, the one before stays in force, and the log and
    /// cotenant status say so. SIGTERM, SIGINT and SIGQUIT end it, and everything is given back. A service with
    /// COTENANT=off in its environment is left alone.
    Daemon(daemon::Args),
    /// Show what the daemon does, and its last decisions with reasons
    ///
    /// Root and the user who runs the daemon see everything, others their own services.
    Status(status::Args),
    /// Watch what runs where, how fast, and what was decided and why
    ///
    /// Shows the machine as packages, cache domains and cores; services with their speed against their goal; the last
    /// decisions; Enter the details of one. Asks the daemon. If none answers, it looks at your own programs, without
    /// root, and changes nothing. Of a recording, ← and → go through time. The keys are shown at the bottom.
    Top(top::Args),
    /// Stop the daemon from changing anything, and undo its changes
    ///
    /// All services, or one. Root and the user who runs the daemon may pause all, and users their own services.
    Pause(status::ServiceArgs),
    /// Let the daemon go on after a pause
    Resume(status::ServiceArgs),
    /// Check whether the daemon knows the Slurm jobs of this node
    ///
    /// ✓ is right, ✗ is missing, with what to do, ? could not be checked. Run it as root while a job runs here. The
    /// exit code is 1 if a step is missing. Changes nothing.
    Slurm(slurm::Args),
    /// Show which CPUs share caches, cores and memory, and distances
    Topo(topo::Args),
    /// Show which processes share memory and belong near each other
    ///
    /// They share objects that they map shared and writable: files, memfds, POSIX and System V segments, and memory
    /// that servers share with their children. What is mapped need not be used. Threads of one process share all of its
    /// memory; that is not shown. Changes nothing.
    Sharing(sharing::Args),
    /// Measure this machine once: thresholds, latencies, bandwidths
    ///
    /// Takes some seconds to minutes and keeps the machine busy meanwhile; best while nothing else runs. Writes a
    /// profile that the policies find by themselves. What this machine cannot tell is left out, with the reason. If
    /// interrupted, it writes nothing, and the exit code is 1.
    Calibrate(calibrate::Args),
    /// Measure an application once: what sharing costs it and others
    ///
    /// Runs the command from its start to its end, again and again. It runs alone on CPUs that share a resource and on
    /// CPUs that do not, beside programs of known behaviour, and on simulated caches. Takes the command's own time × 2
    /// × shared resources × --runs, and as much again for everything that runs beside it. Best while nothing else runs.
    ///
    /// The profile goes into the store, where policies find it. The command's standard input is empty. The exit code is
    /// 1 if the command fails, is too short or too long, or if interrupted. Then nothing is written, and nothing of the
    /// command is left running.
    Characterize(characterize::Args),
    /// Run a micro-benchmark whose behaviour is known
    ///
    /// Sharing at a set ratio, memory bandwidth and latency, cache footprints, computation. Ctrl-C, SIGTERM or SIGHUP
    /// ends one early with the result so far and exit code 0. The exit code is 2 if the name, a size, a number of
    /// threads or a CPU is not possible here. It is 1 if a limit of the system stands against it, or a checked result
    /// is wrong.
    Kernel(kernel::Args),
    /// List, show, remove, export and import profiles of applications
    ///
    /// The profiles are below the data folder, one TOML file per machine and application, to be read and edited.
    /// Policies that need profiles find them there; --profiles takes precedence. NAME is what `list` shows, or the
    /// application alone if there is one build of it. A damaged file is named with line and column, and the others
    /// are used.
    Profiles(profiles::Args),
    /// Keep high-priority programs at their goal, throttle the others
    ///
    /// Measures how fast the high-priority programs are while the low-priority ones run and while they nap. Throttles
    /// these no more than the goal needs. Programs that were built by `cotenant cc` nap by themselves; all others are
    /// paused. Ends when all commands and the high-priority programs have ended; if all programs that give way
    /// are commands, running high-priority programs are not awaited. Whatever happens to Cotenant,
    /// nothing stays paused. The exit code is that of the first high-priority program, 128 + signal if a signal ended
    /// it, 0 if it was not started here. It is 4 instead of 0 if the speed of one was not known in 10 s or more, or its
    /// metric only failed.
    ///
    /// Commands are lines for `sh -c`. Low-priority commands lead sessions of their own and get the signals that
    /// cotenant gets. No program may have both priorities. A control group that naps is frozen as a whole, with the
    /// groups below it. So it is refused if Cotenant itself is in it, or a process that is to be left alone. These are
    /// another user's (without --all-users), real-time ones, and those that another Cotenant manages.
    ///
    /// Without programs, the rules of --config name them: the rules of the daemon's configuration. Keys that concern
    /// only the daemon are ignored.
    Qos(qos::Args),
    /// Find the code of a command that fills shared caches
    ///
    /// Samples the processor's counters. Without any, the command runs twice: as it is, for the time, and some fifty
    /// times slower under cachegrind. That simulates this machine's cache sizes in the nearest geometry that it knows.
    /// Writes a region file, which `cotenant cc` reads, the most contentious function first. Build the command with -g
    /// or -gline-tables-only. The exit code is the command's own.
    Regions(regions::Args),
    /// Compile C with clang so that the program naps by itself
    ///
    /// Takes any command line of clang, and becomes clang: exit code, output and signals are its own. A single --help
    /// prints this text; `-help` and --version are clang's. Needs clang 19 and the pass, which scripts/install-pass
    /// builds and installs. If one of these or libcotenant is missing, or an option below is wrong, the exit code is
    /// 2.
    ///
    /// When clang is about to link a program, the mode `markers` adds libcotenant (statically: the program runs where
    /// there is no Cotenant), and -flto the linker lld with the pass.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Cc(cc::Args),
    /// Compile C++ in the same way
    ///
    /// See `cotenant help cc`.
    #[command(name = "c++", disable_help_flag = true, disable_version_flag = true)]
    Cxx(cc::Args),
    /// Run a queue of jobs of which not all can run at once
    ///
    /// Which jobs run together decides how fast all of them end. Jobs run in a session of their own, without terminal
    /// and without standard input; their output goes to files. The exit code is 1 if a job failed, and 128 + signal if
    /// Ctrl-C or SIGTERM ended the batch. Jobs get SIGTERM then, and SIGKILL when asked twice or after --grace.
    /// However Cotenant ends, no job stays stopped.
    Schedule(schedule::Args),
    /// Simulate programs and policies on a machine you do not have
    ///
    /// Runs the scenario under each policy and prints per application the seconds of a run and how much slower than
    /// alone that is. With --mix it predicts a steady state: every program on a core of its own, restarted until the
    /// slowest has ended once. They share the last-level cache and the memory. Everything comes from each program's
    /// measurements alone. Wrong input ends with exit code 2. A scenario that is not done at its end, or whose speeds
    /// do not settle, ends with 1.
    Sim(sim::Args),
    /// List the policies, and which commands take them
    Policies(policies::Args),
    /// Print completions for a shell
    Completions(completions::Args),
    /// Print a man page, or write all of them
    Man(man::Args),
}

/// The subcommands as `cotenant --help` groups them: each in one group.
pub const GROUPS: [(&str, &[&str]); 6] = [
    ("Start here", &["demo", "doctor", "run", "attach", "qos", "schedule"]),
    ("Did it help?", &["compare", "bench"]),
    ("Look back", &["top", "record", "why", "replay", "report"]),
    ("Run as a service", &["daemon", "status", "pause", "resume", "slurm", "restore"]),
    ("Know your machine and programs", &["topo", "calibrate", "characterize", "profiles", "sharing", "regions"]),
    ("For policies, papers and tools", &["policies", "decide", "sim", "kernel", "cc", "c++", "completions", "man"]),
];

/// Runs a subcommand of the command line with this definition.
///
/// # Errors
/// Errors of the subcommand.
pub fn run(command: &Command, definition: fn() -> clap::Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => reported(|| run::run(args)),
        Command::Attach(args) => reported(|| attach::run(args)),
        Command::Compare(args) => compare::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Record(args) => reported(|| record::run(args)),
        Command::Decide(args) => decide::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Report(args) => report::run(args),
        Command::Why(args) => why::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Daemon(args) => reported(|| daemon::run(args)),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Pause(args) => status::pause(args),
        Command::Resume(args) => status::resume(args),
        Command::Slurm(args) => slurm::run(args),
        Command::Cc(args) => cc::run(false, args.words.iter().cloned(), &definition()),
        Command::Cxx(args) => cc::run(true, args.words.iter().cloned(), &definition()),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Characterize(args) => characterize::run(args),
        Command::Kernel(args) => reported(|| kernel::run(args)),
        Command::Profiles(args) => profiles::run(args),
        Command::Topo(args) => topo::run(args),
        Command::Sharing(args) => sharing::run(args),
        Command::Schedule(args) => reported(|| schedule::run(args)),
        Command::Regions(args) => regions::run(args),
        Command::Qos(args) => reported(|| qos::run(args)),
        Command::Sim(args) => sim::run(args),
        Command::Policies(args) => policies::run(args),
        Command::Completions(args) => completions::run(args, &definition()),
        Command::Man(args) => man::run(args, &definition()),
    }
}

/// Reports the result of a subcommand that may also end by a signal; a signal near its end does not lose the report.
fn reported(run: impl FnOnce() -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let waiter = Waiter::new()?;
    let result = run();
    waiter.drain()?;
    result
}
