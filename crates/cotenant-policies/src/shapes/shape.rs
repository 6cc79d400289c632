//! Shapes: the number of threads of each group in each cache domain, and which double up on cores there. Threads of a
//! group are equivalent, as are domains of the same structure.

use super::shape_board::{ShapeBoard, ShapeDomain, ShapePlaces, digest};
use cotenant_model::{CpuSet, TaskId, TaskView, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limit of placed groups; threads of further ones are left alone.
pub(super) const GROUPS: usize = 8;

/// A family of equivalent mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    /// Threads per domain of each group.
    pub counts: Vec<Vec<u16>>,
    /// The core sharing where a domain has more threads than cores.
    pub doubling: Doubling,
}

/// The choice of threads that share cores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Doubling {
    /// Groups in doubling order. Empty: the kernel decides.
    pub order: Vec<u8>,
    /// Two groups that share cores with each other before any group shares with itself.
    pub pair: Option<(u8, u8)>,
    /// A group that doubles up although cores are free.
    pub packed: Option<u8>,
}

impl Shape {
    pub fn empty(groups: usize, domains: usize) -> Self {
        Self { counts: vec![vec![0; domains]; groups], doubling: Doubling::default() }
    }

    /// The current state: its shape, the CPUs of each thread, and the CPU of each where that is not bound.
    pub fn standing(
        board: &ShapeBoard,
        view: &View,
        members: &[(TaskId, usize)],
        wanted: &ShapePlaces,
        groups: usize,
    ) -> (Self, ShapePlaces, ShapePlaces) {
        let mut shape = Self::empty(groups, board.domains.len());
        let mut standing: Vec<Vec<&TaskView>> = vec![Vec::new(); board.domains.len()];
        for &(task, group) in members {
            let domain = board.domain_of(view, wanted, task);
            let Some((domain, task)) = domain.zip(view.task(task)) else { continue };
            shape.counts[group][domain] += 1;
            standing[domain].push(task);
        }
        let (mut places, mut spots) = (BTreeMap::new(), BTreeMap::new());
        for (domain, tasks) in board.domains.iter().zip(standing) {
            // Core sharing is part of the kernel's choice: it is kept if each thread has a CPU. Otherwise all threads
            // may use the whole domain, from where they are.
            let cpus: CpuSet = tasks.iter().filter_map(|task| task.cpu).collect();
            let exact = tasks.len() > domain.room() && cpus.len() == tasks.len() && cpus.is_subset(&domain.cpus);
            let crowded = tasks.len() > domain.room();
            for task in tasks {
                let spot = task.cpu.filter(|cpu| crowded && task.info.allowed.contains(*cpu)).map(CpuSet::single);
                if let Some(spot) = spot.clone().filter(|_| !exact) {
                    spots.insert(task.info.id, spot);
                }
                let place = spot.filter(|_| exact).unwrap_or_else(|| domain.cpus.and(&task.info.allowed));
                places.insert(task.info.id, place);
            }
        }
        (shape, places, spots)
    }

    /// Whether it fits these numbers of threads and this board.
    pub fn is_for(&self, board: &ShapeBoard, threads: &[usize]) -> bool {
        let all = |(g, counts): (usize, &Vec<u16>)| {
            counts.len() == board.domains.len() && threads.get(g) == Some(&self.threads(g))
        };
        self.counts.len() == threads.len() && self.counts.iter().enumerate().all(all)
    }

    /// The same with renumbered groups: `order` has the old number of each. `None` for another number of groups.
    pub fn reordered(&self, order: &[usize]) -> Option<Self> {
        let counts = order.iter().map(|&g| self.counts.get(g).cloned()).collect::<Option<Vec<_>>>()?;
        let new = |old: u8| order.iter().position(|&g| g == old as usize).map(|at| at as u8);
        let Doubling { order: first, pair, packed } = &self.doubling;
        let doubling = Doubling {
            order: first.iter().map(|&g| new(g)).collect::<Option<_>>()?,
            pair: pair.map(|(g, h)| Some((new(g)?, new(h)?))).map_or(Some(None), |pair| pair.map(Some))?,
            packed: packed.map(new).map_or(Some(None), |g| g.map(Some))?,
        };
        (self.counts.len() == order.len()).then_some(Self { counts, doubling })
    }

