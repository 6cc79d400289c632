//! The common parts of all figures: the canvas with its key, axes, ink, colours and numbers.

use crate::report::escape::escape;
use anyhow::{Result, anyhow};
use cotenant_model::number;
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

/// Placeholder for the colour of text in plotters; differs from all our colours.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
pub(super) const INK_HEX: &str = "#010203";
/// After Okabe and Ito, in tones that contrast with white and with black.
pub(super) const COLOURS: [RGBColor; 8] = [
    RGBColor(47, 129, 193),
    RGBColor(222, 122, 34),
    RGBColor(43, 158, 120),
    RGBColor(197, 93, 166),
    RGBColor(168, 142, 24),
    RGBColor(122, 118, 208),
    RGBColor(205, 82, 82),
    RGBColor(128, 132, 138),
];
pub(super) const WIDTH: u32 = 900;
/// Margin for the labels beside a chart.
pub(super) const LEFT: u32 = 78;
/// Height of the row of the key above a chart.
const KEY: u32 = 26;
/// Most characters of a name in a figure.
pub(super) const NAME: usize = 32;

/// A drawn figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Short name, for the file that it is written to.
    pub name: String,
    /// Its subject.
    pub title: String,
    /// The same in words, for readers who cannot see it.
    pub description: String,
    svg: String,
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Figure {
    pub(super) fn new(name: &str, title: String, description: String, svg: String) -> Self {
        Self { name: name.to_owned(), title, description, svg }
    }

    /// As part of a page; `id` is unused otherwise there.
    pub fn inline(&self, id: &str) -> String {
        let svg = self.described(id).replace(&format!("\"{INK_HEX}\""), "\"currentColor\"");
        format!("{svg}\n")
    }

    /// As a file of its own: dark on white.
    pub fn file(&self) -> String {
        let svg = self.described(&self.name).replace(INK_HEX, "#1B1F24");
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>";
        svg.replacen("</desc>", &format!("</desc>{paper}"), 1)
    }

    fn described(&self, id: &str) -> String {
        let head = format!("<svg role=\"img\" aria-labelledby=\"{id}-t {id}-d\" ");
        let described = format!(
            ">\n<title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>",
            escape(&self.title),
            escape(&self.description)
        );
        self.svg.replacen("<svg ", &head, 1).replacen('>', &described, 1)
    }
}

pub(super) fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// The colour at a part between 0 and 1 of a scale.
pub(super) fn mixed(scale: &[(f64, f64, f64)], part: f64) -> RGBColor {
    let place = part.clamp(0.0, 1.0) * (scale.len() - 1) as f64;
    let i = (place as usize).min(scale.len() - 2);
    let mix = |a: f64, b: f64| (a + (b - a) * (place - i as f64)).round() as u8;
    let (a, b) = (scale[i], scale[i + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// Text of a size in pixels as readers perceive it: plotters counts a line's height.
pub(super) fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", f64::from(size) * 1.24).into_font().color(&INK)
}

/// A number for an axis or a table: up to four significant digits, with an SI prefix if it is large.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    let trimmed = |digits: usize, value: f64, unit: &str| {
        let text = format!("{value:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        format!("{text}{unit}")
    };
    match size {
        _ if !value.is_finite() => value.to_string(),
        _ if !(1e-3..1e15).contains(&size) => number::significant(value, 3),
        _ if size >= 1e9 => trimmed(2, value / 1e9, " G"),
        _ if size >= 1e6 => trimmed(2, value / 1e6, " M"),
        _ if size >= 1e4 => trimmed(1, value / 1e3, " k"),
        _ if size >= 100.0 => trimmed(1, value, ""),
        _ if size >= 1.0 => trimmed(2, value, ""),
        _ => trimmed(4, value, ""),
    }
}

/// Draws with the key of these names, each in the colour of its series, above the chart.
pub(super) fn canvas<'a>(
    height: u32,
    key: impl IntoIterator<Item = &'a String>,
    draw: impl FnOnce(&DrawingArea<SVGBackend, Shift>) -> Drawn,
) -> Result<String> {
    coloured(height, key.into_iter().enumerate().map(|(i, name)| (name.as_str(), colour(i).to_rgba())), draw)
}

/// The same in other colours.
pub(super) fn coloured<'a>(
    height: u32,
    key: impl IntoIterator<Item = (&'a str, RGBAColor)>,
    draw: impl FnOnce(&DrawingArea<SVGBackend, Shift>) -> Drawn,
) -> Result<String> {
    // Names are laid out by their length: without fonts at hand, seven pixels and a half per character are close.
    let mut places = Vec::new();
    let (mut x, mut y) = (LEFT as i32, 8);
    for (name, colour) in key.into_iter().map(|(name, colour)| (clipped(name), colour)) {
        let width = 26 + (name.chars().count() as f64 * 7.5) as i32;
        if x + width > WIDTH as i32 && x > LEFT as i32 {
            (x, y) = (LEFT as i32, y + 20);
        }
        places.push((x, y, name, colour));
        x += width + 12;
    }
    let above = if places.is_empty() { 0 } else { y as u32 + KEY - 8 };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height + above)).into_drawing_area();
        for (x, y, name, colour) in places {
            area.draw(&Rectangle::new([(x, y + 1), (x + 12, y + 13)], colour.filled()))?;
            area.draw(&Text::new(name, (x + 18, y), font(13)))?;
        }
        let (_, chart) = area.split_vertically(above);
        draw(&chart).map_err(|why| anyhow!("drawing a figure failed: {why}"))?;
        area.present()?;
    }
    Ok(svg)
}

/// Whether plotters can lay out an axis with the value: its arithmetic overflows near the limits of floats.
pub(super) fn drawable(value: f64) -> bool {
    value == 0.0 || (1e-100..1e100).contains(&value.abs())
}

/// The power of ten that an axis is drawn in: plotters places ticks by comparing with absolute differences, so values
/// must be near one.
pub(super) fn unit_of(range: &Range<f64>) -> f64 {
    10f64.powf(range.start.abs().max(range.end.abs()).log10().floor())
}

/// The range in units.
pub(super) fn scaled(range: &Range<f64>, unit: f64) -> Range<f64> {
    range.start / unit..range.end / unit
}

/// A name that fits.
pub(super) fn clipped(name: &str) -> String {
    if name.chars().count() <= NAME { name.to_owned() } else { name.chars().take(NAME - 1).chain(['…']).collect() }
}

pub(super) fn span(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let (low, high) =
        values.filter(|v| drawable(*v)).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    (low <= high).then(|| low..if high > low + low.abs() * 1e-9 { high } else { low + low.abs().max(1.0) })
}

pub(super) type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A chart with margins for the labels below and beside it.
pub(super) fn chart<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    (below, beside): (u32, u32),
    x: Range<f64>,
    y: Range<f64>,
) -> Result<Chart<'a>, DrawingAreaErrorKind<std::io::Error>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin_right(14).margin_top(8).x_label_area_size(below).y_label_area_size(beside);
    builder.build_cartesian_2d(x, y)
}

/// Axes with a line at each level of the upright one.
pub(super) fn level_lines<'a, 'b>(
    chart: &'b mut Chart<'a>,
) -> MeshStyle<'a, 'b, RangedCoordf64, RangedCoordf64, SVGBackend<'a>> {
    let mut style = chart.configure_mesh();
    style
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.13))
        .axis_style(INK.mix(0.45))
        .label_style(font(12));
    style
}
