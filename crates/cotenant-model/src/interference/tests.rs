use super::*;
use crate::sample::{AppSample, Direction, Reading, Sample, TaskInfo, TaskSample};
use crate::signal::{Count, Signal};
use crate::speed::Source;
use crate::testing::machine;
use crate::{CpuId, CpuSet, Reason, TaskId};
use std::sync::Arc;

/// Programs that report progress, one task each, on a machine with two cache domains.
struct World {
    topology: Topology,
    table: Interference,
    prev: Sample,
    round: Duration,
}

/// Activity of a program in a round: whether it existed, CPUs used, units a second, and its CPU.
#[derive(Clone, Copy, Debug)]
struct Did {
    there: bool,
    cpus: f64,
    units: f64,
    cpu: u32,
}

const GONE: Did = Did { there: false, cpus: 0.0, units: 0.0, cpu: 0 };

fn did(cpus: f64, units: f64) -> Did {
    Did { there: true, cpus, units, cpu: 0 }
}

impl World {
    fn new() -> Self {
        let round = Duration::from_millis(100);
        Self { topology: machine(1, 2, 2, 1), table: Interference::default(), prev: Sample::default(), round }
    }

    /// A round with these activities of programs `a`, `b`, `c` ….
    fn round(&mut self, all: &[Did]) {
        self.round_with(all, &[]);
    }

    fn round_with(&mut self, all: &[Did], orders: &[Order]) {
        let seconds = self.round.as_secs_f64();
        let before = |id: u32| {
            let task = self.prev.task(TaskId(id)).and_then(|task| task.counters.get(Signal::CpuTime));
            let app = self.prev.apps.iter().find(|app| app.id == AppId(id)).and_then(|app| app.progress);
            (task.map_or(0, |count| count.value), app.unwrap_or(0))
        };
        let mut next = Sample { at: self.prev.at + self.round, ..Sample::default() };
        for (id, did) in (0..).zip(all) {
            let Did { there: true, cpus, units, cpu } = did else { continue };
            let (used, done) = before(id);
            let info = TaskInfo { id: TaskId(id), app: AppId(id), tid: 1 + id, ..TaskInfo::default() };
            let count = Count::exact(used + (cpus * seconds * 1e9) as u64);
            next.tasks.push(TaskSample {
                info: Arc::new(info),
                cpu: Some(CpuId(*cpu)),
                counters: [(Signal::CpuTime, count)].into_iter().collect(),
                ..TaskSample::default()
            });
            let name = char::from(b'a' + id as u8).to_string();
            let progress = Some(done + (units * seconds) as u64);
            next.apps.push(AppSample { id: AppId(id), name, progress, ..AppSample::default() });
        }
        let view = View::new(&self.prev, &next);
        self.table.round(&self.topology, &view, orders, &vec![Outcome::Applied; orders.len()]);
        self.prev = next;
    }

    fn rounds(&mut self, n: usize, all: &[Did]) {
        (0..n).for_each(|_| self.round(all));
    }
}

/// A program at a million units per second that loses a tenth while the other, which starts and stops, runs.
fn hurt(world: &mut World, turns: usize) {
    for _ in 0..turns {
        world.rounds(30, &[did(1.0, 1e6), did(0.0, 0.0)]);
        world.rounds(30, &[did(1.0, 0.9e6), did(1.0, 1e6)]);
    }
}

#[test]
fn a_steady_loss_is_found_by_hand() {
    let mut world = World::new();
    hurt(&mut world, 1);
    assert_eq!((world.table.events(), world.table.rows()), (1, vec![]), "one experiment tells nothing");
    hurt(&mut world, 3);
    let rows = world.table.rows();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.victim.as_str(), row.aggressor.as_str()), ("a", "b"));
    assert!((row.loss - 0.1).abs() < 1e-6, "{row:?}");
    assert!(row.low > 0.08 && row.high < 0.12, "{row:?}");
    assert_eq!(u64::from(row.events), world.table.events());
}

/// Random speeds: noise of which half persists from round to round, outliers, and faster or slower phases. Programs
/// start and stop by themselves.
struct Chance {
    rng: fastrand::Rng,
    noise: f64,
    /// Mean seconds of a phase, and its speed difference; mean seconds of running or resting.
    phase: (f64, f64),
    turn: f64,
    slow: Vec<f64>,
    level: Vec<f64>,
    runs: Vec<bool>,
}

