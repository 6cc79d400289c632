//! `auto`: do what the signals allow, and take back what did not help. See `docs/policies/auto.md`.
//!
//! ```text
//!            inner policy proposes              some were applied             window full
//!   Watch ───────────────────────────▶ Asked ─────────────────────▶ Trial ───────────────▶ judge
//!     ▲ ▲                                │ none applied               gain above the noise  │ │
//!     │ └────────────────────────────────┴──────────────────────────────────────────────────┘ │ otherwise
//!     └──────────────────────────────────── Undoing ◀──────────────────────────────────────────┘ (its stage waits, twice as long)
//! ```

use super::{Ctx, Policy, State};
use crate::action::{Action, ActionOutcome, Decision, Outcome, Proposal, Reason};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, TaskId, Time};
use crate::signal::Signal;
use crate::stats::{Estimate, Summary, mean_difference};
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds over which speed is measured before and after a change.
pub const WINDOW: usize = 10;
/// A gain below this is not worth a change (§11 of the design).
pub const MIN_GAIN: f64 = 0.01;
/// Rounds after which a trial whose speed cannot be told is given up.
const LONGEST_TRIAL: u32 = 4 * WINDOW as u32;
/// The first wait of a stage that did not help, in intervals. It doubles each time, up to [`LONGEST_WAIT`].
const FIRST_WAIT: u32 = 100;
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// A calm machine is sampled at most 2^this times less often.
const CALMEST: u32 = 4;

/// The policy: another one, on probation.
pub struct Auto {
    inner: Box<dyn Policy>,
}

/// What `auto` remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AutoState {
    phase: Phase,
    /// Speed of each application since the last change.
    speed: BTreeMap<AppId, Series>,
    /// Placements that proved themselves, and still stand.
    kept: BTreeMap<TaskId, CpuSet>,
    /// Stages that did not help last time.
    waiting: BTreeMap<String, Wait>,
    /// Tasks of the last round.
    tasks: Vec<TaskId>,
    /// How often the interval is doubled now.
    calm: u32,
    /// The inner policy's memory, and the outcomes that it has not seen yet.
    inner: State,
    unseen: Vec<ActionOutcome>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Measures, and lets the inner policy decide.
    #[default]
    Watch,
    /// Has asked for a change; its outcomes are not known yet.
    Asked(Box<Trial>),
    /// Measures again.
    Trial(Box<Trial>),
    /// Has asked for the change to be taken back.
    Undoing,
}

/// A change on probation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    moved: Vec<Moved>,
    /// Stages that asked for it.
    stages: BTreeSet<String>,
    /// Speed before it.
    before: BTreeMap<AppId, Series>,
    /// The inner policy's memory before it.
    inner_before: State,
    rounds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Moved {
    task: TaskId,
    /// Where it was put; `None` = let go.
    to: Option<CpuSet>,
    /// Where it had been put before; `None` = nowhere.
    back: Option<CpuSet>,
}

/// When a stage may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Wait {
    until: Time,
    wait: Duration,
}

/// The last readings of an application's speed, as natural logarithms: differences are relative changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Series {
    /// Whether the program reports it itself; else instructions per cycle.
    progress: bool,
    logs: Vec<f64>,
}

/// Adds the view's readings. Who has none now, or turns from one measure to the other, begins anew.
fn measure(view: &View, speed: &mut BTreeMap<AppId, Series>) {
    let mut before = std::mem::take(speed);
    for app in &view.apps {
        let ran = view.tasks.iter().filter(|t| t.info.app == app.id);
        let (instructions, cycles) = ran
            .filter_map(|t| Some((t.per_s(Signal::Instructions)?, t.per_s(Signal::Cycles)?)))
            .fold((0.0, 0.0), |sum, task| (sum.0 + task.0, sum.1 + task.1));
        let (progress, value) = match app.progress_per_s {
            Some(units) => (true, units),
            None => (false, instructions / cycles),
        };
        if value.is_finite() && value > 0.0 {
            let old = before.remove(&app.id).filter(|s| s.progress == progress);
            let mut series = old.unwrap_or(Series { progress, logs: Vec::new() });
            if series.logs.len() == WINDOW {
                series.logs.remove(0);
            }
            series.logs.push(value.ln());
            speed.insert(app.id, series);
        }
    }
}

