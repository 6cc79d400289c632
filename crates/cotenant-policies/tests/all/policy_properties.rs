//! Properties of every policy on random machines, tasks, rates and outcomes.

use crate::world::{Signals, World, domains_of, worlds};
use cotenant_model::policy::{Config, Ctx, DynPolicy, Policy, State};
use cotenant_model::profile::{MachineProfile, Thresholds};
use cotenant_model::testing::{ViewBuilder, parts};
use cotenant_model::{
    Action, ActionOutcome, CpuSet, Decision, Outcome, Proposal, Signal, TaskId, Time, Topology, host,
};
use cotenant_policies::{Sam, SamState};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds in which every policy that does not measure first acts, if it ever does.
const PATIENCE: u64 = 15;

/// The learning policies, which measure first.
const LEARNERS: [&str; 2] = ["shapes", "auto"];

/// A policy with the settings of a world.
fn make(name: &str, world: &World) -> Box<dyn DynPolicy> {
    cotenant_policies::standard().make(name, &world.config).expect("a known name and sound settings")
}

fn all(world: &World) -> Vec<Box<dyn DynPolicy>> {
    cotenant_policies::standard().names().map(|name| make(name, world)).collect()
}

/// Few cases by default, to stay quick; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 48 };
    ProptestConfig { cases, ..default }
}

/// Allowed CPUs only, each task once, only existing tasks, and only possible orders.
fn assert_legal(world: &World, at: Time, decision: &Decision, name: &str) {
    let (_, sample) = world.samples(at);
    let mut seen = BTreeSet::new();
    for proposal in &decision.proposals {
        let task = proposal.action.task().expect("it is about a task");
        let pages = matches!(proposal.action, Action::Pages { .. });
        assert!(seen.insert((task, pages)), "{name}: task {task} stands twice");
        let info =
            &sample.tasks.iter().find(|t| t.info.id == task).unwrap_or_else(|| panic!("{name}: no task {task}")).info;
        if let Action::Place { contexts, .. } = &proposal.action {
            let may = info.allowed.and(world.topology.usable());
            assert!(
                !contexts.is_empty() && contexts.is_subset(&may),
                "{name}: {contexts:?} for task {task}, which may use {may:?}"
            );
        }
        let reason = proposal.reason.to_string();
        assert!(reason.len() > 5 && !reason.contains('{'), "{name}: '{reason}'");
    }
    let orders = host::resolve(&world.ctx(), &sample, decision);
    assert_eq!(orders.len(), decision.proposals.len(), "{name}: an order was dropped");
    for order in orders {
        let allowed =
            &sample.tasks.iter().find(|t| Some(t.info.id) == order.action.task()).expect("checked above").info.allowed;
        assert!(order.affinity.is_subset(allowed), "{name}: {:?} is wider than {allowed:?}", order.affinity);
    }
    assert!(decision.wake_at > at, "{name}: it would wake at {:?}, now is {at:?}", decision.wake_at);
}

fn outcomes(decision: &Decision, outcome: impl Fn(TaskId) -> Outcome) -> Vec<ActionOutcome> {
    let of = |action: &Action| ActionOutcome {
        action: action.clone(),
        outcome: outcome(action.task().expect("it is about a task")),
    };
    decision.proposals.iter().map(|p| of(&p.action)).collect()
}

fn decide(policy: &dyn DynPolicy, world: &World, at: Time, outcomes: &[ActionOutcome], state: State) -> Decision {
    policy.decide(&world.ctx(), &world.view(at), outcomes, state, at)
}

/// Rounds on an unchanged world, without carrying out or reporting anything, until a proposal.
fn first_acts(policy: &dyn DynPolicy, world: &World, state: State, step: Time) -> Option<(Decision, Time)> {
    let (mut state, mut at) = (state, Time(0));
    for _ in 0..PATIENCE {
        at = Time(at.0 + step.0);
        let decision = decide(policy, world, at, &[], state);
        if !decision.proposals.is_empty() {
            return Some((decision, at));
        }
        state = decision.state;
    }
    None
}

const ROUND: Time = Time::from_millis(100);

