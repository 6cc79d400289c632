//! What each running thread asks of the machine where it stands.

use super::World;
use crate::app::LINE;
use crate::occupancy::{Nearer, Tenant};
use crate::speed::{Demand, Use};

/// Events of a thread per instruction, where it stands and with what it holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PerInstruction {
    /// Misses of the private caches.
    pub requests: f64,
    /// Lines that the second level does not have.
    pub second: f64,
    /// Accesses to the last-level cache.
    pub accesses: f64,
    /// Misses of it.
    pub misses: f64,
    /// Lines written back per miss.
    pub writebacks: f64,
    /// Share of its memory accesses that go to another node.
    pub remote: f64,
    /// Lines from another core of the LLC domain, from another domain of the package, from another package.
    pub intra: f64,
    pub near: f64,
    pub inter: f64,
    /// Seconds in which the core computes.
    pub busy_s: f64,
    /// Share of its lines that other threads have, too.
    pub shared: f64,
    /// Bytes that it can hold.
    pub bound: f64,
    /// The same of each shared level before the last.
    pub near_bound: Vec<f64>,
    /// Bytes that it has in these levels, up to each of them.
    pub nearer: Vec<f64>,
}

impl PerInstruction {
    pub fn coherence(&self) -> f64 {
        self.intra + self.near + self.inter
    }
}

/// How many threads of an application are where.
struct Whereabouts {
    core: Vec<u32>,
    llc: Vec<u32>,
    near: Vec<Vec<u32>>,
    package: Vec<u32>,
    node: Vec<u32>,
    all: u32,
}

