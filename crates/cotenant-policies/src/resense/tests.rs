//! The paper's examples (§2.3) by hand, then cases that it leaves open.
//!
//! Promise place/papers: `resense`, `heuristic`, `numad` and `dino` decide as published, at each threshold and in
//! each worked example, and say what they lack.

use super::*;
use cotenant_model::action::{Action, Outcome};
use cotenant_model::machine::Machine;
use cotenant_model::policy::Config;
use cotenant_model::profile::{AppProfile, By, MachineProfile, Score};
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::topology::Topology;

struct Bench {
    topology: Topology,
    machine: MachineProfile,
    apps: BTreeMap<String, AppProfile>,
    config: Config,
}

impl Bench {
    /// `scores` of app0, app1, … by level.
    fn new(topology: Topology, scores: &[&[(&str, f64)]]) -> Self {
        let score = |percent: f64| {
            Score::of(&[(100.0, 100.0 - percent)], By::Cycles, CpuSet::new(), CpuSet::new()).expect("a round")
        };
        let profile = |scores: &&[(&str, f64)]| AppProfile {
            sensitivity: scores.iter().map(|&(level, percent)| (level.to_owned(), score(percent))).collect(),
            ..AppProfile::default()
        };
        let apps = scores.iter().enumerate().map(|(i, scores)| (format!("app{i}"), profile(scores))).collect();
        Self { topology, machine: MachineProfile::default(), apps, config: Config::default() }
    }

    fn ctx(&self) -> Ctx<'_> {
        Ctx { topology: &self.topology, machine: &self.machine, apps: &self.apps, config: &self.config }
    }

    /// Applications with this many threads each. No thread runs yet, so that none has a current place.
    fn view(&self, threads: &[u32]) -> View {
        let all = (0..).zip(threads).flat_map(|(app, &n)| (0..n).map(move |_| app));
        let tasks = (0..).zip(all);
        tasks.fold(ViewBuilder::new(&self.topology), |b, (id, app)| b.task(id, app, 0).nowhere()).view()
    }

    fn decide(&self, view: &View, state: ResenseState, outcomes: &[ActionOutcome]) -> Decision<ResenseState> {
        Resense::default().decide(&self.ctx(), view, outcomes, state, view.at)
    }

    /// The CPUs of each application.
    fn map(&self, threads: &[u32]) -> Vec<String> {
        let view = self.view(threads);
        placed(&view, &self.decide(&view, ResenseState::default(), &[]))
    }

    /// The same with the paper's C₋, a core of every instance.
    fn widest(&self, threads: &[u32]) -> Vec<String> {
        let view = self.view(threads);
        let widest = Resense { settings: ResenseSettings { widest: true }, ..Resense::default() };
        placed(&view, &widest.decide(&self.ctx(), &view, &[], ResenseState::default(), view.at))
    }
}

fn placed(view: &View, decision: &Decision<ResenseState>) -> Vec<String> {
    let mut cpus = vec![CpuSet::new(); view.apps.len()];
    for proposal in &decision.proposals {
        let Action::Place { task, contexts } = &proposal.action else { panic!("only places") };
        let app = view.task(*task).unwrap().info.app;
        let index = view.apps.iter().position(|a| a.id == app).unwrap();
        cpus[index] = cpus[index].or(contexts);
    }
    cpus.iter().map(CpuSet::to_string).collect()
}

fn applied(decision: &Decision<ResenseState>) -> Vec<ActionOutcome> {
    let outcome = |action: &Action| ActionOutcome { action: action.clone(), outcome: Outcome::Applied };
    decision.proposals.iter().map(|p| outcome(&p.action)).collect()
}

/// L2: C0 C1 │ C2 C3, one bus.
fn yorkfield() -> Topology {
    Machine::parse(include_str!("../../../../machines/yorkfield.toml")).unwrap().topology
}

