//! The one loop, and what a host must offer to be driven by it.

use crate::action::{Action, ActionOutcome, Decision, Order, Outcome};
use crate::cpuset::CpuSet;
use crate::ids::{TaskId, Time};
use crate::pin;
use crate::policy::{Ctx, DynPolicy, State};
use crate::sample::Sample;
use crate::topology::Topology;
use crate::view::View;
use serde::{Deserialize, Serialize};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time came.
    Tick,
    /// Tasks came or went.
    TasksChanged,
    /// There is nothing left to manage, or the user asked to stop.
    Exit,
}

/// A failure that ends the loop: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct HostError {
    /// What was attempted, and on what.
    pub what: String,
    /// What went wrong.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// A machine to observe and act on: live, simulated, or recorded.
pub trait Host {
    /// The machine.
    fn topology(&self) -> &Topology;

    /// Raw cumulative counters now. [`Sample::at`] never decreases.
    ///
    /// # Errors
    /// Only where nothing can be sampled any more; a vanished task is simply absent.
    fn sample(&mut self) -> Result<Sample, HostError>;

    /// Until then latencies that are measured by asking are wanted more often, see [`Decision::watch_until`]. Hosts that ask nobody do
    /// nothing.
    fn watch(&mut self, until: Time);

    /// Carries out orders, one outcome each, in order.
    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome>;

    /// Waits until the time, or until something happens. A simulated host advances its time.
    fn wait(&mut self, until: Time) -> Wake;
}

/// How far the loop goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Sample only.
    Observe,
    /// Decide, but change nothing.
    Advise,
    /// Decide and apply.
    #[default]
    Enforce,
}

/// One turn of the loop, for those who watch: recorders, screens, summaries.
#[derive(Debug)]
pub struct Round<'a> {
    /// The sample before.
    pub prev: &'a Sample,
    /// The sample that the decision is about.
    pub sample: &'a Sample,
    /// Rates between the two.
    pub view: &'a View,
    /// The decision; `None` under [`Mode::Observe`].
    pub decision: Option<&'a Decision>,
    /// What was ordered.
    pub orders: &'a [Order],
    /// What became of each order.
    pub outcomes: &'a [Outcome],
}

/// Resolves proposals to orders: adds the mask. A proposal about a task that is not in the sample, or whose contexts are all
/// outside what it is allowed, cannot be carried out and is dropped.
pub fn resolve(ctx: &Ctx<'_>, sample: &Sample, decision: &Decision) -> Vec<Order> {
    let allowed = |id: TaskId| -> Option<&CpuSet> {
        let i = sample.tasks.binary_search_by_key(&id, |t| t.info.id).ok()?;
        Some(&sample.tasks[i].info.allowed)
    };
    decision
        .proposals
        .iter()
        .filter_map(|p| {
            let affinity = match &p.action {
                Action::Place { task, contexts } => {
                    let mask = pin::affinity(ctx.topology, contexts, ctx.config.pin, allowed(*task)?);
                    (!mask.is_empty()).then_some(mask)?
                }
                _ => CpuSet::new(),
            };
            Some(Order { action: p.action.clone(), affinity, reason: p.reason.clone() })
        })
        .collect()
}

/// A decision with what it was made from, and the orders that it comes to.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Rates between the two samples.
    pub view: View,
    /// The decision.
    pub decision: Decision,
    /// Its proposals, resolved.
    pub orders: Vec<Order>,
}

/// View → decide → resolve: the part of a round that is a pure function, whoever calls it. `outcomes` are those of the decision before,
/// `state` is what it returned.
pub fn decide_once(
    policy: &dyn DynPolicy,
    ctx: &Ctx<'_>,
    prev: &Sample,
    sample: &Sample,
    outcomes: &[ActionOutcome],
    state: State,
) -> Decided {
    let view = View::new(prev, sample);
    let decision = policy.decide(ctx, &view, outcomes, state, sample.at);
    let orders = resolve(ctx, sample, &decision);
    Decided { view, decision, orders }
}

/// Drives a host until it exits: wait → sample → view → decide → apply.
///
/// # Errors
/// Passes on the host's [`HostError`]; whatever was applied by then is the host's to undo.
pub fn drive(
    host: &mut dyn Host,
    policy: &dyn DynPolicy,
    ctx: &Ctx<'_>,
    mode: Mode,
    mut observer: impl FnMut(&Round<'_>),
) -> Result<(), HostError> {
    let mut prev = host.sample()?;
    let mut state = State::default();
    let mut results: Vec<ActionOutcome> = Vec::new();
    let mut wake_at = prev.at + ctx.config.interval;
    loop {
        match host.wait(wake_at) {
            Wake::Exit => return Ok(()),
            Wake::TasksChanged if !policy.needs().task_changes => continue,
            Wake::TasksChanged | Wake::Tick => {}
        }
        let sample = host.sample()?;
        if mode == Mode::Observe {
            let view = View::new(&prev, &sample);
            observer(&Round { prev: &prev, sample: &sample, view: &view, decision: None, orders: &[], outcomes: &[] });
            wake_at = sample.at + ctx.config.interval;
            prev = sample;
            continue;
        }
        let Decided { view, decision, orders } =
            decide_once(policy, ctx, &prev, &sample, &results, std::mem::take(&mut state));
        let outcomes = match mode {
            Mode::Enforce => host.apply(&orders),
            _ => vec![Outcome::NotThisMachine; orders.len()],
        };
        results = orders
            .iter()
            .zip(&outcomes)
            .map(|(order, &outcome)| ActionOutcome { action: order.action.clone(), outcome })
            .collect();
        observer(&Round {
            prev: &prev,
            sample: &sample,
            view: &view,
            decision: Some(&decision),
            orders: &orders,
            outcomes: &outcomes,
        });
        if let Some(until) = decision.watch_until.filter(|_| mode == Mode::Enforce) {
            host.watch(until);
        }
        wake_at = decision.wake_at;
        state = decision.state;
        prev = sample;
    }
}
