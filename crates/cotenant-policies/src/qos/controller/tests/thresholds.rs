//! `simple` and `targeted`, and properties of all.

use super::*;

#[test]
fn every_preset_has_its_name_and_its_goal() {
    for name in PRESETS {
        assert!(Controller::preset(name, 0.75).is_some(), "{name}");
    }
    assert_eq!(Controller::preset("conservative_90", 0.9), None);
    // Table 6.2 has goals; the table for `simple` has none.
    let goal = |name| Controller::preset(name, 0.75).unwrap().goal();
    assert_eq!(goal("conservative-80"), Some(0.8));
    assert_eq!((goal("relaxed-90"), goal("balanced"), goal("steady")), (Some(0.9), None, Some(0.75)));
}

/// Promise qos/controllers: `tracking` and `steady` make up for missed goals and stay in their bands; the presets
/// decide as tables 6.1 and 6.2 of the dissertation.
#[test]
fn simple_naps_by_the_bin_of_the_speed() {
    // Table 6.1, runs of 2 ms, with the second millisecond as the latest sample: the speed in the first (9) and in naps
    // (8) does not count. utilisation-biased: below 0.5 a nap of 4 ms, below 1.0 of 2 ms, otherwise none: the run
    // continues.
    let slow = [9.0, 0.4, 8.0, 9.0, 0.5, 8.0, 9.0, 0.99, 8.0];
    let naps = |name, fast: &[f64]| sequence(&preset(name), &[&slow[..], fast].concat());
    let turn = |ms| [(1.0, 1), (1.0, 1), (0.0, ms)];
    let run = [(1.0, 1); 2];
    let expected = [&turn(4)[..], &turn(2), &turn(2), &run, &run].concat();
    assert_eq!(naps("utilisation-biased", &[9.0, 1.0, 9.0, 1.2]), expected);
    // balanced: thresholds 0.8 and 1.5. 0.4 and 0.5 are low, 0.99 is between them, and so are 1.0 and 1.2.
    let fast = [9.0, 1.0, 8.0, 9.0, 1.2, 8.0];
    assert_eq!(naps("balanced", &fast), [turn(4), turn(4), turn(2), turn(2), turn(2)].concat());
    // qos-biased: naps of 3, 2 and 1 times the run; those after 1.0 and 1.2, which are high, are of 2 ms.
    assert_eq!(naps("qos-biased", &fast), [turn(6), turn(4), turn(4), turn(2), turn(2)].concat());
    // Ours: runs of 10 ms, of which all counts.
    let ours = Controller::Simple(Simple::new(0.5, 1.0, [2.0, 1.0, 0.0]));
    let expected = [(1.0, 10), (0.0, 20), (1.0, 10), (1.0, 10), (0.0, 10), (1.0, 10)];
    assert_eq!(sequence(&ours, &[0.4, 9.0, 1.0, 0.5, 9.0, 1.2]), expected);
}

/// Holds record/old.
#[test]
fn recordings_of_before_are_of_whole_runs() {
    let before = r#"{"simple":{"low":0.5,"high":1.0,"naps":[2.0,1.0,0.0],"exec":{"secs":0,"nanos":10000000}}}"#;
    let controller: Controller = serde_json::from_str(before).unwrap();
    assert_eq!(controller, Controller::Simple(Simple::new(0.5, 1.0, [2.0, 1.0, 0.0])));
    assert_eq!(serde_json::to_string(&controller).unwrap(), before);
    // The state was a `true` after a run.
    let state = serde_json::from_str(r#"{"simple":true}"#).unwrap();
    assert_eq!(controller.next(state, &PhaseResult::one(0.4)).0.lasts, Lasts::For(MS(20)));
    // Naps of `targeted` had the length for the mean speed.
    let shortest = preset("targeted-by-speed");
    let before = serde_json::to_string(&shortest).unwrap();
    assert!(!before.contains("by_slowdown"), "{before}");
    assert_eq!(serde_json::from_str::<Controller>(&before).unwrap(), shortest);
}

/// Holds qos/controllers.
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

/// The nap, in milliseconds, after a check that shows a loss.
fn nap_after(controller: &str, loss: f64) -> f64 {
    let controller = preset(controller);
    let (_, state) = controller.start();
    let (_, state) = controller.next(state, &PhaseResult::one(100.0));
    let (phase, _) = controller.next(state, &PhaseResult::one(100.0 * (1.0 - loss)));
    let Lasts::For(nap) = phase.lasts else { panic!("{phase:?}") };
    assert_eq!((phase.duty, phase.why), (0.0, Why::Contention));
    nap.as_secs_f64() * 1e3
}

/// Holds qos/controllers.
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
    // Almost the whole speed is lost: 2 · (9 · 99 − 1) ms are more than the longest nap.
    assert_eq!(nap_after("relaxed-90", 0.99), 200.0);
    // Ours, runs of 10 ms: 10 · (9 · 1 − 1); and where the mean speed alone counts, 10 · (0.5/0.1 − 1), which keeps
    // (10 · 50 + 40 · 100) / 50 = 90.
    assert_eq!(["targeted", "targeted-by-speed"].map(|name| nap_after(name, 0.5).round()), [80.0, 40.0]);
}

/// Holds qos/rules.
#[test]
fn the_program_that_suffers_most_decides() {
    let controller = preset("conservative-90");
    let (_, state) = controller.start();
    let speeds = |speeds: &[Option<f64>]| PhaseResult::of(speeds.to_vec());
    let (_, state) = controller.next(state, &speeds(&[Some(100.0), Some(7.0), None]));
    let (phase, _) = controller.next(state, &speeds(&[Some(99.0), Some(5.25), None]));
    // Losses 0.01 and 0.25: 2 · (9/3 − 1) = 4 ms.
    assert_eq!((phase.duty, phase.lasts, phase.why), (0.0, Lasts::For(MS(4)), Why::Contention));
    let balanced = preset("balanced");
    let (_, run) = balanced.start();
    let (_, sample) = balanced.next(run, &speeds(&[Some(9.0), Some(9.0)]));
    let (phase, _) = balanced.next(sample, &speeds(&[Some(9.0), Some(0.7)]));
    assert_eq!(phase.lasts, Lasts::For(MS(4)));
}

/// Holds qos/innocent.
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
        // Occasional checks show whether it has become known.
        let share = naps.iter().filter(|nap| **nap).count();
        let allowed = if matches!(controller, Controller::Targeted(_)) { 50 } else { 0 };
        assert!(share <= allowed, "{name}: {share} naps in 100 phases");
    }
}
