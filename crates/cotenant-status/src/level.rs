//! The work of a service in one window and unit, and its share within the goal.

use crate::latency::{Latency, STEP, WINDOW};
use crate::quantities::Unit;
use crate::status::{Measured, WithinGoal};
use cotenant_model::histogram::Clipped;
use cotenant_model::policy::ProtectedApp;
use cotenant_model::speed::Source;
use cotenant_model::{AppView, Direction, Histogram, Time, View};
use std::collections::VecDeque;
use std::time::Duration;

/// Service levels are of this long: one good minute does not pay for a bad one.
const HOUR: Duration = Duration::from_secs(3_600);

/// The history of an hour consists of pieces of this length.
const PIECE: Duration = Duration::from_secs(10);

/// Of one service.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// The latency of its answers.
    pub latency: Latency,
    /// The source of its value, and the better direction.
    source: Option<(Source, Direction)>,
    /// Value × weight and weight of the steps of the window; the last one continues. Clipped values are not a number.
    steps: VecDeque<(Time, [f64; 2])>,
    /// The current reading of a metric, whose interval may exceed the window.
    standing: Option<f64>,
    /// The last reading that was clipped.
    clipped: Option<(Time, Clipped)>,
    /// Time up to which everything is known, because several rules may cover the same time.
    until: Time,
    within: Within,
}

/// Work within the goal, and all work, by pieces of the last hour.
#[derive(Clone, Debug, Default)]
struct Within(VecDeque<(Time, [f64; 2])>);

impl Within {
    fn add(&mut self, at: Time, within: f64, all: f64) {
        match self.0.back_mut().filter(|(begin, _)| at < *begin + PIECE) {
            Some((_, sums)) => *sums = [sums[0] + within, sums[1] + all],
            None => self.0.push_back((at, [within, all])),
        }
        while self.0.front().is_some_and(|(begin, _)| *begin + HOUR <= at) {
            self.0.pop_front();
        }
    }

    fn share(&self, now: Time) -> Option<(f64, Duration)> {
        let last = self.0.iter().filter(|(begin, _)| now < *begin + HOUR);
        let [within, all] = last.fold([0.0; 2], |sum, (_, of)| [sum[0] + of[0], sum[1] + of[1]]);
        (all > 0.0).then(|| (within / all, now - self.0[0].0))
    }
}

/// Speed at the goal.
fn at_goal(protected: Option<&ProtectedApp>) -> Option<f64> {
    let protected = protected?;
    Some(protected.alone?.speed * protected.goal?)
}

impl Level {
    /// Adds an interval with this source; it is judged by the goal of `protected`.
    pub fn round(&mut self, view: &View, app: &AppView, source: &Source, protected: Option<&ProtectedApp>) {
        let begun = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
        if begun < self.until {
            return;
        }
        self.until = view.at;
        let reading = source.reading(view, app);
        let before = self.source.as_ref().filter(|(known, _)| known == source).map(|(_, direction)| *direction);
        let direction = reading.map(|reading| reading.direction).or(before).unwrap_or(Direction::HigherIsBetter);
        if before.is_none() {
            (self.steps, self.within, self.clipped) = (VecDeque::new(), Within::default(), None);
        }
        self.source = Some((source.clone(), direction));
        self.standing = reading.filter(|_| matches!(source, Source::Metric(_))).map(|reading| reading.value);
        let clipped = source.clipped(view, app).filter(|clipped| view.at - clipped.at < view.interval);
        let term = match source {
            Source::Latency(_) => None,
            // In its own unit: the mean of latencies is not that of their inverse.
            Source::Metric(_) => reading
                .filter(|reading| view.is_new(reading))
                .map(|reading| [reading.value * reading.seconds(), reading.seconds()]),
            _ => source.term(view, app),
        };
        if let Some(clipped) = clipped {
            self.clipped = Some((view.at, clipped.clipped));
        }
        let clips = clipped.is_some() && matches!(source, Source::Metric(_));
        let unit = Unit::of(source, direction);
        let is_over = self.steps.back().is_some_and(|(begin, _)| *begin + STEP <= view.at);
        if is_over && let Some(goal) = unit.value(at_goal(protected)) {
            let last = self.steps.back().map(|(_, sums)| *sums);
            self.judge(view.at, last, goal, direction);
        }
        if is_over || self.steps.is_empty() {
            self.steps.push_back((view.at, [0.0; 2]));
            while self.steps.front().is_some_and(|(begin, _)| *begin + WINDOW <= view.at) {
                self.steps.pop_front();
            }
        }
        if let (Some((_, sums)), Some([value, weight])) =
            (self.steps.back_mut(), if clips { Some([f64::NAN, 1.0]) } else { term })
        {
            *sums = [sums[0] + value, sums[1] + weight];
        }
    }

