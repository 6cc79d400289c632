//! Demands and counts of threads, worked by hand.

use super::parts::PerInstruction;
use super::*;
use crate::app::{Curve, Pages};
use cotenant_model::CpuId;
use cotenant_model::machine::Machine;

/// Three packages of two L3s of two L2s of two cores of two contexts: CPUs 0-1 are a core, 0-3 an L2, 0-7 an L3,
/// 0-15 a package. Stations: 3 nodes, 9 links, 12 L2s, 6 L3s.
const MACHINE: &str = "\
name = 'm'
description = 'every level shared'
source = 'test'
clock_hz = 1e9
topology = { synthetic = 'package:3 [numa] l3:2(size=8MiB) l2:2(size=1MiB) core:2 pu:2' }
[simulator]
memory_gbs = 40
memory_ns = 100
remote_ns = 50
llc_ns = 20
llc_gbs = 100
caches = [{ level = 2, ns = 8, gbs = 200 }]
coherence_ns = [10, 20, 40]
smt = 0.5
lines_in_flight = 4";

fn program(barrier: bool) -> Arc<Program> {
    let phase = Phase {
        instructions: None,
        cpi: 2.0,
        llc_apki: 100.0,
        llc_mlp: 2.0,
        mlp: 3.0,
        footprint_bytes: 4e6,
        writeback_ratio: 0.25,
        miss_ratio: Curve::new(vec![(1e5, 0.8), (5e5, 0.4), (4.5e6, 0.2)]).unwrap(),
        private_bytes: None,
        prefetched: 0.0,
        row_locality: 0.75,
        coherence_pki: 12.0,
    };
    Arc::new(Program {
        phases: vec![phase],
        shared: 0.5,
        barrier,
        pages: Pages::default(),
        huge_pages: false,
        contended_lines: None,
        threads_anew: None,
        assumed: Vec::new(),
    })
}

/// Application 0 on a core, on the other L2 of its L3, on the other L3 of its package and on two cores of the next
/// package; 1, which serves requests, on a CPU of that and elsewhere; 2 alone.
pub(crate) fn world() -> World {
    let mut machine = SimMachine::new(&Machine::parse(MACHINE).unwrap()).unwrap();
    machine.bus_of = (0..48).map(|cpu| Some(90 + cpu / 16)).collect();
    let spec = |name: &str, threads, barrier| AppSpec::new(name, program(barrier), threads, 1e9);
    let load = Load { requests_per_s: 1e3, instructions: 2e5 };
    let specs = vec![spec("a", 6, true), AppSpec { load: Some(load), ..spec("b", 2, false) }, spec("c", 1, false)];
    let mut world = World::new(Arc::new(machine), specs, Kernel::new("eevdf".parse().unwrap()), 1);
    for (thread, cpu) in [0, 1, 4, 8, 16, 18, 16, 32, 20].into_iter().enumerate() {
        world.stand(thread, Some(cpu));
        (world.threads[thread].exists, world.threads[thread].pages) = (true, vec![0.75, 0.25, 0.0]);
    }
    (world.apps[0].limit, world.apps[2].limit) = (Some(4.5), Some(2.0));
    world.waits.resize(93, 0.0); // with the buses
    world
}

