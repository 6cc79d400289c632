//! Activity of tasks between full samples. Rounds may be much shorter: most may be glances
//! ([`Host::glance`](crate::Host::glance)), and several rules cover the same time.

use crate::view::merge;
use crate::{AppSample, CpuId, Sample, Signal, TaskSample, TaskView, Time, View};
use std::collections::BTreeMap;
use std::time::Duration;

/// Hosts take full samples more often than this: a sample equal to its predecessor is a glance, and after this time a
/// full sample with all tasks asleep.
const LOOKED: Duration = Duration::from_secs(1);

/// Lag of a CPU's busy time, seconds: the kernel counts user and system time in ticks of 10 ms.
const TICKS_S: f64 = 0.02;

/// Finds the full samples of a loop.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// The last full sample.
    last: Option<Sample>,
    /// Busy seconds of each CPU beyond those credited to it, as far as ticks explain them.
    spare: BTreeMap<CpuId, f64>,
}

/// The time between two full samples.
#[derive(Clone, Debug)]
pub struct Look {
    /// Its start; it ends at `view.at`.
    pub from: Time,
    /// Rates in between; no applications.
    pub view: View,
    on: BTreeMap<CpuId, On>,
}

/// Seconds on a CPU.
#[derive(Clone, Copy, Debug)]
struct On {
    /// Reported run time of its tasks.
    said: f64,
    /// Possible run time.
    can: f64,
}

impl Looks {
    /// Takes the next sample after `last`. `None` if it is only a glance.
    pub fn look(&mut self, last: &Sample, sample: &Sample) -> Option<Look> {
        let before = self.last.get_or_insert_with(|| counted(last));
        if sample.at < before.at {
            *self = Self { last: Some(counted(sample)), ..Self::default() }; // another clock
            return None;
        }
        let interval = sample.at - before.at;
        if interval.is_zero() || interval < LOOKED && is_same(before, sample) {
            return None;
        }
        let now = counted(sample);
        let (from, view) = (before.at, View::new(before, &now));
        let on = self.on(&view, &now);
        self.last = Some(now);
        Some(Look { from, view, on })
    }

    fn on(&mut self, view: &View, now: &Sample) -> BTreeMap<CpuId, On> {
        let length = view.interval.as_secs_f64();
        let mut on: BTreeMap<CpuId, On> = BTreeMap::new();
        for task in &view.tasks {
            if let (Some(cpu), Some(seconds)) = (stood(task), seconds(task, view)) {
                on.entry(cpu).or_insert(On { said: 0.0, can: length }).said += seconds;
            }
        }
        let before = self.last.as_ref().map_or(&[][..], |last| &last.cpus);
        for (before, now) in merge(before, &now.cpus, |cpu| cpu.id) {
            let Some(busy) = before.and_then(|before| now.busy_ns.checked_sub(before.busy_ns)) else { continue };
            let spare = self.spare.entry(now.id).or_default();
            let busy = busy as f64 / 1e9 + *spare;
            let on = on.entry(now.id).or_insert(On { said: 0.0, can: length });
            on.can = busy.min(length);
            *spare = (busy - on.said.min(on.can)).min(TICKS_S);
        }
        on
    }
}

impl Look {
    /// CPU time of a task, seconds.
    pub fn seconds(&self, task: &TaskView) -> Option<f64> {
        seconds(task, &self.view)
    }

    /// The part certainly spent on its CPU: zero after a move, and never more than the CPU was busy.
    pub fn on_its_cpu(&self, task: &TaskView) -> Option<(CpuId, f64)> {
        let cpu = stood(task)?;
        let on = self.on.get(&cpu)?;
        let part = if on.said > on.can { on.can / on.said } else { 1.0 };
        Some((cpu, self.seconds(task)? * part))
    }

    /// Seconds that tasks may have run on a CPU beyond the certain part.
    pub fn room(&self, cpu: CpuId) -> f64 {
        self.on.get(&cpu).map_or(0.0, |on| (on.can - on.said).max(0.0))
    }
}

/// Its CPU for the whole time, as far as known.
fn stood(task: &TaskView) -> Option<CpuId> {
    task.cpu.filter(|_| task.moved() != Some(true))
}

fn seconds(task: &TaskView, view: &View) -> Option<f64> {
    task.per_s(Signal::CpuTime).map(|ns_per_s| ns_per_s / 1e9 * view.interval.as_secs_f64())
}

/// Values known from full samples: for applications, the system's counts of their processes and groups.
fn counted(sample: &Sample) -> Sample {
    let app = |app: &AppSample| {
        let AppSample { id, ended_ns, pressure, .. } = *app;
        AppSample { id, ended_ns, pressure, ..AppSample::default() }
    };
    let (tasks, cpus) = (sample.tasks.clone(), sample.cpus.clone());
    Sample { at: sample.at, tasks, cpus, apps: sample.apps.iter().map(app).collect(), ..Sample::default() }
}

