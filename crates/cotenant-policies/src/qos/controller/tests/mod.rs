mod answers;
mod golden;
mod properties;
mod reasons;
mod steady;
mod thresholds;
mod tracking;

use super::*;
use crate::qos::phase::{Excess, LONGEST_NAP, Lasts, Why};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A program whose speed is 100 alone and 100 · (1 − loss) while the others run; a metric that is read once per second.
struct Plant<'a> {
    controller: &'a Controller,
    state: Option<State>,
    phase: Phase,
    /// Relative error of speeds, in a fixed pseudo-random order.
    noise: f64,
    turn: u64,
    /// Its own slowdown.
    slower: f64,
}

/// Results of a stretch in the plant.
#[derive(Debug, Default)]
struct Came {
    /// Mean speed of the program over its speed alone.
    quality: f64,
    /// Mean duty of the others.
    utilisation: f64,
    /// Longest time without a run.
    longest_nap: Duration,
    /// Requested duties without pauses for the baseline and for blame.
    duties: Vec<f64>,
    /// Pauses for blame.
    asked: usize,
}

impl<'a> Plant<'a> {
    fn new(controller: &'a Controller, noise: f64) -> Self {
        let (phase, state) = controller.start();
        Self { controller, state: Some(state), phase, noise, turn: 0, slower: 0.0 }
    }

    fn length(&self) -> Duration {
        match self.phase.lasts {
            Lasts::For(time) | Lasts::UntilKnown(time) => time,
            Lasts::Readings(n) => Duration::from_secs(1) * n,
        }
    }

    /// Runs phases.
    fn run(&mut self, phases: usize, loss: f64) -> Came {
        let mut came = Came::default();
        let (mut time, mut nap) = (0.0, Duration::ZERO);
        for _ in 0..phases {
            let (length, duty) = (self.length(), self.phase.duty);
            let speed = 1.0 - loss * duty;
            let seconds = length.as_secs_f64();
            time += seconds;
            came.quality += speed * seconds;
            came.utilisation += duty * seconds;
            nap = if duty > 0.0 { Duration::ZERO } else { nap + length };
            came.longest_nap = came.longest_nap.max(nap);
            match self.phase.why {
                Why::Baseline => {}
                Why::Blame => came.asked += 1,
                _ => came.duties.push(duty),
            }
            self.turn = self.turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = ((self.turn >> 33) as f64 / f64::from(1_u32 << 30) - 1.0) * self.noise;
            let seen = PhaseResult::one(100.0 * (1.0 - self.slower) * speed * (1.0 + noise));
            let (phase, state) = self.controller.next(self.state.take().unwrap(), &seen);
            (self.phase, self.state) = (phase, Some(state));
        }
        came.quality /= time;
        came.utilisation /= time;
        came
    }
}

fn preset(name: &str) -> Controller {
    Controller::preset(name, 0.9).unwrap()
}

/// Phases that follow from speeds, as (duty, milliseconds).
fn sequence(controller: &Controller, speeds: &[f64]) -> Vec<(f64, u64)> {
    let (mut phase, mut state) = controller.start();
    let mut phases = Vec::new();
    for speed in speeds {
        let (Lasts::For(lasts) | Lasts::UntilKnown(lasts)) = phase.lasts else { panic!("{phase:?}") };
        phases.push((phase.duty, lasts.as_millis() as u64));
        (phase, state) = controller.next(state, &PhaseResult::one(*speed));
    }
    phases
}

impl PhaseResult {
    /// Of one program.
    fn one(speed: f64) -> Self {
        Self::of(vec![Some(speed)])
    }

    /// Of several.
    fn of(speeds: Vec<Option<f64>>) -> Self {
        Self { counted: speeds.clone(), measured: speeds.clone(), speeds, ..Self::default() }
    }
}