fn full(speed: &BTreeMap<AppId, Series>) -> bool {
    !speed.is_empty() && speed.values().all(|s| s.logs.len() == WINDOW)
}

/// The relative change of the geometric mean of the applications' speeds, as a logarithm; over those that are known on both sides.
fn gain(before: &BTreeMap<AppId, Series>, after: &BTreeMap<AppId, Series>) -> Option<Estimate> {
    let pairs: Vec<(Summary, Summary)> = before
        .iter()
        .filter_map(|(id, b)| {
            let a = after.get(id).filter(|a| a.progress == b.progress)?;
            Some((Summary::of(&b.logs), Summary::of(&a.logs)))
        })
        .collect();
    mean_difference(&pairs)
}

/// What stands between the view and a decision.
fn obstacle(inner: &dyn Policy, ctx: &Ctx<'_>, view: &View) -> Option<String> {
    let known = |signal| view.tasks.iter().any(|t| t.per_s(signal).is_some());
    let missing: Vec<&str> = [Signal::Cycles, Signal::Inter, Signal::Intra, Signal::LlcMisses]
        .into_iter()
        .filter(|&s| !known(s))
        .map(Signal::name)
        .collect();
    if view.tasks.is_empty() {
        return None;
    }
    if !missing.is_empty() {
        let progress = view.apps.iter().any(|a| a.progress_per_s.is_some() || !a.metrics.is_empty());
        let instead =
            if progress { "nothing is decided from progress alone yet" } else { "placement is left to the kernel" };
        let missing = missing.join(", ");
        return Some(format!(
            "no decision: {instead}; needed: the signals {missing} (`cotenant doctor` tells how to get them)"
        ));
    }
    inner.check(ctx).err().map(|refusal| format!("no decision: {}; {}", refusal.why, refusal.remedy))
}

/// Whether no signal is above its threshold. Without thresholds nothing is known to be above.
fn calm(ctx: &Ctx<'_>, view: &View) -> bool {
    let Some(thresholds) = ctx.machine.thresholds else { return true };
    let above = |signal, threshold: f64| view.tasks.iter().any(|t| t.per_cycle(signal).is_some_and(|v| v > threshold));
    let mut traffic = vec![0.0; ctx.topology.packages().len()];
    for task in &view.tasks {
        if let Some(package) = task.cpu.and_then(|cpu| ctx.topology.package_of(cpu)) {
            traffic[package] += task.per_s(Signal::LlcMisses).unwrap_or(0.0);
        }
    }
    !above(Signal::Inter, thresholds.coherence_per_cycle)
        && !above(Signal::Near, thresholds.coherence_per_cycle)
        && !thresholds.remote_per_cycle.is_some_and(|threshold| above(Signal::Remote, threshold))
        && !traffic.iter().any(|t| *t > thresholds.socket_bandwidth_per_s)
}

/// Splits a batch into what may be tried now and what must wait: proposals of waiting stages, and those that count on the room
/// that one of these would make.
fn split(view: &View, proposals: Vec<Proposal>, waits: impl Fn(&Proposal) -> bool) -> (Vec<Proposal>, Vec<Proposal>) {
    let (mut held, mut tried): (Vec<_>, Vec<_>) = proposals.into_iter().partition(waits);
    loop {
        let stays: CpuSet = held.iter().filter_map(|p| view.task(p.action.task())?.cpu).collect();
        let needs_room =
            |p: &Proposal| matches!(&p.action, Action::Place { contexts, .. } if contexts.is_subset(&stays));
        let (more, rest): (Vec<_>, Vec<_>) = tried.into_iter().partition(needs_room);
        tried = rest;
        if more.is_empty() {
            return (tried, held);
        }
        held.extend(more);
    }
}

