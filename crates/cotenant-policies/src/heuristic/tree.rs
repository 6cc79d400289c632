//! The decision tree (Tang §4.1, Algorithm 1).

use cotenant_model::profile::High;
use cotenant_model::{Evidence, Signal, Unit};
use serde::{Deserialize, Serialize};

/// Placement of P's threads on a kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Together on as few as possible.
    Shared,
    /// On as many as possible.
    Spread,
}
pub(super) use Spread::{Shared, Spread as Apart};

/// A leaf of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// On memory paths: front-side buses if the machine has them, otherwise memory nodes.
    pub path: Spread,
    /// On last-level caches.
    pub llc: Spread,
}

/// The characteristics that the tree compares; all 0 without a co-runner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traits {
    pub bus: f64,
    pub sharing: f64,
    pub footprint: f64,
}

/// The decision tree (Algorithm 1), with its comparison of bus usage.
pub(super) fn tree(p: Traits, c: Traits, high: High) -> (Leaf, Evidence) {
    let path = if p.bus < c.bus { Shared } else { Apart };
    let llc = match path {
        _ if p.sharing >= high.sharing => Shared,
        Shared if p.footprint >= high.footprint_per_ms => Apart,
        Shared => Shared,
        Apart if p.footprint < c.footprint => Shared,
        Apart => Apart,
    };
    let per_s = 1_000.0;
    let evidence = Evidence {
        signal: Signal::BusTransactions,
        unit: Unit::PerSecond,
        value: p.bus * per_s,
        threshold: c.bus * per_s,
    };
    (Leaf { path, llc }, evidence)
}

impl Leaf {
    /// Its text in a reason.
    pub(super) const fn text(self) -> &'static str {
        match (self.path, self.llc) {
            (Shared, Shared) => "memory path and LLC shared among the threads of {app}; on {place}",
            (Shared, Apart) => "memory path shared among the threads of {app}, LLC spread; on {place}",
            (Apart, Shared) => "memory path of {app} spread, LLC shared among its threads; on {place}",
            (Apart, Apart) => "memory path and LLC of {app} spread; on {place}",
        }
    }
}
