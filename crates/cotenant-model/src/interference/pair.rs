//! What experiments with one victim and one aggressor come to.

use super::noise::Noise;
use crate::stats::anytime;
use serde::{Deserialize, Serialize};

/// After so many experiments the older ones begin to be forgotten.
const MEMORY: u32 = 32;
/// Nothing is said after fewer.
const FEWEST: u32 = 3;
/// Nor after fewer where nothing is known of how steady the victim is while nothing changes.
const FEWEST_ALONE: u32 = 8;
/// Standard deviation below which nobody is believed to be steady.
const STEADIEST: f64 = 0.002;
/// The size of losses that are to be found soonest, as a logarithm.
const SCALE: f64 = 0.05;
/// How likely any false row ever is, over all pairs and looks.
const ALPHA: f64 = 0.05;
/// A loss is said where at least so much is sure.
const LEAST: f64 = 0.01;

/// Experiments since some time, as a test of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Run {
    /// Its number among all tests, from 1.
    test: u64,
    n: u32,
    sum: f64,
    squares: f64,
}

/// Experiments with one pair: the last 32 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    before: Option<Run>,
    now: Run,
    /// In which experiment of the table it was last.
    pub last: u64,
}

/// A share that is lost, 0–1, and between which shares it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    pub share: f64,
    pub low: f64,
    pub high: f64,
    pub events: u32,
}

impl Pair {
    /// Adds an experiment: the logarithm of the victim's speed with the aggressor over that without. `tests` counts
    /// tests.
    pub fn add(&mut self, effect: f64, tests: &mut u64) {
        if self.now.n >= MEMORY {
            self.before = Some(std::mem::take(&mut self.now));
        }
        if self.now.n == 0 {
            *tests += 1;
            self.now.test = *tests;
        }
        self.now.n += 1;
        self.now.sum += effect;
        self.now.squares += effect * effect;
    }

    /// The loss with its interval; `None` after too few experiments.
    pub fn loss(&self, noise: &Noise) -> Option<Loss> {
        let Run { test, n, sum, squares } = self.before.map_or(self.now, |before| Run {
            n: before.n + self.now.n,
            sum: before.sum + self.now.sum,
            squares: before.squares + self.now.squares,
            ..before
        });
        let known = noise.variance();
        if n < FEWEST || (known.is_none() && n < FEWEST_ALONE) {
            return None;
        }
        let (events, n) = (n, f64::from(n));
        let mean = sum / n;
        let own = (squares - n * mean * mean).max(0.0) / (n - 1.0);
        let (variance, freedom) = known.map_or((own, n - 1.0), |(known, freedom)| (known.max(own), freedom));
        // How well a variance is known grows with what it is from.
        let variance = variance.max(STEADIEST * STEADIEST) * (1.2 + 6.0 / freedom.max(6.0));
        // Shares of ALPHA for tests 1, 2, … that sum to it, however many there will be.
        let test = test.max(1) as f64;
        let half = anytime::half_width(variance, n, SCALE, ALPHA / (test * (test + 1.0)));
        let lost = |effect: f64| -effect.exp_m1();
        Some(Loss { share: lost(mean), low: lost(mean + half), high: lost(mean - half), events })
    }
}

impl Loss {
    /// Whether it is one beyond doubt.
    pub fn is_significant(&self) -> bool {
        self.low >= LEAST
    }
}
