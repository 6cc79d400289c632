//! Stage 1 with `own-app` (ours): sharers are brought to those of their own application.
//!
//! Counters show that a task shares data, but not with which task; so the paper brings any sharers together, and no
//! task moves if two sharing applications fill both sockets, each split in halves. But threads of different programs
//! rarely share data, so applications define the groups. Each application with several sharers gets a *home* for all of
//! them, which the others join, also by swaps with sharers whose home is elsewhere. The gain of a home must exceed the
//! loss of the tasks that leave it.

use super::round::Round;
use super::stage1::{STAGE, evidence, exchange, reluctantly};
use super::stage3;
use super::task::{Class, Task};
use super::units::At;
use cotenant_model::{AppId, Reason, Signal};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The sharers of an application, or all single sharers of theirs: their partners are other applications' tasks.
struct Group {
    tasks: Vec<usize>,
    /// By unit.
    at: Vec<u32>,
    /// The unit for all of them.
    home: Option<usize>,
}

pub(super) fn run(round: &mut Round<'_>) {
    let units = round.board.level(At::Sharing).len();
    if units < 2 || !round.tasks.iter().any(|t| t.class == Class::Inter) {
        return;
    }
    let mut groups = groups(round, units);
    settle(round, &mut groups, units);
    let mut group_of: Vec<Option<usize>> = vec![None; round.tasks.len()];
    for (g, group) in groups.iter().enumerate() {
        group.tasks.iter().for_each(|&t| group_of[t] = Some(g));
    }
    // The home of a task's group, if elsewhere.
    let goes = |round: &Round<'_>, t: usize| {
        let task = &round.tasks[t];
        let home = groups[group_of[t]?].home.filter(|&home| task.unit(At::Sharing) != Some(home));
        home.filter(|_| task.class == Class::Inter && !task.moved)
    };
    let mut sets = round.take_sets(At::Sharing);
    for t in groups.iter().flat_map(|group| group.tasks.iter().copied()) {
        let (Some(home), Some(unit)) = (goes(round, t), round.tasks[t].unit(At::Sharing)) else { continue };
        let mut why = Reason::new(STAGE, "colocate with {app} on {place}");
        why.app = Some(round.view.tasks[t].info.app);
        why.evidence = Some(evidence(round, t));
        // Both move to their own home.
        let returns = |&v: &usize| {
            round.tasks[v].unit(At::Sharing) == Some(home)
                && goes(round, v) == Some(unit)
                && round.may_swap(At::Sharing, t, v)
        };
        if let Some(cpu) = round.board.free(At::Sharing, home, round.allowed(t)) {
            round.relocate(At::Sharing, t, cpu, why);
        } else if let Some(v) = (0..round.tasks.len()).find(returns) {
            exchange(round, t, why, v, "colocate with its own on {place}, swap with {task}");
        } else if let Some(v) = sets.first(round, home, Class::Cpu, |v| round.may_swap(At::Sharing, t, v)) {
            exchange(round, t, why, v, "make way for {task}, which shares data: CPU-bound, swap to {place}");
        } else if let Some(v) = sets.first(round, home, Class::Mem, |v| round.may_swap(At::Sharing, t, v)) {
            reluctantly(round, t, why, v);
        }
    }
    round.leave_sets(At::Sharing, sets);
}

/// Sharers by application, the largest first.
fn groups(round: &Round<'_>, units: usize) -> Vec<Group> {
    let mut by_app: BTreeMap<AppId, Vec<usize>> = BTreeMap::new();
    for (t, task) in round.tasks.iter().enumerate() {
        if task.class.shares() && task.unit(At::Sharing).is_some() {
            by_app.entry(round.view.tasks[t].info.app).or_default().push(t);
        }
    }
    let (many, single): (Vec<_>, Vec<_>) = by_app.into_iter().partition(|(_, tasks)| tasks.len() > 1);
    let others: Vec<usize> = single.into_iter().flat_map(|(_, tasks)| tasks).collect();
    let mut groups: Vec<Vec<usize>> = many.into_iter().map(|(_, tasks)| tasks).collect();
    if others.len() > 1 {
        groups.push(others);
    }
    groups.sort_by_key(|tasks| Reverse(tasks.len()));
    let group = |tasks: Vec<usize>| {
        let mut at = vec![0; units];
        tasks.iter().filter_map(|&t| round.tasks[t].unit(At::Sharing)).for_each(|unit| at[unit] += 1);
        Group { tasks, at, home: None }
    };
    groups.into_iter().map(group).collect()
}

/// The cost of a threshold to a task at it, as a fraction of its time (§2.1,
/// [`super::classify::remote_at_five_percent`]).
const AT_THRESHOLD: f64 = 0.05;

