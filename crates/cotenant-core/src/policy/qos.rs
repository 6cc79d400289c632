//! `qos`: keeps high-priority programs at their goal by naps of low-priority ones. The [controllers](crate::qos) say what comes next; this
//! measures how fast the programs are in each phase and turns phases into actions.

mod away;
mod ladder;
mod speed;

use super::{Ctx, Policy, Refusal, State};
use crate::action::{Action, ActionOutcome, Decision, Proposal, Reason};
use crate::ids::{AppId, Time};
use crate::qos::{self, Controller, Excess, LONGEST_NAP, Lasts, Phase, Seen, Why};
use crate::view::{TaskView, View};
pub use away::Away;
pub use ladder::{Climbed, Ladder};
use serde::{Deserialize, Serialize};
use speed::{Batches, Gathered, IPC, PROGRESS, Told, Wanted, quantile_of, speed};
use std::time::Duration;

/// A turn of running and napping where a duty is kept by both.
const TURN: Duration = Duration::from_millis(20);

/// The same where all answers are short: each is in one part of a turn or the other anyway, and each switch disturbs those under way.
const LONG_TURN: Duration = Duration::from_millis(200);

/// Answers are short up to here, seconds: half of a short turn. Longer ones have something of both parts.
const SHORT_ANSWER_S: f64 = 0.01;

/// Neither part of a turn is shorter, but for runs between the longest naps: marks are looked at every 2 ms or so.
const SHORTEST: Duration = Duration::from_millis(5);

/// In a pause that has no end yet, naps are ordered so far ahead: renewed by looks each 100 ms, which are made anyway.
const AHEAD: Duration = Duration::from_millis(150);

/// Naps that go on are ordered anew so long before they end.
const RENEWED: Duration = Duration::from_millis(50);

/// In a pause that measures, progress is looked at so often where it comes in batches, which are counted from one to the other, and else.
const FINE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Where nothing is known, it is looked whether it has become known.
const KNOWN: Duration = Duration::from_millis(25);

/// For so long it is looked as often what they do who are let run all the time.
const TRIAL: Duration = Duration::from_secs(1);

/// Why what was ordered is taken back in the end.
const NOBODY: &str = "nobody is to be kept from contention any more";

/// Weight of a new speed alone against those before.
const ALONE_WEIGHT: f64 = 0.1;

/// A program that is to keep its speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct High {
    /// Which.
    pub app: AppId,
    /// What tells its speed: `ipc`, `progress`, `latency_p50_s` or `latency_p99_s` as it reports them, or the name of a metric from outside.
    pub metric: String,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limits {
    /// CPU time.
    CpuTime,
    /// Ways of the last-level cache, and memory bandwidth.
    Caches,
}

/// Whom `qos` serves, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QosConfig {
    /// What decides.
    pub controller: Controller,
    /// Who is to keep the goal.
    pub high: Vec<High>,
    /// Who naps for it.
    pub low: Vec<AppId>,
    /// Contention is answered by another place for the others first, where there is one.
    #[serde(default)]
    pub place: bool,
    /// Duties between nap and run are kept by these instead of turns.
    pub limits: Option<Limits>,
    /// They come to be where naps are not obeyed, or do not keep the goal; and who naps runs in the background where the controller wants that.
    #[serde(default)]
    pub climb: bool,
    /// How late naps may be obeyed: so much of the beginning of a phase tells nothing of it; at most half of the phase.
    pub settle: Duration,
    /// How long a reading of a metric is waited for.
    pub patience: Duration,
}

/// What `qos` remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosState {
    /// Of the controller; `None`: nobody needs it now.
    controller: Option<qos::State>,
    /// What is done now.
    pub phase: Option<Phase>,
    /// Since when.
    began: Time,
    /// Since when what they do is something else than before.
    #[serde(default)]
    tried: Time,
    /// Speeds in this phase, by high-priority program.
    sums: Vec<Sum>,
    /// Until when naps are ordered.
    napping_until: Time,
    /// Where a duty is kept by turns, when the present turn ends.
    turn_ends: Time,
    /// Where who runs.
    #[serde(default)]
    pub away: Away,
    /// Whether naps do.
    #[serde(default)]
    pub ladder: Ladder,
    /// Latencies on the way to a reading, by high-priority program.
    #[serde(default)]
    gathered: Vec<Gathered>,
    /// Whether the background was ordered.
    #[serde(default)]
    background: bool,
    /// The limit of CPU time that was ordered, thousandths of all CPUs.
    limited: Option<u32>,
    /// The limit of cache ways and memory bandwidth that was ordered, thousandths.
    #[serde(default)]
    caches: Option<u32>,
    /// Speed of each high-priority program in phases without the others; a moving mean.
    pub alone: Vec<Option<f64>>,
    /// Sums since the beginning.
    pub total: QosSums,
}

