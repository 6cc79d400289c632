//! Rates derived from two samples. Absent, starved or inconsistent counts give `None`.

use crate::sample::ClippedReading;
use crate::{
    AppId, AppSample, Count, CpuId, Direction, Histogram, Moved, NodeId, Pressure, Reading, Sample, Signal, TaskId,
    TaskInfo, TaskSample, Time, Topology, Waiting,
};
use std::sync::Arc;
use std::time::Duration;

/// Whether a value can be a speed.
pub fn usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// A counter that really counted for less than this fraction of its enabled time is starved: scaling it up would invent
/// more than it measured.
pub const STARVED_BELOW: f64 = 0.01;

/// Rates between two samples.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Time of the later sample.
    pub at: Time,
    /// Time between the two.
    pub interval: Duration,
    /// Tasks of the later sample, in ascending order of id.
    pub tasks: Vec<TaskView>,
    /// CPUs of the later sample, in ascending order of id.
    pub cpus: Vec<CpuView>,
    /// Applications of the later sample, in ascending order of id.
    pub apps: Vec<AppView>,
    /// CPU seconds used outside of the view or by the host, according to both samples: below 0 if their counts are not
    /// simultaneous. Unlike [`CpuView::foreign`] it accumulates over glances.
    pub others_s: Option<f64>,
    /// Whether the kernel moves memory after the threads that use it.
    pub numa_balancing: bool,
}

/// A task's rates.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Rarely changing facts.
    pub info: Arc<TaskInfo>,
    /// The CPU on which it runs or ran last.
    pub cpu: Option<CpuId>,
    /// Its CPU at the earlier sample.
    pub from_cpu: Option<CpuId>,
    /// Resident pages by memory node.
    pub pages_by_node: Option<Vec<(NodeId, u64)>>,
    /// Accesses per second to the memory of each node, if counted in both samples.
    pub touches_by_node: Option<Vec<(NodeId, f64)>>,
    rates: Rates,
}

/// Events per second of wall-clock time.
#[derive(Clone, Debug)]
enum Rates {
    /// No counts changed; bit `n` shows whether the n-th of [`Signal::ALL`] is present. Most tasks of most samples are
    /// like this and need no computation or storage.
    Rest(u32),
    /// NaN means absent.
    Of(Box<[f64; Signal::COUNT]>),
}

/// A CPU's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuView {
    /// Its id.
    pub id: CpuId,
    /// Fraction of the interval that it was busy, 0–1.
    pub busy: f64,
    /// Fraction of the interval that it was busy with work outside of the view, 0–1.
    pub foreign: f64,
}

/// An application's speed.
#[derive(Clone, Debug)]
pub struct AppView {
    /// Its id.
    pub id: AppId,
    /// Its name.
    pub name: String,
    /// Units of work per second, reported by the program.
    pub progress_per_s: Option<f64>,
    /// Iterations, sections, tasks and parallel regions per second in OpenMP's runtime.
    pub openmp_per_s: Option<f64>,
    /// Calls of MPI per second.
    pub mpi_per_s: Option<f64>,
    /// CPUs used by its processes and threads that ended before they were counted.
    pub ended_cpus: Option<f64>,
    /// Waits of its threads for a CPU, between two counts that may precede the samples; `None` without a new count.
    pub waits: Option<Waiting>,
    /// Fraction of the time between two readings in which its control group lacked CPUs; `None` without a new reading.
    pub pressure: Option<f64>,
    /// Instructions per second of its threads; `None` if a running one is not counted, or none ran.
    pub instructions_per_s: Option<f64>,
    /// Latencies of the interval in nanoseconds, reported by the program.
    pub latency_ns: Option<Histogram>,
    /// Bytes per second read and written, between two counts that may precede the samples; `None` without a new count.
    pub io: Option<Reading>,
    /// The same of its TCP connections.
    pub tcp: Option<Reading>,
    /// The latest reading of each external metric, even if older than the interval; see [`View::is_new`].
    pub metrics: Vec<(String, Reading)>,
    /// The metrics, by name, whose quantile is now in a bucket open at one end.
    pub clipped: Vec<(String, ClippedReading)>,
}

