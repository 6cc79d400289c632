//! Properties of the simulated kernels.

use super::{cpus, ms, scenario, times, world};
use crate::world::World;
use cotenant_model::{CpuId, CpuSet};
use std::collections::BTreeSet;

fn apps(threads: &[usize], more: &str) -> String {
    let one = |n: &usize| format!("[[app]]\nprogram = 'cpu'\nthreads = {n}\nwork_s = 1\n{more}\n");
    format!("machine = 'ivy-bridge-2s'\n{}", threads.iter().map(one).collect::<String>())
}

/// The places of running threads.
fn places(world: &World) -> Vec<usize> {
    world.threads.iter().filter_map(|t| t.cpu).collect()
}

fn different<T: Ord>(all: impl IntoIterator<Item = T>) -> usize {
    all.into_iter().collect::<BTreeSet<T>>().len()
}

/// Promise sim/kernel: Simulated kernels place threads and memory as their page says, and never outside a mask.
#[test]
fn threads_spread_over_packages_then_cores_and_siblings_come_last() {
    for kernel in ["eevdf", "cache-aware"] {
        for threads in 1..=40 {
            let s = scenario(&apps(&[threads], ""));
            let mut world = world(&s, kernel, threads as u64);
            world.advance(ms(1), false).unwrap();
            let on = places(&world);
            let of = |level: &crate::places::Level| {
                let mut per = vec![0_usize; level.groups.len()];
                for &cpu in &on {
                    per[level.of[cpu]] += 1;
                }
                per
            };
            let package = of(&world.places.package);
            assert!(package[0].abs_diff(package[1]) <= 1, "{threads} threads: {package:?}");
            assert_eq!(of(&world.places.core).iter().filter(|n| **n > 0).count(), threads.min(20), "{threads} threads");
            assert_eq!(different(on.iter().copied()), threads, "one CPU each");
        }
    }
}

#[test]
fn places_are_drawn_anew_with_each_seed() {
    let s = scenario(&apps(&[3, 3], ""));
    let placed = |seed: u64| {
        let mut world = world(&s, "eevdf", seed);
        world.advance(ms(1), false).unwrap();
        places(&world)
    };
    assert_eq!(placed(1), placed(1));
    assert!(different((0..20).map(placed)) > 10);
}

/// Holds sim/kernel.
#[test]
fn nobody_leaves_the_mask() {
    for kernel in ["eevdf", "cache-aware", "eevdf+numa-balancing", "cache-aware+numa-balancing"] {
        let text = "machine = 'ivy-bridge-2s'\n[[app]]\nprogram = 'sgd'\nthreads = 12\ncpus = '2-5,10'\n\
            [[app]]\nprogram = 'mcf06'\nthreads = 3\ncpus = '2'\n[[app]]\nprogram = 'bodytrack'\nthreads = 60\n";
        let s = scenario(text);
        let mut world = world(&s, kernel, 5);
        for n in 1..=300 {
            world.advance(ms(10 * n), false).unwrap();
            if n == 100 {
                (0..6).for_each(|t| world.set_mask(t, cpus("10,3")));
            }
            for t in &world.threads {
                let Some(cpu) = t.cpu else { continue };
                assert!(t.mask.contains(CpuId(cpu as u32)) && t.mask.is_subset(&t.allowed), "{cpu} of {}", t.mask);
            }
        }
    }
}

#[test]
fn a_crowd_is_evened_out_as_soon_as_masks_allow_it() {
    let s = scenario(&apps(&[12], ""));
    let mut world = world(&s, "eevdf", 1);
    world.advance(ms(1), false).unwrap();
    (0..12).for_each(|t| world.set_mask(t, cpus("0,1")));
    world.advance(ms(20), false).unwrap();
    assert_eq!(different(places(&world)), 2);
    let all: CpuSet = cpus("0-39");
    (0..12).for_each(|t| world.set_mask(t, all.clone()));
    world.advance(ms(500), false).unwrap();
    let on = places(&world);
    let cores = different(on.iter().map(|c| world.places.core.of[*c]));
    let package = on.iter().filter(|c| world.places.package.of[**c] == 0).count();
    assert_eq!((cores, package), (12, 6), "{on:?}");
}

