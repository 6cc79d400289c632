//! The situation that `AToM` learns about: running applications, their threads and CPUs, and the sources of their
//! speed.

use cotenant_model::policy::Ctx;
use cotenant_model::speed::{self, Source};
use cotenant_model::topology::symmetry::Labels;
use cotenant_model::{AppId, AppView, CpuId, CpuSet, NodeId, Signal, TaskId, TaskView, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A thread that runs for less than this fraction of its time without CPU waits needs no place of its own.
const ACTIVE: f64 = 0.1;
/// Steps in which fractions of an application's pages are distinguished.
const PAGE_STEPS: f64 = 4.0;

/// Interchangeable threads: those of one application with the same allowed CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub app: AppId,
    pub on: CpuSet,
    pub threads: usize,
}

/// The best available source of an application's speed; `None` without one.
pub(crate) fn best(view: &View, app: &AppView) -> Option<Source> {
    let told = speed::told(view, app).map(|(source, _)| source);
    // A program that reports rarely is not slow because of that.
    let reports = || app.progress_per_s.map(|_| Source::Progress);
    told.or_else(reports).or_else(|| Source::Instructions.reading(view, app).map(|_| Source::Instructions))
}

/// What is learned applies to one situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Situation {
    /// In ascending order of application, then of CPUs.
    pub groups: Vec<Group>,
    /// For the applications whose speed counts.
    pub measures: BTreeMap<AppId, Source>,
}

/// Observations of a situation.
pub(crate) struct Participants {
    pub situation: Situation,
    /// Competing threads in ascending order, each with its group; a thread without one stays in place.
    pub members: Vec<(TaskId, usize)>,
    /// Applications without a source of speed.
    pub silent: Vec<String>,
}

/// Busy tasks and CPUs over some rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Observed seconds.
    pub seconds: f64,
    /// Per task: seconds running, and seconds without CPU waits, since those depend on other tasks. The kernel reports
    /// a wait at its end, so that only the sum is exact: a round may contribute less than 0.
    tasks: BTreeMap<TaskId, [f64; 2]>,
    /// Per CPU: seconds busy, and seconds busy with foreign work.
    cpus: BTreeMap<CpuId, [f64; 2]>,
    /// CPU seconds of all tasks; for a task with unknown time, all of it.
    ours: f64,
}

impl Load {
    pub fn add(&mut self, view: &View) {
        let seconds = view.interval.as_secs_f64();
        self.seconds += seconds;
        for task in &view.tasks {
            self.ours += task.cpu_share().unwrap_or(1.0) * seconds;
            let Some(runs) = task.cpu_share() else { continue };
            let waits = task.per_s(Signal::RunQueueWait).unwrap_or(0.0) / 1e9;
            let [ran, ran_or_slept] = self.tasks.entry(task.info.id).or_default();
            *ran += runs * seconds;
            *ran_or_slept += (1.0 - waits) * seconds;
        }
        for cpu in &view.cpus {
            let [busy, foreign] = self.cpus.entry(cpu.id).or_default();
            *busy += cpu.busy * seconds;
            *foreign += cpu.foreign * seconds;
        }
    }

    /// Whether a thread competes; `None` if its time is unknown.
    pub fn is_active(&self, task: TaskId) -> Option<bool> {
        self.share(task).map(|share| share >= ACTIVE)
    }

    /// The fraction (0–1) of a thread's time without CPU waits in which it runs; `None` if unknown.
    pub fn share(&self, task: TaskId) -> Option<f64> {
        let part = |[ran, ran_or_slept]: &[f64; 2]| match ran_or_slept.max(*ran) {
            0.0 => 1.0,
            all => ran / all,
        };
        self.tasks.get(&task).map(part)
    }

    /// Usable CPUs without those busy with foreign work, if at least `threads` CPUs remain. A thread that changed CPUs
    /// looks foreign on its former one, so at most as many CPUs count as busy as foreign work could fill.
    fn quiet(&self, ctx: &Ctx<'_>, threads: usize) -> CpuSet {
        let usable = ctx.topology.usable();
        let share = |seconds: f64| seconds / self.seconds.max(f64::MIN_POSITIVE);
        let busy: f64 = self.cpus.values().map(|[busy, _]| busy).sum();
        let strangers = (share(busy - self.ours) - ctx.config.foreign_busy).max(0.0).ceil() as usize;
        let foreign = self.cpus.iter().map(|(cpu, [_, foreign])| (*cpu, share(*foreign)));
        let mut foreign: Vec<_> = foreign.filter(|(_, part)| *part > ctx.config.foreign_busy).collect();
        foreign.sort_by(|a, b| b.1.total_cmp(&a.1));
        let taken: CpuSet = foreign.iter().take(strangers).map(|(cpu, _)| *cpu).collect();
        let quiet = usable.minus(&taken);
        if quiet.len() >= threads { quiet } else { usable.clone() }
    }
}

