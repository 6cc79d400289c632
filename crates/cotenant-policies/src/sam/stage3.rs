//! Stage 3: move memory-bound tasks from nodes whose bandwidth is exhausted to nodes that have some left (figure 4,
//! third part).

use super::board::At;
use super::round::{Round, Sets};
use super::task::Class;
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
    let mut sets = round.take_sets(At::Memory);
    for i in 0..units {
        for j in 0..units {
            if i != j {
                balance(round, &mut sets, &mut loads, i, j);
            }
        }
    }
}

/// Moves memory-bound tasks from unit i to unit j until i is no longer above its threshold, or j would exceed its own.
fn balance(round: &mut Round<'_>, sets: &mut Sets, loads: &mut [f64], i: usize, j: usize) {
    let limits = [round.limits.unit_bandwidth[i], round.limits.unit_bandwidth[j]];
    let mut after = None;
    while loads[i] > limits[0] {
        let room = round.board.idle(At::Memory, j) > 0 || !sets.is_empty(round, j, Class::Cpu);
        let next = sets.first(round, i, Class::Mem, |t| round.after(t, after));
        let Some(t) = next.filter(|_| room) else { return };
        let mut why = Reason::new(STAGE, "its node's bandwidth is exhausted; to {place}");
        why.evidence =
            Some(Evidence { signal: Signal::LlcMisses, unit: Unit::PerSecond, value: loads[i], threshold: limits[0] });
        let free = round.board.free(At::Memory, j, round.allowed(t));
        let victim = match free {
            Some(_) => None,
            None => sets.first(round, j, Class::Cpu, |v| round.may_swap(At::Memory, t, v)),
        };
        if free.is_none() && victim.is_none() {
            after = Some(t); // not allowed there
            continue;
        }
        let shift = round.tasks[t].demand() - victim.map_or(0.0, |v| round.tasks[v].demand());
        if shift <= 0.0 {
            after = Some(t); // its victim demands as much: they would change places for ever
            continue;
        }
        if loads[j] + shift > limits[1] {
            return;
        }
        if let Some(cpu) = free {
            round.relocate(At::Memory, t, cpu, why);
        } else if let Some(v) = victim {
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
