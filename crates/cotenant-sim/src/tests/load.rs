//! Properties of an application that serves requests.

use super::{pinned, scenario, world};
use crate::world::{AppReport, Latency, World};
use cotenant_model::Time;
use cotenant_model::signal::Signal;

fn serve(requests: u32, co_runner: bool) -> AppReport {
    let rival = if co_runner { "[[app]]\nprogram = 'membench'\nthreads = 3\nwork_s = 4\n" } else { "" };
    let s = scenario(&format!(
        "machine = 'two'\n[[app]]\nprogram = 'mcf06'\nwork_s = 2\nload = {{ requests_per_s = {requests}, instructions = 1e6 }}\n{rival}"
    ));
    let s = pinned(&s, &[&[0], &[1, 2, 3]]);
    let mut world: World = world(&s, "eevdf", 1);
    world.advance(s.end, false).unwrap();
    world.report().swap_remove(0)
}

/// Holds sim/time.
#[test]
fn latency_rises_with_a_co_runner() {
    let (quiet, loud) = (serve(80, false).latency, serve(80, true).latency);
    let at = |q| (quiet.quantile(q).unwrap(), loud.quantile(q).unwrap());
    for q in [0.5, 0.95, 0.99] {
        assert!(at(q).1 > 1.1 * at(q).0, "{q}: {:?}", at(q));
    }
    assert!(at(0.99).0 > at(0.95).0 && at(0.95).0 > at(0.5).0);
}

#[test]
fn latency_rises_with_the_load() {
    let p99 = |requests| serve(requests, false).latency.quantile(0.99).unwrap();
    assert!(p99(20) < p99(80) && p99(80) < p99(150), "{} {} {}", p99(20), p99(80), p99(150));
}

/// 50 requests/s of 10 ms on one CPU: M/M/1 with sojourn times of rate 100 − 50 per second. Their median is ln 2 / 50
/// s, their 99th percentile ln 100 / 50 s.
#[test]
fn latencies_are_those_of_the_queue() {
    let s = scenario(
        "machine = 'two'\n[[app]]\nprogram = 'cpu'\nwork_s = 5\nload = { requests_per_s = 50, instructions = 1e7 }\n",
    );
    let mut world: World = world(&s, "eevdf", 1);
    world.advance(s.end, false).unwrap();
    let latency = world.report().swap_remove(0).latency;
    for (q, expected) in [(0.5, 0.01386), (0.99, 0.0921)] {
        let seconds = latency.quantile(q).unwrap();
        assert!((seconds / expected - 1.0).abs() < 0.03, "{q}: {seconds} s");
    }
}

/// It works while its requests arrive; requests beyond its capacity are reported as a backlog, and no application waits
/// in vain.
/// Holds sim/time.
#[test]
fn what_cannot_be_served_is_a_backlog() {
    let (calm, flooded) = (serve(80, false), serve(100_000, false));
    assert!(calm.latency.backlog() <= 1.0, "{}", calm.latency.backlog());
    assert!(flooded.latency.backlog() > 1e5, "{}", flooded.latency.backlog());
    assert!(flooded.latency.quantile(0.5) > calm.latency.quantile(0.99));
    assert!(flooded.times_s[0] < calm.times_s[0], "it works at full speed: {} {}", flooded.times_s[0], calm.times_s[0]);
}

/// Seconds of a computing program on the CPU of a service that gets this many requests of 10 ms per second, and the
/// service's latencies.
fn beside_a_service(requests: u32) -> (f64, AppReport) {
    let s = scenario(&format!(
        "machine = 'two'\n[[app]]\nprogram = 'cpu'\nwork_s = 1\n[[app]]\nprogram = 'cpu'\nwork_s = 10\nload = {{ requests_per_s = {requests}, instructions = 1e7 }}\n"
    ));
    let mut world: World = world(&pinned(&s, &[&[0], &[0]]), "eevdf", 1);
    while world.report()[0].times_s.is_empty() {
        let until = Time(world.now().0 + 10_000_000);
        world.advance(until, false).unwrap();
    }
    let [busy, wait] = [Signal::CpuTime, Signal::RunQueueWait].map(|s| world.threads[1].counts[s as usize] / 1e9);
    let service = world.report().swap_remove(1);
    let took = world.report()[0].times_s[0];
    assert!((busy - took * f64::min(0.01 * f64::from(requests), 0.5)).abs() < 1e-3 * took, "{busy} s of {took}");
    assert!(wait <= took - busy + 1e-9, "{wait} s runnable and waiting, {busy} s on the CPU, in {took} s");
    (took, service)
}

/// `cpu` executes 1e9 instructions per second here, so that a request takes 10 ms. 20 of them per second need a fifth
/// of the CPU; the batch program gets four fifths, not half. Beyond half of the CPU the service gets half, and a
/// backlog.
/// Holds sim/time.
#[test]
fn what_a_service_does_not_need_is_the_others() {
    for (requests, share) in [(1, 0.99), (20, 0.8), (45, 0.55), (80, 0.5)] {
        let (took, service) = beside_a_service(requests);
        assert!((took * share - 1.0).abs() < 1e-3, "{requests} requests/s: {took} s");
        assert_eq!(
            service.latency.backlog() > 1.0,
            share <= 0.5,
            "{requests} requests/s: {}",
            service.latency.backlog()
        );
    }
}

/// Two threads wait for each other. One shares its CPU with one program, the other with two: the former needs a third
/// of its CPU, not half.
/// Holds sim/time.
#[test]
fn what_a_thread_at_a_barrier_does_not_need_is_the_others() {
    let s = scenario(
        "machine = 'two'\nprogram.team = { cpi = 1, llc_apki = 0, footprint_bytes = 1e4, miss_ratio = [[1e4, 0.0]], barrier = true }\n\
         [[app]]\nprogram = 'team'\nthreads = 2\nwork_s = 3\n[[app]]\nprogram = 'cpu'\nwork_s = 1\n[[app]]\nprogram = 'cpu'\nthreads = 2\nwork_s = 1\n",
    );
    let times = super::times(world(&pinned(&s, &[&[0, 1], &[0], &[1, 1]]), "eevdf", 1), &s);
    assert!((times[1] - 1.5).abs() < 1e-3, "two thirds of a CPU: {times:?}");
    assert!((times[2] - 3.0).abs() < 1e-3, "a third each: {times:?}");
}

/// Percentiles of the seeds together lie between those of the quiet and the loud one; the backlog is the worst.
/// Holds sim/seed.
#[test]
fn latencies_of_several_seeds_are_those_of_all_requests() {
    let (quiet, loud) = (serve(20, false).latency, serve(150, true).latency);
    let mut both = Latency::default();
    both.merge(&quiet);
    assert_eq!(both.quantile(0.99), quiet.quantile(0.99));
    both.merge(&loud);
    let p99 = both.quantile(0.99).unwrap();
    assert!(quiet.quantile(0.99).unwrap() < p99 && p99 <= loud.quantile(0.99).unwrap(), "{p99}");
    assert_eq!(both.backlog(), quiet.backlog().max(loud.backlog()));
}
