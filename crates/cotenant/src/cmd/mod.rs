//! The subcommands: each has its arguments and a function that runs them.

pub mod attach;
pub mod bench;
pub mod calibrate;
pub mod cc;
pub mod characterize;
pub mod compare;
pub mod decide;
pub mod doctor;
pub mod kernel;
mod managed;
pub mod profiles;
mod progress;
pub mod qos;
pub mod record;
pub mod regions;
pub mod replay;
pub mod report;
pub mod restore;
pub mod run;
pub mod schedule;
pub mod sim;
pub mod topo;
pub mod why;

use crate::cli::Command;
use cotenant_cli::progress::Metered;
use cotenant_cli::{usage, words};
use cotenant_linux::sys::waiter::Waiter;
use cotenant_record::Recording;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

/// Runs a subcommand.
///
/// # Errors
/// Those of the subcommand.
pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => reported(|| run::run(args)),
        Command::Attach(args) => reported(|| attach::run(args)),
        Command::Compare(args) => compare::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Record(args) => reported(|| record::run(args)),
        Command::Decide(args) => decide::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Report(args) => report::run(args),
        Command::Why(args) => why::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Cc(args) => cc::run(false, args.words.iter().cloned()),
        Command::Cxx(args) => cc::run(true, args.words.iter().cloned()),
        Command::Calibrate(args) => calibrate::run(args),
        Command::Characterize(args) => characterize::run(args),
        Command::Kernel(args) => reported(|| kernel::run(args)),
        Command::Profiles(args) => profiles::run(args),
        Command::Topo(args) => topo::run(args),
        Command::Schedule(args) => reported(|| schedule::run(args)),
        Command::Regions(args) => regions::run(args),
        Command::Qos(args) => reported(|| qos::run(args)),
        Command::Sim(args) => sim::run(args),
    }
}

/// Runs a subcommand that ends by a signal as well, and then tells what it came to: whoever asks when it is about to end does not
/// cost the report.
fn reported(run: impl FnOnce() -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let waiter = Waiter::new()?;
    let result = run();
    waiter.drain()?;
    result
}

/// Opens a recording; says how much of it is read where that takes long and is `watched`.
///
/// # Errors
/// Where it cannot be opened or is no recording; the path is named.
pub fn open_recording(path: &Path, watched: bool) -> anyhow::Result<Recording<BufReader<Metered>>> {
    let name = path.display();
    let file = File::open(path)
        .map_err(|e| usage(format!("{name}: {e}; give a file that `cotenant record` or `--record` wrote")))?;
    Recording::read(BufReader::new(Metered::new(file, watched)))
        .map_err(|e| usage(format!("{name}: {}", words::chain(&e.into()))))
}
