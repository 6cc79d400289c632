//! The order of candidates with hardware counters: a small model of a shape's effect on each group of threads. Its
//! errors cost trials but no correctness, because badly ranked shapes are tried too.

use super::learned_situation::LearnedSituation;
use super::shape::Shape;
use super::shape_board::{ShapeBoard, ShapePlaces};
use cotenant_model::{AppId, Signal, TaskId, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counted signals, in the order of [`GroupCounts::sums`]. The last three may be missing.
const SIGNALS: [Signal; 8] = [
    Signal::Cycles,
    Signal::Instructions,
    Signal::PrivateMisses,
    Signal::LlcMisses,
    Signal::StallCycles,
    Signal::Intra,
    Signal::Near,
    Signal::Inter,
];
const NEEDED: usize = 5;

/// Usual latencies in cycles; only their ratios matter, because each program's exposure is measured.
const LLC: f64 = 40.0;
const MEMORY: f64 = 200.0;
/// Added for another node.
const REMOTE: f64 = 100.0;
/// The assumed shared fraction of a program's memory.
const COMMON: f64 = 0.5;
/// Lines from other cores: of the same domain, of the same package, of another one.
const LINES: [f64; 3] = [60.0, 120.0, 250.0];
/// Slowdown of another thread's work by a thread without stalls on the same core.
const SHARED_CORE: f64 = 0.6;
/// Slowdown of memory for a domain that reads as much as the one that now reads most.
const CROWDED: f64 = 0.5;
/// For a program with hits, misses grow with the root of its lost cache (Hartstein et al., CF 2006).
const MISSES: f64 = 0.5;
/// Least fraction of time that counts as computing, because stall counters overlap.
const COMPUTES: f64 = 0.05;

/// Counts while the incumbent was in place, summed over the threads of each group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct GroupCounts {
    sums: Vec<[f64; SIGNALS.len()]>,
    /// Thread seconds of each group.
    seconds: Vec<f64>,
}

impl GroupCounts {
    /// Adds a round. Threads without a required signal are skipped.
    pub fn add(&mut self, view: &View, members: &[(TaskId, usize)], groups: usize) {
        self.sums.resize(groups, [0.0; SIGNALS.len()]);
        self.seconds.resize(groups, 0.0);
        let seconds = view.interval.as_secs_f64();
        for &(task, group) in members.iter().filter(|(_, group)| *group < groups) {
            let Some(task) = view.task(task) else { continue };
            let rates = SIGNALS.map(|signal| task.per_s(signal));
            if rates[..NEEDED].iter().all(Option::is_some) {
                self.sums[group].iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate.unwrap_or(0.0) * seconds);
                self.seconds[group] += seconds;
            }
        }
    }
}

/// Behaviour of a group's thread, per instruction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ThreadModel {
    /// Cycles of its own work with a core to itself, and their fraction of its time.
    compute: f64,
    busy: f64,
    /// Exposure to a cycle of latency.
    feels: f64,
    /// Requests to the last-level cache, per instruction and per second, and their misses.
    requests: f64,
    requests_per_s: f64,
    misses: f64,
    /// Logarithm of its part of a domain's cache when measured.
    part: f64,
    /// Lines from other cores, and their fraction of what it fetches beyond its own share of a cache. Threads do not
    /// compete for shared lines.
    lines: f64,
    shares: f64,
    per_s: f64,
}

/// The model, from counts under one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapeModel {
    threads: Vec<ThreadModel>,
    /// Misses per second of the domain with most of them.
    most: f64,
    /// Threads of each group with memory on each node.
    memory: Vec<Vec<usize>>,
    /// Logarithm of the cycles per instruction of each group when measured.
    before: Vec<f64>,
}

/// Effect of a shape on a group: thread-weighted means over the domains.
struct Treated {
    /// Slowdown of its own work.
    crowd: f64,
    /// Cycles of latency per instruction.
    waits: f64,
}

