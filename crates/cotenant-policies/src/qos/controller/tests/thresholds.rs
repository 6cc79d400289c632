//! `simple` and `targeted`, and what holds for all.

use super::*;

#[test]
fn every_preset_has_its_name_and_its_goal() {
    for name in PRESETS {
        assert!(Controller::preset(name, 0.75).is_some(), "{name}");
    }
    assert_eq!(Controller::preset("conservative_90", 0.9), None);
    // Table 6.2 brings its goals along; the table for `simple` has none.
    let goal = |name| Controller::preset(name, 0.75).unwrap().goal();
    assert_eq!(goal("conservative-80"), Some(0.8));
    assert_eq!((goal("relaxed-90"), goal("balanced"), goal("steady")), (Some(0.9), None, Some(0.75)));
}

#[test]
fn simple_naps_by_the_bin_of_the_speed() {
    // Table 6.1, runs of 10 ms. utilisation-biased: below 0.5 a nap of 20 ms, below 1.0 of 10 ms, else none: the run
    // goes on.
    let speeds = [0.4, 9.0, 0.5, 9.0, 0.99, 9.0, 1.0, 1.2];
    let naps = |name| sequence(&preset(name), &speeds);
    let (run, nap) = ((1.0, 10), |ms| (0.0, ms));
    assert_eq!(naps("utilisation-biased"), [run, nap(20), run, nap(10), run, nap(10), run, run]);
    // balanced: thresholds 0.8 and 1.5. 0.4 and 0.5 are low, 0.99 is between them, and so are 1.0 and 1.2.
    assert_eq!(naps("balanced"), [run, nap(20), run, nap(20), run, nap(10), run, nap(10)]);
    // qos-biased: naps of 3, 2 and 1 times the run; the last nap is that behind 1.0, which is high.
    assert_eq!(naps("qos-biased"), [run, nap(30), run, nap(20), run, nap(20), run, nap(10)]);
}

#[test]
fn targeted_goes_through_its_states() {
    // conservative-90: allowed loss 0.1, naps from a loss of 0.04 on.
    let controller = preset("conservative-90");
    let phases = sequence(
        &controller,
        &[
            // Check: 2 ms each, 100 asleep, 97 awake: Δ = 0.03 < 0.04. Then 6 ms of execution.
            100.0, 97.0, 97.0, //
            // Check: 100 and 75: slower by 25/75, nap = 2 · (9/3 − 1) = 4 ms.
            100.0, 75.0, //
            // Intermittent nap: 100 and 60: slower by 40/60, nap = 2 · (6 − 1) = 10 ms.
            100.0, 60.0, //
            // 100 and 92: Δ = 0.08 is above 0.04, and 2 · (9 · 8/92 − 1) < 0: the shortest nap, 2 ms.
            100.0, 92.0, //
            // 100 and 99: Δ = 0.01: execution, and then a check.
            100.0, 99.0, 99.0, 100.0,
        ],
    );
    let (nap, run) = (|ms| (0.0, ms), |ms| (1.0, ms));
    let expected = [
        vec![nap(2), run(2), run(6)],
        vec![nap(2), run(2)],
        vec![nap(4), run(2)],
        vec![nap(10), run(2)],
        vec![nap(2), run(2), run(6), nap(2)],
    ];
    assert_eq!(phases, expected.concat());
}

/// The nap, in milliseconds, behind a check that shows a loss.
fn nap_after(controller: &str, loss: f64) -> f64 {
    let controller = preset(controller);
    let (_, state) = controller.start();
    let (_, state) = controller.next(state, &PhaseResult::one(100.0));
    let (phase, _) = controller.next(state, &PhaseResult::one(100.0 * (1.0 - loss)));
    let Lasts::For(nap) = phase.lasts else { panic!("{phase:?}") };
    assert_eq!((phase.duty, phase.why), (0.0, Why::Contention));
    nap.as_secs_f64() * 1e3
}

#[test]
fn naps_are_those_of_equation_6_1() {
    // 0.9/0.1 = 9 times the slowdown, runs of 2 ms: 2 · (9 · 3/7 − 1) = 40/7 ms, which keeps (2 · 70 + 40/7 · 100) /
    // (54/7) = 0.922; 2 · (9 · 1 − 1) = 16 ms, which keep (2 · 50 + 16 · 100) / 18 = 0.944.
    for (loss, nap, kept) in [(0.3, 40.0 / 7.0, 0.9222), (0.5, 16.0, 0.9444)] {
        let found = nap_after("relaxed-90", loss);
        assert!((found - nap).abs() < 1e-5, "{loss}: {found}");
        let mean = (2.0 * (1.0 - loss) + found) / (2.0 + found);
        assert!((mean - kept).abs() < 1e-4, "{loss}: {mean}");
    }
    // conservative-80: 0.8/0.2 = 4 times as much, 2 · (4 · 1 − 1). At the allowed loss, 4 · 0.2/0.8 = 1: the shortest.
    assert!((nap_after("conservative-80", 0.5) - 6.0).abs() < 1e-5);
    assert_eq!([0.1, 0.2].map(|loss| nap_after("conservative-80", loss)), [2.0; 2]);
    // Nearly nothing is kept: 2 · (9 · 99 − 1) ms are more than the longest nap.
    assert_eq!(nap_after("relaxed-90", 0.99), 200.0);
    // Ours, runs of 10 ms: 10 · (9 · 1 − 1); and where the mean speed alone counts, 10 · (0.5/0.1 − 1), which keeps
    // (10 · 50 + 40 · 100) / 50 = 90.
    assert_eq!(["targeted", "targeted-by-speed"].map(|name| nap_after(name, 0.5).round()), [80.0, 40.0]);
}

#[test]
fn the_program_that_suffers_most_decides() {
    let controller = preset("conservative-90");
    let (_, state) = controller.start();
    let speeds = |speeds: &[Option<f64>]| PhaseResult::of(speeds.to_vec());
    let (_, state) = controller.next(state, &speeds(&[Some(100.0), Some(7.0), None]));
    let (phase, _) = controller.next(state, &speeds(&[Some(99.0), Some(5.25), None]));
    // Losses 0.01 and 0.25: 2 · (9/3 − 1) = 4 ms.
    assert_eq!((phase.duty, phase.lasts, phase.why), (0.0, Lasts::For(MS(4)), Why::Contention));
    let (_, ran) = preset("balanced").start();
    let (phase, _) = preset("balanced").next(ran, &speeds(&[Some(9.0), Some(0.7)]));
    assert_eq!(phase.lasts, Lasts::For(MS(20)));
}

#[test]
fn nobody_naps_for_a_program_whose_speed_is_unknown() {
    for name in PRESETS {
        let controller = preset(name);
        let (_, mut state) = controller.start();
        let mut naps = Vec::new();
        for _ in 0..100 {
            let (phase, next) = controller.next(state, &PhaseResult::of(vec![None, Some(f64::NAN)]));
            state = next;
            naps.push(phase.duty == 0.0);
        }
        // A check looks now and then whether it has become known.
        let share = naps.iter().filter(|nap| **nap).count();
        let allowed = if matches!(controller, Controller::Targeted(_)) { 50 } else { 0 };
        assert!(share <= allowed, "{name}: {share} naps in 100 phases");
    }
}
