//! Selection and allocation against an exhaustive search.
//!
//! The fitness of a job is `1 / |remaining target per remaining CPU − its rate per CPU|` (TPDS Algorithm 1, line 15),
//! and each choice changes the remainder. So the optimum is the *sequence* of choices whose first has the highest
//! fitness, among those the second, and so on; ties prefer the head of the queue. Here all sequences are listed and
//! compared.
//!
//! It is not the set nearest to the target: that would not be the printed algorithm
//! (`the_nearest_set_is_another_question`).

use super::Quantum;
use super::tests::{EIGHT, Spec, bench};
use cotenant_model::profile::AppProfile;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// A candidate: its rate per CPU, and its number of CPUs.
#[derive(Clone, Copy, Debug)]
struct Candidate(f64, usize);

/// A choice: its inverse fitness, and the candidate.
type Choice = (f64, usize);

/// Every sequence of choices until no CPU is left or no candidate fits.
fn sequences(all: &[Candidate], taken: &[Choice], target: f64, cpus: usize, found: &mut Vec<Vec<Choice>>) {
    let wanted = target / cpus as f64;
    let free = |i: &usize| !taken.iter().any(|(_, t)| t == i) && all[*i].1 <= cpus;
    let mut ends = true;
    for i in (0..all.len()).filter(|i| cpus > 0 && free(i)) {
        ends = false;
        let Candidate(rate, width) = all[i];
        let next = [taken, &[((wanted - rate).abs(), i)]].concat();
        sequences(all, &next, target - rate * width as f64, cpus - width, found);
    }
    if ends {
        found.push(taken.to_vec());
    }
}

/// The candidates of the best sequence.
fn best(all: &[Candidate], target: f64, cpus: usize) -> BTreeSet<usize> {
    let mut found = Vec::new();
    sequences(all, &[], target, cpus, &mut found);
    let key = |a: &Choice, b: &Choice| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let order = |a: &Vec<Choice>, b: &Vec<Choice>| {
        a.iter().zip(b).map(|(a, b)| key(a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    found.into_iter().min_by(order).unwrap().into_iter().map(|(_, i)| i).collect()
}

/// The head of the queue and the best sequence after it: positions in the queue.
fn selected(queue: &[Candidate], cpus: usize) -> BTreeSet<usize> {
    let threads: usize = queue.iter().map(|c| c.1).sum();
    let transfers: f64 = queue.iter().map(|c| c.0 * c.1 as f64).sum();
    let Candidate(rate, width) = queue[0];
    let width = width.min(cpus);
    let target = transfers / threads as f64 * cpus as f64 - rate * width as f64;
    let rest = best(&queue[1..], target, cpus - width);
    [0].into_iter().chain(rest.into_iter().map(|i| i + 1)).collect()
}

fn degraded(degradation: f64) -> AppProfile {
    AppProfile { average_traffic_loss: Some(degradation), ..AppProfile::default() }
}

#[test]
fn the_nearest_set_is_another_question() {
    // Target 60, the head has 40. 20/3: 8 is off by 1.3; 12/2: 6 by 0; 6/1: 4 by 2. Together 58; 40 + 10 + 8 + 2
    // would be 60.
    let rates: Vec<Candidate> = EIGHT.iter().map(|s| Candidate(s.1, 1)).collect();
    assert_eq!(selected(&rates, 4), BTreeSet::from([0, 4, 5, 6]));
    let mut bench = bench(Quantum::Mas, &EIGHT);
    bench.turn();
    assert_eq!(bench.running(), [0, 4, 5, 6]);
}

#[test]
fn the_search_finds_what_is_plain() {
    // 12 for 2 CPUs: 6 is there. The remainder is 6 for one: 5 is off by 1, 8 by 2.
    let all = [Candidate(8.0, 1), Candidate(6.0, 1), Candidate(5.0, 1)];
    assert_eq!(best(&all, 12.0, 2), BTreeSet::from([1, 2]));
    // On ties the first in the queue wins. Too wide a candidate is excluded.
    assert_eq!(best(&[Candidate(5.0, 2), Candidate(4.0, 1), Candidate(6.0, 1)], 5.0, 1), BTreeSet::from([1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Jobs of one to three threads, sensitive ones among them.
    /// Holds place/quantum.
    #[test]
    fn each_quantum_selects_the_optimum_of_the_fitness(
        jobs in proptest::collection::vec((1u32..4, 0u32..60, 0u32..30), 2..7),
        policy in prop_oneof![Just(Quantum::Mas), Just(Quantum::Cas), Just(Quantum::Das)],
    ) {
        let specs: Vec<Spec> = jobs.iter().map(|&(t, rate, _)| Spec(t, f64::from(t * rate), 1.0)).collect();
        let mut bench = bench(policy, &specs);
        bench.apps = jobs.iter().enumerate().map(|(i, j)| (format!("app{i}"), degraded(f64::from(j.2) / 100.0))).collect();
        // A fifth of the loss in percent for each CPU of a job, from 5 % on (§5.3).
        let need = |j: usize| {
            let (threads, rate, percent) = jobs[j];
            let penalty = if policy == Quantum::Das && percent >= 5 { f64::from(percent) / 100.0 * 100.0 * 0.2 } else { 0.0 };
            Candidate((f64::from(rate) + penalty) * 1e6, threads as usize)
        };
        let mut queue: Vec<usize> = (0..specs.len()).collect();
        for _ in 0..4 {
            bench.turn();
            let running: BTreeSet<usize> = bench.running().into_iter().map(|j| j as usize).collect();
            let candidates: Vec<Candidate> = queue.iter().map(|&j| need(j)).collect();
            let expected: BTreeSet<usize> = selected(&candidates, 4).into_iter().map(|i| queue[i]).collect();
            prop_assert_eq!(&running, &expected, "{:?}", candidates);
            queue.sort_by_key(|job| running.contains(job)); // jobs that ran go to the tail
        }
    }

    /// Four jobs on two caches: the first cache gets the best sequence, the other one the rest.
    /// Holds place/quantum.
    #[test]
    fn each_cache_gets_the_optimum_of_the_fitness(
        arrivals in proptest::collection::vec(0u32..100, 2..5),
        policy in prop_oneof![Just(Quantum::Cas), Just(Quantum::Das)],
    ) {
        let specs: Vec<Spec> = arrivals.iter().map(|&a| Spec(1, 1.0, f64::from(a))).collect();
        let mut bench = bench(policy, &specs);
        bench.turn();
        let all: Vec<Candidate> = arrivals.iter().map(|&a| Candidate(f64::from(a) * 1e6, 1)).collect();
        let per_thread = all.iter().map(|c| c.0).sum::<f64>() / all.len() as f64;
        let slots = all.len().div_ceil(2);
        let expected = best(&all, per_thread * slots as f64, slots);
        let first: BTreeSet<usize> =
            bench.queue().jobs.iter().filter(|j| j.cpus.iter().all(|cpu| cpu.0 < 2)).map(|j| j.app.0 as usize).collect();
        prop_assert_eq!(first, expected);
    }
}
