//! Latencies of requests.

/// A histogram of request latencies with buckets that grow by a fiftieth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    buckets: Vec<f64>,
    /// Waiting requests beyond a queue in equilibrium.
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

    /// Unserved requests beyond those of a queue in equilibrium; above 1 the application is overloaded, and its
    /// latencies grow while that lasts.
    pub fn backlog(&self) -> f64 {
        self.backlog
    }

    /// Adds the requests of another seed; the larger backlog is kept.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0.0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, more)| *sum += more);
        self.backlog = self.backlog.max(other.backlog);
    }

    /// The `q` quantile of latency, seconds; `None` without requests.
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