impl Chance {
    fn new(seed: u64, programs: usize, noise: f64, phase: (f64, f64), turn: f64) -> Self {
        let (slow, level, runs) = (vec![0.0; programs], vec![0.0; programs], vec![true; programs]);
        Self { rng: fastrand::Rng::with_seed(seed), noise, phase, turn, slow, level, runs }
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.rng.f64()).sum::<f64>() - 6.0
    }

    /// Activities of all in a round of 0.1 s; program 1 costs program 0 this fraction while it runs. All but program 0
    /// start and stop.
    fn round(&mut self, loss: f64) -> Vec<Did> {
        for i in 0..self.runs.len() {
            self.slow[i] = 0.9 * self.slow[i] + (1.0 - 0.81_f64).sqrt() * self.normal();
            if self.rng.f64() < 0.1 / self.phase.0 {
                self.level[i] = self.phase.1 * self.rng.f64();
            }
            if i > 0 && self.rng.f64() < 0.1 / self.turn {
                self.runs[i] = !self.runs[i];
            }
        }
        let mut all = Vec::new();
        for i in 0..self.runs.len() {
            let outlier = if self.rng.f64() < 0.01 { -0.3 } else { 0.0 };
            let noise = self.noise * (self.slow[i] + self.normal()) / 2.0_f64.sqrt();
            let slower = if i == 0 && self.runs[1] { (1.0 - loss).ln() } else { 0.0 };
            let speed = (self.level[i] + noise + outlier + slower).exp() * 1e6;
            all.push(if self.runs[i] { did(1.0, speed) } else { did(0.0, 0.0) });
        }
        all
    }
}

/// The table over these seconds, read once a second: whether any row ever appeared, and the number of experiments
/// before the row of 0 and 1.
fn table(mut chance: Chance, seconds: usize, loss: f64) -> (bool, Option<u32>, World) {
    let mut world = World::new();
    let (mut wrong, mut found) = (false, None);
    for _ in 0..seconds {
        for _ in 0..10 {
            world.round(&chance.round(loss));
        }
        for row in world.table.rows() {
            match (row.victim.as_str(), row.aggressor.as_str()) {
                ("a", "b") if loss > 0.0 => found = found.or(Some(row.events)),
                _ => wrong = true,
            }
        }
    }
    (wrong, found, world)
}

/// Number of tables; `COTENANT_TABLES` can raise it beyond a test's time.
fn tables() -> u64 {
    std::env::var("COTENANT_TABLES").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

fn rests(speed: f64) -> [Did; 2] {
    [did(1.0, speed), did(0.0, 0.0)]
}

fn runs(speed: f64) -> [Did; 2] {
    [did(1.0, speed), did(1.0, 1e6)]
}

fn order(action: Action) -> Order {
    Order { action, affinity: CpuSet::new(), reason: Reason::new("test", "") }
}

/// Arrivals and exits count as much; what comes again is another application of the same name.
#[test]
fn who_arrives_and_exits_is_known_by_its_name() {
    let mut world = World::new();
    for _ in 0..4 {
        world.rounds(30, &[did(1.0, 1e6), GONE]);
        world.rounds(30, &runs(0.7e6));
    }
    let rows = world.table.rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!((rows[0].loss - 0.3).abs() < 1e-6, "{rows:?}");
}

/// A world in which these programs are instances of the workload `w`.
fn world_with(instances: [u32; 3]) -> World {
    let mut world = World::new();
    for id in instances {
        world.table.call(AppId(id), "w".to_owned());
    }
    world
}

/// Each of them comes once, and never again under its own name.
#[test]
fn instances_of_a_workload_hurt_and_are_hurt_as_one() {
    let mut world = world_with([1, 2, 3]);
    for instance in 1..=3 {
        world.rounds(30, &[did(1.0, 1e6), GONE, GONE, GONE]);
        let mut all = [did(1.0, 0.8e6), GONE, GONE, GONE];
        all[instance] = did(1.0, 1e6);
        world.rounds(30, &all);
        world.table.forget(AppId(instance as u32));
    }
    let rows = world.table.rows();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.victim.as_str(), row.aggressor.as_str()), ("a", "w"));
    assert!((row.loss - 0.2).abs() < 1e-6, "{row:?}");

    let mut world = world_with([1, 2, 3]);
    for instance in 1..=3 {
        let mut all = [did(0.0, 0.0), GONE, GONE, GONE];
        for (cpus, units) in [(0.0, 1e6), (1.0, 0.8e6)].repeat(2) {
            (all[0], all[instance]) = (did(cpus, 1e6 * cpus), did(1.0, units));
            world.rounds(40, &all);
        }
        world.rounds(30, &[did(1.0, 1e6), GONE, GONE, GONE]);
        world.rounds(30, &[did(0.0, 0.0), GONE, GONE, GONE]);
    }
    let rows = world.table.rows();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.victim.as_str(), row.aggressor.as_str()), ("w", "a"));
    assert!((row.loss - 0.2).abs() < 1e-6, "{row:?}");
}

