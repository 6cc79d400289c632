//! Who holds how much of a shared cache, as time goes on.
//!
//! Both replacements fill linearly while there is room. When there is none, `random` evicts lines in proportion to what each tenant holds;
//! `lru` evicts the lines older than the one age T at which everything that is younger just fits (Che's approximation; Denning's working set).

use crate::app::{Curve, LINE};
use crate::machine::Replacement;

/// A tenant of a cache.
#[derive(Clone, Debug)]
pub struct Tenant<'a> {
    /// Bytes that it holds.
    pub held: f64,
    /// LLC accesses per second.
    pub rate: f64,
    /// Its miss-ratio curve.
    pub curve: &'a Curve,
    /// Bytes that it can use per byte that it holds, ≥ 1: its partners' lines in this cache that it shares.
    pub reach: f64,
    /// Bytes that it can hold at most.
    pub bound: f64,
}

impl Tenant<'_> {
    fn inserts(&self) -> f64 {
        self.rate * self.curve.at(self.held * self.reach) * LINE
    }
}

/// Advances all tenants of a cache of `capacity` bytes by `dt` seconds. What they hold afterwards sums to at most the capacity.
pub fn advance(replacement: Replacement, capacity: f64, tenants: &mut [Tenant<'_>], dt: f64) {
    // A step in which no more than a sixteenth of the cache is accessed follows the curves closely enough.
    let accessed: f64 = tenants.iter().map(|t| t.rate).sum::<f64>() * LINE * dt;
    let parts = (16.0 * accessed / capacity).ceil().clamp(1.0, 64.0);
    for _ in 0..parts as usize {
        part(replacement, capacity, tenants, dt / parts);
    }
}

fn part(replacement: Replacement, capacity: f64, tenants: &mut [Tenant<'_>], dt: f64) {
    for t in &mut *tenants {
        t.held = (t.held + t.inserts() * dt).min(t.bound);
    }
    let excess = tenants.iter().map(|t| t.held).sum::<f64>() - capacity;
    if excess <= 0.0 {
        return;
    }
    if replacement == Replacement::Lru {
        let young = young(capacity, tenants);
        let old: f64 = tenants.iter().zip(&young).map(|(t, y)| (t.held - y).max(0.0)).sum();
        if old > 0.0 {
            let evicted = (excess / old).min(1.0);
            tenants.iter_mut().zip(&young).for_each(|(t, y)| t.held -= evicted * (t.held - y).max(0.0));
        }
    }
    let sum: f64 = tenants.iter().map(|t| t.held).sum();
    if sum > capacity {
        for t in tenants {
            t.held *= capacity / sum;
        }
    }
}

/// What each tenant would hold if everything older than the common age T were gone: `d held/dt = inserts(held)` from empty up to T, and
/// T such that it just fits. Filled in equal steps of time for a tentative age that doubles, then interpolated.
fn young(capacity: f64, tenants: &[Tenant<'_>]) -> Vec<f64> {
    const STEPS: usize = 64;
    let fills: Vec<Vec<f64>> = tenants.iter().map(|t| filling(capacity, t, STEPS)).collect();
    let at = |age: f64| -> Vec<f64> {
        let one = |(t, fill): (&Tenant<'_>, &Vec<f64>)| {
            let next = fill.partition_point(|x| *x <= age);
            let step = capacity / STEPS as f64;
            let Some(after) = fill.get(next) else { return capacity.min(t.bound) };
            let before = if next == 0 { 0.0 } else { fill[next - 1] };
            ((next as f64 + (age - before) / (after - before)) * step).min(t.bound)
        };
        tenants.iter().zip(&fills).map(one).collect()
    };
    let (mut low, mut high) = (-40.0_f64, 10.0_f64);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if at(middle.exp()).iter().sum::<f64>() > capacity { high = middle } else { low = middle }
    }
    at(low.exp())
}

/// Seconds until a tenant that begins with nothing holds each `1/steps` of the capacity.
fn filling(capacity: f64, tenant: &Tenant<'_>, steps: usize) -> Vec<f64> {
    let step = capacity / steps as f64;
    let mut sum = 0.0;
    (0..steps)
        .map(|i| {
            let held = (i as f64 + 0.5) * step;
            sum += step / (tenant.rate * tenant.curve.at(held * tenant.reach) * LINE).max(1e-9);
            sum
        })
        .collect()
}
