//! The one loop, and the interface of hosts that it drives.

use crate::pin;
use crate::policy::{Ctx, DynPolicy, Explanation, Learned, Needs, State};
use crate::rule::{Seat, keep_own};
use crate::{Action, ActionOutcome, CpuSet, Decision, Order, Outcome, Rule, Sample, Time, Topology, View};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Reason of a wait's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time came.
    Tick,
    /// Tasks started or ended.
    TasksChanged,
    /// Nothing is left to manage, or the user requested a stop.
    Exit,
    /// The driver must act before the loop continues: a change of managed programs or rules.
    Called,
}

/// A failure that ends the loop: what, where, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct HostError {
    /// The attempt and its object.
    pub what: String,
    /// The error.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// A machine to observe and act on: live, simulated, or recorded.
pub trait Host {
    /// The machine.
    fn topology(&self) -> &Topology;

    /// Current raw cumulative counters. [`Sample::at`] never decreases.
    ///
    /// # Errors
    /// Only if sampling has become impossible; an ended task is simply absent.
    fn sample(&mut self) -> Result<Sample, HostError>;

    /// The nearly free part of a sample: reports of programs and readings of metrics; with `counts`, also the cycles
    /// and instructions of tasks. Everything else is as of `last`, the loop's last sample. `None` if a full sample is
    /// due or costs no more, or if counts are unavailable.
    fn glance(&mut self, last: &Sample, counts: bool) -> Option<Sample> {
        let _ = (last, counts);
        None
    }

    /// Until then latencies are probed more often, see [`Decision::watch_until`]. Hosts without probes do nothing.
    fn watch(&mut self, until: Time);

    /// Carries out orders, one outcome each, in order.
    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome>;

    /// Waits until the time or an event. A simulated host advances its time.
    fn wait(&mut self, until: Time) -> Wake;
}

/// Mode of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Sample only.
    Observe,
    /// Decide without changes.
    Advise,
    /// Decide and apply.
    #[default]
    Enforce,
}

/// One turn of the loop, for observers: recorders, screens, summaries.
#[derive(Debug)]
pub struct Round<'a> {
    /// Index of the deciding rule, from 0.
    pub rule: usize,
    /// The loop's previous sample, for any rule.
    pub last: &'a Sample,
    /// The sample of the rule's previous decision.
    pub prev: &'a Sample,
    /// The sample of this decision.
    pub sample: &'a Sample,
    /// Whether tasks and CPUs were sampled for it; otherwise they are as of `last`, see [`Host::glance`].
    pub whole: bool,
    /// Rates between the two.
    pub view: &'a View,
    /// The deciding policy; `None` for a recording with an unknown policy.
    pub policy: Option<&'a dyn DynPolicy>,
    /// The decision; `None` under [`Mode::Observe`].
    pub decision: Option<&'a Decision>,
    /// The orders.
    pub orders: &'a [Order],
    /// The outcome of each order.
    pub outcomes: &'a [Outcome],
}

impl Round<'_> {
    /// The policy's explanation of its state after the decision; `None` without a decision.
    pub fn explain(&self) -> Option<Explanation> {
        Some(self.policy?.explain(&self.decision?.state))
    }

    /// The policy's knowledge for later runs.
    pub fn learned(&self) -> Vec<Learned> {
        self.policy.zip(self.decision).map_or_else(Vec::new, |(policy, decision)| policy.learned(&decision.state))
    }
}

/// Resolves proposals to orders by adding the mask. Proposals about tasks that are missing in the sample, or have no
/// allowed context, are dropped.
pub fn resolve(ctx: &Ctx<'_>, sample: &Sample, decision: &Decision) -> Vec<Order> {
    decision
        .proposals
        .iter()
        .filter_map(|p| {
            let affinity = match &p.action {
                Action::Place { task, contexts } => {
                    let allowed = &sample.task(*task)?.info.allowed;
                    let mask = pin::affinity(ctx.topology, contexts, ctx.config.pin, allowed);
                    (!mask.is_empty()).then_some(mask)?
                }
                _ => CpuSet::new(),
            };
            Some(Order { action: p.action.clone(), affinity, reason: p.reason.clone() })
        })
        .collect()
}

