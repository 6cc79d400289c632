//! How fast the high-priority programs are in a phase; higher is better, in any unit.

mod alone;
mod latencies;

use super::phase::{Excess, PhaseResult, Waited, Why};
use super::settings::QosConfig;
pub use alone::{Measurement, Pauses};
use cotenant_model::speed::Source;
use cotenant_model::{AppId, AppView, Cause, Signal, Time, View, Waiting};
pub use latencies::{Gathered, Told, Wanted};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What an interval tells of a program's speed; `None` where nothing new is known.
pub fn speed(view: &View, app: &AppView, source: &Source, gathered: &mut Gathered, wanted: &Wanted) -> Option<Told> {
    if let Source::Latency(percentile) = source {
        return gathered.add(view, app.latency_ns.as_ref(), percentile.quantile(), wanted);
    }
    let since = source.reading(view, app)?.since();
    let [speed, weight] = source.term(view, app)?;
    Some(Told { speed, weight, since, readings: 1, excess: None, alone: None })
}

/// The speed of a program in the phase that goes on.
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
    /// The speed alone by all pauses so far, where single answers tell it.
    #[serde(default)]
    alone: Option<f64>,
    /// Whether a reading was clipped: the others are of its better moments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clipped: bool,
    /// Each reading of a metric in a pause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<f64>,
}

impl Sum {
    /// Adds what became known.
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

    /// Enters the readings of a pause that is over.
    pub fn note_pause(&mut self, pauses: &mut Pauses<f64>) {
        let read = std::mem::take(&mut self.read);
        if !read.is_empty() && !self.clipped {
            self.alone = pauses.note(read, 0.0);
        }
    }

    /// By all that was counted.
    fn counted(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.speed / self.weight)
    }

    /// From batch to batch where progress comes in such, and was looked at often enough for that.
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
    /// For which their threads waited.
    waited: f64,
    /// All that there was.
    all: f64,
}

impl Taken {
    /// Adds what a view tells.
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

    /// The share that they had of what they wanted and could have had alone; `None` where that is not known.
    pub fn share(&self) -> Option<f64> {
        let wanted = (self.had + self.waited).min(self.all);
        (self.had > 0.0).then(|| (self.had / wanted).min(1.0))
    }
}

/// Adds what the view tells of a program's waits, where they were all counted since `from`.
pub fn add_waits(waited: &mut Option<Waited>, app: &AppView, config: &QosConfig, from: Time) {
    let Some(waiting) = &app.waits else { return };
    let counted = Duration::try_from_secs_f64(waiting.seconds).unwrap_or_default();
    if waiting.at - from < counted {
        return;
    }
    let is_high = |app: AppId| config.high.iter().any(|high| high.app == app);
    lay(waited.get_or_insert_default(), waiting, |app| config.low.contains(&app), is_high);
}

fn lay(waited: &mut Waited, waiting: &Waiting, is_low: impl Fn(AppId) -> bool, is_high: impl Fn(AppId) -> bool) {
    waited.of_s += waiting.seconds;
    for (cause, threads) in &waiting.behind {
        match cause {
            Cause::App(app) if is_low(*app) => waited.low_s += threads * waiting.seconds,
            // Its own doing, that of nothing that runs, or that of another one that is protected.
            Cause::Quota | Cause::Waking | Cause::Unknown => {}
            Cause::App(app) if is_high(*app) => {}
            _ => waited.others_s += threads * waiting.seconds,
        }
    }
}

/// How long ago what others used counts half, and how long it is watched before it counts.
const LATELY: Duration = Duration::from_secs(5);
const WATCHED: Duration = Duration::from_secs(1);

/// Shares of all CPU time that others and the high-priority programs use together from which on the machine is full,
/// and below which it is not any more. In the background there is next to nothing left to take away from others then.
const FULL: [f64; 2] = [0.9, 0.8];

/// How full the machine is without the low-priority programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// CPU seconds of the others and the high-priority programs, and of all; older ones count less.
    used: f64,
    all: f64,
    watched: Duration,
    pub is_full: bool,
}

impl Crowd {
    /// Adds what a view tells.
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

/// What the controller is told of a phase.
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

/// This many batches tell how fast they come.
const ENOUGH: u32 = 4;

/// Progress in a pause. Where some looks at it saw none, it comes in batches: how many of them fit into the pause is
/// chance, and the time from the first to the last tells the speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    looks: u32,
    count: u32,
    first: Time,
    last: Time,
    /// Units behind the first batch.
    units: f64,
}

impl Batches {
    /// Adds the units since the last look.
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

    /// Whether that is so, or cannot be known yet.
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

/// Sums over all phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosSums {
    /// Seconds in which decisions were made.
    pub seconds: f64,
    /// Of these, as many as the low-priority programs were to run.
    pub duty_s: f64,
    /// Naps that were ordered.
    pub naps: u64,
    /// Speed of each high-priority program times its weight, added up; over `weights`, its mean.
    pub speeds: Vec<f64>,
    /// Cycles for IPC, else seconds; readings of metrics in recordings of before.
    pub weights: Vec<f64>,
    /// Its speed alone, added up likewise. Between two measurements the speed alone is the mean of both.
    #[serde(default)]
    alones: Vec<f64>,
    /// The weights since the last of these measurements.
    #[serde(default)]
    pending: Vec<f64>,
}

impl QosSums {
    /// Enters what was pending where a speed alone was measured anew.
    pub(super) fn settle(&mut self, before: &[Option<f64>], now: &[Option<f64>]) {
        self.alones.resize(self.pending.len(), 0.0);
        for (i, (sum, pending)) in self.alones.iter_mut().zip(&mut self.pending).enumerate() {
            let of = |alone: &[Option<f64>]| alone.get(i).copied().flatten();
            // None before: it is known from here on. None now: what was known stays.
            let alone = match (of(before), of(now)) {
                (Some(before), Some(now)) if before.to_bits() != now.to_bits() => f64::midpoint(before, now),
                (None, Some(now)) => now,
                (Some(before), None) => before,
                _ => continue,
            };
            *sum += alone * std::mem::take(pending);
        }
    }

    /// Adds an interval in which the low-priority programs were to run for a share of the time.
    pub(super) fn pass(&mut self, seconds: f64, duty: f64, programs: usize) {
        self.seconds += seconds;
        self.duty_s += seconds * duty;
        for sums in [&mut self.speeds, &mut self.weights, &mut self.pending] {
            sums.resize(programs, 0.0);
        }
    }

    /// Adds what became known of a program's speed.
    pub(super) fn add(&mut self, high: usize, told: &Told) {
        self.speeds[high] += told.speed;
        self.weights[high] += told.weight;
        self.pending[high] += told.weight;
    }

    /// What a program would have done alone, whose present speed is given: in the unit of `speeds`.
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