/// Bus: L2 C0 C2 │ L2 C4 C6 ‖ bus: L2 C1 C3 │ L2 C5 C7.
fn harpertown() -> Topology {
    Machine::parse(include_str!("../../../../machines/harpertown-2s.toml")).unwrap().topology
}

#[test]
fn example_a_both_contend() {
    // Two L2s, two applications: case 1. |−9| > |−5|: A first, on as many L2s as there are: C0 and C2.
    // B the same with what is left: C1 and C3.   // L2: A B │ L2: A B
    let bench = Bench::new(yorkfield(), &[&[("l2", -9.0)], &[("l2", -5.0)]]);
    assert_eq!(bench.map(&[2, 2]), ["0,2", "1,3"]);
}

#[test]
fn example_b_the_sharer_is_more_sensitive() {
    // A takes one L2. B would spread, but only the other L2 is left.   // L2: A A │ L2: B B
    let bench = Bench::new(yorkfield(), &[&[("l2", 9.0)], &[("l2", -5.0)]]);
    assert_eq!(bench.map(&[2, 2]), ["0-1", "2-3"]);
    // With |B| > |A|, B spreads, and A cannot share any more. // L2: A B │ L2: A B
    let bench = Bench::new(yorkfield(), &[&[("l2", 5.0)], &[("l2", -9.0)]]);
    assert_eq!(bench.map(&[2, 2]), ["0,2", "1,3"]);
}

#[test]
fn those_who_share_come_first_where_they_gain_more_together() {
    // Four L3s of eight cores. A −7.6 is the most sensitive and is laid over two of them: B and C, which would gain
    // from one L3 each, have the others, and D is torn apart.   // L3: A×4 D×4 │ L3: A×4 D×4 │ L3: B×8 │ L3: C×8
    let scores: [&[(&str, f64)]; 4] = [&[("l3", -7.6)], &[("l3", 6.4)], &[("l3", 6.3)], &[("l3", 1.0)]];
    let bench = Bench::new(machine(4, 1, 8, 1), &scores);
    assert_eq!(bench.map(&[8; 4]), ["0-3,8-11", "16-23", "24-31", "4-7,12-15"]);
    let sum = |bench: &Bench| {
        let view = bench.view(&[8; 4]);
        placed(
            &view,
            &Resense { sum: true, ..Resense::default() }.decide(
                &bench.ctx(),
                &view,
                &[],
                ResenseState::default(),
                view.at,
            ),
        )
    };
    // Together these gain 13.7: they come first, each on an L3 of its own, and A has the one that is left.
    assert_eq!(sum(&bench), ["24-31", "0-7", "8-15", "16-23"]);
    // If they gain less than it loses, nothing changes.
    let scores: [&[(&str, f64)]; 4] = [&[("l3", -7.6)], &[("l3", 3.0)], &[("l3", 2.0)], &[("l3", 1.0)]];
    let bench = Bench::new(machine(4, 1, 8, 1), &scores);
    assert_eq!(sum(&bench), bench.map(&[8; 4]));
}

#[test]
fn who_contends_is_spread_over_two() {
    // Ours, and the baseline of the paper's scores: two of four L3s of two cores.   // L3: A A │ L3: A · │ · · │ · ·
    let bench = Bench::new(machine(4, 1, 2, 1), &[&[("l3", -5.0)]]);
    assert_eq!([2, 3, 4].map(|n| bench.map(&[n]).concat()), ["0,2", "0-2", "0-3"]);
    // Two have no room for five.
    assert_eq!(bench.map(&[5]), ["0-4"]);
    // B −4 goes to the domain with the most room. // L3: A · │ A · │ B · │ B ·
    let both = Bench::new(machine(4, 1, 2, 1), &[&[("l3", -5.0)], &[("l3", -4.0)]]);
    assert_eq!(both.map(&[2, 2]), ["0,2", "4,6"]);
    // Five applications on four L3s: A −5 with E +1 on two of them, then B −4 with D −2, then C +3 on the fewest.
    // L3: A C E │ A C E │ B D · │ B D ·
    let five: [&[(&str, f64)]; 5] = [&[("l3", -5.0)], &[("l3", -4.0)], &[("l3", 3.0)], &[("l3", -2.0)], &[("l3", 1.0)]];
    let bench_of_five = Bench::new(machine(4, 1, 3, 1), &five);
    assert_eq!(bench_of_five.map(&[2; 5]), ["0,3", "6,9", "1,4", "7,10", "2,5"]);
    // The paper's: as wide as may be.
    assert_eq!(bench.widest(&[4]), ["0,2,4,6"]);
}

