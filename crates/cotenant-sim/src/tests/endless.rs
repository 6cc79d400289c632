//! Scenarios whose end needs too many steps.

use super::scenario;
use crate::run::SimError;
use crate::scenario::Scenario;
use crate::world::Budget;
use fastrand::Rng;

fn run(s: &Scenario, policy: &str) -> Result<f64, SimError> {
    let policy = cotenant_policies::standard().make(policy, &s.config).map_err(SimError::Unknown)?;
    s.run(policy.as_ref(), s.kernel, 1, |_| ()).map(|outcome| outcome.apps[0].time_s)
}

const PROGRAM: &str = "llc_apki = 0\nfootprint_bytes = 1e6\nmiss_ratio = [[1e6, 0.0]]\n";

/// A phase of 85 instructions lasts 30 ns.
#[test]
fn short_phases_are_refused_by_name_and_place() {
    let phase = |n: f64| format!("[[program.p.phase]]\ninstructions = {n}\ncpi = 1\n{PROGRAM}");
    let text = format!(
        "machine = 'two'\n{}{}[[app]]\nprogram = 'cpu'\n[[app]]\nprogram = 'p'\nthreads = 2\n",
        phase(85.0),
        phase(85.0)
    );
    let mut s = scenario(&text);
    s.budget = Budget { at_once: 2_000, per_s: 100_000 };
    for policy in ["none", "mas"] {
        let why = run(&s, policy).unwrap_err();
        let line = 1 + text.lines().position(|line| line == "threads = 2").unwrap();
        assert_eq!(why.spot().map(|at| at.line), Some(line), "{policy}: {why}");
        let why = why.to_string();
        assert!(why.contains("app p ended") && why.contains("give these more instructions"), "{policy}: {why}");
    }
}

/// 8 instructions are more than rounding leaves where each takes centuries: a run is as long as it says.
#[test]
fn runs_of_few_instructions_take_their_time() {
    let s = scenario(&format!(
        "machine = 'two'\n[program.slow]\ncpi = 9.2e18\n{PROGRAM}[[app]]\nprogram = 'slow'\nwork_s = 2\nruns = 3\n"
    ));
    for policy in ["none", "atom"] {
        let seconds = run(&s, policy).unwrap();
        assert!((seconds - 2.0).abs() < 1e-3, "{policy}: {seconds} s");
    }
}

/// As many runs as may be, each a nanosecond.
#[test]
fn short_runs_are_refused() {
    let mut s = scenario("machine = 'two'\n[[app]]\nprogram = 'cpu'\nwork_s = 1e-300\nruns = 1000000\n");
    s.budget.at_once = 2_000;
    for policy in ["none", "atom"] {
        let why = run(&s, policy).unwrap_err();
        assert!(matches!(why, SimError::Endless { .. }), "{policy}: {why}");
    }
}

/// A turn per millisecond: the policy is at fault, and its turns are counted.
#[test]
fn a_policy_that_is_asked_too_often_is_told_so() {
    let mut s = scenario("machine = 'two'\npolicy = { quantum_ms = 1 }\n[[app]]\nprogram = 'cpu'\nwork_s = 10\n");
    s.budget = Budget { at_once: 2_000, per_s: 0 };
    let why = run(&s, "mas").unwrap_err().to_string();
    let Some((_, told)) = why.split_once("the policy was asked ") else { panic!("{why}") };
    let (turns, remedy) = told.split_once(" times; ").unwrap();
    assert!((950..=1_050).contains(&turns.parse().unwrap()), "one for each step of a millisecond: {why}");
    assert_eq!(remedy, "raise interval_ms or quantum_ms");
}

/// Numbers at and beyond the ends of what makes sense, in every place that takes one: each ends, within its budget of
/// steps, in a result or a refusal.
#[test]
fn any_figures_end_within_the_budget() {
    let mut rng = Rng::with_seed(20);
    let mut refused = 0;
    for _ in 0..300 {
        let text = hostile(&mut rng);
        let Ok(mut s) = Scenario::parse(&text, super::machine) else { continue };
        s.budget = Budget { at_once: 300, per_s: 0 };
        let policies = ["none", "mas", "das", "atom", "auto", "dino", "sam", "qos"];
        let policy = policies[rng.usize(..policies.len())];
        refused += u32::from(matches!(run(&s, policy), Err(SimError::Endless { .. })));
    }
    assert!(refused > 30, "{refused}");
}

