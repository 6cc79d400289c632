//! `steady`, by speeds.

use super::*;
use crate::qos::phase::Waited;

#[test]
fn steady_doubles_then_climbs_and_falls() {
    let controller = preset("steady");
    let mut plant = Plant::new(&controller, 0.0);
    let rounded = |came: &Came| came.duties.iter().map(|d| (d * 1e4).round() / 1e4).collect::<Vec<f64>>();
    // Loss 0.16: the goal 0.9 is kept up to a duty of 0.625. Pause (3 readings), then 0.25, 0.5: speeds 0.96, 0.92.
    // At 0.5 the speed 0.92 is below 0.9 · 1.03 = 0.927: held.
    let came = plant.run(5, 0.16);
    assert_eq!(came.duties, [0.25, 0.5, 0.5, 0.5]);
    // It gets worse: 1 − 0.6 · 0.5 = 0.7 < 0.9: 0.35 (0.79), 0.245 (0.853), 0.1715 (0.897), 0.1201 (0.928): above, up
    // by 0.05. A pause after the third miss finds the cause.
    let came = plant.run(7, 0.6);
    assert_eq!((rounded(&came), came.asked), (vec![0.5, 0.35, 0.245, 0.1715, 0.12, 0.17], 1));
    // And better: down once more for the earlier loss, then up by 0.05, without doubling.
    let came = plant.run(3, 0.0);
    assert_eq!(rounded(&came), [0.119, 0.169, 0.219]);
    // Worse by far: 0.7 times until 0.0452 (0.864) is missed and 0.0317 (0.905) is not: held.
    let came = plant.run(12, 3.0);
    assert_eq!((rounded(&came)[5..].to_vec(), came.asked), (vec![0.0452, 0.0317, 0.0317, 0.0317, 0.0317], 2));
}

/// Phases of `steady` after the first.
fn following<T>(speeds: &[f64], what: impl Fn(Phase) -> T) -> Vec<T> {
    let controller = preset("steady");
    let (_, mut state) = controller.start();
    let mut next = |speed: &f64| {
        let (phase, after) = controller.next(state.clone(), &PhaseResult::one(*speed));
        state = after;
        what(phase)
    };
    speeds.iter().map(&mut next).collect()
}

/// Holds qos/means.
#[test]
fn steady_lets_run_beside_the_others_who_does_no_harm_in_the_background() {
    let duties = |speeds: &[f64]| following(speeds, |phase| (phase.duty, phase.background));
    let (back, beside) = ((1.0, true), (0.25, false));
    // Alone; above the goal at 0.25, 0.5, 1; below it outside the background, so it is back at 0.25; after four
    // successes the same is tried again.
    let speeds = [100.0, 99.0, 99.0, 99.0, 80.0, 99.0, 99.0, 99.0, 99.0, 99.0, 80.0];
    let expected = [(0.25, true), (0.5, true), back, beside, back, back, back, back, back, beside, back];
    assert_eq!(duties(&speeds), expected);
    // The first miss halves, as it was doubled before; the second does not.
    assert_eq!(duties(&[100.0, 99.0, 80.0, 80.0]), [(0.25, true), (0.5, true), (0.25, true), (0.175, true)]);
    // Outside the background it climbs as at first.
    let climbs = [beside, (0.5, false), (1.0, false), (1.0, false)];
    assert_eq!(duties(&[100.0, 99.0, 99.0, 99.0, 99.0, 99.0, 99.0])[3..], climbs);
}

/// Holds qos/cause.
#[test]
fn steady_asks_whose_doing_it_is_before_anybody_naps_who_ran_all_the_time() {
    let phases = |speeds: &[f64]| following(speeds, |phase| (phase.duty, phase.background, phase.why == Why::Blame));
    // Above the goal at 0.25 and 0.5, below it at 1. The goal holds in the pause: they are the cause, halved. It does
    // not: others are.
    let until = [100.0, 99.0, 99.0, 80.0];
    assert_eq!(phases(&[&until[..], &[99.0]].concat())[3..], [(0.0, true, true), (0.5, true, false)]);
    assert_eq!(phases(&[&until[..], &[80.0]].concat())[3..], [(0.0, true, true), (1.0, true, false)]);
    // Beside the others: back to the background.
    let until = [100.0, 99.0, 99.0, 99.0, 99.0, 99.0, 99.0, 80.0];
    assert_eq!(phases(&[&until[..], &[99.0]].concat())[7..], [(0.0, false, true), (1.0, true, false)]);
    assert_eq!(phases(&[&until[..], &[80.0]].concat())[7..], [(0.0, false, true), (1.0, false, false)]);
}

