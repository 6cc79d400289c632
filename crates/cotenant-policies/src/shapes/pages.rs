//! A trial of its own: whether memory is to follow the threads that were moved. It cannot be held against the one
//! before again and again, since copying costs more than windows tell; so it is before against after.

use super::shape::Places;
use super::trial::{Point, lead};
use cotenant_model::stats::Summary;
use cotenant_model::{Action, AppId, NodeId, Proposal, Reason, TaskId, Time, Topology, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Seconds before and after.
const MEASURED: f64 = 2.5;
/// Memory that does not change for so many seconds has arrived.
const QUIET: f64 = 0.5;
/// Seconds that are waited for it at most.
const LONGEST: f64 = 60.0;
/// The least gain that is worth it: half of memory that was moved in vain cannot be told where it was.
const LEAST: f64 = 0.01;
/// Shares of memory and of threads that differ by less are alike.
const ALIKE: f64 = 0.15;
/// A node without this part of a program's memory is not where it came from.
const PART: f64 = 0.1;

/// Memory on trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PageTrial {
    before: Vec<Point>,
    after: Vec<Point>,
    step: Step,
    /// Where each task's memory was.
    from: BTreeMap<TaskId, Vec<NodeId>>,
    /// Pages by node of all tasks, and since when they are so.
    seen: Vec<u64>,
    /// Whether it is on its way back.
    back: bool,
    /// Seconds since it began.
    seconds: f64,
    /// Seconds of the speed before that it has cost.
    pub cost: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    #[default]
    Before,
    Ask,
    Moves {
        asked: Time,
        still: Time,
    },
    After,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// More rounds.
    Wait,
    /// These orders, and whether they bring it back.
    Move { orders: Vec<Proposal>, back: bool },
    /// It is over: the change of each application's logarithm, and whether the memory stays where it is now.
    Done(Vec<f64>, bool),
}

impl PageTrial {
    /// Takes a round, in which a point may have been completed. `worth` is of a change of logarithms.
    pub fn add(
        &mut self,
        topology: &Topology,
        [home, places]: [&Places; 2],
        view: &View,
        point: Option<Point>,
        worth: impl Fn(&[f64]) -> f64,
        refused: impl Fn(&[f64]) -> bool,
    ) -> Next {
        let now = view.at;
        // Nothing that can be had takes so long: a placement is refused, or memory is on its way for ever.
        self.seconds += view.interval.as_secs_f64();
        if self.seconds > 4.0 * LONGEST {
            return Next::Done(vec![0.0; self.before.first().map_or(0, |point| point.logs.len())], false);
        }
        match self.step {
            Step::Before => {
                self.before.extend(point);
                if seconds(&self.before) >= MEASURED && self.before.len() >= 4 {
                    self.step = Step::Ask;
                }
                Next::Wait
            }
            Step::Ask => {
                let node = |places: &Places, task: TaskId| {
                    let cpu = places.get(&task)?.first()?;
                    Some(topology.nodes()[topology.node_of(cpu)?].id)
                };
                let mut orders = Vec::new();
                for &task in places.keys() {
                    let Some(t) = view.task(task) else { continue };
                    if !self.back {
                        self.from.insert(task, origin(view, t.info.app, task, |task| node(home, task)));
                    }
                    let to = || node(places, task).into_iter().collect();
                    let nodes = if self.back { self.from.get(&task).cloned().unwrap_or_default() } else { to() };
                    let what =
                        if self.back { "its memory goes back, since that was faster" } else { "its memory follows it" };
                    if !nodes.is_empty() {
                        let reason = Reason::new("shapes", what);
                        orders.push(Proposal { action: Action::Pages { task, nodes }, reason });
                    }
                }
                self.step = Step::Moves { asked: now, still: now };
                self.seen.clear();
                Next::Move { orders, back: self.back }
            }
            Step::Moves { asked, still } => {
                self.charge(point.as_ref(), &worth);
                let pages: Vec<u64> = view
                    .tasks
                    .iter()
                    .filter(|t| places.contains_key(&t.info.id))
                    .flat_map(|t| t.pages_by_node.iter().flatten().map(|(_, n)| *n))
                    .collect();
                let still = if pages == self.seen { still } else { now };
                self.seen = pages;
                self.step = Step::Moves { asked, still };
                if (now - still).as_secs_f64() >= QUIET || (now - asked).as_secs_f64() > LONGEST {
                    if self.back {
                        return Next::Done(vec![0.0; self.before.first().map_or(0, |p| p.logs.len())], false);
                    }
                    self.step = Step::After;
                }
                Next::Wait
            }
            Step::After => {
                self.after.extend(point);
                if seconds(&self.after) < MEASURED || self.after.len() < 4 {
                    return Next::Wait;
                }
                let changes = self.changes();
                // Both sides vary as readings do; what lasts longer than a reading is in them, too.
                let spread = |points: &[Point]| {
                    let leads = points.iter().map(|point| worth(&lead(&point.logs, &self.before[0].logs)));
                    Summary::of(&leads.collect::<Vec<_>>()).variance
                };
                // Of readings half a second apart one tells as much as all between.
                let independent = MEASURED / 0.5;
                let error = ((spread(&self.before) + spread(&self.after)) / independent).sqrt();
                if worth(&changes) > (3.0 * error).max(LEAST) && !refused(&changes) {
                    return Next::Done(changes, true);
                }
                (self.back, self.step) = (true, Step::Ask);
                Next::Wait
            }
        }
    }

    fn charge(&mut self, point: Option<&Point>, worth: &impl Fn(&[f64]) -> f64) {
        if let (Some(point), Some(_)) = (point, self.before.first()) {
            self.cost -= worth(&lead(&point.logs, &mean(&self.before))) * point.seconds;
        }
    }

    fn changes(&self) -> Vec<f64> {
        lead(&mean(&self.after), &mean(&self.before))
    }
}

/// Where a task's memory is to come back to. Only the process' is known: if its threads stand on nodes as its memory
/// lies, each has its own where it stands; else the nodes that hold a part of it.
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

fn seconds(points: &[Point]) -> f64 {
    points.iter().map(|point| point.seconds).sum()
}

fn mean(points: &[Point]) -> Vec<f64> {
    let apps = points.first().map_or(0, |point| point.logs.len());
    (0..apps).map(|app| points.iter().map(|point| point.logs[app]).sum::<f64>() / points.len() as f64).collect()
}
