//! `cotenant restore`: undoes the leftovers of a killed Cotenant.

use anyhow::Result;
use cotenant_cli::messages::count;
use cotenant_linux::act;
use cotenant_linux::undo::RestoreReport;
use std::io::Write;
use std::process::ExitCode;

/// Arguments of `cotenant restore`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Also resume what living Cotenants keep paused, such as one that is stopped (SIGSTOP)
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restores, and prints the result. Exit code 1 if something could not be restored.
///
/// # Errors
/// The environment names no folder for the state.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = cotenant_linux::undo::default_state_dir()?;
    let report = if args.force { act::restore_by_force(&folder) } else { act::restore(&folder) };
    cotenant_cli::answer(args.json, &report, |out| {
        let RestoreReport { resumed, gone, foreign, failed, .. } = &report;
        let restored = count(report.restored as u64, "task");
        writeln!(
            out,
            "{restored} given back, {resumed} resumed, {gone} had ended, {foreign} changed by others and left alone, \
             {failed} failed"
        )?;
        Ok(report.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?)
    })?;
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
