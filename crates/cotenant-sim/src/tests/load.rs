//! What must hold of an application that serves requests.

use super::{pinned, scenario, world};
use crate::world::{AppReport, World};

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

/// It works for as long as its requests take to come; where more come than it can serve, that is told, and nobody waits for nothing.
#[test]
fn what_cannot_be_served_is_a_backlog() {
    let (calm, flooded) = (serve(80, false), serve(100_000, false));
    assert!(calm.latency.backlog() <= 1.0, "{}", calm.latency.backlog());
    assert!(flooded.latency.backlog() > 1e5, "{}", flooded.latency.backlog());
    assert!(flooded.latency.quantile(0.5) > calm.latency.quantile(0.99));
    assert!(flooded.times_s[0] < calm.times_s[0], "it works at full speed: {} {}", flooded.times_s[0], calm.times_s[0]);
}
