//! The contentiousness model (Tang §5.2.2): `C = a·(L2 lines in − L3 lines in)/ns + b·L3 lines in/ns + c`, fitted to
//! the costs that known programs cause each other. Coefficients belong to a machine.

use super::{Bench, Beside, Characterization, Plan, Stop, caches, characterize, neighbours, step};
use cotenant_model::profile::Contentiousness;
use cotenant_model::profile::contentiousness::Point;
use cotenant_model::signal::Signal;
use cotenant_model::stats::Summary;
use cotenant_model::topology::{Kind, Topology};
use std::collections::BTreeMap;

/// Signals for lines into the last private cache and into the last level, the better one first. Without a third level,
/// the second level is the last and the first the private one.
pub fn line_signals(topology: &Topology) -> [&'static [Signal]; 2] {
    let third = topology.resources().iter().any(|r| matches!(r.kind, Kind::Cache(_)) && r.level > 2);
    let private: &[Signal] = if third { &[Signal::L2LinesIn, Signal::PrivateMisses] } else { &[Signal::PrivateMisses] };
    [private, &[Signal::L3LinesIn, Signal::LlcMisses]]
}

/// Measured lines per nanosecond of CPU time: into the last private cache, and into the last level.
fn counted(topology: &Topology, per_cpu_s: &BTreeMap<Signal, f64>) -> Option<(f64, f64)> {
    let rate = |signals: &[Signal]| signals.iter().find_map(|signal| Some(per_cpu_s.get(signal)? * 1e-9));
    let [private, last] = line_signals(topology);
    rate(private).zip(rate(last))
}

/// The same lines from simulated caches of this machine's sizes, with the program's units of work.
fn simulated(topology: &Topology, bench: &mut dyn Bench) -> Result<(f64, f64, Option<u64>), Stop> {
    let Some((upper, last)) = caches::last_two(topology) else {
        let why = "lines that come into caches cannot be counted here, and this machine does not report two levels of \
                   caches that could be simulated";
        return Err(Stop::Missing(why.to_owned()));
    };
    let lines = bench.simulate(&[[upper, last]])?.remove(0);
    Ok((lines.first_misses as f64, lines.misses as f64, lines.units))
}

/// Makes the bench with a kernel as the application.
pub type BenchOf<'a> = dyn FnMut(&str) -> Result<Box<dyn Bench + 'a>, Stop> + 'a;

/// Measures what programs cost each other, each in turn as the application of the usual script: `bench_of` makes the
/// bench of each. Kernels must have the same names. If lines cannot be counted, they come from cachegrind's model per
/// unit of work, converted to time by the kernel's speed alone.
///
/// # Errors
/// [`Stop`]: [`Stop::Missing`] if this machine has no two neighbouring cores, or nothing gives lines.
pub fn points(plan: &Plan<'_>, bench_of: &mut BenchOf<'_>) -> Result<Vec<Point>, Stop> {
    let plan = Plan { parts: vec!["corun"], ..plan.clone() };
    let Some((_, core)) = neighbours(plan.topology, &plan.cpus) else {
        return Err(Stop::Missing("no two cores that may be used share a last-level cache".to_owned()));
    };
    // By aggressor.
    let mut losses: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut found = Vec::new();
    for kernel in &plan.kernels {
        let mut bench = bench_of(kernel)?;
        let measured = characterize(&plan, bench.as_mut())?;
        for (other, corun) in &measured.profile.corun {
            if let Some(name) = plan.kernels.iter().find(|name| *name == other) {
                losses.entry(name).or_default().push(corun.suffers.loss);
            }
        }
        let counted = counted(plan.topology, &measured.profile.per_cpu_s);
        let (l2, l3) = if let Some(rates) = counted {
            rates
        } else {
            step(bench.as_mut(), 1.0, "simulated caches")?;
            let (l2, l3, units) = simulated(plan.topology, bench.as_mut())?;
            let per_s = bench.alone(&Beside { kernel: kernel.clone(), cpus: vec![core], rate: None })?;
            let none = || Stop::Missing(format!("{kernel} reports no progress on simulated caches"));
            let units = units.filter(|units| *units > 0).ok_or_else(none)? as f64;
            (l2 / units * per_s * 1e-9, l3 / units * per_s * 1e-9)
        };
        let suffers = measured.profile.corun_sensitivity.unwrap_or(f64::NAN);
        found.push((kernel, suffers, l2, l3, counted.is_some()));
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

/// The cost that an application causes by a machine's model, from the lines that it brings in. If these cannot be
/// counted, they come from another run on simulated caches and the CPU time alone.
///
/// # Errors
/// [`Stop`]: [`Stop::Missing`] if nothing gives lines.
pub fn predicted(
    model: &Contentiousness,
    found: &Characterization,
    topology: &Topology,
    bench: &mut dyn Bench,
) -> Result<f64, Stop> {
    if let Some((l2, l3)) = counted(topology, &found.profile.per_cpu_s) {
        return Ok(model.at(l2, l3));
    }
    step(bench, 1.0, "simulated caches")?;
    let (l2, l3, _) = simulated(topology, bench)?;
    let ns = found.alone_cpu_s.unwrap_or(found.alone_s) * 1e9;
    Ok(model.at(l2 / ns, l3 / ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clovertown has no third level: what comes into its second is what leaves memory, and what leaves the first is
    /// `private_misses`.
    /// Holds sim/conserves.
    #[test]
    fn lines_are_those_of_the_last_private_and_of_the_last_cache() {
        let of = |text: &str, signals: &[(Signal, f64)]| {
            let per_s = signals.iter().map(|(signal, per_ns)| (*signal, per_ns * 1e9)).collect();
            counted(&cotenant_model::topology::synthetic::parse(text).unwrap(), &per_s)
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
}
