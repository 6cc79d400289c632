//! From a leaf of the tree to hardware contexts.

use super::tree::{Apart, Leaf, Shared};
use crate::plan::free_for;
use cotenant_model::policy::Ctx;
use cotenant_model::topology::Kind;
use cotenant_model::{CpuId, CpuSet, TaskId, TaskView, Topology, View};
use std::collections::{BTreeMap, BTreeSet};

/// The contexts that share both a memory path and a last-level cache, as far as they are free.
#[derive(Clone, Debug)]
struct Cell {
    path: usize,
    contexts: Vec<CpuId>,
    cores: u32,
    /// Its threads of P and of C.
    p: u32,
    c: u32,
}

/// The machine as cells, over the CPUs in `free`, in ascending order of path and LLC domain.
fn cells(topology: &Topology, free: &CpuSet) -> Vec<Cell> {
    let mut paths: Vec<CpuSet> = topology.of_kind(Kind::Bus).map(|r| r.cpus.clone()).collect();
    if paths.is_empty() {
        let node = |i: usize| topology.online().iter().filter(|&c| topology.node_of(c) == Some(i)).collect::<CpuSet>();
        paths = (0..topology.nodes().len()).map(node).filter(|cpus| !cpus.is_empty()).collect();
    }
    let rest = paths.iter().fold(topology.online().clone(), |rest, path| rest.minus(path));
    paths.push(rest);
    paths.sort_by_key(CpuSet::first);
    let mut cells = Vec::new();
    for (path, cpus) in paths.iter().enumerate() {
        for domain in topology.llc_domains() {
            let contexts: Vec<CpuId> =
                domain.contexts.iter().copied().filter(|&c| cpus.contains(c) && free.contains(c)).collect();
            let cores = contexts.iter().map(|&c| topology.core_of(c)).collect::<BTreeSet<_>>().len() as u32;
            if !contexts.is_empty() {
                cells.push(Cell { path, contexts, cores, p: 0, c: 0 });
            }
        }
    }
    cells
}

/// Adds a thread to the cell with the least `key`, preferring first contexts of cores, then the first cell. False
/// without free contexts.
fn give(cells: &mut [Cell], count: fn(&mut Cell) -> &mut u32, key: impl Fn(&[Cell], &Cell) -> [i64; 4]) -> bool {
    let room = |cell: &&Cell| ((cell.p + cell.c) as usize) < cell.contexts.len();
    let layer = |cell: &Cell| (cell.p + cell.c) / cell.cores;
    let best =
        (0..cells.len()).filter(|&i| room(&&cells[i])).min_by_key(|&i| (layer(&cells[i]), key(cells, &cells[i]), i));
    best.map(|i| *count(&mut cells[i]) += 1).is_some()
}

fn on_path(cells: &[Cell], path: usize, count: impl Fn(&Cell) -> u32) -> i64 {
    cells.iter().filter(|c| c.path == path).map(|c| i64::from(count(c))).sum()
}

/// Places `n` threads of P as the leaf prescribes. False without enough contexts.
fn lay_p(cells: &mut [Cell], n: usize, leaf: Leaf) -> bool {
    let room = |cores: i64| -cores.min(i64::from(n as u32));
    let key = |cells: &[Cell], cell: &Cell| {
        let p_on_path = on_path(cells, cell.path, |c| c.p);
        let [path, path_room] = match leaf.path {
            Shared => [-p_on_path, room(on_path(cells, cell.path, |c| c.cores))],
            Apart => [p_on_path, 0],
        };
        let [llc, llc_room] = match leaf.llc {
            Shared => [-i64::from(cell.p), room(cell.cores.into())],
            Apart => [cell.p.into(), 0],
        };
        [path, path_room, llc, llc_room]
    };
    (0..n).all(|_| give(cells, |cell| &mut cell.p, key))
}

/// Places `n` threads of C on the rest: away from P's paths and caches if P keeps them for itself, evenly if P spreads.
fn lay_c(cells: &mut [Cell], n: usize, leaf: Leaf) -> bool {
    let key = |cells: &[Cell], cell: &Cell| {
        let (p, c) = (on_path(cells, cell.path, |c| c.p), on_path(cells, cell.path, |c| c.c));
        let [path, path_even] = if leaf.path == Shared { [p, c] } else { [p + c, 0] };
        let (p, c) = (i64::from(cell.p), i64::from(cell.c));
        let [llc, llc_even] = if leaf.llc == Shared { [p, c] } else { [p + c, 0] };
        [path, path_even, llc, llc_even]
    };
    (0..n).all(|_| give(cells, |cell| &mut cell.c, key))
}

/// Whether the cells follow the leaf's choice of caches: spread = one thread per cache, or every cache used; shared =
/// as few caches as each path allows, at least one with several threads.
fn holds_llc(cells: &[Cell], leaf: Leaf) -> bool {
    let used = || cells.iter().filter(|c| c.p > 0);
    match leaf.llc {
        Apart => used().all(|c| c.p == 1) || cells.iter().all(|c| c.p > 0),
        Shared => {
            let open = |path| cells.iter().filter(|c| c.path == path && c.p > 0 && c.p < c.cores).count();
            used().any(|c| c.p > 1) && used().all(|c| open(c.path) <= 1) || used().map(|c| c.p).sum::<u32>() <= 1
        }
    }
}

