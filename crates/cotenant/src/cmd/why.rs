//! `cotenant why`: the reasons of moves, naps and limits, and of their absence. From a recording, or from the running
//! daemon.

use super::status::DaemonArgs;
use crate::open::{in_time, open_recording};
use cotenant_cli::{answer, print, print_page, usage};
use cotenant_daemon::client::ask;
use cotenant_daemon::protocol::Request;
use cotenant_model::Time;
use cotenant_model::text::name;
use cotenant_record::Tail;
use cotenant_record::why::{Answer, Query, why};
use cotenant_status::status::{Decision, Status};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant why a.rec worker          every task of that command or application name
  cotenant why a.rec 4711            thread 4711
  cotenant why a.rec x264 --at 13s   what held for it then: place, nap, limits
  cotenant why a.rec 12s..14s        what was ordered in these two seconds
  cotenant why --live nginx.service  the last decisions of the daemon about a service";

/// Arguments of `cotenant why`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "cotenant why [OPTIONS] <FILE> [WHAT]\n       cotenant why [OPTIONS] --live [<SERVICE>]"
)]
pub struct Args {
    /// The recording: what `cotenant record` or `--record` wrote
    #[arg(required_unless_present = "live")]
    pub file: Option<PathBuf>,
    /// A thread id, a command or application name, task:ID, tid:ID, app:ID, or a time since the start: 12.3s (all
    /// that rounds to it) or 12s..14s [default: what there is]
    #[arg(conflicts_with = "live")]
    pub what: Option<Query>,
    /// Tell what held for the task or application at this time, in seconds since the start, such as 12.3s [default:
    /// every move, and what held at the end]
    #[arg(long, value_name = "TIME", conflicts_with = "live")]
    pub at: Option<Time>,
    /// The last decisions of the daemon that runs, about this service, or all with --live alone
    #[arg(long, value_name = "SERVICE", num_args = 0..=1, default_missing_value = "")]
    pub live: Option<String>,
    /// With --live, which daemon
    #[command(flatten)]
    daemon: DaemonArgs,
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
/// An unreadable recording.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(service) = &args.live {
        // The service may follow other options.
        return match (service.as_str(), &args.file) {
            ("", Some(service)) => live(args, &service.to_string_lossy()),
            (_, None) => live(args, service),
            (_, Some(more)) => Err(usage(format!("--live is about one service, or all: leave out {}", more.display()))),
        };
    }
    if args.json { print(|out| write(args, out)) } else { print_page(|out| write(args, out)) }
}

fn live(args: &Args, service: &str) -> anyhow::Result<ExitCode> {
    let status: Status = ask(args.daemon.socket(), Request::Status)?;
    if !service.is_empty() && !status.services.iter().any(|known| known.name == service) {
        return Err(usage(format!("the daemon manages no service '{service}'; see cotenant status")));
    }
    let last: Vec<&Decision> =
        status.last.iter().filter(|decision| service.is_empty() || decision.service == service).collect();
    answer(args.json, &last, |out| {
        for decision in &last {
            writeln!(out, "{}: {}", status.when(decision), decision.line())?;
        }
        if last.is_empty() {
            let about = if service.is_empty() { "" } else { " about it" };
            writeln!(out, "nothing was decided{about} lately; the daemon {}", status.mode())?;
        }
        Ok(())
    })
}

/// Limit of listed applications, and of listed names of threads.
const MOST: usize = 40;

/// Possible subjects in a recording.
#[derive(Default, Serialize)]
struct There {
    /// Seconds.
    ends_s: f64,
    applications: BTreeSet<String>,
    threads: BTreeSet<String>,
}

fn whatever(args: &Args, file: &Path, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if args.at.is_some() {
        return Err(usage("--at is for a task or an application; name one"));
    }
    let mut there = There::default();
    for round in open_recording(file, true)? {
        there.ends_s = round.sample.at.as_secs_f64();
        there.applications.extend(round.sample.apps.iter().map(|app| app.name.clone()));
        there.threads.extend(round.sample.tasks.iter().map(|task| name(task.info.comm.as_bytes())));
    }
    if args.json {
        cotenant_cli::pretty(out, &there)?;
        return Ok(ExitCode::SUCCESS);
    }
    let list = |names: &BTreeSet<String>| {
        let more = names.len().saturating_sub(MOST);
        let shown: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
        format!("{}{}", shown.join(", "), if more > 0 { format!(", and {more} more") } else { String::new() })
    };
    writeln!(out, "Name what to explain: cotenant why {} WHAT. There are:", file.display())?;
    writeln!(out, "  applications  {}", list(&there.applications))?;
    writeln!(out, "  threads       {}", list(&there.threads))?;
    writeln!(out, "  times         0s to {:.1}s", there.ends_s)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the answer.
///
/// # Errors
/// An unreadable recording; a closed `out`.
pub fn write(args: &Args, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Some(file) = &args.file else { return Err(usage("name a recording")) };
    let Some(what) = &args.what else { return whatever(args, file, out) };
    if args.at.is_some() && matches!(what, Query::Time { .. }) {
        return Err(usage("--at is for a task or an application; a time by itself tells all that was ordered then"));
    }
    let mut recording = open_recording(file, true)?;
    let header = recording.header().clone();
    let mut ends = Time::default();
    let rounds = recording.by_ref().inspect(|round| ends = round.sample.at);
    let answer = why(&header, rounds, what, args.at);
    if let Some(at) = args.at {
        in_time("--at", at, ends)?;
    }
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
    let found = told || matches!(what, Query::Time { .. });
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
