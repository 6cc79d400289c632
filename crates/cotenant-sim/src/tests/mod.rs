//! What must hold, across modules.

mod atom;
mod exact;
mod heuristic;
mod kernels;
mod load;
mod machines;
mod mesh;
mod motion;
mod near;
mod niceness;
mod optimum;
mod pages;
mod shared;
mod world;

use crate::kernel::Kernel;
use crate::scenario::Scenario;
use crate::world::World;
use cotenant_model::machine::Machine;
use cotenant_model::{CpuSet, Time};

const IVY: &str = include_str!("../../../../machines/ivy-bridge-2s.toml");

const CLOVERTOWN: &str = include_str!("../../../../machines/clovertown-2s.toml");
const NEHALEM: &str = include_str!("../../../../machines/nehalem-i7-920.toml");
const TILEPRO: &str = include_str!("../../../../machines/tilepro64.toml");
const WESTMERE: &str = include_str!("../../../../machines/westmere-2s.toml");

/// A scenario on a machine of the papers, or on `two`: two packages of four cores without SMT; `narrow` is `two` with
/// a tenth of its memory bandwidth.
pub(crate) fn scenario(text: &str) -> Scenario {
    let find = |name: &str| match name {
        "ivy-bridge-2s" => Machine::parse(IVY).map_err(|e| e.to_string()),
        "clovertown-2s" => Machine::parse(CLOVERTOWN).map_err(|e| e.to_string()),
        "nehalem-i7-920" => Machine::parse(NEHALEM).map_err(|e| e.to_string()),
        "tilepro64" => Machine::parse(TILEPRO).map_err(|e| e.to_string()),
        "westmere-2s" => Machine::parse(WESTMERE).map_err(|e| e.to_string()),
        "two" => Machine::parse(shared::MACHINE).map_err(|e| e.to_string()),
        "narrow" => {
            Machine::parse(&shared::MACHINE.replace("memory_gbs = 40", "memory_gbs = 4")).map_err(|e| e.to_string())
        }
        other => Err(format!("no machine {other}")),
    };
    Scenario::parse(text, find).unwrap_or_else(|e| panic!("{e}"))
}

/// Its world under a kernel, before anything has started.
impl World {
    /// Bytes that are held of each last-level cache.
    fn held(&self) -> Vec<f64> {
        let mut held = vec![0.0; self.machine.caches.len()];
        for t in &self.threads {
            if let Some(cpu) = t.cpu.or(t.napping) {
                held[self.places.llc.of[cpu]] += t.held;
            }
        }
        held
    }
}

fn world(s: &Scenario, kernel: &str, seed: u64) -> World {
    World::new(s.sim.clone(), s.apps.clone(), Kernel::new(kernel.parse().unwrap()), seed)
}

/// The same with each application's threads pinned to CPUs.
fn pinned(s: &Scenario, cpus: &[&[usize]]) -> Scenario {
    let mut s = s.clone();
    s.apps.iter_mut().zip(cpus).for_each(|(app, cpus)| app.pinned = Some(cpus.to_vec()));
    s
}

/// Seconds that the runs of each application take.
fn times(mut world: World, s: &Scenario) -> Vec<f64> {
    world.advance(s.end, false).unwrap();
    world.report().iter().map(|r| r.times_s.iter().sum()).collect()
}

fn ms(n: u64) -> Time {
    Time(n * 1_000_000)
}

fn cpus(list: &str) -> CpuSet {
    CpuSet::parse_list(list).unwrap()
}
