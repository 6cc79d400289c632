//! Whether a policy helps a program that never ends: windows of time with and without the policy in random order, and
//! the program's speed in each.

use cotenant_model::policy::{Ctx, DynPolicy, Needs, NoSettings, Policy, Refusal, State};
use cotenant_model::speed::Source;
use cotenant_model::{
    Action, ActionOutcome, AppView, Decision, Direction, Histogram, Proposal, Reason, TaskId, Time, View,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// This part of a window, one over this, is not measured: threads move, caches fill, and queues of the window before
/// drain. Both kinds of windows lose the same.
const SETTLING: u32 = 5;

/// Pairs of windows, one with (true) and one without, in random order. About half of the pairs begin with each kind, so
/// that drift affects both alike.
pub fn order(pairs: u32, seed: u64) -> Vec<bool> {
    let mut first: Vec<bool> = (0..pairs).map(|pair| pair % 2 == 0).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut first);
    first.into_iter().flat_map(|with| [with, !with]).collect()
}

/// Duration of the unmeasured beginning of a window.
pub fn settling(window: Duration) -> Duration {
    window / SETTLING
}

/// A policy that delegates to another one in some windows, with fresh state each time. Every window begins with all
/// placements undone. The loop ends with the last window, or after two without any known speed.
pub struct Windows {
    /// The policy of the windows with it.
    pub policy: Box<dyn DynPolicy>,
    /// Sources of the first application's speed.
    pub sources: Vec<Source>,
    /// The windows with the policy, see [`order`].
    pub order: Vec<bool>,
    /// Duration of each window.
    pub length: Duration,
}

/// State of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowsState {
    /// Start of the current window; `None` before the first.
    began: Option<Time>,
    /// Start of its measured part; `None` before it has settled.
    settled: Option<Time>,
    /// The state of the policy in a window with it.
    inner: State,
    /// Tasks whose own masks were restored in the current window.
    released: BTreeSet<TaskId>,
    /// Sums of the current window by source.
    sums: Vec<Sum>,
    /// The better direction by source, as far as readings gave it.
    pub directions: Vec<Option<Direction>>,
    /// Values of the complete windows in order, by source.
    pub values: Vec<Vec<Option<f64>>>,
}

/// Sums of a window for one source.
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
            // A reading that also covers the time before does not count.
            Source::Metric(_) => {
                let reading = source.reading(view, app).filter(|r| view.is_new(r) && r.since() >= from);
                reading.map(|reading| [reading.value * reading.seconds(), reading.seconds()])
            }
            _ => source.term(view, app),
        };
        if let Some([value, weight]) = term {
            self.sum = [self.sum[0] + value, self.sum[1] + weight];
        }
    }

    /// In the source's own unit: the mean, or a percentile of all latencies.
    fn value(&self, source: &Source) -> Option<f64> {
        match source {
            Source::Latency(percentile) => Some(self.latencies.quantile(percentile.quantile())? / 1e9),
            _ => (self.sum[1] > 0.0).then(|| self.sum[0] / self.sum[1]),
        }
    }
}