impl World {
    /// Everything anew: after a change of places, phases or tasks.
    pub(super) fn demand(&mut self) {
        self.running = (0..self.threads.len()).filter(|&t| self.threads[t].cpu.is_some()).collect();
        self.note_places();
        let p = &self.places;
        let mut on_cpu = vec![0_u32; p.core.of.len()];
        let mut on_core = vec![0_u32; p.core.groups.len()];
        let mut apps: Vec<Option<Whereabouts>> = self.apps.iter().map(|_| None).collect();
        for &thread in &self.running {
            let t = &self.threads[thread];
            let cpu = t.cpu.unwrap_or_default();
            on_cpu[cpu] += 1;
            on_core[p.core.of[cpu]] += 1;
            let w = apps[t.app].get_or_insert_with(|| Whereabouts {
                core: vec![0; p.core.groups.len()],
                llc: vec![0; p.llc.groups.len()],
                near: self.machine.near.iter().map(|near| vec![0; near.bytes.len()]).collect(),
                package: vec![0; p.package.groups.len()],
                node: vec![0; p.node.groups.len()],
                all: 0,
            });
            w.core[p.core.of[cpu]] += 1;
            w.llc[p.llc.of[cpu]] += 1;
            for (on, near) in w.near.iter_mut().zip(&self.machine.near) {
                near.of[cpu].into_iter().for_each(|cache| on[cache] += 1);
            }
            w.package[p.package.of[cpu]] += 1;
            w.node[p.node.of[cpu]] += 1;
            w.all += 1;
        }
        let m = &self.machine;
        let (mut demands, mut per) = (Vec::new(), Vec::new());
        for &thread in &self.running {
            let t = &self.threads[thread];
            let app = &self.apps[t.app];
            let (program, phase) = (&app.spec.program, &app.spec.program.phases[t.phase]);
            let cpu = t.cpu.unwrap_or_default();
            let Some(w) = &apps[t.app] else { continue };
            let (core, llc, package, node) = (p.core.of[cpu], p.llc.of[cpu], p.package.of[cpu], p.node.of[cpu]);
            let sibling = on_core[core] > on_cpu[cpu];
            let busy_s = phase.cpi / if sibling { m.smt } else { 1.0 } / m.clock_hz;
            // Partners in the same core are found in the private caches: that is no event.
            let partners = f64::from(w.all - 1);
            let at = |n: u32| if partners > 0.0 { phase.coherence_pki / 1000.0 * f64::from(n) / partners } else { 0.0 };
            let bound =
                |on: u32| phase.footprint_bytes * (1.0 - program.shared + program.shared / f64::from(on.max(1)));
            let near_bound = m.near.iter().zip(&w.near).map(|(near, on)| near.of[cpu].map_or(0.0, |c| bound(on[c])));
            let here = PerInstruction {
                requests: phase.llc_apki / 1000.0,
                second: phase.llc_apki / 1000.0,
                accesses: phase.llc_apki / 1000.0,
                misses: 0.0,
                writebacks: phase.writeback_ratio,
                remote: 1.0 - t.pages[node],
                intra: at(w.llc[llc] - w.core[core]),
                near: at(w.package[package] - w.llc[llc]),
                inter: at(w.all - w.package[package]),
                busy_s,
                shared: if w.all > 1 { program.shared } else { 0.0 },
                bound: bound(w.llc[llc]),
                near_bound: near_bound.collect(),
                nearer: vec![0.0; m.near.len()],
            };
            let mut uses = Vec::new();
            if here.inter > 0.0 {
                for (other, &n) in w.node.iter().enumerate() {
                    if other != node && n > 0 {
                        let visits = at(n).min(here.inter);
                        uses.push(Use::new(m.link(node, other), visits * LINE, visits));
                    }
                }
            }
            // Between caches of a package a line crosses its bus once; between packages it comes over one bus, and as
            // many leave over it.
            if let Some(bus) = m.bus_of[cpu].filter(|_| here.near + here.inter > 0.0) {
                let (lines, waits) = (here.near + 2.0 * here.inter, here.near + here.inter);
                uses.push(Use::new(bus, lines * LINE, waits));
            }
            let [l0, l1, l2] = m.coherence_s;
            let coherence_s = here.intra * l0 + here.near * l1 + here.inter * l2;
            let limit = app.limit.map(|cpus| (cpus / f64::from(w.all)).min(1.0));
            demands.push(Demand {
                share: (1.0 / f64::from(on_cpu[cpu])).min(limit.unwrap_or(1.0)),
                limit,
                base_s: busy_s + coherence_s,
                floor_s: 0.0,
                uses,
                cap: None,
                team: program.barrier.then_some(t.app),
            });
            per.push(here);
        }
        self.fixed = demands.iter().map(|d| (d.base_s, d.uses.len())).collect();
        (self.demands, self.per) = (demands, per);
        self.refresh();
    }

    /// Bytes that each application holds of each last-level cache, and of each cache of the shared levels before:
    /// application by application.
    fn groups(&self) -> (Vec<f64>, Vec<Vec<f64>>) {
        let (m, p) = (&self.machine, &self.places);
        let caches = m.caches.len();
        let mut group = vec![0.0; self.apps.len() * caches];
        let mut near_groups: Vec<Vec<f64>> =
            m.near.iter().map(|near| vec![0.0; self.apps.len() * near.bytes.len()]).collect();
        for &thread in &self.running {
            let t = &self.threads[thread];
            let cpu = t.cpu.unwrap_or_default();
            group[t.app * caches + p.llc.of[cpu]] += t.held;
            for ((groups, near), held) in near_groups.iter_mut().zip(&m.near).zip(&t.near) {
                near.of[cpu].into_iter().for_each(|cache| groups[t.app * near.bytes.len() + cache] += held);
            }
        }
        (group, near_groups)
    }

