//! Whether the high-priority programs kept their goal, measured in pieces of the run whose scatter gives an interval.
//! For latencies it is the quantile of all answers of the run: a few bad seconds determine a p99 of a minute, but
//! hardly show in the mean of its readings.

use crate::quantities::Unit;
use crate::verdict::{self, Judgement, NARROW, Verdict};
use cotenant_model::histogram::Clipped;
use cotenant_model::policy::{Explanation, ProtectedApp, Throttling};
use cotenant_model::speed::Source;
use cotenant_model::stats::{Estimate, student_t_95};
use cotenant_model::{AppId, Direction, Histogram, View};
use serde::Serialize;

/// A piece lasts at least this long, seconds.
const PIECE_S: f64 = 1.0;

/// Fewer pieces judge no goal.
const ENOUGH: usize = 5;

/// Above this number, neighbouring pieces are merged.
const MOST: usize = 64;

/// A high-priority program against its goal.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// Speed while the others napped; of latencies, their inverse.
    pub alone: Option<f64>,
    /// Mean speed over all.
    pub mean: Option<f64>,
    /// Its work over the work it would have done alone, by the speed alone of that time.
    pub achieved: Option<f64>,
    /// 95 % interval of that; absent before there are enough pieces.
    pub achieved_interval: Option<[f64; 2]>,
    /// The same speeds in the metric's own unit: seconds for latencies; and the goal.
    pub measured: Option<f64>,
    /// Alone, likewise.
    pub measured_alone: Option<f64>,
    /// At the goal, likewise.
    pub measured_goal: Option<f64>,
    /// Absent for controllers without a goal, and where nothing was enforced.
    pub verdict: Option<Verdict>,
    /// The same as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judgement: Option<String>,
    /// Why its speed is unknown, if a histogram's buckets do not determine it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clipped: Option<Clipped>,
    #[serde(skip)]
    unit: Unit,
    #[serde(skip)]
    share_wanted: Option<f64>,
}

impl Standing {
    /// `p99 315 µs (alone 167 µs, goal 186 µs)`.
    pub fn figures(&self) -> String {
        let text = |value| self.unit.text(value);
        let goal = self.measured_goal.map_or_else(String::new, |goal| format!(", goal {}", text(Some(goal))));
        format!("{} {} (alone {}{goal})", self.unit.label, text(self.measured), text(self.measured_alone))
    }

    /// For a missing verdict: `53 % (49 to 57; goal 90 %) of its speed alone`.
    pub fn share(&self) -> String {
        let share = self.achieved.map(|kept| verdict::share(kept, self.achieved_interval, self.share_wanted));
        format!("{} of its speed alone", share.as_deref().unwrap_or("?"))
    }

    fn judge(mut self, judgement: Option<&Judgement>) -> Self {
        self.verdict = judgement.map(|judgement| judgement.verdict);
        self.judgement = judgement.map(ToString::to_string);
        self
    }
}

/// The end of a piece, seconds; the measured value in it, the same alone, and the goal.
pub type Point = (f64, [Option<f64>; 3]);

/// Sums over a run up to a moment: when, speed × weight, weight, and speed alone × weight.
type Mark = [f64; 4];

/// Latencies of so many seconds.
#[derive(Clone, Debug, Default)]
struct Answers {
    ns: Histogram,
    seconds: f64,
}

impl Answers {
    fn per_s(&self) -> f64 {
        self.ns.count() as f64 / self.seconds
    }
}

/// The work of a high-priority program by pieces.
#[derive(Clone, Debug, Default)]
struct Account {
    /// The ends of the pieces; the first one is the beginning.
    marks: Vec<Mark>,
    /// The present sums: a remainder too short for a piece belongs to the last one, so that they cover the whole run.
    now: Mark,
    /// Length of each piece in shortest pieces.
    length: f64,
    /// All single latencies, if known; separately those during more frequent probes.
    answers: [Answers; 2],
    /// Whether any source gave its speed.
    known: bool,
    direction: Option<Direction>,
    /// The last reading that was clipped.
    clipped: Option<Clipped>,
    /// Seconds of which a reading was clipped, and of which there was any.
    clipped_s: [f64; 2],
}

