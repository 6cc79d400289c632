//! The plots of the page and of reports, as plain values: JSON that `parts.js` draws.

use serde::Serialize;

/// Plots over the same time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plots {
    /// The ends of the rows, seconds since the beginning.
    pub at_s: Vec<f64>,
    /// Each plot.
    pub plots: Vec<Plot>,
}

/// A plot over time.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// Which one it is, the same over time.
    pub id: String,
    /// The part of the page that it belongs to: `goals`, `memory`, `places`.
    pub part: &'static str,
    /// Its title.
    pub title: String,
    /// `share` (0–1), `seconds`, `cpus`, `bytes_per_s`, or the text after the numbers.
    pub unit: String,
    /// Whether lines are stacked as parts of a whole.
    pub stacked: bool,
    /// The value that has to fit at least.
    pub most: Option<f64>,
    /// Number of those without a line.
    pub left_out: usize,
    /// Its own times, if different from the others'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_s: Option<Vec<f64>>,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// A line of a plot.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its role among the lines.
    pub role: Role,
    /// The service that it is about, if that is not its name: it has that service's colour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// One for each moment; unknown ones are null, and interrupt it.
    pub values: Vec<Option<f64>>,
}

/// The role of a line among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Something that was measured.
    Plain,
    /// The target.
    Goal,
    /// The value without the others.
    Alone,
    /// All that have no line of their own.
    Others,
    /// The part of none of them.
    Foreign,
}

impl Plot {
    /// Neither stacked nor bounded.
    pub fn new(id: &str, part: &'static str, title: String, unit: &str, lines: Vec<Line>) -> Self {
        let (id, unit) = (id.to_owned(), unit.to_owned());
        Self { id, part, title, unit, stacked: false, most: None, left_out: 0, at_s: None, lines }
    }
}

impl Line {
    /// Values that are no finite numbers count as unknown.
    pub fn new(name: String, role: Role, values: Vec<Option<f64>>) -> Self {
        let known = |value: Option<f64>| value.filter(|value| value.is_finite()).map(digits);
        Self { name, role, of: None, values: values.into_iter().map(known).collect() }
    }

    /// The same, about a service.
    #[must_use]
    pub fn about(self, service: &str) -> Self {
        Self { of: Some(service.to_owned()), ..self }
    }

    /// Whether something happened.
    pub fn says(&self) -> bool {
        self.values.iter().flatten().any(|value| *value != 0.0)
    }

    /// The last known value.
    pub fn last(&self) -> Option<f64> {
        self.values.iter().rev().copied().find_map(|value| value)
    }
}

/// Four digits, or all before the point: more cannot be seen, and cost bytes.
pub fn digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let places = 3 - value.abs().log10().floor() as i32;
    if places <= 0 {
        return value.round();
    }
    // Higher powers of ten are inexact, and such small values irrelevant.
    let power = 10_f64.powi(places.min(22));
    (value * power).round() / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_are_enough() {
        for (value, text) in [
            (0.123_456, "0.1235"),
            (12_345.678, "12346.0"),
            (1.0, "1.0"),
            (0.000_315_44, "0.0003154"),
            (f64::NAN, "0.0"),
            (-2.5, "-2.5"),
            (1e-300, "0.0"),
        ] {
            assert_eq!(serde_json::to_string(&digits(value)).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_number_is_not_known() {
        let line = Line::new("a".to_owned(), Role::Plain, vec![Some(f64::NAN), Some(0.5), None, Some(f64::INFINITY)]);
        assert_eq!((&line.values[..], line.last()), (&[None, Some(0.5), None, None][..], Some(0.5)));
    }
}
