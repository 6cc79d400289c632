//! Parameters of the 55 programs from their solo curves: each ran alone with 1 to 11 ways of a last-level cache.
//!
//! The measured machine: 11 ways; 2.0 GHz by the table itself (`llcm_bandwidth` = `llcmpkc`/1000 · clock · 64 B,
//! median 1.992); ways of 2.5 MiB by the occupancies (27.4 MB of 27.5 with all eleven), which is Intel's Skylake
//! server cache.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// Cycles per second of the measured machine, in GHz.
pub const CLOCK_GHZ: f64 = 2.0;
/// Bytes of one way.
pub const WAY_BYTES: f64 = 2.5 * 1_048_576.0;
/// Bytes of the measured core's L2, whose lines the last-level cache does not repeat: Skylake's server cores (Intel 64
/// and IA-32 Architectures Optimization Reference Manual, "Skylake Server Microarchitecture": 1 MiB, the LLC is
/// non-inclusive).
pub const PRIVATE_BYTES: f64 = 1_048_576.0;
/// Load-to-use latency of idle memory, ns: `memory/mlc/numa-matrices.json`, `2s_48c_DDR4_A`, the local cells (82.1,
/// 81.5), two sockets of the same kind of cache hierarchy. The machine of the curves gives no figure of its own.
pub const MEMORY_NS: f64 = 82.0;
/// Load-to-use latency of the last-level cache, ns. Assumption: 50 cycles at 2 GHz; only the split between `cpi` and
/// `llc_mlp` depends on it.
pub const LLC_NS: f64 = 25.0;

/// Cycles of an instruction at the least: the measured core renames four per cycle (Intel's manual, as above).
pub const LEAST_CPI: f64 = 0.25;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Ways that the program could fill.
    pub ways: u32,
    /// Instructions per cycle.
    pub ipc: f64,
    /// LLC references per 1,000 instructions.
    pub apki: f64,
    /// LLC misses per 1,000 instructions.
    pub mpki: f64,
    /// Occupancy, bytes.
    pub held: f64,
    /// Fraction of cycles stalled on an L2 miss, L3 misses included.
    pub stall_l2: f64,
    /// Fraction of cycles stalled on an L3 miss.
    pub stall_l3: f64,
}

/// The simulator's data of one program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Cycles per instruction with an ideal last private cache.
    pub cpi: f64,
    /// LLC accesses per 1,000 instructions.
    pub llc_apki: f64,
    /// LLC latency over the cycles that a hit really costs, ≥ 1.
    pub llc_mlp: f64,
    /// Memory latency over the cycles that a miss really costs, ≥ 1: misses in flight together, and latency that
    /// prefetching hides.
    pub mlp: f64,
    /// Whether the slope of CPI over misses (else the stall cycles) gave `mlp`.
    pub mlp_from_slope: bool,
    /// What the costs of hits and misses were multiplied by, so that `cpi` is not below [`LEAST_CPI`]: ≤ 1.
    pub scaled: f64,
    /// (bytes held, miss ratio): bytes rise, the ratio does not.
    pub curve: Vec<(f64, f64)>,
    /// Bytes beyond which more cache does not help.
    pub footprint: f64,
    /// Relative error of the predicted IPC at each number of ways.
    pub errors: Vec<f64>,
    /// Of the LLC accesses, those per 1,000 instructions that the table does not have: see [`Program::streams`].
    pub streamed: f64,
}

impl Program {
    /// Lines that `bytes` of cache leave it to fetch, per 1,000 instructions.
    pub fn lines(&self, bytes: f64) -> f64 {
        self.llc_apki * ratio(&self.curve, bytes)
    }

    /// Adds lines per 1,000 instructions that are fetched with any cache contents. The total cost of misses stays,
    /// spread over more lines, because these arrive ahead of their use.
    pub fn streams(&mut self, lines: f64) {
        let misses = self.curve.iter().map(|(bytes, _)| self.lines(*bytes)).sum::<f64>() / self.curve.len() as f64;
        self.mlp *= 1.0 + lines / misses;
        let all = self.llc_apki + lines;
        for (_, ratio) in &mut self.curve {
            *ratio = (*ratio * self.llc_apki + lines) / all;
        }
        self.llc_apki = all;
        self.streamed += lines;
        self.footprint = footprint(&self.curve);
    }
}

