use super::*;
use crate::app::{Curve, Phase, Private, embedded};
use crate::flat_machine;
use crate::kernel::Kernel;
use crate::occupancy::Replacement;
use crate::scenario::Scenario;
use crate::world::World;
use cotenant_model::Time;
use cotenant_model::signal::Signal;
use proptest::prelude::*;

const MACHINE: &str = "\
name = 'example'
cores = 8
clock_ghz = 2.0
llc_bytes = 20971520
llc_ns = 25
memory_ns = 82
memory_gbs = 60
replacement = 'random'";

fn parsed(text: &str) -> SimMachine {
    SimMachine::new(&flat_machine::parse(text).unwrap()).unwrap()
}

fn machine(replacement: Replacement) -> SimMachine {
    SimMachine { replacement, ..parsed(MACHINE) }
}

/// With other bandwidth, GB/s.
fn with_gbs(machine: SimMachine, gbs: f64) -> SimMachine {
    let mut machine = machine;
    (machine.stations[0].low, machine.stations[0].high) = (gbs * 1e9, gbs * 1e9);
    machine
}

fn program(name: &str) -> &'static Phase {
    &embedded()[name].phases[0]
}

fn slowdowns(machine: &SimMachine, programs: &[&Phase]) -> Vec<f64> {
    let alone = |w: &&Phase| steady(machine, &[*w]).unwrap().shares[0].cpi;
    let together = steady(machine, programs).unwrap();
    programs.iter().zip(&together.shares).map(|(w, s)| s.cpi / alone(w)).collect()
}

/// Accesses every one of `lines` lines equally often: half of them held, half of the accesses miss.
fn uniform(lines: f64, apki: f64) -> Phase {
    let bytes = lines * LINE;
    Phase {
        cpi: 1.0,
        llc_apki: apki,
        llc_mlp: 1e6,
        mlp: 1e6,
        footprint_bytes: bytes,
        writeback_ratio: 0.0,
        private_bytes: None,
        miss_ratio: Curve::new(vec![(bytes * 1e-3, 0.999), (bytes, 0.0)]).unwrap(),
        ..program("mcf06").clone()
    }
}

/// Co-run miss ratios against a cache that is really simulated: 1,024 sets of 16 ways, two tenants with uniform
/// accesses to 12,000 and 20,000 lines, the second twice as often.
/// Promise sim/exact: Long time steps agree with short ones within 1 %, and miss ratios with an exactly simulated
/// cache within 0.05.
#[test]
fn both_replacements_agree_with_an_exact_cache() {
    const SETS: usize = 1024;
    const WAYS: usize = 16;
    let (lines, apki) = ([12_000.0, 20_000.0], [10.0, 20.0]);
    let programs = [uniform(lines[0], apki[0]), uniform(lines[1], apki[1])];
    for replacement in [Replacement::Random, Replacement::Lru] {
        let mut machine = SimMachine { lines_in_flight: 1e9, ..with_gbs(machine(replacement), 1e9) };
        machine.caches[0].bytes = (SETS * WAYS) as f64 * LINE;
        let model = steady(&machine, &[&programs[0], &programs[1]]).unwrap();

        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) % below
        };
        // Least recently used first; which set a line maps to is a hash, as on the hardware.
        let mut sets: Vec<Vec<u64>> = vec![Vec::new(); SETS];
        let (mut accesses, mut misses) = ([0.0; 2], [0.0; 2]);
        for step in 0..1_200_000 {
            let tenant = usize::from(random(3) > 0);
            let line = random(lines[tenant] as u64) << 1 | tenant as u64;
            let set = &mut sets[(line.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40) as usize % SETS];
            let held = set.iter().position(|l| *l == line);
            match held {
                Some(at) => drop(set.remove(at)),
                None if set.len() == WAYS => {
                    let victim = if replacement == Replacement::Random { random(WAYS as u64) as usize } else { 0 };
                    set.remove(victim);
                }
                None => {}
            }
            set.push(line);
            if step >= 400_000 {
                accesses[tenant] += 1.0;
                misses[tenant] += f64::from(u8::from(held.is_none()));
            }
        }
        for tenant in 0..2 {
            let (exact, ours) = (misses[tenant] / accesses[tenant], model.shares[tenant].miss_ratio);
            assert!((exact - ours).abs() < 0.05, "{replacement:?}, tenant {tenant}: exact {exact:.3}, model {ours:.3}");
        }
    }
}