pub(crate) fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Transfers per 1,000 instructions by distance, of 12 that are spread over five partners; nanoseconds without
/// caches and memory; and the time that each may have.
#[test]
fn transfers_contexts_and_limits_by_hand() {
    let mut world = world();
    world.demand();
    for (thread, [intra, near_by, inter], ns, share, limit) in [
        // A sibling computes on the other context, which is no transfer.
        (0, [2.4, 2.4, 4.8], 4.0 + 0.024 + 0.048 + 0.192, 0.75, Some(0.75)),
        (2, [4.8, 2.4, 4.8], 2.0 + 0.048 + 0.048 + 0.192, 0.75, Some(0.75)),
        (3, [0.0, 7.2, 4.8], 2.0 + 0.144 + 0.192, 0.75, Some(0.75)),
        // It gets half of a CPU; the task with the other half is not on a sibling context.
        (4, [2.4, 0.0, 9.6], 2.0 + 0.024 + 0.384, 0.5, Some(0.75)),
        (6, [0.0, 0.0, 12.0], 2.0 + 0.48, 0.5, None),
        // A thread without a partner.
        (8, [0.0; 3], 2.0, 1.0, Some(1.0)),
    ] {
        let (per, demand) = (&world.per[thread], &world.demands[thread]);
        let got = [per.intra, per.near, per.inter, per.busy_s + coherence_s(per)];
        let expected = [intra / 1e3, near_by / 1e3, inter / 1e3, ns / 1e9];
        assert!(got.iter().zip(expected).all(|(a, b)| near(*a, b)), "{thread}: {got:?}, not {expected:?}");
        assert!(near(world.fixed[thread].0, ns / 1e9), "{thread}: {:?}", world.fixed[thread]);
        assert_eq!((demand.share, demand.limit), (share, limit), "{thread}");
        assert_eq!(demand.team, (thread < 6).then_some(0), "{thread}");
    }
    assert_eq!([world.per[0].shared, world.per[8].shared], [0.5, 0.0], "alone nothing is held in common");
}

fn coherence_s(per: &PerInstruction) -> f64 {
    per.intra * 10e-9 + per.near * 20e-9 + per.inter * 40e-9
}

/// The same with caches in use; nothing queues.
fn holding() -> World {
    let mut world = world();
    for (thread, [near, held]) in world.threads.iter_mut().zip([[2e5, 5e5], [1e5, 3e5], [7e5, 4e5], [9e5, 9e5]]) {
        (thread.near, thread.held) = (vec![near], held);
    }
    world.demand();
    world
}

/// What thread 0 asks of each level, and of all that lies between.
#[test]
fn a_thread_by_hand() {
    let mut world = world();
    for (thread, [near, held]) in world.threads.iter_mut().zip([[2e5, 5e5], [1e5, 3e5], [7e5, 4e5], [9e5, 9e5]]) {
        (thread.near, thread.held) = (vec![near], held);
    }
    world.demand();
    let (per, demand) = (&world.per[0], &world.demands[0]);
    // 0.1 lines per instruction. Of the L2 it can use 0.2 MB and half of its sibling's 0.1: 65 % miss. Of the L3
    // 0.5 and half of 0.7, and 0.25 before it: 37 %.
    let expected = [0.1, 0.065, 0.065, 0.037, 0.25, 0.25];
    let got = [per.requests, per.second, per.accesses, per.misses, per.writebacks, per.remote];
    assert!(got.iter().zip(expected).all(|(a, b)| near(*a, b)), "{got:?}");
    assert!(near(per.nearer[0], 2.5e5));
    // Half of 4 MB is its own; of the other half a third, for three of them hold it in the L3, and two in the L2.
    assert!(near(per.bound, 2e6 + 2e6 / 3.0) && near(per.near_bound[0], 3e6), "{per:?}");
    // Hits: 0.035 of 8 ns and 0.028 of 20, two at a time; misses: 0.02775 of 100 ns and 0.00925 of 150, three.
    let base_ns = 4.264 + 0.14 + 0.28 + 0.925 + 0.4625;
    assert!(near(demand.base_s, base_ns / 1e9), "{demand:?}");
    assert!(near(demand.floor_s, (0.02775 * 100.0 + 0.00925 * 150.0) / 4.0 / 1e9), "{demand:?}");
    // Lines, and how many of them wait; a quarter of those from memory is written back.
    let (local, remote) = (0.02775, 0.00925);
    let memory = |station, lines: f64| (station, lines * 1.25, lines / 3.0, lines / 4.0, 0.75);
    let uses = [
        (3 + 1, 0.0048, 0.0048, 0.0, 1.0),             // link 0-1
        (90, 0.0024 + 2.0 * 0.0048, 0.0072, 0.0, 1.0), // bus
        (12, 0.1, 0.035 / 2.0, 0.0, 1.0),              // L2
        (24, 0.065, 0.028 / 2.0, 0.0, 1.0),            // L3
        memory(0, local),
        memory(90, local),
        memory(1, remote),
        memory(3 + 3, remote), // link 1-0
        memory(90, remote),
    ];
    assert_eq!(demand.uses.len(), uses.len(), "{demand:?}");
    for (got, (station, lines, waits, floor, locality)) in demand.uses.iter().zip(uses) {
        let same = [(got.bytes, lines * 64.0), (got.waits, waits), (got.floor, floor), (got.locality, locality)];
        assert!(got.station == station && same.iter().all(|(a, b)| near(*a, *b)), "{got:?}, not {station}: {same:?}");
    }
}

