//! The arguments of `cotenant calibrate`.

use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cotenant calibrate                               policies find the result
  cotenant calibrate --quick -o my-machine.toml    a first idea, for --profile
  cotenant calibrate --only core-to-core --svg-dir pictures
  cotenant calibrate --contentiousness             the contentiousness model";

/// Arguments of `cotenant calibrate`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[allow(clippy::struct_excessive_bools)] // independent options
pub struct Args {
    /// Write the profile here, not where commands look for it
    ///
    /// Every command looks for this machine's profile in the default place. [default: `cotenant/machines/ID.toml` in
    /// `$XDG_DATA_HOME` or `~/.local/share`]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Measure only these
    ///
    /// Of clock, core-to-core, smt, migration, coherence, bandwidth, distances and remote.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Fit the contentiousness model instead: about ten minutes
    ///
    /// It is fitted to the `SmashBench` kernels beside each other. The rest of the profile stays.
    #[arg(long, conflicts_with_all = ["only", "svg_dir"])]
    pub contentiousness: bool,
    /// Kernels to fit the contentiousness model to, four or more [default: all of `SmashBench`]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "contentiousness", hide_short_help = true)]
    pub kernels: Vec<String>,
    /// Faster, and less certain
    ///
    /// Three rounds of 50 ms per load instead of five of 200 ms. For the model one of 200 ms instead of three of
    /// 500 ms.
    #[arg(long)]
    pub quick: bool,
    /// Write the profile even if other programs disturbed it
    #[arg(long)]
    pub force: bool,
    /// Draw the matrix and the curves (SVG) into this folder
    #[arg(long, value_name = "DIR")]
    pub svg_dir: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}
