//! Stage 2, branch by branch. Remembered origins are part of the start.

use super::*;

#[test]
fn s2_01_swaps_with_one_that_was_moved_the_other_way() {
    // m came from S0, k from S1: both go home, although S0 has an idle context and a CPU-bound task.
    //     S0: x k . │ S1: m y .
    let mut s = scene("x k . | m y .").remote("m").origin("m", 0).origin("k", 1);
    assert_eq!(s.next(), "x m . | k y .");
    assert_eq!(s.origins(), [], "home, forgotten");
}

#[test]
fn s2_02_an_idle_context_at_home() {
    //     S0: x . . │ S1: m y .
    let mut s = scene("x . . | m y .").remote("m").origin("m", 0);
    assert_eq!(s.next(), "x m . | . y .");
    assert_eq!(s.origins(), []);
}

#[test]
fn s2_03_swaps_with_a_cpu_bound_task_at_home() {
    // n shares and o is memory-bound; y is CPU-bound.
    //     S0: n o y │ S1: m . .
    let mut s = scene("n o y | m . .").intra("n").count("o", Signal::LlcMisses, 3_000_000).remote("m").origin("m", 0);
    assert_eq!(s.next(), "n o m | y . .");
    assert_eq!(s.origins(), []);
}

#[test]
fn s2_04_swaps_with_a_memory_bound_task_at_home_reluctantly() {
    //     S0: n o │ S1: m .
    let mut s = scene("n o | m .").intra("n").count("o", Signal::LlcMisses, 4_000_000).remote("m").origin("m", 0);
    assert_eq!(s.next(), "n m | o .");
    assert_eq!(s.origins(), [('o', 0)], "it is o now that is away");
    // The origin that o brought along is kept.
    let s = scene("n o | m . | . .").intra("n").count("o", Signal::LlcMisses, 4_000_000);
    let mut s = s.remote("m").origin("m", 0).origin("o", 2);
    assert_eq!(s.next(), "n m | o . | . .");
    assert_eq!(s.origins(), [('o', 2)]);
}

#[test]
fn s2_05_stays_where_only_sharers_are_at_home() {
    //     S0: n o │ S1: m .
    let mut s = scene("n o | m .").intra("no").remote("m").origin("m", 0);
    assert_eq!(s.next(), "n o | m .");
    assert_eq!(s.origins(), [('m', 0)], "still remembered");
}

#[test]
fn s2_06_stays_where_it_meets_no_remote_memory() {
    //     S0: . . │ S1: m .
    let mut s = scene(". . | m .").origin("m", 0);
    assert_eq!(s.next(), ". . | m .");
    assert_eq!(s.origins(), [('m', 0)]);
}

#[test]
fn s2_07_remote_memory_without_a_home_is_nobodys() {
    //     S0: . . │ S1: m .
    let mut s = scene(". . | m .").remote("m");
    assert_eq!(s.next(), ". . | m .");
}

#[test]
fn s2_08_seen_at_home_is_forgotten() {
    // m returned home by other means.
    //     S0: m . │ S1: . .
    let mut s = scene("m . | . .").origin("m", 0);
    s.step();
    assert_eq!(s.origins(), []);
}

#[test]
fn s2_09_one_chain_ends_after_one_link() {
    // m p q belong to S0, which has two contexts; m is away.
    //     S0: p q │ S1: m .
    let start = || scene("p q | m .").count("mpq", Signal::LlcMisses, 2_000_000).remote("m").origin("m", 0);
    let low = |mut s: Scene| {
        s.profile.thresholds.as_mut().unwrap().task_bandwidth_per_s = Some(1e7);
        s
    };
    let mut s = low(start());
    assert_eq!(s.next(), "m q | p .");
    //  p meets remote memory now; that m came home does not let p push q out in turn.
    s = s.count("m", Signal::Remote, 0).remote("p");
    assert_eq!(s.next(), "m q | p .");
    //  As soon as there is an idle context, it goes home.
    s.actors.retain(|a| a.name != 'q');
    assert_eq!(s.next(), "m p | . .");
    assert_eq!(s.origins(), []);
    // With the paper's rules, p pushes m out again.
    let mut s = low(start()).sam(SamConfig::paper_exact());
    assert_eq!(s.next(), "m q | p .");
    s = s.count("m", Signal::Remote, 0).remote("p");
    assert_eq!(s.next(), "p q | m .");
}

#[test]
fn s2_10_pages_make_a_home_where_no_origin_is_remembered() {
    // m's pages: 900 on node 0, 100 on node 1.
    //     S0: x . │ S1: m .
    let pages = |pages: &[(u32, u64)]| {
        let pages = pages.to_vec();
        scene("x . | m .").remote("m").each("m", |a| a.pages = Some(pages.clone()))
    };
    assert_eq!(pages(&[(0, 900), (1, 100)]).next(), "x m | . .");
    // As many on its own node: no reason to move. More there: neither.
    assert_eq!(pages(&[(0, 500), (1, 500)]).next(), "x . | m .");
    assert_eq!(pages(&[(0, 400), (1, 500)]).next(), "x . | m .");
    // A node without CPUs is no home.
    assert_eq!(pages(&[(7, 900), (1, 100)]).next(), "x . | m .");
    // Switched off, as in the paper.
    let off = "-page-home".parse().unwrap();
    assert_eq!(pages(&[(0, 900)]).sam(off).next(), "x . | m .");
    // Sharers stay with their like.
    assert_eq!(pages(&[(0, 900)]).intra("m").next(), "x . | m .");
    // A remembered origin is first: m is from S1, and is there.
    assert_eq!(pages(&[(0, 900)]).origin("m", 1).count("m", Signal::Cycles, CYCLES).next(), "x m | . .");
}

