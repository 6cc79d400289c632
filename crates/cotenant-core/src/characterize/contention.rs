//! The contentiousness model (Tang §5.2.1): `C = a·(L2 lines in − L3 lines in)/ns + b·L3 lines in/ns + c`, fitted to what programs of known
//! behaviour cost each other. The coefficients belong to a machine.

use super::{Bench, Plan, Stop, characterize};
use crate::characterize::caches;
use crate::signal::Signal;
use crate::stats::Summary;
use crate::stats::regression::{Fit, fit};
use crate::topology::{Kind, Topology};
use serde::Serialize;
use std::collections::BTreeMap;

/// A program that runs beside the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its name.
    pub program: String,
    /// What it costs the others: the mean over them of 1 − speed beside it / speed alone.
    pub contentiousness: f64,
    /// What it suffers from them, on average.
    pub sensitivity: f64,
    /// Lines that come into its L2 (the last private cache), per nanosecond of its CPU time.
    pub l2_lines_per_ns: f64,
    /// Lines that come into the last-level cache.
    pub l3_lines_per_ns: f64,
    /// Last-level misses per request to the last-level cache.
    pub miss_rate: f64,
    /// Whether these were counted; else cachegrind's model says so, at the measured speed.
    pub counted: bool,
}

/// What was fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// `a`, `b`, `c` in ns per line, and 1.
    pub fit: Fit,
    /// The same with the last-level miss rate alone.
    pub miss_rate: Option<Fit>,
    /// The same with the rate of requests to the last-level cache alone.
    pub requests: Option<Fit>,
    /// What it was fitted to.
    pub points: Vec<Point>,
}

/// Fits the model; `None` with too few points, or where they are too much alike.
pub fn model(points: Vec<Point>) -> Option<Model> {
    let y: Vec<f64> = points.iter().map(|p| p.contentiousness).collect();
    let of = |x: &dyn Fn(&Point) -> Vec<f64>| fit(&points.iter().map(x).collect::<Vec<_>>(), &y);
    let whole = of(&|p| vec![p.l2_lines_per_ns - p.l3_lines_per_ns, p.l3_lines_per_ns])?;
    let miss_rate = of(&|p| vec![p.miss_rate]);
    let requests = of(&|p| vec![p.l2_lines_per_ns]);
    Some(Model { fit: whole, miss_rate, requests, points })
}

/// Lines that came in, per ns of CPU time: into the last private cache, into the last level; and whether they were counted.
fn rates(
    topology: &Topology,
    bench: &mut dyn Bench,
    per_cpu_s: &BTreeMap<Signal, f64>,
) -> Result<(f64, f64, bool), Stop> {
    if let Some((l2, l3)) = counted(topology, per_cpu_s) {
        return Ok((l2, l3, true));
    }
    let missing = |why: &str| Stop::Missing(format!("lines that come into caches cannot be counted here, and {why}"));
    // Simulated caches: the machine's own sizes, a level each.
    let [first, second, third] = [1, 2, 3].map(|level| caches::real(topology, level));
    let (Some(first), Some(second)) = (first, second) else {
        return Err(missing("this machine does not tell of two levels of caches that could be simulated"));
    };
    let mut lines = |last: caches::Geometry| -> Result<f64, Stop> {
        let simulated = bench.simulate(first, last)?;
        let units = simulated.units.filter(|units| *units > 0);
        let units = units.ok_or_else(|| missing("the program reports no progress on simulated caches"))?;
        Ok(simulated.misses as f64 / units as f64)
    };
    let l2 = lines(second)?;
    let l3 = third.map_or(Ok(l2), &mut lines)?;
    Ok((l2, l3, false))
}

/// The same where they were counted. Where no cache is beyond the second level, that is the last one, and the first is the private one.
fn counted(topology: &Topology, per_cpu_s: &BTreeMap<Signal, f64>) -> Option<(f64, f64)> {
    let of = |signal: Signal| per_cpu_s.get(&signal).map(|rate| rate * 1e-9);
    let third = topology.resources().iter().any(|r| matches!(r.kind, Kind::Cache(_)) && r.level > 2);
    let private = if third { of(Signal::L2LinesIn).or(of(Signal::PrivateMisses)) } else { of(Signal::PrivateMisses) };
    private.zip(of(Signal::L3LinesIn).or(of(Signal::LlcMisses)))
}

/// Makes the bench on which a kernel is the application.
pub type BenchOf<'a> = dyn FnMut(&str) -> Result<Box<dyn Bench + 'a>, Stop> + 'a;

