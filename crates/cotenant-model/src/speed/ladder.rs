//! The choice of the source of an application's speed over many intervals, by its steadiness.

use super::Source;
use crate::stats::steady::{Spread, Steady};
use crate::{AppView, Signal, TaskView, Time, View};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Least length of a window.
const WINDOW: Duration = Duration::from_millis(500);

/// A proxy counts if it reveals a change by this fraction within this many windows (a minute), which requires a spread
/// of 5 %.
const CHANGE: f64 = 0.03;
const WITHIN: usize = 121;

/// Limit of observed sources: the 32 possible metrics, and all others.
const RUNGS: usize = 38;

/// A program whose busiest thread runs or waits for a CPU less than this fraction of time waits for something else.
const BUSY: f64 = 0.9;

/// The time scale of that fraction: at twice this, half of it is dropped.
const BUSY_OVER_S: f64 = 30.0;

/// All sources of one application's speed with their steadiness.
///
/// Sources given by the user or the program precede any proxy, however unsteady, because only they measure its real
/// work. A program that waits for its clients follows their demand at any speed, so that no proxy counts for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    rungs: Vec<Rung>,
    /// [`busiest`] × seconds, and seconds.
    busy: [f64; 2],
}

/// One source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Rung {
    source: Source,
    /// The current window: its start, and speed × weight and weight so far.
    since: Time,
    sums: [f64; 2],
    windows: Steady,
}

/// Status of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Given by the user or the program.
    Told,
    /// A proxy steady enough to reveal a change of 3 % within a minute.
    Steady,
    /// A proxy not observed for long enough.
    Unknown,
    /// An unsteady proxy: it does not count.
    Unsteady,
    /// A proxy of a program that waits for others, not for a CPU: it does not count either.
    Waiting,
}

/// The fraction (0–1) of the interval in which the busiest of these threads ran or waited for a CPU. `None` if unknown.
/// The kernel reports a wait at its end, so that a thread on a full CPU looks less busy in short intervals, which errs
/// towards no proxy.
pub fn busiest(threads: &[&TaskView]) -> Option<f64> {
    let wait = |task: &TaskView| task.per_s(Signal::RunQueueWait).map_or(0.0, |ns_per_s| ns_per_s / 1e9);
    threads.iter().filter_map(|task| Some((task.cpu_share()? + wait(task)).min(1.0))).reduce(f64::max)
}

impl Ladder {
    /// Takes an interval; `threads` are all of the application ([`View::by_app`]). Windows are at least half a second,
    /// so that short intervals are summed.
    pub fn add(&mut self, view: &View, app: &AppView, threads: &[&TaskView]) {
        let seconds = view.interval.as_secs_f64();
        if let Some(busy) = busiest(threads) {
            let kept = if self.busy[1] > 2.0 * BUSY_OVER_S { 0.5 } else { 1.0 };
            self.busy = [self.busy[0] * kept + busy * seconds, self.busy[1] * kept + seconds];
        }
        let metrics = app.metrics.iter().map(|(name, _)| Source::Metric(name.clone()));
        for source in metrics.chain([Source::Progress]).chain(Source::PROXIES) {
            let Some(term) = source.term(view, app) else { continue };
            let at = self.rungs.iter().position(|rung| rung.source == source).or_else(|| {
                let since = Time(view.at.0.saturating_sub(view.interval.as_nanos() as u64));
                let rung = Rung { source, since, sums: [0.0; 2], windows: Steady::default() };
                (self.rungs.len() < RUNGS).then(|| self.rungs.push(rung)).map(|()| self.rungs.len() - 1)
            });
            if let Some(at) = at {
                self.rungs[at].add(term, view.at);
            }
        }
    }

    /// The placement has changed: speeds before and after are not compared.
    pub fn cut(&mut self, at: Time) {
        for rung in &mut self.rungs {
            (rung.since, rung.sums) = (at, [0.0; 2]);
            rung.windows.cut();
        }
    }

    /// The source that counts, with its spread if known: a given one, otherwise the first steady proxy. It may change
    /// as more is known, so comparisons of windows must keep to one source.
    pub fn best(&self) -> Option<(&Source, Option<Spread>)> {
        let counts = |(_, standing, _): &(&Source, Standing, Option<Spread>)| *standing <= Standing::Steady;
        self.all().into_iter().find(counts).map(|(source, _, spread)| (source, spread))
    }

