//! How fast a program of high priority is, by whichever metric; higher is better.

use crate::qos::controller::{Excess, Why};
use cotenant_model::histogram::Histogram;
use cotenant_model::ids::Time;
use cotenant_model::sample::Direction;
use cotenant_model::signal::Signal;
use cotenant_model::view::{AppView, View};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The metric that counters tell.
pub(super) const IPC: &str = "ipc";

/// The metric that programs report themselves.
pub(super) const PROGRESS: &str = "progress";

/// A reading of latencies takes so long at least, and so many of them.
const LATENCY_WINDOW: Duration = Duration::from_secs(1);
const LATENCY_COUNT: u64 = 100;

/// And at most so long, where they do not tell whether the goal is kept.
const LONGEST_WINDOW: Duration = Duration::from_secs(5);

/// Where so many are to be beyond a quantile, it is no chance (5 %) if none is.
const FEW: f64 = 3.0;

/// So many beyond it tell a quantile well enough for older ones to be forgotten.
const MANY: f64 = 10.0;

/// The quantile, 0–1, of the latencies of that name: `latency_p99_s`.
pub(super) fn quantile_of(metric: &str) -> Option<f64> {
    let percent: f64 = metric.strip_prefix("latency_p")?.strip_suffix("_s")?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

/// What a reading is wanted for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// It is about the time from here on.
    pub from: Time,
    /// It is to be as good as so many.
    pub readings: u32,
    /// The speed alone, where it is to be compared with that; else with itself.
    pub alone: Option<f64>,
    /// The share of it that is the goal.
    pub goal: Option<f64>,
    /// Whether they run all the time in it.
    pub full: bool,
    /// What for.
    pub why: Why,
}

/// What became known of a speed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Speed times weight.
    pub speed: f64,
    pub weight: f64,
    /// Since when that was measured.
    pub since: Time,
    /// It is as good as so many readings.
    pub readings: u32,
    /// What single latencies tell of how far that is from the goal.
    pub excess: Option<Excess>,
    /// The speed alone by the latencies of all pauses.
    pub alone: Option<f64>,
}

/// Latencies on the way to a reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Gathered {
    histogram: Histogram,
    since: Option<Time>,
    /// Those of the pauses so far: the last ones, and as many before.
    #[serde(default)]
    pauses: [Histogram; 2],
    /// So many came in a second of the last of these.
    #[serde(default)]
    pace: Option<f64>,
}

/// So many batches tell how fast they come.
const ENOUGH: u32 = 4;

/// Progress as it was looked at in a pause. Where some looks saw none, it comes in batches: how many fit into the pause is chance, and what
/// tells the speed is the time from the first to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Batches {
    looks: u32,
    count: u32,
    first: Time,
    last: Time,
    /// Units behind the first batch.
    units: f64,
}

impl Batches {
    /// So many units since the last look.
    pub fn look(&mut self, units: f64, at: Time) {
        self.looks += 1;
        if units <= 0.0 {
            return;
        }
        if self.count == 0 {
            self.first = at;
        } else {
            self.units += units;
        }
        self.count += 1;
        self.last = at;
    }

    /// Whether progress comes in batches, as far as could be seen.
    pub fn are_seen(&self) -> bool {
        self.count < self.looks
    }

    /// Whether that is so or not yet to be told.
    pub fn may_be(&self) -> bool {
        self.are_seen() || self.looks < ENOUGH
    }

    /// Units per second; `None` where there were too few of them.
    pub fn per_second(&self) -> Option<f64> {
        (self.count >= ENOUGH).then(|| self.units / (self.last - self.first).as_secs_f64())
    }

    /// Time from one to the next; `None` where that is not known.
    pub fn grain(&self) -> Option<Duration> {
        match (self.looks, self.count) {
            (looks, count) if looks == count && looks > 1 => Some(Duration::ZERO),
            (_, 0 | 1) => None,
            (_, count) => Some((self.last - self.first) / (count - 1)),
        }
    }
}

/// `None` where nothing new is known.
pub(super) fn speed(
    view: &View,
    app: &AppView,
    metric: &str,
    gathered: &mut Gathered,
    wanted: &Wanted,
) -> Option<Told> {
    let seconds = view.interval.as_secs_f64();
    let since = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
    let told = |speed, weight| Told { speed, weight, since, readings: 1, excess: None, alone: None };
    match metric {
        PROGRESS => Some(told(app.progress_per_s? * seconds, seconds)),
        IPC => {
            let of = |signal| {
                let tasks = view.tasks.iter().filter(|task| task.info.app == app.id);
                tasks.filter_map(|task| task.per_s(signal)).sum::<f64>() * seconds
            };
            let cycles = of(Signal::Cycles);
            (cycles > 0.0).then(|| told(of(Signal::Instructions), cycles))
        }
        name => {
            if let Some(q) = quantile_of(name) {
                return gathered.add(view, app.latency_ns.as_ref(), q, since, wanted);
            }
            let (_, reading) = app.metrics.iter().find(|(other, _)| other == name)?;
            let value = match reading.direction {
                Direction::HigherIsBetter => reading.value,
                Direction::LowerIsBetter => reading.value.recip(),
            };
            let usable = view.is_new(reading) && value.is_finite() && value > 0.0;
            let since = Time(reading.at.0.saturating_sub(reading.window.as_nanos() as u64));
            usable.then_some(Told { since, ..told(value, 1.0) })
        }
    }
}

