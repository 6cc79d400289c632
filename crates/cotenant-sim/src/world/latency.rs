//! Latencies of requests.

/// Latencies of requests, as a histogram whose buckets grow by a fiftieth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    buckets: Vec<f64>,
    /// Requests that wait beyond what a queue in equilibrium holds.
    pub(crate) backlog: f64,
}

const FIRST_S: f64 = 1e-7;
const GROWTH: f64 = 1.02;
const BUCKETS: usize = 1_200;

impl Latency {
    pub(super) fn add(&mut self, requests: f64, cdf: impl Fn(f64) -> f64) {
        self.buckets.resize(BUCKETS, 0.0);
        let (mut high, mut below) = (FIRST_S, 0.0);
        for bucket in &mut self.buckets {
            let now = cdf(high);
            *bucket += requests * (now - below).max(0.0);
            below = now;
            high *= GROWTH;
        }
    }

    /// Requests that came and could not be served, beyond those that a queue in equilibrium holds; above 1 the
    /// application is overloaded, and its latencies grow for as long as that lasts.
    pub fn backlog(&self) -> f64 {
        self.backlog
    }

    /// Adds the requests of another seed. The backlog is then the larger one.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0.0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
        self.backlog = self.backlog.max(other.backlog);
    }

    /// The latency that a fraction `q` of the requests does not exceed, seconds; `None` without requests.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let all: f64 = self.buckets.iter().sum();
        let mut sum = 0.0;
        let at = self.buckets.iter().position(|b| {
            sum += b;
            sum >= q * all
        })?;
        (all > 0.0).then(|| FIRST_S * GROWTH.powi(at as i32))
    }
}