impl AutoState {
    /// Takes note of what became of the last round's proposals. True where the view spans a change, so that it tells no speed.
    fn learn(&mut self, outcomes: &[ActionOutcome], now: Time, first_wait: Duration) -> bool {
        let applied: BTreeSet<TaskId> =
            outcomes.iter().filter(|o| o.outcome == Outcome::Applied).map(|o| o.action.task()).collect();
        match std::mem::take(&mut self.phase) {
            Phase::Asked(mut trial) => {
                self.unseen.extend_from_slice(outcomes);
                trial.moved.retain(|m| applied.contains(&m.task));
                if trial.moved.is_empty() {
                    if outcomes.iter().any(|o| matches!(o.outcome, Outcome::Denied | Outcome::Stale)) {
                        self.back_off(&trial.stages, now, first_wait);
                    }
                    return false;
                }
                trial.before = std::mem::take(&mut self.speed);
                self.phase = Phase::Trial(trial);
                true
            }
            Phase::Undoing => {
                for outcome in outcomes.iter().filter(|o| o.outcome == Outcome::Applied) {
                    match &outcome.action {
                        Action::Place { task, contexts } => drop(self.kept.insert(*task, contexts.clone())),
                        Action::Release { task } => drop(self.kept.remove(task)),
                    }
                }
                self.speed.clear();
                true
            }
            phase => {
                self.phase = phase;
                false
            }
        }
    }

    fn back_off(&mut self, stages: &BTreeSet<String>, now: Time, first_wait: Duration) {
        for stage in stages {
            let wait = self.waiting.get(stage).map_or(first_wait, |w| (w.wait * 2).min(LONGEST_WAIT));
            self.waiting.insert(stage.clone(), Wait { until: now + wait, wait });
        }
    }

    /// Lets the inner policy decide, and puts what may be tried on probation.
    fn ask(
        &mut self,
        inner: &dyn Policy,
        ctx: &Ctx<'_>,
        view: &View,
        now: Time,
        notes: &mut Vec<String>,
    ) -> Vec<Proposal> {
        let decision = inner.decide(ctx, view, &self.unseen, self.inner.clone(), now);
        notes.extend(decision.notes);
        let waits = |p: &Proposal| self.waiting.get(&*p.reason.stage).is_some_and(|w| w.until > now);
        let (tried, held) = split(view, decision.proposals, waits);
        if tried.is_empty() {
            // Nothing is done, so the inner policy was not asked: it remembers what it did before.
            if held.is_empty() {
                self.inner = decision.state;
                self.unseen.clear();
            }
            return tried;
        }
        let inner_before = std::mem::replace(&mut self.inner, decision.state);
        let denied = |p: &Proposal| ActionOutcome { action: p.action.clone(), outcome: Outcome::Denied };
        self.unseen = held.iter().map(denied).collect();
        let moved = |p: &Proposal| Moved {
            task: p.action.task(),
            to: match &p.action {
                Action::Place { contexts, .. } => Some(contexts.clone()),
                Action::Release { .. } => None,
            },
            back: self.kept.get(&p.action.task()).cloned(),
        };
        self.phase = Phase::Asked(Box::new(Trial {
            moved: tried.iter().map(moved).collect(),
            stages: tried.iter().map(|p| p.reason.stage.to_string()).collect(),
            before: BTreeMap::new(),
            inner_before,
            rounds: 0,
        }));
        tried
    }

    /// Ends a trial: keeps the change or takes it back.
    fn judge(&mut self, trial: Trial, view: &View, now: Time, first_wait: Duration) -> Vec<Proposal> {
        for moved in &trial.moved {
            match &moved.to {
                Some(contexts) => drop(self.kept.insert(moved.task, contexts.clone())),
                None => drop(self.kept.remove(&moved.task)),
            }
        }
        let gain = gain(&trial.before, &self.speed);
        if gain.is_some_and(|g| g.low() > 0.0 && g.value.exp_m1() >= MIN_GAIN) {
            for stage in &trial.stages {
                self.waiting.remove(stage);
            }
            return Vec::new();
        }
        self.back_off(&trial.stages, now, first_wait);
        self.inner = trial.inner_before;
        self.unseen.clear();
        self.phase = Phase::Undoing;
        let what = match gain {
            Some(g) => format!(
                "the change did not help: speed {:+.1} % ± {:.1} %, and at least {:.0} % is asked of it",
                g.value.exp_m1() * 100.0,
                g.half_width * 100.0,
                MIN_GAIN * 100.0
            ),
            None => "whether the change helped cannot be told".to_owned(),
        };
        let undo = |m: Moved| {
            let task = view.task(m.task)?;
            let back = m.back.filter(|contexts| contexts.intersects(&task.info.allowed));
            let action = match back {
                Some(contexts) => Action::Place { task: m.task, contexts: contexts.and(&task.info.allowed) },
                None => Action::Release { task: m.task },
            };
            Some(Proposal { action, reason: Reason { what: what.clone().into(), ..Reason::new("undo", "") } })
        };
        trial.moved.into_iter().filter_map(undo).collect()
    }
}