impl View {
    /// Rates between two samples of the same host. Tasks that are new in `next` have no rates yet.
    pub fn new(prev: &Sample, next: &Sample) -> Self {
        let interval = next.at - prev.at;
        let seconds = interval.as_secs_f64();
        let tasks: Vec<TaskView> = merge(&prev.tasks, &next.tasks, |t| t.info.id)
            .map(|(before, now)| TaskView::new(before, now, seconds))
            .collect();
        let busy_ns = merge(&prev.cpus, &next.cpus, |c| c.id)
            .filter_map(|(before, now)| now.busy_ns.checked_sub(before?.busy_ns))
            .fold(None, |sum: Option<u64>, ns| Some(sum.unwrap_or(0).saturating_add(ns)));
        let mut cpus: Vec<CpuView> = merge(&prev.cpus, &next.cpus, |c| c.id)
            .filter_map(|(before, now)| {
                let busy_ns = now.busy_ns.checked_sub(before?.busy_ns)?;
                let busy = (seconds > 0.0).then(|| (busy_ns as f64 / 1e9 / seconds).min(1.0))?;
                Some(CpuView { id: now.id, busy, foreign: busy })
            })
            .collect();
        for task in &tasks {
            // A task with an unknown run time may have done all of it.
            let share = task.cpu_share().or_else(|| (task.ran() == Some(true)).then_some(1.0));
            if let (Some(share), Some(cpu)) = (share, task.cpu)
                && let Ok(i) = cpus.binary_search_by_key(&cpu, |c| c.id)
            {
                cpus[i].foreign = (cpus[i].foreign - share).max(0.0);
            }
        }
        let mut apps: Vec<AppView> =
            merge(&prev.apps, &next.apps, |a| a.id).map(|(before, now)| AppView::new(before, now, seconds)).collect();
        let mut instructions = vec![Some(0.0); apps.len()];
        for task in tasks.iter().filter(|task| task.ran() != Some(false)) {
            if let Ok(i) = apps.binary_search_by_key(&task.info.app, |app| app.id) {
                let more = instructions[i].zip(task.per_s(Signal::Instructions));
                instructions[i] = more.map(|(sum, own)| sum + own);
            }
        }
        for (app, sum) in apps.iter_mut().zip(instructions) {
            app.instructions_per_s = sum.filter(|sum| usable(*sum));
        }
        let ran = tasks.iter().filter(|task| task.ran() != Some(false));
        let ran: Option<f64> = ran.map(|task| Some(task.per_s(Signal::CpuTime)? / 1e9 * seconds)).sum();
        let ended: f64 = apps.iter().filter_map(|app| app.ended_cpus).map(|cpus| cpus * seconds).sum();
        let others_s = busy_ns.zip(ran).map(|(busy, ran)| busy as f64 / 1e9 - ran - ended);
        Self { at: next.at, interval, tasks, cpus, apps, others_s, numa_balancing: next.numa_balancing }
    }

    /// The task of that id.
    pub fn task(&self, id: TaskId) -> Option<&TaskView> {
        self.tasks.binary_search_by_key(&id, |t| t.info.id).ok().map(|i| &self.tasks[i])
    }

    /// The application of that id.
    pub fn app(&self, id: AppId) -> Option<&AppView> {
        self.apps.binary_search_by_key(&id, |app| app.id).ok().map(|i| &self.apps[i])
    }

    /// All tasks grouped by application.
    pub fn by_app(&self) -> ByApp<'_> {
        let mut tasks: Vec<&TaskView> = self.tasks.iter().collect();
        tasks.sort_by_key(|task| task.info.app);
        let mut ends: Vec<(AppId, usize)> = Vec::with_capacity(self.apps.len());
        for (i, task) in tasks.iter().enumerate() {
            match ends.last_mut() {
                Some((app, end)) if *app == task.info.app => *end = i + 1,
                _ => ends.push((task.info.app, i + 1)),
            }
        }
        ByApp { tasks, ends }
    }

    /// Whether a reading was made in this interval.
    pub fn is_new(&self, reading: &Reading) -> bool {
        self.at - reading.at < self.interval
    }

    /// The load of a CPU, if known.
    pub fn cpu(&self, id: CpuId) -> Option<&CpuView> {
        self.cpus.binary_search_by_key(&id, |c| c.id).ok().map(|i| &self.cpus[i])
    }
}

