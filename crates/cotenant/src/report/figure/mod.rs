//! Figures: plotters draws them as SVG. Ink is the colour of the text around them, so they are legible on light and
//! on dark.

mod boxes;
mod canvas;
mod plane;

pub use boxes::{Group as Boxes, Spread, boxes};
pub use canvas::{Figure, short};
pub use plane::{Cell, MOST, heatmap, points};

use anyhow::Result;
use canvas::{
    INK, LEFT, NAME, WIDTH, canvas, chart, clipped, colour, coloured, drawable, font, level_lines, mixed, scaled, span,
    unit_of,
};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours of places from the first to the last: a different scale from that of programs, which occupy them.
const PLACES: [(f64, f64, f64); 3] = [(130.0, 165.0, 190.0), (126.0, 118.0, 150.0), (125.0, 75.0, 110.0)];
/// Naps, which are no place.
const NAPS: RGBAColor = RGBAColor(1, 2, 3, 0.2);

/// A line: a name, and points (x, y); points without y interrupt it.
pub type Line = (String, Vec<(f64, Option<f64>)>);

/// Bars of one group: its name, and per series a value with its lowest and highest.
pub type Group = (String, Vec<Option<(f64, Option<(f64, f64)>)>>);

/// A bar of a timeline: row, from, to, place, and its fraction of the row's height, 0–1. The place after the last one
/// means naps.
pub type Span = (usize, f64, f64, usize, f64);

/// The colour of a place among this number of places.
fn place_colour(i: usize, of: usize) -> RGBAColor {
    if i >= of {
        return NAPS;
    }
    mixed(&PLACES, i as f64 / (of - 1).max(1) as f64).to_rgba()
}

/// Values over time, from 0 up. `None` without a point. `colours`: that of each line by its number, else in their
/// order.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn lines(name: &str, title: &str, unit: &str, lines: &[Line], colours: &[usize]) -> Result<Option<Figure>> {
    let colour = |i: usize| colour(colours.get(i).copied().unwrap_or(i));
    let points = || lines.iter().flat_map(|(_, points)| points.iter().filter_map(|&(x, y)| Some((x, y?))));
    let (Some(x), Some(y)) = (span(points().map(|p| p.0)), span(points().map(|p| p.1))) else { return Ok(None) };
    let y = y.start.min(0.0)..y.end.max(0.0) * 1.05;
    let (unit_x, unit_y) = (unit_of(&x), unit_of(&y));
    let key = lines.iter().enumerate().map(|(i, (name, _))| (name.as_str(), colour(i).to_rgba()));
    let svg = coloured(230, key, |area| {
        let mut chart = chart(area, (44, LEFT), scaled(&x, unit_x), scaled(&y, unit_y))?;
        level_lines(&mut chart)
            .y_labels(5)
            .x_label_formatter(&|x| short(x * unit_x))
            .y_label_formatter(&|y| short(y * unit_y))
            .x_desc("time, s")
            .y_desc(unit)
            .draw()?;
        for (i, (_, points)) in lines.iter().enumerate() {
            for run in points.split(|p| !drawable(p.0) || !p.1.is_some_and(drawable)) {
                let run: Vec<(f64, f64)> = run.iter().filter_map(|&(x, y)| Some((x / unit_x, y? / unit_y))).collect();
                if let [only] = run[..] {
                    chart.draw_series(std::iter::once(Circle::new(only, 2, colour(i).filled())))?;
                } else if !run.is_empty() {
                    chart.draw_series(LineSeries::new(run, colour(i).stroke_width(2)))?;
                }
            }
        }
        Ok(())
    })?;
    let told = lines.iter().filter_map(|(name, points)| {
        let of = span(points.iter().filter_map(|p| p.1))?;
        Some(format!("{name}: {} to {}", short(of.start), short(of.end)))
    });
    let description = format!("Lines over time, {unit}. {}.", told.collect::<Vec<_>>().join("; "));
    Ok(Some(Figure::new(name, title.to_owned(), description, svg)))
}