impl Account {
    /// The share of the time of which a reading was clipped.
    fn clipped_share(&self) -> f64 {
        self.clipped_s[0] / self.clipped_s[1].max(f64::MIN_POSITIVE)
    }

    fn add(&mut self, mark: Mark) {
        self.now = mark;
        let Some(last) = self.marks.last() else {
            self.length = PIECE_S;
            self.marks.push([mark[0], 0.0, 0.0, 0.0]);
            return;
        };
        if mark[0] - last[0] < self.length || mark[2] <= last[2] {
            return;
        }
        self.marks.push(mark);
        if self.marks.len() > MOST + 1 {
            self.length *= 2.0;
            self.marks = self.marks.iter().copied().step_by(2).collect();
        }
    }

    /// All latencies, each representing the same time.
    fn all_answers(&self) -> Histogram {
        let [usual, watched] = &self.answers;
        let ratio = watched.per_s() / usual.per_s();
        let times = if ratio.is_finite() { ratio.round().max(1.0) as u64 } else { 1 };
        let mut all = usual.ns.times(times);
        all.add(&watched.ns);
        all
    }

    /// This quantile of all latencies as a speed, and its 95 % interval by order statistics.
    fn quantile(&self, q: f64) -> Option<(f64, [f64; 2])> {
        let all = self.all_answers();
        let speed = |q: f64| all.quantile(q).filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns);
        let seen: u64 = self.answers.iter().map(|answers| answers.ns.count()).sum();
        let about = 1.96 * (q * (1.0 - q) / seen.max(1) as f64).sqrt();
        Some((speed(q)?, [speed((q + about).min(1.0))?, speed((q - about).max(0.0))?]))
    }

    fn pieces(&self) -> impl Iterator<Item = Mark> + Clone {
        let last = self.marks.len().saturating_sub(1);
        let ends = self.marks.iter().enumerate().skip(1).map(move |(i, end)| if i == last { &self.now } else { end });
        self.marks.iter().zip(ends).map(|(a, b)| [b[0], b[1] - a[1], b[2] - a[2], b[3] - a[3]])
    }

    fn estimate(&self) -> Option<Estimate> {
        estimate(self.pieces().map(|[_, done, _, alone]| [done, alone]))
    }
}

/// The kept fraction with its interval, from each piece's work and work alone: a ratio of sums, with the scatter of the
/// pieces about it. `None` with too few pieces.
pub(crate) fn estimate(pieces: impl Iterator<Item = [f64; 2]> + Clone) -> Option<Estimate> {
    let sum = |[a, b]: [f64; 2], [done, alone]: [f64; 2]| [a + done, b + alone];
    let ([done, alone], n) = (pieces.clone().fold([0.0; 2], sum), pieces.clone().count());
    if n < ENOUGH || alone <= 0.0 {
        return None;
    }
    let value = done / alone;
    let squares: f64 = pieces.map(|[done, alone]| (done - value * alone).powi(2)).sum();
    let n = n as f64;
    let deviation = (n / (n - 1.0) * squares).sqrt() / alone;
    Some(Estimate { value, half_width: student_t_95(n - 1.0) * deviation })
}

/// All protected programs against their goals.
#[derive(Debug)]
pub struct Goals {
    accounts: Vec<Account>,
    /// Whether there is anything to judge: nothing is throttled where nothing is enforced.
    judged: bool,
    /// Why no goal can be judged, whatever its figures.
    pub crowded: Option<String>,
    /// The policy's explanation of its state in the last round.
    explanation: Explanation,
}

impl Goals {
    /// Before the first round; `explanation` is the policy's before any decision.
    pub fn new(explanation: Explanation, judged: bool) -> Self {
        let accounts = vec![Account::default(); explanation.protected.len()];
        Self { accounts, judged, crowded: None, explanation }
    }

