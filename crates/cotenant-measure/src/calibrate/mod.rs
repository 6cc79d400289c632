//! Measures once the thresholds, latencies and bandwidths of a machine that policies need.
//!
//! A script over a [`Bench`], which runs known programs on given CPUs of a live or made-up machine. Everything is
//! measured once per round, so that drift affects all values alike; results are medians with their spread.

mod bench;
mod compare;
mod distances;
mod found;
pub mod picture;
mod plan;

pub use bench::{Bench, Load, ThreadRate};
pub use compare::differences;
pub use found::Calibration;

use bench::alone;
use cotenant_model::profile::calibration::Curve;
use cotenant_model::stats::repeated::Repeated;
use cotenant_model::topology::hidden::{self, Latencies};
use cotenant_model::{CpuId, CpuSet, NodeId, Topology};
use found::Values;
use plan::Plan;

/// The measurable parts, by their names in `--only`.
pub const PARTS: [&str; 8] =
    ["clock", "core-to-core", "smt", "migration", "coherence", "bandwidth", "distances", "remote"];

/// Computation between two shared accesses, in steps of 4 cycles, from the rarest sharing to the most (SAM §2.1).
const COMPUTE: [u64; 8] = [8192, 4096, 2048, 1024, 512, 256, 128, 64];

/// The slowdown of sharers by being apart from which it matters (SAM §2.1).
const COHERENCE_LOSS: f64 = 0.05;

/// The margin of the bandwidth threshold below a socket's highest rate (SAM §2.2).
const BANDWIDTH_MARGIN: f64 = 0.2;

/// Misses of the last-level cache that `MemBench` makes per line copied: one read, one read for the write.
const MISSES_PER_LINE: f64 = 2.0;

/// A memory is saturated where the second half of the tasks adds less than this fraction.
const SATURATED: f64 = 0.1;

/// Measures a machine: all of `parts` (names of [`PARTS`]) `rounds` times on the available ones of `cpus`.
///
/// # Errors
/// Errors of the bench; earlier measurements are then lost.
pub fn calibrate(
    topology: &Topology,
    cpus: &CpuSet,
    parts: &[&str],
    rounds: usize,
    bench: &mut dyn Bench,
) -> Result<Calibration, String> {
    let plan = Plan::new(topology, &cpus.and(topology.usable()));
    let wanted: Vec<&str> = PARTS.into_iter().filter(|part| parts.contains(part)).collect();
    let mut values = Values::default();
    let mut interrupted = false;
    'rounds: for round in 0..rounds {
        for (i, part) in wanted.iter().enumerate() {
            let done = (round * wanted.len() + i) as f64 / (rounds * wanted.len()) as f64;
            if !bench.goes_on(done, part) || !measure(part, &plan, bench, &mut values, done)? {
                interrupted = true;
                break 'rounds;
            }
        }
    }
    let mut calibration = conclude(&plan, &wanted, &values);
    calibration.interrupted = interrupted;
    Ok(calibration)
}

