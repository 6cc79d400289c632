//! The picture of the README: the effect of a batch program on a server, and the remedies.

use super::svg::{escaped, paper};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write as _;

const WIDTH: f64 = 780.0;
/// The start of the bars, and the longest one's length with its whisker.
const LEFT: f64 = 170.0;
const BAR: f64 = 290.0;
/// The same of the CPUs of the batch program.
const CPUS: f64 = 540.0;
const CPUS_BAR: f64 = 170.0;
const TOP: f64 = 76.0;
const ROW: f64 = 36.0;

/// A phase of the demonstration.
#[derive(Debug, PartialEq)]
struct Phase {
    name: String,
    p99_s: f64,
    /// The 95 % interval of that.
    interval_s: Option<[f64; 2]>,
    batch_cpus: Option<f64>,
}

/// A p99 up to this multiple of the server's alone is good, as the legend says.
const GOOD: f64 = 2.0;

/// Draws the output of `cotenant demo --json`.
///
/// # Errors
/// The text is something else.
pub fn svg(json: &str) -> Result<String> {
    let demo: Value = serde_json::from_str(json)?;
    let phases = demo["phases"].as_array().context("no phases")?.iter().map(phase).collect::<Result<Vec<_>>>()?;
    let asked = demo["asked_per_s"].as_f64().context("no asked_per_s")?;
    let machine = demo["outlook"]["machine"].as_str().context("no outlook.machine")?;
    let what = format!("p99 at {asked:.0} questions a second: shorter is better");
    Ok(drawn(&phases, [&title(&phases), &what, &format!("cotenant demo, measured; {machine}")]))
}

fn phase(phase: &Value) -> Result<Phase> {
    Ok(Phase {
        name: phase["name"].as_str().context("a phase without a name")?.to_owned(),
        p99_s: phase["p99_s"].as_f64().context("a phase without p99_s")?,
        interval_s: serde_json::from_value(phase["p99_interval_s"].clone()).context("a wrong p99_interval_s")?,
        batch_cpus: phase["batch_cpus"].as_f64(),
    })
}

/// The result in a sentence.
fn title(phases: &[Phase]) -> String {
    let times = |name: &str| {
        let (alone, phase) = (phases.first()?, phases.iter().find(|phase| phase.name == name)?);
        Some(phase.p99_s / alone.p99_s.max(f64::MIN_POSITIVE))
    };
    match (times("beside the batch"), times("cotenant qos")) {
        (Some(beside), Some(qos)) => {
            format!("Beside a batch program its p99 is {beside:.1} times as long, under cotenant qos {qos:.1} times")
        }
        _ => "The p99 of a server beside a batch program".to_owned(),
    }
}

impl Phase {
    /// The end of its bar and its whisker.
    fn most_s(&self) -> f64 {
        self.interval_s.map_or(self.p99_s, |[_, high]| high.max(self.p99_s))
    }
}

