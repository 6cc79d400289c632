//! The arguments of `cotenant compare`.

use crate::cmd::attach::TargetArgs;
use cotenant_setup::args::ManageArgs;
use cotenant_setup::units;
use std::ffi::OsString;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  cotenant compare -- xz -T0 -k -f big.tar     five pairs of runs
  cotenant compare -p \"$(pidof redis-server)\" --metric redis:6379:p99
  cotenant compare --runs 20 --policy static --map 'X.X.X.X.' -- ./a";

const USAGE: &str = "\
cotenant compare [OPTIONS] [--] <CMD> [ARGS]...
       cotenant compare [OPTIONS] (-p <PID>[,<PID>]... | --cgroup <PATH>)";

/// Arguments of `cotenant compare`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct Args {
    /// The command and its arguments
    ///
    /// -- before it keeps its options apart from ours.
    #[arg(trailing_var_arg = true, value_name = "CMD", hide_short_help = true)]
    pub(super) command: Vec<OsString>,
    /// What runs already
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Pairs of runs (-p: windows), 2 to 1,000
    ///
    /// A pair is one run without and one with Cotenant, in alternating order. Windows are in random order.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(super) runs: u32,
    /// With -p: how long each window is [default: 10s]
    ///
    /// The first fifth of a window is not measured.
    #[arg(long, value_name = "TIME", value_parser = units::length)]
    pub(super) windows: Option<Duration>,
    /// With -p: the order of the windows is drawn from this number [default: 1]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(super) seed: Option<u64>,
    /// Let the command's own output through [default: discarded, so that it does not disturb the timing]
    #[arg(long, hide_short_help = true)]
    pub(super) show_output: bool,
    /// How to manage it
    #[command(flatten)]
    pub(super) manage: ManageArgs,
}
