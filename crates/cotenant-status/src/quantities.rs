//! Speeds and times as people read them.

use cotenant_model::speed::Source;
use cotenant_model::{Direction, number};

/// The better direction, as a word.
pub fn better(direction: Direction) -> &'static str {
    match direction {
        Direction::HigherIsBetter => "higher",
        Direction::LowerIsBetter => "lower",
    }
}

/// Three significant digits, or all digits before the point.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1e-3 => format!("{value:.*}", (2 - v.log10().floor() as i32).max(0) as usize),
        _ => number::significant(value, 3),
    }
}

/// Seconds in the unit that people would use.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{} ns", digits(s * 1e9)),
        s if s < 1e-3 => format!("{} µs", digits(s * 1e6)),
        s if s < 1.0 => format!("{} ms", digits(s * 1e3)),
        s => format!("{} s", digits(s)),
    }
}

/// A metric's own unit.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// The metric's name.
    pub label: String,
    /// Lower is better, so speeds are inverse.
    pub inverse: bool,
    /// Whether values are seconds.
    pub seconds: bool,
    /// Text behind each value.
    pub suffix: &'static str,
}

impl Unit {
    /// Of a source whose values are better in this direction.
    pub fn of(source: &Source, direction: Direction) -> Self {
        let name = source.to_string();
        let inverse = matches!(source, Source::Latency(_)) || direction == Direction::LowerIsBetter;
        let seconds = inverse && (name.ends_with("_s") || name.ends_with("seconds"));
        let label = match source {
            Source::Latency(_) => name.trim_start_matches("latency_").trim_end_matches("_s").to_owned(),
            _ => name,
        };
        let suffix = match source {
            Source::Progress | Source::Instructions | Source::OpenMp | Source::Mpi => "/s",
            Source::Io | Source::Tcp => "B/s",
            Source::Ipc => " ipc",
            Source::Latency(_) | Source::Metric(_) => "",
        };
        Self { label, inverse, seconds, suffix }
    }

    /// A speed in this unit; `None` where it is unknown or infinite.
    pub fn value(&self, speed: Option<f64>) -> Option<f64> {
        speed.map(|speed| if self.inverse { speed.recip() } else { speed }).filter(|value| value.is_finite())
    }

    /// A value in this unit as text.
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
}
