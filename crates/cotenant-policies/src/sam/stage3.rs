//! Stage 3: move memory-bound tasks from nodes with exhausted bandwidth to nodes with some left (figure 4, third part).

use super::round::{Round, Sets};
use super::task::Class;
use super::units::At;
use cotenant_model::{Evidence, Reason, Signal, Unit};

const STAGE: &str = "stage 3";

/// LLC misses per second of each memory unit.
pub(super) fn loads(round: &Round<'_>) -> Vec<f64> {
    let mut loads = vec![0.0; round.board.level(At::Memory).len()];
    for task in &round.tasks {
        if let Some(unit) = task.unit(At::Memory) {
            loads[unit] += task.demand();
        }
    }
    loads
}

pub(super) fn run(round: &mut Round<'_>) {
    let units = round.board.level(At::Memory).len();
    let mut loads = loads(round);
    if units < 2 || (0..units).all(|i| loads[i] <= round.limits.unit_bandwidth[i]) {
        return;
    }
    let sets = round.take_sets(At::Memory);
    for i in 0..units {
        for j in 0..units {
            if i != j {
                balance(round, &sets, &mut loads, i, j);
            }
        }
    }
}

/// Moves memory-bound tasks from unit i to unit j until i is no longer above its threshold, while j stays below its
/// own. The figure gives no order of members: ours is by demand, the greatest first in exchange for the least, so that
/// few move and task ids do not matter.
fn balance(round: &mut Round<'_>, sets: &Sets, loads: &mut [f64], i: usize, j: usize) {
    let limits = [round.limits.unit_bandwidth[i], round.limits.unit_bandwidth[j]];
    if loads[i] <= limits[0] || loads[j] >= limits[1] {
        return;
    }
    let demand = |t: &usize| round.tasks[*t].demand();
    let mut movers: Vec<usize> = sets.members(round, i, Class::Mem).collect();
    let mut victims: Vec<usize> = sets.members(round, j, Class::Cpu).collect();
    if !round.config.latency_tolerance {
        movers.sort_by(|a, b| demand(b).total_cmp(&demand(a)));
        victims.sort_by(|a, b| demand(a).total_cmp(&demand(b)));
    }
    for t in movers {
        if loads[i] <= limits[0] {
            return;
        }
        let free = round.board.free(At::Memory, j, round.allowed(t));
        let victim = match free {
            Some(_) => None,
            None => victims.iter().position(|v| round.may_swap(At::Memory, t, *v)),
        };
        let shift = round.tasks[t].demand() - victim.map_or(0.0, |v| round.tasks[victims[v]].demand());
        // A pair with equal traffic would swap forever.
        if (free.is_none() && victim.is_none()) || shift <= 0.0 || loads[j] + shift > limits[1] {
            continue;
        }
        let mut why = Reason::new(STAGE, "its node's bandwidth is exhausted; to {place}");
        why.evidence =
            Some(Evidence { signal: Signal::LlcMisses, unit: Unit::PerSecond, value: loads[i], threshold: limits[0] });
        if let Some(cpu) = free {
            round.relocate(At::Memory, t, cpu, why);
        } else if let Some(v) = victim.map(|v| victims.remove(v)) {
            why.what = "its node's bandwidth is exhausted; to {place}, swap with {task}".into();
            why.task = Some(round.id(v));
            let mut make_way =
                Reason::new(STAGE, "make way for {task}, whose node's bandwidth is exhausted: CPU-bound, to {place}");
            make_way.task = Some(round.id(t));
            round.swap(At::Memory, t, why, v, make_way);
        }
        loads[i] -= shift;
        loads[j] += shift;
    }
}
