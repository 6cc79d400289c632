//! The arguments of `cotenant regions`.

use cotenant_model::region;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cotenant regions -o batch.toml -- ./batch small-input
  cotenant regions --source cachegrind -o batch.toml -- ./batch small-input
  cotenant cc --cotenant-regions=batch.toml -O2 -g batch.c -o batch";

/// Arguments of `cotenant regions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cotenant regions [OPTIONS] [--] <CMD> [ARGS]...")]
pub struct Args {
    /// The command and its arguments
    ///
    /// -- before it keeps its options apart from ours.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
    /// Where the figures come from
    #[arg(long, value_enum, default_value_t)]
    pub(super) source: Source,
    /// Write the region file here [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Leave out functions that take less than this share of the time
    #[arg(long, value_name = "SHARE", default_value_t = region::MIN_COVERAGE)]
    pub(super) min_coverage: f64,
    /// Print no list on standard error
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Where the figures come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Source {
    /// The processor's counters where it has some, else cachegrind
    #[default]
    Auto,
    /// Samples of the processor's counters
    Counters,
    /// Simulated caches of this machine's sizes, and samples of time: the command runs twice
    Cachegrind,
    /// Samples of time alone, which tell nothing of lines: for tests of what is sampled
    #[value(hide = true)]
    Clock,
}
