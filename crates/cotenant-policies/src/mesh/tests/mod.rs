mod distances;

use super::board::{Cost, Seat};
use super::*;
use cotenant_model::action::{Action, Outcome, Proposal};
use cotenant_model::ids::CpuId;
use cotenant_model::machine::Machine;
use cotenant_model::policy::Config;
use cotenant_model::profile::{AppProfile, MachineProfile};
use cotenant_model::signal::Signal;
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::topology::Topology;
use proptest::prelude::*;

fn tilepro() -> Topology {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/tilepro64.toml");
    Machine::parse(&std::fs::read_to_string(path).unwrap()).unwrap().topology
}

/// A guest with these shares; earlier tasks weigh more.
fn guest(task: u32, shares: &[f64]) -> Guest {
    let demand = Demand { shares: shares.to_vec(), rate: 1.0, counted: false };
    let allowed = (0..64).map(CpuId).collect();
    Guest { task: TaskId(task), allowed, demand, weight: 1.0, home: None, brings: false }
}

/// One core per row of distances.
fn board(rows: &[&[f64]]) -> Board {
    let seat = |row| Seat { cpu: CpuId(row as u32), rank: 0, coord: None, row, domain: row };
    Board {
        seats: (0..rows.len()).map(seat).collect(),
        rows: rows.iter().map(|row| row.to_vec()).collect(),
        nodes: None,
    }
}

fn cpus(board: &Board, seating: &Seating) -> Vec<u32> {
    seating.values().map(|&seat| board.seats[seat].cpu.0).collect()
}

/// The tile at column x, row y.
fn tile(x: u32, y: u32) -> u32 {
    8 * y + x
}

/// Holds place/mesh.
#[test]
fn weighted_coordinates_by_hand() {
    // Controllers at (0,0), (7,0), (0,7), (7,7).
    let t = tilepro();
    let board = Board::new(&t, t.usable());
    let seat = |shares: &[f64]| cpus(&board, &search::weighted(&board, &[guest(1, shares)]))[0];
    assert_eq!(seat(&[1.0, 0.0, 0.0, 0.0]), tile(0, 0));
    // x = 7·(¼ + ¼) = 3.5, rounded to 4; y alike.
    assert_eq!(seat(&[0.25; 4]), tile(4, 4));
    // x = 7·0.3 = 2.1; y = 7·0.2 = 1.4.
    assert_eq!(seat(&[0.5, 0.3, 0.2, 0.0]), tile(2, 1));
}

/// Holds place/mesh.
#[test]
fn who_comes_late_sits_beside() {
    let t = tilepro();
    let board = Board::new(&t, t.usable());
    // All want the corner at (0,0). Cost rises with distance: its two neighbours are equal, the lower coordinate first;
    // then the diagonal costs 2, like (0,2) and (2,0), which those neighbours reveal.
    let guests: Vec<Guest> = (0..6).map(|i| guest(i, &[1.0, 0.0, 0.0, 0.0])).collect();
    let found = cpus(&board, &search::weighted(&board, &guests));
    assert_eq!(found, [tile(0, 0), tile(0, 1), tile(1, 0), tile(0, 2), tile(1, 1), tile(2, 0)]);
    // 70 % to (0,0), 30 % to (7,7): every tile of the rectangle between them costs 0.7·d + 0.3·(14 − d), least at the
    // corner.
    let skewed = [guest(0, &[0.7, 0.0, 0.0, 0.3]), guest(1, &[0.7, 0.0, 0.0, 0.3])];
    // The weighted mean is (2.1, 2.1); downhill from there are (1,2) and (2,1).
    assert_eq!(cpus(&board, &search::weighted(&board, &skewed)), [tile(2, 2), tile(1, 2)]);
    // Brute force reaches the corner: 0.3·14 = 4.2 there, 0.7·4 + 0.3·10 = 5.8 at (2,2).
    assert_eq!(cpus(&board, &search::brute_force(&board, &skewed)), [tile(0, 0), tile(1, 0)]);
}