/// A policy explains a state equally after writing and reading it, and fractions are valid.
fn assert_explains(policy: &dyn DynPolicy, state: &State) {
    let explanation = policy.explain(state);
    let written = serde_json::to_value(state).unwrap();
    assert_eq!(policy.explain(&serde_json::from_value(written).unwrap()), explanation, "{}", policy.name());
    for protected in &explanation.protected {
        assert!(protected.kept().is_none_or(|kept| kept >= 0.0) && protected.weight >= 0.0, "{protected:?}");
        assert!(!explanation.throttled.contains(&protected.app), "{protected:?} is throttled, too");
    }
}

proptest! {
    #![proptest_config(config())]

    /// Chains of rounds in which rates change at random, and each action fares at random.
    /// Holds undo/allowed-cpus, place/policies.
    #[test]
    fn legal_and_deterministic_in_any_chain(
        start in worlds(),
        rounds in proptest::collection::vec((proptest::collection::vec(any::<Signals>(), 1..8), any::<u64>()), 12..16),
    ) {
        for policy in all(&start) {
            let (name, mut world, mut state, mut last) = (policy.name(), start.clone(), State::default(), Vec::new());
            for (i, (signals, luck)) in (1..).zip(&rounds) {
                let at = Time::from_millis(100 * i);
                world.set_signals(signals);
                let decision = decide(&*policy, &world, at, &last, state.clone());
                assert_legal(&world, at, &decision, name);
                prop_assert_eq!(&decide(&*policy, &world, at, &last, state.clone()), &decision, "{}: not a function", name);
                let stored: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
                prop_assert_eq!(&decide(&*policy, &world, at, &last, stored), &decision, "{}: its state is not plain", name);
                if !policy.needs().pages {
                    let mut view = world.view(at);
                    view.tasks.iter_mut().for_each(|task| task.pages_by_node = None);
                    let blind = policy.decide(&world.ctx(), &view, &last, state.clone(), at);
                    prop_assert_eq!(&blind, &decision, "{}: reads pages that no live host would look for", name);
                }
                let fate = |task: TaskId| match luck >> (task.0 % 16 * 4) & 7 {
                    0 => Outcome::Denied,
                    1 => Outcome::Stale,
                    2 => Outcome::Gone,
                    3 => Outcome::NotThisMachine,
                    _ => Outcome::Applied,
                };
                last = outcomes(&decision, fate);
                world.carry_out(&last);
                if luck & 15 == 9 {
                    world.tasks.pop();
                }
                state = decision.state;
            }
        }
    }

    /// The same of those that measure before they act, for half a minute each: programs tell their speeds, and go on as
    /// they are for some seconds, in every other of which orders are refused, now and then, or a task ends.
    /// Holds place/policies.
    #[test]
    fn learners_are_legal_and_deterministic(
        start in worlds(),
        changes in proptest::collection::vec((proptest::collection::vec(any::<Signals>(), 1..8), any::<u64>()), 4),
    ) {
        for name in LEARNERS {
            let (policy, mut world) = (make(name, &start), start.clone());
            world.tells = true;
            let (mut state, mut last, mut at) = (State::default(), Vec::new(), ROUND);
            for (i, (signals, luck)) in (1..).zip(&changes) {
                world.set_signals(signals);
                while at < Time::from_millis(8_000 * i) {
                    let decision = decide(&*policy, &world, at, &last, state.clone());
                    assert_legal(&world, at, &decision, name);
                    if !decision.proposals.is_empty() {
                        let stored: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
                        prop_assert_eq!(&decide(&*policy, &world, at, &last, stored), &decision, "{}: its state is not plain", name);
                    }
                    let fate = |task: TaskId| match luck >> (task.0 % 16 * 4) & 15 {
                        0 if i % 2 == 0 => Outcome::Denied,
                        1 if i % 2 == 0 => Outcome::Stale,
                        2 if i % 2 == 0 => Outcome::Gone,
                        3 if i % 2 == 0 => Outcome::NotThisMachine,
                        _ => Outcome::Applied,
                    };
                    last = outcomes(&decision, fate);
                    world.carry_out(&last);
                    (at, state) = (decision.wake_at, decision.state);
                }
            }
        }
    }

    /// A state of any other policy, or of another machine, is no reason to fail.
    /// Holds place/policies.
    #[test]
    fn any_state_is_taken(one in worlds(), other in worlds()) {
        for before in all(&one) {
            let Some((decision, at)) = first_acts(&*before, &one, State::default(), ROUND) else { continue };
            let fate = outcomes(&decision, |_| Outcome::Applied);
            for policy in all(&other) {
                let next = decide(&*policy, &other, at, &fate, decision.state.clone());
                assert_legal(&other, at, &next, policy.name());
                assert_explains(&*policy, &next.state);
                // A state of another policy has no content.
                if decision.state.section() != next.state.section() {
                    assert!(policy.learned(&decision.state).is_empty(), "{}", policy.name());
                }
            }
        }
    }

    /// Nor is one of 20 s of learning, at any time in between, where tasks have the same numbers.
    #[test]
    fn what_was_learnt_elsewhere_is_taken(one in worlds(), other in worlds()) {
        for name in LEARNERS {
            let (mut one, mut other) = (one.clone(), other.clone());
            (one.tells, other.tells) = (true, true);
            one.tasks.truncate(other.tasks.len());
            other.tasks.truncate(one.tasks.len());
            for (task, twin) in other.tasks.iter_mut().zip(&one.tasks) {
                task.id = twin.id;
            }
            let [here, there] = [&one, &other].map(|world| make(name, world));
            let (mut state, mut last, mut at) = (State::default(), Vec::new(), ROUND);
            while at < Time::from_secs(20) {
                let decision = decide(&*here, &one, at, &last, state);
                last = outcomes(&decision, |_| Outcome::Applied);
                one.carry_out(&last);
                (at, state) = (decision.wake_at, decision.state.clone());
                if decision.proposals.is_empty() && at.0 % 1_000_000_000 > 0 {
                    continue;
                }
                let (mut moved, mut now, mut taken, mut fate) = (other.clone(), at, state.clone(), last.clone());
                for _ in 0..8 {
                    let next = decide(&*there, &moved, now, &fate, taken);
                    assert_legal(&moved, now, &next, name);
                    fate = outcomes(&next, |_| Outcome::Applied);
                    moved.carry_out(&fate);
                    (now, taken) = (next.wake_at, next.state);
                }
            }
        }
    }

    /// Swapping equivalent cores inside a last-level-cache domain changes neither the moved tasks nor their domains.
    /// Holds place/policies.
    #[test]
    fn cores_of_a_domain_are_equal(world in worlds().prop_map(World::with_whole_domains), keys in proptest::collection::vec(any::<u8>(), 36)) {
        let relabelled = world.relabelled(&keys);
        for name in cotenant_policies::standard().names() {
            let moves = |world: &World| first_acts(&*make(name, world), world, State::default(), ROUND).map(|(decision, _)| {
                let mut moves = BTreeMap::new();
                let places = decision.proposals.iter().filter(|p| !matches!(p.action, Action::Pages { .. }));
                for p in places {
                    let from = world.tasks.iter().find(|t| Some(TaskId(t.id)) == p.action.task()).and_then(|t| t.cpu).and_then(|c| world.topology.llc_of(c));
                    let to = match &p.action {
                        Action::Place { contexts, .. } => domains_of(&world.topology, contexts),
                        _ => BTreeSet::new(),
                    };
                    moves.insert(p.action.task(), (from, to));
                }
                moves
            });
            prop_assert_eq!(moves(&world), moves(&relabelled), "{}", name);
        }
    }

    /// After a decision of which nothing was carried out, the policy still takes its tasks to be where they were:
    /// whenever it acts again in the same situation, it decides the same.
    /// Holds place/policies.
    #[test]
    fn what_was_denied_did_not_happen(world in worlds(), fate in prop_oneof![Just(Outcome::Denied), Just(Outcome::Stale), Just(Outcome::NotThisMachine)]) {
        for policy in all(&world) {
            let Some((first, mut at)) = first_acts(&*policy, &world, State::default(), ROUND) else { continue };
            let (mut state, mut last) = (first.state.clone(), outcomes(&first, |_| fate));
            // Hours between the rounds, so that no wait after a refusal remains.
            let again = (0..3).find_map(|_| {
                at = Time(at.0 + Time::from_secs(7_200).0);
                let decision = decide(&*policy, &world, at, &last, std::mem::take(&mut state));
                last = outcomes(&decision, |_| fate);
                state = decision.state.clone();
                (!decision.proposals.is_empty()).then_some(decision)
            });
            prop_assert_eq!(again.map(|d| d.proposals), Some(first.proposals), "{}", policy.name());
        }
    }

    /// Once nothing is read of any task any more, none waits on what was read before. Where tasks may run stays as it
    /// was: that delays none. In `fifo` jobs wait for those before them, whatever is read.
    #[test]
    fn nobody_waits_on_what_was_read_before(start in worlds()) {
        for policy in all(&start).into_iter().filter(|policy| policy.name() != "fifo") {
            let (mut world, mut state, mut last, mut at) = (start.clone(), State::default(), Vec::new(), ROUND);
            let mut waits: BTreeMap<TaskId, u32> = BTreeMap::new();
            world.tells = LEARNERS.contains(&policy.name());
            for round in 0..200 {
                if round == 50 {
                    world.fall_silent();
                }
                let decision = decide(&*policy, &world, at, &last, state);
                for Proposal { action, .. } in &decision.proposals {
                    let task = action.task();
                    prop_assert!(task.is_some(), "{}: {action:?} holds until it is taken back", policy.name());
                    match (action, task) {
                        (Action::Pause { .. }, Some(task)) => drop(waits.insert(task, round)),
                        (Action::Place { .. } | Action::Release { .. }, Some(task)) => drop(waits.remove(&task)),
                        _ => {}
                    }
                }
                last = outcomes(&decision, |_| Outcome::Applied);
                world.carry_out(&last);
                (at, state) = (decision.wake_at, decision.state);
            }
            prop_assert!(waits.values().all(|since| *since >= 50), "{}: {waits:?}", policy.name());
        }
    }

    /// The competition ends with all tasks in the winner's places, or left to the kernel.
    /// Promise place/atom: `atom` finds the best class, learns again when co-runners come, and on simulated machines
    /// loses at most 3 % to the optimum.
    #[test]
    fn learning_ends(start in worlds()) {
        let policy = make("atom", &start);
        let (mut world, mut state, mut last, mut at) = (start, State::default(), Vec::new(), ROUND);
        // Half a second of watching, then at most 6 classes, and the kernel's, with 2 turns of 200 ms each and a
        // round to put each in place.
        let bound = Time::from_millis(500 + 7 * 2 * (200 + 100));
        let mut acted = at;
        while at < Time(bound.0 + 2_000_000_000) {
            let decision = decide(&*policy, &world, at, &last, state);
            if !decision.proposals.is_empty() {
                acted = at;
            }
            last = outcomes(&decision, |_| Outcome::Applied);
            world.carry_out(&last);
            (at, state) = (decision.wake_at, decision.state);
        }
        prop_assert!(acted <= bound, "it still moves tasks at {acted:?}");
    }

    /// With unchanged rates, and every order carried out, moves end, for any masks.
    /// Holds place/policies.
    #[test]
    fn settles(start in worlds()) {
        // Not numad: by its rules a process may alternate between one node and two forever.
        for name in ["static", "heuristic", "resense", "sam", "dino", "brute-force", "assignment"] {
            let policy = make(name, &start);
            let (mut world, mut state, mut last) = (start.clone(), State::default(), Vec::new());
            let mut at = ROUND;
            let bound = 2 + start.tasks.len() as u64;
            let mut history = Vec::new();
            for i in 1..=bound + 3 {
                let decision = decide(&*policy, &world, at, &last, state);
                at = decision.wake_at;
                last = outcomes(&decision, |_| Outcome::Applied);
                world.carry_out(&last);
                history.push(decision.proposals.iter().map(|p| format!("{} {:?}", p.reason.stage, p.action)).collect::<Vec<_>>());
                prop_assert!(i <= bound || decision.proposals.is_empty(), "{name} still moves tasks in round {i}: {history:#?}");
                state = decision.state;
            }
        }
    }
}

