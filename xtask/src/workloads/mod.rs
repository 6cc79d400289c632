//! `cargo xtask workloads`: derives the simulator's application parameters from measurements and writes `workloads/`
//! and the pages of errors. The measurements are in `../shared/data` (or `$COTENANT_SHARED/data`), outside of the
//! repository; the figures are part of it.

mod distances;
mod memory;
mod page;
mod solo;

use anyhow::{Context, Result, bail};
use solo::Program;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The measurements, if they are present.
pub fn data(root: &Path) -> Option<PathBuf> {
    let named = std::env::var_os("COTENANT_SHARED").map(PathBuf::from);
    let near = [root.join("../shared"), root.join("../../shared")];
    named
        .into_iter()
        .chain(near)
        .map(|shared| shared.join("data"))
        .find(|data| data.join("solo-curves/metrics.csv").exists())
}

/// Writes every generated file.
pub fn write(root: &Path) -> Result<()> {
    let Some(data) = data(root) else {
        bail!("no measurements: put them at ../shared/data, or name their folder's parent in COTENANT_SHARED");
    };
    for (path, text) in generate(&data)? {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Path from the repository's root → text, from the measurements alone.
pub fn generate(data: &Path) -> Result<BTreeMap<&'static str, String>> {
    let table = data.join("solo-curves/metrics.csv");
    let text = std::fs::read_to_string(&table).with_context(|| table.display().to_string())?;
    let rows = solo::read(&text)?;
    let mut programs: BTreeMap<&str, Program> =
        rows.iter().map(|(name, rows)| (name.as_str(), solo::derive(rows))).collect();
    let curves = memory::curves(&data.join("memory"))?;
    let loads = memory::loads(&curves);
    let runs = memory::runs(&data.join("memory"))?;
    let back = WriteBacks::of(&runs)?;
    for (name, counted) in memory::crowded(&runs)? {
        let Some(program) = programs.get_mut(&*name) else { continue };
        let lines = program.lines(memory::CROWDED_BYTES);
        if counted >= 1.0 && counted > 2.0 * lines {
            program.streams(counted - lines);
        }
    }
    Ok(BTreeMap::from([
        ("workloads/spec-cpu2000.toml", suite(&programs, "00", &back)),
        ("workloads/spec-cpu2006.toml", suite(&programs, "06", &back)),
        ("workloads/distances.toml", distances::file(&data.join("core-to-core"))?),
        ("workloads/memory.toml", page::memory_file(&loads)),
        ("lab/docs/workloads-errors.md", page::errors(&rows, &programs, &runs)?),
        ("lab/docs/workloads-errors-memory.md", page::memory_errors(&programs, &curves, &runs)?),
    ]))
}

/// Lines written back per line read. The solo table has none: its bandwidth column counts fills only.
struct WriteBacks {
    measured: BTreeMap<String, f64>,
    median: f64,
}

impl WriteBacks {
    /// From PROFET's counters of the memory controllers, DDR3-1600, where a program reads at least 1 GB/s (below that
    /// the figure is the rest of the system).
    fn of(runs: &BTreeMap<String, BTreeMap<String, memory::Run>>) -> Result<Self> {
        let runs = runs.get("DDR3-1600").context("app_counters_summary.csv: no DDR3-1600")?;
        let busy = runs.iter().filter(|(_, run)| run.read_gbs >= 1.0);
        let measured: BTreeMap<String, f64> =
            busy.map(|(name, run)| (name.clone(), (run.written_gbs / run.read_gbs).min(1.0))).collect();
        let mut ratios: Vec<f64> = measured.values().copied().collect();
        ratios.sort_by(f64::total_cmp);
        let median = *ratios.get(ratios.len() / 2).context("app_counters_summary.csv: no busy program")?;
        Ok(Self { measured, median })
    }

    /// Ratio and whether it was measured.
    fn get(&self, program: &str) -> (f64, bool) {
        let measured = program.strip_suffix("06").and_then(|name| self.measured.get(name));
        measured.map_or((self.median, false), |ratio| (*ratio, true))
    }
}

fn suite(programs: &BTreeMap<&str, Program>, suffix: &str, back: &WriteBacks) -> String {
    let mut out = String::from(HEADER);
    for (name, program) in programs.iter().filter(|(name, _)| name.ends_with(suffix)) {
        let (ratio, measured) = back.get(name);
        let _ = write!(out, "\n[program.{name}]\n");
        let least = if program.scaled < 1.0 {
            format!(" # the least of a core: hits and misses cost {:.3} of what was counted", program.scaled)
        } else {
            String::new()
        };
        let _ = writeln!(out, "cpi = {:.4}{least}", program.cpi);
        let streamed = match program.streamed {
            0.0 => String::new(),
            lines => {
                format!(" # {lines:.1} of them counted by memory controllers (memory/profet) and not by the table")
            }
        };
        let _ = writeln!(out, "llc_apki = {:.4}{streamed}", program.llc_apki);
        let _ = writeln!(out, "llc_mlp = {:.2}", program.llc_mlp);
        let from = if program.mlp_from_slope { "slope of CPI over misses" } else { "cycles stalled on L3 misses" };
        let _ = writeln!(out, "mlp = {:.2} # {from}", program.mlp);
        let _ = writeln!(out, "footprint_bytes = {:.0}", program.footprint);
        let origin = if measured { "measured (memory/profet)" } else { "assumption: median of the measured programs" };
        let _ = writeln!(out, "writeback_ratio = {ratio:.3} # {origin}");
        if !measured {
            out.push_str("assumed = ['writeback_ratio']\n");
        }
        let _ = writeln!(out, "private_bytes = {:.0}", solo::PRIVATE_BYTES);
        let _ = writeln!(out, "miss_ratio = [");
        for (bytes, ratio) in &program.curve {
            let _ = writeln!(out, "  [{bytes:.0}, {ratio:.5}],");
        }
        out.push_str("]\n");
    }
    out
}

const HEADER: &str = "\
# Written by `cargo xtask workloads`; edit the derivation (xtask/src/workloads/solo.rs), not this file.
# source: solo-curves/metrics.csv (pbbcache/cachesim): each program alone on a real machine with 1 to 11 ways of its last-level cache.
#
# cpi              cycles per instruction with an ideal last private cache, 0.25 at the least
# llc_apki         LLC accesses per 1,000 instructions (mean of the eleven points; with a note, some from memory/profet)
# llc_mlp          LLC latency (25 ns at 2.0 GHz, assumed) over the cycles that a hit costs
# mlp              memory latency (82 ns at 2.0 GHz, memory/mlc) over the cycles that a miss costs
# footprint_bytes  beyond this, more cache does not help (above 27.5 MiB: carried on, an assumption)
# writeback_ratio  lines written back per line read
# assumed          keys that are assumptions
# private_bytes    last private cache of the measured core, whose contents the LLC did not hold, too (Intel's Skylake servers)
# miss_ratio       [bytes held, LLC misses per LLC access]
";

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise sim/workloads: Shipped workloads follow from measurements, give back measured speeds, and wait and
    /// compute as real loops do.
    #[test]
    fn the_workloads_are_what_their_derivation_gives() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let Some(data) = data(root) else {
            eprintln!("skipped: the measurements (../shared/data) are not here");
            return;
        };
        for (path, text) in generate(&data).unwrap() {
            let there = std::fs::read_to_string(root.join(path)).unwrap();
            assert!(
                there == text,
                "{path} differs from its derivation: run `cargo xtask workloads` and look at the difference"
            );
        }
    }

    /// Holds sim/workloads.
    #[test]
    fn the_solo_curves_are_reproduced() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let Some(data) = data(root) else {
            eprintln!("skipped: the measurements (../shared/data) are not here");
            return;
        };
        let rows = solo::read(&std::fs::read_to_string(data.join("solo-curves/metrics.csv")).unwrap()).unwrap();
        let (median, p90, worst) = page::quantiles(rows.values().flat_map(|rows| solo::derive(rows).errors).collect());
        assert!(rows.len() == 55 && median < 0.2 && p90 < 1.0 && worst < 10.0, "{median} {p90} {worst}");
    }

    /// The files that are written by hand: known keys, figures in range, curves that fall.
    #[test]
    fn the_programs_written_by_hand_are_sound() {
        const KEYS: &[&str] = &[
            "cpi",
            "llc_apki",
            "llc_mlp",
            "mlp",
            "footprint_bytes",
            "writeback_ratio",
            "miss_ratio",
            "coherence_pki",
            "row_locality",
            "assumed",
            "shared",
            "barrier",
            "instructions",
        ];
        for text in [
            include_str!("../../../workloads/kernels.toml"),
            include_str!("../../../workloads/sharing.toml"),
            include_str!("../../../workloads/services.toml"),
        ] {
            let file: toml::Table = text.parse().unwrap();
            for (name, program) in file["program"].as_table().unwrap() {
                let mut own = program.as_table().unwrap().clone();
                let phases = own.remove("phase").map_or(vec![], |p| p.try_into::<Vec<toml::Table>>().unwrap());
                assert!(
                    own.keys().chain(phases.iter().flat_map(toml::Table::keys)).all(|k| KEYS.contains(&k.as_str())),
                    "{name}"
                );
                for phase in if phases.is_empty() { vec![own] } else { phases } {
                    let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|v| v as f64));
                    let figure = |key: &str| phase.get(key).and_then(number);
                    assert!(
                        figure("cpi").is_some_and(|v| v > 0.0) && figure("llc_apki").is_some_and(|v| v >= 0.0),
                        "{name}"
                    );
                    assert!(
                        figure("mlp").is_none_or(|v| v >= 1.0) && figure("row_locality").is_none_or(|v| v <= 1.0),
                        "{name}"
                    );
                    let curve: Vec<(f64, f64)> = phase["miss_ratio"].clone().try_into().unwrap();
                    assert!(curve.iter().all(|p| p.0 > 0.0 && (0.0..=1.0).contains(&p.1)), "{name}");
                    assert!(curve.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 >= p[1].1), "{name}");
                }
            }
        }
    }
}
