//! Recent speeds of one application: means over windows of time.

use crate::speed::{self, Source};
use crate::{AppView, Time, View};
use std::collections::VecDeque;
use std::time::Duration;

/// Least length of a window.
const SHORTEST: Duration = Duration::from_millis(400);
/// Least number of its readings.
const READINGS: u32 = 4;
/// More frequent readings are merged.
const GRAIN: Duration = Duration::from_millis(20);
/// Limit of kept readings.
const MOST: usize = 512;

/// Speed between two times: speed × weight, and the weight.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Time,
    to: Time,
    term: [f64; 2],
}

/// Speeds of the recent past, from one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Speeds {
    pub source: Option<Source>,
    spans: VecDeque<Span>,
}

/// A stretch of time and the mean speed in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub from: Time,
    pub to: Time,
    pub mean: f64,
    /// By how much its second half was faster than the first, as a logarithm.
    pub drift: f64,
}

/// The best current source, counters included.
fn source(view: &View, app: &AppView) -> Option<Source> {
    speed::told(view, app).or_else(|| Source::Instructions.speed(view, app)).map(|(source, _)| source)
}

impl Speeds {
    /// Adds an interval. Returns whether its source is new, which drops all earlier data.
    pub fn add(&mut self, view: &View, app: &AppView) -> bool {
        // A program without progress in an interval has speed 0; its instructions must not replace that.
        let stood_still =
            self.source == Some(Source::Progress) && app.progress_per_s.is_some() && app.metrics.is_empty();
        let now = if stood_still { self.source.clone() } else { source(view, app) };
        let changed = now.is_some() && now != self.source;
        if changed {
            *self = Self { source: now, spans: VecDeque::new() };
        }
        let Some(source) = &self.source else { return false };
        let Some((term, reading)) = source.term(view, app).zip(source.reading(view, app)) else { return changed };
        let span = Span { from: reading.since(), to: reading.at, term };
        match self.spans.back_mut() {
            Some(last) if last.to == span.from && span.to - last.from <= GRAIN => {
                last.to = span.to;
                last.term = [last.term[0] + term[0], last.term[1] + term[1]];
            }
            _ => self.spans.push_back(span),
        }
        let keep = 3 * self.length() + Duration::from_secs(2);
        while self.spans.len() > MOST || self.spans.front().is_some_and(|span| view.at - span.to > keep) {
            self.spans.pop_front();
        }
        changed
    }

    /// Time of the longest reading that is kept.
    pub fn grain(&self) -> Duration {
        self.spans.iter().map(|span| span.to - span.from).max().unwrap_or_default()
    }

    /// Length of a window.
    fn length(&self) -> Duration {
        SHORTEST.max(self.grain() * READINGS)
    }

    /// The last window that ends at `until` and does not begin before `from`.
    pub fn before(&self, from: Time, until: Time) -> Option<Window> {
        let (length, last) = (self.length(), self.spans.partition_point(|span| span.to <= until));
        let end = self.spans.get(last.checked_sub(1)?)?.to;
        // Older data belong to another time.
        (until - end <= self.grain()).then_some(())?;
        let first = (0..last).rev().find(|i| end - self.spans[*i].from >= length)?;
        (self.spans[first].from >= from).then(|| self.window(first, last))?
    }

    /// The first complete window that begins at `from` or later.
    pub fn after(&self, from: Time) -> Option<Window> {
        let (length, first) = (self.length(), self.spans.partition_point(|span| span.from < from));
        let begin = self.spans.get(first)?.from;
        let last = (first..self.spans.len()).find(|i| self.spans[*i].to - begin >= length)?;
        self.window(first, last + 1)
    }

    fn window(&self, first: usize, last: usize) -> Option<Window> {
        let spans: Vec<Span> = self.spans.range(first..last).copied().collect();
        let mean = |spans: &[Span]| {
            let [sum, weight] = spans.iter().fold([0.0; 2], |s, span| [s[0] + span.term[0], s[1] + span.term[1]]);
            (weight > 0.0).then(|| sum / weight)
        };
        // Gaps between readings are unknown time.
        let known: Duration = spans.iter().map(|span| span.to - span.from).sum();
        let (from, to) = (spans.first()?.from, spans.last()?.to);
        (known * 10 >= (to - from) * 9).then_some(())?;
        let (one, other) = spans.split_at(spans.len() / 2);
        Some(Window { from, to, mean: mean(&spans)?, drift: log_ratio(mean(other)?, mean(one)?).unwrap_or(0.0) })
    }
}

/// ln(a / b), at most ± 3; `None` if both are zero.
pub(super) fn log_ratio(a: f64, b: f64) -> Option<f64> {
    (a > 0.0 || b > 0.0).then(|| (a / b).ln().clamp(-3.0, 3.0))
}
