//! The measured programs of `workloads/`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What `workloads/*.toml` says of one program; `docs/reference/workloads.md` says how the figures come about.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Cycles per instruction with an ideal last private cache, > 0.
    pub cpi: f64,
    /// LLC accesses per 1,000 instructions.
    pub llc_apki: f64,
    /// LLC latency over the cycles that a hit costs, ≥ 1.
    pub llc_mlp: f64,
    /// Memory latency over the cycles that a miss costs, ≥ 1.
    pub mlp: f64,
    /// Bytes beyond which more cache does not help.
    pub footprint_bytes: f64,
    /// Lines written back per line read.
    pub writeback_ratio: f64,
    /// (bytes held, LLC misses per access): bytes rise, the ratio does not.
    pub miss_ratio: Vec<(f64, f64)>,
}

impl Workload {
    /// LLC misses per access with `bytes` held: between two points on a straight line; below the first on an exponential from (0, 1),
    /// which says that every byte saves the same share of the remaining misses (nothing was measured there); above the last, constant.
    pub fn miss_ratio(&self, bytes: f64) -> f64 {
        let Some(&(first, at_first)) = self.miss_ratio.first() else { return 1.0 };
        if bytes <= first {
            return at_first.max(1e-6).powf(bytes / first);
        }
        let next = self.miss_ratio.partition_point(|point| point.0 < bytes);
        let Some(&(above, at_above)) = self.miss_ratio.get(next) else { return self.miss_ratio[next - 1].1 };
        let (below, at_below) = self.miss_ratio[next - 1];
        at_below + (at_above - at_below) * (bytes - below) / (above - below)
    }
}

#[derive(Deserialize)]
struct File {
    program: BTreeMap<String, Workload>,
}

static ALL: LazyLock<BTreeMap<String, Workload>> = LazyLock::new(|| {
    let files =
        [include_str!("../../../workloads/spec-cpu2000.toml"), include_str!("../../../workloads/spec-cpu2006.toml")];
    let read = |text: &&str| {
        toml::from_str::<File>(text).map_or_else(|e| unreachable!("a file of the binary itself: {e}"), |f| f.program)
    };
    files.iter().flat_map(read).collect()
});

/// Every program that the binary carries, by name.
pub fn all() -> &'static BTreeMap<String, Workload> {
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_carries_55_sound_programs() {
        assert_eq!(all().len(), 55);
        for (name, w) in all() {
            assert!(w.cpi > 0.0 && w.mlp >= 1.0 && w.llc_mlp >= 1.0 && w.llc_apki >= 0.0, "{name}: {w:?}");
            assert!(w.miss_ratio.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 >= p[1].1), "{name}: {:?}", w.miss_ratio);
        }
    }

    #[test]
    fn the_miss_ratio_falls_from_one() {
        let w = &all()["astar06"];
        assert_eq!(w.miss_ratio(0.0), 1.0);
        let ratios: Vec<f64> = (0..300).map(|i| w.miss_ratio(f64::from(i) * 1e5)).collect();
        assert!(ratios.windows(2).all(|p| p[0] >= p[1]), "{ratios:?}");
    }
}
