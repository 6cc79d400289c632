//! Plots of the measurements: standalone SVG.

use cotenant_model::number;
use cotenant_model::profile::calibration::Curve;
use cotenant_model::topology::hidden::Latencies;
use std::fmt::Write;

const MARGIN: f64 = 56.0;

fn begin(width: f64, height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"DejaVu Sans, Verdana, Helvetica, sans-serif\" font-size=\"11\" fill=\"#1a1a1a\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"8\" y=\"18\" font-size=\"13\">{title}</text>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text at a place; `anchor` gives the end of the text that is there, by default the start.
fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let anchor = if anchor.is_empty() { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{words}</text>");
}

/// From light to dark blue, distinguishable in print; `at` is 0–1.
fn shade(at: f64) -> String {
    let mix = |light: f64, dark: f64| (light + (dark - light) * at.clamp(0.0, 1.0)) as u8;
    format!("#{:02x}{:02x}{:02x}", mix(237.0, 8.0), mix(248.0, 48.0), mix(255.0, 107.0))
}

/// The matrix as a heat map; each cell's tooltip gives its CPUs, latency and uncertainty (`spread_ns`, below the
/// diagonal).
pub fn heat_map(latencies: &Latencies, spread_ns: &[Vec<f64>]) -> String {
    let cpus = latencies.cpus();
    let n = cpus.len();
    let cell = (640.0 / n.max(1) as f64).clamp(3.0, 28.0);
    let known = |(i, j): (usize, usize)| latencies.get(i, j);
    let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    let (least, most) = pairs().filter_map(known).fold((f64::INFINITY, 0.0_f64), |(l, m), ns| (l.min(ns), m.max(ns)));
    let side = n as f64 * cell;
    let mut out = begin(
        (side + 2.0 * MARGIN + 60.0).max(340.0),
        (side + 2.0 * MARGIN).max(200.0),
        "Latency from CPU to CPU, ns, one way",
    );
    for (i, j) in pairs() {
        let Some(ns) = latencies.get(i, j) else { continue };
        // By ratio, because levels of sharing differ by factors.
        let at = if most > least { (ns / least).ln() / (most / least).ln() } else { 0.0 };
        let (x, y) = (MARGIN + j as f64 * cell, MARGIN + i as f64 * cell);
        let spread = spread_ns.get(i.max(j)).and_then(|row| row.get(i.min(j)));
        let spread = spread.map_or_else(String::new, |spread| format!(" ± {spread:.1}"));
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{cell:.1}\" height=\"{cell:.1}\" fill=\"{}\"><title>CPU {} and {}: {ns:.1}{spread} ns</title></rect>",
            shade(at),
            cpus[i],
            cpus[j]
        );
    }
    let every = (n as f64 * 14.0 / side.max(1.0)).ceil().max(1.0) as usize;
    for (i, cpu) in cpus.iter().enumerate().step_by(every) {
        let at = MARGIN + (i as f64 + 0.5) * cell;
        text(&mut out, (MARGIN - 4.0, at + 4.0), "end", &cpu.to_string());
        text(&mut out, (at, MARGIN - 6.0), "middle", &cpu.to_string());
    }
    let shades = if most > least * 1.02 { 4 } else { 0 };
    for step in 0..=shades {
        let at = f64::from(step) / f64::from(shades.max(1));
        let (x, y) = (MARGIN + side + 16.0, MARGIN + f64::from(step) * 22.0);
        let ns = if most > 0.0 { least * (most / least).powf(at) } else { 0.0 };
        let _ = writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"18\" height=\"18\" fill=\"{}\"/>", shade(at));
        text(&mut out, (x + 24.0, y + 13.0), "", &format!("{ns:.0} ns"));
    }
    out + "</svg>\n"
}

/// The ratio of largest to smallest value from which an axis is logarithmic: on a linear one, small values would
/// overlap.
const LOGARITHMIC_FROM: f64 = 30.0;

/// An axis that fits all values, with round ends.
struct Axis {
    logarithmic: bool,
    /// Positions of ticks, from the first to the last.
    ticks: Vec<f64>,
}

