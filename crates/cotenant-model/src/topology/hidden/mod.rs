//! Shared resources from core-to-core latencies alone, because virtual machines often have a wrong description.
//!
//! CPUs are joined by average linkage of the logarithms of their latencies (UPGMA; Sokal and Michener 1958), so that a
//! single bad measurement matters little. A jump between the heights of consecutive joins ends a level of sharing.
//! Packages are also recognised by equal distances to other caches: on machines that keep a line's home on one package,
//! two caches of the other package are nearly as far from each other as from the first.

use crate::parse::Located;
use crate::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};

/// A level ends where the next join is at least this factor slower. Levels of known machines jump by 1.36 or more;
/// jumps up to 1.27 are kinds of cores and parts of a mesh.
const LEAP: f64 = 1.3;

/// The same if only some groups grew, as when one half of a machine is seen through the other.
const PARTIAL_LEAP: f64 = 2.0;

/// Fraction of the pairs that must be on their side of a level's limit.
const CLEAR: f64 = 0.8;

/// Threads of one core exchange a line through their first-level cache: below this many nanoseconds; a common second-
/// or third-level cache takes 20 or more.
const CORE_BELOW_NS: f64 = 20.0;

/// Limit of threads per core. (POWER9 shows its pairs of cores with eight threads at the same latency: those share a
/// cache.)
const CORE_AT_MOST: usize = 4;

/// Caches of different packages differ at least by this mean ratio in their distances to the others.
const OTHER_PACKAGE: f64 = 1.15;

/// One-way latencies between CPUs, in nanoseconds; unmeasured ones are absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    cpus: Vec<CpuId>,
    /// Row by row; NaN = absent.
    ns: Vec<f64>,
}

impl Latencies {
    /// Nothing measured yet between these CPUs.
    pub fn new(cpus: Vec<CpuId>) -> Self {
        let ns = vec![f64::NAN; cpus.len() * cpus.len()];
        Self { cpus, ns }
    }

    /// The CPUs, in the order of rows and columns.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// Sets the latency between two positions, both ways. Non-positive and non-finite values count as not measured.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn set(&mut self, a: usize, b: usize, ns: f64) {
        let n = self.cpus.len();
        assert!(a < n && b < n, "positions {a} and {b} of {n}");
        let ns = if ns.is_finite() && ns > 0.0 { ns } else { f64::NAN };
        (self.ns[a * n + b], self.ns[b * n + a]) = (ns, ns);
    }

    /// The latency between two positions, if measured.
    pub fn get(&self, a: usize, b: usize) -> Option<f64> {
        self.ns.get(a * self.cpus.len() + b).copied().filter(|ns| !ns.is_nan())
    }

    /// Reads comma-separated rows, of which only the part below the diagonal is needed: row and column `n` are CPU `n`.
    /// Empty cells and zeros mean not measured. Common core-to-core benchmarks write this format.
    ///
    /// # Errors
    /// [`Located`] names the line and place of the first non-numeric cell.
    pub fn parse(text: &str) -> Result<Self, Located> {
        let rows: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let mut latencies = Self::new((0..rows.len() as u32).map(CpuId).collect());
        for (i, row) in rows.iter().enumerate() {
            for (j, cell) in row.split(',').map(str::trim).enumerate().filter(|(_, cell)| !cell.is_empty()) {
                let error = || {
                    let text: String = cell.chars().take(40).collect();
                    let message =
                        format!("'{text}' is not a latency; write nanoseconds, or nothing where none was measured");
                    Located { line: i + 1, column: j + 1, message } // of a cell
                };
                let ns: f64 = cell.parse().map_err(|_| error())?;
                if j >= rows.len() {
                    return Err(error());
                }
                if i != j {
                    latencies.set(i, j, ns);
                }
            }
        }
        Ok(latencies)
    }
}

/// The resource shared by a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A core, with its hardware threads.
    Core,
    /// A last-level cache.
    Llc,
    /// A level between a last-level cache and a package.
    Die,
    /// A package.
    Package,
    /// A last-level cache, perhaps a whole package: latencies alone do not distinguish two packages from two caches of
    /// one.
    LlcOrPackage,
}

/// One level of sharing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The shared resource.
    pub role: Role,
    /// The CPUs that share it, by lowest CPU; every CPU is in some group.
    pub groups: Vec<CpuSet>,
    /// Median latency inside groups, beyond the level below, nanoseconds.
    pub within_ns: f64,
    /// Median latency between groups, nanoseconds.
    pub between_ns: f64,
    /// Fraction of the pairs on their side of the limit, 0–1.
    pub clear: f64,
}

