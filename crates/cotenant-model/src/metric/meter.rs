//! Readings from a source's current and previous answers.

use super::exposition::Scraped;
use crate::histogram::Clipped;
use crate::text::within;
use crate::{Direction, Histogram, Time};
use std::time::Duration;

/// The default quantile of histograms.
pub const QUANTILE: f64 = 0.99;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The value: finite.
    pub value: f64,
    /// Its period.
    pub window: Duration,
    /// Its number of observations.
    pub count: u64,
    /// The default direction: quantiles of observations (latencies, queue sizes) are better low, everything else high.
    /// Names do not matter.
    pub direction: Direction,
}

/// Why there is no reading.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MeterError {
    /// Empty answer.
    #[error("it printed nothing; print one number")]
    Nothing,
    /// Text.
    #[error("it printed '{0}', which is not a number; print one number and nothing else")]
    NoNumber(String),
    /// NaN or infinite.
    #[error("its value is {0}; only finite numbers can be compared")]
    NotFinite(String),
    /// Below 0.
    #[error("its value is {0}; a speed or a latency is not below 0")]
    Negative(f64),
    /// A quantile was asked for of something that has none.
    #[error("it is not a histogram and has no quantiles; leave q= out")]
    NoHistogram,
    /// The quantile's bucket is open at one end.
    #[error("its p{} is {clipped}; {}", (.quantile * 1e8).round() / 1e6, .clipped.remedy())]
    Clipped {
        /// The quantile, 0–1.
        quantile: f64,
        /// Its range.
        clipped: Clipped,
        /// The period of the observations.
        window: Duration,
    },
}

/// The single number in a text, decimal or scientific, with surrounding blanks.
///
/// # Errors
/// [`MeterError`]
pub fn number(text: &str) -> Result<f64, MeterError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(MeterError::Nothing);
    }
    let value: f64 = text.parse().map_err(|_| {
        let line = text.lines().next().unwrap_or_default();
        let shown = within(line, 40).into_owned();
        MeterError::NoNumber(if line.len() < text.len() { shown + "…" } else { shown })
    })?;
    finite(value)
}

fn finite(value: f64) -> Result<f64, MeterError> {
    if value.is_finite() { Ok(value) } else { Err(MeterError::NotFinite(value.to_string())) }
}

/// Of a value whose ratio to another one is to say something.
///
/// # Errors
/// [`MeterError::Negative`]
pub fn measure(value: f64) -> Result<f64, MeterError> {
    if value < 0.0 { Err(MeterError::Negative(value)) } else { Ok(value) }
}

/// Turns a source's words into readings: gauges as they are, counters and histograms by what came since the reading
/// before.
#[derive(Clone, Debug)]
pub struct Meter {
    quantile: Option<f64>,
    before: Option<(Time, Scraped)>,
}

impl Meter {
    /// Reads this quantile of histograms, by default [`QUANTILE`]; with one, only histograms are accepted.
    pub fn new(quantile: Option<f64>) -> Self {
        Self { quantile, before: None }
    }

    /// The reading at a time; `None` at first, after a restart of the source, and without observations.
    ///
    /// # Errors
    /// [`MeterError::NotFinite`], [`MeterError::Negative`], [`MeterError::NoHistogram`], [`MeterError::Clipped`]
    pub fn read(&mut self, at: Time, now: Scraped) -> Result<Option<Measured>, MeterError> {
        if self.quantile.is_some() && !matches!(now, Scraped::Histogram(_)) {
            return Err(MeterError::NoHistogram);
        }
        let direction = Direction::HigherIsBetter;
        let before = self.before.replace((at, now.clone()));
        let window = before.as_ref().map_or(Duration::ZERO, |(then, _)| at - *then);
        match (before.map(|(_, then)| then), now) {
            (_, Scraped::Gauge(value)) => {
                Ok(Some(Measured { value: measure(finite(value)?)?, window, count: 1, direction }))
            }
            (Some(Scraped::Counter(then)), Scraped::Counter(now)) => {
                let added = finite(now)? - finite(then)?;
                let known = added >= 0.0 && !window.is_zero();
                let (value, count) = (added / window.as_secs_f64(), added as u64);
                Ok(known.then_some(Measured { value, window, count, direction }))
            }
            (Some(Scraped::Histogram(then)), Scraped::Histogram(now)) => self.quantile_of(&now, &then, window),
            (_, Scraped::Counter(now)) => finite(now).map(|_| None),
            (_, Scraped::Histogram(_)) => Ok(None),
        }
    }

