//! Worked by hand. Misses per 1,000 instructions: turtle `t` 1, devil `d` 50, super-devil `s` 200.
//!
//! Holds place/papers.

use super::*;
use cotenant_model::action::{Action, Outcome};
use cotenant_model::policy::Config;
use cotenant_model::profile::MachineProfile;
use cotenant_model::testing::{ViewBuilder, machine, moves, pages};

/// A thread: class letter, process, CPU.
type Drawn = (char, u32, u32);

struct Bench {
    topology: Topology,
    state: DinoState,
    last: Vec<ActionOutcome>,
    at_s: u64,
}

fn bench(topology: Topology) -> Bench {
    Bench { topology, state: DinoState::default(), last: Vec::new(), at_s: 0 }
}

fn counted(view: ViewBuilder, class: char) -> ViewBuilder {
    let misses = match class {
        't' => 1_000,
        'd' => 50_000,
        's' => 200_000,
        _ => return view.signal(Signal::Instructions, 0).signal(Signal::LlcMisses, 0), // asleep
    };
    view.signal(Signal::Instructions, 1_000_000).signal(Signal::LlcMisses, misses)
}

impl Bench {
    fn draw(&self, threads: &[Drawn]) -> ViewBuilder {
        (0..).zip(threads).fold(ViewBuilder::new(&self.topology), |view, (id, &(class, app, cpu))| {
            counted(view.task(id, app, cpu), class)
        })
    }

    /// The next look one second later, with every move carried out.
    fn look(&mut self, view: ViewBuilder) -> Decision<DinoState> {
        self.at_s += 1;
        let view = view.at(Time::from_secs(self.at_s)).view();
        let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
        let ctx = Ctx { topology: &self.topology, machine: &machine, apps: &apps, config: &config };
        let decision = Dino.decide(&ctx, &view, &self.last, std::mem::take(&mut self.state), view.at);
        self.state = decision.state.clone();
        let done = |action: &Action| ActionOutcome { action: action.clone(), outcome: Outcome::Applied };
        self.last = decision.proposals.iter().map(|p| done(&p.action)).collect();
        decision
    }
}

#[test]
fn classes_are_cut_at_2_and_100_per_1000() {
    let class = |per_1000: f64| Class::of(per_1000 / 1000.0);
    assert_eq!([class(0.0), class(1.999)], [Class::Turtle; 2]);
    assert_eq!([class(2.0), class(100.0)], [Class::Devil; 2]);
    assert_eq!(class(100.1), Class::SuperDevil);
}

#[test]
fn each_class_is_spread_evenly() {
    // Two nodes of four: both super-devils, both devils and both turtles are on node 0. One of each goes to node 1:
    // tasks seen on a node stay while it has room for their class; ids decide.
    let mut bench = bench(machine(2, 1, 4, 1));
    let drawn = [('s', 0, 0), ('s', 1, 1), ('d', 2, 2), ('d', 3, 3), ('t', 4, 0), ('t', 5, 1)];
    let decision = bench.look(bench.draw(&drawn));
    assert_eq!(moves(&decision), "0→0-3 1→4-7 2→0-3 3→4-7 4→0-3 5→4-7");
    assert_eq!(
        decision.proposals[1].reason.to_string(),
        "intensity: llc_misses 0.2000/instruction > 0.1000/instruction; super-devils are spread evenly: to node 1"
    );
    assert_eq!(pages(&decision), "1:1 3:1 5:1", "memory goes with those that leave their node");
    assert_eq!(decision.wake_at, Time::from_secs(2));
    assert_eq!(moves(&bench.look(bench.draw(&drawn))), "", "no class changed: nothing moves");
}

#[test]
fn what_is_left_over_goes_where_the_load_is_lowest() {
    // Three super-devils and three devils on two nodes: 2 + 1 and 1 + 2.
    let drawn = [('s', 0, 0), ('s', 1, 0), ('s', 2, 0), ('d', 3, 0), ('d', 4, 0), ('d', 5, 0)];
    let mut bench = bench(machine(2, 1, 4, 1));
    assert_eq!(moves(&bench.look(bench.draw(&drawn))), "0→0-3 1→0-3 2→4-7 3→0-3 4→4-7 5→4-7");
}

#[test]
fn threads_of_a_process_stay_together_as_far_as_the_spread_allows() {
    // Two processes of two devils each, crosswise: each node gets two devils, and each process a node.
    let mut bench = bench(machine(2, 1, 4, 1));
    let drawn = [('d', 7, 0), ('d', 8, 1), ('d', 7, 4), ('d', 8, 5)];
    assert_eq!(moves(&bench.look(bench.draw(&drawn))), "0→0-3 1→4-7 2→0-3 3→4-7");
    // One process of four devils is split, since intensity goes first; its two turtles go with their halves.
    let mut bench = self::bench(machine(2, 1, 4, 1));
    let drawn = [('d', 7, 0), ('d', 7, 1), ('d', 7, 2), ('d', 7, 3), ('t', 7, 0), ('t', 7, 0)];
    assert_eq!(moves(&bench.look(bench.draw(&drawn))), "0→0-3 1→0-3 2→4-7 3→4-7 4→0-3 5→4-7");
}