/// Finds each group a home: of the units with room for all of it that are [`worth`] it, the one with most of its tasks,
/// then the one with most room. A group without a home stays and occupies its places: on simulated chiplets, bringing
/// some together, or all into a package of several caches, cost more cache than it saved transfers. The unit with most
/// members is where all settle.
fn settle(round: &Round<'_>, groups: &mut [Group], units: usize) {
    let level = round.board.level(At::Sharing);
    let mut room: Vec<u32> = (0..units).map(|unit| round.board.room(unit)).collect();
    for group in groups {
        let size = group.tasks.len() as u32;
        let admits = |unit: usize| group.tasks.iter().all(|&t| level.unit(unit).set().intersects(round.allowed(t)));
        let fitting = (0..units).filter(|&unit| room[unit] >= size && admits(unit) && worth(round, group, unit));
        group.home = fitting.max_by_key(|&unit| (group.at[unit], room[unit], Reverse(unit)));
        match group.home {
            Some(home) => room[home] -= size,
            None => room.iter_mut().zip(&group.at).for_each(|(room, here)| *room = room.saturating_sub(*here)),
        }
    }
}

/// Whether a group gains more at a home than the displaced tasks lose. Both are fractions of a task's time: each
/// threshold is a rate that costs 5 % of it.
fn worth(round: &Round<'_>, group: &Group, home: usize) -> bool {
    let here = |t: &usize| round.tasks[*t].unit(At::Sharing) == Some(home);
    let inter = |t: &&usize| round.tasks[**t].class == Class::Inter;
    let comers: Vec<usize> = group.tasks.iter().filter(inter).copied().filter(|t| !here(t)).collect();
    let all = || (0..round.tasks.len()).filter(here);
    // Sharers of other groups move to their own home in exchange.
    let others = all().filter(|t| round.tasks[*t].class.shares()).count() - group.at[home] as usize;
    let crowd = comers.get(round.board.idle(At::Sharing, home) + others..).unwrap_or_default();
    let victims = [Class::Cpu, Class::Mem].into_iter().flat_map(|class| {
        let mut of: Vec<usize> = all().filter(|t| round.tasks[*t].class == class && !round.tasks[*t].moved).collect();
        of.sort_by_key(|t| round.tasks[*t].rank);
        of
    });
    let leave: Vec<(usize, usize)> = victims.zip(crowd.iter().copied()).collect();
    let rates = group.tasks.iter().filter(inter).filter_map(|t| round.tasks[*t].rates.inter);
    let gain = AT_THRESHOLD * rates.sum::<f64>() / round.limits.coherence;
    let loss = if round.view.numa_balancing { crowding(round, &comers, &leave) } else { distance(round, &leave) };
    leave.is_empty() || gain > loss
}

/// Loss of tasks that move away from their pages, in tasks' worth of time, if each takes another one's place. Overlap
/// is unknown: each takes at most twice as long.
fn distance(round: &Round<'_>, leave: &[(usize, usize)]) -> f64 {
    let Some(limit) = round.limits.remote else { return 0.0 };
    let two = round.board.level(At::Memory).len() == 2;
    let loss = |&(v, t): &(usize, usize)| {
        let task = &round.tasks[v];
        if task.unit(At::Memory) == round.tasks[t].unit(At::Memory) {
            return 0.0;
        }
        let misses = round.view.tasks[v].per_cycle(Signal::LlcMisses).unwrap_or(0.0);
        let remote = task.rates.remote.unwrap_or(0.0).min(misses);
        // With two nodes, the other one is where they have been remote from.
        let more = misses - remote - if two { remote } else { 0.0 };
        (AT_THRESHOLD * more / limit).min(1.0)
    };
    leave.iter().map(loss).sum()
}

/// Unserved memory demand of the nodes if pages follow, in units of memory-bound tasks' demands.
fn crowding(round: &Round<'_>, comers: &[usize], leave: &[(usize, usize)]) -> f64 {
    let before = stage3::loads(round);
    let mut after = before.clone();
    let mut go = |t: usize, to: Option<usize>| {
        if let (Some(from), Some(to)) = (round.tasks[t].unit(At::Memory), to) {
            after[from] -= round.tasks[t].demand();
            after[to] += round.tasks[t].demand();
        }
    };
    let home = leave.first().and_then(|(v, _)| round.tasks[*v].unit(At::Memory));
    for t in comers {
        go(*t, home);
    }
    for (v, t) in leave {
        go(*v, round.tasks[*t].unit(At::Memory));
    }
    let served =
        |loads: &[f64]| -> f64 { loads.iter().zip(&round.limits.unit_bandwidth).map(|(l, m)| l.min(*m)).sum() };
    let bound: Vec<f64> = round.tasks.iter().filter(|t| t.class == Class::Mem).map(Task::demand).collect();
    if bound.is_empty() {
        return 0.0;
    }
    (served(&before) - served(&after)) * bound.len() as f64 / bound.iter().sum::<f64>()
}
