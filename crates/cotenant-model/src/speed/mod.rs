//! The speed of an application by any source.

mod ladder;

pub use crate::view::usable;
pub use ladder::{Ladder, Standing, busiest};

use crate::sample::ClippedReading;
use crate::{AppId, AppView, Direction, Reading, Signal, Time, View};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A source of an application's speed. Its text is the name for users; [`by_name`] serialises it so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Instructions per second of its threads. The text, `instructions/s`, is for people only and not accepted as a
    /// name.
    Instructions,
    /// Instructions per cycle of its threads: `ipc`.
    Ipc,
    /// Units of work per second reported by the program: `progress`.
    Progress,
    /// A percentile of the latencies reported by the program, seconds: `latency_p99_s`.
    Latency(Percentile),
    /// Iterations, sections, tasks and parallel regions per second in OpenMP's runtime: `openmp_units/s`.
    OpenMp,
    /// MPI calls per second that move data or wait for it: `mpi_calls/s`.
    Mpi,
    /// Bytes per second read and written by its processes. The text, `io_bytes/s`, is for people only, like the next
    /// one.
    Io,
    /// Bytes per second received, or sent and acknowledged, over TCP: `tcp_bytes/s`.
    Tcp,
    /// The metric of this name, from outside the program.
    Metric(String),
}

/// A percentile, in millionths of a percent: 0–100,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Percentile(u32);

impl Percentile {
    const P50: Self = Self(50_000_000);
    const P99: Self = Self(99_000_000);

    fn percent(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// The same as a quantile, 0–1.
    pub fn quantile(self) -> f64 {
        self.percent() / 100.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions => f.write_str("instructions/s"),
            Self::Ipc => f.write_str("ipc"),
            Self::Progress => f.write_str("progress"),
            Self::Latency(percentile) => write!(f, "latency_p{}_s", percentile.percent()),
            Self::OpenMp => f.write_str("openmp_units/s"),
            Self::Mpi => f.write_str("mpi_calls/s"),
            Self::Io => f.write_str("io_bytes/s"),
            Self::Tcp => f.write_str("tcp_bytes/s"),
            Self::Metric(name) => f.write_str(name),
        }
    }
}

impl From<String> for Source {
    /// Every other name is that of a metric.
    fn from(name: String) -> Self {
        let percent = name.strip_prefix("latency_p").and_then(|rest| rest.strip_suffix("_s")?.parse::<f64>().ok());
        match (name.as_str(), percent) {
            ("ipc", _) => Self::Ipc,
            ("progress", _) => Self::Progress,
            (_, Some(percent)) if (0.0..=100.0).contains(&percent) => {
                Self::Latency(Percentile((percent * 1e6).round() as u32))
            }
            _ => Self::Metric(name),
        }
    }
}

/// Serialises a source as its name.
pub mod by_name {
    use super::Source;
    use serde::{Deserialize, Deserializer, Serializer};

    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(source)
    }

    /// # Errors
    /// If it is not text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Source, D::Error> {
        String::deserialize(deserializer).map(Source::from)
    }
}

impl Source {
    /// Proxies for the speed of programs without reports, best first. OpenMP and MPI events precede instructions,
    /// because threads execute more of these while they spin for each other. TCP bytes precede bytes read and written,
    /// which include a server's own files and logs.
    pub const PROXIES: [Self; 5] = [Self::OpenMp, Self::Mpi, Self::Instructions, Self::Tcp, Self::Io];

    /// Whether it is only a proxy for the program's speed.
    pub fn is_proxy(&self) -> bool {
        Self::PROXIES.contains(self)
    }

    /// The latest reading in a view, in the source's own unit; for a metric also if it is older than the interval.
    /// `None` if unknown.
    pub fn reading(&self, view: &View, app: &AppView) -> Option<Reading> {
        let higher = |value, count| (value, Direction::HigherIsBetter, count);
        let (value, direction, count) = match self {
            Self::Instructions => higher(app.instructions_per_s?, 1),
            Self::Ipc => {
                let [instructions, cycles] = instructions_and_cycles_per_s(view, app.id);
                (cycles > 0.0).then(|| higher(instructions / cycles, 1))?
            }
            Self::Progress => {
                let per_s = app.progress_per_s?;
                higher(per_s, (per_s * view.interval.as_secs_f64()).round() as u64)
            }
            Self::Latency(percentile) => {
                let latency = app.latency_ns.as_ref()?;
                (latency.quantile(percentile.quantile())? / 1e9, Direction::LowerIsBetter, latency.count())
            }
            Self::OpenMp => higher(app.openmp_per_s?, 1),
            Self::Mpi => higher(app.mpi_per_s?, 1),
            Self::Io => return app.io,
            Self::Tcp => return app.tcp,
            Self::Metric(name) => {
                return app.metrics.iter().find(|(other, _)| other == name).map(|(_, reading)| *reading);
            }
        };
        Some(Reading { value, direction, window: view.interval, count, at: view.at })
    }

