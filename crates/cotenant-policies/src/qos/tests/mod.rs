mod answers;
mod cold;
mod goals;
mod golden;
mod means;

use super::phase::LONGEST_NAP;
use super::*;
use cotenant_model::histogram::{Bucket, Clipped};
use cotenant_model::host::{HostError, drive};
use cotenant_model::policy::{Config, ProtectedApp, Settings};
use cotenant_model::profile::MachineProfile;
use cotenant_model::sample::ClippedReading;
use cotenant_model::testing::machine;
use cotenant_model::{
    Action, AppSample, Count, Counters, CpuId, CpuSample, CpuSet, Direction, Histogram, Host, Mode, Order, Outcome,
    Reading, Sample, Signal, TaskId, TaskInfo, TaskSample, Topology, Wake,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// The explanation of the first protected program.
fn first(state: &QosState, config: &Config) -> ProtectedApp {
    let qos = Qos(config.settings.of::<Qos>().unwrap());
    Policy::explain(&qos, state).protected.swap_remove(0)
}

/// Two programs: the first makes 1,000 units per ms alone and fewer while the second runs; the second obeys.
struct Plant {
    topology: Topology,
    now: Time,
    end: Time,
    loss: f64,
    units: f64,
    /// Duration of each 1,000 units, ns, and their number.
    latencies: BTreeMap<u64, u64>,
    napping_until: Time,
    /// CPU limit of the second program, as a fraction.
    share: f64,
    /// The same by limits of caches.
    cache_share: f64,
    ran_s: f64,
    /// At each sample: whether the second one was throttled, and what it had run.
    seen: Vec<(Time, bool, f64)>,
    /// Units since the last reading of its latency, which covers a second.
    read_at: Time,
    read_units: f64,
    reading: Option<Reading>,
    /// The first and the last bound of its histogram.
    bounds: [f64; 2],
    /// When the first program ends.
    high_ends: Time,
    /// Seconds between which it is silent.
    silent_s: std::ops::Range<f64>,
    /// Whether the second one is in the background.
    background: bool,
    actions: Vec<Action>,
    /// The reason as text.
    reasons: Vec<String>,
    rounds: u32,
    /// If threads are observed: the first's on CPU 0, the second's where it is allowed; they interfere on one package.
    allowed: Option<CpuSet>,
    /// Time at which the second one starts another, idle thread.
    another_at: Time,
    /// The user's mask of the second one.
    mask: Option<CpuSet>,
    /// Outcomes of naps, and of limits.
    outcomes: [Outcome; 2],
    /// Outcome of cache limits, which are as effective as CPU limits here.
    of_caches: Outcome,
    /// Fraction of a nap in which it really sleeps.
    obeys: f64,
    /// Delay of each sample.
    late: Duration,
    /// CPUs used by unmanaged programs.
    others: f64,
}

impl Plant {
    fn new(loss: f64, seconds: u64) -> Self {
        Self {
            topology: machine(1, 1, 2, 1),
            now: Time::default(),
            end: Time::from_secs(seconds),
            loss,
            units: 0.0,
            latencies: BTreeMap::new(),
            napping_until: Time::default(),
            share: 1.0,
            cache_share: 1.0,
            ran_s: 0.0,
            seen: Vec::new(),
            read_at: Time::default(),
            read_units: 0.0,
            reading: None,
            bounds: [0.0, f64::INFINITY],
            high_ends: Time(u64::MAX),
            silent_s: 0.0..0.0,
            background: false,
            actions: Vec::new(),
            reasons: Vec::new(),
            rounds: 0,
            allowed: None,
            another_at: Time(u64::MAX),
            mask: None,
            outcomes: [Outcome::Applied; 2],
            of_caches: Outcome::NotThisMachine,
            obeys: 1.0,
            late: Duration::ZERO,
            others: 0.0,
        }
    }

    /// Sequential requests of 1,000 units each.
    fn latencies(&self) -> Histogram {
        let bucket = |(ns, count): (&u64, &u64)| Bucket { low: *ns as f64, high: *ns as f64 * 1.01, count: *count };
        Histogram::new(self.latencies.iter().map(bucket))
    }

    fn advance(&mut self, to: Time) {
        let napping = (self.napping_until.min(to) - self.now).as_secs_f64() * self.obeys;
        let running = (to - self.now).as_secs_f64() - napping;
        let share = self.share.min(self.cache_share);
        self.ran_s += running * share;
        let near = self.allowed.as_ref().is_none_or(|cpus| cpus.intersects(&self.topology.packages()[0]));
        let loss = if near { self.loss } else { 0.0 };
        self.units += 1e6 * (napping + running * (1.0 - loss * share));
        let ns = if napping > running { 1e6 } else { 1e6 / (1.0 - loss * share) };
        *self.latencies.entry(ns as u64).or_default() += ((to - self.now).as_nanos() as f64 / ns).round() as u64;
        self.now = to;
        let throttled = self.napping_until > to || self.share < 1.0 || self.background;
        self.seen.push((to, throttled, self.ran_s));
        if to - self.read_at >= Duration::from_secs(1) {
            let seconds = (to - self.read_at).as_secs_f64();
            let value = seconds / (self.units - self.read_units);
            let direction = Direction::LowerIsBetter;
            self.reading = Some(Reading { value, direction, window: to - self.read_at, count: 1, at: to });
            (self.read_at, self.read_units) = (to, self.units);
        }
    }
}

impl Host for Plant {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let silent = self.silent_s.contains(&self.now.as_secs_f64());
        let reading = self.reading.filter(|_| !silent);
        let clipped = reading.and_then(|reading| {
            let [first, last] = self.bounds;
            let below = (reading.value < first).then_some(Clipped::Below(first));
            let clipped = below.or((reading.value > last).then_some(Clipped::Beyond(last)))?;
            Some(ClippedReading { clipped, window: reading.window, at: reading.at })
        });
        let metrics = reading.filter(|_| clipped.is_none()).map(|reading| ("p99".to_owned(), reading)).into_iter();
        let high = AppSample {
            name: "high".into(),
            progress: (!silent).then_some(self.units as u64),
            // One answer per 1,000 units, all in a millisecond: as alone.
            latency_ns: Some(self.latencies()),
            metrics: metrics.collect(),
            clipped: clipped.into_iter().map(|clipped| ("p99".to_owned(), clipped)).collect(),
            ..AppSample::default()
        };
        let low = AppSample { id: AppId(1), name: "low".into(), ..AppSample::default() };
        let apps = [(self.now < self.high_ends).then_some(high), Some(low)].into_iter().flatten().collect();
        let thread = |id: u32, app, cpu, seconds: f64| {
            let mut counters = Counters::default();
            counters.set(Signal::CpuTime, Count::exact((seconds * 1e9) as u64));
            let mask = self.mask.clone().filter(|_| app == 1);
            let allowed = mask.unwrap_or_else(|| self.topology.usable().clone());
            let info = TaskInfo { id: TaskId(id), app: AppId(app), allowed, ..TaskInfo::default() };
            TaskSample { info: Arc::new(info), cpu, counters, ..TaskSample::default() }
        };
        let tasks = self.allowed.as_ref().map(|allowed| {
            let first = thread(0, 0, Some(CpuId(0)), self.now.as_secs_f64());
            let another = (self.now >= self.another_at).then(|| thread(2, 1, allowed.first(), 0.0));
            [first, thread(1, 1, allowed.first(), self.ran_s)].into_iter().chain(another).collect()
        });
        let busy_s = self.now.as_secs_f64() * (1.0 + self.others) + self.ran_s;
        let cpu = (self.others > 0.0).then_some(CpuSample { id: CpuId(0), busy_ns: (busy_s * 1e9) as u64 });
        let cpus = cpu.into_iter().collect();
        Ok(Sample { at: self.now, apps, tasks: tasks.unwrap_or_default(), cpus, ..Sample::default() })
    }

    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let outcome = |order: &Order| match order.action {
            Action::Nap { .. } => self.outcomes[0],
            Action::Limit { .. } => self.outcomes[1],
            Action::LimitCaches { .. } => self.of_caches,
            _ => Outcome::Applied,
        };
        let outcomes: Vec<Outcome> = orders.iter().map(outcome).collect();
        for (order, outcome) in orders.iter().zip(&outcomes) {
            self.actions.push(order.action.clone());
            self.reasons.push(order.reason.to_string());
            if *outcome != Outcome::Applied {
                continue;
            }
            match order.action {
                Action::Nap { app: AppId(1), until } => self.napping_until = until,
                Action::Limit { app: AppId(1), cpu_permille } => {
                    self.share = cpu_permille.map_or(1.0, |permille| f64::from(permille) / 2e3);
                }
                Action::LimitCaches { app: AppId(1), permille } => {
                    self.cache_share = permille.map_or(1.0, |permille| f64::from(permille) / 1e3);
                }
                Action::Place { task: TaskId(1 | 2), .. } => self.allowed = Some(order.affinity.clone()),
                Action::Release { task: TaskId(1 | 2) } => self.allowed = Some(self.topology.usable().clone()),
                Action::Background { app: AppId(1), on } => self.background = on,
                ref other => panic!("{other:?}"),
            }
        }
        outcomes
    }

    fn wait(&mut self, until: Time) -> Wake {
        assert!(until > self.now);
        self.rounds += 1;
        self.advance(until + self.late);
        if self.now >= self.end { Wake::Exit } else { Wake::Tick }
    }
}

