//! Output of a long benchmark, minute by minute.

use super::svg::{escaped, paper};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
/// The places of the axes, and of the lines' names.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 56.0;
/// Of a plot, and of the words above it.
const HIGH: f64 = 110.0;
const WORDS: f64 = 34.0;

/// The figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    title: String,
    /// Their measurement.
    source: String,
    plots: Vec<Plot>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plot {
    /// With the unit.
    title: String,
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    /// One for each minute; a single one is a level.
    values: Vec<f64>,
}

/// Draws plots under each other, minutes from left to right, from 0 up.
///
/// # Errors
/// The figures are incomplete.
pub fn svg(json: &str) -> Result<String> {
    let figures: Figures = serde_json::from_str(json)?;
    let all = figures.plots.iter().flat_map(|plot| &plot.lines);
    let minutes = all.map(|line| line.values.len()).max().filter(|most| *most > 1).context("no line with minutes")?;
    let bottom = TOP + (HIGH + WORDS) * figures.plots.len() as f64;
    let mut out = paper(WIDTH, bottom + 56.0, &figures.title);
    let mut text = |x: f64, y: f64, class: &str, text: &str| {
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text));
    };
    text(20.0, 32.0, "head", &figures.title);
    text(RIGHT - 46.0, bottom + 18.0, "soft", &format!("{minutes} min"));
    text(LEFT, bottom + 18.0, "soft", "1 min");
    text(20.0, bottom + 42.0, "soft", &figures.source);
    for (n, plot) in figures.plots.iter().enumerate() {
        out += &plotted(plot, TOP + (HIGH + WORDS) * n as f64 + WORDS, minutes);
    }
    Ok(out + "</svg>\n")
}

fn plotted(plot: &Plot, top: f64, minutes: usize) -> String {
    let values = || plot.lines.iter().flat_map(|line| &line.values);
    let highest = step(values().copied().fold(f64::MIN_POSITIVE, f64::max));
    let y = |value: f64| top + HIGH * (1.0 - value / highest);
    let x = |minute: usize| LEFT + (RIGHT - LEFT) * minute as f64 / (minutes - 1) as f64;
    let mut out =
        format!("<text x=\"{LEFT}\" y=\"{:.1}\" class=\"soft\">{}</text>\n", top - 12.0, escaped(&plot.title));
    for level in [0.0, highest / 2.0, highest] {
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {0:.1}H{RIGHT}\" class=\"grid\"/>\n<text x=\"{1}\" y=\"{2:.1}\" class=\"soft\" text-anchor=\"end\">{level}</text>",
            y(level),
            LEFT - 8.0,
            y(level) + 4.0,
        );
    }
    let ends: Vec<f64> = plot.lines.iter().map(|line| line.values.last().map_or(top, |last| y(*last)) + 4.0).collect();
    let names = apart(&ends);
    for ((line, class), at) in plot.lines.iter().zip(["one", "two", "three"].into_iter().cycle()).zip(names) {
        let value = |minute: usize| line.values.get(minute).or(line.values.first().filter(|_| line.values.len() == 1));
        let points = (0..minutes).filter_map(|minute| Some(format!("{:.1},{:.1}", x(minute), y(*value(minute)?))));
        let _ = writeln!(out, "<polyline points=\"{}\" class=\"{class}\"/>", points.collect::<Vec<_>>().join(" "));
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{at:.1}\" class=\"{class}\">{}</text>",
            RIGHT + 8.0,
            escaped(&line.name)
        );
    }
    out
}

/// Places for names at the ends of their lines: in the order of the lines, without overlapping.
fn apart(ends: &[f64]) -> Vec<f64> {
    const ROW: f64 = 15.0;
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|a, b| ends[*a].total_cmp(&ends[*b]));
    let (mut places, mut least) = (ends.to_vec(), f64::NEG_INFINITY);
    for i in order {
        places[i] = ends[i].max(least);
        least = places[i] + ROW;
    }
    places
}

/// The next number that is 1, 2 or 5 with zeros.
fn step(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * unit).find(|step| *step >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_where_their_figures_are() {
        let json = r#"{"title": "T", "source": "S", "plots": [{"title": "p95, ms", "lines": [
            {"name": "a", "values": [0, 2, 1]}, {"name": "level", "values": [1]}]}]}"#;
        let svg = svg(json).unwrap();
        // From the bottom to the top, and half way down.
        assert!(svg.contains("points=\"60.0,200.0 330.0,90.0 600.0,145.0\" class=\"one\""), "{svg}");
        assert!(svg.contains("points=\"60.0,145.0 330.0,145.0 600.0,145.0\" class=\"two\""), "{svg}");
        assert!(
            svg.contains(">level<") && svg.contains(">1 min<") && svg.contains(">3 min<") && svg.contains(">p95, ms<"),
            "{svg}"
        );
        assert!(super::svg(r#"{"title": "T", "source": "S", "plots": []}"#).is_err());
    }

    #[test]
    fn names_stand_in_the_order_of_their_lines() {
        assert_eq!(apart(&[110.0, 100.0]), [115.0, 100.0]);
        assert_eq!(apart(&[100.0, 200.0, 101.0, 102.0]), [100.0, 200.0, 115.0, 130.0]);
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [(0.7, 1.0), (1.0, 1.0), (1.2, 2.0), (23.0, 50.0), (971.0, 1000.0)] {
            assert!((step(value) - end).abs() < 1e-9, "{value}");
        }
    }
}