#[test]
fn on_the_xeon_four_that_contend_have_two_cores_of_every_l3() {
    // Four L3s of eight cores, four applications of eight threads: case 1. By magnitude A −12, B −9, C −7, D −5. §3.3:
    // "all the benchmarks … have negative sensitivity scores …. Therefore, ReSense maps the sibling threads on separate
    // L3 caches". A core of every L3 in turn, twice round for eight threads; then the next one, on what is left.
    // L3: A A B B C C D D │ the same │ the same │ the same
    let level = "l3+memory-controller+node";
    let scores: [&[(&str, f64)]; 4] = [&[(level, -12.0)], &[(level, -9.0)], &[(level, -7.0)], &[(level, -5.0)]];
    let xeon = Machine::parse(include_str!("../../../../machines/xeon-4s-64.toml")).unwrap().topology;
    let bench = Bench::new(xeon, &scores);
    let pairs = |first: u32| [0, 8, 16, 24].map(|l3| format!("{}-{}", l3 + first, l3 + first + 1)).join(",");
    assert_eq!(bench.widest(&[8; 4]), [0, 2, 4, 6].map(pairs));
    // Over two, which is ours: half of an L3 each.   // L3: A A A A C C C C │ the same │ L3: B B B B D D D D │ the same
    assert_eq!(bench.map(&[8; 4]), ["0-3,8-11", "16-19,24-27", "4-7,12-15", "20-23,28-31"]);
}

#[test]
fn example_c_four_applications_in_pairs() {
    // Four applications of two threads on four cores: case 2. By magnitude C +8, A −6, B +4, D −2.
    // C with D, by C's sign on one L2, two threads per core; A with B on what is left.   // L2: C C D D │ L2: A A B B
    let bench = Bench::new(yorkfield(), &[&[("l2", -6.0)], &[("l2", 4.0)], &[("l2", 8.0)], &[("l2", -2.0)]]);
    assert_eq!(bench.map(&[2, 2, 2, 2]), ["2-3", "2-3", "0-1", "0-1"]);
    let view = bench.view(&[2, 2, 2, 2]);
    let reasons: Vec<String> =
        bench.decide(&view, ResenseState::default(), &[]).proposals.iter().map(|p| p.reason.to_string()).collect();
    assert_eq!(reasons[4], "ReSensor: l2, case 2: score +8.0, its threads share; to LLC domain 0");
    assert_eq!(reasons[6], "ReSensor: l2, case 2: with app 2, the more sensitive, its threads share; to LLC domain 0");
}

#[test]
fn example_c_the_most_sensitive_contends() {
    // By magnitude A −8, B +6, C −4, D +2. A with D on both L2s. Then B by its sign on one of them, and C has what is
    // left. L2: A D B B │ L2: A D C C
    let bench = Bench::new(yorkfield(), &[&[("l2", -8.0)], &[("l2", 6.0)], &[("l2", -4.0)], &[("l2", 2.0)]]);
    assert_eq!(bench.map(&[2, 2, 2, 2]), ["0-3", "0-1", "2-3", "0-3"]);
}

