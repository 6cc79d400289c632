//! `cotenant why`: why a task was moved, or was not.

use super::{open_recording, print};
use cotenant_core::record::Tail;
use cotenant_core::why::{Answer, Query, why};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant why a.rec worker          every task of that command or application name
  cotenant why a.rec 4711            thread 4711
  cotenant why a.rec 12s..14s        what was moved in these two seconds";

/// Arguments of `cotenant why`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The recording: what `cotenant record` or `--record` wrote
    pub file: PathBuf,
    /// A thread id, a command or application name, task:ID, tid:ID, app:ID, or a time since the start: 12.3s (all that rounds to
    /// it) or 12s..14s
    pub what: Query,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    answer: &'a Answer,
    tail: &'a Tail,
}

/// Runs the subcommand.
///
/// # Errors
/// Where the file is no readable recording.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    print(|out| write(args, out))
}

/// Writes the answer.
///
/// # Errors
/// Where the file is no readable recording, or `out` takes no more.
pub fn write(args: &Args, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut recording = open_recording(&args.file, true)?;
    let header = recording.header().clone();
    let answer = why(&header, recording.by_ref(), &args.what);
    let tail = recording.tail().unwrap_or(&Tail::Complete);
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &Json { answer: &answer, tail })?;
        writeln!(out)?;
    } else {
        write!(out, "{answer}")?;
        if *tail != Tail::Complete {
            writeln!(out, "The recording is {tail}.")?;
        }
    }
    let found = !answer.moves.is_empty() || !answer.unmoved.is_empty() || matches!(args.what, Query::Time { .. });
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
