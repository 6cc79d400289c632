//! Properties of a machine in motion: determinism, conservation, symmetry, monotonicity, and agreement with the steady
//! state.

use super::{pinned, scenario, times, world};
use crate::app::embedded;
use crate::kernel::{Kernel, KernelKind};
use crate::machine::SimMachine;
use crate::mix::steady;
use crate::optimum::Limits;
use crate::run::mean_progress;
use crate::world::World;
use cotenant_model::Time;
use cotenant_model::machine::Machine;
use cotenant_model::signal::Signal;
use cotenant_policies::None as NoPolicy;
use fastrand::Rng;
use proptest::prelude::*;

const BUSY: &str = "\
machine = 'ivy-bridge-2s'
observation = { noise = 0.05, gaps = 0.1 }
[[app]]
program = 'membench'
threads = 12
work_s = 0.5
[[app]]
program = 'hubench'
threads = 8
[[app]]
program = 'sgd'
threads = 30
arrival_s = 0.3
runs = 2
work_s = 0.5
";

/// Promise sim/seed: The same seed gives the same samples and results, and latencies are those of the requests of all
/// seeds.
#[test]
fn the_same_seed_gives_the_same_samples_and_outcome() {
    let s = scenario(BUSY);
    let run = |name: &str, seed: u64| {
        let mut samples = Vec::new();
        let kernel = "cache-aware+numa-balancing".parse().unwrap();
        let policy = cotenant_policies::standard().make(name, &s.config).unwrap();
        let outcome = s.run(&*policy, kernel, seed, |r| samples.push(r.sample.clone())).unwrap();
        (outcome, samples)
    };
    for name in ["sam", "numad", "dino", "auto", "fifo", "das"] {
        let first = run(name, 3);
        assert!(!first.1.is_empty(), "{name} saw nothing");
        assert_eq!(first, run(name, 3), "{name}");
        assert_ne!(first, run(name, 4), "{name}");
    }
}

/// The names of programs of all kinds: measured ones, kernels, sharing ones with barriers and phases.
fn program(pick: usize) -> &'static str {
    embedded().keys().nth(pick % embedded().len()).map(String::as_str).unwrap_or_default()
}

fn random_scenario(machine: &str, apps: &[(usize, usize, f64)]) -> String {
    let one = |(pick, threads, work): &(usize, usize, f64)| {
        format!("[[app]]\nprogram = '{}'\nthreads = {threads}\nwork_s = {work}\n", program(*pick))
    };
    format!("machine = '{machine}'\n{}", apps.iter().map(one).collect::<String>())
}