    /// Takes the choice of core sharing from the kernel.
    pub fn choose_doubling(&mut self) {
        if self.doubling.order.is_empty() {
            self.doubling.order = (0..self.counts.len() as u8).collect();
        }
    }

    /// Threads in a domain.
    pub fn load(&self, domain: usize) -> usize {
        self.counts.iter().map(|group| group[domain] as usize).sum()
    }

    /// Threads of a group.
    pub fn threads(&self, group: usize) -> usize {
        self.counts[group].iter().map(|n| *n as usize).sum()
    }

    /// Whether some threads must share a core.
    pub fn crowds(&self, board: &ShapeBoard) -> bool {
        board.domains.iter().enumerate().any(|(d, domain)| self.load(d) > domain.room())
    }

    /// Whether no threads alternate on a CPU while others are free.
    pub fn is_work_conserving(&self, board: &ShapeBoard) -> bool {
        let packs = |d: usize| self.doubling.packed.is_some_and(|g| self.counts[g as usize][d] > 1);
        let single = |d: usize| board.domains[d].units.iter().any(|unit| unit.len() == 1);
        !(0..board.domains.len()).any(|d| packs(d) && single(d) && self.load(d) <= board.domains[d].room())
    }

    /// Threads of each group on each memory node.
    pub fn nodes(&self, board: &ShapeBoard) -> Vec<Vec<u32>> {
        let of = |counts: &Vec<u16>| {
            let mut threads = vec![0; board.labels.len()];
            counts.iter().zip(&board.domains).for_each(|(n, domain)| threads[domain.node] += u32::from(*n));
            threads
        };
        self.counts.iter().map(of).collect()
    }

    /// Whether each memory node has the same threads of each group as in the other shape.
    pub fn has_nodes_of(&self, other: &Self, board: &ShapeBoard) -> bool {
        self.nodes(board) == other.nodes(board)
    }

    /// Whether no domain exceeds its limit: its CPUs or, with more threads than CPUs, its share of them rounded up plus
    /// one; and no thread is in a forbidden place.
    pub fn fits(&self, board: &ShapeBoard, allowed: &[CpuSet]) -> bool {
        let (threads, seats) = ((0..self.counts.len()).map(|g| self.threads(g)).sum::<usize>(), board.seats());
        let share = |domain: &ShapeDomain| (threads * domain.seats()).div_ceil(seats) + 1;
        let most = |domain: &ShapeDomain| if threads > seats { share(domain) } else { domain.seats() };
        let may = |g: usize, d: usize| self.counts[g][d] == 0 || board.domains[d].cpus.intersects(&allowed[g]);
        board
            .domains
            .iter()
            .enumerate()
            .all(|(d, domain)| self.load(d) <= most(domain) && (0..self.counts.len()).all(|g| may(g, d)))
    }