/// The generator reaches what the properties are about; a suite over idle worlds would prove nothing.
#[test]
fn the_worlds_are_worth_it() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut acted, mut forbidden, mut crowded, mut offline) = (BTreeMap::<&str, u32>::new(), 0, 0, 0);
    for _ in 0..200 {
        let world = worlds().new_tree(&mut runner).unwrap().current();
        let usable: &CpuSet = world.topology.usable();
        forbidden += u32::from(world.tasks.iter().any(|t| !usable.is_subset(&t.allowed)));
        crowded += u32::from(world.tasks.len() > usable.len());
        offline += u32::from(world.topology.online().len() < world.topology.cpus().len());
        for policy in all(&world) {
            *acted.entry(policy.name()).or_default() +=
                u32::from(first_acts(&*policy, &world, State::default(), ROUND).is_some());
        }
        let mut world = world;
        world.tells = true;
        for name in LEARNERS {
            let policy = make(name, &world);
            let (mut state, mut at, mut tries) = (State::default(), ROUND, false);
            while at < Time::from_millis(8_000) && !tries {
                let decision = decide(&*policy, &world, at, &[], state);
                tries = !decision.proposals.is_empty();
                (at, state) = (decision.wake_at, decision.state);
            }
            *acted.entry(name).or_default() += u32::from(tries);
        }
    }
    assert!(forbidden > 40 && crowded > 20 && offline > 40, "{forbidden} {crowded} {offline}");
    assert_eq!(acted["none"], 0);
    let acting = ["static", "heuristic", "atom", "resense", "sam", "numad", "dino", "brute-force", "assignment"];
    for name in acting.into_iter().chain(LEARNERS) {
        assert!(acted[name] > 30, "{name} acted in {} of 200", acted[name]);
    }
}

