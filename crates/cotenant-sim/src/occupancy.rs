//! How much of a shared cache each tenant holds over time.
//!
//! Both policies fill linearly while there is room. In a full cache, `random` evicts in proportion to what each tenant
//! holds; `lru` evicts lines older than the age T at which all younger ones just fit (Che's approximation; Denning's
//! working set).

use crate::app::{Curve, LINE};
use serde::Deserialize;

/// The replacement policy of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Any line, regardless of tenant and age. The default, because it matched measured mixes better than `lru`.
    #[default]
    Random,
    /// The least recently used line.
    Lru,
}

/// A tenant of a cache.
#[derive(Clone, Debug)]
pub struct Tenant<'a> {
    /// Bytes that it holds.
    pub held: f64,
    /// Accesses per second to which the curve applies: the misses of the private caches.
    pub rate: f64,
    /// Its miss-ratio curve.
    pub curve: &'a Curve,
    /// Tenants of one group share data; groups are numbered densely from 0.
    pub group: usize,
    /// Fraction (0–1) of each other member's lines that it can use.
    pub shared: f64,
    /// Most bytes that it can hold.
    pub bound: f64,
    /// Its part in nearer caches.
    pub nearer: Nearer,
    /// Its bytes that return as soon as they are evicted: an inclusive cache does not see their use in the private
    /// ones.
    pub kept: f64,
}

/// Contents of the nearer caches: accesses to their lines do not reach this one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Nearer {
    /// Bytes in the shared ones.
    pub bytes: f64,
    /// If this cache is inclusive: bytes in the private ones.
    pub inclusive: Option<f64>,
}

impl Nearer {
    /// Bytes of a program beyond its private caches, with `held` bytes in this one.
    pub fn with(self, held: f64) -> f64 {
        match self.inclusive {
            None => self.bytes + held,
            Some(private) => self.bytes.max(held - private),
        }
    }
}

impl Tenant<'_> {
    /// Misses per access, while its group holds `group` bytes.
    pub fn miss_ratio(&self, group: f64) -> f64 {
        self.at(self.usable(group))
    }

    /// Bytes of the cache that it can use: its own, plus the shared part of its group, which holds `group`.
    pub fn usable(&self, group: f64) -> f64 {
        self.held + self.shared * (group - self.held).max(0.0)
    }

    /// Bytes that may be evicted for good.
    fn loose(&self) -> f64 {
        (self.held - self.kept).max(0.0)
    }

    fn at(&self, held: f64) -> f64 {
        self.curve.at(self.nearer.with(held))
    }
}

