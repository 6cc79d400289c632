//! NUMA balancing of Linux 6.12 to 7.x: `task_numa_work`, `task_numa_fault`, `task_numa_placement` and
//! `task_numa_migrate` in `kernel/sched/fair.c`, and `should_numa_migrate_memory`.
//! `docs/reference/simulated-kernels.md` lists what is modelled.

use super::faults::NumaThread;
use super::{Life, World};
use crate::Ns;
use crate::app::Pages;
use crate::machine::PAGE;
use cotenant_model::CpuId;
use cotenant_model::signal::Signal;
use std::collections::BTreeSet;

/// Bytes of a scan: `scan_size_mb`.
const SCAN_BYTES: f64 = 256.0 * 1024.0 * 1024.0;
/// Scan periods, milliseconds, of a process of one scan: `scan_period_min_ms`, `scan_period_max_ms`.
const PERIOD_MS: (f64, f64) = (1_000.0, 60_000.0);
/// The scanner covers at most 2,560 MB per second: `MAX_SCAN_WINDOW`.
const LEAST_PERIOD_MS: f64 = 100.0;
/// A thread that has scanned waits this much longer, nanoseconds of CPU time: two ticks of 250 Hz.
const TICKS_NS: f64 = 8e6;
/// The fraction of faults that lengthens the scan period: `NUMA_PERIOD_THRESHOLD`, of `NUMA_PERIOD_SLOTS`.
const THRESHOLD: f64 = 7.0;
const SLOTS: f64 = 10.0;
/// During this many passes the first fault on a page moves it.
const EARLY: u32 = 4;
/// A node is active if its faults, times this, exceed those of the busiest node: `ACTIVE_NODE_FRACTION`.
const ACTIVE: f64 = 3.0;
/// A swap of two threads must gain more than this many thousandths of their faults: `SMALLIMP`.
const SMALL: f64 = 30.0;
/// Lightly used nodes may differ by two threads: `NUMA_IMBALANCE_MIN`.
const IMBALANCE: f64 = 2.0;
/// Seconds that a hinting fault takes: assumption.
const FAULT_S: f64 = 1e-6;
/// Small pages of a huge one.
const HUGE: f64 = 512.0;

/// Faults of all threads of a process: `numa_group`.
#[derive(Debug)]
struct FaultGroup {
    memory: Vec<f64>,
    cpu: Vec<f64>,
    shared: f64,
    private: f64,
    threads: f64,
}

impl FaultGroup {
    fn is_active(&self, node: usize) -> bool {
        ACTIVE * self.cpu[node] > self.cpu.iter().copied().fold(0.0, f64::max)
    }

    fn has_active(&self) -> usize {
        (0..self.cpu.len()).filter(|&node| self.is_active(node)).count()
    }

    fn weight(&self, node: usize) -> f64 {
        let all: f64 = self.memory.iter().sum();
        if all > 0.0 { 1_000.0 * self.memory[node] / all } else { 0.0 }
    }

    /// The factor for longer periods: with more threads, more memory is shared.
    fn stretch(&self) -> f64 {
        self.threads * (self.shared + 1.0) / (self.private + self.shared + 1.0)
    }

    /// Whether shared memory moves from one node to another: it is divided by the time that threads run there.
    fn moves(&self, from: usize, to: usize) -> bool {
        let (cpu, memory) = (&self.cpu, &self.memory);
        cpu[to] > ACTIVE * cpu[from] || 3.0 * cpu[to] * memory[from] > 4.0 * cpu[from] * memory[to]
    }
}

impl World {
    /// Scans due memory, and returns the time of the next turn.
    pub(super) fn balance_memory(&mut self) {
        for app in 0..self.apps.len() {
            if let Some((thread, at)) = self.next_scan(app)
                && at <= self.now
            {
                self.scan(app, thread);
            }
        }
        let next = (0..self.apps.len()).filter_map(|app| self.next_scan(app)).map(|(_, at)| at).min();
        self.kernel.scan = next.unwrap_or(Ns::MAX).max(self.now + 1);
    }