/// Rows of bars over time, one colour per place, with marks. `None` without bars.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn timeline(
    name: &str,
    title: &str,
    rows: &[String],
    places: &[String],
    spans: &[Span],
    marks: &[(usize, f64)],
) -> Result<Option<Figure>> {
    let Some(x) = span(spans.iter().flat_map(|s| [s.1, s.2])).filter(|_| !rows.is_empty()) else { return Ok(None) };
    let unit = unit_of(&x);
    let of = places.len();
    let naps = spans.iter().any(|span| span.3 >= of).then_some("naps");
    let names: Vec<&str> = places.iter().map(String::as_str).chain(naps).collect();
    let key = names.iter().enumerate().map(|(i, name)| (*name, place_colour(i, of)));
    let svg = coloured(56 + 20 * rows.len() as u32, key, |area| {
        let n = rows.len() as f64;
        let mut chart = chart(area, (44, 180), scaled(&x, unit), 0.0..n)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK.mix(0.45))
            .label_style(font(12))
            .x_label_formatter(&|x| short(x * unit))
            .y_labels(0)
            .x_desc("time, s")
            .draw()?;
        let at = |r: usize| n - r as f64;
        let drawn = spans.iter().filter(|s| drawable(s.1) && drawable(s.2));
        chart.draw_series(drawn.map(|&(r, from, to, place, part)| {
            let (low, high) = (at(r) - 0.82, at(r) - 0.82 + 0.64 * part.clamp(0.0, 1.0));
            Rectangle::new([(from / unit, low), (to / unit, high)], place_colour(place, of).filled())
        }))?;
        chart.draw_series(marks.iter().filter(|m| drawable(m.1)).map(|&(r, x)| {
            PathElement::new(vec![(x / unit, at(r) - 0.95), (x / unit, at(r) - 0.05)], INK.stroke_width(2))
        }))?;
        for (r, name) in rows.iter().enumerate() {
            let style = font(12).pos(Pos::new(HPos::Right, VPos::Center));
            let left = (chart.x_range().start, at(r) - 0.5);
            chart.plotting_area().draw(&(EmptyElement::at(left) + Text::new(clipped(name), (-8, 0), style)))?;
        }
        Ok(())
    })?;
    let description =
        format!("{} rows over time, coloured by place ({}); {} marks.", rows.len(), names.join(", "), marks.len());
    Ok(Some(Figure::new(name, title.to_owned(), description, svg)))
}

/// Groups of bars from 0 up, one colour per series, with whiskers from the lowest to the highest value if known.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn bars(name: &str, title: &str, unit: &str, series: &[String], groups: &[Group]) -> Result<Option<Figure>> {
    let known = || groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
    let ends = |&(value, spread): &(f64, Option<(f64, f64)>)| {
        [value, spread.map_or(value, |s| s.0), spread.map_or(value, |s| s.1)]
    };
    let Some(y) = span(known().flat_map(ends)) else { return Ok(None) };
    let pad = (y.end.max(0.0) - y.start.min(0.0)) * 0.06;
    let y = if y.start < 0.0 { y.start - pad } else { 0.0 }..y.end.max(0.0) + pad;
    let unit_y = unit_of(&y);
    let key = if series.len() > 1 { series } else { &[] };
    // Labels that would touch side by side are vertical.
    let longest = groups.iter().map(|g| g.0.chars().count().min(NAME)).max().unwrap_or(0);
    let upright = longest * groups.len() * 8 > WIDTH as usize - 100;
    let below = if upright { 16 + longest as u32 * 8 } else { 30 };
    let svg = canvas(220 + below, key, |area| {
        // A few bars are not drawn as wide as walls.
        let n = (groups.len() as f64).max(6.0 / series.len().max(1) as f64);
        let mut chart = chart(area, (below, LEFT), 0.0..n, scaled(&y, unit_y))?;
        level_lines(&mut chart)
            .x_labels(0)
            .y_labels(6)
            .y_label_formatter(&|y| short(y * unit_y))
            .y_desc(unit)
            .draw()?;
        // Bars of one series or another, but never of two, stand in the middle.
        let alone = groups.iter().all(|(_, bars)| bars.iter().flatten().count() < 2);
        let width = 0.8 / if alone { 1.0 } else { series.len().max(1) as f64 };
        let low = chart.y_range().start;
        for (g, (label, bars)) in groups.iter().enumerate() {
            for (s, &(value, spread)) in bars.iter().enumerate().filter_map(|(s, bar)| Some((s, bar.as_ref()?))) {
                if !drawable(value) {
                    continue;
                }
                let left = g as f64 + 0.1 + if alone { 0.0 } else { s as f64 * width };
                let (from, to) = (left + width * 0.06, left + width * 0.94);
                chart.draw_series(std::iter::once(Rectangle::new(
                    [(from, 0.0), (to, value / unit_y)],
                    colour(s).filled(),
                )))?;
                if let Some((lowest, highest)) = spread.filter(|s| drawable(s.0) && drawable(s.1)) {
                    let (middle, half) = (left + width / 2.0, width * 0.2);
                    let (lowest, highest) = (lowest / unit_y, highest / unit_y);
                    let caps = [lowest, highest].map(|y| vec![(middle - half, y), (middle + half, y)]);
                    let lines = caps.into_iter().chain([vec![(middle, lowest), (middle, highest)]]);
                    chart.draw_series(lines.map(|line| PathElement::new(line, INK.stroke_width(1))))?;
                }
            }
            let middle = (g as f64 + 0.5, low);
            let (across, down) = if upright { (HPos::Left, VPos::Center) } else { (HPos::Center, VPos::Top) };
            let style = font(12).pos(Pos::new(across, down));
            let style = if upright { style.transform(FontTransform::Rotate90) } else { style };
            chart.plotting_area().draw(&(EmptyElement::at(middle) + Text::new(clipped(label), (0, 8), style)))?;
        }
        chart.draw_series(std::iter::once(PathElement::new(vec![(0.0, 0.0), (n, 0.0)], INK.mix(0.45))))?;
        Ok(())
    })?;
    let told = groups.iter().map(|(label, bars)| {
        let of = series.iter().zip(bars).filter_map(|(name, bar)| Some(format!("{name} {}", short(bar.as_ref()?.0))));
        format!("{label}: {}", of.collect::<Vec<_>>().join(", "))
    });
    let told: Vec<String> = told.take(20).collect();
    Ok(Some(Figure::new(name, title.to_owned(), format!("Bars, {unit}. {}.", told.join("; ")), svg)))
}

