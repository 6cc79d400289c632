//! Mixes of programs: SAM's mixes and programs on its machine, randomly drawn ones on any.

use crate::reproduce::cases::{Case, mixes, standalone};
use anyhow::Context as _;
use cotenant_measure::workload::{Arrival, MOST_RUNS, SPAN, Size, Workload};
use cotenant_sim::app::{PARALLEL, Program, SHARING, SPEC_CPU2006, parse_programs};
use cotenant_sim::machine::SimMachine;
use fastrand::Rng;
use serde::Serialize;
use std::collections::BTreeMap;

/// SAM's machine.
const SAMS: &str = "ivy-bridge-2s";
/// Misses per 1,000 instructions with [`BYTES`] of cache above which a program counts as memory-bound.
const MISSES_PKI: f64 = 2.0;
const BYTES: f64 = 2e6;
/// Number of drawn mixes where SAM has none.
pub(super) const DRAWN: usize = 10;

/// Programs of `workloads/` with their threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Mix {
    /// For people: `mix 9`, `HuBench (8t)`, `drawn 3`.
    pub label: String,
    /// Names and threads.
    pub apps: Vec<(String, usize)>,
    /// Arrival of each program, seconds, and its number of runs; empty if all run all the time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub visits: Vec<(f64, u32)>,
}

impl From<Case> for Mix {
    fn from(case: Case) -> Self {
        let apps = case.apps.iter().map(|app| (app.program(), app.threads)).collect();
        Self { label: case.label, apps, visits: Vec::new() }
    }
}

/// Mixes of a machine whose label contains a text, limited in number: SAM's on its machine unless a seed and a load are
/// given, otherwise drawn ones.
pub(super) fn of(
    name: &str,
    machine: &SimMachine,
    most: Option<usize>,
    draw: Option<(u64, f64)>,
    among: Option<&str>,
) -> anyhow::Result<Vec<Mix>> {
    let wanted = |mix: &Mix| among.is_none_or(|text| mix.label.contains(text));
    if name != SAMS || draw.is_some() {
        let contexts = machine.topology.usable().len();
        let mut all = drawn(name, contexts, most.unwrap_or(DRAWN), draw.unwrap_or((1, 1.0)))?;
        all.retain(wanted);
        return Ok(all);
    }
    let mut all: Vec<Mix> = mixes().into_iter().chain(standalone()).map(Mix::from).collect();
    all.retain(wanted);
    let most = most.unwrap_or(all.len()).min(all.len());
    Ok((0..most).map(|i| all[i * all.len() / most].clone()).collect())
}

/// Programs that come and go as in `ReSense`'s large workloads, each with an eighth of the contexts.
pub(super) fn visits(machine: &SimMachine, most: Option<usize>, seed: Option<u64>) -> anyhow::Result<Vec<Mix>> {
    let pool = pools()?.concat();
    let threads = (machine.topology.usable().len() / Size::Large.programs()).max(1);
    let first = seed.unwrap_or(1);
    let one = |n: u64| {
        let workload = Workload::generate(Size::Large, &pool, SPAN, MOST_RUNS, first.wrapping_add(n));
        let at = |arrival| if let Arrival::At(at) = arrival { at.as_secs_f64() } else { 0.0 };
        let apps = workload.jobs.iter().map(|job| (job.name.clone(), threads)).collect();
        let visits = workload.jobs.iter().map(|job| (at(job.arrival), job.runs)).collect();
        Mix { label: format!("visits {}", n + 1), apps, visits }
    };
    Ok((0..most.unwrap_or(DRAWN) as u64).map(one).collect())
}

