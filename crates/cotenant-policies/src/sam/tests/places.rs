//! Contexts: SMT, more tasks than contexts, others' load, cpusets, chiplets, nodes inside a package.

use super::*;
use cotenant_model::testing::parts;

#[test]
fn p_01_a_core_of_its_own_before_a_second_context() {
    // Two cores of two contexts each; drawn are first contexts 0 1, then second ones 4 5 (8 and so on in S1).
    //     S0: a x . . │ S1: c . . .       both cores are in use: the second context of core 0
    let any = Scene::draw("a x . . | c . . .", 2).sam("default,-whole-cores".parse().unwrap());
    assert_eq!(any.inter("ac").next(), "a x c . | . . . .");
    //     S0: a . x . │ S1: c . . .       a and x share core 0; core 1 is free
    assert_eq!(Scene::draw("a . x . | c . . .", 2).inter("ac").next(), "a c x . | . . . .");
    //     S0: . . a . │ S1: c . . .       core 0 is used through its second context
    assert_eq!(Scene::draw(". . a . | c . . .", 2).inter("ac").next(), ". c a . | . . . .");
    // Its sibling busy with others' work is no core of its own either.
    //     S0: a . . # │ S1: c . . .       # on the second context of core 1
    let mut s = Scene::draw("a . . . | c . . .", 2).inter("ac");
    s.busy = vec![(5, 0.8)];
    assert_eq!(s.next(), "a c . . | . . . .", "the first in order, since both cores are used");
}

#[test]
fn p_02_second_contexts_count() {
    // Three sharers on two cores: 4 contexts hold them.
    let s = Scene::draw("a n . . | c . . .", 2).sam("default,-whole-cores".parse().unwrap());
    assert_eq!(s.inter("ac").intra("n").next(), "a n c . | . . . .");
}

/// The same scenes with one task per core while that is possible (§4.3), which is the paper's rule, too.
/// Promise place/sam: `sam` decides as its paper at each threshold and shares a core only when cores run out;
/// additions are off unless asked for.
#[test]
fn p_02b_second_contexts_do_not_count_on_whole_cores() {
    for rules in ["default", "paper"] {
        let draw = |drawing| Scene::draw(drawing, 2).sam(rules.parse().unwrap());
        // Three tasks, four cores. S0 has a core for each of two: c replaces x, and x gets its own core.
        //     S0: a x . . │ S1: c . . .
        assert_eq!(draw("a x . . | c . . .").inter("ac").next(), "a c . . | x . . .");
        // S0 has as many sharers as cores: no task comes.
        //     S0: a n . . │ S1: c . . .       as printed c would be drawn, and a to c in the next round
        assert_eq!(draw("a n . . | c x . .").inter("c").intra("an").next(), "a n . . | c x . .");
        // Five tasks, four cores: second contexts count.
        //     S0: a x . . │ S1: c y z .
        assert_eq!(draw("a x . . | c y z .").inter("ac").next(), "a x c . | . y z .");
    }
}

#[test]
fn p_02d_what_wants_next_to_nothing_does_not_make_cores_scarce() {
    // Four sharers on four cores; h runs 1 ms of 100.
    //     S0: a c . . │ S1: b d . h
    let sharers = |drawing| scene_of_time(drawing, "abcd").inter("abcd");
    let mut s = sharers("a c . . | b d . h").count("h", Signal::CpuTime, 1_000_000);
    assert_eq!(s.next(), "a c . . | b d . h");
    // Needing all of a core takes one more than available, so sharers fill second contexts.
    let mut s = sharers("a c . . | b d . h").count("h", Signal::CpuTime, 90_000_000);
    let packed = s.next();
    assert_eq!(packed, "a c b d | . . . h");
    // Not because it is quiet once; then they have their cores again.
    s = s.count("h", Signal::CpuTime, 1_000_000);
    assert_eq!(s.next(), packed);
    assert_eq!(s.next(), "a c . . | d b . h");
    for _ in 0..5 {
        assert_eq!(s.next(), "a c . . | d b . h");
    }
    // One busy interval is no reason to pack again; a time in the run queue is as good as one on a CPU.
    s = s.count("h", Signal::CpuTime, 90_000_000);
    assert_eq!(s.next(), "a c . . | d b . h");
    s = s.count("h", Signal::CpuTime, 1_000_000).count("h", Signal::RunQueueWait, 90_000_000);
    assert_eq!(s.next(), packed);
}

