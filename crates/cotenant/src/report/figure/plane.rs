//! Values over a plane: by column and row, or by a distance.

use super::canvas::{
    Figure, LEFT, WIDTH, canvas, chart, colour, drawable, font, level_lines, mixed, scaled, short, span, unit_of,
};
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Side of a cell, pixels.
const CELL: u32 = 54;
/// A larger grid has smaller cells, which say nothing in words.
const WORDED: usize = 14;
/// Colours of minimum and maximum, and between: light to dark, so that they differ in lightness too.
const SCALE: [(f64, f64, f64); 3] = [(255.0, 244.0, 205.0), (222.0, 122.0, 34.0), (104.0, 18.0, 52.0)];

/// More columns or rows are not drawn.
pub const MOST: f64 = 512.0;

/// A value at a column and a row, both from 0; rows go down.
pub type Cell = (usize, usize, f64);

/// The colour of a value between 0 and 1, and whether white contrasts with it.
fn shade(part: f64) -> (RGBColor, bool) {
    (mixed(&SCALE, part), part > 0.5)
}

/// A grid of coloured cells, darker for more. `None` without cells.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn heatmap(name: &str, title: &str, unit: &str, cells: &[Cell]) -> Result<Option<Figure>> {
    let Some(values) = span(cells.iter().map(|cell| cell.2)) else { return Ok(None) };
    let side = |pick: fn(&Cell) -> usize| cells.iter().map(pick).max().map_or(0, |last| last + 1);
    let (columns, rows) = (side(|cell| cell.0), side(|cell| cell.1));
    let worded = columns.max(rows) <= WORDED;
    let cell = if worded { CELL } else { (CELL * WORDED as u32 / columns.max(rows) as u32).max(1) };
    let (width, height) = (cell * columns as u32, cell * rows as u32);
    let svg = canvas(height + 30, &[], |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(8)
            .margin_left(20)
            .margin_right(WIDTH.saturating_sub(width + 20))
            .margin_bottom(22)
            .build_cartesian_2d(0.0..columns as f64, 0.0..rows as f64)?;
        for &(column, row, value) in cells.iter().filter(|cell| drawable(cell.2)) {
            let part = (value - values.start) / (values.end - values.start).max(f64::MIN_POSITIVE);
            let (fill, on_dark) = shade(part);
            let (left, top) = (column as f64, (rows - row) as f64);
            let corners = [(left, top), (left + 1.0, top - 1.0)];
            chart.draw_series([Rectangle::new(corners, fill.filled())])?;
            if worded {
                let ink = if on_dark { WHITE } else { BLACK };
                let middle = Pos::new(HPos::Center, VPos::Center);
                let style = font(13).color(&ink).pos(middle);
                chart.plotting_area().draw(&Text::new(format!("{value:.3}"), (left + 0.5, top - 0.5), style))?;
            }
        }
        Ok(())
    })?;
    let at = |value: f64| cells.iter().find(|cell| cell.2 == value).map_or((0, 0), |cell| (cell.0, cell.1));
    let ((lx, ly), (hx, hy)) = (at(values.start), at(values.end));
    let (least, most) = (short(values.start), short(values.end));
    let description = format!(
        "Heatmap of {columns} columns and {rows} rows, {unit}; the darker the more. Least {least} at column {lx}, row {ly}; most {most} at column {hx}, row {hy}."
    );
    Ok(Some(Figure::new(name, title.to_owned(), description, svg)))
}