/// Between the background and naps: away from the others, and back where that was not the cause.
/// Holds qos/means.
#[test]
fn steady_goes_aside_before_anybody_naps() {
    let controller = preset("steady");
    let (_, mut state) = controller.start();
    let mut next = |speed: f64, taken: f64| {
        let seen = PhaseResult { room: true, taken: Some(taken), ..PhaseResult::one(speed) };
        let (phase, after) = controller.next(state.clone(), &seen);
        state = after;
        (phase.duty, phase.aside)
    };
    let (pause, aside, all) = (0.0, (1.0, true), (1.0, false));
    // Alone; above the goal at 0.25 and 0.5, below it at 1 because of the low-priority programs: aside. All CPUs are
    // tried again after four successes there with half of the CPU time they want; after another failure, after eight.
    for (speed, taken, expected) in [
        (100.0, 0.9, (0.25, false)),
        (99.0, 0.9, (0.5, false)),
        (99.0, 0.9, all),
        (80.0, 0.9, (pause, false)),
        (99.0, 0.9, aside),
    ] {
        assert_eq!(next(speed, taken), expected);
    }
    let readings_aside = |next: &mut dyn FnMut(f64, f64) -> (f64, bool)| (1..50).find(|_| next(99.0, 0.5) == all);
    assert_eq!(readings_aside(&mut next), Some(5));
    assert_eq!([next(80.0, 0.9), next(99.0, 0.9)], [(pause, false), aside]);
    assert_eq!(readings_aside(&mut next), Some(9));
    // Low-priority programs that get all they want there stay.
    assert_eq!([next(80.0, 0.9), next(99.0, 0.9)], [(pause, false), aside]);
    assert!((0..60).all(|_| next(99.0, 0.95).1));
    // If the goal is missed there too, they nap: the duty falls.
    assert_eq!([next(80.0, 0.95), next(99.0, 0.95)], [(pause, true), (0.7, true)]);
}

/// Holds qos/baseline.
#[test]
fn steady_measures_its_baseline_again() {
    let controller = preset("steady");
    let pauses = |phases: usize, loss: f64, slower: f64| {
        let mut plant = Plant::new(&controller, 0.0);
        plant.run(1, loss);
        plant.slower = slower;
        let came = plant.run(phases, loss);
        phases - came.duties.len() - came.asked
    };
    assert_eq!(pauses(61, 0.2, 0.0), 1, "after 60 readings");
    // It has half the speed, whatever runs beside it: pauses show that after four readings, and four and eight more;
    // after the third, the load may be another one.
    assert_eq!([pauses(20, 0.0, 0.5), pauses(22, 0.0, 0.5)], [0, 1]);
    // It has twice the speed, and the other program, which takes 0.2 of that, seems harmless. After three readings of
    // 1.9, 1.8 and 1.6 times the speed alone, that is measured again, and a duty of 1 misses the goal.
    let mut plant = Plant::new(&controller, 0.0);
    plant.run(1, 0.2);
    plant.slower = -1.0;
    assert_eq!(plant.run(4, 0.2).duties, [0.25, 0.5, 1.0]);
    assert_eq!(plant.state.as_ref().and_then(State::alone), Some(&[Some(200.0)][..]));
    assert!(plant.run(40, 0.2).quality > 0.9);
}

/// Low-priority programs that get what they want in the background gain nothing beside the others.
#[test]
fn who_has_cpus_to_spare_stays_in_the_background() {
    let beside = |taken| {
        let controller = preset("steady");
        let (_, mut state) = controller.start();
        let mut next = |speed| {
            let (phase, after) = controller.next(state.clone(), &PhaseResult { taken, ..PhaseResult::one(speed) });
            state = after;
            !phase.background
        };
        (0..50).filter(|_| next(100.0)).count()
    };
    assert_eq!([Some(0.9), Some(0.1)].map(beside), [0, 0]);
    assert!(beside(Some(0.09)) > 40 && beside(None) > 40, "others have most of it, or that is not known");
}

