//! Properties of wake-ups, moves, counters and their noise.

use super::{cpus, ms, scenario, world};
use crate::host::{Observation, SimHost};
use crate::kernel::Kernel;
use crate::scenario::Scenario;
use crate::world::World;
use cotenant_model::action::{Action, Order, Outcome, Reason};
use cotenant_model::host::{Host, Wake};
use cotenant_model::sample::Sample;
use cotenant_model::signal::Signal;
use cotenant_model::{CpuId, TaskId, Time};
use std::collections::BTreeMap;

fn host(s: &Scenario, observation: Observation) -> SimHost {
    SimHost::new(World::new(s.sim.clone(), s.apps.clone(), Kernel::new(s.kernel), 1), observation, 1, s.end)
}

fn total(sample: &Sample, signal: Signal) -> u64 {
    sample.tasks.iter().filter_map(|t| t.counters.get(signal)).map(|c| c.value).sum()
}

/// Promise sim/time: Waits, pauses and limits last as ordered; moves cost time and cold caches, and co-runners and
/// overload lengthen requests.
#[test]
fn a_wait_ends_exactly_when_it_should() {
    let s = scenario(
        "machine = 'two'\n[[app]]\nprogram = 'mcf06'\nthreads = 4\n[[app]]\nprogram = 'tunkrank'\nthreads = 3\n",
    );
    let mut host = host(&s, Observation::default());
    assert_eq!(host.wait(ms(100)), Wake::TasksChanged, "the threads are created");
    for nap in [2_000_000, 1, 999, 2_000_000, 137_000_003, 1_000_001, 2_000_000] {
        let until = Time(host.world.now().0 + nap);
        assert_eq!((host.wait(until), host.world.now()), (Wake::Tick, until));
    }
}

#[test]
fn waits_end_when_tasks_come_and_when_nothing_is_left() {
    let s = scenario(
        "machine = 'two'\n[[app]]\nprogram = 'cpu'\nwork_s = 0.2\n[[app]]\nprogram = 'cpu'\narrival_s = 0.0512345\nwork_s = 0.2\n",
    );
    let mut host = host(&s, Observation::default());
    host.wait(ms(1));
    assert_eq!((host.wait(ms(100)), host.world.now()), (Wake::TasksChanged, Time(51_234_500)));
    assert_eq!((host.wait(ms(100)), host.world.now()), (Wake::Tick, ms(100)));
    assert_eq!(host.wait(ms(10_000)), Wake::TasksChanged, "the first has ended");
    assert_eq!(host.wait(ms(10_000)), Wake::Exit);
    assert!(host.world.is_done() && host.world.now() < ms(260), "{:?}", host.world.now());
}

/// Misses per 1,000 instructions of the first thread in the next milliseconds.
fn mpki(world: &mut World, milliseconds: u64) -> f64 {
    let counts = |world: &World| {
        let of = |signal: Signal| world.threads[0].counts[signal as usize];
        (of(Signal::LlcMisses), of(Signal::Instructions))
    };
    let before = counts(world);
    let until = Time(world.now().0 + milliseconds * 1_000_000);
    world.advance(until, false).unwrap();
    let after = counts(world);
    (after.0 - before.0) / (after.1 - before.1) * 1000.0
}

