//! `cotenant` alone: the abilities of this machine, and commands to try. `cotenant demo` ends with it, too.

use super::doctor;
use anyhow::Result;
use cotenant_cli::page::Sheet;
use cotenant_cli::table::Table;
use cotenant_linux::act::{background, cpu_time, pause};
use cotenant_linux::host::probe_tier;
use cotenant_linux::sense::capability::{Capability, Standing};
use cotenant_linux::sense::tier::TierReport;
use cotenant_model::Topology;
use cotenant_model::topology::shared::levels;
use cotenant_setup::settings;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// A command to try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    pub command: String,
    pub why: String,
}

/// The abilities of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Outlook {
    pub machine: String,
    /// The possible effect of placing threads.
    pub placing: String,
    /// The source of programs' speeds.
    pub speeds: String,
    /// The means of throttling programs.
    pub throttling: String,
    /// Missing abilities, with their costs and remedies.
    pub missing: Vec<String>,
    /// Commands to try: the demonstration, two for programs of the user's, the one that suits this machine better
    /// first, and `doctor`.
    pub next: [Step; 4],
}

/// Examines this machine quickly, without all of `doctor`'s trials.
///
/// # Errors
/// An unreadable topology.
pub fn look() -> Result<Outlook> {
    let (topology, _) = settings::live_machine(None)?;
    let means = [pause::capability(), cpu_time::capability(), background::capability()];
    Ok(Outlook::of(&topology, &probe_tier(&topology)?, &means))
}

impl Outlook {
    fn of(topology: &Topology, tier: &TierReport, means: &[Capability]) -> Self {
        let (nodes, domains, cpus) = (topology.nodes().len(), topology.llc_domains().len(), topology.usable().len());
        let auto = doctor::advice(tier, topology).into_iter().find(|advice| advice.policy == "auto");
        let there = means.iter().filter(|means| means.standing != Standing::Missing);
        let there: Vec<String> = there.map(|means| format!("{} ({})", means.name, means.found)).collect();
        let missing = means.iter().filter(|means| !means.remedy.is_empty());
        let step = |command: &str, why: &str| Step { command: command.to_owned(), why: why.to_owned() };
        let qos = step(
            "cotenant qos --high ./server --metric redis:6379:p99 --low ./batch",
            "keeps your server at 90 % of its speed beside your batch work",
        );
        let compare = step(
            "cotenant compare --runs 5 -- ./program",
            "says whether placing its threads makes a program of yours faster",
        );
        let has_places = levels(topology, topology.usable()).iter().any(|level| level.instances.len() > 1);
        let [first, second] = if has_places { [compare, qos] } else { [qos, compare] };
        Self {
            machine: doctor::parts([topology.packages().len(), nodes, domains, topology.cores().len(), cpus]),
            placing: auto.map_or_else(String::new, |advice| format!("policy auto {}", advice.text)),
            speeds: format!("counters: {}; else what programs report, or --metric", tier.tier),
            throttling: if there.is_empty() { "SIGSTOP alone".to_owned() } else { there.join(", ") },
            missing: missing.map(|m| format!("{}: {}; helps: {}", m.name, m.cost, m.remedy)).collect(),
            next: [
                step("cotenant demo", "shows in a minute what a batch program does to a server here, and what helps"),
                first,
                second,
                step("cotenant doctor", "lists what is missing here, what that costs, and what would help"),
            ],
        }
    }
}

/// Prints it.
///
/// # Errors
/// As [`look`]; a closed standard output.
pub fn run() -> Result<ExitCode> {
    let outlook = look()?;
    cotenant_cli::print_page(|out| {
        let mut table = Table::new(["", ""]);
        let Outlook { machine, placing, speeds, throttling, .. } = &outlook;
        table.row(["this machine", machine]);
        table.row(["placing", placing]);
        table.row(["speeds", speeds]);
        table.row(["throttling", throttling]);
        out.table(&table)?;
        writeln!(out, "Try:")?;
        let [demo, yours, _, doctor] = &outlook.next;
        steps(out, [demo, yours, doctor])?;
        writeln!(out, "All commands: cotenant --help")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes commands, each with why.
///
/// # Errors
/// The output is closed.
pub fn steps<'a>(out: &mut Sheet<'_>, steps: impl IntoIterator<Item = &'a Step>) -> Result<()> {
    for Step { command, why } in steps {
        writeln!(out, "  {command}\n      {why}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_cli::machine_arg;
    use cotenant_linux::sense::tier::Tier;

    /// The outlook for a described machine on which programs can be paused, and maybe run in the background.
    fn outlook(machine: &str, background: Standing) -> Outlook {
        let topology = machine_arg::resolve(Some(machine)).unwrap().machine.topology;
        let (pmus, present, missing, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let tier = TierReport { tier: Tier::SoftwareOnly, pmus, present, missing, notes };
        let means = |name: &str, standing| Capability {
            name: name.to_owned(),
            standing,
            found: "found".to_owned(),
            cost: "costs".to_owned(),
            remedy: if standing == Standing::Available { String::new() } else { "that".to_owned() },
        };
        Outlook::of(&topology, &tier, &[means("freezer", Standing::Available), means("background", background)])
    }

    fn subcommands(outlook: &Outlook) -> Vec<&str> {
        outlook.next.iter().map(|step| step.command.split(' ').nth(1).unwrap()).collect()
    }

    #[test]
    fn what_suits_the_machine_comes_first() {
        let small = outlook("package:1 l3:1 core:2 pu:1", Standing::Available);
        assert_eq!(subcommands(&small), ["demo", "qos", "compare", "doctor"]);
        let large = outlook("package:2 [numa] l3:1 core:4 pu:1", Standing::Available);
        assert_eq!(subcommands(&large), ["demo", "compare", "qos", "doctor"]);
        assert!(large.placing.starts_with("policy auto tries placements"), "{large:?}");
        assert!(large.machine.starts_with("2 packages, 2 memory nodes, 2 LLC domains, 8 cores"), "{large:?}");
    }

    #[test]
    fn what_is_missing_comes_with_what_helps() {
        let whole = outlook("package:1 l3:1 core:2 pu:1", Standing::Available);
        assert_eq!((&*whole.throttling, whole.missing.len()), ("freezer (found), background (found)", 0));
        let part = outlook("package:1 l3:1 core:2 pu:1", Standing::Missing);
        assert_eq!(part.throttling, "freezer (found)");
        assert_eq!(part.missing, ["background: costs; helps: that"]);
    }
}