    /// Adds a round; `explanation` is the policy's current one.
    pub fn round(&mut self, view: &View, explanation: Option<Explanation>) {
        let watched_until = self.throttling().and_then(|throttling| throttling.watched_until);
        for (high, account) in self.explanation.protected.iter().zip(&mut self.accounts) {
            let reading = view.app(high.app).and_then(|app| high.source.reading(view, app));
            account.known |= reading.is_some_and(|reading| reading.as_speed().is_some());
            account.direction = reading.map(|reading| reading.direction).or(account.direction);
            let clipped = view.app(high.app).and_then(|app| high.source.clipped(view, app));
            account.clipped = clipped.map(|clipped| clipped.clipped).or(account.clipped);
            for (sum, any) in
                account.clipped_s.iter_mut().zip([clipped.is_some(), clipped.is_some() || reading.is_some()])
            {
                *sum += if any { view.interval.as_secs_f64() } else { 0.0 };
            }
            let answers = view.app(high.app).and_then(|app| app.latency_ns.as_ref());
            if let (Source::Latency(_), Some(answers)) = (&high.source, answers) {
                let watched = watched_until.is_some_and(|until| view.at <= until);
                let account = &mut account.answers[usize::from(watched)];
                account.ns.add(answers);
                account.seconds += view.interval.as_secs_f64();
            }
        }
        let Some(explanation) = explanation.filter(|now| now.protected.len() == self.accounts.len()) else { return };
        self.explanation = explanation;
        for (account, high) in self.accounts.iter_mut().zip(&self.explanation.protected) {
            // Work before the speed alone was known belongs to the piece in which it became known.
            if let Some(alone) = high.expected.or((high.weight <= 0.0).then_some(0.0)) {
                account.add([view.at.as_secs_f64(), high.done, high.weight, alone]);
            }
        }
    }

    /// The throttling of the others in the last round.
    pub fn throttling(&self) -> Option<&Throttling> {
        self.explanation.throttling.as_ref()
    }

    /// The programs that miss their goal because of others, not of low-priority programs.
    pub fn slowed(&self) -> &[AppId] {
        let throttling = self.throttling().filter(|_| self.judged);
        throttling.map_or(&[], |throttling| &throttling.slowed)
    }

    /// The goal; `None` for controllers without one.
    pub fn goal(&self) -> Option<f64> {
        self.throttling()?.goal
    }

    fn high(&self, high: usize) -> &ProtectedApp {
        &self.explanation.protected[high]
    }

    /// Whether the speed of a program, by its place, was ever known.
    pub fn is_known(&self, high: usize) -> bool {
        self.accounts[high].known
    }

    /// A program's result, by its index; over the whole run, or currently with the last speed alone. Empty for a silent
    /// program.
    pub fn standing(&self, high: usize, whole: bool) -> Standing {
        let account = &self.accounts[high];
        let direction = account.direction.unwrap_or(Direction::HigherIsBetter);
        let unit = Unit::of(&self.high(high).source, direction);
        let (mean, kept) = (self.high(high).mean(), self.high(high).kept());
        let estimate = account.estimate().filter(|_| kept.is_some());
        let achieved = estimate.map(|estimate| estimate.value).or(kept);
        // A moment with a clipped reading may have been arbitrarily slow.
        let told = 1.0 - account.clipped_share();
        let interval = estimate.map(|estimate| [estimate.low().max(0.0) * told, estimate.high()]);
        let last = self.high(high).alone.map(|alone| alone.speed);
        let over_all = mean.zip(achieved.filter(|kept| whole && *kept > 0.0)).map(|(mean, kept)| mean / kept);
        let alone = over_all.or(last);
        let goal = self.high(high).goal;
        let (mean, achieved, interval) = match self.of_answers(high).zip(over_all.or(last)) {
            Some(((speed, ends), alone)) => {
                (Some(speed), achieved.map(|_| speed / alone), interval.map(|_| ends.map(|end| end / alone)))
            }
            None => (mean, achieved, interval),
        };
        let of_now = !self.high(high).silent || whole;
        let clipped = self.clipped(high, alone);
        let told = of_now && clipped.is_none();
        let known = |value: Option<f64>| value.filter(|_| told);
        let (mean, achieved, interval) = (known(mean), known(achieved), interval.filter(|_| told));
        let judgement = goal.filter(|_| self.judged).map(|goal| {
            let judged = Judgement::of(goal, achieved, interval, self.high(high).alone, |ends| unit.range(ends));
            let judged = judged.because(|judged| self.why_not(high, judged, clipped, &unit.label));
            self.crowded.clone().map_or(judged.clone(), |why| judged.not_judged(why))
        });
        let standing = Standing {
            clipped,
            alone,
            mean,
            achieved,
            achieved_interval: interval,
            measured: unit.value(mean),
            measured_alone: unit.value(alone),
            measured_goal: unit.value(alone.zip(goal).map(|(alone, goal)| alone * goal)),
            verdict: None,
            judgement: None,
            unit,
            share_wanted: goal,
        };
        standing.judge(judgement.as_ref())
    }