/// The situation according to the last rounds.
///
/// # Errors
/// The reason if there is nothing to learn.
pub(crate) fn look(
    ctx: &Ctx<'_>,
    view: &View,
    load: &Load,
    told: impl Fn(&AppView) -> Option<Source>,
) -> Result<Participants, &'static str> {
    let is_active = |t: &&TaskView| load.is_active(t.info.id).unwrap_or(t.ran() != Some(false));
    let active: Vec<&TaskView> = view.tasks.iter().filter(is_active).collect();
    if active.is_empty() {
        return Err("no thread needs a tenth of a CPU");
    }
    let quiet = load.quiet(ctx, active.len());
    let mut found: BTreeMap<(AppId, Vec<CpuId>), Vec<TaskId>> = BTreeMap::new();
    for task in active {
        let on = task.info.allowed.and(&quiet);
        found.entry((task.info.app, on.iter().collect())).or_default().push(task.info.id);
    }
    let mut groups = Vec::new();
    let mut members = Vec::new();
    for ((app, on), tasks) in found {
        // Threads allowed only on CPUs busy with foreign work stay there.
        if on.is_empty() {
            members.extend(tasks.iter().map(|task| (*task, usize::MAX)));
            continue;
        }
        members.extend(tasks.iter().map(|task| (*task, groups.len())));
        groups.push(Group { app, on: on.into_iter().collect(), threads: tasks.len() });
    }
    members.sort_unstable();
    let (mut measures, mut silent) = (BTreeMap::new(), Vec::new());
    for app in view.apps.iter().filter(|app| groups.iter().any(|g| g.app == app.id)) {
        match told(app) {
            Some(source) => drop(measures.insert(app.id, source)),
            None => silent.push(app.name.clone()),
        }
    }
    if measures.is_empty() {
        return Err(
            "no program's speed is known; needed: progress that it reports, --metric, or counted instructions (auto \
             and shapes take steady proxies, too)",
        );
    }
    Ok(Participants { situation: Situation { groups, measures }, members, silent })
}

/// Whether an application is marked as latency-sensitive.
pub(crate) fn is_sensitive(ctx: &Ctx<'_>, view: &View, id: AppId) -> bool {
    let name = view.app(id).map_or("", |app| app.name.as_str());
    ctx.apps.get(name).is_some_and(|profile| profile.latency_sensitive)
}

/// Labels of memory nodes by the fraction of each application's pages: mappings nearer to their pages differ.
pub(crate) fn page_labels(ctx: &Ctx<'_>, view: &View, groups: &[Group]) -> Labels {
    let mut labels = Labels::default();
    let mut apps: Vec<AppId> = groups.iter().map(|g| g.app).collect();
    apps.dedup();
    for app in apps {
        let mut pages: BTreeMap<NodeId, f64> = BTreeMap::new();
        for task in view.tasks.iter().filter(|t| t.info.app == app) {
            for &(node, count) in task.pages_by_node.iter().flatten() {
                *pages.entry(node).or_default() += count as f64;
            }
        }
        let all: f64 = pages.values().sum();
        for node in ctx.topology.nodes().iter().filter(|_| all > 0.0) {
            let share = pages.get(&node.id).map_or(0.0, |count| count / all);
            let label = labels.nodes.entry(node.id).or_default();
            // Beyond the 27th, applications are not distinguished: labels have 64 bits.
            *label = label.wrapping_mul(PAGE_STEPS as u64 + 1).wrapping_add((share * PAGE_STEPS).round() as u64);
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::{ViewBuilder, machine};

    /// On a full CPU a thread waits for 290 ms and runs for 10, and the kernel tells of the wait when it is over: it
    /// never sleeps. One that runs as much and sleeps for the rest needs no place.
    #[test]
    fn a_wait_that_is_told_late_is_no_sleep() {
        let topology = machine(1, 1, 2, 1);
        let mut load = Load::default();
        for round in 0..30 {
            let runs = u64::from(round % 3 == 2);
            let view = ViewBuilder::new(&topology)
                .task(1, 0, 0)
                .signal(Signal::CpuTime, runs * 10_000_000)
                .signal(Signal::RunQueueWait, runs * 290_000_000)
                .task(2, 0, 1)
                .signal(Signal::CpuTime, runs * 10_000_000)
                .signal(Signal::RunQueueWait, 0)
                .view();
            load.add(&view);
        }
        assert_eq!([1, 2].map(|task| load.is_active(TaskId(task))), [Some(true), Some(false)]);
    }
}