/// Points over a quantity other than time. The axes need not begin at 0. `None` without points.
///
/// # Errors
/// A failure of drawing; none is known.
pub fn points(
    name: &str,
    title: &str,
    x_unit: &str,
    unit: &str,
    [measured, paper]: [&[(f64, f64)]; 2],
) -> Result<Option<Figure>> {
    let all = || measured.iter().chain(paper);
    let (Some(x), Some(y)) = (span(all().map(|p| p.0)), span(all().map(|p| p.1))) else {
        return Ok(None);
    };
    let padded = |range: &std::ops::Range<f64>| {
        let pad = (range.end - range.start) * 0.05;
        range.start - pad..range.end + pad
    };
    let (x, y) = (padded(&x), padded(&y));
    let (unit_x, unit_y) = (unit_of(&x), unit_of(&y));
    let key = ["paper", "measured"].map(str::to_owned);
    let own = usize::from(!paper.is_empty());
    let svg = canvas(300, key.iter().filter(|_| !paper.is_empty()), |area| {
        let mut chart = chart(area, (44, LEFT), scaled(&x, unit_x), scaled(&y, unit_y))?;
        level_lines(&mut chart)
            .y_labels(6)
            .x_label_formatter(&|x| short(x * unit_x))
            .y_label_formatter(&|y| short(y * unit_y))
            .x_desc(x_unit)
            .y_desc(unit)
            .draw()?;
        let seen = |points: &&(f64, f64)| drawable(points.0) && drawable(points.1);
        let dot = |&(x, y): &(f64, f64)| Circle::new((x / unit_x, y / unit_y), 4, colour(own).mix(0.6).filled());
        chart.draw_series(measured.iter().filter(seen).map(dot))?;
        let cross = |&(x, y): &(f64, f64)| Cross::new((x / unit_x, y / unit_y), 6, colour(0).stroke_width(2));
        chart.draw_series(paper.iter().filter(seen).map(cross))?;
        Ok(())
    })?;
    let ends = |range: &std::ops::Range<f64>| format!("{} to {}", short(range.start), short(range.end));
    let of_paper = if paper.is_empty() { String::new() } else { format!(", {} of them the paper's", paper.len()) };
    let n = measured.len() + paper.len();
    let description = format!("{n} points{of_paper}: {unit} ({}) over {x_unit} ({}).", ends(&y), ends(&x));
    Ok(Some(Figure::new(name, title.to_owned(), description, svg)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heatmap_has_a_cell_for_each_value() {
        let cells: Vec<Cell> = (0..6).map(|i| (i % 3, i / 3, 1.0 + i as f64)).collect();
        let figure = heatmap("a", "t", "s", &cells).unwrap().unwrap().file();
        assert_eq!(figure.matches("<rect").count(), 6 + 1, "and the paper");
        assert!(figure.contains("Least 1 at column 0, row 0; most 6 at column 2, row 1"), "{figure}");
        assert_eq!(heatmap("a", "t", "s", &[]).unwrap(), None);
        for value in [0.0, 1e308, f64::NAN, f64::INFINITY] {
            heatmap("a", "t", "s", &[(0, 0, value), (40, 3, 1.0)]).unwrap();
            points("a", "t", "hops", "s", [&[(value, 1.0), (2.0, value)], &[(1.0, value)]]).unwrap();
        }
    }

    #[test]
    fn points_are_drawn_and_told() {
        let of = |paper: &[(f64, f64)]| {
            points("a", "t", "hops", "s", [&[(0.0, 100.0), (10.0, 200.0)], paper]).unwrap().unwrap().file()
        };
        let figure = of(&[]);
        assert_eq!((figure.matches("<circle").count(), figure.contains(">\npaper")), (2, false));
        assert!(figure.contains("2 points: s (95 to 205) over hops (-0.5 to 10.5)"), "{figure}");
        let beside = of(&[(5.0, 150.0)]);
        assert_eq!((beside.matches("<circle").count(), beside.contains(">\npaper")), (2, true), "{beside}");
        assert!(beside.contains("3 points, 1 of them the paper&#39;s"), "{beside}");
    }

    #[test]
    fn more_is_darker() {
        let light = |part: f64| {
            let RGBColor(r, g, b) = shade(part).0;
            0.3 * f64::from(r) + 0.59 * f64::from(g) + 0.11 * f64::from(b)
        };
        assert!((0..20).all(|i| light(f64::from(i) / 20.0) > light(f64::from(i + 1) / 20.0)));
    }
}
