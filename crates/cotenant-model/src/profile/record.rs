//! Measurements of a calibration, as plain values.

use super::stamp::Stamp;
use crate::stats::repeated::Repeated;
use crate::topology::hidden::{Level, Role};
use crate::topology::latency::MemoryLatencies;
use crate::usage::Seen;
use crate::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};

/// A number of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name; a node's number follows a dot.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The number.
    #[serde(flatten)]
    pub measured: Repeated,
    /// Method of the measurement.
    pub method: String,
}

/// A part that cannot be measured on this machine, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The part.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// A curve: set values and results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name; a node's number follows a dot.
    pub name: String,
    /// Name and unit of the first number of each point.
    pub x: String,
    /// Name and unit of the second.
    pub y: String,
    /// Medians.
    pub points: Vec<(f64, f64)>,
    /// [`Repeated::low`] and [`Repeated::high`] of the first number of each point; empty if it was set, not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_x: Vec<(f64, f64)>,
    /// The same of the second.
    #[serde(default)]
    pub spread_y: Vec<(f64, f64)>,
}

impl Curve {
    /// From points with spread; incomplete ones are left out.
    pub fn of(name: String, x: &str, y: &str, points: impl Iterator<Item = Option<(Repeated, Repeated)>>) -> Self {
        let points: Vec<_> = points.flatten().collect();
        let spread = |m: &Repeated| (m.low, m.high);
        let was_set = points.iter().all(|(x, _)| x.rounds == 0);
        Self {
            name,
            x: x.into(),
            y: y.into(),
            points: points.iter().map(|(x, y)| (x.value, y.value)).collect(),
            spread_x: if was_set { Vec::new() } else { points.iter().map(|(x, _)| spread(x)).collect() },
            spread_y: points.iter().map(|(_, y)| spread(y)).collect(),
        }
    }
}

/// Groups of CPUs on which latencies and system disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The shared resource.
    pub role: Role,
    /// The CPUs that share it according to latencies; empty without such a level.
    pub found: Vec<CpuSet>,
    /// The CPUs that share it according to the system; empty without such a level.
    pub claimed: Vec<CpuSet>,
}

/// Content of `[calibration]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its validity.
    pub stamp: Stamp,
    /// Fraction of its CPUs' time that other programs used meanwhile, 0–1; absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_others: Option<f64>,
    /// Usage of this machine before the start, and meanwhile.
    #[serde(default, skip_serializing_if = "Seen::is_empty")]
    pub usage: Seen,
    /// Every number with its spread and method.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Parts that cannot be measured on this machine.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Curves from which the numbers are derived.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// CPUs of the matrix, in its order.
    #[serde(default)]
    pub core_to_core_cpus: Vec<CpuId>,
    /// One-way latencies between them, nanoseconds: row `i` holds those to earlier CPUs; 0 = not measured.
    #[serde(default)]
    pub core_to_core_ns: Vec<Vec<f64>>,
    /// Tolerance of another calibration to either side, nanoseconds.
    #[serde(default)]
    pub core_to_core_spread_ns: Vec<Vec<f64>>,
    /// Shared levels according to the latencies.
    #[serde(default)]
    pub shared: Vec<Level>,
    /// Disagreements of latencies with the system's claims.
    #[serde(default)]
    pub shared_otherwise: Vec<Difference>,
    /// From CPUs to memory nodes, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_latency: Option<MemoryLatencies>,
}
