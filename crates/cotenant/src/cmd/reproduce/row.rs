//! What an experiment says: rows of the paper's figures beside ours, and words that follow from the figures.

use serde::Serialize;

/// An experiment's result; the keys of `reproduce --json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Result {
    pub experiment: &'static str,
    pub figure: &'static str,
    pub rows: Vec<Row>,
    pub verdict: String,
    pub note: String,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub label: String,
    /// What the paper's text or tables say; `None` where they give no figure.
    pub paper: Option<f64>,
    pub measured: f64,
    pub unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
}

/// A row without a figure in the paper.
pub(super) fn row(label: impl Into<String>, measured: f64, unit: &'static str) -> Row {
    Row { label: label.into(), paper: None, measured, unit, verdict: None }
}

/// A row with a level in the paper, such as a share or a rate.
pub(super) fn level(label: impl Into<String>, paper: f64, measured: f64, unit: &'static str) -> Row {
    Row { paper: Some(paper), verdict: Some(level_words(paper, measured)), ..row(label, measured, unit) }
}

/// A row with an effect in the paper, a gain or a loss in percent.
pub(super) fn effect(label: impl Into<String>, paper: f64, measured: f64) -> Row {
    Row { paper: Some(paper), verdict: Some(effect_words(paper, measured).to_owned()), ..row(label, measured, "%") }
}

/// How a level compares with the paper's.
fn level_words(paper: f64, measured: f64) -> String {
    let off = measured / paper - 1.0;
    match off.abs() {
        _ if paper == 0.0 && measured == 0.0 => "as in the paper".to_owned(),
        _ if paper == 0.0 => "the paper has none".to_owned(),
        a if a <= 0.1 => "within 10 %".to_owned(),
        _ if off < 0.0 => format!("{:.0} % lower", -off * 100.0),
        a if a < 3.0 => format!("{:.0} % higher", off * 100.0),
        _ => format!("{:.0} times as high", measured / paper),
    }
}

/// How an effect compares with the paper's; less than a percent is none.
fn effect_words(paper: f64, measured: f64) -> &'static str {
    let same = measured * paper.signum();
    match same / paper.abs() {
        _ if same < -1.0 => "the other way round",
        _ if same < 1.0 => "does not appear",
        part if part < 0.5 => "appears, less than half as large",
        part if part < 2.0 => "appears",
        _ => "appears, more than twice as large",
    }
}

/// The geometric mean; 1 of nothing.
pub(super) fn geometric(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0), |(sum, n), v: f64| (sum + v.ln(), n + 1));
    (sum / f64::from(n.max(1))).exp()
}

/// The mean; 0 of nothing.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0), |(sum, n), v: f64| (sum + v, n + 1));
    sum / f64::from(n.max(1))
}

/// The lowest; infinite of nothing.
pub(super) fn lowest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// The highest; minus infinity of nothing.
pub(super) fn highest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// How many rows that have a figure in the paper agree: a level within 10 %, an effect that appears.
pub(super) fn tally(rows: &[Row]) -> String {
    let judged: Vec<&str> = rows.iter().filter_map(|r| r.verdict.as_deref()).collect();
    let agree = judged.iter().filter(|v| matches!(**v, "as in the paper" | "within 10 %" | "appears")).count();
    format!("{agree} of the {} figures that the paper's text gives are met", judged.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_from_figures() {
        assert_eq!(level_words(0.83, 0.80), "within 10 %");
        assert_eq!(level_words(0.5, 0.25), "50 % lower");
        assert_eq!(level_words(2.0, 3.0), "50 % higher");
        assert_eq!(level_words(2.0, 20.0), "10 times as high");
        assert_eq!([level_words(0.0, 0.0), level_words(0.0, 1.0)], ["as in the paper", "the paper has none"]);
        let effects = [(36.0, 30.0), (36.0, 10.0), (36.0, 0.5), (36.0, -8.0), (5.0, 11.0), (-9.0, -8.0)];
        let words = effects.map(|(paper, ours)| effect_words(paper, ours));
        assert_eq!(words[..3], ["appears", "appears, less than half as large", "does not appear"]);
        assert_eq!(words[3..], ["the other way round", "appears, more than twice as large", "appears"]);
        assert!((geometric([0.5, 2.0]) - 1.0).abs() < 1e-12 && mean([1.0, 3.0]) == 2.0);
    }
}
