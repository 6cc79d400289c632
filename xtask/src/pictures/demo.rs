//! The picture of the README: what a batch program does to a server, and what helps.

use super::{escaped, paper};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
/// Where the bars begin, and the longest one's length.
const LEFT: f64 = 170.0;
const BAR: f64 = 290.0;
/// The same of the CPUs of the batch program.
const CPUS: f64 = 555.0;
const CPUS_BAR: f64 = 140.0;
const TOP: f64 = 76.0;
const ROW: f64 = 36.0;

/// A phase of the demonstration.
#[derive(Debug, PartialEq)]
struct Phase {
    name: String,
    p99_s: f64,
    batch_cpus: Option<f64>,
}

/// Draws what `cotenant demo --json` printed, or figures of the same form with a `title` and a `source` of their own.
///
/// # Errors
/// Where that is not what it prints.
pub fn svg(json: &str) -> Result<String> {
    let demo: Value = serde_json::from_str(json)?;
    let phases = demo["phases"].as_array().context("no phases")?.iter().map(phase).collect::<Result<Vec<_>>>()?;
    let text = |key: &str| demo[key].as_str().map(str::to_owned);
    let asked = demo["asked_per_s"].as_f64().map(|asked| format!("A server that is asked {asked:.0} times a second"));
    let machine = demo["outlook"]["machine"].as_str().map(|machine| format!("cotenant demo, measured; {machine}"));
    let title = text("title").or(asked).context("neither title nor asked_per_s")?;
    let source = text("source").or(machine).context("neither source nor outlook.machine")?;
    Ok(drawn(&phases, &title, &source))
}

fn phase(phase: &Value) -> Result<Phase> {
    Ok(Phase {
        name: phase["name"].as_str().context("a phase without a name")?.to_owned(),
        p99_s: phase["p99_s"].as_f64().context("a phase without p99_s")?,
        batch_cpus: phase["batch_cpus"].as_f64(),
    })
}

fn drawn(phases: &[Phase], title: &str, source: &str) -> String {
    let most = |of: fn(&Phase) -> f64| phases.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (longest, cpus) = (most(|phase| phase.p99_s), most(|phase| phase.batch_cpus.unwrap_or_default()));
    let bottom = TOP + ROW * phases.len() as f64;
    let words: Vec<String> = phases.iter().map(|p| format!("{} {}", p.name, time(p.p99_s))).collect();
    let mut out = paper(WIDTH, bottom + 40.0, &format!("p99 of a server: {}", words.join(", ")));
    let mut text = |x: f64, y: f64, class: &str, text: &str| {
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(text));
    };
    text(20.0, 32.0, "head", title);
    text(LEFT, 58.0, "soft", "its p99: the shorter the better");
    text(CPUS, 58.0, "soft", "CPUs of the batch program");
    for (n, phase) in phases.iter().enumerate() {
        let y = TOP + ROW * n as f64;
        text(20.0, y + 19.0, "", &phase.name);
        text(LEFT + length(phase.p99_s, longest, BAR) + 8.0, y + 19.0, "", &time(phase.p99_s));
        if let Some(batch) = phase.batch_cpus {
            text(CPUS + length(batch, cpus, CPUS_BAR) + 8.0, y + 19.0, "", &format!("{batch:.2}"));
        }
    }
    text(20.0, bottom + 22.0, "soft", source);
    for (n, phase) in phases.iter().enumerate() {
        let y = TOP + ROW * n as f64 + 4.0;
        // What the server had alone, and what is within twice of it, is good.
        let class = if phases.first().is_some_and(|alone| phase.p99_s <= 2.0 * alone.p99_s) { "good" } else { "bad" };
        let mut bar = |x: f64, class: &str, length: f64| {
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"20\" rx=\"3\" class=\"{class}\"/>"
            );
        };
        bar(LEFT, class, length(phase.p99_s, longest, BAR));
        if let Some(batch) = phase.batch_cpus {
            bar(CPUS, "batch", length(batch, cpus, CPUS_BAR));
        }
    }
    out + "</svg>\n"
}

/// How long a bar is; what is there at all is seen.
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
        {"name": "beside the batch", "p99_s": 0.03, "batch_cpus": 1.5}]}"#;

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let svg = svg(JSON).unwrap();
        assert!(svg.contains("width=\"290.0\" height=\"20\" rx=\"3\" class=\"bad\""), "{svg}");
        assert!(svg.contains("width=\"2.9\" height=\"20\" rx=\"3\" class=\"good\""), "{svg}");
        assert!(svg.contains(">300 µs<") && svg.contains(">30.0 ms<") && svg.contains(">1.50<"), "{svg}");
        assert!(svg.contains("asked 1000 times") && svg.contains("cotenant demo, measured; 2 cores"), "{svg}");
        let own = JSON.replacen('{', r#"{"title": "A", "source": "B", "#, 1);
        assert!(super::svg(&own).unwrap().contains(">A<"));
        assert!(super::svg("{}").is_err());
    }
}