impl ShapeModel {
    /// From counts under the incumbent. `None` if some group was not counted. `memory` is the place of each thread when
    /// its memory was allocated.
    pub fn new(
        counted: &GroupCounts,
        shape: &Shape,
        memory: &ShapePlaces,
        situation: &LearnedSituation,
        board: &ShapeBoard,
        view: &View,
        members: &[(TaskId, usize)],
    ) -> Option<Self> {
        let groups = situation.groups.len();
        let nodes = board.labels.len();
        let mut lies = vec![vec![0; nodes]; groups];
        for &(task, group) in members.iter().filter(|(_, group)| *group < groups) {
            if let Some(domain) = board.domain_of(view, memory, task) {
                lies[group][board.domains[domain].node] += 1;
            }
        }
        let thread = |group: usize| {
            let [cycles, instructions, requests, misses, stalls, same, near, far] = *counted.sums.get(group)?;
            let seconds = *counted.seconds.get(group)?;
            if !(cycles > 0.0 && instructions > 0.0 && seconds > 0.0) {
                return None;
            }
            let per = |events: f64| events / instructions;
            let busy = (1.0 - stalls / cycles).clamp(COMPUTES, 1.0);
            Some(ThreadModel {
                compute: per(cycles) * busy,
                busy,
                feels: per(cycles) * (1.0 - busy),
                requests: per(requests.max(misses)),
                requests_per_s: requests.max(misses) / seconds,
                misses: per(misses),
                part: 0.0,
                lines: per(same + near + far),
                shares: (same + near + far) / (same + near + far + misses).max(f64::MIN_POSITIVE),
                per_s: instructions / seconds,
            })
        };
        let threads = (0..groups).map(thread).collect::<Option<Vec<_>>>()?;
        let before = threads.iter().map(|thread| (thread.compute + thread.feels).ln()).collect();
        let mut model = Self { threads, most: 0.0, memory: lies, before };
        let domains = 0..board.domains.len();
        for group in 0..groups {
            let parts = domains.clone().map(|d| f64::from(shape.counts[group][d]) * model.part(shape, group, d).ln());
            model.threads[group].part = parts.sum::<f64>() / (shape.threads(group) as f64).max(1.0);
        }
        model.most = domains.map(|d| model.misses_per_s(shape, d)).fold(0.0, f64::max);
        // Its computation and exposure, without the effect of the measured shape.
        for group in 0..groups {
            let treated = model.treated(shape, board, situation, group, false);
            model.threads[group].compute /= treated.crowd;
            model.threads[group].feels /= treated.waits.max(1e-9);
        }
        Some(model)
    }

    /// Predicted speed-up of each measured application, as logarithms; `follows`: after its memory has followed.
    pub fn changes(&self, shape: &Shape, board: &ShapeBoard, situation: &LearnedSituation, follows: bool) -> Vec<f64> {
        let mut sums: BTreeMap<AppId, [f64; 2]> = BTreeMap::new();
        for (group, thread) in self.threads.iter().enumerate() {
            let Treated { crowd, waits } = self.treated(shape, board, situation, group, follows);
            let cycles = thread.compute * crowd + thread.feels * waits;
            let [sum, n] = sums.entry(situation.groups[group].app).or_default();
            let own = situation.groups[group].threads as f64;
            *sum += own * (self.before[group] - cycles.max(1e-9).ln());
            *n += own;
        }
        situation.measures.keys().map(|app| sums.get(app).map_or(0.0, |[sum, n]| sum / n.max(1.0))).collect()
    }

    /// The part of a domain's cache of a group's thread, by request rates.
    fn part(&self, shape: &Shape, group: usize, domain: usize) -> f64 {
        let asks = |g: usize| self.threads[g].requests_per_s.max(1.0);
        let all: f64 = (0..self.threads.len()).map(|g| f64::from(shape.counts[g][domain]) * asks(g)).sum();
        asks(group) / all.max(asks(group))
    }

    /// Misses per instruction of a group's thread in a domain.
    fn misses(&self, shape: &Shape, group: usize, domain: usize) -> f64 {
        let ThreadModel { requests, misses, part, shares, .. } = self.threads[group];
        let hits = 1.0 - misses / requests.max(f64::MIN_POSITIVE);
        let less = part - self.part(shape, group, domain).ln();
        (misses * (MISSES * hits * (1.0 - shares) * less).exp()).min(requests)
    }

