//! The arguments of `cotenant sim`.

use cotenant_setup::args::SetArgs;
use cotenant_sim::kernel::KernelKind;
use std::path::PathBuf;

const EXAMPLES: &str = concat!(
    "\
Examples, with the two-apps.toml that --help shows:
  cotenant sim two-apps.toml --policy none,sam,optimal
  cotenant sim --mix mcf06,milc06,povray06,lbm06 --machine nehalem-i7-920
  cotenant sim two-apps.toml --kernel cache-aware --seeds 20 --json
  cotenant sim --mix mcf06,mcf06 --machine nehalem-i7-920 --json

",
    include_str!("../../../examples/two-apps.toml")
);

/// Arguments of `cotenant sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The scenario in TOML, see docs/reference/scenario.md
    #[arg(value_name = "FILE", required_unless_present = "mix", conflicts_with = "mix")]
    pub file: Option<PathBuf>,
    /// Policies to compare, see cotenant policies
    ///
    /// `optimal` searches for the best static mapping.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "none,sam", conflicts_with = "mix")]
    pub policy: Vec<String>,
    /// Settings of single policies
    #[command(flatten)]
    pub set: SetArgs,
    /// The simulated kernel: eevdf or cache-aware, each with or without +numa-balancing [default: the scenario's,
    /// else eevdf, with +numa-balancing on a machine of several memory nodes]
    #[arg(long, hide_short_help = true, value_name = "NAME", conflicts_with = "mix")]
    pub kernel: Option<KernelKind>,
    /// Runs, each with its own random numbers
    ///
    /// Seeds 1 to N, N up to 100,000. What is random, such as where Linux starts threads, is drawn anew with each.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000), conflicts_with = "mix")]
    pub seeds: u64,
    /// Most mappings that `optimal` evaluates one by one; if there are more classes than that, it searches
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000), conflicts_with = "mix")]
    pub evaluations: u64,
    /// What policies know of the programs: a TOML file with [app.NAME] tables [default: the profiles stored for the
    /// machine]
    #[arg(long, value_name = "FILE", conflicts_with = "mix", hide_short_help = true)]
    pub profiles: Option<PathBuf>,
    /// Record a simulation, for `cotenant top` and why
    ///
    /// It is one under the first policy that decides. replay and report read it, too. A recording that is already there
    /// is kept as FILE.old; any other file is left alone.
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    pub record: Option<PathBuf>,
    /// The seed of the simulation that is recorded
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "record", hide_short_help = true)]
    pub record_seed: u64,
    /// Programs of workloads/, each on a core of its own
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "machine")]
    pub mix: Vec<String>,
    /// The machine of --mix
    ///
    /// A TOML file of eight lines, see docs/reference/mix.md, or whatever names a machine: see cotenant topo
    /// --help.
    #[arg(long, value_name = "MACHINE", requires = "mix")]
    pub machine: Option<String>,
    /// Do not draw guesses of machine and programs anew to tell how sure the result is
    #[arg(long, hide_short_help = true)]
    pub no_band: bool,
    /// Print JSON instead of a table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print comma-separated values instead of a table
    ///
    /// One line per policy, seed and application.
    #[arg(long, conflicts_with = "mix")]
    pub csv: bool,
}
