//! Stage 1: bring together tasks that share data across units (figure 4, first part).
//!
//! The printed figure is damaged: the loop's second term is the intra set of the destination, `j = i` means "the source
//! has sharers", and the line that loops over the destination's CPU-bound tasks is missing.

use super::round::{Round, Sets};
use super::task::{Class, Origin};
use super::units::At;
use cotenant_model::{Evidence, Reason, Signal, Unit};

pub(super) const STAGE: &str = "stage 1";

/// Sizes of a unit's sets, updated while tasks move.
#[derive(Clone, Default)]
struct Counts {
    /// |inter| + |intra|
    sharers: u32,
    /// Members of inter that have not moved: reasons for others to come here.
    movers: u32,
    /// Sharers brought here in the last round, or earlier in this one.
    settling: u32,
    /// CPU-bound and memory-bound tasks that have not moved.
    victims: u32,
    /// Movers and victims with restricted masks: without any, masks need no checks.
    restricted: u32,
    /// Whether sharers came here in this round.
    drew: bool,
}

pub(super) fn run(round: &mut Round<'_>) {
    let units = round.board.level(At::Sharing).len();
    if units < 2 || !round.tasks.iter().any(|t| t.class == Class::Inter) {
        return;
    }
    let mut counts = count(round, units);
    let mut sets = round.take_sets(At::Sharing);
    // In packages with several units, sharers first come together inside their package.
    for same_package in [true, false] {
        for i in 0..units {
            for j in 0..units {
                let package = |u: usize| round.board.level(At::Sharing).unit(u).package;
                if i != j && (package(i) == package(j)) == same_package && counts[i].movers > 0 {
                    draw(round, &mut sets, &mut counts, i, j);
                }
            }
        }
    }
    round.leave_sets(At::Sharing, sets);
}

/// The counts of each unit.
fn count(round: &Round<'_>, units: usize) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); units];
    for (t, task) in round.tasks.iter().enumerate() {
        let Some(unit) = task.unit(At::Sharing) else { continue };
        match task.class {
            Class::Inter if !task.moved => {
                counts[unit].sharers += 1;
                counts[unit].movers += 1;
            }
            Class::Cpu | Class::Mem => counts[unit].victims += 1,
            Class::Inter | Class::Intra => {
                counts[unit].sharers += 1;
                counts[unit].settling += u32::from(task.settling || task.moved);
                continue;
            }
            _ => continue,
        }
        counts[unit].restricted += u32::from(round.allowed(t) != round.topology.usable());
    }
    counts
}

/// Moves sharers from unit j to unit i, if that brings them closer together.
fn draw(round: &mut Round<'_>, sets: &mut Sets, counts: &mut Vec<Counts>, i: usize, j: usize) {
    if counts[j].movers == 0 {
        return;
    }
    if !round.config.keep_full {
        return take(round, sets, counts, i, j);
    }
    let level = round.board.level(At::Sharing);
    let contexts = |unit: usize| round.board.room(unit);
    let room = contexts(i).saturating_sub(counts[i].sharers);
    let movers = match counts[j].restricted {
        0 => counts[j].movers,
        _ => sets.admitted(round, j, Class::Inter, level.unit(i).set()),
    };
    let most = (round.board.idle(At::Sharing, i) as u32 + counts[i].victims).min(room).min(movers);
    if most == 0 || counts[j].drew || counts[j].sharers >= contexts(j) || !gathers(counts, i, j, most) {
        return;
    }
    if counts[i].restricted + counts[j].restricted == 0 {
        return take(round, sets, counts, i, j);
    }
    // Masks limit the number: try, and undo if too few can come.
    let before = (round.draft(), sets.clone(), counts.clone());
    take(round, sets, counts, i, j);
    let taken = before.2[j].movers - counts[j].movers;
    if !gathers(&before.2, i, j, taken) {
        round.discard(before.0);
        (*sets, *counts) = (before.1, before.2);
    }
}

/// Whether sharers are closer together after unit i has taken this many from unit j (ours): j has none left, including
/// those of the last round, or i ends up with more than j had. The first reduces the units with sharers; the second
/// keeps their number and raises the sum of squares of their sharers. So stage 1 terminates with any masks and
/// capacities; otherwise sharers that do not fit one unit swing forever.
fn gathers(counts: &[Counts], i: usize, j: usize, taken: u32) -> bool {
    taken == counts[j].movers + counts[j].settling || counts[i].sharers + taken > counts[j].sharers
}