#[test]
fn s2_11_pages_do_not_send_a_task_to_an_exhausted_node() {
    // S0 is at 6,000,000 of 7,500,000 misses; m brings 1,500,001: it would exceed; 1,500,000 fit.
    //     S0: o . │ S1: m .
    for (misses, after) in [(1_500_000, "o m | . ."), (1_500_001, "o . | m .")] {
        let s = scene("o . | m .").remote("m").each("m", |a| a.pages = Some(vec![(0, 900)]));
        let mut s = s.count("o", Signal::LlcMisses, 6_000_000).count("m", Signal::LlcMisses, misses);
        assert_eq!(s.next(), after);
    }
    // Nor its own: o would bring 4,000,000 to S1 instead of m's 1,000,000.
    //     S0: n o │ S1: m q
    for (misses, after) in [(3_500_000, "n m | o q"), (3_500_001, "n o | m q")] {
        let s = scene("n o | m q").intra("n").remote("m").each("m", |a| a.pages = Some(vec![(0, 900)]));
        let s = s.each("o", |a| a.pages = Some(vec![(1, 900)])).count("o", Signal::LlcMisses, 4_000_000);
        let mut s = s.count("m", Signal::LlcMisses, 1_000_000).count("q", Signal::LlcMisses, misses);
        assert_eq!(s.next(), after);
    }
}

#[test]
fn s2_11b_what_went_home_leaves_room_and_takes_some() {
    // m leaves S0 at 6,000,000 of 7,500,000 misses, and p takes its place if it has no more than the rest.
    //     S0: o m . │ S1: p . .
    let start = |drawing: &str, strays: &str, home: &[(char, u32)]| {
        let mut s = scene(drawing).remote(strays);
        for (name, node) in home {
            s.actor(*name).pages = Some(vec![(*node, 900)]);
        }
        s.count("o", Signal::LlcMisses, 6_000_000).count("m", Signal::LlcMisses, 1_000_000)
    };
    for (misses, after) in [(1_500_000, "o p . | . m ."), (1_500_001, "o . . | p m .")] {
        let mut s = start("o m . | p . .", "mp", &[('m', 1), ('p', 0)]).count("p", Signal::LlcMisses, misses);
        assert_eq!(s.next(), after);
    }
    // m and p both move to S0: p only while there is room for both.
    //     S0: o . . │ S1: m p .
    for (misses, after) in [(500_000, "o m p | . . ."), (500_001, "o m . | . p .")] {
        let mut s = start("o . . | m p .", "mp", &[('m', 0), ('p', 0)]).count("p", Signal::LlcMisses, misses);
        assert_eq!(s.next(), after);
    }
}

#[test]
fn s2_12_pages_do_not_drive_out_a_task_from_its_own() {
    // x y of S0 are CPU-bound; x's pages are there, y's are nowhere known.
    //     S0: x y │ S1: m .
    let pages = |s: Scene, names: &str| s.each(names, |a| a.pages = Some(vec![(0, 900)]));
    let mut s = pages(scene("x y | m .").remote("m"), "mx");
    assert_eq!(s.next(), "x m | y .");
    let mut s = pages(scene("x y | m .").remote("m"), "mxy");
    assert_eq!(s.next(), "x y | m .");
    // Memory-bound o makes way only where its pages are known to be elsewhere.
    //     S0: n o │ S1: m .
    let start = || pages(scene("n o | m .").intra("n").count("o", Signal::LlcMisses, 4_000_000).remote("m"), "m");
    assert_eq!(start().next(), "n o | m .");
    assert_eq!(start().each("o", |a| a.pages = Some(vec![(0, 800), (1, 100)])).next(), "n o | m .");
    let mut s = start().each("o", |a| a.pages = Some(vec![(0, 100), (1, 800)]));
    assert_eq!(s.next(), "n m | o .");
    assert_eq!(s.origins(), [], "S0 was not o's home");
}

#[test]
fn s2_13_sockets_in_order_then_tasks() {
    // One idle context in S0; p of S1 comes before m of S2.
    //     S0: n . │ S1: p . │ S2: m .
    let mut s = scene("n . | p . | m .").intra("n").remote("mp").origin("mp", 0);
    assert_eq!(s.next(), "n p | . . | m .");
}

#[test]
fn s2_14_a_task_that_moved_in_stage_1_stays() {
    // c is drawn to S0, where a is; it also meets remote memory, and its home is S2.
    //     S0: a . │ S1: c . │ S2: . .
    let mut s = scene("a . | c . | . .").inter("ac").remote("c").origin("c", 2);
    assert_eq!(s.next(), "a c | . . | . .");
    assert_eq!(s.origins(), [('c', 2)]);
}
