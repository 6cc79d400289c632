//! The reasons of each controller's phases, for sequences worked out by hand.

use super::*;
use crate::qos::phase::{Figure, Held};

/// Literal texts, so that changes to texts are deliberate.
const BASELINE: &str = "a pause that measures the speed alone";
const BLAME: &str = "a pause that tells whose doing that is";
const CHECK: &str = "looks for contention";
const FINE: &str = "no contention";
const CONTENTION: &str = "contention";
const BETWEEN: &str = "runs between naps";
const UNKNOWN: &str = "the speed is not known";
const INCREASE: &str = "above the goal, more is tried";
const DECREASE: &str = "below the goal";
const HOLD: &str = "at the goal";
const OTHERS: &str = "others make it slow, not the low-priority programs";

/// The speed is not known.
const NONE: f64 = f64::NAN;

/// The reason of the first phase, and of those that follow from speeds.
fn reasons(name: &str, speeds: &[f64]) -> Vec<String> {
    let controller = preset(name);
    let (phase, mut state) = controller.start();
    let mut reasons = vec![phase.why.to_string()];
    for speed in speeds {
        let (phase, next) = controller.next(state, &PhaseResult::one(*speed));
        state = next;
        reasons.push(phase.why.to_string());
    }
    reasons
}

/// Holds record/why.
#[test]
fn simple_says_why() {
    // The beginning of a run, its latest sample, and what follows from that: 0.4 and 0.7 are low or in the middle for
    // all. Speeds in a nap (8) and at the beginning (9) change nothing. 1.2 is high, and the last is unknown.
    let slow = [9.0, 0.4, 8.0, 9.0, 0.7, 8.0, 9.0, 1.2];
    let naps = [BETWEEN, BETWEEN, CONTENTION];
    // Below 1.0 a nap; high needs none: the run goes on.
    let expected = [&naps[..], &naps, &[BETWEEN, BETWEEN, FINE, BETWEEN, UNKNOWN]].concat();
    assert_eq!(reasons("utilisation-biased", &[&slow[..], &[9.0, NONE]].concat()), expected);
    // 1.2 is in the middle up to 1.5; for qos-biased it is high, and even that is followed by a nap.
    let expected = [&naps[..], &naps, &naps, &[BETWEEN, BETWEEN, UNKNOWN]].concat();
    for name in ["balanced", "qos-biased"] {
        assert_eq!(reasons(name, &[&slow[..], &[8.0, 9.0, NONE]].concat()), expected, "{name}");
    }
}

/// Holds record/why.
#[test]
fn targeted_says_why() {
    let speeds = [100.0, 91.0, 100.0, 97.0, 50.0, NONE, 80.0];
    // Naps from 0.4 · 0.1 and 0.4 · 0.2 on: Δ = 0.09 is contention, and Δ = 0.03 after the nap is none. Execution at
    // any speed (50); the next look has no readings; then it looks again.
    let expected = [CHECK, CHECK, CONTENTION, BETWEEN, FINE, CHECK, UNKNOWN, CHECK];
    for name in ["conservative-90", "conservative-80"] {
        assert_eq!(reasons(name, &speeds), expected, "{name}");
    }
    // From 1.0 · 0.1 on: Δ = 0.09 is none, the 100 is from the execution; the next look finds 97 and 50, Δ = 0.48; the
    // following nap has no readings.
    let expected = [CHECK, CHECK, FINE, CHECK, CHECK, CONTENTION, UNKNOWN, CHECK];
    assert_eq!(reasons("relaxed-90", &speeds), expected);
    // Our own variant, from 0.7 · 0.1 on, by means: 0.09, then 1 − (91 + 0.3 · 6) / 100 = 0.072, and the run after the
    // second nap has no readings.
    let expected = [CHECK, CHECK, CONTENTION, BETWEEN, CONTENTION, BETWEEN, UNKNOWN, CHECK];
    assert_eq!(reasons("targeted", &speeds), expected);
}

/// Holds record/why.
#[test]
fn steady_says_why() {
    // 99 and 95 are above 0.9 · 1.03 = 0.927 of the speed alone, 92 is between that and the goal, 80 below.
    let expected = [BASELINE, INCREASE, INCREASE, HOLD, DECREASE, UNKNOWN, INCREASE];
    assert_eq!(reasons("steady", &[100.0, 99.0, 92.0, 80.0, NONE, 95.0]), expected);
    // 0.25, 0.125, 0.0875, 0.061: after these misses a pause checks the cause. They are not, and then it is over.
    let expected = [&[BASELINE, INCREASE][..], &[DECREASE; 3], &[BLAME], &[OTHERS; 3], &[INCREASE]].concat();
    assert_eq!(reasons("steady", &[&[100.0][..], &[50.0; 7], &[100.0]].concat()), expected);
}

/// Holds qos/cause.
#[test]
fn steady_says_that_it_asks_whose_doing_it_is() {
    // At 0.25, 0.5 and 1; in the pause it has its speed, and at 0.7 as well.
    let expected = [BASELINE, INCREASE, INCREASE, INCREASE, BLAME, DECREASE, INCREASE];
    assert_eq!(reasons("steady", &[100.0, 99.0, 99.0, 80.0, 99.0, 99.0]), expected);
}

