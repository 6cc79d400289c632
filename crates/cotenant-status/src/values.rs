//! The numbers that are shown of each service, wherever they are shown: one table for the metrics, the terminal, the
//! page and the plots of pages and reports.

use crate::status::ServiceStatus;
use serde::Serialize;

/// The quantile of latencies that is plotted.
const QUANTILE: f64 = 0.99;

/// A number that is shown of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Threads.
    Threads,
    /// CPUs' worth of time in the last second.
    Cpus,
    /// Threads that waited for a CPU in the last second.
    Waiting,
    /// Share of the last second in which its control group was short of CPUs.
    Pressure,
    /// Speed in the last minute over its speed alone.
    Kept,
    /// The goal for `Kept`.
    Goal,
    /// `Kept` over `Goal`.
    OfGoal,
    /// Share of its requests, or of seconds, within its goal in the last hour.
    WithinGoal,
    /// The age of the measurement of its speed alone.
    AloneAge,
    /// The p99 of its answers.
    P99,
    /// `P99` alone.
    P99Alone,
    /// `P99` at the goal.
    P99Goal,
    /// Bytes from memory in the last second.
    Bandwidth,
    /// Share of the last minute in which it was throttled.
    Throttled,
}

/// The unit of a number's display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueUnit {
    /// A plain count.
    Count,
    /// Threads, on average.
    Threads,
    /// CPUs' worth of time.
    Cpus,
    /// A share, 0–1.
    Share,
    /// Seconds.
    Seconds,
    /// Bytes per second.
    BytesPerS,
}

impl ValueUnit {
    /// As plots have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Threads => "threads",
            Self::Cpus => "cpus",
            Self::Share => "share",
            Self::Seconds => "seconds",
            Self::BytesPerS => "bytes_per_s",
        }
    }
}

/// A metric of each service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceMetric {
    /// Its name.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
}

/// A fact about a service where all of it is shown.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fact {
    /// The key of the number in a service's JSON.
    pub key: &'static str,
    /// Its unit in plots.
    pub unit: &'static str,
    /// Its label in a terminal.
    #[serde(skip)]
    pub label: &'static str,
    /// Text around it in a terminal.
    #[serde(skip)]
    pub around: [&'static str; 2],
    /// Its label in a browser.
    #[serde(rename = "label")]
    pub browser_label: &'static str,
    /// Text after it in a browser.
    #[serde(rename = "behind")]
    pub browser_behind: &'static str,
}

/// A plot of a number over time, with a line for each service.
#[derive(Clone, Copy, Debug)]
pub struct ServicePlot {
    /// Its id.
    pub id: &'static str,
    /// The part of a page that it belongs to.
    pub part: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The value that has to fit at least.
    pub most: Option<f64>,
}

impl Value {
    /// All of them, as views list them.
    pub const ALL: [Self; 14] = [
        Self::Threads,
        Self::Cpus,
        Self::Waiting,
        Self::Pressure,
        Self::Kept,
        Self::Goal,
        Self::OfGoal,
        Self::WithinGoal,
        Self::AloneAge,
        Self::P99,
        Self::P99Alone,
        Self::P99Goal,
        Self::Bandwidth,
        Self::Throttled,
    ];

    /// Values kept in a history.
    pub const KEPT: [Self; 11] = [
        Self::Cpus,
        Self::Waiting,
        Self::Pressure,
        Self::Kept,
        Self::Goal,
        Self::WithinGoal,
        Self::P99,
        Self::P99Alone,
        Self::P99Goal,
        Self::Throttled,
        Self::Bandwidth,
    ];

    /// The number of a service; `None` if it is unknown or does not apply.
    pub fn of(self, service: &ServiceStatus) -> Option<f64> {
        let at_p99 = |quantile: f64| (quantile - QUANTILE).abs() < 1e-6;
        let bound = || service.said.bound.filter(|bound| at_p99(bound.quantile));
        match self {
            Self::Threads => Some(service.threads as f64),
            Self::Cpus => service.cpus,
            Self::Waiting => service.waiting,
            Self::Pressure => service.pressure,
            Self::Kept => service.kept,
            Self::Goal => service.goal,
            Self::OfGoal => Some(service.kept? / service.goal.filter(|goal| *goal > 0.0)?),
            Self::WithinGoal => service.within_goal.map(|within| within.share),
            Self::AloneAge => service.measured.as_ref()?.alone_age_s,
            Self::P99 => service.latencies.iter().find(|took| at_p99(took.quantile)).map(|took| took.seconds),
            Self::P99Alone => bound().map(|bound| bound.alone_s),
            Self::P99Goal => bound().map(|bound| bound.goal_s),
            Self::Bandwidth => service.bandwidth,
            Self::Throttled => service.throttled,
        }
    }