/// 1,000 requests per second of 200,000 instructions, two threads; with a backlog, as fast as they can.
#[test]
fn requests_limit_who_serves_them() {
    let mut world = world();
    for (backlog, cap) in [(0.0, Some(1e8)), (1.0, Some(1e8)), (1.5, None)] {
        world.apps[1].latency.backlog = backlog;
        world.demand();
        assert_eq!((world.demands[6].cap, world.demands[0].cap), (cap, None), "{backlog}");
    }
}

/// 10 ms at 100 M instructions per second. Thread 1 has 2 ms to pay, and its team waits: 0.8 M instructions each.
#[test]
fn what_is_counted_by_hand() {
    let mut world = holding();
    world.threads.iter_mut().for_each(|t| (t.left, t.phase_left) = (1e9, 2e9));
    (world.threads[1].debt_s, world.threads[8].debt_s, world.threads[7].left) = (0.002, 1.0, 5e5);
    world.speeds = vec![1e8; 9];
    world.execute(0.01);
    let t = &world.threads[0];
    assert_eq!((t.left, t.phase_left, world.threads[7].left), (1e9 - 8e5, 2e9 - 8e5, 0.0));
    assert!(near(world.threads[8].debt_s, 0.99) && world.threads[1].debt_s == 0.0);
    assert_eq!(world.threads[8].counts[Signal::Instructions as usize], 0.0, "it pays all the time");
    // It computes or waits for memory for 6.0715 ns per instruction, 60.715 % of the time that it would need alone.
    let (cycles, n) = (6_071_500.0, 8e5);
    for (signal, expected) in [
        (Signal::Instructions, n),
        (Signal::Cycles, cycles),
        (Signal::CpuTime, cycles),
        (Signal::StallCycles, cycles - n * 4.0),
        (Signal::RunQueueWait, cycles / 3.0),
        (Signal::PrivateMisses, n * (0.1 + 0.0096)),
        (Signal::LlcHits, n * 0.028),
        (Signal::LlcLoadMisses, n * (0.037 + 0.0072)),
        (Signal::LlcMisses, n * (0.037 + 0.0072)),
        (Signal::Intra, n * 0.0024),
        (Signal::Near, n * 0.0024),
        (Signal::Inter, n * 0.0048),
        (Signal::Remote, n * 0.00925),
        (Signal::LocalDram, n * 0.02775),
        (Signal::L2LinesIn, n * (0.065 + 0.0096)),
        (Signal::L3LinesIn, n * 0.037),
        (Signal::BusTransactions, n * 0.037 * 1.25),
        (Signal::SharedRequests, n * (0.0096 + 0.5 * 0.028)),
    ] {
        let counted = world.threads[0].counts[signal as usize];
        assert!(near(counted, expected), "{signal}: {counted}, not {expected}");
    }
    assert!(near(t.touches[0], n * 0.02775) && near(t.touches[1], n * 0.00925) && t.touches[2] == 0.0);
    // Threads 4 and 6 have half of a CPU each, and 4 does not need its half; 8 has all of one.
    let of_4 = 1e8 * world.demands[4].cost_s(&world.waits);
    let of_6 = (1e8 * world.demands[6].cost_s(&world.waits)).min(0.5);
    assert!(near(world.busy_ns[16], (of_4.min(0.5) + of_6) * 1e7) && near(world.busy_ns[20], 1e7));
    // Lines from node 0, and a quarter as many written back.
    let from_0: f64 = (0..9).map(|i| world.threads[i].touches[0] * 1.25 * 64.0).sum();
    assert!(near(world.node_bytes[0], from_0));
    let (seconds, cost) = world.apps[2].cost;
    assert!(near(seconds, 0.01) && near(cost, 0.01 * world.demands[8].cost_s(&world.waits)));
}