/// The tasks of a view grouped by application.
#[derive(Clone, Debug)]
pub struct ByApp<'a> {
    tasks: Vec<&'a TaskView>,
    /// End of each application's tasks.
    ends: Vec<(AppId, usize)>,
}

impl<'a> ByApp<'a> {
    /// The tasks of an application, in ascending order.
    pub fn of(&self, app: AppId) -> &[&'a TaskView] {
        let Ok(i) = self.ends.binary_search_by_key(&app, |(app, _)| *app) else { return &[] };
        let from = i.checked_sub(1).map_or(0, |before| self.ends[before].1);
        &self.tasks[from..self.ends[i].1]
    }
}

impl AppView {
    fn new(before: Option<&AppSample>, now: &AppSample, seconds: f64) -> Self {
        let before = before.filter(|_| seconds > 0.0);
        let per_s = |count: fn(&AppSample) -> Option<u64>| {
            before.and_then(|before| Some(count(now)?.checked_sub(count(before)?)? as f64 / seconds))
        };
        let latency_ns = before.and_then(|before| now.latency_ns.as_ref()?.since(before.latency_ns.as_ref()?));
        Self {
            id: now.id,
            name: now.name.clone(),
            progress_per_s: per_s(|app| app.progress),
            openmp_per_s: per_s(|app| app.openmp),
            mpi_per_s: per_s(|app| app.mpi),
            ended_cpus: per_s(|app| app.ended_ns).map(|ns_per_s| ns_per_s / 1e9),
            waits: before.and_then(|before| now.waits.as_ref()?.since(before.waits.as_ref()?)),
            pressure: before.and_then(|before| pressure(before.pressure?, now.pressure?)),
            instructions_per_s: None,
            latency_ns,
            io: before.and_then(|before| bytes_per_s(before.io?, now.io?)),
            tcp: before.and_then(|before| bytes_per_s(before.tcp?, now.tcp?)),
            metrics: now.metrics.clone(),
            clipped: now.clipped.clone(),
        }
    }
}

impl TaskView {
    fn new(prev: Option<&TaskSample>, next: &TaskSample, seconds: f64) -> Self {
        let rates = match prev {
            Some(prev) if seconds > 0.0 && prev.counters.is_same(&next.counters) => {
                Rates::Rest(next.counters.present())
            }
            Some(prev) if seconds > 0.0 => {
                let mut rates = Box::new([f64::NAN; Signal::COUNT]);
                for (signal, now) in next.counters.iter() {
                    if let Some(events) = prev.counters.get(signal).and_then(|before| scaled_delta(before, now)) {
                        rates[signal as usize] = events / seconds;
                    }
                }
                Rates::Of(rates)
            }
            _ => Rates::Rest(0),
        };
        let touches_by_node = prev.filter(|_| seconds > 0.0).and_then(|prev| touches(prev, next, seconds));
        let pages_by_node = next.pages_by_node.clone();
        let from_cpu = prev.and_then(|prev| prev.cpu);
        Self { info: next.info.clone(), cpu: next.cpu, from_cpu, pages_by_node, touches_by_node, rates }
    }

    /// Events per second of wall-clock time.
    pub fn per_s(&self, signal: Signal) -> Option<f64> {
        match &self.rates {
            Rates::Rest(present) => (present >> signal as u32 & 1 == 1).then_some(0.0),
            Rates::Of(rates) => Some(rates[signal as usize]).filter(|rate| !rate.is_nan()),
        }
    }

    /// Events per unhalted cycle of the task; `None` without cycles.
    pub fn per_cycle(&self, signal: Signal) -> Option<f64> {
        let cycles = self.per_s(Signal::Cycles).filter(|c| *c > 0.0)?;
        Some(self.per_s(signal)? / cycles)
    }

    /// Fraction of the interval on a CPU, 0–1.
    pub fn cpu_share(&self) -> Option<f64> {
        self.per_s(Signal::CpuTime).map(|ns_per_s| (ns_per_s / 1e9).min(1.0))
    }

    /// Whether it changed its CPU in the interval, so that its time on each is unknown. `None` if it is on the same CPU
    /// as before without a count of migrations.
    pub fn moved(&self) -> Option<bool> {
        let elsewhere = self.from_cpu.zip(self.cpu).is_some_and(|(from, to)| from != to);
        let ran = self.ran() != Some(false);
        if elsewhere { Some(ran) } else { self.per_s(Signal::Migrations).map(|moves| ran && moves > 0.0) }
    }

