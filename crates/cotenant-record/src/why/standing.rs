//! Orders in force at a moment: the last order of each effect, and what withdrew it or remains in force despite it.

use super::told::Told;
use crate::naps::Naps;
use cotenant_model::{AppId, Effect, Outcome, TaskId, View};
use serde::Serialize;

/// The last order of an effect, and its state at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// The order and its results.
    #[serde(flatten)]
    pub told: Told,
    /// Whether it is in force.
    pub force: Force,
    /// Orders with this effect up to the moment, whatever their outcomes.
    pub orders: u64,
    /// Time of the first one, seconds.
    pub first_s: f64,
    /// Their number of naps; absent for other effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naps: Option<u64>,
}

/// Whether an order is in force at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Force {
    /// In force.
    InForce,
    /// Ended: a nap whose time has passed.
    Over,
    /// Withdrawn by a later one.
    Withdrawn,
    /// Not carried out.
    NotApplied,
    /// Its task or application has ended.
    Gone,
}

/// The task or application of an order, and the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    /// `None`: the whole application.
    pub task: Option<TaskId>,
    pub app: AppId,
    pub effect: Effect,
}

/// The last orders about a subject, in order of time.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The last one put in force.
    set: Option<Told>,
    /// Its withdrawal.
    withdrawal: Option<Told>,
    /// The last one ordered but not carried out.
    refused: Option<Told>,
    /// The beneficiary of the last one.
    pub sake: Option<AppId>,
    orders: u64,
    first_s: f64,
}

impl Slots {
    pub fn add(&mut self, told: Told, sake: Option<AppId>) {
        if self.orders == 0 {
            self.first_s = told.at_s;
        }
        self.orders += 1;
        self.sake = sake.or(self.sake);
        if told.outcome.is_some_and(|outcome| outcome != Outcome::Applied) {
            self.refused = Some(told);
            return;
        }
        self.refused = None;
        if told.what.withdraws() {
            self.withdrawal = Some(told);
        } else {
            (self.set, self.withdrawal) = (Some(told), None);
        }
    }

    pub fn each(&mut self) -> impl Iterator<Item = &mut Told> {
        [&mut self.set, &mut self.withdrawal, &mut self.refused].into_iter().flatten()
    }

    /// Their state at a moment, seconds, with the last round before it.
    pub fn told(
        self,
        subject: Subject,
        moment_s: f64,
        last: &View,
        naps: &Naps,
    ) -> impl Iterator<Item = Standing> + use<> {
        let naps = (subject.effect == Effect::Nap).then(|| naps.ordered(subject.app));
        let there = match subject.task {
            Some(task) => last.task(task).is_some(),
            None => last.apps.iter().any(|app| app.id == subject.app),
        };
        let holds = if there { Force::InForce } else { Force::Gone };
        let (orders, first_s, withdrawn) = (self.orders, self.first_s, self.withdrawal.is_some());
        let force_of_set = move |told: &Told| match told.what.until_s {
            _ if withdrawn => Force::Withdrawn,
            Some(until) if until <= moment_s => Force::Over,
            _ => holds,
        };
        let set = self.set.map(|told| (force_of_set(&told), told));
        let all = [set, self.withdrawal.map(|told| (holds, told)), self.refused.map(|told| (Force::NotApplied, told))];
        all.into_iter().flatten().map(move |(force, told)| Standing { told, force, orders, first_s, naps })
    }
}
