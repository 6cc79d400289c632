//! The one loop, and what a host must offer to be driven by it.

use crate::pin;
use crate::policy::{Ctx, DynPolicy, Explanation, Learned, Needs, State};
use crate::rule::{Seat, keep_own};
use crate::{Action, ActionOutcome, CpuSet, Decision, Order, Outcome, Rule, Sample, Time, Topology, View};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time came.
    Tick,
    /// Tasks came or went.
    TasksChanged,
    /// There is nothing left to manage, or the user asked to stop.
    Exit,
    /// Who drives the host is to look at something before the loop goes on: whom it manages, or under which rules.
    Called,
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

    /// What costs next to nothing now: what programs report of themselves, and readings of metrics; with `counts`, also
    /// the cycles and instructions of tasks. All else of tasks and CPUs is as of `last`, the loop's last sample. `None`
    /// where all of it is due to be looked at, or costs no more, or nothing counts.
    fn glance(&mut self, last: &Sample, counts: bool) -> Option<Sample> {
        let _ = (last, counts);
        None
    }

    /// Until then latencies that are measured by asking are wanted more often, see [`Decision::watch_until`]. Hosts
    /// that ask nobody do nothing.
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
    /// Which of the rules decides, from 0.
    pub rule: usize,
    /// The sample that the loop took before, whichever rule it was for.
    pub last: &'a Sample,
    /// The sample of the rule's decision before.
    pub prev: &'a Sample,
    /// The sample that the decision is about.
    pub sample: &'a Sample,
    /// Whether tasks and CPUs were looked at for it; else they are as of `last`, see [`Host::glance`].
    pub whole: bool,
    /// Rates between the two.
    pub view: &'a View,
    /// The policy that decides; `None` for a recording whose policy is not known here.
    pub policy: Option<&'a dyn DynPolicy>,
    /// The decision; `None` under [`Mode::Observe`].
    pub decision: Option<&'a Decision>,
    /// What was ordered.
    pub orders: &'a [Order],
    /// What became of each order.
    pub outcomes: &'a [Outcome],
}

impl Round<'_> {
    /// What the policy says of its state after the decision; `None` where there is no decision.
    pub fn explain(&self) -> Option<Explanation> {
        Some(self.policy?.explain(&self.decision?.state))
    }

    /// What the policy has learned for later runs.
    pub fn learned(&self) -> Vec<Learned> {
        self.policy.zip(self.decision).map_or_else(Vec::new, |(policy, decision)| policy.learned(&decision.state))
    }
}

/// Resolves proposals to orders: adds the mask. A proposal about a task that is not in the sample, or whose contexts
/// are all outside what it is allowed, cannot be carried out and is dropped.
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

/// A decision with what it was made from, and the orders that it comes to.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Rates between the two samples, of what the rule owns.
    pub view: View,
    /// The decision.
    pub decision: Decision,
    /// Its proposals, resolved.
    pub orders: Vec<Order>,
    /// Orders that another rule decides about, as the policy is to hear of them.
    pub refused: Vec<ActionOutcome>,
}

/// View → decide → resolve: the part of a round that is a pure function, whoever calls it. `rule` is the place in
/// `rules` of the one that decides, `outcomes` are those of its decision before, and `state` is what that returned.
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

/// Drives a host until it exits, or no rule is to decide any more, as [`Drive::go`] does.
///
/// # Errors
/// As [`Drive::go`].
pub fn drive_all(
    host: &mut dyn Host,
    rules: &[Rule<'_>],
    mode: Mode,
    observer: impl FnMut(&Round<'_>),
) -> Result<(), HostError> {
    Drive::begin(host)?.go(host, rules, mode, observer).map(drop)
}

/// Why a stretch of the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The host exits, or no rule is to decide any more.
    Over,
    /// Who drives the host was called; the loop may go on from here.
    Called,
}

/// The loop between two stretches: what each rule remembers, so that rules and mode can be others when it goes on.
pub struct Drive {
    last: Arc<Sample>,
    seats: Vec<Seat>,
}

impl Drive {
    /// Takes the first sample.
    ///
    /// # Errors
    /// The host's.
    pub fn begin(host: &mut dyn Host) -> Result<Self, HostError> {
        Ok(Self { last: Arc::new(host.sample()?), seats: Vec::new() })
    }

    /// From now on the rules are others: `before` has, for each of them, its place among those of before, whose state
    /// it goes on with; `None` begins anew.
    pub fn change(&mut self, before: &[Option<usize>]) {
        let mut old: Vec<Option<Seat>> = self.seats.drain(..).map(Some).collect();
        let mut seat = |before: &Option<usize>| before.and_then(|i| old.get_mut(i)?.take());
        let seats: Vec<Seat> =
            before.iter().map(|before| seat(before).unwrap_or_else(|| Seat::new(self.last.clone()))).collect();
        self.seats = seats;
    }

    /// Goes on until the host exits or calls, or no rule is to decide any more: wait → sample → view → decide → apply.
    /// Each rule decides when it is due, by what happened since its own last decision, about what it owns: of orders
    /// about anything else its policy hears that they were denied. Who is due within half of its interval decides with
    /// whoever is due now: a look at the machine serves all, and rules with one interval come to decide together. Where
    /// all who are due say that a glance is enough for them ([`Needs::glances`](crate::policy::Needs::glances)), it is
    /// one, and serves only such.
    ///
    /// # Errors
    /// Passes on the host's [`HostError`]; whatever was applied by then is the host's to undo.
    pub fn go(
        &mut self,
        host: &mut dyn Host,
        rules: &[Rule<'_>],
        mode: Mode,
        mut observer: impl FnMut(&Round<'_>),
    ) -> Result<Ended, HostError> {
        // Nobody decides: one of them looks for all.
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
            // Who only observes wants to see all of it.
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

/// The loop's last sample, that of the rule's decision before, and the present one.
struct Samples<'a> {
    last: &'a Sample,
    prev: &'a Sample,
    now: &'a Sample,
    whole: bool,
}

/// One rule's part of a round: from its sample before to the present one.
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