fn is_same(one: &Sample, other: &Sample) -> bool {
    // A glance may have counted cycles and instructions; CPU time comes from full samples only.
    let ran = |task: &TaskSample| task.counters.get(Signal::CpuTime);
    let same = |(a, b): (&TaskSample, &TaskSample)| {
        (a.info.id, a.cpu, ran(a)) == (b.info.id, b.cpu, ran(b)) && (ran(a).is_some() || a.counters == b.counters)
    };
    one.cpus == other.cpus && one.tasks.len() == other.tasks.len() && one.tasks.iter().zip(&other.tasks).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Count, CpuSample, TaskId, TaskInfo};
    use std::sync::Arc;

    /// Tasks 0, 1, … by CPU, milliseconds run and moves; CPUs by milliseconds busy.
    fn sample(at_ms: u64, tasks: &[(u32, u64, u64)], busy_ms: &[u64]) -> Sample {
        let task = |(id, (cpu, ran, moves)): (u32, &(u32, u64, u64))| TaskSample {
            info: Arc::new(TaskInfo { id: TaskId(id), ..TaskInfo::default() }),
            cpu: Some(CpuId(*cpu)),
            counters: [(Signal::CpuTime, Count::exact(ran * 1_000_000)), (Signal::Migrations, Count::exact(*moves))]
                .into_iter()
                .collect(),
            ..TaskSample::default()
        };
        let cpu = |(id, ms): (u32, &u64)| CpuSample { id: CpuId(id), busy_ns: ms * 1_000_000 };
        Sample {
            at: Time::from_millis(at_ms),
            tasks: (0..).zip(tasks).map(task).collect(),
            cpus: (0..).zip(busy_ms).map(cpu).collect(),
            ..Sample::default()
        }
    }

    fn known(look: &Look) -> Vec<(f64, Option<(u32, f64)>)> {
        let ms = |seconds: f64| (seconds * 1e3).round();
        let of = |task: &TaskView| {
            (ms(look.seconds(task).unwrap()), look.on_its_cpu(task).map(|(cpu, seconds)| (cpu.0, ms(seconds))))
        };
        look.view.tasks.iter().map(of).collect()
    }

    /// Holds see/cost.
    #[test]
    fn glances_belong_to_the_look_after_them() {
        let mut looks = Looks::default();
        let first = sample(0, &[(0, 0, 0)], &[0, 0]);
        let glance = Sample { at: Time::from_millis(90), ..first.clone() };
        assert!(looks.look(&first, &glance).is_none());
        let mut counted = glance.clone();
        counted.tasks[0].counters.set(Signal::Instructions, Count::exact(1_000));
        assert!(looks.look(&first, &counted).is_none(), "counts alone are no look");
        let next = sample(100, &[(0, 23, 0)], &[23, 0]);
        let look = looks.look(&glance, &next).unwrap();
        assert_eq!((look.from, look.view.interval), (Time::default(), Duration::from_millis(100)));
        assert_eq!(known(&look), [(23.0, Some((0, 23.0)))], "not 23 of 10 ms");
        assert!(looks.look(&next, &next).is_none(), "another rule decides by it, too");
        let asleep = Sample { at: Time::from_millis(1_100), ..next.clone() };
        assert_eq!(known(&looks.look(&next, &asleep).unwrap()), [(0.0, Some((0, 0.0)))]);
    }

    #[test]
    fn no_cpu_is_credited_with_what_it_cannot_have_run() {
        let mut looks = Looks::default();
        // Task 0 moves, 1 returns to its CPU, 2 stays; together 3 and 4 ran more than their CPU was busy.
        let before = sample(0, &[(0, 0, 0), (1, 0, 5), (1, 0, 0), (2, 0, 0), (2, 0, 0)], &[0, 0, 0]);
        let after = sample(100, &[(1, 50, 1), (1, 40, 7), (1, 20, 0), (2, 90, 0), (2, 30, 0)], &[60, 60, 100]);
        let look = looks.look(&before, &after).unwrap();
        assert_eq!(
            known(&look),
            [(50.0, None), (40.0, None), (20.0, Some((1, 20.0))), (90.0, Some((2, 75.0))), (30.0, Some((2, 25.0)))]
        );
        let room = [0, 1, 2].map(|cpu| (look.room(CpuId(cpu)) * 1e3).round());
        assert_eq!(room, [60.0, 40.0, 0.0]);
    }

    /// A tick of 10 ms comes late, then early: all of it was on that CPU.
    #[test]
    fn ticks_are_coarse() {
        let mut looks = Looks::default();
        let mut credited = 0.0;
        let at = |n: u64, busy| sample(n * 15, &[(0, n * 15, 0)], &[busy]);
        let samples: Vec<Sample> = (0..=20).map(|n| at(n, n * 15 / 10 * 10)).collect();
        for pair in samples.windows(2) {
            let look = looks.look(&pair[0], &pair[1]).unwrap();
            let (_, seconds) = look.on_its_cpu(&look.view.tasks[0]).unwrap();
            assert!(seconds <= 0.015 + 1e-9);
            credited += seconds;
        }
        assert!((0.29..=0.3 + 1e-9).contains(&credited), "{credited}");
    }
}