    /// Why there is no reading despite observations: a quantile in a bucket open at one end, in the source's own unit.
    pub fn clipped(&self, view: &View, app: &AppView) -> Option<ClippedReading> {
        match self {
            Self::Latency(percentile) => {
                let clipped = app.latency_ns.as_ref()?.clipped(percentile.quantile())?.times(1e-9);
                Some(ClippedReading { clipped, window: view.interval, at: view.at })
            }
            Self::Metric(name) => app.clipped.iter().find(|(other, _)| other == name).map(|(_, clipped)| *clipped),
            _ => None,
        }
    }

    /// With its latest reading as a speed.
    pub fn speed(self, view: &View, app: &AppView) -> Option<(Self, Reading)> {
        self.reading(view, app)?.as_speed().map(|reading| (self, reading))
    }

    /// The interval's contribution to a mean speed: speed × weight, and the weight: cycles for IPC, otherwise the
    /// seconds of the reading, because servers are probed more often at times. `None` without new information.
    pub fn term(&self, view: &View, app: &AppView) -> Option<[f64; 2]> {
        let reading = match self {
            Self::Ipc => {
                let sums = instructions_and_cycles_per_s(view, app.id);
                return (sums[1] > 0.0).then(|| sums.map(|per_s| per_s * view.interval.as_secs_f64()));
            }
            Self::Latency(_) | Self::Metric(_) => {
                self.reading(view, app).filter(|reading| view.is_new(reading))?.as_speed()?
            }
            _ => self.reading(view, app)?,
        };
        let seconds = reading.seconds();
        Some([reading.value * seconds, seconds])
    }
}

/// Weight of a reading without a duration.
const MOMENT: Duration = Duration::from_micros(1);

/// The best source besides counters, with its reading as a speed: the first external metric, because the user requested
/// it; otherwise the program's reported progress.
pub fn told(view: &View, app: &AppView) -> Option<(Source, Reading)> {
    let metrics = app.metrics.iter().map(|(name, _)| Source::Metric(name.clone()));
    metrics.chain([Source::Progress]).find_map(|source| source.speed(view, app))
}

/// The best source in this view, with its reading as a speed: as [`told`], otherwise the first available proxy. It may
/// differ in the next view: to compare intervals use a [`Ladder`], which considers steadiness.
pub fn ladder(view: &View, app: &AppView) -> Option<(Source, Reading)> {
    let proxy = || Source::PROXIES.into_iter().find_map(|source| source.speed(view, app));
    told(view, app).or_else(proxy)
}

impl Reading {
    /// The same as a speed: higher is better. `None` if the value cannot be one.
    pub fn as_speed(self) -> Option<Self> {
        let value = match self.direction {
            Direction::HigherIsBetter => self.value,
            Direction::LowerIsBetter => self.value.recip(),
        };
        usable(value).then_some(Self { value, direction: Direction::HigherIsBetter, ..self })
    }

    /// Its duration; a value that was read for the first time has none.
    pub fn seconds(&self) -> f64 {
        self.window.max(MOMENT).as_secs_f64()
    }

    /// Start of its period.
    pub fn since(&self) -> Time {
        Time(self.at.0.saturating_sub(self.window.as_nanos() as u64))
    }
}

impl View {
    /// Readings of all sources from an application itself or its metrics, with p50 and p99 of its latencies.
    pub fn readings(&self, app: &AppView) -> Vec<(Source, Reading)> {
        let own = [Source::Progress, Source::Latency(Percentile::P50), Source::Latency(Percentile::P99)];
        let all = own.into_iter().chain(app.metrics.iter().map(|(name, _)| Source::Metric(name.clone())));
        all.filter_map(|source| source.reading(self, app).map(|reading| (source, reading))).collect()
    }
}

