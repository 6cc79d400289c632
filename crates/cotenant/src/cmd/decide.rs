//! `cotenant decide`: one decision from files, printed with its reasons.

use crate::cli::PolicyArgs;
use crate::settings::{Setup, read};
use crate::{machine_arg, usage};
use anyhow::Result;
use cotenant_core::{View, host, snapshot};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `cotenant decide`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The machine: a name in machines/, a TOML file, an lstopo XML file, a folder with a sys/ tree, or an hwloc synthetic string
    #[arg(long, value_name = "MACHINE")]
    machine: String,
    /// What each task counted in one interval (JSON, see docs/reference/decide-snapshot.md); '-' reads standard input
    #[arg(long, value_name = "FILE")]
    snapshot: PathBuf,
    /// What decides
    #[command(flatten)]
    policy: PolicyArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Decides once.
pub fn run(args: &Args) -> Result<ExitCode> {
    let machine = machine_arg::resolve(&args.machine)?;
    let setup = Setup::new(&args.policy, machine.topology, machine.profile)?;
    let (text, place) = if args.snapshot.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        (text, "standard input".to_owned())
    } else {
        (read(&args.snapshot)?, args.snapshot.display().to_string())
    };
    let snapshot = snapshot::parse(&text, &setup.topology).map_err(|e| usage(format!("{place}:{e}")))?;
    let view = View::new(&snapshot.prev, &snapshot.next);
    let ctx = setup.ctx();
    let decision = setup.policy.decide(&ctx, &view, &[], snapshot.state, view.at);
    let orders = host::resolve(&ctx, &snapshot.next, &decision);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&snapshot::answer(&snapshot.next, &orders, &decision))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for order in &orders {
        let task = order.action.task();
        let from = view.task(task).and_then(|t| t.cpu).map_or_else(|| "?".to_owned(), |cpu| cpu.to_string());
        match &order.action {
            cotenant_core::Action::Place { contexts, .. } => {
                writeln!(out, "task {task}: CPU {from} → {contexts} (affinity {}): {}", order.affinity, order.reason)?;
            }
            cotenant_core::Action::Release { .. } => writeln!(out, "task {task}: CPU {from} → its own mask: {}", order.reason)?,
        }
    }
    if orders.is_empty() {
        writeln!(out, "no moves")?;
    }
    for note in &decision.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(ExitCode::SUCCESS)
}