#[test]
fn a_class_changes_when_seven_of_ten_looks_agree() {
    let mut bench = bench(machine(2, 1, 2, 1));
    let with = |first: char| [(first, 0, 0), ('d', 1, 1), ('d', 2, 2), ('t', 3, 3)];
    bench.look(bench.draw(&with('t')));
    // Domain 0 has thread 1, the devil, and a turtle; thread 0 looks like a super-devil from now on, with one
    // exception.
    for look in 1..=8 {
        let decision = bench.look(bench.draw(&with(if look == 3 { 't' } else { 's' })));
        let state = &decision.state;
        let class = state.class(TaskId(0)).unwrap();
        assert_eq!(class, if look < 8 { Class::Turtle } else { Class::SuperDevil }, "look {look}");
    }
}

#[test]
fn only_as_many_move_as_a_change_takes() {
    // Nodes: s d | s d, all in place. Thread 0 becomes a turtle: the other super-devil, both devils and thread 0 stay.
    let mut bench = bench(machine(2, 1, 2, 1));
    let with = |first: char| [(first, 0, 0), ('d', 1, 1), ('s', 2, 2), ('d', 3, 3)];
    assert_eq!(moves(&bench.look(bench.draw(&with('s')))), "0→0-1 1→0-1 2→2-3 3→2-3");
    for _ in 0..10 {
        assert_eq!(moves(&bench.look(bench.draw(&with('t')))), "");
    }
    // A new super-devil goes to the node without one.
    let five = |bench: &Bench| counted(bench.draw(&with('t')).task(9, 9, 3), 's');
    assert_eq!(moves(&bench.look(five(&bench))), "9→0-1");
}

#[test]
fn sleepers_keep_their_class_and_the_unknown_are_left_alone() {
    let mut bench = bench(machine(2, 1, 2, 1));
    bench.look(bench.draw(&[('d', 0, 0), ('d', 1, 1)]));
    let decision = bench.look(bench.draw(&[('d', 0, 0), ('.', 1, 2), ('.', 2, 0)]));
    assert_eq!(moves(&decision), "", "the second one is still a devil; the third never ran");
}

#[test]
fn without_counters_it_says_so_and_does_nothing() {
    let mut bench = bench(machine(2, 1, 2, 1));
    let view = ViewBuilder::new(&bench.topology).task(1, 0, 0).signal(Signal::Instructions, 1_000);
    let decision = bench.look(view);
    assert!(decision.proposals.is_empty());
    assert_eq!(decision.notes.len(), 1);
    assert!(decision.notes[0].contains("no task has the signal llc_misses"), "{:?}", decision.notes);
}

#[test]
fn with_one_node_the_caches_are_the_domains() {
    let mut bench = bench(machine(1, 2, 2, 1));
    let decision = bench.look(bench.draw(&[('d', 0, 0), ('d', 1, 1)]));
    assert_eq!(moves(&decision), "0→0-1 1→2-3");
    let mut bench = self::bench(machine(1, 1, 2, 1));
    let decision = bench.look(bench.draw(&[('d', 0, 0)]));
    assert!(decision.proposals.is_empty() && decision.notes[0].contains("one memory domain"));
}

#[test]
fn who_has_no_choice_goes_where_the_load_is_lowest() {
    // Domains of one, three and four CPUs, and eight devils, four of which may only use the first two domains, with
    // shares one and three. Of the other four, one goes to the first of equals, and three to the domain where 3, 4 and
    // 5 of 3 are less than 2 of 1.
    let domains = ["0", "1-3", "4-7"].map(|list| CpuSet::parse_list(list).unwrap());
    let allowed = CpuSet::parse_list("0-3").unwrap();
    let thread = |i| Thread { task: TaskId(i), pid: i, class: 1, home: None, at: None, allowed: &allowed };
    let given = spread::spread(&domains, &(0..8).map(thread).collect::<Vec<_>>());
    assert_eq!([0, 1, 2].map(|domain| given.iter().filter(|given| **given == Some(domain)).count()), [2, 6, 0]);
}

/// Holds undo/allowed-cpus.
#[test]
fn nobody_is_placed_where_it_may_not_run() {
    let mut bench = bench(machine(2, 1, 2, 1));
    let view = bench.draw(&[('s', 0, 0)]).allowed("1").task(1, 1, 1);
    let decision = bench.look(counted(view, 's').allowed("0-1"));
    assert_eq!(moves(&decision), "0→1 1→0-1", "both are confined to node 0");
}
