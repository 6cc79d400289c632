//! Sharers go to those of their own application (`own-app`), and partners are held (`hold-partners`).

use super::*;

fn own(scene: Scene) -> Scene {
    scene.sam("default,+own-app".parse().unwrap())
}

/// The named tasks belong to that application.
fn of(scene: Scene, names: &str, app: u32) -> Scene {
    scene.each(names, |a| a.app = app)
}

#[test]
fn o_01_halves_of_two_applications_change_places() {
    // Both sockets are full of sharers: figure 4 moves no task. a–d have their home on S0 (first of equals), w–z on S1.
    //     S0: a b w x │ S1: c d y z
    let s = of(of(scene("a b w x | c d y z").inter("abcdwxyz"), "abcd", 1), "wxyz", 2);
    assert_eq!(s.clone().next(), "a b w x | c d y z", "the figure");
    assert_eq!(own(s).next(), "a b c d | w x y z");
}

#[test]
fn o_02_an_application_goes_where_most_of_it_is() {
    //     S0: a x . . │ S1: b c . .      a goes to b and c, not they to a
    let mut s = of(own(scene("a x . . | b c . .").inter("abc")), "abc", 1);
    assert_eq!(s.next(), ". x . . | b c a .");
    // CPU-bound tasks make way, then memory-bound ones; sharers of others that are at home do not.
    //     S0: a . . . │ S1: b c x n
    let mut s = of(of(own(scene("a . . . | b c x n").inter("abc").intra("n")), "abc", 1), "n", 2);
    assert_eq!(s.next(), "x . . . | b c a n");
    let mut s = of(own(scene("a . . . | b c m n").inter("abc")), "abc", 1);
    s = s.mem("mn").count("mn", Signal::Remote, BANDWIDTH * 3 / 20);
    assert_eq!(s.next(), "m . . . | b c a n", "half of what it loads is there");
}

#[test]
fn o_03_what_fits_no_socket_stays() {
    // Five sharers, four contexts: some stay apart wherever they go.
    let mut s = of(own(scene("a b c x | d e y z").inter("abcde")), "abcde", 1);
    assert_eq!(s.next(), "a b c x | d e y z");
    // With two contexts per core, and on whole cores: two cores have no room for three of four tasks' sharers.
    let two =
        |config: &str| of(Scene::draw("a b . . | c x . .", 2).inter("abc"), "abc", 1).sam(config.parse().unwrap());
    assert_eq!(two("default,+own-app,-whole-cores").next(), "a b c . | . x . .");
    assert_eq!(two("default,+own-app").next(), "a b . . | c x . .");
}

#[test]
fn o_04_those_that_share_alone_in_their_application_share_with_each_other() {
    //     S0: a . │ S1: c .      two programs, one shared memory
    let mut s = of(of(own(scene("a . | c .").inter("ac")), "a", 1), "c", 2);
    assert_eq!(s.next(), "a c | . .");
}

#[test]
fn o_05_on_chiplets_a_home_is_one_cache() {
    // Two sharers, caches of two cores; then three, which no cache has room for.
    //     P0: a . / x . │ P1: c . / . .
    let mut s = of(own(scene("a . / x . | c . / . .").inter("ac")), "ac", 1);
    assert_eq!(s.next(), "a c / x . | . . / . .");
    let mut s = of(own(scene("a b / x . | c . / . .").inter("abc")), "abc", 1);
    assert_eq!(s.next(), "a b / x . | c . / . .");
}

#[test]
fn o_06_partners_are_held_where_others_come() {
    let s = scene("a b x . | c . . .").inter("abc").sam("default,+hold-partners".parse().unwrap());
    assert_eq!(moves(&s.decide()), ["c to 3", "a to 0", "b to 1"]);
    // Where no task comes, none is held; and holding is no move.
    assert!(moves(&scene("a b x . | y . . .").intra("ab").sam(s.settings).decide()).is_empty());
    let Decision { state, .. } = s.decide();
    assert_eq!(state.moves.len(), 1);
}

/// Holds place/sam.
#[test]
fn o_07_nobody_is_held_on_a_core_that_two_share() {
    // Three cores of two contexts, 0–2 and 6–8: a and n were seen on core 0. They stay in S0, and core 2 is idle.
    //     S0: a . . n . . │ S1: c . . . . .
    let s = Scene::draw("a . . n . . | c . . . . .", 2).inter("ac").intra("n");
    let s = s.sam("default,+hold-partners".parse().unwrap());
    assert_eq!(moves(&s.decide()), ["c to 1", "a to 0-2,6-8", "n to 0-2,6-8"]);
    // With more tasks than cores that is how it has to be.
    let s = Scene::draw("a n | c .", 2).inter("ac").intra("n").sam(s.settings);
    assert_eq!(moves(&s.decide()), [""; 0]);
}

#[test]
fn o_08_a_home_is_worth_more_than_others_lose_by_leaving_it() {
    // Three sharers at four times the threshold lose 3 × 4 × 5 % by being apart. m has 1 % misses per cycle, 100 times
    // the threshold of remote ones: away from its pages it takes twice as long.
    //     S0: a k l o │ S1: b c m n
    let s = of(own(scene("a k l o | b c m n").inter("abc").mem("klomn")), "abc", 1);
    assert_eq!(s.clone().next(), "a k l o | b c m n");
    // Twenty times the threshold, 3 × 20 × 5 %, is worth it, and a CPU-bound m loses nothing.
    assert_eq!(s.clone().count("abc", Signal::Inter, 20 * COHERENCE).next(), "m k l o | b c a n");
    assert_eq!(s.clone().count("m", Signal::LlcMisses, 0).next(), "m k l o | b c a n");
    // Most are on S1, but none has to leave S0.
    let mut s = of(own(scene("a . . . | b c m n").inter("abc").mem("mn")), "abc", 1);
    assert_eq!(s.next(), "a b c . | . . m n");
}

#[test]
fn o_09_where_pages_follow_it_is_the_memory_that_is_served_less() {
    // Each node serves 100. m and n need 30, as do k and l: with m instead of a S0 has 90.
    //     S0: a k l y │ S1: b c m n
    let s = of(own(scene("a k l y | b c m n").inter("abc").mem("klmn")), "abc", 1);
    let s = Scene { numa_balancing: true, ..s };
    assert_eq!(s.clone().next(), "m k l y | b c a n");
    // k and l need 60: with m S0 would need 150, of which 30 less are served than of 120 and 60. Without k and y the
    // sum is unchanged, of 60 and 120.
    assert_eq!(s.count("kl", Signal::LlcMisses, BANDWIDTH * 6 / 10).next(), "a c l b | y k m n");
}
