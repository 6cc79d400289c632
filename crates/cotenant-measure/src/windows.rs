//! Whether a policy helps a program that never ends: windows of time under the policy and windows without it, in random
//! order, and how fast the program was in each.

use cotenant_model::policy::{Ctx, DynPolicy, Needs, NoSettings, Policy, Refusal, State};
use cotenant_model::speed::Source;
use cotenant_model::{
    Action, ActionOutcome, AppView, Decision, Direction, Histogram, Proposal, Reason, TaskId, Time, View,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The first part of each window, one over this, is not measured: threads move, caches fill, and queues that built up
/// in the window before drain. It is left out of both kinds of windows, so that both lose the same.
const SETTLING: u32 = 5;

/// Pairs of windows, of each one with (true) and one without, in random order. As many pairs begin with as without, as
/// nearly as that goes: what drifts hits both alike.
pub fn order(pairs: u32, seed: u64) -> Vec<bool> {
    let mut first: Vec<bool> = (0..pairs).map(|pair| pair % 2 == 0).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut first);
    first.into_iter().flat_map(|with| [with, !with]).collect()
}

/// How long the beginning of a window is that is not measured.
pub fn settling(window: Duration) -> Duration {
    window / SETTLING
}

/// A policy that lets another one decide in some windows, and gives everything back for the others. It begins anew in
/// each window. The loop ends with the last one, or after two if nothing is known of any speed by then.
pub struct Windows {
    /// What decides in windows with it.
    pub policy: Box<dyn DynPolicy>,
    /// What tells how fast the first application is.
    pub sources: Vec<Source>,
    /// Which windows are with the policy, see [`order`].
    pub order: Vec<bool>,
    /// How long each window lasts.
    pub length: Duration,
}

/// What is known so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowsState {
    /// When the present window began; `None` before the first.
    began: Option<Time>,
    /// Since when it is measured; `None` before it has settled.
    settled: Option<Time>,
    /// The state of the policy in a window with it.
    inner: State,
    /// Tasks that were given their own masks back in a window without.
    released: BTreeSet<TaskId>,
    /// What the present window tells by each source.
    sums: Vec<Sum>,
    /// Which way is better, by each source, as far as readings said it.
    pub directions: Vec<Option<Direction>>,
    /// What each complete window told, in order, by each source.
    pub values: Vec<Vec<Option<f64>>>,
}

/// What a window tells by one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    /// Values times weights, and weights.
    sum: [f64; 2],
    latencies: Histogram,
}

impl Sum {
    fn add(&mut self, source: &Source, view: &View, app: &AppView, from: Time) {
        let term = match source {
            Source::Latency(_) => return app.latency_ns.iter().for_each(|latencies| self.latencies.add(latencies)),
            // A reading that is also about the time before does not count.
            Source::Metric(_) => {
                let reading = source.reading(view, app).filter(|r| view.is_new(r) && r.since() >= from);
                reading.map(|reading| [reading.value, 1.0])
            }
            _ => source.term(view, app),
        };
        term.into_iter().for_each(|term| self.sum = [0, 1].map(|i| self.sum[i] + term[i]));
    }

    /// In the source's own unit: the mean, or that percentile of all latencies.
    fn value(&self, source: &Source) -> Option<f64> {
        match source {
            Source::Latency(percentile) => Some(self.latencies.quantile(percentile.quantile())? / 1e9),
            _ => (self.sum[1] > 0.0).then(|| self.sum[0] / self.sum[1]),
        }
    }
}

impl WindowsState {
    /// What a source told in each pair of windows: without and with.
    pub fn pairs(&self, order: &[bool], source: usize) -> Vec<Option<[f64; 2]>> {
        let pair = |(windows, order): (&[Vec<Option<f64>>], &[bool])| {
            let [first, second] = [windows[0][source]?, windows[1][source]?];
            Some(if order[0] { [second, first] } else { [first, second] })
        };
        self.values.chunks_exact(2).zip(order.chunks_exact(2)).map(pair).collect()
    }

    fn add(&mut self, sources: &[Source], view: &View) {
        let Some(app) = view.apps.first() else { return };
        self.sums.resize(sources.len(), Sum::default());
        self.directions.resize(sources.len(), None);
        for ((source, sum), direction) in sources.iter().zip(&mut self.sums).zip(&mut self.directions) {
            *direction = source.reading(view, app).map(|reading| reading.direction).or(*direction);
            if let Some(from) = self.settled {
                sum.add(source, view, app, from);
            }
        }
    }
}

impl Policy for Windows {
    const SECTION: &'static str = "windows";
    type State = WindowsState;
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn needs(&self) -> Needs {
        self.policy.needs()
    }

    fn check(&self, ctx: &Ctx<'_>) -> Result<(), Refusal> {
        self.policy.check(ctx)
    }

    fn decide(
        &self,
        ctx: &Ctx<'_>,
        view: &View,
        mut outcomes: &[ActionOutcome],
        mut state: WindowsState,
        now: Time,
    ) -> Decision<WindowsState> {
        state.add(&self.sources, view);
        if state.began.is_some_and(|began| now >= began + self.length) {
            state.sums.resize(self.sources.len(), Sum::default());
            state.values.push(state.sums.iter().zip(&self.sources).map(|(sum, source)| sum.value(source)).collect());
            state.began = None;
        }
        let silent = state.values.len() == 2 && state.values.iter().flatten().all(Option::is_none);
        let Some(with) = self.order.get(state.values.len()).filter(|_| !silent) else {
            return Decision::new(Vec::new(), state, Time::NEVER, Vec::new());
        };
        if state.began.is_none() {
            outcomes = &[];
            let WindowsState { directions, values, .. } = state;
            state = WindowsState { began: Some(now), directions, values, ..WindowsState::default() };
        }
        let began = state.began.unwrap_or(now);
        let settled = began + settling(self.length);
        if now >= settled && now > began {
            state.settled = state.settled.or(Some(now));
        }
        let next = now + ctx.config.interval;
        let Decision { proposals, state: inner, wake_at, watch_until, notes } = if *with {
            self.policy.decide(ctx, view, outcomes, std::mem::take(&mut state.inner), now)
        } else {
            let mut release = |task: TaskId| {
                let reason = Reason::new("windows", "a window without the policy");
                state.released.insert(task).then_some(Proposal { action: Action::Release { task }, reason })
            };
            let proposals = view.tasks.iter().filter_map(|task| release(task.info.id)).collect();
            Decision::new(proposals, State::default(), next, Vec::new())
        };
        state.inner = inner;
        // Measuring begins soon after the window has settled, however seldom the policy decides, and no decision has
        // less than an interval to go by.
        let wake_at = if state.settled.is_none() { wake_at.min(settled.max(next)) } else { wake_at };
        Decision { proposals, state, wake_at: wake_at.min(began + self.length), watch_until, notes }
    }
}
