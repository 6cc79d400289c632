//! Measured values of a machine.

use cotenant_model::profile::calibration::{Curve, Difference, Figure, LeftOut, Record, Stamp};
use cotenant_model::stats::repeated::Repeated;
use cotenant_model::topology::hidden::{Latencies, Level};
use cotenant_model::topology::latency::MemoryLatencies;
use cotenant_model::usage::Seen;
use std::collections::BTreeMap;

/// The values of the rounds.
#[derive(Default)]
pub(super) struct Values {
    /// By name, one per round.
    pub numbers: BTreeMap<String, Vec<f64>>,
    /// The reason if memory could not be bound to a node.
    pub no_remote: Option<String>,
    /// The same for the part `distances`.
    pub no_distances: Option<String>,
}

impl Values {
    /// Values of each round; empty without any.
    pub fn get(&self, name: &str) -> &[f64] {
        self.numbers.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Results for a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Numbers.
    pub figures: Vec<Figure>,
    /// Missing figures.
    pub left_out: Vec<LeftOut>,
    /// Curves.
    pub curves: Vec<Curve>,
    /// Latencies between CPUs, if measured.
    pub latencies: Option<Latencies>,
    /// Tolerance of another calibration to either side for each of those, nanoseconds: row `i` covers the CPUs before
    /// it.
    pub latency_spread_ns: Vec<Vec<f64>>,
    /// The shared caches and packages that they show.
    pub levels: Vec<Level>,
    /// Differences from the system's claims.
    pub differences: Vec<Difference>,
    /// Latencies from CPUs to memory nodes, if there are several.
    pub memory: Option<MemoryLatencies>,
    /// Whether it was stopped early.
    pub interrupted: bool,
}

impl Calibration {
    /// The figure of that name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The profile's record of it.
    pub fn record(&self, stamp: Stamp) -> Record {
        let Calibration {
            figures, left_out, curves, latencies, latency_spread_ns, levels, differences, memory, ..
        } = self.clone();
        let cpus = latencies.as_ref().map_or(vec![], |l| l.cpus().to_vec());
        let rows = (0..cpus.len()).map(|i| {
            let cell = |j| latencies.as_ref().and_then(|l| l.get(i, j)).unwrap_or(0.0);
            (0..i).map(|j| tenths(cell(j))).collect()
        });
        let spread = latency_spread_ns.iter().map(|row| row.iter().copied().map(tenths).collect());
        Record {
            core_to_core_ns: rows.collect(),
            core_to_core_spread_ns: spread.collect(),
            core_to_core_cpus: cpus,
            stamp,
            used_by_others: None,
            usage: Seen::default(),
            figures,
            left_out,
            curves,
            shared: levels,
            shared_otherwise: differences,
            memory_latency: memory,
        }
    }

    pub(super) fn leave_out(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        self.left_out.push(LeftOut { name: name.into(), reason: reason.into() });
    }

    pub(super) fn add(&mut self, name: impl Into<String>, unit: &str, values: &[f64], method: &str) {
        match Repeated::of(values) {
            Some(measured) => {
                self.figures.push(Figure { name: name.into(), unit: unit.into(), measured, method: method.into() });
            }
            None => self.leave_out(name, "no round gave a value"),
        }
    }
}

fn tenths(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}