/// Measures a part once; false to stop.
fn measure(part: &str, plan: &Plan<'_>, bench: &mut dyn Bench, values: &mut Values, done: f64) -> Result<bool, String> {
    let mut put = |name: String, value: f64| values.numbers.entry(name).or_default().push(value);
    match part {
        "clock" => {
            let (Some(cpu), Some(cycles)) = (plan.cpus.first(), bench.cycles_per_step()) else { return Ok(true) };
            put("clock".into(), alone(bench, Load::new("cpu", &[cpu]))?[0].per_cpu_s * cycles);
        }
        "core-to-core" => {
            for (i, a) in plan.pairs_of.iter().enumerate() {
                if !bench.goes_on(done, part) {
                    return Ok(false);
                }
                for b in &plan.pairs_of[..i] {
                    put(format!("latency {b} {a}"), bench.latency_ns(*b, *a)?);
                }
            }
        }
        "smt" => {
            let Some((a, b)) = plan.siblings else { return Ok(true) };
            for kernel in SMT_KERNELS {
                let single = alone(bench, Load::new(kernel, &[a]))?[0].per_cpu_s;
                let both = alone(bench, Load::new(kernel, &[a, b]))?;
                put(format!("smt {kernel}"), f64::midpoint(both[0].per_cpu_s, both[1].per_cpu_s) / single);
            }
        }
        "migration" => {
            if let Some((a, b)) = plan.two {
                put("migration".into(), bench.migration_us(a, b)?);
            }
        }
        "coherence" => {
            let (Some(together), Some(apart)) = (plan.together, plan.apart) else { return Ok(true) };
            for compute in COMPUTE {
                for (name, (a, b)) in [("together", together), ("apart", apart)] {
                    let ran = alone(bench, Load { compute: Some(compute), ..Load::new("hubench", &[a, b]) })?;
                    let mean = |of: &dyn Fn(&ThreadRate) -> f64| f64::midpoint(of(&ran[0]), of(&ran[1]));
                    put(format!("{name} {compute}"), mean(&|r| r.per_cpu_s));
                    put(format!("{name} transfers {compute}"), mean(&|r| r.transfers));
                }
            }
        }
        "bandwidth" => {
            for (node, cpus) in &plan.nodes {
                for n in Plan::steps(cpus.len()) {
                    let low = alone(bench, Load::new("membench-low", &cpus[..n]))?;
                    put(format!("low {node} {n}"), low.iter().map(|r| r.per_cpu_s).sum());
                    let high = alone(bench, Load::new("membench-high", &cpus[..n]))?;
                    // Per CPU time, because a CPU shared with other programs does not mean a saturated memory.
                    let of_cpu_time =
                        |r: &ThreadRate| if r.per_s > 0.0 { r.bytes_per_s * r.per_cpu_s / r.per_s } else { 0.0 };
                    put(format!("high {node} {n}"), high.iter().map(of_cpu_time).sum());
                }
                let Some((first, others)) = cpus.split_first() else { continue };
                for n in std::iter::once(0).chain(Plan::steps(others.len())) {
                    let mut loads = vec![Load::new("chase", &[*first])];
                    loads.extend((n > 0).then(|| Load::new("membench-high", &others[..n])));
                    let ran = bench.run(&loads)?;
                    put(format!("loaded ns {node} {n}"), 1e9 / ran[0][0].per_cpu_s);
                    let moved = ran.iter().skip(1).flatten().fold(0.0, |sum, r| sum + r.bytes_per_s);
                    put(format!("loaded bytes {node} {n}"), moved);
                }
            }
        }
        "distances" => return Ok(distances::measure(part, plan, bench, values, done)),
        _ => {
            let Some((near, far)) = remote_pair(plan) else { return Ok(true) };
            for (name, node) in [("local", near.0), ("remote", far)] {
                match alone(bench, Load { memory: Some(node), ..Load::new("chase", &[near.1]) }) {
                    Ok(ran) => put(format!("{name} ns"), 1e9 / ran[0].per_cpu_s),
                    Err(why) => values.no_remote = Some(why),
                }
            }
        }
    }
    Ok(true)
}

/// Programs that use a core differently: dependent computation, loads that hit the second level, dependent loads.
const SMT_KERNELS: [&str; 3] = ["cpu", "inject-l2", "bst-4mb"];

/// A node with one of its CPUs, and the node farthest from it.
fn remote_pair(plan: &Plan<'_>) -> Option<((NodeId, CpuId), NodeId)> {
    let (near, cpu) = plan.nodes.iter().find_map(|(node, cpus)| Some((*node, *cpus.first()?)))?;
    let nodes = plan.topology.nodes().iter().enumerate();
    let others = nodes.filter(|(_, node)| node.id != near && node.allowed && node.bytes != Some(0));
    let far = others.max_by(|(a, _), (b, _)| {
        let distance = |node| plan.topology.distance(cpu, node).unwrap_or(0.0);
        distance(*a).total_cmp(&distance(*b))
    });
    Some(((near, cpu), far?.1.id))
}

