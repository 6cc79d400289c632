//! `cotenant attach`: manage running programs.

use crate::run::one::{self, One};
use crate::run::recorder;
use anyhow::Result;
use cotenant_cli::usage;
use cotenant_linux::sense::processes::Target;
use cotenant_setup::args::ManageArgs;
use cotenant_setup::units;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant attach -p \"$(pidof redis-server)\" --mode observe --record redis.rec
  cotenant attach --cgroup /sys/fs/cgroup/system.slice/redis.service";

/// Arguments of `cotenant attach`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant attach [OPTIONS] (-p <PID>[,<PID>]... | --cgroup <PATH>)")]
pub struct Args {
    /// What to attach to
    #[command(flatten)]
    target: TargetArgs,
    /// How to manage it
    #[command(flatten)]
    manage: ManageArgs,
    /// Whether and where to record
    #[command(flatten)]
    record: recorder::Args,
}

/// What runs already.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(super) struct TargetArgs {
    /// Processes that run already, by id, with all their threads and descendants; several are separated by commas
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = units::pid)]
    pid: Vec<u32>,
    /// All processes of a control group, by its folder, as in /sys/fs/cgroup/my.slice
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    cgroup: Option<PathBuf>,
    /// With -p 1: yes, manage everything that runs here
    #[arg(long)]
    all: bool,
}

impl TargetArgs {
    /// In the form of the runner; `None` without a named target.
    pub(super) fn target(&self) -> Option<One<'static>> {
        let target = match &self.cgroup {
            Some(path) => Target::Cgroup(path.clone()),
            None if self.pid.is_empty() => return None,
            None => Target::Trees(self.pid.clone()),
        };
        Some(One::Running { target, all: self.all })
    }
}

/// Attaches until the targets end or a signal asks to stop; then everything is undone.
///
/// # Errors
/// One line with the error, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    let target = args.target.target().ok_or_else(|| usage("name what to attach to: -p PID, or --cgroup PATH"))?;
    one::run(&args.manage, args.record.target(), target)
}
