//! Latency under load: fits of the measured curves, and the check of the memory side on programs that ran on several
//! memories.

use anyhow::{Context, Result};
use cotenant_model::stats::median::middle;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// `L(u) = idle + queue · u / (1 − u)`, `u` = bandwidth ÷ `limit`: the wait in a single queue with one server
/// (M/M/1), which grows without bound at the limit.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Latency without load, ns.
    pub idle_ns: f64,
    /// Extra latency at half load, ns.
    pub queue_ns: f64,
    /// Bandwidth that is never reached, GB/s.
    pub limit_gbs: f64,
    /// Greatest bandwidth measured, GB/s.
    pub sustained_gbs: f64,
    /// Median relative error of the fit.
    pub median: f64,
    /// Greatest relative error of the fit.
    pub worst: f64,
}

impl Load {
    /// Latency in ns at `gbs`; beyond 99.5 % of the limit it stays.
    pub fn latency(&self, gbs: f64) -> f64 {
        let u = (gbs / self.limit_gbs).clamp(0.0, 0.995);
        self.idle_ns + self.queue_ns * u / (1.0 - u)
    }
}

/// Least squares of relative errors; the limit by search, from the greatest measured bandwidth to 1.25 times that.
pub fn fit(points: &[(f64, f64)]) -> Option<Load> {
    let sustained = points.iter().map(|p| p.0).fold(0.0, f64::max);
    let tries = (1..=125).map(|step| sustained * (1.0 + 0.002 * f64::from(step)));
    tries.filter_map(|limit| line(points, sustained, limit)).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, load)| load)
}