fn conclude(plan: &Plan<'_>, wanted: &[&str], values: &Values) -> Calibration {
    let mut c = Calibration::default();
    let get = |name: &str| values.get(name);
    for part in wanted {
        match *part {
            "clock" if get("clock").is_empty() => {
                c.leave_out("clock_hz", "how many cycles a step of the kernel cpu takes is known of x86 only; write clock_hz into the profile");
            }
            "clock" => {
                c.add("clock_hz", "Hz", get("clock"), "steps of the kernel cpu, 4 cycles each, per second of CPU time");
            }
            "core-to-core" => core_to_core(plan, values, &mut c),
            "smt" if plan.siblings.is_none() => {
                c.leave_out("smt_factor", "no core has a second hardware thread that may be used");
            }
            "smt" => {
                for kernel in SMT_KERNELS {
                    let method = "speed of a thread beside its sibling over its speed alone, both by CPU time";
                    c.add(format!("smt_factor.{kernel}"), "1", get(&format!("smt {kernel}")), method);
                }
            }
            "migration" if plan.two.is_none() => c.leave_out("migration_us", "there is one core"),
            "migration" => {
                let method = "a thread that binds itself to two CPUs in turn, lower quartile; without what its caches miss afterwards";
                c.add("migration_us", "us", get("migration"), method);
            }
            "coherence" => coherence(plan, values, &mut c),
            "bandwidth" => plan.nodes.iter().for_each(|(node, cpus)| bandwidth(*node, cpus.len(), values, &mut c)),
            "distances" => distances::conclude(plan, values, &mut c),
            _ => remote(plan, values, &mut c),
        }
    }
    c
}

