//! Properties of characteristics measured in the simulator.

use super::scenario;
use crate::scenario::Scenario;
use cotenant_model::profile::{AppProfile, High};
use cotenant_policies::{Heuristic, None as NoPolicy};

fn characterized(text: &str) -> Scenario {
    let mut s = scenario(text);
    s.characterize(s.kernel).unwrap_or_else(|e| panic!("{e}"));
    s
}

/// `membench` misses every tenth instruction: 10 × 0.5 cycles at 2 GHz and 80 ns over 16 lines under way are 7.5 ns,
/// and 4 ns of queue at 31 % load, over 16: 129,000 misses and, with half a line written back for each, 193,500 bus
/// transactions per ms. `hubench` finds every line in another core's cache.
/// Holds place/papers.
#[test]
fn characteristics_are_those_of_the_programs_alone() {
    let app = |name: &str, more: &str| format!("[[app]]\nprogram = '{name}'\nwork_s = 0.2\n{more}\n");
    let text = format!(
        "machine = 'two'\n{}{}{}",
        app("membench", "threads = 1"),
        app("hubench", "threads = 3\nlatency_sensitive = true"),
        app("cpu", "arrival_s = 5"),
    );
    let s = characterized(&text);
    let of = |name: &str| s.profiles[name].clone();
    let near = |a: Option<f64>, b: f64| (a.unwrap() / b - 1.0).abs() < 0.05;
    let membench = of("membench");
    assert!(near(membench.footprint_per_ms, 129_000.0) && near(membench.bus_per_ms, 193_500.0), "{membench:?}");
    assert_eq!((membench.sharing, membench.latency_sensitive), (Some(0.0), false));
    let hubench = of("hubench");
    assert!((hubench.sharing.unwrap() - 1.0).abs() < 1e-9 && hubench.latency_sensitive, "{hubench:?}");
    assert_eq!((hubench.bus_per_ms, hubench.footprint_per_ms), (Some(0.0), Some(0.0)));
    let idle =
        AppProfile { bus_per_ms: Some(0.0), footprint_per_ms: Some(0.0), sharing: Some(0.0), ..AppProfile::default() };
    assert_eq!(of("cpu"), idle);
    let high = s.machine.profile.heuristic.unwrap();
    assert!(high.sharing > 0.0 && high.sharing < 1.0 && high.footprint_per_ms < 129_000.0, "{high:?}");
}

/// What the user's machine file says stands; a service is latency-sensitive unless its user says otherwise.
#[test]
fn what_is_known_is_not_measured() {
    let mut s = scenario(
        "machine = 'two'\n[[app]]\nprogram = 'cpu'\nload = { requests_per_s = 1, instructions = 1e6 }\nwork_s = 0.01\n",
    );
    let high = High { sharing: 0.7, footprint_per_ms: 12.0 };
    s.machine.profile.heuristic = Some(high);
    s.characterize(s.kernel).unwrap();
    assert_eq!(s.machine.profile.heuristic, Some(high));
    let mut s = scenario(
        "machine = 'two'\n[[app]]\nprogram = 'cpu'\nload = { requests_per_s = 1, instructions = 1e6 }\nlatency_sensitive = false\n",
    );
    let refusal = s.characterize(s.kernel).unwrap_err().to_string();
    assert!(refusal.contains("add latency_sensitive = true to its [[app]]"), "{refusal}");
}

/// Four threads that share data beside four that stream: the tree puts the sharers onto one cache, where they are
/// faster than where Linux starts them.
/// Holds place/papers.
#[test]
fn heuristic_brings_sharers_together() {
    let s = characterized(
        "machine = 'two'\n[[app]]\nprogram = 'hubench'\nthreads = 4\nlatency_sensitive = true\nwork_s = 0.5\n[[app]]\nprogram = 'lbm06'\nthreads = 4\nwork_s = 0.5\n",
    );
    let ours = s.run(&Heuristic, s.kernel, 1, |_| ()).unwrap();
    let linux = s.run(&NoPolicy, s.kernel, 1, |_| ()).unwrap();
    assert!(ours.apps[0].time_s < 0.9 * linux.apps[0].time_s, "{ours:?} {linux:?}");
    assert!(ours.migrations > 0);
}