/// Sums over all phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosSums {
    /// Time in which decisions were made, seconds.
    pub seconds: f64,
    /// Of it, as much as the low-priority programs were to run.
    pub duty_s: f64,
    /// Naps that were ordered.
    pub naps: u64,
    /// Speed of each high-priority program, added up over `weights`; their quotient is its mean.
    pub speeds: Vec<f64>,
    /// Seconds for progress and latencies, cycles for IPC, readings for metrics from outside.
    pub weights: Vec<f64>,
    /// Its speed alone, added up likewise; the speed alone between two measurements of it is the mean of both.
    #[serde(default)]
    alones: Vec<f64>,
    /// The weights since the last of these measurements.
    #[serde(default)]
    pending: Vec<f64>,
}

/// A speed in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    speed: f64,
    weight: f64,
    readings: u32,
    #[serde(default)]
    batches: Batches,
    /// Of the last reading.
    #[serde(default)]
    excess: Option<Excess>,
    /// The speed alone by all pauses so far, where single answers tell it.
    #[serde(default)]
    alone: Option<f64>,
}

impl QosSums {
    /// Enters what was pending where a speed alone was measured anew.
    fn settle(&mut self, before: &[Option<f64>], now: &[Option<f64>]) {
        self.alones.resize(self.pending.len(), 0.0);
        for (i, (sum, pending)) in self.alones.iter_mut().zip(&mut self.pending).enumerate() {
            let of = |alone: &[Option<f64>]| alone.get(i).copied().flatten();
            // None before: it is from here that it is known. None now: what was known holds on.
            let alone = match (of(before), of(now)) {
                (Some(before), Some(now)) if before.to_bits() != now.to_bits() => f64::midpoint(before, now),
                (None, Some(now)) => now,
                (Some(before), None) => before,
                _ => continue,
            };
            *sum += alone * std::mem::take(pending);
        }
    }
}

impl Sum {
    /// By all that was counted.
    fn counted(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.speed / self.weight)
    }

    /// From batch to batch where progress comes in such, and was looked at often enough for that.
    fn mean(&self) -> Option<f64> {
        if self.batches.are_seen() { self.batches.per_second() } else { self.counted() }
    }
}

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Qos;

impl Policy for Qos {
    fn name(&self) -> &'static str {
        "qos"
    }

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        let refuse = |why: &str, remedy: &str| {
            Err(Refusal { policy: self.name(), why: why.to_owned(), remedy: remedy.to_owned() })
        };
        let Some(config) = &ctx.config.qos else {
            return refuse("nobody is named whose speed is to be kept", "use 'cotenant qos'");
        };
        let windowed = config.high.iter().any(|high| ![IPC, PROGRESS].contains(&high.metric.as_str()));
        let steady = matches!(config.controller, Controller::Steady(_));
        match () {
            () if config.high.is_empty() => refuse("no program is of high priority", "name one with --high"),
            () if windowed && !steady => refuse(
                "latencies and metrics from outside tell of longer times than this controller's phases",
                "use --controller steady",
            ),
            () if !windowed && steady => refuse(
                "this controller waits for readings of latencies or of a metric from outside",
                "use --controller tracking",
            ),
            () if config.limits.is_some() && !config.controller.keeps_duties() => refuse(
                "limits of CPU time keep a duty, and this controller wants naps",
                "use --controller tracking, or steady for latencies and metrics from outside",
            ),
            () => Ok(()),
        }
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, results: &[ActionOutcome], state: State, now: Time) -> Decision {
        let mut state = match state {
            State::Qos(state) => *state,
            _ => QosState::default(),
        };
        let mut proposals = Vec::new();
        let mut wake_at = now + ctx.config.interval;
        if let Some(config) = &ctx.config.qos {
            let present = |app: AppId| view.apps.iter().any(|a| a.id == app);
            let low: Vec<AppId> = config.low.iter().copied().filter(|app| present(*app)).collect();
            let needed = config.high.iter().any(|high| present(high.app)) && !low.is_empty();
            state.ladder.note(ctx, config, view, results, state.phase);
            let actions = if needed { state.go_on(config, view, now) } else { state.let_go(config, now) };
            if config.place {
                proposals.extend(state.move_away(ctx, config, view, needed, now));
            }
            let actions: Vec<(Step, Reason)> =
                actions.into_iter().map(|action| (action, state.reason(config, action))).collect();
            for app in low {
                let propose = |(action, reason): &(Step, Reason)| Proposal {
                    action: action.of(app, ctx),
                    reason: reason.clone(),
                };
                proposals.extend(actions.iter().map(propose));
            }
            wake_at = wake_at.min(state.next(config, now)).max(now + Duration::from_micros(100));
        }
        Decision { proposals, state: State::Qos(Box::new(state)), wake_at, notes: Vec::new() }
    }
}

