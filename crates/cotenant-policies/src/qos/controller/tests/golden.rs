//! Decisions of every controller with drawn programs as of today: an intended change shows its effects here, any other
//! change must show none.

use super::*;
use cotenant_model::testing::{digest, golden};
use fastrand::Rng;
use std::fmt::Write;
use std::path::Path;

const CASES: u64 = 16;

const PHASES: usize = 150;

/// Phases with exact duties.
const READ: usize = 10;

/// Up to three programs whose speed alone changes sometimes, that fall silent sometimes, and with single answers known
/// or not.
fn line(name: &str, random: &mut Rng) -> String {
    let goal = [0.5, 0.8, 0.9, 0.95][random.usize(..4)];
    let controller = Controller::preset(name, goal).expect("a preset");
    // Those without a goal know instructions per cycle.
    let speed = if controller.goal().is_some() { 100.0 } else { 1.2 };
    let mut programs: Vec<[f64; 2]> = (0..random.usize(1..=3)).map(|_| [speed, 0.8 * random.f64()]).collect();
    let grain = [None, Some(Duration::ZERO), Some(MS(20))][random.usize(..3)];
    let (answers, noise, room) = (random.bool(), 0.05 * random.f64(), random.bool());
    let mut silent = 0_u32;
    let (mut phase, mut state) = controller.start();
    let (mut phases, mut states) = (Vec::new(), Vec::new());
    for i in 0..PHASES {
        phases.push(phase);
        if i % 10 == 0 {
            states.push(digest(&state));
        }
        silent = if random.u8(..40) == 0 { random.u32(1..12) } else { silent.saturating_sub(1) };
        let mut seen = PhaseResult { room, grain, ..PhaseResult::default() };
        for [alone, loss] in &mut programs {
            if random.u8(..50) == 0 {
                *alone *= 0.5 + random.f64();
            }
            let speed = *alone * (1.0 - *loss * phase.duty) * (1.0 + noise * (random.f64() - 0.5));
            let speed = (silent == 0 && random.u8(..30) > 0).then_some(speed);
            let beyond = random.u32(..6 + (30.0 * *loss * phase.duty) as u32);
            let excess = answers.then(|| Excess::of(f64::from(beyond), 400, 0.99));
            seen.alone.push(speed.filter(|_| answers && phase.why == Why::Baseline));
            seen.speeds.push(speed);
            seen.measured.push(speed);
            seen.counted.push(speed);
            seen.excess.push(excess);
        }
        seen.taken = random.bool().then(|| random.f64());
        (phase, state) = controller.next(state, &seen);
    }
    let duties = phases.iter().take(READ).fold(String::new(), |text, phase| format!("{text} {:.2}", phase.duty));
    format!("{name} {goal}:{duties} … says {} remembers {}", digest(&phases), digest(&states))
}

#[test]
fn controllers_do_what_they_did() {
    let mut now = String::new();
    for name in PRESETS {
        for case in 0..CASES {
            writeln!(now, "{}", line(name, &mut Rng::with_seed(case))).expect("text");
        }
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/qos/controller/tests/golden.txt")), &now);
}
