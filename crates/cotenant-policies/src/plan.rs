//! Shared by policies with a fixed mapping: free CPUs, the mapping, its outcome, and repeated requests.

use cotenant_model::policy::Ctx;
use cotenant_model::{
    Action, ActionOutcome, CpuId, CpuSet, Effect, Outcome, Proposal, Reason, TaskId, TaskView, Time, View,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The first wait after a refusal, in intervals; it doubles each time, up to [`LONGEST_WAIT`].
const FIRST_WAIT: u32 = 10;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A mapping and its outcome. A placement is requested until it is applied, and counts only then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Tasks of the mapping, in ascending order, including those without a place.
    members: Vec<TaskId>,
    /// Target contexts of each task.
    wanted: BTreeMap<TaskId, CpuSet>,
    /// Applied contexts of each task.
    placed: BTreeMap<TaskId, CpuSet>,
    /// Tasks with refused placements.
    refused: BTreeMap<TaskId, Retry>,
    /// Allowed CPUs of each task in the last round. A change means a new mask or cpuset from outside, which invalidates
    /// the placement.
    #[serde(default)]
    allowed: BTreeMap<TaskId, CpuSet>,
    /// The mapping was made for other [`Self::allowed`].
    #[serde(default)]
    outdated: bool,
    /// All targets are applied: no requests remain.
    settled: bool,
}

/// Time of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Retry {
    at: Time,
    wait: Duration,
}

impl Plan {
    /// Records the outcomes of the last proposals, and drops ended tasks.
    pub(super) fn learn(&mut self, ctx: &Ctx<'_>, view: &View, outcomes: &[ActionOutcome], now: Time) {
        for ActionOutcome { action, outcome } in outcomes {
            let Some(task) = action.task().filter(|_| action.effect() == Effect::Placement) else { continue };
            match (outcome, action) {
                (Outcome::Applied, Action::Place { contexts, .. }) => {
                    self.placed.insert(task, contexts.clone());
                    self.refused.remove(&task);
                }
                (Outcome::Applied, Action::Release { .. }) => {
                    self.placed.remove(&task);
                    self.refused.remove(&task);
                }
                (Outcome::Denied | Outcome::Stale, _) => {
                    self.placed.remove(&task);
                    let wait = match self.refused.get(&task) {
                        Some(retry) => (retry.wait * 2).min(LONGEST_WAIT),
                        None => ctx.config.interval * FIRST_WAIT,
                    };
                    self.refused.insert(task, Retry { at: now + wait, wait });
                }
                // Waiting tasks are not part of the mapping.
                (Outcome::Applied | Outcome::Gone | Outcome::NotThisMachine, _) => {}
            }
        }
        if !outcomes.is_empty() {
            self.settled = self.placed == self.wanted;
        }
        if !self.allowed.iter().eq(view.tasks.iter().map(|t| (&t.info.id, &t.info.allowed))) {
            for task in &view.tasks {
                let (id, allowed) = (task.info.id, &task.info.allowed);
                if self.allowed.get(&id).is_some_and(|before| before != allowed) {
                    self.placed.remove(&id);
                    (self.settled, self.outdated) = (false, true);
                }
            }
            self.allowed = view.tasks.iter().map(|t| (t.info.id, t.info.allowed.clone())).collect();
        }
        if self.settled && self.members.iter().eq(view.tasks.iter().map(|t| &t.info.id)) {
            return; // the set of tasks is unchanged since the mapping
        }
        let here = |id: &TaskId| view.task(*id).is_some();
        self.wanted.retain(|id, _| here(id));
        self.placed.retain(|id, _| here(id));
        self.refused.retain(|id, _| here(id));
    }

