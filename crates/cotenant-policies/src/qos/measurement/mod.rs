//! Speed of the high-priority programs in a phase; higher is better, in any unit.

mod alone;
mod latencies;

use super::actuation::Named;
use super::phase::{Excess, PhaseResult, Waited, Why};
use super::settings::QosConfig;
pub use alone::{Measurement, Pauses};
use cotenant_model::speed::Source;
use cotenant_model::{AppId, AppView, Cause, Signal, Time, View, Waiting};
pub use latencies::{Gathered, Told, Wanted};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A program's speed in an interval; `None` without new information.
pub fn speed(view: &View, app: &AppView, source: &Source, gathered: &mut Gathered, wanted: &Wanted) -> Option<Told> {
    if let Source::Latency(percentile) = source {
        return gathered.add(view, app.latency_ns.as_ref(), percentile.quantile(), wanted);
    }
    let since = source.reading(view, app)?.since();
    let [speed, weight] = source.term(view, app)?;
    Some(Told { speed, weight, since, readings: 1, excess: None, alone: None })
}

/// The speed of a program in the current phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    pub speed: f64,
    pub weight: f64,
    pub readings: u32,
    #[serde(default)]
    pub batches: Batches,
    /// Of the last reading.
    #[serde(default)]
    pub excess: Option<Excess>,
    /// The speed alone over all pauses so far, if single answers give it.
    #[serde(default)]
    alone: Option<f64>,
    /// Whether a reading was clipped, so that the remaining ones show only the better moments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clipped: bool,
    /// Each reading of a metric in a pause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<f64>,
}

impl Sum {
    /// Adds information.
    pub fn add(&mut self, told: &Told, view: &View, source: &Source, why: Why) {
        self.speed += told.speed;
        self.weight += told.weight;
        self.readings += told.readings;
        (self.excess, self.alone) = (told.excess, told.alone);
        match source {
            Source::Progress if why == Why::Baseline => self.batches.look(told.speed, view.at),
            Source::Metric(_) if why == Why::Baseline => self.read.push(told.speed / told.weight),
            _ => {}
        }
    }

    /// Adds the readings of an ended pause.
    pub fn note_pause(&mut self, pauses: &mut Pauses<f64>) {
        let read = std::mem::take(&mut self.read);
        if !read.is_empty() && !self.clipped {
            self.alone = pauses.note(read, 0.0);
        }
    }

    /// By all counts.
    fn counted(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.speed / self.weight)
    }

    /// From batch to batch, if progress is batched and was sampled often enough.
    fn mean(&self) -> Option<f64> {
        if self.clipped {
            return None;
        }
        if self.batches.are_seen() { self.batches.per_second() } else { self.counted() }
    }
}

/// CPU time of the low-priority programs in a phase, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    had: f64,
    /// Seconds that their threads waited.
    waited: f64,
    /// Available CPU seconds.
    all: f64,
}

impl Taken {
    /// Adds a view.
    pub fn add(&mut self, view: &View, low: &[AppId], cpus: usize) {
        let seconds = view.interval.as_secs_f64();
        self.all += seconds * cpus as f64;
        for task in view.tasks.iter().filter(|task| low.contains(&task.info.app)) {
            let of = |signal| task.per_s(signal).map(|ns| ns / 1e9 * seconds);
            if let Some((had, waited)) = of(Signal::CpuTime).zip(of(Signal::RunQueueWait)) {
                self.had += had;
                self.waited += waited;
            }
        }
    }

    /// The fraction of the time they wanted and could have had alone; `None` if unknown.
    pub fn share(&self) -> Option<f64> {
        let wanted = (self.had + self.waited).min(self.all);
        (self.had > 0.0).then(|| (self.had / wanted).min(1.0))
    }
}

/// Adds a program's waits in the view, if all were counted since `from`, and which of the low-priority programs these
/// name.
pub fn add_waits(waited: &mut Option<Waited>, named: &mut Named, app: &AppView, config: &QosConfig, from: Time) {
    let Some(waiting) = &app.waits else { return };
    let counted = Duration::try_from_secs_f64(waiting.seconds).unwrap_or_default();
    if waiting.at - from < counted {
        return;
    }
    let is_high = |app: AppId| config.high.iter().any(|high| high.app == app);
    lay(waited.get_or_insert_default(), waiting, |app| config.low.contains(&app), is_high);
    for (cause, threads) in &waiting.behind {
        match cause {
            Cause::App(app) if config.low.contains(app) => named.add(*app, threads * waiting.seconds),
            _ => {}
        }
    }
}

