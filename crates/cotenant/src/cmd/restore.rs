//! `cotenant restore`: undo whatever a killed Cotenant left behind.

use super::print;
use anyhow::Result;
use cotenant_linux::restore::RestoreReport;
use std::process::ExitCode;

/// Arguments of `cotenant restore`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restores, and says what was restored. Exit code 1 where something could not be given back.
///
/// # Errors
/// Where the environment names no folder for the state.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = cotenant_linux::restore::restore(&cotenant_linux::apply::default_state_dir()?);
    print(|out| {
        if args.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            let RestoreReport { restored, gone, foreign, failed, .. } = report;
            writeln!(
                out,
                "{restored} task(s) given back, {gone} had ended, {foreign} changed by others and left alone, {failed} failed"
            )?;
            for note in &report.notes {
                writeln!(out, "note: {note}")?;
            }
        }
        Ok(if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
