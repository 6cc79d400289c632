//! The test of a trial on made-up programs: how often it is wrong, and what it misses.

use super::trial::{Ask, Clock, Goal, Point, STAGES, Side, Trial, Verdict};
use cotenant_model::Time;
use fastrand::Rng;

/// A program whose speed is read every 0.1 s.
struct Program {
    /// Standard deviation of a reading; half of the variance lasts for a second.
    noise: f64,
    /// Seconds, and by how much faster the first half of that time is.
    phase: Option<(f64, f64)>,
    rng: Rng,
    slow: f64,
    at: f64,
}

impl Program {
    fn new(noise: f64, phase: Option<(f64, f64)>, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let at = rng.f64() * 100.0;
        Self { noise, phase, rng, slow: 0.0, at }
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.rng.f64()).cos()
    }

    fn read(&mut self, effect: f64, now: Time) -> Point {
        self.at += 0.1;
        let keep = (-0.1_f64).exp();
        self.slow = self.slow * keep + (1.0 - keep * keep).sqrt() * self.normal();
        let noise = self.noise * std::f64::consts::FRAC_1_SQRT_2 * (self.slow + self.normal());
        let phase = self.phase.map_or(0.0, |(length, size)| if self.at / length % 1.0 < 0.5 { size } else { 0.0 });
        Point { at: now, seconds: 0.1, logs: vec![effect + noise + phase] }
    }
}

/// Tries a candidate of this effect through all stages: whether it was kept, and seconds that it took.
fn experiment(program: &mut Program, effect: f64, seed: u64) -> (bool, f64) {
    let mut rng = Rng::with_seed(seed);
    let mut now = Time(1_000_000_000);
    let mut step = || {
        now = Time(now.0 + 100_000_000);
        now
    };
    let mut values = Vec::new();
    for _ in 0..30 {
        let point = program.read(0.0, step());
        values.push((point.seconds, point.logs[0]));
    }
    if Clock::jumps(&values) {
        for _ in 0..50 {
            let point = program.read(0.0, step());
            values.push((point.seconds, point.logs[0]));
        }
    }
    let mut clock = Clock::from_trace(&values).unwrap();
    let mut pairs = Vec::new();
    let began = step();
    let mut now = began;
    let mut recent = None;
    for stage in STAGES {
        let (mut trial, mut side) = Trial::new(now, recent.take(), std::mem::take(&mut pairs));
        if side == Side::Candidate {
            trial.switched(now);
        }
        let verdict = loop {
            now = step();
            let point = program.read(if side == Side::Candidate { effect } else { 0.0 }, now);
            match trial.add(&point, &Goal::Mean, &mut clock, stage, 0.05, &mut rng) {
                Ask::Stay => {}
                Ask::Switch(to) => {
                    side = to;
                    trial.switched(now);
                }
                Ask::Done(verdict) => break verdict,
            }
        };
        if verdict != Verdict::Undecided || trial.estimate(&Goal::Mean, &clock, 0.05).mean <= 0.0 {
            return (verdict == Verdict::Better, (now - began).as_secs_f64());
        }
        pairs = trial.pairs;
    }
    (false, (now - began).as_secs_f64())
}

/// Share of kept candidates, and seconds per trial.
fn kept(noise: f64, phase: Option<(f64, f64)>, effect: f64, trials: u64) -> (f64, f64) {
    let all = (0..trials).map(|seed| experiment(&mut Program::new(noise, phase, seed), effect, seed ^ 0x5eed));
    let (kept, seconds): (Vec<bool>, Vec<f64>) = all.unzip();
    let share = kept.iter().filter(|kept| **kept).count() as f64 / trials as f64;
    (share, seconds.iter().sum::<f64>() / trials as f64)
}

#[test]
fn table() {
    for (noise, phase) in [
        (0.01, None),
        (0.02, None),
        (0.05, None),
        (0.01, Some((0.3, 0.1))),
        (0.01, Some((1.3, 0.1))),
        (0.01, Some((5.0, 0.1))),
        (0.05, Some((1.3, 0.1))),
    ] {
        for effect in [0.0, 0.02, 0.03, 0.05, -0.02, -0.1] {
            let (share, seconds) = kept(noise, phase, effect, 1000);
            eprintln!("{noise} {phase:?} {effect:+}: {:.1} % {seconds:.1} s", share * 100.0);
        }
    }
}
