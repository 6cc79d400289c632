//! The additions after SAM-MPH: latency tolerance, hysteresis, core sharing.

use super::*;
use cotenant_model::pin::Pin;

fn only(text: &str) -> SamConfig {
    text.parse().unwrap()
}

/// The named tasks stall on memory for that part of their cycles, in percent.
fn stalls(scene: Scene, names: &str, percent: u64) -> Scene {
    scene.count(names, Signal::StallCycles, CYCLES * percent / 100)
}

/// The named tasks retire that many instructions in ten cycles.
fn ipc(scene: Scene, names: &str, tenths: u64) -> Scene {
    scene.count(names, Signal::Instructions, CYCLES * tenths / 10)
}

#[test]
fn who_stalls_most_is_brought_first() {
    // One context of S0 is free, x and y share there: one of c, d, e can come. By id it is c; by stalls d (40 % of
    // its cycles).
    let scene = || scene("a . x y | c d e z").inter("acde").intra("xy");
    assert_eq!(scene().next(), "a c x y | . d e z");
    let by_stalls = |d| {
        let scene = stalls(stalls(stalls(scene(), "c", 10), "d", d), "e", 20);
        scene.sam(only("default,+latency-tolerance")).next()
    };
    assert_eq!(by_stalls(40), "a d x y | c . e z");
    // At 5 % d tolerates its latency and is no sharer; e is next. Just above, it is one again, after e.
    assert_eq!((by_stalls(5).as_str(), by_stalls(6).as_str()), ("a e x y | c d . z", "a e x y | c d . z"));
}

#[test]
fn who_tolerates_latency_is_not_brought() {
    let scene = |percent| stalls(scene("a . | c .").inter("ac"), "ac", percent).sam(only("default,+latency-tolerance"));
    assert_eq!((scene(5).next().as_str(), scene(6).next().as_str()), ("a . | c .", "a c | . ."));
    // Inside one socket it stays a sharer despite its tolerance, and is not displaced. S0: a n │ S1: c x; n shares with
    // a.
    let beside = super::scene("a n | c x").inter("ac").intra("n");
    let beside = stalls(stalls(beside, "ac", 30), "n", 1).sam(only("default,+latency-tolerance"));
    assert_eq!(beside.clone().next(), "a n | c x");
}

#[test]
fn who_stalls_least_makes_way_first() {
    // c moves to S0, where m and n are memory-bound and x shares: m (60 %) by id, n (30 %) by stalls.
    let scene = || stalls(stalls(stalls(scene("a m n x | c y z w"), "ac", 50), "m", 60), "n", 30);
    let scene = || scene().inter("ac").intra("x").mem("mn");
    assert_eq!(scene().next(), "a c n x | m y z w");
    assert_eq!(scene().sam(only("default,+latency-tolerance")).next(), "a m c x | n y z w");
}

#[test]
fn a_task_acts_when_it_has_been_so_for_three_intervals() {
    let mut s = scene("a . | c .").inter("ac").sam(only("default,+hysteresis"));
    assert_eq!([s.next(), s.next(), s.next()], ["a . | c .", "a . | c .", "a c | . ."]);
    // They count as sharers inside the socket from now on, and rest.
    s = s.count("ac", Signal::Inter, 0).intra("ac");
    assert_eq!([s.next(), s.next(), s.next(), s.next()], ["a c | . ."; 4]);

    // Sharing for two intervals of each three moves no task; without hysteresis the first does.
    let mut s = scene("a . | c .").sam(only("default,+hysteresis"));
    for round in 0..12 {
        s = s.count("ac", Signal::Inter, if round % 3 == 2 { 0 } else { 4 * COHERENCE });
        assert_eq!(s.next(), "a . | c .", "round {round}");
    }
    assert_eq!(s.sam(SamConfig::default()).inter("ac").next(), "a c | . .");
}

#[test]
fn the_way_home_and_bandwidth_wait_too() {
    let mut s = scene("x . | m .").remote("m").origin("m", 0).sam(only("default,+hysteresis"));
    assert_eq!([s.next(), s.next(), s.next()], ["x . | m .", "x . | m .", "x m | . ."]);
    // S0 has 120 % of its bandwidth: the first goes, in the third interval.
    let mut s = scene("k l m n | . . . .").mem("klmn").sam(only("default,+hysteresis"));
    assert_eq!([s.next(), s.next(), s.next()], ["k l m n | . . . .", "k l m n | . . . .", ". l m n | k . . ."]);
}

#[test]
fn an_interval_asleep_counts_neither_way() {
    let mut s = scene("a . | c .").inter("ac").sam(only("default,+hysteresis"));
    s.next();
    s.next();
    let asleep = s.clone().count("ac", Signal::Cycles, 0);
    s.state = {
        let mut asleep = asleep;
        asleep.next();
        asleep.state
    };
    assert_eq!(s.next(), "a c | . .", "the third in which it ran");
}

#[test]
fn who_needs_a_core_shares_it_with_one_that_waits() {
    // Cores {a b} {c d}: a and b retire 2 instructions per cycle, c and d 0.2. b, the second of its core, changes
    // places with c.
    let scene = || ipc(ipc(Scene::draw("a c b d | . . . .", 2), "ab", 20), "cd", 2);
    let mut s = scene().sam(only("default,+core-sharing"));
    s.config.pin = Pin::Cpu;
    let decision = s.step();
    assert_eq!((s.picture().as_str(), moves(&decision)), ("a b c d | . . . .", vec!["b to 1".into(), "c to 4".into()]));
    assert_eq!(
        decision.proposals[0].reason.to_string(),
        "stage 4: instructions 2.000/cycle > 0.7000/cycle; it needs a core and shares one with its like: swap with task 2, \
         which waits, on package 0"
    );
    assert_eq!(s.next(), "a b c d | . . . .", "at rest");
    // 0.7 is not above 0.7; with an idle core no task has to wait; other sockets are no help.
    let picture = |scene: Scene| {
        let mut scene = scene.sam(only("default,+core-sharing"));
        scene.config.pin = Pin::Cpu;
        scene.next()
    };
    assert_eq!(picture(ipc(scene(), "ab", 7)), "a c b d | . . . .");
    assert_eq!(picture(ipc(Scene::draw("a . b . | . . . .", 2), "ab", 20)), "a b . . | . . . .");
    let apart = ipc(ipc(Scene::draw("a c b d | e f g h", 2), "abcd", 20), "efgh", 2);
    assert_eq!(picture(apart), "a c b d | e f g h");
}

#[test]
fn what_is_missing_is_said() {
    let notes = |scene: Scene| scene.sam(SamConfig::mph()).decide().notes;
    let told = notes(scene("a . | c ."));
    assert!(told.iter().any(|n| n.contains("no task has the signal stall_cycles")), "{told:?}");
    assert!(told.iter().any(|n| n.contains("no task has the signal instructions")), "{told:?}");
    assert!(told.iter().any(|n| n.contains("it needs --pin cpu")), "{told:?}");
    assert_eq!(scene("a . | c .").decide().notes, Vec::<String>::new(), "not asked for");
}