/// A step ends where something would change, to the nanosecond.
#[test]
fn steps_end_where_something_changes() {
    let ends = |change: fn(&mut World)| {
        let mut world = holding();
        (world.now, world.step, world.longest) = (1_000, 50_000_000, 80_000_000);
        world.apps.iter_mut().for_each(|a| a.life = Life::Running);
        world.threads.iter_mut().for_each(|t| (t.left, t.phase_left) = (1e9, f64::INFINITY));
        world.speeds = vec![1e8; 9];
        change(&mut world);
        world.end_of_step(60_000_000) - world.now
    };
    assert_eq!(ends(|_| ()), 50_000_000);
    assert_eq!(ends(|w| w.step = 70_000_000), 60_000_000 - 1_000, "until it is to end");
    assert_eq!(ends(|w| w.longest = 20_000_000), 20_000_000);
    assert_eq!(ends(|w| (w.apps[1].life, w.apps[1].spec.arrival) = (Life::Before, Time(31_000))), 30_000, "arrives");
    assert_eq!(ends(|w| (w.apps[1].life, w.apps[1].spec.arrival) = (Life::Done, Time(31_000))), 50_000_000);
    assert_eq!(ends(|w| w.apps[1].nap_until = 41_000), 40_000, "wakes");
    assert_eq!(ends(|w| w.apps[1].nap_until = 500), 50_000_000, "has woken");
    assert_eq!(ends(|w| w.threads[2].left = 100.0), 1_000, "100 instructions at 100 M per second");
    assert_eq!(ends(|w| w.threads[2].phase_left = 100.5), 1_005);
    assert_eq!(ends(|w| (w.threads[2].left, w.threads[2].debt_s) = (100.0, 2e-6)), 3_000, "after what it pays");
    assert_eq!(ends(|w| w.threads[2].left = 0.0), 1, "time passes");
    assert_eq!(ends(|w| w.bring_pages(0, vec![2])), 10_000_000, "pages are read where they are");
}

/// A thread that changes its cache leaves its contents behind.
#[test]
fn a_move_costs_caches_time_and_is_counted() {
    // From CPU 0 to: its own, its core's other, the other core of its L2, the other L2, the other L3.
    for (to, kept, moves) in
        [(0, [2e5, 5e5], 0), (1, [2e5, 5e5], 1), (2, [2e5, 5e5], 1), (4, [0.0, 5e5], 1), (8, [0.0, 0.0], 1)]
    {
        let mut world = holding();
        let before = world.queues[to];
        world.put(0, to);
        let t = &world.threads[0];
        assert_eq!((t.near[0], t.held), (kept[0], kept[1]), "to {to}");
        assert_eq!((world.migrations, t.counts[Signal::Migrations as usize]), (moves, moves as f64), "to {to}");
        assert!(near(t.debt_s, 5e-6 * moves as f64), "to {to}");
        assert_eq!((t.cpu, world.queues[0]), (Some(to), u32::from(to == 0)), "to {to}");
        assert_eq!(world.queues[to], before + u32::from(to != 0), "to {to}");
    }
}