/// What all low-priority programs are to do.
#[derive(Clone, Copy, Debug)]
enum Step {
    Nap(Time),
    /// Thousandths of all CPUs.
    Limit(Option<u32>),
    Caches(Option<u32>),
    Background(bool),
}

impl Step {
    fn of(self, app: AppId, ctx: &Ctx<'_>) -> Action {
        match self {
            Self::Nap(until) => Action::Nap { app, until },
            Self::Limit(share) => {
                let cpus = ctx.topology.usable().len() as u32;
                Action::Limit { app, cpu_permille: share.map(|permille| (permille * cpus).max(1)) }
            }
            Self::Caches(permille) => Action::LimitCaches { app, permille },
            Self::Background(on) => Action::Background { app, on },
        }
    }
}

impl QosState {
    /// What a high-priority program did since the beginning, by its place, as a share of what it would have done alone.
    pub fn kept(&self, high: usize) -> Option<f64> {
        let of = |sums: &[f64]| sums.get(high).copied().unwrap_or(0.0);
        let alone = self.alone.get(high).copied().flatten()?;
        let alone = of(&self.total.alones) + of(&self.total.pending) * alone;
        (alone > 0.0).then(|| of(&self.total.speeds) / alone)
    }

    /// Mean speed of a high-priority program, by its place, since the beginning.
    pub fn mean(&self, high: usize) -> Option<f64> {
        let (speed, weight) = (self.total.speeds.get(high)?, self.total.weights.get(high)?);
        (*weight > 0.0).then(|| speed / weight)
    }

    fn go_on(&mut self, config: &QosConfig, view: &View, now: Time) -> Vec<Step> {
        let mut new = false;
        if self.controller.is_none() {
            let (phase, controller) = config.controller.start();
            self.begin(phase, controller, now, config);
            new = true;
        } else if let Some(phase) = self.phase {
            self.measure(config, view, phase);
            if self.is_over(config, phase, now) {
                let speeds: Vec<Option<f64>> = self.sums.iter().map(Sum::mean).collect();
                let counted = self.sums.iter().map(Sum::counted).collect();
                let excess = self.sums.iter().map(|sum| sum.excess).collect();
                let alone = self.sums.iter().map(|sum| sum.alone).collect();
                let grain = self.sums.iter().filter_map(|sum| sum.batches.grain()).max();
                if let Some(state) = self.controller.take() {
                    let before = self.alone.clone();
                    if phase.duty <= 0.0 && state.alone().is_none() {
                        self.note_alone(&speeds);
                    }
                    let (phase, controller) =
                        config.controller.next(state, &Seen { speeds, counted, excess, alone, grain });
                    if let Some(alone) = controller.alone() {
                        self.alone = alone.to_vec();
                    }
                    self.total.settle(&before, &self.alone);
                    self.begin(phase, controller, now, config);
                    new = true;
                }
            }
        }
        let background = config.climb && self.phase.is_some_and(|phase| phase.background);
        let background = self.background(background);
        background.into_iter().chain(self.steps(config, new, now)).collect()
    }

    /// The order that brings about that they run in the background or not, where it is not so.
    fn background(&mut self, on: bool) -> Option<Step> {
        (std::mem::replace(&mut self.background, on) != on).then_some(Step::Background(on))
    }

