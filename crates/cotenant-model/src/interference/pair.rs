//! Results of experiments with one victim and one aggressor.

use super::noise::Noise;
use crate::stats::anytime;
use serde::{Deserialize, Serialize};

/// Number of experiments after which older ones are dropped.
const MEMORY: u32 = 32;
/// Least number of experiments for a result.
const FEWEST: u32 = 3;
/// The same if the victim's noise is unknown.
const FEWEST_ALONE: u32 = 8;
/// Least assumed standard deviation of noise.
const STEADIEST: f64 = 0.002;
/// Size of losses that the test detects soonest, as a logarithm.
const SCALE: f64 = 0.05;
/// Probability of any false row, over all pairs and looks.
const ALPHA: f64 = 0.05;
/// Least certain loss that is reported.
const LEAST: f64 = 0.01;

/// Experiments since some time, as a separate test.
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
    /// Its last experiment's number in the table.
    pub last: u64,
}

/// A lost fraction, 0–1, with its interval.
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
        // Certainty of a variance, from its number of changes.
        let variance = variance.max(STEADIEST * STEADIEST) * (1.2 + 6.0 / freedom.max(6.0));
        // Parts of ALPHA for tests 1, 2, … that sum to it, for any number of tests.
        let test = test.max(1) as f64;
        let half = anytime::half_width(variance, n, SCALE, ALPHA / (test * (test + 1.0)));
        let lost = |effect: f64| -effect.exp_m1();
        Some(Loss { share: lost(mean), low: lost(mean + half), high: lost(mean - half), events })
    }
}

impl Loss {
    /// Whether the loss is certain.
    pub fn is_significant(&self) -> bool {
        self.low >= LEAST
    }
}