    /// Whether the mapping was made for exactly these tasks and allowed CPUs, and each may still run in its place.
    pub(super) fn fits<'a>(&self, ctx: &Ctx<'_>, tasks: impl Iterator<Item = &'a TaskView>) -> bool {
        let mut members = self.members.iter();
        let mut wanted = self.wanted.iter().peekable();
        let mut all = tasks.map(|t| {
            let id = &t.info.id;
            let within = |c: &CpuSet| c.is_subset(&t.info.allowed) && c.is_subset(ctx.topology.usable());
            members.next() == Some(id) && wanted.next_if(|(wanted, _)| *wanted == id).is_none_or(|(_, c)| within(c))
        });
        !self.outdated && all.all(|same| same) && {
            drop(all);
            members.next().is_none()
        }
    }

    /// Target contexts of each task.
    pub(super) fn wanted(&self) -> &BTreeMap<TaskId, CpuSet> {
        &self.wanted
    }

    /// Whether any task has a place.
    pub(super) fn has_placed(&self) -> bool {
        !self.placed.is_empty()
    }

    /// Whether all targets are applied.
    pub(super) fn stands(&self) -> bool {
        self.settled || self.placed == self.wanted
    }

    /// Replaces the mapping. `members` are all considered tasks, in ascending order.
    pub(super) fn set(&mut self, members: Vec<TaskId>, wanted: BTreeMap<TaskId, CpuSet>) {
        self.members = members;
        self.wanted = wanted;
        (self.settled, self.outdated) = (false, false);
    }

    /// Remaining actions: places not yet applied, and releases of tasks that have none any more. `why` gives each
    /// reason.
    pub(super) fn proposals(&self, now: Time, why: impl Fn(TaskId) -> Reason) -> Vec<Proposal> {
        if self.settled {
            return Vec::new();
        }
        let due = |task: &TaskId| self.refused.get(task).is_none_or(|retry| retry.at <= now);
        let places = self.wanted.iter().filter(|(task, contexts)| self.placed.get(task) != Some(contexts) && due(task));
        let releases = self.placed.keys().filter(|task| !self.wanted.contains_key(task) && due(task));
        let places = places.map(|(&task, contexts)| Proposal {
            action: Action::Place { task, contexts: contexts.clone() },
            reason: why(task),
        });
        let releases = releases.map(|&task| Proposal {
            action: Action::Release { task },
            reason: Reason::new("release", "the mapping has no place for it any more"),
        });
        places.chain(releases).collect()
    }
}