#[test]
fn together_they_sit_nearer_than_in_turn() {
    // A line of two cores and two nodes: the first task is nearly indifferent, and takes the place that the second
    // needs.
    let board = board(&[&[1.0, 3.0], &[2.0, 9.0]]);
    let (first, second) = (guest(1, &[1.0, 0.0]), guest(2, &[0.0, 1.0]));
    let guests = [first, second];
    // One by one: 1 + 9 = 10. Together: 2 + 3 = 5.
    assert_eq!(cpus(&board, &search::brute_force(&board, &guests)), [0, 1]);
    let (seating, exact) = search::assignment(&board, &guests);
    assert!(exact);
    assert_eq!(cpus(&board, &seating), [1, 0]);
    assert_eq!(board.cost(&guests, &seating), Cost { unseated: 0, doubled: 0, distance: 5.0 });
}

#[test]
fn a_hundred_and_twenty_eight_tasks_are_assigned_exactly() {
    let t = machine(2, 8, 8, 1);
    let board = Board::new(&t, t.usable());
    for (tasks, expected) in [(128, true), (129, false)] {
        let guests: Vec<Guest> =
            (0..tasks).map(|i| Guest { allowed: t.usable().clone(), ..guest(i, &[1.0, 0.0]) }).collect();
        let (seating, exact) = search::assignment(&board, &guests);
        assert_eq!((exact, seating.len()), (expected, 128));
    }
}

#[test]
fn cores_are_doubled_last_and_masks_are_kept() {
    // Two packages of two cores with two contexts each: CPUs 0 1 | 2 3, siblings + 4.
    let t = machine(2, 1, 2, 2);
    let board = Board::new(&t, t.usable());
    let near_first: Vec<Guest> = (0..5).map(|i| guest(i, &[1.0, 0.0])).collect();
    assert_eq!(cpus(&board, &search::brute_force(&board, &near_first)), [0, 1, 2, 3, 4]);
    let mut bound = guest(0, &[1.0, 0.0]);
    bound.allowed = CpuSet::parse_list("3,7").unwrap();
    for seating in [search::brute_force(&board, &[bound.clone()]), search::assignment(&board, &[bound.clone()]).0] {
        assert_eq!(cpus(&board, &seating), [3]);
    }
    let elsewhere = [Guest { allowed: CpuSet::parse_list("9").unwrap(), ..bound.clone() }];
    assert!(search::assignment(&board, &elsewhere).0.is_empty(), "who may use none of these CPUs gets none");
    let three = [bound.clone(), bound.clone(), bound];
    let (seating, _) = search::assignment(&board, &three);
    assert_eq!(board.cost(&three, &seating).unseated, 1, "two contexts for three tasks");
}

/// Three cores, all equally far from each other's memory, the first with two contexts. The second guest may not use the
/// third core, so it pushes the third guest there: both are far from their memory. No core is shared: one rank costs
/// more than all distances together. `given` are a policy's proposals as task → CPU.
#[test]
fn no_distance_is_worth_a_shared_core() {
    let mut board = board(&[&[1.0, 2.0, 2.0], &[2.0, 1.0, 2.0], &[2.0, 2.0, 1.0]]);
    board.seats.push(Seat { cpu: CpuId(3), rank: 1, coord: None, row: 0, domain: 0 });
    let near = |task, node: usize| guest(task, &std::array::from_fn::<f64, 3, _>(|i| f64::from(u8::from(i == node))));
    let mut guests = [near(1, 0), near(2, 0), near(3, 1)];
    guests[1].allowed = [0, 1, 3].into_iter().map(CpuId).collect();
    let (seating, exact) = search::assignment(&board, &guests);
    assert!(exact);
    assert_eq!(board.cost(&guests, &seating).doubled, 0, "{:?}", cpus(&board, &seating));
}

fn decide(
    t: &Topology,
    policy: Mesh,
    apps: &BTreeMap<String, AppProfile>,
    view: &View,
) -> (Vec<(u32, u32)>, Decision<MeshState>) {
    let (machine, config) = (MachineProfile::default(), Config::default());
    let ctx = Ctx { topology: t, machine: &machine, apps, config: &config };
    let decision = policy.decide(&ctx, view, &[], MeshState::default(), view.at);
    let place = |action: &Action| match action {
        Action::Place { task, contexts } => (task.0, contexts.first().unwrap().0),
        other => panic!("{other:?}"),
    };
    (decision.proposals.iter().map(|p| place(&p.action)).collect(), decision)
}

