//! `resense`: threads of dynamic applications, mapped by the sensitivity of each to sharing each resource with itself
//! (Dey, Wang, Davidson, Soffa: "`ReSense`: Mapping Dynamic Workloads of Colocated Multithreaded Applications Using
//! Resource Sensitivity", TACO 2013). `docs/policies/resense.md` separates the paper's rules from ours.

mod resensor;
#[cfg(test)]
mod tests;

pub use resensor::{Resense, ResenseSettings};

use super::plan::{Plan, free_for};
use cotenant_model::policy::{Ctx, Needs, Policy};
use cotenant_model::topology::shared::{Level, levels};
use cotenant_model::{ActionOutcome, AppView, CpuSet, Decision, PlaceKind, Reason, TaskId, TaskView, Time, View};
use resensor::{App, Seat, Step, Thread};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// State of `resense`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResenseState {
    plan: Plan,
    /// The reason of each task's place.
    why: BTreeMap<TaskId, String>,
}

/// Levels with a choice: only there can scores differ in their effect.
fn choices(ctx: &Ctx<'_>) -> Vec<Level> {
    let mut levels = levels(ctx.topology, ctx.topology.usable());
    levels.retain(|level| level.instances.len() > 1);
    levels
}

/// The scores of an application at these levels.
fn scores(ctx: &Ctx<'_>, app: &AppView, levels: &[Level]) -> Vec<Option<f64>> {
    let profile = ctx.apps.get(&app.name);
    let score = |level: &Level| level.names().find_map(|name| profile?.score([name.as_str()]));
    levels.iter().map(score).collect()
}

/// The new mapping. Empty if no application has a score: then Linux does as well.
fn map(
    policy: Resense,
    ctx: &Ctx<'_>,
    view: &View,
    levels: &[Level],
    before: &BTreeMap<TaskId, CpuSet>,
    notes: &mut Vec<String>,
) -> BTreeMap<TaskId, Seat> {
    let tasks: Vec<&TaskView> = view.tasks.iter().collect();
    let free = free_for(ctx, view, &tasks, before);
    let home = |t: &TaskView| before.get(&t.info.id).filter(|set| set.len() == 1).and_then(CpuSet::first).or(t.cpu);
    let thread = |t: &TaskView| Thread { task: t.info.id, allowed: t.info.allowed.and(&free), home: home(t) };
    let threads_of = |app: &AppView| {
        let own = view.tasks.iter().filter(|t| t.info.app == app.id).map(thread);
        own.filter(|t| !t.allowed.is_empty()).collect::<Vec<_>>()
    };
    let apps: Vec<App> = view
        .apps
        .iter()
        .map(|app| App { id: app.id, scores: scores(ctx, app, levels), threads: threads_of(app) })
        .filter(|app| !app.threads.is_empty())
        .collect();
    let known = |app: &&App| app.scores.iter().any(Option::is_some);
    for app in apps.iter().filter(|app| !known(app)) {
        let name = view.app(app.id).map_or("", |a| a.name.as_str());
        notes.push(format!(
            "nothing is known of the sensitivity of '{name}', it gets any free core; `cotenant characterize` measures it"
        ));
    }
    if !apps.iter().any(|app| app.scores.iter().flatten().any(|score| *score != 0.0)) {
        return BTreeMap::new();
    }
    resensor::map(ctx.topology, levels, &apps, &free, policy)
}

/// The reason of a place, in the terms of the algorithm.
fn why(seat: &Seat, levels: &[Level]) -> String {
    let mut text = String::new();
    for Step { level, case, score, how, lead } in &seat.steps {
        let _ = write!(text, "{}, case {case}: ", levels[*level].name());
        let _ = match (lead, score) {
            (Some(lead), _) => write!(text, "with app {lead}, the more sensitive, "),
            (None, Some(score)) => write!(text, "score {score:+.1}, "),
            (None, None) => write!(text, "no score, "),
        };
        let _ = write!(text, "{how}; ");
    }
    text + "to {place}"
}

impl Policy for Resense {
    const SECTION: &'static str = "resense";
    type State = ResenseState;
    type Settings = ResenseSettings;

    fn name(&self) -> &'static str {
        if self.sum { "resense-sum" } else { "resense" }
    }

    fn needs(&self) -> Needs {
        Needs { task_changes: true, profiles: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: ResenseState,
        now: Time,
    ) -> Decision<ResenseState> {
        state.plan.learn(ctx, view, outcomes, now);
        let mut notes = Vec::new();
        if !state.plan.fits(ctx, view.tasks.iter()) {
            let levels = choices(ctx);
            let seats = map(*self, ctx, view, &levels, state.plan.wanted(), &mut notes);
            if levels.is_empty() {
                notes.push(
                    "this machine has one of each resource that cores share: there is nothing to choose".to_owned(),
                );
            } else if !seats.is_empty() && seats.len() < view.tasks.len() {
                notes.push("some tasks may not run where cores are free; they are left where they are".to_owned());
            }
            state.why = seats.iter().map(|(task, seat)| (*task, why(seat, &levels))).collect();
            let members: BTreeSet<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
            let wanted = seats.into_iter().map(|(task, seat)| (task, seat.contexts)).collect();
            state.plan.set(members.into_iter().collect(), wanted);
        }
        let reason = |task: TaskId| {
            let cpu = state.plan.wanted().get(&task).and_then(CpuSet::first);
            let place = cpu.and_then(|cpu| ctx.topology.llc_of(cpu)).map(|i| (PlaceKind::LlcDomain, i as u32));
            let what = state.why.get(&task).cloned().unwrap_or_default();
            Reason { what: what.into(), place, ..Reason::new("ReSensor", "") }
        };
        let proposals = state.plan.proposals(now, reason);
        Decision::new(proposals, state, now + ctx.config.interval, notes)
    }
}
