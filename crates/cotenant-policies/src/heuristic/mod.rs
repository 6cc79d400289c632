//! `heuristic`: thread-to-core mapping by a decision tree (Tang, ch. 4.1). See `docs/policies/heuristic.md`.
//!
//! P is the latency-sensitive application, C the other managed ones. The tree compares characteristics measured alone
//! ([`AppProfile`]), and decides whether P's threads share a memory path and a last-level cache, or spread.

mod layout;
#[cfg(test)]
mod tests;
mod tree;

pub use tree::{Leaf, Spread};

use super::plan::Plan;
use cotenant_model::policy::{Ctx, Needs, NoSettings, Policy, Refusal};
use cotenant_model::profile::AppProfile;
use cotenant_model::{ActionOutcome, AppId, CpuSet, Decision, PlaceKind, Reason, TaskId, TaskView, Time, View};
use layout::layout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tree::{Traits, tree};

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heuristic;

/// State of `heuristic`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeuristicState {
    leaf: Option<Leaf>,
    plan: Plan,
}

/// The tasks of P and of C with their characteristics.
struct Cast<'a> {
    p_app: AppId,
    p_tasks: Vec<&'a TaskView>,
    c_tasks: Vec<&'a TaskView>,
    p: Traits,
    c: Traits,
}

/// Finds P and C among the running applications; C's characteristics are means over its threads.
///
/// # Errors
/// A note on what is missing; `None` if P does not run.
fn cast<'a>(ctx: &Ctx<'_>, view: &'a View) -> Result<Cast<'a>, Option<String>> {
    let name = |app: AppId| view.app(app).map_or("", |a| a.name.as_str());
    let profile = |app: AppId| ctx.apps.get(name(app)).cloned().unwrap_or_default();
    let threads_of = |app: AppId| view.tasks.iter().filter(move |t| t.info.app == app);
    let mut sensitive =
        view.apps.iter().filter(|a| profile(a.id).latency_sensitive && threads_of(a.id).next().is_some());
    let p_app = sensitive.next().ok_or(None)?.id;
    let missing = |app: AppId, key: &str| {
        Some(format!("no decision: the profile of app '{}' lacks {key}; give it with --profiles", name(app)))
    };
    let traits = |app: AppId| -> Result<Traits, Option<String>> {
        let AppProfile { bus_per_ms, sharing, footprint_per_ms, .. } = profile(app);
        // The tree ignores C's sharing.
        let sharing = if app == p_app { sharing } else { Some(0.0) };
        Ok(Traits {
            bus: bus_per_ms.ok_or_else(|| missing(app, "bus_per_ms"))?,
            sharing: sharing.ok_or_else(|| missing(app, "sharing"))?,
            footprint: footprint_per_ms.ok_or_else(|| missing(app, "footprint_per_ms"))?,
        })
    };
    let p = traits(p_app)?;
    let mut c = Traits::default();
    let c_tasks: Vec<&TaskView> = view.tasks.iter().filter(|t| t.info.app != p_app).collect();
    for task in &c_tasks {
        let of_task = traits(task.info.app)?;
        c.bus += of_task.bus / c_tasks.len() as f64;
        c.footprint += of_task.footprint / c_tasks.len() as f64;
    }
    Ok(Cast { p_app, p_tasks: threads_of(p_app).collect(), c_tasks, p, c })
}

impl Policy for Heuristic {
    const SECTION: &'static str = "heuristic";
    type State = HeuristicState;
    type Settings = NoSettings;

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        let refuse = |why: &str, remedy: &str| Err(Refusal::new("heuristic", why, remedy));
        if ctx.machine.heuristic.is_none() {
            return refuse(
                "what counts as high sharing and as a high footprint on this machine is not known",
                "add [heuristic] with sharing and footprint_per_ms to its profile and name it with --profile",
            );
        }
        if !ctx.apps.values().any(|p| p.latency_sensitive) {
            return refuse(
                "no application is marked as the latency-sensitive one",
                "give profiles with --profiles FILE, one of them with latency_sensitive = true under [app.NAME]",
            );
        }
        // Only profiles of running co-runners matter.
        for (name, p) in ctx.apps.iter().filter(|(_, p)| p.latency_sensitive) {
            let lacking = match (p.bus_per_ms, p.footprint_per_ms, p.sharing) {
                (None, ..) => "bus_per_ms",
                (_, None, _) => "footprint_per_ms",
                (.., None) => "sharing",
                _ => continue,
            };
            return refuse(
                &format!("the profile of app '{name}' lacks {lacking}"),
                "measure it alone, and add it under [app.NAME] in the file of --profiles",
            );
        }
        Ok(())
    }

    fn needs(&self) -> Needs {
        Needs { task_changes: true, profiles: true, ..Needs::default() }
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        outcomes: &[ActionOutcome],
        mut state: HeuristicState,
        now: Time,
    ) -> Decision<HeuristicState> {
        state.plan.learn(ctx, view, outcomes, now);
        let mut notes = Vec::new();
        let mut reason = Reason::new("decision tree", "as decided before");
        match (cast(ctx, view), ctx.machine.heuristic) {
            (Ok(cast), Some(high)) => {
                let (leaf, evidence) = tree(cast.p, cast.c, high);
                reason.what = leaf.text().into();
                reason.evidence = Some(evidence);
                reason.app = Some(cast.p_app);
                let fits = state.leaf == Some(leaf) && state.plan.fits(ctx, view.tasks.iter());
                if !fits {
                    let (seats, holds) = layout(ctx, view, &cast.p_tasks, &cast.c_tasks, leaf, state.plan.wanted());
                    if !holds {
                        notes.push("this machine cannot hold the tree's choice of caches beside that of memory paths; the latter was kept".to_owned());
                    }
                    state.plan.set(view.tasks.iter().map(|t| t.info.id).collect(), seats);
                    state.leaf = Some(leaf);
                }
                if state.plan.wanted().len() < view.tasks.len() {
                    notes.push(
                        "some tasks may not run where the mapping has room; they are left where they are".to_owned(),
                    );
                }
            }
            (Err(Some(note)), _) => notes.push(note),
            // P does not run: nothing to protect.
            (Err(None), _) => {
                state.plan.set(Vec::new(), BTreeMap::new());
                notes.push("no decision: no latency-sensitive application runs".to_owned());
            }
            (_, None) => notes.push("no decision: the machine's profile has no [heuristic]".to_owned()),
        }
        let place = |task: TaskId| {
            let cpu = state.plan.wanted().get(&task).and_then(CpuSet::first);
            let domain = cpu.and_then(|cpu| ctx.topology.llc_of(cpu)).map(|i| (PlaceKind::LlcDomain, i as u32));
            Reason { place: domain, ..reason.clone() }
        };
        let proposals = state.plan.proposals(now, place);
        Decision::new(proposals, state, now + ctx.config.interval, notes)
    }
}
