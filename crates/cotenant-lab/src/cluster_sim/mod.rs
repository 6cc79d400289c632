//! `cotenant-lab cluster-sim`: nodes of a cluster as simulated machines. A pod scheduler decides where pods start, and
//! learns how slow they are beside each other and when they end.
//!
//! One request and one answer, a line of JSON each, on standard input and output. Simulated time advances only by
//! `advance`.

mod cluster;

use crate::validate::machine;
use cluster::Cluster;
use cotenant_cli::{print, usage};
use cotenant_linux::{bounded, given};
use cotenant_sim::app::parse_programs;
use cotenant_sim::machine::SimMachine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Example:
  $ cotenant-lab cluster-sim --machine nehalem-i7-920
  {\"verb\":\"start\",\"node\":\"n1\",\"pod\":\"a\",\"program\":\"mcf06\",\"work_s\":60}
  {\"ok\":{\"at_s\":0.0}}
  {\"verb\":\"advance\",\"to_s\":1000}
  {\"ok\":{\"at_s\":60.0,\"ended\":[{\"pod\":\"a\",\"node\":\"n1\",\"ran_s\":60.0,\"slowdown\":1.0}]}}";

/// Arguments of `cotenant-lab cluster-sim`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The machine that each node is: a TOML file of eight lines, see docs/reference/mix.md, or whatever names a
    /// machine with one last-level cache
    #[arg(long, value_name = "MACHINE")]
    pub machine: String,
    /// Programs besides those of workloads/: a TOML file with [program.NAME] tables, as in a scenario
    #[arg(long, value_name = "FILE")]
    pub programs: Option<PathBuf>,
}

/// A request. Names are at most 253 bytes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    /// Starts a pod of one thread on a node; it ends after work that takes `work_s` seconds alone.
    Start { node: String, pod: String, program: String, work_s: f64 },
    /// Ends a pod early.
    Stop { pod: String },
    /// Advances time to this moment or to the next end of a pod.
    Advance { to_s: f64 },
    /// Reports a node in the format of its daemon.
    Node { node: String },
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
    Ok(T),
    Error(String),
}

/// Runs the subcommand.
///
/// # Errors
/// If the machine or the programs are invalid.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = machine(&args.machine)?;
    let sim = SimMachine::of(&found).map_err(|e| usage(format!("--machine: {e}")))?;
    let own = args.programs.as_ref().map_or_else(
        || Ok(BTreeMap::new()),
        |path| {
            let text = given::text(path).map_err(|e| usage(format!("{}: {e}", path.display())))?;
            parse_programs(&text).map_err(|e| usage(format!("{}:{e}", path.display())))
        },
    )?;
    let mut cluster = Cluster::new(sim, own).map_err(|e| usage(format!("--machine {}: {e}", args.machine)))?;
    print(|out| {
        bounded::lines_of(io::stdin().lock(), |line| {
            if line.is_empty() {
                return Ok(());
            }
            answer(&mut cluster, line, out)
        })?;
        Ok(ExitCode::SUCCESS)
    })
}

fn answer(cluster: &mut Cluster, line: &[u8], out: &mut dyn Write) -> io::Result<()> {
    fn say(out: &mut dyn Write, answer: Result<impl Serialize, String>) -> io::Result<()> {
        let answer = answer.map_or_else(Answer::Error, Answer::Ok);
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()
    }
    match serde_json::from_slice(line) {
        Err(why) => say(out, Err::<(), _>(format!("this is not a request: {why}"))),
        Ok(Request::Start { node, pod, program, work_s }) => say(out, cluster.start(&node, &pod, &program, work_s)),
        Ok(Request::Stop { pod }) => say(out, cluster.stop(&pod)),
        Ok(Request::Advance { to_s }) => say(out, cluster.advance(to_s)),
        Ok(Request::Node { node }) => say(out, Ok(cluster.node(&node))),
    }
}
