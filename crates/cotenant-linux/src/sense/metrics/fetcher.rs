//! One reader for all sources.

use super::clients::{Clients, Statistic};
use super::command::Command;
use super::credentials::Credentials;
use super::error::{FetchError, StartError};
use super::http::Http;
use super::log::Log;
use super::probe::{Answers, Probe};
use super::stop::Stop;
use cotenant_model::metric::{Measured, Meter, Metric, MetricSource, Protocol, QUANTILE, measure};
use cotenant_model::{Direction, Time};
use std::time::Duration;

/// The reader of one metric.
pub enum Fetcher {
    Command(Command),
    Log(Log),
    Http(Box<Http>),
    Probe(Box<Probe>),
    Clients(Box<Clients>),
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
            MetricSource::Clients { service, beyond } => {
                let quantile = metric.quantile.unwrap_or(QUANTILE);
                let statistic = beyond.map_or(Statistic::Quantile(quantile), Statistic::Beyond);
                Self::Clients(Box::new(Clients::new(service.clone(), statistic, metric.every)))
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
            Self::Clients(clients) => clients.see(),
            other => other.fetch(Time::default(), Duration::ZERO, stop).map(drop),
        }
    }

    /// A reading at a time; `since` is the time since the previous one. `None`: nothing new.
    pub fn fetch(&mut self, at: Time, since: Duration, stop: &Stop) -> Result<Option<Measured>, FetchError> {
        match self {
            Self::Command(command) => {
                let value = measure(command.fetch(stop)?)?;
                Ok(Some(Measured { value, window: since, count: 1, direction: Direction::HigherIsBetter }))
            }
            Self::Log(log) => {
                let Some((value, count)) = log.fetch()? else { return Ok(None) };
                let (value, direction) = (measure(value)?, Direction::HigherIsBetter);
                Ok(Some(Measured { value, window: since, count, direction }))
            }
            Self::Http(http) => http.fetch(at),
            Self::Probe(probe) => probe.fetch(stop),
            Self::Clients(clients) => clients.fetch(stop),
        }
    }

    /// All answers of a server, one by one, now and from now on.
    pub fn answers(&self) -> Option<Answers> {
        match self {
            Self::Probe(probe) => Some(probe.answers()),
            Self::Clients(clients) => Some(clients.answers()),
            _ => None,
        }
    }
}

/// A thread's stack that reads it, bytes: to load a BPF object takes more than a quarter of a megabyte.
pub fn stack(metric: &Metric) -> usize {
    if matches!(metric.source, MetricSource::Clients { .. }) { 2 << 20 } else { 256 << 10 }
}

/// Whether reading it starts programs.
pub fn is_command(metric: &Metric) -> bool {
    matches!(metric.source, MetricSource::Command(_))
}
