//! Pictures of what was measured: standalone SVG.

use super::Curve;
use crate::topology::hidden::Latencies;
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

/// From light to dark blue, both ends told apart in print; `at` is 0–1.
fn shade(at: f64) -> String {
    let mix = |light: f64, dark: f64| (light + (dark - light) * at.clamp(0.0, 1.0)) as u8;
    format!("#{:02x}{:02x}{:02x}", mix(237.0, 8.0), mix(248.0, 48.0), mix(255.0, 107.0))
}

/// The matrix as a heat map; each cell says its CPUs and its latency when pointed at.
pub fn heat_map(latencies: &Latencies) -> String {
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
        // By ratio, not by difference: levels of sharing differ by factors.
        let at = if most > least { (ns / least).ln() / (most / least).ln() } else { 0.0 };
        let (x, y) = (MARGIN + j as f64 * cell, MARGIN + i as f64 * cell);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{cell:.1}\" height=\"{cell:.1}\" fill=\"{}\"><title>CPU {} and {}: {ns:.1} ns</title></rect>",
            shade(at),
            cpus[i],
            cpus[j]
        );
    }
    let every = (n as f64 * 14.0 / side.max(1.0)).ceil().max(1.0) as usize;
    for (i, cpu) in cpus.iter().enumerate().step_by(every) {
        let at = MARGIN + (i as f64 + 0.5) * cell;
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{cpu}</text>", MARGIN - 4.0, at + 4.0);
        let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{cpu}</text>", MARGIN - 6.0);
    }
    let shades = if most > least * 1.02 { 4 } else { 0 };
    for step in 0..=shades {
        let at = f64::from(step) / f64::from(shades.max(1));
        let (x, y) = (MARGIN + side + 16.0, MARGIN + f64::from(step) * 22.0);
        let ns = if most > 0.0 { least * (most / least).powf(at) } else { 0.0 };
        let _ = writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"18\" height=\"18\" fill=\"{}\"/>", shade(at));
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{ns:.0} ns</text>", x + 24.0, y + 13.0);
    }
    out + "</svg>\n"
}

/// A curve with its axes.
pub fn curve(curve: &Curve) -> String {
    let (width, height) = (520.0, 340.0);
    let mut out = begin(width, height, &curve.name);
    let most = |of: fn(&(f64, f64)) -> f64| curve.points.iter().map(of).fold(0.0_f64, f64::max);
    let (right, top) = (ceiling(most(|p| p.0)), ceiling(most(|p| p.1)));
    let x = |v: f64| MARGIN + 20.0 + v / right * (width - MARGIN - 40.0);
    let y = |v: f64| height - MARGIN - v / top * (height - 2.0 * MARGIN);
    for step in 0..=4 {
        let at = f64::from(step) / 4.0;
        let (gx, gy) = (x(right * at), y(top * at));
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {gy:.1}H{:.1}M{gx:.1} {:.1}V{:.1}\" stroke=\"#dddddd\"/>",
            x(0.0),
            x(right),
            y(0.0),
            y(top)
        );
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x(0.0) - 5.0,
            gy + 4.0,
            short(top * at)
        );
        let _ = writeln!(
            out,
            "<text x=\"{gx:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y(0.0) + 16.0,
            short(right * at)
        );
    }
    let line: Vec<String> = curve.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
    let _ =
        writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"#0b3d91\" stroke-width=\"2\"/>", line.join(" "));
    for p in &curve.points {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"#0b3d91\"><title>{}, {}</title></circle>",
            x(p.0),
            y(p.1),
            short(p.0),
            short(p.1)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        width / 2.0,
        height - 16.0,
        escape(&curve.x)
    );
    let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", 8.0, MARGIN - 14.0, escape(&curve.y));
    out + "</svg>\n"
}

/// The next of 1, 2, 5, 10, … that is not below.
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
        1e4.. | ..1e-3 => format!("{value:.1e}"),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CpuId;

    #[test]
    fn pictures_show_every_value() {
        let mut latencies = Latencies::new((0..3).map(CpuId).collect());
        latencies.set(0, 1, 25.0);
        latencies.set(0, 2, 100.0);
        let map = heat_map(&latencies);
        assert_eq!(map.matches("<title>CPU").count(), 4, "both ways; what was not measured stays white");
        assert!(map.contains("CPU 2 and 0: 100.0 ns") && map.contains(&shade(1.0)) && map.ends_with("</svg>\n"));
        assert!(heat_map(&Latencies::new(vec![])).ends_with("</svg>\n"));
        let points = vec![(0.0, 80.0), (12.5, 140.0)];
        let drawn = curve(&Curve { name: "a<b".into(), x: "GB/s".into(), y: "ns".into(), points });
        assert!(drawn.contains("a&lt;b") && drawn.matches("<circle").count() == 2 && drawn.contains("12.5, 140"));
        assert_eq!((ceiling(140.0), ceiling(0.03), ceiling(10.0), ceiling(0.0)), (200.0, 0.05, 10.0, 1.0));
    }
}
