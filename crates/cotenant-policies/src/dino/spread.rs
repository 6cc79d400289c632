//! The domain of each thread: each class evenly over the domains, and threads of one process together as far as
//! possible.

use cotenant_model::{CpuSet, TaskId};
use std::collections::BTreeMap;

/// Number of classes.
pub(super) const CLASSES: usize = 3;

/// A thread with a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread<'a> {
    pub task: TaskId,
    pub pid: u32,
    /// Rank of its class, 0 = the least intensive.
    pub class: usize,
    /// Its assigned domain before.
    pub home: Option<usize>,
    /// Its observed domain.
    pub at: Option<usize>,
    pub allowed: &'a CpuSet,
}

/// Target threads of each class per domain, in proportion to its contexts. Remainders go to the domain with the lowest
/// load, the most intensive class first; on ties, where such threads already are.
fn shares(domains: &[CpuSet], threads: &[Thread<'_>]) -> Vec<[usize; CLASSES]> {
    let weights: Vec<usize> = domains.iter().map(CpuSet::len).collect();
    let all: usize = weights.iter().sum();
    let mut shares = vec![[0; CLASSES]; domains.len()];
    let mut load = vec![0; domains.len()];
    for class in (0..CLASSES).rev() {
        let mut there = vec![0usize; domains.len()];
        let mut rest = 0;
        for thread in threads.iter().filter(|t| t.class == class) {
            rest += 1;
            if let Some(d) = thread.home.or(thread.at) {
                there[d] += 1;
            }
        }
        let total = rest;
        for d in 0..domains.len() {
            shares[d][class] = total * weights[d] / all;
            load[d] += shares[d][class];
            rest -= shares[d][class];
        }
        for _ in 0..rest {
            let wanted = |d: usize| there[d].saturating_sub(shares[d][class]);
            let lighter = |a: &usize, b: &usize| {
                let order = ((load[*a] + 1) * weights[*b]).cmp(&((load[*b] + 1) * weights[*a]));
                order.then(wanted(*b).cmp(&wanted(*a))).then(a.cmp(b))
            };
            let Some(d) = (0..domains.len()).min_by(lighter) else { break };
            shares[d][class] += 1;
            load[d] += 1;
        }
    }
    shares
}

/// The domain of each thread, in the order of `threads`; `None` if it may use none. A thread stays while its class has
/// room.
pub(super) fn spread(domains: &[CpuSet], threads: &[Thread<'_>]) -> Vec<Option<usize>> {
    let mut room = shares(domains, threads);
    let mut given: Vec<Option<usize>> = vec![None; threads.len()];
    let may = |t: usize, d: usize| threads[t].allowed.intersects(&domains[d]);
    let mut of_process: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut groups: Vec<BTreeMap<u32, Vec<usize>>> = vec![BTreeMap::new(); CLASSES];
    for (t, thread) in threads.iter().enumerate() {
        let kept = thread.home.filter(|&d| may(t, d) && room[d][thread.class] > 0);
        if let Some(d) = kept {
            room[d][thread.class] -= 1;
            given[t] = Some(d);
            of_process.entry(thread.pid).or_insert_with(|| vec![0; domains.len()])[d] += 1;
        } else {
            groups[thread.class].entry(thread.pid).or_default().push(t);
        }
    }
    for class in (0..CLASSES).rev() {
        let mut of_class: Vec<(u32, Vec<usize>)> = std::mem::take(&mut groups[class]).into_iter().collect();
        // Largest processes first, because they are the hardest to keep together.
        of_class.sort_by_key(|(_, members)| (std::cmp::Reverse(members.len()), threads[members[0]].task));
        for (pid, mut members) in of_class {
            let mates = of_process.entry(pid).or_insert_with(|| vec![0; domains.len()]);
            let mut open: Vec<usize> = (0..domains.len()).filter(|&d| room[d][class] > 0).collect();
            while !members.is_empty() && !open.is_empty() {
                let at = |d: usize| members.iter().filter(|&&t| threads[t].at == Some(d)).count();
                let rank = |d: usize| (mates[d], room[d][class] >= members.len(), at(d), room[d][class]);
                let best = (0..open.len()).max_by_key(|&i| (rank(open[i]), std::cmp::Reverse(open[i])));
                let Some(d) = best.map(|i| open.swap_remove(i)) else { break };
                members.sort_by_key(|&t| (threads[t].at != Some(d), threads[t].task));
                members.retain(|&t| {
                    let fits = room[d][class] > 0 && may(t, d);
                    if fits {
                        room[d][class] -= 1;
                        given[t] = Some(d);
                        mates[d] += 1;
                    }
                    !fits
                });
            }
            groups[class].insert(pid, members);
        }
    }
    // Threads whose allowed domains are full make the spread uneven.
    let mut load = vec![0; domains.len()];
    given.iter().flatten().for_each(|&d| load[d] += 1);
    for class in (0..CLASSES).rev() {
        let left: Vec<usize> = groups[class].values().flatten().copied().collect();
        for t in left {
            let lighter = |a: &usize, b: &usize| {
                (load[*a] * domains[*b].len()).cmp(&(load[*b] * domains[*a].len())).then(a.cmp(b))
            };
            let best = (0..domains.len()).filter(|&d| may(t, d)).min_by(lighter);
            if let Some(d) = best {
                load[d] += 1;
                given[t] = Some(d);
            }
        }
    }
    given
}