impl WindowsState {
    /// Values of a source in each pair of windows: without and with.
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
        let Decision { proposals, state: inner, wake_at, watch_until, notes } = if *with && now > began {
            self.policy.decide(ctx, view, outcomes, std::mem::take(&mut state.inner), now)
        } else {
            let mut release = |task: TaskId| {
                let reason = Reason::new("windows", "each window begins without the policy");
                state.released.insert(task).then_some(Proposal { action: Action::Release { task }, reason })
            };
            let proposals = view.tasks.iter().filter_map(|task| release(task.info.id)).collect();
            Decision::new(proposals, State::default(), next, Vec::new())
        };
        state.inner = inner;
        // Measurement starts soon after settling even if the policy decides rarely, and every decision has at least an
        // interval of data.
        let wake_at = if state.settled.is_none() { wake_at.min(settled.max(next)) } else { wake_at };
        Decision { proposals, state, wake_at: wake_at.min(began + self.length), watch_until, notes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::Reading;
    use cotenant_model::action::{Order, Outcome};
    use cotenant_model::host::{Host, HostError, Wake, drive};
    use cotenant_model::policy::Config;
    use cotenant_model::profile::MachineProfile;
    use cotenant_model::sample::{AppSample, Sample, TaskInfo, TaskSample};
    use cotenant_model::testing::machine;
    use cotenant_model::{CpuId, CpuSet, Mode, Topology};
    use std::collections::BTreeMap;

    /// Places each task on CPU 1, once; its state counts its decisions.
    struct Once;

    impl Policy for Once {
        const SECTION: &'static str = "once";
        type State = u32;
        type Settings = NoSettings;

        fn decide(&self, _: &Ctx<'_>, view: &View, _: &[ActionOutcome], decided: u32, now: Time) -> Decision<u32> {
            let place = |task| Action::Place { task, contexts: CpuSet::single(CpuId(1)) };
            let proposal = |task| Proposal { action: place(task), reason: Reason::new("once", "here") };
            let tasks = view.tasks.iter().filter(|_| decided == 0);
            let proposals = tasks.map(|task| proposal(task.info.id)).collect();
            // Its next decision is due only after the window.
            Decision::new(proposals, decided + 1, now + Duration::from_secs(1_000), Vec::new())
        }
    }

    /// A program with 100 units per second, and a fraction more on CPU 1; ten times as fast for 1.5 s after each
    /// change. A metric reports the same once a second, about the second before.
    struct Plant {
        topology: Topology,
        now: Time,
        helps: f64,
        placed: bool,
        changed: Time,
        units: f64,
        /// Units per second in the last second.
        reading: Option<Reading>,
        log: Vec<(u64, bool)>,
        until: Time,
    }

    impl Plant {
        fn new(helps: f64, until: u64) -> Self {
            Self {
                topology: machine(1, 1, 2, 1),
                now: Time::default(),
                helps,
                placed: false,
                changed: Time::default(),
                units: 0.0,
                reading: None,
                log: Vec::new(),
                until: Time::from_secs(until),
            }
        }

        fn rate(&self) -> f64 {
            let unsettled = self.now - self.changed < Duration::from_millis(1_500);
            let drift = 1.0 + self.now.as_secs_f64() / 1_000.0;
            drift * if self.placed { 100.0 * self.helps } else { 100.0 } * if unsettled { 10.0 } else { 1.0 }
        }
    }

    impl Host for Plant {
        fn topology(&self) -> &Topology {
            &self.topology
        }

        fn sample(&mut self) -> Result<Sample, HostError> {
            let info = TaskInfo { allowed: (0..2).map(CpuId).collect(), ..TaskInfo::default() };
            let metrics = self.reading.iter().map(|reading| ("told".to_owned(), *reading)).collect();
            let app = AppSample { progress: Some(self.units as u64), metrics, ..AppSample::default() };
            let task = TaskSample { info: info.into(), ..TaskSample::default() };
            Ok(Sample { at: self.now, tasks: vec![task], apps: vec![app], ..Sample::default() })
        }

        fn watch(&mut self, _: Time) {}

        fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
            for order in orders {
                self.placed = matches!(order.action, Action::Place { .. });
                self.changed = self.now;
                self.log.push((self.now.0 / 1_000_000_000, self.placed));
            }
            vec![Outcome::Applied; orders.len()]
        }

        fn wait(&mut self, until: Time) -> Wake {
            while self.now < until.min(self.until) {
                self.units += self.rate() / 100.0;
                let before = self.now;
                self.now = self.now + Duration::from_millis(10);
                if before.0 / 1_000_000_000 != self.now.0 / 1_000_000_000 {
                    self.reading = Some(Reading {
                        value: self.rate(),
                        direction: Direction::HigherIsBetter,
                        window: Duration::from_secs(1),
                        count: 1,
                        at: self.now,
                    });
                }
            }
            if self.now >= self.until { Wake::Exit } else { Wake::Tick }
        }
    }

