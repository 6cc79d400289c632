//! What `shapes` knows of the machine and its applications now: which threads take part, which applications report a
//! speed, how long these programs have been together.

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

/// Fruitless surveys after which the next ones come less often.
const UNHEARD: u32 = 20;
/// Traces that may show that other threads are busy than it seemed.
const RETRACED: u32 = 3;
/// Where sets of programs are mostly together for fewer seconds than this, nothing is tried until one set has lasted
/// as long. Findings would soon be worth nothing, and programs that start meanwhile would touch memory where a trial
/// leaves room.
const LASTING: f64 = 60.0;
/// So many of the last sets are compared with that, from the second on.
const LIVES: std::ops::RangeInclusive<usize> = 2..=5;

/// The present of the machine and its applications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ShapesSituation {
    /// Fingerprint of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<u64>,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// How many surveys in a row found nothing to learn.
    fruitless: u32,
    /// Which tasks and CPUs were busy since this set of tasks is watched.
    load: Load,
    /// Threads that take part, ascending, each with its group.
    members: Vec<(TaskId, usize)>,
    /// Whether each thread runs much less than similar ones; decided once per thread, after a trace.
    weighed: BTreeMap<TaskId, bool>,
    /// Sources of each application's speed.
    ladders: BTreeMap<AppId, Ladder>,
    /// Applications that have stopped reporting: they do not count until they report again.
    silent: BTreeSet<AppId>,
    /// How many traces in a row led to another survey.
    retraced: u32,
    /// Since when these programs are together.
    since: Time,
    /// For how many seconds the sets of programs before them were together.
    lives: Vec<f64>,
}

/// What a survey has found.
pub(super) struct Surveyed {
    pub situation: LearnedSituation,
    /// Threads that took part before.
    pub before: Vec<(TaskId, usize)>,
    /// Names of applications without any speed.
    pub unmeasured: Vec<String>,
    /// Whether there are more groups of threads than can be placed.
    pub has_dropped: bool,
}

impl ShapesSituation {
    /// Whether all of this is about another machine.
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

    /// Threads that take part, ascending, each with its group.
    pub fn members(&self) -> &[(TaskId, usize)] {
        &self.members
    }

    /// Follows the sources of speeds, which count only while no trial moves threads.
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

    /// Whether tasks have exited that took no part, and nothing else has changed; they are forgotten.
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

    /// Watches the tasks that there are now.
    pub fn take_tasks(&mut self, view: &View) {
        self.tasks = view.tasks.iter().map(|t| t.info.id).collect();
    }

    /// Begins to watch: load from before does not count.
    pub fn watch(&mut self) {
        self.retraced = 0;
        self.load = Load::default();
    }

    pub fn add_load(&mut self, view: &View) {
        self.load.add(view);
    }

    /// Whether nothing has reported a speed for long.
    pub fn is_fruitless(&self) -> bool {
        self.fruitless > UNHEARD
    }

    /// Surveys the threads and applications as the last rounds show them.
    ///
    /// # Errors
    /// Why there is nothing to learn.
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

    /// Whether the last survey was not the first in a row to find nothing.
    pub fn is_fruitless_again(&self) -> bool {
        self.fruitless > 1
    }

    /// These applications do not count until they report again.
    pub fn silence(&mut self, apps: Vec<AppId>) {
        self.silent.extend(apps);
    }

    /// Whether a trace shows that other threads are busy, or busier, than the survey had found. Counts how often.
    pub fn was_misjudged(&mut self, view: &View) -> bool {
        let misjudged = self.retraced < RETRACED && (self.weigh(view) || self.has_others(view));
        self.retraced += u32::from(misjudged);
        misjudged
    }

    /// Marks threads that run much less than similar ones, each thread once; whether there are any.
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

    /// Whether threads are active that take no part.
    fn has_others(&self, view: &View) -> bool {
        let active = |task: &&TaskView| self.load.is_active(task.info.id) == Some(true);
        let mut now = view.tasks.iter().filter(active).map(|task| task.info.id);
        now.any(|task| self.members.binary_search_by_key(&task, |member| member.0).is_err())
    }

    /// Another set of programs begins, unless a trace has only corrected the survey. `replaces`: there was one before.
    pub fn begin(&mut self, now: Time, replaces: bool) {
        if self.retraced > 0 {
            return;
        }
        if replaces {
            self.lives = self.lived(now);
        }
        self.since = now;
    }

    /// For how many seconds each of the last sets of programs was together, if the present one ends at this time.
    fn lived(&self, now: Time) -> Vec<f64> {
        let last = (now - self.since).as_secs_f64();
        // In a set that ends before its trace does, nothing could be tried.
        let lives = self.lives.iter().copied().chain((last > TRACE[0]).then_some(last));
        let lives: Vec<f64> = lives.collect();
        lives[lives.len().saturating_sub(*LIVES.end())..].to_vec()
    }

    /// Whether sets of programs do not last, the present one included if it ends at this time.
    pub fn is_passing(&self, now: Time) -> bool {
        are_brief(&self.lived(now))
    }

    /// From when on something may be tried with this set of programs.
    pub fn lasts_from(&self) -> Time {
        let wait = if are_brief(&self.lives) { LASTING } else { 0.0 };
        self.since + Duration::from_secs_f64(wait)
    }
}

/// Whether sets of programs that were together for so many seconds each do not last.
fn are_brief(lives: &[f64]) -> bool {
    lives.len() >= *LIVES.start() && middle(lives).value < LASTING
}
