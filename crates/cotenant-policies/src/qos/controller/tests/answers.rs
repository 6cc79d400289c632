//! `steady`, where single answers are known.

use super::*;

/// Phases of `steady` after readings of 400 answers, of which 4 may be beyond the goal: speeds, and the number beyond.
fn following_answers<T>(readings: &[(f64, f64)], what: impl Fn(Phase) -> T) -> Vec<T> {
    let controller = preset("steady");
    let (_, mut state) = controller.start();
    let mut next = |(speed, beyond): &(f64, f64)| {
        let seen = PhaseResult { excess: vec![Some(Excess::of(*beyond, 400, 0.99))], ..PhaseResult::one(*speed) };
        let (phase, after) = controller.next(state.clone(), &seen);
        state = after;
        what(phase)
    };
    readings.iter().map(&mut next).collect()
}

/// Holds qos/controllers.
#[test]
fn steady_goes_by_how_many_answers_are_beyond_the_goal() {
    let duties = |readings: &[(f64, f64)]| following_answers(readings, |phase| (phase.duty * 1e4).round() / 1e4);
    // Alone, then unthrottled: 7 answers beyond the goal, 1.75 times the allowed 4, which is 1.3 deviations and may be
    // chance once. The second time a pause finds the cause: none beyond there, so the duty is 0.7 / 1.75. Then none, at
    // most three, so the duty doubles. Two, at most 6.5: up by 0.05. 7, the first miss after success: only 0.7 times,
    // since three were saved. 7 again: 1 / 1.75 times, after a pause without any.
    let tried = [(100.0, 0.0), (50.0, 7.0), (50.0, 7.0), (99.0, 0.0)];
    let climbs = [(95.0, 0.0), (95.0, 2.0), (50.0, 7.0), (50.0, 7.0), (99.0, 0.0)];
    assert_eq!(duties(&[&tried[..], &climbs].concat()), [1.0, 1.0, 0.0, 0.4, 0.8, 0.85, 0.595, 0.0, 0.34]);
}

/// 7 of 400 are 1.3 deviations beyond the goal, 14 are 3.5.
/// Holds qos/cause.
#[test]
fn one_slow_reading_may_be_chance() {
    let asks = |readings: &[f64]| {
        let readings: Vec<(f64, f64)> =
            readings.iter().map(|beyond| (if *beyond > 4.0 { 50.0 } else { 100.0 }, *beyond)).collect();
        following_answers(&readings, |phase| phase.why == Why::Blame)
    };
    assert_eq!(asks(&[0.0, 7.0, 0.0, 7.0, 0.0]), [false; 5]);
    assert_eq!(asks(&[0.0, 7.0, 7.0]), [false, false, true]);
    assert_eq!(asks(&[0.0, 14.0]), [false, true]);
}

/// Low-priority programs that kept the goal like this before are not throttled at the first blame: a moment made slow
/// by others may have ended just before the pause.
#[test]
fn who_kept_the_goal_is_throttled_at_the_second_blame() {
    let phases = |readings: &[(f64, f64)]| following_answers(readings, |phase| (phase.why, phase.background));
    let (alone, kept, missed) = ((100.0, 0.0), (95.0, 2.0), (20.0, 14.0));
    let blamed = [missed, alone, alone];
    // Beside the others at once, and the goal is missed: back to the background, after the debt is repaid.
    let back = phases(&[&[alone, alone][..], &blamed].concat());
    assert_eq!(back[2..], [(Why::Blame, false), (Why::MakeUp, true), (Why::Hold, true)]);
    // It held there before: they stay until the next miss without success in between.
    let once = phases(&[&[alone, alone, kept][..], &blamed].concat());
    assert_eq!(once[3..], [(Why::Blame, false), (Why::MakeUp, false), (Why::Hold, false)]);
    let background = |readings: Vec<(f64, f64)>| phases(&readings).last().unwrap().1;
    assert!(background([&[alone, alone, kept][..], &blamed, &blamed].concat()));
    assert!(!background([&[alone, alone, kept][..], &blamed, &[kept], &blamed].concat()));
}

/// Others miss the goal by themselves: a program beside them that makes it worse goes to the background, where it takes
/// what they leave; one that makes no difference stays.
#[test]
fn what_makes_it_worse_beside_others_goes_to_the_background() {
    let phases = |readings: &[(f64, f64)]| following_answers(readings, |phase| (phase.duty, phase.background));
    let (alone, kept) = ((100.0, 0.0), (95.0, 2.0));
    let with = |accused: f64| phases(&[alone, alone, kept, (accused, 60.0), (30.0, 40.0), (30.0, 40.0)])[3..].to_vec();
    assert_eq!(with(10.0), [(0.0, false), (1.0, true), (1.0, true)]);
    assert_eq!(with(28.0), [(0.0, false), (1.0, false), (1.0, false)]);
}

