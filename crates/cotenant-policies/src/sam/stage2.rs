//! Stage 2: return tasks with remote memory to their home (figure 4, second part).

use super::round::{Round, Sets};
use super::stage3;
use super::task::{Class, Origin};
use super::units::At;
use cotenant_model::{Evidence, Reason, Signal, Unit};

const STAGE: &str = "stage 2";

/// A task to return.
#[derive(Clone, Copy)]
struct Stray {
    task: usize,
    at: usize,
    home: usize,
    /// Its home is the node of its pages, not the origin of a reluctant move (ours).
    by_pages: bool,
}

pub(super) fn run(round: &mut Round<'_>) {
    let Some(limit) = round.limits.remote else { return };
    let strays = strays(round, limit);
    if strays.is_empty() {
        return;
    }
    let mut sets = round.take_sets(At::Memory);
    let away = Away::new(round);
    let mut loads = stage3::loads(round);
    for stray in strays {
        if !round.tasks[stray.task].moved {
            go_home(round, &mut sets, &away, &mut loads, stray);
        }
    }
    round.leave_sets(At::Memory, sets);
}

/// Tasks above the threshold with a home elsewhere, by unit and id.
fn strays(round: &Round<'_>, limit: f64) -> Vec<Stray> {
    let mut strays: Vec<Stray> = (0..round.tasks.len())
        .filter_map(|t| {
            let task = &round.tasks[t];
            if task.moved
                || task.class == Class::Absent
                || !task.stray
                || task.rates.remote.is_none_or(|rate| rate <= limit)
            {
                return None;
            }
            let at = task.unit(At::Memory)?;
            let (home, by_pages) = match task.origin {
                Some(origin) => (origin.unit as usize, false),
                None => (page_home(round, t).filter(|_| !task.class.shares())?, true),
            };
            (home != at).then_some(Stray { task: t, at, home, by_pages })
        })
        .collect();
    strays.sort_unstable_by_key(|s| (s.at, s.task));
    strays
}

/// The unit whose node holds most of a task's pages; its own on ties.
fn page_home(round: &Round<'_>, task: usize) -> Option<usize> {
    if !round.config.page_home {
        return None;
    }
    let pages = round.view.tasks[task].pages_by_node.as_ref()?;
    let level = round.board.level(At::Memory);
    let own = round.tasks[task].unit(At::Memory)?;
    let held = |unit: usize| {
        let node = &round.topology.nodes()[level.unit(unit).node?];
        pages.iter().find(|(id, _)| *id == node.id).map(|(_, pages)| *pages)
    };
    let mut best = (held(own).unwrap_or(0), own);
    for unit in 0..level.len() {
        if let Some(pages) = held(unit).filter(|p| *p > best.0) {
            best = (pages, unit);
        }
    }
    Some(best.1)
}

/// Tasks with a remembered origin, by current and original unit.
struct Away(Vec<(usize, usize, usize)>);

impl Away {
    fn new(round: &Round<'_>) -> Self {
        let mut away: Vec<_> = (0..round.tasks.len())
            .filter_map(|t| {
                let task = &round.tasks[t];
                let origin = task.origin.filter(|_| !task.moved && task.class != Class::Absent)?;
                Some((task.unit(At::Memory)?, origin.unit as usize, t))
            })
            .collect();
        away.sort_unstable();
        Self(away)
    }

    /// Tasks at one unit with an origin at another, in ascending order.
    fn at_from(&self, at: usize, from: usize) -> impl Iterator<Item = usize> + '_ {
        let start = self.0.partition_point(|(a, f, _)| (*a, *f) < (at, from));
        self.0[start..].iter().take_while(move |(a, f, _)| (*a, *f) == (at, from)).map(|(.., t)| *t)
    }
}

fn go_home(round: &mut Round<'_>, sets: &mut Sets, away: &Away, loads: &mut [f64], stray: Stray) {
    let Stray { task: t, at, home, by_pages } = stray;
    let demand = round.tasks[t].demand();
    // The place of pages does not imply free bandwidth there: stage 3 would undo the move.
    let has_room = |round: &Round<'_>, instead: f64| {
        let limits = &round.limits.unit_bandwidth;
        !by_pages
            || (loads[home] + demand - instead <= limits[home]
                && (instead <= demand || loads[at] + instead - demand <= limits[at]))
    };
    let swaps =
        |round: &Round<'_>, v: usize| has_room(round, round.tasks[v].demand()) && round.may_swap(At::Memory, t, v);
    // A task is not sent off its own pages for another's return; a memory-bound one is not sent off unknown pages.
    let victim = |round: &Round<'_>, v: usize, class: Class| {
        let elsewhere = || page_home(round, v).map_or(class == Class::Cpu, |own| own != home);
        swaps(round, v) && (!by_pages || elsewhere())
    };

    let back = away.at_from(home, at).find(|&k| !round.tasks[k].moved && swaps(round, k));
    let free = round.board.free(At::Memory, home, round.allowed(t)).filter(|_| has_room(round, 0.0));
    let displaced = round.tasks[t].origin.is_some_and(|o| o.displaced) && round.config.no_chains;
    let shift = if let Some(k) = back {
        swap(round, stray, k, "home to {place} too, swap with {task}")
    } else if let Some(cpu) = free {
        let why = reason(round, stray, "home to {place}", "to its pages on {place}");
        round.relocate(At::Memory, t, cpu, why);
        demand
    } else if let Some(v) = sets.first(round, home, Class::Cpu, |v| victim(round, v, Class::Cpu)) {
        swap(round, stray, v, "make way for {task}, which goes home: CPU-bound, swap to {place}")
    } else if let Some(v) = sets.first(round, home, Class::Mem, |v| !displaced && victim(round, v, Class::Mem)) {
        if by_pages {
            swap(round, stray, v, "make way for {task}, which goes to its pages: swap to {place}")
        } else {
            let origin = Origin { task: round.id(v), unit: home as u32, displaced: true };
            round.tasks[v].origin = round.tasks[v].origin.or(Some(origin));
            swap(round, stray, v, "make way for {task}, which goes home: memory-bound, reluctantly to {place}")
        }
    } else {
        return;
    };
    loads[at] -= shift;
    loads[home] += shift;
}

/// Swaps a returning task with one at its home; returns the added demand on the home's memory.
fn swap(round: &mut Round<'_>, stray: Stray, victim: usize, victims: &'static str) -> f64 {
    let t = stray.task;
    let mut why =
        reason(round, stray, "home to {place}, swap with {task}", "to its pages on {place}, swap with {task}");
    why.task = Some(round.id(victim));
    let other = Reason { task: Some(round.id(t)), ..Reason::new(STAGE, victims) };
    round.swap(At::Memory, t, why, victim, other);
    round.tasks[t].demand() - round.tasks[victim].demand()
}

fn reason(round: &Round<'_>, stray: Stray, by_origin: &'static str, by_pages: &'static str) -> Reason {
    let mut reason = Reason::new(STAGE, if stray.by_pages { by_pages } else { by_origin });
    reason.evidence = Some(Evidence {
        signal: Signal::Remote,
        unit: Unit::PerCycle,
        value: round.tasks[stray.task].rates.remote.unwrap_or_default(),
        threshold: round.limits.remote.unwrap_or_default(),
    });
    reason
}