/// A scenario with such numbers.
#[allow(clippy::format_push_string)] // `write!` would want an unwrap each
fn hostile(rng: &mut Rng) -> String {
    fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
        of[rng.usize(..of.len())]
    }
    let number = |rng: &mut Rng, usual: f64| match rng.u8(..8) {
        0 => 10_f64.powf(rng.f64() * 600.0 - 300.0),
        1 => 10_f64.powf(rng.f64() * 40.0 - 20.0),
        2 => [0.0, f64::MIN_POSITIVE, f64::MAX, 1.0, 9.2e18][rng.usize(..5)],
        _ => usual * (0.5 + rng.f64()),
    };
    let mut text = format!("machine = 'two'\nkernel = '{}'\n", pick(rng, &["eevdf", "cache-aware+numa-balancing"]));
    text += &format!("end_s = {:e}\nrestart = {}\n", number(rng, 10.0).clamp(1e-9, 1e7), rng.bool());
    let ms = |rng: &mut Rng| number(rng, 100.0).clamp(0.1, 3.6e6);
    text += &format!("policy = {{ interval_ms = {:e}, quantum_ms = {:e} }}\n", ms(rng), ms(rng));
    text += "[observation]\n";
    for key in ["cost_us", "page_scan_ns", "page_fault_ns"] {
        text += &format!("{key} = {:e}\n", number(rng, 1.0));
    }
    for key in ["noise", "gaps"] {
        text += &format!("{key} = {:e}\n", number(rng, 0.1).min(1.0));
    }
    for program in ["a", "b"] {
        text += &format!(
            "[program.{program}]\nshared = {}\nbarrier = {}\npages = {}\n",
            rng.f64(),
            rng.bool(),
            pick(rng, &["'first-touch'", "'interleave'"])
        );
        for _ in 0..=rng.usize(..3) {
            text += &format!("[[program.{program}.phase]]\ninstructions = {:e}\n", number(rng, 1e8));
            for (key, usual, least) in [
                ("cpi", 1.0, f64::MIN_POSITIVE),
                ("llc_apki", 20.0, 0.0),
                ("llc_mlp", 2.0, 1.0),
                ("mlp", 2.0, 1.0),
                ("footprint_bytes", 1e7, f64::MIN_POSITIVE),
                ("writeback_ratio", 0.3, 0.0),
                ("coherence_pki", 1.0, 0.0),
            ] {
                text += &format!("{key} = {:e}\n", number(rng, usual).max(least));
            }
            let bytes = number(rng, 1e6).max(f64::MIN_POSITIVE);
            text += &format!("miss_ratio = [[{bytes:e}, {}]]\nprivate_bytes = {:e}\n", rng.f64(), number(rng, 2.5e5));
        }
    }
    for app in 0..=rng.usize(..3) {
        let program = pick(rng, &["a", "b", "mcf06"]);
        let (threads, runs) = (rng.usize(1..6), [1, 2, 1_000_000][rng.usize(..3)]);
        let work = pick(rng, &["work_s", "instructions"]);
        let usual = if work == "work_s" { 1.0 } else { 1e9 };
        text += &format!("[[app]]\nprogram = '{program}'\nthreads = {threads}\nruns = {runs}\n");
        text += &format!("latency_sensitive = {}\n{work} = {:e}\n", app == 0, number(rng, usual));
        if rng.bool() {
            text += &format!("arrival_s = {:e}\n", number(rng, 0.1));
        }
        if rng.u8(..4) == 0 {
            let (requests, instructions) = (number(rng, 100.0), number(rng, 1e6));
            text += &format!("load = {{ requests_per_s = {requests:e}, instructions = {instructions:e} }}\n");
        }
    }
    text
}
