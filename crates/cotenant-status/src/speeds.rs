//! The source of each application's speed, for the summary of a run whose policy needed proxies.

use crate::quantities::digits;
use cotenant_model::speed::{Ladder, Source, Standing};
use cotenant_model::stats::steady::Spread;
use cotenant_model::{AppId, ByApp, Outcome, Round};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The sources of each application, added up while it runs.
#[derive(Debug, Default)]
pub struct Speeds(BTreeMap<AppId, Seen>);

/// An application, as one rule sees it.
#[derive(Debug, Default)]
struct Seen {
    rule: usize,
    name: String,
    ladder: Ladder,
}

impl Speeds {
    /// Adds a round.
    pub fn add(&mut self, round: &Round<'_>, tasks: &ByApp<'_>) {
        for app in &round.view.apps {
            let seen = self.0.entry(app.id).or_insert_with(|| Seen { rule: round.rule, ..Seen::default() });
            // Several rules may see it, each over a time of its own.
            if seen.rule == round.rule {
                seen.name.clone_from(&app.name);
                seen.ladder.add(round.view, app, tasks.of(app.id));
            }
        }
        if round.outcomes.contains(&Outcome::Applied) {
            self.0.values_mut().for_each(|seen| seen.ladder.cut(round.view.at));
        }
    }

    /// The current source of an application's speed.
    pub fn best(&self, app: AppId) -> Option<&Source> {
        self.0.get(&app)?.ladder.best().map(|(source, _)| source)
    }

    /// Ends its management.
    pub fn forget(&mut self, app: AppId) {
        self.0.remove(&app);
    }

    /// For each application, the source that counts and all others.
    pub fn summary(&self) -> Vec<SpeedSummary> {
        self.0.values().map(|seen| SpeedSummary::of(&seen.name, &seen.ladder)).collect()
    }
}

/// Sources of an application's speed.
#[derive(Debug, Serialize)]
pub struct SpeedSummary {
    app: String,
    /// The source that counts; `None` where none does.
    source: Option<String>,
    /// All sources with values, best first.
    sources: Vec<SourceSummary>,
}

#[derive(Debug, Serialize)]
struct SourceSummary {
    source: String,
    standing: Standing,
    /// Standard deviation of a window of half a second, relative; `None` if unknown or unbounded.
    spread: Option<f64>,
    /// Windows from which the spread is known.
    windows: usize,
}

impl SpeedSummary {
    fn of(app: &str, ladder: &Ladder) -> Self {
        let sources = ladder.all().into_iter().map(|(source, standing, spread)| SourceSummary {
            source: source.to_string(),
            standing,
            spread: spread.map(|spread| spread.relative).filter(|relative| relative.is_finite()),
            windows: spread.map_or(0, |Spread { windows, .. }| windows),
        });
        let source = ladder.best().map(|(source, _)| source.to_string());
        Self { app: app.to_owned(), source, sources: sources.collect() }
    }
}

impl fmt::Display for SpeedSummary {
    /// `speed of xz: io_bytes/s, ± 1.2 % from window to window`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "speed of {}: ", self.app)?;
        let spread = |source: &SourceSummary| match (source.spread, source.windows) {
            (Some(spread), _) => format!("± {} % from window to window", digits(spread * 100.0)),
            (None, 0) => "seen for too short a time".to_owned(),
            (None, _) => "with long pauses".to_owned(),
        };
        if let Some(source) = self.sources.iter().find(|source| Some(&source.source) == self.source.as_ref()) {
            return write!(f, "{}, {}", source.source, spread(source));
        }
        f.write_str("not known")?;
        for source in &self.sources {
            let waits = if source.standing == Standing::Waiting { ", but it waits for others" } else { "" };
            write!(f, "; {} {}{waits}", source.source, spread(source))?;
        }
        f.write_str("; name one with --metric")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::{AppSample, Moved, Sample, Time, View};

    fn summary(bytes: impl Fn(u64) -> u64, seconds: u64) -> SpeedSummary {
        let mut speeds = Speeds::default();
        let sample = |second: u64| {
            let at = Time::from_millis(1_000 * second);
            let moved = Moved { bytes: (0..second).map(&bytes).sum(), at };
            let app = AppSample { name: "xz".into(), io: Some(moved), ..AppSample::default() };
            Sample { at, apps: vec![app], ..Sample::default() }
        };
        for second in 0..seconds {
            let (prev, next) = (sample(second), sample(second + 1));
            let view = View::new(&prev, &next);
            let outcomes = if second == 9 { &[Outcome::Applied][..] } else { &[] };
            let round = Round {
                rule: 0,
                last: &prev,
                prev: &prev,
                sample: &next,
                whole: true,
                view: &view,
                policy: None,
                decision: None,
                orders: &[],
                outcomes,
            };
            let tasks = view.by_app();
            speeds.add(&round, &tasks);
            speeds.add(&Round { rule: 1, ..round }, &tasks);
        }
        speeds.summary().remove(0)
    }

    /// A move after ten seconds makes it twice as fast: that is no unsteadiness.
    #[test]
    fn what_is_steady_is_named() {
        let steady = summary(|second| if second < 10 { 100 } else { 200 }, 20);
        assert_eq!(steady.to_string(), "speed of xz: io_bytes/s, ± 0 % from window to window");
        assert_eq!(steady.sources[0].windows, 20, "each second once");
        let bursts = summary(|second| 100 << (second % 2), 20).to_string();
        assert_eq!(bursts, "speed of xz: not known; io_bytes/s ± 38.2 % from window to window; name one with --metric");
        let pauses = serde_json::to_value(summary(|second| second % 2, 20)).unwrap();
        assert_eq!(pauses["source"], serde_json::Value::Null);
        assert_eq!(pauses["sources"][0]["standing"], "unsteady");
        assert_eq!(pauses["sources"][0]["spread"], serde_json::Value::Null);
        assert!(summary(|_| 1, 5).to_string().contains("for too short"));
    }
}
