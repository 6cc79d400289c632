//! Latencies, gathered until they give a speed.

use super::alone::Pauses;
use crate::qos::phase::{Excess, MANY, Why};
use cotenant_model::histogram::answers;
use cotenant_model::{Histogram, Time, View};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// New information on a speed.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Speed times weight.
    pub speed: f64,
    pub weight: f64,
    /// Start of that measurement.
    pub since: Time,
    /// Number of readings that it equals.
    pub readings: u32,
    /// Excess of single latencies over the goal.
    pub excess: Option<Excess>,
    /// The speed alone by the latencies of all pauses.
    pub alone: Option<f64>,
}

/// Least duration of a reading, which also needs enough latencies for its quantile.
const LATENCY_WINDOW: Duration = Duration::from_secs(1);

/// Its limit, if they do not show whether the goal holds.
const LONGEST_WINDOW: Duration = Duration::from_secs(5);

/// Least duration of a piece of a pause: disturbances of answers last for parts of that.
const PIECE: Duration = Duration::from_millis(500);

/// Older pauses count until later ones have this many answers, and [`MANY`] beyond the quantile.
const POOL: u64 = 1_000;

/// The purpose of a reading.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its start.
    pub from: Time,
    /// The number of readings that it must equal.
    pub readings: u32,
    /// The speed alone for comparison; without one it is compared with itself.
    pub alone: Option<f64>,
    /// The goal's fraction of it.
    pub goal: Option<f64>,
    /// Whether low-priority programs run all the time in it.
    pub full: bool,
    /// The reason of the phase.
    pub why: Why,
}

/// Latencies gathered for a reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gathered {
    histogram: Histogram,
    since: Option<Time>,
    /// Those of the pauses so far: the last ones, and as many before.
    #[serde(default)]
    pauses: [Histogram; 2],
    /// Number per second in the last of these.
    #[serde(default)]
    pace: Option<f64>,
    /// Those since the last pause, if low-priority programs have run all the time since.
    #[serde(default, skip_serializing_if = "is_empty")]
    ran: Histogram,
    /// Pieces of the current pause, and the length of the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<Histogram>,
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    piece: Duration,
    /// The speed alone by pauses.
    #[serde(default, skip_serializing_if = "Pauses::is_empty")]
    pub by_pauses: Pauses<Histogram>,
}

fn is_empty(histogram: &Histogram) -> bool {
    histogram.count() == 0
}

impl Gathered {
    /// Whether there is no data yet.
    pub fn is_empty(&self) -> bool {
        is_empty(&self.histogram)
    }

    /// Adds the latencies of an interval; returns a reading when there are enough.
    pub fn add(&mut self, view: &View, latencies: Option<&Histogram>, q: f64, wanted: &Wanted) -> Option<Told> {
        let since = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
        if self.since.is_some_and(|begin| begin < wanted.from) {
            self.begin(); // from the phase before
        }
        if since < wanted.from {
            return None;
        }
        let begin = *self.since.get_or_insert(since);
        if !wanted.full {
            self.ran = Histogram::default();
        }
        let Wanted { readings, alone, goal, full, why, .. } = *wanted;
        if let Some(latencies) = latencies {
            self.histogram.add(latencies);
            if why == Why::Baseline {
                self.add_to_piece(latencies, view.interval);
            }
        }
        let window = view.at - begin;
        let (count, value) = (self.histogram.count(), self.histogram.quantile(q).map(|ns| 1e9 / ns));
        let excess = alone.or(value).zip(goal).and_then(|(alone, goal)| {
            let edge_ns = 1e9 / (alone * goal);
            let of = |all: &[&Histogram]| {
                let beyond = all.iter().map(|histogram| histogram.above(edge_ns)).sum::<Option<f64>>()?;
                Some(Excess::of(beyond, all.iter().map(|histogram| histogram.count()).sum(), q))
            };
            let mut excess = of(&[&self.histogram])?;
            let pauses = of(&[&self.pauses[0], &self.pauses[1]])?;
            if full && pauses.is_any() {
                excess = excess.against(&pauses, &of(&[&self.histogram, &self.ran])?);
            }
            // At a higher request rate, each answer represents less time.
            let share = self.pace.map_or(1.0, |pace| (pace * window.as_secs_f64() / count.max(1) as f64).min(1.0));
            excess.over *= share;
            Some(excess)
        });
        let compared = excess.filter(|_| alone.is_some());
        if !compared.is_some_and(|excess| full && excess.is_alarming()) {
            // Programs at full duty must be stopped soon after a mistake. A pause that repays a debt lasts until it
            // clears the low-priority programs; one that checks the cause of a miss is compared with it.
            let enough = |excess: Excess| match why {
                Why::Blame => true,
                Why::MakeUp if excess.over > 0.0 => excess.is_alarming(),
                _ => excess.is_sure() || full && excess.is_likely_kept(),
            };
            let unsure = compared.is_some_and(|excess| !enough(excess));
            let least = if unsure { LONGEST_WINDOW } else { LATENCY_WINDOW * readings };
            if window < least || count < u64::from(answers(q) * readings) {
                return None;
            }
        }
        let pieces = std::mem::take(&mut self.pieces);
        let histogram = self.begin();
        if full {
            self.ran.add(&histogram);
        }
        if why == Why::Baseline {
            self.pace = Some(count as f64 / window.as_secs_f64());
        }
        let alone = (why == Why::Baseline).then(|| {
            self.note_pause(histogram, q);
            self.by_pauses.note(pieces, q)
        });
        let alone = alone.flatten();
        let weight = window.as_secs_f64();
        let told = |value| Told { speed: value * weight, weight, since: begin, readings, excess, alone };
        value.filter(|value| value.is_finite()).map(told)
    }