/// Finds the levels of sharing, from the core outward. Empty if the latencies show none: one last-level cache, no
/// second hardware threads, or too much noise.
pub fn find(latencies: &Latencies) -> Vec<Level> {
    let n = latencies.cpus.len();
    let ln: Vec<f64> = latencies.ns.iter().map(|ns| ns.ln()).collect();
    let joins = agglomerate(n, &ln);
    let single: Vec<usize> = (0..n).collect();
    let mut found: Vec<Cut> = Vec::new();
    for k in 1..joins.len() {
        let leap = (joins[k].height - joins[k - 1].height).exp();
        if leap < LEAP {
            continue;
        }
        let group = groups(n, &joins[..k]);
        let below = found.last().map_or(&single, |cut| &cut.group);
        let clear = clearness(n, &ln, &group, f64::midpoint(joins[k].height, joins[k - 1].height));
        if clear < CLEAR || (leap < PARTIAL_LEAP && !all_grew(&group, below)) {
            continue;
        }
        let cut = Cut { group, leap, clear };
        match found.last_mut() {
            Some(last) if 5 * cut.count() >= 3 * last.count() => {
                if cut.leap > last.leap {
                    *last = cut;
                }
            }
            _ => found.push(cut),
        }
    }
    let mut levels = describe(latencies, found.iter());
    if let (Some(inner), Some(Level { role: Role::Die, .. })) = (found.last(), levels.last())
        && let Some(packages) = by_profile(n, &ln, &inner.group)
    {
        found.push(packages);
        levels = describe(latencies, found.iter());
    }
    match levels.iter_mut().filter(|level| level.role != Role::Core).collect::<Vec<_>>().as_mut_slice() {
        [] => {}
        [only] => only.role = Role::LlcOrPackage,
        [first, .., last] => (first.role, last.role) = (Role::Llc, Role::Package),
    }
    levels
}

/// A partition of the CPUs.
struct Cut {
    /// The group of each, named by one of its members.
    group: Vec<usize>,
    /// Slowdown of the next join. If one cut leaves nearly as many groups as the previous (at least three of five),
    /// noise has split one level, which the larger jump shows.
    leap: f64,
    clear: f64,
}

impl Cut {
    fn count(&self) -> usize {
        self.group.iter().enumerate().filter(|(i, group)| *i == **group).count()
    }
}

/// Merges cluster `b` into `a`.
struct Join {
    height: f64,
    a: usize,
    b: usize,
}

/// Average linkage. `distances` row by row, NaN if unknown; stops when the distances between the remaining clusters are
/// unknown.
fn agglomerate(n: usize, distances: &[f64]) -> Vec<Join> {
    let known = |d: f64| if d.is_nan() { (0.0, 0.0) } else { (d, 1.0) };
    let (mut sum, mut count): (Vec<f64>, Vec<f64>) = distances.iter().map(|d| known(*d)).unzip();
    let mut alive: Vec<usize> = (0..n).collect();
    let mut joins = Vec::with_capacity(n.saturating_sub(1));
    while alive.len() > 1 {
        let mut best: Option<(f64, usize, usize)> = None;
        for (x, &a) in alive.iter().enumerate() {
            for &b in &alive[x + 1..] {
                if count[a * n + b] > 0.0 {
                    let height = sum[a * n + b] / count[a * n + b];
                    if best.is_none_or(|(least, ..)| height < least) {
                        best = Some((height, a, b));
                    }
                }
            }
        }
        let Some((height, a, b)) = best else { break };
        joins.push(Join { height, a, b });
        alive.retain(|c| *c != b);
        for &c in alive.iter().filter(|c| **c != a) {
            for (into, from) in [(a * n + c, b * n + c), (c * n + a, c * n + b)] {
                sum[into] += sum[from];
                count[into] += count[from];
            }
        }
    }
    joins
}

/// The group of each item after these joins, named by its lowest item.
fn groups(n: usize, joins: &[Join]) -> Vec<usize> {
    let mut group: Vec<usize> = (0..n).collect();
    for join in joins {
        let (a, b) = (group[join.a], group[join.b]);
        let (into, from) = (a.min(b), a.max(b));
        group.iter_mut().filter(|g| **g == from).for_each(|g| *g = into);
    }
    group
}

/// Whether every group consists of several of those below.
fn all_grew(group: &[usize], below: &[usize]) -> bool {
    let grew = |g: usize| (0..group.len()).any(|i| group[i] == g && below[i] != below[g]);
    group.iter().all(|g| grew(*g))
}

