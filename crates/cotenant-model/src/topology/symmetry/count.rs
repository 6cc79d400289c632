//! Counts mapping classes without listing them.
//!
//! The classes are the orbits of the mappings under the symmetries of the machine and the exchanges of equivalent
//! tenants. By Burnside's lemma their number is the mean, over all pairs of a symmetry and an exchange, of the number
//! of mappings that the pair fixes. For the swaps of siblings that mean is Pólya's cycle index of a wreath product,
//! computed up the tree: with `S(b, l)` the series of the strings of a block that the `l`-th power of the exchange
//! fixes, weighted by the contents of them and their images, `m` siblings have `h_m = 1/m · Σ_k S(b, l·k) · h_(m-k)`. A
//! series gives, per number of threads of each tenant, the number of strings with that many.

use super::block::units;
use super::{Slot, Symmetry};
use crate::CpuSet;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Interchangeable threads: those of one application, or those of its threads with one cpuset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Their number; each has its own CPU.
    pub threads: usize,
    /// Their allowed CPUs; `None`: every usable CPU.
    pub allowed: Option<CpuSet>,
    /// Tenants with the same number here, equally many threads and the same allowed CPUs may be exchanged as a whole;
    /// `None`: no exchange.
    pub like: Option<u32>,
}

/// Limit of coefficient products: one to two seconds.
const EFFORT: usize = 500_000_000;

/// Limit of coefficients of a series.
const SIZE: usize = 1 << 16;

/// A number of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exact.
    Exactly(u128),
    /// A lower bound (mappings by symmetries), if exact counting would take too long; saturates.
    AtLeast(u128),
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(n) => write!(f, "{n}"),
            Self::AtLeast(n) => write!(f, "at least {n}"),
        }
    }
}

/// Counts; `allowed` and `exchanges` as in [`super::Enumeration`].
pub(super) fn count(symmetry: &Symmetry, tenants: &[Tenant], allowed: &[Vec<bool>], exchanges: &[Vec<Slot>]) -> Count {
    let leaves = &symmetry.blocks[symmetry.root].leaves;
    let threads = tenants.iter().try_fold(0usize, |sum, t| sum.checked_add(t.threads));
    if threads.is_none_or(|n| n > leaves.len()) {
        return Count::Exactly(0);
    }
    let mut at = vec![0; leaves.len()];
    for (leaf, &position) in leaves.iter().enumerate() {
        at[position as usize] = leaf;
    }
    let total = exchanges.iter().try_fold(0u128, |sum, exchange| {
        let admits = |position: u32, slot: usize| allowed[at[position as usize]][slot];
        sum.checked_add(Counter::new(symmetry, tenants, &admits, exchange)?.orbits()?)
    });
    let pairs = (symmetry.skeleton.len() * exchanges.len()) as u128;
    match total {
        Some(total) => Count::Exactly(total / pairs),
        None => Count::AtLeast(bound(symmetry, tenants, allowed, pairs as f64)),
    }
}

/// A lower bound of the number of mappings, by the number of symmetries and exchanges.
pub(super) fn bound(symmetry: &Symmetry, tenants: &[Tenant], allowed: &[Vec<bool>], pairs: f64) -> u128 {
    let log_factorial = |n: usize| (2..=n).map(|i| (i as f64).log2()).sum::<f64>();
    let mut room: Vec<(usize, usize)> = (0..tenants.len())
        .map(|slot| (allowed.iter().filter(|leaf| leaf[slot]).count(), tenants[slot].threads))
        .collect();
    room.sort_unstable();
    let (mut taken, mut bits) = (0, -pairs.log2());
    for (cpus, threads) in room {
        let Some(over) = cpus.checked_sub(taken + threads) else { return 0 };
        bits += log_factorial(cpus - taken) - log_factorial(threads) - log_factorial(over);
        taken += threads;
    }
    let mut open = vec![symmetry.root];
    while let Some(at) = open.pop() {
        for class in &symmetry.blocks[at].classes {
            bits -= log_factorial(class.len());
            open.extend(class);
        }
    }
    // Subtracts the possible rounding error.
    (bits - 1e-6).exp2() as u128
}

/// Coefficients by index: the numbers of threads of the tenants as digits, each with its number of threads as the
/// highest.
type Series = Vec<u128>;

struct Counter<'a> {
    symmetry: &'a Symmetry<'a>,
    admits: &'a dyn Fn(u32, usize) -> bool,
    exchange: &'a [Slot],
    threads: Vec<usize>,
    /// Index increment of one thread of a tenant.
    steps: Vec<usize>,
    /// Digits of every index.
    digits: Vec<Vec<u32>>,
    known: BTreeMap<(bool, usize, usize), Rc<Series>>,
    effort: usize,
}

impl<'a> Counter<'a> {
    fn new(
        symmetry: &'a Symmetry<'a>,
        tenants: &[Tenant],
        admits: &'a dyn Fn(u32, usize) -> bool,
        exchange: &'a [Slot],
    ) -> Option<Self> {
        let threads: Vec<usize> = tenants.iter().map(|t| t.threads).collect();
        let (mut size, mut steps) = (1usize, Vec::new());
        for n in &threads {
            steps.push(size);
            size = size.checked_mul(n + 1).filter(|size| *size <= SIZE)?;
        }
        let digits_of = |i: usize| steps.iter().zip(&threads).map(|(step, n)| (i / step % (n + 1)) as u32).collect();
        let digits = (0..size).map(digits_of).collect();
        Some(Self { symmetry, admits, exchange, threads, steps, digits, known: BTreeMap::new(), effort: EFFORT })
    }

