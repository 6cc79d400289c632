//! Progress and metrics over a run, for its summary.

use cotenant_linux::sense::metrics::MetricSummary;
use cotenant_linux::sense::progress::Reported;
use cotenant_model::speed::Source;
use cotenant_model::{Direction, Histogram, Round, Time, number};
use serde::Serialize;
use std::fmt;

/// What a program reported itself.
#[derive(Debug, Serialize)]
pub(crate) struct ProgressSummary {
    /// Units of work since the program started.
    units: u64,
    /// Units per second, from the first sample that had some to the last; `None` where there is only one.
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

/// The first and the last sample in which the first application reported something.
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
    let MetricSummary { name, direction, readings, mean, last, failed, why } = metric;
    let better = better(*direction);
    let told = match (mean, last) {
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
    format!("metric {name}: {told}{failures}")
}

/// The better direction, as a word.
pub(crate) fn better(direction: Direction) -> &'static str {
    match direction {
        Direction::HigherIsBetter => "higher",
        Direction::LowerIsBetter => "lower",
    }
}

/// Three significant digits, or all digits before the point.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1e-3 => format!("{value:.*}", (2 - v.log10().floor() as i32).max(0) as usize),
        _ => number::significant(value, 3),
    }
}

/// Seconds in the unit that people would use.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{} ns", digits(s * 1e9)),
        s if s < 1e-3 => format!("{} µs", digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(s * 1e3)),
        s => format!("{} s", digits(s)),
    }
}

/// A metric's own unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub label: String,
    /// Lower is better, so speeds are inverse.
    inverse: bool,
    pub seconds: bool,
    pub suffix: &'static str,
}

impl Unit {
    pub fn of(source: &Source, direction: Direction) -> Self {
        let name = source.to_string();
        let inverse = matches!(source, Source::Latency(_)) || direction == Direction::LowerIsBetter;
        let seconds = inverse && (name.ends_with("_s") || name.ends_with("seconds"));
        let label = match source {
            Source::Latency(_) => name.trim_start_matches("latency_").trim_end_matches("_s").to_owned(),
            _ => name,
        };
        let suffix = if matches!(source, Source::Progress) { "/s" } else { "" };
        Self { label, inverse, seconds, suffix }
    }

    pub fn value(&self, speed: Option<f64>) -> Option<f64> {
        speed.map(|speed| if self.inverse { speed.recip() } else { speed }).filter(|value| value.is_finite())
    }

    pub fn text(&self, value: Option<f64>) -> String {
        match value {
            None => "?".to_owned(),
            Some(value) if self.seconds => time(value),
            Some(value) if self.suffix.is_empty() => digits(value),
            Some(value) => format!("{}{}", number::significant(value, 3), self.suffix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_say_enough() {
        let values = [0.0, 12_345.6, 123.4, 99.95, 1.2345, 0.0123, 1.5e-7, -2.5];
        assert_eq!(values.map(digits), ["0", "12346", "123", "100.0", "1.23", "0.0123", "0.000000150", "-2.50"]);
        assert_eq!([2e-9, 1.5e-5, 0.25, 75.0].map(time), ["2.00 ns", "15.0 µs", "250 ms", "75.0 s"]);
    }

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
        };
        assert_eq!(line(&metric), "metric p99: no readings; 3 failed: it printed nothing; print one number");
        (metric.failed, metric.why) = (0, None);
        assert!(line(&metric).contains("nothing new had come"), "a command that hangs longer than the run lasts");
        (metric.readings, metric.mean, metric.last) = (2, Some(1.5), Some(2.0));
        assert_eq!(line(&metric), "metric p99: mean 1.50, last 2.00 of 2 readings (lower is better)");
    }
}
