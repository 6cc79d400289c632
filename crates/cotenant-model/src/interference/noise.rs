//! Changes of speeds without a cause.

use crate::speed::{Source, by_name};
use serde::{Deserialize, Serialize};

/// Change of an application's speed between windows while the other applications stay the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    #[serde(with = "by_name")]
    pub source: Source,
    pub n: u32,
    pub squares: f64,
}

impl Noise {
    /// Halves the weight of older changes.
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

    /// The variance, and its number of changes.
    pub fn variance(&self) -> Option<(f64, f64)> {
        (self.n >= 6).then(|| (self.squares / f64::from(self.n), f64::from(self.n)))
    }
}