/// Holds qos/baseline.
#[test]
fn who_seems_faster_beside_others_is_measured_more_and_more_seldom() {
    let controller = preset("steady");
    let (mut phase, mut state) = controller.start();
    let mut readings = vec![0];
    // 100 in each pause, otherwise 130: no pause confirms it.
    while readings.len() <= 7 {
        let speed = if phase.why == Why::Baseline { 100.0 } else { 130.0 };
        (phase, state) = controller.next(state, &PhaseResult::one(speed));
        match phase.why {
            Why::Baseline => readings.push(0),
            _ => *readings.last_mut().unwrap() += 1,
        }
    }
    assert_eq!(readings[..7], [3, 12, 48, 60, 60, 60, 60]);
}

#[test]
fn nobody_waits_in_the_background_for_a_speed_that_is_never_known() {
    let controller = preset("steady");
    let backgrounds = |known: bool, phases: usize| {
        let (_, mut state) = controller.start();
        if known {
            state = controller.next(state, &PhaseResult::one(100.0)).1;
        }
        let mut next = |_| {
            let (phase, after) = controller.next(state.clone(), &PhaseResult::of(vec![None]));
            state = after;
            assert_eq!((phase.duty, phase.why), (1.0, Why::Unknown));
            phase.background
        };
        (0..phases).map(&mut next).collect::<Vec<_>>()
    };
    assert_eq!(backgrounds(false, 7), [true, true, true, true, true, false, false]);
    // A program that was known may be silent because it suffers.
    assert_eq!(backgrounds(true, 20), [true; 20]);
}

/// Others take half of its speed, whatever of ours runs: these run on, and stand still for hardly any of the time to
/// find that out.
/// Holds qos/innocent.
#[test]
fn nobody_is_throttled_for_what_others_do() {
    let controller = preset("steady");
    for loss in [0.0, 0.04] {
        let mut plant = Plant::new(&controller, 0.0);
        plant.run(5, 0.16); // a duty of a half, and all is well
        plant.slower = 0.5;
        let learns = plant.run(25, loss);
        let then = plant.run(200, loss);
        assert!(learns.utilisation >= 0.5 && then.utilisation >= 0.92, "{loss}: {learns:?} {then:?}");
        assert!(then.asked <= 8, "{loss}: {} of 200 phases ask whose doing it is", then.asked);
    }
}

/// Others take half of its speed, and ours as much of the rest when they run: these keep the goal of what others leave,
/// and that of the speed alone when others are gone.
/// Holds qos/innocent.
#[test]
fn what_others_leave_is_kept_while_they_are_there() {
    let controller = preset("steady");
    let mut plant = Plant::new(&controller, 0.0);
    plant.run(20, 0.5);
    plant.slower = 0.5;
    plant.run(30, 0.5);
    let beside = plant.run(150, 0.5);
    // A duty of 0.2 keeps nine tenths.
    assert!(beside.quality >= 0.88 && (0.1..0.3).contains(&beside.utilisation), "{beside:?}");
    plant.slower = 0.0;
    plant.run(20, 0.5);
    let after = plant.run(100, 0.5);
    assert!(after.quality >= 0.9 && (0.1..0.2).contains(&after.utilisation), "{after:?}");
}

/// The pause that comes behind a few misses says whose doing these are, and so does what follows.
/// Holds qos/innocent.
#[test]
fn it_is_said_that_others_make_it_slow() {
    let controller = preset("steady");
    let mut plant = Plant::new(&controller, 0.0);
    plant.run(9, 0.16);
    plant.slower = 0.5;
    let why = |plant: &mut Plant<'_>| {
        plant.run(1, 0.0);
        (
            plant.phase.why,
            plant.phase.duty > 0.4,
            plant.state.as_ref().is_some_and(|state| state.reference().as_deref() != state.alone()),
        )
    };
    let all: Vec<(Why, bool, bool)> = (0..5).map(|_| why(&mut plant)).collect();
    let (falls, asks, others) = ((Why::Decrease, false, false), (Why::Blame, false, false), (Why::Others, true, true));
    assert_eq!(all, [falls, falls, asks, others, others]);
    plant.slower = 0.0;
    let (why, _, others) = why(&mut plant);
    assert_eq!((why, others), (Why::Increase, false), "they are gone");
}