/// Takes sharers of unit j to unit i while there is room.
fn take(round: &mut Round<'_>, sets: &mut Sets, counts: &mut [Counts], i: usize, j: usize) {
    let contexts = round.board.room(i);
    let Some(partner) = sets.first(round, i, Class::Inter, |_| true) else { return };
    let app = round.view.tasks[partner].info.app;
    // Skips members of inter(j) that are not allowed in i, or have no swap partner there.
    let mut after = None;
    while counts[i].sharers < contexts {
        let room = round.board.idle(At::Sharing, i) > 0
            || !sets.is_empty(round, i, Class::Cpu)
            || !sets.is_empty(round, i, Class::Mem);
        let Some(t) = sets.first(round, j, Class::Inter, |t| round.after(t, after)).filter(|_| room) else {
            break;
        };
        let mut why = Reason::new(STAGE, "colocate with {app} on {place}");
        why.app = Some(app);
        why.evidence = Some(evidence(round, t));
        if let Some(cpu) = round.board.free(At::Sharing, i, round.allowed(t)) {
            round.relocate(At::Sharing, t, cpu, why);
        } else if let Some(v) = sets.first(round, i, Class::Cpu, |v| round.may_swap(At::Sharing, t, v)) {
            exchange(round, t, why, v, "make way for {task}, which shares data: CPU-bound, swap to {place}");
            counts[i].victims -= 1;
        } else if let Some(v) = sets.first(round, i, Class::Mem, |v| round.may_swap(At::Sharing, t, v)) {
            reluctantly(round, t, why, v);
            counts[i].victims -= 1;
        } else {
            after = Some(t);
            continue;
        }
        counts[i].drew = true;
        counts[j].movers -= 1;
        counts[j].sharers -= 1;
        counts[i].sharers += 1;
    }
}

/// Keeps sharers in place where others are brought to (ours): a unit that fills up is no longer balanced, and the
/// kernel would move away tasks without a placement.
pub(super) fn hold_partners(round: &mut Round<'_>) {
    let units = round.board.level(At::Sharing).len();
    let mut drew = vec![false; units];
    for m in &round.moves {
        let t = round.view.tasks.binary_search_by_key(&m.task, |t| t.info.id).ok().filter(|_| m.sharer);
        t.and_then(|t| round.tasks[t].unit(At::Sharing)).into_iter().for_each(|unit| drew[unit] = true);
    }
    for t in 0..round.tasks.len() {
        let task = &round.tasks[t];
        let there = task.unit(At::Sharing).is_some_and(|unit| drew[unit]);
        if there && !task.moved && task.class.shares() {
            round.confirm(At::Sharing, t, Reason::new(STAGE, "stay on {place}, where its partners come"));
        }
    }
}

/// The amount of a task's sharing.
pub(super) fn evidence(round: &Round<'_>, t: usize) -> Evidence {
    Evidence {
        signal: Signal::Inter,
        unit: Unit::PerCycle,
        value: round.tasks[t].rates.inter.unwrap_or_default(),
        threshold: round.limits.coherence,
    }
}

pub(super) fn exchange(round: &mut Round<'_>, t: usize, mut why: Reason, v: usize, victims: &'static str) {
    why.what = "colocate with {app} on {place}, swap with {task}".into();
    why.task = Some(round.id(v));
    let make_way = Reason { task: Some(round.id(t)), ..Reason::new(STAGE, victims) };
    round.swap(At::Sharing, t, why, v, make_way);
}

/// Swaps with a memory-bound task and remembers its original node unless one is known: it returns when it has remote
/// accesses (stage 2).
pub(super) fn reluctantly(round: &mut Round<'_>, t: usize, why: Reason, v: usize) {
    let home = round.tasks[v].unit(At::Memory);
    if home == round.tasks[t].unit(At::Memory) {
        let victims = "make way for {task}, which shares data: memory-bound, swap to {place}, same node";
        return exchange(round, t, why, v, victims);
    }
    let task = round.id(v);
    let origin = home.map(|unit| Origin { task, unit: unit as u32, displaced: false });
    round.tasks[v].origin = round.tasks[v].origin.or(origin);
    exchange(round, t, why, v, "make way for {task}, which shares data: memory-bound, reluctantly to {place}");
}
