//! `cotenant decide`: one decision from files, printed with its reasons.

use anyhow::Result;
use cotenant_cli::messages::tell;
use cotenant_cli::{machine_arg, usage};
use cotenant_model::machine::Machine;
use cotenant_record::snapshot::Snapshot;
use cotenant_setup::args::PolicyArgs;
use cotenant_setup::files::read_or_input;
use cotenant_setup::settings::Setup;
use cotenant_sim::derived;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant decide --machine ivy-bridge-2s --snapshot now.json --policy sam
  cotenant decide --machine 'package:2 l3:1 core:4 pu:2' --snapshot - --policy static --map 'XXXX............' < now.json";

/// Arguments of `cotenant decide`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The machine: a name in machines/, a TOML file, an lstopo XML file, a folder with a sys/ tree, or an hwloc
    /// synthetic string
    #[arg(long, value_name = "MACHINE")]
    machine: String,
    /// What each task counted in one interval (JSON, docs/reference/decide-snapshot.md in the source); '-' reads
    /// standard input
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
///
/// # Errors
/// Unreadable machine, snapshot or profile; a policy that cannot work with them.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut found = machine_arg::resolve(Some(&args.machine)).map_err(|e| usage(e.to_string()))?;
    let derived = derived::complete(&mut found.machine);
    let derived = derived.map_err(|e| usage(format!("machine {e}")))?;
    let given = found.machine.profile.thresholds;
    for note in &found.notes {
        tell(note);
    }
    let text = read_or_input(&args.snapshot)?;
    let is_input = args.snapshot.as_os_str() == "-";
    let place = if is_input { "standard input".to_owned() } else { args.snapshot.display().to_string() };
    let Machine { name, topology, mut profile, .. } = found.machine;
    let snapshot = Snapshot::parse(&text, &topology).map_err(|e| usage(format!("{place}:{e}")))?;
    profile.thresholds = snapshot.thresholds.or(profile.thresholds);
    let setup = Setup::new(&args.policy, &name, topology, profile)?;
    let rule = &setup.rules()[0];
    let by_thresholds = ["sam", "auto"].contains(&setup.policy()) && rule.ctx.machine.thresholds == given;
    let by_distances = rule.policy.needs().pages;
    let told = [derived.thresholds.filter(|_| by_thresholds), derived.distances.filter(|_| by_distances)];
    told.iter().flatten().for_each(tell);
    let answer = snapshot.decide(&rule.ctx, rule.policy);
    cotenant_cli::answer(args.json, &answer, |out| {
        for step in &answer.moves {
            writeln!(out, "{step}")?;
        }
        if answer.moves.is_empty() {
            writeln!(out, "no moves")?;
        }
        for note in &answer.notes {
            writeln!(out, "note: {note}")?;
        }
        Ok(())
    })
}
