//! How much speeds change by themselves.

use crate::speed::{Source, by_name};
use serde::{Deserialize, Serialize};

/// How much the speed of an application changes from one window to the next while nobody comes or goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    #[serde(with = "by_name")]
    pub source: Source,
    pub n: u32,
    pub squares: f64,
}

impl Noise {
    /// What is older counts half of what is as much and newer.
    const MEMORY: u32 = 128;

    pub fn new(source: Source) -> Self {
        Self { source, n: 0, squares: 0.0 }
    }

    pub fn add(&mut self, effect: f64) {
        if self.n >= Self::MEMORY {
            (self.n, self.squares) = (self.n / 2, self.squares / 2.0);
        }
        self.n += 1;
        self.squares += effect * effect;
    }

    /// The variance, and from how many changes it is known.
    pub fn variance(&self) -> Option<(f64, f64)> {
        (self.n >= 6).then(|| (self.squares / f64::from(self.n), f64::from(self.n)))
    }
}
