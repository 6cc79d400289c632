//! How fast a program of high priority is, by whichever metric; higher is better.

use crate::histogram::Histogram;
use crate::ids::Time;
use crate::sample::Direction;
use crate::signal::Signal;
use crate::view::{AppView, View};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The metric that counters tell.
pub(super) const IPC: &str = "ipc";

/// The metric that programs report themselves.
pub(super) const PROGRESS: &str = "progress";

/// Latencies that programs report themselves, and which quantile of them.
const LATENCIES: [(&str, f64); 2] = [("latency_p50_s", 0.5), ("latency_p99_s", 0.99)];

/// A reading of latencies takes so long at least, and so many of them.
const LATENCY_WINDOW: Duration = Duration::from_secs(1);
const LATENCY_COUNT: u64 = 100;

/// Latencies on the way to a reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Gathered {
    histogram: Histogram,
    since: Option<Time>,
}

/// Speed times weight, weight, and since when that was measured; `None` where nothing new is known. Latencies count from `from` on.
pub(super) fn speed(
    view: &View,
    app: &AppView,
    metric: &str,
    gathered: &mut Gathered,
    from: Time,
) -> Option<(f64, f64, Time)> {
    let seconds = view.interval.as_secs_f64();
    let since = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
    match metric {
        PROGRESS => Some((app.progress_per_s? * seconds, seconds, since)),
        IPC => {
            let of = |signal| {
                let tasks = view.tasks.iter().filter(|task| task.info.app == app.id);
                tasks.filter_map(|task| task.per_s(signal)).sum::<f64>() * seconds
            };
            let cycles = of(Signal::Cycles);
            (cycles > 0.0).then(|| (of(Signal::Instructions), cycles, since))
        }
        name => {
            if let Some((_, q)) = LATENCIES.iter().find(|(known, _)| *known == name) {
                return gathered.add(view, app.latency_ns.as_ref(), *q, since, from);
            }
            let (_, reading) = app.metrics.iter().find(|(other, _)| other == name)?;
            let value = match reading.direction {
                Direction::HigherIsBetter => reading.value,
                Direction::LowerIsBetter => reading.value.recip(),
            };
            let usable = view.is_new(reading) && value.is_finite() && value > 0.0;
            let since = Time(reading.at.0.saturating_sub(reading.window.as_nanos() as u64));
            usable.then_some((value, 1.0, since))
        }
    }
}

impl Gathered {
    /// Adds the latencies of an interval; a reading when there are enough.
    fn add(
        &mut self,
        view: &View,
        latencies: Option<&Histogram>,
        q: f64,
        since: Time,
        from: Time,
    ) -> Option<(f64, f64, Time)> {
        if self.since.is_some_and(|begin| begin < from) {
            *self = Self::default(); // of the phase before
        }
        if since < from {
            return None;
        }
        let begin = *self.since.get_or_insert(since);
        if let Some(latencies) = latencies {
            self.histogram.add(latencies);
        }
        if view.at - begin < LATENCY_WINDOW || self.histogram.count() < LATENCY_COUNT {
            return None;
        }
        let value = self.histogram.quantile(q).map(|ns| 1e9 / ns);
        *self = Self::default();
        value.filter(|value| value.is_finite()).map(|value| (value, 1.0, begin))
    }
}