/// Half of the work for each of two is no harm.
#[test]
fn instances_of_a_workload_are_not_their_own_victims() {
    for (instances, events) in [([1, 1, 1], 7), ([0, 1, 1], 0)] {
        let mut world = world_with(instances);
        for _ in 0..4 {
            world.rounds(30, &rests(1e6));
            world.rounds(30, &[did(1.0, 0.5e6), did(1.0, 0.5e6)]);
        }
        assert_eq!(world.table.events(), events);
    }
}

/// The noise of a workload does not begin anew with each instance.
#[test]
fn an_instance_of_which_another_source_tells_leaves_the_noise_of_the_others() {
    let mut world = world_with([0, 0, 0]);
    world.rounds(200, &rests(1e6));
    let before = world.table.noise["w"].clone();
    assert!(before.variance().is_some());
    world.table.call(AppId(1), "w".to_owned());
    let (at, window) = (world.prev.at, world.round);
    let reading = Reading { value: 7.0, direction: Direction::HigherIsBetter, window, count: 1, at: at + window };
    let new = AppSample { id: AppId(1), metrics: vec![("m".to_owned(), reading)], ..AppSample::default() };
    let next = Sample { at: at + window, apps: vec![new], ..Sample::default() };
    let view = View::new(&world.prev, &next);
    world.table.hear(&view, &view.apps[0]);
    assert_eq!(world.table.now.apps[&AppId(1)].speeds.source, Some(Source::Metric("m".to_owned())));
    assert_eq!(world.table.noise["w"], before);
}

/// Holds run/interference.
#[test]
fn what_two_begin_together_is_nobodys_doing() {
    let mut world = World::new();
    for _ in 0..6 {
        world.rounds(30, &[did(1.0, 1e6), did(0.0, 0.0), did(0.0, 0.0)]);
        world.rounds(30, &[did(1.0, 0.5e6), did(1.0, 1e6), did(1.0, 1e6)]);
    }
    assert_eq!(world.table.events(), 0);
    // Nor if the other one changes before the speeds after the first change are known.
    for _ in 0..6 {
        world.rounds(30, &[did(1.0, 1e6), did(0.0, 0.0), did(0.0, 0.0)]);
        world.rounds(4, &[did(1.0, 0.5e6), did(1.0, 1e6), did(0.0, 0.0)]);
        world.rounds(30, &[did(1.0, 0.5e6), did(1.0, 1e6), did(1.0, 1e6)]);
    }
    assert_eq!(world.table.events(), 0);
}

/// A victim that is in the middle of a phase change tells nothing.
#[test]
fn who_is_not_steady_tells_nothing() {
    let mut world = World::new();
    world.rounds(120, &rests(1e6));
    assert!(world.table.noise["a"].variance().is_some());
    for _ in 0..6 {
        world.rounds(27, &rests(1e6));
        world.rounds(3, &rests(0.7e6));
        world.rounds(15, &runs(0.7e6));
        world.rounds(15, &runs(1e6));
    }
    let told = world.table.pairs["a"]["b"].loss(&world.table.noise["a"]).unwrap();
    assert!(told.share.abs() < 1e-6, "only what befell it when the other one began to rest counts: {told:?}");
}