/// Holds see/cost.
#[test]
fn a_glance_is_enough_whatever_tells_the_speed() {
    for (metric, counts) in [("progress", false), ("ipc", true)] {
        let qos = Qos(config("tracking", metric, false).settings.of::<Qos>().unwrap());
        assert_eq!(Policy::needs(&qos), Needs { glances: true, counts, ..Needs::default() }, "{metric}");
    }
}

fn config(controller: &str, metric: &str, limits: bool) -> Config {
    let high = High { app: AppId(0), metric: metric.to_owned().into(), goal: None };
    let qos = QosConfig {
        controller: Controller::preset(controller, 0.9).unwrap(),
        high: vec![high],
        low: vec![AppId(1)],
        place: false,
        limits: limits.then_some(Limits::CpuTime),
        climb: false,
        settle: Duration::ZERO,
        patience: Duration::from_secs(10),
        silence: Duration::from_secs(4),
    };
    Config { interval: MS(1), settings: Settings::default().with::<Qos>(&Some(qos)), ..Config::default() }
}

/// The policy with the settings of a configuration.
fn policy(config: &Config) -> Qos {
    Qos(config.settings.of::<Qos>().unwrap())
}

/// The same configuration with other settings of the policy.
fn with(mut config: Config, change: impl FnOnce(&mut QosConfig)) -> Config {
    let mut qos = policy(&config).0.unwrap();
    change(&mut qos);
    config.settings.put("qos", &qos);
    config
}

/// Drives a plant to its end; returns the policy's state.
fn driven(plant: &mut impl Host, config: &Config) -> QosState {
    let topology = plant.topology().clone();
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config };
    policy(config).check(&ctx).unwrap();
    let mut last = None;
    drive(plant, &policy(config), &ctx, Mode::Enforce, |round| {
        last = round.decision.map(|decision| decision.state.clone());
    })
    .unwrap();
    last.unwrap().read::<Qos>().unwrap().into_owned()
}

/// The kept speed over the speed alone, and the fraction of time in which the other program ran.
fn run(plant: &mut Plant, config: &Config) -> (f64, f64, QosState) {
    let last = driven(plant, config);
    let seconds = plant.now.as_secs_f64();
    (plant.units / 1e6 / seconds, plant.ran_s / seconds, last)
}