    /// The next scan of a process and its thread: the first whose CPU time reaches its period once the process is due.
    /// Interleaved memory is not scanned.
    fn next_scan(&self, app: usize) -> Option<(usize, Ns)> {
        let process = &self.apps[app];
        if process.life != Life::Running || process.spec.program.pages == Pages::Interleave {
            return None;
        }
        let earliest = process.numa.next_scan as f64;
        let at = |thread: usize| {
            let t = &self.threads[thread];
            let queue = f64::from(self.queues[t.cpu?].max(1));
            let (period, left) =
                (queue * self.period_ms(thread) * 1e6, t.numa.due_ns - t.counts[Signal::CpuTime as usize]);
            let due = self.now as f64 + queue * left;
            // Periods that end before the process is due cause no scan.
            let missed = ((earliest - due) / period).ceil().max(0.0);
            Some((thread, (due + missed * period).ceil().max(self.now as f64) as Ns))
        };
        process.threads.clone().filter_map(at).min_by_key(|&(thread, at)| (at, thread))
    }

    fn period_ms(&self, thread: usize) -> f64 {
        let t = &self.threads[thread];
        if t.numa.period_ms > 0.0 { t.numa.period_ms } else { self.least_period_ms(t.app) }
    }

    fn process_bytes(&self, app: usize) -> f64 {
        let threads = self.apps[app].threads.clone();
        threads.filter(|&t| self.threads[t].exists).map(|t| self.bytes_of(t)).sum::<f64>().max(PAGE)
    }

    fn least_period_ms(&self, app: usize) -> f64 {
        let scans = (self.process_bytes(app) / SCAN_BYTES).ceil();
        (PERIOD_MS.0 / scans).max(LEAST_PERIOD_MS)
    }

    /// The group of a process whose threads have shared memory and had faults.
    fn fault_group(&self, app: usize) -> Option<FaultGroup> {
        let nodes = self.machine.nodes();
        let all: Vec<&NumaThread> =
            self.threads[self.apps[app].threads.clone()].iter().filter(|t| t.exists).map(|t| &t.numa).collect();
        let of = |kind: usize| all.iter().flat_map(|t| &t.memory).map(|faults| faults[kind]).sum::<f64>();
        let seen = all.iter().flat_map(|t| t.memory.iter().chain(&t.new_memory)).any(|faults| faults[0] > 0.0);
        seen.then(|| FaultGroup {
            memory: (0..nodes).map(|node| all.iter().map(|t| t.on(node)).sum()).collect(),
            cpu: (0..nodes).map(|node| all.iter().map(|t| t.cpu[node]).sum()).collect(),
            shared: of(0),
            private: of(1),
            threads: all.len() as f64,
        })
    }

    /// A scan by a thread: its pages fault at once, because all of a footprint is in use.
    fn scan(&mut self, app: usize, scanner: usize) {
        let bytes = self.process_bytes(app);
        if self.threads[scanner].numa.period_ms == 0.0 {
            let stretch = self.fault_group(app).map_or(1.0, |group| group.stretch());
            self.threads[scanner].numa.period_ms = self.least_period_ms(app) * stretch.max(1.0);
        }
        let period_ms = self.threads[scanner].numa.period_ms;
        let used_ns = self.threads[scanner].counts[Signal::CpuTime as usize];
        self.threads[scanner].numa.due_ns = used_ns + period_ms * 1e6 + TICKS_NS;
        let process = &mut self.apps[app].numa;
        process.next_scan = self.now + (period_ms * 1e6) as Ns;
        let part = (SCAN_BYTES / bytes).min(1.0 - process.at);
        let ends = process.at + part > 1.0 - 1e-9;
        let left = if ends { 1.0 } else { part / (1.0 - process.at) };
        if process.at == 0.0 {
            process.before = process.common.clone();
        }
        let is_first = process.passes == 0;
        process.passes += u32::from(ends);
        process.at = if ends { 0.0 } else { process.at + part };
        let running: Vec<usize> = self.apps[app].threads.clone().filter(|&t| self.threads[t].cpu.is_some()).collect();
        for &thread in &running {
            self.place_by_faults(thread);
        }
        self.fault(app, &running, (part, left), is_first);
        let process = &mut self.apps[app].numa;
        if ends {
            process.last = std::mem::replace(&mut process.faulted, vec![0.0; process.last.len()]);
        }
        self.disturb();
    }