    fn standing(&self, source: &Source, spread: Option<Spread>) -> Standing {
        let [busy, seconds] = self.busy;
        match spread {
            _ if !source.is_proxy() => Standing::Told,
            None => Standing::Unknown,
            Some(_) if busy < BUSY * seconds => Standing::Waiting,
            Some(spread) if spread.tells(CHANGE, WITHIN) => Standing::Steady,
            Some(_) => Standing::Unsteady,
        }
    }

    /// All sources, best first.
    pub fn all(&self) -> Vec<(&Source, Standing, Option<Spread>)> {
        let mut all: Vec<_> = self
            .rungs
            .iter()
            .map(|rung| {
                let spread = rung.windows.spread();
                (&rung.source, self.standing(&rung.source, spread), spread)
            })
            .collect();
        all.sort_by_key(|(source, ..)| rank(source));
        all
    }
}

/// The user's metrics in their order, the program's progress, the proxies in theirs.
fn rank(source: &Source) -> usize {
    match source {
        Source::Metric(_) => 0,
        _ => Source::PROXIES.iter().position(|proxy| proxy == source).map_or(1, |at| at + 2),
    }
}

impl Rung {
    fn add(&mut self, term: [f64; 2], at: Time) {
        self.sums = [self.sums[0] + term[0], self.sums[1] + term[1]];
        if at - self.since >= WINDOW && self.sums[1] > 0.0 {
            self.windows.add(self.sums[0] / self.sums[1]);
            (self.since, self.sums) = (at, [0.0; 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppSample, Count, Direction, Moved, Reading, Sample, TaskSample};

    /// Intervals of 250 ms with these bytes read, and sent, and units of work in each.
    fn follow(ladder: &mut Ladder, from: u64, io: &[u64], tcp: &[u64], units: Option<&[u64]>) {
        let mut sums = [0_u64; 3];
        let mut sample = |i: usize, io: u64, tcp: u64, work: u64| {
            let at = Time::from_millis(from + 250 * i as u64);
            sums = [sums[0] + io, sums[1] + tcp, sums[2] + work];
            let moved = |bytes| Some(Moved { bytes, at });
            let progress = units.map(|_| sums[2]);
            let app = AppSample { io: moved(sums[0]), tcp: moved(sums[1]), progress, ..AppSample::default() };
            Sample { at, apps: vec![app], ..Sample::default() }
        };
        let mut prev = sample(0, 0, 0, 0);
        for (i, (&io, &tcp)) in io.iter().zip(tcp).enumerate() {
            let next = sample(i + 1, io, tcp, units.map_or(0, |units| units[i]));
            let view = View::new(&prev, &next);
            ladder.add(&view, &view.apps[0], &view.tasks.iter().collect::<Vec<_>>());
            prev = next;
        }
    }

    fn best(ladder: &Ladder) -> Option<String> {
        ladder.best().map(|(source, _)| source.to_string())
    }

    /// Two intervals are a window: what alternates between them is steady.
    /// Holds speed/proxies.
    #[test]
    fn the_first_steady_proxy_counts() {
        let mut ladder = Ladder::default();
        let (even, uneven) = ([100, 300].repeat(16), [100, 100, 300, 300].repeat(8));
        follow(&mut ladder, 0, &even[..12], &uneven[..12], None);
        assert_eq!(best(&ladder), None, "six windows are too few");
        follow(&mut ladder, 3_000, &even, &uneven, None);
        let told: Vec<_> =
            ladder.all().into_iter().map(|(source, standing, _)| (source.to_string(), standing)).collect();
        let expected = [("tcp_bytes/s", Standing::Unsteady), ("io_bytes/s", Standing::Steady)];
        assert_eq!(told, expected.map(|(name, standing)| (name.to_owned(), standing)));
        assert_eq!(ladder.best().map(|(_, spread)| spread.unwrap().relative), Some(0.0));
        let mut ladder = Ladder::default();
        follow(&mut ladder, 0, &even, &even, None);
        assert_eq!(best(&ladder).as_deref(), Some("tcp_bytes/s"));
    }

    /// OpenMP's loops are even, its threads' bytes, too, and MPI's calls come in bursts.
    /// Holds speed/harmless.
    #[test]
    fn what_runtimes_count_goes_before_what_the_kernel_sees() {
        let mut ladder = Ladder::default();
        let sample = |i: u64| {
            let at = Time::from_millis(500 * i);
            let io = Some(Moved { bytes: 100 * i, at });
            let app = AppSample { openmp: Some(1_000 * i), mpi: Some(i / 4), io, ..AppSample::default() };
            Sample { at, apps: vec![app], ..Sample::default() }
        };
        for i in 0..32 {
            let view = View::new(&sample(i), &sample(i + 1));
            ladder.add(&view, &view.apps[0], &[]);
        }
        let told: Vec<_> = ladder.all().into_iter().map(|(source, standing, _)| (source.clone(), standing)).collect();
        let expected =
            [(Source::OpenMp, Standing::Steady), (Source::Mpi, Standing::Unsteady), (Source::Io, Standing::Steady)];
        assert_eq!((told, best(&ladder).as_deref()), (expected.to_vec(), Some("openmp_units/s")));
    }

    /// Holds speed/proxies.
    #[test]
    fn what_is_told_goes_before_what_is_steady() {
        let mut ladder = Ladder::default();
        let even = [100; 32];
        let work: Vec<u64> = (0..32).map(|i| if i % 7 == 0 { 9 } else { 0 }).collect();
        follow(&mut ladder, 0, &even, &even, Some(&work));
        assert_eq!(best(&ladder).as_deref(), Some("progress"), "coarse, but the program's own");
        let metric = |at| Reading { value: 3.0, direction: Direction::HigherIsBetter, window: WINDOW, count: 1, at };
        let sample = |ms| {
            let at = Time::from_millis(ms);
            let app = AppSample { metrics: vec![("jobs".into(), metric(at))], ..AppSample::default() };
            Sample { at, apps: vec![app], ..Sample::default() }
        };
        let view = View::new(&sample(9_000), &sample(9_250));
        ladder.add(&view, &view.apps[0], &view.tasks.iter().collect::<Vec<_>>());
        assert_eq!(best(&ladder).as_deref(), Some("jobs"));
    }

    /// A placement that doubles the speed is no unsteadiness.
    /// Holds speed/proxies.
    #[test]
    fn a_change_of_placement_is_cut_out() {
        let mut ladder = Ladder::default();
        for turn in 0..4 {
            let from = 10_000 * turn;
            ladder.cut(Time::from_millis(from));
            follow(&mut ladder, from, &[100 << turn; 8], &[0; 8], None);
        }
        let (source, spread) = ladder.best().unwrap();
        assert_eq!((source, spread.unwrap().relative, spread.unwrap().windows), (&Source::Io, 0.0, 16));
        let text = serde_json::to_string(&ladder).unwrap();
        assert_eq!(serde_json::from_str::<Ladder>(&text).unwrap(), ladder);
    }

    /// Of a thread that runs or waits for 90 % of the time a proxy counts; of a server that sleeps for longer none
    /// does.
    /// Holds speed/proxies.
    #[test]
    fn who_waits_for_clients_has_no_speed() {
        let told = |ran_ms: u64, queued_ms: u64| {
            let sample = |i: u64| {
                let at = Time::from_millis(500 * i);
                let app = AppSample { tcp: Some(Moved { bytes: 100 * i, at }), ..AppSample::default() };
                let ns = |ms| Count::exact(1_000_000 * ms * i);
                let counts = [(Signal::CpuTime, ns(ran_ms)), (Signal::RunQueueWait, ns(queued_ms))];
                let busy = TaskSample { counters: counts.into_iter().collect(), ..TaskSample::default() };
                Sample { at, tasks: vec![busy], apps: vec![app], ..Sample::default() }
            };
            let mut ladder = Ladder::default();
            for i in 0..200 {
                let view = View::new(&sample(i), &sample(i + 1));
                ladder.add(&view, &view.apps[0], &view.tasks.iter().collect::<Vec<_>>());
            }
            assert!(ladder.busy[1] < 70.0, "what was long ago is forgotten");
            (best(&ladder), ladder.all()[0].1)
        };
        assert_eq!(told(500, 0), (Some("tcp_bytes/s".to_owned()), Standing::Steady));
        assert_eq!(told(250, 210), (Some("tcp_bytes/s".to_owned()), Standing::Steady), "who waits for a CPU is busy");
        assert_eq!(told(300, 100), (None, Standing::Waiting));
    }
}
