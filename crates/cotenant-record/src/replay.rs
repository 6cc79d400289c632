//! Replay: what a policy would have decided on recorded placements.
//!
//! A recording's machine does not react: every round shows the placements of the recorded run, whatever the replayed
//! policy ordered. So replay answers, round by round, "what would P have decided *here*?", and predicts neither speed
//! nor later rounds.
//!
//! P's state in a round:
//! * If P is the recorded policy: the recorded [state](Decision::state) and outcomes. Each round is independent, and
//!   with the same settings each decision equals the recorded one.
//! * If P is another policy, or the run only observed: the state of P's own previous decision, and outcomes [consistent
//!   with the recording](outcome_in).

use crate::{Header, RecordedRound, RecordedRule};
use cotenant_model::host::{Decided, decide_once};
use cotenant_model::pin::Pin;
use cotenant_model::policy::{Config, DynPolicy, Registry, State};
use cotenant_model::{Action, ActionOutcome, Decision, Order, Outcome, Owns, Rule, Sample, View};
use std::iter::Peekable;

/// The rules of a replay, each with its policy.
pub struct Policies(Vec<(RecordedRule, Box<dyn DynPolicy>)>);

impl Policies {
    /// The recorded rules, or `policy` instead of the recorded one with the settings `config`; a recording of several
    /// rules keeps theirs.
    ///
    /// # Errors
    /// A line naming the unknown policy or wrong setting; also if one policy is to replace several, or cannot work with
    /// the recording.
    pub fn new(header: &Header, policy: Option<&str>, config: &Config, registry: &Registry) -> Result<Self, String> {
        let rules = match (&header.rules[..], policy) {
            ([_, _, ..], Some(_)) => {
                let n = header.rules.len();
                return Err(format!("it was recorded under {n} rules, each with its policy: name none to replay it"));
            }
            ([], _) => {
                let policy = policy.unwrap_or(&header.policy).to_owned();
                vec![RecordedRule { policy, owns: Owns::default(), config: config.clone() }]
            }
            (rules, _) => rules.to_vec(),
        };
        let make = |rule: RecordedRule| {
            let policy = registry.make(&rule.policy, &rule.config)?;
            policy.check(&header.ctx_with(&rule.config)).map_err(|refusal| refusal.to_string())?;
            Ok((rule, policy))
        };
        rules.into_iter().map(make).collect::<Result<_, _>>().map(Self)
    }

    /// The policy of the first rule.
    pub fn first(&self) -> &dyn DynPolicy {
        &*self.0[0].1
    }

    /// The rules for [`replay`], with the knowledge of `header`.
    pub fn rules<'a>(&'a self, header: &'a Header) -> Vec<Rule<'a>> {
        let rule = |(recorded, policy): &'a (RecordedRule, Box<dyn DynPolicy>)| Rule {
            policy: &**policy,
            ctx: header.ctx_with(&recorded.config),
            owns: recorded.owns.clone(),
        };
        self.0.iter().map(rule).collect()
    }
}

/// The affinity of a replayed policy: as recorded, unless it names exact CPUs and the recorded one did not.
pub fn pin(header: &Header, policy: &str, config: &Config, registry: &Registry) -> Pin {
    let exact = |name: &str| registry.make(name, config).is_ok_and(|policy| policy.needs().exact);
    if exact(policy) && !exact(&header.policy) { Pin::Cpu } else { config.pin }
}

/// The names of the recorded policies, one per rule.
pub fn names(header: &Header) -> Vec<&str> {
    match &header.rules[..] {
        [] => vec![&header.policy],
        rules => rules.iter().map(|rule| rule.policy.as_str()).collect(),
    }
}

/// The outcome of an order given to a recording in the round `at`, before the sample of the round `then`:
/// * the recorded run gave the same order: the recorded outcome;
/// * otherwise the task has ended: [`Outcome::Gone`];
/// * otherwise the task runs inside the ordered mask: [`Outcome::Applied`], on which the policy may rely;
/// * otherwise, or without information: [`Outcome::NotThisMachine`], because it did not happen.
pub fn outcome_in(at: &RecordedRound, then: Option<&Sample>, order: &Order) -> Outcome {
    if let Some(i) =
        at.orders.iter().position(|recorded| recorded.action == order.action && recorded.affinity == order.affinity)
    {
        return at.outcomes.get(i).copied().unwrap_or(Outcome::NotThisMachine);
    }
    let (Some(then), Some(task)) = (then, order.action.task()) else { return Outcome::NotThisMachine };
    match then.task(task).map(|task| task.cpu) {
        None => Outcome::Gone,
        Some(Some(cpu)) if order.affinity.contains(cpu) => Outcome::Applied,
        Some(_) => Outcome::NotThisMachine,
    }
}

