//! Printed data of the `ReSense` paper, and its machines.

use cotenant_model::CpuSet;
use cotenant_model::profile::{AppProfile, By, Score};
use std::collections::{BTreeMap, BTreeSet};

/// A machine of Table II.
#[derive(Clone, Copy, Debug)]
pub(super) struct Platform {
    /// Its name in the tables.
    pub name: &'static str,
    /// Its name in `machines/`.
    pub machine: &'static str,
    /// Threads of each program (§3.1).
    pub threads: usize,
    /// The paper's resources, with their levels here.
    pub levels: &'static [(&'static str, &'static str)],
}

pub(super) const YORKFIELD: Platform =
    Platform { name: "intel-yorkfield", machine: "yorkfield", threads: 2, levels: &[("L2", "l2")] };
pub(super) const HARPERTOWN: Platform = Platform {
    name: "intel-harpertown",
    machine: "harpertown-2s",
    threads: 4,
    levels: &[("L2", "l2"), ("FSB", "bus")],
};
pub(super) const XEON: Platform = Platform {
    name: "intel-xeon",
    machine: "xeon-4s-64",
    threads: 8,
    levels: &[("L3+MC", "l3+memory-controller+node")],
};
pub(super) const OPTERON: Platform = Platform {
    name: "amd-opteron",
    machine: "opteron-48",
    threads: 6,
    levels: &[("L3", "l3+node"), ("memory-socket", "package")],
};
pub(super) const PLATFORMS: [Platform; 4] = [YORKFIELD, HARPERTOWN, XEON, OPTERON];

/// A printed score.
#[derive(Clone, Debug)]
pub(super) struct Printed {
    pub parsec: bool,
    /// Its name in `workloads/`.
    pub program: String,
    pub platform: &'static str,
    /// A level of the platform.
    pub level: &'static str,
    pub score: f64,
}

/// Tables IV and V.
pub(super) fn printed() -> Vec<Printed> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [suite, name, _, platform, resource, score] = cells[..] else { return None };
        let platform = PLATFORMS.iter().find(|p| p.name == platform)?;
        Some(Printed {
            parsec: suite.starts_with("PARSEC"),
            program: name.split('.').next().unwrap_or(name).to_lowercase(),
            platform: platform.name,
            level: platform.levels.iter().find(|l| l.0 == resource)?.1,
            score: score.parse().ok()?,
        })
    };
    include_str!("scores.csv").lines().skip(2).filter_map(row).collect()
}

/// The programs that have scores, each once.
pub(super) fn programs(scores: &[Printed]) -> Vec<String> {
    scores.iter().map(|p| p.program.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Table VI: percent, half of its interval's width, p.
pub(super) fn improvement(size: &str, metric: &str, platform: &Platform) -> Option<[f64; 3]> {
    let mut rows = include_str!("improvements.csv").lines().skip(2).map(|line| line.split(',').collect::<Vec<_>>());
    let row = rows.find(|cells| cells[..3] == [size, metric, platform.name])?;
    let number = |i: usize| row.get(i)?.parse().ok();
    Some([number(3)?, number(4)?, number(5)?])
}

/// Profiles with the printed scores.
pub(super) fn printed_profiles(scores: &[Printed]) -> BTreeMap<String, AppProfile> {
    profiles(scores.iter().map(|p| (p.program.as_str(), p.level, p.score)))
}

/// Profiles with these scores: program, level, percent.
pub(super) fn profiles<'a>(scores: impl Iterator<Item = (&'a str, &'a str, f64)>) -> BTreeMap<String, AppProfile> {
    let mut all: BTreeMap<String, AppProfile> = BTreeMap::new();
    for (program, level, percent) in scores {
        let score = Score::of(&[(100.0, 100.0 - percent)], By::Cycles, CpuSet::new(), CpuSet::new());
        if let Some(score) = score {
            all.entry(program.to_owned()).or_default().sensitivity.insert(level.to_owned(), score);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_complete() {
        let all = printed();
        // 12 PARSEC programs for six resources, nine of NPB for three (Yorkfield and Harpertown have none of these).
        assert_eq!(all.len(), 12 * 6 + 9 * 3);
        assert!(all.iter().all(|p| cotenant_sim::app::known(&p.program).is_some()));
        assert_eq!(improvement("small", "throughput", &HARPERTOWN), Some([3.27, 3.95, 0.025]));
        let cells = ["small", "medium", "large"]
            .map(|size| PLATFORMS.iter().filter_map(|p| improvement(size, "art", p)).count());
        assert_eq!(cells, [4, 2, 2]);
        let sc = all.iter().find(|p| p.program == "streamcluster" && p.level == "bus").unwrap();
        let score = profiles([("streamcluster", "bus", sc.score)].into_iter())["streamcluster"].score(["bus"]).unwrap();
        assert!((score + 11.3983).abs() < 1e-9);
    }
}
