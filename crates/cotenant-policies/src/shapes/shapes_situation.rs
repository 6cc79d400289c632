//! The current machine and applications in `shapes`: placed threads, applications with a speed, and how long these
//! programs have run together.

use super::learned_situation::{LearnedSituation, Survey, much_lighter, survey};
use super::shapes_round::ShapesRound;
use super::trial::TRACE;
use crate::atom::situation::Load;
use cotenant_model::speed::{self, Ladder};
use cotenant_model::stats::median::middle;
use cotenant_model::{AppId, TaskId, TaskView, Time, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Fruitless surveys after which further ones are rarer.
const UNHEARD: u32 = 20;
/// Limit of traces that correct a survey.
const RETRACED: u32 = 3;
/// Sets of programs that usually last for fewer seconds than this get no trials until one has lasted as long: results
/// would soon be obsolete, and starting programs would touch memory wherever a trial leaves room.
const LASTING: f64 = 60.0;
/// Number of last sets compared with that, from the second on.
const LIVES: std::ops::RangeInclusive<usize> = 2..=5;

/// The current machine and its applications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapesSituation {
    /// Fingerprint of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<u64>,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// Fruitless surveys in a row.
    fruitless: u32,
    /// Busy tasks and CPUs since this set of tasks began.
    load: Load,
    /// Placed threads in ascending order, each with its group.
    members: Vec<(TaskId, usize)>,
    /// Whether each thread runs much less than similar ones; decided once per thread, after a trace.
    weighed: BTreeMap<TaskId, bool>,
    /// Sources of each application's speed.
    ladders: BTreeMap<AppId, Ladder>,
    /// Applications that have stopped reporting: ignored until they report again.
    silent: BTreeSet<AppId>,
    /// Traces in a row that led to another survey.
    retraced: u32,
    /// Start of the current set of programs.
    since: Time,
    /// Durations of earlier sets of programs, seconds.
    lives: Vec<f64>,
}

/// Result of a survey.
pub(super) struct Surveyed {
    pub situation: LearnedSituation,
    /// Formerly placed threads.
    pub before: Vec<(TaskId, usize)>,
    /// Names of applications without a known speed.
    pub unmeasured: Vec<String>,
    /// Whether there are more groups of threads than the limit.
    pub has_dropped: bool,
}

impl ShapesSituation {
    /// Whether all of this belongs to another machine.
    pub fn is_of_another(&self, machine: u64) -> bool {
        self.machine.is_some_and(|known| known != machine)
    }

    pub fn set_machine(&mut self, machine: u64) {
        self.machine = Some(machine);
    }

    /// Tasks of the last round, ascending.
    pub fn tasks(&self) -> &[TaskId] {
        &self.tasks
    }

    /// Placed threads in ascending order, each with its group.
    pub fn members(&self) -> &[(TaskId, usize)] {
        &self.members
    }

    /// Updates the sources of speeds, which count only while no trial moves threads.
    pub fn listen(&mut self, view: &View, under_trial: bool) {
        if under_trial {
            self.ladders.values_mut().for_each(|ladder| ladder.cut(view.at));
            return;
        }
        self.ladders.retain(|id, _| view.app(*id).is_some());
        let speaks = |id: &AppId| view.app(*id).is_none_or(|app| speed::told(view, app).is_some());
        self.silent.retain(|id| !speaks(id));
        let tasks = view.by_app();
        for app in &view.apps {
            self.ladders.entry(app.id).or_default().add(view, app, tasks.of(app.id));
        }
    }

    /// Whether only unplaced tasks have exited; they are then dropped.
    pub fn loses_bystanders(&mut self, view: &View) -> bool {
        let loses = view.tasks.len() < self.tasks.len()
            && view.tasks.iter().all(|task| self.tasks.binary_search(&task.info.id).is_ok())
            && self.members.iter().all(|(task, _)| view.task(*task).is_some());
        if loses {
            self.take_tasks(view);
        }
        loses
    }

    /// Whether tasks have started or exited since the last round.
    pub fn has_changed(&self, view: &View) -> bool {
        !self.tasks.iter().eq(view.tasks.iter().map(|t| &t.info.id))
    }

    /// Observes the current tasks.
    pub fn take_tasks(&mut self, view: &View) {
        self.tasks = view.tasks.iter().map(|t| t.info.id).collect();
    }

    /// Restarts the observation: earlier load does not count.
    pub fn watch(&mut self) {
        self.retraced = 0;
        self.load = Load::default();
    }

