//! Knowledge from earlier runs, and the programs to which it applies.

use super::moves::CandidateKind;
use super::null_tests::{NOISE, NoisyProgram};
use super::settings::{KnownGroup, KnownShape, ShapesSettings};
use super::shape::{Doubling, Shape};
use super::tests::Pretend;
use super::trialling::ShapesPhase;
use super::{Shapes, ShapesState};
use cotenant_model::testing::machine;
use cotenant_model::{Outcome, Time};

const APPLIED: fn(Time) -> Outcome = |_| Outcome::Applied;

/// The result of a run: both programs apart.
fn learnt(machine: &mut Pretend) -> ShapesState {
    let (speed, state) = machine.run(&Shapes::default(), 60.0, APPLIED);
    assert!(speed > 1.19 && state.memory().len() == 1, "{speed}");
    state
}

/// The policy of a later run.
fn knowing(known: Vec<KnownShape>) -> Shapes {
    Shapes::new(ShapesSettings { known, ..ShapesSettings::default() })
}

fn group(app: &str, threads: usize) -> KnownGroup {
    KnownGroup { app: app.to_owned(), part: String::new(), threads }
}

/// Those that have just begun begin in it; those that ran before are not moved before they were measured, and then it
/// is the first candidate.
#[test]
fn what_is_known_must_win_a_trial_where_programs_ran_before() {
    let policy = knowing(learnt(&mut Pretend::new(1.2)).memory().to_vec());
    let mut machine = Pretend::new(1.2);
    let (speed, state) = machine.run(&policy, 2.0, APPLIED);
    assert!(speed > 1.19 && state.trialling.has_begun(), "{speed}");
    let mut machine = Pretend { old: true, ..Pretend::new(1.2) };
    let (_, state) = machine.run(&policy, 3.0, APPLIED);
    assert_eq!((&machine.cpus, machine.reasons.len()), (&Pretend::new(1.2).cpus, 0));
    let first = state.trialling.learned().and_then(|learned| learned.first.as_ref());
    assert_eq!(first.map(|first| first.kind), Some(CandidateKind::Known));
    let (speed, state) = machine.go_on(&policy, state, 20.0, APPLIED);
    assert!(speed > 1.19 && state.trialling.learned().is_some_and(|learned| learned.kept == 1), "{speed}");
}

/// Threads that are best in turn on one CPU beside free ones begin there, and stay: nothing else is better.
#[test]
fn who_leaves_cpus_idle_begins_so() {
    let shares = |machine: &Pretend| if machine.cpus[0] == machine.cpus[1] { 1.5 } else { 1.0 };
    let new = || Pretend {
        other: Some((shares, [1, 2].map(|seed| NoisyProgram::new(0.01, NOISE, seed)))),
        ..Pretend::on(machine(1, 1, 4, 1), vec![0, 1, 2, 3], 1.0)
    };
    let packed =
        Shape { counts: vec![vec![2]; 2], doubling: Doubling { order: vec![0, 1], pair: None, packed: Some(0) } };
    let policy = knowing(vec![KnownShape::new(&[group("a", 2), group("b", 2)], &packed)]);
    for seconds in [1.0, 4.0, 20.0] {
        let (speed, state) = new().run(&policy, seconds, APPLIED);
        assert!(speed > 1.49, "{seconds}: {:?}", state.trialling.phase());
    }
    let mut machine = new();
    let (_, state) = machine.run(&policy, 60.0, APPLIED);
    assert_eq!(
        state.trialling.learned().map(|learned| (&learned.incumbent, learned.is_kernel)),
        Some((&packed, false))
    );
    assert!(machine.lost < -0.9 * 0.5 * 60.0, "{}", machine.lost);
}

/// All threads are others three times a second.
#[test]
fn whoever_is_gone_is_forgotten() {
    let mut machine = Pretend::new(1.2);
    let mut state = learnt(&mut machine);
    let mut most = 0;
    for round in 1..100 {
        (machine.first, machine.cpus) = (8 * round, Pretend::new(1.2).cpus);
        state = machine.go_on(&Shapes::default(), state, 0.3, APPLIED).1;
        most = most.max(state.memory.born().len());
    }
    assert!((6..=8).contains(&most), "{most}");
}

/// Ids are never given twice, so that of a service that begins anew may be on the other side of its neighbour's.
/// Names of containers and of programs hold slashes.
#[test]
fn programs_are_known_by_their_names() {
    for names in [["a", "b"], ["shop/web-1/web", "/usr/bin/b"]] {
        let mut machine = Pretend { names: names.map(String::from), ..Pretend::new(1.2) };
        let state = learnt(&mut machine);
        for swapped in [false, true] {
            (machine.first, machine.cpus, machine.swapped) = (8, Pretend::new(1.2).cpus, swapped);
            let (_, state) = machine.go_on(&Shapes::default(), state.clone(), 2.0, APPLIED);
            assert!(state.trialling.has_begun(), "{names:?} {swapped}");
        }
    }
}

#[test]
fn a_known_shape_is_that_of_the_groups_in_any_order() {
    let shape = Shape {
        counts: vec![vec![3, 0], vec![0, 2], vec![1, 1]],
        doubling: Doubling { order: vec![1, 0, 2], pair: Some((0, 2)), packed: Some(1) },
    };
    let groups = [group("b", 3), group("c", 2), group("a", 2)];
    let known = KnownShape::new(&groups, &shape);
    assert_eq!(known.groups, [group("a", 2), group("b", 3), group("c", 2)]);
    assert_eq!(known.of(&groups), Some(shape.clone()));
    assert_eq!(known.of(&[group("b", 3), group("c", 2)]), None);
    let other = known.of(&[group("c", 2), group("a", 2), group("b", 3)]).unwrap();
    assert_eq!(other.counts, [[0, 2], [1, 1], [3, 0]]);
    assert_eq!(other.doubling, Doubling { order: vec![0, 2, 1], pair: Some((2, 1)), packed: Some(0) });
    // As written now, and by earlier releases: then in the order of a run.
    let read = |text: serde_json::Value| serde_json::from_value::<KnownShape>(text).unwrap();
    assert_eq!(read(serde_json::to_value(&known).unwrap()), known);
    let old = serde_json::json!({ "groups": [["b", 3], ["c", 2], ["a", 2]], "shape": shape });
    assert_eq!(read(old), known);
    let damaged = serde_json::json!({ "groups": [["b", 3]], "shape": shape });
    assert_eq!(read(damaged).of(&[group("b", 3)]), None);
}

/// A domain of four cores is no place for eight threads.
#[test]
fn what_has_no_room_is_not_known() {
    let full = Shape { counts: vec![vec![4, 0]; 2], doubling: Doubling::default() };
    let policy = knowing(vec![KnownShape::new(&[group("a", 4), group("b", 4)], &full)]);
    let (_, state) = Pretend { old: true, ..Pretend::new(1.2) }.run(&policy, 2.0, APPLIED);
    assert_eq!(state.trialling.learned().unwrap().first, None);
}

/// It does not wait for ever for what never stands.
#[test]
fn where_nobody_may_be_placed_it_goes_on() {
    let policy = knowing(learnt(&mut Pretend::new(1.2)).memory().to_vec());
    let (_, state) = Pretend::new(1.2).run(&policy, 20.0, |_| Outcome::Denied);
    assert!(
        matches!(state.trialling.phase(), ShapesPhase::Rest { .. }) && state.outgoing.placed().wanted.is_empty(),
        "{:?}",
        state.trialling.phase()
    );
}