impl Axis {
    /// For values with their spread; the values alone decide the kind of axis.
    fn of(values: impl Iterator<Item = f64>, spread: &[(f64, f64)]) -> Self {
        let around = |(least, most): (f64, f64), v: f64| (least.min(v), most.max(v));
        let (low, high) = values.fold((f64::INFINITY, 0.0), around);
        let logarithmic = low > 0.0 && low.is_finite() && high >= LOGARITHMIC_FROM * low;
        let ends = spread.iter().flat_map(|(low, high)| [*low, *high]).filter(|end| !logarithmic || *end > 0.1 * low);
        let (low, high) = ends.fold((low, high), around);
        if logarithmic {
            let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
            // On three decades or fewer there is room for 2 and 5 between the powers of ten.
            let between: &[f64] = if high < 1e3 * low { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all: Vec<f64> =
                powers.flat_map(|power| between.iter().map(move |step| step * 10_f64.powi(power))).collect();
            let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
            let last = all.iter().position(|tick| *tick >= high).unwrap_or(all.len() - 1);
            return Self { logarithmic, ticks: all[first..=last].to_vec() };
        }
        let low = low.min(0.0);
        let step = ceiling((high - low) / 5.0);
        let (first, last) = ((low / step).floor() as i32, ((high / step).ceil() as i32).max(1));
        Self { logarithmic, ticks: (first..=last).map(|n| f64::from(n) * step).collect() }
    }

    /// Position of a value, from 0 at the first tick to 1 at the last.
    fn at(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).log10() } else { v };
        let (first, last) = (scale(self.ticks[0]), scale(self.ticks[self.ticks.len() - 1]));
        (scale(value) - first) / (last - first)
    }
}

/// A curve with its axes; bars show the spread of each point.
pub fn curve(curve: &Curve) -> String {
    let (width, height) = (520.0, 340.0);
    let mut out = begin(width, height, &curve.name);
    let axis_x = Axis::of(curve.points.iter().map(|p| p.0), &curve.spread_x);
    let axis_y = Axis::of(curve.points.iter().map(|p| p.1), &curve.spread_y);
    let x = |v: f64| MARGIN + 20.0 + axis_x.at(v).clamp(0.0, 1.0) * (width - MARGIN - 40.0);
    let y = |v: f64| height - MARGIN - axis_y.at(v).clamp(0.0, 1.0) * (height - 2.0 * MARGIN);
    let (left, right, bottom, top) = (MARGIN + 20.0, width - 20.0, height - MARGIN, MARGIN);
    for tick in &axis_y.ticks {
        let at = y(*tick);
        let _ = writeln!(out, "<path d=\"M{left:.1} {at:.1}H{right:.1}\" stroke=\"#dddddd\"/>");
        text(&mut out, (left - 5.0, at + 4.0), "end", &short(*tick));
    }
    for tick in &axis_x.ticks {
        let at = x(*tick);
        let _ = writeln!(out, "<path d=\"M{at:.1} {bottom:.1}V{top:.1}\" stroke=\"#dddddd\"/>");
        text(&mut out, (at, bottom + 16.0), "middle", &short(*tick));
    }
    for (i, p) in curve.points.iter().enumerate() {
        let mut bars = String::new();
        if let Some((low, high)) = curve.spread_y.get(i) {
            let _ = write!(bars, "M{:.1} {:.1}V{:.1}", x(p.0), y(*low), y(*high));
        }
        if let Some((low, high)) = curve.spread_x.get(i) {
            let _ = write!(bars, "M{:.1} {:.1}H{:.1}", x(*low), y(p.1), x(*high));
        }
        let _ = writeln!(out, "<path d=\"{bars}\" stroke=\"#7a9bd1\" stroke-width=\"1.5\"/>");
    }
    let line: Vec<String> = curve.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
    let _ =
        writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"#0b3d91\" stroke-width=\"2\"/>", line.join(" "));
    for (i, p) in curve.points.iter().enumerate() {
        let spread = curve.spread_y.get(i);
        let spread = spread.map_or_else(String::new, |(low, high)| format!(" ({} to {})", short(*low), short(*high)));
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"#0b3d91\"><title>{}, {}{spread}</title></circle>",
            x(p.0),
            y(p.1),
            short(p.0),
            short(p.1)
        );
    }
    text(&mut out, (width / 2.0, height - 16.0), "middle", &escape(&curve.x));
    text(&mut out, (8.0, MARGIN - 14.0), "", &escape(&curve.y));
    out + "</svg>\n"
}

