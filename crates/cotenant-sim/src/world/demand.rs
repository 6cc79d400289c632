//! Demand of each running thread at its place.

use super::World;
use super::parts::PerInstruction;
use crate::app::LINE;
use crate::occupancy::{Nearer, Tenant};
use crate::speed::{Demand, Use};

/// Number of an application's threads by place.
struct Whereabouts {
    core: Vec<u32>,
    llc: Vec<u32>,
    near: Vec<Vec<u32>>,
    package: Vec<u32>,
    node: Vec<u32>,
    all: u32,
}

impl World {
    /// Recomputes everything, after a change of places, phases or tasks.
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
        let mut working = vec![0_u32; p.package.groups.len()];
        let working_cores = p.core.groups.iter().zip(&on_core).filter(|(_, on)| **on > 0);
        working_cores.filter_map(|(cpus, _)| cpus.first()).for_each(|&cpu| working[p.package.of[cpu]] += 1);
        let (mut demands, mut per) = (Vec::new(), Vec::new());
        for &thread in &self.running {
            let t = &self.threads[thread];
            let app = &self.apps[t.app];
            let (program, phase) = (&app.spec.program, &app.spec.program.phases[t.phase]);
            let cpu = t.cpu.unwrap_or_default();
            let Some(w) = &apps[t.app] else { continue };
            let (core, llc, package, node) = (p.core.of[cpu], p.llc.of[cpu], p.package.of[cpu], p.node.of[cpu]);
            let sibling = on_core[core] > on_cpu[cpu];
            let busy_s = phase.cpi / if sibling { m.smt } else { 1.0 } / m.clock(working[package]);
            // Lines of partners on the same core are in its private caches, so that no transfer counts.
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
                demanded: 1.0 - phase.prefetched,
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
            // Between caches of a package a line crosses its bus once; between packages it uses both buses.
            if let Some(bus) = m.bus_of[cpu].filter(|_| here.near + here.inter > 0.0) {
                let (lines, waits) = (here.near + 2.0 * here.inter, here.near + here.inter);
                uses.push(Use::new(bus, lines * LINE, waits));
            }
            let [l0, l1, l2] = m.coherence_s;
            let coherence_s = here.intra * l0 + here.near * l1 + here.inter * l2;
            if let Some(station) = app.contended.filter(|_| coherence_s > 0.0) {
                // A thread never waits for itself. With this share of the load, waits are those of approximate mean
                // value analysis (Schweitzer 1979; Bard 1979): exact for one thread, and for many that wait for one
                // line.
                let others = partners / f64::from(w.all);
                uses.push(Use::new(station, coherence_s * others, coherence_s));
            }
            let limit = app.limit.map(|cpus| (cpus / f64::from(w.all)).min(1.0));
            demands.push(Demand {
                share: (1.0 / f64::from(on_cpu[cpu])).min(limit.unwrap_or(1.0)),
                limit,
                base_s: busy_s + coherence_s,
                floor_s: 0.0,
                queued_s: 0.0,
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

    /// Bytes that each application holds of each last-level cache and of each nearer shared cache, application by
    /// application.
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

    /// The parts that depend on cache contents and on the place of pages.
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
            // Level by level: hits, and what goes on to the next.
            let mut tenant = Tenant {
                held: 0.0,
                rate: 0.0,
                curve: &phase.miss_ratio,
                group: 0,
                shared: program.shared,
                bound: 0.0,
                nearer: Nearer::default(),
                kept: 0.0,
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
            let own = per.requests * tenant.miss_ratio(group[t.app * caches + p.llc.of[cpu]]);
            per.accesses += t.again;
            per.misses = own + t.again;
            per.remote = 1.0 - t.pages[node];
            if m.last_level == Some(2) {
                per.second = per.misses;
            }
            let hits = per.accesses - per.misses;
            d.base_s += hits * m.llc_s / phase.llc_mlp;
            let app = &self.apps[t.app];
            // An application with a backlog works at full speed.
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
                // Returning lines are not prefetched.
                d.base_s += share * (own * m.miss_s(idle, phase.mlp) + t.again * idle / m.overlap(phase.mlp));
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