#[test]
fn example_d_one_bus_then_apart() {
    // FSB first: one bus. Within it the L2s: apart.   // bus: A · │ A · ‖ bus: · · │ · ·
    let bench = Bench::new(harpertown(), &[&[("bus", 3.0), ("l2", -7.0)]]);
    assert_eq!(bench.map(&[2]), ["0,4"]);
    // Both buses, and one L2 of each: on L2s alone all four were apart.   // bus: A A │ · · ‖ bus: A A │ · ·
    let bench = Bench::new(harpertown(), &[&[("bus", -3.0), ("l2", 7.0)]]);
    assert_eq!(bench.map(&[4]), ["0-3"]);
    let view = bench.view(&[4]);
    let why = bench.decide(&view, ResenseState::default(), &[]).proposals[0].reason.to_string();
    let line = "ReSensor: bus, case 1: score -3.0, its threads spread; l2, case 1: score +7.0, its threads share; to LLC domain 0";
    assert_eq!(why, line);
}

#[test]
fn the_odd_one_is_placed_by_its_own_sign() {
    // Three applications on two L2s: case 2. A −9 with C +1: spread. B +5 alone: shares, but one core of each L2 is
    // left. Threads 2 + 1 + 1 on four cores.   // L2: A C │ L2: A B
    let bench = Bench::new(yorkfield(), &[&[("l2", -9.0)], &[("l2", 5.0)], &[("l2", 1.0)]]);
    let map = bench.map(&[2, 1, 1]);
    assert_eq!(map, ["0,2", "3", "1"]);
}

#[test]
fn unknown_applications_get_what_is_left() {
    // The first is unknown: the second chooses first although it came later.   // L2: B B │ L2: A A
    let mut bench = Bench::new(yorkfield(), &[&[], &[("l2", 1.0)]]);
    bench.apps.remove("app0");
    let view = bench.view(&[2, 2]);
    let decision = bench.decide(&view, ResenseState::default(), &[]);
    assert_eq!(placed(&view, &decision), ["2-3", "0-1"]);
    let note =
        "nothing is known of the sensitivity of 'app0', it gets any free core; `cotenant characterize` measures it";
    assert_eq!(decision.notes, [note]);
    // Without any scores Linux does as well.
    bench.apps.clear();
    assert_eq!(bench.decide(&view, ResenseState::default(), &[]).proposals, []);
    // A score of 0 is known, and neutral.
    let bench = Bench::new(yorkfield(), &[&[("l2", 0.0)]]);
    let decision = bench.decide(&bench.view(&[2]), ResenseState::default(), &[]);
    assert_eq!((decision.proposals.len(), decision.notes.len()), (0, 0));
}

#[test]
fn a_level_of_several_kinds_goes_by_any_of_their_names() {
    for name in ["l3+node", "l3", "node"] {
        let bench = Bench::new(machine(2, 1, 2, 1), &[&[(name, 5.0)]]);
        assert_eq!(bench.map(&[2]), ["0-1"], "{name}");
    }
}

#[test]
fn calm_until_somebody_comes_or_goes() {
    let bench = Bench::new(yorkfield(), &[&[("l2", -9.0)], &[("l2", -5.0)]]);
    let alone = bench.view(&[2]);
    let first = bench.decide(&alone, ResenseState::default(), &[]);
    assert_eq!(placed(&alone, &first), ["0,2"]);
    let second = bench.decide(&alone, first.state.clone(), &applied(&first));
    assert_eq!(second.proposals, [], "nothing changed");
    // B arrives: A stays in place, B gets the rest.
    let both = bench.view(&[2, 2]);
    let third = bench.decide(&both, second.state, &[]);
    assert_eq!(placed(&both, &third), ["", "1,3"]);
    // A thread of B ends: no thread has to move.
    let fewer = bench.view(&[2, 1]);
    let fourth = bench.decide(&fewer, third.state.clone(), &applied(&third));
    assert_eq!(placed(&fewer, &fourth), ["", ""]);
    // A ends: its tasks are dropped.
    let b: Vec<_> = both.tasks.iter().filter(|t| t.info.app.0 == 1).cloned().collect();
    let gone = View { tasks: b, ..both.clone() };
    let fifth = bench.decide(&gone, third.state.clone(), &applied(&third));
    assert!(fifth.proposals.iter().all(|p| p.action.task().and_then(|task| gone.task(task)).is_some()));
}

