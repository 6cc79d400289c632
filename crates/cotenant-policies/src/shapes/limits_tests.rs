//! Properties of the whole policy: the guard, the objective, the budget.

use super::null_tests::{NOISE, NoisyProgram};
use super::settings::{Objective, ShapesSettings};
use super::tests::Pretend;
use super::{Shapes, ShapesState};
use cotenant_model::testing::machine;
use cotenant_model::{CpuId, Outcome, Time};

const APPLIED: fn(Time) -> Outcome = |_| Outcome::Applied;

/// Apart, one program gains 30 % and the other loses 10: their final speeds, together.
fn opposed(settings: ShapesSettings) -> (f64, ShapesState) {
    Pretend { powers: [1.0, -0.4], ..Pretend::new(1.3) }.run(&Shapes::new(settings), 300.0, APPLIED)
}

#[test]
fn the_guard_refuses_what_one_program_pays_for() {
    let (speed, state) = opposed(ShapesSettings::default());
    assert!(
        (speed - 1.0).abs() < 1e-9 && state.trialling.learned().is_some_and(|learned| learned.trials > 1),
        "{speed}"
    );
    let (speed, _) = opposed(ShapesSettings { guard: None, ..ShapesSettings::default() });
    assert!((speed - 1.3).abs() < 1e-9, "{speed}");
}

#[test]
fn fair_leaves_nobody_behind() {
    let objective = Some(Objective::Fair);
    let (speed, state) = opposed(ShapesSettings { objective, guard: None, ..ShapesSettings::default() });
    assert!(
        (speed - 1.0).abs() < 1e-9 && state.trialling.learned().is_some_and(|learned| learned.trials > 1),
        "{speed}"
    );
}

/// The kernel's placement is by far the fastest.
fn costly(machine: &Pretend) -> f64 {
    let even = |own: &[CpuId]| {
        (0..4).all(|d| own.iter().filter(|&&cpu| machine.topology.llc_of(cpu) == Some(d)).count() == own.len() / 4)
    };
    if machine.cpus.chunks(machine.cpus.len() / 2).all(even) { 1.0 } else { 0.7 }
}

/// At any time no more is lost than half a second, 1 % of the time and one trial.
#[test]
fn trials_cost_no_more_than_they_may() {
    let cpus: Vec<u32> = (0..2).flat_map(|app| (0..8).map(move |i| i / 2 * 4 + i % 2 + 2 * app)).collect();
    for noise in [0.01, 0.05] {
        let mut machine = Pretend::on(machine(2, 2, 4, 1), cpus.clone(), 1.0);
        machine.other = Some((costly, [1, 2].map(|seed| NoisyProgram::new(noise, NOISE, seed))));
        let (_, state) = machine.run(&Shapes::default(), 600.0, APPLIED);
        let trials = state.trialling.learned().map_or(0, |learned| learned.trials);
        assert!(trials > 5 && machine.lost > 0.5, "{noise}: {trials} {}", machine.lost);
        assert!(machine.beyond < 0.4, "{noise}: {} of {}", machine.beyond, machine.lost);
    }
}

/// A metric that is read every 45 s takes a while, and is not given up.
#[test]
fn who_tells_seldom_is_waited_for() {
    let mut machine = Pretend { seldom: Some(45), ..Pretend::new(1.2) };
    let (_, state) = machine.run(&Shapes::default(), 900.0, APPLIED);
    let measures = state.trialling.learned().map(|learned| (learned.situation.measures.len(), learned.trials));
    assert!(measures.is_some_and(|(measures, trials)| measures == 2 && trials > 0), "{measures:?} {:?}", machine.notes);
}
