//! `cotenant doctor`: capabilities of this machine, what is missing, what that costs, and the smallest remedy.

use crate::run::one::little_to_choose;
use anyhow::Result;
use cotenant_cli::messages::count;
use cotenant_daemon::client::{ask, is_there};
use cotenant_daemon::protocol::Request;
use cotenant_linux::act::{background, cpu_time, pause};
use cotenant_linux::host::probe_tier;
use cotenant_linux::sense::capability::{Capability, Standing};
use cotenant_linux::sense::doctor;
use cotenant_linux::sense::rivals::{self, Rival};
use cotenant_linux::sense::tier::{Tier, TierReport};
use cotenant_linux::sense::{progress, proxies};
use cotenant_linux::sys;
use cotenant_model::{Signal, Topology};
use cotenant_setup::settings;
use cotenant_status::status::{ServiceStatus, Status};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `cotenant doctor`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    daemon: super::status::DaemonArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
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
    /// The daemon of this user, or else root's; absent where none runs.
    daemon: Option<Daemon>,
}

/// The daemon's status, and its problems.
#[derive(Debug, Serialize)]
struct Daemon {
    /// Null without an answer.
    pid: Option<u32>,
    mode: &'static str,
    services: usize,
    wrong: Vec<String>,
}

fn daemon(socket: Option<&Path>) -> Option<Daemon> {
    if !is_there(socket) {
        return None;
    }
    let status: Status = match ask(socket, Request::Status) {
        Ok(status) => status,
        Err(why) => {
            let wrong = vec![cotenant_cli::messages::chain(&why)];
            return Some(Daemon { pid: None, mode: "listens", services: 0, wrong });
        }
    };
    let mut wrong: Vec<String> =
        status.config_error.iter().map(|why| format!("its configuration is not in force: {why}")).collect();
    if status.is_stale() {
        wrong.push(format!("its last sample is {:.0} s old; restart it", status.age().as_secs_f64()));
    }
    // The daemon's remarks on its services take precedence over capabilities here.
    wrong.extend(status.notes.iter().filter(|note| note.contains(background::NO_EFFECT)).cloned());
    let fails = |service: &ServiceStatus| Some(format!("{}: {}", service.name, service.metric_error.as_ref()?));
    wrong.extend(status.services.iter().filter_map(fails));
    let mute = status.services.iter().filter(|service| {
        service.cpus.is_some_and(|cpus| cpus > 0.1) && service.source.is_none() && service.metric_error.is_none()
    });
    let names: Vec<&str> = mute.map(|service| &*service.name).collect();
    if !names.is_empty() {
        wrong.push(format!(
            "the speed of these is not reported: {}; name a metric in their rule, or let them report progress",
            names.join(", ")
        ));
    }
    Some(Daemon { pid: Some(status.pid), mode: status.mode(), services: status.services.len(), wrong })
}

/// The abilities of a policy here.
#[derive(Debug, Serialize)]
pub(super) struct Advice {
    pub policy: &'static str,
    pub text: String,
}

/// Examines this machine.
///
/// # Errors
/// One line with the fault, its place, and the remedy.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (topology, _) = settings::live_machine(None)?;
    let root = Path::new("/");
    let tier = probe_tier(&topology)?;
    let mut capabilities = doctor::detect(root);
    let counted = tier.present.iter().any(|p| p.signal == Signal::Instructions);
    capabilities.extend([pause::capability(), cpu_time::capability(), background::capability()]);
    capabilities.extend([progress::capability(), proxies::capability(counted)]);
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
        daemon: daemon(args.daemon.socket()),
    };
    cotenant_cli::answer(args.json, &report, |out| print(out, &report))
}

