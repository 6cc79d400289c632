//! The simulated kernel's turns: it places new and woken threads, balances queues, and draws processes to their caches.

use super::{Life, World};
use crate::app::Program;
use crate::kernel::{BALANCE, Placement};
use cotenant_model::{CpuId, CpuSet};

/// Below this fraction of its CPUs busy, a last-level cache has room: `llc_overload_pct`.
const LLC_BUSY: f64 = 0.5;
/// Above that, how much busier than the other one the preferred cache may be: `llc_imb_pct`.
const LLC_IMBALANCE: f64 = 1.2;

/// The cache-aware kernel's verdict on a move between two caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Forbidden,
    /// Good for the cache.
    Drawn,
    /// Neither cache has room: load alone counts.
    Free,
}

impl Move {
    /// The verdict on a move of a thread out of its process's preferred cache, or into it: `can_migrate_llc` in
    /// `kernel/sched/fair.c`. Leaving is harder than entering.
    fn of(source: Busy, target: Busy, to_preferred: bool) -> Self {
        if !source.has_room() && !target.has_room() {
            return Self::Free;
        }
        let (source, target) = (source.with(-1.0), target.with(1.0));
        let forbidden = if to_preferred {
            !target.has_room() && target.cpus > LLC_IMBALANCE * source.cpus
        } else {
            source.has_room() || source.cpus <= LLC_IMBALANCE * target.cpus
        };
        if forbidden { Self::Forbidden } else { Self::Drawn }
    }
}

/// Number of a cache's busy CPUs.
#[derive(Clone, Copy, Debug)]
struct Busy {
    cpus: f64,
    of: f64,
}

impl Busy {
    fn with(self, more: f64) -> Self {
        Self { cpus: self.cpus + more, ..self }
    }

    fn has_room(self) -> bool {
        self.cpus < LLC_BUSY * self.of
    }
}

/// Targets of the cache-aware kernel.
#[derive(Debug)]
struct Pull {
    /// Per application, the last-level cache that it prefers.
    preferred: Vec<Option<usize>>,
    caches: Vec<Busy>,
}

impl Pull {
    /// Whether balancing may make this move; not if the thread would be drawn back at once.
    fn lets_balance(&self, from: usize, to: usize, to_preferred: bool) -> bool {
        let (source, target) = (self.caches[from], self.caches[to]);
        let back = || Move::of(target.with(1.0), source.with(-1.0), true);
        match Move::of(source, target, to_preferred) {
            Move::Forbidden => false,
            Move::Drawn => true,
            Move::Free => to_preferred || back() != Move::Drawn,
        }
    }
}

impl World {
    pub(crate) fn kernel_turn(&mut self) {
        let now = self.now;
        if self.kernel.balance.is_some_and(|at| at <= now) {
            let draws = self.kernel.kind.placement == Placement::CacheAware && self.draw();
            let moved = self.balance() | self.wake() | draws;
            self.kernel.balance = moved.then_some(now + BALANCE);
        }
        if self.kernel.kind.numa_balancing && self.kernel.scan <= now {
            self.balance_memory();
        }
    }

    /// The CPU for a new or woken thread: in the idlest package, its idlest cache level by level, then the idlest core;
    /// ties at random.
    pub(crate) fn idlest(&mut self, thread: usize) -> usize {
        let may: Vec<usize> = self.threads[thread].mask.iter().map(CpuId::index).collect();
        self.idlest_of(may)
    }

    /// Puts a thread on the idlest of these CPUs.
    fn put_on_idlest(&mut self, thread: usize, may: Vec<usize>) {
        let cpu = self.idlest_of(may);
        self.put(thread, cpu);
    }

    fn idlest_of(&mut self, mut may: Vec<usize>) -> usize {
        let (p, queues) = (&self.places, &self.queues);
        for level in [&p.package, &p.llc].into_iter().chain(p.near.iter().rev()).chain([&p.core]) {
            let load = |group: usize| {
                let cpus = &level.groups[group];
                f64::from(cpus.iter().map(|&c| queues[c]).sum::<u32>()) / cpus.len() as f64
            };
            let mut groups: Vec<(usize, f64)> = Vec::new();
            for &cpu in &may {
                let group = level.of[cpu];
                if groups.iter().all(|g| g.0 != group) {
                    groups.push((group, load(group)));
                }
            }
            let least = groups.iter().map(|g| g.1).fold(f64::INFINITY, f64::min);
            groups.retain(|g| g.1 <= least);
            let Some(&(group, _)) = self.rng.choice(&groups) else { return may.first().copied().unwrap_or_default() };
            may.retain(|&cpu| level.of[cpu] == group);
        }
        let least = may.iter().map(|&c| queues[c]).min().unwrap_or_default();
        may.retain(|&c| queues[c] == least);
        may[self.rng.usize(..may.len())]
    }