    /// Whether it ran in the interval, by any signal; `None` without one.
    pub fn ran(&self) -> Option<bool> {
        self.per_s(Signal::CpuTime).or_else(|| self.per_s(Signal::Cycles)).map(|rate| rate > 0.0)
    }
}

/// Accesses per second × distance, summed over all tasks with accesses counted by node: a measure of their traffic's
/// energy (Tumanov et al. §2). In the unit of the machine's distances; `None` without counts or distances.
pub fn access_distance(topology: &Topology, view: &View) -> Option<f64> {
    let of_task = |task: &TaskView| {
        let way = |(id, rate): &(NodeId, f64)| {
            let node = topology.nodes().iter().position(|node| node.id == *id)?;
            Some(topology.way(task.cpu?, node)? * rate)
        };
        task.touches_by_node.as_ref()?.iter().filter(|(_, rate)| *rate > 0.0).map(way).sum::<Option<f64>>()
    };
    view.tasks.iter().filter_map(of_task).reduce(|a, b| a + b)
}

/// Accesses per second to each node's memory; `None` if not counted, or decreasing.
fn touches(prev: &TaskSample, next: &TaskSample, seconds: f64) -> Option<Vec<(NodeId, f64)>> {
    let before = prev.touches_by_node.as_ref()?;
    let rate = |(node, now): &(NodeId, u64)| {
        let before = before.iter().find(|(other, _)| other == node).map_or(0, |(_, n)| *n);
        Some((*node, now.checked_sub(before)? as f64 / seconds))
    };
    next.touches_by_node.as_ref()?.iter().map(rate).collect()
}

/// Bytes per second between two counts; `None` if the second is not later, or decreased.
fn bytes_per_s(before: Moved, now: Moved) -> Option<Reading> {
    let bytes = now.bytes.checked_sub(before.bytes)?;
    let window = now.at - before.at;
    let value = bytes as f64 / window.as_secs_f64();
    (!window.is_zero()).then_some(Reading { value, direction: Direction::HigherIsBetter, window, count: 1, at: now.at })
}

/// Fraction of the time between two readings in which a group lacked CPUs; `None` if the second is not later, or
/// decreased.
fn pressure(before: Pressure, now: Pressure) -> Option<f64> {
    let us = now.us.checked_sub(before.us)? as f64;
    let window = now.at - before.at;
    (!window.is_zero()).then(|| (us / 1e6 / window.as_secs_f64()).min(1.0))
}

/// Events between two counts, scaled from the real counting time to the enabled time (SAM §2.3: alternating groups).
/// `None` if the counter decreased or was starved.
fn scaled_delta(before: Count, now: Count) -> Option<f64> {
    let value = now.value.checked_sub(before.value)? as f64;
    let enabled = now.enabled_ns.checked_sub(before.enabled_ns)? as f64;
    let running = now.running_ns.checked_sub(before.running_ns)? as f64;
    match enabled {
        0.0 => Some(value), // a task that slept, or a count without its own clock
        _ if running / enabled < STARVED_BELOW => None,
        _ => Some(value * (enabled / running).max(1.0)),
    }
}