/// Over those threads of an application with both counts.
fn instructions_and_cycles_per_s(view: &View, app: AppId) -> [f64; 2] {
    view.tasks
        .iter()
        .filter(|task| task.info.app == app)
        .filter_map(|t| Some([t.per_s(Signal::Instructions)?, t.per_s(Signal::Cycles)?]))
        .fold([0.0; 2], |sum, thread| [sum[0] + thread[0], sum[1] + thread[1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::sample::{AppSample, Sample};
    use std::time::Duration;

    #[test]
    fn names_come_back() {
        for name in ["ipc", "progress", "latency_p50_s", "latency_p99.9_s", "latency_p2.5_s", "queue", "latency_p99"] {
            assert_eq!(Source::from(name.to_owned()).to_string(), name);
        }
        let quantile = |name: &str| match Source::from(name.to_owned()) {
            Source::Latency(percentile) => Some(percentile.quantile()),
            _ => None,
        };
        assert_eq!(
            ["latency_p50_s", "latency_p99_s", "latency_p2.5_s"].map(quantile),
            [Some(0.5), Some(0.99), Some(0.025)]
        );
        assert_eq!(["latency_p101_s", "latency_px_s", "latency_p99", "p99"].map(quantile), [None; 4]);
        for source in Source::PROXIES {
            assert_ne!(Source::from(source.to_string()), source, "for people only");
        }
    }

    #[test]
    fn every_source_reads_alike() {
        let at = |ms, progress, slow, metric_ms| {
            let buckets = [(1_000.0, 2_000.0, 50), (1e9, 3e9, slow)].map(Into::into);
            let metric = Reading {
                value: 7.0,
                direction: Direction::LowerIsBetter,
                window: Duration::from_secs(1),
                count: 1,
                at: Time::from_millis(metric_ms),
            };
            let app = AppSample {
                progress: Some(progress),
                latency_ns: Some(Histogram::new(buckets)),
                metrics: vec![("queue".into(), metric)],
                ..AppSample::default()
            };
            Sample { at: Time::from_millis(ms), apps: vec![app], ..Sample::default() }
        };
        let view = View::new(&at(1_000, 10, 0, 900), &at(1_500, 60, 10, 900));
        let app = &view.apps[0];
        let told = |(source, r): &(Source, Reading)| (source.to_string(), r.value, r.count, source.term(&view, app));
        // 50 units in 0.5 s; ten latencies, all between 1 and 3 s; a metric that is older than the interval.
        assert_eq!(
            view.readings(app).iter().map(told).collect::<Vec<_>>(),
            [
                ("progress".to_owned(), 100.0, 50, Some([50.0, 0.5])),
                ("latency_p50_s".to_owned(), 2.0, 10, Some([0.25, 0.5])),
                ("latency_p99_s".to_owned(), 2.98, 10, Some([0.5 / 2.98, 0.5])),
                ("queue".to_owned(), 7.0, 1, None),
            ]
        );
        let view = View::new(&at(1_000, 10, 0, 900), &at(1_500, 10, 0, 1_200));
        let readings = view.readings(&view.apps[0]);
        assert_eq!(readings.len(), 2, "no latency in the interval: nothing is known about it");
        assert_eq!(readings[1].0.term(&view, &view.apps[0]), Some([1.0 / 7.0, 1.0]));
        assert_eq!(super::told(&view, &view.apps[0]).map(|(source, _)| source.to_string()).as_deref(), Some("queue"));
    }

    /// Ten seconds of which one was slow, in which the server was asked ten times, else every three seconds.
    /// Holds speed/metrics.
    #[test]
    fn readings_count_by_the_time_that_they_are_about() {
        let direction = Direction::LowerIsBetter;
        let (mut at, mut sums) = (Time(0), [0.0; 2]);
        let asked = [(1.0, 3_000)].into_iter().chain([(4.0, 100); 10]).chain([(1.0, 3_000); 2]);
        for (value, ms) in asked {
            let window = Duration::from_millis(ms);
            let before = Sample { at, apps: vec![AppSample::default()], ..Sample::default() };
            at = at + window;
            let metrics = vec![("m".to_owned(), Reading { value, direction, window, count: 1, at })];
            let now = Sample { at, apps: vec![AppSample { metrics, ..AppSample::default() }], ..Sample::default() };
            let view = View::new(&before, &now);
            let term = Source::Metric("m".to_owned()).term(&view, &view.apps[0]).unwrap();
            sums = [sums[0] + term[0], sums[1] + term[1]];
        }
        // 9 s at a speed of 1, one at a quarter; each reading once would be 5.5 of 13.
        assert!((sums[0] / sums[1] - 0.925).abs() < 1e-9 && (sums[1] - 10.0).abs() < 1e-9, "{sums:?}");
    }
}
