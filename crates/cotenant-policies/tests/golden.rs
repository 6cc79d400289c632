//! What every policy decides today in drawn situations. Whoever means to change decisions sees which ones change;
//! everybody else sees that none does.

#[allow(dead_code)] // what other tests need of it
mod world;

use cotenant_model::policy::State;
use cotenant_model::testing::golden;
use cotenant_model::{Action, ActionOutcome, Decision, Outcome, Time};
use cotenant_policies::{Sam, SamConfig};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::fmt::Write;
use std::path::Path;
use world::{Signals, World, worlds};

const WORLDS: usize = 150;

/// Situations of a policy in which it does something; that is enough.
const TOLD: usize = 20;

const ROUNDS: usize = 12;

/// Rounds with the same rates.
const STEADY: usize = 4;

/// In each situation the rounds that decide something: when, ms, and what. `3@0-1`: task 3 on CPUs 0 and 1; `3!`: it
/// waits; `3-`: it gets its mask back; `3>0`: its pages go to node 0.
fn line(name: &str, switches: Option<&str>, mut world: World, rates: &[Vec<Signals>]) -> String {
    if let Some(switches) = switches {
        let switches: SamConfig = switches.parse().expect("switches of sam");
        world.config.settings = world.config.settings.with::<Sam>(&switches);
    }
    let policy = cotenant_policies::standard().make(name, &world.config).expect("sound settings");
    let (mut at, mut state, mut last, mut line) = (Time::from_millis(100), State::default(), Vec::new(), String::new());
    for round in 0..ROUNDS {
        if round % STEADY == 0 {
            world.set_signals(&rates[round / STEADY]);
        }
        let decision = policy.decide(&world.ctx(), &world.view(at), &last, state, at);
        if !decision.proposals.is_empty() {
            write!(line, " {}:{}", at.0 / 1_000_000, told(&decision)).expect("text");
        }
        let fate = |action: &Action| match action.task() {
            Some(task) if (task.0 as usize + round) % 11 == 1 => Outcome::Denied,
            _ => Outcome::Applied,
        };
        let of = |action: Action| ActionOutcome { outcome: fate(&action), action };
        last = decision.proposals.into_iter().map(|p| of(p.action)).collect();
        world.carry_out(&last);
        (at, state) = (decision.wake_at, decision.state);
    }
    line
}

fn told(decision: &Decision) -> String {
    let one = |action: &Action| match action {
        Action::Place { task, contexts } => format!("{task}@{contexts}"),
        Action::Release { task } => format!("{task}-"),
        Action::Pause { task } => format!("{task}!"),
        Action::Pages { task, nodes } => nodes.iter().fold(format!("{task}"), |text, node| format!("{text}>{node}")),
        other => panic!("no policy of tasks does this: {other:?}"),
    };
    decision.proposals.iter().map(|p| one(&p.action)).collect::<Vec<_>>().join(",")
}

#[test]
fn decisions_are_what_they_were() {
    let mut runner = TestRunner::deterministic();
    let mut draw = || {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        let rates = proptest::collection::vec(any::<Signals>(), 1..8);
        let rates = proptest::collection::vec(rates, ROUNDS.div_ceil(STEADY)).new_tree(&mut runner);
        (world, rates.expect("rates").current())
    };
    let situations: Vec<_> = (0..WORLDS).map(|_| draw()).collect();
    let policies = cotenant_policies::standard();
    let sams = ["paper", "recommended", "mph"].map(|switches| ("sam", Some(switches)));
    let mut now = String::new();
    for (name, switches) in policies.names().map(|name| (name, None)).chain(sams) {
        let lines = situations.iter().map(|(world, rates)| line(name, switches, world.clone(), rates));
        for (i, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()).take(TOLD) {
            writeln!(now, "{} {i}{line}", switches.unwrap_or(name)).expect("text");
        }
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt")), &now);
}