    /// Equal for all shapes that a symmetry of the machine maps onto each other. Without shared cores, the doubling
    /// order does not matter.
    pub fn key(&self, board: &ShapeBoard) -> u64 {
        let column = |d: usize| -> Vec<u64> {
            let counts = self.counts.iter().map(|group| u64::from(group[d]));
            std::iter::once(u64::from(board.domains[d].class)).chain(counts).collect()
        };
        // A package may have several nodes, and a node several packages.
        let mut packages: BTreeMap<usize, BTreeMap<usize, Vec<Vec<u64>>>> = BTreeMap::new();
        for (d, domain) in board.domains.iter().enumerate() {
            packages.entry(domain.package).or_default().entry(domain.node).or_default().push(column(d));
        }
        let alike = |nodes: BTreeMap<usize, Vec<Vec<u64>>>| -> Vec<Vec<Vec<u64>>> {
            let labelled = nodes.into_iter().map(|(node, mut columns)| {
                columns.sort_unstable();
                columns.insert(0, vec![board.labels.get(node).copied().unwrap_or(0)]);
                columns
            });
            let mut nodes: Vec<_> = labelled.collect();
            nodes.sort_unstable();
            nodes
        };
        let mut packages: Vec<_> = packages.into_values().map(alike).collect();
        packages.sort_unstable();
        let numbers = packages.iter().flatten().flatten().flatten().copied();
        let Doubling { order, pair, packed } = &self.doubling;
        let mut inside = vec![u64::from(order.is_empty()), packed.map_or(99, u64::from)];
        if self.crowds(board) {
            inside.extend(order.iter().map(|g| u64::from(*g)));
            inside.extend(pair.map(|(g, h)| 1_000 + u64::from(g) * 64 + u64::from(h)));
        }
        digest(numbers.chain(inside))
    }

    /// The place of each thread. `members` are the threads in ascending order, each with its group; `now` is the domain
    /// of each thread, `memory` the one in which it touched its memory. As far as the shape allows, threads are on
    /// their memory's node and stay in their domain.
    pub fn seats(
        &self,
        board: &ShapeBoard,
        members: &[(TaskId, usize)],
        allowed: &[CpuSet],
        now: impl Fn(TaskId) -> Option<usize>,
        memory: impl Fn(TaskId) -> Option<usize>,
    ) -> ShapePlaces {
        let mut places = BTreeMap::new();
        let mut standing: Vec<Vec<Vec<TaskId>>> = vec![vec![Vec::new(); self.counts.len()]; board.domains.len()];
        for (group, counts) in self.counts.iter().enumerate() {
            let mut left: Vec<usize> = counts.iter().map(|n| *n as usize).collect();
            let own = members.iter().filter(|(_, of)| *of == group);
            let node = |task| memory(task).map(|domain| board.domains[domain].node);
            let mut homeless: Vec<_> = own.map(|&(task, _)| (task, now(task), node(task))).collect();
            // Threads newer than the shape are left to the kernel.
            for (near, stays) in [(true, true), (true, false), (false, true), (false, false)] {
                homeless.retain(|&(task, now, node)| {
                    let fits = |&d: &usize| {
                        left.get(d).is_some_and(|n| *n > 0)
                            && (!near || node.is_none_or(|of| of == board.domains[d].node))
                    };
                    let domain = if stays { now.filter(fits) } else { (0..left.len()).find(fits) };
                    if let Some(domain) = domain {
                        left[domain] -= 1;
                        standing[domain][group].push(task);
                    }
                    domain.is_none()
                });
            }
        }
        for (domain, groups) in board.domains.iter().zip(standing) {
            self.inside(domain, &groups, allowed, &mut places);
        }
        places
    }