    /// The sum over the symmetries between units of the mappings, up to swaps, that they and the exchange fix.
    fn orbits(mut self) -> Option<u128> {
        let symmetry = self.symmetry;
        let last = self.digits.len() - 1;
        if symmetry.skeleton.len() == 1 {
            return Some(self.series(symmetry.root, 1)?[last]);
        }
        let units = units(&symmetry.blocks, symmetry.root);
        // Many symmetries have cycles of the same lengths and types.
        let mut cases: BTreeMap<Vec<(u32, usize, usize)>, u128> = BTreeMap::new();
        for by in &symmetry.skeleton {
            let mut cycles = Vec::new();
            let mut seen = vec![false; by.len()];
            for &unit in &units {
                let first = symmetry.blocks[unit].leaves[0] as usize;
                let (mut at, mut length) = (first, 0);
                while !seen[at] {
                    seen[at] = true;
                    at = by[at] as usize;
                    length += 1;
                }
                if length > 0 {
                    cycles.push((symmetry.blocks[unit].kind, length, unit));
                }
            }
            cycles.sort_unstable_by_key(|(kind, length, _)| (*kind, *length));
            // Units of one type have the same series.
            for i in 1..cycles.len() {
                if cycles[i].0 == cycles[i - 1].0 {
                    cycles[i].2 = cycles[i - 1].2;
                }
            }
            *cases.entry(cycles).or_insert(0) += 1;
        }
        cases.into_iter().try_fold(0u128, |sum, (cycles, times)| {
            let mut product = self.one();
            for (_, length, unit) in cycles {
                let factor = self.series(unit, length)?;
                product = self.product(&product, &factor)?;
            }
            sum.checked_add(product[last].checked_mul(times)?)
        })
    }

    fn one(&self) -> Series {
        let mut one = vec![0; self.digits.len()];
        one[0] = 1;
        one
    }

    /// The strings of a block that the `power`-th power of the exchange fixes, each weighted by the joint contents of
    /// it and its images under the powers below; `None` on overflow or beyond the limits.
    fn series(&mut self, at: usize, power: usize) -> Option<Rc<Series>> {
        let block = &self.symmetry.blocks[at];
        let key = if block.free { (true, block.kind as usize, power) } else { (false, at, power) };
        if let Some(known) = self.known.get(&key) {
            return Some(Rc::clone(known));
        }
        let series = if power > self.threads.iter().sum() {
            self.one() // any thread would count once per power
        } else if block.classes.is_empty() {
            self.leaf(block.leaves[0], power)
        } else {
            let mut product = self.one();
            for class in &block.classes {
                let siblings = self.siblings(class[0], class.len(), power)?;
                product = self.product(&product, &siblings)?;
            }
            product
        };
        let series = Rc::new(series);
        self.known.insert(key, Rc::clone(&series));
        Some(series)
    }

    /// A leaf is free, or has a slot that the power of the exchange fixes.
    fn leaf(&self, position: u32, power: usize) -> Series {
        let mut series = self.one();
        for slot in (0..self.threads.len()).filter(|slot| (self.admits)(position, *slot)) {
            let mut held = vec![0; self.threads.len()];
            let mut image = slot;
            for _ in 0..power {
                held[image] += 1;
                image = self.exchange[image] as usize;
            }
            if image == slot && held.iter().zip(&self.threads).all(|(held, n)| held <= n) {
                series[held.iter().zip(&self.steps).map(|(held, step)| held * step).sum::<usize>()] += 1;
            }
        }
        series
    }

    /// Multisets of `m` of a block's strings.
    fn siblings(&mut self, block: usize, m: usize, power: usize) -> Option<Series> {
        let mut multisets = vec![self.one()];
        for size in 1..=m {
            let mut sum = vec![0u128; self.digits.len()];
            for k in 1..=size {
                let powers = self.series(block, power * k)?;
                let part = self.product(&powers, &multisets[size - k])?;
                for (sum, part) in sum.iter_mut().zip(part) {
                    *sum = sum.checked_add(part)?;
                }
            }
            multisets.push(sum.into_iter().map(|n| n / size as u128).collect());
        }
        multisets.pop()
    }

    fn product(&mut self, a: &[u128], b: &[u128]) -> Option<Series> {
        let present = |s: &[u128]| (0..s.len()).filter(|&i| s[i] > 0).collect::<Vec<_>>();
        let (in_a, in_b) = (present(a), present(b));
        self.effort = self.effort.checked_sub(in_a.len() * in_b.len())?;
        let mut product = vec![0u128; a.len()];
        for &i in &in_a {
            for &j in &in_b {
                let fits = (self.digits[i].iter().zip(&self.digits[j]).zip(&self.threads))
                    .all(|((x, y), n)| (x + y) as usize <= *n);
                if fits {
                    product[i + j] = product[i + j].checked_add(a[i].checked_mul(b[j])?)?;
                }
            }
        }
        Some(product)
    }
}