    /// Faults of a part of the remaining memory of this pass, and the moves that follow.
    fn fault(&mut self, app: usize, running: &[usize], (part, left): (f64, f64), is_first: bool) {
        let group = self.fault_group(app);
        let program = self.apps[app].spec.program.clone();
        let nodes = self.machine.nodes();
        let page = PAGE * if program.huge_pages { HUGE } else { 1.0 };
        let all = running.len() as f64;
        let spread = self.spread(app);
        let is_early = |t: &NumaThread| t.preferred.is_none() || t.passes <= EARLY;
        let is_young = running.iter().any(|&t| is_early(&self.threads[t].numa));
        // Whether a fault moves shared memory: either the same thread had the previous fault, or the same node had and
        // memory is to move there.
        let process = &self.apps[app].numa;
        let goes = |from: usize, to: usize| {
            let again = process.last[to];
            let to_be = group.as_ref().is_none_or(|group| group.moves(from, to));
            let alone = if is_young { 1.0 } else { again } / all;
            match (is_first, to_be) {
                (true, _) => 1.0,
                (_, true) => again.max(alone),
                (_, false) => alone,
            }
        };
        let goes: Vec<Vec<f64>> = (0..nodes).map(|from| (0..nodes).map(|to| goes(from, to)).collect()).collect();
        let mut common = process.common.clone();
        let mut moved = vec![0.0; nodes];
        for &thread in running {
            let here = self.node_of(thread);
            let footprint = self.phase(thread).footprint_bytes;
            let (own_bytes, shared_bytes) = (footprint * (1.0 - program.shared), footprint * program.shared);
            let t = &mut self.threads[thread].numa;
            if t.node != here {
                (t.node, t.since) = (here, 0.0);
            }
            // In old processes a page moves only on the second fault in a row from the same node.
            let from = if is_early(t) { 0.0 } else { 1.0 };
            let seen = (t.since + part - from).clamp(0.0, part);
            let ahead = (from + 1.0 - t.since.max(from)).max(0.0);
            let comes = if ahead > 0.0 { (seen / ahead).min(1.0) } else { left };
            t.since += part;
            let mut faults = 0.0;
            for (node, is_there) in t.own.clone().into_iter().enumerate() {
                let gone = if node == here { 0.0 } else { comes * is_there };
                let (own, shared) =
                    (part * own_bytes * is_there / page, part * shared_bytes * common[node] / all / page);
                let is_local = |is_private: bool| {
                    let both = |g: &FaultGroup| g.has_active() > 1 && g.is_active(here) && g.is_active(node);
                    node == here || (!is_private && group.as_ref().is_some_and(both))
                };
                let by_others = if is_first { 0.0 } else { shared * (1.0 - 1.0 / all) };
                let private = own + shared - by_others;
                // Moved pages count at their new node.
                let go = if node == here { 0.0 } else { goes[node][here] };
                let own_goes = (gone * own_bytes / page).min(own);
                t.count(here, here, by_others * go, (private - own) * go + own_goes, is_local);
                t.count(node, here, by_others * (1.0 - go), (private - own) * (1.0 - go) + own - own_goes, is_local);
                faults += own + shared;
                t.own[node] -= gone;
                t.own[here] += gone;
                moved[here] += gone * own_bytes;
            }
            self.threads[thread].counts[Signal::PageFaults as usize] += faults;
            self.threads[thread].debt_s += faults * FAULT_S;
        }
        let shared_bytes = running.first().map_or(0.0, |&t| self.phase(t).footprint_bytes * program.shared);
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                let gone = (part * self.apps[app].numa.before[from] * spread[to] * goes[from][to]).min(common[from]);
                common[from] -= gone;
                common[to] += gone;
                moved[to] += gone * shared_bytes;
            }
        }
        let process = &mut self.apps[app].numa;
        process.common = common;
        process.faulted.iter_mut().zip(&spread).for_each(|(faulted, spread)| *faulted += part * spread);
        self.copy(app, running, &moved);
    }

    /// The threads whose faults caused copies pay the time.
    fn copy(&mut self, app: usize, running: &[usize], moved: &[f64]) {
        let bytes_per_s = self.machine.page_move_bytes_per_s;
        for (to, &bytes) in moved.iter().enumerate() {
            let there: Vec<usize> = running.iter().copied().filter(|&t| self.node_of(t) == to).collect();
            for &thread in &there {
                self.threads[thread].debt_s += bytes / bytes_per_s / there.len() as f64;
            }
        }
        self.mix_pages(app);
    }

    /// Nodes of threads' accesses, from the places of their own and their shared memory.
    pub(super) fn mix_pages(&mut self, app: usize) {
        let shared = self.apps[app].spec.program.shared;
        for thread in self.apps[app].threads.clone() {
            let t = &mut self.threads[thread];
            let mix = t.numa.own.iter().zip(&self.apps[app].numa.common);
            t.pages = mix.map(|(own, common)| shared * common + (1.0 - shared) * own).collect();
        }
    }

    /// Nodes of a thread's own memory, from its accesses: a policy has moved it.
    pub(super) fn unmix_pages(&mut self, thread: usize) {
        let app = &self.apps[self.threads[thread].app];
        let shared = app.spec.program.shared;
        let t = &mut self.threads[thread];
        for ((own, common), mix) in t.numa.own.iter_mut().zip(&app.numa.common).zip(&t.pages) {
            if shared < 1.0 {
                *own = ((mix - shared * common) / (1.0 - shared)).clamp(0.0, 1.0);
            }
        }
    }

    /// Whether load balancing tolerates two more threads on one node than on another: few run there.
    pub(super) fn may_differ(&self, from: (&[usize], u32), to: (&[usize], u32)) -> bool {
        let node = |cpus: &[usize]| cpus.first().map(|&cpu| self.places.node.of[cpu]);
        self.kernel.kind.numa_balancing
            && node(from.0) != node(to.0)
            && f64::from(to.1 + 1) <= self.few_on(to.0)
            && f64::from(from.1) - f64::from(to.1) <= IMBALANCE
    }

    /// Threads from which a node is no longer lightly used: an eighth of its CPUs if it has one cache, otherwise one
    /// per cache.
    fn few_on(&self, cpus: &[usize]) -> f64 {
        let caches: BTreeSet<usize> = cpus.iter().map(|&cpu| self.places.llc.of[cpu]).collect();
        if caches.len() == 1 { (cpus.len() / 8).max(1) as f64 } else { caches.len() as f64 }
    }

    /// Evaluates the faults of a pass: preferred node and next period; then moves to that node, if allowed.
    fn place_by_faults(&mut self, thread: usize) {
        let app = self.threads[thread].app;
        let passes = self.apps[app].numa.passes;
        if self.threads[thread].numa.passes != passes {
            let used_ns = self.threads[thread].counts[Signal::CpuTime as usize];
            let now = self.now;
            let started = self.threads[thread].started;
            let t = &mut self.threads[thread].numa;
            t.passes = passes;
            let before = if t.placed_ns.1 == 0 { (0.0, started) } else { t.placed_ns };
            let ran = (used_ns - before.0) / (now - before.1).max(1) as f64;
            t.placed_ns = (used_ns, now);
            let (shared, private) =
                t.new_memory.iter().fold((0.0, 0.0), |sum, faults| (sum.0 + faults[0], sum.1 + faults[1]));
            for node in 0..t.memory.len() {
                for kind in 0..2 {
                    t.memory[node][kind] = t.memory[node][kind] / 2.0 + std::mem::take(&mut t.new_memory[node][kind]);
                }
                let weight = ran * std::mem::take(&mut t.new_cpu[node]) / (shared + private + 1.0);
                t.cpu[node] = t.cpu[node] / 2.0 + weight;
            }
            let locality = std::mem::take(&mut t.locality);
            let group = self.fault_group(app);
            let t = &self.threads[thread].numa;
            let on = |node: usize| group.as_ref().map_or_else(|| t.on(node), |group| group.memory[node]);
            let most =
                (0..t.memory.len()).rev().max_by(|&a, &b| on(a).total_cmp(&on(b))).filter(|&node| on(node) > 0.0);
            let preferred = most.or(t.preferred);
            let period_ms = self.adapted_ms(thread, locality, [shared, private], group.as_ref());
            let idle = locality[1] + shared == 0.0;
            let t = &mut self.threads[thread].numa;
            (t.preferred, t.period_ms) = (preferred, period_ms);
            if idle {
                self.apps[app].numa.next_scan = now + (period_ms * 1e6) as Ns;
            }
        }
        self.go_to_preferred(thread);
    }

    /// The next period: longer for memory that is local or shared by many, shorter for remote memory.
    fn adapted_ms(
        &self,
        thread: usize,
        [remote, local]: [f64; 2],
        [shared, private]: [f64; 2],
        group: Option<&FaultGroup>,
    ) -> f64 {
        let app = self.threads[thread].app;
        let (least, now) = (self.least_period_ms(app), self.period_ms(thread));
        let scans = (self.process_bytes(app) / SCAN_BYTES).ceil();
        let most = (PERIOD_MS.1 / scans * group.map_or(1.0, |group| group.stretch().max(1.0))).max(least);
        if local + shared == 0.0 {
            return (2.0 * now).min(most);
        }
        let slots = |part: f64, of: f64| if of > 0.0 { (SLOTS * part / of).floor() } else { 0.0 };
        let (here, own) = (slots(local, local + remote), slots(private, private + shared));
        let later = |slots: f64| (slots - THRESHOLD).max(1.0);
        let by = match (own >= THRESHOLD, here >= THRESHOLD) {
            (true, _) => later(own),
            (_, true) => later(here),
            _ => here.max(own) - THRESHOLD,
        };
        (now + by * now / SLOTS).clamp(least, most)
    }

    /// A thread off its preferred node goes to an idle CPU there while loads stay even, or swaps with a thread that
    /// loses nothing.
    fn go_to_preferred(&mut self, thread: usize) {
        let Some((preferred, here)) = self.threads[thread].numa.preferred.zip(self.threads[thread].cpu) else { return };
        let here = self.places.node.of[here];
        if preferred == here {
            return;
        }
        let app = self.threads[thread].app;
        let group = self.fault_group(app);
        let mut best = self.seat_on(thread, preferred, group.as_ref());
        if best.is_none() || group.as_ref().is_some_and(|group| group.has_active() > 1) {
            for node in (0..self.places.node.groups.len()).filter(|&node| node != here && node != preferred) {
                let gains = self.gain(thread, node, here, group.as_ref()) >= 0.0;
                let other = if gains { self.seat_on(thread, node, group.as_ref()) } else { None };
                best = [best, other].into_iter().flatten().max_by(|a, b| a.gain.total_cmp(&b.gain));
            }
        }
        if group.is_some() {
            let node = best.map_or(here, |seat| self.places.node.of[seat.cpu]);
            self.threads[thread].numa.preferred = Some(node);
        }
        match best {
            Some(Seat { cpu, other: None, .. }) => self.put(thread, cpu),
            Some(Seat { cpu, other: Some(other), .. }) => {
                let from = self.threads[thread].cpu.unwrap_or(cpu);
                self.put(other, from);
                self.put(thread, cpu);
            }
            None => {}
        }
    }

    /// Thousandths of faults that become local if a thread moves between two nodes.
    fn gain(&self, thread: usize, to: usize, from: usize, group: Option<&FaultGroup>) -> f64 {
        let t = &self.threads[thread].numa;
        group.map_or_else(|| t.weight(to) - t.weight(from), |group| group.weight(to) - group.weight(from))
    }

    /// The place on a node to which a thread may move.
    fn seat_on(&self, thread: usize, node: usize, group: Option<&FaultGroup>) -> Option<Seat> {
        let t = &self.threads[thread];
        let here = t.cpu?;
        let from = self.places.node.of[here];
        let cpus = self.places.node.groups.get(node)?;
        let running =
            |node: usize| self.places.node.groups[node].iter().map(|&c| f64::from(self.queues[c])).sum::<f64>();
        let (source, target) = (running(from) - 1.0, running(node) + 1.0);
        let has_spare = running(node) < cpus.len() as f64;
        let apart = target - source;
        let may_move = if has_spare {
            apart <= 0.0 || (target <= self.few_on(cpus) && apart <= IMBALANCE)
        } else {
            apart.abs() <= (running(node) - running(from)).abs()
        };
        let gain = self.gain(thread, node, from, group);
        let idle = self.idle_for(thread, cpus);
        if may_move && let Some(&cpu) = idle.first() {
            return Some(Seat { cpu, other: None, gain: gain.max(0.0) });
        }
        let swap = |other: usize| {
            let o = &self.threads[other];
            let cpu = o.cpu.filter(|cpu| self.places.node.of[*cpu] == node)?;
            let may = t.mask.contains(CpuId(cpu as u32)) && o.mask.contains(CpuId(here as u32));
            let own = self.threads[thread].numa.weight(node) - self.threads[thread].numa.weight(from);
            let others = o.numa.weight(from) - o.numa.weight(node);
            let mut gain = if o.app == t.app { (own + others) * 15.0 / 16.0 } else { gain + others };
            if o.numa.preferred == Some(node) {
                gain -= gain / 16.0;
            }
            if o.numa.preferred == Some(from) {
                gain += gain / 8.0;
            }
            (may && gain >= SMALL).then_some(Seat { cpu, other: Some(other), gain })
        };
        (0..self.threads.len())
            .filter(|&other| other != thread)
            .filter_map(swap)
            .max_by(|a, b| a.gain.total_cmp(&b.gain))
    }
}

