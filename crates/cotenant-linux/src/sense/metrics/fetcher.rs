//! One reader for all sources.

use super::command::Command;
use super::credentials::Credentials;
use super::error::{FetchError, StartError};
use super::http::Http;
use super::log::Log;
use super::probe::Probe;
use super::stop::Stop;
use cotenant_model::metric::{Measured, Meter, Metric, MetricSource, Protocol, QUANTILE};
use cotenant_model::{Direction, Time};
use std::time::Duration;

/// The reader of one metric.
pub enum Fetcher {
    Command(Command),
    Log(Log),
    Http(Box<Http>),
    Probe(Box<Probe>),
}

impl Fetcher {
    pub fn new(metric: &Metric) -> Result<Self, StartError> {
        Ok(match &metric.source {
            MetricSource::Command(text) => Self::Command(Command::new(text, metric.timeout)),
            MetricSource::Log { path, pattern } => Self::Log(Log::new(path, pattern)?),
            MetricSource::Probe { protocol, address } => {
                let quantile = metric.quantile.unwrap_or(QUANTILE);
                let credentials = Credentials::of(metric);
                let address = match protocol {
                    Protocol::Postgres => credentials.place(address),
                    Protocol::Redis | Protocol::Http => address.clone(),
                };
                let probe = Probe::new(*protocol, &address, quantile, metric.every, metric.timeout);
                Self::Probe(Box::new(probe.for_clients(metric.elsewhere).by(credentials)))
            }
            MetricSource::Http { url, series } => {
                let meter = Meter::new(metric.quantile);
                Self::Http(Box::new(Http::new(url, series.clone(), meter, metric.timeout)))
            }
        })
    }

    /// Whether it answers.
    pub fn ask(&mut self, stop: &Stop) -> Result<(), FetchError> {
        match self {
            Self::Probe(probe) => probe.ask_once(),
            other => other.fetch(Time::default(), Duration::ZERO, stop).map(drop),
        }
    }

    /// A reading at a time; `since` is the time since the previous one. `None`: nothing new.
    pub fn fetch(&mut self, at: Time, since: Duration, stop: &Stop) -> Result<Option<Measured>, FetchError> {
        match self {
            Self::Command(command) => {
                let value = command.fetch(stop)?;
                Ok(Some(Measured { value, window: since, count: 1, direction: Direction::HigherIsBetter }))
            }
            Self::Log(log) => {
                let found = log.fetch()?;
                let direction = Direction::HigherIsBetter;
                Ok(found.map(|(value, count)| Measured { value, window: since, count, direction }))
            }
            Self::Http(http) => http.fetch(at),
            Self::Probe(probe) => probe.fetch(stop),
        }
    }
}

/// Whether reading it starts programs.
pub fn is_command(metric: &Metric) -> bool {
    matches!(metric.source, MetricSource::Command(_))
}