    fn quantile_of(&self, now: &Histogram, then: &Histogram, window: Duration) -> Result<Option<Measured>, MeterError> {
        let Some(added) = now.since(then) else { return Ok(None) };
        let quantile = self.quantile.unwrap_or(QUANTILE);
        if let Some(clipped) = added.clipped(quantile) {
            return Err(MeterError::Clipped { quantile, clipped, window });
        }
        let measured = |value| Measured { value, window, count: added.count(), direction: Direction::LowerIsBetter };
        Ok(added.quantile(quantile).map(measured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Bucket;

    #[test]
    fn one_number_and_nothing_else() {
        assert_eq!(number(" 12.5e3\n"), Ok(12_500.0));
        assert_eq!(number("-0"), Ok(0.0));
        assert_eq!(number("\n \n"), Err(MeterError::Nothing));
        assert_eq!(number("12 ms"), Err(MeterError::NoNumber("12 ms".into())));
        assert_eq!(number("1\n2"), Err(MeterError::NoNumber("1…".into())));
        assert_eq!(number(&"x".repeat(1_000)), Err(MeterError::NoNumber("x".repeat(26) + "…" + &"x".repeat(13))));
        assert_eq!(number("NaN"), Err(MeterError::NotFinite("NaN".into())));
        assert_eq!(number("-inf"), Err(MeterError::NotFinite("-inf".into())));
        let gauge = |value| Meter::new(None).read(Time(0), Scraped::Gauge(value)).map(|read| read.unwrap().value);
        assert_eq!((gauge(0.0), gauge(-5.0)), (Ok(0.0), Err(MeterError::Negative(-5.0))));
    }

    /// Holds speed/metrics.
    #[test]
    fn counters_become_rates() {
        let mut meter = Meter::new(None);
        let direction = Direction::HigherIsBetter;
        let mut read = |s, value| meter.read(Time::from_secs(s), Scraped::Counter(value));
        assert_eq!(read(1, 100.0), Ok(None), "nothing to compare with");
        let rate = Measured { value: 25.0, window: Duration::from_secs(2), count: 50, direction };
        assert_eq!(read(3, 150.0), Ok(Some(rate)));
        assert_eq!(read(4, 10.0), Ok(None), "the server began anew");
        assert_eq!(read(5, 12.0).unwrap().unwrap().value, 2.0);
        assert!(read(6, f64::NAN).is_err());
    }

    /// Holds speed/metrics.
    #[test]
    fn histograms_are_differenced() {
        let mut meter = Meter::new(Some(0.5));
        let mut read = |s, counts: [u64; 3]| {
            let high = [1.0, 2.0, f64::INFINITY];
            let bucket = |i: usize| Bucket { low: i as f64, high: high[i], count: counts[i] };
            meter.read(Time::from_secs(s), Scraped::Histogram(Histogram::new([bucket(0), bucket(1), bucket(2)])))
        };
        assert_eq!(read(0, [1_000, 0, 0]), Ok(None));
        // The four new ones are between 1 and 2; the thousand before them do not count.
        let median =
            Measured { value: 1.5, window: Duration::from_secs(1), count: 4, direction: Direction::LowerIsBetter };
        assert_eq!(read(1, [1_000, 4, 0]), Ok(Some(median)));
        assert_eq!(read(2, [1_000, 4, 0]), Ok(None), "nothing was observed");
        let why = read(3, [1_000, 4, 3]).unwrap_err().to_string();
        assert_eq!(why, "its p50 is beyond the last bound 2; give its histogram buckets that reach further");
        let why = read(4, [1_900, 10, 5]).unwrap_err().to_string();
        assert_eq!(why, "its p50 is below the first bound 1; give its histogram finer buckets below that");
        assert_eq!(read(5, [5, 0, 0]), Ok(None), "the server began anew");
    }

    #[test]
    fn gauges_are_what_they_are() {
        let mut meter = Meter::new(None);
        assert_eq!(meter.read(Time::from_secs(1), Scraped::Gauge(3.0)).unwrap().unwrap().value, 3.0);
        assert!(meter.read(Time::from_secs(2), Scraped::Gauge(f64::INFINITY)).is_err());
        assert_eq!(meter.read(Time::from_secs(3), Scraped::Gauge(4.0)).unwrap().unwrap().window.as_secs(), 1);
    }
}