    fn begin(&mut self, phase: Phase, controller: qos::State, now: Time, config: &QosConfig) {
        let as_before = |before: Phase| (before.duty, before.background) == (phase.duty, phase.background);
        if !self.phase.is_some_and(as_before) {
            self.tried = now;
        }
        self.controller = Some(controller);
        self.phase = Some(phase);
        self.began = now;
        self.turn_ends = now;
        self.sums = vec![Sum::default(); config.high.len()];
    }

    /// Nobody needs anything any more.
    fn let_go(&mut self, config: &QosConfig, now: Time) -> Vec<Step> {
        (self.controller, self.phase) = (None, None);
        let beside = self.background(false);
        beside.into_iter().chain(self.free(config, now)).collect()
    }

    /// What ends a nap and limits.
    fn free(&mut self, config: &QosConfig, now: Time) -> Vec<Step> {
        let nap = (self.napping_until > now).then_some(Step::Nap(now));
        let limit = self.limit(config, None);
        self.napping_until = self.napping_until.min(now);
        nap.into_iter().chain(limit).collect()
    }

    /// Why a step is taken, with the figures that decided. For whose sake: of the program that these are of, else of the only one.
    fn reason(&self, config: &QosConfig, step: Step) -> Reason {
        let Some(phase) = self.phase else { return Reason::new("controller", NOBODY) };
        let held = phase.held.map_or_else(String::new, |held| format!("{held}; "));
        let duty =
            if phase.duty > 0.0 && phase.duty < 1.0 { format!(", duty {:.3}", phase.duty) } else { String::new() };
        let limits = self.ladder.reason(step).map_or_else(String::new, |why| format!("; {why}"));
        let what = format!("{held}{}{duty}{limits}", phase.why).into();
        Reason { what, app: whose(config, phase), ..Reason::new("controller", "") }
    }

    /// Orders about where the programs of low priority run: away from the others where contention has shown, anywhere when nobody needs
    /// that any more. Naps and limits keep what is then left to be kept.
    fn move_away(&mut self, ctx: &Ctx<'_>, config: &QosConfig, view: &View, needed: bool, now: Time) -> Vec<Proposal> {
        self.away.note(config, view);
        let contention =
            self.began == now && self.phase.is_some_and(|phase| matches!(phase.why, Why::Contention | Why::Decrease));
        let low = view.tasks.iter().filter(|task| config.low.contains(&task.info.app));
        if !needed {
            let back = self.away.take_back();
            let release = |task: &TaskView| Proposal {
                action: Action::Release { task: task.info.id },
                reason: Reason::new("place", NOBODY),
            };
            return low.filter(|_| back).map(release).collect();
        }
        if !contention {
            return Vec::new();
        }
        let Some(contexts) = self.away.send(ctx, now) else { return Vec::new() };
        let held = self.phase.and_then(|phase| phase.held).map_or_else(String::new, |held| format!("{held}; "));
        let reason = Reason {
            what: format!("{held}contention: away from the programs of high priority").into(),
            app: self.phase.and_then(|phase| whose(config, phase)),
            ..Reason::new("place", "")
        };
        let place = |task: &TaskView| {
            let contexts = contexts.and(&task.info.allowed); // who may not go there naps
            let action = Action::Place { task: task.info.id, contexts };
            Proposal { action, reason: reason.clone() }
        };
        low.filter(|task| task.info.allowed.intersects(&contexts)).map(place).collect()
    }

    fn note_alone(&mut self, speeds: &[Option<f64>]) {
        self.alone.resize(speeds.len(), None);
        for (alone, speed) in self.alone.iter_mut().zip(speeds) {
            if let Some(speed) = speed {
                *alone = Some(alone.map_or(*speed, |mean| mean + ALONE_WEIGHT * (speed - mean)));
            }
        }
    }