impl Auto {
    /// `auto` over a policy that needs counters.
    pub fn new(inner: Box<dyn Policy>) -> Self {
        Self { inner }
    }
}

impl Policy for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn wants_task_changes(&self) -> bool {
        true
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, outcomes: &[ActionOutcome], state: State, now: Time) -> Decision {
        let interval = ctx.config.interval;
        let first_wait = interval * FIRST_WAIT;
        let mut s = match state {
            State::Auto(state) => *state,
            _ => AutoState::default(),
        };
        s.kept.retain(|id, _| view.task(*id).is_some());
        let spans_change = s.learn(outcomes, now, first_wait);
        // A view over a fraction of an interval, after an early wake, is mostly noise.
        let measured = !spans_change && view.interval >= interval / 2;
        if measured {
            measure(view, &mut s.speed);
        }
        let tasks: Vec<TaskId> = view.tasks.iter().map(|t| t.info.id).collect();
        let new_tasks = tasks.iter().any(|id| s.tasks.binary_search(id).is_err());
        s.tasks = tasks;

        let mut notes = Vec::new();
        let mut is_calm = false;
        let mut proposals = Vec::new();
        match std::mem::take(&mut s.phase) {
            Phase::Trial(mut trial) => {
                trial.rounds += u32::from(measured);
                if full(&s.speed) || trial.rounds >= LONGEST_TRIAL {
                    proposals = s.judge(*trial, view, now, first_wait);
                } else {
                    s.phase = Phase::Trial(trial);
                }
            }
            _ => match obstacle(&*self.inner, ctx, view) {
                Some(note) => notes.push(note),
                None if !measured => {}
                None if calm(ctx, view) => is_calm = true,
                None if !full(&s.speed) => {
                    if s.speed.is_empty() && !view.tasks.is_empty() {
                        notes.push(
                            "no decision: whether it helps could not be told; needed: instructions, or progress reported by the program"
                                .to_owned(),
                        );
                    }
                }
                None => proposals = s.ask(&*self.inner, ctx, view, now, &mut notes),
            },
        }
        s.calm = if is_calm && !new_tasks { (s.calm + 1).min(CALMEST) } else { 0 };
        let wake_at = now + interval * 2u32.pow(s.calm);
        Decision { proposals, state: State::Auto(Box::new(s)), wake_at, notes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::ids::CpuId;
    use crate::profile::{AppProfile, MachineProfile, Thresholds};
    use crate::testing::{ViewBuilder, machine};
    use crate::topology::Topology;

    const INTERVAL_MS: u64 = 100;
    const CYCLES: u64 = 220_000_000;

    /// Wants task 1 on package 1 (CPU 2), in stage 1; remembers how often it was asked.
    struct Wish;

    impl Policy for Wish {
        fn name(&self) -> &'static str {
            "wish"
        }
        fn decide(&self, _: &Ctx<'_>, view: &View, _: &[ActionOutcome], state: State, now: Time) -> Decision {
            let away = view.tasks[0].cpu != Some(CpuId(2));
            let place = Proposal {
                action: Action::Place { task: TaskId(1), contexts: CpuSet::single(CpuId(2)) },
                reason: Reason::new("stage 1", "wished"),
            };
            Decision { proposals: away.then_some(place).into_iter().collect(), state, wake_at: now, notes: Vec::new() }
        }
    }

    /// Two packages of two cores; task 1 shares data with another package.
    struct World {
        topology: Topology,
        machine: MachineProfile,
        apps: BTreeMap<String, AppProfile>,
        config: Config,
        policy: Auto,
        state: State,
        outcomes: Vec<ActionOutcome>,
        cpu: u32,
        now_ms: u64,
        round: u64,
        /// Instructions per cycle × 1,000 on package 0 and on package 1, and how much they swing from round to round.
        speed: [u64; 2],
        noise: u64,
        inter: Option<u64>,
        outcome: Outcome,
    }

    impl World {
        fn new(speed: [u64; 2], noise: u64) -> Self {
            let thresholds = Thresholds {
                coherence_per_cycle: 2.5e-4,
                socket_bandwidth_per_s: 75e6,
                task_bandwidth_per_s: None,
                remote_per_cycle: None,
            };
            Self {
                topology: machine(2, 1, 2, 1),
                machine: MachineProfile { thresholds: Some(thresholds), ..MachineProfile::default() },
                apps: BTreeMap::new(),
                config: Config::default(),
                policy: Auto::new(Box::new(Wish)),
                state: State::Empty,
                outcomes: Vec::new(),
                cpu: 0,
                now_ms: 0,
                round: 0,
                speed,
                noise,
                inter: Some(CYCLES / 1_000),
                outcome: Outcome::Applied,
            }
        }

        /// One round; carries out what is decided, and returns it.
        fn step(&mut self) -> Decision {
            self.round += 1;
            self.now_ms += INTERVAL_MS;
            // −1, 0, +1 noise in turn.
            let ipc = self.speed[usize::from(self.cpu >= 2)] + self.round % 3 * self.noise - self.noise;
            let mut builder = ViewBuilder::new(&self.topology)
                .at(Time::from_millis(self.now_ms))
                .task(1, 0, self.cpu)
                .cycles(CYCLES)
                .signal(Signal::Instructions, CYCLES / 1_000 * ipc)
                .signal(Signal::Intra, 0)
                .signal(Signal::LlcMisses, 0);
            if let Some(inter) = self.inter {
                builder = builder.signal(Signal::Inter, inter);
            }
            let view = builder.view();
            let ctx = Ctx { topology: &self.topology, machine: &self.machine, apps: &self.apps, config: &self.config };
            let decision = self.policy.decide(&ctx, &view, &self.outcomes, std::mem::take(&mut self.state), view.at);
            // Everything that is remembered survives serialisation.
            self.state = serde_json::from_str(&serde_json::to_string(&decision.state).unwrap()).unwrap();
            assert_eq!(self.state, decision.state);
            let outcome = self.outcome;
            self.outcomes =
                decision.proposals.iter().map(|p| ActionOutcome { action: p.action.clone(), outcome }).collect();
            for proposal in decision.proposals.iter().filter(|_| outcome == Outcome::Applied) {
                self.cpu = match &proposal.action {
                    Action::Place { contexts, .. } => contexts.first().unwrap().0,
                    Action::Release { .. } => 0, // the kernel brings it back
                };
            }
            decision
        }

        /// The rounds in which something was proposed, among the next `rounds`, with the stage.
        fn run(&mut self, rounds: u64) -> Vec<(u64, String)> {
            let mut acts = Vec::new();
            for _ in 0..rounds {
                let decision = self.step();
                acts.extend(decision.proposals.iter().map(|p| (self.round, p.reason.stage.to_string())));
            }
            acts
        }
    }

    fn stage(round: u64, stage: &str) -> (u64, String) {
        (round, stage.to_owned())
    }

    #[test]
    fn keeps_what_helps() {
        // 10 rounds before, the move in the tenth, one round that spans it, 10 rounds after: kept, and nothing more to wish for.
        let mut world = World::new([1_000, 1_100], 10);
        assert_eq!(world.run(100), [stage(10, "stage 1")]);
        assert_eq!(world.cpu, 2);
    }

    #[test]
    fn takes_back_what_does_not_help_and_waits_twice_as_long() {
        let mut world = World::new([1_000, 1_000], 10);
        // Round 10: moved; 11 spans it; 12–21 measured; 21: undone, the stage waits 100 rounds. 22 spans the undoing.
        assert_eq!(world.run(120), [stage(10, "stage 1"), stage(21, "undo")]);
        // Round 121: again; undone in 132; then it waits for 200 rounds.
        assert_eq!(
            world.run(240),
            [stage(121, "stage 1"), stage(132, "undo"), stage(332, "stage 1"), stage(343, "undo")]
        );
        assert_eq!(world.cpu, 0, "let go, since it had not been placed before");
    }

    #[test]
    fn a_gain_below_the_noise_or_below_one_percent_is_no_gain() {
        // +2 % under ±10 %: the interval holds 0. +0.9 % without noise: below 1 %.
        for (speed, noise) in [([1_000, 1_020], 100), ([1_000, 1_009], 0)] {
            assert_eq!(World::new(speed, noise).run(30), [stage(10, "stage 1"), stage(21, "undo")], "{speed:?}");
        }
        assert_eq!(World::new([1_000, 1_011], 0).run(30), [stage(10, "stage 1")], "1.1 % without noise");
        let mut world = World::new([1_000, 900], 0);
        world.run(20);
        let text = world.step().proposals[0].reason.to_string();
        assert_eq!(text, "undo: the change did not help: speed -10.0 % ± 0.0 %, and at least 1 % is asked of it");
    }

    #[test]
    fn undoing_returns_to_the_placement_before() {
        let mut world = World::new([1_000, 1_100], 0);
        world.run(30); // kept on CPU 2
        world.cpu = 1; // and somebody moves it away; the next move to CPU 2 does not help any more
        world.speed = [1_000, 1_000];
        let mut undo = None;
        while undo.is_none() {
            undo = world.step().proposals.into_iter().find(|p| p.reason.stage == "undo");
            assert!(world.round < 100);
        }
        let back = Action::Place { task: TaskId(1), contexts: CpuSet::single(CpuId(2)) };
        assert_eq!(undo.unwrap().action, back, "its last proven placement, not a release");
    }

    #[test]
    fn a_denied_change_is_no_trial() {
        let mut world = World::new([1_000, 1_100], 0);
        world.outcome = Outcome::Denied;
        assert_eq!(world.run(120), [stage(10, "stage 1"), stage(111, "stage 1")], "asked again after 100 rounds");
        // Nobody carries it out: what it would do is said in every round.
        let mut world = World::new([1_000, 1_100], 0);
        world.outcome = Outcome::NotThisMachine;
        assert_eq!(world.run(13).len(), 4);
    }

    #[test]
    fn absent_signals_move_nothing() {
        let mut world = World::new([1_000, 1_100], 0);
        world.inter = None;
        assert_eq!(world.run(30), []);
        let notes = world.step().notes;
        assert!(notes[0].contains("needed: the signals inter"), "{notes:?}");
        let mut world = World::new([1_000, 1_100], 0);
        world.speed = [0, 0];
        assert_eq!(world.run(30), [], "speed unknown");
        assert!(world.step().notes[0].contains("needed: instructions"));
    }

    #[test]
    fn a_calm_machine_is_left_alone_and_sampled_less_often() {
        let mut world = World::new([1_000, 1_100], 0);
        world.inter = Some(CYCLES / 10_000); // 1e-4 per cycle, below 2.5e-4
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let decision = world.step();
            assert_eq!(decision.proposals, []);
            pauses.push((decision.wake_at - Time::from_millis(world.now_ms)).as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 1_600, 1_600], "the first round has new tasks");
        world.inter = Some(CYCLES / 1_000);
        let decision = world.step();
        assert_eq!(
            (decision.wake_at - Time::from_millis(world.now_ms)).as_millis(),
            100,
            "a signal above its threshold"
        );
    }

    #[test]
    fn proposals_that_need_held_room_are_held_too() {
        // stage 1 waits: its task 1 stays on CPU 0, so stage 3 may not put task 2 there; task 3 to CPU 3 is free to go.
        let topology = machine(2, 1, 2, 1);
        let view = ViewBuilder::new(&topology).task(1, 0, 0).task(2, 0, 1).task(3, 0, 2).view();
        let place = |task, cpu, stage| Proposal {
            action: Action::Place { task: TaskId(task), contexts: CpuSet::single(CpuId(cpu)) },
            reason: Reason::new(stage, ""),
        };
        let batch = vec![place(1, 1, "stage 1"), place(2, 0, "stage 3"), place(3, 3, "stage 3")];
        let (tried, held) = split(&view, batch, |p| p.reason.stage == "stage 1");
        let tasks = |list: &[Proposal]| list.iter().map(|p| p.action.task().0).collect::<Vec<_>>();
        assert_eq!((tasks(&tried), tasks(&held)), (vec![3], vec![1, 2]));
    }
}
