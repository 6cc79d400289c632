//! Stage 4, after SAM-MPH: tasks that use a core well do not share one if they could share with a waiting task.
//!
//! SAM-MPH decides by instructions per cycle which task needs the core (its abstract: latency tolerance "coupled with
//! instruction-level parallelism" decides "the benefits of colocating threads on the same socket or physical core").
//! The pairs, the swaps and the threshold are inferred; the latter from its authors' later scheduler, which keeps
//! programs off second contexts.

use super::round::Round;
use super::task::Class;
use super::units::At;
use cotenant_model::pin::Pin;
use cotenant_model::{Evidence, Reason, Signal, Unit};

const STAGE: &str = "stage 4";
/// Instructions per cycle above which a task needs its core (MAPPER, `SHAR_IPC_THRESH`: 700 of 1,000).
const NEEDY: f64 = 0.7;

pub(super) fn run(round: &mut Round<'_>, pin: Pin, notes: &mut Vec<String>) {
    if pin != Pin::Cpu {
        notes.push(
            "sam: under this --pin the kernel chooses the cores, so stage 4 (share cores) is off; it needs --pin cpu"
                .into(),
        );
        return;
    }
    // Cores whose tasks are all known and at rest, by unit: those whose tasks all need it, and those whose tasks all
    // wait.
    let units = round.board.level(At::Sharing).len();
    let (mut crowded, mut waiting) = (vec![Vec::new(); units], vec![Vec::new(); units]);
    for mut mates in round.board.by_core() {
        mates.sort_unstable();
        let known = |&t: &usize| {
            let task = &round.tasks[t];
            !task.moved && !matches!(task.class, Class::Absent | Class::Unknown) && task.rates.ipc.is_some()
        };
        let Some(unit) = mates.first().and_then(|&t| round.tasks[t].unit(At::Sharing)) else { continue };
        if mates.len() < 2 || !mates.iter().all(known) {
            continue;
        }
        let needy = |t: &usize| round.tasks[*t].rates.ipc.is_some_and(|ipc| ipc > NEEDY);
        match mates.iter().filter(|t| needy(t)).count() {
            0 => waiting[unit].push(mates),
            n if n == mates.len() => crowded[unit].push(mates),
            _ => {}
        }
    }
    for unit in 0..units {
        // In order of their first task, independent of core numbers.
        crowded[unit].sort_unstable();
        waiting[unit].sort_unstable();
        for needy in std::mem::take(&mut crowded[unit]) {
            part(round, unit, &needy, &mut waiting[unit]);
        }
    }
}

/// Moves one of a core's needy tasks to an unused core, otherwise swaps it with a waiting one.
fn part(round: &mut Round<'_>, unit: usize, needy: &[usize], waiting: &mut Vec<Vec<usize>>) {
    let evidence = |round: &Round<'_>, t: usize| {
        let value = round.tasks[t].rates.ipc.unwrap_or_default();
        Some(Evidence { signal: Signal::Instructions, unit: Unit::PerCycle, value, threshold: NEEDY })
    };
    for &t in needy.iter().rev() {
        if let Some(cpu) = round.board.idle_core(At::Sharing, unit, round.allowed(t)) {
            let mut why = Reason::new(STAGE, "it needs a core and shares one with its like: to an idle one of {place}");
            why.evidence = evidence(round, t);
            return round.relocate(At::Sharing, t, cpu, why);
        }
    }
    for i in 0..waiting.len() {
        for &t in needy.iter().rev() {
            let Some(v) = waiting[i].iter().copied().find(|&v| round.may_swap(At::Sharing, t, v)) else { continue };
            let mut why = Reason::new(
                STAGE,
                "it needs a core and shares one with its like: swap with {task}, which waits, on {place}",
            );
            (why.evidence, why.task) = (evidence(round, t), Some(round.id(v)));
            let mut other = Reason::new(STAGE, "it waits: swap with {task}, which needs a core, on {place}");
            (other.evidence, other.task) = (evidence(round, v), Some(round.id(t)));
            round.swap(At::Sharing, t, why, v, other);
            waiting.remove(i);
            return;
        }
    }
}
