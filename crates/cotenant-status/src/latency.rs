//! Latencies of a service over some seconds, as quantiles.

use crate::status::Quantile;
use cotenant_model::{Histogram, Time};
use std::time::Duration;

/// Quantiles are of the answers in such a window: long enough for a p99, short enough to be of now.
const WINDOW: Duration = Duration::from_secs(10);

const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// Of one service.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// All that was counted when the window began, and when that was.
    begun: Option<(Time, Histogram)>,
    /// Of the last complete window.
    pub told: Vec<Quantile>,
}

impl Latency {
    /// Takes in what was counted so far, nanoseconds.
    pub fn add(&mut self, at: Time, so_far: &Histogram) {
        let Some((since, before)) = &self.begun else {
            self.begun = Some((at, so_far.clone()));
            return;
        };
        if at < *since + WINDOW {
            return;
        }
        let window = so_far.since(before).unwrap_or_default(); // a source that began anew tells of no whole window
        self.told = quantiles(&window);
        self.begun = Some((at, so_far.clone()));
    }
}

/// Those of which there are answers enough: of 50 answers none is the 99th in a hundred.
fn quantiles(window: &Histogram) -> Vec<Quantile> {
    let count = window.count() as f64;
    let known = |quantile: &f64| count * (1.0 - quantile) >= 1.0 - f64::EPSILON * count;
    let of = |quantile: f64| Some(Quantile { quantile, seconds: window.quantile(quantile)? / 1e9 });
    QUANTILES.into_iter().filter(known).filter_map(of).collect()
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
        let ms = |latency: &mut Latency, at, so_far: &Histogram| latency.add(Time::from_millis(at), so_far);
        (0..500).for_each(|_| so_far.count_one(4_000_000)); // from before anybody looked
        ms(&mut latency, 1_000, &so_far);
        (0..100).for_each(|_| so_far.count_one(1 << 20));
        ms(&mut latency, 10_999, &so_far);
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
}
