//! If the kernel moves memory after threads, threads rarely change their memory node: compared before and after, with
//! settled memory; never without knowing the place of memory.

use super::Shapes;
use super::null_tests::{NOISE, NoisyProgram};
use super::settings::ShapesSettings;
use super::tests::Pretend;
use cotenant_model::testing::machine;
use cotenant_model::{CpuId, Outcome, Time};

const APPLIED: fn(Time) -> Outcome = |_| Outcome::Applied;

/// The node of each thread.
fn nodes(machine: &Pretend) -> Vec<Option<usize>> {
    machine.cpus.iter().map(|cpu| machine.topology.node_of(*cpu)).collect()
}

/// Two nodes, each with one cache: the faster mapping takes threads to the other node, and nothing tells where memory
/// is.
/// Holds place/shapes.
#[test]
fn what_is_faster_on_other_nodes_is_not_tried_blindly() {
    for (numa_balancing, fastest) in [(false, 1.2), (true, 1.0)] {
        let mut machine = Pretend { numa_balancing, ..Pretend::new(1.2) };
        let before = nodes(&machine);
        let (speed, state) = machine.run(&Shapes::default(), 120.0, APPLIED);
        assert!((speed - fastest).abs() < 1e-9, "{speed} {:?}", state.trialling.phase());
        assert_eq!(nodes(&machine) == before, numa_balancing, "{:?}", machine.cpus);
        let says = machine.notes.iter().filter(|(_, note, _)| note.contains("each thread stays on its memory node"));
        assert_eq!(says.count(), usize::from(numa_balancing), "{:?}", machine.notes);
    }
}

/// Two caches on each node, in which both programs run; they are faster where each has a cache of its own.
/// Holds place/shapes.
#[test]
fn what_is_faster_on_the_same_nodes_is_found() {
    let apart = |machine: &Pretend| {
        let cache = |cpu: &CpuId| machine.topology.llc_of(*cpu);
        let [a, b] = [&machine.cpus[..4], &machine.cpus[4..]];
        let own = a.iter().filter(|cpu| b.iter().all(|other| cache(other) != cache(cpu)));
        1.0 + 0.1 * own.count() as f64
    };
    let programs = [1, 2].map(|seed| NoisyProgram::new(0.01, NOISE, seed));
    let cpus = vec![0, 2, 4, 6, 1, 3, 5, 7];
    let mut machine =
        Pretend { numa_balancing: true, other: Some((apart, programs)), ..Pretend::on(machine(2, 2, 2, 1), cpus, 1.0) };
    let before = nodes(&machine);
    let (speed, state) = machine.run(&Shapes::default(), 120.0, APPLIED);
    assert!((speed - 1.4).abs() < 1e-9, "{speed} {:?}", state.trialling.phase());
    assert_eq!(nodes(&machine), before);
}

/// Programs ran before their fastest shape was known, or begin anew: what has just begun has no memory to leave.
/// Holds place/shapes.
#[test]
fn a_known_shape_on_other_nodes_is_for_what_has_just_begun() {
    let known = Pretend::new(1.2).run(&Shapes::default(), 60.0, APPLIED).1.memory().to_vec();
    assert_eq!(known.len(), 1);
    let policy = Shapes::new(ShapesSettings { known, ..ShapesSettings::default() });
    for (old, fastest) in [(true, 1.0), (false, 1.2)] {
        let mut machine = Pretend { numa_balancing: true, old, ..Pretend::new(1.2) };
        let before = nodes(&machine);
        let (speed, state) = machine.run(&policy, 60.0, APPLIED);
        assert!((speed - fastest).abs() < 1e-9, "{speed} {:?}", state.trialling.phase());
        assert_eq!(nodes(&machine) == before, old);
    }
}

