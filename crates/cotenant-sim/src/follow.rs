//! How memory follows threads under NUMA balancing, in the situations measured on real kernels: the scenario
//! `numa-balancing` of `cargo xtask guests`.

use crate::kernel::{Kernel, KernelKind, Placement};
use crate::machine::PAGE;
use crate::scenario::Scenario;
use crate::world::{Halt, World};
use cotenant_model::machine::Machine;
use cotenant_model::signal::Signal;
use cotenant_model::{CpuId, CpuSet, Time};
use std::time::Duration;

const MIB: f64 = 1024.0 * 1024.0;
/// Two nodes of four CPUs, as the guests have them.
const MACHINE: &str = "\
name = 'two-nodes'
description = 'two nodes of four CPUs'
source = 'made up, as large as the guests'
topology = { synthetic = 'package:2 [numa] l3:1(size=8MiB) core:4 pu:1' }
[simulator]
memory_gbs = 40
memory_ns = 100
remote_ns = 50
llc_ns = 20
llc_gbs = 100
coherence_ns = [10, 20, 40]
lines_in_flight = 10";

/// Where threads run whose memory was first touched on the first node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// On the other node: from the beginning, or after this many passes on the first.
    Other(u32),
    /// Every other one on the other node.
    Halves,
    /// Where the kernel puts them.
    Anywhere,
}

/// A situation: name, threads, private MiB of each thread, MiB shared by all.
type Situation = (&'static str, usize, f64, f64, Where);

/// Scan passes on the first node after which a process no longer counts as young.
const LATE: u32 = 6;
const SITUATIONS: [Situation; 10] = [
    ("one-own", 1, 128.0, 0.0, Where::Other(0)),
    ("large-own", 1, 600.0, 0.0, Where::Other(0)),
    ("own-in-one", 4, 64.0, 0.0, Where::Other(0)),
    ("shared", 4, 0.0, 256.0, Where::Other(0)),
    ("both-in-one", 4, 64.0, 64.0, Where::Other(0)),
    ("halves", 4, 64.0, 128.0, Where::Halves),
    ("halves-shared", 4, 0.0, 128.0, Where::Halves),
    ("anywhere", 4, 64.0, 64.0, Where::Anywhere),
    ("late-own-in-one", 4, 64.0, 0.0, Where::Other(LATE)),
    ("late-shared", 4, 0.0, 256.0, Where::Other(LATE)),
];

/// How memory moved to the other node. A pass scans as many pages as the process has.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Arrival {
    /// The fraction that has moved at the end.
    pub share: f64,
    /// Passes scanned when half of that had moved.
    pub half: f64,
    /// The same of 95 %.
    pub most: f64,
}

/// Results of a situation.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Followed {
    /// Its name.
    pub situation: &'static str,
    /// Private memory of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Arrival>,
    /// Memory shared by the threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<Arrival>,
}

/// Simulates twelve passes in each situation.
///
/// # Errors
/// [`Halt`] if a simulation does not end.
pub fn situations() -> Result<Vec<Followed>, Halt> {
    SITUATIONS.iter().map(follow).collect()
}

/// Passes, and the fractions of private and of shared memory on the other node.
type Point = (f64, [f64; 2]);

fn follow(&(situation, threads, own, shared, at): &Situation) -> Result<Followed, Halt> {
    let (bytes, part) = ((own + shared) * MIB, shared / (own + shared));
    let text = format!(
        "machine = 'two-nodes'\n[program.touch]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = {bytes}\n\
         miss_ratio = [[1e6, 0.9]]\nshared = {part}\npages = [1, 0]\n[[app]]\nprogram = 'touch'\n\
         threads = {threads}\nwork_s = 100000\n"
    );
    let machine = |_: &str| Machine::parse(MACHINE).map_err(|e| e.to_string());
    let scenario = Scenario::parse(&text, machine).expect("this scenario is sound");
    let kind = KernelKind { placement: Placement::Eevdf, numa_balancing: true };
    let mut world = World::new(scenario.sim.clone(), scenario.apps, Kernel::new(kind), 1);
    let all = |world: &mut World, first: &dyn Fn(usize) -> bool| {
        for thread in 0..threads {
            let cpus = if first(thread) { 0..4 } else { 4..8 };
            world.set_mask(thread, cpus.map(CpuId).collect::<CpuSet>());
        }
    };
    world.advance(Time(1), false)?;
    match at {
        Where::Other(0) => all(&mut world, &|_| false),
        Where::Halves => all(&mut world, &|thread| thread % 2 == 0),
        Where::Anywhere => {}
        Where::Other(passes) => {
            all(&mut world, &|_| true);
            while world.apps[0].numa.passes() < passes {
                step(&mut world)?;
            }
            all(&mut world, &|_| false);
        }
    }
    let pages = (own * threads as f64 + shared) * MIB / PAGE;
    let faults = |world: &World| world.threads.iter().map(|t| t.counts[Signal::PageFaults as usize]).sum::<f64>();
    let before = faults(&world);
    let mut points: Vec<Point> = Vec::new();
    while points.last().is_none_or(|point| point.0 < 12.0) {
        let own = world.threads.iter().map(|t| t.numa.own[1]).sum::<f64>() / threads as f64;
        points.push(((faults(&world) - before) / pages, [own, world.apps[0].numa.common()[1]]));
        step(&mut world)?;
    }
    let of = |kind: usize| arrival(&points, kind);
    Ok(Followed { situation, own: (own > 0.0).then(|| of(0)), shared: (shared > 0.0).then(|| of(1)) })
}

/// Slightly more time: scans are at least 100 ms apart.
fn step(world: &mut World) -> Result<(), Halt> {
    let until = world.now() + Duration::from_millis(50);
    world.advance(until, false)
}

fn arrival(points: &[Point], kind: usize) -> Arrival {
    let (first, share) = (points[0].1[kind], points[points.len() - 1].1[kind]);
    let at = |part: f64| {
        let wanted = first + part * (share - first);
        let i = points.iter().position(|point| point.1[kind] >= wanted - 1e-9).unwrap_or(points.len() - 1);
        points[i].0
    };
    Arrival { share, half: at(0.5), most: at(0.95) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Young memory comes with the scan that covers it; that of a process that ran elsewhere before, a pass later. What
    /// is shared by threads on two nodes is dealt out.
    /// Holds sim/kernel.
    #[test]
    fn memory_arrives_within_a_pass_and_later_within_two() {
        let all = situations().unwrap();
        for one in &all {
            let late = if one.situation.starts_with("late") { 1.0 } else { 0.0 };
            for arrival in [one.own, one.shared].into_iter().flatten() {
                let (half, most) = (arrival.half - late, arrival.most - late);
                let share = if ["halves", "halves-shared", "anywhere"].contains(&one.situation) { 0.5 } else { 1.0 };
                let ends = if one.situation == "anywhere" { 2.0 } else { 1.01 };
                assert!((0.5..1.01).contains(&half) && (0.99..ends).contains(&most), "{one:?}");
                assert!((arrival.share - share).abs() < 0.05, "{one:?}");
            }
        }
        assert_eq!(all.len(), SITUATIONS.len());
    }
}
