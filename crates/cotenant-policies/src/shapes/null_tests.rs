//! False positives and negatives of a trial on made-up programs. The whole policy for days on a machine whose kernel's
//! placement is the best.
//!
//! More of it, as JSON lines: `COTENANT_TRIALS=10000 cargo test --release -p cotenant-policies null_ -- --nocapture`.

use super::Shapes;
use super::page_trial::{PageNext, PageTrial};
use super::settings::ShapesSettings;
use super::shape_board::ShapePlaces;
use super::speed_meter::SpeedPoint;
use super::steadiness::Steadiness;
use super::tests::Pretend;
use super::trial::{Ask, Clock, Goal, SETTLE, STAGES, ShapeTrial, Side, TrialVerdict};
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::{CpuId, CpuSet, Outcome, TaskId, Time};
use fastrand::Rng;
use serde_json::json;

/// Properties of a program's speed besides noise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoiseKind {
    name: &'static str,
    /// A period in seconds, and the speed-up of its first half.
    phase: Option<(f64, f64)>,
    /// Its speed-up, if it begins after the trace and is as long as a block, so that each one is affected alike.
    follows: Option<f64>,
    /// Probability of a reading that is off by half.
    outliers: f64,
    /// Size of a jump of the level, up, down or back, every 30 s.
    jump: f64,
}

pub(super) const NOISE: NoiseKind = NoiseKind { name: "noise", phase: None, follows: None, outliers: 0.0, jump: 0.0 };

const fn phases(name: &'static str, seconds: f64) -> NoiseKind {
    NoiseKind { name, phase: Some((seconds, 0.1)), ..NOISE }
}

const SHORT_PHASES: NoiseKind = phases("phases, 0.6 s", 0.6);
const ALL: NoiseKind = NoiseKind { name: "all of it", phase: Some((1.3, 0.1)), outliers: 0.01, jump: 0.2, ..NOISE };

/// Phases of 0.3 to 10.8 s; from 1.6 s on they are as long as a block, half of them two windows, of windows of 0.3 to
/// 2.6 s.
const KINDS: [NoiseKind; 16] = [
    NOISE,
    phases("phases, 0.3 s", 0.3),
    SHORT_PHASES,
    phases("phases, 1.3 s", 1.3),
    phases("phases, 1.6 s", 1.6),
    phases("phases, 2.6 s", 2.6),
    phases("phases, 2.8 s", 2.8),
    phases("phases, 4.4 s", 4.4),
    phases("phases, 5 s", 5.0),
    phases("phases, 6.8 s", 6.8),
    phases("phases, 10 s", 10.0),
    phases("phases, 10.8 s", 10.8),
    NoiseKind { name: "phases as long as a block, from the first trial on", follows: Some(0.1), ..NOISE },
    NoiseKind { name: "outliers", outliers: 0.01, ..NOISE },
    NoiseKind { name: "jumps", jump: 0.2, ..NOISE },
    ALL,
];

/// A program with a reading of its speed every 0.1 s.
#[derive(Clone, Debug)]
pub(super) struct NoisyProgram {
    /// Standard deviation of a reading; half of the variance persists for a second.
    noise: f64,
    kind: NoiseKind,
    rng: Rng,
    slow: f64,
    level: f64,
    at: f64,
}

impl NoisyProgram {
    pub fn new(noise: f64, kind: NoiseKind, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let at = rng.f64() * 100.0;
        Self { noise, kind, rng, slow: 0.0, level: 0.0, at }
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * self.rng.f64()).cos()
    }

    pub fn read(&mut self, effect: f64, now: Time) -> SpeedPoint {
        self.at += 0.1;
        let keep = (-0.1_f64).exp();
        self.slow = self.slow * keep + (1.0 - keep * keep).sqrt() * self.normal();
        let noise = self.noise * std::f64::consts::FRAC_1_SQRT_2 * (self.slow + self.normal());
        let NoiseKind { phase, outliers, jump, .. } = self.kind;
        let phase = phase.map_or(0.0, |(length, size)| if self.at / length % 1.0 < 0.5 { size } else { 0.0 });
        let sign = |rng: &mut Rng| if rng.bool() { 1.0 } else { -1.0 };
        if jump > 0.0 && self.rng.f64() < 0.1 / 30.0 {
            self.level = if self.level == 0.0 { sign(&mut self.rng) * jump } else { 0.0 };
        }
        let off = if outliers > 0.0 && self.rng.f64() < outliers { sign(&mut self.rng) * 0.5 } else { 0.0 };
        let log = effect + noise + phase + self.level + f64::ln_1p(off);
        SpeedPoint { at: now, seconds: 0.1, logs: vec![log] }
    }
}