    /// One round of balancing: at each level, one thread from a longer to a shorter queue where two are at least two
    /// apart.
    fn balance(&mut self) -> bool {
        let p = &self.places;
        let everywhere = vec![p.cpus.clone()];
        let single: Vec<Vec<usize>> = p.cpus.iter().map(|&c| vec![c]).collect();
        let near = p.near.iter().rev().map(|level| level.groups.clone());
        let mut levels = vec![everywhere, p.package.groups.clone(), p.llc.groups.clone()];
        levels.extend(near.chain([p.core.groups.clone(), single]));
        let mut moved = false;
        for pair in levels.windows(2) {
            let (parents, groups) = (&pair[0], &pair[1]);
            for parent in parents {
                let inside: Vec<&Vec<usize>> =
                    groups.iter().filter(|g| g.first().is_some_and(|c| parent.binary_search(c).is_ok())).collect();
                moved |= inside.len() > 1 && self.even_out(&inside);
            }
        }
        moved
    }

    fn even_out(&mut self, groups: &[&Vec<usize>]) -> bool {
        let mut load: Vec<(usize, u32)> =
            groups.iter().enumerate().map(|(g, cpus)| (g, cpus.iter().map(|&c| self.queues[c]).sum())).collect();
        let per_cpu = |g: usize, n: u32| f64::from(n) / groups[g].len() as f64;
        let pull = self.pull();
        load.sort_by(|a, b| per_cpu(a.0, a.1).total_cmp(&per_cpu(b.0, b.1)));
        for &(from, most) in load.iter().rev() {
            for &(to, least) in &load {
                if most == 0 || per_cpu(from, most - 1) < per_cpu(to, least + 1) {
                    break;
                }
                if self.may_differ((groups[from], most), (groups[to], least)) {
                    continue;
                }
                let movable: Vec<usize> = (0..self.threads.len())
                    .filter(|&t| {
                        self.threads[t].cpu.is_some_and(|c| groups[from].contains(&c))
                            && groups[to].iter().any(|&c| self.may_go(t, c, &pull))
                    })
                    .collect();
                let movable = self.spared(movable, groups[to]);
                let queue = |t: &usize| self.threads[*t].cpu.map(|c| self.queues[c]);
                let longest = movable.iter().filter_map(queue).max();
                let longest: Vec<usize> = movable.into_iter().filter(|t| queue(t) == longest).collect();
                if let Some(&thread) = self.rng.choice(&longest) {
                    let may = groups[to].iter().copied().filter(|&c| self.may_go(thread, c, &pull)).collect();
                    self.put_on_idlest(thread, may);
                    return true;
                }
            }
        }
        false
    }

    /// Without threads on their preferred memory node, if others can move in their place.
    fn spared(&self, movable: Vec<usize>, to: &[usize]) -> Vec<usize> {
        let node = |cpu: usize| self.places.node.of[cpu];
        let stays = |&t: &usize| {
            let here = self.threads[t].cpu.map(node);
            self.threads[t].numa.preferred.is_some_and(|preferred| {
                here == Some(preferred) && to.first().is_some_and(|&cpu| node(cpu) != preferred)
            })
        };
        let others: Vec<usize> = movable.iter().copied().filter(|t| !stays(t)).collect();
        if others.is_empty() { movable } else { others }
    }

    /// Whether balancing may bring a thread to a CPU: its mask and its process's cache preference allow it.
    fn may_go(&self, thread: usize, cpu: usize, pull: &Pull) -> bool {
        let t = &self.threads[thread];
        let (Some(here), to) = (t.cpu.map(|c| self.places.llc.of[c]), self.places.llc.of[cpu]) else { return false };
        t.mask.contains(CpuId(cpu as u32))
            && match pull.preferred[t.app] {
                Some(preferred) if here != to && [here, to].contains(&preferred) => {
                    pull.lets_balance(here, to, to == preferred)
                }
                _ => true,
            }
    }

