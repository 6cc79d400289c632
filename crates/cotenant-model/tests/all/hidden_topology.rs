//! Hidden topology of measured machines: the latencies' levels match the real ones.

use cotenant_model::topology::hidden::{Latencies, Role, find};
use std::path::PathBuf;

fn folder() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("COTENANT_SHARED").map(PathBuf::from);
    let candidates = shared.into_iter().chain([root.join("../shared"), root.join("../../shared")]);
    let found = candidates.map(|dir| dir.join("data/core-to-core")).find(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("skipped: no ../shared/data/core-to-core; set COTENANT_SHARED");
    }
    found
}

/// A machine by a part of its file's name, and per level: role, number of groups, CPUs of each. From data sheets.
type Known = (&'static str, &'static [(Role, usize, usize)]);

const KNOWN: [Known; 11] = [
    // 48 cores: 6 on each of 8 complexes; the instance has two packages.
    ("7R13", &[(Role::Core, 96, 2), (Role::Llc, 12, 16), (Role::Package, 2, 96)]),
    // One mesh with one system-level cache, no second threads.
    ("Graviton3", &[]),
    // Zen 2: 16 cores, 8 complexes of 2.
    ("7302", &[(Role::Core, 32, 2), (Role::Llc, 16, 4), (Role::Package, 2, 32)]),
    // Zen 2: 64 cores, 16 complexes of 4.
    ("7742", &[(Role::Core, 128, 2), (Role::Llc, 32, 8), (Role::Package, 2, 128)]),
    // Zen 4: 48 cores, 8 complexes of 6.
    ("9454", &[(Role::Core, 96, 2), (Role::Llc, 16, 12), (Role::Package, 2, 96)]),
    // Pairs of cores with four threads each share their caches; the clock of the measurement ticks every 17 ns.
    ("Power9", &[(Role::Llc, 16, 8), (Role::Package, 2, 64)]),
    ("8358", &[(Role::LlcOrPackage, 2, 32)]),
    ("E5-2690", &[(Role::Core, 16, 2), (Role::LlcOrPackage, 2, 16)]),
    ("X5650", &[(Role::Core, 12, 2), (Role::LlcOrPackage, 2, 12)]),
    // Tiles of two cores with a common second-level cache, which is the last one.
    ("7210", &[(Role::LlcOrPackage, 32, 2)]),
    ("12700K", &[(Role::Core, 12, 0)]), // eight pairs and four single threads
];

/// Promise measure/latency-topology: Latencies alone show the cores, caches and packages of eleven measured machines.
#[test]
fn measured_machines_show_what_they_are() {
    let Some(folder) = folder() else { return };
    let files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    for (part, expected) in KNOWN {
        let path = files.iter().find(|path| path.to_string_lossy().contains(part)).unwrap();
        let latencies = Latencies::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let found = find(&latencies);
        let shape: Vec<(Role, usize, usize)> = found
            .iter()
            .map(|level| {
                let size = level.groups[0].len();
                let regular = level.groups.iter().all(|group| group.len() == size);
                (level.role, level.groups.len(), if regular { size } else { 0 })
            })
            .collect();
        assert_eq!(shape, expected, "{part}");
        for level in &found {
            assert!(level.within_ns < level.between_ns, "{part}: {level:?}");
        }
    }
}

/// Why `machines/knl-7210.toml` gives no coordinates: what latencies between tiles differ by is how far each is from
/// where the lines' directory was, one constant per tile, and not how far they are from each other.
#[test]
fn a_meshs_latencies_need_not_tell_where_tiles_are() {
    let Some(folder) = folder() else { return };
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let path = files.find(|path| path.to_string_lossy().contains("7210")).unwrap();
    let latencies = Latencies::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let tiles = 32;
    // Cores 2n and 2n + 1 share tile n: the mean of four round trips.
    let between = |a: usize, b: usize| {
        let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, j)| latencies.get(2 * a + i, 2 * b + j).unwrap());
        all.iter().sum::<f64>() / 4.0
    };
    let pairs: Vec<(usize, usize)> = (0..tiles).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    let mean = pairs.iter().map(|&(a, b)| between(a, b)).sum::<f64>() / pairs.len() as f64;
    // Least squares for `mean + constant(a) + constant(b)`, in closed form because every pair occurs once.
    let of = |tile: usize| (0..tiles).filter(|other| *other != tile).map(|other| between(tile, other)).sum::<f64>();
    let constants: Vec<f64> =
        (0..tiles).map(|tile| (of(tile) - (tiles - 1) as f64 * mean) / (tiles - 2) as f64).collect();
    let squares = |fit: &dyn Fn(usize, usize) -> f64| -> f64 {
        pairs.iter().map(|&(a, b)| (between(a, b) - fit(a, b)).powi(2)).sum()
    };
    let explained = 1.0 - squares(&|a, b| mean + constants[a] + constants[b]) / squares(&|_, _| mean);
    assert!((0.90..0.91).contains(&explained), "{explained}");
}
