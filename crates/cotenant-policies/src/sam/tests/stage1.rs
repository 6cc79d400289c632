//! Stage 1, branch by branch. Four contexts per package unless drawn otherwise.

use super::*;

#[test]
fn s1_01_idle_contexts_first() {
    // inter(0) = a b, inter(1) = c d; 2 of 4 contexts of S0 are held by sharers, two are idle.
    //     S0: a b . . │ S1: c d m .
    let mut s = scene("a b . . | c d m .").inter("abcd").mem("m");
    //  c → idle 2: 3 of 4. d → idle 3: 4 of 4, full. inter(1) = ∅.
    assert_eq!(s.next(), "a b c d | . . m .");
}

#[test]
fn s1_02_swap_with_cpu_bound() {
    // No idle context in S0; cpu(0) = x y.
    //     S0: a b x y │ S1: c d m .
    let mut s = scene("a b x y | c d m .").inter("abcd").mem("m");
    //  c ⇄ x, d ⇄ y
    assert_eq!(s.next(), "a b c d | x y m .");
    assert_eq!(s.origins(), []);
}

#[test]
fn s1_03_cpu_bound_before_memory_bound() {
    //     S0: a b m y │ S1: c x z .       the memory-bound m has the lower id, but y is CPU-bound
    let mut s = scene("a b m y | c x z .").inter("abc").mem("m");
    assert_eq!(s.next(), "a b m c | y x z .");
    assert_eq!(s.origins(), []);
}

#[test]
fn s1_04_swap_with_memory_bound_reluctantly() {
    // inter(0) = a, intra(0) = n o: 3 of 4 held by sharers; idle(0) = cpu(0) = ∅, mem(0) = m.
    //     S0: a n o m │ S1: c x y .
    let mut s = scene("a n o m | c x y .").inter("ac").intra("no").mem("m");
    //  c ⇄ m, reluctantly: m comes from 0.
    assert_eq!(s.next(), "a n o c | m x y .");
    assert_eq!(s.origins(), [('m', 0)]);
}

#[test]
fn s1_05_the_first_origin_is_kept() {
    // Three packages; m was already moved reluctantly from S2 to S0.
    //     S0: a n o m │ S1: c x y . │ S2: . . . .
    let mut s = scene("a n o m | c x y . | . . . .").inter("ac").intra("no").mem("m").origin("m", 2);
    assert_eq!(s.next(), "a n o c | m x y . | . . . .");
    assert_eq!(s.origins(), [('m', 2)]);
}

#[test]
fn s1_06_stops_where_nobody_can_make_way() {
    // 3 of 4 contexts of each package are held by sharers, and the fourth task of S0 is allowed nowhere else.
    //     S0: a n o x │ S1: c p q y
    let mut s = scene("a n o x | c p q y").inter("ac").intra("nopq").allowed("x", "0-3");
    //  S0 draws: x may not leave → stop. S1 draws: 3 of 4, y makes way for a.
    assert_eq!(s.next(), "y n o x | c p q a");
    //  Had y to stay too, there is nothing to do.
    let mut s = scene("a n o x | c p q y").inter("ac").intra("nopq").allowed("x", "0-3").allowed("y", "4-7");
    assert_eq!(s.next(), "a n o x | c p q y");
    // x would make way for c, but y for d may not: one of two is no closer together, so c does not come, either.
    //     S0: a x y │ S1: c d z
    let mut s = scene("a x y | c d z").inter("acd").allowed("y", "0-2").allowed("z", "3-5");
    assert_eq!(s.next(), "a x y | c d z");
}

#[test]
fn s1_07_a_package_full_of_sharers_takes_no_more() {
    // |inter(0)| + |intra(0)| = 4 = contexts(0): the loop does not run; and S0 is never a source.
    //     S0: a n o p │ S1: c x . .
    let mut s = scene("a n o p | c x . .").inter("ac").intra("nop");
    assert_eq!(s.next(), "a n o p | c x . .");
    // The paper draws a to S1: its contexts are not full.
    let mut s = scene("a n o p | c x . .").inter("ac").intra("nop").sam(SamConfig::paper_exact());
    assert_eq!(s.next(), ". n o p | c x a .");
}

#[test]
fn s1_08_sharers_inside_a_package_are_never_displaced() {
    // S0 has one context that is not held by a sharer: only c may come, although n o are no inter tasks.
    //     S0: a n o x │ S1: c d y .
    let mut s = scene("a n o x | c d y .").inter("acd").intra("no");
    assert_eq!(s.next(), "a n o c | x d y .");
    // S0 is full and no source now.
    assert_eq!(s.next(), "a n o c | x d y .");
}

#[test]
fn s1_09_a_package_without_inter_draws_nobody() {
    // Only S1 has inter tasks, which share with no visible task: no destination but their own.
    //     S0: x y . . │ S1: c d . .
    let mut s = scene("x y . . | c d . .").inter("cd");
    assert_eq!(s.next(), "x y . . | c d . .");
}

