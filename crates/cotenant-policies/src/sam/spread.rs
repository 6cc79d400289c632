//! When threads outnumber cores, sharers also use the second contexts of cores. When cores suffice again, this spreads
//! them; the kernel cannot, because they are bound to their unit. (Ours; §4.3: one context per core first.)

use super::round::Round;
use super::stage1::STAGE;
use super::task::Class;
use super::units::At;
use cotenant_model::Reason;
use std::cmp::Reverse;

/// Whether some could not be moved yet.
pub(super) fn run(round: &mut Round<'_>) -> bool {
    let units = round.board.level(At::Sharing).len();
    let mut here = vec![0; units];
    for task in round.tasks.iter().filter(|task| task.class != Class::Absent) {
        task.unit(At::Sharing).into_iter().for_each(|unit| here[unit] += 1);
    }
    let mut excess: Vec<u32> = (0..units).map(|unit| u32::saturating_sub(here[unit], round.board.room(unit))).collect();
    if excess.iter().all(|excess| *excess == 0) {
        return false;
    }
    // The emptiest unit takes as many as it can, so that few units have some.
    let mut taking = vec![false; units];
    for t in (0..round.tasks.len()).rev() {
        let task = &round.tasks[t];
        let Some(from) = task.unit(At::Sharing).filter(|unit| excess[*unit] > 0) else { continue };
        if !task.class.shares() || !round.board.doubled(t) {
            continue;
        }
        let package = |unit: usize| round.board.level(At::Sharing).unit(unit).package;
        let places = (0..units).filter(|to| *to != from).filter_map(|to| {
            let cpu = round.board.free(At::Sharing, to, round.allowed(t))?;
            Some((taking[to], package(to) == package(from), round.board.idle(At::Sharing, to), Reverse(to), cpu))
        });
        let Some((.., Reverse(to), cpu)) = places.max() else { continue };
        taking[to] = true;
        let why = Reason::new(STAGE, "cores are enough again, and each takes one task: to {place}");
        round.relocate(At::Sharing, t, cpu, why);
        excess[from] -= 1;
    }
    excess.iter().any(|excess| *excess > 0)
}
