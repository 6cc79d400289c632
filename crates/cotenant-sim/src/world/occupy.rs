//! Caches change hands.

use super::World;
use crate::occupancy::{self, Nearer, Tenant};

/// A level of shared caches: one before the last, or the last.
#[derive(Clone, Copy)]
enum Level {
    Near(usize),
    Last,
}

impl World {
    /// Lets the caches change hands for `dt` seconds; the largest part of one that did.
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
        let mut on: Vec<Vec<usize>> = vec![Vec::new(); caches];
        for (i, &thread) in self.running.iter().enumerate() {
            let Some(cpu) = self.threads[thread].cpu else { continue };
            let cache = match level {
                Level::Near(k) => m.near[k].of[cpu],
                Level::Last => Some(self.places.llc.of[cpu]),
            };
            if let Some(cache) = cache {
                on[cache].push(i);
            }
        }
        let mut moved: f64 = 0.0;
        for (cache, on) in on.iter().enumerate() {
            let capacity = match level {
                Level::Near(k) => m.near[k].bytes[cache],
                Level::Last => m.caches[cache].bytes,
            };
            let mut tenants: Vec<Tenant<'_>> = on.iter().map(|&i| self.tenant(level, i)).collect();
            occupancy::advance(m.replacement, capacity, &mut tenants, dt);
            let held: Vec<f64> = tenants.iter().map(|t| t.held).collect();
            let mut change = 0.0;
            for (&i, held) in on.iter().zip(held) {
                let t = &mut self.threads[self.running[i]];
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

    fn tenant(&self, level: Level, running: usize) -> Tenant<'_> {
        let (t, per) = (&self.threads[self.running[running]], &self.per[running]);
        let app = &self.apps[t.app];
        let (held, bound, before) = match level {
            Level::Near(k) => (t.near[k], per.near_bound[k], k),
            Level::Last => (t.held, per.bound, t.near.len()),
        };
        let bytes = before.checked_sub(1).map_or(0.0, |k| per.nearer[k]);
        let nearer = match level {
            Level::Near(_) => Nearer { bytes, inclusive: None },
            Level::Last => self.machine.nearer(bytes),
        };
        // What is held nearer is not held here, too.
        let elsewhere = if nearer.inclusive.is_none() { t.near[..before].iter().sum() } else { 0.0 };
        let bound = (bound - elsewhere).max(0.0);
        let phase = &app.spec.program.phases[t.phase];
        let rate = self.speeds[running] * phase.llc_apki / 1000.0;
        Tenant { held, rate, curve: &phase.miss_ratio, group: t.app, shared: app.spec.program.shared, bound, nearer }
    }
}
