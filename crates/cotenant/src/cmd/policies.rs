//! `cotenant policies`: what can be named by `--policy`, and where.

use cotenant_cli::print_page;
use cotenant_cli::table::Table;
use cotenant_model::policy::{Config, Entry};
use cotenant_setup::registry::registry;
use std::io::Write;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant policies
  cotenant run --policy sam -- ./server    take one of them";

/// Arguments of `cotenant policies`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

/// Prints them by the commands that take them, the usual ones first.
///
/// # Errors
/// Where standard output takes no more.
pub fn run(_: &Args) -> anyhow::Result<ExitCode> {
    type Kind = fn(&Entry) -> bool;
    let sections: [(&str, Kind); 3] = [
        ("Of run, attach, compare, record, replay, bench, decide, sim and the daemon:", |e| {
            !pauses(e) && !e.is_rival()
        }),
        ("\nOf papers and rivals, for the same commands:", |e| !pauses(e) && e.is_rival()),
        ("\nFor more jobs than CPUs, of schedule, decide and sim:", pauses),
    ];
    print_page(|out| {
        for (title, kind) in sections {
            writeln!(out, "{title}")?;
            let mut table = Table::new(["policy", "decides by"]);
            registry().listed().filter(|entry| kind(entry)).for_each(|entry| table.row([entry.name(), entry.about()]));
            out.table(&table)?;
        }
        writeln!(out, "\nThis machine may lack what one needs: see cotenant doctor. To throttle, see cotenant qos.")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Whether a policy lets jobs wait.
pub(crate) fn pauses(entry: &Entry) -> bool {
    registry().make(entry.name(), &Config::default()).is_ok_and(|policy| policy.needs().pauses)
}