fn check_conservation(world: &World) -> Result<(), TestCaseError> {
    let seconds = world.now().as_secs_f64();
    for (node, bytes) in world.node_bytes.iter().enumerate() {
        let most = world.machine.stations[node].high * seconds;
        prop_assert!(*bytes <= most * (1.0 + 1e-6), "node {node}: {bytes} of {most} bytes");
    }
    for (domain, held) in world.held().into_iter().enumerate() {
        let capacity = world.machine.caches[domain].bytes;
        prop_assert!((0.0..=capacity * (1.0 + 1e-9)).contains(&held), "cache {domain}: {held} of {capacity}");
    }
    for app in world.apps.iter().filter(|a| a.times.is_empty()) {
        for t in world.threads[app.threads.clone()].iter().filter(|t| t.exists) {
            let (counted, done) = (t.counts[Signal::Instructions as usize], app.spec.instructions - t.left);
            prop_assert!((counted - done).abs() <= 1e-6 * app.spec.instructions, "{counted} counted, {done} done");
        }
    }
    for (cpu, busy) in world.busy_ns.iter().enumerate() {
        prop_assert!(*busy <= world.now().0 as f64 * (1.0 + 1e-9), "CPU {cpu} was busy for {busy} ns");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// At every instant: no node has delivered more than its bandwidth, no cache holds more than its capacity, what
    /// is counted was executed, and no CPU was busy for longer than time passed.
    /// Holds sim/conserves.
    #[test]
    fn a_running_machine_conserves(
        apps in prop::collection::vec((0..71_usize, 1..7_usize, 0.05..0.4_f64), 1..5), seed: u64, kernel in 0..4_usize, narrow: bool,
    ) {
        let kernel = ["eevdf", "cache-aware", "eevdf+numa-balancing", "cache-aware+numa-balancing"][kernel];
        let s = scenario(&random_scenario(if narrow { "narrow" } else { "two" }, &apps));
        let mut world = world(&s, kernel, seed);
        while !world.is_done() {
            let until = Time(world.now().0 + 7_300_000);
            world.advance(until, false).unwrap();
            check_conservation(&world)?;
            prop_assert!(world.now() < s.end);
        }
    }

    /// A mapping, and the same on other names of equivalent CPUs, cores shuffled inside their packages and packages
    /// exchanged: equal times.
    /// Holds sim/conserves.
    #[test]
    fn mirrored_mappings_take_equally_long(apps in prop::collection::vec((0..71_usize, 1..3_usize, 0.1..0.3_f64), 1..4), seed: u64) {
        let s = scenario(&random_scenario("two", &apps));
        let mut order: Vec<usize> = (0..8).collect();
        Rng::with_seed(seed).shuffle(&mut order);
        let mut next = order.iter();
        let mapping: Vec<Vec<usize>> = apps.iter().map(|a| next.by_ref().take(a.1).copied().collect()).collect();
        let (mut first, mut second) = ([0, 1, 2, 3], [0, 1, 2, 3]);
        Rng::with_seed(seed ^ 1).shuffle(&mut first);
        Rng::with_seed(seed ^ 2).shuffle(&mut second);
        let renamed = |cpu: &usize| if *cpu < 4 { 4 + first[*cpu] } else { second[*cpu - 4] };
        let mirror: Vec<Vec<usize>> = mapping.iter().map(|m| m.iter().map(renamed).collect()).collect();
        let take = |m: &[Vec<usize>]| {
            let s = pinned(&s, &m.iter().map(Vec::as_slice).collect::<Vec<_>>());
            times(world(&s, "eevdf", 1), &s)
        };
        for (one, other) in take(&mapping).iter().zip(take(&mirror)) {
            prop_assert!((one / other - 1.0).abs() < 1e-6, "{one} {other} {mapping:?}");
        }
    }

    /// A second program never makes the first one faster: whatever they share, it is not data.
    /// Holds sim/conserves.
    #[test]
    fn a_co_runner_never_helps(
        first in (0..71_usize, 1..5_usize, 0.1..0.5_f64), second in (0..71_usize, 1..5_usize, 0.1..0.5_f64), seed: u64,
    ) {
        let mut order: Vec<usize> = (0..8).collect();
        Rng::with_seed(seed).shuffle(&mut order);
        let (own, rest) = order.split_at(first.1);
        let take = |apps: &[(usize, usize, f64)]| {
            let s = pinned(&scenario(&random_scenario("two", apps)), &[own, &rest[..second.1.min(rest.len())]]);
            times(world(&s, "eevdf", 1), &s)[0]
        };
        let (alone, together) = (take(&[first]), take(&[first, second]));
        prop_assert!(together >= alone * (1.0 - 1e-3), "{alone} s alone, {together} s together");
    }

    /// Steps that grow as the machine settles give what steps of a millisecond give.
    /// Holds sim/exact.
    #[test]
    fn long_steps_agree_with_short_ones(
        apps in prop::collection::vec((0..71_usize, 1..5_usize, 0.3..1.0_f64), 1..4), seed in 0..100_u64,
    ) {
        let s = scenario(&random_scenario("two", &apps));
        let take = |longest: Option<u64>| {
            let mut world = world(&s, "eevdf", seed);
            world.longest = longest.unwrap_or(world.longest);
            times(world, &s)
        };
        for (own, fine) in take(None).iter().zip(take(Some(1_000_000))) {
            prop_assert!((own / fine - 1.0).abs() < 0.005, "{own} s with long steps, {fine} s with short ones");
        }
    }
}

/// Steady state and machine in motion are one model: the machine settles at the steady state's speed.
/// Holds sim/exact.
#[test]
fn a_program_alone_settles_at_its_steady_state() {
    let text = super::shared::MACHINE
        .replace("package:2 [numa] l3:1(size=20MiB) core:4", "package:1 [numa] l3:1(size=20MiB) core:1")
        .replace(", remote_ns = 60, link_gbs = 15", "");
    let machine = || Machine::parse(&text).map_err(|e| e.to_string());
    let sim = SimMachine::new(&machine().unwrap()).unwrap();
    let single = embedded().iter().filter(|(_, p)| p.phases.len() == 1);
    for (name, program) in single {
        let text = format!("machine = 'one'\n[[app]]\nprogram = '{name}'\nwork_s = 2000\n");
        let s = crate::scenario::Scenario::parse(&text, |_| machine()).unwrap();
        let mut world = world(&s, "eevdf", 1);
        let at = |world: &World| world.threads[0].counts[Signal::Instructions as usize];
        world.advance(Time(60_000_000_000), false).unwrap();
        let before = at(&world);
        world.advance(Time(61_000_000_000), false).unwrap();
        let steady = steady(&sim, &[&program.phases[0]]).unwrap().shares[0];
        let (moving, resting) = (at(&world) - before, sim.clock_hz / steady.cpi);
        assert!((moving / resting - 1.0).abs() < 0.01, "{name}: {moving:.4e} in motion, {resting:.4e} at rest");
    }
}

/// 3·10⁹ instructions of 2 cycles each at 2 GHz take 3 s, regardless of applications that arrive later.
#[test]
fn alone_a_program_takes_what_its_instructions_take() {
    let s = scenario(
        "machine = 'two'\n[program.counts]\ncpi = 2\nllc_apki = 0\nfootprint_bytes = 1e4\nmiss_ratio = [[1e3, 0.0]]\n[[app]]\nprogram = 'counts'\ninstructions = 3e9\narrival_s = 1\nruns = 2\n\
         [[app]]\nprogram = 'lbm06'\nthreads = 8\nwork_s = 1\n",
    );
    let alone = s.alone(0, s.kernel, 1).unwrap();
    assert!((alone / 3.0 - 1.0).abs() < 1e-3, "{alone}");
}

/// Each round 3·10⁸ instructions of a cycle and 10⁸ of five: 8·10⁸ cycles, 0.4 s at 2 GHz.
#[test]
fn phases_last_for_their_instructions() {
    let phase = |instructions: f64, cpi: u32| {
        format!(
            "[[program.p.phase]]\ninstructions = {instructions:e}\ncpi = {cpi}\nllc_apki = 0\nfootprint_bytes = 1e4\nmiss_ratio = [[1e3, 0.0]]\n"
        )
    };
    let s = scenario(&format!(
        "machine = 'two'\n{}{}[[app]]\nprogram = 'p'\ninstructions = 8e8\n",
        phase(3e8, 1),
        phase(1e8, 5)
    ));
    let seconds = s.alone(0, s.kernel, 1).unwrap();
    assert!((seconds / 0.8 - 1.0).abs() < 1e-3, "two rounds in {seconds} s");
}

/// Holds place/classes.
#[test]
fn no_static_mapping_beats_the_optimum() {
    let s = scenario(
        "machine = 'two'\n[[app]]\nprogram = 'mcf06'\nthreads = 2\nwork_s = 0.3\n[[app]]\nprogram = 'lbm06'\nthreads = 2\nwork_s = 0.3\n\
         [[app]]\nprogram = 'hubench'\nthreads = 2\nwork_s = 0.3\n",
    );
    let alone: Vec<f64> = (0..3).map(|a| s.alone(a, s.kernel, 1).unwrap()).collect();
    let (best, outcome) = s.optimal(&alone, Limits { classes: 10_000, evaluations: 10_000 }, &[], 1).unwrap();
    assert_eq!((best.starts, best.value), (0, mean_progress(&alone, &outcome)), "all classes were evaluated");
    let mut rng = Rng::with_seed(7);
    let (mut order, mut values) = ((0..8).collect::<Vec<usize>>(), Vec::new());
    for _ in 0..40 {
        rng.shuffle(&mut order);
        let s = pinned(&s, &[&order[..2], &order[2..4], &order[4..6]]);
        values.push(mean_progress(&alone, &s.run(&NoPolicy, s.kernel, 1, |_| ()).unwrap()));
    }
    let highest = values.iter().copied().fold(0.0, f64::max);
    assert!(values.iter().all(|v| *v <= best.value * (1.0 + 1e-6)), "{} is better than {}", highest, best.value);
    assert!(values.iter().any(|v| *v < highest * 0.99), "where threads stand matters here: {values:?}");
}

/// What `workloads/sharing.toml` derives its figures from: under Linux, each of SAM's sharing programs has about so
/// many inter-socket coherence events per unhalted cycle, and thus passes SAM's threshold of 2.5e-4.
#[test]
fn sharing_programs_have_the_rates_that_they_are_derived_from() {
    for (name, rate) in [("sgd", 5.7e-4), ("rbm", 2.8e-4), ("canneal", 2.6e-4), ("bodytrack", 2.6e-4)] {
        let s = scenario(&format!("machine = 'ivy-bridge-2s'\n[[app]]\nprogram = '{name}'\nthreads = 10\n"));
        let mut w = World::new(s.sim.clone(), s.apps.clone(), Kernel::new(KernelKind::EEVDF), 1);
        w.advance(Time::from_millis(1_000), false).unwrap();
        let sum = |signal: Signal| w.threads.iter().map(|t| t.counts[signal as usize]).sum::<f64>();
        let seen = sum(Signal::Inter) / sum(Signal::Cycles);
        assert!((seen / rate - 1.0).abs() < 0.2, "{name}: {seen:.2e} per cycle, derived from {rate:.2e}");
    }
}

/// One second of work at the nominal clock, on cores that are faster by a half alone, by a quarter with another of
/// their package, and not with more. Those of the other package do not count.
/// Holds sim/time.
#[test]
fn the_clock_is_that_of_as_many_working_cores() {
    let apps = "[[app]]\nprogram = 'cpu'\nwork_s = 1\n".repeat(4);
    let mut s = scenario(&format!("machine = 'two'\n{apps}"));
    std::sync::Arc::make_mut(&mut s.sim).turbo = vec![1.5, 1.25, 1.0];
    let (core, package) = (s.sim.topology.cores()[0].clone(), s.sim.topology.packages()[0].clone());
    assert_eq!((core.len(), package.len()), (1, 4), "CPUs 0 to 3 are a package of four cores");
    let cases: [([usize; 4], f64); 3] = [([0, 4, 1, 5], 1.25), ([0, 1, 2, 3], 1.0), ([0, 1, 2, 4], 1.0)];
    for (cpus, clock) in cases {
        let cpus = cpus.map(|cpu| [cpu]);
        let places: Vec<&[usize]> = cpus.iter().map(|c| &c[..]).collect();
        let seconds = times(world(&pinned(&s, &places), "eevdf", 1), &s)[0];
        assert!((seconds * clock - 1.0).abs() < 0.01, "{places:?}: {seconds}");
    }
    s.apps.truncate(1);
    let alone = times(world(&pinned(&s, &[&[0]]), "eevdf", 1), &s)[0];
    assert!((alone * 1.5 - 1.0).abs() < 0.01, "{alone}");
}

/// Three of four lines come ahead: as fast, as many lines over the bus, a quarter of the misses.
#[test]
fn what_is_fetched_ahead_is_traffic_and_no_miss() {
    let counts = |ahead: f64| {
        let s = scenario(&format!(
            "machine = 'two'\n[program.p]\ncpi = 1\nllc_apki = 20\nmlp = 4\nfootprint_bytes = 1e9\nmiss_ratio = [[64, 1.0]]\n\
             prefetched = {ahead}\n[[app]]\nprogram = 'p'\nwork_s = 0.5\n"
        ));
        let mut world = world(&s, "eevdf", 1);
        world.advance(s.end, false).unwrap();
        let all = [Signal::LlcMisses, Signal::LlcHits, Signal::BusTransactions];
        (all.map(|signal| world.threads[0].counts[signal as usize]), world.report()[0].times_s[0])
    };
    let (([misses, hits, bus], time), ([fewer, more, same], as_long)) = (counts(0.0), counts(0.75));
    assert!(misses > 1e6 && hits < 1.0, "{misses} misses, {hits} hits");
    assert!((fewer / misses - 0.25).abs() < 1e-9 && (more / misses - 0.75).abs() < 1e-3, "{fewer} misses, {more} hits");
    assert_eq!((bus, time), (same, as_long));
}