    /// The unit of its display.
    pub fn unit(self) -> ValueUnit {
        match self {
            Self::Threads => ValueUnit::Count,
            Self::Cpus => ValueUnit::Cpus,
            Self::Waiting => ValueUnit::Threads,
            Self::Pressure | Self::Kept | Self::Goal | Self::OfGoal | Self::WithinGoal | Self::Throttled => {
                ValueUnit::Share
            }
            Self::AloneAge | Self::P99 | Self::P99Alone | Self::P99Goal => ValueUnit::Seconds,
            Self::Bandwidth => ValueUnit::BytesPerS,
        }
    }

    /// Its metric; `None`: it has none, or one with labels of its own.
    pub fn metric(self) -> Option<ServiceMetric> {
        let (name, help) = match self {
            Self::Threads => ("cotenant_service_threads", "Threads of a service"),
            Self::Cpus => {
                ("cotenant_service_cpus", "CPUs that a service kept busy in the last second: CPU seconds per second")
            }
            Self::Waiting => (
                "cotenant_service_waiting_threads",
                "Threads of a service that were ready to run and had no CPU, on average over the last second",
            ),
            Self::Pressure => (
                "cotenant_service_cpu_pressure_ratio",
                "Share of the last second in which one thread at least of a service was ready to run and had no CPU, by \
                 the kernel's PSI of its control group",
            ),
            Self::Kept => (
                "cotenant_service_speed_ratio",
                "Speed of a service of class high in the last minute as a share of its speed alone (1: as fast as \
                 alone). The speed alone is measured while services of class low are paused",
            ),
            Self::OfGoal => (
                "cotenant_service_goal_ratio",
                "The same as a share of its goal: below 1 the goal was missed in the last minute",
            ),
            Self::WithinGoal => (
                "cotenant_service_within_goal_ratio",
                "Share of the requests of a service of class high within its goal in the last hour; of seconds where \
                 single requests are not known",
            ),
            Self::AloneAge => (
                "cotenant_service_alone_age_seconds",
                "Time since the speed alone of a service of class high was measured",
            ),
            Self::Throttled => (
                "cotenant_service_throttled_ratio",
                "Share of the last minute in which a service of class low was throttled",
            ),
            Self::Goal | Self::P99 | Self::P99Alone | Self::P99Goal | Self::Bandwidth => return None,
        };
        Some(ServiceMetric { name, help })
    }

    /// Its fact; `None`: it is part of another one.
    pub fn fact(self) -> Option<Fact> {
        let unit = self.unit().name();
        match self {
            Self::Waiting => Some(Fact {
                key: "waiting",
                unit,
                label: "waits",
                around: ["", " wait for a CPU"],
                browser_label: "Waits for a CPU",
                browser_behind: " on average",
            }),
            Self::Pressure => Some(Fact {
                key: "pressure",
                unit,
                label: "pressure",
                around: ["short of CPUs for ", " of the time"],
                browser_label: "Short of CPUs",
                browser_behind: " of the time",
            }),
            Self::Bandwidth => Some(Fact {
                key: "bandwidth",
                unit,
                label: "from memory",
                around: ["", ""],
                browser_label: "From memory",
                browser_behind: "",
            }),
            Self::Throttled => Some(Fact {
                key: "throttled",
                unit,
                label: "throttled",
                around: ["", " of the last minute"],
                browser_label: "Throttled",
                browser_behind: " of the last minute",
            }),
            Self::Threads
            | Self::Cpus
            | Self::Kept
            | Self::Goal
            | Self::OfGoal
            | Self::WithinGoal
            | Self::AloneAge
            | Self::P99
            | Self::P99Alone
            | Self::P99Goal => None,
        }
    }

    /// Its plot; `None`: it has none, or shares one with other numbers.
    pub fn plot(self) -> Option<ServicePlot> {
        match self {
            Self::WithinGoal => Some(ServicePlot {
                id: "within",
                part: "goals",
                title: "Share of requests within the goal in the last hour; of seconds where requests are not known",
                most: Some(1.0),
            }),
            Self::Waiting => Some(ServicePlot {
                id: "waiting",
                part: "goals",
                title: "Threads of services that wait for a CPU, on average",
                most: None,
            }),
            Self::Pressure => Some(ServicePlot {
                id: "pressure",
                part: "goals",
                title: "Share of the time in which control groups of services were short of CPUs",
                most: Some(1.0),
            }),
            Self::Throttled => Some(ServicePlot {
                id: "throttled",
                part: "goals",
                title: "Share of the last minute in which services were throttled",
                most: Some(1.0),
            }),
            Self::Bandwidth => Some(ServicePlot {
                id: "bandwidth",
                part: "memory",
                title: "Bytes from memory, by misses of the last-level cache",
                most: None,
            }),
            _ => None,
        }
    }

    /// Whether a longer stretch of time shows its highest value, not its mean: a short time of slow answers counts.
    pub fn peaks(self) -> bool {
        self == Self::P99
    }
}