/// Found by `settles`: where packages differ in cores they differ in what makes a task memory-bound (the socket's
/// bandwidth over its cores), so that a swap can bring home more traffic than it takes away.
#[test]
fn sam_does_not_swap_a_socket_into_more_traffic() {
    // CPUs 0-2: 25 M/s make a task memory-bound; CPU 3, with 4 and 5 offline: 75 M/s.
    let mut parts = parts(2, 1, 3, 1);
    let online = CpuSet::parse_list("0-3").unwrap();
    parts.cpus.iter_mut().for_each(|c| c.online = online.contains(c.id));
    parts.resources.iter_mut().for_each(|r| r.cpus = r.cpus.and(&online));
    parts.nodes.iter_mut().for_each(|n| n.cpus = n.cpus.and(&online));
    let topology = Topology::new(parts).unwrap();
    let thresholds = Thresholds {
        coherence_per_cycle: 2.5e-4,
        socket_bandwidth_per_s: 75e6,
        task_bandwidth_per_s: None,
        remote_per_cycle: Some(1e-3),
    };
    let machine = MachineProfile { thresholds: Some(thresholds), ..MachineProfile::default() };
    let (apps, config) = (BTreeMap::new(), Config::default());
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    // package 0: 30 24 24 M/s, above 75 │ package 1: 60 M/s, which is not memory-bound there
    let view = [(0, 3_000_000), (1, 2_400_000), (2, 2_400_000), (3, 6_000_000)]
        .into_iter()
        .fold(ViewBuilder::new(&topology), |b, (id, misses)| {
            let task = b.task(id, 0, id).cycles(220_000_000).signal(Signal::Inter, 0).signal(Signal::Intra, 0);
            task.signal(Signal::Remote, 0).signal(Signal::LlcMisses, misses)
        })
        .view();
    let decision = Policy::decide(&Sam::default(), &ctx, &view, &[], SamState::default(), view.at);
    assert_eq!(decision.proposals, [], "30 for 60 M/s would make 108 of 78");
}
