//! Results of the whole policy with drawn programs, means and obstacles as of today: an intended change shows its
//! effects here, any other change must show none.

use super::super::controller::PRESETS;
use super::*;
use cotenant_model::testing::{digest, golden};
use fastrand::Rng;
use std::fmt::Write;
use std::path::Path;

const CASES: u64 = 140;

/// Cycles through the controllers with a goal.
fn line(case: u64) -> String {
    let mut random = Rng::with_seed(case);
    let name = PRESETS[3..][case as usize % (PRESETS.len() - 3)];
    // Source of speed, sampling interval, and duration.
    let (metrics, every, seconds) = match name {
        "steady" => (["latency_p99_s", "p99"], 100, 40),
        "tracking" => (["progress"; 2], 25, 10),
        _ => (["progress"; 2], 5, 3),
    };
    let mut outcome =
        || [Outcome::Denied, Outcome::NotThisMachine].get(random.usize(..16)).copied().unwrap_or(Outcome::Applied);
    let mut plant = Plant { outcomes: [outcome(), outcome()], of_caches: outcome(), ..Plant::new(0.0, seconds) };
    plant.loss = 0.8 * random.f64();
    plant.topology = machine(random.u32(1..=2), 1, 2, 1);
    plant.allowed = random.bool().then(|| plant.topology.usable().clone());
    plant.obeys = if random.u8(..4) > 0 { 1.0 } else { random.f64() };
    plant.late = MS(random.u64(..3));
    if random.bool() {
        plant.high_ends = Time::from_millis(seconds * 900);
    }
    if random.bool() {
        plant.another_at = Time::from_millis(seconds * 300);
    }
    let metric = metrics[random.usize(..2)];
    let config = Config { interval: MS(every), ..config(name, metric, false) };
    let config = with(config, |qos| {
        let goal = [0.5, 0.8, 0.9, 0.95][random.usize(..4)];
        qos.controller = Controller::preset(name, goal).expect("a preset");
        qos.place = random.bool();
        qos.climb = random.bool();
        qos.settle = MS(random.u64(..3));
        if qos.controller.least_duty().is_some() {
            qos.limits = [None, None, Some(Limits::CpuTime), Some(Limits::Caches)][random.usize(..4)];
        }
    });
    let (quality, utilisation, state) = run(&mut plant, &config);
    let (orders, loss) = (plant.actions.len(), plant.loss);
    let says = digest(&(&plant.actions, &plant.reasons, plant.rounds));
    format!(
        "{name} {metric}, loss {loss:.2}: kept {quality:.3}, ran {utilisation:.3}, {orders} orders, says {says} remembers {}",
        digest(&state)
    )
}

#[test]
fn programs_are_kept_as_they_were() {
    let mut now = String::new();
    for case in 0..CASES {
        writeln!(now, "{case} {}", line(case)).expect("text");
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/qos/tests/golden.txt")), &now);
}