/// The place to which a thread may move, and the thread with which it swaps.
#[derive(Clone, Copy, Debug)]
struct Seat {
    cpu: usize,
    other: Option<usize>,
    gain: f64,
}

#[cfg(test)]
mod tests {
    use super::super::faults::NumaProcess;
    use super::super::tests::{near, world};
    use super::*;
    use cotenant_model::CpuSet;
    use std::sync::Arc;

    /// The third application, one thread on node 1, with these bytes of its own on these nodes.
    fn alone(bytes: f64, own: [f64; 3]) -> World {
        let mut world = world();
        let program = Arc::get_mut(&mut world.apps[2].spec.program).unwrap();
        (program.phases[0].footprint_bytes, program.shared) = (bytes, 0.0);
        world.put(8, 20);
        world.threads[8].numa = NumaThread::new(own.to_vec());
        world.apps[2].numa = NumaProcess::new(0, own.to_vec());
        world.mix_pages(2);
        world
    }

    /// 512 MiB, of which each scan covers half, 65,536 pages: young memory comes at the first fault, at 1 µs for each
    /// fault and what copying costs; twice as often as small memory.
    /// Holds sim/kernel.
    #[test]
    fn young_memory_comes_at_the_first_fault() {
        let mut world = alone(2.0 * SCAN_BYTES, [0.5, 0.5, 0.0]);
        let debt_s = world.threads[8].debt_s;
        world.scan(2, 8);
        let t = &world.threads[8];
        assert_eq!(t.pages, [0.25, 0.75, 0.0]);
        assert!(near(t.counts[Signal::PageFaults as usize], 65_536.0));
        let copied = 0.25 * 2.0 * SCAN_BYTES / world.machine.page_move_bytes_per_s;
        assert!(near(t.debt_s - debt_s, 0.065_536 + copied), "{}", t.debt_s);
        assert_eq!((t.numa.period_ms, world.apps[2].numa.passes), (500.0, 0));
        world.scan(2, 8);
        assert_eq!((world.threads[8].pages.as_slice(), world.apps[2].numa.passes), ([0.0, 1.0, 0.0].as_slice(), 1));
        Arc::get_mut(&mut world.apps[2].spec.program).unwrap().huge_pages = true;
        let faults = world.threads[8].counts[Signal::PageFaults as usize];
        world.scan(2, 8);
        assert!(near(world.threads[8].counts[Signal::PageFaults as usize] - faults, 128.0), "pages of 2 MiB");
    }