/// The abilities of each policy here.
pub(super) fn advice(tier: &TierReport, topology: &Topology) -> Vec<Advice> {
    let (packages, cpus) = (topology.packages().len(), topology.usable().len());
    let (nodes, caches) = (topology.nodes().len(), topology.llc_domains().len());
    let sam = match tier.tier {
        Tier::Full if packages < 2 => "has nothing to do here: one package",
        Tier::Full => "can work; give it thresholds with --profile",
        _ => "decides nothing here: coherence and memory traffic cannot be counted",
    };
    let auto = little_to_choose(topology).unwrap_or(
        "tries placements where a program's speed is known: progress, --metric, counters, steady bytes; else changes nothing",
    );
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
    // Tried with the mask that is there; a filter of system calls may refuse it.
    let refused = sys::getaffinity(0).and_then(|mask| sys::setaffinity(0, &mask)).err();
    let all = [
        ("sam", sam.to_owned()),
        ("auto", auto.to_owned()),
        ("heuristic", format!("{placing}; it needs --profiles with what is known of each program")),
        ("static", format!("{placing}; it needs --map")),
        ("numad", numad.to_owned()),
        ("dino", dino.to_owned()),
        ("none", "works everywhere: changes nothing, measures".to_owned()),
    ];
    let said = |policy, text| match &refused {
        Some(why) if policy != "none" => format!(
            "cannot place here: sched_setaffinity is refused ({why}); let it pass the filter of system calls (seccomp) \
             of this container or service"
        ),
        _ => text,
    };
    all.into_iter().map(|(policy, text)| Advice { policy, text: said(policy, text) }).collect()
}

/// `1 package, 1 memory node, …`, from the numbers of packages, memory nodes, LLC domains, cores and usable CPUs.
pub(super) fn parts(counts: [usize; 5]) -> String {
    let nouns = ["package", "memory node", "LLC domain", "core", "usable CPU"];
    let parts = counts.into_iter().zip(nouns).map(|(n, noun)| count(n as u64, noun));
    parts.collect::<Vec<_>>().join(", ")
}

fn print(out: &mut dyn std::io::Write, r: &Report) -> Result<()> {
    let mut line = |text: &str| writeln!(out, "{text}");
    line(&format!("Machine: {}", parts([r.packages, r.numa_nodes, r.llc_domains, r.cores, r.cpus])))?;
    let helps = |remedy: &str| (!remedy.is_empty()).then(|| format!("      helps: {remedy}"));
    line(&format!("Counters: {}", r.tier.tier))?;
    let present: Vec<&str> = r.tier.present.iter().map(|p| p.signal.name()).collect();
    if !present.is_empty() {
        line(&format!("  ✓ {}", present.join(", ")))?;
    }
    for alike in r.tier.missing.chunk_by(|a, b| (&a.why, &a.remedy) == (&b.why, &b.remedy)) {
        let names: Vec<&str> = alike.iter().map(|m| m.signal.name()).collect();
        line(&format!("  ✗ {}: {}", names.join(", "), alike[0].why))?;
        helps(&alike[0].remedy).iter().try_for_each(|text| line(text))?;
    }
    r.tier.notes.iter().try_for_each(|note| line(&format!("  ~ {note}")))?;
    line("Abilities:")?;
    for c in &r.capabilities {
        let mark = match c.standing {
            Standing::Available => '✓',
            Standing::Limited => '~',
            Standing::Missing => '✗',
        };
        line(&format!("  {mark} {}: {}", c.name, c.found))?;
        if !c.cost.is_empty() {
            line(&format!("      costs: {}", c.cost))?;
        }
        helps(&c.remedy).iter().try_for_each(|text| line(text))?;
    }
    line(&format!("Others that place tasks here:{}", if r.rivals.is_empty() { " none found" } else { "" }))?;
    for rival in &r.rivals {
        line(&format!("  ! {} ({}): {}", rival.name, rival.found, rival.meaning))?;
        helps(rival.remedy).iter().try_for_each(|text| line(text))?;
    }
    match &r.daemon {
        None => line("Daemon: none runs here")?,
        Some(daemon) => {
            let services = count(daemon.services as u64, "service");
            let process = daemon.pid.map_or_else(String::new, |pid| format!("process {pid} "));
            line(&format!("Daemon: {process}{}, {services}", daemon.mode))?;
            daemon.wrong.iter().try_for_each(|wrong| line(&format!("  ! {wrong}")))?;
        }
    }
    line("Policies:")?;
    r.policies.iter().try_for_each(|a| line(&format!("  {:<10} {}", a.policy, a.text)))?;
    Ok(())
}
