//! Properties of caches that several cores share before the last one.

use super::{pinned, world};
use crate::machine::SimMachine;
use crate::scenario::Scenario;
use crate::world::World;
use cotenant_model::machine::Machine;
use cotenant_model::signal::Signal;
use cotenant_model::{CpuId, Time};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Two packages of two modules of two cores: 2 MiB per module, 8 MiB per package.
const MACHINE: &str = "\
name = 'modules'
description = 'cores that share an L2 in pairs and an L3 in fours'
source = 'test'
clock_hz = 2e9
topology = { synthetic = 'package:2 [numa] l3:1(size=8MiB) l2:2(size=2MiB) l1d:2(size=32KiB) core:1 pu:1' }
simulator = { memory_gbs = 40, memory_ns = 80, llc_ns = 25, caches = [{ level = 2, ns = 10 }] }";

/// Bytes held of each cache of a shared level before the last.
fn near_held(world: &World, level: usize) -> Vec<f64> {
    let near = &world.machine.near[level];
    let mut held = vec![0.0; near.bytes.len()];
    for t in &world.threads {
        if let Some(cache) = t.cpu.or(t.napping).and_then(|cpu| near.of[cpu]) {
            held[cache] += t.near[level];
        }
    }
    held
}

fn scenario(machine: &str, text: &str) -> Scenario {
    Scenario::parse(&format!("machine = 'm'\n{text}"), |_| Machine::parse(machine).map_err(|e| e.to_string()))
        .unwrap_or_else(|e| panic!("{e}"))
}

