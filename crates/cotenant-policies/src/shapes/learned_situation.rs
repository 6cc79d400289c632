//! The subject of shapes: groups of equivalent threads, and the sources of their applications' speed.

use super::settings::KnownGroup;
use super::shape::GROUPS;
use super::shape_board::ShapeBoard;
use crate::atom::situation::{Load, is_sensitive, look, page_labels};
use cotenant_model::policy::Ctx;
use cotenant_model::speed::{Ladder, Source};
use cotenant_model::{AppId, AppView, CpuSet, TaskId, View};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Threads of one name form two groups if some run this many times as long as the others.
const APART: f64 = 3.0;

/// Interchangeable threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ThreadGroup {
    pub app: AppId,
    /// For people: the application's name, with the threads' name if it has several groups.
    pub name: String,
    /// The threads' name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Their allowed CPUs.
    pub on: CpuSet,
    pub threads: usize,
}

/// What is learned applies to one situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LearnedSituation {
    pub groups: Vec<ThreadGroup>,
    /// For the applications whose speed counts.
    pub measures: BTreeMap<AppId, Source>,
    /// The one of these whose profile marks it as latency-sensitive.
    favoured: Option<AppId>,
    /// Per memory node of the topology: the owners of its pages at the start.
    labels: Vec<u64>,
}

/// Observations of a situation.
pub(super) struct Survey {
    pub situation: LearnedSituation,
    /// Placed threads in ascending order, each with its group.
    pub members: Vec<(TaskId, usize)>,
    /// Names of applications without a known speed.
    pub unmeasured: Vec<String>,
    /// Whether there are more groups of threads than the limit.
    pub has_dropped: bool,
}

/// The situation according to the last rounds.
///
/// # Errors
/// The reason if there is nothing to learn.
pub(super) fn survey(
    ctx: &Ctx<'_>,
    view: &View,
    load: &Load,
    ladders: &BTreeMap<AppId, &Ladder>,
    light: impl Fn(TaskId) -> bool,
) -> Result<Survey, &'static str> {
    let told = |app: &AppView| ladders.get(&app.id).and_then(|ladder| ladder.best()).map(|(source, _)| source.clone());
    let seen = look(ctx, view, load, told)?;
    let labels = page_labels(ctx, view, &seen.situation.groups);
    let name = |app: AppId| view.app(app).map_or_else(|| app.to_string(), |app| app.name.clone());
    let mut found: BTreeMap<(usize, String, bool), Vec<TaskId>> = BTreeMap::new();
    for &(task, group) in seen.members.iter().filter(|(_, group)| *group < seen.situation.groups.len()) {
        let comm = view.task(task).map_or("", |t| t.info.comm.as_str());
        found.entry((group, stem(comm).to_owned(), light(task))).or_default().push(task);
    }
    // Load and names split groups only up to the limit.
    for by_name in [true, false] {
        if found.len() > GROUPS {
            for ((group, name, _), tasks) in std::mem::take(&mut found) {
                found.entry((group, if by_name { name } else { String::new() }, false)).or_default().extend(tasks);
            }
        }
    }
    let mut largest: Vec<_> = found.into_iter().collect();
    largest.sort_by_key(|((group, comm, light), tasks)| (Reverse(tasks.len()), *group, comm.clone(), *light));
    let has_dropped = largest.len() > GROUPS;
    largest.truncate(GROUPS);
    largest.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut groups, mut members) = (Vec::new(), Vec::new());
    for ((of, comm, light), tasks) in &largest {
        let whole = &seen.situation.groups[*of];
        let several = largest.iter().filter(|((other, ..), _)| seen.situation.groups[*other].app == whole.app).count();
        let app = name(whole.app);
        let part = [comm.as_str(), if *light { "light" } else { "" }].join(" ");
        let part = if several > 1 { part.trim().to_owned() } else { String::new() };
        let name = if part.is_empty() { app } else { format!("{app}/{part}") };
        members.extend(tasks.iter().map(|task| (*task, groups.len())));
        groups.push(ThreadGroup { app: whole.app, name, part, on: whole.on.clone(), threads: tasks.len() });
    }
    members.sort_unstable();
    let label = |node: &cotenant_model::topology::MemoryNode| labels.nodes.get(&node.id).copied().unwrap_or(0);
    let labels = ctx.topology.nodes().iter().map(label).collect();
    let measures = seen.situation.measures;
    let favoured = measures.keys().copied().find(|id| is_sensitive(ctx, view, *id));
    let situation = LearnedSituation { groups, measures, favoured, labels };
    Ok(Survey { situation, members, unmeasured: seen.silent, has_dropped })
}