/// Measures what programs cost each other, one after the other as the application of the same script that measures any: `bench_of` makes
/// the bench of each. Kernels must be known by the same names.
///
/// # Errors
/// [`Stop`]: [`Stop::Missing`] where this machine has no two cores to run beside each other, or nothing tells of lines.
pub fn points(plan: &Plan<'_>, bench_of: &mut BenchOf<'_>) -> Result<Vec<Point>, Stop> {
    let plan = Plan { parts: vec!["corun"], ..plan.clone() };
    // By who causes it.
    let mut losses: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut found = Vec::new();
    for kernel in &plan.kernels {
        let mut bench = bench_of(kernel)?;
        let measured = characterize(&plan, bench.as_mut())?;
        if let Some(left) = measured.left_out.iter().find(|left| left.name == "corun") {
            return Err(Stop::Missing(left.reason.clone()));
        }
        for (other, corun) in &measured.profile.corun {
            if let Some(name) = plan.kernels.iter().find(|name| *name == other) {
                losses.entry(name).or_default().push(corun.suffers.loss);
            }
        }
        let (l2, l3, counted) = rates(plan.topology, bench.as_mut(), &measured.profile.per_cpu_s)?;
        // Units of a simulated run are turned into time by the speed that was measured.
        let per_ns = if counted { 1.0 } else { measured.units_per_s.unwrap_or(f64::NAN) * 1e-9 };
        let suffers = measured.profile.corun_sensitivity.unwrap_or(f64::NAN);
        found.push((kernel, suffers, l2 * per_ns, l3 * per_ns, counted));
    }
    let point = |(kernel, sensitivity, l2, l3, counted): (&String, f64, f64, f64, bool)| Point {
        sensitivity,
        program: kernel.clone(),
        contentiousness: losses.get(kernel.as_str()).map_or(f64::NAN, |l| Summary::of(l).mean),
        l2_lines_per_ns: l2,
        l3_lines_per_ns: l3,
        miss_rate: if l2 > 0.0 { (l3 / l2).min(1.0) } else { 0.0 },
        counted,
    };
    Ok(found.into_iter().map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        let point = |i: u32| {
            let (l2, l3) = (f64::from(i * 7 % 11) * 0.01, f64::from(i * 5 % 7) * 0.003);
            Point {
                program: i.to_string(),
                sensitivity: 0.0,
                contentiousness: 1.663 * (l2 - l3) + 8.89 * l3 + 0.044,
                l2_lines_per_ns: l2,
                l3_lines_per_ns: l3,
                miss_rate: if l2 > 0.0 { l3 / l2 } else { 0.0 },
                counted: true,
            }
        };
        (1..=15).map(point).collect()
    }

    /// Clovertown has no third level: what comes into its second is what leaves memory, and what leaves the first is `private_misses`.
    #[test]
    fn lines_are_those_of_the_last_private_and_of_the_last_cache() {
        let of = |text: &str, signals: &[(Signal, f64)]| {
            let per_s = signals.iter().map(|(signal, per_ns)| (*signal, per_ns * 1e9)).collect();
            counted(&crate::topology::synthetic::parse(text).unwrap(), &per_s)
                .map(|(l2, l3)| ((l2 * 1e3).round(), (l3 * 1e3).round()))
        };
        let [private, second, last] =
            [(Signal::PrivateMisses, 0.03), (Signal::L2LinesIn, 0.02), (Signal::LlcMisses, 0.01)];
        let without = "package:1 l2:2(size=4MiB) core:2 pu:1";
        let with = "package:1 l3:1(size=8MiB) l2:4(size=256KiB) core:1 pu:1";
        assert_eq!(of(without, &[private, second, last]), Some((30.0, 10.0)));
        assert_eq!(of(with, &[private, second, last]), Some((20.0, 10.0)));
        assert_eq!(of(with, &[private, (Signal::L3LinesIn, 0.005), last]), Some((30.0, 5.0)));
        assert_eq!(of(without, &[second, last]), None);
    }

    #[test]
    fn the_papers_coefficients_are_found_again() {
        let found = model(points()).unwrap();
        let [a, b, c] = &found.fit.coefficients[..] else { panic!("{found:?}") };
        for (ours, paper) in [(a, 1.663), (b, 8.890), (c, 0.044)] {
            assert!((ours.value - paper).abs() < 1e-6, "{found:?}");
        }
        assert!(found.fit.r2 > 0.999_999 && found.fit.leave_one_out < 1e-9);
        assert!(found.miss_rate.unwrap().r2 < 0.9 && found.requests.unwrap().r2 < 0.9, "one rate alone says less");
        assert_eq!(model(points()[..3].to_vec()), None);
    }
}
