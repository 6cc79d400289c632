//! Metrics of workloads (Dey et al., `ReSense`, §3 and §3.5): average response time, throughput, and whether a policy
//! improves them.

use super::JobRuns;
use cotenant_model::stats::paired::{Paired, Tail, paired};
use serde::Serialize;

/// Metrics of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Average response time, seconds: the mean of the programs' execution times, each the mean over its runs.
    pub art_s: f64,
    /// Throughput, 1/s: the sum of the inverse of these times.
    pub throughput: f64,
}

impl Figures {
    /// Of the jobs of a workload; `None` if one has no finished run.
    pub fn of(jobs: &[JobRuns]) -> Option<Self> {
        let times: Vec<f64> = jobs.iter().map(JobRuns::time_s).collect();
        Self::of_times(&times)
    }

    /// Of the programs' execution times, seconds; `None` if empty, or if one is not above 0.
    pub fn of_times(times_s: &[f64]) -> Option<Self> {
        let sound = !times_s.is_empty() && times_s.iter().all(|t| t.is_finite() && *t > 0.0);
        sound.then(|| Self {
            art_s: times_s.iter().sum::<f64>() / times_s.len() as f64,
            throughput: times_s.iter().map(|t| 1.0 / t).sum(),
        })
    }

    /// Percent by which these are better than others: average response time, throughput. The paper normalises to the
    /// native system: a time 5 % shorter, or a throughput 5 % higher, is 5 % better.
    pub fn over(&self, other: &Self) -> [f64; 2] {
        [(1.0 - self.art_s / other.art_s) * 100.0, (self.throughput / other.throughput - 1.0) * 100.0]
    }
}

/// Whether a policy improves a metric over many workloads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Mean improvement, percent.
    pub percent: f64,
    /// Its 95 % confidence interval; `None` below two workloads.
    pub ci95: Option<[f64; 2]>,
    /// Probability of such a difference without any improvement (paired t-test, one-sided as in §3.5); `None` below two
    /// workloads.
    pub p: Option<f64>,
}

/// From the metrics of the same workloads without and with a policy: average response time, throughput.
pub fn gains(pairs: &[(Figures, Figures)]) -> [Gain; 2] {
    let better: Vec<[f64; 2]> = pairs.iter().map(|(without, with)| with.over(without)).collect();
    let gain = |metric: usize| {
        let (before, after): (Vec<f64>, Vec<f64>) = match metric {
            0 => pairs.iter().map(|(without, with)| (-without.art_s, -with.art_s)).unzip(),
            _ => pairs.iter().map(|(without, with)| (without.throughput, with.throughput)).unzip(),
        };
        let percent: Vec<f64> = better.iter().map(|b| b[metric]).collect();
        let spread: Option<Paired> = paired(&vec![0.0; percent.len()], &percent, 0.95, Tail::Greater);
        Gain {
            percent: percent.iter().sum::<f64>() / percent.len().max(1) as f64,
            ci95: spread.map(|s| [s.low, s.high]),
            p: paired(&before, &after, 0.95, Tail::Greater).map(|t| t.p),
        }
    };
    [gain(0), gain(1)]
}