fn sim(text: &str) -> Result<SimMachine, String> {
    SimMachine::new(&Machine::parse(text).map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

#[test]
fn levels_are_read_and_wrong_figures_are_refused() {
    let m = sim(MACHINE).unwrap();
    let near = &m.near[0];
    assert_eq!((m.near.len(), near.level, near.hit_s), (1, 2, 10e-9));
    assert_eq!(near.of, [0, 0, 1, 1, 2, 2, 3, 3].map(Some));
    assert_eq!(near.bytes, [2_097_152.0; 4]);
    assert_eq!(m.private.map(|p| (p.bytes, p.inclusive)), Some((32_768.0, false)), "the L1");
    assert!(m.guesses.iter().all(|g| !g.contains("level 2")), "{:?}", m.guesses);
    let code = sim(&MACHINE.replace("l1d:2", "l2i:1(size=1MiB) l1d:2").replace("core:1", "l1i:1(size=64KiB) core:1"));
    let code = code.unwrap();
    assert_eq!((code.near, code.private), (m.near, m.private), "caches of instructions hold no data");
    let guessed = sim(&MACHINE.replace(", caches = [{ level = 2, ns = 10 }]", "")).unwrap();
    assert!(guessed.guesses.contains(&"ns of level 2 = 10".to_owned()), "{:?}", guessed.guesses);
    for (from, to, message) in [
        ("ns = 10", "ns = 0", "6:89: ns of level 2 of the simulator is 0; it must be above 0"),
        ("ns = 10", "gbs = nan", "6:90: gbs of level 2 of the simulator is NaN; it must be above 0"),
        (
            "level = 2",
            "level = 3",
            "6:71: caches of the simulator name level 3; levels that cores share before the last one, in the topology: 2",
        ),
    ] {
        assert_eq!(sim(&MACHINE.replace(from, to)).unwrap_err(), message);
    }
    assert!(sim(&MACHINE.replace("ns = 10", "nanos = 10")).unwrap_err().contains("unknown field `nanos`"));
    // Private second levels, and the last level itself, are no shared levels before the last.
    for other in ["ivy-bridge-2s", "clovertown-2s", "x3320"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../machines/{other}.toml"));
        assert!(sim(&std::fs::read_to_string(path).unwrap()).unwrap().near.is_empty(), "{other}");
    }
}

/// A program that reads `bytes` repeatedly, all lines equally often, one after the other.
fn reader(name: &str, bytes: f64) -> String {
    format!(
        "[program.{name}]\ncpi = 1\nllc_apki = 100\nfootprint_bytes = {bytes:e}\nmiss_ratio = [{}]\n",
        (1..=32)
            .map(|i| format!("[{:e}, {}]", bytes * f64::from(i) / 32.0, 1.0 - f64::from(i) / 32.0))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// Nanoseconds per access beyond computation of the first application, with warm caches.
fn settled(s: &Scenario, cpus: &[&[usize]]) -> f64 {
    let s = pinned(s, cpus);
    let mut world = world(&s, "eevdf", 1);
    let done = |w: &World| w.threads[0].counts[Signal::Instructions as usize];
    world.advance(Time(1_500_000_000), false).unwrap();
    let before = done(&world);
    world.advance(Time(1_600_000_000), false).unwrap();
    (0.1e9 / (done(&world) - before) - 0.5) / 0.1
}

/// Each level costs its latency: what fits into the module's cache 10 ns, what fits into both one and the other 25
/// ns, the rest the memory's 80.
/// Holds sim/conserves.
#[test]
fn each_level_costs_its_latency() {
    for (mib, expected) in [(1.5, 10.0), (8.0, 0.25 * 10.0 + 0.75 * 25.0), (20.0, 0.1 * 10.0 + 0.4 * 25.0 + 0.5 * 80.0)]
    {
        let text = format!("{}[[app]]\nprogram = 'a'\nwork_s = 20\n", reader("a", mib * 1_048_576.0));
        let got = settled(&scenario(MACHINE, &text), &[&[0]]);
        assert!((got / expected - 1.0).abs() < 0.05, "{mib} MiB: {got} ns per access, not {expected}");
    }
}

/// Where the last level holds what the modules hold, too, it adds nothing to what fits into it: 20 MiB find 8 in
/// both, not 10.
#[test]
fn an_inclusive_last_level_holds_what_is_nearer_too() {
    let inclusive = MACHINE.replace("llc_ns = 25", "llc_ns = 25, inclusive = true");
    let text = format!("{}[[app]]\nprogram = 'a'\nwork_s = 20\n", reader("a", 20.0 * 1_048_576.0));
    let got = settled(&scenario(&inclusive, &text), &[&[0]]);
    let private = 32.0 / 1024.0;
    let (both, expected) = (8.0 - private, 0.1 * 10.0 + (8.0 - private - 2.0) / 20.0 * 25.0);
    let expected = expected + (1.0 - both / 20.0) * 80.0;
    assert!((got / expected - 1.0).abs() < 0.05, "{got} ns per access, not {expected}");
}

/// Two programs of 1.5 MiB each: on one module they evict each other, on two they do not, though they share the last
/// level both times.
/// Holds sim/conserves.
#[test]
fn neighbours_in_a_module_contend() {
    let bytes = 1.5 * 1_048_576.0;
    let text = format!(
        "{}{}[[app]]\nprogram = 'a'\nwork_s = 20\n[[app]]\nprogram = 'b'\nwork_s = 20\n",
        reader("a", bytes),
        reader("b", bytes)
    );
    let s = scenario(MACHINE, &text);
    let (together, apart) = (settled(&s, &[&[0], &[1]]), settled(&s, &[&[0], &[2]]));
    assert!((apart / 10.0 - 1.0).abs() < 0.05, "{apart} ns apart");
    assert!((together / (2.0 / 3.0 * 10.0 + 1.0 / 3.0 * 25.0) - 1.0).abs() < 0.05, "{together} ns together");
}

/// Two that read from one module's cache get what it delivers; from two, twice as much.
/// Holds sim/conserves.
#[test]
fn a_module_delivers_its_bandwidth() {
    let narrow = MACHINE.replace("ns = 10 }", "ns = 10, gbs = 1 }");
    let text = format!("{}[[app]]\nprogram = 'a'\nthreads = 2\nwork_s = 20\n", reader("a", 0.5 * 1_048_576.0));
    let s = scenario(&narrow, &text);
    let lines = |cpus: &[usize]| {
        let s = pinned(&s, &[cpus]);
        let mut world = world(&s, "eevdf", 1);
        world.advance(Time(500_000_000), false).unwrap();
        world.threads.iter().map(|t| t.counts[Signal::PrivateMisses as usize]).sum::<f64>() / 0.5
    };
    let (one, two) = (lines(&[0, 1]), lines(&[0, 2]));
    assert!(one * 64.0 <= 1e9 * (1.0 + 1e-6) && one * 64.0 > 0.9e9, "{one} lines per second");
    assert!((1.7..=2.0).contains(&(two / one)), "{one} lines per second on one module, {two} on two");
}

#[test]
fn a_move_to_another_module_is_paid_for_with_misses() {
    let text = format!("{}[[app]]\nprogram = 'a'\nwork_s = 20\n", reader("a", 1_048_576.0));
    let s = scenario(MACHINE, &text);
    let mut world = world(&pinned(&s, &[&[0]]), "eevdf", 1);
    world.advance(Time(1_000_000_000), false).unwrap();
    let warm = world.threads[0].near[0];
    world.put(0, 1);
    assert!(warm > 0.99 * 1_048_576.0 && world.threads[0].near[0] == warm, "the neighbour's is the same cache");
    let held = world.threads[0].held;
    world.put(0, 2);
    assert_eq!((world.threads[0].near[0], world.threads[0].held), (0.0, held), "another module, the same last level");
    world.put(0, 4);
    assert_eq!((world.threads[0].near[0], world.threads[0].held), (0.0, 0.0), "another package");
}

/// Holds sim/conserves.
#[test]
fn counters_tell_the_levels_apart() {
    let text = format!("{}[[app]]\nprogram = 'a'\nwork_s = 20\n", reader("a", 20.0 * 1_048_576.0));
    let s = scenario(MACHINE, &text);
    let mut world = world(&pinned(&s, &[&[0]]), "eevdf", 1);
    world.advance(Time(1_500_000_000), false).unwrap();
    let before = world.threads[0].counts;
    world.advance(Time(1_600_000_000), false).unwrap();
    let count = |signal: Signal| world.threads[0].counts[signal as usize] - before[signal as usize];
    let per_request = |signal: Signal| count(signal) / count(Signal::PrivateMisses);
    for (signal, part) in
        [(Signal::L2LinesIn, 0.9), (Signal::LlcHits, 0.4), (Signal::LlcMisses, 0.5), (Signal::L3LinesIn, 0.5)]
    {
        assert!((per_request(signal) - part).abs() < 0.01, "{signal}: {} per request", per_request(signal));
    }
}

#[test]
fn linux_spreads_threads_over_modules() {
    let s = scenario(MACHINE, "[[app]]\nprogram = 'cpu'\nthreads = 4\nwork_s = 1\n");
    for seed in 1..=20 {
        let mut world = world(&s, "eevdf", seed);
        world.advance(Time(1_000_000), false).unwrap();
        let modules = world.threads.iter().filter_map(|t| s.sim.near[0].of[t.cpu?]).collect::<BTreeSet<_>>();
        assert_eq!(modules.len(), 4, "seed {seed}");
        (0..4).for_each(|t| world.set_mask(t, [0, 1, 2, 3].map(CpuId).into_iter().collect()));
        world.advance(Time(400_000_000), false).unwrap();
        let mut on: Vec<usize> = world.threads.iter().filter_map(|t| t.cpu).collect();
        on.sort_unstable();
        assert_eq!(on, [0, 1, 2, 3], "seed {seed}");
    }
}

/// What one thread holds of its module's cache, another of the same program there finds, too.
#[test]
fn threads_of_a_program_share_a_module() {
    let of = |shared: f64| {
        let program = reader("a", 3.0 * 1_048_576.0) + &format!("shared = {shared:.1}\n");
        let text = format!("{program}[[app]]\nprogram = 'a'\nthreads = 2\nwork_s = 20\n");
        settled(&scenario(MACHINE, &text), &[&[0, 1]])
    };
    assert!((of(0.0) / (10.0 / 3.0 + 25.0 * 2.0 / 3.0) - 1.0).abs() < 0.05, "{} ns", of(0.0));
    assert!((of(1.0) / (10.0 * 2.0 / 3.0 + 25.0 / 3.0) - 1.0).abs() < 0.05, "{} ns", of(1.0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No cache of any level holds more than its capacity at any instant, no memory delivers more than its bandwidth,
    /// and a second program never helps.
    /// Holds sim/conserves.
    #[test]
    fn levels_conserve(
        first in (0..71_usize, 1..5_usize), second in (0..71_usize, 1..4_usize), lru: bool, inclusive: bool, gbs in 4.0..40.0_f64, seed: u64,
    ) {
        let (replacement, n) = (if lru { "lru" } else { "random" }, first.1);
        let machine = MACHINE
            .replace("llc_ns", &format!("replacement = '{replacement}', inclusive = {inclusive}, llc_ns"))
            .replace("memory_gbs = 40", &format!("memory_gbs = {gbs:.3}"));
        let name = |pick: usize| crate::app::embedded().keys().nth(pick % crate::app::embedded().len()).cloned().unwrap();
        let app = |(pick, threads): (usize, usize)| {
            format!("[[app]]\nprogram = '{}'\nthreads = {threads}\nwork_s = 0.2\n", name(pick))
        };
        let mut order: Vec<usize> = (0..8).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut order);
        let alone = pinned(&scenario(&machine, &app(first)), &[&order[..n]]);
        let both = pinned(&scenario(&machine, &(app(first) + &app(second))), &[&order[..n], &order[n..n + second.1]]);
        let mut times = Vec::new();
        for s in [&alone, &both] {
            let mut world = world(s, "eevdf", 1);
            while !world.is_done() {
                world.advance(Time(world.now().0 + 7_300_000), false).unwrap();
                for held in near_held(&world, 0) {
                    prop_assert!((0.0..=2_097_152.0 * (1.0 + 1e-9)).contains(&held), "{held}");
                }
                for held in world.held() {
                    prop_assert!((0.0..=8_388_608.0 * (1.0 + 1e-9)).contains(&held), "{held}");
                }
                prop_assert!(world.now() < s.end);
            }
            for bytes in &world.node_bytes {
                prop_assert!(*bytes <= gbs * 1e9 * world.now().as_secs_f64() * (1.0 + 1e-3));
            }
            times.push(world.report()[0].times_s[0]);
        }
        prop_assert!(times[1] >= times[0] * (1.0 - 2e-3), "{} s alone, {} s together", times[0], times[1]);
    }
}