/// Without a background it makes no difference whether they are in it: none is throttled to try.
/// Holds qos/innocent.
#[test]
fn nobody_is_tried_beside_others_who_is_there_already() {
    let least = |no_background| {
        let controller = preset("steady");
        let (_, mut state) = controller.start();
        let mut next = |_| {
            let seen = PhaseResult { no_background, ..PhaseResult::one(100.0) };
            let (phase, after) = controller.next(state.clone(), &seen);
            state = after;
            phase.duty
        };
        (0..20).map(&mut next).skip(3).fold(1.0, f64::min)
    };
    assert_eq!([false, true].map(least), [0.25, 1.0]);
}

/// Readings of a program that waits behind these, seconds per second: the low-priority programs, others.
fn waiting(readings: &[(f64, Option<[f64; 2]>)]) -> Vec<(f64, bool, Why)> {
    let controller = preset("steady");
    let (_, mut state) = controller.start();
    let mut next = |(speed, waits): &(f64, Option<[f64; 2]>)| {
        let waited = waits.map(|[low_s, others_s]| Waited { of_s: 1.0, low_s, others_s });
        let seen = PhaseResult { waited: vec![waited], ..PhaseResult::one(*speed) };
        let (phase, after) = controller.next(state.clone(), &seen);
        state = after;
        (phase.duty, phase.background, phase.why)
    };
    readings.iter().map(&mut next).collect()
}

/// Alone 100; the goal is 90. What it waits behind is seen, so no pause asks whose doing a miss is.
/// Promise qos/cause: A program that ran all the time is throttled only once test pauses or waits behind it show that
/// it is the cause.
#[test]
fn what_it_waits_behind_is_blamed_without_a_pause() {
    let quiet = Some([0.0, 0.0002]);
    let until = [(100.0, quiet), (99.0, quiet), (99.0, quiet)];
    let then = |last: &[(f64, Option<[f64; 2]>)]| waiting(&[&until[..], last].concat())[3..].to_vec();
    let (theirs, others) = (Some([0.2, 0.02]), Some([0.0, 0.3]));
    assert_eq!(then(&[(80.0, theirs)]), [(0.5, true, Why::Waits)], "halved at once");
    assert_eq!(
        then(&[(80.0, theirs); 3])[1..],
        [(0.35, true, Why::Waits), (0.35 * 0.7, true, Why::Waits)],
        "and less yet"
    );
    assert_eq!(then(&[(80.0, others)]), [(1.0, true, Why::Others)], "they run on");
    // Both in part, too little to matter, or not observed: a pause decides.
    for waits in [Some([0.1, 0.2]), quiet, None] {
        assert_eq!(then(&[(80.0, waits)]), [(0.0, true, Why::Blame)], "{waits:?}");
    }
    // Beside the others: back to the background, and not less.
    let beside = [(99.0, quiet); 4];
    let retreats = then(&[&beside[..], &[(80.0, theirs)]].concat());
    assert_eq!(retreats[3..], [(1.0, false, Why::Hold), (1.0, true, Why::Waits)]);
}

/// No pause measures while it misses its goal because it waits behind them, however long ago the last one was.
#[test]
fn no_pause_measures_where_harm_is_waiting() {
    let quiet = Some([0.0, 0.0002]);
    let waits = [(50.0, Some([0.2, 0.0])); 100];
    let phases = waiting(&[&[(100.0, quiet)][..], &waits, &[(99.0, quiet)]].concat());
    let pauses = |why: &Why| matches!(why, Why::Baseline | Why::Blame);
    assert!(phases[1..101].iter().all(|(_, _, why)| !pauses(why)), "{phases:?}");
    assert_eq!(phases[101].2, Why::Baseline, "it does not wait any more: the speed alone is measured anew");
}

/// Two foreign programs keep the CPUs busy for as long as you like: nothing pauses for what they do, and when they are
/// gone the speed alone is measured anew.
/// Holds qos/cause.
#[test]
fn nothing_pauses_for_waits_behind_others() {
    let quiet = Some([0.0, 0.0002]);
    let others = [(40.0, Some([0.001, 1.4])); 200];
    let readings = [&[(100.0, quiet), (99.0, quiet), (60.0, Some([0.0, 0.4]))][..], &others, &[(99.0, quiet)]].concat();
    let phases = waiting(&readings);
    assert!(phases[3..203].iter().all(|(duty, _, why)| (*duty, *why) == (1.0, Why::Others)), "{phases:?}");
    assert_eq!(phases[203].2, Why::Baseline, "they are gone: the speed alone is measured anew");
}
