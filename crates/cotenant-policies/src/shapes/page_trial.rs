//! A separate trial where memory moves: whether it should follow moved threads, or whether threads should go to other
//! nodes with the kernel's help. Copying costs too much for alternating windows, so it compares before and after, each
//! with settled memory.

use super::shape_board::ShapePlaces;
use super::slowest::ThreadWork;
use super::speed_meter::SpeedPoint;
use super::steadiness::INDEPENDENT;
use super::still_memory::{ARRIVED, LONGEST, SETTLED, StillMemory, Stillness};
use super::trial::{TrialEstimate, lead};
use cotenant_model::stats::Summary;
use cotenant_model::{Action, AppId, NodeId, Proposal, Reason, TaskId, Time, Topology, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The least worthwhile gain: half of memory moved in vain cannot be found again.
const LEAST: f64 = 0.01;
/// If the kernel moves it, the gain must also cover unknown changes of the load meanwhile.
const LEAST_FOR_KERNEL: f64 = 0.02;
/// Standard errors by which a gain must exceed zero.
const ERRORS: f64 = 3.0;
/// Fractions of memory and of threads that differ by less are equal.
const ALIKE: f64 = 0.15;
/// A node with less than this fraction of a program's memory is not its origin.
const PART: f64 = 0.1;

/// The mover of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PageMover {
    /// This policy, by orders.
    #[default]
    Policy,
    /// The kernel itself, over many seconds.
    Kernel,
}

impl PageMover {
    /// Seconds before and after. Changes of the load affect the difference, so they must be known beforehand if memory
    /// takes long.
    fn measured(self) -> [f64; 2] {
        match self {
            Self::Policy => [2.5, 2.5],
            Self::Kernel => [20.0, 10.0],
        }
    }

    /// Condition of memory's arrival.
    fn stillness(self) -> Stillness {
        match self {
            Self::Policy => ARRIVED,
            Self::Kernel => SETTLED,
        }
    }
}

