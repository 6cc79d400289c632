mod answers;
mod cold;

use super::ladder::LAST;
use super::steps::{LONG_TURN, TURN, turn};
use super::*;
use cotenant_model::action::{Order, Outcome};
use cotenant_model::cpuset::CpuSet;
use cotenant_model::histogram::{Bucket, Histogram};
use cotenant_model::host::{Host, HostError, Mode, Wake, drive};
use cotenant_model::ids::{CpuId, TaskId};
use cotenant_model::policy::{Config, Settings};
use cotenant_model::profile::MachineProfile;
use cotenant_model::sample::{AppSample, Direction, Reading, Sample, TaskInfo, TaskSample};
use cotenant_model::signal::{Count, Counters, Signal};
use cotenant_model::testing::machine;
use cotenant_model::topology::Topology;
use std::collections::BTreeMap;
use std::sync::Arc;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Two programs: the first makes 1,000 units per ms alone and less while the second runs; the second obeys.
struct Plant {
    topology: Topology,
    now: Time,
    end: Time,
    loss: f64,
    units: f64,
    /// How long each 1,000 units took, ns, and how often.
    latencies: BTreeMap<u64, u64>,
    napping_until: Time,
    /// Share of the CPUs that the second may use.
    share: f64,
    /// The same by limits of caches.
    cache_share: f64,
    ran_s: f64,
    /// Units since the last reading of its latency, which takes a second.
    read_at: Time,
    read_units: f64,
    reading: Option<Reading>,
    /// When the first program ends.
    high_ends: Time,
    actions: Vec<Action>,
    /// Why, as people read it.
    reasons: Vec<String>,
    rounds: u32,
    /// Where threads are told: that of the first on CPU 0, that of the second where it is allowed; they are in each other's way on one
    /// package.
    allowed: Option<CpuSet>,
    /// What the user allows the second one.
    mask: Option<CpuSet>,
    /// What becomes of naps, and of limits.
    outcomes: [Outcome; 2],
    /// What becomes of limits of caches, which are as good as those of CPU time here.
    of_caches: Outcome,
    /// Share of a nap for which it is really asleep.
    obeys: f64,
    /// How late each look is.
    late: Duration,
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
            read_at: Time::default(),
            read_units: 0.0,
            reading: None,
            high_ends: Time(u64::MAX),
            actions: Vec::new(),
            reasons: Vec::new(),
            rounds: 0,
            allowed: None,
            mask: None,
            outcomes: [Outcome::Applied; 2],
            of_caches: Outcome::NotThisMachine,
            obeys: 1.0,
            late: Duration::ZERO,
        }
    }

    /// Requests one behind the other, each of 1,000 units.
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
        let high = AppSample {
            name: "high".into(),
            progress: Some(self.units as u64),
            // One answer per 1,000 units, all of one millisecond's worth of them: in a millisecond alone.
            latency_ns: Some(self.latencies()),
            metrics: self.reading.map(|reading| ("p99".to_owned(), reading)).into_iter().collect(),
            ..AppSample::default()
        };
        let low = AppSample { id: AppId(1), name: "low".into(), ..AppSample::default() };
        let apps = [(self.now < self.high_ends).then_some(high), Some(low)].into_iter().flatten().collect();
        let thread = |id: u32, cpu, seconds: f64| {
            let mut counters = Counters::default();
            counters.set(Signal::CpuTime, Count::exact((seconds * 1e9) as u64));
            let mask = self.mask.clone().filter(|_| id == 1);
            let allowed = mask.unwrap_or_else(|| self.topology.usable().clone());
            let info = TaskInfo { id: TaskId(id), app: AppId(id), allowed, ..TaskInfo::default() };
            TaskSample { info: Arc::new(info), cpu, counters, ..TaskSample::default() }
        };
        let tasks = self.allowed.as_ref().map(|allowed| {
            vec![thread(0, Some(CpuId(0)), self.now.as_secs_f64()), thread(1, allowed.first(), self.ran_s)]
        });
        Ok(Sample { at: self.now, apps, tasks: tasks.unwrap_or_default(), ..Sample::default() })
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
                Action::Place { task: TaskId(1), .. } => self.allowed = Some(order.affinity.clone()),
                Action::Release { task: TaskId(1) } => self.allowed = Some(self.topology.usable().clone()),
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

