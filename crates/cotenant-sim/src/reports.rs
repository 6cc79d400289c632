//! The progress that programs report, and its error against what they did.
//!
//! The error of reports depends on time, not on the observer: it is drawn per 100 ms, so that a program observed twice
//! as often reports the same.

use cotenant_model::Time;
use fastrand::Rng;

/// Instructions per unit of progress: even a thread that mostly waits reports 100,000 units a second.
const UNIT: f64 = 1e3;
/// Nanoseconds for which reports have the same error.
const SLOT: u64 = 100_000_000;
/// Seed of the reports' own randomness.
const REPORTS: u64 = 0x9e90_47ed;

/// The error of reported progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reports {
    /// Standard deviation of the progress of 100 ms, as a fraction; 0 = exact.
    pub noise: f64,
    /// Fraction (0–1) of the variance that persists across neighbouring slots. The rest is drawn per slot.
    pub lasting: f64,
    /// Seconds in which the persistent part decays to e⁻¹ (Ornstein and Uhlenbeck).
    pub lasting_s: f64,
    /// Probability of an outlier in a slot.
    pub outliers: f64,
    /// Size of an outlier in either direction, as a fraction.
    pub outlier_size: f64,
    /// Size of a jump of the level, as a fraction: up or down, and back with the next jump.
    pub jump: f64,
    /// Mean seconds between jumps (exponential).
    pub jump_every_s: f64,
}

impl Default for Reports {
    /// Exact. With noise, half of its variance persists, for a second.
    fn default() -> Self {
        Self {
            noise: 0.0,
            lasting: 0.5,
            lasting_s: 1.0,
            outliers: 0.0,
            outlier_size: 0.5,
            jump: 0.0,
            jump_every_s: 30.0,
        }
    }
}

/// The reports of an application so far.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    how: Reports,
    rng: Rng,
    /// The slot of `factor`; none at first.
    slot: Option<u64>,
    factor: f64,
    /// The persistent part, in standard deviations.
    lasting: f64,
    level: f64,
    at: u64,
    /// Instructions done, and reported.
    truth: f64,
    told: f64,
}

impl Reporter {
    /// The reports of an application, by its number.
    pub fn new(how: Reports, seed: u64, app: usize) -> Self {
        let mut rng = Rng::with_seed(seed ^ REPORTS);
        let rng = (0..=app).fold(rng.fork(), |_, _| rng.fork());
        Self { how, rng, slot: None, factor: 1.0, lasting: 0.0, level: 1.0, at: 0, truth: 0.0, told: 0.0 }
    }

    /// Units of work reported by now by an application that has executed this many instructions. Time must not go back.
    pub fn report(&mut self, now: Time, instructions: f64) -> u64 {
        let Reports { noise, outliers, jump, .. } = self.how;
        if noise == 0.0 && outliers == 0.0 && jump == 0.0 {
            return (instructions / UNIT) as u64;
        }
        if now.0 > self.at {
            let per_ns = (instructions - self.truth) / (now.0 - self.at) as f64;
            while self.at < now.0 {
                let slot = self.at / SLOT;
                while self.slot.is_none_or(|drawn| drawn < slot) {
                    self.draw();
                }
                let end = now.0.min((slot + 1) * SLOT);
                self.told += per_ns * (end - self.at) as f64 * self.factor;
                self.at = end;
            }
            self.truth = instructions;
        }
        (self.told / UNIT) as u64
    }

    /// Draws the error of the next slot. Each draw consumes the same random numbers, whatever errors are enabled.
    fn draw(&mut self) {
        let Reports { noise, lasting, lasting_s, outliers, outlier_size, jump, jump_every_s } = self.how;
        let rng = &mut self.rng;
        let (slow, fast) = (normal(rng), normal(rng));
        let [is_off, jumps] = [outliers, SLOT as f64 / 1e9 / jump_every_s].map(|odds| rng.f64() < odds);
        let [outlier, shift] = [outlier_size, jump].map(|size| if rng.bool() { size } else { -size });
        let left = if self.slot.is_none() { 0.0 } else { (-(SLOT as f64) / 1e9 / lasting_s).exp() };
        self.lasting = left * self.lasting + (1.0 - left * left).sqrt() * slow;
        if jumps {
            self.level = if self.level == 1.0 { 1.0 + shift } else { 1.0 };
        }
        let wrong = noise * (lasting.sqrt() * self.lasting + (1.0 - lasting).sqrt() * fast);
        self.factor = (self.level * (1.0 + wrong) * if is_off { 1.0 + outlier } else { 1.0 }).max(0.0);
        self.slot = Some(self.slot.map_or(0, |slot| slot + 1));
    }
}