impl Gathered {
    /// Whether nothing was seen yet.
    pub fn is_empty(&self) -> bool {
        self.histogram.count() == 0
    }

    /// Adds the latencies of an interval; a reading when there are enough.
    fn add(
        &mut self,
        view: &View,
        latencies: Option<&Histogram>,
        q: f64,
        since: Time,
        wanted: &Wanted,
    ) -> Option<Told> {
        if self.since.is_some_and(|begin| begin < wanted.from) {
            self.begin(); // of the phase before
        }
        if since < wanted.from {
            return None;
        }
        let begin = *self.since.get_or_insert(since);
        if let Some(latencies) = latencies {
            self.histogram.add(latencies);
        }
        let Wanted { readings, alone, goal, full, why, .. } = *wanted;
        let window = view.at - begin;
        let (count, value) = (self.histogram.count(), self.histogram.quantile(q).map(|ns| 1e9 / ns));
        let excess = alone.or(value).zip(goal).map(|(alone, goal)| {
            let edge_ns = 1e9 / (alone * goal);
            let mut excess = Excess::of(self.histogram.above(edge_ns), count, q);
            // Where it was asked more often, each answer stands for less of the time.
            let share = self.pace.map_or(1.0, |pace| (pace * window.as_secs_f64() / count.max(1) as f64).min(1.0));
            excess.over *= share;
            excess
        });
        let compared = excess.filter(|_| alone.is_some());
        if !compared.is_some_and(|excess| full && excess.is_alarming()) {
            // Who runs all the time is soon stopped where that was a mistake. A pause that tells whose doing a miss was pays back what it cost,
            // and takes its time until it says that it was not theirs.
            let enough = |excess: Excess| match why {
                Why::Blame | Why::MakeUp if excess.over > 0.0 => excess.is_alarming(),
                _ => excess.is_sure() || full && excess.is_likely_kept(),
            };
            let unsure = compared.is_some_and(|excess| !enough(excess));
            let least = if unsure { LONGEST_WINDOW } else { LATENCY_WINDOW * readings };
            if window < least || count < LATENCY_COUNT * u64::from(readings) {
                return None;
            }
        }
        let histogram = self.begin();
        if why == Why::Baseline {
            self.pace = Some(count as f64 / window.as_secs_f64());
        }
        let alone = (why == Why::Baseline).then(|| self.note_pause(histogram, q)).flatten();
        let weight = window.as_secs_f64();
        let told = |value| Told { speed: value * weight, weight, since: begin, readings, excess, alone };
        value.filter(|value| value.is_finite()).map(told)
    }

    /// Begins anew; what was gathered.
    fn begin(&mut self) -> Histogram {
        self.since = None;
        std::mem::take(&mut self.histogram)
    }

    /// The speed alone by all pauses, this one among them.
    fn note_pause(&mut self, histogram: Histogram, q: f64) -> Option<f64> {
        let all = |pauses: &[Histogram; 2]| {
            let mut all = pauses[0].clone();
            all.add(&pauses[1]);
            all.quantile(q)
        };
        // A long pause without any that slow: it is another load.
        let is_faster = histogram.count() as f64 * (1.0 - q) >= FEW
            && all(&self.pauses).is_some_and(|before| histogram.above(before) <= 0.0);
        if is_faster {
            self.pauses = [histogram, Histogram::default()];
        } else {
            self.pauses[0].add(&histogram);
            if self.pauses[0].count() as f64 * (1.0 - q) >= MANY {
                self.pauses[1] = std::mem::take(&mut self.pauses[0]);
            }
        }
        all(&self.pauses).map(|ns| 1e9 / ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_stand_in_names() {
        assert_eq!(
            ["latency_p50_s", "latency_p99_s", "latency_p2.5_s"].map(quantile_of),
            [Some(0.5), Some(0.99), Some(0.025)]
        );
        assert_eq!(["latency_p101_s", "latency_px_s", "latency_p99", "p99"].map(quantile_of), [None; 4]);
    }

    #[test]
    fn pauses_add_up_until_one_is_faster() {
        let of = |values: &[(u64, u64)]| {
            let bucket = |(ms, count): &(u64, u64)| (*ms as f64 * 1e6, (*ms + 1) as f64 * 1e6, *count).into();
            Histogram::new(values.iter().map(bucket))
        };
        let mut gathered = Gathered::default();
        let mut p99_ms = |values: &[(u64, u64)]| 1e3 / gathered.note_pause(of(values), 0.99).unwrap();
        let close = |is: f64, to: f64| assert!((is - to).abs() < 1e-6, "{is} is not {to}");
        // Of 300, three are to be beyond: half of the six at 10 ms. Of 400, four: 2/3.
        close(p99_ms(&[(1, 294), (10, 6)]), 10.5);
        close(p99_ms(&[(1, 100)]), 10.0 + 2.0 / 6.0);
        // Some moments that are slower tell at once: 4.2 of 420 are beyond, of twenty.
        close(p99_ms(&[(50, 20)]), 50.0 + 15.8 / 20.0);
        // A hundred that are fast tell nothing yet, three hundred do.
        close(p99_ms(&[(1, 100)]), 50.0 + 14.8 / 20.0);
        close(p99_ms(&[(1, 300)]), 1.99);
    }
}
