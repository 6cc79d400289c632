//! Balanced load of controllers (ours, after Das, Ausavarungnirun, Mutlu, Kumar, Azimi: "Application-to-Core Mapping
//! Policies to Reduce Memory System Interference in Multi-Core Systems", HPCA 2013). There each cluster of cores has a
//! controller, and programs with their memory are divided evenly among clusters. A thread's place never changes its
//! controller, so its memory has to move too.

use super::board::{Guest, WORTHWHILE};
use cotenant_model::policy::Ctx;
use cotenant_model::{TaskId, View};
use std::collections::BTreeMap;

/// Chooses processes whose memory should move from the busiest controller to the idlest, as long as that relieves the
/// former by 5 %; their guests then want the latter.
pub(super) fn balance(ctx: &Ctx<'_>, view: &View, refused: impl Fn(TaskId) -> bool, guests: &mut [Guest]) {
    let nodes: Vec<usize> = (0..ctx.topology.nodes().len())
        .filter(|&node| ctx.topology.nodes()[node].allowed && !ctx.topology.nodes()[node].cpus.is_empty())
        .collect();
    let mut processes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, guest) in guests.iter().enumerate() {
        let Some(task) = view.task(guest.task) else { continue };
        processes.entry(task.info.pid).or_default().push(i);
    }
    let on = |guests: &[Guest], members: &[usize], node: usize| {
        members.iter().map(|&i| guests[i].demand.rate * guests[i].demand.shares[node]).sum::<f64>()
    };
    let all: Vec<usize> = processes.values().flatten().copied().collect();
    processes.retain(|_, members| !members.iter().any(|&i| refused(guests[i].task)));
    loop {
        let load = |node: &usize| on(guests, &all, *node);
        let by_load = |a: &&usize, b: &&usize| load(a).total_cmp(&load(b)).then(b.cmp(a));
        let (Some(&most), Some(&least)) = (nodes.iter().max_by(by_load), nodes.iter().min_by(by_load)) else { return };
        // Load of the busier of the two afterwards.
        let after = |members: &[usize]| {
            let total: f64 = members.iter().map(|&i| guests[i].demand.rate).sum();
            let comes = total - on(guests, members, least);
            (load(&most) - on(guests, members, most)).max(load(&least) + comes)
        };
        let best = processes.iter().map(|(&pid, members)| (after(members), pid)).min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, pid)) = best.filter(|(after, _)| *after < load(&most) * WORTHWHILE) else { return };
        for i in processes.remove(&pid).unwrap_or_default() {
            let shares = &mut guests[i].demand.shares;
            shares.fill(0.0);
            shares[least] = 1.0;
            guests[i].brings = true;
        }
    }
}
