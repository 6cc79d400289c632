//! Every action has its reason, in the terms of the algorithm.

use super::*;

fn reasons(s: &Scene) -> Vec<String> {
    s.decide().proposals.iter().map(|p| format!("{}: {}", name(p.action.task().unwrap()), p.reason)).collect()
}

#[test]
fn stage_1() {
    // 220,000 / 2.2e8 = 1e-3
    let s = scene("a . | c .").inter("ac").each("a", |a| a.app = 3);
    assert_eq!(reasons(&s), ["c: stage 1: inter 0.001000/cycle > 0.0002500/cycle; colocate with app 3 on package 0"]);
    let s = scene("a x | c .").inter("ac");
    assert_eq!(
        reasons(&s),
        [
            "c: stage 1: inter 0.001000/cycle > 0.0002500/cycle; colocate with app 0 on package 0, swap with task 23",
            "x: stage 1: make way for task 2, which shares data: CPU-bound, swap to package 1",
        ]
    );
    let s = scene("a n o m | c x y z").inter("ac").intra("no").mem("m");
    assert_eq!(
        reasons(&s)[1],
        "m: stage 1: make way for task 2, which shares data: memory-bound, reluctantly to package 1"
    );
    let s = scene("a . / b .").inter("ab");
    assert_eq!(
        reasons(&s),
        ["b: stage 1: inter 0.001000/cycle > 0.0002500/cycle; colocate with app 0 on LLC domain 0"]
    );
}

#[test]
fn stage_2() {
    // 88,000 / 2.2e8 = 4e-4
    let away = |drawing| scene(drawing).remote("m").origin("m", 0);
    assert_eq!(reasons(&away(". . | m .")), ["m: stage 2: remote 0.0004000/cycle > 0.0001000/cycle; home to node 0"]);
    assert_eq!(
        reasons(&away("k . | m .").origin("k", 1)),
        [
            "m: stage 2: remote 0.0004000/cycle > 0.0001000/cycle; home to node 0, swap with task 10",
            "k: stage 2: home to node 1 too, swap with task 12",
        ]
    );
    assert_eq!(
        reasons(&away("x y | m ."))[1],
        "x: stage 2: make way for task 12, which goes home: CPU-bound, swap to node 1"
    );
    assert_eq!(
        reasons(&away("n o | m .").intra("n").count("o", Signal::LlcMisses, 4_000_000))[1],
        "o: stage 2: make way for task 12, which goes home: memory-bound, reluctantly to node 1"
    );
    let s = scene("x . | m .").remote("m").each("m", |a| a.pages = Some(vec![(0, 9)]));
    assert_eq!(reasons(&s), ["m: stage 2: remote 0.0004000/cycle > 0.0001000/cycle; to its pages on node 0"]);
}

#[test]
fn stage_3() {
    let s = scene("m o . . | . . . .").count("mo", Signal::LlcMisses, 4_000_000);
    assert_eq!(
        reasons(&s),
        ["m: stage 3: llc_misses 80.00 M/s > 75.00 M/s; its node's bandwidth is exhausted; to node 1"]
    );
    let s = scene("m o x y | n p q z").intra("npq").count("mo", Signal::LlcMisses, 4_000_000);
    assert_eq!(
        reasons(&s),
        [
            "m: stage 3: llc_misses 80.00 M/s > 75.00 M/s; its node's bandwidth is exhausted; to node 1, swap with task 25",
            "z: stage 3: make way for task 12, whose node's bandwidth is exhausted: CPU-bound, to node 0",
        ]
    );
}