/// Reads the table: program → rows by rising ways.
pub fn read(text: &str) -> Result<BTreeMap<String, Vec<Row>>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().context("metrics.csv is empty")?.split(',').collect();
    let column =
        |name: &str| header.iter().position(|h| *h == name).with_context(|| format!("metrics.csv: no column '{name}'"));
    let (bench, ways, ipc) = (column("BENCH")?, column("NR_WAYS")?, column("ipc")?);
    let (apki, mpki, held) = (column("llcrpki")?, column("llcmpki")?, column("llc_usage_kb")?);
    let (stall_l2, stall_l3) = (column("stalls_l2_miss")?, column("stalls_l3_miss")?);
    let mut programs: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for (index, line) in lines.enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| -> Result<f64> {
            let cell = cells.get(at).with_context(|| format!("metrics.csv:{}: too few cells", index + 2))?;
            cell.parse().with_context(|| format!("metrics.csv:{}: '{cell}' is not a number", index + 2))
        };
        let row = Row {
            ways: number(ways)? as u32,
            ipc: number(ipc)?,
            apki: number(apki)?,
            mpki: number(mpki)?,
            held: number(held)? * 1024.0,
            stall_l2: number(stall_l2)?,
            stall_l3: number(stall_l3)?,
        };
        programs.entry(cells[bench].to_owned()).or_default().push(row);
    }
    for (name, rows) in &mut programs {
        rows.sort_by_key(|r| r.ways);
        if rows.len() != 11 {
            bail!("metrics.csv: {name} has {} rows, expected one for each of 11 ways", rows.len());
        }
    }
    Ok(programs)
}

/// Derives one program.
///
/// 1. *Curve*: misses ÷ (mean LLC references), against the bytes that the program really held (a small program does
///    not fill its ways, and with one way it cannot: conflicts), made monotone by pooling adjacent violators.
/// 2. *A hit's cost*: cycles stalled on L2 but not on L3 misses, per hit, with all eleven ways.
/// 3. *A miss's cost*: the larger of (a) a hit's cost plus the slope of CPI over misses per instruction and (b) the
///    cycles stalled on L3 misses, per miss. (a) covers what the stall counter does not (stores, late prefetches), but
///    is imprecise for programs whose misses hardly vary; (b) is a direct count. Never above the whole latency of
///    memory.
/// 4. `cpi` is what remains, on average over the eleven points. Where that is less than a core can do, the cycles of
///    hits and misses were counted while others passed, too: both costs shrink by one factor until `cpi` is the least.
pub fn derive(rows: &[Row]) -> Program {
    let mean = |f: &dyn Fn(&Row) -> f64| rows.iter().map(f).sum::<f64>() / rows.len() as f64;
    let llc_apki = mean(&|r| r.apki);
    let curve = curve(rows, llc_apki);
    let memory = MEMORY_NS * CLOCK_GHZ;

    let all = &rows[rows.len() - 1];
    let hits = (all.apki - all.mpki) / 1000.0;
    let hit = if hits > 1e-5 { (all.stall_l2 - all.stall_l3) / all.ipc / hits } else { 0.0 };
    let llc_mlp = LLC_NS * CLOCK_GHZ / hit.clamp(0.05, LLC_NS * CLOCK_GHZ);
    let hit = LLC_NS * CLOCK_GHZ / llc_mlp;

    let (misses, cpis) = (mean(&|r| r.mpki / 1000.0), mean(&|r| 1.0 / r.ipc));
    let spread: f64 = rows.iter().map(|r| (r.mpki / 1000.0 - misses).powi(2)).sum();
    let slope = rows.iter().map(|r| (r.mpki / 1000.0 - misses) * (1.0 / r.ipc - cpis)).sum::<f64>() / spread.max(1e-18);
    let stalled = mean(&|r| r.stall_l3 / r.ipc) / misses.max(1e-9);
    let miss = (hit + slope).max(stalled).clamp(0.05, memory);

    let ratios: Vec<f64> = sizes(rows).into_iter().map(|bytes| ratio(&curve, bytes)).collect();
    let waits = |m: f64| llc_apki / 1000.0 * ((1.0 - m) * hit + m * miss);
    let waiting = ratios.iter().map(|m| waits(*m)).sum::<f64>() / rows.len() as f64;
    let scaled = if cpis - waiting < LEAST_CPI { (cpis - LEAST_CPI) / waiting } else { 1.0 };
    let cpi = cpis - scaled * waiting;
    let cpi_of = |m: f64| scaled * waits(m);
    let errors = rows.iter().zip(&ratios).map(|(r, m)| 1.0 / (cpi + cpi_of(*m)) / r.ipc - 1.0).collect();
    let footprint = footprint(&curve);
    Program {
        cpi,
        llc_apki,
        llc_mlp: llc_mlp / scaled,
        mlp: memory / (scaled * miss),
        mlp_from_slope: hit + slope >= stalled,
        scaled,
        curve,
        footprint,
        errors,
        streamed: 0.0,
    }
}