/// A number with the standard normal distribution (Box and Muller).
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_S: f64 = 1e9;
    const NOISY: Reports = Reports {
        noise: 0.05,
        lasting: 0.5,
        lasting_s: 1.0,
        outliers: 0.0,
        outlier_size: 0.5,
        jump: 0.0,
        jump_every_s: 30.0,
    };

    /// Reported over actual progress in each of `n` windows.
    fn windows(how: Reports, seed: u64, n: u64, ms: u64) -> Vec<f64> {
        let mut reporter = Reporter::new(how, seed, 0);
        let mut before = 0;
        let one = |i: u64| {
            let s = (i + 1) as f64 * ms as f64 / 1e3;
            let now = reporter.report(Time((i + 1) * ms * 1_000_000), PER_S * s);
            let window = (now - std::mem::replace(&mut before, now)) as f64;
            window * UNIT / (PER_S * ms as f64 / 1e3)
        };
        (0..n).map(one).collect()
    }

    fn mean(of: impl Iterator<Item = f64> + Clone) -> f64 {
        of.clone().sum::<f64>() / of.count() as f64
    }

    /// The covariance of windows with those `lag` later.
    fn covariance(x: &[f64], lag: usize) -> f64 {
        let m = mean(x.iter().copied());
        mean(x.iter().zip(&x[lag..]).map(|(a, b)| (a - m) * (b - m)))
    }

    #[test]
    fn reports_are_as_wrong_as_is_said_for_as_long() {
        let x = windows(NOISY, 1, 40_000, 100);
        let all = covariance(&x, 0);
        assert!((mean(x.iter().copied()) - 1.0).abs() < 2e-3 && (all.sqrt() / 0.05 - 1.0).abs() < 0.03, "{all}");
        // Of the half that lasts, e⁻⁰·¹ after a slot and e⁻¹ after ten.
        for (lag, expected) in [(1, 0.452), (10, 0.184), (60, 0.0)] {
            let left = covariance(&x, lag) / all;
            assert!((left - expected).abs() < 0.04, "{lag}: {left}");
        }
        let lasting = windows(Reports { lasting: 1.0, lasting_s: 0.949, ..NOISY }, 1, 40_000, 100);
        let left = covariance(&lasting, 1) / covariance(&lasting, 0);
        assert!((left - 0.9).abs() < 0.02, "{left}");
    }

    #[test]
    fn who_looks_more_often_sees_the_same() {
        let often = windows(NOISY, 3, 4_000, 10);
        let of = |ms: u64| windows(NOISY, 3, 40_000 / ms, ms);
        for ms in [100, 250, 2_000] {
            let whole = often.chunks(ms as usize / 10).map(|part| mean(part.iter().copied()));
            assert!(whole.zip(of(ms)).all(|(a, b)| (a - b).abs() < 1e-4), "{ms}");
        }
        assert_ne!(of(100), windows(NOISY, 4, 400, 100));
        let [a, b] = [0, 1].map(|app| Reporter::new(NOISY, 3, app).report(Time(SLOT), PER_S));
        assert_ne!(a, b, "each application is wrong by itself");
    }

    #[test]
    fn exact_reports_are_what_was_done() {
        let mut reporter = Reporter::new(Reports::default(), 1, 0);
        assert_eq!([1_500.0, 3e9].map(|n| reporter.report(Time(1), n)), [1, 3_000_000]);
    }

    #[test]
    fn outliers_and_jumps_come_as_often_and_are_as_large_as_is_said() {
        let of = |how: Reports| windows(Reports { noise: 0.0, ..how }, 5, 20_000, 100);
        let share = |x: &[f64], at: f64| x.iter().filter(|x| (**x - at).abs() < 1e-4).count() as f64 / x.len() as f64;
        let x = of(Reports { outliers: 0.1, outlier_size: 0.4, ..NOISY });
        for (at, expected) in [(0.6, 0.05), (1.0, 0.9), (1.4, 0.05)] {
            assert!((share(&x, at) - expected).abs() < 0.01, "{at}: {}", share(&x, at));
        }
        // Jumps go there and back: half of the time the level is away.
        let x = of(Reports { jump: 0.2, jump_every_s: 5.0, ..NOISY });
        for (at, expected) in [(0.8, 0.25), (1.0, 0.5), (1.2, 0.25)] {
            assert!((share(&x, at) - expected).abs() < 0.06, "{at}: {}", share(&x, at));
        }
        let jumps = x.windows(2).filter(|x| (x[0] - x[1]).abs() > 0.1).count();
        assert!((350..450).contains(&jumps), "{jumps} in 2,000 s");
    }

    #[test]
    fn progress_never_goes_back() {
        let mut reporter = Reporter::new(Reports { noise: 1.0, outliers: 0.5, outlier_size: 1.0, ..NOISY }, 7, 0);
        let all: Vec<u64> = (0..5_000).map(|i| reporter.report(Time(i * 7_000_000), 7e6 * i as f64)).collect();
        assert!(all.windows(2).all(|x| x[0] <= x[1]) && all.windows(2).any(|x| x[0] == x[1]));
    }
}
