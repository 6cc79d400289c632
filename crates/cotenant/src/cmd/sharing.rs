//! `cotenant sharing`: processes that write to the same memory.

use crate::run::targets;
use anyhow::Context as _;
use cotenant_cli::messages::count;
use cotenant_cli::table::Table;
use cotenant_cli::{answer, usage};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sense::sharing::{Group, Kind, scan};
use cotenant_setup::units;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cotenant sharing                     all processes that you may look into
  cotenant sharing -p \"$(pgrep -d, postgres)\" --json
  sudo cotenant sharing --least 64K    of all users, small segments too";

/// Objects that a row of the table names; JSON has all.
const NAMED: usize = 3;
/// Processes that it names.
const NUMBERED: usize = 8;

/// Arguments of `cotenant sharing`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only these processes [default: all]
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = units::pid)]
    pid: Vec<u32>,
    /// Leave out what has fewer bytes in common, such as 64K
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = units::bytes)]
    least: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// `/proc` cannot be listed; there is no such process.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let fs = FsRoot::live();
    targets::missing(&Target::Pids(args.pid.clone())).map_or(Ok(()), |why| Err(usage(why)))?;
    let pids = (!args.pid.is_empty()).then_some(&args.pid[..]);
    let found = scan(&fs, pids, args.least).context("/proc cannot be listed")?;
    let name = |pid: u32| {
        fs.read(&format!("/proc/{pid}/comm")).map_or_else(|_| "gone".to_owned(), |s| s.trim_end().to_owned())
    };
    let named: Vec<BTreeMap<u32, String>> =
        found.groups.iter().map(|group| group.pids.iter().map(|pid| (*pid, name(*pid))).collect()).collect();
    let report = json!({
        "least_bytes": args.least, "processes": found.read, "refused": found.refused, "cut": found.cut,
        "groups": found.groups.iter().zip(&named).map(|(group, names)| of_group(group, names)).collect::<Vec<_>>(),
    });
    answer(args.json, &report, |out| {
        let mut table = Table::new(["processes", ">MiB", "in common"]);
        for (group, names) in found.groups.iter().zip(&named) {
            table.row([who(names), mib(group.bytes), what(group)]);
        }
        if found.groups.is_empty() {
            let looked = count(found.read as u64, "process");
            writeln!(out, "no two processes write to the same {} MiB ({looked} looked at)", mib(args.least))?;
        } else {
            out.table(&table)?;
        }
        if found.refused > 0 {
            let refused = count(found.refused as u64, "process");
            writeln!(out, "{refused} of other users not looked at: that takes root or CAP_SYS_PTRACE")?;
        }
        if found.cut > 0 {
            let cut = count(found.cut as u64, "process");
            writeln!(out, "{cut} not looked at to the end: together they map too much; name fewer with -p")?;
        }
        Ok(())
    })
}

fn of_group(group: &Group, names: &BTreeMap<u32, String>) -> Value {
    let processes: Vec<Value> = names.iter().map(|(pid, name)| json!({ "pid": pid, "name": name })).collect();
    json!({ "bytes": group.bytes, "processes": processes, "objects": group.objects })
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1_048_576.0)
}

/// `9 postgres (812, 813 …)`.
fn who(names: &BTreeMap<u32, String>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names.values() {
        *counts.entry(name).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let pids: Vec<String> = names.keys().take(NUMBERED).map(u32::to_string).collect();
    let more = if names.len() > NUMBERED { " …" } else { "" };
    format!("{} ({}{more})", counts.join(", "), pids.join(", "))
}

/// `8.0 anonymous, 1.0 /srv/log, 2 more`.
fn what(group: &Group) -> String {
    let of = |object: &cotenant_linux::sense::sharing::Object| {
        let name = if object.kind == Kind::Anonymous { "anonymous" } else { &object.name };
        format!("{} {name}", mib(object.bytes))
    };
    let mut objects: Vec<String> = group.objects.iter().take(NAMED).map(of).collect();
    let rest = group.objects.len().saturating_sub(NAMED);
    objects.extend((rest > 0).then(|| format!("{rest} more")));
    objects.join(", ")
}