    /// Of a thread that has long run elsewhere, a page moves at its second fault from the new node.
    /// Holds sim/kernel.
    #[test]
    fn old_memory_comes_at_the_second_fault() {
        let mut world = alone(2.0 * SCAN_BYTES, [1.0, 0.0, 0.0]);
        world.threads[8].mask = (16..32).map(CpuId).collect();
        let t = &mut world.threads[8].numa;
        (t.passes, t.preferred) = (EARLY + 1, Some(1));
        world.apps[2].numa.passes = EARLY + 1;
        let after = |world: &mut World| {
            world.scan(2, 8);
            world.threads[8].pages[0]
        };
        assert_eq!([(); 4].map(|()| after(&mut world)), [1.0, 1.0, 0.5, 0.0]);
    }

    /// One page in three is touched from node 1, where two of six threads are; never touched before, it goes there.
    /// Holds sim/kernel.
    #[test]
    fn memory_in_common_goes_where_it_is_touched() {
        let mut world = world();
        world.apps[0].numa = NumaProcess::new(0, vec![1.0, 0.0, 0.0]);
        (0..6).for_each(|t| world.threads[t].numa = NumaThread::new(vec![1.0, 0.0, 0.0]));
        world.scan(0, 0);
        let common = world.apps[0].numa.common();
        assert!(near(common[0], 4.0 / 6.0) && near(common[1], 2.0 / 6.0), "{common:?}");
        // Later by the same thread as before, one in six; or from the same node, if that is to have more of it.
        let group = |cpu: [f64; 2], memory: [f64; 2]| FaultGroup {
            memory: memory.to_vec(),
            cpu: cpu.to_vec(),
            shared: 1.0,
            private: 0.0,
            threads: 2.0,
        };
        for (cpu, memory, moves) in [
            ([1.0, 4.0], [1.0, 9.0], true), // more than three times as much time there
            ([1.0, 2.0], [1.0, 1.0], true), // 3 × 2 × 1 > 4 × 1 × 1
            ([1.0, 1.0], [1.0, 1.0], false),
            ([1.0, 1.0], [4.0, 3.0], false), // 3 × 1 × 4 = 4 × 1 × 3
            ([1.0, 1.0], [5.0, 3.0], true),
        ] {
            assert_eq!(group(cpu, memory).moves(0, 1), moves, "{cpu:?} {memory:?}");
        }
    }