    fn misses_per_s(&self, shape: &Shape, domain: usize) -> f64 {
        let of = |g: usize| f64::from(shape.counts[g][domain]) * self.threads[g].per_s * self.misses(shape, g, domain);
        (0..self.threads.len()).map(of).sum()
    }

    fn treated(
        &self,
        shape: &Shape,
        board: &ShapeBoard,
        situation: &LearnedSituation,
        group: usize,
        follows: bool,
    ) -> Treated {
        let thread = &self.threads[group];
        let all = (shape.threads(group) as f64).max(1.0);
        let mut treated = Treated { crowd: 0.0, waits: 0.0 };
        // Number of threads whose memory is on their own node.
        let on = |node: usize| -> usize {
            let here = |&d: &usize| board.domains[d].node == node;
            (0..board.domains.len()).filter(here).map(|d| usize::from(shape.counts[group][d])).sum()
        };
        let near = if follows {
            // Shared memory ends up in proportion to the threads; private memory with its thread.
            let part = |node: usize| (on(node) as f64 / all).powi(2);
            (1.0 - COMMON) + COMMON * (0..board.labels.len()).map(part).sum::<f64>()
        } else {
            let near: usize = self.memory[group].iter().enumerate().map(|(node, lies)| on(node).min(*lies)).sum();
            near as f64 / all
        };
        let memory = MEMORY + REMOTE * (1.0 - near);
        let app = situation.groups[group].app;
        let others = |d: usize| -> f64 {
            let own = |(g, counts): (usize, &Vec<u16>)| (situation.groups[g].app == app).then(|| f64::from(counts[d]));
            shape.counts.iter().enumerate().filter_map(own).sum()
        };
        let partners: Vec<f64> = (0..board.domains.len()).map(others).collect();
        let every = partners.iter().sum::<f64>();
        for (d, domain) in board.domains.iter().enumerate().filter(|(d, _)| shape.counts[group][*d] > 0) {
            let weight = f64::from(shape.counts[group][d]) / all;
            let missed = self.misses(shape, group, d);
            let crowded = 1.0 + CROWDED * (self.misses_per_s(shape, d) / self.most.max(f64::MIN_POSITIVE)).powi(2);
            let package: f64 = partners
                .iter()
                .zip(&board.domains)
                .filter(|(_, other)| other.package == domain.package)
                .map(|p| p.0)
                .sum();
            let apart = [partners[d] - 1.0, package - partners[d], every - package];
            let line = apart.iter().zip(LINES).map(|(n, latency)| n * latency).sum::<f64>() / (every - 1.0).max(1.0);
            treated.waits +=
                weight * ((thread.requests - missed).max(0.0) * LLC + missed * memory * crowded + thread.lines * line);
            treated.crowd += weight * self.crowd(shape, board, group, d);
        }
        treated
    }

    /// Slowdown of a thread's own work in a domain, by the other thread on its core.
    fn crowd(&self, shape: &Shape, board: &ShapeBoard, group: usize, d: usize) -> f64 {
        let counts: Vec<usize> = shape.counts.iter().map(|counts| usize::from(counts[d])).collect();
        let (load, domain) = (counts.iter().sum::<usize>(), &board.domains[d]);
        if load > domain.seats() {
            return load as f64 / domain.seats() as f64 * (1.0 + SHARED_CORE);
        }
        let mut excess = load.saturating_sub(domain.room());
        if shape.doubling.order.is_empty() {
            // The kernel chooses: any thread.
            let mean =
                counts.iter().zip(&self.threads).map(|(n, t)| *n as f64 * t.busy).sum::<f64>() / load.max(1) as f64;
            return 1.0 + SHARED_CORE * mean * (2 * excess) as f64 / load.max(1) as f64;
        }
        let own = counts[group].max(1) as f64;
        let beside = |(g, h): (usize, usize)| {
            let one = |of: usize, with: usize| if of == group { self.threads[with].busy } else { 0.0 };
            one(g, h) + one(h, g)
        };
        1.0 + SHARED_CORE * shape.couples(counts, &mut excess).into_iter().map(beside).sum::<f64>() / own
    }
}

#[cfg(test)]
mod tests {
    use super::super::learned_situation::ThreadGroup;
    use super::super::shape::Doubling;
    use super::*;
    use cotenant_model::speed::Source;
    use cotenant_model::testing::{ViewBuilder, machine};