/// The next of 1, 2, 5, 10, … at or above.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|limit| *limit >= value).unwrap_or(10.0 * power)
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e4.. => number::significant(value, 2).replace(".0 ", " "),
        ..1e-3 => number::significant(value, 2).trim_end_matches('0').to_owned(),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::ids::CpuId;

    #[test]
    fn pictures_show_every_value() {
        let mut latencies = Latencies::new((0..3).map(CpuId).collect());
        latencies.set(0, 1, 25.0);
        latencies.set(0, 2, 100.0);
        let map = heat_map(&latencies, &[vec![], vec![1.5], vec![4.0, 0.0]]);
        assert_eq!(map.matches("<title>CPU").count(), 4, "both ways; what was not measured stays white");
        assert!(
            map.contains("CPU 2 and 0: 100.0 ± 4.0 ns")
                && map.contains("CPU 0 and 2: 100.0 ± 4.0 ns")
                && map.contains(&shade(1.0))
                && map.ends_with("</svg>\n")
        );
        assert!(heat_map(&Latencies::new(vec![]), &[]).ends_with("</svg>\n"));
        let of = |points: Vec<(f64, f64)>, spread_y| {
            let (name, x, y) = ("a<b".into(), "GB/s".into(), "ns".into());
            curve(&Curve { name, x, y, points, spread_x: vec![], spread_y })
        };
        let drawn = of(vec![(0.0, 80.0), (12.5, 140.0)], vec![(75.0, 85.0), (130.0, 145.0)]);
        assert!(drawn.contains("a&lt;b") && drawn.matches("<circle").count() == 2);
        assert!(drawn.contains("12.5, 140 (130 to 145)"), "{drawn}");
        assert!(of(vec![], vec![]).ends_with("</svg>\n"));
        assert_eq!((ceiling(140.0), ceiling(0.03), ceiling(10.0), ceiling(0.0)), (200.0, 0.05, 10.0, 1.0));
    }

    #[test]
    fn an_axis_is_logarithmic_where_the_range_asks_for_it() {
        let ticks = |values: &[f64]| {
            let axis = Axis::of(values.iter().copied(), &[]);
            (axis.logarithmic, axis.ticks.iter().map(|tick| short(*tick)).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(ticks(&[0.0, 12.5]), (false, "0 5 10 15".into()));
        assert_eq!(ticks(&[-0.02, 0.9]), (false, "-0.2 0 0.2 0.4 0.6 0.8 1".into()));
        assert_eq!(ticks(&[1.0, 2.0, 16.0]), (false, "0 5 10 15 20".into()));
        assert_eq!(ticks(&[1.0, 96.0]), (true, "1 2 5 10 20 50 100".into()));
        assert_eq!(ticks(&[3e-5, 3e-3]), (true, "0.00002 0.00005 0.0001 0.0002 0.0005 0.001 0.002 0.005".into()));
        assert_eq!(ticks(&[1.0, 1e6]).1, "1 10 100 1000 10 k 100 k 1 M");
        let axis = Axis::of([1.0, 100.0].into_iter(), &[]);
        assert!((axis.at(10.0) - 0.5).abs() < 1e-9 && axis.at(1.0) == 0.0 && (axis.at(100.0) - 1.0).abs() < 1e-9);
        assert_eq!(Axis::of([].into_iter(), &[]).ticks, [0.0, 1.0]);
        let wide = Axis::of([1.0, 100.0].into_iter(), &[(0.0, 1.5), (80.0, 150.0)]);
        assert!(wide.logarithmic && wide.ticks == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0], "{:?}", wide.ticks);
        assert_eq!(Axis::of([1.0, 2.0].into_iter(), &[(-1.0, 4.0)]).ticks, [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