/// Tries a candidate with this effect through all stages; returns whether it was kept, and the seconds.
fn experiment(program: &mut NoisyProgram, effect: f64, seed: u64) -> (bool, f64) {
    let mut rng = Rng::with_seed(seed);
    let mut now = Time(1_000_000_000);
    let mut step = || {
        now = Time(now.0 + 100_000_000);
        now
    };
    let mut read = |_| {
        let point = program.read(0.0, step());
        (point.seconds, point.logs[0])
    };
    let mut values: Vec<(f64, f64)> = (0..30).map(&mut read).collect();
    if Clock::jumps(&values) {
        values.extend((0..50).map(&mut read));
    }
    let mut clock = Clock::from_trace(&values).unwrap();
    if let Some(size) = program.kind.follows {
        program.kind.phase = Some((4.0 * clock.window + 2.0 * SETTLE.as_secs_f64(), size));
    }
    let mut pairs = Vec::new();
    let began = step();
    let mut now = began;
    let mut recent = None;
    for stage in STAGES {
        let (mut trial, mut side) = ShapeTrial::new(now, recent.take(), std::mem::take(&mut pairs));
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
        if verdict != TrialVerdict::Undecided || trial.estimate(&Goal::Mean, &clock, 0.05).mean <= 0.0 {
            return (verdict == TrialVerdict::Better, (now - began).as_secs_f64());
        }
        pairs = trial.pairs;
    }
    (false, (now - began).as_secs_f64())
}

/// Tries a candidate with this effect whose memory the kernel moves within 8 s, a tenth slower until then.
fn with_memory(program: &mut NoisyProgram, effect: f64, _: u64) -> (bool, f64) {
    let topology = machine(2, 1, 4, 1);
    let [home, places] = [0, 4].map(|cpu| ShapePlaces::from([(TaskId(1), CpuSet::single(CpuId(cpu)))]));
    let (mut steadiness, mut first) = (Steadiness::default(), 1);
    // As in the whole policy, trials wait for a steady load.
    while steadiness.left() > 0.0 {
        first += 1;
        if first > 36_000 {
            return (false, 3_600.0);
        }
        steadiness.add(&program.read(0.0, Time::from_millis(100 * first)));
    }
    let mut trial = PageTrial::by_kernel(1.5);
    let (mut to, mut there) = (0.0, 0.0_f64);
    for round in first.. {
        let at = Time::from_millis(100 * round);
        there += (to - there).clamp(-0.1 / 8.0, 0.1 / 8.0);
        let pages = [(0, (1e6 * (1.0 - there)) as u64), (1, (1e6 * there) as u64)];
        let view = ViewBuilder::new(&topology).at(at).task(1, 0, 4).pages(&pages).view();
        let now = if to > 0.0 { effect } else { 0.0 } - 0.1 * (to - there).abs();
        let point = Some(program.read(now, at));
        let worth = |change: &[f64]| change[0];
        match trial.add(&topology, [&home, &places], &view, point, &[], worth, |_| vec![0.0], |_, gains| gains) {
            PageNext::Wait => {}
            PageNext::Move { back, .. } => to = f64::from(u8::from(!back)),
            PageNext::Done(_, kept) => return (kept, 0.1 * round as f64),
        }
    }
    unreachable!("trials have an end")
}

/// A kind of trial: whether the candidate was kept, and the seconds.
type Experiment = fn(&mut NoisyProgram, f64, u64) -> (bool, f64);

/// Fraction of kept candidates, and seconds per trial.
fn kept(how: Experiment, noise: f64, kind: NoiseKind, effect: f64, trials: u64) -> (f64, f64) {
    let all = (0..trials).map(|seed| how(&mut NoisyProgram::new(noise, kind, seed), effect, seed ^ 0x5eed));
    let (kept, seconds): (Vec<bool>, Vec<f64>) = all.unzip();
    let share = kept.iter().filter(|kept| **kept).count() as f64 / trials as f64;
    (share, seconds.iter().sum::<f64>() / trials as f64)
}

/// Nothing is kept that gains nothing, whatever the noise is like, and what gains is.
/// Holds place/shapes.
#[test]
fn null_effects_are_seldom_kept_and_gains_are() {
    // Deviation, kind, effect, least and most kept of 300.
    for (noise, kind, effect, least, most) in [
        (0.01, NOISE, 0.0, 0.0, 0.02),
        (0.01, SHORT_PHASES, 0.0, 0.0, 0.02),
        (0.05, NOISE, 0.0, 0.0, 0.05),
        (0.05, SHORT_PHASES, 0.0, 0.0, 0.06),
        (0.01, NOISE, -0.02, 0.0, 0.0),
        (0.02, NOISE, 0.03, 0.9, 1.0),
        (0.01, NOISE, 0.02, 0.9, 1.0),
    ] {
        let (share, _) = kept(experiment, noise, kind, effect, 300);
        assert!((least..=most).contains(&share), "noise {noise}, {}, effect {effect}: {share}", kind.name);
    }
}