fn lay(waited: &mut Waited, waiting: &Waiting, is_low: impl Fn(AppId) -> bool, is_high: impl Fn(AppId) -> bool) {
    waited.of_s += waiting.seconds;
    for (cause, threads) in &waiting.behind {
        match cause {
            Cause::App(app) if is_low(*app) => waited.low_s += threads * waiting.seconds,
            // Caused by itself, by nothing that runs, or by another protected program.
            Cause::Quota | Cause::Waking | Cause::Unknown => {}
            Cause::App(app) if is_high(*app) => {}
            _ => waited.others_s += threads * waiting.seconds,
        }
    }
}

/// Half-life of others' use, and the observation time before it counts.
const LATELY: Duration = Duration::from_secs(5);
const WATCHED: Duration = Duration::from_secs(1);

/// Fractions of all CPU time used by others and high-priority programs: from the first the machine counts as full,
/// below the second no more. A full machine leaves nearly nothing to take from others in the background.
const FULL: [f64; 2] = [0.9, 0.8];

/// Load of the machine without the low-priority programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// CPU seconds of the others and the high-priority programs, and of all; older ones count less.
    used: f64,
    all: f64,
    watched: Duration,
    pub is_full: bool,
}

impl Crowd {
    /// Adds a view.
    pub fn add(&mut self, view: &View, low: &[AppId], cpus: usize) {
        let seconds = view.interval.as_secs_f64();
        let high = |app: &AppId| !low.contains(app);
        let own = view.tasks.iter().filter(|task| high(&task.info.app)).filter_map(|task| task.per_s(Signal::CpuTime));
        let ended = view.apps.iter().filter(|app| high(&app.id)).filter_map(|app| app.ended_cpus);
        let Some(others) = view.others_s else { return };
        let keeps = LATELY.as_secs_f64() / (LATELY.as_secs_f64() + seconds);
        let used = others + (own.sum::<f64>() / 1e9 + ended.sum::<f64>()) * seconds;
        (self.used, self.all) = (self.used * keeps + used, self.all * keeps + seconds * cpus as f64);
        self.watched += view.interval;
        let [enters, leaves] = FULL;
        let least = if self.is_full { leaves } else { enters };
        self.is_full = self.watched >= WATCHED && self.used >= least * self.all;
    }
}

/// A phase's result for the controller.
pub fn seen(sums: &[Sum], taken: Taken, room: bool) -> PhaseResult {
    PhaseResult {
        room,
        no_background: false,
        crowded: false,
        taken: taken.share(),
        measured: sums.iter().map(Sum::mean).collect(),
        speeds: sums.iter().map(Sum::mean).collect(),
        counted: sums.iter().map(Sum::counted).collect(),
        excess: sums.iter().map(|sum| sum.excess).collect(),
        alone: sums.iter().map(|sum| sum.alone).collect(),
        grain: sums.iter().filter_map(|sum| sum.batches.grain()).max(),
        silent: Vec::new(),
        waited: Vec::new(),
    }
}

/// Number of batches that give their rate.
const ENOUGH: u32 = 4;

/// Progress in a pause. If some samples saw none, it comes in batches: the number in the pause is chance, and the time
/// from first to last gives the speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    looks: u32,
    count: u32,
    first: Time,
    last: Time,
    /// Units after the first batch.
    units: f64,
}

impl Batches {
    /// Adds the units since the last sample.
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

    /// Whether progress is batched, as far as observed.
    pub fn are_seen(&self) -> bool {
        self.count < self.looks
    }

    /// Whether that is so, or unknown yet.
    pub fn may_be(&self) -> bool {
        self.are_seen() || self.looks < ENOUGH
    }

    /// Units per second; `None` with too few of them.
    pub fn per_second(&self) -> Option<f64> {
        (self.count >= ENOUGH).then(|| self.units / (self.last - self.first).as_secs_f64())
    }

    /// Time between batches; `None` if unknown.
    pub fn grain(&self) -> Option<Duration> {
        match (self.looks, self.count) {
            (looks, count) if looks == count && looks > 1 => Some(Duration::ZERO),
            (_, 0 | 1) => None,
            (_, count) => Some((self.last - self.first) / (count - 1)),
        }
    }
}

