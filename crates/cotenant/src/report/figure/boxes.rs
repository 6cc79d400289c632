//! Box plots.

use super::canvas::{
    Figure, INK, LEFT, canvas, chart, clipped, colour, drawable, font, level_lines, scaled, short, span, unit_of,
};
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Deserialize;

/// A box from quartile to quartile with its median, whiskers, and outliers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Spread {
    /// End of the lower whisker.
    pub low: f64,
    /// A quarter of all values is below.
    pub q1: f64,
    /// Half of all does.
    pub median: f64,
    /// Three quarters do.
    pub q3: f64,
    /// End of the upper whisker.
    pub high: f64,
    /// Beyond the whiskers.
    #[serde(default)]
    pub outliers: Vec<f64>,
}

impl Spread {
    fn values(&self) -> impl Iterator<Item = f64> {
        [self.low, self.q1, self.median, self.q3, self.high].into_iter().chain(self.outliers.iter().copied())
    }
}

/// Boxes of one group: its name, and one per series.
pub type Group = (String, Vec<Option<Spread>>);

/// Room on either side of a group, and the filled part of a box's place; fractions of the whole.
const ASIDE: f64 = 0.12;
const FILLED: f64 = 0.72;

/// Groups of boxes, one colour per series. The axis need not begin at 0, because only the boxes' relative positions
/// matter. `None` without data.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn boxes(name: &str, title: &str, unit: &str, series: &[String], groups: &[Group]) -> Result<Option<Figure>> {
    let known = || groups.iter().flat_map(|(_, boxes)| boxes.iter().flatten());
    let Some(y) = span(known().flat_map(Spread::values)) else { return Ok(None) };
    let pad = (y.end - y.start) * 0.06;
    let y = y.start - pad..y.end + pad;
    let unit_y = unit_of(&y);
    let svg = canvas(330, series, |area| {
        let mut chart = chart(area, (30, LEFT), 0.0..groups.len() as f64, scaled(&y, unit_y))?;
        level_lines(&mut chart)
            .x_labels(0)
            .y_labels(7)
            .y_label_formatter(&|y| short(y * unit_y))
            .y_desc(unit)
            .draw()?;
        let floor = chart.y_range();
        for (g, (label, boxes)) in groups.iter().enumerate() {
            let left = g as f64;
            if g > 0 {
                let line = vec![(left, floor.start), (left, floor.end)];
                chart.draw_series(std::iter::once(PathElement::new(line, INK.mix(0.2))))?;
            }
            let wide = (1.0 - 2.0 * ASIDE) / series.len().max(1) as f64;
            for (s, one) in boxes.iter().enumerate().filter_map(|(s, one)| Some((s, one.as_ref()?))) {
                if one.values().all(drawable) {
                    let middle = left + ASIDE + (s as f64 + 0.5) * wide;
                    let of = colour(s);
                    let Parts { whiskers, corners, median, outliers } =
                        Parts::new(one, middle, wide * FILLED, unit_y, of);
                    chart.draw_series(whiskers)?;
                    chart.draw_series(
                        [of.mix(0.3).filled(), of.stroke_width(2)].map(|how| Rectangle::new(corners, how)),
                    )?;
                    chart.draw_series([median])?;
                    chart.draw_series(outliers)?;
                }
            }
            let style = font(12).pos(Pos::new(HPos::Center, VPos::Top));
            let at = (left + 0.5, floor.start);
            chart.plotting_area().draw(&(EmptyElement::at(at) + Text::new(clipped(label), (0, 8), style)))?;
        }
        Ok(())
    })?;
    let told = groups.iter().map(|(label, boxes)| {
        let of = series.iter().zip(boxes).filter_map(|(name, one)| {
            let one = one.as_ref()?;
            Some(format!("{name} {} ({} to {})", short(one.median), short(one.q1), short(one.q3)))
        });
        format!("{label}: {}", of.collect::<Vec<_>>().join(", "))
    });
    let told: Vec<String> = told.take(20).collect();
    let description = format!("Box plots, {unit}; medians and quartiles. {}.", told.join("; "));
    Ok(Some(Figure::new(name, title.to_owned(), description, svg)))
}

/// The parts of one box, from the back to the front.
struct Parts {
    whiskers: Vec<PathElement<(f64, f64)>>,
    corners: [(f64, f64); 2],
    median: PathElement<(f64, f64)>,
    outliers: Vec<Circle<(f64, f64), i32>>,
}

impl Parts {
    fn new(one: &Spread, middle: f64, wide: f64, unit: f64, of: RGBColor) -> Self {
        let y = |value: f64| value / unit;
        let (left, right) = (middle - wide / 2.0, middle + wide / 2.0);
        let whisker = |(from, to): (f64, f64)| {
            let stem = vec![(middle, y(from)), (middle, y(to))];
            let cap = vec![(middle - wide / 4.0, y(to)), (middle + wide / 4.0, y(to))];
            [stem, cap].map(|line| PathElement::new(line, of.stroke_width(2)))
        };
        let outlier = |value: &f64| Circle::new((middle, y(*value)), 2, of.stroke_width(1));
        Self {
            whiskers: [(one.q1, one.low), (one.q3, one.high)].into_iter().flat_map(whisker).collect(),
            corners: [(left, y(one.q1)), (right, y(one.q3))],
            median: PathElement::new(vec![(left, y(one.median)), (right, y(one.median))], INK.stroke_width(2)),
            outliers: one.outliers.iter().map(outlier).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_drawn_and_told() {
        let one = |by: f64| Spread {
            low: by,
            q1: by + 1.0,
            median: by + 2.0,
            q3: by + 3.0,
            high: by + 4.0,
            outliers: vec![by + 9.0],
        };
        let groups = [
            ("1 copy".to_owned(), vec![Some(one(100.0)), None]),
            ("2 copies".to_owned(), vec![Some(one(90.0)), Some(one(95.0))]),
        ];
        let series = ["baseline".to_owned(), "weighted".to_owned()];
        let figure = boxes("a", "t", "MB/s", &series, &groups).unwrap().unwrap();
        let text = figure.file();
        assert_eq!(text.matches("<circle").count(), 3, "an outlier each");
        assert!(text.contains("2 copies: baseline 92 (91 to 93), weighted 97 (96 to 98)"), "{text}");
        assert_eq!(boxes("a", "t", "s", &series, &[]).unwrap(), None);
        // All values equal, and values that no axis holds.
        let flat =
            |value: f64| Spread { low: value, q1: value, median: value, q3: value, high: value, outliers: vec![] };
        for value in [0.0, 5.0, -3.0, 1e308, f64::NAN, f64::INFINITY] {
            boxes("a", "t", "s", &series, &[("g".to_owned(), vec![Some(flat(value)), Some(flat(1.0))])]).unwrap();
        }
    }
}