/// Of similar threads, given by their run times, those that run much less than the rest with a gap in between. Empty
/// without such.
pub(super) fn much_lighter(mut alike: Vec<(f64, TaskId)>) -> Vec<TaskId> {
    alike.sort_by(|a, b| a.0.total_cmp(&b.0));
    let gap = (1..alike.len()).rev().find(|&i| alike[i].0 >= APART * alike[i - 1].0);
    alike.drain(..gap.unwrap_or(0)).map(|(_, task)| task).collect()
}

/// A thread's name without the number at its end: `worker-12` and `worker-3` are similar.
fn stem(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '_', '/', ':', '#', ' '])
}

impl LearnedSituation {
    /// The machine as the groups may use it.
    pub fn board(&self, ctx: &Ctx<'_>) -> ShapeBoard {
        let cpus = self.groups.iter().fold(CpuSet::new(), |all, group| all.or(&group.on));
        ShapeBoard::new(ctx.topology, &cpus, |node| self.labels.get(node).copied().unwrap_or(0))
    }

    /// The index of the prioritized application among those whose speed counts.
    pub fn favoured(&self) -> Option<usize> {
        self.measures.keys().position(|id| Some(*id) == self.favoured)
    }

    /// The index of the application of this name among those whose speed counts.
    pub fn measured(&self, view: &View, name: &str) -> Option<usize> {
        self.measures.keys().position(|id| view.app(*id).is_some_and(|app| app.name == name))
    }

    /// Allowed CPUs of each group.
    pub fn allowed(&self) -> Vec<CpuSet> {
        self.groups.iter().map(|group| group.on.clone()).collect()
    }

    /// Threads of each group.
    pub fn threads(&self) -> Vec<usize> {
        self.groups.iter().map(|group| group.threads).collect()
    }

    /// The parts that a later run of the same programs shares: names and threads of the groups.
    pub fn described(&self) -> Vec<KnownGroup> {
        let known = |ThreadGroup { name, part, threads, .. }: &ThreadGroup| {
            let app =
                name.strip_suffix(part.as_str()).and_then(|app| app.strip_suffix('/')).filter(|_| !part.is_empty());
            KnownGroup { app: app.unwrap_or(name).to_owned(), part: part.clone(), threads: *threads }
        };
        self.groups.iter().map(known).collect()
    }

    /// Names of the groups.
    pub fn names(&self) -> Vec<String> {
        self.groups.iter().map(|group| group.name.clone()).collect()
    }

    /// Whether it is the same except for the place of pages.
    pub fn is_like(&self, other: &Self) -> bool {
        self.groups == other.groups && self.measures == other.measures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds place/guard.
    #[test]
    fn a_thread_that_runs_much_less_than_like_ones_is_another_group() {
        let light = |shares: &[f64]| -> Vec<u32> {
            let alike = shares.iter().zip(0..).map(|(share, task)| (*share, TaskId(task))).collect();
            much_lighter(alike).into_iter().map(|task| task.0).collect()
        };
        assert_eq!(light(&[0.9, 0.2, 1.0, 0.25]), [1, 3]);
        assert_eq!(light(&[0.9, 0.4, 0.2, 1.0]), [0; 0], "between them is one");
        assert_eq!((light(&[]), light(&[0.5])), (vec![], vec![]));
    }
}