/// Holds place/sam.
#[test]
fn p_02e_what_holds_no_core_cannot_make_way_for_what_needs_one() {
    // h runs 1 ms of 100 next to x, and is first in order: otherwise c would share x's core.
    //     S0: a x . h │ S1: c . . .
    let mut s = scene_of_time("a x . h | c . . .", "acx").inter("ac").count("h", Signal::CpuTime, 1_000_000);
    assert_eq!(s.next(), "a c . h | x . . .");
    // Nor does it take a free core: p, with home S1, gets c's.
    //     S0: a . . . │ S1: c y . h │ S2: p . . .
    let s = scene_of_time("a . . . | c y . h | p . . .", "acyp").count("h", Signal::CpuTime, 1_000_000);
    assert_eq!(s.inter("ac").remote("p").origin("p", 1).next(), "a c . . | p y . h | . . . .");
}

/// A scene with two contexts a core, in which the named tasks use all of a CPU.
fn scene_of_time(drawing: &str, names: &str) -> Scene {
    Scene::draw(drawing, 2).count(names, Signal::CpuTime, 100_000_000)
}

/// Holds place/sam.
#[test]
fn p_02c_a_core_is_taken_whichever_context_is_used() {
    // a is on the second context of core 0, whose first one is not used either, so c ⇄ x.
    //     S0: . x a . │ S1: c . . .
    assert_eq!(Scene::draw(". x a . | c . . .", 2).inter("ac").next(), ". c a . | x . . .");
    // a leaves the second context of S1's core 0: p, with home S1, gets that core, and y stays.
    //     S0: c . . . │ S1: . y a . │ S2: p . . .
    let mut s = Scene::draw("c . . . | . y a . | p . . .", 2).inter("ac").remote("p").origin("p", 1);
    assert_eq!(s.next(), "c a . . | p y . . | . . . .");
}

#[test]
fn p_03_more_tasks_than_contexts_are_placed_on_sockets() {
    // Five tasks on four contexts. c ⇄ x, each to all the CPUs of the other's socket.
    //     S0: a x │ S1: c yz
    let s = scene("a x | c yz").inter("ac");
    assert_eq!(moves(&s.decide()), ["c to 0-1", "x to 2-3"]);
    // Inside the allowed CPUs of each.
    let s = s.allowed("c", "1-3").allowed("x", "0-2");
    assert_eq!(moves(&s.decide()), ["c to 1", "x to 2"]);
    // One of the socket's CPUs is enough.
    let s = scene("a x | c yz").inter("ac").allowed("c", "0,2").allowed("x", "0-1,3");
    assert_eq!(moves(&s.decide()), ["c to 0", "x to 3"]);
    // Four tasks on four contexts: contexts.
    assert_eq!(moves(&scene("a x | c y").inter("ac").decide()), ["c to 1", "x to 2"]);
}

#[test]
fn p_04_tasks_seen_on_one_cpu_take_contexts_beside_it() {
    // a and x were seen on CPU 0; x takes the idle CPU 1, so S0 has none left, and c swaps with x.
    //     S0: ax . │ S1: c .
    let mut s = scene("ax . | c .").inter("ac");
    assert_eq!(moves(&s.step()), ["c to 1", "x to 2"]);
    assert_eq!(s.picture(), "a c | x .");
    // Not outside its allowed CPUs: x stays on CPU 0, and CPU 1 is idle.
    let mut s = scene("ax . | c .").inter("ac").allowed("x", "0");
    assert_eq!(s.next(), "ax c | . .");
}

