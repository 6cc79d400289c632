//! Several rounds: state, outcomes, starting and ending tasks.

use super::*;
use cotenant_model::policy::{DynPolicy, State};

#[test]
fn r_01_out_reluctantly_and_home_again() {
    //     S0: a n o m │ S1: c x y z
    let mut s = scene("a n o m | c x y z").inter("ac").intra("no").mem("m");
    assert_eq!(s.next(), "a n o c | m x y z");
    assert_eq!(s.origins(), [('m', 0)]);
    // m meets remote memory. All of S0 share: it stays.
    s = s.remote("m");
    assert_eq!(s.next(), "a n o c | m x y z");
    // n ends: an idle context at home.
    s.actors.retain(|a| a.name != 'n');
    assert_eq!(s.next(), "a m o c | . x y z");
    assert_eq!(s.origins(), []);
    // At home it meets none.
    s = s.count("m", Signal::Remote, 0);
    assert_eq!(s.next(), "a m o c | . x y z");
}

#[test]
fn r_02_a_denied_move_is_not_believed() {
    let start = || scene("a n o m | c x y .").inter("ac").intra("no").mem("m");
    // m's half of the swap is denied: it did not go, and has no origin. c came: both are on one context.
    //     S0: a n o m │ S1: c x y .   →   S0: a n o mc │ S1: . x y .
    let mut s = start();
    s.denied = "m".into();
    assert_eq!(s.next(), "a n o mc | . x y .");
    assert_eq!(s.origins(), [('m', 0)], "asked for");
    s.step();
    assert_eq!(s.origins(), [], "but it did not happen");

    // c's half is denied: it has not moved, so no cooldown delays its next draw; m is remembered.
    let mut s = start();
    s.denied = "c".into();
    assert_eq!(s.next(), "a n o . | mc x y .");
    assert_eq!(s.next(), "a n o c | m x y .");
    assert_eq!(s.origins(), [('m', 0)]);
}

#[test]
fn r_03_a_way_home_that_was_denied_is_not_forgotten() {
    //     S0: x . │ S1: m .
    let mut s = scene("x . | m .").remote("m").origin("m", 0);
    s.denied = "m".into();
    assert_eq!(s.next(), "x . | m .");
    assert_eq!(s.origins(), [], "asked to go home");
    assert_eq!(s.next(), "x m | . .", "still remembered, and asked again");
    assert_eq!(s.origins(), []);
}

#[test]
fn r_04_only_applied_is_believed() {
    for outcome in [Outcome::Gone, Outcome::Stale, Outcome::Denied, Outcome::NotThisMachine] {
        let mut s = scene("a n o m | c x y .").inter("ac").intra("no").mem("m");
        let d = s.decide();
        let state = d.state;
        assert_eq!(state.origins.len(), 1);
        s.state = state.clone();
        s.now = d.wake_at;
        s.outcomes = d.proposals.iter().map(|p| ActionOutcome { action: p.action.clone(), outcome }).collect();
        let again = s.decide();
        assert_eq!(moves(&again), ["c to 3", "m to 4"], "{outcome:?}: nothing happened, so the same again");
        let state = &again.state;
        assert_eq!(state.moves[1].before, None, "{outcome:?}");
        // A missing outcome, as of a proposal that could not be resolved, is no move either.
        s.outcomes.clear();
        assert_eq!(moves(&s.decide()), ["c to 3", "m to 4"]);
    }
}

#[test]
fn r_05_new_tasks_have_no_rates_and_keep_their_context() {
    // b is new: its context is not idle, and it is not displaced.
    //     S0: a b │ S1: c .
    let mut s = scene("a b | c .").inter("ac").each("b", |a| a.newborn = true);
    // S0 has no room; S1 has an idle context and would end up with two sharers, more than S0's one.
    assert_eq!(s.next(), ". b | c a");
    // A new task that would be a sharer is none yet.
    let mut s = scene("a . | c .").inter("ac").each("c", |a| a.newborn = true);
    assert_eq!(s.next(), "a . | c .");
    s = s.each("c", |a| a.newborn = false);
    assert_eq!(s.next(), "a c | . .");
}

