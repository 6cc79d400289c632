//! What a calibration measured, as plain values.

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
    /// Its name; a node's number stands behind a dot.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The number.
    #[serde(flatten)]
    pub measured: Repeated,
    /// How it was measured.
    pub method: String,
}

/// Something that this machine cannot tell, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// What.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A curve: what was set, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name; a node's number stands behind a dot.
    pub name: String,
    /// What the first number of each point is, with its unit.
    pub x: String,
    /// What the second is.
    pub y: String,
    /// Medians.
    pub points: Vec<(f64, f64)>,
    /// [`Repeated::low`] and [`Repeated::high`] of the first number of each point; empty where it was set, not
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spread_x: Vec<(f64, f64)>,
    /// The same of the second.
    #[serde(default)]
    pub spread_y: Vec<(f64, f64)>,
}

impl Curve {
    /// Of points with spread; those that were measured only half are left out.
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

/// Groups of CPUs of which latencies and system say different things; those of which they say the same are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What is shared.
    pub role: Role,
    /// The CPUs that share it, as latencies show; empty where they show no such level.
    pub found: Vec<CpuSet>,
    /// The CPUs that share it, as the system claims; empty where it claims no such level.
    pub claimed: Vec<CpuSet>,
}

/// What stands under `[calibration]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What it holds for.
    pub stamp: Stamp,
    /// The part of its CPUs' time that other programs used meanwhile, 0–1; absent where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_others: Option<f64>,
    /// What used this machine before the start, and meanwhile.
    #[serde(default, skip_serializing_if = "Seen::is_empty")]
    pub usage: Seen,
    /// Every number with its spread and how it was measured.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// What this machine could not tell.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Curves behind the numbers.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// CPUs of the matrix, in its order.
    #[serde(default)]
    pub core_to_core_cpus: Vec<CpuId>,
    /// One-way latencies between them, nanoseconds: row `i` holds those to CPUs before it; 0 = not measured.
    #[serde(default)]
    pub core_to_core_ns: Vec<Vec<f64>>,
    /// How far another calibration may lie from each of these to either side, nanoseconds.
    #[serde(default)]
    pub core_to_core_spread_ns: Vec<Vec<f64>>,
    /// Which CPUs share what, as the latencies show.
    #[serde(default)]
    pub shared: Vec<Level>,
    /// Where the latencies show other groups than the system claims.
    #[serde(default)]
    pub shared_otherwise: Vec<Difference>,
    /// From CPUs to memory nodes, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_latency: Option<MemoryLatencies>,
}
