//! Both replacements against a set-associative cache that is really simulated, on address streams of two tenants.

use crate::app::{Curve, LINE};
use crate::machine::Replacement;
use crate::occupancy::{Tenant, advance};

const SETS: usize = 256;
const WAYS: usize = 16;
const LINES: usize = SETS * WAYS;

/// A stream of line numbers.
#[derive(Clone, Copy, Debug)]
enum Stream {
    /// Each of so many lines equally often.
    Uniform(usize),
    /// The k-th line with probability ∝ 1/k.
    Zipf(usize),
    /// One after the other, never again soon.
    Streaming,
    /// Half of the accesses uniform, half streaming.
    Mixed(usize),
}

struct Source {
    stream: Stream,
    random: fastrand::Rng,
    next: u64,
    cumulative: Vec<f64>,
}

impl Source {
    fn new(stream: Stream, seed: u64) -> Self {
        let n = if let Stream::Zipf(n) = stream { n } else { 0 };
        let mut sum = 0.0;
        let cumulative = (1..=n)
            .map(|k| {
                sum += 1.0 / k as f64;
                sum
            })
            .collect();
        Self { stream, random: fastrand::Rng::with_seed(seed), next: 1 << 30, cumulative }
    }

    fn line(&mut self) -> u64 {
        let mut stream = || {
            self.next += 1;
            self.next
        };
        match self.stream {
            Stream::Uniform(n) => self.random.u64(..n as u64),
            Stream::Mixed(n) if self.random.bool() => self.random.u64(..n as u64),
            Stream::Streaming | Stream::Mixed(_) => stream(),
            Stream::Zipf(_) => {
                let x = self.random.f64() * self.cumulative.last().copied().unwrap_or(1.0);
                self.cumulative.partition_point(|c| *c < x) as u64
            }
        }
    }
}

/// Misses per access and tenant in a shared cache; the first quarter warms it up.
fn exact(replacement: Replacement, sets: usize, streams: &[(Stream, usize)], accesses: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut sources: Vec<Source> = streams.iter().enumerate().map(|(i, s)| Source::new(s.0, i as u64)).collect();
    let turns: Vec<usize> = streams.iter().enumerate().flat_map(|(i, s)| vec![i; s.1]).collect();
    let mut cache: Vec<Vec<u64>> = vec![Vec::with_capacity(WAYS); sets];
    let mut counts = vec![(0.0, 0.0); streams.len()];
    for n in 0..accesses {
        let tenant = turns[random.usize(..turns.len())];
        let line = sources[tenant].line() * streams.len() as u64 + tenant as u64;
        let set = &mut cache[(line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % sets];
        let held = set.iter().position(|l| *l == line);
        if let Some(at) = held {
            set.remove(at);
        } else if set.len() == WAYS {
            set.remove(if replacement == Replacement::Lru { 0 } else { random.usize(..WAYS) });
        }
        set.push(line);
        if n > accesses / 4 {
            counts[tenant].0 += 1.0;
            counts[tenant].1 += f64::from(u8::from(held.is_none()));
        }
    }
    counts.iter().map(|(all, missed)| missed / all).collect()
}

/// The curve of a stream alone, measured in caches of growing size with the same replacement: what a solo measurement would give.
fn curve(replacement: Replacement, stream: Stream) -> Curve {
    let mut points: Vec<(f64, f64)> = (1..=8)
        .map(|i| {
            let sets = SETS * i / 8;
            ((sets * WAYS) as f64 * LINE, exact(replacement, sets, &[(stream, 1)], 60_000)[0])
        })
        .collect();
    for i in 1..points.len() {
        points[i].1 = points[i].1.min(points[i - 1].1);
    }
    Curve::new(points).unwrap()
}

#[test]
fn both_replacements_agree_with_an_exact_cache() {
    let pairs = [
        [(Stream::Uniform(LINES), 1), (Stream::Uniform(LINES / 2), 2)],
        [(Stream::Uniform(LINES), 1), (Stream::Streaming, 1)],
        [(Stream::Zipf(4 * LINES), 1), (Stream::Uniform(LINES), 1)],
        [(Stream::Zipf(4 * LINES), 2), (Stream::Streaming, 1)],
        [(Stream::Mixed(LINES), 2), (Stream::Zipf(2 * LINES), 1)],
        [(Stream::Zipf(4 * LINES), 1), (Stream::Zipf(LINES), 3)],
    ];
    for replacement in [Replacement::Random, Replacement::Lru] {
        let mut errors = Vec::new();
        for pair in &pairs {
            let truth = exact(replacement, SETS, pair, 200_000);
            let curves: Vec<Curve> = pair.iter().map(|(s, _)| curve(replacement, *s)).collect();
            let tenant = |(group, (curve, (_, weight))): (usize, (_, &(Stream, usize)))| Tenant {
                held: 0.0,
                rate: *weight as f64 * 1e6,
                curve,
                group,
                shared: 0.0,
                bound: f64::INFINITY,
            };
            let mut tenants: Vec<Tenant<'_>> = curves.iter().zip(pair).enumerate().map(tenant).collect();
            (0..400).for_each(|_| advance(replacement, LINES as f64 * LINE, &mut tenants, 1e-3));
            for (t, truth) in tenants.iter().zip(&truth) {
                errors.push((t.curve.at(t.held) - truth).abs());
            }
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean <= 0.05, "{replacement:?}: mean error {mean:.3}, each {errors:.3?}");
    }
}