/// Holds sim/time.
#[test]
fn a_move_to_another_cache_is_paid_for_with_misses() {
    let s = scenario("machine = 'two'\n[[app]]\nprogram = 'art00'\ncpus = '0-7'\nwork_s = 100\n");
    let mut world = world(&s, "eevdf", 1);
    world.advance(ms(3_000), false).unwrap();
    let home = world.threads[0].cpu.unwrap();
    let package = |cpu: usize| if cpu < 4 { "0-3" } else { "4-7" };
    let warm = mpki(&mut world, 5);
    world.set_mask(0, cpus(package(home)).minus(&cpus(&home.to_string())));
    assert_eq!(world.migrations, 1);
    let beside = mpki(&mut world, 5);
    assert!((beside / warm - 1.0).abs() < 0.01, "the same cache is as warm: {warm} then {beside}");
    world.set_mask(0, cpus(package(7 - home)));
    let cold = mpki(&mut world, 1);
    let again = mpki(&mut world, 1);
    world.advance(ms(6_000), false).unwrap();
    let settled = mpki(&mut world, 5);
    assert!(cold > 1.5 * warm && cold > again && again > settled, "{warm}, moved: {cold}, {again} … {settled}");
    assert!((settled / warm - 1.0).abs() < 0.02, "{warm} before, {settled} in the end");
    assert!(world.threads[0].counts[Signal::Remote as usize] > 0.0, "its pages have stayed behind");
}

/// Holds sim/time.
#[test]
fn a_migration_costs_its_direct_price() {
    let s = scenario("machine = 'two'\n[[app]]\nprogram = 'cpu'\ncpus = '0-3'\nwork_s = 1\n");
    let time = |moves: usize| {
        let mut world = world(&s, "eevdf", 1);
        for i in 0..moves {
            world.advance(ms(10 * (i as u64 + 1)), false).unwrap();
            let cpu = if i % 2 == 0 { "0" } else { "1" };
            world.set_mask(0, cpus(cpu));
        }
        world.advance(s.end, false).unwrap();
        (world.report()[0].times_s[0], world.migrations)
    };
    let ((still, _), (moved, migrations)) = (time(0), time(41));
    let expected = migrations as f64 * s.sim.migration_s;
    assert!(migrations >= 40 && (moved - still - expected).abs() < 1e-8, "{migrations}: {still} s, {moved} s");
}

/// Holds sim/conserves.
#[test]
fn samples_count_what_was_executed() {
    let s = scenario(
        "machine = 'ivy-bridge-2s'\n[[app]]\nprogram = 'mcf06'\nthreads = 30\n[[app]]\nprogram = 'sgd'\nthreads = 20\n",
    );
    let mut host = host(&s, Observation::default());
    for n in 1..20 {
        host.wait(ms(37 * n));
        host.wait(ms(37 * n));
        let sample = host.sample().unwrap();
        let world = &host.world;
        let done: f64 = world.threads.iter().map(|t| world.apps[t.app].spec.instructions - t.left).sum();
        let counted = total(&sample, Signal::Instructions) as f64;
        assert!((counted - done).abs() <= 50.0 * n as f64, "{counted} counted, {done} executed");
        let cycles = total(&sample, Signal::Cycles) as f64;
        let cpu_s = total(&sample, Signal::CpuTime) as f64 / 1e9;
        assert!((cycles / cpu_s / s.sim.clock_hz - 1.0).abs() < 1e-3);
        assert!(total(&sample, Signal::StallCycles) as f64 <= cycles);
        let (misses, dram) = (Signal::L3LinesIn, [Signal::Remote, Signal::LocalDram]);
        let dram: u64 = dram.iter().map(|s| total(&sample, *s)).sum();
        assert!((dram as f64 / total(&sample, misses) as f64 - 1.0).abs() < 1e-3, "all lines come from some node");
    }
}