/// 2,048 lines that a program uses all the time in its private cache, beside a stream through an inclusive cache of
/// 16,384 lines that is really simulated: it does not see them used, so evicts them like any other, and they come
/// again. As often, to 3 %, as the model says.
#[test]
fn an_inclusive_cache_takes_lines_from_private_ones() {
    const LINES: usize = 16_384;
    const USED: usize = 2_048;
    for replacement in [Replacement::Random, Replacement::Lru] {
        let mut random = fastrand::Rng::with_seed(3);
        // Lines in order of arrival; whether each is used.
        let mut cache: std::collections::VecDeque<bool> = (0..LINES).map(|i| i % 8 == 0).collect();
        let mut again = 0;
        for _ in 0..40 * LINES {
            let mut comes = false;
            loop {
                let oldest = replacement == Replacement::Lru;
                let victim = if oldest { cache.pop_front() } else { cache.swap_remove_back(random.usize(..LINES)) };
                cache.push_back(comes);
                comes = victim.unwrap();
                if !comes {
                    break;
                }
                again += 1;
            }
        }
        let exact = f64::from(again) / (40 * LINES) as f64;

        let bytes = USED as f64 * LINE;
        let mut machine = SimMachine { lines_in_flight: 1e9, ..with_gbs(machine(replacement), 1e9) };
        machine.caches[0].bytes = LINES as f64 * LINE;
        machine.private = Some(Private { bytes, inclusive: true, in_use: 1.0 });
        let quiet = Phase { llc_apki: 1e-9, private_bytes: Some(bytes), footprint_bytes: 1.0, ..uniform(10.0, 1.0) };
        let stream = Phase { miss_ratio: Curve::new(vec![(1e9, 1.0)]).unwrap(), ..uniform(1e6, 50.0) };
        let shares = steady(&machine, &[&quiet, &stream]).unwrap().shares;
        let ours = shares[0].gbs / shares[1].gbs;
        assert!((ours / exact - 1.0).abs() < 0.03, "{replacement:?}: exact {exact:.4}, model {ours:.4}: {shares:?}");
    }
}

/// A scenario settles at the steady state of the mix, also where private caches lose lines to an inclusive one.
#[test]
fn a_scenario_comes_to_the_steady_state() {
    let names = ["gobmk06", "povray06", "mcf06", "lbm06", "milc06", "soplex06", "sjeng06", "omnetpp06"];
    let programs = names.map(program);
    for more in ["inclusive = false", "inclusive = true\nprivate_in_use = 0", "inclusive = true\nprivate_in_use = 1"] {
        let text = format!("{MACHINE}\n{more}");
        let apps = names.map(|name| format!("[[app]]\nprogram = '{name}'\nwork_s = 100\n")).concat();
        let read = |_: &str| flat_machine::parse(&text).map_err(|e| e.to_string());
        let mut scenario = Scenario::parse(&format!("machine = 'm'\n{apps}"), read).unwrap();
        scenario.apps.iter_mut().enumerate().for_each(|(i, app)| app.pinned = Some(vec![i]));
        let mut world = World::new(scenario.sim, scenario.apps, Kernel::new("eevdf".parse().unwrap()), 1);
        let mut counts = [[0.0; 8]; 2];
        for (until, counts) in [1, 2].into_iter().zip(&mut counts) {
            world.advance(Time(until * 1_000_000_000), false).unwrap();
            *counts = std::array::from_fn(|i| world.threads[i].counts[Signal::Instructions as usize]);
        }
        let state = steady(&parsed(&text), &programs).unwrap();
        for i in 0..8 {
            let (cpi, expected) = (2e9 / (counts[1][i] - counts[0][i]), state.shares[i].cpi);
            assert!((cpi / expected - 1.0).abs() < 0.02, "{more}, {}: {cpi}, a mix has {expected}", names[i]);
        }
    }
}

/// Sixteen lines under way at 82 ns are 12.5 GB/s: no program that reads only can have more.
#[test]
fn a_core_has_no_more_lines_under_way_than_it_can() {
    let stream = Phase { llc_apki: 500.0, miss_ratio: Curve::new(vec![(1e9, 1.0)]).unwrap(), ..uniform(1e6, 1.0) };
    let share = steady(&machine(Replacement::Random), &[&stream]).unwrap();
    assert!(share.shares[0].gbs <= 16.0 * 64.0 / 82.0, "{share:?}");
}