    /// Adds what the view tells of the speeds.
    fn measure(&mut self, config: &QosConfig, view: &View, phase: Phase) {
        let seconds = view.interval.as_secs_f64();
        self.total.seconds += seconds;
        self.total.duty_s += seconds * phase.duty;
        self.total.speeds.resize(config.high.len(), 0.0);
        self.total.weights.resize(config.high.len(), 0.0);
        self.total.pending.resize(config.high.len(), 0.0);
        self.gathered.resize_with(config.high.len(), Gathered::default);
        let from = self.began + settle(config, phase);
        let readings = if let Lasts::Readings(n) = phase.lasts { n } else { 1 };
        let alone = self.alone_before(phase);
        for (i, high) in config.high.iter().enumerate() {
            let Some(app) = view.apps.iter().find(|app| app.id == high.app) else { continue };
            let alone = alone.get(i).copied().flatten();
            let (goal, full, why) = (config.controller.goal(), phase.duty >= 1.0, phase.why);
            let wanted = Wanted { from, readings, alone, goal, full, why };
            let told = speed(view, app, &high.metric, &mut self.gathered[i], &wanted);
            let Some(Told { speed, weight, since, readings, excess, alone }) = told else { continue };
            self.total.speeds[i] += speed;
            self.total.weights[i] += weight;
            self.total.pending[i] += weight;
            if since >= from {
                let sum = &mut self.sums[i];
                (sum.speed, sum.weight) = (sum.speed + speed, sum.weight + weight);
                sum.readings += readings;
                (sum.excess, sum.alone) = (excess, alone);
                if high.metric == PROGRESS && phase.why == Why::Baseline {
                    sum.batches.look(speed, view.at);
                }
            }
        }
    }

    /// The speed alone of each high-priority program with which its answers in this phase are compared; none in a pause that measures it.
    fn alone_before(&self, phase: Phase) -> Vec<Option<f64>> {
        let state = self.controller.as_ref().filter(|_| phase.why != Why::Baseline);
        state.and_then(qos::State::alone).map(<[_]>::to_vec).unwrap_or_default()
    }

    fn is_over(&self, config: &QosConfig, phase: Phase, now: Time) -> bool {
        match phase.lasts {
            Lasts::For(time) => now >= self.began + time,
            Lasts::UntilKnown(time) => {
                now >= self.began + time || self.sums.iter().any(|sum| sum.weight > 0.0 && sum.speed > 0.0)
            }
            Lasts::Readings(n) => {
                let known = self.sums.iter().filter(|sum| sum.readings > 0);
                let any = self.sums.iter().any(|sum| sum.readings > 0);
                let enough = any && known.clone().all(|sum| sum.readings >= n);
                // Of whom nothing at all is heard by when a reading is due, nobody waits for more.
                let silent = !any && self.gathered.iter().all(Gathered::is_empty);
                let alarm =
                    phase.duty >= 1.0 && self.sums.iter().any(|sum| sum.excess.is_some_and(|e| e.is_alarming()));
                enough || alarm || now >= self.began + config.patience * if silent { 1 } else { n }
            }
        }
    }

    /// What is to be ordered now.
    fn steps(&mut self, config: &QosConfig, new: bool, now: Time) -> Vec<Step> {
        let Some(Phase { duty, lasts, .. }) = self.phase else { return Vec::new() };
        if duty >= 1.0 {
            return self.free(config, now);
        }
        let limits = config.limits.is_some() || self.ladder.limits();
        if duty <= 0.0 {
            let end = match lasts {
                Lasts::For(time) | Lasts::UntilKnown(time) => self.began + time,
                Lasts::Readings(_) => now + AHEAD,
            };
            let until = end.min(now + LONGEST_NAP);
            // A nap whose end is not yet ordered is renewed when that is near.
            let due = self.napping_until < end && self.napping_until - now <= RENEWED;
            self.total.naps += u64::from(new);
            let mut steps = if new || due { self.nap(until) } else { Vec::new() };
            // Who does not obey naps well is limited as far as that goes, too.
            if self.ladder.limits() {
                steps.extend(self.limit(config, Some(1)));
            }
            return steps;
        }
        if limits {
            let mut steps = if self.napping_until > now { vec![Step::Nap(now)] } else { Vec::new() };
            self.napping_until = self.napping_until.min(now);
            steps.extend(self.limit(config, Some(((duty * 1e3).round() as u32).max(1))));
            return steps;
        }
        let lifted = self.limit(config, None);
        let (run, nap) = match lasts {
            // A phase with an end is one turn.
            Lasts::For(time) if new => (time.mul_f64(duty), time.mul_f64(1.0 - duty).min(LONGEST_NAP)),
            Lasts::Readings(_) if now >= self.turn_ends => turn(duty, self.turn_length(config)),
            _ => return lifted,
        };
        // The turn begins with its nap.
        self.turn_ends = now + run + nap;
        self.total.naps += 1;
        lifted.into_iter().chain(self.nap(now + nap)).collect()
    }