    /// Why a goal is not judged, and the remedy; `None`: the figures show it.
    fn why_not(&self, high: usize, judged: &Judgement, clipped: Option<Clipped>, metric: &str) -> Option<String> {
        let (account, high) = (&self.accounts[high], self.high(high));
        let pieces = account.marks.len().saturating_sub(1);
        match (judged.share, clipped) {
            (_, Some(clipped)) => {
                let percent = account.clipped_share() * 100.0;
                Some(format!("{metric} was {clipped} for {percent:.0} % of the time; {}", clipped.remedy()))
            }
            (Some((_, None)), _) => Some(format!(
                "too short, let it run longer: measured over {pieces} of at least {ENOUGH} pieces of {PIECE_S} s"
            )),
            (Some(_), _) => None,
            _ if high.silent => Some(format!("no reading of {metric} any more")),
            _ if !account.known => Some(format!("no reading of {metric} so far")),
            _ => Some("its speed alone was not measured yet".to_owned()),
        }
    }

    /// Why a program's speed is unknown because of a histogram's buckets: for all its latencies, for its speed alone,
    /// or for a larger fraction of time than an interval may be wide.
    fn clipped(&self, high: usize, alone: Option<f64>) -> Option<Clipped> {
        let account = &self.accounts[high];
        if let Source::Latency(percentile) = &self.high(high).source {
            let all = account.all_answers().clipped(percentile.quantile()).map(|clipped| clipped.times(1e-9));
            return all.or(account.clipped.filter(|_| alone.is_none()));
        }
        account.clipped.filter(|_| alone.is_none() || account.clipped_share() > NARROW)
    }

    /// The quantile of all latencies of a program, as a speed, with its interval.
    fn of_answers(&self, high: usize) -> Option<(f64, [f64; 2])> {
        let Source::Latency(percentile) = &self.high(high).source else { return None };
        self.accounts[high].quantile(percentile.quantile())
    }

    /// The programs, by their places.
    pub fn programs(&self) -> impl Iterator<Item = AppId> {
        self.explanation.protected.iter().map(|high| high.app)
    }