    /// Whether a step was within the goal. Of a reading that was clipped that is known where the goal is not beyond the
    /// bound as well.
    fn judge(&mut self, at: Time, sums: Option<[f64; 2]>, goal: f64, direction: Direction) {
        let Some([value, weight]) = sums.filter(|sums| sums[1] > 0.0) else { return };
        let mean = value / weight;
        let is_low = direction == Direction::LowerIsBetter;
        let is_within = match self.clipped.map(|(_, clipped)| clipped) {
            _ if mean.is_finite() => Some(if is_low { mean <= goal } else { mean >= goal }),
            Some(Clipped::Beyond(bound) | Clipped::Between(bound, _)) if bound >= goal => Some(!is_low),
            Some(Clipped::Below(bound) | Clipped::Between(_, bound)) if bound <= goal => Some(is_low),
            _ => None,
        };
        if let Some(is_within) = is_within {
            self.within.add(at, f64::from(u8::from(is_within)), 1.0);
        }
    }

    /// Takes over the counts of its answers so far, nanoseconds.
    pub fn answers(&mut self, at: Time, so_far: &Histogram, protected: Option<&ProtectedApp>) {
        let Some(step) = self.latency.add(at, so_far) else { return };
        let is_told = matches!(self.source, Some((Source::Latency(_), _)));
        let goal_ns = at_goal(protected).filter(|speed| is_told && *speed > 0.0).map(|speed| 1e9 / speed);
        if let Some(beyond) = goal_ns.and_then(|goal_ns| step.above(goal_ns)) {
            let all = step.count() as f64;
            self.within.add(at, all - beyond, all);
        }
    }

    /// Its work now, alone and at its goal.
    pub fn measured(&self, now: Time, protected: Option<&ProtectedApp>) -> Option<Measured> {
        let (source, direction) = self.source.as_ref()?;
        let unit = Unit::of(source, *direction);
        let is_now = |(begin, _): &&(Time, [f64; 2])| now < *begin + WINDOW;
        let of_steps = || {
            let sums = self.steps.iter().filter(is_now).fold([0.0; 2], |sum, (_, of)| [sum[0] + of[0], sum[1] + of[1]]);
            if sums[1] > 0.0 { Some(sums[0] / sums[1]).filter(|mean| mean.is_finite()) } else { self.standing }
        };
        let value = match source {
            Source::Latency(percentile) => self.latency.quantile(percentile.quantile()).map(|told| told.seconds),
            _ => of_steps(),
        };
        let alone = protected.and_then(|protected| protected.alone);
        let mut interval = alone.and_then(|alone| alone.interval).map(|ends| ends.map(|end| unit.value(Some(end))));
        if let Some(ends) = &mut interval {
            ends.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        }
        Some(Measured {
            what: unit.label.clone(),
            unit: match unit.suffix {
                _ if unit.seconds => "seconds",
                "B/s" => "bytes_per_s",
                other => other,
            }
            .to_owned(),
            lower_is_better: unit.inverse,
            now: value,
            alone: unit.value(alone.map(|alone| alone.speed)),
            alone_interval: interval.and_then(|[low, high]| Some([low?, high?])),
            alone_age_s: alone.map(|alone| (now - alone.at).as_secs_f64()),
            goal: unit.value(at_goal(protected)),
        })
    }

    /// Two speeds in its unit.
    pub fn range(&self, speeds: [f64; 2]) -> String {
        let unit = |(source, direction): &(Source, Direction)| Unit::of(source, *direction);
        self.source.as_ref().map(unit).unwrap_or_default().range(speeds)
    }

    /// The share within the goal in the last hour.
    pub fn within_goal(&self, now: Time) -> Option<WithinGoal> {
        let (share, covered) = self.within.share(now)?;
        let requests = matches!(self.source, Some((Source::Latency(_), _)));
        Some(WithinGoal { share, requests, seconds: covered.as_secs_f64() })
    }