#[test]
fn tasks_go_to_their_memory_and_the_reason_says_how_far() {
    let t = machine(2, 1, 2, 1);
    let view = ViewBuilder::new(&t).task(1, 0, 0).pages(&[(0, 100), (1, 300)]).view();
    let (given, decision) = decide(&t, Mesh::BruteForce, &BTreeMap::new(), &view);
    assert_eq!(given, [(1, 2)]);
    // 0.25·10 + 0.75·21 = 18.25 where it is, 0.25·21 + 0.75·10 = 12.75 there.
    let reason = decision.proposals[0].reason.to_string();
    assert_eq!(reason, "brute-force: 75 % of its accesses go to node 1; mean distance 18.2 → 12.8, to CPU 2");
    assert_eq!(decide(&t, Mesh::Overhead, &BTreeMap::new(), &view).0, []);
}

#[test]
fn what_is_accessed_outranks_where_pages_are() {
    let t = machine(2, 1, 2, 1);
    let mut view = ViewBuilder::new(&t).task(1, 0, 0).pages(&[(0, 100), (1, 300)]).view();
    view.tasks[0].touches_by_node = Some(vec![(cotenant_model::NodeId(0), 80.0), (cotenant_model::NodeId(1), 20.0)]);
    assert_eq!(decide(&t, Mesh::BruteForce, &BTreeMap::new(), &view).0, [(1, 0)], "it is held where it is");
    // Without accesses now or before, pages are the only information.
    view.tasks[0].touches_by_node = Some(vec![(cotenant_model::NodeId(0), 0.0)]);
    assert_eq!(decide(&t, Mesh::BruteForce, &BTreeMap::new(), &view).0, [(1, 2)]);
}

#[test]
fn pages_do_not_stand_in_between_two_looks_of_a_collector() {
    let demand = |shares: [f64; 2], counted| Demand { shares: shares.to_vec(), rate: 1.0, counted };
    let mut known = demand([0.0, 1.0], false);
    known.update(demand([1.0, 0.0], true));
    assert_eq!(known, demand([1.0, 0.0], true), "what is counted replaces what stood in for it");
    known.update(demand([0.0, 1.0], false));
    assert_eq!(known, demand([1.0, 0.0], true));
    known.update(demand([0.0, 1.0], true));
    assert_eq!(known, demand([0.8, 0.2], true));
}

/// Requested moves, with the memory of programs allowed to move.
fn moving(t: &Topology, view: &View) -> Vec<String> {
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    let config = Config { move_pages: true, ..Config::default() };
    let ctx = Ctx { topology: t, machine: &machine, apps: &apps, config: &config };
    let decision = Mesh::BruteForce.decide(&ctx, view, &[], MeshState::default(), view.at);
    // A request is not repeated in the next round.
    let again = Mesh::BruteForce.decide(&ctx, view, &[], decision.state.clone(), view.at);
    assert!(!again.proposals.iter().any(|p| matches!(p.action, Action::Pages { .. })));
    let asked = decision.proposals.iter().map(|p| match &p.action {
        Action::Pages { task, nodes } => format!("pages of {task} to {nodes:?}: {}", p.reason),
        Action::Place { task, contexts } => format!("{task} to {contexts}"),
        other => format!("{other:?}"),
    });
    asked.collect()
}

/// Promise place/move-pages: With `--move-pages` memory comes to threads that cannot go to it, but memory that was
/// bound is never moved.
#[test]
fn memory_comes_to_a_thread_that_cannot_go() {
    let t = machine(2, 1, 2, 1);
    let far = || ViewBuilder::new(&t).task(1, 0, 0).pages(&[(0, 1_000), (1, 900_000)]);
    assert_eq!(moving(&t, &far().view()), ["1 to 2"], "it goes where it may");
    let mut pinned = far().view();
    std::sync::Arc::make_mut(&mut pinned.tasks[0].info).allowed = "0-1".parse().unwrap();
    let why =
        "brute-force: bring 900000 of 901000 pages to node 0: its threads stay, and no CPU that they may use is nearer";
    assert_eq!(moving(&t, &pinned), [format!("pages of 1 to [NodeId(0)]: {why}")]);
    // Memory never moves unless allowed.
    let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    let ctx = Ctx { topology: &t, machine: &machine, apps: &apps, config: &config };
    let decision = Mesh::BruteForce.decide(&ctx, &pinned, &[], MeshState::default(), pinned.at);
    assert_eq!(decision.proposals, []);
    // Two threads of one process kept on two nodes: its memory is near one of them in either place.
    let mut split = ViewBuilder::new(&t)
        .task(1, 0, 0)
        .pages(&[(0, 500), (1, 500)])
        .task(2, 0, 2)
        .pages(&[(0, 500), (1, 500)])
        .view();
    for (task, cpus) in split.tasks.iter_mut().zip(["0-1", "2-3"]) {
        let info = std::sync::Arc::make_mut(&mut task.info);
        (info.allowed, info.pid) = (cpus.parse().unwrap(), 77);
    }
    assert_eq!(moving(&t, &split), ["1 to 0", "2 to 2"]);
}