fn config(controller: &str, metric: &str, limits: bool) -> Config {
    let high = High { app: AppId(0), metric: metric.to_owned() };
    let qos = QosConfig {
        controller: Controller::preset(controller, 0.9).unwrap(),
        high: vec![high],
        low: vec![AppId(1)],
        place: false,
        limits: limits.then_some(Limits::CpuTime),
        climb: false,
        settle: Duration::ZERO,
        patience: Duration::from_secs(10),
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

/// The speed that was kept, as a share of that alone, and the share of the time in which the other program ran.
fn run(plant: &mut Plant, config: &Config) -> (f64, f64, QosState) {
    let topology = plant.topology.clone();
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config };
    policy(config).check(&ctx).unwrap();
    let mut last = QosState::default();
    drive(plant, &policy(config), &ctx, Mode::Enforce, |round| {
        let Some(state) = round.decision.and_then(|decision| decision.state.read::<Qos>()) else {
            panic!("no decision")
        };
        last = state.into_owned();
    })
    .unwrap();
    let seconds = plant.now.as_secs_f64();
    (plant.units / 1e6 / seconds, plant.ran_s / seconds, last)
}

#[test]
fn the_goal_is_kept_by_naps() {
    // Loss 0.3: naps of exec · (0.3/0.1 − 1) = 2 · exec; so the other program runs a third of the time, and the speed is 0.9.
    // However seldom anybody looks: the ends of phases are looked at.
    for (controller, every) in [
        ("conservative-90", 1),
        ("conservative-90", 25),
        ("relaxed-90", 1),
        ("targeted", 1),
        ("targeted", 25),
        ("tracking", 25),
    ] {
        let mut plant = Plant::new(0.3, 5);
        let config = Config { interval: MS(every), ..config(controller, PROGRESS, false) };
        let (quality, utilisation, state) = run(&mut plant, &config);
        assert!((quality - 0.9).abs() < 0.02, "{controller}: {quality}");
        assert!((utilisation - 1.0 / 3.0).abs() < 0.06, "{controller}: {utilisation}");
        if controller == "tracking" {
            assert!(plant.rounds < 400, "{} rounds in 5 s", plant.rounds);
        }
        // What is told agrees with what was.
        let told = state.mean(0).unwrap() / state.alone[0].unwrap();
        assert!((told - quality).abs() < 0.01, "{controller}: {told} {quality}");
        let duty = state.total.duty_s / state.total.seconds;
        assert!((duty - utilisation).abs() < 0.01, "{controller}: {duty} {utilisation}");
    }
}

#[test]
fn a_program_that_is_not_disturbed_leaves_the_others_alone() {
    let mut plant = Plant::new(0.01, 5);
    let (quality, utilisation, _) = run(&mut plant, &config("targeted", PROGRESS, false));
    assert!(quality > 0.99 && utilisation > 0.9, "{quality} {utilisation}");
    assert!(plant.actions.iter().all(|action| matches!(action, Action::Nap { .. })));
}

#[test]
fn another_place_comes_before_naps() {
    let mut plant = Plant::new(0.4, 6);
    plant.topology = machine(2, 1, 2, 1);
    plant.allowed = Some(plant.topology.usable().clone());
    let mut config = config("tracking", PROGRESS, false);
    config.pin = cotenant_model::pin::Pin::Cpu;
    let napping = run(&mut plant, &config);
    assert!(napping.1 < 0.4, "without: {}", napping.1);

    let mut plant = Plant { topology: plant.topology, ..Plant::new(0.4, 16) };
    plant.allowed = Some(plant.topology.usable().clone());
    plant.high_ends = Time::from_secs(15);
    config = with(config, |qos| qos.place = true);
    let (_, utilisation, state) = run(&mut plant, &config);
    let quality = state.mean(0).unwrap() / state.alone[0].unwrap();
    assert!(quality > 0.95 && utilisation > 0.9, "{quality} {utilisation}");
    let moves: Vec<&Action> = plant.actions.iter().filter(|action| action.task().is_some()).collect();
    let to = plant.topology.packages()[1].clone();
    let task = TaskId(1);
    assert_eq!(moves, [&Action::Place { task, contexts: to }, &Action::Release { task }], "and back in the end");
    let why: Vec<&str> = plant.reasons.iter().filter_map(|reason| reason.strip_prefix("place: ")).collect();
    let [away, back] = why[..] else { panic!("{why:?}") };
    // With the figure that told of contention: about the tenth that is allowed, give or take what the account holds.
    let figure = away.strip_suffix("; contention: away from the programs of high priority").unwrap();
    assert!(figure.starts_with("app 0 lost 0.") && figure.contains(" of its speed alone "), "{figure}");
    assert_eq!(back, "nobody is to be kept from contention any more");
    assert_eq!(state.away.place(), None);

    // Only as far as its own mask goes: CPU 2, and no other CPU at all.
    for (mask, to) in [("0,2", Some("2")), ("0-1", None)] {
        let mut plant = Plant { topology: plant.topology.clone(), ..Plant::new(0.4, 6) };
        plant.mask = CpuSet::parse_list(mask).ok();
        plant.allowed.clone_from(&plant.mask);
        run(&mut plant, &config);
        let moves: Vec<&Action> = plant.actions.iter().filter(|action| action.task().is_some()).collect();
        let expected = to.map(|to| Action::Place { task, contexts: CpuSet::parse_list(to).unwrap() });
        assert_eq!(moves, expected.iter().collect::<Vec<_>>(), "{mask}");
        assert!(plant.actions.iter().any(|action| matches!(action, Action::Nap { .. })));
    }
}

#[test]
fn limits_come_where_naps_are_not_obeyed_or_do_not_help() {
    use Outcome::{Applied, Denied, NotThisMachine};
    let cases = [
        ([Applied, Applied], 1.0, 0.3, 0.9, None),
        ([Denied, Applied], 1.0, 0.3, 0.9, Some(Climbed::Refused)),
        ([Applied, Applied], 0.3, 0.3, 0.9, Some(Climbed::Disobeyed)),
        ([Applied, Applied], 1.0, 0.9, 0.99, Some(Climbed::Missed)),
        ([NotThisMachine, Denied], 1.0, 0.3, 0.9, None),
    ];
    for (outcomes, obeys, loss, goal, expected) in cases {
        let mut plant = Plant { outcomes, obeys, ..Plant::new(loss, 60) };
        plant.allowed = Some(plant.topology.usable().clone());
        let mut config = Config { interval: MS(25), ..config("tracking", PROGRESS, false) };
        config =
            with(config, |qos| (qos.climb, qos.controller) = (true, Controller::preset("tracking", goal).unwrap()));
        let (quality, _, state) = run(&mut plant, &config);
        let case = format!("{outcomes:?}, {obeys} obeyed, {loss} lost: {quality} kept");
        assert_eq!(state.ladder.climbed(), expected, "{case}");
        let limits = plant.actions.iter().filter(|action| matches!(action, Action::Limit { .. })).count();
        assert_eq!(limits > 0, expected.is_some() || outcomes[0] != Applied, "{case}");
        if expected != Some(Climbed::Missed) && outcomes[1] == Applied {
            // It takes 6 s to find out that naps are not obeyed.
            let least = if expected == Some(Climbed::Disobeyed) { 0.86 } else { 0.88 };
            assert!((least..0.92).contains(&quality), "{case}");
        }
        if outcomes[1] != Applied {
            assert!(limits <= 4, "{limits} limits were tried; {case}");
        }
        // And say why they come, and why they go where they were refused.
        let said = |of: fn(&Action) -> bool| -> Vec<&str> {
            let all = plant.actions.iter().zip(&plant.reasons);
            all.filter(|(action, _)| of(action)).map(|(_, reason)| reason.as_str()).collect()
        };
        let limited = said(|action| matches!(action, Action::Limit { cpu_permille: Some(_), .. }));
        if let Some(climbed) = expected.or((limits > 0).then_some(Climbed::Refused)) {
            assert!(
                limited.iter().all(|why| why.ends_with(&format!("; limits, since {climbed}"))),
                "{case}: {limited:?}"
            );
        }
        let lifted = said(|action| matches!(action, Action::LimitCaches { permille: None, .. }));
        assert_eq!(
            lifted.iter().any(|why| why.ends_with("; limits were refused")),
            outcomes[1] != Applied,
            "{case}: {lifted:?}"
        );
    }
}

#[test]
fn the_last_rung_limits_caches_too() {
    use Outcome::{Applied, Denied, NotThisMachine};
    // Naps are refused; at a loss of 0.9 the duty that keeps the goal is 0.11: on both sides of a tenth in time.
    let came = |limits: Outcome, of_caches, caches: bool| {
        let outcomes = [Denied, limits];
        let mut plant = Plant { outcomes, of_caches, ..Plant::new(0.9, 30) };
        let mut config = Config { interval: MS(25), ..config("tracking", PROGRESS, false) };
        config = with(config, |qos| (qos.climb, qos.limits) = (!caches, caches.then_some(Limits::Caches)));
        let (quality, _, state) = run(&mut plant, &config);
        let of_cpu = |action: &Action| match action {
            Action::Limit { cpu_permille: Some(cpu), .. } => Some(cpu / 2), // of two CPUs
            _ => None,
        };
        let of_caches = |action: &Action| match action {
            Action::LimitCaches { permille: Some(permille), .. } => Some(*permille),
            _ => None,
        };
        let cpu: Vec<u32> = plant.actions.iter().filter_map(of_cpu).collect();
        let caches: Vec<u32> = plant.actions.iter().filter_map(of_caches).collect();
        (quality, cpu, caches, state.ladder.limits())
    };
    // Caches beside CPU time at a tenth or less, with the same share.
    let (_, cpu, caches, climbed) = came(Applied, Applied, false);
    assert!(climbed && cpu.iter().any(|permille| *permille > LAST), "{cpu:?}");
    let last: Vec<u32> = cpu.iter().copied().filter(|permille| *permille <= LAST).collect();
    assert_eq!(caches, last);
    // Where caches cannot be limited, that is tried once.
    let (quality, cpu, caches, _) = came(Applied, NotThisMachine, false);
    assert!(cpu.len() > 5 && caches.len() == 1 && quality > 0.88, "{quality} {cpu:?} {caches:?}");
    // Where CPU time cannot, that is tried once, and caches alone keep the goal.
    let (quality, cpu, caches, climbed) = came(NotThisMachine, Applied, false);
    assert!(climbed && cpu.len() == 1 && caches.iter().any(|permille| *permille > LAST), "{cpu:?} {caches:?}");
    assert!((0.88..0.93).contains(&quality), "{quality}");
    // And where the user wants that.
    let (_, cpu, caches, _) = came(Applied, Applied, true);
    assert!(cpu.is_empty() && !caches.is_empty());
    let (_, cpu, caches, climbed) = came(NotThisMachine, Denied, false);
    assert!(!climbed && cpu.len() <= 2 && caches.len() <= 2, "{cpu:?} {caches:?}");
}

#[test]
fn orders_say_why() {
    // A look and its run; Δ = 0.3 is contention: naps of 4 ms between runs of 2 ms.
    let mut plant = Plant::new(0.3, 1);
    run(&mut plant, &config("conservative-90", PROGRESS, false));
    let mut reasons = plant.reasons.iter().map(String::as_str);
    assert_eq!(reasons.next(), Some("controller: looks for contention"));
    // 1,400 of 2,000 units, give or take one.
    let expected = ["0.300", "0.301", "0.299"]
        .map(|lost| format!("controller: app 0 lost {lost} of its speed alone ≥ 0.040; contention"));
    assert!(reasons.all(|reason| expected.iter().any(|right| right == reason)), "{:?}", plant.reasons);
    assert!(plant.reasons.len() > 100);
    // In pauses and turns, and in the end, when nobody needs anything any more: a nap that goes on is ended.
    let mut plant = Plant { high_ends: Time::from_millis(250), ..Plant::new(0.3, 1) };
    run(&mut plant, &config("tracking", PROGRESS, false));
    plant.reasons.dedup();
    let expected = [
        "a pause that measures the speed alone",
        "runs between naps, duty 0.100",
        "nobody is to be kept from contention any more",
    ];
    assert_eq!(plant.reasons, expected.map(|why| format!("controller: {why}")));
}

#[test]
fn latencies_that_a_program_reports_are_kept() {
    // Loss 0.2: a millisecond alone is 1.25 ms beside the other: its 99th percentile says so as long as the other runs for 1 % of the time,
    // so that this comes to about the least duty; the median only where it runs for more than half of it.
    for (metric, least, most) in [("latency_p99_s", 0.005, 0.03), ("latency_p50_s", 0.3, 0.6)] {
        let mut plant = Plant::new(0.2, 100);
        let (_, utilisation, state) = run(&mut plant, &config("steady", metric, false));
        assert!((least..most).contains(&utilisation), "{metric}: {utilisation}");
        let alone = state.alone[0].unwrap();
        assert!((alone / 1e3 - 1.0).abs() < 0.02, "{metric}: {alone} a second");
    }
}

#[test]
fn a_latency_with_a_long_window_is_kept_by_turns_or_by_limits() {
    // Loss 0.16: the goal is kept up to a duty of 0.625, of which `steady` finds 0.5 and stays there.
    for limits in [false, true] {
        let mut plant = Plant::new(0.16, 100);
        let (quality, utilisation, state) = run(&mut plant, &config("steady", "p99", limits));
        assert!((0.9..0.95).contains(&quality), "{limits}: {quality}");
        assert!((0.4..0.52).contains(&utilisation), "{limits}: {utilisation}");
        let has_limits = plant.actions.iter().any(|action| matches!(action, Action::Limit { .. }));
        assert_eq!(has_limits, limits);
        assert!(plant.rounds < 102_000, "{limits}: {} rounds in 100 s of 1 ms each", plant.rounds);
        assert!(state.alone[0].unwrap() > 0.99e6, "{:?}", state.alone);
    }
}

#[test]
fn who_ends_lets_the_others_go() {
    let mut plant = Plant::new(0.3, 3);
    plant.high_ends = Time::from_secs(1);
    let (_, utilisation, _) = run(&mut plant, &config("targeted", PROGRESS, false));
    assert!(utilisation > 0.75, "{utilisation}");
    let last = plant.actions.last();
    assert!(matches!(last, Some(Action::Nap { until, .. }) if *until <= Time::from_millis(1_210)), "{last:?}");
}

#[test]
fn a_metric_that_never_answers_stops_nobody() {
    // One pause at the beginning, which is to have 3 readings: 10 s, by when there should have been one, without a gap however seldom and late
    // anybody looks.
    for every in [1, 100, 1_000] {
        let mut plant = Plant { late: MS(1), ..Plant::new(0.2, 60) };
        let config = Config { interval: MS(every), ..config("steady", "nothing", false) };
        let (_, utilisation, _) = run(&mut plant, &config);
        assert!((utilisation - 50.0 / 60.0).abs() < 0.003, "every {every} ms: {utilisation}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let topology = machine(1, 1, 2, 1);
    let (machine, apps) = (MachineProfile::default(), BTreeMap::new());
    for (controller, metric, limits, why) in [
        ("targeted", "p99", false, "use --controller steady"),
        ("steady", PROGRESS, false, "use --controller tracking"),
        ("balanced", IPC, true, "use --controller tracking"),
        ("targeted", PROGRESS, true, "use --controller tracking"),
    ] {
        let config = config(controller, metric, limits);
        let refusal =
            policy(&config).check(&Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config });
        assert!(refusal.unwrap_err().to_string().contains(why));
    }
}

#[test]
fn turns_are_long_enough_to_be_obeyed() {
    assert_eq!(turn(0.5, TURN), (MS(10), MS(10)));
    assert_eq!(turn(0.75, TURN), (MS(15), MS(5)));
    assert_eq!(turn(0.05, TURN), (MS(5), MS(95)));
    assert_eq!(
        [0.5, 0.05, 0.99].map(|duty| turn(duty, LONG_TURN)),
        [(MS(100), MS(100)), (MS(10), MS(190)), (MS(495), MS(5))]
    );
    for (permille, length) in (1..1000).flat_map(|permille| [(permille, TURN), (permille, LONG_TURN)]) {
        let duty = f64::from(permille) / 1e3;
        let (run, nap) = turn(duty, length);
        let case = format!("{permille}: {run:?} {nap:?}");
        assert!(nap >= MS(4) && nap <= LONGEST_NAP + Duration::from_nanos(1), "{case}");
        // The longest naps are cut neither long nor short: between them is less than the shortest run.
        assert!(run >= MS(4) || nap >= LONGEST_NAP.mul_f64(0.999), "{case}");
        assert!(
            run == Duration::from_secs(1) || (run.as_secs_f64() / (run + nap).as_secs_f64() - duty).abs() < 1e-6,
            "{case}"
        );
    }
}