/// Experiments of each kind: few, or as many as `cargo xtask full` requests.
fn trials() -> Option<u64> {
    std::env::var("COTENANT_TRIALS").ok()?.parse().ok()
}

/// Holds place/shapes.
#[test]
fn null_experiments() {
    let trials = trials().unwrap_or(20);
    let mut wrong = Vec::new();
    let ways: [(Experiment, bool); 2] = [(experiment, false), (with_memory, true)];
    for ((how, memory), noise) in ways.into_iter().flat_map(|way| [0.01, 0.02, 0.05].map(|noise| (way, noise))) {
        for kind in KINDS {
            for effect in if kind.name == NOISE.name { &[0.0, 0.02, 0.03, 0.05][..] } else { &[0.0, 0.03] } {
                let (share, seconds) = kept(how, noise, kind, *effect, trials);
                let name = kind.name;
                let row = json!({
                    "memory_moves": memory, "noise": noise, "kind": name, "effect": effect, "trials": trials,
                    "kept": share, "seconds": seconds
                });
                println!("{row}");
                // Three deviations above the limit are no chance.
                let may = f64::clamp(noise, 0.01, 0.04);
                let bound = may + 3.0 * (may * (1.0 - may) / trials as f64).sqrt();
                wrong.extend((*effect == 0.0 && share > bound).then_some(row));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The kernel's placement is the fastest; others are slower by up to 3 %, depending on the threads in each domain.
fn slower(machine: &Pretend) -> f64 {
    let domains = machine.topology.llc_domains().len();
    let half = machine.cpus.len() / 2;
    let mut counts = vec![[0_u64; 2]; domains];
    for (task, cpu) in machine.cpus.iter().enumerate() {
        counts[machine.topology.llc_of(*cpu).unwrap()][task / half] += 1;
    }
    let even = counts.iter().all(|of| of[0] == of[1]);
    counts.sort_unstable();
    let seed = counts.iter().flatten().fold(7, |sum: u64, n| sum.wrapping_mul(31).wrapping_add(*n));
    if even { 1.0 } else { 1.0 - 0.03 * Rng::with_seed(seed).f64() }
}

/// A week, or some hours: what is kept is wrong, and audits find it out. At most one is not found out by the end.
/// Holds place/shapes.
#[test]
fn null_week() {
    let hours = if trials().is_some() { 168.0 } else { 2.0 };
    for (noise, kind) in [(0.01, NOISE), (0.05, NOISE), (0.05, ALL)] {
        for seed in 1..=if trials().is_some() { 3 } else { 1 } {
            // Four domains of four cores; each has two threads of each program.
            let cpus: Vec<u32> = (0..2).flat_map(|app| (0..8).map(move |i| i / 2 * 4 + i % 2 + 2 * app)).collect();
            let mut machine = Pretend::on(machine(2, 2, 4, 1), cpus, 1.0);
            machine.other = Some((slower, [1, 2].map(|app| NoisyProgram::new(noise, kind, 10 * seed + app))));
            let policy = Shapes::new(ShapesSettings { seed, ..ShapesSettings::default() });
            let (speed, state) = machine.run(&policy, hours * 3_600.0, |_| Outcome::Applied);
            let told = |what: &str| machine.notes.iter().filter(|(_, note, _)| note.starts_with(what)).count();
            let back =
                machine.notes.iter().rposition(|(_, note, _)| note.starts_with("given back")).map_or(0, |i| i + 1);
            let left = machine.notes[back..].iter().filter(|(_, note, _)| note.starts_with("kept")).count();
            let trials = state.trialling.learned().map_or(0, |learned| learned.trials);
            let row = json!({
                "hours": hours, "noise": noise, "kind": kind.name, "seed": seed, "trials": trials,
                "kept": told("kept"), "given_back": told("given back"), "left": left, "speed": speed
            });
            println!("{row}");
            assert!(left <= 1, "{noise} {}: {:?}", kind.name, machine.notes);
            // An audit ends when the kernel's placement is certainly not better by 1 %.
            assert!(state.is_trying() || speed >= 0.985, "{noise} {}: {speed}", kind.name);
            // The state is bounded: time alone adds nothing.
            let bytes = serde_json::to_vec(&state).unwrap().len();
            assert!(bytes < 64 << 10, "{bytes} bytes");
        }
    }
}