    /// Holds sim/kernel.
    #[test]
    fn scans_come_later_where_memory_is_local_and_sooner_where_it_is_not() {
        let mut world = alone(SCAN_BYTES, [0.0, 1.0, 0.0]);
        world.threads[8].numa.period_ms = 2_000.0;
        let adapted = |world: &World, locality, types| world.adapted_ms(8, locality, types, None);
        for (locality, types, expected) in [
            ([0.0, 0.0], [0.0, 0.0], 4_000.0),  // nothing was touched
            ([0.0, 9.0], [0.0, 9.0], 2_600.0),  // all private: three slots of 200 ms
            ([9.0, 0.0], [2.0, 7.0], 2_200.0),  // seven tenths private: one slot
            ([1.0, 9.0], [9.0, 1.0], 2_400.0),  // shared, and local
            ([6.0, 4.0], [5.0, 5.0], 1_600.0),  // neither: five tenths are two below seven
            ([9.0, 1.0], [10.0, 0.0], 1_000.0), // no sooner than that
        ] {
            assert!(near(adapted(&world, locality, types), expected), "{locality:?} {types:?}");
        }
        world.threads[8].numa.period_ms = 50_000.0;
        assert_eq!(adapted(&world, [0.0, 0.0], [0.0, 0.0]), 60_000.0);
        Arc::get_mut(&mut world.apps[2].spec.program).unwrap().phases[0].footprint_bytes = 20.0 * SCAN_BYTES;
        assert_eq!((world.least_period_ms(2), adapted(&world, [0.0, 0.0], [0.0, 0.0])), (100.0, 3_000.0));
    }