/// Holds record/why.
#[test]
fn tracking_says_why() {
    // Four parts of a pause, until the speed rises no more; the first turn. Then, as worked out where its duties are
    // tested, 0.1 becomes 0.167 and 0.195, more than a tenth more each; 30 % lost are more than is allowed.
    let expected = [BASELINE, BASELINE, BASELINE, BASELINE, BETWEEN, INCREASE, INCREASE, CONTENTION];
    assert_eq!(reasons("tracking", &[60.0, 80.0, 99.0, 100.0, 95.0, 91.67, 70.0]), expected);
    // No loss: 0.1, 0.2, 0.4, 0.8, and all.
    let expected = [BASELINE, BASELINE, BASELINE, BASELINE, BETWEEN, INCREASE, INCREASE, INCREASE, FINE];
    assert_eq!(reasons("tracking", &[100.0; 8]), expected);
    assert_eq!(reasons("tracking", &[NONE, NONE, 100.0]), [BASELINE, UNKNOWN, UNKNOWN, BASELINE]);
    // Batches 50 ms apart are counted over five turns of 200 ms: in the first four nothing is decided.
    let controller = preset("tracking");
    let (_, mut state) = controller.start();
    let mut reasons = Vec::new();
    while reasons.len() < 7 {
        let (phase, next) = controller.next(state, &PhaseResult { grain: Some(MS(50)), ..PhaseResult::one(100.0) });
        state = next;
        if phase.why != Why::Baseline {
            reasons.push(phase.why.to_string());
        }
    }
    assert_eq!(reasons, [BETWEEN, HOLD, HOLD, HOLD, HOLD, INCREASE, HOLD]);
}

/// The figures behind each phase, as in reasons; empty if none decided.
fn figures(name: &str, speeds: &[f64]) -> Vec<String> {
    let controller = preset(name);
    let (_, mut state) = controller.start();
    let mut figures = Vec::new();
    for speed in speeds {
        let (phase, next) = controller.next(state, &PhaseResult::one(*speed));
        state = next;
        figures.push(phase.held.map_or_else(String::new, |held| held.to_string()));
    }
    figures
}

/// Holds run/terminal.
#[test]
fn what_decided_by_a_hair_shows_why() {
    let told = |figure, value, threshold| Held::new(0, figure, value, threshold).unwrap().to_string();
    assert_eq!(told(Figure::Kept, 0.899_96, 0.9), "{app} kept 89.996 % of its speed alone < 90.000 %");
    assert_eq!(told(Figure::Lost, 0.1, 0.1), "{app} lost 10.0 % of its speed alone ≥ 10.0 %");
    assert_eq!(told(Figure::Speed, 3.871e7, 1e17), "{app} had a speed of 38.71 M < 100.0 P");
    assert_eq!(told(Figure::Speed, 3_178.8e3, 3_178.9e3), "{app} had a speed of 3.1788 M < 3.1789 M");
}

/// Holds record/why.
#[test]
fn figures_that_decided_are_told() {
    // Thresholds 0.5 and 1.0; a nap and the beginning of a run have no figures.
    let expected = [
        "",
        "{app} had a speed of 0.4000 < 0.5000",
        "",
        "",
        "{app} had a speed of 0.7000 < 1.000",
        "",
        "",
        "{app} had a speed of 1.200 ≥ 1.000",
        "",
        "",
    ];
    assert_eq!(figures("utilisation-biased", &[9.0, 0.4, 8.0, 9.0, 0.7, 8.0, 9.0, 1.2, 9.0, NONE]), expected);
    // A check, contention from 0.4 · 0.1 on, and none after the nap.
    let expected =
        ["", "{app} lost 9.0 % of its speed alone ≥ 4.0 %", "", "{app} lost 3.0 % of its speed alone < 4.0 %"];
    assert_eq!(figures("conservative-90", &[100.0, 91.0, 100.0, 97.0]), expected);
    // More is tried from 0.9 · 1.03 on; otherwise the goal counts.
    let expected = [
        "",
        "{app} kept 99.0 % of its speed alone ≥ 92.7 %",
        "{app} kept 92.0 % of its speed alone ≥ 90.0 %",
        "{app} kept 80.0 % of its speed alone < 90.0 %",
        "",
    ];
    assert_eq!(figures("steady", &[100.0, 99.0, 92.0, 80.0, NONE]), expected);
    // A lower duty after a pause that found the cause shows the figures of the accused moment.
    let told = figures("steady", &[100.0, 99.0, 99.0, 80.0, 100.0]);
    assert_eq!(told[3..], ["{app} kept 80.0 % of its speed alone < 90.0 %"; 2]);
    // The pause left 0.2 · (0.9225 − 0.9) s as credit, the turn 0.2 · 0.05 s: 0.1 · (1 + 0.0145 / 0.4) may be lost.
    let expected = ["", "", "", "", "{app} lost 5.0 % of its speed alone < 10.4 %"];
    assert_eq!(figures("tracking", &[60.0, 80.0, 99.0, 100.0, 95.0]), expected);
    // The program that suffers most decides.
    let controller = preset("steady");
    let (_, state) = controller.start();
    let (_, state) = controller.next(state, &PhaseResult::of(vec![Some(100.0), Some(10.0)]));
    let (phase, _) = controller.next(state, &PhaseResult::of(vec![Some(95.0), Some(8.0)]));
    assert_eq!(phase.held.map(|held| (held.high, held.threshold)), Some((1, 0.9)));
}