    /// A second of two programs with four threads each, with these events per thread in the order of [`SIGNALS`]; two
    /// threads of each in each of two domains of four cores with two contexts.
    fn model(events: [[f64; SIGNALS.len()]; 2]) -> (ShapeModel, ShapeBoard, LearnedSituation) {
        let topology = machine(2, 1, 4, 2);
        let board = ShapeBoard::new(&topology, topology.usable(), |_| 0);
        let group = |app: u32| ThreadGroup {
            app: AppId(app),
            on: topology.usable().clone(),
            threads: 4,
            ..ThreadGroup::default()
        };
        let measures = (0..2).map(|app| (AppId(app), Source::Progress)).collect();
        let mut situation = LearnedSituation::default();
        (situation.groups, situation.measures) = ((0..2).map(group).collect(), measures);
        let counted = GroupCounts { sums: events.map(|own| own.map(|n| 4.0 * n)).to_vec(), seconds: vec![4.0; 2] };
        let mut builder = ViewBuilder::new(&topology);
        for task in 0..8 {
            builder = builder.task(task, task / 4, board.domains[task as usize % 2].cpus.first().unwrap().0);
        }
        let members: Vec<_> = (0..8).map(|task| (TaskId(task), task as usize / 4)).collect();
        let incumbent = shape([[2, 2], [2, 2]]);
        let (memory, view) = (ShapePlaces::new(), builder.view());
        let model = ShapeModel::new(&counted, &incumbent, &memory, &situation, &board, &view, &members).unwrap();
        (model, board, situation)
    }

    fn shape(counts: [[u16; 2]; 2]) -> Shape {
        let counts = counts.map(|own| own.to_vec()).to_vec();
        Shape { counts, doubling: Doubling { order: vec![0, 1], ..Doubling::default() } }
    }

    const COMPUTING: [f64; 8] = [2e9, 4e9, 1e6, 0.0, 0.0, 0.0, 0.0, 0.0];

    /// Holds place/trials.
    #[test]
    fn where_it_was_counted_nothing_changes() {
        let (model, board, situation) = model([[2e9, 1e9, 4e7, 2e7, 1.5e9, 1e6, 0.0, 1e6], COMPUTING]);
        let changes = model.changes(&shape([[2, 2], [2, 2]]), &board, &situation, false);
        assert!(changes.iter().all(|change| change.abs() < 1e-9), "{changes:?}");
    }

    /// Holds place/trials.
    #[test]
    fn who_shares_belongs_together_and_who_reads_memory_apart() {
        // One exchanges lines between packages half of its time.
        let (model, board, situation) = model([[2e9, 1e9, 1e7, 1e5, 1e9, 0.0, 0.0, 9e6], COMPUTING]);
        let worth = |counts| model.changes(&shape(counts), &board, &situation, false)[0];
        assert!(worth([[4, 0], [0, 4]]) > 0.1 && worth([[3, 1], [1, 3]]) > 0.0);
        // One reads memory three quarters of its time.
        let (model, board, situation) = self::model([[2e9, 5e8, 2e7, 2e7, 1.5e9, 0.0, 0.0, 0.0], COMPUTING]);
        let changes = model.changes(&shape([[4, 0], [0, 4]]), &board, &situation, false);
        assert!(changes[0] < -0.1 && changes[1].abs() < 0.01, "{changes:?}");
    }

    /// Holds place/trials.
    #[test]
    fn who_waits_for_memory_shares_cores_at_least_cost() {
        let (model, board, situation) = model([[2e9, 5e8, 2e7, 2e7, 1.5e9, 0.0, 0.0, 0.0], COMPUTING]);
        let with = |order: [u8; 2]| {
            let doubling = Doubling { order: order.to_vec(), ..Doubling::default() };
            let changes = model.changes(&Shape { doubling, ..shape([[4, 0], [2, 2]]) }, &board, &situation, false);
            changes.iter().sum::<f64>()
        };
        assert!(with([0, 1]) > with([1, 0]) + 0.05, "{} {}", with([0, 1]), with([1, 0]));
    }
}