/// The kernel moves threads to other nodes itself, while nothing is placed: that is where they stand from then on.
/// Holds place/shapes.
#[test]
fn threads_that_the_kernel_takes_along_are_not_taken_back() {
    let mut machine = Pretend { numa_balancing: true, ..Pretend::new(1.2) };
    let (_, state) = machine.run(&Shapes::default(), 60.0, APPLIED);
    machine.cpus.swap(0, 1);
    let moved = nodes(&machine);
    machine.go_on(&Shapes::default(), state, 120.0, APPLIED);
    assert_eq!(nodes(&machine), moved);
    assert_ne!(machine.cpus[0], CpuId(0));
}

/// Half of each program on each node, with its memory.
fn with_memory(together: f64, follows_s: f64) -> Pretend {
    let machine = Pretend { numa_balancing: true, follows_s, ..Pretend::new(together) };
    let memory = machine.cpus.iter().map(|cpu| machine.topology.node_of(*cpu).unwrap() as f64).collect();
    Pretend { memory, ..machine }
}

/// Holds place/shapes.
#[test]
fn what_is_faster_on_other_nodes_is_kept_once_memory_has_followed() {
    let mut machine = with_memory(1.2, 8.0);
    let (_, state) = machine.run(&Shapes::default(), 300.0, APPLIED);
    let learned = state.trialling.learned().unwrap();
    assert_eq!((&learned.incumbent.counts[0][..], learned.kept), (&[4, 0][..], 1), "{:?}", machine.notes);
    assert!(learned.standing.iter().all(|gain| (gain - 1.2_f64.ln()).abs() < 0.02), "{:?}", learned.standing);
    assert_eq!(state.memory().len(), 1);
    assert!(machine.beyond < 0.0, "{}", machine.beyond);
}

/// Holds place/shapes.
#[test]
fn what_is_slower_on_other_nodes_is_given_up_and_memory_comes_back() {
    let mut machine = with_memory(0.95, 8.0);
    let (before, memory) = (nodes(&machine), machine.memory.clone());
    let (speed, state) = machine.run(&Shapes::default(), 900.0, APPLIED);
    assert!((speed - 1.0).abs() < 1e-9 && nodes(&machine) == before && machine.memory == memory, "{speed}");
    assert!(state.trialling.learned().unwrap().is_kernel);
    let tried = state.last_tried().unwrap();
    assert!((tried.gain + 0.05).abs() < 0.01 && !tried.kept, "{tried:?}");
    assert!(machine.beyond < 0.0, "{}", machine.beyond);
}

/// How long memory takes is not known before.
/// Holds place/shapes.
#[test]
fn a_trial_that_costs_too_much_is_given_up_and_may_cost_more_the_next_time() {
    let mut machine = Pretend { far: 0.5, ..with_memory(1.2, 100.0) };
    let (before, memory) = (nodes(&machine), machine.memory.clone());
    let (_, state) = machine.run(&Shapes::default(), 300.0, APPLIED);
    assert!(nodes(&machine) == before && machine.memory == memory, "{:?}", machine.notes);
    let tried = state.last_tried().unwrap();
    assert!(!tried.kept && tried.interval.is_none(), "{tried:?}");
    let (speed, _) = machine.go_on(&Shapes::default(), state, 500.0, APPLIED);
    assert!((speed - 1.2).abs() < 1e-9, "{speed} {:?}", machine.notes);
    assert!(machine.beyond < 1.0, "{}", machine.beyond);
}

/// The programs do something else later, and are faster where the kernel would have them.
/// Holds place/shapes.
#[test]
fn what_is_not_good_any_more_is_given_back_with_its_memory() {
    let mut machine = with_memory(1.2, 8.0);
    machine.spreads = Some(machine.cpus.clone());
    let (before, memory) = (nodes(&machine), machine.memory.clone());
    let (_, state) = machine.run(&Shapes::default(), 300.0, APPLIED);
    assert_ne!(nodes(&machine), before);
    machine.together = 0.85;
    machine.go_on(&Shapes::default(), state, 600.0, APPLIED);
    assert!(nodes(&machine) == before && machine.memory == memory, "{:?}", machine.notes);
    assert!(machine.notes.iter().any(|(_, note, _)| note.starts_with("given back")), "{:?}", machine.notes);
}