    /// Places inside a domain: all of it for every thread, unless threads must share cores.
    fn inside(&self, domain: &ShapeDomain, groups: &[Vec<TaskId>], allowed: &[CpuSet], places: &mut ShapePlaces) {
        let threads: usize = groups.iter().map(Vec::len).sum();
        let free_choice = |g: usize| groups[g].is_empty() || domain.cpus.is_subset(&allowed[g]);
        let packs = self.doubling.packed.is_some_and(|g| groups.get(g as usize).is_some_and(|own| own.len() > 1));
        let chosen = !self.doubling.order.is_empty()
            && (threads > domain.room() || packs)
            && threads <= 2 * domain.room()
            && (0..groups.len()).all(free_choice);
        if !chosen {
            for (g, tasks) in groups.iter().enumerate() {
                let own = domain.cpus.and(&allowed[g]);
                places.extend(tasks.iter().map(|task| (*task, own.clone())));
            }
            return;
        }
        let mut left: Vec<&[TaskId]> = groups.iter().map(Vec::as_slice).collect();
        let mut units = domain.units.iter();
        let mut excess = threads.saturating_sub(domain.room());
        for (g, h) in self.couples(groups.iter().map(Vec::len).collect(), &mut excess) {
            let Some(unit) = units.next() else { break };
            let half = (unit.len() / 2).max(1);
            let sides: [CpuSet; 2] = match unit.len() {
                1 => [unit.clone(), unit.clone()],
                _ => [unit.iter().take(half).collect(), unit.iter().skip(half).collect()],
            };
            for (group, side) in [g, h].into_iter().zip(sides) {
                let Some((task, rest)) = left[group].split_first() else { continue };
                left[group] = rest;
                // Two equal threads may swap sides.
                places.insert(*task, if g == h { unit.clone() } else { side });
            }
        }
        let single: CpuSet = units.fold(CpuSet::new(), |all, unit| all.or(unit));
        let rest = if single.is_empty() { domain.cpus.clone() } else { single };
        places.extend(left.into_iter().flatten().map(|task| (*task, rest.clone())));
    }

    /// Pairs of groups that share a unit: first the packing group, then the pair, then by the order, then the rest.
    pub fn couples(&self, mut left: Vec<usize>, excess: &mut usize) -> Vec<(usize, usize)> {
        let groups = left.len();
        let mut couples = Vec::new();
        let mut couple = |left: &mut Vec<usize>, g: usize, h: usize, most: usize| {
            let n = if g == h { left[g] / 2 } else { left[g].min(left[h]) }.min(most);
            left[g] -= n;
            left[h] -= n;
            couples.extend(std::iter::repeat_n((g, h), n));
            n
        };
        let known = |g: u8| (g as usize) < groups;
        if let Some(g) = self.doubling.packed.filter(|g| known(*g)) {
            let n = couple(&mut left, g as usize, g as usize, usize::MAX);
            *excess = excess.saturating_sub(n);
        }
        if let Some((g, h)) = self.doubling.pair.filter(|(g, h)| known(*g) && known(*h)) {
            *excess -= couple(&mut left, g as usize, h as usize, *excess);
        }
        for &g in self.doubling.order.iter().filter(|g| known(**g)) {
            *excess -= couple(&mut left, g as usize, g as usize, *excess);
        }
        for g in 0..groups {
            for h in g + 1..groups {
                *excess -= couple(&mut left, g, h, *excess);
            }
        }
        couples
    }

    /// `sgd 8+2, membench 0+10; sgd doubles up`, with the names of the groups; with many domains, counts of equal ones.
    pub fn text(&self, names: &[String], board: &ShapeBoard) -> String {
        let group = |(g, counts): (usize, &Vec<u16>)| {
            let name = names.get(g).map_or("?", String::as_str);
            if counts.len() <= 8 {
                let counts: Vec<String> = counts.iter().map(u16::to_string).collect();
                return format!("{name} {}", counts.join("+"));
            }
            let mut times: BTreeMap<u16, usize> = BTreeMap::new();
            for n in counts {
                *times.entry(*n).or_default() += 1;
            }
            let times: Vec<String> = times.iter().rev().map(|(n, times)| format!("{times}×{n}")).collect();
            format!("{name} {}", times.join(" "))
        };
        let counts = self.counts.iter().enumerate().map(group).collect::<Vec<_>>().join(", ");
        let name = |g: u8| names.get(g as usize).map_or("?", String::as_str);
        let Doubling { order, pair, packed } = &self.doubling;
        match (packed, pair, order.first().filter(|_| self.crowds(board))) {
            (Some(g), ..) => format!("{counts}; {} shares cores", name(*g)),
            (None, Some((g, h)), Some(_)) => format!("{counts}; {} and {} share cores", name(*g), name(*h)),
            (None, None, Some(first)) => format!("{counts}; {} shares cores first", name(*first)),
            _ => counts,
        }
    }
}