    pub fn add_load(&mut self, view: &View) {
        self.load.add(view);
    }

    /// Whether all have been silent for long.
    pub fn is_fruitless(&self) -> bool {
        self.fruitless > UNHEARD
    }

    /// Surveys the threads and applications of the last rounds.
    ///
    /// # Errors
    /// The reason if there is nothing to learn.
    pub fn survey(&mut self, round: &ShapesRound<'_>) -> Result<Surveyed, &'static str> {
        let heard = self.ladders.iter().filter(|(id, _)| !self.silent.contains(id));
        let heard: BTreeMap<AppId, &Ladder> = heard.map(|(id, ladder)| (*id, ladder)).collect();
        let light = |task| self.weighed.get(&task) == Some(&true);
        let seen = survey(round.ctx, round.view, &self.load, &heard, light);
        self.fruitless = if seen.is_ok() { 0 } else { self.fruitless + 1 };
        let Survey { situation, members, unmeasured, has_dropped } = seen?;
        let before = std::mem::replace(&mut self.members, members);
        Ok(Surveyed { situation, before, unmeasured, has_dropped })
    }

    /// Whether the survey before the last one was also fruitless.
    pub fn is_fruitless_again(&self) -> bool {
        self.fruitless > 1
    }

    /// Ignores these applications until they report again.
    pub fn silence(&mut self, apps: Vec<AppId>) {
        self.silent.extend(apps);
    }

    /// Whether a trace shows more or other busy threads than the survey. Counts such cases.
    pub fn was_misjudged(&mut self, view: &View) -> bool {
        let misjudged = self.retraced < RETRACED && (self.weigh(view) || self.has_others(view));
        self.retraced += u32::from(misjudged);
        misjudged
    }

    /// Marks threads that run much less than similar ones, each thread once; returns whether there are any.
    fn weigh(&mut self, view: &View) -> bool {
        self.weighed.retain(|task, _| view.task(*task).is_some());
        let mut groups: BTreeMap<usize, Vec<(f64, TaskId)>> = BTreeMap::new();
        for &(task, group) in &self.members {
            let share = self.load.share(task).unwrap_or(1.0);
            groups.entry(group).or_default().push((share, task));
        }
        let mut any = false;
        for alike in groups.into_values() {
            if alike.iter().all(|(_, task)| self.weighed.contains_key(task)) {
                continue;
            }
            self.weighed.extend(alike.iter().map(|(_, task)| (*task, false)));
            let light = much_lighter(alike);
            any |= !light.is_empty();
            self.weighed.extend(light.into_iter().map(|task| (task, true)));
        }
        any
    }

    /// Whether unplaced threads are active.
    fn has_others(&self, view: &View) -> bool {
        let active = |task: &&TaskView| self.load.is_active(task.info.id) == Some(true);
        let mut now = view.tasks.iter().filter(active).map(|task| task.info.id);
        now.any(|task| self.members.binary_search_by_key(&task, |member| member.0).is_err())
    }

    /// Starts another set of programs, unless a trace has only corrected the survey. `replaces`: there was one before.
    pub fn begin(&mut self, now: Time, replaces: bool) {
        if self.retraced > 0 {
            return;
        }
        if replaces {
            self.lives = self.lived(now);
        }
        self.since = now;
    }

    /// Seconds of the last sets of programs, including the current one if it ended at this time.
    fn lived(&self, now: Time) -> Vec<f64> {
        let last = (now - self.since).as_secs_f64();
        // A set that ends before its trace allows no trial.
        let lives = self.lives.iter().copied().chain((last > TRACE[0]).then_some(last));
        let lives: Vec<f64> = lives.collect();
        lives[lives.len().saturating_sub(*LIVES.end())..].to_vec()
    }

    /// Whether sets of programs are short-lived, including the current one if it ended at this time.
    pub fn is_passing(&self, now: Time) -> bool {
        are_brief(&self.lived(now))
    }

    /// The earliest time of a trial with this set of programs.
    pub fn lasts_from(&self) -> Time {
        let wait = if are_brief(&self.lives) { LASTING } else { 0.0 };
        self.since + Duration::from_secs_f64(wait)
    }
}

/// Whether sets of programs with these durations are short-lived.
fn are_brief(lives: &[f64]) -> bool {
    lives.len() >= *LIVES.start() && middle(lives).value < LASTING
}