/// Eight tasks that access memory alike, all of it behind controller 0, whose mean is 2 of 8.
#[test]
fn controllers_are_loaded_alike_where_memory_may_move() {
    let t = tilepro();
    let eight = (1..9).fold(ViewBuilder::new(&t), |b, id| {
        b.task(id, id, 8 * id - 1).pages(&[(0, 10_000)]).signal(Signal::LlcMisses, 1_000)
    });
    let view = eight.view();
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    let asked = |policy: Mesh, move_pages: bool, state: MeshState| {
        let config = Config { move_pages, ..Config::default() };
        let ctx = Ctx { topology: &t, machine: &machine, apps: &apps, config: &config };
        let decision = policy.decide(&ctx, &view, &[], state, view.at);
        let (mut sits, mut moves) = ([0; 4], [0; 4]);
        for proposal in &decision.proposals {
            match &proposal.action {
                Action::Place { contexts, .. } => {
                    let cpu = contexts.first().unwrap();
                    let way = |node: &usize| t.way(cpu, *node).unwrap();
                    let nearest = (0..4).min_by(|a, b| way(a).total_cmp(&way(b))).unwrap();
                    assert!(way(&nearest) <= 3.0, "{proposal:?}");
                    sits[nearest] += 1;
                }
                Action::Pages { nodes, .. } => moves[nodes[0].0 as usize] += 1,
                other => panic!("{other:?}"),
            }
        }
        (sits, moves, decision.state)
    };
    let (sits, moves, state) = asked(Mesh::Balanced, true, MeshState::default());
    assert_eq!((sits, moves), ([2; 4], [0, 2, 2, 2]));
    // It is not requested again at once, and never if memory may not move: then all gather around controller 0.
    assert_eq!(asked(Mesh::Balanced, true, state).1, [0; 4]);
    for (policy, move_pages) in [(Mesh::Balanced, false), (Mesh::Assignment, true)] {
        assert_eq!(asked(policy, move_pages, MeshState::default()).1, [0; 4]);
    }
    assert_eq!(asked(Mesh::Assignment, true, MeshState::default()).0, [8, 0, 0, 0]);
}

/// Holds place/move-pages.
#[test]
fn a_little_memory_comes_to_its_thread() {
    let text = "name = 't'\ndescription = 't'\nsource = 't'\n[topology]\n\
        synthetic = 'package:2 [numa] l2:2(size=2MiB) core:1 pu:1'\n[topology.distances]\nunit = 'slit'\nrows = [[10, 21], [21, 10]]\n";
    let t = Machine::parse(text).unwrap().topology;
    let with = |pages| ViewBuilder::new(&t).task(1, 0, 0).pages(&[(1, pages)]).view();
    // Its second-level cache also holds 2 MiB.
    assert!(moving(&t, &with(512))[1].starts_with("pages of 1 to [NodeId(0)]"), "{:?}", moving(&t, &with(512)));
    assert_eq!(moving(&t, &with(513)), ["1 to 2"]);
}

/// Four CPUs, with these nodes and SLIT distances.
fn odd(nodes: &str, rows: &str) -> Topology {
    let text = format!(
        "name = 't'\ndescription = 't'\nsource = 't'\n[topology]\ncpus = '0-3'\nnodes = [{nodes}]\n[topology.distances]\nunit = 'slit'\nrows = {rows}\n"
    );
    Machine::parse(&text).unwrap().topology
}

