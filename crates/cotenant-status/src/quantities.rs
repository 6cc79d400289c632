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
    /// Text after each value.
    pub suffix: &'static str,
}

impl Unit {
    /// For a source with this better direction.
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

    /// A speed in this unit; `None` if it is unknown or infinite.
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

    /// Two speeds in this unit, the lower value first: `307 to 475 µs`.
    pub fn range(&self, speeds: [f64; 2]) -> String {
        let [a, b] = speeds.map(|speed| self.value(Some(speed)));
        let [low, high] = (if a > b { [b, a] } else { [a, b] }).map(|value| self.text(value));
        match (low.split_once(' '), high.split_once(' ')) {
            (Some((low, unit)), Some((_, same))) if unit == same => format!("{low} to {high}"),
            _ => format!("{low} to {high}"),
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
    fn a_range_has_its_unit_once() {
        let unit = |name: &str| Unit::of(&Source::from(name.to_owned()), Direction::HigherIsBetter);
        let us = |us: f64| 1e6 / us;
        assert_eq!(unit("latency_p99_s").range([us(475.0), us(307.0)]), "307 to 475 µs");
        assert_eq!(unit("latency_p99_s").range([us(1_200.0), us(900.0)]), "900 µs to 1.20 ms");
        assert_eq!(unit("progress").range([9e5, 9.5e5]), "900 to 950 k/s");
        assert_eq!(unit("queue").range([9.0, 12.0]), "9.00 to 12.0");
    }
}
