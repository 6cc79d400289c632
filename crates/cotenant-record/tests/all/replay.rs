//! Replay on recorded placements: the same policy decides the same.

use cotenant_model::action::Outcome;
use cotenant_model::host::Mode;
use cotenant_model::policy::DynPolicy;
use cotenant_model::{CpuSet, Rule, TaskId};
use cotenant_record::replay::{Replayed, outcome_in, replay};
use cotenant_record::testing::{Gather, Role, Scripted, header, record};
use cotenant_record::{Header, RecordedRound, Recording};

/// Three sharers, one of them on package 0; task 2 cannot be moved.
fn recorded(mode: Mode) -> (Header, Vec<RecordedRound>) {
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    let header = header("gather", mode);
    let mut host = Scripted::new(&[sharer(0), sharer(10), sharer(11), Role::new(1, 12)], 8);
    host.denied.insert(TaskId(2));
    let bytes = record(&header, &mut host, &Gather);
    (header, Recording::read(&bytes[..]).unwrap().collect())
}

fn replayed(header: &Header, rounds: &[RecordedRound], policy: &dyn DynPolicy) -> Vec<Replayed> {
    replay(rounds.to_vec(), &[&header.policy], vec![Rule::all(policy, &header.ctx())]).collect()
}

/// The tasks moved by each round's replayed decision.
fn moved(rounds: &[Replayed]) -> Vec<Vec<u32>> {
    rounds.iter().map(|r| r.orders.iter().map(|o| o.action.task().unwrap().0).collect()).collect()
}

/// Promise record/replay: The same policy decides the same again on replay, and Python gets the tables and figures of
/// the command.
#[test]
fn the_same_policy_decides_the_same_again() {
    for mode in [Mode::Advise, Mode::Enforce] {
        let (header, rounds) = recorded(mode);
        let again = replayed(&header, &rounds, &Gather);
        assert_eq!(again.len(), 8);
        for (i, round) in again.iter().enumerate() {
            assert_eq!(Some(&round.decision), round.round.decision.as_ref(), "{mode:?}, round {i}");
            assert_eq!(round.orders, round.round.orders, "{mode:?}, round {i}");
            assert!(round.agrees());
        }
    }
}

#[test]
fn the_recorded_outcomes_are_what_the_policy_remembers() {
    // Task 2 is denied in rounds 0, 2, 4, …: `gather` skips it for one round after each failure.
    let (header, rounds) = recorded(Mode::Enforce);
    let expected: Vec<Vec<u32>> = (0..8)
        .map(|i| {
            if i == 0 {
                vec![1, 2]
            } else if i % 2 == 0 {
                vec![2]
            } else {
                vec![]
            }
        })
        .collect();
    assert_eq!(moved(&replayed(&header, &rounds, &Gather)), expected);
}

#[test]
fn every_round_stands_on_the_recorded_placements() {
    // Under `none` nothing moved and the sharers stay apart, so that `gather` would move both. The next round's
    // placements show that nothing happened, so it skips every second round.
    let (mut header, _) = recorded(Mode::Enforce);
    header.policy = "none".to_owned();
    let sharer = |cpu| Role { sharing: 110_000, ..Role::new(0, cpu) };
    let bytes = record(&header, &mut Scripted::new(&[sharer(0), sharer(10)], 4), &cotenant_policies::None);
    let rounds: Vec<RecordedRound> = Recording::read(&bytes[..]).unwrap().collect();
    let again = replayed(&header, &rounds, &Gather);
    assert_eq!(moved(&again), [vec![1], vec![], vec![1], vec![]]);
    assert!(!again[0].agrees() && again[1].agrees());
    assert_eq!((again[0].only_replayed().collect::<Vec<_>>(), again[0].only_recorded().count()), (vec![0], 0));
    // Conversely, `none` would not have ordered the moves of `gather`.
    let (header, rounds) = recorded(Mode::Enforce);
    let quiet = replayed(&header, &rounds, &cotenant_policies::None);
    assert_eq!(moved(&quiet), vec![Vec::<u32>::new(); 8]);
    assert_eq!(quiet[0].only_recorded().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn another_threshold_decides_otherwise() {
    let (header, rounds) = recorded(Mode::Enforce);
    let mut higher = header.clone();
    higher.machine.thresholds.as_mut().unwrap().coherence_per_cycle = 1.0;
    let again: Vec<Replayed> = replay(rounds, &["gather"], vec![Rule::all(&Gather, &higher.ctx())]).collect();
    assert_eq!(moved(&again), vec![Vec::<u32>::new(); 8]);
    assert!(!again[0].agrees());
}

#[test]
fn an_observed_run_can_be_replayed_too() {
    let (header, rounds) = recorded(Mode::Observe);
    assert!(rounds.iter().all(|r| r.decision.is_none()));
    assert_eq!(moved(&replayed(&header, &rounds, &Gather))[..3], [vec![1, 2], vec![], vec![1, 2]]);
}

#[test]
fn outcomes_are_those_that_the_recording_bears_out() {
    let (_, rounds) = recorded(Mode::Enforce);
    let (first, second) = (&rounds[0], &rounds[1]);
    let orders = &first.orders; // tasks 1 and 2 to package 0; task 2 is denied
    let then = Some(&*second.sample);
    assert_eq!(outcome_in(first, then, &orders[1]), Outcome::Denied, "the recorded run gave the same order");
    let mut other = orders[0].clone();
    other.affinity = CpuSet::parse_list("0-4").unwrap();
    assert_eq!(outcome_in(first, then, &other), Outcome::Applied, "task 1 stands inside that mask by then");
    other.affinity = CpuSet::parse_list("15").unwrap();
    assert_eq!(outcome_in(first, then, &other), Outcome::NotThisMachine, "it does not");
    assert_eq!(outcome_in(first, None, &other), Outcome::NotThisMachine, "nobody knows");
    let mut without = (*second.sample).clone();
    without.tasks.remove(1);
    assert_eq!(outcome_in(first, Some(&without), &other), Outcome::Gone);
}
