//! Cache-hierarchy contention and the quantum schedulers (Feliu et al., TPDS 2014), on the simulated Xeon X3320.

mod chiplets;
mod contention;
mod rebuilt;
mod runs;
mod schedule;

pub(super) use chiplets::chiplets;
pub(super) use contention::{characterization, degradation, l2, memory};
pub(super) use runs::Schedules;
pub(super) use schedule::{balance, fairness, speedup, timeline};

use super::lab::{Lab, Watch};
use anyhow::Context as _;
use cotenant_model::Time;
use cotenant_model::profile::AppProfile;
use cotenant_model::signal::Signal;
use cotenant_policies::CoSchedule;
use cotenant_sim::app::embedded;
use cotenant_sim::kernel::KernelKind;
use cotenant_sim::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The machine of the paper (§3).
const MACHINE: &str = "x3320";
/// Seconds of work of a measured program; the first second warms the caches.
const WORK_S: f64 = 0.5;
const ON_THIS_MODEL: &str = "Programs are those of workloads/spec-cpu2006.toml, with the L1 misses of programs.csv where a figure was found, and what \
     prefetching fetches ahead not counted among the L2's; inputs are ref throughout.";

/// The measured SPEC CPU2006 programs, by the paper's names.
fn programs() -> Vec<&'static str> {
    embedded().keys().filter_map(|name| name.strip_suffix("06")).collect()
}

/// Rates of a program that runs alone, per microsecond, and its instructions per cycle.
#[derive(Clone, Copy, Debug)]
struct Alone {
    ipc: f64,
    /// L1 misses, which arrive at the L2.
    tr_l1: f64,
    /// L2 misses, which go to memory.
    tr_l2: f64,
}

/// Cycles per second of a simulated machine.
fn clock_hz(scenario: &Scenario) -> anyhow::Result<f64> {
    scenario.machine.profile.clock_hz.context("the machine file has no clock_hz")
}

fn app(program: &str, cpu: usize) -> String {
    format!("[[app]]\nprogram = '{program}'\nwork_s = {WORK_S}\ncpus = '{cpu}'\n")
}

/// A SPEC CPU2006 program on a machine: its name there, and its definition if it is not in `workloads/`.
fn spec(machine: &str, program: &str) -> (String, String) {
    if machine == MACHINE {
        (program.to_owned(), rebuilt::definition(program))
    } else {
        (format!("{program}06"), String::new())
    }
}

fn alone(machine: &str, program: &str) -> anyhow::Result<Alone> {
    let (name, definition) = spec(machine, program);
    rates(machine, &format!("{}{definition}", app(&name, 0)))
}

/// Rates of the first app of a scenario, after its caches are warm.
fn rates(machine: &str, text: &str) -> anyhow::Result<Alone> {
    let mut scenario = Lab::scenario_on(machine, text)?;
    let clock = clock_hz(&scenario)?;
    scenario.observation.cost_s = 0.0;
    let warm = Time((WORK_S / 2.0 * 1e9) as u64);
    let [mut cycles, mut instructions, mut arrivals, mut misses] = [0.0; 4];
    scenario.run(&Watch, KernelKind::EEVDF, 1, |round| {
        let Some(task) = round.view.tasks.first().filter(|_| round.prev.at >= warm) else { return };
        let add = |to: &mut f64, signal| *to += task.per_s(signal).unwrap_or(0.0) * round.view.interval.as_secs_f64();
        add(&mut cycles, Signal::Cycles);
        add(&mut instructions, Signal::Instructions);
        add(&mut arrivals, Signal::PrivateMisses);
        add(&mut misses, Signal::LlcMisses);
    })?;
    anyhow::ensure!(cycles > 0.0, "nothing was counted of the first program of\n{text}");
    let us = cycles / clock * 1e6;
    Ok(Alone { ipc: instructions / cycles, tr_l1: arrivals / us, tr_l2: misses / us })
}

/// The synthetic program of the paper's appendix I: accesses at a settable rate that all miss the L2, or all hit it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Injector {
    Memory,
    L2,
}

impl Injector {
    fn program(self, cpi: f64) -> String {
        // 1 % hits, for lines that stay. Ten lines in flight hide latency as far as the machine allows.
        let (footprint, ratio) = match self {
            Self::Memory => (1e9, 1.0),
            Self::L2 => (1e5, 1e-6),
        };
        format!(
            "[program.inject]\ncpi = {cpi}\nllc_apki = 100\nllc_mlp = 10\nmlp = 10\nfootprint_bytes = {footprint}\nmiss_ratio = [[64, {ratio}]]\n"
        )
    }