/// Contexts allowed for some of the tasks and free of foreign work; busy ones are included if the free ones are too
/// few.
pub(super) fn free_for(ctx: &Ctx<'_>, view: &View, tasks: &[&TaskView], before: &BTreeMap<TaskId, CpuSet>) -> CpuSet {
    let allowed = tasks.iter().fold(CpuSet::new(), |all, t| all.or(&t.info.allowed)).and(ctx.topology.usable());
    // A task without rates looks like foreign work.
    let unexplained: CpuSet = view.tasks.iter().filter(|t| t.cpu_share().is_none()).filter_map(|t| t.cpu).collect();
    let ours = before.values().fold(unexplained, |all, set| all.or(set));
    let foreign =
        |cpu: CpuId| view.cpu(cpu).is_some_and(|c| c.foreign > ctx.config.foreign_busy) && !ours.contains(cpu);
    let quiet: CpuSet = allowed.iter().filter(|&cpu| !foreign(cpu)).collect();
    if quiet.len() >= tasks.len() { quiet } else { allowed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::policy::Config;
    use cotenant_model::profile::MachineProfile;
    use cotenant_model::testing::{ViewBuilder, machine};

    const REASON: fn(TaskId) -> Reason = |_| Reason::new("test", "test");

    #[test]
    fn asks_until_applied_and_waits_after_a_refusal() {
        let t = machine(1, 1, 4, 1);
        let (m, a, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
        let ctx = Ctx { topology: &t, machine: &m, apps: &a, config: &config };
        let view = ViewBuilder::new(&t).task(1, 0, 0).task(2, 0, 1).view();
        let at = Time::from_millis;
        let mut plan = Plan::default();
        let to = |cpu| CpuSet::single(CpuId(cpu));
        plan.set(vec![TaskId(1), TaskId(2)], BTreeMap::from([(TaskId(1), to(2)), (TaskId(2), to(3))]));
        let asked = |plan: &Plan, now| {
            plan.proposals(now, REASON).iter().map(|p| p.action.task().unwrap().0).collect::<Vec<_>>()
        };
        let outcome = |task, cpu, outcome| ActionOutcome {
            action: Action::Place { task: TaskId(task), contexts: to(cpu) },
            outcome,
        };

        assert_eq!(asked(&plan, at(100)), [1, 2]);
        plan.learn(&ctx, &view, &[], at(200));
        assert_eq!(asked(&plan, at(200)), [1, 2], "nobody said that it was done");
        plan.learn(&ctx, &view, &[outcome(1, 2, Outcome::Applied), outcome(2, 3, Outcome::Denied)], at(300));
        assert_eq!(asked(&plan, at(1_299)), [0u32; 0], "one done, one waits for ten intervals");
        assert_eq!(asked(&plan, at(1_300)), [2]);
        plan.learn(&ctx, &view, &[outcome(2, 3, Outcome::Stale)], at(1_400));
        assert_eq!((asked(&plan, at(3_399)), asked(&plan, at(3_400))), (vec![], vec![2]), "twice as long");

        plan.set(vec![TaskId(1), TaskId(2)], BTreeMap::new());
        assert_eq!(plan.proposals(at(500), REASON)[0].action, Action::Release { task: TaskId(1) });
        plan.learn(&ctx, &ViewBuilder::new(&t).view(), &[], at(600));
        assert_eq!(plan.proposals(at(9_000), REASON), [], "gone");
    }

    /// Holds undo/allowed-cpus.
    #[test]
    fn asks_again_where_others_changed_what_is_allowed() {
        let t = machine(1, 1, 4, 1);
        let (m, a, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
        let ctx = Ctx { topology: &t, machine: &m, apps: &a, config: &config };
        let contexts = CpuSet::single(CpuId(2));
        let place = Action::Place { task: TaskId(1), contexts: contexts.clone() };
        let applied = [ActionOutcome { action: place, outcome: Outcome::Applied }];
        let mut plan = Plan::default();
        plan.set(vec![TaskId(1)], BTreeMap::from([(TaskId(1), contexts)]));
        let now = Time::from_millis(100);
        plan.learn(&ctx, &ViewBuilder::new(&t).task(1, 0, 0).view(), &applied, now);
        assert_eq!(plan.proposals(now, REASON), []);
        let view = ViewBuilder::new(&t).task(1, 0, 0).allowed("2-3").view();
        plan.learn(&ctx, &view, &[], now);
        assert_eq!(plan.proposals(now, REASON).len(), 1, "its mask is 2-3 now");
        assert!(!plan.fits(&ctx, view.tasks.iter()), "there may be a better place now");
        plan.learn(&ctx, &view, &applied, now);
        assert_eq!(plan.proposals(now, REASON), []);
    }

    #[test]
    fn fits_the_tasks_that_it_was_made_for() {
        let t = machine(1, 1, 4, 1);
        let (m, a, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
        let ctx = Ctx { topology: &t, machine: &m, apps: &a, config: &config };
        let mut plan = Plan::default();
        plan.set(vec![TaskId(1)], BTreeMap::from([(TaskId(1), CpuSet::single(CpuId(2)))]));
        let fits = |b: ViewBuilder| plan.fits(&ctx, b.view().tasks.iter());
        let one = || ViewBuilder::new(&t).task(1, 0, 0);
        assert!(fits(one()));
        assert!(!fits(one().task(2, 0, 1)) && !fits(ViewBuilder::new(&t)) && !fits(ViewBuilder::new(&t).task(3, 0, 0)));
        assert!(!fits(one().allowed("0-1")), "it may no longer run there");
    }
}