/// Sums over all phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosSums {
    /// Seconds with decisions.
    pub seconds: f64,
    /// Of these, seconds in which low-priority programs should run.
    pub duty_s: f64,
    /// Ordered naps.
    pub naps: u64,
    /// Speed of each high-priority program times its weight, summed; over `weights`, its mean.
    pub speeds: Vec<f64>,
    /// Cycles for IPC, otherwise seconds; in older recordings, readings of metrics.
    pub weights: Vec<f64>,
    /// Its speed alone, summed likewise. Between two measurements the speed alone is the mean of both.
    #[serde(default)]
    alones: Vec<f64>,
    /// The weights since the last of these measurements.
    #[serde(default)]
    pending: Vec<f64>,
}

impl QosSums {
    /// Adds the pending weights when a speed alone was measured again.
    pub(super) fn settle(&mut self, before: &[Option<f64>], now: &[Option<f64>]) {
        self.alones.resize(self.pending.len(), 0.0);
        for (i, (sum, pending)) in self.alones.iter_mut().zip(&mut self.pending).enumerate() {
            let of = |alone: &[Option<f64>]| alone.get(i).copied().flatten();
            // Unknown before: known from here on. Unknown now: the old value stays.
            let alone = match (of(before), of(now)) {
                (Some(before), Some(now)) if before.to_bits() != now.to_bits() => f64::midpoint(before, now),
                (None, Some(now)) => now,
                (Some(before), None) => before,
                _ => continue,
            };
            *sum += alone * std::mem::take(pending);
        }
    }

    /// Adds an interval with this duty of low-priority programs.
    pub(super) fn pass(&mut self, seconds: f64, duty: f64, programs: usize) {
        self.seconds += seconds;
        self.duty_s += seconds * duty;
        for sums in [&mut self.speeds, &mut self.weights, &mut self.pending] {
            sums.resize(programs, 0.0);
        }
    }

    /// Adds information on a program's speed.
    pub(super) fn add(&mut self, high: usize, told: &Told) {
        self.speeds[high] += told.speed;
        self.weights[high] += told.weight;
        self.pending[high] += told.weight;
    }

    /// What a program would have done alone, given its current speed: in the unit of `speeds`.
    pub(super) fn alone(&self, high: usize, alone: f64) -> f64 {
        let of = |sums: &[f64]| sums.get(high).copied().unwrap_or(0.0);
        of(&self.alones) + of(&self.pending) * alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that wakes idle CPUs ten thousand times a second waits for them, and not behind others.
    #[test]
    fn waking_and_a_quota_are_not_others_doing() {
        let behind = vec![
            (Cause::App(AppId(0)), 0.5),
            (Cause::App(AppId(1)), 0.25),
            (Cause::Waking, 0.9),
            (Cause::Quota, 0.8),
            (Cause::Unknown, 0.7),
            (Cause::Kernel("kworker".to_owned()), 0.125),
        ];
        let mut waited = Waited::default();
        let waiting = Waiting { seconds: 2.0, behind, ..Waiting::default() };
        lay(&mut waited, &waiting, |app| app == AppId(1), |app| app == AppId(0));
        assert_eq!(waited, Waited { of_s: 2.0, low_s: 0.5, others_s: 0.25 });
    }

    /// A weight of 2 since the last measurement of the speed alone; afterwards it is 100, or what was entered stands.
    #[test]
    fn the_speed_alone_is_entered_where_it_changes() {
        for (before, now, expected) in [
            (None, None, 2.0 * 100.0),
            (Some(3.0), Some(3.0), 2.0 * 100.0),
            (Some(3.0), Some(5.0), 2.0 * 4.0),
            (None, Some(5.0), 2.0 * 5.0),
            (Some(3.0), None, 2.0 * 3.0),
        ] {
            let mut sums = QosSums::default();
            sums.pass(1.0, 0.5, 1);
            sums.add(0, &Told { speed: 7.0, weight: 2.0, since: Time(0), readings: 1, excess: None, alone: None });
            sums.settle(&[before], &[now]);
            assert_eq!(sums.alone(0, 100.0), expected, "{before:?} to {now:?}");
        }
    }
}
