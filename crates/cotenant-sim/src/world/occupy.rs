//! Cache contents over time.

use super::World;
use crate::occupancy::{self, Nearer, Tenant};

/// A level of shared caches: one before the last, or the last.
#[derive(Clone, Copy)]
enum Level {
    Near(usize),
    Last,
}

/// A tenant: the index of a demand, or a napping thread without demand.
#[derive(Clone, Copy)]
enum Who {
    Runs(usize),
    Naps(usize),
}

impl World {
    /// Updates cache contents over `dt` seconds; returns the largest fraction of a cache that changed.
    pub(super) fn occupy(&mut self, dt: f64) -> f64 {
        let near = (0..self.machine.near.len()).map(Level::Near);
        let levels: Vec<Level> = near.chain([Level::Last]).collect();
        levels.into_iter().map(|level| self.occupy_level(level, dt)).fold(0.0, f64::max)
    }

    fn occupy_level(&mut self, level: Level, dt: f64) -> f64 {
        let m = self.machine.clone();
        let caches = match level {
            Level::Near(k) => m.near[k].bytes.len(),
            Level::Last => m.caches.len(),
        };
        let cache_of = |cpu: usize| match level {
            Level::Near(k) => m.near[k].of[cpu],
            Level::Last => Some(self.places.llc.of[cpu]),
        };
        let mut on: Vec<Vec<Who>> = vec![Vec::new(); caches];
        for (i, &thread) in self.running.iter().enumerate() {
            if let Some(cache) = self.threads[thread].cpu.and_then(cache_of) {
                on[cache].push(Who::Runs(i));
            }
        }
        for (thread, t) in self.threads.iter().enumerate() {
            if let Some(cache) = t.napping.and_then(cache_of) {
                on[cache].push(Who::Naps(thread));
            }
        }
        let mut moved: f64 = 0.0;
        for (cache, on) in on.iter().enumerate() {
            let capacity = match level {
                Level::Near(k) => m.near[k].bytes[cache],
                Level::Last => m.caches[cache].bytes,
            };
            let mut tenants: Vec<Tenant<'_>> = on.iter().map(|&who| self.tenant(level, who)).collect();
            let mut shared = capacity;
            if matches!(level, Level::Last) {
                // Footprint of each tenant alone, and of all: a newcomer does not relieve the conflicts of another.
                let mut wanted = 0.0;
                for (&who, tenant) in on.iter().zip(&mut tenants) {
                    if let Who::Naps(thread) = who {
                        let t = &self.threads[thread];
                        wanted += self.apps[t.app].spec.program.phases[t.phase].footprint_bytes;
                    } else {
                        wanted += tenant.bound;
                        tenant.bound = m.room(capacity, tenant.bound).min(tenant.bound);
                    }
                }
                shared = m.room(capacity, wanted);
            }
            let kept = occupancy::keepable(shared, tenants.iter().map(|t| t.kept).sum());
            for tenant in &mut tenants {
                tenant.kept *= kept;
            }
            occupancy::advance(m.replacement, shared, &mut tenants, dt);
            let keeps = tenants.iter().any(|t| t.kept > 0.0);
            let lasts_s = if keeps { occupancy::lasts_s(shared, &tenants) } else { None };
            let held: Vec<(f64, f64)> = tenants.iter().map(|t| (t.held, t.kept)).collect();
            let mut change = 0.0;
            for (&who, (held, kept)) in on.iter().zip(held) {
                let thread = self.thread_of(who);
                if let (Who::Runs(i), true) = (who, keeps) {
                    let speed = self.speeds[i];
                    // A thread off its CPU fetches no lines.
                    let line_s = self.line_s(thread) / self.demands[i].share;
                    self.threads[thread].again = lasts_s
                        .filter(|_| speed > 0.0)
                        .map_or(0.0, |lasts_s| occupancy::again_per_s(kept, lasts_s, line_s) / speed);
                }
                let t = &mut self.threads[thread];
                let own = match level {
                    Level::Near(k) => &mut t.near[k],
                    Level::Last => &mut t.held,
                };
                change += (held - *own).abs();
                *own = held;
            }
            moved = moved.max(change / capacity);
        }
        moved
    }

    fn thread_of(&self, who: Who) -> usize {
        match who {
            Who::Runs(running) => self.running[running],
            Who::Naps(thread) => thread,
        }
    }

    /// Seconds per line without prefetching.
    fn line_s(&self, thread: usize) -> f64 {
        let (t, m) = (&self.threads[thread], &self.machine);
        let cpu = t.cpu.unwrap_or_default();
        let memory_s =
            |(to, share): (usize, &f64)| share * (m.memory(cpu, self.places.node.of[cpu], to) + self.waits[to]);
        let latency_s: f64 = t.pages.iter().enumerate().map(memory_s).sum();
        latency_s / m.overlap(self.apps[t.app].spec.program.phases[t.phase].mlp)
    }

    fn tenant(&self, level: Level, who: Who) -> Tenant<'_> {
        let t = &self.threads[self.thread_of(who)];
        let app = &self.apps[t.app];
        let phase = &app.spec.program.phases[t.phase];
        let (group, shared) = (t.app, app.spec.program.shared);
        let running = match who {
            Who::Runs(running) => running,
            Who::Naps(_) => {
                let held = match level {
                    Level::Near(k) => t.near[k],
                    Level::Last => t.held,
                };
                let nearer = Nearer::default();
                return Tenant {
                    held,
                    rate: 0.0,
                    curve: &phase.miss_ratio,
                    group,
                    shared,
                    bound: held,
                    nearer,
                    kept: 0.0,
                };
            }
        };
        let per = &self.per[running];
        let (held, bound, before) = match level {
            Level::Near(k) => (t.near[k], per.near_bound[k], k),
            Level::Last => (t.held, per.bound, t.near.len()),
        };
        let bytes = before.checked_sub(1).map_or(0.0, |k| per.nearer[k]);
        let nearer = match level {
            Level::Near(_) => Nearer { bytes, inclusive: None },
            Level::Last => self.machine.nearer(bytes),
        };
        // Lines in nearer caches are not held here too.
        let elsewhere = if nearer.inclusive.is_none() { t.near[..before].iter().sum() } else { 0.0 };
        let bound = (bound - elsewhere).max(0.0);
        let rate = self.speeds[running] * phase.llc_apki / 1000.0;
        let kept = match level {
            Level::Near(_) => 0.0,
            Level::Last => self.machine.private.map_or(0.0, |core| core.kept(phase)).min(bound),
        };
        Tenant { held, rate, curve: &phase.miss_ratio, group, shared, bound, nearer, kept }
    }
}
