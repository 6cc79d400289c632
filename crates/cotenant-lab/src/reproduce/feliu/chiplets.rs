//! Beyond the paper: the same policies on a current machine, with 96 cores under 16 last-level caches and 8 memory
//! nodes.

use super::super::lab::Lab;
use super::super::row::{Found, Row, geometric, mean, percent, row};
use super::{Alone, Injector, crowd, known, programs};
use cotenant_model::profile::AppProfile;
use cotenant_model::signal::Signal;
use cotenant_sim::kernel::KernelKind;
use std::collections::BTreeMap;

/// Two packages of four memory nodes of two chiplets of six cores.
const MACHINE: &str = "epyc-9454-2s-nps4";
const CPUS: usize = 96;
/// The other cores of CPU 0's chiplet.
const BESIDE: [usize; 5] = [1, 2, 3, 4, 5];
/// Programs per CPU.
const CROWD: usize = 2;
const POLICIES: [&str; 4] = ["none", "mas", "cas", "das"];
/// Without and with pages that follow their threads.
const KERNELS: [&str; 2] = ["eevdf", "eevdf+numa-balancing"];

/// Result of a mix.
#[derive(Clone, Debug)]
struct Run {
    makespan_s: f64,
    times_s: Vec<f64>,
    /// Standard deviation over mean of arrivals at the 16 caches, per quantum; without a policy it is sampled less
    /// often.
    unevenness: f64,
}

/// What runs.
#[derive(Clone, Copy, Debug)]
struct Case {
    mix: u64,
    kernel: &'static str,
    policy: &'static str,
    seed: u64,
}

/// Randomly drawn programs, with repetitions.
fn mix(seed: u64, all: &[&'static str]) -> Vec<&'static str> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..CROWD * CPUS).map(|_| all[rng.usize(0..all.len())]).collect()
}

fn run(case: Case, all: &[&'static str], work_s: f64, profiles: &BTreeMap<&str, AppProfile>) -> anyhow::Result<Run> {
    let scenario = crowd(MACHINE, &mix(case.mix, all), work_s, profiles, case.policy)?;
    let policy = cotenant_policies::standard().make(case.policy, &scenario.config).map_err(anyhow::Error::msg)?;
    let kernel: KernelKind = case.kernel.parse()?;
    let topology = scenario.machine.topology.clone();
    let domains = topology.llc_domains().len();
    let (mut unevenness, mut quanta) = (0.0, 0);
    let outcome = scenario.run(&*policy, kernel, case.seed, |round| {
        let mut arrives = vec![0.0; domains];
        for task in &round.view.tasks {
            let domain = task.cpu.and_then(|c| topology.llc_of(c));
            if let Some((domain, rate)) = domain.zip(task.per_s(Signal::PrivateMisses)) {
                arrives[domain] += rate;
            }
        }
        let all = mean(&arrives);
        // Near the end there is nothing left to choose.
        if round.sample.tasks.len() >= CPUS && all > 0.0 {
            let variance = mean(arrives.iter().map(|a| (a - all).powi(2)));
            unevenness += variance.sqrt() / all;
            quanta += 1;
        }
    })?;
    let times_s = outcome.apps.iter().map(|app| app.time_s).collect();
    Ok(Run { makespan_s: outcome.makespan_s, times_s, unevenness: unevenness / f64::from(quanta.max(1)) })
}

/// Each program alone: its loss at their mean traffic, and its traffic per microsecond.
fn lost(lab: &Lab, all: &[&'static str]) -> anyhow::Result<(Vec<Alone>, Vec<f64>, f64)> {
    let found = lab.parallel("feliu-chiplets: alone", all, |program| super::alone(MACHINE, program))?;
    let average = mean(found.iter().map(|alone: &Alone| alone.tr_l2));
    let injector = Injector::Memory.tuned(MACHINE, average)?;
    let beside = |program: &&str| super::loss(MACHINE, program, &injector, &BESIDE);
    let lost = lab.parallel("feliu-chiplets: beside injectors", all, beside)?;
    Ok((found, lost, average))
}

/// Mixes of twice as many programs as cores.
pub(in super::super) fn chiplets(lab: &mut Lab) -> anyhow::Result<Found> {
    let quick = lab.effort.every > 1;
    let (work_s, mixes, kernels) = if quick { (0.5, 1, &KERNELS[..1]) } else { (10.0, 3, &KERNELS[..]) };
    let seeds = if quick { 1 } else { lab.effort.seeds };
    let all: Vec<&'static str> = programs().into_iter().step_by(lab.effort.every).collect();
    let (alone, lost, average) = lost(lab, &all)?;
    let known = |(alone, loss): (&Alone, &f64)| known(work_s, alone, *loss);
    let profiles = all.iter().copied().zip(alone.iter().zip(&lost).map(known)).collect();
    let mut cases = Vec::new();
    for kernel in kernels {
        for mix in 1..=mixes {
            for policy in POLICIES {
                cases.extend((1..=seeds).map(|seed| Case { mix, kernel, policy, seed }));
            }
        }
    }
    let runs = lab.parallel("feliu-chiplets: mixes", &cases, |case| run(*case, &all, work_s, &profiles))?;
    let of = |kernel: &str, mix: u64, policy: &str, what: &dyn Fn(&Run) -> f64| {
        let these = cases.iter().zip(&runs).filter(|(c, _)| (c.kernel, c.mix, c.policy) == (kernel, mix, policy));
        mean(these.map(|(_, run)| what(run)))
    };
    let mut rows: Vec<Row> = Vec::new();
    let mut words = Vec::new();
    for kernel in kernels {
        let mut gains = Vec::new();
        for &policy in &POLICIES[1..] {
            let uneven = mean((1..=mixes).map(|mix| of(kernel, mix, policy, &|run| run.unevenness)));
            let label = format!("{kernel}, {policy}: what arrives at the 16 caches, deviation over mean");
            rows.push(row(label, uneven * 100.0, "%"));
            let over = |what: &dyn Fn(&Run) -> f64| {
                let gain = |mix| of(kernel, mix, "none", what) / of(kernel, mix, policy, what);
                percent(geometric((1..=mixes).map(gain)))
            };
            let makespan = over(&|run| run.makespan_s);
            rows.push(row(format!("{kernel}: {policy} over Linux, makespan"), makespan, "%"));
            let turnaround = over(&|run| geometric(&run.times_s));
            rows.push(row(format!("{kernel}: {policy} over Linux, turnaround of a program"), turnaround, "%"));
            gains.push(format!("{policy} {makespan:+.1} and {turnaround:+.1} %"));
        }
        words.push(format!("on {kernel} {}", gains.join(", ")));
    }
    let sensitive = lost.iter().filter(|l| **l >= cotenant_model::profile::SENSITIVE).count();
    let note = format!(
        "{mixes} mixes of {} programs drawn at random on {MACHINE} (96 cores, 16 L3 of 32 MiB, 8 memory nodes), \
         {seeds} seeds. Each executes what it executes alone in {work_s} s. Linux is the simulated kernel alone. A \
         program's pages are on the node where it began, unless the kernel moves them. Sensitive for das: at least 5 \
         % slower beside five memory injectors in its chiplet, each with the programs' mean rate of {average:.1}/µs: \
         {sensitive} of {}. The machine's bandwidth and latencies are partly guesses (machines/{MACHINE}.toml). What \
         a decision costs: cargo bench -p cotenant-model --bench decide, case jobs.",
        CROWD * CPUS,
        all.len()
    );
    let verdict = format!("makespan and turnaround over Linux: {}", words.join("; "));
    Ok(Found::new(rows, verdict, note))
}
