//! Starting points of a search: orderly mappings, and how threads find CPUs.

use cotenant_model::Topology;
use cotenant_model::topology::symmetry::{Enumeration, FREE, Slot};

/// The slots of all threads, tenant by tenant.
pub(super) fn threads(enumeration: &Enumeration<'_>) -> Vec<Slot> {
    let each = (0..).zip(enumeration.tenants());
    each.flat_map(|(slot, tenant)| std::iter::repeat_n(slot, tenant.threads)).collect()
}

/// Places threads one by one, each on its first free CPU in its own order. If all are taken, threads make room along a
/// chain (a bipartite matching), so that a mapping is found whenever one exists.
pub(super) fn seated(
    enumeration: &Enumeration<'_>,
    threads: &[Slot],
    mut order: impl FnMut() -> Vec<usize>,
) -> Option<Vec<Slot>> {
    let n = enumeration.symmetry().cpus().len();
    let mut mapping = vec![FREE; n];
    if threads.len() > n {
        return None;
    }
    for &slot in threads {
        if !seat(enumeration, slot, &order(), &mut mapping, &mut vec![false; n]) {
            return None;
        }
    }
    Some(mapping)
}

fn seat(enumeration: &Enumeration<'_>, slot: Slot, order: &[usize], mapping: &mut [Slot], tried: &mut [bool]) -> bool {
    let admits = |at: usize, slot: Slot| enumeration.admits(at, slot as usize);
    if let Some(&at) = order.iter().find(|&&at| mapping[at] == FREE && admits(at, slot)) {
        mapping[at] = slot;
        return true;
    }
    for &at in order {
        if !tried[at] && admits(at, slot) {
            tried[at] = true;
            let other = mapping[at];
            if seat(enumeration, other, order, mapping, tried) {
                mapping[at] = slot;
                return true;
            }
        }
    }
    false
}

/// The mappings that people would try: program by program or one thread of each in turn, packed or spread over
/// packages, last-level caches, or cores before second contexts.
pub(super) fn orderly(enumeration: &Enumeration<'_>) -> Vec<Vec<Slot>> {
    let blocks = threads(enumeration);
    let mut nth = vec![0_usize; enumeration.tenants().len()];
    let mut turns: Vec<(usize, Slot)> = Vec::with_capacity(blocks.len());
    for &slot in &blocks {
        turns.push((nth[slot as usize], slot));
        nth[slot as usize] += 1;
    }
    turns.sort_unstable();
    let turns: Vec<Slot> = turns.into_iter().map(|(_, slot)| slot).collect();
    let mut starts = Vec::new();
    for order in orders(enumeration) {
        for threads in [&blocks, &turns] {
            let start = seated(enumeration, threads, || order.clone());
            starts.extend(start.filter(|start| !starts.contains(start)));
        }
    }
    starts
}

/// Orders of the CPUs, as indexes into [`cotenant_model::topology::symmetry::Symmetry::cpus`].
fn orders(enumeration: &Enumeration<'_>) -> Vec<Vec<usize>> {
    let (topology, cpus) = (enumeration.symmetry().topology(), enumeration.symmetry().cpus());
    // For each CPU, its rank within its core, its cache and its package; cores before second contexts.
    let nth = |of: fn(&Topology, cotenant_model::CpuId) -> Option<usize>, key: &[usize]| -> Vec<usize> {
        let group = |at: usize| of(topology, cpus[at]);
        let before = |at: usize| {
            let same = |&other: &usize| group(other) == group(at) && (key[other], other) < (key[at], at);
            (0..cpus.len()).filter(same).count()
        };
        (0..cpus.len()).map(before).collect()
    };
    let context = nth(Topology::core_of, &vec![0; cpus.len()]);
    let sorted = |key: &[usize]| {
        let mut order: Vec<usize> = (0..cpus.len()).collect();
        order.sort_by_key(|&at| (key[at], at));
        order
    };
    let spread = |of: fn(&Topology, cotenant_model::CpuId) -> Option<usize>| sorted(&nth(of, &context));
    vec![
        (0..cpus.len()).collect(),
        sorted(&context),
        spread(Topology::package_of),
        spread(Topology::llc_of),
        // Each package's cores, then its second contexts, before the next package.
        {
            let mut order: Vec<usize> = (0..cpus.len()).collect();
            order.sort_by_key(|&at| (topology.package_of(cpus[at]), context[at], at));
            order
        },
    ]
}