/// On Clovertown the L2 that two cores share is the last level: nothing comes into a third, and what comes into the
/// second is what the last level misses.
/// Holds sim/conserves.
#[test]
fn where_the_second_level_is_the_last_there_is_no_third() {
    let of = |machine: &str| {
        let text = format!(
            "machine = '{machine}'\n[[app]]\nprogram = 'mcf06'\nthreads = 2\n[[app]]\nprogram = 'sgd'\nthreads = 3\n"
        );
        let mut host = host(&scenario(&text), Observation::default());
        host.wait(ms(300));
        host.wait(ms(300));
        host.sample().unwrap()
    };
    let (without, with) = (of("clovertown-2s"), of("ivy-bridge-2s"));
    let seen = |sample: &Sample, signal| sample.tasks.iter().filter(|t| t.counters.get(signal).is_some()).count();
    assert_eq!((seen(&without, Signal::L3LinesIn), seen(&with, Signal::L3LinesIn)), (0, 5));
    let lines = total(&without, Signal::L2LinesIn) as f64;
    assert!(
        (lines / total(&without, Signal::LlcMisses) as f64 - 1.0).abs() < 1e-3,
        "{lines} lines into the last level"
    );
    assert!(lines < 0.9 * total(&without, Signal::PrivateMisses) as f64, "{lines} lines, hits among them");
    assert!(total(&with, Signal::L2LinesIn) > total(&with, Signal::L3LinesIn));
}

/// Holds sim/seed.
#[test]
fn noise_and_gaps_are_seeded_and_change_nothing_but_what_is_seen() {
    let s = scenario("machine = 'ivy-bridge-2s'\n[[app]]\nprogram = 'mcf06'\nthreads = 30\n");
    let watch = |observation: Observation, seed: u64| {
        let world = World::new(s.sim.clone(), s.apps.clone(), Kernel::new(s.kernel), 1);
        let mut host = SimHost::new(world, observation, seed, s.end);
        let mut samples = Vec::new();
        for n in 1..=20 {
            host.wait(ms(20 * n));
            samples.push(host.sample().unwrap());
        }
        let left: Vec<f64> = host.world.threads.iter().map(|t| t.left).collect();
        (samples, left)
    };
    let (exact, noisy) = (Observation::default(), Observation { noise: 0.1, gaps: 0.25, ..Observation::default() });
    let (clean, truth) = watch(exact, 1);
    let (seen, left) = watch(noisy, 1);
    assert_eq!(left, truth, "what is observed does not change what happens");
    assert_eq!(seen, watch(noisy, 1).0);
    assert_ne!(seen, watch(noisy, 2).0);
    let (last, clean) = (&seen[19], &clean[19]);
    let times = |sample: &Sample| {
        let counts = sample.tasks.iter().filter_map(|t| t.counters.get(Signal::Cycles));
        counts.fold((0, 0), |sum, c| (sum.0 + c.running_ns, sum.1 + c.enabled_ns))
    };
    let (running, enabled) = times(last);
    let share = running as f64 / enabled as f64;
    assert!((0.70..0.80).contains(&share), "a quarter is missing: {share}");
    let scaled = total(last, Signal::Instructions) as f64 / share / total(clean, Signal::Instructions) as f64;
    assert!((scaled - 1.0).abs() < 0.05, "noise has no bias: {scaled}");
    assert_eq!(total(last, Signal::CpuTime), total(clean, Signal::CpuTime), "software counts exactly");
}

#[test]
fn observing_costs_where_no_cpu_is_idle() {
    let busy = |threads: usize| {
        let s = scenario(&format!("machine = 'two'\n[[app]]\nprogram = 'cpu'\nthreads = {threads}\nwork_s = 1\n"));
        let mut host = host(&s, Observation { cost_s: 1e-3, ..Observation::default() });
        while host.wait(Time(host.world.now().0 + 10_000_000)) != Wake::Exit {
            host.sample().unwrap();
        }
        host.world.report()[0].times_s[0]
    };
    let (idle, full) = (busy(7), busy(8));
    assert!((idle - 1.0).abs() < 1e-3 && full > 1.5, "{idle} s beside an idle CPU, {full} s without");
}

