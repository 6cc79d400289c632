//! `steady`, where single answers are known.

use super::*;

/// What of each phase of `steady` behind readings of 400 answers, of which 4 may be beyond the goal: speeds, and how
/// many are.
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

#[test]
fn steady_goes_by_how_many_answers_are_beyond_the_goal() {
    let duties = |readings: &[(f64, f64)]| following_answers(readings, |phase| (phase.duty * 1e4).round() / 1e4);
    // Alone, and all the time at once: 7 beyond, 1.75 times as many as may be. Whose doing? None in a pause: 0.5 /
    // 1.75. None there: at most three, so twice as much is tried. Two, at most 6.5: by 0.05. 7, the first miss behind
    // one that was kept: by 0.7 alone, and the three too many were had ahead. Again 7: 1 / 1.75 of what was, behind a
    // pause without any.
    let tried = [(100.0, 0.0), (50.0, 7.0), (99.0, 0.0)];
    let climbs = [(95.0, 0.0), (95.0, 2.0), (50.0, 7.0), (50.0, 7.0), (99.0, 0.0)];
    assert_eq!(duties(&[&tried[..], &climbs].concat()), [1.0, 0.0, 0.2857, 0.5714, 0.6214, 0.435, 0.0, 0.2486]);
}

#[test]
fn what_was_beyond_the_goal_is_made_up_for() {
    let phases = |readings: &[(f64, f64)]| {
        following_answers(readings, |phase| (phase.duty > 0.0, phase.why == Why::Blame, phase.why == Why::MakeUp))
    };
    let (run, blame, makes_up) = ((true, false, false), (false, true, false), (false, false, true));
    // Four too few alone, of which three count; ten too many, seven are owed. The pause that tells whose doing that was
    // pays four, another the other three.
    let trial = [(100.0, 0.0), (20.0, 14.0), (99.0, 0.0)];
    assert_eq!(phases(&[&trial[..], &[(99.0, 0.0)]].concat()), [run, blame, makes_up, run]);
    // However many were beyond it, ten are owed: three pauses pay them.
    let trial = [(100.0, 0.0), (20.0, 140.0), (99.0, 0.0)];
    assert_eq!(phases(&[&trial[..], &[(99.0, 0.0); 2]].concat()), [run, blame, makes_up, makes_up, run]);
    // Somebody else makes it slow: nothing is owed then, nor where another pause tells so.
    assert_eq!(phases(&[(100.0, 0.0), (20.0, 14.0), (20.0, 14.0)]), [run, blame, run]);
    assert_eq!(phases(&[&trial[..], &[(20.0, 40.0)]].concat()), [run, blame, makes_up, run]);
    // One too many in the pause is no proof of that where by far more were in the trial; three such pauses, and the
    // speed alone is measured.
    let (trial, pauses, measure) = ([(100.0, 0.0), (20.0, 140.0)], [(20.0, 5.0); 3], (false, false, false));
    let expected = [run, blame, makes_up, makes_up, run, measure];
    assert_eq!(phases(&[&trial[..], &pauses, &[(99.0, 0.0)]].concat()), expected);
}

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