/// A decision with its input and its orders.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Rates between the two samples for the rule's own tasks.
    pub view: View,
    /// The decision.
    pub decision: Decision,
    /// Its proposals, resolved.
    pub orders: Vec<Order>,
    /// Orders owned by another rule, as reported to the policy.
    pub refused: Vec<ActionOutcome>,
}

/// View → decide → resolve: the purely functional part of a round. `rule` is the index of the deciding rule, `outcomes`
/// are those of its previous decision, and `state` is that decision's state.
pub fn decide_once(
    rules: &[Rule<'_>],
    rule: usize,
    prev: &Sample,
    sample: &Sample,
    outcomes: &[ActionOutcome],
    state: State,
) -> Decided {
    let Rule { policy, ctx, owns } = &rules[rule];
    let (before, now) = (owns.part(prev), owns.part(sample));
    let view = View::new(&before, &now);
    let decision = policy.decide(ctx, &view, outcomes, state, sample.at);
    let (orders, refused) = keep_own(rules, rule, sample, resolve(ctx, &now, &decision));
    Decided { view, decision, orders, refused }
}

/// Drives a host under one policy until it exits; see [`drive_all`].
///
/// # Errors
/// As [`drive_all`].
pub fn drive(
    host: &mut dyn Host,
    policy: &dyn DynPolicy,
    ctx: &Ctx<'_>,
    mode: Mode,
    observer: impl FnMut(&Round<'_>),
) -> Result<(), HostError> {
    drive_all(host, &[Rule::all(policy, ctx)], mode, observer)
}

/// Drives a host until it exits or no rule has a further decision, like [`Drive::go`].
///
/// # Errors
/// Like [`Drive::go`].
pub fn drive_all(
    host: &mut dyn Host,
    rules: &[Rule<'_>],
    mode: Mode,
    observer: impl FnMut(&Round<'_>),
) -> Result<(), HostError> {
    Drive::begin(host)?.go(host, rules, mode, observer).map(drop)
}

/// Reason of a pause of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The host exits, or no rule has a further decision.
    Over,
    /// The driver was called; the loop may continue from here.
    Called,
}

/// A paused loop: it keeps each rule's state, so that rules and mode can change before it continues.
pub struct Drive {
    last: Arc<Sample>,
    seats: Vec<Seat>,
}

impl Drive {
    /// Takes the first sample.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn begin(host: &mut dyn Host) -> Result<Self, HostError> {
        Ok(Self { last: Arc::new(host.sample()?), seats: Vec::new() })
    }

    /// Replaces the rules: `before` has, for each of them, the index of the former rule whose state it takes over;
    /// `None` starts afresh.
    pub fn change(&mut self, before: &[Option<usize>]) {
        let mut old: Vec<Option<Seat>> = self.seats.drain(..).map(Some).collect();
        let mut seat = |before: &Option<usize>| before.and_then(|i| old.get_mut(i)?.take());
        let seats: Vec<Seat> =
            before.iter().map(|before| seat(before).unwrap_or_else(|| Seat::new(self.last.clone()))).collect();
        self.seats = seats;
    }

    /// Continues until the host exits or calls, or no rule has a further decision: wait → sample → view → decide →
    /// apply. Each rule decides when it is due, on the time since its own last decision, about its own tasks; its other
    /// orders are reported as denied. A rule due within half of its interval decides together with one due now, so that
    /// rules with one interval share samples. If a glance suffices for all due rules
    /// ([`Needs::glances`](crate::policy::Needs::glances)), it is one, and only for these.
    ///
    /// # Errors
    /// The host's [`HostError`]; applied orders are then the host's to undo.
    pub fn go(
        &mut self,
        host: &mut dyn Host,
        rules: &[Rule<'_>],
        mode: Mode,
        mut observer: impl FnMut(&Round<'_>),
    ) -> Result<Ended, HostError> {
        // Without decisions, one rule's samples serve all.
        let rules = if mode == Mode::Observe { &rules[..rules.len().min(1)] } else { rules };
        let Self { last, seats } = self;
        seats.resize_with(rules.len(), || Seat::new(last.clone()));
        for (seat, rule) in seats.iter_mut().zip(rules) {
            seat.wake_at.get_or_insert(last.at + rule.ctx.config.interval);
        }
        let needs: Vec<Needs> = rules.iter().map(|rule| rule.policy.needs()).collect();
        let hurries = needs.iter().any(|needs| needs.task_changes);
        loop {
            let next = seats.iter().filter_map(|seat| seat.wake_at).min().filter(|next| *next < Time::NEVER);
            let Some(next) = next else { return Ok(Ended::Over) };
            let changed = match host.wait(next) {
                Wake::Exit => return Ok(Ended::Over),
                Wake::Called => return Ok(Ended::Called),
                Wake::TasksChanged if !hurries => continue,
                wake => wake == Wake::TasksChanged,
            };
            let is_due = |(seat, needs): (&Seat, &Needs)| {
                if changed { needs.task_changes } else { seat.wake_at.unwrap_or_default() <= next }
            };
            let due: Vec<bool> = seats.iter().zip(&needs).map(is_due).collect();
            // An observer wants full samples.
            let glance = mode != Mode::Observe && due.iter().zip(&needs).all(|(due, needs)| !due || needs.glances);
            let counts = due.iter().zip(&needs).any(|(due, needs)| *due && needs.counts);
            let glanced = if glance { host.glance(last, counts) } else { None };
            let whole = glanced.is_none();
            let sample = Arc::new(match glanced {
                Some(sample) => sample,
                None => host.sample()?,
            });
            for (i, seat) in seats.iter_mut().enumerate() {
                let early = if changed { Duration::ZERO } else { rules[i].ctx.config.interval / 2 };
                let serves = whole || needs[i].glances && (counts || !needs[i].counts);
                let joins = seat.wake_at.unwrap_or_default() <= sample.at + early && serves;
                if !due[i] && !joins {
                    continue;
                }
                let prev = std::mem::replace(&mut seat.prev, sample.clone());
                let samples = Samples { last, prev: &prev, now: &sample, whole };
                decide_for(host, rules, i, seat, samples, mode, &mut observer);
                *last = sample.clone();
            }
        }
    }
}

/// The loop's last sample, that of the rule's previous decision, and the current one.
struct Samples<'a> {
    last: &'a Sample,
    prev: &'a Sample,
    now: &'a Sample,
    whole: bool,
}

/// One rule's part of a round: from its previous sample to the current one.
fn decide_for(
    host: &mut dyn Host,
    rules: &[Rule<'_>],
    rule: usize,
    seat: &mut Seat,
    Samples { last, prev, now: sample, whole }: Samples<'_>,
    mode: Mode,
    observer: &mut impl FnMut(&Round<'_>),
) {
    if mode == Mode::Observe {
        let Rule { ctx, owns, .. } = &rules[rule];
        let view = View::new(&owns.part(prev), &owns.part(sample));
        let (policy, view) = (Some(rules[rule].policy), &view);
        observer(&Round { rule, last, prev, sample, whole, view, policy, decision: None, orders: &[], outcomes: &[] });
        seat.wake_at = Some(sample.at + ctx.config.interval);
        return;
    }
    let Decided { view, decision, orders, refused } =
        decide_once(rules, rule, prev, sample, &seat.results, std::mem::take(&mut seat.state));
    let outcomes = match mode {
        Mode::Enforce => host.apply(&orders),
        _ => vec![Outcome::NotThisMachine; orders.len()],
    };
    let result = |(order, &outcome): (&Order, &Outcome)| ActionOutcome { action: order.action.clone(), outcome };
    seat.results = orders.iter().zip(&outcomes).map(result).chain(refused).collect();
    let (policy, decided) = (Some(rules[rule].policy), Some(&decision));
    let (view, orders, outcomes) = (&view, &*orders, &*outcomes);
    observer(&Round { rule, last, prev, sample, whole, view, policy, decision: decided, orders, outcomes });
    if let Some(until) = decision.watch_until.filter(|_| mode == Mode::Enforce) {
        host.watch(until);
    }
    (seat.wake_at, seat.state) = (Some(decision.wake_at), decision.state);
}
