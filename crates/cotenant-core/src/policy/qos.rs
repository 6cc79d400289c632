//! `qos`: keeps high-priority programs at their goal by naps of low-priority ones. The [controllers](crate::qos) say what comes next; this
//! measures how fast the programs are in each phase and turns phases into actions.

mod away;
mod speed;

use super::{Ctx, Policy, Refusal, State};
use crate::action::{Action, ActionOutcome, Decision, Proposal, Reason};
use crate::ids::{AppId, Time};
use crate::qos::{self, Controller, LONGEST_NAP, Lasts, Phase, Seen, Why};
use crate::view::{TaskView, View};
pub use away::Away;
use serde::{Deserialize, Serialize};
use speed::{Gathered, IPC, PROGRESS, speed};
use std::time::Duration;

/// A turn of running and napping where a duty is kept by both.
const TURN: Duration = Duration::from_millis(20);

/// Neither part of a turn is shorter: marks are looked at every 2 ms or so.
const SHORTEST: Duration = Duration::from_millis(5);

/// In a pause that has no end yet, naps are ordered so far ahead.
const AHEAD: Duration = Duration::from_millis(100);

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
    /// Duties between nap and run are kept by limits of CPU time instead of turns.
    pub limits: bool,
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
    /// Speeds in this phase, by high-priority program.
    sums: Vec<Sum>,
    /// Until when naps are ordered.
    napping_until: Time,
    /// Where a duty is kept by turns, when the present turn ends.
    turn_ends: Time,
    /// Where who runs.
    #[serde(default)]
    pub away: Away,
    /// Latencies on the way to a reading, by high-priority program.
    #[serde(default)]
    gathered: Vec<Gathered>,
    /// The limit that was ordered, thousandths of a CPU.
    limited: Option<u32>,
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
    /// Seconds for progress, cycles for IPC, readings for metrics from outside.
    pub weights: Vec<f64>,
}

