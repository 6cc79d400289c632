//! The command line's definitions; `cargo xtask man` and `cargo xtask completions` read them too.

use crate::cmd;
use crate::recorder;
use crate::units;
use clap::{Args, Parser, Subcommand, ValueEnum};
use cotenant_core::Mode;
use cotenant_core::pin::Pin;
use cotenant_core::policy::SamConfig;
use std::path::PathBuf;
use std::time::Duration;

/// Places the threads of co-located programs so that those that share data sit together and those that fight over caches and
/// memory sit apart; shows why, and takes everything back when it ends.
#[derive(Debug, Parser)]
#[command(name = "cotenant", version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a command and manage it; its exit code and signals pass through
    Run(cmd::run::Args),
    /// Manage what runs already
    Attach(cmd::attach::Args),
    /// Did it help? Run a command in turn with and without Cotenant
    Compare(cmd::compare::Args),
    /// Start a command, or watch what runs, and record raw samples (and decisions)
    Record(cmd::record::Args),
    /// What would a policy have decided on a recording
    Replay(cmd::replay::Args),
    /// Why was a task moved, or why not
    Why(cmd::why::Args),
    /// One decision from files, printed with its reasons
    Decide(cmd::decide::Args),
    /// What this machine can tell and do, what is missing, and the least that would help
    Doctor(cmd::doctor::Args),
    /// Undo whatever a killed Cotenant left behind
    Restore(cmd::restore::Args),
    /// What is shared by whom: caches, cores, memory nodes and distances of a machine
    Topo(cmd::topo::Args),
}

/// What decides and how; common to everything that decides.
#[derive(Debug, Clone, Default, Args)]
pub struct PolicyArgs {
    /// Policy that decides: auto, sam, heuristic, static or none
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Mapping for the policy static, one character per CPU in topology order, as in 'XX..XX..'
    #[arg(long, value_name = "MAP")]
    pub map: Option<String>,
    /// Which additions to SAM are on: paper, default, and +NAME or -NAME of one, as in 'default,-cooldown'
    #[arg(long, value_name = "SETTING", allow_hyphen_values = true)]
    pub sam: Option<SamConfig>,
    /// Time between decisions, such as 100ms
    #[arg(long, value_name = "TIME", value_parser = units::interval)]
    pub interval: Option<Duration>,
    /// How far a decided CPU is widened when it is applied
    #[arg(long, value_name = "TO")]
    pub pin: Option<PinArg>,
    /// Thresholds of this machine: a machine file, or a TOML file with [thresholds]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Characteristics of applications for the policy heuristic: a TOML file with [app.NAME] tables
    #[arg(long, value_name = "FILE")]
    pub profiles: Option<PathBuf>,
    /// Settings file (default: cotenant/config.toml in the XDG configuration directory)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How a live machine is managed; common to `run`, `attach`, `compare` and `record`.
#[derive(Debug, Clone, Args)]
pub struct ManageArgs {
    /// What decides
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// How far to go: sample only, decide without acting, or act
    #[arg(long, value_name = "MODE")]
    pub mode: Option<ModeArg>,
    /// Place only on these CPUs, as in 0-3,8
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Name of the application (default: the executable's base name)
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Manage tasks of other users, too
    #[arg(long)]
    pub all_users: bool,
    /// Whether and where to record
    #[command(flatten)]
    pub record: recorder::Args,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Say more: every move and its reason
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print no summary
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