/// Two to four programs whose threads use 40 to 100 % of that share of the contexts.
fn drawn(machine: &str, contexts: usize, mixes: usize, (seed, busy): (u64, f64)) -> anyhow::Result<Vec<Mix>> {
    let pools = pools()?;
    // FNV-1a of the name gives each machine other mixes.
    let hash = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut rng = Rng::with_seed(machine.bytes().fold(0xcbf2_9ce4_8422_2325, hash) ^ seed);
    let one = |n: usize| {
        let programs = rng.usize(2..=4);
        let threads = (((0.4 + 0.6 * rng.f64()) * busy * contexts as f64).round() as usize).max(programs);
        let mut names: Vec<String> = Vec::new();
        while names.len() < programs {
            let pool = &pools[rng.usize(..pools.len())];
            let name = &pool[rng.usize(..pool.len())];
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        // A random part of the threads for each, at least one.
        let mut parts = vec![1; programs];
        let weights: Vec<f64> = (0..programs).map(|_| 0.2 + rng.f64()).collect();
        let all: f64 = weights.iter().sum();
        for (part, weight) in parts.iter_mut().zip(&weights) {
            *part += (weight / all * (threads - programs) as f64) as usize;
        }
        parts[0] += threads - parts.iter().sum::<usize>();
        let apps = names.into_iter().zip(parts).collect();
        Mix { label: format!("drawn {n}"), apps, visits: Vec::new() }
    };
    Ok((1..=mixes).map(one).collect())
}

/// Names of programs to draw from: memory-bound, compute-bound, sharing and parallel ones.
fn pools() -> anyhow::Result<[Vec<String>; 4]> {
    let read = |text: &str| parse_programs(text).context("workloads/");
    let names = |of: BTreeMap<String, Program>| of.into_keys().collect();
    let memory_bound = |program: &Program| {
        let phase = &program.phases[0];
        phase.llc_apki * phase.miss_ratio.at(BYTES) >= MISSES_PKI
    };
    let spec = read(SPEC_CPU2006)?;
    let (bound, free): (BTreeMap<_, _>, BTreeMap<_, _>) = spec.into_iter().partition(|(_, p)| memory_bound(p));
    let sharing = read(SHARING)?;
    let parallel = read(PARALLEL)?;
    Ok([names(bound), names(free), names(sharing), names(parallel)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_mixes_fill_a_part_of_the_machine() {
        for contexts in [8, 24, 192] {
            let all = drawn("a", contexts, 200, (1, 1.0)).unwrap();
            for Mix { label, apps, .. } in &all {
                let threads: usize = apps.iter().map(|app| app.1).sum();
                let part = threads as f64 / contexts as f64;
                assert!((0.35..=1.0).contains(&part) && (2..=4).contains(&apps.len()), "{label}: {apps:?}");
                assert!(apps.iter().all(|app| app.1 > 0 && cotenant_sim::app::known(&app.0).is_some()), "{apps:?}");
            }
            let least = all.iter().map(|mix| mix.apps.iter().map(|app| app.1).sum::<usize>()).min().unwrap();
            assert!((least as f64) < 0.5 * contexts as f64, "{least} of {contexts}");
        }
        let of = |machine, seed| drawn(machine, 24, 10, (seed, 1.0)).unwrap();
        for mix in drawn("a", 24, 200, (1, 0.5)).unwrap() {
            let threads: usize = mix.apps.iter().map(|app| app.1).sum();
            assert!((4..=12).contains(&threads), "{mix:?}");
        }
        assert_eq!(of("a", 1), of("a", 1));
        assert_eq!(of("a", 1)[..3], drawn("a", 24, 3, (1, 1.0)).unwrap());
        assert!(of("a", 1) != of("b", 1) && of("a", 1) != of("a", 2));
    }

    #[test]
    fn half_of_spec_is_memory_bound() {
        let [bound, free, ..] = pools().unwrap();
        assert_eq!((bound.len() + free.len(), bound.len() > 8, free.len() > 8), (29, true, true), "{bound:?} {free:?}");
        for (pool, names) in [(&bound, ["mcf06", "lbm06", "milc06"]), (&free, ["povray06", "namd06", "hmmer06"])] {
            assert!(names.iter().all(|name| pool.iter().any(|n| n == name)), "{pool:?}");
        }
    }
}
