//! The arguments of `cotenant calibrate`.

use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cotenant calibrate                                 for this machine; policies find it by themselves
  cotenant calibrate --quick -o my-machine.toml      a first idea, for --profile
  cotenant calibrate --only core-to-core --svg-dir pictures
  cotenant calibrate --contentiousness               what programs cost each other here, by the lines that they bring in";

/// Arguments of `cotenant calibrate`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[allow(clippy::struct_excessive_bools)] // independent options
pub struct Args {
    /// Write the profile here [default: `cotenant/machines/ID.toml` in `$XDG_DATA_HOME` or `~/.local/share`, where
    /// every command looks for this machine's]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Measure only these: clock, core-to-core, smt, migration, coherence, bandwidth, distances, remote
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Fit the contentiousness model instead, to the `SmashBench` kernels beside each other: about ten minutes; the
    /// rest of the profile stays
    #[arg(long, conflicts_with_all = ["only", "svg_dir"])]
    pub contentiousness: bool,
    /// Kernels to fit the contentiousness model to, four or more [default: all of `SmashBench`]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "contentiousness")]
    pub kernels: Vec<String>,
    /// Less certain: three rounds of 50 ms per load instead of five of 200 ms; for the model one of 200 ms instead of
    /// three of 500 ms
    #[arg(long)]
    pub quick: bool,
    /// Write the profile also where other programs disturbed what was measured
    #[arg(long)]
    pub force: bool,
    /// Draw the matrix and the curves (SVG) into this folder
    #[arg(long, value_name = "DIR")]
    pub svg_dir: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}