#[test]
fn first_contexts_come_first_and_crowds_share() {
    // 2 L3s × 2 cores × 2 contexts: 0 1 │ 2 3, second contexts 4 5 │ 6 7.
    let bench = Bench::new(machine(1, 2, 2, 2), &[&[("l3", 5.0)]]);
    assert_eq!(bench.map(&[2]), ["0-1"]);
    assert_eq!(bench.map(&[4]), ["0-3"], "a core of its own goes before sharing");
    assert_eq!(bench.map(&[5]), ["0-4"], "more threads than cores: three on the first L3, two on the second");
    assert_eq!(bench.map(&[9]), ["0-7"]);
}

#[test]
fn masks_and_foreign_load_are_kept_to() {
    let bench = Bench::new(yorkfield(), &[&[("l2", 9.0)]]);
    let view = ViewBuilder::new(&bench.topology).task(0, 0, 0).allowed("3").task(1, 0, 0).view();
    // Task 0 may only use the second L2; task 1 follows it there.
    assert_eq!(placed(&view, &bench.decide(&view, ResenseState::default(), &[])), ["2-3"]);
    // CPU 1 is busy with foreign work: the other L2 has room for both.
    let busy = |b: ViewBuilder, cpu: u32| b.cpu_busy(cpu, if cpu == 1 { 0.9 } else { 0.0 });
    let view =
        (0..4).fold(ViewBuilder::new(&bench.topology).task(0, 0, 2).nowhere().task(1, 0, 2).nowhere(), busy).view();
    assert_eq!(placed(&view, &bench.decide(&view, ResenseState::default(), &[])), ["2-3"]);
}

#[test]
fn one_of_everything_is_no_choice() {
    let bench = Bench::new(machine(1, 1, 4, 1), &[&[("l3", 9.0)]]);
    let decision = bench.decide(&bench.view(&[2]), ResenseState::default(), &[]);
    assert_eq!(decision.proposals, []);
    assert!(decision.notes[1].contains("nothing to choose"), "{:?}", decision.notes);
}

#[test]
fn of_equal_places_the_one_where_a_thread_is() {
    // Node 0: L3s 0-2 │ 3-5, node 1: 6-8 │ 9-11. A is on both L3s of node 1, B on one of node 0.
    let bench = Bench::new(machine(2, 2, 3, 1), &[&[("l3", -4.0), ("node", 2.0)], &[("l3", 3.0)]]);
    let tasks = [(0, 0, 11), (1, 0, 8), (2, 1, 4), (3, 1, 5)];
    let view =
        tasks.into_iter().fold(ViewBuilder::new(&bench.topology), |b, (id, app, cpu)| b.task(id, app, cpu)).view();
    // A shares a node and spreads over its L3s; B is neutral about nodes and shares an L3: all stay.
    assert_eq!(placed(&view, &bench.decide(&view, ResenseState::default(), &[])), ["8,11", "4-5"]);
}

/// By largest remainder: of 7 by 3:2:1 the whole parts are 3, 2 and 1, and 3/6, 2/6 and 1/6 of a thread are left.
#[test]
fn threads_are_divided_by_weight() {
    for (number, weights, expected) in [
        (7, vec![3, 2, 1], vec![4, 2, 1]),
        (5, vec![1, 1], vec![3, 2]),
        (2, vec![1, 1, 1], vec![1, 1, 0]),
        (5, vec![1, 3], vec![1, 4]),
        (8, vec![2, 2], vec![4, 4]),
    ] {
        assert_eq!(resensor::shares(number, &weights), expected, "{number} {weights:?}");
    }
}