    /// A program's metric, the unit of its figures, and the pieces.
    pub fn course(&self, high: usize) -> (String, &'static str, Vec<Point>) {
        let Standing { unit, measured, .. } = self.standing(high, true);
        let (scale, name) = match measured {
            Some(value) if unit.seconds && value < 1e-3 => (1e6, "µs"),
            Some(value) if unit.seconds && value < 1.0 => (1e3, "ms"),
            _ if unit.seconds => (1.0, "s"),
            _ if unit.suffix.is_empty() => (1.0, ""),
            _ if unit.suffix == "/s" => (1.0, "units/s"),
            _ => (1.0, unit.suffix.trim_start()),
        };
        let point = |[at, done, weight, alone]: Mark| {
            let speed = |sum: f64| (weight > 0.0 && sum > 0.0).then(|| sum / weight);
            let goal = speed(alone).zip(self.high(high).goal).map(|(alone, goal)| alone * goal);
            (at, [speed(done), speed(alone), goal].map(|speed| unit.value(speed).map(|value| value * scale)))
        };
        let points = self.accounts[high].pieces().map(point).collect();
        (unit.label, name, points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::histogram::Bucket;
    use cotenant_model::policy::{Alone, Statement};
    use cotenant_model::sample::ClippedReading;
    use cotenant_model::{AppSample, AppView, Reading, Sample, Time};
    use proptest::prelude::*;
    use std::time::Duration;

    /// Pieces in which a program does this share of its work alone.
    fn account(shares: &[f64]) -> Account {
        let mut account = Account::default();
        let mut mark = [0.0; 4];
        account.add(mark);
        for share in shares {
            mark = [mark[0] + 1.0, mark[1] + share * 200.0, mark[2] + 1.0, mark[3] + 200.0];
            account.add([mark[0] - 0.5, mark[1] - 50.0, mark[2] - 0.5, mark[3] - 100.0]); // too early for a piece
            account.add(mark);
        }
        account
    }

    fn judged(shares: &[f64]) -> Verdict {
        let account = account(shares);
        let sum = |sums: &[f64]| sums.iter().sum::<f64>() / sums.len().max(1) as f64;
        let interval = account.estimate().map(|interval| [interval.low(), interval.high()]);
        Verdict::of(0.9, Some(sum(shares)), interval)
    }

    #[test]
    fn a_goal_is_judged_by_the_whole_interval() {
        assert_eq!(judged(&[0.95, 0.94, 0.96, 0.95, 0.95, 0.95]), Verdict::Kept);
        assert_eq!(judged(&[0.53, 0.55, 0.51, 0.53, 0.53]), Verdict::Missed);
        assert_eq!(judged(&[0.89, 0.91, 0.88, 0.92, 0.9, 0.89]), Verdict::AtGoal);
        assert_eq!(judged(&[0.5, 1.3, 0.6, 1.4, 0.8]), Verdict::Unsure, "it varies too much");
        assert_eq!(judged(&[2.148]), Verdict::Unsure, "too short");
    }

    #[test]
    fn an_interval_is_that_of_a_mean() {
        let shares = [0.9, 1.0, 0.8, 0.95, 0.85, 0.9];
        let estimate = account(&shares).estimate().unwrap();
        let mean = cotenant_model::stats::Summary::of(&shares).estimate().unwrap();
        assert!((estimate.value - mean.value).abs() < 1e-9 && (estimate.half_width - mean.half_width).abs() < 1e-9);
    }

    /// A minute of 200 µs, but for one second, or two, in which half of the answers take 4 ms: the mean of the readings
    /// of each second would be within 4 % of 200 µs both times.
    #[test]
    fn a_quantile_is_that_of_all_answers() {
        let of = |us: f64, count: u64| Histogram::new([Bucket { low: us * 1e3, high: us * 1e3 + 1.0, count }]);
        let p99_us = |bad_s: f64, more: f64| {
            let usual = Answers { ns: of(200.0, ((60.0 - bad_s) * 100.0) as u64), seconds: 60.0 - bad_s };
            let all = bad_s * 100.0 * more;
            let mut ns = of(4_000.0, (all * 0.5) as u64);
            ns.add(&of(200.0, (all * 0.5) as u64));
            let account = Account { answers: [usual, Answers { ns, seconds: bad_s }], ..Account::default() };
            let (speed, [low, high]) = account.quantile(0.99).unwrap();
            assert!(low <= speed && speed <= high, "{low} {speed} {high}");
            (1e6 / speed).round()
        };
        // Half of the answers in 1 s of 60 are 0.83 % of all, in 2 s they are 1.7 %; the probing rate does not matter.
        for more in [1.0, 5.0] {
            assert_eq!([p99_us(1.0, more), p99_us(2.0, more)], [200.0, 4_000.0], "{more}");
        }
    }

    /// The mean of each second's reading is 96 % of the speed alone, and 1.7 % of all answers take 4 ms instead of
    /// 200 µs.
    #[test]
    fn a_goal_is_judged_by_all_answers() {
        let explained = |seconds: f64| {
            let high = ProtectedApp {
                app: AppId(0),
                source: Source::from("latency_p99_s".to_owned()),
                goal: Some(0.9),
                alone: (seconds > 0.0).then_some(Alone { speed: 5_000.0, interval: None, at: Time(0) }),
                done: 4_800.0 * seconds,
                weight: seconds,
                expected: (seconds > 0.0).then_some(5_000.0 * seconds),
                silent: false,
                said: Statement::default(),
            };
            let throttling = Throttling { goal: Some(0.9), ..Throttling::default() };
            Explanation { protected: vec![high], throttling: Some(throttling), ..Explanation::default() }
        };
        let mut goals = Goals::new(explained(0.0), true);
        for second in 1..=60 {
            let slow = if second % 30 == 0 { 50 } else { 0 };
            let took = |us: f64, count| Bucket { low: us * 1e3, high: us * 1e3 + 1.0, count };
            let answers = Histogram::new([took(200.0, 100 - slow), took(4_000.0, slow)]);
            let app = AppView {
                id: AppId(0),
                name: "high".to_owned(),
                progress_per_s: None,
                openmp_per_s: None,
                mpi_per_s: None,
                ended_cpus: None,
                waits: None,
                pressure: None,
                instructions_per_s: None,
                latency_ns: Some(answers),
                io: None,
                tcp: None,
                metrics: Vec::new(),
                clipped: Vec::new(),
            };
            let (at, interval) = (Time::from_secs(second), Duration::from_secs(1));
            let view = View { at, interval, apps: vec![app], ..View::default() };
            goals.round(&view, Some(explained(second as f64)));
        }
        let standing = goals.standing(0, true);
        assert_eq!(standing.verdict, Some(Verdict::Missed), "{standing:?}");
        assert_eq!(standing.figures(), "p99 4.00 ms (alone 200 µs, goal 222 µs)");
        goals.explanation.protected[0].silent = true;
        let now = goals.standing(0, false);
        assert_eq!((now.share().as_str(), now.verdict), ("? of its speed alone", Some(Verdict::Unknown)));
        assert_eq!(goals.standing(0, true).verdict, Some(Verdict::Missed), "over the whole run it was");
    }

    /// Ten seconds, of which the histogram does not tell the first so many: what is left says nothing of all.
    /// Holds speed/metrics.
    #[test]
    fn what_was_clipped_is_not_judged() {
        let judged = |clipped_s: u64| {
            let of = |seconds: u64| {
                let done = seconds.saturating_sub(clipped_s) as f64;
                let high = ProtectedApp {
                    app: AppId(0),
                    source: Source::Metric("h".to_owned()),
                    goal: Some(0.9),
                    alone: (done > 0.0).then_some(Alone { speed: 1.0, interval: None, at: Time(0) }),
                    done,
                    weight: done,
                    expected: (done > 0.0).then_some(done),
                    silent: false,
                    said: Statement::default(),
                };
                let throttling = Throttling { goal: Some(0.9), ..Throttling::default() };
                Explanation { protected: vec![high], throttling: Some(throttling), ..Explanation::default() }
            };
            let mut goals = Goals::new(of(0), true);
            for second in 1..=10 {
                let (at, window) = (Time::from_secs(second), Duration::from_secs(1));
                let direction = Direction::LowerIsBetter;
                let reading = Reading { value: 1.0, direction, window, count: 100, at };
                let clipped = ClippedReading { clipped: Clipped::Beyond(1.0), window, at };
                let is_clipped = second <= clipped_s;
                let app = AppSample {
                    metrics: (!is_clipped).then(|| ("h".to_owned(), reading)).into_iter().collect(),
                    clipped: is_clipped.then(|| ("h".to_owned(), clipped)).into_iter().collect(),
                    ..AppSample::default()
                };
                let before = Sample { at: Time::from_secs(second - 1), apps: vec![app.clone()], ..Sample::default() };
                let view = View::new(&before, &Sample { at, apps: vec![app], ..Sample::default() });
                goals.round(&view, Some(of(second)));
            }
            let standing = goals.standing(0, true);
            let figures = standing.figures();
            goals.crowded = Some("this machine was busy".to_owned());
            let busy = goals.standing(0, true).judgement.unwrap();
            assert_eq!(busy, "not judged: this machine was busy", "whatever its figures are");
            (standing.judgement.unwrap(), figures)
        };
        assert_eq!(judged(0).0, "kept 100 % (100 to 100; goal 90 %)");
        for (clipped_s, percent) in [(1, "10 %"), (10, "100 %")] {
            let (verdict, figures) = judged(clipped_s);
            let why = format!(
                "not judged: h was beyond the last bound 1 for {percent} of the time; give its histogram buckets that reach further"
            );
            assert_eq!(verdict, why);
            assert!(figures.starts_with("h ? (alone "), "{figures}");
        }
    }

    proptest! {
        /// Rounds of any length and speed, the speed alone known from one of them on: the share is that of the whole
        /// run, and lies in its interval.
        #[test]
        fn a_share_lies_in_its_interval(
            rounds in prop::collection::vec((1_u64..1_500, 0.0_f64..3.0), 1..150),
            known_from in 0_usize..4,
        ) {
            let high = |[done, weight]: [f64; 2], known: bool| {
                let high = ProtectedApp {
                    app: AppId(0),
                    source: Source::Progress,
                    goal: Some(0.9),
                    alone: None,
                    done,
                    weight,
                    expected: known.then_some(weight),
                    silent: false,
                    said: Statement::default(),
                };
                Explanation { protected: vec![high], ..Explanation::default() }
            };
            let mut goals = Goals::new(high([0.0; 2], false), true);
            let (mut at, mut sums) = (Time(0), [0.0; 2]);
            for (i, (ms, share)) in rounds.iter().enumerate() {
                at = at + Duration::from_millis(*ms);
                let seconds = *ms as f64 / 1e3;
                sums = [sums[0] + share * seconds, sums[1] + seconds];
                goals.round(&View { at, ..View::default() }, Some(high(sums, i >= known_from)));
                let Standing { achieved, achieved_interval, .. } = goals.standing(0, true);
                let [done, alone] = sums;
                prop_assert_eq!(achieved.is_some(), i >= known_from);
                prop_assert!(achieved.is_none_or(|share| (share - done / alone).abs() < 1e-9));
                if let Some((share, [low, high])) = achieved.zip(achieved_interval) {
                    prop_assert!(low <= share && share <= high, "{low} {share} {high}");
                }
            }
        }
    }

    #[test]
    fn long_runs_have_longer_pieces() {
        let long = account(&[0.9; 1_000]);
        assert!((MOST / 2..=MOST).contains(&long.pieces().count()), "{}", long.pieces().count());
        assert!((long.estimate().unwrap().value - 0.9).abs() < 1e-9);
    }

    #[test]
    fn figures_are_in_the_metrics_own_unit() {
        let standing = |metric: &str, direction| Standing {
            alone: None,
            mean: None,
            achieved: Some(0.53),
            achieved_interval: Some([0.491, 0.569]),
            measured: Some(315e-6),
            measured_alone: Some(167e-6),
            measured_goal: Some(185.6e-6),
            verdict: None,
            judgement: None,
            clipped: None,
            unit: Unit::of(&Source::from(metric.to_owned()), direction),
            share_wanted: Some(0.9),
        };
        let (higher, lower) = (Direction::HigherIsBetter, Direction::LowerIsBetter);
        let latency = standing("latency_p99_s", higher);
        assert_eq!(latency.figures(), "p99 315 µs (alone 167 µs, goal 186 µs)");
        assert_eq!(latency.share(), "53 % (49 to 57; goal 90 %) of its speed alone");
        assert_eq!(standing("request_seconds", lower).figures(), "request_seconds 315 µs (alone 167 µs, goal 186 µs)");
        let progress = Standing { measured: Some(937_660.0), ..standing("progress", higher) };
        assert!(progress.figures().starts_with("progress 938 k/s (alone "), "{}", progress.figures());
        assert_eq!(latency.unit.value(Some(4_000.0)), Some(250e-6));
        assert_eq!(progress.unit.value(Some(4_000.0)), Some(4_000.0));
    }
}