fn drawn(phases: &[Phase], [title, what, source]: [&str; 3]) -> String {
    let most = |of: fn(&Phase) -> f64| phases.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (longest, cpus) = (most(Phase::most_s), most(|phase| phase.batch_cpus.unwrap_or_default()));
    let bottom = TOP + ROW * phases.len() as f64;
    let words: Vec<String> = phases.iter().map(|p| format!("{} {}", p.name, time(p.p99_s))).collect();
    let mut out = paper(WIDTH, bottom + 62.0, &format!("p99 of a server: {}", words.join(", ")));
    let mut text = |x: f64, y: f64, class: &str, text: &str| {
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text));
    };
    text(20.0, 32.0, "head", title);
    text(LEFT, 58.0, "soft", what);
    text(CPUS, 58.0, "soft", "batch, CPUs: longer is better");
    for (n, phase) in phases.iter().enumerate() {
        let y = TOP + ROW * n as f64;
        text(20.0, y + 19.0, "", &phase.name);
        text(LEFT + length(phase.most_s(), longest, BAR) + 8.0, y + 19.0, "", &time(phase.p99_s));
        if let Some(batch) = phase.batch_cpus {
            text(CPUS + length(batch, cpus, CPUS_BAR) + 8.0, y + 19.0, "", &format!("{batch:.2}"));
        }
    }
    let (second, legend) = (LEFT + 230.0, bottom + 22.0);
    text(LEFT + 18.0, legend, "soft", "up to twice as long as alone");
    text(second + 18.0, legend, "soft", "longer; dashed: alone; whiskers: 95 % interval");
    text(20.0, bottom + 46.0, "soft", source);
    let mut bar = |x: f64, y: f64, class: &str, [length, high]: [f64; 2]| {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{high:.0}\" rx=\"3\" class=\"{class}\"/>"
        );
    };
    for (x, class) in [(LEFT, "good"), (second, "bad")] {
        bar(x, legend - 11.0, class, [12.0, 12.0]);
    }
    for (n, phase) in phases.iter().enumerate() {
        let y = TOP + ROW * n as f64 + 4.0;
        let good = phases.first().is_some_and(|alone| phase.p99_s <= GOOD * alone.p99_s);
        bar(LEFT, y, if good { "good" } else { "bad" }, [length(phase.p99_s, longest, BAR), 20.0]);
        if let Some(batch) = phase.batch_cpus {
            bar(CPUS, y, "batch", [length(batch, cpus, CPUS_BAR), 20.0]);
        }
    }
    // As long as alone.
    if let Some(alone) = phases.first() {
        let x = LEFT + length(alone.p99_s, longest, BAR);
        let _ = writeln!(out, "<path d=\"M{x:.1} {:.1}V{bottom:.1}\" class=\"alone\"/>", TOP - 4.0);
    }
    for (n, phase) in phases.iter().enumerate() {
        let Some(ends) = phase.interval_s else { continue };
        let [low, high] = ends.map(|end| LEFT + length(end, longest, BAR));
        let (y, cap) = (TOP + ROW * n as f64 + 14.0, 5.0);
        let _ = writeln!(
            out,
            "<path d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {0:.1}V{1:.1}M{high:.1} {0:.1}V{1:.1}\" class=\"whisker\"/>",
            y - cap,
            y + cap,
        );
    }
    out + "</svg>\n"
}

/// Length of a bar; any value is visible.
fn length(value: f64, most: f64, bar: f64) -> f64 {
    (value / most * bar).max(2.0)
}

/// Seconds with three digits, in µs or ms.
fn time(seconds: f64) -> String {
    let (value, unit) = if seconds < 1e-3 { (seconds * 1e6, "µs") } else { (seconds * 1e3, "ms") };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"asked_per_s": 1000.0, "outlook": {"machine": "2 cores"}, "phases": [
        {"name": "server alone", "p99_s": 0.0003, "batch_cpus": null},
        {"name": "beside the batch", "p99_s": 0.03, "p99_interval_s": [0.015, 0.04], "batch_cpus": 1.5}]}"#;

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let svg = svg(JSON).unwrap();
        // The longest whisker ends at the margin.
        assert!(svg.contains("width=\"217.5\" height=\"20\" rx=\"3\" class=\"bad\""), "{svg}");
        assert!(svg.contains("width=\"2.2\" height=\"20\" rx=\"3\" class=\"good\""), "{svg}");
        assert!(svg.contains("d=\"M278.8 126.0H460.0M278.8 121.0V131.0M460.0 121.0V131.0\""), "{svg}");
        assert!(svg.contains(">300 µs<") && svg.contains(">30.0 ms<") && svg.contains(">1.50<"), "{svg}");
        assert!(
            svg.contains(">p99 at 1000 questions a second: shorter is better<")
                && svg.contains(">cotenant demo, measured; 2 cores<"),
            "{svg}"
        );
        assert!(svg.contains(">up to twice as long as alone<"), "{svg}");
        assert!(svg.contains("d=\"M172.2 72.0V148.0\" class=\"alone\""), "{svg}");
        assert!(svg.contains(">The p99 of a server beside a batch program<"), "{svg}");
        assert!(super::svg("{}").is_err());
        let phase = |name: &str, p99_s| Phase { name: name.to_owned(), p99_s, interval_s: None, batch_cpus: None };
        let all = [phase("server alone", 1e-3), phase("beside the batch", 7e-3), phase("cotenant qos", 1.1e-3)];
        let said = "Beside a batch program its p99 is 7.0 times as long, under cotenant qos 1.1 times";
        assert_eq!(title(&all), said);
    }
}