/// A policy that lets others nap when somebody is slow chooses the moment; when a nap ends was fixed before.
#[test]
fn the_end_of_a_nap_counts_and_its_beginning_does_not() {
    let nap = |world: &World, ms: u64| {
        let until = world.prev.at + world.round + Duration::from_millis(ms);
        order(Action::Nap { app: AppId(1), until })
    };
    let mut world = World::new();
    world.rounds(30, &runs(0.9e6));
    let begins = [nap(&world, 3_000)];
    world.round_with(&runs(0.9e6), &begins);
    world.rounds(30, &rests(1e6));
    assert_eq!(world.table.events(), 0);
    world.rounds(30, &runs(0.9e6));
    assert_eq!(world.table.events(), 1);
    // A nap that ends early because of a speed does not count either, nor does a limit.
    world.rounds(30, &rests(1e6));
    let events = world.table.events();
    let ends = [nap(&world, 0)];
    world.round_with(&rests(1e6), &ends);
    world.rounds(30, &runs(0.9e6));
    let limit = [order(Action::Limit { app: AppId(1), cpu_permille: Some(1) })];
    world.round_with(&runs(0.9e6), &limit);
    world.rounds(30, &rests(1e6));
    assert_eq!(world.table.events(), events);
}

/// Moves into and out of a cache domain are experiments, moves within one are none.
#[test]
fn a_move_into_the_same_cache_counts() {
    let on = |cpu: u32, speed: f64| [did(1.0, speed), Did { cpu, ..did(1.0, 1e6) }];
    let mut world = World::new();
    let step = |world: &mut World, from: (u32, f64), to: u32| {
        world.rounds(20, &on(from.0, from.1));
        let place = Action::Place { task: TaskId(1), contexts: CpuSet::single(CpuId(to)) };
        world.round_with(&on(from.0, from.1), &[order(place)]);
    };
    for _ in 0..3 {
        step(&mut world, (2, 1e6), 1);
        step(&mut world, (1, 0.8e6), 2);
    }
    let rows = world.table.rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!((rows[0].loss - 0.2).abs() < 1e-6 && rows[0].aggressor == "b", "{rows:?}");
    let events = world.table.events();
    for _ in 0..3 {
        step(&mut world, (2, 1e6), 3);
        step(&mut world, (3, 1e6), 2);
    }
    assert!(world.table.events() <= events + 1, "{}", world.table.events());
}

/// Holds daemon/pause.
#[test]
fn what_was_learnt_is_stored_and_goes_on() {
    let mut world = World::new();
    hurt(&mut world, 4);
    let rows = world.table.rows();
    let text = serde_json::to_string(&world.table).unwrap();
    let mut later = World::new();
    later.table = serde_json::from_str(&text).unwrap();
    assert_eq!(later.table.rows(), rows);
    hurt(&mut later, 4);
    assert!(later.table.rows()[0].events > rows[0].events, "a clock that begins anew is no hindrance");
    assert_eq!(serde_json::from_str::<Interference>("{}").map(|table| table.rows()).ok(), Some(vec![]));
}

/// What is older is forgotten: a loss that has ended is not there any more in the end.
#[test]
fn a_loss_that_ends_is_forgotten() {
    let mut world = World::new();
    hurt(&mut world, 20);
    assert_eq!(world.table.rows().len(), 1);
    for _ in 0..70 {
        world.rounds(30, &rests(1e6));
        world.rounds(30, &runs(1e6));
    }
    assert_eq!(world.table.rows(), []);
}

/// Names that come and go for ever take no more room than some thousand.
#[test]
fn the_table_is_bounded() {
    let mut table = Interference::default();
    for i in 0..20_000 {
        table.add(format!("victim {}", i % 5_000), format!("aggressor {}", i / 5_000), 0.0);
    }
    let pairs: usize = table.pairs.values().map(BTreeMap::len).sum();
    assert!((PAIRS * 7 / 8..=PAIRS).contains(&pairs), "{pairs}");
    assert!(table.pairs["victim 4999"].contains_key("aggressor 3"), "the newest is there");
    let text = serde_json::to_string(&table).unwrap();
    assert!(text.len() < 1 << 20, "{}", text.len());
}

