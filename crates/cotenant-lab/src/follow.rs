//! `cotenant-lab follow`: how memory follows threads under the simulated kernel.

use cotenant_cli::answer;
use cotenant_cli::table::Table;
use cotenant_sim::follow::{Arrival, situations};
use std::process::ExitCode;

const AFTER: &str = "\
Memory was touched on the first of two nodes; the threads run on the other, half on each, or where the kernel takes
them. `cargo xtask guests --only numa-balancing` measures the same with real kernels.";

/// Arguments of `cotenant-lab follow`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Simulates all situations and prints them.
///
/// # Errors
/// If a simulation does not end, or output fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let all = situations()?;
    answer(args.json, &all, |out| {
        let heads = ["situation", "memory", ">on the other node", ">half of that after", ">95 % of it after"];
        let mut table = Table::new(heads);
        for one in &all {
            for (memory, arrival) in [("own", one.own), ("in common", one.shared)] {
                let Some(Arrival { share, half, most }) = arrival else { continue };
                let passes = |passes: f64| format!("{passes:.2} passes");
                let share = format!("{:.0} %", 100.0 * share);
                table.row([one.situation.to_owned(), memory.to_owned(), share, passes(half), passes(most)]);
            }
        }
        Ok(out.table(&table)?)
    })
}