fn core_to_core(plan: &Plan<'_>, values: &Values, c: &mut Calibration) {
    let cpus = &plan.pairs_of;
    if cpus.len() < 2 {
        return c.leave_out("core_to_core", "there is one CPU");
    }
    if plan.cpus.len() > cpus.len() {
        c.leave_out("core_to_core of all", format!("only the first {} CPUs were measured", cpus.len()));
    }
    let mut latencies = Latencies::new(cpus.clone());
    let (mut missing, pairs) = (0, cpus.len() * (cpus.len() - 1) / 2);
    for (i, a) in cpus.iter().enumerate() {
        let mut spread = vec![0.0; i];
        for (j, b) in cpus[..i].iter().enumerate() {
            match Repeated::of(values.get(&format!("latency {b} {a}"))) {
                Some(ns) => {
                    latencies.set(i, j, ns.value);
                    spread[j] = ns.to_either_side();
                }
                None => missing += 1,
            }
        }
        c.latency_spread_ns.push(spread);
    }
    if missing > 0 {
        let why = format!("of {missing} of {pairs} pairs, the CPUs did not run at once: other programs keep them busy");
        c.leave_out("core_to_core", why);
    }
    if missing == pairs {
        return;
    }
    let pairs = (0..cpus.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
    let all: Vec<&[f64]> = pairs.map(|(i, j)| values.get(&format!("latency {} {}", cpus[j], cpus[i]))).collect();
    let rounds = all.iter().map(|ns| ns.len()).max().unwrap_or(0);
    let of_round = |round: usize| {
        let of_pairs: Vec<f64> = all.iter().filter_map(|ns| ns.get(round).copied()).collect();
        Repeated::of(&of_pairs).map(|m| m.value)
    };
    let medians: Vec<f64> = (0..rounds).filter_map(of_round).collect();
    c.add("core_to_core_ns", "ns", &medians, "the median of all pairs of CPUs, one way");
    c.levels = hidden::find(&latencies);
    c.differences = differences(plan.topology, cpus, &c.levels);
    if c.levels.is_empty() {
        let why = match cpus.len() {
            2 => "2 CPUs are one pair: there is nothing to compare it to",
            _ => "latencies show no level of sharing: one last-level cache for all, or too much noise to tell",
        };
        c.leave_out("shared", why);
    }
    c.latencies = Some(latencies);
}

/// The rate at which two sharers lose [`COHERENCE_LOSS`] by being apart (SAM §2.1), by linear interpolation.
fn coherence(plan: &Plan<'_>, values: &Values, c: &mut Calibration) {
    let name = "coherence_per_cycle";
    if plan.together.is_none() || plan.apart.is_none() {
        return c.leave_out(name, "one last-level cache, as far as this machine reports: no threads can be apart");
    }
    let Some(clock) = c.figure("clock_hz").map(|figure| figure.measured.value) else {
        return c.leave_out(name, "needs clock_hz, which was not measured");
    };
    let at = |what: &str, compute: u64, round: usize| values.get(&format!("{what} {compute}")).get(round).copied();
    let rounds = values.get(&format!("apart {}", COMPUTE[0])).len();
    let mut thresholds = Vec::new();
    let mut curve: Vec<Vec<(f64, f64)>> = Vec::new();
    for round in 0..rounds {
        let points = COMPUTE.iter().filter_map(|&compute| {
            let (together, apart) = (at("together", compute, round)?, at("apart", compute, round)?);
            let rate = apart * at("apart transfers", compute, round)? / clock;
            Some((rate, together / apart - 1.0))
        });
        let points: Vec<(f64, f64)> = points.collect();
        thresholds.extend(crossing(&points, COHERENCE_LOSS));
        curve.push(points);
    }
    let medians = (0..COMPUTE.len()).map(|i| {
        let of = |pick: &dyn Fn(&(f64, f64)) -> f64| {
            Repeated::of(&curve.iter().filter_map(|points| points.get(i).map(pick)).collect::<Vec<_>>())
        };
        Some((of(&|p| p.0)?, of(&|p| p.1)?))
    });
    c.curves.push(Curve::of("coherence".into(), "transfers per cycle, apart", "loss by being apart", medians));
    let above = curve.iter().filter(|points| points.first().is_some_and(|p| p.1 >= COHERENCE_LOSS)).count();
    if thresholds.len() * 2 <= rounds && above * 2 > rounds {
        return c.leave_out(name, "being apart cost more than 5 % even at the lowest rate: is the machine busy?");
    }
    if thresholds.len() * 2 <= rounds {
        let why = "being apart cost less than 5 % at every rate in most rounds, or the threads seldom ran at once; is the machine busy?";
        return c.leave_out(name, why);
    }
    let method = "transfers per cycle at which two threads of hubench lose 5 % by being apart (SAM §2.1)";
    c.add(name, "1/cycle", &thresholds, method);
}

/// The first crossing of `y` by a rising curve, by linear interpolation; `None` if there is none, or the curve begins
/// above.
pub fn crossing(points: &[(f64, f64)], y: f64) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        (y0 < y && y1 >= y).then(|| x0 + (x1 - x0) * (y - y0) / (y1 - y0))
    })
}