#[test]
fn p_05_who_swaps_with_a_crowded_task_gets_the_socket() {
    // Three tasks on the two contexts of S0, four contexts and four tasks in all. x holds none of its own.
    //     S0: ax y │ S1: c .
    let s = scene("ax y | c .").inter("ac");
    assert_eq!(moves(&s.decide()), ["c to 0-1", "x to 2"]);
}

#[test]
fn p_06_a_context_left_falls_to_a_crowded_neighbour() {
    // c is drawn to S0. It shared CPU 2 with e, so p, with home S1, finds no idle context there: p ⇄ d.
    //     S0: a . │ S1: ce d │ S2: p .
    let mut s = scene("a . | ce d | p .").inter("ac").remote("p").origin("p", 1);
    assert_eq!(moves(&s.step()), ["c to 1", "p to 3", "d to 4"]);
    //     S0: a . │ S1: c d │ S2: p .       no task waits for CPU 2
    let mut s = scene("a . | c d | p .").inter("ac").remote("p").origin("p", 1);
    assert_eq!(moves(&s.step()), ["c to 1", "p to 2"]);
}

#[test]
fn p_07_a_cpu_busy_with_others_work_is_not_idle() {
    //     S0: a # . │ S1: c . .
    for (busy, cpu) in [(0.5, 2), (0.11, 2), (0.1, 1), (0.0, 1)] {
        let mut s = scene("a . . | c . .").inter("ac");
        s.busy = vec![(1, busy)];
        assert_eq!(moves(&s.decide()), [format!("c to {cpu}")], "busy {busy}");
    }
    // A managed task's own load is not others': x runs all the time on CPU 1, and swaps.
    let mut s = scene("a x | c .").inter("ac").count("x", Signal::CpuTime, 100_000_000);
    s.busy = vec![(1, 1.0)];
    assert_eq!(s.next(), "a c | x .");
}

#[test]
fn p_08_a_cpu_outside_the_cpuset_is_no_context() {
    let with = |drawing| {
        let mut s: Scene = scene(drawing);
        let mut parts = s.topology.parts().clone();
        parts.cpus[1].allowed = false;
        s.topology = Topology::new(parts).unwrap();
        s
    };
    assert_eq!(moves(&with("a . . | c . .").inter("ac").decide()), ["c to 2"]);
    // Where it was the last one, S0 is full with one sharer, and keeps it.
    assert_eq!(moves(&with("a . | c .").inter("ac").decide()), [""; 0]);
    // A task seen there is in no place: neither mover nor victim.
    assert_eq!(moves(&with(". a | c .").inter("ac").decide()), [""; 0]);
    assert_eq!(moves(&with("a x | c .").inter("ac").decide()), [""; 0]);
}

#[test]
fn p_09_a_task_that_did_not_run_holds_no_context() {
    //     S0: a (x) │ S1: c .
    let mut s = scene("a x | c .").inter("ac").count("x", Signal::Cycles, 0);
    assert_eq!(s.next(), "a xc | . .");
    // x wakes: it holds nothing, and c, drawn just now, stays.
    s = s.count("x", Signal::Cycles, CYCLES);
    assert_eq!(s.next(), "a xc | . .");
}

#[test]
fn p_10_chiplets_gather_inside_their_llc_domain() {
    // a and b share across LLC domains of one package: near, not inter.
    //     S0: D0: a . D1: b .
    let near = |s: Scene, names: &str| s.count(names, Signal::Near, 4 * COHERENCE);
    assert_eq!(near(scene("a . / b ."), "ab").next(), "a b / . .");
    // As printed, only coherence between packages counts, and there is only one package.
    assert_eq!(near(scene("a . / b ."), "ab").sam(SamConfig::paper_exact()).next(), "a . / b .");
    // Half the threshold near and a little more than half far: the sum counts.
    let halves =
        |far| near(scene("a . / b ."), "a").count("b", Signal::Near, COHERENCE / 2).count("b", Signal::Inter, far);
    assert_eq!(halves(COHERENCE / 2).next(), "a . / b .");
    assert_eq!(halves(COHERENCE / 2 + 1).next(), "a b / . .");
}