    /// What depends on what is held of the caches, and on where pages are.
    pub(super) fn refresh(&mut self) {
        self.demands.truncate(self.running.len());
        let m = &self.machine;
        let p = &self.places;
        let caches = m.caches.len();
        let (group, near_groups) = self.groups();
        for (i, &thread) in self.running.iter().enumerate() {
            let t = &self.threads[thread];
            let program = &self.apps[t.app].spec.program;
            let phase = &program.phases[t.phase];
            let cpu = t.cpu.unwrap_or_default();
            let node = p.node.of[cpu];
            let (per, d) = (&mut self.per[i], &mut self.demands[i]);
            let (base, kept) = self.fixed[i];
            d.uses.truncate(kept);
            d.base_s = base;
            d.floor_s = 0.0;
            // Level by level: what is found there, and what goes on.
            let mut tenant = Tenant {
                held: 0.0,
                rate: 0.0,
                curve: &phase.miss_ratio,
                group: 0,
                shared: program.shared,
                bound: 0.0,
                nearer: Nearer::default(),
            };
            let mut arriving = per.requests;
            for (k, near) in m.near.iter().enumerate() {
                if let Some(cache) = near.of[cpu] {
                    let group = near_groups[k][t.app * near.bytes.len() + cache];
                    tenant.held = t.near[k];
                    let missing = per.requests * tenant.miss_ratio(group);
                    let hits = (arriving - missing).max(0.0);
                    d.base_s += hits * near.hit_s / phase.llc_mlp;
                    if let Some(station) = near.station(cache) {
                        d.uses.push(Use::new(station, arriving * LINE, hits / phase.llc_mlp));
                    }
                    tenant.nearer.bytes += tenant.usable(group);
                    arriving = missing;
                    if near.level == 2 {
                        per.second = missing;
                    }
                }
                per.nearer[k] = tenant.nearer.bytes;
            }
            per.accesses = arriving;
            tenant.held = t.held;
            tenant.nearer = m.nearer(tenant.nearer.bytes);
            per.misses = per.requests * tenant.miss_ratio(group[t.app * caches + p.llc.of[cpu]]);
            per.remote = 1.0 - t.pages[node];
            if m.last_level == Some(2) {
                per.second = per.misses;
            }
            let hits = per.accesses - per.misses;
            d.base_s += hits * m.llc_s / phase.llc_mlp;
            let app = &self.apps[t.app];
            // An application with a backlog works as fast as it can.
            d.cap = app
                .spec
                .load
                .filter(|_| app.latency.backlog <= 1.0)
                .map(|l| l.requests_per_s * l.instructions / app.spec.threads as f64);
            if let Some(station) = m.cache_station(p.llc.of[cpu]) {
                d.uses.push(Use::new(station, per.accesses * LINE, hits / phase.llc_mlp));
            }
            for (to, &share) in t.pages.iter().enumerate() {
                if share <= 0.0 {
                    continue;
                }
                let lines = per.misses * share;
                let idle = m.memory(cpu, node, to);
                d.base_s += lines * m.miss_s(idle, phase.mlp);
                d.floor_s += lines * idle / m.lines_in_flight;
                let through = |station: usize| Use {
                    station,
                    bytes: lines * (1.0 + per.writebacks) * LINE,
                    waits: lines / m.overlap(phase.mlp),
                    floor: lines / m.lines_in_flight,
                    locality: phase.row_locality,
                };
                d.uses.push(through(to));
                if to != node {
                    d.uses.push(through(m.link(to, node)));
                }
                if let Some(bus) = m.bus_of[cpu] {
                    d.uses.push(through(bus));
                }
            }
        }
        let copying = self.copying();
        self.demands.extend(copying);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{Curve, Phase, Program};
    use crate::kernel::Kernel;
    use crate::machine::SimMachine;
    use crate::world::{AppSpec, Load};
    use cotenant_model::machine::Machine;
    use std::sync::Arc;

    /// Three packages of two L3s of two L2s of two cores of two contexts: CPUs 0-1 are a core, 0-3 an L2, 0-7 an L3,
    /// 0-15 a package. Stations: 3 nodes, 9 links, 12 L2s, 6 L3s.
    const MACHINE: &str = "\
name = 'm'
description = 'every level shared'
source = 'test'
clock_hz = 1e9
topology = { synthetic = 'package:3 [numa] l3:2(size=8MiB) l2:2(size=1MiB) core:2 pu:2' }
[simulator]
memory_gbs = 40
memory_ns = 100
remote_ns = 50
llc_ns = 20
llc_gbs = 100
caches = [{ level = 2, ns = 8, gbs = 200 }]
coherence_ns = [10, 20, 40]
smt = 0.5
lines_in_flight = 4";

    fn program(barrier: bool) -> Arc<Program> {
        let phase = Phase {
            instructions: None,
            cpi: 2.0,
            llc_apki: 100.0,
            llc_mlp: 2.0,
            mlp: 3.0,
            footprint_bytes: 4e6,
            writeback_ratio: 0.25,
            miss_ratio: Curve::new(vec![(1e5, 0.8), (5e5, 0.4), (4.5e6, 0.2)]).unwrap(),
            private_bytes: None,
            row_locality: 0.75,
            coherence_pki: 12.0,
        };
        Arc::new(Program { phases: vec![phase], shared: 0.5, barrier, pages: crate::app::Pages::default() })
    }

    /// Application 0 on a core, on the other L2 of its L3, on the other L3 of its package and on two cores of the next
    /// package; 1, which serves requests, on a CPU of that and elsewhere; 2 alone.
    fn world() -> World {
        let mut machine = SimMachine::new(&Machine::parse(MACHINE).unwrap()).unwrap();
        machine.bus_of = (0..48).map(|cpu| Some(90 + cpu / 16)).collect();
        let spec = |name: &str, threads, barrier| AppSpec::new(name, program(barrier), threads, 1e9);
        let load = Load { requests_per_s: 1e3, instructions: 2e5 };
        let specs = vec![spec("a", 6, true), AppSpec { load: Some(load), ..spec("b", 2, false) }, spec("c", 1, false)];
        let mut world = World::new(Arc::new(machine), specs, Kernel::new("eevdf".parse().unwrap()), 1);
        for (thread, cpu) in world.threads.iter_mut().zip([0, 1, 4, 8, 16, 18, 16, 32, 20]) {
            (thread.cpu, thread.exists) = (Some(cpu), true);
            thread.pages = vec![0.75, 0.25, 0.0];
        }
        (world.apps[0].limit, world.apps[2].limit) = (Some(4.5), Some(2.0));
        world
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    /// Transfers per 1,000 instructions by distance, of 12 that are spread over five partners; nanoseconds without
    /// caches and memory; and the time that each may have.
    #[test]
    fn transfers_contexts_and_limits_by_hand() {
        let mut world = world();
        world.demand();
        for (thread, [intra, near_by, inter], ns, share, limit) in [
            // A sibling computes on the other context, which is no transfer.
            (0, [2.4, 2.4, 4.8], 4.0 + 0.024 + 0.048 + 0.192, 0.75, Some(0.75)),
            (2, [4.8, 2.4, 4.8], 2.0 + 0.048 + 0.048 + 0.192, 0.75, Some(0.75)),
            (3, [0.0, 7.2, 4.8], 2.0 + 0.144 + 0.192, 0.75, Some(0.75)),
            // Half of a CPU; the other half is no sibling.
            (4, [2.4, 0.0, 9.6], 2.0 + 0.024 + 0.384, 0.5, Some(0.75)),
            (6, [0.0, 0.0, 12.0], 2.0 + 0.48, 0.5, None),
            // Nobody to share with.
            (8, [0.0; 3], 2.0, 1.0, Some(1.0)),
        ] {
            let (per, demand) = (&world.per[thread], &world.demands[thread]);
            let got = [per.intra, per.near, per.inter, per.busy_s + coherence_s(per)];
            let expected = [intra / 1e3, near_by / 1e3, inter / 1e3, ns / 1e9];
            assert!(got.iter().zip(expected).all(|(a, b)| near(*a, b)), "{thread}: {got:?}, not {expected:?}");
            assert!(near(world.fixed[thread].0, ns / 1e9), "{thread}: {:?}", world.fixed[thread]);
            assert_eq!((demand.share, demand.limit), (share, limit), "{thread}");
            assert_eq!(demand.team, (thread < 6).then_some(0), "{thread}");
        }
        assert_eq!([world.per[0].shared, world.per[8].shared], [0.5, 0.0], "alone nothing is held in common");
    }

    fn coherence_s(per: &PerInstruction) -> f64 {
        per.intra * 10e-9 + per.near * 20e-9 + per.inter * 40e-9
    }

    /// What thread 0 asks of each level, and of all that lies between.
    #[test]
    fn a_thread_by_hand() {
        let mut world = world();
        for (thread, [near, held]) in world.threads.iter_mut().zip([[2e5, 5e5], [1e5, 3e5], [7e5, 4e5], [9e5, 9e5]]) {
            (thread.near, thread.held) = (vec![near], held);
        }
        world.demand();
        let (per, demand) = (&world.per[0], &world.demands[0]);
        // 0.1 lines per instruction. Of the L2 it can use 0.2 MB and half of its sibling's 0.1: 65 % miss. Of the L3
        // 0.5 and half of 0.7, and 0.25 before it: 37 %.
        let expected = [0.1, 0.065, 0.065, 0.037, 0.25, 0.25];
        let got = [per.requests, per.second, per.accesses, per.misses, per.writebacks, per.remote];
        assert!(got.iter().zip(expected).all(|(a, b)| near(*a, b)), "{got:?}");
        assert!(near(per.nearer[0], 2.5e5));
        // Half of 4 MB is its own; of the other half a third, for three of them hold it in the L3, and two in the L2.
        assert!(near(per.bound, 2e6 + 2e6 / 3.0) && near(per.near_bound[0], 3e6), "{per:?}");
        // Hits: 0.035 of 8 ns and 0.028 of 20, two at a time; misses: 0.02775 of 100 ns and 0.00925 of 150, three.
        let base_ns = 4.264 + 0.14 + 0.28 + 0.925 + 0.4625;
        assert!(near(demand.base_s, base_ns / 1e9), "{demand:?}");
        assert!(near(demand.floor_s, (0.02775 * 100.0 + 0.00925 * 150.0) / 4.0 / 1e9), "{demand:?}");
        // Lines, and how many of them wait; a quarter of those from memory is written back.
        let (local, remote) = (0.02775, 0.00925);
        let memory = |station, lines: f64| (station, lines * 1.25, lines / 3.0, lines / 4.0, 0.75);
        let uses = [
            (3 + 1, 0.0048, 0.0048, 0.0, 1.0),             // link 0-1
            (90, 0.0024 + 2.0 * 0.0048, 0.0072, 0.0, 1.0), // bus
            (12, 0.1, 0.035 / 2.0, 0.0, 1.0),              // L2
            (24, 0.065, 0.028 / 2.0, 0.0, 1.0),            // L3
            memory(0, local),
            memory(90, local),
            memory(1, remote),
            memory(3 + 3, remote), // link 1-0
            memory(90, remote),
        ];
        assert_eq!(demand.uses.len(), uses.len(), "{demand:?}");
        for (got, (station, lines, waits, floor, locality)) in demand.uses.iter().zip(uses) {
            let same = [(got.bytes, lines * 64.0), (got.waits, waits), (got.floor, floor), (got.locality, locality)];
            assert!(
                got.station == station && same.iter().all(|(a, b)| near(*a, *b)),
                "{got:?}, not {station}: {same:?}"
            );
        }
    }

    /// 1,000 requests per second of 200,000 instructions, two threads; with a backlog, as fast as they can.
    #[test]
    fn requests_limit_who_serves_them() {
        let mut world = world();
        for (backlog, cap) in [(0.0, Some(1e8)), (1.0, Some(1e8)), (1.5, None)] {
            world.apps[1].latency.backlog = backlog;
            world.demand();
            assert_eq!((world.demands[6].cap, world.demands[0].cap), (cap, None), "{backlog}");
        }
    }
}