fn bandwidth(node: NodeId, cores: usize, values: &Values, c: &mut Calibration) {
    let get = |name: String| values.get(&name);
    let median = |name: String| Repeated::of(get(name)).map(|m| m.value);
    if cores == 0 {
        return c.leave_out(format!("bandwidth.{node}"), "this node has no CPUs that may be used");
    }
    let steps = Plan::steps(cores);
    let most = |kind: &str| {
        let total = |n: &usize| median(format!("{kind} {node} {n}")).unwrap_or(0.0);
        steps.iter().max_by(|a, b| total(a).total_cmp(&total(b))).copied().unwrap_or(1)
    };
    let best = most("high");
    let scaled = |values: &[f64], by: f64| values.iter().map(|v| v * by).collect::<Vec<_>>();
    let gbs = scaled(get(format!("high {node} {best}")), 1e-9);
    let method = format!("membench-high, the most of 1 to {cores} tasks: {best}");
    c.add(format!("bandwidth_gbs.{node}"), "GB/s", &gbs, &method);
    let points = steps.iter().filter_map(|n| Some((*n as f64, MISSES_PER_LINE * median(format!("low {node} {n}"))?)));
    let curve: Vec<(f64, f64)> = points.collect();
    let name = format!("socket_bandwidth_per_s.{node}");
    let with = |tasks: usize| curve.iter().find(|p| p.0 as usize == tasks).map(|p| p.1);
    let (all, half) = (with(cores).unwrap_or(0.0), with(cores / 2));
    match half {
        Some(half) if all < half * (1.0 + SATURATED) => {
            let best = most("low");
            let factor = MISSES_PER_LINE * (1.0 - BANDWIDTH_MARGIN);
            let method = format!("LLC misses of {best} tasks of membench-low, minus 20 % (SAM §2.2)");
            c.add(name, "misses/s", &scaled(get(format!("low {node} {best}")), factor), &method);
        }
        half => {
            let added = half.map_or_else(
                || "there is one".to_owned(),
                |half| format!("the second half of them added {:.0} %", 100.0 * (all / half - 1.0)),
            );
            c.leave_out(name, format!("tasks on the {cores} cores of node {node} do not saturate its memory: {added}"));
        }
    }
    for (kernel, factor, unit) in
        [("low", MISSES_PER_LINE, "LLC misses per second"), ("high", 1e-9, "GB/s, high row-buffer locality")]
    {
        let points = steps.iter().map(|n| {
            Some((Repeated::set(*n as f64), Repeated::of(get(format!("{kernel} {node} {n}")))?.times(factor)))
        });
        let name = if kernel == "low" { "bandwidth" } else { "bandwidth_high" };
        c.curves.push(Curve::of(format!("{name}.{node}"), &format!("tasks of membench-{kernel}"), unit, points));
    }
    let loads = std::iter::once(0).chain(Plan::steps(cores - 1));
    let points = loads.map(|n| {
        let gbs = Repeated::of(get(format!("loaded bytes {node} {n}")))?.times(1e-9);
        Some((gbs, Repeated::of(get(format!("loaded ns {node} {n}")))?))
    });
    c.curves.push(Curve::of(format!("loaded_latency.{node}"), "GB/s moved by others", "ns per load", points));
    let idle = get(format!("loaded ns {node} 0"));
    c.add(format!("memory_ns.{node}"), "ns", idle, "CPU time per load of chase, nothing else running");
}

/// The rate of remote loads whose longer latency costs [`COHERENCE_LOSS`].
fn remote(plan: &Plan<'_>, values: &Values, c: &mut Calibration) {
    let name = "remote_per_cycle";
    if remote_pair(plan).is_none() {
        return c.leave_out(name, "one memory node: nothing is remote");
    }
    let Some(clock) = c.figure("clock_hz").map(|figure| figure.measured.value) else {
        return c.leave_out(name, "needs clock_hz, which was not measured");
    };
    if let Some(why) = &values.no_remote {
        return c.leave_out(name, why.clone());
    }
    let (local, remote) = (values.get("local ns"), values.get("remote ns"));
    c.add("remote_ns", "ns", remote, "CPU time per load of chase, memory on the farthest node");
    let extra: Vec<f64> = local.iter().zip(remote).map(|(near, far)| (far - near) * 1e-9 * clock).collect();
    if extra.iter().filter(|cycles| **cycles > 0.0).count() * 2 <= extra.len() {
        return c.leave_out(name, "remote memory was not slower than local memory in most rounds");
    }
    let rates: Vec<f64> = extra.iter().filter(|cycles| **cycles > 0.0).map(|cycles| COHERENCE_LOSS / cycles).collect();
    c.add(name, "1/cycle", &rates, "loads per cycle whose extra latency, remote over local, takes 5 % of the time");
}

#[cfg(test)]
mod tests;
