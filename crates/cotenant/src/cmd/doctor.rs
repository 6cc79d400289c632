//! `cotenant doctor`: what this machine can tell and do, what is missing, what that costs, and the least that would
//! help.

use crate::settings;
use anyhow::Result;
use cotenant_cli::words::count;
use cotenant_linux::host::probe_tier;
use cotenant_linux::sense::capability::{Capability, Standing};
use cotenant_linux::sense::doctor;
use cotenant_linux::sense::progress;
use cotenant_linux::sense::rivals::{self, Rival};
use cotenant_linux::sense::tier::{Tier, TierReport};
use cotenant_model::{Signal, Topology};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `cotenant doctor`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    packages: usize,
    numa_nodes: usize,
    llc_domains: usize,
    cores: usize,
    cpus: usize,
    tier: TierReport,
    capabilities: Vec<Capability>,
    rivals: Vec<Rival>,
    policies: Vec<Advice>,
}

/// What a policy can do here.
#[derive(Debug, Serialize)]
struct Advice {
    policy: &'static str,
    text: String,
}

/// Examines this machine.
///
/// # Errors
/// One line with what went wrong, where, and what to do.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (topology, _) = settings::live_machine(None)?;
    let root = Path::new("/");
    let tier = probe_tier(&topology)?;
    let mut capabilities = doctor::detect(root);
    capabilities.push(progress::capability());
    let policies = advice(&tier, &topology);
    let report = Report {
        packages: topology.packages().len(),
        numa_nodes: topology.nodes().len(),
        llc_domains: topology.llc_domains().len(),
        cores: topology.cores().len(),
        cpus: topology.usable().len(),
        tier,
        capabilities,
        rivals: rivals::detect(root),
        policies,
    };
    cotenant_cli::answer(args.json, &report, |out| print(out, &report))
}

fn advice(tier: &TierReport, topology: &Topology) -> Vec<Advice> {
    let (packages, cpus) = (topology.packages().len(), topology.usable().len());
    let (nodes, caches) = (topology.nodes().len(), topology.llc_domains().len());
    let sam = if tier.tier != Tier::Full {
        "decides nothing here: coherence and memory traffic cannot be counted".to_owned()
    } else if packages < 2 {
        "has nothing to do here: one package".to_owned()
    } else {
        "can work; give it thresholds with --profile".to_owned()
    };
    let placing = if cpus < 2 { "has no choice here: one CPU" } else { "can work" };
    let numad = if nodes < 2 { "has nothing to do here: one memory node" } else { "can work" };
    let counts = |signal| tier.present.iter().any(|p| p.signal == signal);
    let dino = if !counts(Signal::LlcMisses) || !counts(Signal::Instructions) {
        "decides nothing here: misses or instructions cannot be counted"
    } else if nodes < 2 && caches < 2 {
        "has nothing to do here: one memory domain"
    } else {
        "can work"
    };
    vec![
        Advice { policy: "sam", text: sam.clone() },
        Advice {
            policy: "auto",
            text: if tier.tier == Tier::Full {
                sam
            } else {
                "tries mappings ('atom') where a program reports progress or --metric tells its speed; else it changes nothing".to_owned()
            },
        },
        Advice {
            policy: "heuristic",
            text: format!("{placing}; it needs --profiles with what is known of each program"),
        },
        Advice { policy: "static", text: format!("{placing}; it needs --map") },
        Advice { policy: "numad", text: numad.to_owned() },
        Advice { policy: "dino", text: dino.to_owned() },
        Advice { policy: "none", text: "works everywhere: changes nothing, measures".to_owned() },
    ]
}

fn print(out: &mut dyn std::io::Write, r: &Report) -> Result<()> {
    writeln!(
        out,
        "Machine: {}, {}, {}, {}, {}",
        count(r.packages as u64, "package"),
        count(r.numa_nodes as u64, "memory node"),
        count(r.llc_domains as u64, "LLC domain"),
        count(r.cores as u64, "core"),
        count(r.cpus as u64, "usable CPU")
    )?;
    writeln!(out, "Counters: {}", r.tier.tier)?;
    let present: Vec<&str> = r.tier.present.iter().map(|p| p.signal.name()).collect();
    if !present.is_empty() {
        writeln!(out, "  ✓ {}", present.join(", "))?;
    }
    for alike in r.tier.missing.chunk_by(|a, b| (&a.why, &a.remedy) == (&b.why, &b.remedy)) {
        let names: Vec<&str> = alike.iter().map(|m| m.signal.name()).collect();
        writeln!(out, "  ✗ {}: {}", names.join(", "), alike[0].why)?;
        if !alike[0].remedy.is_empty() {
            writeln!(out, "      helps: {}", alike[0].remedy)?;
        }
    }
    for note in &r.tier.notes {
        writeln!(out, "  ~ {note}")?;
    }
    writeln!(out, "Abilities:")?;
    for c in &r.capabilities {
        let mark = match c.standing {
            Standing::Available => '✓',
            Standing::Limited => '~',
            Standing::Missing => '✗',
        };
        writeln!(out, "  {mark} {}: {}", c.name, c.found)?;
        if !c.cost.is_empty() {
            writeln!(out, "      costs: {}", c.cost)?;
        }
        if !c.remedy.is_empty() {
            writeln!(out, "      helps: {}", c.remedy)?;
        }
    }
    writeln!(out, "Others that place tasks here:{}", if r.rivals.is_empty() { " none found" } else { "" })?;
    for rival in &r.rivals {
        writeln!(out, "  ! {} ({}): {}", rival.name, rival.found, rival.meaning)?;
        if !rival.remedy.is_empty() {
            writeln!(out, "      helps: {}", rival.remedy)?;
        }
    }
    writeln!(out, "Policies:")?;
    for a in &r.policies {
        writeln!(out, "  {:<10} {}", a.policy, a.text)?;
    }
    Ok(())
}