    /// Starts over; returns the gathered latencies.
    fn begin(&mut self) -> Histogram {
        self.since = None;
        self.pieces.clear();
        std::mem::take(&mut self.histogram)
    }

    /// Adds answers of a pause to its last piece, or to a new one.
    fn add_to_piece(&mut self, latencies: &Histogram, lasts: Duration) {
        if let Some(last) = self.pieces.last_mut().filter(|_| self.piece < PIECE) {
            last.add(latencies);
        } else {
            self.pieces.push(latencies.clone());
            self.piece = Duration::ZERO;
        }
        self.piece += lasts;
    }

    /// Adds a pause to the answers alone.
    fn note_pause(&mut self, histogram: Histogram, q: f64) {
        // A certainly faster pause: the load has changed, or earlier pauses met a disturbance that is over.
        let before = self.all_pauses();
        let beyond = |all: &Histogram, edge: f64| Some(Excess::of(all.above(edge)?, all.count(), q));
        let edge = before.quantile(q);
        let both = edge.and_then(|edge| beyond(&before, edge).zip(beyond(&histogram, edge)));
        let is_faster = both.is_some_and(|(before, now)| before.is_worse_than(&now));
        if is_faster {
            self.pauses = [histogram, Histogram::default()];
        } else {
            self.pauses[0].add(&histogram);
            let count = self.pauses[0].count();
            if count >= POOL && count as f64 * (1.0 - q) >= MANY {
                self.pauses[1] = std::mem::take(&mut self.pauses[0]);
            }
        }
    }