/// Nothing, for each group.
fn none(tenants: &[Tenant<'_>]) -> Vec<f64> {
    vec![0.0; tenants.iter().map(|t| t.group + 1).max().unwrap_or(0)]
}

fn sum(tenants: &[Tenant<'_>], of: impl Fn(&Tenant<'_>) -> f64, sums: &mut [f64]) {
    sums.fill(0.0);
    for t in tenants {
        sums[t.group] += of(t);
    }
}

/// Bytes of a cache of `capacity` that programs of `demand` bytes can use if each line falls into a random set, as with
/// 4 KiB pages from anywhere. Lines per set are Poisson-distributed: some sets need more than their `ways` while others
/// are not full. Programs that just fill a 16-way cache lose a tenth.
pub fn room(capacity: f64, ways: u32, demand: f64) -> f64 {
    // From ten times the capacity on, every set is full.
    let mean = f64::from(ways) * (demand / capacity).min(10.0);
    let (mut probability, mut free) = ((-mean).exp(), 0.0);
    for lines in 0..ways {
        free += f64::from(ways - lines) * probability;
        probability *= mean / f64::from(lines + 1);
    }
    capacity * (1.0 - free / f64::from(ways))
}

/// The fraction of kept lines that counts in a cache of `capacity` bytes: at most half of the cache is kept. Real
/// inclusive caches are several times as large as their private ones.
pub fn keepable(capacity: f64, kept: f64) -> f64 {
    (capacity / 2.0 / kept.max(1.0)).min(1.0)
}

/// Lines per second that return out of `kept` bytes in use in private caches, if the cache below evicts unused lines
/// after `lasts_s`. While an evicted line is fetched (`each_s`) no other is used, so that all return once per the
/// lifetime of a line plus the time to fetch all.
pub fn again_per_s(kept: f64, lasts_s: f64, each_s: f64) -> f64 {
    let lines = kept / LINE;
    lines / (lasts_s + lines * each_s)
}

/// Seconds until an unused line is evicted from a full cache of `capacity` bytes: evictable bytes over inserted ones
/// (Little's law). `None` while there is room.
pub fn lasts_s(capacity: f64, tenants: &[Tenant<'_>]) -> Option<f64> {
    let mut groups = none(tenants);
    sum(tenants, |t| t.held, &mut groups);
    let comes: f64 = tenants.iter().map(|t| t.rate * t.miss_ratio(groups[t.group]) * LINE).sum();
    let full = tenants.iter().map(|t| t.held).sum::<f64>() >= 0.999 * capacity;
    (full && comes > 0.0).then(|| tenants.iter().map(Tenant::loose).sum::<f64>() / comes)
}

/// Relative change of holdings, in accessed bytes, below which they count as settled.
const SETTLED: f64 = 1e-6;

/// Advances all tenants of a cache of `capacity` bytes by `dt` seconds. Afterwards they hold at most the capacity.
pub fn advance(replacement: Replacement, capacity: f64, tenants: &mut [Tenant<'_>], dt: f64) {
    // A step with accesses to at most a sixteenth of the cache follows the curves closely enough.
    let accessed: f64 = tenants.iter().map(|t| t.rate).sum::<f64>() * LINE * dt;
    let parts = (16.0 * accessed / capacity).ceil().clamp(1.0, 65_536.0);
    let mut before = vec![0.0; tenants.len()];
    let mut groups = none(tenants);
    for _ in 0..parts as usize {
        before.iter_mut().zip(&*tenants).for_each(|(b, t)| *b = t.held);
        sum(tenants, |t| t.held, &mut groups);
        part(replacement, capacity, tenants, &groups, dt / parts);
        let change: f64 = before.iter().zip(&*tenants).map(|(b, t)| (b - t.held).abs()).sum();
        if change <= SETTLED * accessed / parts {
            break; // the further parts would change as little
        }
    }
}

fn part(replacement: Replacement, capacity: f64, tenants: &mut [Tenant<'_>], groups: &[f64], dt: f64) {
    for t in &mut *tenants {
        t.held = (t.held.max(t.kept) + t.rate * t.miss_ratio(groups[t.group]) * LINE * dt).min(t.bound);
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
    let (sum, loose) = tenants.iter().fold((0.0, 0.0), |(sum, loose), t| (sum + t.held, loose + t.loose()));
    if sum > capacity {
        let stays = (1.0 - (sum - capacity) / loose).max(0.0);
        for t in &mut *tenants {
            t.held = (t.held - t.loose()) + stays * t.loose();
        }
    }
}

/// What each tenant holds after everything older than a common age T is evicted: `d held/dt = inserts(held)` from what
/// it keeps up to T, with T such that all just fits.
fn young(capacity: f64, tenants: &[Tenant<'_>]) -> Vec<f64> {
    const STEPS: usize = 64;
    let mut members = none(tenants);
    sum(tenants, |_| 1.0, &mut members);
    // Members of a group fill alike: bytes inserted by one serve the others as far as they share.
    let reach = |t: &Tenant<'_>| 1.0 + t.shared * (members[t.group] - 1.0);
    let fills: Vec<Vec<f64>> = tenants.iter().map(|t| filling(capacity, t, reach(t), STEPS)).collect();
    let at = |age: f64| -> Vec<f64> {
        let one = |(t, fill): (&Tenant<'_>, &Vec<f64>)| {
            let next = fill.partition_point(|x| *x <= age);
            let step = capacity / STEPS as f64;
            let Some(after) = fill.get(next) else { return capacity.min(t.bound) };
            let before = if next == 0 { 0.0 } else { fill[next - 1] };
            ((next as f64 + (age - before) / (after - before)) * step).min(t.bound).max(t.kept)
        };
        tenants.iter().zip(&fills).map(one).collect()
    };
    let (mut low, mut high) = (-40.0_f64, 15.0_f64);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if at(middle.exp()).iter().sum::<f64>() > capacity { high = middle } else { low = middle }
    }
    at(low.exp())
}

/// Time until an empty tenant holds each `1/steps` of the capacity, in a common unit.
fn filling(capacity: f64, tenant: &Tenant<'_>, reach: f64, steps: usize) -> Vec<f64> {
    let step = capacity / steps as f64;
    let mut sum = 0.0;
    (0..steps)
        .map(|i| {
            let held = (i as f64 + 0.5) * step;
            let comes = ((i + 1) as f64 * step - tenant.kept).clamp(0.0, step);
            sum += comes / (tenant.rate * tenant.at(held * reach)).max(1e-9);
            sum
        })
        .collect()
}