/// A round with the replayed policy's decision.
#[derive(Debug)]
pub struct Replayed {
    /// The recorded round.
    pub round: RecordedRound,
    /// Its rates.
    pub view: View,
    /// The replayed policy's decision.
    pub decision: Decision,
    /// That decision, resolved to orders.
    pub orders: Vec<Order>,
}

impl Replayed {
    /// Whether the recorded and the replayed decision contain the same actions, in any order. (Actions without masks:
    /// `--pin` changes how a decision is applied, not the decision.)
    pub fn agrees(&self) -> bool {
        self.only_recorded().next().is_none() && self.only_replayed().next().is_none()
    }

    /// Indexes of the recorded round's orders that only the recorded policy gave.
    pub fn only_recorded(&self) -> impl Iterator<Item = usize> {
        not_in(&self.round.orders, &self.orders)
    }

    /// Indexes of [`Self::orders`] that only the replayed policy gives.
    pub fn only_replayed(&self) -> impl Iterator<Item = usize> {
        not_in(&self.orders, &self.round.orders)
    }
}

fn not_in(orders: &[Order], others: &[Order]) -> impl Iterator<Item = usize> {
    let missing = |action: &Action| others.iter().all(|order| order.action != *action);
    orders.iter().enumerate().filter(move |(_, order)| missing(&order.action)).map(|(i, _)| i)
}

/// State of one rule, and its relation to the recording.
struct Memory {
    /// Whether the recording is of the same policy.
    same: bool,
    state: State,
    outcomes: Vec<ActionOutcome>,
}

/// Replays rounds: an iterator with one [`Replayed`] per round. The module's documentation explains its meaning.
pub struct Replay<'a, I: Iterator<Item = RecordedRound>> {
    rounds: Peekable<I>,
    rules: Vec<Rule<'a>>,
    memory: Vec<Memory>,
}

/// Replays `rounds`, recorded under the policies `recorded`, under `rules`, one for each of them, with their contexts:
/// the header's [`ctx`](crate::Header::ctx) for the recorded settings, or one with other thresholds or settings. Rounds
/// of further rules are skipped.
pub fn replay<'a, I>(rounds: I, recorded: &[&str], rules: Vec<Rule<'a>>) -> Replay<'a, I::IntoIter>
where
    I: IntoIterator<Item = RecordedRound>,
{
    let memory = |(i, rule): (usize, &Rule<'_>)| Memory {
        same: recorded.get(i) == Some(&rule.policy.name()),
        state: State::default(),
        outcomes: Vec::new(),
    };
    let memory = rules.iter().enumerate().map(memory).collect();
    Replay { rounds: rounds.into_iter().peekable(), rules, memory }
}

impl<I: Iterator<Item = RecordedRound>> Iterator for Replay<'_, I> {
    type Item = Replayed;

    fn next(&mut self) -> Option<Replayed> {
        let round = self.rounds.by_ref().find(|round| round.rule < self.rules.len())?;
        let Memory { same, state, outcomes } = &mut self.memory[round.rule];
        let Decided { view, decision, orders, refused } =
            decide_once(&self.rules, round.rule, &round.prev, &round.sample, outcomes, std::mem::take(state));
        (*state, *outcomes) = match &round.decision {
            Some(recorded) if *same => (recorded.state.clone(), round.results()),
            _ => {
                let then = self.rounds.peek().map(|next| &*next.sample);
                let outcome = |order: &Order| ActionOutcome {
                    action: order.action.clone(),
                    outcome: outcome_in(&round, then, order),
                };
                (decision.state.clone(), orders.iter().map(outcome).collect())
            }
        };
        outcomes.extend(refused);
        Some(Replayed { round, view, decision, orders })
    }
}