/// Each element of `next` with the element of `prev` that has the same key; both are sorted by key.
pub fn merge<'a, T, K: Ord + Copy>(
    prev: &'a [T],
    next: &'a [T],
    key: impl Fn(&T) -> K,
) -> impl Iterator<Item = (Option<&'a T>, &'a T)> {
    let mut i = 0;
    next.iter().map(move |now| {
        while i < prev.len() && key(&prev[i]) < key(now) {
            i += 1;
        }
        (prev.get(i).filter(|before| key(before) == key(now)), now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::CpuSample;

    /// Id, CPU, counts.
    type Task<'a> = (u32, u32, &'a [(Signal, Count)]);

    fn sample(at_ms: u64, tasks: &[Task<'_>]) -> Sample {
        let task = |&(id, cpu, counts): &Task<'_>| TaskSample {
            info: Arc::new(TaskInfo { id: TaskId(id), ..TaskInfo::default() }),
            cpu: Some(CpuId(cpu)),
            counters: counts.iter().copied().collect(),
            ..TaskSample::default()
        };
        Sample { at: Time::from_millis(at_ms), tasks: tasks.iter().map(task).collect(), ..Sample::default() }
    }

    fn multiplexed(value: u64, enabled_ns: u64, running_ns: u64) -> Count {
        Count { value, enabled_ns, running_ns }
    }

    #[test]
    fn scales_by_enabled_over_running() {
        // 1,000 events in 25 of 100 ms enabled → 4,000 in 100 ms wall → 40,000/s; with 2e8 cycles in 0.1 s → 2e-5 per
        // cycle.
        let cycles = |v| (Signal::Cycles, Count::exact(v));
        let a = sample(0, &[(1, 0, &[(Signal::Inter, multiplexed(500, 0, 0)), cycles(0)])]);
        let b = sample(
            100,
            &[(1, 0, &[(Signal::Inter, multiplexed(1_500, 100_000_000, 25_000_000)), cycles(200_000_000)])],
        );
        let view = View::new(&a, &b);
        let task = view.task(TaskId(1)).unwrap();
        assert!((task.per_s(Signal::Inter).unwrap() - 40_000.0).abs() < 1e-6);
        assert!((task.per_cycle(Signal::Inter).unwrap() - 2e-5).abs() < 1e-15);
        assert_eq!(task.per_s(Signal::Remote), None, "never counted");
    }

    #[test]
    fn starved_backwards_and_new_are_none() {
        let a = sample(0, &[(1, 0, &[(Signal::Inter, multiplexed(9, 0, 0)), (Signal::Remote, Count::exact(9))])]);
        let b = sample(
            100,
            &[
                (1, 0, &[(Signal::Inter, multiplexed(9, 100_000_000, 0)), (Signal::Remote, Count::exact(8))]),
                (2, 0, &[(Signal::Inter, Count::exact(5))]),
            ],
        );
        let view = View::new(&a, &b);
        assert_eq!(view.task(TaskId(1)).unwrap().per_s(Signal::Inter), None, "enabled but never running");
        assert_eq!(view.task(TaskId(1)).unwrap().per_s(Signal::Remote), None, "went backwards");
        assert_eq!(view.task(TaskId(2)).unwrap().per_s(Signal::Inter), None, "new");
        assert_eq!(View::new(&a, &a).task(TaskId(1)).unwrap().per_s(Signal::Inter), None, "no time between");
    }

    /// Of an application whose thread ran without being counted nothing is known; one that did not run does not matter.
    #[test]
    fn instructions_and_tasks_of_each_application() {
        // Id, application, whether it runs, its instructions where these are counted.
        let tasks = [
            (1, 2, true, Some(70)),
            (2, 0, true, Some(30)),
            (3, 2, true, Some(5)),
            (4, 1, true, Some(8)),
            (5, 1, true, None),
            (6, 0, false, None),
        ];
        let sample = |s: u64| {
            let task = |(id, app, runs, done): (u32, u32, bool, Option<u64>)| TaskSample {
                info: Arc::new(TaskInfo { id: TaskId(id), app: AppId(app), ..TaskInfo::default() }),
                counters: std::iter::once((Signal::CpuTime, Count::exact(u64::from(runs) * s)))
                    .chain(done.map(|done| (Signal::Instructions, Count::exact(done * s))))
                    .collect(),
                ..TaskSample::default()
            };
            let apps = (0..4).map(|id| AppSample { id: AppId(id), ..AppSample::default() }).collect();
            Sample { at: Time::from_secs(s), tasks: tasks.map(task).to_vec(), apps, ..Sample::default() }
        };
        let view = View::new(&sample(0), &sample(1));
        let told: Vec<_> = view.apps.iter().map(|app| app.instructions_per_s).collect();
        assert_eq!(told, [Some(30.0), None, Some(75.0), None]);
        let by_app = view.by_app();
        let ids = |app| by_app.of(AppId(app)).iter().map(|task| task.info.id.0).collect::<Vec<_>>();
        assert_eq!([ids(0), ids(1), ids(2), ids(3)], [vec![2, 6], vec![4, 5], vec![1, 3], vec![]]);
    }

    #[test]
    fn foreign_load_is_what_the_tasks_do_not_explain() {
        // CPU 3 busy 80 of 100 ms, our task there 60 ms → 20 % foreign. CPU 4 busy 10 ms, none of it ours.
        let cpu = |id, busy_ns| CpuSample { id: CpuId(id), busy_ns };
        let mut a = sample(0, &[(1, 3, &[(Signal::CpuTime, Count::exact(0))])]);
        a.cpus = vec![cpu(3, 0), cpu(4, 0)];
        let mut b = sample(100, &[(1, 3, &[(Signal::CpuTime, Count::exact(60_000_000))])]);
        b.cpus = vec![cpu(3, 80_000_000), cpu(4, 10_000_000)];
        let view = View::new(&a, &b);
        assert!((view.cpu(CpuId(3)).unwrap().foreign - 0.2).abs() < 1e-9);
        assert!((view.cpu(CpuId(4)).unwrap().foreign - 0.1).abs() < 1e-9);
        assert_eq!(view.task(TaskId(1)).unwrap().ran(), Some(true));
        // Ours ran for an unknown time: nothing implies foreign work.
        for sample in [&mut a, &mut b] {
            let cycles = Count::exact(sample.at.0);
            sample.tasks[0].counters = crate::Counters::default();
            sample.tasks[0].counters.set(Signal::Cycles, cycles);
        }
        assert_eq!(View::new(&a, &b).cpu(CpuId(3)).unwrap().foreign, 0.0);
    }

    /// A glance has the counts of the look before it: what it leaves out, the next look has.
    #[test]
    fn what_others_used_adds_up_over_glances() {
        let at = |ms, ran: u64, busy: [u64; 2]| {
            let mut sample = sample(ms, &[(1, 3, &[(Signal::CpuTime, Count::exact(ran * 1_000_000))])]);
            let cpu = |(id, busy): (usize, u64)| CpuSample { id: CpuId(id as u32), busy_ns: busy * 1_000_000 };
            sample.cpus = busy.into_iter().enumerate().map(cpu).collect();
            sample
        };
        let samples = [at(0, 0, [0, 0]), at(75, 0, [0, 0]), at(100, 60, [100, 50]), at(200, 70, [200, 50])];
        let others: Vec<Option<f64>> = samples.windows(2).map(|pair| View::new(&pair[0], &pair[1]).others_s).collect();
        let of_looks = [0.0, 0.09, 0.09];
        assert!(others.iter().zip(of_looks).all(|(got, is)| (got.unwrap() - is).abs() < 1e-9), "{others:?}");
        let unknown = Sample { cpus: Vec::new(), ..samples[1].clone() };
        assert_eq!(View::new(&samples[0], &unknown).others_s, None);
    }

    #[test]
    fn progress_is_a_rate_of_reports() {
        let app = |progress| AppSample { id: AppId(0), name: "a".into(), progress, ..AppSample::default() };
        let (mut a, mut b) = (sample(0, &[]), sample(500, &[]));
        a.apps = vec![app(Some(100))];
        b.apps = vec![app(Some(150))];
        assert_eq!(View::new(&a, &b).apps[0].progress_per_s, Some(100.0));
        b.apps = vec![app(None)];
        assert_eq!(View::new(&a, &b).apps[0].progress_per_s, None);
    }

    #[test]
    fn bytes_have_a_pace_of_their_own() {
        let moved = |bytes, ms| Some(Moved { bytes, at: Time::from_millis(ms) });
        let seen = |at_ms, io| Sample { apps: vec![AppSample { io, ..AppSample::default() }], ..sample(at_ms, &[]) };
        let io = |a: Option<Moved>, b| View::new(&seen(100, a), &seen(300, b)).apps[0].io;
        // 600 bytes in the 150 ms between the counts, not the 200 ms between the samples.
        let reading = io(moved(1_000, 90), moved(1_600, 240)).unwrap();
        assert_eq!(
            (reading.value, reading.window, reading.at),
            (4_000.0, Duration::from_millis(150), Time::from_millis(240))
        );
        assert_eq!(io(moved(1_000, 90), moved(1_000, 240)).unwrap().value, 0.0);
        assert_eq!(io(moved(1_000, 90), moved(1_000, 90)), None, "not counted again");
        assert_eq!(io(moved(1_000, 90), moved(999, 240)), None, "went backwards");
        assert_eq!((io(None, moved(1, 240)), io(moved(1, 90), None)), (None, None));
    }
}