    /// The current range of a reading that a histogram does not determine.
    pub fn clipped(&self, now: Time) -> Option<Clipped> {
        self.clipped.filter(|(at, _)| now < *at + WINDOW).map(|(_, clipped)| clipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::policy::{Alone, Statement};
    use cotenant_model::sample::ClippedReading;
    use cotenant_model::{AppId, AppSample, Reading, Sample};

    fn protected(source: Source, alone: f64) -> ProtectedApp {
        let interval = Some([alone * 0.9, alone * 1.25]);
        ProtectedApp {
            app: AppId(0),
            source,
            goal: Some(0.5),
            alone: Some(Alone { speed: alone, interval, at: Time::from_secs(1) }),
            done: 0.0,
            weight: 0.0,
            expected: None,
            silent: false,
            said: Statement::default(),
        }
    }

    fn view(before: AppSample, now: AppSample, second: u64) -> View {
        let sample = |second, app| Sample { at: Time::from_secs(second), apps: vec![app], ..Sample::default() };
        View::new(&sample(second - 1, before), &sample(second, now))
    }

    /// Alone a p99 of 20 ms, so the goal is 40 ms. Of 100 answers a second ten take 67 ms in every fourth.
    /// Holds qos/verdict.
    #[test]
    fn a_level_is_of_single_requests_where_they_are_known() {
        let source = Source::from("latency_p99_s".to_owned());
        let (mut level, mut so_far) = (Level::default(), Histogram::default());
        let high = protected(source.clone(), 50.0);
        for second in 1..=41 {
            let slow = if second % 4 == 0 { 10 } else { 0 };
            let before = AppSample { latency_ns: Some(so_far.clone()), ..AppSample::default() };
            (0..100 - slow).for_each(|_| so_far.count_one(20_000_000));
            (0..slow).for_each(|_| so_far.count_one(1 << 26));
            let now = AppSample { latency_ns: Some(so_far.clone()), ..AppSample::default() };
            let view = view(before, now, second);
            level.round(&view, &view.apps[0], &source, Some(&high));
            level.answers(view.at, &so_far, Some(&high));
        }
        let now = Time::from_secs(41);
        let within = level.within_goal(now).unwrap();
        assert!((within.share - 0.975).abs() < 1e-9 && within.requests, "{within:?}");
        let measured = level.measured(now, Some(&high)).unwrap();
        assert_eq!((&*measured.what, &*measured.unit, measured.alone_age_s), ("p99", "seconds", Some(40.0)));
        assert_eq!((measured.alone, measured.goal), (Some(0.02), Some(0.04)));
        assert_eq!(measured.alone_interval.map(|ends| ends.map(|end| (end * 1e4).round())), Some([160.0, 222.0]));
        assert!((0.066..0.07).contains(&measured.now.unwrap()), "{measured:?}");
    }

    /// A metric of 1 alone, of which 2 is the goal; from the eleventh second on it is beyond the last bound, 3.
    /// Holds qos/verdict.
    #[test]
    fn seconds_are_judged_where_requests_are_unknown() {
        let source = Source::Metric("h".to_owned());
        let mut level = Level::default();
        let high = protected(source.clone(), 1.0);
        let mut shares = Vec::new();
        for second in 1..=22 {
            let (window, at) = (Duration::from_secs(1), Time::from_secs(second));
            let reading = Reading { value: 1.5, direction: Direction::LowerIsBetter, window, count: 9, at };
            let clipped = ClippedReading { clipped: Clipped::Beyond(3.0), window, at };
            let known = second <= 11;
            let app = AppSample {
                metrics: known.then(|| ("h".to_owned(), reading)).into_iter().collect(),
                clipped: (!known).then(|| ("h".to_owned(), clipped)).into_iter().collect(),
                ..AppSample::default()
            };
            let view = view(app.clone(), app, second);
            level.round(&view, &view.apps[0], &source, Some(&high));
            shares.push((level.measured(at, Some(&high)).unwrap().now, level.within_goal(at).map(|it| it.share)));
        }
        assert_eq!(shares[10], (Some(1.5), Some(1.0)));
        assert_eq!(shares[11].0, None, "a mean without what was clipped says nothing");
        assert_eq!(shares[21], (None, Some(11.0 / 21.0)));
        assert_eq!(level.clipped(Time::from_secs(22)), Some(Clipped::Beyond(3.0)));
    }

    /// Holds qos/verdict.
    #[test]
    fn an_hour_is_forgotten() {
        let mut within = Within::default();
        within.add(Time::from_secs(1), 0.0, 100.0);
        within.add(Time::from_secs(1_800), 300.0, 300.0);
        assert_eq!(within.share(Time::from_secs(3_600)).map(|it| it.0), Some(0.75));
        assert_eq!(within.share(Time::from_secs(3_601)).map(|it| it.0), Some(1.0));
        assert_eq!(within.share(Time::from_secs(9_000)), None);
    }
}
