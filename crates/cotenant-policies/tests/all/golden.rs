//! Decisions of every policy in drawn situations as of today: an intended change shows its effects here, any other
//! change must show none.

use crate::world::{Signals, Task, World, worlds};
use cotenant_model::policy::State;
use cotenant_model::testing::{digest, golden};
use cotenant_model::{Action, ActionOutcome, Decision, Outcome, Time};
use cotenant_policies::{Sam, SamConfig};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

const WORLDS: usize = 80;

/// Enough situations in which a policy acts.
const TOLD: usize = 20;

const ROUNDS: usize = 24;

/// Rounds with the same rates. In between, before a round is due, the last task ends, and the one that ended before
/// returns as a new one.
const STEADY: usize = 6;

/// Readable rounds of a situation.
const READ: usize = 5;

/// The first deciding rounds of each situation: time in ms, and orders. `3@0-1`: task 3 on CPUs 0 and 1; `3!`: it
/// waits; `3-`: its mask is restored; `3>0`: its pages go to node 0. And digests of all rounds: of texts (reasons,
/// notes) and of states.
fn line(name: &str, switches: Option<&str>, mut world: World, rates: &[Vec<Signals>]) -> String {
    if let Some(switches) = switches {
        let switches: SamConfig = switches.parse().expect("switches of sam");
        world.config.settings = world.config.settings.with::<Sam>(&switches);
    }
    let policy = cotenant_policies::standard().make(name, &world.config).expect("sound settings");
    let (mut at, mut state, mut last, mut line) = (Time::from_millis(100), State::default(), Vec::new(), String::new());
    let (mut before, mut ended, mut says, mut remembers) = (at, None, Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % STEADY == 0 {
            world.set_signals(&rates[round / STEADY]);
        }
        if round % STEADY == STEADY / 2 {
            at = Time(u64::midpoint(before.0, at.0));
            let again = ended.take().map(|task: Task| Task { id: task.id + 100, newborn: true, ..task });
            ended = world.tasks.pop();
            world.tasks.extend(again);
        }
        let decision = policy.decide(&world.ctx(), &world.view(at), &last, state, at);
        if !decision.proposals.is_empty() && line.matches(':').count() < READ {
            write!(line, " {}:{}", at.0 / 1_000_000, told(&decision)).expect("text");
        }
        says.push(digest(&(&decision.proposals, &decision.notes, decision.wake_at, decision.watch_until)));
        if round % STEADY == STEADY - 1 {
            remembers.push(digest(&decision.state));
        }
        let fate = |action: &Action| match action.task().map(|task| (task.0 as usize + round) % 11) {
            Some(1) => Outcome::Denied,
            Some(2) => Outcome::Stale,
            _ => Outcome::Applied,
        };
        let of = |action: Action| ActionOutcome { outcome: fate(&action), action };
        last = decision.proposals.into_iter().map(|p| of(p.action)).collect();
        world.carry_out(&last);
        (before, at, state) = (at, decision.wake_at.min(at + Duration::from_secs(1)), decision.state);
    }
    format!("{line} says {} remembers {}", digest(&says), digest(&remembers))
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

/// Promise place/stable: Decisions and simulated results change only on purpose, and old recordings decide by the
/// defaults of their time.
#[test]
fn decisions_are_what_they_were() {
    let mut runner = TestRunner::deterministic();
    let mut draw = |tells| {
        let mut world = worlds().new_tree(&mut runner).expect("a world").current();
        world.tells = tells;
        let rates = proptest::collection::vec(any::<Signals>(), 1..8);
        let rates = proptest::collection::vec(rates, ROUNDS.div_ceil(STEADY)).new_tree(&mut runner);
        (world, rates.expect("rates").current())
    };
    let situations: Vec<_> = (0..WORLDS).map(|i| draw(i % 2 == 1)).collect();
    let policies = cotenant_policies::standard();
    let sams = ["paper", "recommended", "mph"].map(|switches| ("sam", Some(switches)));
    let mut now = String::new();
    for (name, switches) in policies.names().map(|name| (name, None)).chain(sams) {
        let mut told = 0;
        for (i, (world, rates)) in situations.iter().enumerate() {
            let line = line(name, switches, world.clone(), rates);
            writeln!(now, "{} {i}{line}", switches.unwrap_or(name)).expect("text");
            told += usize::from(line.contains(':'));
            if told == TOLD {
                break;
            }
        }
    }
    golden(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt")), &now);
}