/// Holds sim/kernel.
#[test]
fn the_cache_aware_kernel_draws_a_small_process_into_one_cache() {
    let caches = |kernel: &str, program: &str, threads: usize| {
        let s = scenario(&format!("machine = 'ivy-bridge-2s'\n[[app]]\nprogram = '{program}'\nthreads = {threads}\n"));
        let mut world = world(&s, kernel, 2);
        world.advance(ms(500), false).unwrap();
        different(places(&world).into_iter().map(|c| world.places.llc.of[c]))
    };
    assert_eq!(caches("cache-aware", "hubench", 6), 1);
    assert_eq!(caches("eevdf", "hubench", 6), 2);
    assert_eq!(caches("cache-aware", "hubench", 16), 2, "more threads than one package has cores");
    assert_eq!(caches("cache-aware", "membench", 6), 2, "more data than one cache holds");
}

/// Holds sim/kernel.
#[test]
fn numa_balancing_brings_pages_and_threads_together() {
    let remote = |kernel: &str, list: &str| {
        let program = "[program.away]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = 1e9\nmiss_ratio = [[1e6, 0.9]]\npages = [1, 0]\n";
        let s = scenario(&format!(
            "machine = 'ivy-bridge-2s'\n{program}[[app]]\nprogram = 'away'\nthreads = 4\ncpus = '{list}'\nwork_s = 30\n"
        ));
        let mut world = world(&s, kernel, 1);
        world.advance(ms(15_000), false).unwrap();
        let of = |t: &crate::world::Thread| 1.0 - t.pages[world.places.node.of[t.cpu.unwrap()]];
        (world.threads.iter().map(of).fold(0.0, f64::max), world.migrations)
    };
    assert_eq!(remote("eevdf", "10-19").0, 1.0);
    let (pages, moves) = remote("eevdf+numa-balancing", "10-19");
    assert!(pages < 0.1 && moves == 0, "pages follow threads that may not follow them: {pages} {moves}");
    let (pages, _) = remote("eevdf+numa-balancing", "0-39");
    assert!(pages < 0.1, "pages follow threads that stay: young pages move at their first fault: {pages}");
}

#[test]
fn restarting_keeps_everybody_busy_until_the_last_is_done() {
    let text = "machine = 'two'\nrestart = true\n[[app]]\nprogram = 'cpu'\nwork_s = 0.1\n[[app]]\nprogram = 'mcf06'\nwork_s = 1\n";
    let s = scenario(text);
    let mut world = world(&s, "eevdf", 1);
    world.restart = true;
    while !world.is_done() {
        assert_eq!(places(&world).len(), if world.now() == ms(0) { 0 } else { 2 }, "at {:?}", world.now());
        let next = ms(world.now().0 / 1_000_000 + 3);
        world.advance(next, false).unwrap();
    }
    let runs: Vec<usize> = world.report().iter().map(|r| r.times_s.len()).collect();
    assert!(runs[0] >= 9 && runs[1] == 1, "{runs:?}");
}

#[test]
fn threads_that_share_a_cpu_get_equal_parts() {
    let s = scenario("machine = 'two'\n[[app]]\nprogram = 'cpu'\nthreads = 3\ncpus = '1'\nwork_s = 0.2\n");
    let time = times(world(&s, "eevdf", 1), &s)[0];
    assert!((time - 0.6).abs() < 1e-6, "{time}");
}

/// As many threads as a scenario may have: started at once, spread evenly, and none lost when masks change.
#[test]
fn as_many_threads_as_may_be_are_spread_evenly() {
    let text = "machine = 'ivy-bridge-2s'\n[[app]]\nprogram = 'cpu'\nthreads = 40000\n[[app]]\nprogram = 'tunkrank'\nthreads = 25536\n";
    let s = scenario(text);
    let mut world = world(&s, "cache-aware+numa-balancing", 1);
    let lengths = |world: &World| {
        let mut on = vec![0_u32; 40];
        for cpu in places(world) {
            on[cpu] += 1;
        }
        assert_eq!(on, world.queues);
        (on.iter().min().copied().unwrap_or_default(), on.iter().max().copied().unwrap_or_default())
    };
    world.advance(ms(1), false).unwrap();
    assert_eq!(lengths(&world), (1_638, 1_639));
    (0..1_000).for_each(|t| world.set_mask(t, cpus("0-19")));
    world.advance(ms(3), false).unwrap();
    assert_eq!(places(&world).len(), 65_536);
    lengths(&world);
}

#[test]
fn a_scenario_has_the_kernel_that_distributions_ship() {
    let kernel = |machine: &str| scenario(&format!("machine = '{machine}'\n[[app]]\nprogram = 'cpu'\n")).kernel;
    assert_eq!(kernel("ivy-bridge-2s").to_string(), "eevdf+numa-balancing", "two memory nodes");
    assert_eq!(kernel("nehalem-i7-920").to_string(), "eevdf", "one");
}
