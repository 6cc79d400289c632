//! The arguments of `cotenant schedule`.

use crate::run::recorder;
use clap::ValueEnum;
use cotenant_setup::args::SetArgs;
use cotenant_setup::units;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cotenant schedule jobs.txt                          a command per line, each for the shell
  cotenant schedule --policy mas --quantum 100ms jobs.toml
  seq 12 | sed 's/.*/.\\/simulate --seed &/' | cotenant schedule -
  cotenant schedule --resume jobs.toml                go on after a crash

A queue in TOML: [[job]] tables with command (a line for the shell, or a list of words), and optionally name, env, cwd,
profile, memory (as in \"2G\"), retries, threads; env, cwd, memory and retries at the top are for all.";

/// Which jobs run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
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

impl Discipline {
    pub(super) fn name(self) -> &'static str {
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

    /// The name of the policy while the jobs run. `fifo` starts no more jobs than may run, so that none has to wait;
    /// `linux` and `overhead` choose none.
    pub(super) fn policy(self) -> &'static str {
        match self {
            Self::Mas | Self::Cas | Self::Das => self.name(),
            Self::Auto | Self::Linux | Self::Fifo | Self::Overhead => "none",
        }
    }

    /// Whether jobs are stopped and resumed.
    pub(super) fn pauses(self) -> bool {
        !matches!(self, Self::Auto | Self::Linux | Self::Fifo)
    }
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
#[allow(clippy::struct_excessive_bools)] // independent options
pub struct Args {
    /// The queue: a file whose name ends in .toml, or a list with a command per line; - reads a list from standard
    /// input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Which jobs run at the same time
    #[arg(long, value_enum, value_name = "NAME", default_value = "auto")]
    pub(super) policy: Discipline,
    /// Time between choices
    #[arg(long, value_name = "TIME", value_parser = units::interval, default_value = "200ms")]
    pub(super) quantum: Duration,
    /// Most programs that are started at once [default: four per CPU; fifo: as many threads as CPUs; linux and
    /// overhead: all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) jobs: Option<u32>,
    /// Memory that jobs may need together, those that wait included, as in 16G [default: what is available]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(super) memory: Option<u64>,
    /// Use only these CPUs, as in 0-3,8
    #[arg(long, value_name = "LIST")]
    pub(super) cpus: Option<String>,
    /// Folder of the jobs' output, NAME.out and NAME.err (appended to), and of what became of them, state.jsonl
    /// [default: FILE.logs]
    #[arg(long, value_name = "DIR")]
    pub(super) logs: Option<PathBuf>,
    /// Go on after a crash: jobs whose end was seen are not started again, those that still run are waited for, all
    /// others are started
    #[arg(long)]
    pub(super) resume: bool,
    /// Start the queue again from its beginning, and forget what an earlier run in the same folder has done
    #[arg(long, conflicts_with = "resume")]
    pub(super) anew: bool,
    /// How waiting jobs are paused
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub(super) pause: PauseArg,
    /// Time between SIGTERM and SIGKILL when asked to stop
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "10s")]
    pub(super) grace: Duration,
    /// Characteristics of applications: a TOML file with [app.NAME] tables [default: the stored profiles]
    #[arg(long, value_name = "FILE")]
    pub(super) profiles: Option<PathBuf>,
    /// Settings of the policy that chooses
    #[command(flatten)]
    pub(super) set: SetArgs,
    /// Print the summary as JSON on standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Print no summary and no progress
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Whether and where to record
    #[command(flatten)]
    pub(super) record: recorder::Args,
}