    fn compare(plant: &mut Plant, order: &[bool], sources: &[Source]) -> WindowsState {
        let (machine, apps, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
        let topology = plant.topology.clone();
        let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
        let length = Duration::from_secs(10);
        let windows = Windows { policy: Box::new(Once), sources: sources.to_vec(), order: order.to_vec(), length };
        let mut state = WindowsState::default();
        drive(plant, &windows, &ctx, Mode::Enforce, |round| {
            if let Some(now) = round.decision.and_then(|decision| decision.state.read::<Windows>()) {
                state = now.into_owned();
            }
        })
        .unwrap();
        state
    }

    fn both() -> Vec<Source> {
        vec![Source::Progress, Source::Metric("told".to_owned())]
    }

    /// Holds run/compare.
    #[test]
    fn windows_tell_what_the_policy_does() {
        let order = order(4, 1);
        let mut plant = Plant::new(1.2, 1_000);
        let state = compare(&mut plant, &order, &both());
        assert!(plant.now.as_secs_f64() < 82.0, "the loop ends with the last window: {}", plant.now.as_secs_f64());
        assert_eq!(state.values.len(), 8);
        for source in 0..2 {
            let pairs = state.pairs(&order, source);
            // The first seconds of a window, ten times as fast, are in none of them.
            let ratios: Vec<f64> = pairs.into_iter().flatten().map(|[without, with]| with / without).collect();
            assert_eq!(ratios.len(), 4);
            assert!(ratios.iter().all(|ratio| (1.17..1.23).contains(ratio)), "{source}: {ratios:?}");
        }
        // Everything is undone after each window, and the policy starts afresh in each window with it.
        let placed = |(i, with): (usize, &bool)| [Some((10 * i as u64, false)), with.then_some((10 * i as u64, true))];
        assert_eq!(plant.log, order.iter().enumerate().flat_map(placed).flatten().collect::<Vec<_>>());
    }

    #[test]
    fn a_reading_counts_for_as_long_as_it_is_about() {
        let source = Source::Metric("told".to_owned());
        let mut sum = Sum::default();
        let mut before = Sample::default();
        for (at_ms, window_ms, value) in [(100, 100, 1_000.0), (1_000, 900, 10.0)] {
            let (at, window) = (Time::from_millis(at_ms), Duration::from_millis(window_ms));
            let reading = Reading { value, direction: Direction::LowerIsBetter, window, count: 1, at };
            let app = AppSample { metrics: vec![("told".to_owned(), reading)], ..AppSample::default() };
            let now = Sample { at, apps: vec![app], ..Sample::default() };
            let view = View::new(&before, &now);
            sum.add(&source, &view, &view.apps[0], Time::default());
            before = now;
        }
        let mean = sum.value(&source).unwrap();
        assert!((mean - 109.0).abs() < 1e-9, "{mean}: not 505, the mean of both");
    }

    #[test]
    fn a_program_that_tells_nothing_is_not_asked_for_ever() {
        let mut plant = Plant::new(1.0, 1_000);
        let state = compare(&mut plant, &order(4, 1), &[Source::Metric("silent".to_owned())]);
        assert_eq!((state.values, plant.now.as_secs_f64().round()), (vec![vec![None]; 2], 20.0));
        // A comparison with a value from any source continues.
        let state = compare(&mut Plant::new(1.0, 1_000), &order(2, 1), &[Source::Ipc, Source::Progress]);
        assert_eq!(state.pairs(&order(2, 1), 0), [None; 2]);
        assert!(state.pairs(&order(2, 1), 1).iter().all(Option::is_some));
    }

    /// Holds run/compare.
    #[test]
    fn what_ends_early_keeps_its_complete_windows() {
        let order = order(4, 3);
        let state = compare(&mut Plant::new(1.0, 35), &order, &both());
        assert_eq!((state.values.len(), state.pairs(&order, 0).len()), (3, 1), "the third has no partner yet");
    }

    /// Holds run/compare.
    #[test]
    fn orders_are_random_by_seed_and_balanced() {
        assert_eq!(order(9, 7), order(9, 7));
        assert!((0..9).any(|seed| order(9, seed) != order(9, 7)));
        for seed in 0..50 {
            let order = order(10, seed);
            assert!(order.chunks(2).all(|pair| pair[0] != pair[1]), "each pair has one of both");
            assert_eq!(order.iter().step_by(2).filter(|with| **with).count(), 5, "half of them begin with it");
        }
    }
}