    /// A thread goes to an idle CPU on its preferred node; where none is, it changes places with one that prefers its
    /// own; never out of its mask, nor lets another go out of its own.
    /// Holds sim/kernel.
    #[test]
    fn a_thread_goes_to_its_memory_or_changes_places() {
        let prefers = |t: &mut NumaThread, node: usize| {
            t.preferred = Some(node);
            t.memory[node][1] = 100.0;
        };
        for (idle, mask, swaps, expected) in [
            (true, 0..48, false, (5, 3)),
            (true, 16..48, false, (20, 3)),
            (false, 0..48, true, (3, 20)),
            (false, 0..48, false, (20, 3)),
        ] {
            let mut world = alone(SCAN_BYTES, [1.0, 0.0, 0.0]);
            world.put(0, 3);
            (0..16).for_each(|cpu| world.queues[cpu] = u32::from(!(idle && cpu == 5)));
            (16..48).for_each(|cpu| world.queues[cpu] = if cpu == 20 { 2 } else { 1 });
            world.threads[8].mask = mask.map(CpuId).collect();
            if !swaps {
                world.threads[..8].iter_mut().for_each(|t| t.mask = (0..16).map(CpuId).collect::<CpuSet>());
            }
            prefers(&mut world.threads[8].numa, 0);
            world.threads[0].numa = NumaThread::new(vec![0.0, 1.0, 0.0]);
            prefers(&mut world.threads[0].numa, 1);
            world.go_to_preferred(8);
            let on = |t: usize| world.threads[t].cpu.unwrap();
            assert_eq!((on(8), on(0)), expected, "{idle} {swaps}");
        }
    }
}
