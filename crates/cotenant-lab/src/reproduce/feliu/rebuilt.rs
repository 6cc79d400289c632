//! The paper's programs, rebuilt: misses of a 32 KB L1, from published figures where found, and the fraction of memory
//! lines that counts as misses.

use cotenant_sim::app::{Private, embedded};
use std::fmt::Write as _;

/// Bytes of the X3320's L1 (§3).
const L1_BYTES: f64 = 32.0 * 1024.0;
/// Bytes of one of its L2 caches (§3).
const L2_BYTES: f64 = 3.0 * MIB;
const MIB: f64 = 1_048_576.0;
/// Its L2's latency, cycles (`machines/x3320.toml`).
const L2_CYCLES: f64 = 15.0;
/// Misses in flight of the measured machine's core: its fill buffers (Intel 64 and IA-32 Architectures Optimization
/// Reference Manual, Skylake). A program that hides more latency than these allow must have lines prefetched.
const FILL_BUFFERS: f64 = 12.0;
/// Points of the curve, MiB.
const SIZES: [f64; 14] = [0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0, 27.0];

/// A program's figures: L1 misses per 1,000 instructions, and the fraction of its lines that is prefetched.
fn figures(program: &str) -> [Option<f64>; 2] {
    let rows = include_str!("programs.csv").lines().map(|line| line.split(',').collect::<Vec<_>>());
    let row = rows.filter(|cells| cells.len() == 5).find(|cells| cells[0] == program);
    [1, 3].map(|cell| row.as_ref().and_then(|cells| cells[cell].parse().ok()))
}

/// The fraction of a program's memory lines that is prefetched and so counts as no miss.
pub(super) fn ahead(program: &str) -> f64 {
    let mlp = embedded().get(&format!("{program}06")).map_or(1.0, |of| of.phases[0].mlp);
    figures(program)[1].unwrap_or((1.0 - FILL_BUFFERS / mlp).max(0.0))
}

/// The program as TOML, by its name in the paper.
pub(super) fn definition(program: &str) -> String {
    let Some(of) = embedded().get(&format!("{program}06")) else { return String::new() };
    let measured = &of.phases[0];
    let here = Private { bytes: L1_BYTES, inclusive: true, in_use: 0.0 }.phase(measured);
    let lines = |bytes: f64| here.llc_apki * here.miss_ratio.at(bytes);
    let [l1, _] = figures(program);
    // Lines from memory have missed the L1 too: a lower figure belongs to other inputs than the measured ones.
    let l1 = l1.filter(|l1| *l1 > lines(L2_BYTES)).unwrap_or(here.llc_apki);
    // The measured core's cycles already include its L2 hits.
    let hits = (l1 - measured.llc_apki).max(0.0) / 1000.0;
    let cpi = (measured.cpi - hits * L2_CYCLES / measured.llc_mlp).max(measured.cpi / 2.0);
    let mut curve = String::new();
    for mib in SIZES {
        let _ = write!(curve, "[{:.0}, {:.6}], ", mib * MIB, (lines(mib * MIB) / l1).min(1.0));
    }
    format!(
        "[program.{program}]\ncpi = {cpi}\nllc_apki = {l1}\nllc_mlp = {}\nmlp = {}\nfootprint_bytes = {}\n\
         writeback_ratio = {}\nprefetched = {}\nmiss_ratio = [{curve}]\n",
        measured.llc_mlp,
        measured.mlp,
        here.footprint_bytes,
        measured.writeback_ratio,
        ahead(program)
    )
}

#[cfg(test)]
mod tests {
    use super::super::{MACHINE, alone, programs};
    use super::*;

    #[test]
    fn who_is_in_the_text_has_its_rates() {
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.1, "{a} is not {b}");
        let leslie = alone(MACHINE, "leslie3d").unwrap();
        near(leslie.tr_l1, 80.0);
        near(leslie.tr_l2, 2.0);
        near(alone(MACHINE, "libquantum").unwrap().tr_l2, 2.0);
        near(alone(MACHINE, "bzip2").unwrap().tr_l2, 2.0);
        assert!(alone(MACHINE, "cactusADM").unwrap().tr_l1 > 40.0);
    }

    #[test]
    fn every_program_has_a_row_and_memory_sees_what_was_measured() {
        for program in programs() {
            assert!(include_str!("programs.csv").lines().any(|l| l.starts_with(&format!("{program},"))), "{program}");
            let parsed = cotenant_sim::app::parse_programs(&definition(program)).unwrap();
            let (here, measured) = (&parsed[program].phases[0], &embedded()[&format!("{program}06")].phases[0]);
            // 4 MiB in all are 3 MiB behind the measured 1 MiB.
            let [a, b] = [(here, 4.0), (measured, 3.0)].map(|(p, mib)| p.llc_apki * p.miss_ratio.at(mib * MIB));
            assert!((a - b).abs() <= 0.02 * b.max(0.01), "{program}: {a} lines per 1,000 instructions, measured {b}");
        }
    }
}