#[test]
fn p_10b_who_shares_a_cache_of_one_core_shares_the_core() {
    // Each core has its own last-level cache, and two contexts, of which the second ones are last in order.
    //     S0: D0: a D1: . D0: . D1: . │ S1: D0: c D1: . D0: . D1: .
    let scene = Scene::draw("a . / . . | c . / . .", 2).inter("ac");
    assert_eq!(scene.clone().next(), "a / . / c / . | . / . / . / .");
    assert_eq!(scene.sam("default,-whole-cores".parse().unwrap()).next(), "a / . / c / . | . / . / . / .");
}

#[test]
fn p_11_chiplets_prefer_their_own_package() {
    // In plain order D1 would draw b from the other package; but c's domain mate-to-be is b, in its own package.
    //     S0: D0: x . D1: a . │ S1: D2: b . D3: c .
    let mut s = scene("x . / a . | b . / c .").inter("abc");
    assert_eq!(s.next(), "x . / a . | b c / . .");
    // D2 is full of sharers and keeps them; a stays alone.
    assert_eq!(s.next(), "x . / a . | b c / . .");
    // With no partner in its own package, a sharer comes from the other one.
    let mut s = scene("x . / a . | b . / y .").inter("ab");
    assert_eq!(s.next(), "x . / a b | . . / y .");
}

#[test]
fn p_12_between_domains_of_a_node_nobody_moves_reluctantly() {
    //     S0: D0: a m D1: b . │ S1: …      m keeps its node
    let mut s = scene("a m / b . | . . / . .").inter("ab").mem("m");
    assert_eq!(s.next(), "a b / m . | . . / . .");
    assert_eq!(s.origins(), []);
    //     S0: D0: a m D1: n o │ S1: D2: b . …      here it leaves it
    let mut s = scene("a m / n o | b . / . .").inter("ab").intra("no").mem("m");
    assert_eq!(s.next(), "a b / n o | m . / . .");
    assert_eq!(s.origins(), [('m', 0)]);
}

#[test]
fn p_13_chiplets_balance_bandwidth_by_node() {
    // 8,000,000 on node 0 is too much wherever in it: out of the package, not to the other domain.
    //     S0: D0: m o D1: . . │ S1: D2: . . D3: . .
    let s = scene("m o / . . | . . / . .").count("mo", Signal::LlcMisses, 4_000_000);
    assert_eq!(s.clone().next(), ". o / . . | m . / . .");
    assert_eq!(s.origin("m", 1).remote("m").next(), ". o / . . | m . / . .", "and home is a node");
}

#[test]
fn p_14_nodes_inside_a_package() {
    // One package of four cores with two nodes; each has half of the socket's bandwidth, 3,750,000.
    //     N0: k l N1: . .
    let split = |s: Scene| {
        let mut parts = parts(1, 1, 4, 1);
        let mut other = parts.nodes[0].clone();
        parts.nodes[0].cpus = CpuSet::parse_list("0-1").unwrap();
        other.id.0 = 1;
        other.cpus = CpuSet::parse_list("2-3").unwrap();
        parts.nodes.push(other);
        parts.distances = None;
        Scene { topology: Topology::new(parts).unwrap(), ..s }
    };
    let with = |misses| split(scene("k l . .").count("kl", Signal::LlcMisses, misses));
    assert_eq!(with(1_875_000).next(), "k l . .");
    assert_eq!(with(1_875_001).next(), ". l k .");
    assert_eq!(with(1_875_001).sam("-memory-nodes".parse().unwrap()).next(), "k l . .", "one package, nowhere to go");
}

#[test]
fn p_15_one_socket_has_nothing_to_decide() {
    let mut s = scene("a b m o").inter("ab").mem("mo").remote("m");
    assert_eq!(s.next(), "a b m o");
}
