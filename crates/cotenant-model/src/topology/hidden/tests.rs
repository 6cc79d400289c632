use super::*;

/// Packages × caches × cores × threads, numbered as Linux does: first threads of all cores, then second ones.
/// Latencies in ns: inside a core, inside a cache, inside a package, between packages.
fn machine(packages: usize, caches: usize, cores: usize, threads: usize, ns: [f64; 4]) -> Latencies {
    let per_thread = packages * caches * cores;
    let n = per_thread * threads;
    let mut latencies = Latencies::new((0..n as u32).map(CpuId).collect());
    for a in 0..n {
        for b in 0..a {
            let (x, y) = (a % per_thread, b % per_thread);
            let kind = if x == y {
                0
            } else if x / cores == y / cores {
                1
            } else if x / (cores * caches) == y / (cores * caches) {
                2
            } else {
                3
            };
            latencies.set(a, b, ns[kind]);
        }
    }
    latencies
}

/// Numbers in 0–1: Knuth's MMIX sequence.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut x = seed;
    move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn shape(levels: &[Level]) -> Vec<(Role, usize, Vec<usize>)> {
    let sizes = |level: &Level| {
        let mut sizes: Vec<usize> = level.groups.iter().map(CpuSet::len).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    levels.iter().map(|level| (level.role, level.groups.len(), sizes(level))).collect()
}

#[test]
fn levels_of_made_up_machines() {
    let ns = [8.0, 25.0, 100.0, 200.0];
    let two_by_four = find(&machine(2, 4, 6, 2, ns));
    assert_eq!(
        shape(&two_by_four),
        [(Role::Core, 48, vec![2]), (Role::Llc, 8, vec![12]), (Role::Package, 2, vec![48])]
    );
    assert_eq!((two_by_four[1].within_ns, two_by_four[1].between_ns, two_by_four[1].clear), (25.0, 200.0, 1.0));
    assert_eq!(two_by_four[0].groups[0], "0,48".parse().unwrap());
    assert_eq!(shape(&find(&machine(2, 1, 8, 1, ns))), [(Role::LlcOrPackage, 2, vec![8])]);
    assert_eq!(shape(&find(&machine(1, 2, 4, 2, ns))), [(Role::Core, 8, vec![2]), (Role::LlcOrPackage, 2, vec![8])]);
    assert_eq!(shape(&find(&machine(1, 1, 16, 1, ns))), [], "one cache, no second threads");
    assert_eq!(shape(&find(&machine(1, 1, 2, 1, ns))), [], "two CPUs show one latency");
    assert_eq!((find(&Latencies::new(vec![])), find(&Latencies::new(vec![CpuId(3)]))), (vec![], vec![]));
}

#[test]
fn a_package_is_known_by_whom_it_is_far_from() {
    // Lines have their home on package 0: inside package 1 a transfer takes 190 ns, and between packages 200.
    let mut latencies = machine(2, 4, 2, 1, [8.0, 25.0, 100.0, 200.0]);
    for a in 8..16 {
        for b in (8..a).filter(|b| b / 2 != a / 2) {
            latencies.set(a, b, 190.0);
        }
    }
    assert_eq!(shape(&find(&latencies)), [(Role::Llc, 8, vec![2]), (Role::Package, 2, vec![8])]);
}

#[test]
fn a_virtual_machine_may_have_parts_of_caches() {
    // Six CPUs on one cache and two on another.
    let mut latencies = Latencies::new((0..8).map(CpuId).collect());
    for a in 0..8 {
        for b in 0..a {
            latencies.set(a, b, if (a < 6) == (b < 6) { 25.0 } else { 110.0 });
        }
    }
    let levels = find(&latencies);
    assert_eq!(shape(&levels), [(Role::LlcOrPackage, 2, vec![2, 6])]);
    assert_eq!(levels[0].groups, ["0-5".parse().unwrap(), "6-7".parse().unwrap()]);
}

#[test]
fn nothing_is_made_of_noise() {
    // Latencies of one mesh between 30 and 60 ns, in no order.
    let mut latencies = Latencies::new((0..48).map(CpuId).collect());
    let mut noise = noise(1);
    for a in 0..48 {
        for b in 0..a {
            latencies.set(a, b, 30.0 + 30.0 * noise());
        }
    }
    assert_eq!(shape(&find(&latencies)), []);
}

/// Noise of ten percent, one measurement three times too long, one in fifty missing; the same 240 cases every time.
#[test]
fn noise_does_not_hide_the_caches() {
    for seed in 0..240_u64 {
        let mut noise = noise(seed << 32 | 1);
        let mut upto = |n: usize| (noise() * n as f64) as usize;
        let (packages, caches, cores) = (1 + upto(2), 2 + upto(3), 4 + upto(5));
        let mut latencies = machine(packages, caches, cores, 1, [8.0, 25.0, 100.0, 200.0]);
        let n = latencies.cpus().len();
        let odd = (upto(n), upto(n));
        for a in 0..n {
            for b in 0..a {
                let ns = latencies.get(a, b).unwrap() * (0.9 + 0.2 * noise());
                let ns = if noise() < 0.02 { 0.0 } else { ns };
                latencies.set(a, b, if (a, b) == odd { 3.0 * ns } else { ns });
            }
        }
        let found = find(&latencies);
        let llc = found.iter().find(|level| matches!(level.role, Role::Llc | Role::LlcOrPackage));
        let expected: Vec<CpuSet> = (0..packages * caches)
            .map(|c| (c * cores..(c + 1) * cores).map(|cpu| CpuId(cpu as u32)).collect())
            .collect();
        assert_eq!(llc.map(|level| &level.groups), Some(&expected), "seed {seed}");
    }
}

#[test]
fn texts_are_read_with_their_holes() {
    let latencies = Latencies::parse(",,\n40.5,,\n0, 41,\n").unwrap();
    assert_eq!((latencies.get(0, 1), latencies.get(2, 0), latencies.get(1, 2)), (Some(40.5), None, Some(41.0)));
    let error = Latencies::parse(",\n1.0,\n2,x,\n").unwrap_err();
    assert_eq!(error.to_string(), "3:2: 'x' is not a latency; write nanoseconds, or nothing where none was measured");
    assert_eq!(Latencies::parse(",\n1,2,3,4\n").unwrap_err().column, 3);
}