#[test]
fn orders_are_carried_out_or_answered() {
    let s = scenario("machine = 'two'\n[[app]]\nprogram = 'cpu'\nthreads = 2\ncpus = '0-3'\nwork_s = 0.1\nruns = 2\n");
    let mut host = host(&s, Observation::default());
    host.wait(ms(1));
    let sample = host.sample().unwrap();
    let ids: BTreeMap<TaskId, Option<CpuId>> = sample.tasks.iter().map(|t| (t.info.id, t.cpu)).collect();
    assert_eq!(ids.len(), 2);
    assert!(sample.tasks.iter().all(|t| t.info.tid > t.info.pid), "threads come after their process, as on Linux");
    let order = |task: TaskId, affinity: &str| Order {
        action: Action::Place { task, contexts: cpus(affinity) },
        affinity: cpus(affinity),
        reason: Reason::new("test", "move it"),
    };
    let first = *ids.keys().next().unwrap();
    let outcomes = host.apply(&[order(first, "3"), order(first, "5"), order(TaskId(99), "3")]);
    assert_eq!(outcomes, [Outcome::Applied, Outcome::Denied, Outcome::Gone], "the user allows 0-3 only");
    let sample = host.sample().unwrap();
    assert_eq!(sample.tasks[0].cpu, Some(CpuId(3)));
    while host.world.report()[0].times_s.is_empty() {
        host.wait(ms(1_000));
    }
    assert_eq!(host.apply(&[order(first, "3")]), [Outcome::Gone], "the next run has new threads");
}

#[test]
fn a_paused_task_waits_and_goes_on() {
    let s = scenario("machine = 'two'\n[[app]]\nprogram = 'cpu'\nthreads = 2\nwork_s = 0.2\n");
    let mut host = host(&s, Observation::default());
    host.wait(ms(10));
    host.wait(ms(50));
    let ids: Vec<TaskId> = host.sample().unwrap().tasks.iter().map(|t| t.info.id).collect();
    let order = |action, affinity| Order { action, affinity, reason: Reason::new("test", "test") };
    let pause = order(Action::Pause { task: ids[0] }, cpus(""));
    assert_eq!(host.apply(&[pause.clone(), pause]), [Outcome::Applied; 2], "twice is once");
    let before = host.sample().unwrap();
    host.wait(ms(150));
    let after = host.sample().unwrap();
    let done = |task: TaskId| {
        let of = |s: &Sample| s.tasks.iter().find(|t| t.info.id == task).unwrap().counters.get(Signal::Instructions);
        of(&after).unwrap().value - of(&before).unwrap().value
    };
    assert_eq!(done(ids[0]), 0, "it waits");
    assert!(done(ids[1]) > 0, "the other one goes on");
    // The other ends first; an app lasts while one of its threads waits.
    host.wait(ms(1_000));
    assert!(!host.world.is_done());
    assert_eq!(host.wait(ms(2_000)), Wake::Tick, "nobody runs, and time passes");
    let release = order(Action::Release { task: ids[0] }, cpus(""));
    assert_eq!(host.apply(&[release]), [Outcome::Applied]);
    assert_eq!(host.wait(ms(10_000)), Wake::Exit);
    let ended = host.world.now();
    assert!(ended > ms(2_100) && ended < ms(2_200), "150 ms were left when it was paused: {ended:?}");
}

#[test]
fn quantum_schedulers_run_no_more_jobs_than_cpus() {
    let eight =
        "[[app]]\nprogram = 'mcf06'\nwork_s = 1\n".repeat(8) + &"[[app]]\nprogram = 'cpu'\nwork_s = 1\n".repeat(8);
    let s = scenario(&format!("machine = 'two'\n{eight}"));
    for name in ["fifo", "mas", "cas", "das"] {
        let policy = cotenant_policies::standard().make(name, &s.config).unwrap();
        let mut rounds = 0;
        let outcome = s
            .run(&*policy, s.kernel, 1, |round| {
                let running = round.sample.tasks.iter().filter(|t| t.cpu.is_some()).count();
                assert!(running <= 8 || round.prev.tasks.len() < round.sample.tasks.len(), "{name}: {running} run");
                rounds += 1;
            })
            .unwrap();
        assert!(rounds > 5 && outcome.apps.iter().all(|app| app.runs == 1), "{name}: {rounds} rounds");
    }
}