/// A speed in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    speed: f64,
    weight: f64,
    readings: u32,
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
                "use --controller targeted",
            ),
            () if config.limits && !steady => {
                refuse("limits of CPU time keep a duty, and this controller wants naps", "use --controller steady")
            }
            () => Ok(()),
        }
    }

    fn decide(&self, ctx: &Ctx<'_>, view: &View, _: &[ActionOutcome], state: State, now: Time) -> Decision {
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
            let actions = if needed { state.go_on(config, view, now) } else { state.let_go(now) };
            let why = state.phase.map_or(Why::Fine, |phase| phase.why);
            if config.place {
                proposals.extend(state.move_away(ctx, config, view, needed, now));
            }
            for app in low {
                proposals.extend(actions.iter().map(|action| Proposal {
                    action: action.of(app, ctx),
                    reason: Reason { what: why.to_string().into(), ..Reason::new("controller", "") },
                }));
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
    Limit(Option<u32>),
}

impl Step {
    fn of(self, app: AppId, ctx: &Ctx<'_>) -> Action {
        match self {
            Self::Nap(until) => Action::Nap { app, until },
            Self::Limit(share) => {
                let cpus = ctx.topology.usable().len() as u32;
                Action::Limit { app, cpu_permille: share.map(|permille| (permille * cpus).max(1)) }
            }
        }
    }
}

impl QosState {
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
                let speeds: Vec<Option<f64>> =
                    self.sums.iter().map(|sum| (sum.weight > 0.0).then(|| sum.speed / sum.weight)).collect();
                if let Some(state) = self.controller.take() {
                    if phase.duty <= 0.0 && state.alone().is_none() {
                        self.note_alone(&speeds);
                    }
                    let (phase, controller) = config.controller.next(state, &Seen { speeds });
                    if let Some(alone) = controller.alone() {
                        self.alone = alone.to_vec();
                    }
                    self.begin(phase, controller, now, config);
                    new = true;
                }
            }
        }
        self.steps(config, new, now)
    }

    fn begin(&mut self, phase: Phase, controller: qos::State, now: Time, config: &QosConfig) {
        self.controller = Some(controller);
        self.phase = Some(phase);
        self.began = now;
        self.turn_ends = now;
        self.sums = vec![Sum::default(); config.high.len()];
    }

    /// Nobody needs anything any more.
    fn let_go(&mut self, now: Time) -> Vec<Step> {
        (self.controller, self.phase) = (None, None);
        self.free(now)
    }

    /// What ends a nap and a limit.
    fn free(&mut self, now: Time) -> Vec<Step> {
        let nap = (self.napping_until > now).then_some(Step::Nap(now));
        let limit = self.limited.take().map(|_| Step::Limit(None));
        self.napping_until = self.napping_until.min(now);
        nap.into_iter().chain(limit).collect()
    }

    /// Orders about where the programs of low priority run: away from the others where contention has shown, anywhere when nobody needs
    /// that any more. Naps and limits keep what is then left to be kept.
    fn move_away(&mut self, ctx: &Ctx<'_>, config: &QosConfig, view: &View, needed: bool, now: Time) -> Vec<Proposal> {
        self.away.note(config, view);
        let contention =
            self.began == now && self.phase.is_some_and(|phase| matches!(phase.why, Why::Contention | Why::Decrease));
        let low = view.tasks.iter().filter(|task| config.low.contains(&task.info.app));
        let propose = |action, what| Proposal { action, reason: Reason::new("place", what) };
        if !needed {
            let back = self.away.take_back();
            let release = |task: &TaskView| {
                propose(Action::Release { task: task.info.id }, "nobody is to be kept from contention any more")
            };
            return low.filter(|_| back).map(release).collect();
        }
        if !contention {
            return Vec::new();
        }
        let Some(contexts) = self.away.send(ctx, now) else { return Vec::new() };
        let place = |task: &TaskView| {
            let contexts = contexts.and(&task.info.allowed); // who may not go there naps
            let action = Action::Place { task: task.info.id, contexts };
            propose(action, "contention: away from the programs of high priority")
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
        self.gathered.resize_with(config.high.len(), Gathered::default);
        let settle = match phase.lasts {
            Lasts::For(time) => config.settle.min(time / 2),
            Lasts::Readings(_) => config.settle,
        };
        let from = self.began + settle;
        for (i, high) in config.high.iter().enumerate() {
            let Some(app) = view.apps.iter().find(|app| app.id == high.app) else { continue };
            let Some((speed, weight, since)) = speed(view, app, &high.metric, &mut self.gathered[i], from) else {
                continue;
            };
            self.total.speeds[i] += speed;
            self.total.weights[i] += weight;
            if since >= from {
                let sum = &mut self.sums[i];
                *sum = Sum { speed: sum.speed + speed, weight: sum.weight + weight, readings: sum.readings + 1 };
            }
        }
    }

    fn is_over(&self, config: &QosConfig, phase: Phase, now: Time) -> bool {
        match phase.lasts {
            Lasts::For(time) => now >= self.began + time,
            Lasts::Readings(n) => {
                let known = self.sums.iter().filter(|sum| sum.readings > 0);
                let enough = self.sums.iter().any(|sum| sum.readings > 0) && known.clone().all(|sum| sum.readings >= n);
                enough || now >= self.began + config.patience * n
            }
        }
    }

    /// What is to be ordered now.
    fn steps(&mut self, config: &QosConfig, new: bool, now: Time) -> Vec<Step> {
        let Some(Phase { duty, lasts, .. }) = self.phase else { return Vec::new() };
        if duty >= 1.0 {
            return self.free(now);
        }
        if duty <= 0.0 {
            let until = match lasts {
                Lasts::For(time) => self.began + time,
                Lasts::Readings(_) => now + AHEAD,
            };
            // A nap without an end is renewed when half of it is over.
            let due = new || (matches!(lasts, Lasts::Readings(_)) && self.napping_until - now < AHEAD / 2);
            return if due { self.nap(until) } else { Vec::new() };
        }
        if config.limits {
            let permille = ((duty * 1e3).round() as u32).max(1);
            let mut steps = if self.napping_until > now { vec![Step::Nap(now)] } else { Vec::new() };
            self.napping_until = self.napping_until.min(now);
            if self.limited.replace(permille) != Some(permille) {
                steps.push(Step::Limit(Some(permille)));
            }
            return steps;
        }
        if now < self.turn_ends {
            return Vec::new();
        }
        // The turn begins with its nap.
        let (run, nap) = turn(duty);
        self.turn_ends = now + run + nap;
        self.nap(now + nap)
    }

    fn nap(&mut self, until: Time) -> Vec<Step> {
        self.napping_until = until;
        self.total.naps += 1;
        vec![Step::Nap(until)]
    }

    /// When something is due.
    fn next(&self, config: &QosConfig, now: Time) -> Time {
        let Some(phase) = self.phase else { return Time(u64::MAX) };
        match phase.lasts {
            // A phase is looked at when it has settled and when it ends, however seldom else: counts between the two are its own.
            Lasts::For(time) => {
                let settled = self.began + config.settle.min(time / 2);
                if now < settled { settled } else { self.began + time }
            }
            Lasts::Readings(_) if phase.duty > 0.0 && phase.duty < 1.0 && self.limited.is_none() => {
                self.turn_ends.max(now)
            }
            Lasts::Readings(_) => Time(u64::MAX),
        }
    }
}

/// Run and nap of a turn.
fn turn(duty: f64) -> (Duration, Duration) {
    let (run, nap) = (TURN.as_secs_f64() * duty, TURN.as_secs_f64() * (1.0 - duty));
    let longer = (SHORTEST.as_secs_f64() / run.min(nap).max(1e-6)).max(1.0);
    let part = |seconds: f64| Duration::from_secs_f64((seconds * longer).min(1.0));
    (part(run), part(nap).min(LONGEST_NAP))
}

#[cfg(test)]
mod tests;
