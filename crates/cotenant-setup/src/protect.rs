//! Settings of `qos`: protected programs, throttled programs, and the means.

use crate::args::MetricArg;
use clap::ValueEnum;
use cotenant_linux::act::throttle::Enforcer;
use cotenant_model::AppId;
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, Settings};
use cotenant_policies::qos::controller::{Controller, Steady, Tracking};
use cotenant_policies::{High, Limits, Qos, QosConfig};
use std::time::Duration;

/// Delay of naps: marks look every 2 ms, a freezer is faster.
const SETTLE: Duration = Duration::from_millis(2);

/// Periods of a metric to wait for a reading, beside a failing one.
const PATIENCE: u32 = 5;

/// Time between two looks where phases have ends that are looked at anyway, and readings take a second or so.
const INTERVAL: Duration = Duration::from_millis(100);

/// Readings from outside are looked at so much more often than they are made, down to [`SHORTEST_INTERVAL`].
const LOOKS: u32 = 10;

/// Automatic looks are never more frequent.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Its limit for long observations.
const LASTING_INTERVAL: Duration = Duration::from_millis(250);

/// `--means`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Means {
    /// Mildest first, each if the one before does not do: the background (with --controller steady); CPUs that the
    /// high-priority programs do not use; naps by marks (cotenant cc), else a freezer, else SIGSTOP; limits of CPU
    /// time; then also of cache ways and memory bandwidth, if there is resctrl
    Auto,
    /// Naps by marks alone
    Inside,
    /// Naps by a freezer (cgroup v2 or v1) alone, or by SIGSTOP for pauses of 20 ms and more
    Outside,
    /// Limits of CPU time, with --controller tracking or steady: cpu.max, or the CFS quota of version 1
    Quota,
    /// Limits of cache ways and memory bandwidth through resctrl, with the same controllers (tested on a fake tree
    /// only)
    Resctrl,
}

impl Means {
    /// Whether programs are taken away from the others first.
    pub fn place(self) -> bool {
        self == Self::Auto
    }

    /// Whether limits follow naps.
    pub fn climb(self) -> bool {
        self == Self::Auto
    }

    /// The limits by which duties are kept.
    pub fn limits(self) -> Option<Limits> {
        match self {
            Self::Quota => Some(Limits::CpuTime),
            Self::Resctrl => Some(Limits::Caches),
            Self::Auto | Self::Inside | Self::Outside => None,
        }
    }
}

impl From<Means> for Enforcer {
    fn from(means: Means) -> Self {
        match means {
            Means::Auto => Self::Auto,
            Means::Inside => Self::Inside,
            Means::Outside => Self::Outside,
            Means::Quota => Self::Quota,
            Means::Resctrl => Self::Resctrl,
        }
    }
}

/// A protected program.
#[derive(Clone, Debug, PartialEq)]
pub struct Protected {
    /// The program.
    pub app: AppId,
    /// The source of its speed.
    pub metric: MetricArg,
    /// The fraction (0–1, exclusive) of its speed alone that it should keep; `None`: the controller has no such goal.
    pub goal: Option<f64>,
}

/// The settings for already running programs with goals, by any means available here.
pub fn keep(high: &[Protected], low: Vec<AppId>) -> Config {
    let metrics: Vec<MetricArg> = high.iter().map(|high| high.metric.clone()).collect();
    let goal = high.iter().filter_map(|high| high.goal).fold(0.0, f64::max);
    let controller = if are_windowed(&metrics) {
        Controller::Steady(Steady::new(goal))
    } else {
        Controller::Tracking(Tracking::new(goal))
    };
    let apps: Vec<AppId> = high.iter().map(|high| high.app).collect();
    let mut qos = QosConfig { place: false, ..served(&apps, &metrics, low, Means::Auto, controller) };
    for (program, high) in qos.high.iter_mut().zip(high) {
        program.goal = high.goal.filter(|own| *own < goal);
    }
    let settings = Settings::default().with::<Qos>(&Some(qos));
    Config { interval: lasting_interval(&metrics), pin: Pin::Cpu, settings, ..Config::default() }
}

/// Which programs are served and how.
pub fn served(
    high: &[AppId],
    metrics: &[MetricArg],
    low: Vec<AppId>,
    means: Means,
    controller: Controller,
) -> QosConfig {
    let one = |(app, metric): (&AppId, &MetricArg)| High { app: *app, metric: metric.source.clone(), goal: None };
    QosConfig {
        high: high.iter().zip(metrics).map(one).collect(),
        low,
        place: means.place(),
        limits: means.limits(),
        climb: means.climb(),
        settle: SETTLE,
        silence: metrics.iter().filter_map(|metric| metric.periods(PATIENCE)).max().unwrap_or_default(),
        patience: metrics.iter().filter_map(|metric| metric.patience(PATIENCE)).max().unwrap_or_default(),
        controller,
    }
}

/// Whether readings of one of these cover longer times than the phases of most controllers.
pub fn are_windowed(metrics: &[MetricArg]) -> bool {
    metrics.iter().any(|metric| metric.every().is_some())
}

/// The default time between two looks.
pub fn usual_interval(metrics: &[MetricArg]) -> Duration {
    let every = metrics.iter().flat_map(|metric| &metric.outside).map(|metric| metric.every / LOOKS);
    every.fold(INTERVAL, Duration::min).max(SHORTEST_INTERVAL)
}

/// The same for weeks of observation: if all speeds are external, four looks per reading suffice.
pub fn lasting_interval(metrics: &[MetricArg]) -> Duration {
    let reading = metrics.iter().map(MetricArg::every).min().flatten();
    reading.map_or_else(|| usual_interval(metrics), |every| (every / 4).clamp(SHORTEST_INTERVAL, LASTING_INTERVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four looks in a reading of a second; progress is looked at as usual.
    #[test]
    fn who_looks_for_weeks_looks_less_often_where_readings_take_long() {
        let interval = |texts: &[&str]| {
            let metrics: Vec<MetricArg> = texts.iter().map(|text| text.parse().unwrap()).collect();
            lasting_interval(&metrics).as_millis()
        };
        for (metrics, ms) in [
            (&["redis:6379:p99"][..], 250),
            (&["redis:6379:p99,every=10s"], 250),
            (&["cmd:true,every=400ms,timeout=400ms"], 100),
            (&["progress"], 100),
            (&["progress", "redis:6379:p99"], 100),
        ] {
            assert_eq!(interval(metrics), ms, "{metrics:?}");
        }
    }
}