    fn turn_length(&self, config: &QosConfig) -> Duration {
        let alone = self.alone.iter().copied().chain(std::iter::repeat(None));
        let is_short = |(high, alone): (&High, Option<f64>)| {
            quantile_of(&high.metric).is_some() && alone.is_some_and(|per_s| per_s * SHORT_ANSWER_S >= 1.0)
        };
        if config.high.iter().zip(alone).all(is_short) { LONG_TURN } else { TURN }
    }

    /// The orders that make this share of all CPUs the limit, where it is not.
    fn limit(&mut self, config: &QosConfig, permille: Option<u32>) -> Vec<Step> {
        let [cpu, caches] = self.ladder.kinds(config, permille);
        let cpu = (std::mem::replace(&mut self.limited, cpu) != cpu).then_some(Step::Limit(cpu));
        let caches = (std::mem::replace(&mut self.caches, caches) != caches).then_some(Step::Caches(caches));
        cpu.into_iter().chain(caches).collect()
    }

    fn nap(&mut self, until: Time) -> Vec<Step> {
        self.napping_until = until;
        vec![Step::Nap(until)]
    }

    /// When something is due.
    fn next(&self, config: &QosConfig, now: Time) -> Time {
        let Some(phase) = self.phase else { return Time(u64::MAX) };
        // Before it ends: who is let run and stopped again has run in between.
        let renewed = Time(self.napping_until.0.saturating_sub(RENEWED.as_nanos() as u64)).max(now);
        // What is tried is stopped soon where it does harm.
        let answers = || config.high.iter().any(|high| quantile_of(&high.metric).is_some());
        let soon =
            if phase.duty >= 1.0 && now < self.tried + TRIAL && answers() { now + KNOWN } else { Time(u64::MAX) };
        match phase.lasts {
            // A phase is looked at when it has settled and when it ends, however seldom else: counts between the two are its own.
            Lasts::For(time) => {
                let settled = self.began + settle(config, phase);
                let napping = phase.duty <= 0.0 && self.napping_until < self.began + time;
                let told = |(high, sum): (&High, &Sum)| (high.metric == PROGRESS).then(|| sum.batches.may_be());
                let fine = config.high.iter().zip(&self.sums).filter_map(told).max();
                let fine = fine.filter(|_| phase.why == Why::Baseline).map(|batches| FINE[usize::from(!batches)]);
                let next = if now < settled { settled } else { self.began + time };
                let next = if napping { next.min(renewed) } else { next };
                fine.map_or(next, |fine| next.min(now + fine))
            }
            Lasts::UntilKnown(time) => (self.began + time).min(now + KNOWN),
            Lasts::Readings(_) if now < self.began + settle(config, phase) => self.began + settle(config, phase),
            Lasts::Readings(_) if phase.duty <= 0.0 => renewed,
            Lasts::Readings(_) if phase.duty < 1.0 && (self.limited, self.caches) == (None, None) => {
                self.turn_ends.max(now)
            }
            Lasts::Readings(_) => soon,
        }
    }
}

/// For whose sake a phase is as it is, as far as that is one of them.
fn whose(config: &QosConfig, phase: Phase) -> Option<AppId> {
    let only = (config.high.len() == 1).then_some(0);
    let high = phase.held.map(|held| held.high).or(only)?;
    config.high.get(high).map(|high| high.app)
}

/// How much of the beginning of a phase tells nothing of it.
fn settle(config: &QosConfig, phase: Phase) -> Duration {
    match phase.lasts {
        _ if config.controller.counts_all() => Duration::ZERO,
        Lasts::For(time) | Lasts::UntilKnown(time) => config.settle.min(time / 2),
        // Who had to wait before is served first.
        Lasts::Readings(_) if phase.why == Why::Blame => LONGEST_NAP,
        Lasts::Readings(_) => config.settle,
    }
}

/// Run and nap of a turn of about this length.
fn turn(duty: f64, length: Duration) -> (Duration, Duration) {
    let (run, nap) = (length.as_secs_f64() * duty, length.as_secs_f64() * (1.0 - duty));
    let longer = (SHORTEST.as_secs_f64() / run.min(nap).max(1e-6)).max(1.0);
    // A duty that is to have longer naps than there are has shorter runs.
    let longer = longer.min(LONGEST_NAP.as_secs_f64() / nap.max(1e-6));
    [run, nap].map(|part| Duration::from_secs_f64((part * longer).min(1.0))).into()
}

#[cfg(test)]
mod tests;