    /// Threads with barriers wake often; one that shares its CPU moves to an idle one near its waker.
    fn wake(&mut self) -> bool {
        let mut moved = false;
        for app in 0..self.apps.len() {
            if self.apps[app].life != Life::Running || !self.apps[app].spec.program.barrier {
                continue;
            }
            for thread in self.apps[app].threads.clone() {
                let waker = self.rng.usize(self.apps[app].threads.clone());
                let (Some(cpu), Some(near)) = (self.threads[thread].cpu, self.threads[waker].cpu) else { continue };
                if self.queues[cpu] < 2 {
                    continue;
                }
                let idle = self.idle_for(thread, &self.places.llc.groups[self.places.llc.of[near]]);
                if !idle.is_empty() {
                    self.put_on_idlest(thread, idle);
                    moved = true;
                }
            }
        }
        moved
    }

    /// Idle CPUs among these that a thread may use.
    pub(super) fn idle_for(&self, thread: usize, cpus: &[usize]) -> Vec<usize> {
        let mask = &self.threads[thread].mask;
        cpus.iter().copied().filter(|&c| self.queues[c] == 0 && mask.contains(CpuId(c as u32))).collect()
    }

    /// The current targets of the cache-aware kernel.
    fn pull(&self) -> Pull {
        let draws = self.kernel.kind.placement == Placement::CacheAware;
        let preferred = (0..self.apps.len()).map(|app| draws.then(|| self.preferred(app)).flatten()).collect();
        Pull { preferred, caches: (0..self.places.llc.groups.len()).map(|llc| self.busy(llc)).collect() }
    }

    fn busy(&self, llc: usize) -> Busy {
        let cpus = &self.places.llc.groups[llc];
        Busy { cpus: cpus.iter().filter(|&&c| self.queues[c] > 0).count() as f64, of: cpus.len() as f64 }
    }

    /// The last-level cache preferred by a process: where most of its threads are, if it has several, and all of them
    /// and its data fit.
    fn preferred(&self, app: usize) -> Option<usize> {
        let app = &self.apps[app];
        let mut on = vec![0_usize; self.places.llc.groups.len()];
        self.threads[app.threads.clone()].iter().filter_map(|t| t.cpu).for_each(|c| on[self.places.llc.of[c]] += 1);
        let (domain, most) = on.iter().copied().enumerate().max_by_key(|&(d, n)| (n, std::cmp::Reverse(d)))?;
        let cpus = &self.places.llc.groups[domain];
        let cores = cpus.iter().map(|&c| self.places.core.of[c]).collect::<std::collections::BTreeSet<_>>().len();
        let threads: usize = on.iter().sum();
        let fits =
            threads <= cores && resident(&app.spec.program, app.spec.threads) <= self.machine.caches[domain].bytes;
        (threads > 1 && most > 0 && fits && self.places.llc.groups.len() > 1).then_some(domain)
    }

    /// Draws one thread of each process nearer to its preferred cache.
    fn draw(&mut self) -> bool {
        let mut moved = false;
        for app in 0..self.apps.len() {
            let Some(domain) = self.preferred(app) else { continue };
            let cpus = &self.places.llc.groups[domain];
            let target: CpuSet = cpus.iter().map(|&c| CpuId(c as u32)).collect();
            let away = self.apps[app].threads.clone().find(|&t| {
                let t = &self.threads[t];
                let from = t.cpu.map(|c| self.places.llc.of[c]).filter(|from| *from != domain);
                t.mask.intersects(&target)
                    && from.is_some_and(|from| Move::of(self.busy(from), self.busy(domain), true) == Move::Drawn)
            });
            if let Some(thread) = away {
                let may = self.threads[thread].mask.and(&target).iter().map(CpuId::index).collect();
                self.put_on_idlest(thread, may);
                moved = true;
            }
        }
        moved
    }
}