/// A trial of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PageTrial {
    #[serde(default)]
    mover: PageMover,
    #[serde(default)]
    audits: bool,
    before: Vec<SpeedPoint>,
    after: Vec<SpeedPoint>,
    /// Work of each thread before and after.
    #[serde(default, skip_serializing_if = "ThreadWork::is_empty")]
    work: [ThreadWork; 2],
    step: PageStep,
    /// Original place of each task's memory.
    from: BTreeMap<TaskId, Vec<NodeId>>,
    #[serde(default)]
    still: StillMemory,
    /// Allowed cost until its memory has settled, in seconds of the former speed.
    #[serde(default)]
    most: f64,
    /// Whether it exceeded that, so that there is no result.
    #[serde(default)]
    pub dear: bool,
    /// The gain and its error.
    #[serde(default)]
    pub found: TrialEstimate,
    /// Whether memory is returning.
    back: bool,
    /// Seconds since its start.
    seconds: f64,
    /// Cost so far, in seconds of the former speed.
    pub cost: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PageStep {
    #[default]
    Before,
    Ask,
    Moves {
        asked: Time,
    },
    After,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PageNext {
    /// More rounds.
    Wait,
    /// These orders, and whether they return memory.
    Move { orders: Vec<Proposal>, back: bool },
    /// The end: the change of each application's logarithm, and whether memory stays.
    Done(Vec<f64>, bool),
}

impl PageTrial {
    /// A trial of threads whose memory the kernel moves, with this allowed cost in seconds until that is done.
    pub fn by_kernel(most: f64) -> Self {
        Self { mover: PageMover::Kernel, most, ..Self::default() }
    }

    /// The same for released threads: whether the kernel's placement, starting from here, is better by now.
    pub fn audit(most: f64) -> Self {
        Self { audits: true, ..Self::by_kernel(most) }
    }

    pub fn audits(&self) -> bool {
        self.audits
    }

    pub fn is_by_kernel(&self) -> bool {
        self.mover == PageMover::Kernel
    }

    /// Whether nothing has moved so far.
    pub fn is_before(&self) -> bool {
        self.step == PageStep::Before
    }

    /// Adds a round, which may complete a point. `worth` rates a change of logarithms; `slowest` gives the lag of each
    /// application's slowest thread; `stays` decides after these changes and their certainty.
    #[expect(clippy::too_many_arguments, reason = "each is of another part of the policy")]
    pub fn add(
        &mut self,
        topology: &Topology,
        [home, places]: [&ShapePlaces; 2],
        view: &View,
        point: Option<SpeedPoint>,
        members: &[(TaskId, usize)],
        worth: impl Fn(&[f64]) -> f64,
        slowest: impl Fn([&ThreadWork; 2]) -> Vec<f64>,
        stays: impl Fn(&[f64], bool) -> bool,
    ) -> PageNext {
        let now = view.at;
        // No possible move takes this long: a placement is refused, or memory never arrives.
        self.seconds += view.interval.as_secs_f64();
        if self.seconds > 4.0 * LONGEST {
            return PageNext::Done(self.nothing(), false);
        }
        let (kernel, [before_s, after_s]) = (self.mover == PageMover::Kernel, self.mover.measured());
        let stillness = self.mover.stillness();
        match self.step {
            PageStep::Before => {
                if kernel && self.still.add(view, |task| home.contains_key(&task), stillness) == 0.0 {
                    self.before.clear();
                    self.work = Default::default();
                }
                self.work[0].add(view, members);
                self.before.extend(point);
                if seconds(&self.before) >= before_s && self.before.len() >= 4 {
                    self.step = PageStep::Ask;
                }
                PageNext::Wait
            }
            PageStep::Ask => {
                let node = |places: &ShapePlaces, task: TaskId| {
                    let cpu = places.get(&task)?.first()?;
                    Some(topology.nodes()[topology.node_of(cpu)?].id)
                };
                let orders = if kernel {
                    Vec::new()
                } else if self.back {
                    self.way_back(view, "its memory goes back, since that was faster")
                } else {
                    let here = places.keys().filter_map(|task| view.task(*task));
                    self.from = here
                        .map(|t| (t.info.id, origin(view, t.info.app, t.info.id, |task| node(home, task))))
                        .collect();
                    let to = |task: &TaskId| Some(order(*task, vec![node(places, *task)?], "its memory follows it"));
                    self.from.keys().filter_map(to).collect()
                };
                self.step = PageStep::Moves { asked: now };
                self.still = StillMemory::default();
                PageNext::Move { orders, back: self.back }
            }
            PageStep::Moves { asked } => {
                self.charge(point.as_ref(), &worth);
                let still = self.still.add(view, |task| places.contains_key(&task), stillness);
                let settled = still >= stillness.seconds || (now - asked).as_secs_f64() > LONGEST;
                if settled && self.back {
                    return PageNext::Done(self.nothing(), false);
                }
                if settled {
                    self.step = PageStep::After;
                } else if kernel && !self.back && self.cost > self.most {
                    let mean = point.map_or(0.0, |point| worth(&lead(&point.logs, &mean(&self.before))));
                    self.found = TrialEstimate { mean, radius: f64::INFINITY, pairs: 1 };
                    (self.back, self.dear, self.step) = (true, true, PageStep::Ask);
                }
                PageNext::Wait
            }
            PageStep::After => {
                self.charge(point.as_ref(), &worth);
                self.work[1].add(view, members);
                self.after.extend(point);
                let seconds = seconds(&self.after);
                if seconds < PageMover::Policy.measured()[1] || self.after.len() < 4 {
                    return PageNext::Wait;
                }
                let mut changes = self.changes();
                let behind = slowest(self.work.each_ref());
                changes.iter_mut().zip(behind).for_each(|(change, behind)| *change += behind);
                let (gain, error) = (worth(&changes), ERRORS * self.error(&worth));
                self.found = TrialEstimate { mean: gain, radius: error, pairs: 1 };
                let hopeless = gain + error < LEAST;
                if seconds < after_s && (self.audits || !hopeless) {
                    return PageNext::Wait;
                }
                let least = if kernel { LEAST_FOR_KERNEL } else { LEAST };
                if stays(&changes, gain > error.max(least)) {
                    return PageNext::Done(changes, true);
                }
                (self.back, self.step) = (true, PageStep::Ask);
                PageNext::Wait
            }
        }
    }

    fn nothing(&self) -> Vec<f64> {
        vec![0.0; self.before.first().map_or(0, |point| point.logs.len())]
    }

    /// The standard error of its gain. Both sides vary like readings, including effects that last longer than a
    /// reading.
    fn error(&self, worth: &impl Fn(&[f64]) -> f64) -> f64 {
        let square = |points: &[SpeedPoint]| {
            let leads = points.iter().map(|point| worth(&lead(&point.logs, &self.before[0].logs)));
            Summary::of(&leads.collect::<Vec<_>>()).variance * INDEPENDENT / seconds(points)
        };
        (square(&self.before) + square(&self.after)).sqrt()
    }

    /// Orders that return what was moved, if the trial stops early.
    pub fn undo(&self, view: &View) -> Vec<Proposal> {
        if self.back || self.is_by_kernel() {
            Vec::new()
        } else {
            self.way_back(view, "its memory goes back, since its trial was broken off")
        }
    }

    fn way_back(&self, view: &View, why: &'static str) -> Vec<Proposal> {
        let here = self.from.iter().filter(|(task, nodes)| !nodes.is_empty() && view.task(**task).is_some());
        here.map(|(task, nodes)| order(*task, nodes.clone(), why)).collect()
    }

    fn charge(&mut self, point: Option<&SpeedPoint>, worth: &impl Fn(&[f64]) -> f64) {
        if let (Some(point), Some(_)) = (point, self.before.first()) {
            self.cost -= worth(&lead(&point.logs, &mean(&self.before))) * point.seconds;
        }
    }

    fn changes(&self) -> Vec<f64> {
        lead(&mean(&self.after), &mean(&self.before))
    }
}

fn order(task: TaskId, nodes: Vec<NodeId>, why: &'static str) -> Proposal {
    Proposal { action: Action::Pages { task, nodes }, reason: Reason::new("shapes", why) }
}

/// The origin of a task's memory. Only the process's memory is known: if its threads' nodes match it, each thread's is
/// on its own node, otherwise on the nodes that hold a part of it.
fn origin(view: &View, app: AppId, task: TaskId, node: impl Fn(TaskId) -> Option<NodeId>) -> Vec<NodeId> {
    let mut shares: BTreeMap<NodeId, [f64; 2]> = BTreeMap::new();
    for t in view.tasks.iter().filter(|t| t.info.app == app) {
        for (of, pages) in t.pages_by_node.iter().flatten() {
            shares.entry(*of).or_default()[0] += *pages as f64;
        }
        if let Some(of) = node(t.info.id) {
            shares.entry(of).or_default()[1] += 1.0;
        }
    }
    let sum = |i: usize| shares.values().map(|share| share[i]).sum::<f64>();
    let (pages, threads) = (sum(0), sum(1));
    if pages == 0.0 {
        return Vec::new();
    }
    let alike = shares.values().all(|[p, t]| (p / pages - t / threads.max(1.0)).abs() <= ALIKE);
    match node(task).filter(|_| alike) {
        Some(own) => vec![own],
        None => shares.iter().filter(|(_, share)| share[0] >= PART * pages).map(|(of, _)| *of).collect(),
    }
}

fn seconds(points: &[SpeedPoint]) -> f64 {
    points.iter().map(|point| point.seconds).sum()
}

fn mean(points: &[SpeedPoint]) -> Vec<f64> {
    let apps = points.first().map_or(0, |point| point.logs.len());
    (0..apps).map(|app| points.iter().map(|point| point.logs[app]).sum::<f64>() / points.len() as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::testing::{ViewBuilder, machine};
    use cotenant_model::{CpuId, CpuSet};

    /// A thread of node 0 now runs on node 1, and is faster by `gain` with its memory there: rounds until a step other
    /// than waiting, which `more` may end. Returns the nodes to which memory was ordered, and the result.
    fn follow(gain: f64, more: impl Fn(&PageTrial) -> bool) -> (PageTrial, Vec<NodeId>, Option<PageNext>) {
        let topology = machine(2, 1, 4, 1);
        let [home, places] = [0, 4].map(|cpu| ShapePlaces::from([(TaskId(1), CpuSet::single(CpuId(cpu)))]));
        let (mut trial, mut node, mut ordered) = (PageTrial::default(), 0, Vec::new());
        for round in 1..600 {
            let at = Time::from_millis(100 * round);
            let view = ViewBuilder::new(&topology).at(at).task(1, 0, 4).pages(&[(node, 100)]).view();
            let noise = if round % 2 == 0 { 0.001 } else { -0.001 };
            let point = SpeedPoint { at, seconds: 0.1, logs: vec![f64::from(node) * gain + noise] };
            match trial.add(
                &topology,
                [&home, &places],
                &view,
                Some(point),
                &[],
                |change| change[0],
                |_| vec![0.0],
                |_, gains| gains,
            ) {
                PageNext::Wait => {}
                PageNext::Move { orders, back } => {
                    node = u32::from(!back);
                    ordered.extend(nodes(&orders));
                }
                done @ PageNext::Done(..) => return (trial, ordered, Some(done)),
            }
            if !more(&trial) {
                ordered.extend(nodes(&trial.undo(&view)));
                return (trial, ordered, None);
            }
        }
        unreachable!("trials have an end")
    }

    fn nodes(orders: &[Proposal]) -> Vec<NodeId> {
        let to = |order: &Proposal| match &order.action {
            Action::Pages { nodes, .. } => nodes.clone(),
            other => panic!("{other:?}"),
        };
        orders.iter().flat_map(to).collect()
    }

    #[test]
    fn memory_stays_where_that_is_faster_and_else_goes_back() {
        let (trial, ordered, done) = follow(0.05, |_| true);
        let Some(PageNext::Done(changes, true)) = done else { panic!("{done:?}") };
        assert!((changes[0] - 0.05).abs() < 1e-3 && trial.cost < -0.05 * 2.5, "{changes:?} {}", trial.cost);
        assert_eq!(ordered, [NodeId(1)]);
        for gain in [0.005, -0.05] {
            let (trial, ordered, done) = follow(gain, |_| true);
            assert!(matches!(done, Some(PageNext::Done(_, false))), "{done:?}");
            assert_eq!(ordered, [NodeId(1), NodeId(0)]);
            // The measured part also counts as cost.
            assert!(trial.cost * gain < 0.0 && trial.cost.abs() > gain.abs() * 2.5, "{gain}: {}", trial.cost);
        }
    }

    #[test]
    fn memory_goes_back_where_its_trial_is_broken_off() {
        let broken = |step: fn(&PageTrial) -> bool| follow(-0.05, |trial| !step(trial)).1;
        assert_eq!(broken(|trial| trial.step == PageStep::Before), []);
        assert_eq!(broken(|trial| trial.step == PageStep::After), [NodeId(1), NodeId(0)]);
        assert_eq!(broken(|trial| trial.back && trial.step != PageStep::Ask), [NodeId(1), NodeId(0)], "not twice");
    }
}