/// The bytes that the program held in each partition: measured, but not more than the partition, and never less than
/// in a smaller one.
fn sizes(rows: &[Row]) -> Vec<f64> {
    let held = rows.iter().map(|r| r.held.min(f64::from(r.ways) * WAY_BYTES));
    held.scan(0.0f64, |most, bytes| {
        *most = most.max(bytes);
        Some(*most)
    })
    .collect()
}

/// The monotone curve. Points whose bytes rise by less than 1 % belong to one size: their mean.
fn curve(rows: &[Row], apki: f64) -> Vec<(f64, f64)> {
    // (bytes, ratio, weight) of pools.
    let pools = sizes(rows).into_iter().zip(rows).map(|(bytes, row)| (bytes, (row.mpki / apki).clamp(0.0, 1.0), 1.0));
    let mut merged: Vec<(f64, f64, f64)> = Vec::new();
    for pool in pools {
        merged.push(pool);
        while let [.., a, b] = merged[..] {
            if b.0 > a.0 * 1.01 && b.1 <= a.1 {
                break;
            }
            let weight = a.2 + b.2;
            let mix = |x: f64, y: f64| (x * a.2 + y * b.2) / weight;
            merged.truncate(merged.len() - 2);
            merged.push((mix(a.0, b.0), mix(a.1, b.1), weight));
        }
    }
    merged.into_iter().map(|(bytes, ratio, _)| (bytes, ratio)).collect()
}

/// The miss ratio for `bytes` held: linear between points, constant above the last, and below the first an exponential
/// from (0, 1), where each further byte saves the same fraction of the remaining misses (the table has nothing below
/// one way).
pub fn ratio(curve: &[(f64, f64)], bytes: f64) -> f64 {
    let Some(&(first, at_first)) = curve.first() else { return 1.0 };
    if bytes <= first {
        return at_first.max(1e-6).powf(bytes / first).min(1.0);
    }
    for pair in curve.windows(2) {
        if bytes <= pair[1].0 {
            return pair[0].1 + (pair[1].1 - pair[0].1) * (bytes - pair[0].0) / (pair[1].0 - pair[0].0);
        }
    }
    curve[curve.len() - 1].1
}

/// The bytes at which the curve comes within 0.01 of its least value. If that is not small, the program uses more than
/// the machine had, and the last quarter of the curve is extrapolated to zero, up to 1 GiB: an assumption.
fn footprint(curve: &[(f64, f64)]) -> f64 {
    let Some(&(most, least)) = curve.last() else { return 0.0 };
    if least <= 0.01 {
        return curve.iter().find(|p| p.1 <= least + 0.01).map_or(most, |p| p.0);
    }
    let from = most * 0.75;
    let slope = (ratio(curve, from) - least) / (most - from);
    (most + least / slope.max(1e-18)).min(1_073_741_824.0)
}