#[cfg(test)]
mod tests {
    use super::canvas::{COLOURS, INK_HEX};
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (123.456, "123.5"),
            (12_345.0, "12.3 k"),
            (7.5e7, "75 M"),
            (2.2e9, "2.2 G"),
            (2.5e-4, "0.000250"),
            (-3.0, "-3"),
            (100.0, "100"),
            (1e18, "1000 P"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn extreme_values_and_names_are_drawn_or_left_out() {
        let values =
            [0.0, 1.0, -1.0, 1e308, -1e308, f64::INFINITY, f64::NAN, 5e-324, 1e-99, 1e99, f64::MAX, 1.0 + f64::EPSILON];
        let long = "name ".repeat(100);
        for a in values {
            for b in values {
                let line = (long.clone(), vec![(0.0, Some(a)), (1.0, Some(b)), (1.0, None), (f64::NAN, Some(1.0))]);
                lines("a", &long, "u", &[line.clone(), line], &[]).unwrap();
                let group: Group = (long.clone(), vec![Some((a, Some((b, a)))), Some((b, None)), None]);
                let names = [long.clone(), "b".into(), "c".into()];
                bars("a", &long, "u", &names, &[group.clone(), group]).unwrap();
                timeline("a", "t", std::slice::from_ref(&long), &["p".into()], &[(0, a, b, 0, 0.5)], &[(0, a)])
                    .unwrap();
            }
        }
    }

    /// Blue is a program, and is no package.
    #[test]
    fn places_have_colours_of_their_own() {
        for of in 1..=8 {
            let places: Vec<RGBAColor> = (0..=of).map(|i| place_colour(i, of)).collect();
            assert!(places.iter().all(|place| COLOURS.iter().all(|colour| colour.to_rgba() != *place)));
            assert!((0..of).all(|i| places[i] != places[i + 1]), "{places:?}");
        }
        let names = ["package 0".to_owned()];
        let bars = [(0, 0.0, 1.0, 0, 1.0), (0, 1.0, 2.0, 1, 1.0)];
        let text = timeline("a", "t", &names, &names, &bars, &[]).unwrap().unwrap().file();
        assert!(text.contains("coloured by place (package 0, naps)") && text.contains(">\nnaps"), "{text}");
    }

    #[test]
    fn nothing_to_draw_is_no_figure_and_one_point_is_one() {
        assert_eq!(lines("a", "t", "u", &[], &[]).unwrap(), None);
        assert_eq!(lines("a", "t", "u", &[("x".into(), vec![(0.0, None)])], &[]).unwrap(), None);
        assert_eq!(bars("a", "t", "u", &["s".into()], &[("g".into(), vec![None])]).unwrap(), None);
        assert_eq!(timeline("a", "t", &[], &[], &[], &[]).unwrap(), None);
        let one = lines("a", "<t>", "u", &[("x".into(), vec![(1.0, Some(0.0)), (2.0, Some(f64::NAN))])], &[])
            .unwrap()
            .unwrap();
        assert!(one.inline("i").contains("<title id=\"i-t\">&lt;t&gt;</title>") && !one.inline("i").contains(INK_HEX));
        assert!(!one.file().contains(INK_HEX) && one.file().contains("fill=\"#FFFFFF\""));
    }
}
