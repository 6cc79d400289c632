//! Latencies of a service over the last seconds, as quantiles.

use crate::status::Quantile;
use cotenant_model::{Histogram, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Quantiles are of the answers in such a window: long enough for a p99, short enough to show the present.
pub const WINDOW: Duration = Duration::from_secs(10);

/// It moves on by this much at a time.
pub const STEP: Duration = Duration::from_secs(1);

const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// Of one service.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// All that was counted at moments a step apart, the first of which the window begins with.
    seen: VecDeque<(Time, Histogram)>,
    /// The answers of the last complete window.
    window: Histogram,
    /// Quantiles of them.
    pub told: Vec<Quantile>,
}

impl Latency {
    /// Takes over the counts so far, nanoseconds; returns the answers of the last step, if one is over.
    pub fn add(&mut self, at: Time, so_far: &Histogram) -> Option<Histogram> {
        let Some((last, before)) = self.seen.back() else {
            self.seen.push_back((at, so_far.clone()));
            return None;
        };
        if at < *last + STEP {
            return None;
        }
        let step = so_far.since(before);
        if step.is_none() {
            self.seen.clear(); // a restarted source has no complete window
        }
        self.seen.push_back((at, so_far.clone()));
        while self.seen.get(1).is_some_and(|(second, _)| *second + WINDOW <= at) {
            self.seen.pop_front();
        }
        let whole = self.seen.front().filter(|(first, _)| *first + WINDOW <= at);
        self.window = whole.and_then(|(_, first)| so_far.since(first)).unwrap_or_default();
        self.told = QUANTILES.into_iter().filter_map(|quantile| self.quantile(quantile)).collect();
        step
    }

    /// A quantile of the last complete window. Of 50 answers none is the 99th in a hundred.
    pub fn quantile(&self, quantile: f64) -> Option<Quantile> {
        let count = self.window.count() as f64;
        let known = count * (1.0 - quantile) >= 1.0 - f64::EPSILON * count;
        let seconds = self.window.quantile(quantile).filter(|_| known)? / 1e9;
        Some(Quantile { quantile, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(latency: &Latency) -> Vec<(f64, f64)> {
        latency.told.iter().map(|told| (told.quantile, told.seconds)).collect()
    }

    #[test]
    fn quantiles_are_of_a_whole_window_and_of_answers_enough() {
        let (mut latency, mut so_far) = (Latency::default(), Histogram::default());
        let ms = |latency: &mut Latency, at, so_far: &Histogram| drop(latency.add(Time::from_millis(at), so_far));
        (0..500).for_each(|_| so_far.count_one(4_000_000)); // from before the first look
        ms(&mut latency, 1_000, &so_far);
        (0..100).for_each(|_| so_far.count_one(1 << 20));
        ms(&mut latency, 10_000, &so_far);
        assert_eq!(told(&latency), [], "no window is over");
        ms(&mut latency, 11_000, &so_far);
        assert_eq!(told(&latency).iter().map(|told| told.0).collect::<Vec<_>>(), QUANTILES);
        assert!(told(&latency).iter().all(|(_, s)| (0.001_048_576..0.001_082).contains(s)), "{:?}", latency.told);
        (0..30).for_each(|_| so_far.count_one(1 << 21));
        ms(&mut latency, 21_000, &so_far);
        assert_eq!(told(&latency).iter().map(|told| told.0).collect::<Vec<_>>(), [0.5, 0.95], "30 have no p99");
        ms(&mut latency, 31_000, &so_far);
        assert_eq!(told(&latency), [], "nobody asked anything");
        ms(&mut latency, 41_000, &Histogram::default());
        assert_eq!(told(&latency), [], "the program began anew");
    }

    /// A second in which twenty answers take 64 times as long is in the window for ten seconds.
    /// Holds qos/verdict.
    #[test]
    fn the_window_moves_on_by_a_second() {
        let (mut latency, mut so_far) = (Latency::default(), Histogram::default());
        let mut p99_ms = Vec::new();
        for second in 0..=25 {
            let slow = if second == 12 { 20 } else { 0 };
            (0..100 - slow).for_each(|_| so_far.count_one(1 << 20));
            (0..slow).for_each(|_| so_far.count_one(1 << 26));
            let step = latency.add(Time::from_secs(second), &so_far);
            assert_eq!(step.map(|step| step.count()), (second > 0).then_some(100));
            p99_ms.push(latency.quantile(0.99).map(|told| (told.seconds * 1e3).floor()));
        }
        assert_eq!(p99_ms[9..12], [None, Some(1.0), Some(1.0)]);
        assert_eq!(p99_ms.iter().filter(|ms| **ms >= Some(60.0)).count(), 10);
        assert_eq!(p99_ms[22], Some(1.0));
    }
}
