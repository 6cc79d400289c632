//! Stage 1 with `own-app` (ours): sharers are brought to those of their own application.
//!
//! Counters tell that a task shares data, not with whom; so the paper brings any sharers together, and where two
//! applications that share fill both sockets, each half on either, nobody moves. But threads of different programs
//! have no data in common unless they ask for it: who belongs together is known. Each application with several
//! sharers gets a *home* that holds them all, and those that are elsewhere go there, also by changing places with a
//! sharer whose home is where they are.

use super::round::Round;
use super::stage1::{STAGE, evidence, exchange, reluctantly};
use super::task::Class;
use super::units::At;
use cotenant_model::{AppId, Reason};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The sharers of an application, or all those that are their application's only one: their partners are others' tasks.
struct Group {
    tasks: Vec<usize>,
    /// By unit.
    at: Vec<u32>,
    /// The unit that is to hold all of them.
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
    // Where a task's own are to be, if that is elsewhere.
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
        // Both come to their own.
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

/// Finds each group a home: of the units that have room for all of it, the one where most of it is, then the one with
/// most room. A group that finds none stays, and takes room where it is: bringing only some together, or all into a
/// package of several caches, cost simulated chiplets more cache than it saved transfers. Where most are is where all
/// come to rest.
fn settle(round: &Round<'_>, groups: &mut [Group], units: usize) {
    let level = round.board.level(At::Sharing);
    let mut room: Vec<u32> = (0..units).map(|unit| round.board.room(unit)).collect();
    for group in groups {
        let size = group.tasks.len() as u32;
        let admits = |unit: usize| group.tasks.iter().all(|&t| level.unit(unit).set().intersects(round.allowed(t)));
        let fitting = (0..units).filter(|&unit| room[unit] >= size && admits(unit));
        group.home = fitting.max_by_key(|&unit| (group.at[unit], room[unit], Reverse(unit)));
        match group.home {
            Some(home) => room[home] -= size,
            None => room.iter_mut().zip(&group.at).for_each(|(room, here)| *room = room.saturating_sub(*here)),
        }
    }
}