    fn all_pauses(&self) -> Histogram {
        let mut all = self.pauses[0].clone();
        all.add(&self.pauses[1]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::ViewBuilder;

    /// Holds qos/cause.
    #[test]
    fn pauses_add_up_until_one_is_faster() {
        let of = |values: &[(u64, u64)]| {
            let bucket = |(ms, count): &(u64, u64)| (*ms as f64 * 1e6, (*ms + 1) as f64 * 1e6, *count).into();
            Histogram::new(values.iter().map(bucket))
        };
        let mut gathered = Gathered::default();
        let mut p99_ms = |values: &[(u64, u64)]| {
            gathered.note_pause(of(values), 0.99);
            gathered.all_pauses().quantile(0.99).unwrap() / 1e6
        };
        let close = |is: f64, to: f64| assert!((is - to).abs() < 1e-6, "{is} is not {to}");
        // Of 300, three are to be beyond: half of the six at 10 ms. Of 400, four: 2/3.
        close(p99_ms(&[(1, 294), (10, 6)]), 10.5);
        close(p99_ms(&[(1, 100)]), 10.0 + 2.0 / 6.0);
        // A few slower moments are conclusive at once: 4.2 of 420 are beyond, of twenty.
        close(p99_ms(&[(50, 20)]), 50.0 + 15.8 / 20.0);
        // A hundred fast ones are inconclusive, three hundred are not.
        close(p99_ms(&[(1, 100)]), 50.0 + 14.8 / 20.0);
        close(p99_ms(&[(1, 300)]), 1.99);
    }

    /// Of 300 answers 30 are beyond their p90. Of 300 others surely fewer are if it is 30 (1 − 2 · √2 · 0.0913)² = 16.5
    /// at most.
    #[test]
    fn pauses_of_a_p90_add_up_to_a_thousand_answers() {
        let of = |fast: u64, slow: u64| Histogram::new([(1e6, 2e6, fast).into(), (1e7, 2e7, slow).into()]);
        let first = || {
            let mut gathered = Gathered::default();
            gathered.note_pause(of(240, 60), 0.9);
            gathered
        };
        let edge = of(240, 60).quantile(0.9).unwrap();
        for (slow, faster) in [(36, false), (32, true), (0, true)] {
            let mut gathered = first();
            gathered.note_pause(of(300 - slow, slow), 0.9);
            let count = gathered.all_pauses().count();
            assert_eq!(count, if faster { 300 } else { 600 }, "{slow}: half of them are beyond {edge}");
        }
        let mut gathered = first();
        for _ in 0..6 {
            gathered.note_pause(of(240, 60), 0.9);
        }
        // 1,200 of the first four pauses, and three that are newer.
        assert_eq!(gathered.pauses.clone().map(|pauses| pauses.count()), [900, 1_200]);
    }

    /// Alone 100 answers come in a second. Of 500, 50 are beyond the goal, 5 may be: 45, each of which stands for a
    /// fifth of the time.
    #[test]
    fn answers_that_are_asked_for_more_often_stand_for_less() {
        let topology = cotenant_model::testing::machine(1, 1, 1, 1);
        let view = ViewBuilder::new(&topology).interval(Duration::from_secs(1)).at(Time::from_millis(1_000)).view();
        let (alone, goal) = (Some(1e3), Some(0.5));
        let wanted = Wanted { from: Time(0), readings: 1, alone, goal, full: false, why: Why::Blame };
        let answers = Histogram::new([(5e5, 5e5 + 1.0, 450).into(), (5e6, 5e6 + 1.0, 50).into()]);
        let over = |pace| {
            let mut gathered = Gathered { pace, ..Gathered::default() };
            gathered.add(&view, Some(&answers), 0.99, &wanted).unwrap().excess.unwrap().over
        };
        assert!((over(None) - 45.0).abs() < 1e-9, "{}", over(None));
        assert!((over(Some(100.0)) - 9.0).abs() < 1e-9, "{}", over(Some(100.0)));
        assert!((over(Some(1e4)) - 45.0).abs() < 1e-9, "as often, or less");
    }

    /// Every second, so many answers that take 10 ms. A reading is the mean over its seconds, from its beginning on.
    #[test]
    fn a_reading_takes_its_time_and_its_answers() {
        let topology = cotenant_model::testing::machine(1, 1, 1, 1);
        let second = Duration::from_secs(1);
        let wanted = |from: u64, readings, why| Wanted {
            from: Time::from_millis(from),
            readings,
            alone: None,
            goal: None,
            full: false,
            why,
        };
        let first = Why::Baseline;
        for (q, wanted, counts, expected) in [
            (0.99, wanted(0, 1, first), vec![100], Some((1, 0))),
            (0.99, wanted(0, 1, first), vec![99], None),
            (0.99, wanted(0, 1, first), vec![50, 50], Some((2, 0))),
            (0.99, wanted(0, 2, first), vec![200], None),
            (0.99, wanted(0, 2, first), vec![200, 0], Some((2, 0))),
            (0.99, wanted(0, 2, first), vec![100, 99], None),
            // A median needs fewer.
            (0.5, wanted(0, 1, first), vec![20], Some((1, 0))),
            (0.5, wanted(0, 1, first), vec![19], None),
            // Readings that began before do not count.
            (0.99, wanted(1, 1, first), vec![100], None),
            (0.99, wanted(1, 1, first), vec![100, 60, 40], Some((2, 1_000))),
        ] {
            let mut gathered = Gathered::default();
            let mut told = None;
            for (ms, count) in (1_000..).step_by(1_000).zip(&counts) {
                let view = ViewBuilder::new(&topology).interval(second).at(Time::from_millis(ms)).view();
                let answers = Histogram::new([(1e7, 1e7 + 1.0, *count).into()]);
                assert!(told.is_none(), "{wanted:?} {counts:?}: it comes with the last");
                told = gathered.add(&view, Some(&answers), q, &wanted);
            }
            let told = told.map(|told| (told.weight, (told.speed / told.weight).round(), told.since, told.readings));
            let expected = expected.map(|(s, ms)| (f64::from(s), 100.0, Time::from_millis(ms), wanted.readings));
            assert_eq!(told, expected, "{wanted:?} {counts:?}");
            assert_eq!(gathered.is_empty(), told.is_some() || counts == [100] && wanted.from > Time(0));
        }
    }
}
