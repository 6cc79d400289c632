//! Several policies at once: each decides about the applications and effects that it owns.

use crate::policy::{Ctx, DynPolicy, State};
use crate::{Action, ActionOutcome, AppId, Effect, Order, Outcome, Sample, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Subject of a policy. Everything else counts as foreign work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owns {
    /// Applications, by name; `None` = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apps: Option<BTreeSet<String>>,
    /// Effects; `None` = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<BTreeSet<Effect>>,
}

impl Owns {
    fn app(&self, name: &str) -> bool {
        self.apps.as_ref().is_none_or(|apps| apps.contains(name))
    }

    fn effect(&self, effect: Effect) -> bool {
        self.effects.as_ref().is_none_or(|effects| effects.contains(&effect))
    }

    /// The part of a sample that the policy sees: its own applications with their tasks, and all CPUs. Other tasks'
    /// work on these counts as foreign.
    pub fn part<'a>(&self, sample: &'a Sample) -> Cow<'a, Sample> {
        if sample.apps.iter().all(|app| self.app(&app.name)) {
            return Cow::Borrowed(sample);
        }
        let apps: Vec<_> = sample.apps.iter().filter(|app| self.app(&app.name)).cloned().collect();
        let own = |app: AppId| apps.binary_search_by_key(&app, |app| app.id).is_ok();
        let tasks = sample.tasks.iter().filter(|task| own(task.info.app)).cloned().collect();
        let (cpus, numa_balancing) = (sample.cpus.clone(), sample.numa_balancing);
        Cow::Owned(Sample { at: sample.at, tasks, cpus, apps, numa_balancing })
    }
}

/// A policy, its inputs, and its subject.
#[derive(Clone)]
pub struct Rule<'a> {
    /// The policy.
    pub policy: &'a dyn DynPolicy,
    /// Its inputs besides the view.
    pub ctx: Ctx<'a>,
    /// Its subject.
    pub owns: Owns,
}

impl<'a> Rule<'a> {
    /// One policy for everything.
    pub fn all(policy: &'a dyn DynPolicy, ctx: &Ctx<'a>) -> Self {
        Self { policy, ctx: *ctx, owns: Owns::default() }
    }
}

/// The rule that owns an order: the first one that covers it. `None`: no rule does, or its task does not exist.
pub fn owner(rules: &[Rule<'_>], sample: &Sample, action: &Action) -> Option<usize> {
    let app = action.app().or_else(|| Some(sample.task(action.task()?)?.info.app))?;
    let name = &sample.apps.iter().find(|a| a.id == app)?.name;
    rules.iter().position(|rule| rule.owns.app(name) && rule.owns.effect(action.effect()))
}

/// State of a rule between its decisions.
pub(crate) struct Seat {
    /// The sample of its last decision.
    pub prev: Arc<Sample>,
    pub state: State,
    /// Outcomes of that decision.
    pub results: Vec<ActionOutcome>,
    /// Time of its next decision; `None` before its first round.
    pub wake_at: Option<Time>,
}

impl Seat {
    /// For a rule that begins with this sample.
    pub fn new(prev: Arc<Sample>) -> Self {
        Self { prev, state: State::default(), results: Vec::new(), wake_at: None }
    }
}

/// Removes a rule's orders that another rule owns. Returns the rest, and the refused ones as reported to their policy.
pub(crate) fn keep_own(
    rules: &[Rule<'_>],
    rule: usize,
    sample: &Sample,
    orders: Vec<Order>,
) -> (Vec<Order>, Vec<ActionOutcome>) {
    if rules.len() == 1 {
        return (orders, Vec::new());
    }
    let (own, refused): (Vec<_>, Vec<_>) =
        orders.into_iter().partition(|order| owner(rules, sample, &order.action) == Some(rule));
    let denied = |order: Order| ActionOutcome { action: order.action, outcome: Outcome::Denied };
    (own, refused.into_iter().map(denied).collect())
}