fn line(points: &[(f64, f64)], sustained: f64, limit: f64) -> Option<(f64, Load)> {
    let wait = |gbs: f64| (gbs / limit) / (1.0 - gbs / limit);
    let (mut s, mut sx, mut sy, mut sxx, mut sxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(gbs, ns) in points {
        let (w, x) = (1.0 / (ns * ns), wait(gbs));
        s += w;
        sx += w * x;
        sy += w * ns;
        sxx += w * x * x;
        sxy += w * x * ns;
    }
    let determinant = s * sxx - sx * sx;
    if determinant <= 0.0 {
        return None;
    }
    let queue_ns = (s * sxy - sx * sy) / determinant;
    let idle_ns = (sy - queue_ns * sx) / s;
    let mut errors: Vec<f64> =
        points.iter().map(|&(gbs, ns)| ((idle_ns + queue_ns * wait(gbs)) / ns - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let squares = errors.iter().map(|e| e * e).sum();
    let load = Load {
        idle_ns,
        queue_ns,
        limit_gbs: limit,
        sustained_gbs: sustained,
        median: errors[errors.len() / 2],
        worst: errors[errors.len() - 1],
    };
    (queue_ns > 0.0).then_some((squares, load))
}

/// Measured curves by name: GB/s and ns.
pub type Curves = BTreeMap<String, Vec<(f64, f64)>>;

/// The fits of all curves that can be fitted.
pub fn loads(curves: &Curves) -> BTreeMap<String, Load> {
    curves.iter().filter_map(|(name, points)| fit(points).map(|load| (name.clone(), load))).collect()
}

/// The machine that a curve was measured on.
fn machine(curve: &str) -> &str {
    match curve {
        _ if curve.starts_with("ddr3") => "Sandy Bridge, DDR3 at four speeds",
        _ if curve.starts_with("ddr4") || curve.starts_with("mcdram") => "Knights Landing, DDR4 and MCDRAM",
        _ if curve.starts_with("clx") => "Cascade Lake 5218, both nodes",
        _ if curve.starts_with("mlc 2s_B") => "mlc 2s_B",
        other => other,
    }
}

/// Prediction of a curve from those of all other machines: relative errors, most below first.
pub struct Foretold {
    /// The machine.
    pub machine: String,
    /// Its points below nine tenths of the greatest bandwidth that was measured on the curve.
    pub points: usize,
    /// Absolute relative errors of the latency, sorted: with what a queue takes at half load and what a memory reaches
    /// of its limit by the others' medians.
    pub errors: Vec<f64>,
    /// The same without queueing.
    pub idle: Vec<f64>,
}

/// Predicts each machine's curves from its idle latency and its greatest bandwidth alone, which a machine file gives;
/// the queue is that of the other machines, each counted once.
pub fn foretell(curves: &Curves) -> Vec<Foretold> {
    let loads = loads(curves);
    let machines: BTreeSet<&str> = loads.keys().map(|name| machine(name)).collect();
    let of = |which: &str, figure: &dyn Fn(&Load) -> f64| {
        let own = loads.iter().filter(|(name, _)| machine(name) == which);
        middle(&own.map(|(_, load)| figure(load)).collect::<Vec<_>>()).value
    };
    let one = |which: &str| {
        let others = |figure: &dyn Fn(&Load) -> f64| {
            let others = machines.iter().filter(|other| **other != which);
            middle(&others.map(|other| of(other, figure)).collect::<Vec<_>>()).value
        };
        let queue = others(&|load| load.queue_ns / load.idle_ns);
        let reach = others(&|load| load.sustained_gbs / load.limit_gbs);
        let (mut errors, mut idle) = (Vec::new(), Vec::new());
        for (name, load) in loads.iter().filter(|(name, _)| machine(name) == which) {
            let limit_gbs = load.sustained_gbs / reach;
            let guess = Load { queue_ns: queue * load.idle_ns, limit_gbs, ..*load };
            for (gbs, ns) in curves[name].iter().filter(|p| p.0 < 0.9 * load.sustained_gbs) {
                errors.push((guess.latency(*gbs) / ns - 1.0).abs());
                idle.push((load.idle_ns / ns - 1.0).abs());
            }
        }
        errors.sort_by(f64::total_cmp);
        idle.sort_by(f64::total_cmp);
        Foretold { machine: which.to_owned(), points: errors.len(), errors, idle }
    };
    machines.iter().map(|which| one(which)).collect()
}

/// All measured curves below `memory/`, by name.
pub fn curves(memory: &Path) -> Result<Curves> {
    let mut curves = Curves::new();
    for name in ["ddr3-800", "ddr3-1066", "ddr3-1333", "ddr3-1600", "ddr4", "mcdram"] {
        for reads in [100, 76, 50] {
            let path = memory.join(format!("profet/bwlats/{name}/bwlat_{reads}.txt"));
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            curves.insert(format!("{name} {reads}% reads"), spaced(&text));
        }
    }
    for name in ["clx5218_local", "clx5218_upi_remote"] {
        let path = memory.join(format!("profet/curves/{name}.json"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let by_mix: BTreeMap<String, Vec<(f64, f64)>> =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        for reads in ["100", "76", "50"] {
            let points = by_mix.get(reads).with_context(|| format!("{}: no curve '{reads}'", path.display()))?;
            curves.insert(format!("{name} {reads}% reads"), points.iter().map(|p| (p.0 / 1000.0, p.1)).collect());
        }
    }
    let path = memory.join("mlc/mlc-loaded-latency.csv");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [machine, _, ns, mbs] = cells[..] else { anyhow::bail!("{}: '{line}' has not four cells", path.display()) };
        curves.entry(format!("mlc {machine}")).or_default().push((mbs.trim().parse::<f64>()? / 1000.0, ns.parse()?));
    }
    for points in curves.values_mut() {
        points.retain(|p| p.0 > 0.0);
    }
    Ok(curves)
}

/// `MB/s ns` per line. The first pair (1500 ns) closes the curve for lookups and was not measured.
fn spaced(text: &str) -> Vec<(f64, f64)> {
    let lines = text.lines().filter_map(|line| {
        let line = line.split('#').next()?;
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        Some((numbers.next()?.ok()? / 1000.0, numbers.next()?.ok()?))
    });
    lines.filter(|p| p.1 < 1500.0).collect()
}

/// One run of PROFET's counters.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Cycles per instruction.
    pub cpi: f64,
    /// Copies that ran at once.
    pub copies: f64,
    /// Read and written GB/s of all copies.
    pub read_gbs: f64,
    /// See `read_gbs`.
    pub written_gbs: f64,
    /// Instructions of all copies, ÷ seconds of the run.
    pub rate: f64,
}

/// `app_counters_summary.csv`: memory → program → run.
pub fn runs(memory: &Path) -> Result<BTreeMap<String, BTreeMap<String, Run>>> {
    let path = memory.join("profet/app_counters_summary.csv");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut all: BTreeMap<String, BTreeMap<String, Run>> = BTreeMap::new();
    for (index, line) in text.lines().enumerate().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| -> Result<f64> {
            let cell = cells.get(at).with_context(|| format!("{}:{}: too few cells", path.display(), index + 1))?;
            cell.parse().with_context(|| format!("{}:{}: '{cell}' is not a number", path.display(), index + 1))
        };
        let run = Run {
            cpi: number(9)?,
            copies: number(2)?,
            read_gbs: number(7)? / 1000.0,
            written_gbs: number(8)? / 1000.0,
            rate: number(5)? / number(3)?,
        };
        all.entry(cells[0].to_owned()).or_default().insert(cells[1].to_owned(), run);
    }
    Ok(all)
}

/// What each of 16 copies has of the last-level cache. Assumption: two sockets of 8 cores and 20 MiB, as in the line of
/// products.
pub const CROWDED_BYTES: f64 = 20.0 * 1_048_576.0 / 8.0;

/// Lines per 1,000 instructions that memory delivered to each of 16 copies, DDR3-1600: program of the solo table →
/// lines.
pub fn crowded(runs: &BTreeMap<String, BTreeMap<String, Run>>) -> Result<BTreeMap<String, f64>> {
    let runs = runs.get("DDR3-1600").context("app_counters_summary.csv: no DDR3-1600")?;
    let crowded = runs.iter().filter(|(_, run)| run.copies == 16.0);
    Ok(crowded.map(|(name, run)| (format!("{name}06"), run.read_gbs * 1e9 / 64.0 / run.rate * 1000.0)).collect())
}

/// Lines that a core can have in flight to memory. Assumption: the order of the queue behind an L2 (no document states
/// it). Chosen after seeing the runs below, so that it is no blind prediction; the page shows other values.
pub const LINES_IN_FLIGHT: f64 = 16.0;

/// Predicts the CPI on memory `to` from the run on memory `from`:
/// `CPI' = CPI + lines/instruction · (L'(b') − L(b)) · clock / min(mlp, lines in flight)`, the traffic `b'` falling
/// as the program slows; no memory delivers more than it sustains, and no core has more than `lines_in_flight`.
pub fn predict(run: &Run, from: &Load, to: &Load, mlp: f64, clock_ghz: f64, lines_in_flight: f64) -> f64 {
    let traffic = run.read_gbs + run.written_gbs;
    // Lines read per instruction, from the bytes that the memory delivered: prefetched ones count, as in `mlp`.
    let lines = run.read_gbs / 64.0 * 1e9 / run.rate;
    let before = from.latency(traffic);
    let (mut low, mut high) = (run.cpi * 0.2, run.cpi * 20.0);
    // The traffic falls as CPI rises, so the excess of CPI over its prediction rises with it: bisection.
    for _ in 0..80 {
        let cpi = f64::midpoint(low, high);
        let now = traffic * run.cpi / cpi;
        let by_latency = run.cpi + lines * (to.latency(now) - before) * clock_ghz / mlp.min(lines_in_flight);
        let wanted = by_latency.max(lines * to.latency(now) * clock_ghz / lines_in_flight);
        if cpi < wanted || now > to.sustained_gbs {
            low = cpi;
        } else {
            high = cpi;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_found_again() {
        let points: Vec<(f64, f64)> =
            (1..20).map(|i| f64::from(i) * 5.0).map(|b| (b, 80.0 + 10.0 * (b / 100.0) / (1.0 - b / 100.0))).collect();
        let load = fit(&points).unwrap();
        assert!(
            (load.idle_ns - 80.0).abs() < 1.0 && (load.limit_gbs - 100.0).abs() < 0.5 && load.worst < 0.02,
            "{load:?}"
        );
    }

    /// Holds sim/workloads.
    #[test]
    fn machines_of_one_shape_foretell_each_other_and_one_of_another_does_not() {
        let curve = |idle: f64, queue: f64, limit: f64| -> Vec<(f64, f64)> {
            let at = |i: u32| limit * 0.95 * f64::from(i) / 20.0;
            (1..=20).map(at).map(|b| (b, idle * (1.0 + queue * (b / limit) / (1.0 - b / limit)))).collect()
        };
        let of = [("mlc a", 80.0, 0.1), ("mlc b", 100.0, 0.1), ("mlc c", 90.0, 0.1), ("mlc d", 100.0, 0.4)];
        let curves: Curves =
            of.iter().map(|(name, idle, queue)| ((*name).to_owned(), curve(*idle, *queue, 100.0))).collect();
        let worst: Vec<f64> = foretell(&curves).iter().map(|f| f.errors[f.errors.len() - 1]).collect();
        assert!(worst[..3].iter().all(|worst| *worst < 0.02) && worst[3] > 0.3, "{worst:?}");
    }

    #[test]
    fn the_same_memory_changes_nothing_and_a_slower_one_caps() {
        let fast =
            Load { idle_ns: 80.0, queue_ns: 8.0, limit_gbs: 100.0, sustained_gbs: 95.0, median: 0.0, worst: 0.0 };
        let slow = Load { limit_gbs: 50.0, sustained_gbs: 45.0, ..fast };
        let run = Run { cpi: 1.0, copies: 1.0, read_gbs: 90.0, written_gbs: 0.0, rate: 2.0e9 };
        assert!((predict(&run, &fast, &fast, 10.0, 2.0, 1e9) - 1.0).abs() < 1e-6);
        assert!(predict(&run, &fast, &slow, 1e9, 2.0, 1e9) > 1.99, "half the bandwidth, twice the time");
    }
}