/// Holds place/move-pages.
#[test]
fn memory_without_cpus_draws_tasks_to_the_cpus_beside_it() {
    let t = odd(
        "{ id = 0, cpus = '0-1' }, { id = 1, cpus = '2-3' }, { id = 2 }",
        "[[10, 21, 17], [21, 10, 28], [17, 28, 10]]",
    );
    let far = ViewBuilder::new(&t).task(1, 0, 2).pages(&[(2, 100)]).view();
    for policy in [Mesh::BruteForce, Mesh::Assignment] {
        assert_eq!(decide(&t, policy, &BTreeMap::new(), &far).0, [(1, 0)], "{policy:?}: 17 against 28");
    }
    // Kept beside node 1 it gets its memory there: no CPU is nearer to node 2, but node 1 is nearer than that.
    let mut kept = far;
    std::sync::Arc::make_mut(&mut kept.tasks[0].info).allowed = "2-3".parse().unwrap();
    assert!(moving(&t, &kept)[0].starts_with("pages of 1 to [NodeId(1)]"), "{:?}", moving(&t, &kept));
    // Pages never go to a forbidden node.
    let nodes = "{ id = 0, cpus = '0-1' }, { id = 1, cpus = '2-3', allowed = false }, { id = 2 }";
    let t = odd(nodes, "[[10, 21, 17], [21, 10, 28], [17, 28, 10]]");
    let mut kept = ViewBuilder::new(&t).task(1, 0, 2).pages(&[(2, 100)]).view();
    std::sync::Arc::make_mut(&mut kept.tasks[0].info).allowed = "2-3".parse().unwrap();
    assert!(moving(&t, &kept)[0].starts_with("pages of 1 to [NodeId(0)]"), "{:?}", moving(&t, &kept));
}

/// Holds place/move-pages.
#[test]
fn cpus_without_memory_are_left_out() {
    let t = odd("{ id = 0, cpus = '0' }, { id = 1, cpus = '1' }", "[[10, 21], [21, 10]]");
    assert_eq!(t.node_of(CpuId(3)), None);
    let lost = ViewBuilder::new(&t).task(1, 0, 3).pages(&[(1, 100)]).view();
    assert_eq!(decide(&t, Mesh::BruteForce, &BTreeMap::new(), &lost).0, [(1, 1)]);
    let mut kept = lost;
    std::sync::Arc::make_mut(&mut kept.tasks[0].info).allowed = "2-3".parse().unwrap();
    assert_eq!(decide(&t, Mesh::BruteForce, &BTreeMap::new(), &kept).0, []);
    assert_eq!(moving(&t, &kept), [""; 0], "nobody knows what is near to it");
}

/// Holds place/move-pages.
#[test]
fn distances_need_not_be_the_same_there_and_back() {
    // Half of its pages on each node: 0.5·10 + 0.5·30 = 20 at node 0, 0.5·12 + 0.5·10 = 11 at node 1.
    let t = odd("{ id = 0, cpus = '0-1' }, { id = 1, cpus = '2-3' }", "[[10, 30], [12, 10]]");
    for cpu in [0, 2] {
        let view = ViewBuilder::new(&t).task(1, 0, cpu).pages(&[(0, 50), (1, 50)]).view();
        assert_eq!(decide(&t, Mesh::BruteForce, &BTreeMap::new(), &view).0, [(1, 2)], "from CPU {cpu}");
    }
}

#[test]
fn the_important_and_the_busy_choose_first() {
    let t = machine(2, 1, 1, 1);
    // Both want the one core at node 0; task 2 misses more.
    let two = || {
        let one = ViewBuilder::new(&t).task(1, 0, 1).pages(&[(0, 9)]).signal(Signal::LlcMisses, 100);
        one.task(2, 1, 0).pages(&[(0, 9)]).signal(Signal::LlcMisses, 1_000)
    };
    let mut apps = BTreeMap::new();
    for policy in [Mesh::BruteForce, Mesh::Assignment] {
        assert_eq!(decide(&t, policy, &apps, &two().view()).0, [(1, 1), (2, 0)], "{policy:?}");
    }
    apps.insert("app0".to_owned(), AppProfile { weight: Some(20.0), ..AppProfile::default() });
    assert_eq!(decide(&t, Mesh::Assignment, &apps, &two().view()).0, [(1, 0), (2, 1)], "20 × 100 > 1,000");
    apps.insert("app0".to_owned(), AppProfile { latency_sensitive: true, ..AppProfile::default() });
    assert_eq!(decide(&t, Mesh::BruteForce, &apps, &two().view()).0, [(1, 0), (2, 1)]);
}