/// Holds qos/cause.
#[test]
fn what_few_answers_tell_of_the_speed_alone_is_no_proof() {
    // Alone 2 of 300, of which three may be: a share of 0.667, and of 1.94 at most, (√0.667 + 2 · 0.5 / √3)².
    let alone = Excess::of(2.0, 300, 0.99);
    let of = |beyond: f64, since: (f64, u64)| {
        Excess::of(beyond, 500, 0.99).against(&alone, &Excess::of(since.0, since.1, 0.99))
    };
    // 9 of 500, of which 9.7 may be by that: √1.8 − √0.667 is 0.53 < 0.73, two deviations of both. 16: 0.97, and 6.3
    // too many.
    let told = |excess: Excess| (excess.is_missed(), excess.is_certain(), (excess.over * 10.0).round() / 10.0);
    let short = (9.0, 500);
    assert_eq!([9.0, 16.0].map(|beyond| told(of(beyond, short))), [(false, false, 0.0), (true, true, 6.3)]);
    // Fewer than allowed count in full.
    assert_eq!(told(of(1.0, short)), (false, false, -4.0));
    // All since the last pause: √1.5 − √0.667 is 0.41 < 0.62, √2.25 − √0.667 is 0.68. Nine of which may be are too
    // few.
    let since = [(30.0, 2_000), (45.0, 2_000), (20.0, 900)].map(|since| of(5.0, since).is_certain());
    assert_eq!(since, [false, true, false]);
}

/// Holds qos/controllers.
#[test]
fn what_was_beyond_the_goal_is_made_up_for() {
    let phases = |readings: &[(f64, f64)]| {
        following_answers(readings, |phase| (phase.duty > 0.0, phase.why == Why::Blame, phase.why == Why::MakeUp))
    };
    let (run, blame, makes_up) = ((true, false, false), (false, true, false), (false, false, true));
    // Four too few alone, three of which count; ten too many, so the debt is seven. The pause that finds the cause
    // repays four, and another one the other three.
    let trial = [(100.0, 0.0), (20.0, 14.0), (99.0, 0.0)];
    assert_eq!(phases(&[&trial[..], &[(99.0, 0.0)]].concat()), [run, blame, makes_up, run]);
    // However many were beyond it, ten are owed: three pauses pay them.
    let trial = [(100.0, 0.0), (20.0, 140.0), (99.0, 0.0)];
    assert_eq!(phases(&[&trial[..], &[(99.0, 0.0); 2]].concat()), [run, blame, makes_up, makes_up, run]);
    // Others make it slow: no debt then, nor if another pause shows so.
    assert_eq!(phases(&[(100.0, 0.0), (20.0, 14.0), (20.0, 14.0)]), [run, blame, run]);
    assert_eq!(phases(&[&trial[..], &[(20.0, 40.0)]].concat()), [run, blame, makes_up, run]);
    // One too many in the pause proves nothing if the trial had far more; after three such pauses, the speed alone is
    // measured.
    let (trial, pauses, measure) = ([(100.0, 0.0), (20.0, 140.0)], [(20.0, 5.0); 3], (false, false, false));
    let expected = [run, blame, makes_up, makes_up, run, measure];
    assert_eq!(phases(&[&trial[..], &pauses, &[(99.0, 0.0)]].concat()), expected);
}

/// Holds qos/probing.
#[test]
fn few_answers_tell_that_a_p99_is_missed_and_many_that_it_is_kept() {
    let sure = |within: u64, beyond: u64| Excess::of(beyond as f64, within + beyond, 0.99).is_sure();
    // Of 100 one may be beyond, give or take 1: three are too many, two may be chance, and so may none; of 400 none
    // cannot.
    assert_eq!([sure(97, 3), sure(98, 2), sure(100, 0)], [true, false, false]);
    assert_eq!([sure(390, 0), sure(400, 0), sure(396, 4)], [false, true, false]);
    // Half of 100, give or take 5.
    let median = |within: u64, beyond: u64| Excess::of(beyond as f64, within + beyond, 0.5).is_sure();
    assert_eq!([median(60, 40), median(55, 45), median(40, 60)], [true, false, true]);
}

/// Holds qos/cause.
#[test]
fn three_of_eighteen_answers_are_alarming() {
    let alarming = |beyond: f64, count| Excess::of(beyond, count, 0.99).is_alarming();
    // 2 (√3 − √0.18) = 2.62 and 2 (√3 − √0.19) = 2.59 deviations; 2.90 and 2.47 for six and five of a hundred.
    let told = [(3.0, 18), (3.0, 19), (6.0, 100), (5.0, 100), (2.0, 2), (0.0, 50)];
    assert_eq!(told.map(|(beyond, count)| alarming(beyond, count)), [true, false, true, false, false, false]);
    // Of 40 and 500: √10 − √1 is 2.16, and two deviations of that are √(10/4 + 1/5) = 1.64; √5 − √1 is 1.24 < √(5/2 +
    // 1/5) = 1.64.
    let worse = |beyond| Excess::of(beyond, 40, 0.99).is_worse_than(&Excess::of(5.0, 500, 0.99));
    assert_eq!([worse(4.0), worse(2.0)], [true, false]);
}