/// lbm streams: on the measured machine a miss costs it half a cycle. 80 ns more are hidden no further than sixteen
/// lines reach.
#[test]
fn prefetching_hides_only_the_latency_that_it_was_measured_with() {
    let lbm = program("lbm06");
    let alone = |ns: &str| {
        let machine = with_gbs(parsed(&MACHINE.replace("memory_ns = 82", &format!("memory_ns = {ns}"))), 1e9);
        steady(&SimMachine { private: None, ..machine }, &[lbm]).unwrap().shares[0]
    };
    let (near, far) = (alone("82"), alone("162"));
    let misses = lbm.llc_apki / 1000.0 * near.miss_ratio;
    let expected = misses * 80.0 * 2.0 / 16.0; // cycles at 2 GHz
    assert!(lbm.mlp > 100.0 && ((far.cpi - near.cpi) / expected - 1.0).abs() < 1e-3, "{near:?} {far:?}");
}

#[test]
fn two_equal_programs_share_equally() {
    let mcf = program("mcf06");
    for replacement in [Replacement::Random, Replacement::Lru] {
        let state = steady(&machine(replacement), &[mcf, mcf]).unwrap();
        assert!((state.shares[0].held / state.shares[1].held - 1.0).abs() < 1e-9, "{state:?}");
        assert!((state.shares[0].held / 10_485_760.0 - 1.0).abs() < 0.01, "{state:?}");
    }
}

/// Holds run/wrong-input.
#[test]
fn wrong_machines_and_mixes_are_refused() {
    let wrong = |from: &str, to: &str| flat_machine::parse(&MACHINE.replace(from, to)).unwrap_err().to_string();
    assert_eq!(wrong("memory_gbs = 60", "memory_gbs = 0"), "7:14: memory_gbs is 0; it must be a number above 0");
    assert_eq!(wrong("memory_ns = 82", "memory_ns = nan"), "6:13: memory_ns is NaN; it must be a number above 0");
    assert_eq!(wrong("clock_ghz = 2.0", "clock_ghz = -2.0"), "3:13: clock_ghz is -2; it must be a number above 0");
    assert!(
        wrong("llc_ns", "llc_nanos").starts_with("5:1: unknown field `llc_nanos`"),
        "{}",
        wrong("llc_ns", "llc_nanos")
    );
    let mcf = program("mcf06");
    assert!(matches!(steady(&machine(Replacement::Lru), &[mcf; 9]), Err(MixError::TooMany { programs: 9, cores: 8 })));
    assert!(matches!(steady(&machine(Replacement::Lru), &[]), Err(MixError::Empty)));
}

/// Random mixes of 2 to 8 programs on caches of 4 to 64 MB and memories of 10 to 100 GB/s, every second one inclusive,
/// with private caches of 32 KiB to 2 MiB: each settles, and soon.
#[test]
fn every_mix_settles() {
    let mut random = fastrand::Rng::with_seed(1);
    let all: Vec<&Phase> = embedded().values().map(|p| &p.phases[0]).collect();
    for mix in 0..2_000 {
        let mut machine = parsed(MACHINE);
        machine.replacement = if random.bool() { Replacement::Lru } else { Replacement::Random };
        machine.caches[0].bytes = 4e6 * 16_f64.powf(random.f64());
        if mix % 2 == 1 {
            let bytes = 32_768.0 * 64_f64.powf(random.f64());
            machine.private = Some(Private { bytes, inclusive: true, in_use: random.f64() });
        }
        let machine = with_gbs(machine, 10.0 * 10_f64.powf(random.f64()));
        let programs: Vec<&Phase> = (0..random.usize(2..=8)).map(|_| all[random.usize(..all.len())]).collect();
        let state = steady(&machine, &programs).unwrap_or_else(|e| panic!("mix {mix}: {e}"));
        let held: f64 = state.shares.iter().map(|s| s.held).sum();
        // A working set that fits into private caches leaves an inclusive one empty.
        let least = if mix % 2 == 0 { 0.999 } else { 0.0 };
        assert!((least..1.001).contains(&(held / machine.caches[0].bytes)), "mix {mix}: {state:?}");
    }
}

