//! Numbers in a server's answers.

use super::error::{FetchError, is_no, status_cure};
use super::wire::{cure, is_certain};
use cotenant_model::Time;
use cotenant_model::metric::{
    Measured, Meter, ScrapeError, Scraped, Selector, is_query, number, offers, queried, scrape,
};
use std::time::Duration;
use ureq::{Agent, Error};

/// Longer answers are refused, bytes.
const MOST: u64 = 16 << 20;

/// The HTTP client. Only the user's address is used: no proxy, no redirection elsewhere.
pub fn agent(timeout: Duration) -> Agent {
    Agent::config_builder().timeout_global(Some(timeout)).proxy(None).max_redirects(0).build().into()
}

/// An endpoint.
#[derive(Debug)]
pub struct Http {
    agent: Agent,
    url: String,
    series: Option<Selector>,
    meter: Meter,
    timeout: Duration,
}

impl Http {
    pub fn new(url: &str, series: Option<Selector>, meter: Meter, timeout: Duration) -> Self {
        Self { agent: agent(timeout), url: url.to_owned(), series, meter, timeout }
    }

    pub fn fetch(&mut self, at: Time) -> Result<Option<Measured>, FetchError> {
        let answer = self.get().map_err(|error| match error {
            Error::Timeout(_) => FetchError::Slow(self.timeout),
            Error::BodyExceedsLimit(_) => FetchError::Huge((MOST >> 10) as usize),
            Error::StatusCode(code) => {
                let cure = status_cure(code).unwrap_or("check the path, and the query if it is one");
                self.failed(&format!("status {code}; {cure}"), is_no(code))
            }
            other => {
                let (said, why) = (other.to_string(), other.into_io());
                let cure = match cure(&why) {
                    "" => "; check that it is the right address and answers",
                    cure => cure,
                };
                self.failed(&format!("{said}{cure}"), is_certain(&why))
            }
        })?;
        let said = match &self.series {
            Some(series) => scrape(&answer, series)?,
            None if is_query(&answer) => Scraped::Gauge(queried(&answer)?),
            None => Scraped::Gauge(number(&answer).map_err(|error| match offers(&answer, "") {
                offers if offers.is_empty() => FetchError::from(error),
                offers => ScrapeError::Unnamed(offers).into(),
            })?),
        };
        Ok(self.meter.read(at, said)?)
    }

    fn get(&self) -> Result<String, Error> {
        let accept = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1";
        let mut response = self.agent.get(&self.url).header("accept", accept).call()?;
        if response.status().is_redirection() {
            return Err(Error::StatusCode(response.status().as_u16()));
        }
        response.body_mut().with_config().limit(MOST).lossy_utf8(true).read_to_string()
    }

    fn failed(&self, why: &str, certain: bool) -> FetchError {
        FetchError::Http { url: self.url.clone(), why: why.replace('\n', " "), certain }
    }
}