#[test]
fn a_little_nearer_is_not_worth_a_move() {
    let t = tilepro();
    let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    let ctx = Ctx { topology: &t, machine: &machine, apps: &apps, config: &config };
    let at = |ms, near, far| {
        let time = cotenant_model::Time::from_millis(ms);
        ViewBuilder::new(&t).at(time).task(1, 0, 63).pages(&[(0, near), (3, far)]).view()
    };
    let first = at(100, 60, 40);
    let decision = Mesh::BruteForce.decide(&ctx, &first, &[], MeshState::default(), first.at);
    assert_eq!(decision.proposals.len(), 1);
    let applied = ActionOutcome { action: decision.proposals[0].action.clone(), outcome: Outcome::Applied };
    // From 60:40 to 49:51 and on to 0:100: the corners are 14 hops apart, and smoothing delays the change.
    let (mut state, mut outcomes, mut moved_at) = (decision.state, vec![applied], None);
    for round in 2..80 {
        let (near, far) = if round < 40 { (49, 51) } else { (0, 100) };
        let view = at(100 * round, near, far);
        let decision = Mesh::BruteForce.decide(&ctx, &view, &outcomes, state, view.at);
        assert!(round >= 40 || decision.proposals.is_empty(), "at 49:51 the other corner is 4 % nearer at most");
        outcomes.clear();
        if let Some(p) = decision.proposals.first() {
            moved_at = moved_at.or(Some(round));
            outcomes.push(ActionOutcome { action: p.action.clone(), outcome: Outcome::Applied });
        }
        state = decision.state;
    }
    assert!(moved_at.is_some());
}

