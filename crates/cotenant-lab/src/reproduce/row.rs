//! Results of an experiment: rows of the paper's figures beside ours, and derived sentences.

use super::spread::Spread;
pub(super) use crate::means::{geometric, highest, lowest, mean};
use serde::Serialize;
use std::borrow::Borrow;

/// Results of an experiment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    pub rows: Vec<Row>,
    pub verdict: String,
    pub note: String,
}

impl Found {
    pub fn new(rows: Vec<Row>, verdict: impl Into<String>, note: impl Into<String>) -> Self {
        Self { rows, verdict: verdict.into(), note: note.into() }
    }

    /// The verdict counts the rows that agree with the paper.
    pub fn tallied(rows: Vec<Row>, note: impl Into<String>) -> Self {
        let verdict = tally(&rows);
        Self::new(rows, verdict, note)
    }

    /// Explains the unmet rows that have no explanation of their own.
    pub fn because(mut self, why: &str) -> Self {
        self.rows = self.rows.into_iter().map(|row| row.because(why)).collect();
        self
    }
}

/// A printed result; the keys of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    pub experiment: &'static str,
    pub figure: &'static str,
    #[serde(flatten)]
    pub found: Found,
}

/// The verdict of a row without a figure to compare.
const SILENT: &str = "no figure in the paper's text";

/// A row.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub label: String,
    /// The figure of the paper's text or tables; `None` without one.
    pub paper: Option<f64>,
    pub measured: f64,
    /// The interval of a measurement on a real machine: minimum and maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    pub unit: &'static str,
    pub verdict: String,
    /// Its spread over trials, where that is part of the figure; `measured` is then the median.
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Its place in a picture of the experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// Whether it agrees with the paper, if the paper has a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// Whether its verdict already explains why not.
    #[serde(skip)]
    pub explained: bool,
}

/// A row's place: a cell of a heatmap with a `y`, otherwise a point over `x`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct At {
    /// The meaning of `x`.
    pub axis: &'static str,
    pub x: f64,
    /// The row of a cell, from the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y: Option<f64>,
}

/// A row without a figure in the paper.
pub(super) fn row(label: impl Into<String>, measured: f64, unit: &'static str) -> Row {
    Row { label: label.into(), measured, unit, verdict: SILENT.to_owned(), ..Row::default() }
}

/// A row for each box of a box plot.
pub(super) fn spread(values: &[f64], of: &str, group: &str, series: &str, unit: &'static str) -> Row {
    let spread = Spread::of(values, of, group, series);
    Row { spread: Some(spread.clone()), ..row(format!("{group}, {series}: {of}"), spread.median, unit) }
}

/// A row with a level from the paper, such as a share or a rate.
pub(super) fn level(label: impl Into<String>, paper: f64, measured: f64, unit: &'static str) -> Row {
    let (verdict, met) = level_words(paper, measured);
    row(label, measured, unit).judged(paper, verdict, met)
}

/// A row with a level, if the paper has one.
pub(super) fn level_of(label: impl Into<String>, paper: Option<f64>, measured: f64, unit: &'static str) -> Row {
    let row = row(label, measured, unit);
    if let Some(paper) = paper { level(row.label, paper, measured, unit) } else { row }
}

/// A row with an effect, if the paper has one.
pub(super) fn effect_of(label: impl Into<String>, paper: Option<f64>, measured: f64) -> Row {
    let row = row(label, measured, "%");
    if let Some(paper) = paper { effect(row.label, paper, measured) } else { row }
}

/// A row with an effect in the paper, a gain or a loss in percent.
pub(super) fn effect(label: impl Into<String>, paper: f64, measured: f64) -> Row {
    let verdict = effect_words(paper, measured);
    row(label, measured, "%").judged(paper, verdict, verdict == "appears")
}

/// A row with an upper bound in the paper.
pub(super) fn bound(label: impl Into<String>, paper: f64, measured: f64, unit: &'static str) -> Row {
    let met = measured < paper;
    let verdict = if met { "below the paper's bound" } else { "above the paper's bound" };
    row(label, measured, unit).judged(paper, verdict, met)
}

/// A row with a statement of the paper in words, and whether it holds here.
pub(super) fn claim(label: impl Into<String>, measured: f64, unit: &'static str, says: &str, holds: bool) -> Row {
    let verdict = format!("{}as in the paper: {says}", if holds { "" } else { "not " });
    Row { verdict, met: Some(holds), ..row(label, measured, unit) }
}

impl Row {
    /// Adds the reason for a disagreement, unless the row has one already.
    pub fn because(mut self, why: &str) -> Self {
        if self.met == Some(false) && !std::mem::replace(&mut self.explained, true) {
            self.verdict = format!("{}: {why}", self.verdict);
        }
        self
    }

