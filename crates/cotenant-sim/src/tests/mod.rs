//! Properties across modules.

mod atom;
mod course;
mod endless;
mod exact;
mod golden;
mod heuristic;
mod interference;
mod kernels;
mod load;
mod machines;
mod mesh;
mod motion;
mod niceness;
mod optimum;
mod pages;
mod reports;
mod sam;
mod shared;
mod shared_caches;
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
    Scenario::parse(text, machine).unwrap_or_else(|e| panic!("{e}"))
}

fn machine(name: &str) -> Result<Machine, String> {
    let text = match name {
        "ivy-bridge-2s" => IVY,
        "clovertown-2s" => CLOVERTOWN,
        "nehalem-i7-920" => NEHALEM,
        "tilepro64" => TILEPRO,
        "westmere-2s" => WESTMERE,
        "two" => shared::MACHINE,
        "narrow" => &shared::MACHINE.replace("memory_gbs = 40", "memory_gbs = 4"),
        other => return Err(format!("no machine {other}")),
    };
    Machine::parse(text).map_err(|e| e.to_string())
}

/// Its world under a kernel, before any start.
impl World {
    /// Bytes held of each last-level cache.
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
