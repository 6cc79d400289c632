//! Who holds how much of a shared cache when nothing changes any more.
//!
//! Both models have one number that is common to all tenants, found by bisection, since what each holds is monotone in it.

use crate::app::Phase;
use crate::machine::Replacement;

/// Bytes that each program holds of `capacity`, given its LLC accesses per second.
pub fn held(replacement: Replacement, capacity: f64, programs: &[&Phase], rates: &[f64]) -> Vec<f64> {
    match replacement {
        Replacement::Random => random(capacity, programs, rates),
        Replacement::Lru => lru(capacity, programs, rates),
    }
}

/// Every line is evicted at the same rate `x`, so a program holds `o` where what comes in equals what goes: `rate · m(o) = x · o`.
fn random(capacity: f64, programs: &[&Phase], rates: &[f64]) -> Vec<f64> {
    let one = |program: &Phase, rate: f64, x: f64| {
        crossing(0.0, capacity, |o| rate * program.miss_ratio.at(o) > x * o) // m falls, x · o rises
    };
    let all = |x: f64| -> Vec<f64> { programs.iter().zip(rates).map(|(p, r)| one(p, *r, x)).collect() };
    common(capacity, all)
}

/// Every line is evicted at the same age `T`: a program holds what it has filled by then, starting empty, `d occ/dt = rate · m(occ)`
/// (Denning's working set of age T; Che's approximation for shared LRU).
fn lru(capacity: f64, programs: &[&Phase], rates: &[f64]) -> Vec<f64> {
    const STEPS: usize = 512;
    let step = capacity / STEPS as f64;
    // Accesses until `i` steps are filled.
    let fills: Vec<Vec<f64>> = programs
        .iter()
        .map(|program| {
            let misses = |i: usize| program.miss_ratio.at((i as f64 + 0.5) * step).max(1e-9);
            (0..STEPS)
                .scan(0.0, |sum, i| {
                    *sum += step / misses(i);
                    Some(*sum)
                })
                .collect()
        })
        .collect();
    let one = |fill: &[f64], rate: f64, age: f64| {
        let accesses = rate * age;
        let full = fill.partition_point(|sum| *sum <= accesses);
        let Some(next) = fill.get(full) else { return capacity };
        let before = if full == 0 { 0.0 } else { fill[full - 1] };
        (full as f64 + (accesses - before) / (next - before)) * step
    };
    let all = |x: f64| -> Vec<f64> { fills.iter().zip(rates).map(|(fill, rate)| one(fill, *rate, 1.0 / x)).collect() };
    common(capacity, all)
}

/// What all hold where the common pressure `x` makes it exactly the capacity; what they want where it fits without any pressure.
fn common(capacity: f64, all: impl Fn(f64) -> Vec<f64>) -> Vec<f64> {
    const LOW: f64 = 1e-30;
    const HIGH: f64 = 1e6;
    let fits = |log: f64| all(log.exp()).iter().sum::<f64>() > capacity;
    let log = crossing(LOW.ln(), HIGH.ln(), fits);
    let mut held = all(log.exp());
    let sum: f64 = held.iter().sum();
    if sum > capacity {
        for h in &mut held {
            *h *= capacity / sum;
        }
    }
    held
}

/// Where `above` turns from true to false between `low` and `high`.
fn crossing(mut low: f64, mut high: f64, above: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if above(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