/// Assigns tasks to the cells' contexts that are not `taken`, `quota` per cell: first tasks already in place, then
/// those in the right cell, then the others in order of id. Tasks without an allowed place are left out.
fn seat(
    topology: &Topology,
    cells: &[Cell],
    quota: fn(&Cell) -> u32,
    tasks: &[&TaskView],
    before: &BTreeMap<TaskId, CpuSet>,
    taken: &mut CpuSet,
) -> BTreeMap<TaskId, CpuSet> {
    let mut room: Vec<u32> = cells.iter().map(quota).collect();
    let mut seats = BTreeMap::new();
    let mut waiting = Vec::new();
    let cell_of = |cpu: CpuId| cells.iter().position(|cell| cell.contexts.contains(&cpu));
    for &task in tasks {
        let open = |cpu: &CpuId| task.info.allowed.contains(*cpu) && !taken.contains(*cpu);
        let kept = before.get(&task.info.id).filter(|set| set.len() == 1).and_then(CpuSet::first).filter(open);
        match kept.and_then(|cpu| Some((cpu, cell_of(cpu).filter(|&i| room[i] > 0)?))) {
            Some((cpu, i)) => {
                room[i] -= 1;
                taken.insert(cpu);
                seats.insert(task.info.id, CpuSet::single(cpu));
            }
            None => waiting.push(task),
        }
    }
    for at_home in [true, false] {
        waiting.retain(|task| {
            let open = |cpu: &CpuId| task.info.allowed.contains(*cpu) && !taken.contains(*cpu);
            let home = |cell: &Cell| task.cpu.is_some_and(|cpu| cell.contexts.contains(&cpu));
            let cell = (0..cells.len())
                .find(|&i| room[i] > 0 && (!at_home || home(&cells[i])) && cells[i].contexts.iter().any(open));
            let Some(i) = cell else { return true };
            // Its current context if the core is free, otherwise one on the emptiest core.
            let company = |cpu: CpuId| topology.core_of(cpu).map_or(0, |core| topology.cores()[core].and(taken).len());
            let seats_here = cells[i].contexts.iter().copied().filter(open).enumerate();
            let best = seats_here.min_by_key(|&(rank, cpu)| (company(cpu), task.cpu != Some(cpu), rank));
            if let Some((_, cpu)) = best {
                room[i] -= 1;
                taken.insert(cpu);
                seats.insert(task.info.id, CpuSet::single(cpu));
            }
            false
        });
    }
    seats
}

/// With more tasks than contexts, all share the same contexts.
fn crowd(tasks: &[&TaskView], on: &CpuSet) -> BTreeMap<TaskId, CpuSet> {
    let contexts = tasks.iter().map(|t| (t.info.id, on.and(&t.info.allowed)));
    contexts.filter(|(_, contexts)| !contexts.is_empty()).collect()
}

/// The whole mapping: contexts of each task of P and C, and whether the machine can follow the leaf's choice of caches.
pub(super) fn layout(
    ctx: &Ctx<'_>,
    view: &View,
    p: &[&TaskView],
    c: &[&TaskView],
    leaf: Leaf,
    before: &BTreeMap<TaskId, CpuSet>,
) -> (BTreeMap<TaskId, CpuSet>, bool) {
    let both: Vec<&TaskView> = p.iter().chain(c).copied().collect();
    let free = free_for(ctx, view, &both, before);
    let mut cells = cells(ctx.topology, &free);
    let mut taken = CpuSet::new();
    let mut seats = if lay_p(&mut cells, p.len(), leaf) {
        seat(ctx.topology, &cells, |cell| cell.p, p, before, &mut taken)
    } else {
        crowd(p, &free)
    };
    seats.extend(if lay_c(&mut cells, c.len(), leaf) {
        seat(ctx.topology, &cells, |cell| cell.c, c, before, &mut taken)
    } else {
        let rest = free.minus(&taken);
        crowd(c, if rest.is_empty() { &free } else { &rest })
    });
    (seats, holds_llc(&cells, leaf))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cores per cache; of each, its path and the threads of P that it gets.
    #[test]
    fn few_caches_of_each_path_are_used_where_they_are_shared() {
        let cell = |(path, p): &(usize, u32)| Cell { path: *path, contexts: Vec::new(), cores: 2, p: *p, c: 0 };
        let leaf = |llc| Leaf { path: Apart, llc };
        for (cells, shared, apart) in [
            (vec![(0, 2), (0, 1), (1, 0), (1, 0)], true, false),
            // Two caches of one path are not full.
            (vec![(0, 2), (0, 1), (0, 1), (1, 0)], false, false),
            (vec![(0, 1), (0, 0), (1, 1), (1, 2)], true, false),
            (vec![(0, 1), (0, 0), (1, 1), (1, 0)], false, true),
            (vec![(0, 1), (0, 0), (1, 0), (1, 0)], true, true),
        ] {
            let all: Vec<Cell> = cells.iter().map(cell).collect();
            assert_eq!((holds_llc(&all, leaf(Shared)), holds_llc(&all, leaf(Apart))), (shared, apart), "{cells:?}");
        }
    }
}
