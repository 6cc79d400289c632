//! Several policies at once: each decides about the applications and effects that it owns.

use crate::policy::{Ctx, DynPolicy, State};
use crate::{Action, ActionOutcome, AppId, Effect, Order, Outcome, Sample, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a policy decides about. Everything else is, to it, somebody else's work.
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

    /// The part of a sample that the policy sees: its own applications and their tasks, and all CPUs. What other
    /// tasks do on these counts as foreign.
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

/// A policy, what it may know, and what it decides about.
#[derive(Clone)]
pub struct Rule<'a> {
    /// What decides.
    pub policy: &'a dyn DynPolicy,
    /// What it may know besides the view.
    pub ctx: Ctx<'a>,
    /// What it decides about.
    pub owns: Owns,
}

impl<'a> Rule<'a> {
    /// One policy for everything.
    pub fn all(policy: &'a dyn DynPolicy, ctx: &Ctx<'a>) -> Self {
        Self { policy, ctx: *ctx, owns: Owns::default() }
    }
}

/// The rule that decides about what an order changes: the first one that owns it. `None`: no rule does, or it is
/// about nobody there.
pub fn owner(rules: &[Rule<'_>], sample: &Sample, action: &Action) -> Option<usize> {
    let app = action.app().or_else(|| Some(sample.task(action.task()?)?.info.app))?;
    let name = &sample.apps.iter().find(|a| a.id == app)?.name;
    rules.iter().position(|rule| rule.owns.app(name) && rule.owns.effect(action.effect()))
}

/// Where a rule stands between its decisions.
pub(crate) struct Seat {
    /// The sample of its last decision.
    pub prev: Arc<Sample>,
    pub state: State,
    /// What became of that decision.
    pub results: Vec<ActionOutcome>,
    /// When it decides next; `None` before its first round.
    pub wake_at: Option<Time>,
}

impl Seat {
    /// Of a rule that begins with this sample.
    pub fn new(prev: Arc<Sample>) -> Self {
        Self { prev, state: State::default(), results: Vec::new(), wake_at: None }
    }
}

/// Takes out of a rule's orders those that another rule decides about. What is left, and the refused ones as their
/// policy hears of them.
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
