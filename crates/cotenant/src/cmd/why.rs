//! `cotenant why`: why a task was moved, or was not; why an application naps, or is limited.

use super::open_recording;
use cotenant_cli::{print, print_page, usage};
use cotenant_model::Time;
use cotenant_record::Tail;
use cotenant_record::why::{Answer, Query, why};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant why a.rec worker          every task of that command or application name
  cotenant why a.rec 4711            thread 4711
  cotenant why a.rec x264 --at 13s   what held for it then: place, nap, limits
  cotenant why a.rec 12s..14s        what was ordered in these two seconds";

/// Arguments of `cotenant why`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The recording: what `cotenant record` or `--record` wrote
    pub file: PathBuf,
    /// A thread id, a command or application name, task:ID, tid:ID, app:ID, or a time since the start: 12.3s (all
    /// that rounds to it) or 12s..14s
    pub what: Query,
    /// Tell what held for the task or application at this time, in seconds since the start, such as 12.3s [default:
    /// every move, and what held at the end]
    #[arg(long, value_name = "TIME")]
    pub at: Option<Time>,
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
    if args.json { print(|out| write(args, out)) } else { print_page(|out| write(args, out)) }
}

/// Writes the answer.
///
/// # Errors
/// Where the file is no readable recording, or `out` takes no more.
pub fn write(args: &Args, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if args.at.is_some() && matches!(args.what, Query::Time { .. }) {
        return Err(usage("--at is for a task or an application; a time by itself tells all that was ordered then"));
    }
    let mut recording = open_recording(&args.file, true)?;
    let header = recording.header().clone();
    let answer = why(&header, recording.by_ref(), &args.what, args.at);
    let tail = recording.tail().unwrap_or(&Tail::Complete);
    if args.json {
        cotenant_cli::pretty(out, &Json { answer: &answer, tail })?;
    } else {
        write!(out, "{answer}")?;
        if *tail != Tail::Complete {
            writeln!(out, "The recording is {tail}.")?;
        }
    }
    let told = !answer.moves.is_empty() || !answer.standing.is_empty() || !answer.unmoved.is_empty();
    let found = told || matches!(args.what, Query::Time { .. });
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
