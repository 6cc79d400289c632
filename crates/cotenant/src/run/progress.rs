//! Progress and metrics over a run, for its summary.

use cotenant_linux::sense::metrics::{MetricSummary, SeenRequests};
use cotenant_linux::sense::progress::Reported;
use cotenant_model::{Histogram, Round, Time};
use cotenant_status::quantities::{better, digits, time};
use serde::Serialize;
use std::fmt;

/// Progress reported by a program.
#[derive(Debug, Serialize)]
pub(crate) struct ProgressSummary {
    /// Units of work since the program started.
    units: u64,
    /// Units per second, from the first sample with units to the last; `None` with only one.
    per_s: Option<f64>,
    /// Latencies since the program started.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<LatencySummary>,
}

#[derive(Debug, Serialize)]
struct LatencySummary {
    count: u64,
    p50_s: f64,
    p99_s: f64,
}

/// The first and the last sample with a report of the first application.
#[derive(Debug, Default)]
pub(crate) struct ProgressSpan {
    first: Option<(Time, u64)>,
    last: Option<(Time, u64)>,
}

impl ProgressSpan {
    pub fn add(&mut self, round: &Round<'_>) {
        let Some(units) = round.sample.apps.first().and_then(|app| app.progress) else { return };
        let now = (round.sample.at, units);
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    pub fn summary(&self, reported: &Reported) -> ProgressSummary {
        let latency = |h: Histogram| {
            let (p50, p99) = h.quantile(0.5).zip(h.quantile(0.99))?;
            Some(LatencySummary { count: h.count(), p50_s: p50 / 1e9, p99_s: p99 / 1e9 })
        };
        let per_s = self.first.zip(self.last).and_then(|((then, before), (now, units))| {
            let seconds = (now - then).as_secs_f64();
            (seconds > 0.0).then(|| units.saturating_sub(before) as f64 / seconds)
        });
        ProgressSummary { units: reported.units, per_s, latency: reported.latency_ns().and_then(latency) }
    }
}

impl fmt::Display for ProgressSummary {
    /// `1200 units (39.8 per second); 1200 latencies, median 1.2 ms, 99 % below 3.4 ms`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} units", self.units)?;
        if let Some(per_s) = self.per_s {
            write!(f, " ({} per second)", digits(per_s))?;
        }
        match &self.latency {
            Some(LatencySummary { count, p50_s, p99_s }) => {
                write!(f, "; {count} latencies, median {}, 99 % below {}", time(*p50_s), time(*p99_s))
            }
            None => Ok(()),
        }
    }
}

/// A metric's line.
pub(crate) fn line(metric: &MetricSummary) -> String {
    let MetricSummary { name, direction, readings, mean, last, failed, why, requests, .. } = metric;
    let better = better(*direction);
    let means = match (mean, last) {
        (Some(mean), Some(last)) => {
            format!("mean {}, last {} of {readings} readings ({better} is better)", digits(*mean), digits(*last))
        }
        _ if *failed == 0 => "no readings: nothing new had come from its source when the run ended".to_owned(),
        _ => "no readings".to_owned(),
    };
    let failures = match why {
        Some(why) => format!("; {failed} failed: {why}"),
        None => String::new(),
    };
    let seen = match requests {
        Some(seen) => {
            let SeenRequests { here, elsewhere, .. } = seen;
            let part = seen.part().map_or_else(String::new, |part| format!(", in {:.0} % of the time", part * 100.0));
            format!("; {here} requests seen at clients on this machine, {elsewhere} of others at the server{part}")
        }
        None => String::new(),
    };
    format!("metric {name}: {means}{seen}{failures}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::Direction;

    #[test]
    fn a_metric_that_fails_says_so() {
        let mut metric = MetricSummary {
            name: "p99".into(),
            direction: Direction::LowerIsBetter,
            readings: 0,
            mean: None,
            last: None,
            failed: 3,
            why: Some("it printed nothing; print one number".into()),
            requests: None,
            refused: false,
        };
        assert_eq!(line(&metric), "metric p99: no readings; 3 failed: it printed nothing; print one number");
        (metric.failed, metric.why) = (0, None);
        assert!(line(&metric).contains("nothing new had come"), "a command that hangs longer than the run lasts");
        (metric.readings, metric.mean, metric.last) = (2, Some(1.5), Some(2.0));
        assert_eq!(line(&metric), "metric p99: mean 1.50, last 2.00 of 2 readings (lower is better)");
        let seen = "; 53200 requests seen at clients on this machine, 7 of others at the server";
        for (share, part) in [(1.0, ""), (0.2, ", in 20 % of the time")] {
            metric.requests = Some(SeenRequests { here: 53_200, elsewhere: 7, share });
            assert!(line(&metric).ends_with(&format!("{seen}{part}")), "{}", line(&metric));
        }
    }
}