    fn measured(self, machine: &str, cpi: f64) -> anyhow::Result<f64> {
        let found = rates(machine, &format!("{}{}", app("inject", 0), self.program(cpi)))?;
        Ok(if self == Self::Memory { found.tr_l2 } else { found.tr_l1 })
    }

    /// The program tuned to a rate (per microsecond, alone), or to the highest that it can reach.
    fn tuned(self, machine: &str, rate: f64) -> anyhow::Result<String> {
        let clock = clock_hz(&Lab::scenario_on(machine, &app("bzip206", 0))?)?;
        // Alone, an access takes ten instructions plus the machine's latency; more cycles per instruction slow it down.
        let (mut low, mut high) = (0.01, clock / 1e6 / rate.max(1e-3) / 10.0);
        for _ in 0..20 {
            let cpi = (low * high).sqrt();
            if self.measured(machine, cpi)? > rate { low = cpi } else { high = cpi }
        }
        Ok(self.program(high))
    }
}

/// Programs on a machine, each with this much work and the policy's knowledge of it.
fn crowd(
    machine: &str,
    programs: &[&str],
    work_s: f64,
    profiles: &BTreeMap<&str, AppProfile>,
    policy: &str,
) -> anyhow::Result<Scenario> {
    let mut text = String::new();
    for program in programs {
        let _ = write!(text, "[[app]]\nprogram = '{}'\nwork_s = {work_s}\n", spec(machine, program).0);
    }
    for program in programs.iter().collect::<BTreeSet<_>>() {
        text += &spec(machine, program).1;
    }
    let mut scenario = Lab::scenario_on(machine, &text)?;
    for (app, profile) in &mut scenario.profiles {
        let program = app.split('#').next().unwrap_or(app);
        *profile = profiles.get(program.trim_end_matches("06")).cloned().unwrap_or_default();
    }
    if policy == "none" {
        // The difference in cycles pays for the counted misses.
        scenario.observation.cost_s = 0.0;
        scenario.config.interval = scenario.config.settings.of::<CoSchedule>()?.quantum;
    }
    Ok(scenario)
}

/// The policy's knowledge of a program: its time alone, its misses then, and its loss of speed at average traffic.
fn known(work_s: f64, alone: &Alone, loss: f64) -> AppProfile {
    AppProfile {
        alone_s: Some(work_s),
        per_cpu_s: BTreeMap::from([(Signal::LlcMisses, alone.tr_l2 * 1e6)]),
        average_traffic_loss: Some(loss.clamp(0.0, 1.0)),
        ..AppProfile::default()
    }
}

/// The loss of IPC of a program on CPU 0 with injectors on these CPUs.
fn loss(machine: &str, program: &str, injector: &str, cpus: &[usize]) -> anyhow::Result<f64> {
    let (name, definition) = spec(machine, program);
    let mut text = format!("restart = true\n{}", app(&name, 0));
    let quiet = time(machine, &format!("{text}{definition}"))?;
    for &cpu in cpus {
        let _ = write!(text, "[[app]]\nprogram = 'inject'\nwork_s = 0.2\ncpus = '{cpu}'\n");
    }
    let beside = time(machine, &format!("{text}{definition}{injector}"))?;
    Ok(1.0 - quiet / beside)
}

/// Seconds of the first app's runs.
fn time(machine: &str, text: &str) -> anyhow::Result<f64> {
    let mut scenario = Lab::scenario_on(machine, text)?;
    scenario.observation.cost_s = 0.0;
    let outcome = scenario.run(&Watch, KernelKind::EEVDF, 1, |_| ())?;
    Ok(outcome.apps.first().context("no app")?.time_s)
}

/// The same for each program, on all CPUs of this machine.
fn each<R: Send>(
    lab: &Lab,
    what: &str,
    work: impl Fn(&str) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<(&'static str, R)>> {
    let programs: Vec<&'static str> = programs().into_iter().step_by(lab.effort.every).collect();
    let found = lab.parallel(what, &programs, |program| work(program))?;
    Ok(programs.into_iter().zip(found).collect())
}