#[test]
fn s1_10_twelve_sharers_on_two_times_ten() {
    // Six sharers on each of two packages of ten contexts.
    //     S0: a b c d e f . . . . │ S1: g h i j k l . . . .
    let start = || scene("a b c d e f . . . . | g h i j k l . . . .").inter("abcdefghijkl");
    let mut s = start();
    //  S0 draws g h i j: 10 of 10. S1 (k l) would draw from S0, but all its contexts have sharers: never.
    assert_eq!(s.next(), "a b c d e f g h i j | . . . . k l . . . .");
    for _ in 0..20 {
        assert_eq!(moves(&s.step()), [""; 0], "they stay");
    }
    // With the paper's rules they swing for ever.
    let mut s = start().sam(SamConfig::paper_exact());
    assert!((0..20).all(|_| !s.step().proposals.is_empty()));
    // Without this addition of ours it moves every other round: the cooldown delays tasks that moved.
    let mut s = start().sam("-keep-full".parse().unwrap());
    assert!((0..20).filter(|_| !s.step().proposals.is_empty()).count() >= 9);
}

#[test]
fn s1_11_others_load_does_not_make_room_for_a_swing() {
    // As 10, but others keep two CPUs of each package busy: S0 is full with eight sharers.
    //     S0: a b c d e f . . # # │ S1: g h i j k l . . # #
    let mut s = scene("a b c d e f . . . . | g h i j k l . . . .").inter("abcdefghijkl");
    s.busy = vec![(8, 0.9), (9, 0.9), (18, 0.9), (19, 0.9)];
    assert_eq!(s.next(), "a b c d e f g h . . | . . i j k l . . . .");
    for _ in 0..20 {
        assert_eq!(moves(&s.step()), [""; 0]);
    }
}

#[test]
fn s1_12_four_packages_gather_on_the_first() {
    //     S0: a . │ S1: b . │ S2: c . │ S3: d .
    let mut s = scene("a . | b . | c . | d .").inter("abcd");
    //  S0 draws b: full. S1: inter(1) = ∅. S2 draws from S3 (S0 is full): d. S3: ∅.
    assert_eq!(s.next(), "a b | . . | c d | . .");
    assert_eq!(s.next(), "a b | . . | c d | . .");
}

#[test]
fn s1_13_no_task_moves_twice() {
    // S0 draws c from S1 by a swap with x; S1's turn comes with inter(1) = ∅, and S2 finds only moved tasks in S0.
    //     S0: a x │ S1: c y │ S2: e z
    let mut s = scene("a x | c y | e z").inter("ace");
    let d = s.step();
    // S0: a c (full) │ S1: x y │ S2: e z: no partner is left for e.
    assert_eq!(s.picture(), "a c | x y | e z");
    assert_eq!(moves(&d), ["c to 1", "x to 2"]);
}

#[test]
fn s1_14_lowest_task_then_lowest_cpu() {
    // One place for a sharer in S0; d and c want it, seen on CPUs 4 and 5: c has the lower id. Of x and w, w makes way.
    //     S0: a n x w │ S1: d c . .
    let mut s = scene("a n x w | d c . .").inter("acd").intra("n");
    s.settings = SamConfig::default();
    assert_eq!(s.next(), "a n d c | x w . .");
}

#[test]
fn s1_15_allowed_sets_bound_every_move() {
    // d is not allowed in S0 and is passed over; e is. x may not leave S0, y may.
    //     S0: a n x y │ S1: d e . .
    let mut s = scene("a n x y | d e . .").inter("ade").intra("n").allowed("d", "4-7").allowed("x", "0-3");
    assert_eq!(s.next(), "a n x e | d y . .");
    // An idle context outside of what e is allowed is none for it: it swaps.
    //     S0: a y . . │ S1: e . . .
    let mut s = scene("a y . . | e . . .").inter("ae").allowed("e", "1,4-7");
    assert_eq!(s.next(), "a e . . | y . . .");
    // All three of S1 may move to S0, although not everywhere there: that is more than S0's two.
    let mut s = scene("a b . . . | c d e . .").inter("abcde").allowed("c", "0-8");
    assert_eq!(s.next(), "a b c d e | . . . . .");
}

#[test]
fn s1_16_unknown_tasks_are_neither_movers_nor_victims() {
    // x lacks the inter count that others have (starved): nothing is known of it, so it stays, and c finds no place
    // in S0.
    //     S0: a x │ S1: c y
    let mut s = scene("a x | c y").inter("ac");
    s.actor('x').counts.remove(&Signal::Inter);
    //  S0 has no room. S1 would end up with two sharers, more than S0's one: a ⇄ y.
    assert_eq!(s.next(), "y x | c a");
}
