//! How much of a shared cache each program holds in the steady state.
//!
//! Both replacement policies evict by one number common to all lines of the cache. So a program among others behaves as
//! it would alone in a cache of the size it holds, where evictions equal insertions.

use crate::app::Phase;
use crate::occupancy::Replacement;

const STEPS: usize = 1024;

/// How long lines last with this many bytes held, for each program.
pub struct Lasting {
    step: f64,
    /// Per program: bytes accessed until `i` steps are held.
    accessed: Vec<Vec<f64>>,
}

impl Lasting {
    /// For programs in a cache of `capacity` bytes; `kept` bytes of each return as soon as they are evicted, and so are
    /// always present.
    ///
    /// * `random`: every line lasts equally long on average; by Little's law that is bytes held over bytes inserted:
    ///   `(o − kept) / (rate · m(o))`.
    /// * `lru`: every line is evicted at the same age. A program holds what it has filled by that age, starting with
    ///   what is kept: `∫ do / (rate · m(o))` (Denning's working set of that age; Che's approximation for shared LRU).
    pub fn new(replacement: Replacement, capacity: f64, programs: &[&Phase], kept: &[f64]) -> Self {
        let step = capacity / STEPS as f64;
        let misses = |p: &Phase, steps: f64| p.miss_ratio.at(steps * step).max(1e-9);
        let one = |(p, kept): (&&Phase, &f64)| -> Vec<f64> {
            let above = |i: usize| (i as f64 * step - kept).max(0.0);
            let mut sum = 0.0;
            let filled = |i: usize| {
                sum += (above(i) - above(i - 1)) / misses(p, i as f64 - 0.5);
                sum
            };
            match replacement {
                Replacement::Lru => (1..=STEPS).map(filled).collect(),
                Replacement::Random => (1..=STEPS).map(|i| above(i) / misses(p, i as f64)).collect(),
            }
        };
        Self { step, accessed: programs.iter().zip(kept).map(one).collect() }
    }

    /// Bytes held by each program, given its accessed bytes per second, and the seconds until an unused line is
    /// evicted. The bytes sum to the capacity.
    pub fn held(&self, rates: &[f64]) -> (Vec<f64>, f64) {
        let (mut low, mut high) = (-69.0_f64, 69.0_f64);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            // The time at which the cache is full: no program alone holds more.
            if self.after(middle.exp(), rates).iter().sum::<f64>() >= self.capacity() * (1.0 - 1e-9) {
                high = middle;
            } else {
                low = middle;
            }
        }
        (self.after(low.exp(), rates), low.exp())
    }

    fn capacity(&self) -> f64 {
        self.step * STEPS as f64
    }

    /// Bytes held by each if lines last this many seconds.
    fn after(&self, seconds: f64, rates: &[f64]) -> Vec<f64> {
        let one = |(accessed, rate): (&Vec<f64>, &f64)| {
            let bytes = rate * seconds;
            let full = accessed.partition_point(|sum| *sum <= bytes);
            let Some(next) = accessed.get(full) else { return self.capacity() };
            let before = if full == 0 { 0.0 } else { accessed[full - 1] };
            (full as f64 + (bytes - before) / (next - before)) * self.step
        };
        self.accessed.iter().zip(rates).map(one).collect()
    }
}