/// A host that looks at tasks only in every fifth round tells the same, a little later.
#[test]
fn rare_looks_are_no_rests() {
    let mut world = World::new();
    for turn in 0..4 {
        for round in 0..80 {
            let runs = round >= 40;
            let speed = if runs { 0.8e6 } else { 1e6 };
            let looked = (turn * 80 + round) % 5 == 4;
            let cpus = |used: f64| if looked { 5.0 * used } else { 0.0 };
            world.round(&[did(cpus(1.0), speed), did(cpus(f64::from(u8::from(runs))), 0.0)]);
        }
    }
    let rows = world.table.rows();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!((rows[0].loss - 0.2).abs() < 1e-6 && world.table.events() >= 4, "{rows:?}");
}

/// Promise run/interference: The table of which application slows which is false in at most one case of twenty, and
/// soon finds a loss of 10 %.
#[test]
fn of_nothing_come_hardly_any_rows() {
    let n = tables();
    for (noise, phase, turn, programs, seconds) in [
        (0.01, (5.0, 0.2), 4.0, 3, 200),
        (0.02, (1.3, 0.1), 3.0, 5, 200),
        (0.02, (30.0, 0.4), 10.0, 5, 200),
        (0.05, (5.0, 0.2), 2.0, 3, 200),
        (0.02, (5.0, 0.2), 20.0, 20, 60),
    ] {
        let (mut wrong, mut events) = (0, 0);
        for seed in 0..n {
            let (any, _, world) = table(Chance::new(seed, programs, noise, phase, turn), seconds, 0.0);
            wrong += u64::from(any);
            events += world.table.events();
        }
        eprintln!(
            "noise {noise}, phases {phase:?}, turns {turn} s, {programs} programs: {wrong} of {n} tables have a false row, {} experiments each",
            events / n
        );
        // Five in a hundred, plus chance for small numbers.
        let bound = 0.05 * n as f64 + 3.0 * (0.05 * 0.95 * n as f64).sqrt();
        assert!((wrong as f64) <= bound, "{wrong} of {n}");
    }
}

/// A policy lets one program nap for 1.5 s whenever the other one is slow, which it then is by chance: that it is
/// faster afterwards is nobody's doing.
/// Holds run/interference.
#[test]
fn of_a_policy_that_chooses_its_moments_comes_nothing() {
    let mut wrong = 0;
    for seed in 0..tables() {
        let mut chance = Chance::new(seed, 2, 0.03, (3.0, 0.2), 1e9);
        let (mut world, mut until, mut any) = (World::new(), Time::default(), false);
        let (mut mean, mut recent) = (1.1e6, 1.1e6);
        for _ in 0..2_000 {
            chance.runs[1] = world.prev.at >= until;
            let all = chance.round(0.0);
            let speed = all[0].units;
            (mean, recent) = (0.99 * mean + 0.01 * speed, 0.7 * recent + 0.3 * speed);
            let now = world.prev.at + world.round;
            let naps = recent < 0.97 * mean && now >= until + Duration::from_secs(1);
            if naps {
                until = now + Duration::from_millis(1_500);
            }
            let nap = naps.then(|| order(Action::Nap { app: AppId(1), until }));
            world.round_with(&all, nap.as_slice());
            any |= !world.table.rows().is_empty();
        }
        assert!(world.table.events() > 10, "{}", world.table.events());
        wrong += u64::from(any);
    }
    assert!(wrong * 10 <= tables(), "{wrong} of {}", tables());
}

/// Holds run/interference.
#[test]
fn a_tenth_is_found_after_few_experiments() {
    let n = tables().min(200);
    for (programs, turn) in [(2, 4.0), (5, 10.0)] {
        let (mut found, mut wrong) = (Vec::new(), 0);
        for seed in 0..n {
            let (any, after, _) = table(Chance::new(seed, programs, 0.02, (1e9, 0.0), turn), 200, 0.1);
            wrong += usize::from(any);
            found.extend(after);
        }
        found.sort_unstable();
        eprintln!(
            "{programs} programs: found in {} of {n}, after {:?} experiments in the median, {:?} in nine of ten; {wrong} false",
            found.len(),
            found.get(found.len() / 2),
            found.get(found.len() * 9 / 10)
        );
        assert!(found.len() as u64 >= n * 9 / 10, "{} of {n}", found.len());
        assert!(found[found.len() / 2] <= 8, "{found:?}");
    }
}