/// Thread 0 has 4 MB: half its own, a sixth of the other half. Its own are to come from nodes 0 and 1 to 2; those in
/// common stay spread as the threads are: four of six on node 0, two on node 1.
#[test]
fn pages_on_their_way_by_hand() {
    let mut world = holding();
    world.threads[0].pages = vec![0.75, 0.25, 0.0];
    world.bring_pages(0, vec![2]);
    let copying = world.copying().unwrap();
    // Wanted are 1/3, 1/6 and 1/2: 5/12 leave node 0 and 1/12 node 1, half of all.
    let (a, b) = (5.0 / 6.0, 1.0 / 6.0);
    let uses = [(0, a), (3 + 2, a), (1, b), (3 + 3 + 2, b), (2, 1.0)];
    assert_eq!(copying.uses.len(), uses.len(), "{copying:?}");
    for (got, (station, bytes)) in copying.uses.iter().zip(uses) {
        let waits = bytes / 64.0 / 4.0;
        assert!(
            got.station == station && near(got.bytes, bytes) && near(got.waits, waits),
            "{got:?}: {station} {bytes}"
        );
    }
    assert!(near(copying.base_s, 1.0 / 0.8e9));
    // Half of 2.333 MB are under way. A quarter of these in 10 ms:
    let bytes = 2e6 + 2e6 / 6.0;
    world.speeds = vec![0.0; 9];
    world.speeds.push(bytes / 8.0 / 0.01);
    world.move_pages(0.01);
    let pages = &world.threads[0].pages;
    assert!(
        near(pages[0], 0.75 - 5.0 / 48.0) && near(pages[1], 0.25 - 1.0 / 48.0) && near(pages[2], 0.125),
        "{pages:?}"
    );
    assert!(near(world.node_bytes[0], bytes * 5.0 / 48.0) && near(world.node_bytes[2], bytes / 8.0));
    // The rest in the next, with time to spare; then nothing is left to move.
    *world.speeds.last_mut().unwrap() = bytes / 2.0 / 0.01;
    world.move_pages(0.01);
    let wanted = [1.0 / 3.0, 1.0 / 6.0, 0.5];
    assert!(world.threads[0].pages.iter().zip(wanted).all(|(a, b)| near(*a, b)), "{:?}", world.threads[0].pages);
    assert!(world.copying().is_none());
}

/// Two servers of 5,000 requests per second each, 5,000 come: half load. Then they work half as fast as they come.
#[test]
fn requests_queue_by_hand() {
    let mut world = holding();
    world.apps[1].life = Life::Running;
    world.apps[1].spec.load = Some(Load { requests_per_s: 5e3, instructions: 2e5 });
    for demand in &mut world.demands {
        (demand.base_s, demand.floor_s, demand.share) = (1e-9, 0.0, 1.0);
        demand.uses.clear();
    }
    let close = |latency: &Latency, q: f64, ms: f64| (latency.quantile(q).unwrap() / (ms / 1e3) - 1.0).abs() < 0.03;
    // M/M/2 at half load: one in three waits, on average for as long as a service.
    world.speeds = vec![5e8; 9];
    world.serve(0.01);
    let latency = &world.apps[1].latency;
    assert_eq!(latency.backlog, 0.0);
    let beyond = |t: f64| 2.0 / 3.0 * (-5.0 * t).exp() + 1.0 / 3.0 * (1.0 + 5.0 * t) * (-5.0 * t).exp();
    let median = (0..1_000).map(|i| f64::from(i) / 1e3).find(|t| beyond(*t) <= 0.5).unwrap();
    assert!(close(latency, 0.5, median), "{:?}, not {median} ms", latency.quantile(0.5));
    // 25 more are left over, which take 2.5 ms; a service takes ln 2 / 5 ms in the median.
    world.apps[1].latency = Latency::default();
    world.speeds = vec![2.5e8; 9];
    world.serve(0.01);
    let latency = &world.apps[1].latency;
    assert!(near(latency.backlog, 25.0) && close(latency, 0.5, 2.5 + 0.1386), "{:?}", latency.quantile(0.5));
    // 100 are served while 50 come.
    world.speeds = vec![1e9; 9];
    world.serve(0.01);
    assert_eq!(world.apps[1].latency.backlog, 0.0);
    assert_eq!(world.apps[0].latency, Latency::default(), "it serves nobody");
}