/// Once others keep all CPUs of a node busy, those that are left are equally far from everything: no reason to let go
/// of the tasks that sit there.
/// Holds place/mesh.
#[test]
fn where_only_near_cpus_are_free_tasks_stay() {
    let t = machine(2, 1, 2, 1);
    let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    let ctx = Ctx { topology: &t, machine: &machine, apps: &apps, config: &config };
    for policy in [Mesh::Weighted, Mesh::BruteForce, Mesh::Assignment] {
        let (mut state, mut outcomes, mut cpu, mut asked) = (MeshState::default(), Vec::new(), 0, 0);
        for round in 1..10 {
            let at = cotenant_model::Time::from_millis(100 * round);
            let view = ViewBuilder::new(&t).at(at).task(1, 0, cpu).pages(&[(1, 100)]);
            let crowded = if round > 1 { view.cpu_busy(0, 1.0).cpu_busy(1, 1.0) } else { view };
            let decision = policy.decide(&ctx, &crowded.view(), &outcomes, state, at);
            assert_eq!(decision.notes, [""; 0], "{policy:?}");
            asked += decision.proposals.len();
            outcomes.clear();
            for Proposal { action, .. } in decision.proposals {
                let Action::Place { ref contexts, .. } = action else { panic!("{policy:?}: {action:?}") };
                cpu = contexts.first().unwrap().0;
                outcomes.push(ActionOutcome { action, outcome: Outcome::Applied });
            }
            state = decision.state;
        }
        assert_eq!((t.node_of(CpuId(cpu)), asked), (Some(1), 1), "{policy:?}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let (machine_profile, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    let check = |t: &Topology, policy: Mesh| {
        policy
            .check(&Ctx { topology: t, machine: &machine_profile, apps: &apps, config: &config })
            .err()
            .map(|e| e.to_string())
    };
    let (uniform, numa) = (machine(1, 1, 4, 1), machine(2, 1, 2, 1));
    assert!(check(&uniform, Mesh::BruteForce).unwrap().contains("equally far"));
    assert_eq!(check(&uniform, Mesh::Overhead), None, "it only measures what it costs");
    for policy in [Mesh::Weighted, Mesh::BruteForce, Mesh::Assignment, Mesh::Overhead] {
        assert_eq!(check(&numa, policy), None);
    }
    assert_eq!(check(&tilepro(), Mesh::Weighted), None);
    let blind = ViewBuilder::new(&numa).task(1, 0, 0).view();
    assert!(decide(&numa, Mesh::BruteForce, &apps, &blind).1.notes[0].contains("nothing tells which memory"));
}

/// Guests with any shares and weights, each allowed on some rows of tiles.
fn crowds() -> impl Strategy<Value = Vec<Guest>> {
    let one = (proptest::collection::vec(0u8..10, 4), 1u32..100, 1u8..=255);
    proptest::collection::vec(one, 1..24).prop_map(|all| {
        let seated = all.into_iter().zip(0..).map(|((shares, weight, rows), task)| {
            let total: f64 = shares.iter().map(|s| f64::from(*s)).sum::<f64>().max(1.0);
            let shares: Vec<f64> = shares.iter().map(|s| f64::from(*s) / total).collect();
            let allowed = (0..64).filter(|cpu| rows >> (cpu / 8) & 1 == 1).map(CpuId).collect();
            Guest { allowed, weight: f64::from(weight), ..guest(task, &shares) }
        });
        seated.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Brute force never costs more than weighted, and nothing costs less than the assignment.
    /// Promise place/mesh: Mesh policies go by coordinates, firmware tables or measured latencies; more search never
    /// costs more, and `assignment` is optimal.
    #[test]
    fn the_more_is_searched_the_nearer(guests in crowds()) {
        let t = tilepro();
        let board = Board::new(&t, t.usable());
        let weighted = board.cost(&guests, &search::weighted(&board, &guests));
        let brute = board.cost(&guests, &search::brute_force(&board, &guests));
        let (seating, exact) = search::assignment(&board, &guests);
        let best = board.cost(&guests, &seating);
        prop_assert!(exact);
        prop_assert!(brute.total_cmp(&weighted).is_le(), "{brute:?} > {weighted:?}");
        prop_assert!(best.total_cmp(&brute).is_le(), "{best:?} > {brute:?}");
    }

    /// One seat each, and only where it may sit.
    #[test]
    fn seats_are_legal(guests in crowds()) {
        let t = tilepro();
        let board = Board::new(&t, t.usable());
        let all = [search::weighted(&board, &guests), search::brute_force(&board, &guests), search::assignment(&board, &guests).0];
        for seating in all {
            let mut seats: Vec<usize> = seating.values().copied().collect();
            prop_assert!(seating.iter().all(|(&g, &seat)| board.admits(seat, &guests[g])));
            seats.sort_unstable();
            seats.dedup();
            prop_assert_eq!(seats.len(), seating.len());
        }
    }

    /// Of few tasks on few seats, no seating at all costs less than the assignment.
    /// Holds place/mesh.
    #[test]
    fn the_assignment_is_the_optimum(distances in proptest::collection::vec(proptest::collection::vec(1u8..40, 2), 4), shares in proptest::collection::vec(0u8..=10, 1..5)) {
        let rows: Vec<Vec<f64>> = distances.iter().map(|d| d.iter().map(|d| f64::from(*d)).collect()).collect();
        let board = board(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let guests: Vec<Guest> = shares.iter().zip(0..).map(|(s, task)| {
            guest(task, &[f64::from(*s) / 10.0, 1.0 - f64::from(*s) / 10.0])
        }).collect();
        let found = board.cost(&guests, &search::assignment(&board, &guests).0);
        let mut all = vec![Seating::new()];
        for i in 0..guests.len() {
            all = all.into_iter().flat_map(|seating| {
                let free: Vec<usize> = (0..4).filter(|seat| !seating.values().any(|taken| taken == seat)).collect();
                free.into_iter().map(move |seat| { let mut next = seating.clone(); next.insert(i, seat); next })
            }).collect();
        }
        let best = all.iter().map(|s| board.cost(&guests, s).distance).min_by(f64::total_cmp).unwrap();
        prop_assert!(found.distance <= best * (1.0 + 1e-5), "{} > {best}", found.distance);
    }

    /// Mirroring the mesh renames its controllers without changing any distance to memory.
    /// Holds place/mesh.
    #[test]
    fn symmetric_controllers_have_no_names(guests in crowds().prop_map(|g| g.into_iter().map(|g| Guest { allowed: (0..64).map(CpuId).collect(), ..g }).collect::<Vec<_>>())) {
        let t = tilepro();
        let board = Board::new(&t, t.usable());
        let mirrored: Vec<Guest> = guests.iter().map(|g| {
            let s = &g.demand.shares;
            Guest { demand: Demand { shares: vec![s[1], s[0], s[3], s[2]], rate: 1.0, counted: false }, ..g.clone() }
        }).collect();
        let cost = |guests: &[Guest]| board.cost(guests, &search::assignment(&board, guests).0).distance;
        let (a, b) = (cost(&guests), cost(&mirrored));
        prop_assert!((a - b).abs() <= a * 1e-4, "{a} {b}");
    }
}