/// However fast a cache changes hands, lines come again no faster than one after the other, and each once in the time
/// for which it stays at the most.
#[test]
fn lines_come_again_at_the_pace_of_memory_at_most() {
    for lasts_s in [1e-9, 1e-6, 1e-3, 0.1] {
        let per_s = again_per_s(8_192.0 * LINE, lasts_s, 1e-7);
        assert!(per_s < 1e7 && per_s < 8_192.0 / lasts_s, "{lasts_s}: {per_s}");
        // The remaining time is the program's own: as long as its lines last.
        let own = 1.0 - per_s * 1e-7;
        assert!((own / (lasts_s / (lasts_s + 8_192.0 * 1e-7)) - 1.0).abs() < 1e-6, "{lasts_s}: {own}");
    }
}

/// Copies share alike: each is where it would be with its part of the cache and all the traffic of memory.
#[test]
fn eight_copies_are_each_on_an_eighth_of_the_cache() {
    for name in ["mcf06", "lbm06", "omnetpp06", "twolf00", "libquantum06"] {
        let p = program(name);
        let whole = with_gbs(machine(Replacement::Random), 1e9);
        let together = steady(&whole, &[p; 8]).unwrap();
        let mut eighth = whole.clone();
        eighth.caches[0].bytes /= 8.0;
        let alone = steady(&eighth, &[p]).unwrap().shares[0];
        for share in &together.shares {
            assert!((share.cpi / alone.cpi - 1.0).abs() < 2e-3, "{name}: {share:?} {alone:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A steady state conserves bytes and bandwidth, no program gains by company, and the order of naming does not
    /// matter.
    /// Promise sim/conserves: Simulated nodes, caches and mixes stay within bandwidth and capacity; equivalent CPUs
    /// are equivalent, and a co-runner without shared data never helps.
    #[test]
    fn a_steady_state_conserves_and_never_helps(picks in prop::collection::vec(0..55_usize, 2..=8), lru: bool, gbs in 10.0..100.0_f64) {
        let replacement = if lru { Replacement::Lru } else { Replacement::Random };
        let machine = with_gbs(machine(replacement), gbs);
        let programs: Vec<&Phase> = picks.iter().map(|i| &embedded().values().nth(*i).unwrap().phases[0]).collect();
        let state = steady(&machine, &programs).unwrap();
        prop_assert!(state.shares.iter().map(|s| s.held).sum::<f64>() <= machine.caches[0].bytes * (1.0 + 1e-4));
        prop_assert!(state.shares.iter().map(|s| s.gbs).sum::<f64>() <= gbs * (1.0 + 1e-6));
        let slow = slowdowns(&machine, &programs);
        prop_assert!(slow.iter().all(|s| *s >= 1.0 - 1e-3), "{slow:?}");

        let reversed: Vec<&Phase> = programs.iter().rev().copied().collect();
        let mut back = slowdowns(&machine, &reversed);
        back.reverse();
        prop_assert!(slow.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-3), "{slow:?} {back:?}");
    }
}

/// A core alone clocks a fifth higher, beside three others not at all: a compute-bound program is 1.2 times as slow, a
/// memory-bound one less.
/// Holds sim/time.
#[test]
fn alone_and_together_have_their_own_clock() {
    let steps = parsed(&format!("{MACHINE}\nturbo = [1.2, 1.1, 1.0]"));
    let still = parsed(MACHINE);
    let cpu = program("cpu");
    let of = |machine: &SimMachine, n: usize| slowdowns(machine, &vec![cpu; n])[0];
    assert!((of(&steps, 4) - 1.2).abs() < 1e-9 && (of(&steps, 2) - 1.2 / 1.1).abs() < 1e-9);
    assert_eq!(of(&still, 4), 1.0);
    let waits = slowdowns(&steps, &[program("mcf06"), cpu, cpu, cpu])[0];
    assert!(waits > 1.01 && waits < 1.19, "{waits}");
    for wrong in ["[]", "[0.0]", "[1.0, 11.0]", "[nan]"] {
        let machine = flat_machine::parse(&format!("{MACHINE}\nturbo = {wrong}")).unwrap();
        let error = SimMachine::new(&machine).unwrap_err().to_string();
        assert!(error.contains("turbo must be clocks over clock_hz"), "{error}");
    }
}
