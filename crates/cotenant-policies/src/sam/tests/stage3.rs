//! Stage 3, branch by branch. A socket's bandwidth is 7,500,000 misses in an interval; of four cores each has
//! 1,875,000.

use super::*;

fn demand(s: Scene, names: &str, misses: u64) -> Scene {
    s.count(names, Signal::LlcMisses, misses)
}

#[test]
fn s3_01_idle_contexts_first() {
    // S0: 4 · 2,500,000 = 10,000,000. k → S1: 7,500,000 is not above: stop.
    //     S0: k l m o │ S1: x . . .
    let mut s = demand(scene("k l m o | x . . ."), "klmo", 2_500_000);
    assert_eq!(s.next(), ". l m o | x k . .");
    assert_eq!(s.origins(), [], "not reluctantly");
    assert_eq!(s.next(), ". l m o | x k . .");
}

#[test]
fn s3_02_else_a_swap_with_a_cpu_bound_task() {
    // y misses 100,000 times itself, which come back to S0: 10,000,000 − 2,500,000 + 100,000 = 7,600,000 is still
    // above: l ⇄ z.
    //     S0: k l m o │ S1: n p y z
    let mut s = demand(scene("k l m o | n p y z").intra("np"), "klmo", 2_500_000);
    s = demand(s, "yz", 100_000);
    assert_eq!(s.next(), "y z m o | n p k l");
}

#[test]
fn s3_03_stops_where_the_destination_would_exceed() {
    // S1 has 4,000,000 and takes one mover of 3,000,000 (7,000,000), not two; S0 stays above its threshold.
    //     S0: k l m o │ S1: p . . .
    let mut s = demand(scene("k l m o | p . . ."), "klmo", 3_000_000);
    s = demand(s, "p", 4_000_000);
    assert_eq!(s.next(), ". l m o | p k . .");
    assert_eq!(s.next(), ". l m o | p k . .");
}

#[test]
fn s3_04_several_destinations() {
    // S0 has 4 · 4,000,000 = 16,000,000. S1 has 5,000,000, and 9,000,000 would be too much. S2 takes k, and l would be
    // too much. S3 takes l, and m would be too much: S0 stays at 8,000,000.
    //     S0: k l m o │ S1: p . . . │ S2: . . . . │ S3: . . . .
    let mut s = demand(scene("k l m o | p . . . | . . . . | . . . ."), "klmo", 4_000_000);
    s = demand(s, "p", 5_000_000);
    assert_eq!(s.next(), ". . m o | p . . . | k . . . | l . . .");
}

#[test]
fn s3_05_sharers_are_not_moved_for_bandwidth() {
    // n misses most, but shares; m goes.
    //     S0: n m . . │ S1: . . . .
    let mut s = demand(demand(scene("n m . . | . . . .").intra("n"), "n", 6_000_000), "m", 2_000_000);
    assert_eq!(s.next(), "n . . . | m . . .");
    // Sharers at the destination do not make way either.
    //     S0: k l m o │ S1: n p q r
    let mut s = demand(scene("k l m o | n p q r").intra("npqr"), "klmo", 2_500_000);
    assert_eq!(s.next(), "k l m o | n p q r");
}

#[test]
fn s3_06_cpu_bound_tasks_are_no_movers() {
    // Many small demands exhaust the socket: 4 · 1,875,000 = 7,500,000, one miss more is above; x alone is
    // memory-bound then.
    //     S0: w x y z │ S1: . . . .
    let s = demand(scene("w x y z | . . . ."), "wyz", 1_875_000);
    assert_eq!(demand(s.clone(), "x", 1_875_000).next(), "w x y z | . . . .");
    assert_eq!(demand(s, "x", 1_875_001).next(), "w . y z | x . . .");
}

#[test]
fn s3_07_what_earlier_stages_moved_counts_where_it_is_now() {
    // a draws m's socket mate b away; b carries 2,000,000, so S1 has 6,000,000 of its 8,000,000 left and needs no
    // relief.
    //     S0: a . . . │ S1: b m o .
    let mut s = demand(demand(scene("a . . . | b m o .").inter("ab"), "b", 2_000_000), "mo", 3_000_000);
    assert_eq!(s.next(), "a b . . | . m o .");
}

#[test]
fn s3_08_both_exhausted_nothing_moves() {
    //     S0: k l m o │ S1: p q r s
    let mut s = demand(scene("k l m o | p q r s"), "klmopqrs", 2_500_000);
    assert_eq!(s.next(), "k l m o | p q r s");
}

#[test]
fn s3_09_movers_that_are_not_allowed_there_are_passed_over() {
    //     S0: k l m o │ S1: . . . .
    let mut s = demand(scene("k l m o | . . . ."), "klmo", 2_500_000).allowed("k", "0-3");
    assert_eq!(s.next(), "k . m o | l . . .");
}

#[test]
fn s3_10_pages_do_not_call_back_what_bandwidth_sent_away() {
    // k is sent to S1; its pages stay on node 0, so it meets remote memory there. S0 has 7,500,000 and k 2,500,000:
    // no room.
    //     S0: k l m o │ S1: . . . .
    let s = demand(scene("k l m o | . . . ."), "klmo", 2_500_000);
    let mut s = s.each("klmo", |a| a.pages = Some(vec![(0, 900)]));
    assert_eq!(s.next(), ". l m o | k . . .");
    s = s.remote("k");
    for _ in 0..10 {
        assert_eq!(s.next(), ". l m o | k . . .");
    }
}