/// Bytes touched by a process with this many threads.
fn resident(program: &Program, threads: usize) -> f64 {
    let most = program.phases.iter().map(|p| p.footprint_bytes).fold(0.0, f64::max);
    most * (program.shared + (1.0 - program.shared) * threads as f64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::world;
    use super::*;

    /// With no thread on a CPU.
    fn nobody() -> World {
        let mut world = world();
        for thread in 0..world.threads.len() {
            world.stand(thread, None);
        }
        world
    }

    /// Package, cache and core with fewest threads per CPU, level by level: cores are 2k and 2k + 1, L2s four CPUs,
    /// L3s eight, packages sixteen.
    #[test]
    fn the_idlest_is_found_level_by_level() {
        let all: Vec<usize> = (0..48).collect();
        for (threads, may, expected) in [
            // Two on one CPU are fewer than three on three.
            (vec![0, 0, 16, 17, 18, 32, 33, 34], all.clone(), 8..16),
            (vec![0, 8, 9, 16, 17, 18, 19, 32, 33, 34, 35], all, 4..8),
            (vec![0, 4, 5, 8, 9, 10, 12], (0..16).collect(), 2..4),
            (vec![0, 2, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], (0..16).collect(), 1..2),
            // Forbidden CPUs do not count as targets, but the threads on them count as load.
            (vec![0, 0, 1], vec![0, 1, 4], 4..5),
            (vec![0, 0, 1], vec![0, 1], 1..2),
            (vec![16; 4], vec![3, 17], 3..4),
        ] {
            let mut world = nobody();
            for cpu in &threads {
                world.queues[*cpu] += 1;
            }
            let cpu = world.idlest_of(may);
            assert!(expected.contains(&cpu), "{threads:?}: CPU {cpu}, not of {expected:?}");
        }
    }

    /// A process is drawn to a cache that has a core for each of its threads and room for their data: 4 MB each, half
    /// of it in common.
    #[test]
    fn a_process_prefers_the_cache_that_holds_all_of_it() {
        for (cpus, bytes, expected) in [
            (vec![8, 16], 6e6, Some(1)), // as many in both: the first
            (vec![8, 16], 6e6 - 1.0, None),
            (vec![8, 16, 18], 8e6, Some(2)),
            (vec![0, 2, 4, 6, 8], 2e7, None), // five, four cores
            (vec![8], 2e7, None),             // one thread has no partner
            (vec![], 2e7, None),
        ] {
            let mut world = nobody();
            let machine = std::sync::Arc::get_mut(&mut world.machine).unwrap();
            machine.caches.iter_mut().for_each(|cache| cache.bytes = bytes);
            world.apps[0].spec.threads = cpus.len();
            world.threads.iter_mut().zip(&cpus).for_each(|(t, cpu)| t.cpu = Some(*cpu));
            assert_eq!(world.preferred(0), expected, "{cpus:?}");
        }
    }

    /// With the thread, less than half of the cache's eight CPUs are busy, or at most 1.2 times as many as where it
    /// comes from, which has room itself.
    #[test]
    fn a_process_is_drawn_while_there_is_room() {
        for (busy, busy_there, moves) in [
            (1, 1, true),
            (2, 1, true),
            (3, 1, false), // four of eight, and none
            (3, 3, false), // four, and two
            (3, 5, true),  // four, and four
            (4, 6, false), // neither has room: load alone counts
        ] {
            let mut world = nobody();
            world.kernel.kind.placement = Placement::CacheAware;
            world.apps[0].spec.threads = 2;
            for (thread, cpu) in [(0, 8), (1, 16)] {
                world.stand(thread, Some(cpu));
            }
            (0..busy - 1).for_each(|n| world.queues[9 + n] = 1);
            (0..busy_there - 1).for_each(|n| world.queues[17 + n] = 1);
            let drawn = world.draw();
            assert_eq!((drawn, world.threads[1].cpu.is_some_and(|c| c < 16)), (moves, moves), "{busy} {busy_there}");
        }
    }

    /// Out of the cache that a process prefers, balancing takes a thread only where more than half of it stays busy,
    /// and clearly more than the other one; inside of it, always.
    #[test]
    fn balancing_leaves_a_process_in_its_cache() {
        for (busy, busy_there, leaves) in [
            (4, 0, false), // three of eight stay
            (6, 0, true),
            (5, 3, false), // four, and four
            (6, 3, true),
            (5, 5, true),  // neither has room: load alone counts
            (4, 5, false), // neither, but it would be drawn back: four of eight, and five there
        ] {
            let mut world = nobody();
            world.kernel.kind.placement = Placement::CacheAware;
            world.apps[0].spec.threads = 2;
            for thread in 0..2 {
                world.stand(thread, Some(8 + thread));
            }
            (2..busy).for_each(|n| world.queues[8 + n] = 1);
            (0..busy_there).for_each(|n| world.queues[16 + n] = 1);
            let may = world.may_go(1, 23, &world.pull());
            assert_eq!(may, leaves, "{busy} {busy_there}");
        }
        let mut world = nobody();
        world.kernel.kind.placement = Placement::CacheAware;
        world.apps[0].spec.threads = 2;
        for thread in 0..2 {
            world.stand(thread, Some(8));
        }
        assert!(world.balance());
        let on: Vec<usize> = world.threads.iter().filter_map(|t| t.cpu).collect();
        assert!(on[0] != on[1] && on.iter().all(|cpu| (8..16).contains(cpu)), "{on:?}");
    }
}