/// How good the exponential below the smallest measured size is: the ratio at one way as the points from two ways on
/// would have it, minus the measured one. None where one way and two hold the same, or nothing is missed.
pub fn left_out(rows: &[Row]) -> Option<f64> {
    let curve = curve(&rows[1..], rows.iter().map(|r| r.apki).sum::<f64>() / rows.len() as f64);
    let one = rows[0].held.min(WAY_BYTES);
    let apki = rows.iter().map(|r| r.apki).sum::<f64>() / rows.len() as f64;
    let first = *curve.first()?;
    (apki >= 0.5 && first.1 > 0.0 && first.0 > one * 1.2).then(|| ratio(&curve, one) - (rows[0].mpki / apki).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ways: u32, ipc: f64, mpki: f64) -> Row {
        Row { ways, ipc, apki: 20.0, mpki, held: f64::from(ways) * WAY_BYTES, stall_l2: 0.0, stall_l3: 0.0 }
    }

    /// CPI = 0.5 + 40 cycles per miss: the derivation gives back what went in.
    #[test]
    fn a_linear_program_is_found_exactly() {
        let rows: Vec<Row> =
            (1..=11).map(|w| (w, 11.0 - f64::from(w))).map(|(w, m)| row(w, 1.0 / (0.5 + 0.04 * m), m)).collect();
        let program = derive(&rows);
        assert!((MEMORY_NS * CLOCK_GHZ / program.mlp - 40.0).abs() < 0.1, "{program:?}");
        assert!(program.errors.iter().all(|e| e.abs() < 1e-3), "{program:?}");
    }

    /// 0.1 + 40 cycles per miss cannot be: an instruction takes 0.25, so that a miss cost less than its slope says.
    #[test]
    fn no_program_is_faster_than_a_core() {
        let rows: Vec<Row> =
            (1..=11).map(|w| (w, 11.0 - f64::from(w))).map(|(w, m)| row(w, 1.0 / (0.1 + 0.04 * m), m)).collect();
        let program = derive(&rows);
        assert!((program.cpi - LEAST_CPI).abs() < 1e-12 && (program.scaled - 0.05 / 0.2).abs() < 2e-3, "{program:?}");
        assert!((MEMORY_NS * CLOCK_GHZ / program.mlp - 10.0).abs() < 0.1, "{program:?}");
        let mean = |f: &dyn Fn(usize) -> f64| (0..11).map(f).sum::<f64>();
        let [took, takes] = [mean(&|i| 1.0 / rows[i].ipc), mean(&|i| 1.0 / (rows[i].ipc * (1.0 + program.errors[i])))];
        assert!((took - takes).abs() < 1e-9, "the mean stays: {took} {takes}");
    }

    #[test]
    fn a_noisy_curve_becomes_monotone() {
        let rows = [row(1, 1.0, 10.0), row(2, 1.0, 4.0), row(3, 1.0, 6.0), row(4, 1.0, 1.0)];
        let ratios: Vec<f64> = curve(&rows, 20.0).iter().map(|p| p.1).collect();
        assert_eq!(ratios, [0.5, 0.25, 0.05]); // (4 + 6) / 2 / 20
    }

    #[test]
    fn below_the_first_point_the_ratio_rises_to_one() {
        let curve = [(100.0, 0.25), (200.0, 0.05)];
        assert_eq!(ratio(&curve, 0.0), 1.0);
        assert!((ratio(&curve, 50.0) - 0.5).abs() < 1e-12);
        assert!((ratio(&curve, 150.0) - 0.15).abs() < 1e-12);
        assert!((ratio(&curve, 1e9) - 0.05).abs() < 1e-12);
    }

    #[test]
    fn a_bad_table_is_refused_with_its_line() {
        let bad = "BENCH,NR_WAYS,ipc,llcrpki,llcmpki,llc_usage_kb,stalls_l2_miss,stalls_l3_miss\nx,1,fast,1,1,1,1,1\n";
        assert!(format!("{:#}", read(bad).unwrap_err()).contains("metrics.csv:2: 'fast' is not a number"));
    }
}