    /// The same with the paper's figure and a verdict.
    pub fn judged(self, paper: f64, verdict: impl Into<String>, met: bool) -> Self {
        Self { paper: Some(paper), verdict: verdict.into(), met: Some(met), ..self }
    }

    /// The same with a figure for programs that the paper does not name. Ours are drawn anew, and single draws are
    /// chance, most of all the highest one: it is shown but not judged.
    pub fn of_unknown_draws(self, paper: Option<f64>) -> Self {
        let Some(paper) = paper else { return self };
        Self { paper: Some(paper), verdict: "shown, not judged: the paper's draws are not printed".to_owned(), ..self }
    }

    /// The same with a value derived from other figures of the paper, for the picture only.
    pub fn beside(self, paper: f64) -> Self {
        Self { paper: Some(paper), verdict: "for the picture: follows from other figures".to_owned(), ..self }
    }

    /// The same with its place in a picture.
    pub fn at(self, at: At) -> Self {
        Self { at: Some(at), ..self }
    }

    /// The same with the ends of its interval.
    pub fn between(mut self, ends: [f64; 2]) -> Self {
        self.interval = Some(ends);
        self
    }

    /// Whether its verdict says anything.
    pub fn speaks(&self) -> bool {
        self.verdict != SILENT
    }
}

/// Compares a level with the paper's; returns the verdict and whether it is met.
fn level_words(paper: f64, measured: f64) -> (String, bool) {
    let off = measured / paper - 1.0;
    match off.abs() {
        _ if paper == 0.0 && measured == 0.0 => ("as in the paper".to_owned(), true),
        _ if paper == 0.0 => ("the paper has none".to_owned(), false),
        a if a <= 0.1 => ("within 10 %".to_owned(), true),
        _ if off < 0.0 => (format!("{:.0} % lower", -off * 100.0), false),
        a if a < 3.0 => (format!("{:.0} % higher", off * 100.0), false),
        _ => (format!("{:.0} times as high", measured / paper), false),
    }
}

/// Compares an effect with the paper's; less than a percent counts as none.
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

/// Percent by which a ratio exceeds 1.
pub(super) fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// Names joined, or a phrase for none.
pub(super) fn listed<S: Borrow<str>>(names: &[S]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Number of rows that agree with the paper: a level within 10 %, an effect that appears, a bound or statement that
/// holds.
pub(super) fn tally(rows: &[Row]) -> String {
    let judged: Vec<bool> = rows.iter().filter_map(|r| r.met).collect();
    let agree = judged.iter().filter(|met| **met).count();
    format!("{agree} of the {} statements of the paper's text are met", judged.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds sim/reproduce.
    #[test]
    fn words_follow_from_figures() {
        let level = |paper, measured| level_words(paper, measured).0;
        assert_eq!(level_words(0.83, 0.80), ("within 10 %".to_owned(), true));
        assert_eq!(level_words(0.5, 0.25), ("50 % lower".to_owned(), false));
        assert_eq!([level(2.0, 3.0), level(2.0, 20.0)], ["50 % higher", "10 times as high"]);
        assert_eq!([level(0.0, 0.0), level(0.0, 1.0)], ["as in the paper", "the paper has none"]);
        assert_eq!(bound("", 1.0, 0.2, "%").verdict, "below the paper's bound");
        assert_eq!(bound("", 1.0, 1.2, "%").because("it is").verdict, "above the paper's bound: it is");
        assert_eq!(bound("", 1.0, 0.2, "%").because("it is").verdict, "below the paper's bound");
        assert_eq!(claim("", 1.0, "%", "rises", false).verdict, "not as in the paper: rises");
        let rows = [row("", 1.0, "%"), bound("", 1.0, 0.2, "%"), claim("", 1.0, "%", "rises", false)];
        assert_eq!(tally(&rows), "1 of the 2 statements of the paper's text are met");
        let drawn = row("", 5.0, "%").of_unknown_draws(Some(4.75));
        assert_eq!((drawn.paper, drawn.met), (Some(4.75), None), "shown, and no statement");
        assert!(drawn.speaks() && !row("", 5.0, "%").of_unknown_draws(None).speaks());
        assert!(!rows[0].speaks() && rows[1].speaks() && !rows[0].verdict.is_empty());
        let effects = [(36.0, 30.0), (36.0, 10.0), (36.0, 0.5), (36.0, -8.0), (5.0, 11.0), (-9.0, -8.0)];
        let words = effects.map(|(paper, ours)| effect_words(paper, ours));
        assert_eq!(words[..3], ["appears", "appears, less than half as large", "does not appear"]);
        assert_eq!(words[3..], ["the other way round", "appears, more than twice as large", "appears"]);
        assert!((geometric([0.5, 2.0]) - 1.0).abs() < 1e-12 && mean([1.0, 3.0]) == 2.0);
    }
}