/// Threads on cores of one cache that compute 2 ns for each line from another core, which takes 10 ns: beside exact
/// mean value analysis of a closed queue, and with many lines no thread waits.
/// Holds sim/kernel.
#[test]
fn threads_queue_for_the_lines_that_all_write() {
    let speed = |threads: usize, lines: Option<f64>| {
        let machine = SimMachine::new(&Machine::parse(MACHINE).unwrap()).unwrap();
        let mut program = (*program(false)).clone();
        program.contended_lines = lines;
        (program.phases[0].llc_apki, program.phases[0].coherence_pki) = (0.0, 1000.0);
        let specs = vec![AppSpec::new("a", Arc::new(program), threads, 1e9)];
        let mut world = World::new(Arc::new(machine), specs, Kernel::new("eevdf".parse().unwrap()), 1);
        for thread in 0..threads {
            world.stand(thread, Some(2 * thread));
            (world.threads[thread].exists, world.threads[thread].pages) = (true, vec![1.0, 0.0, 0.0]);
        }
        world.demand();
        world.solve().unwrap();
        world.speeds[0]
    };
    let exact = |threads: usize, lines: f64| {
        let (mut queue, mut rate) = (0.0, 0.0);
        for n in 1..=threads {
            let time = 10e-9 * (1.0 + queue);
            rate = n as f64 / (2e-9 + time);
            queue = rate * time / lines;
        }
        rate / threads as f64
    };
    for (threads, lines) in [(2, 1.0), (4, 1.0), (4, 2.0), (4, 4.0), (3, 16.0)] {
        let off = speed(threads, Some(lines)) / exact(threads, lines) - 1.0;
        assert!(off.abs() < 0.05, "{threads} threads, {lines} lines: {off}");
    }
    assert!(speed(4, Some(1.0)) < 0.35 * speed(4, None) && near(speed(4, None), 1.0 / 12e-9));
    assert!((speed(4, Some(1e6)) / speed(4, None) - 1.0).abs() < 1e-4);
    assert_eq!(speed(1, Some(1.0)), speed(1, None), "nobody waits for itself");
}

/// New threads go on with what the old ones had left to do, where the kernel puts them; memory stays.
#[test]
fn threads_that_are_created_anew_go_on_elsewhere_with_the_same_memory() {
    let mut world = world();
    let program = std::sync::Arc::make_mut(&mut world.apps[0].spec.program);
    program.threads_anew = Some(1e6);
    let own = vec![0.0, 1.0, 0.0];
    for thread in 0..6 {
        let t = &mut world.threads[thread];
        (t.id, t.left, t.phase_left, t.anew_left) = (thread as u32, 5e8, 4e8, 0.0);
        (t.numa.own, t.held, t.mask) = (own.clone(), 1e6, CpuSet::single(CpuId(0)));
    }
    world.created = 100;
    world.demand();
    world.end_phases_and_runs();
    for t in &world.threads[..6] {
        assert!((100..106).contains(&t.id), "{}", t.id);
        assert_eq!((t.left, t.phase_left, t.anew_left, t.held), (5e8, 4e8, 1e6, 0.0));
        assert!(t.cpu.is_some() && t.mask == t.allowed && t.numa.own == own);
    }
    let ids: Vec<u32> = world.threads[6..].iter().map(|t| t.id).collect();
    assert_eq!(ids, [0; 3], "others' threads are the same");
}
