//! Stage 1: bring tasks that share data across units together (figure 4, first part).
//!
//! The printed figure is damaged: the loop's second term is the intra set of the destination, `j = i` stands for "the source has
//! sharers", and the line that loops over the destination's CPU-bound tasks is lost.

use super::board::At;
use super::classify::Class;
use super::round::{Round, Sets};
use super::state::Origin;
use crate::action::{Evidence, Reason, Unit};
use crate::signal::Signal;

const STAGE: &str = "stage 1";

/// Sizes of the sets, by unit; kept up to date while tasks move.
struct Counts {
    /// |inter|
    inter: Vec<u32>,
    /// |inter| + |intra|
    sharers: Vec<u32>,
    /// Members of inter that have not moved.
    movers: Vec<u32>,
    /// Sharers that were brought here in the last round.
    settling: Vec<u32>,
    /// CPU-bound and memory-bound tasks that have not moved.
    victims: Vec<u32>,
    /// Movers and victims that are not allowed everywhere: where there are none, nobody needs to be asked.
    restricted: Vec<u32>,
    /// Whether sharers were drawn here in this round.
    drew: Vec<bool>,
}

pub(super) fn run(round: &mut Round<'_>) {
    let units = round.board.level(At::Sharing).len();
    if units < 2 || !round.tasks.iter().any(|t| t.class == Class::Inter) {
        return;
    }
    let mut counts = count(round, units);
    let mut sets = round.take_sets(At::Sharing);
    // Where packages have several units, sharers first come together inside their package.
    for same_package in [true, false] {
        for i in 0..units {
            for j in 0..units {
                let package = |u: usize| round.board.level(At::Sharing).unit(u).package;
                if i != j && (package(i) == package(j)) == same_package && counts.inter[i] > 0 {
                    draw(round, &mut sets, &mut counts, i, j);
                }
            }
        }
    }
    round.leave_sets(At::Sharing, sets);
}

fn count(round: &Round<'_>, units: usize) -> Counts {
    let zero = || vec![0; units];
    let mut counts = Counts {
        inter: zero(),
        sharers: zero(),
        movers: zero(),
        settling: zero(),
        victims: zero(),
        restricted: zero(),
        drew: vec![false; units],
    };
    for (t, task) in round.tasks.iter().enumerate() {
        let Some(unit) = task.unit(At::Sharing) else { continue };
        match task.class {
            Class::Inter => {
                counts.inter[unit] += 1;
                counts.sharers[unit] += 1;
                counts.movers[unit] += 1;
            }
            Class::Cpu | Class::Mem => counts.victims[unit] += 1,
            Class::Intra => {
                counts.sharers[unit] += 1;
                counts.settling[unit] += u32::from(task.settling);
                continue;
            }
            _ => continue,
        }
        counts.restricted[unit] += u32::from(round.allowed(t) != round.topology.usable());
    }
    counts
}

/// Draws sharers from unit j to unit i.
fn draw(round: &mut Round<'_>, sets: &mut Sets, counts: &mut Counts, i: usize, j: usize) {
    let contexts = round.board.level(At::Sharing).unit(i).contexts.len() as u32;
    if counts.movers[j] == 0 || (round.config.keep_full && keeps(round, sets, counts, i, j)) {
        return;
    }
    let Some(partner) = sets.first(round, i, Class::Inter, |_| true) else { return };
    let app = round.view.tasks[partner].info.app;
    // Members of inter(j) that are not allowed in i, or with which nobody there may swap, are passed over.
    let mut after = None;
    while counts.sharers[i] < contexts {
        let room = round.board.idle(At::Sharing, i) > 0
            || !sets.is_empty(round, i, Class::Cpu)
            || !sets.is_empty(round, i, Class::Mem);
        let Some(t) = sets.first(round, j, Class::Inter, |t| after.is_none_or(|a| t > a)).filter(|_| room) else {
            break;
        };
        let mut why = Reason::new(STAGE, "colocate with {app} on {place}");
        why.app = Some(app);
        why.evidence = Some(Evidence {
            signal: Signal::Inter,
            unit: Unit::PerCycle,
            value: round.tasks[t].rates.inter.unwrap_or_default(),
            threshold: round.limits.coherence,
        });
        if let Some(cpu) = round.board.free(At::Sharing, i, round.allowed(t)) {
            round.relocate(At::Sharing, t, cpu, why);
        } else if let Some(v) = sets.first(round, i, Class::Cpu, |v| round.may_swap(At::Sharing, t, v)) {
            exchange(round, t, why, v, "make way for {task}, which shares data: CPU-bound, swap to {place}");
            counts.victims[i] -= 1;
        } else if let Some(v) = sets.first(round, i, Class::Mem, |v| round.may_swap(At::Sharing, t, v)) {
            reluctantly(round, t, why, v);
            counts.victims[i] -= 1;
        } else {
            after = Some(t);
            continue;
        }
        counts.drew[i] = true;
        counts.movers[j] -= 1;
        counts.inter[j] -= 1;
        counts.sharers[j] -= 1;
        counts.inter[i] += 1;
        counts.sharers[i] += 1;
    }
}

/// Whether unit j keeps its sharers rather than giving some to i (ours): its contexts are all held by sharers; or it drew some in
/// this round; or i cannot take all that have not moved, those of the last round included, and would not end up with more sharers
/// than j has now. Otherwise sharers that do not fit one unit, or may not all come to it, swing for ever.
fn keeps(round: &Round<'_>, sets: &Sets, counts: &Counts, i: usize, j: usize) -> bool {
    let level = round.board.level(At::Sharing);
    if counts.drew[j] || counts.sharers[j] >= level.unit(j).contexts.len() as u32 {
        return true;
    }
    // Members of a set in one unit that may go to another one.
    let free = |from: usize, class: Class, to: usize| {
        let may_go = |t: &usize| round.allowed(*t).intersects(level.unit(to).set());
        sets.members(round, from, class).filter(may_go).count() as u32
    };
    let victims = match counts.restricted[i] {
        0 => counts.victims[i],
        _ => free(i, Class::Cpu, j) + free(i, Class::Mem, j),
    };
    let movers = match counts.restricted[j] {
        0 => counts.movers[j],
        _ => free(j, Class::Inter, i),
    };
    let taken = movers.min(round.board.idle(At::Sharing, i) as u32 + victims);
    taken < counts.movers[j] + counts.settling[j] && counts.sharers[i] + taken <= counts.sharers[j]
}

fn exchange(round: &mut Round<'_>, t: usize, mut why: Reason, v: usize, victims: &'static str) {
    why.what = "colocate with {app} on {place}, swap with {task}".into();
    why.task = Some(round.id(v));
    let mut make_way = Reason::new(STAGE, victims);
    make_way.task = Some(round.id(t));
    round.swap(At::Sharing, t, why, v, make_way);
}

/// Swaps with a memory-bound task, whose original node is remembered unless one is already: it goes home when it meets remote
/// memory (stage 2).
fn reluctantly(round: &mut Round<'_>, t: usize, why: Reason, v: usize) {
    let home = round.tasks[v].unit(At::Memory);
    if home == round.tasks[t].unit(At::Memory) {
        return exchange(
            round,
            t,
            why,
            v,
            "make way for {task}, which shares data: memory-bound, swap to {place}, same node",
        );
    }
    let task = round.id(v);
    let origin = home.map(|unit| Origin { task, unit: unit as u32, displaced: false });
    round.tasks[v].origin = round.tasks[v].origin.or(origin);
    exchange(round, t, why, v, "make way for {task}, which shares data: memory-bound, reluctantly to {place}");
}