/// The smaller of two fractions: pairs inside groups below the limit, pairs of different groups above it.
fn clearness(n: usize, distances: &[f64], group: &[usize], limit: f64) -> f64 {
    let (mut right, mut all) = ([0.0; 2], [0.0; 2]);
    for a in 0..n {
        for b in (0..a).filter(|b| !distances[a * n + b].is_nan()) {
            let apart = group[a] != group[b];
            all[usize::from(apart)] += 1.0;
            right[usize::from(apart)] += f64::from(u8::from((distances[a * n + b] > limit) == apart));
        }
    }
    (0..2).filter(|i| all[*i] > 0.0).map(|i| right[i] / all[i]).fold(1.0, f64::min)
}

/// Joins groups with equal distances to the others, if that clearly reduces their number.
fn by_profile(n: usize, ln: &[f64], inner: &[usize]) -> Option<Cut> {
    let mut units: Vec<usize> = inner.to_vec();
    units.sort_unstable();
    units.dedup();
    let m = units.len();
    if m < 4 || m == n {
        return None;
    }
    let mean = |a: usize, b: usize| {
        let pairs =
            (0..n).filter(|i| inner[*i] == a).flat_map(|i| (0..n).filter(|j| inner[*j] == b).map(move |j| (i, j)));
        let (sum, count) =
            pairs.map(|(i, j)| ln[i * n + j]).filter(|d| !d.is_nan()).fold((0.0, 0.0), |(s, c), d| (s + d, c + 1.0));
        sum / count // NaN without any
    };
    let far: Vec<f64> =
        units.iter().flat_map(|&a| units.iter().map(move |&b| (a, b))).map(|(a, b)| mean(a, b)).collect();
    let difference = |a: usize, b: usize| {
        let others = (0..m).filter(|c| *c != a && *c != b).map(|c| (far[a * m + c] - far[b * m + c]).abs());
        let (sum, count) = others.filter(|d| !d.is_nan()).fold((0.0, 0.0), |(s, c), d| (s + d, c + 1.0));
        sum / count
    };
    let differences: Vec<f64> = (0..m * m).map(|i| difference(i / m, i % m)).collect();
    let joins = agglomerate(m, &differences);
    let leap = |k: usize| joins[k].height / joins[k - 1].height.max(1e-9);
    let k = (1..joins.len())
        .filter(|k| joins[*k].height >= OTHER_PACKAGE.ln())
        .max_by(|a, b| leap(*a).total_cmp(&leap(*b)))?;
    let unit_group = groups(m, &joins[..k]);
    let clear = clearness(m, &differences, &unit_group, f64::midpoint(joins[k].height, joins[k - 1].height));
    let whole: Vec<usize> = (0..m).collect();
    if leap(k) < PARTIAL_LEAP || clear < CLEAR || !all_grew(&unit_group, &whole) {
        return None;
    }
    let unit_of = |i: usize| units.binary_search(&inner[i]).unwrap_or_default();
    let group = (0..n).map(|i| units[unit_group[unit_of(i)]]).collect();
    Some(Cut { group, leap: leap(k), clear })
}

/// Describes each level: its groups and latency. Levels above a core are named die.
fn describe<'a>(latencies: &Latencies, found: impl Iterator<Item = &'a Cut>) -> Vec<Level> {
    let n = latencies.cpus.len();
    let mut levels: Vec<Level> = Vec::new();
    let mut below: Option<&Vec<usize>> = None;
    for Cut { group, clear, .. } in found {
        let median = |wanted: &dyn Fn(usize, usize) -> bool| {
            let pairs = (0..n).flat_map(|a| (0..a).map(move |b| (a, b))).filter(|(a, b)| wanted(*a, *b));
            let mut ns: Vec<f64> = pairs.filter_map(|(a, b)| latencies.get(a, b)).collect();
            let middle = ns.len() / 2;
            if ns.is_empty() { f64::NAN } else { *ns.select_nth_unstable_by(middle, f64::total_cmp).1 }
        };
        let mut names = group.clone();
        names.sort_unstable();
        names.dedup();
        let members = |g: usize| (0..n).filter(|i| group[*i] == g).map(|i| latencies.cpus[i]).collect::<CpuSet>();
        let mut groups: Vec<CpuSet> = names.into_iter().map(members).collect();
        groups.sort_by_key(CpuSet::first);
        let within_ns = median(&|a, b| group[a] == group[b] && below.is_none_or(|below| below[a] != below[b]));
        let between_ns = median(&|a, b| group[a] != group[b]);
        let largest = groups.iter().map(CpuSet::len).max().unwrap_or(0);
        let core = below.is_none() && within_ns < CORE_BELOW_NS && largest <= CORE_AT_MOST;
        let role = if core { Role::Core } else { Role::Die };
        levels.push(Level { role, groups, within_ns, between_ns, clear: *clear });
        below = Some(group);
    }
    levels
}

#[cfg(test)]
mod tests;