#[test]
fn r_06_tasks_that_end_leave_nothing_behind() {
    let mut s = scene("a n o m | c x y z").inter("ac").intra("no").mem("m");
    s.step();
    assert_eq!((s.origins(), s.state.moves.len()), (vec![('m', 0)], 2));
    // m and c end; their outcomes still arrive.
    s.actors.retain(|a| !"cm".contains(a.name));
    assert_eq!(s.next(), "a n o . | . x y z");
    assert_eq!((s.origins(), s.state.moves.len()), (vec![], 0));
}

#[test]
fn r_07_what_a_move_causes_is_not_taken_for_sharing() {
    // c ⇄ x; while x settles in S1 it misses on lines that S0 still holds, and looks like a sharer.
    //     S0: a x z │ S1: c . .   →   S0: a c z │ S1: x . .
    let start = |setting: &str| {
        let mut s = scene("a x z | c . .").inter("ac").sam(setting.parse().unwrap());
        assert_eq!(s.next(), "a c z | x . .");
        s.inter("x")
    };
    let mut s = start("default");
    assert_eq!(s.next(), "a c z | x . .", "in the next interval it is what it was");
    assert_eq!(s.next(), "a c x | z . .", "after that it must be true");
    assert_eq!(start("-cooldown").next(), "a c x | z . .", "at once");
}

#[test]
fn r_08_a_sharer_stays_a_sharer_for_an_interval() {
    // c ⇄ x; in the next interval c happens to count nothing, and e appears. y makes room for e, not c, whose id is
    // lower.
    //     S0: a x y │ S1: c . .   →   S0: a c y │ S1: x e .
    let mut s = scene("a x y | c . .").inter("ac");
    assert_eq!(s.next(), "a c y | x . .");
    s = s.count("c", Signal::Inter, 0);
    let mut e = s.actor('a').clone();
    (e.name, e.cpu) = ('e', 4);
    s.actors.push(e);
    assert_eq!(s.picture(), "a c y | x e .");
    assert_eq!(s.next(), "a c e | x y .");
}

#[test]
fn r_09_four_packages_over_several_rounds() {
    // S0 draws b and c and is full; d has no partners left elsewhere.
    //     S0: a . . │ S1: b . . │ S2: c . . │ S3: d . .
    let mut s = scene("a . . | b . . | c . . | d . .").inter("abcd");
    assert_eq!(s.next(), "a b c | . . . | . . . | d . .");
    assert_eq!(s.next(), "a b c | . . . | . . . | d . .");
    // b ends; a and c share on, and d comes.
    s.actors.retain(|a| a.name != 'b');
    assert_eq!(s.next(), "a d c | . . . | . . . | . . .");
    assert_eq!(s.next(), "a d c | . . . | . . . | . . .");
}

#[test]
fn r_10_the_interval_stays_when_all_is_calm() {
    let mut s = scene("x . | y .");
    for round in 1..4 {
        let d = s.step();
        assert_eq!((d.proposals.len(), d.wake_at), (0, Time::from_millis(100 * (round + 1))));
    }
    s.config.interval = std::time::Duration::from_millis(10);
    assert_eq!(s.decide().wake_at, s.now + s.config.interval);
}

#[test]
fn r_11_the_state_can_be_written_down_and_read_back() {
    let mut s = scene("a n o m | c x y .").inter("ac").intra("no").mem("m");
    s.step();
    let text = serde_json::to_string(&State::of::<Sam>(s.state.clone())).unwrap();
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), State::of::<Sam>(s.state.clone()));
    // A state by hand needs no more than the origins, and a state of another policy is none, with a note.
    let by_hand: SamState = serde_json::from_str(r#"{"origins":[{"task":12,"unit":0}]}"#).unwrap();
    assert_eq!(by_hand, from_origins([(TaskId(12), 0)]));
    let apps = BTreeMap::new();
    let ctx = Ctx { topology: &s.topology, machine: &s.profile, apps: &apps, config: &s.config };
    let foreign = State::json("numad", serde_json::json!({}));
    let d = DynPolicy::decide(&Sam::default(), &ctx, &s.view().view(), &[], foreign, s.now);
    assert_eq!(d.notes, ["sam: the state is of numad; it begins anew"]);
    assert!(d.state.read::<Sam>().is_some());
}

#[test]
fn r_12_an_origin_on_another_machine_is_none() {
    let mut s = scene(". . | m .").remote("m").origin("m", 7);
    assert_eq!(s.next(), ". . | m .");
    assert_eq!(s.origins(), []);
}
