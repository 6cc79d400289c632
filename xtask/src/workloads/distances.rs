//! Distances between cores: medians of measured core-to-core matrices, for `coherence_ns` of machine files.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::Path;

/// (start of the file's name, cores per LLC, cores per package, cores). CPUs are numbered core by core and package by
/// package, second contexts after all cores, which the matrices show. Excluded: machines whose numbering the matrices
/// do not show, and those of one package.
const MACHINES: &[(&str, usize, usize, usize)] = &[
    ("AMD EPYC 7R13", 8, 48, 96),
    ("Dual AMD EPYC 7742", 4, 64, 128),
    ("Dual AMD EPYC 9454", 6, 48, 96),
    ("Dual Intel Xeon Platinum 8358", 32, 32, 64),
    ("Dual Intel(R) Xeon(R) CPU E5-2690", 8, 8, 16),
    ("Dual Intel(R) Xeon(R) CPU X5650", 6, 6, 12),
];

/// `workloads/distances.toml`.
pub fn file(folder: &Path) -> Result<String> {
    let mut out = String::from(
        "# Written by `cargo xtask workloads`. coherence_ns: a line written by another core in the same LLC domain, in the same package, in another package;\n\
         # medians, and spread_ns the 10th and 90th percentiles. Where a package has one LLC, the first two are one figure.\n\
         # source: core-to-core/ (KCORES/core-to-core-latency-plus); derivation: xtask/src/workloads/distances.rs\n",
    );
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    for &(start, llc, package, cores) in MACHINES {
        let name =
            names.iter().find(|n| n.starts_with(start)).with_context(|| format!("core-to-core: no '{start}…'"))?;
        let text = std::fs::read_to_string(folder.join(name)).with_context(|| name.clone())?;
        let [near, middle, far] = classes(&text, llc, package, cores);
        let quantile = |of: &[f64], q: f64| of[((of.len() - 1) as f64 * q).round() as usize];
        let shown = [&near, if middle.is_empty() { &near } else { &middle }, &far];
        let median = shown.map(|of| format!("{:.1}", quantile(of, 0.5))).join(", ");
        let spread = shown.map(|of| format!("[{:.1}, {:.1}]", quantile(of, 0.1), quantile(of, 0.9))).join(", ");
        let _ = write!(out, "\n[distance.\"{start}\"]\ncoherence_ns = [{median}]\nspread_ns = [{spread}]\n");
    }
    Ok(out)
}

/// Latencies in ns, sorted, of pairs of different cores: in one LLC domain, in one package, between packages. Zero
/// cells are no measurement. Pairs inside a package are those of the cheaper package: on EPYC, pairs of the other cost
/// as much as pairs between packages, because the line's home was elsewhere.
fn classes(text: &str, llc: usize, package: usize, cores: usize) -> [Vec<f64>; 3] {
    let (mut near, mut middle, mut far) =
        (vec![Vec::new(); cores.div_ceil(package)], vec![Vec::new(); cores.div_ceil(package)], Vec::new());
    for (row, line) in text.lines().enumerate() {
        for (column, cell) in line.split(',').enumerate().take(row) {
            let Some(ns) = cell.trim().parse::<f64>().ok().filter(|ns| *ns > 0.0) else { continue };
            let (a, b) = (row % cores, column % cores);
            if a == b {
                continue; // contexts of one core
            }
            let class = if a / package != b / package {
                &mut far
            } else if a / llc == b / llc {
                &mut near[a / package]
            } else {
                &mut middle[a / package]
            };
            class.push(ns);
        }
    }
    let cheapest = |mut packages: Vec<Vec<f64>>| {
        for package in &mut packages {
            package.sort_by(f64::total_cmp);
        }
        let median = |p: &Vec<f64>| p.get(p.len() / 2).copied().unwrap_or(f64::INFINITY);
        packages.into_iter().min_by(|a, b| median(a).total_cmp(&median(b))).unwrap_or_default()
    };
    far.sort_by(f64::total_cmp);
    [cheapest(near), cheapest(middle), far]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four cores, two per LLC, all one package of four; then four more contexts.
    #[test]
    fn pairs_are_told_apart() {
        let text = ",,\n10,,\n50,51,\n52,53,11,\n9,10,50,52,\n";
        let [near, middle, far] = classes(text, 2, 4, 4);
        assert_eq!(near, [10.0, 10.0, 11.0]);
        assert_eq!(middle, [50.0, 50.0, 51.0, 52.0, 52.0, 53.0]);
        assert!(far.is_empty());
    }
}
