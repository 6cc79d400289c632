//! `qos`: keeps high-priority programs at their goal by naps of low-priority ones. The [controllers](crate::qos) say what comes next; this
//! measures how fast the programs are in each phase and turns phases into actions.

mod away;
pub mod controller;
mod ladder;
mod speed;
mod steps;

use crate::qos::controller::{Controller, Excess, LONGEST_NAP, Lasts, Phase, Seen, Why};
pub use away::Away;
use cotenant_model::action::{Action, ActionOutcome, Decision, Proposal, Reason};
use cotenant_model::ids::{AppId, Time};
use cotenant_model::policy::{Ctx, Policy, Refusal, settings};
use cotenant_model::view::{TaskView, View};
pub use ladder::{Climbed, Ladder};
use serde::{Deserialize, Deserializer, Serialize};
use speed::{Batches, Gathered, IPC, PROGRESS, Told, Wanted, quantile_of, speed};
use std::time::Duration;
use steps::{RENEWED, Step};

/// In a pause that measures, progress is looked at so often where it comes in batches, which are counted from one to the other, and else.
const FINE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Where nothing is known, it is looked whether it has become known.
const KNOWN: Duration = Duration::from_millis(25);

/// For so long it is looked as often what they do who are let run all the time, and servers are asked more often.
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
#[serde(deny_unknown_fields)]
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
    #[serde(deserialize_with = "a_while")]
    pub settle: Duration,
    /// How long a reading of a metric is waited for.
    #[serde(deserialize_with = "a_while")]
    pub patience: Duration,
}

fn a_while<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    settings::duration(from, &(Duration::ZERO..=Duration::MAX))
}

/// What `qos` remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QosState {
    /// Of the controller; `None`: nobody needs it now.
    controller: Option<controller::State>,
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
#[derive(Clone, Debug)]
pub struct Qos(pub Option<QosConfig>);

impl Policy for Qos {
    const SECTION: &'static str = "qos";
    type State = QosState;
    type Settings = Option<QosConfig>;

    fn name(&self) -> &'static str {
        "qos"
    }

    fn check(&self, _: &Ctx<'_>) -> Result<(), Refusal> {
        let refuse = |why: &str, remedy: &str| {
            Err(Refusal { policy: self.name(), why: why.to_owned(), remedy: remedy.to_owned() })
        };
        let Some(config) = &self.0 else {
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

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        results: &[ActionOutcome],
        mut state: QosState,
        now: Time,
    ) -> Decision<QosState> {
        let mut proposals = Vec::new();
        let mut wake_at = now + ctx.config.interval;
        if let Some(config) = &self.0 {
            let present = |app: AppId| view.apps.iter().any(|a| a.id == app);
            let low: Vec<AppId> = config.low.iter().copied().filter(|app| present(*app)).collect();
            let needed = config.high.iter().any(|high| present(high.app)) && !low.is_empty();
            state.ladder.note(ctx, config, view, results, state.phase);
            let new = if needed { state.go_on(config, view, now) } else { state.let_go() };
            let actions = state.steps(config, new, now);
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
        Decision { watch_until: state.trial_ends(), ..Decision::new(proposals, state, wake_at, Vec::new()) }
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

    /// Goes on to the next phase where this one is over; whether it did.
    fn go_on(&mut self, config: &QosConfig, view: &View, now: Time) -> bool {
        let (Some(phase), Some(_)) = (self.phase, &self.controller) else {
            let (phase, controller) = config.controller.start();
            self.begin(phase, controller, now, config);
            return true;
        };
        self.measure(config, view, phase);
        if !self.is_over(config, phase, now) {
            return false;
        }
        let Some(state) = self.controller.take() else { return false };
        let seen = Seen {
            speeds: self.sums.iter().map(Sum::mean).collect(),
            counted: self.sums.iter().map(Sum::counted).collect(),
            excess: self.sums.iter().map(|sum| sum.excess).collect(),
            alone: self.sums.iter().map(|sum| sum.alone).collect(),
            grain: self.sums.iter().filter_map(|sum| sum.batches.grain()).max(),
        };
        let before = self.alone.clone();
        if phase.duty <= 0.0 && state.alone().is_none() {
            self.note_alone(&seen.speeds);
        }
        let (phase, controller) = config.controller.next(state, &seen);
        if let Some(alone) = controller.alone() {
            self.alone = alone.to_vec();
        }
        self.total.settle(&before, &self.alone);
        self.begin(phase, controller, now, config);
        true
    }

    /// Nobody needs anything any more.
    fn let_go(&mut self) -> bool {
        (self.controller, self.phase) = (None, None);
        false
    }

    fn begin(&mut self, phase: Phase, controller: controller::State, now: Time, config: &QosConfig) {
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
        state.and_then(controller::State::alone).map(<[_]>::to_vec).unwrap_or_default()
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

    /// When they have run all the time for so long that it is looked at like anything else.
    fn trial_ends(&self) -> Option<Time> {
        self.phase.filter(|phase| phase.duty >= 1.0).map(|_| self.tried + TRIAL)
    }

    /// When something is due.
    fn next(&self, config: &QosConfig, now: Time) -> Time {
        let Some(phase) = self.phase else { return Time(u64::MAX) };
        // Before it ends: who is let run and stopped again has run in between.
        let renewed = Time(self.napping_until.0.saturating_sub(RENEWED.as_nanos() as u64)).max(now);
        // What is tried is stopped soon where it does harm.
        let answers = || config.high.iter().any(|high| quantile_of(&high.metric).is_some());
        let tries = self.trial_ends().is_some_and(|end| now < end) && answers();
        let soon = if tries { now + KNOWN } else { Time(u64::MAX) };
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

#[cfg(test)]
mod tests;
