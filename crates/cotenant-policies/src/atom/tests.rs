//! Programs whose speed follows from their mapping, and how `atom` finds the best one.

use super::situation::Situation;
use super::*;
use cotenant_model::action::{Action, Outcome};
use cotenant_model::ids::{AppId, CpuId};
use cotenant_model::policy::Config;
use cotenant_model::profile::{AppProfile, MachineProfile};
use cotenant_model::sample::{Direction, Reading};
use cotenant_model::signal::Signal;
use cotenant_model::testing::clovertown;
use cotenant_model::testing::{ViewBuilder, machine};
use cotenant_model::topology::Topology;

/// A thread: id, application, fraction of time on a CPU, CPU.
type Thread = (u32, u32, f64, u32);

struct World {
    topology: Topology,
    apps: BTreeMap<String, AppProfile>,
    config: Config,
    settings: AtomConfig,
    threads: Vec<Thread>,
    /// Work per second of an application, by the CPUs of its threads and by the time.
    speed: fn(&World, u32) -> f64,
    /// The source of speed: progress, a latency read each second, or counted instructions.
    told: Told,
    foreign: Vec<(u32, f64)>,
    outcome: Outcome,
    now: Time,
    state: AtomState,
    outcomes: Vec<ActionOutcome>,
    /// Time of the current placements.
    moved_at: Time,
    reading: Option<Reading>,
    notes: Vec<String>,
    reasons: Vec<String>,
    turns: Vec<Time>,
}

#[derive(Clone, Copy, PartialEq)]
enum Told {
    Progress,
    Latency,
    Instructions,
    Nothing,
}

impl World {
    fn new(topology: Topology, threads: Vec<Thread>, speed: fn(&World, u32) -> f64) -> Self {
        Self {
            topology,
            apps: BTreeMap::new(),
            config: Config { pin: cotenant_model::pin::Pin::Cpu, ..Config::default() },
            settings: AtomConfig::default(),
            threads,
            speed,
            told: Told::Progress,
            foreign: Vec::new(),
            outcome: Outcome::Applied,
            now: Time(0),
            state: AtomState::default(),
            outcomes: Vec::new(),
            moved_at: Time(0),
            reading: None,
            notes: Vec::new(),
            reasons: Vec::new(),
            turns: Vec::new(),
        }
    }

    fn cpus(&self, app: u32) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.threads.iter().filter(|t| t.1 == app).map(|t| t.3).collect();
        cpus.sort_unstable();
        cpus
    }

    /// One round, up to the time requested by the last one.
    fn step(&mut self, until: Time) -> Decision<AtomState> {
        let interval = until - self.now;
        let seconds = interval.as_secs_f64();
        let mut builder = ViewBuilder::new(&self.topology).interval(interval).at(until);
        for &(id, app, share, cpu) in &self.threads {
            builder = builder.task(id, app, cpu).signal(Signal::CpuTime, (share * seconds * 1e9) as u64);
            if self.told == Told::Instructions {
                let n = self.threads.iter().filter(|t| t.1 == app && t.2 > 0.0).count() as f64;
                let work = if share > 0.0 { (self.speed)(self, app) / n } else { 0.0 };
                builder = builder.signal(Signal::Instructions, (work * seconds * 1e6) as u64);
            }
        }
        for &(cpu, busy) in &self.foreign {
            builder = builder.cpu_busy(cpu, busy);
        }
        let mut view = builder.view();
        for app in &mut view.apps {
            let speed = (self.speed)(self, app.id.0);
            match self.told {
                Told::Progress => app.progress_per_s = Some(speed),
                Told::Latency => {
                    // Read at every full second, for the second before.
                    let at = Time::from_secs(until.0 / 1_000_000_000);
                    if self.reading.is_none_or(|r| r.at < at) && at.0 > 0 {
                        let window = Duration::from_secs(1);
                        let direction = Direction::LowerIsBetter;
                        self.reading = Some(Reading { value: 1.0 / speed, direction, window, count: 1, at });
                    }
                    app.metrics.extend(self.reading.map(|r| ("p99".to_owned(), r)));
                }
                Told::Instructions | Told::Nothing => {}
            }
        }
        self.now = until;
        let machine = MachineProfile::default();
        let ctx = Ctx { topology: &self.topology, machine: &machine, apps: &self.apps, config: &self.config };
        let decision = Atom(self.settings).decide(&ctx, &view, &self.outcomes, std::mem::take(&mut self.state), until);
        self.state = serde_json::from_str(&serde_json::to_string(&decision.state).unwrap()).unwrap();
        assert_eq!(self.state, decision.state, "it is plain");
        assert!(decision.wake_at > until);
        self.outcomes.clear();
        for proposal in &decision.proposals {
            self.outcomes.push(ActionOutcome { action: proposal.action.clone(), outcome: self.outcome });
            if let (Action::Place { task, contexts }, Outcome::Applied) = (&proposal.action, self.outcome) {
                let thread = self.threads.iter_mut().find(|t| t.0 == task.0).unwrap();
                thread.3 = contexts.first().unwrap().0;
            }
            self.reasons.push(proposal.reason.to_string());
        }
        if !decision.proposals.is_empty() {
            self.moved_at = until;
            self.turns.push(until);
        }
        self.notes.extend(decision.notes.clone());
        self.notes.sort();
        self.notes.dedup();
        decision
    }

    fn run(&mut self, seconds: u64) {
        let end = Time(self.now.0 + Time::from_secs(seconds).0);
        let mut next = Time(self.now.0 + 100_000_000);
        while next <= end {
            next = self.step(next).wake_at;
        }
    }

    fn has_note(&self, text: &str) -> bool {
        self.notes.iter().any(|note| note.contains(text))
    }
}

/// Noise of 1 % that depends only on time.
fn noise(world: &World) -> f64 {
    1.0 + ((world.now.0 / 100_000_000 * 7_919) % 21) as f64 / 1_000.0 - 0.01
}

/// On Clovertown: 5 % faster where each thread has an L2 of its own, 3 % slower on one bus.
fn apart(world: &World, app: u32) -> f64 {
    let cpus = world.cpus(app);
    let mut caches: Vec<u32> = cpus.iter().map(|c| c / 2).collect();
    caches.dedup();
    let one_bus = cpus.iter().all(|c| c / 4 == cpus[0] / 4);
    100.0 * noise(world) * (1.0 + 0.05 * f64::from(caches.len() == cpus.len()) - 0.03 * f64::from(one_bus))
}

fn four(app: u32, first: u32) -> Vec<Thread> {
    (0..4).map(|i| (first + i, app, 1.0, i)).collect()
}

/// Holds place/atom.
#[test]
fn the_best_class_wins_and_the_reason_says_so() {
    let mut world = World::new(clovertown(), four(0, 1), apart);
    world.run(25);
    assert_eq!(world.cpus(0), [0, 2, 4, 6]);
    assert!(world.has_note("class X.X.|X.X. won of 3"), "{:?}", world.notes);
    assert!(world.reasons[0].starts_with("learning: it is the turn of class XX"), "{}", world.reasons[0]);
    let moves = world.reasons.len();
    world.run(60);
    assert_eq!(world.reasons.len(), moves, "the winner is left where it is");
}

#[test]
fn whatever_tells_the_speed_and_whichever_way_is_better() {
    // The second of a latency may end after a shorter turn, which then waits for it.
    for (told, turn) in [(Told::Latency, "3s"), (Told::Instructions, "3s"), (Told::Latency, "800ms")] {
        let mut world = World::new(clovertown(), four(0, 1), apart);
        world.told = told;
        world.settings = format!("turn={turn}").parse().unwrap();
        world.run(80);
        assert_eq!(world.cpus(0), [0, 2, 4, 6], "{:?}", world.notes);
        assert!(world.has_note("won of 3"));
    }
    let mut world = World::new(clovertown(), four(0, 1), apart);
    world.told = Told::Nothing;
    world.run(1);
    assert!(world.notes.is_empty(), "programs begin to report some time after their start");
    world.run(9);
    assert!(world.has_note("no decision: no program's speed is known") && world.reasons.is_empty());
}

#[test]
fn turns_are_equal_and_begin_on_time() {
    let mut world = World::new(clovertown(), four(0, 1), |_, _| 100.0);
    world.settings = "turn=730ms,rounds=2".parse().unwrap();
    world.config.interval = Duration::from_millis(100);
    world.run(20);
    // All equal: no class is dropped, and the last of the first round is the first of the second.
    let lengths: Vec<u64> = world.turns.windows(2).map(|w| (w[1].0 - w[0].0) / 1_000_000).collect();
    assert_eq!(lengths[..3], [730, 730, 1_460], "{lengths:?}");
}

#[test]
fn a_turn_that_tells_nothing_is_given_up_after_the_time_of_three_more() {
    let mut world = World::new(clovertown(), four(0, 1), apart);
    world.settings = "turn=2s,settle=50%".parse().unwrap();
    // The first one begins at 0.6 s, is measured from 1.6 s on, and should end at 2.6 s.
    world.run(1);
    world.told = Told::Nothing;
    world.run(7);
    assert!(!world.has_note("no speed was reported in this turn"), "{:?}", world.notes);
    world.run(1);
    assert!(world.has_note("no speed was reported in this turn"), "{:?}", world.notes);
}

/// A second each, up to 10.5 s, 11 s and 12 s; the turn is measured from 10 s on. The last one is seen twice.
#[test]
fn of_a_metric_counts_what_was_read_in_the_turn_alone() {
    let topology = machine(1, 1, 1, 1);
    let measures = [(AppId(0), Source::from("speed".to_owned()))].into();
    let situation = Situation { measures, ..Situation::default() };
    let mut meter = Meter::new(Time::from_secs(10));
    for (seen, read, value) in
        [(10_500, 10_500, 1.0), (11_000, 11_000, 2.0), (12_000, 12_000, 8.0), (12_500, 12_000, 8.0)]
    {
        let mut view = ViewBuilder::new(&topology).at(Time::from_millis(seen)).task(1, 0, 0).view();
        let (window, at) = (Duration::from_secs(1), Time::from_millis(read));
        let reading = Reading { value, direction: Direction::HigherIsBetter, window, count: 1, at };
        view.apps[0].metrics.push(("speed".to_owned(), reading));
        meter.add(&view, &situation);
    }
    assert_eq!(meter.score(&situation), Some(5_f64.ln()), "the mean of 2 and 8");
}

#[test]
fn what_is_measured_while_caches_are_cold_does_not_count() {
    // The best class is the slowest for the first 200 ms after a move.
    let speed = |world: &World, app: u32| {
        let warm = world.now - world.moved_at >= Duration::from_millis(200);
        if warm { apart(world, app) } else { apart(world, app).recip() }
    };
    let mut world = World::new(clovertown(), four(0, 1), speed);
    world.settings = "turn=400ms,settle=50%".parse().unwrap();
    world.run(20);
    assert_eq!(world.cpus(0), [0, 2, 4, 6]);
}

/// Holds place/atom.
#[test]
fn the_hopeless_are_dropped_early() {
    let exact = |world: &World, app: u32| if apart(world, app) > 103.0 { 105.0 } else { 97.0 };
    let mut world = World::new(clovertown(), four(0, 1), exact);
    world.settings = "turn=1s,rounds=100".parse().unwrap();
    world.run(12);
    assert!(world.has_note("won of 3 in 2 rounds: +8.2 % ± 0.0 % over"), "{:?}", world.notes);
}

/// Holds place/atom.
#[test]
fn one_class_is_no_choice() {
    for threads in [1, 2] {
        let mut world = World::new(machine(1, 1, 2, 1), (0..threads).map(|i| (i, 0, 1.0, i)).collect(), |_, _| 1.0);
        world.run(5);
        assert!(world.reasons.is_empty() && world.has_note("there is one mapping class only"), "{:?}", world.notes);
        assert!(!world.has_note("is the only one that competes"), "{:?}", world.notes);
    }
    // Threads that sleep, or run for less than a tenth of the time, do not need a CPU.
    for share in [0.0, 0.05] {
        let threads = vec![(1, 0, share, 0), (2, 0, 1.0, 0), (3, 0, 1.0, 1)];
        let mut world = World::new(machine(1, 1, 2, 1), threads, |_, _| 1.0);
        world.run(5);
        assert!(world.has_note("all mappings of 2 threads are alike here"), "{share}: {:?}", world.notes);
    }
    let mut world = World::new(machine(1, 1, 2, 1), (0..3).map(|i| (i, 0, 1.0, 0)).collect(), |_, _| 1.0);
    world.run(5);
    assert!(world.has_note("3 busy threads do not have a CPU each"), "{:?}", world.notes);
    let one = machine(1, 1, 1, 1);
    let (m, a, config) = (MachineProfile::default(), BTreeMap::new(), Config::default());
    let refusal = Atom::default().check(&Ctx { topology: &one, machine: &m, apps: &a, config: &config }).unwrap_err();
    assert!(refusal.to_string().contains("only one CPU"));
}

/// Holds place/atom.
#[test]
fn it_learns_again_when_co_runners_come_and_not_when_a_thread_is_replaced() {
    let mut world = World::new(clovertown(), four(0, 1), apart);
    world.run(25);
    let moves = world.reasons.len();
    // The last thread ends and another one takes its place in the team: the same situation.
    world.threads[3] = (9, 0, 1.0, 1);
    world.run(10);
    assert_eq!((world.cpus(0), world.reasons.len()), (vec![0, 2, 4, 6], moves + 1), "{:?}", world.reasons);
    // A co-runner of four threads: three joint classes.
    world.threads.extend(four(1, 20));
    world.run(60);
    assert!(world.has_note("won of 3") && world.has_note("class X*X*|X*X* won"), "{:?}", world.notes);
    assert_eq!((world.cpus(0), world.cpus(1)), (vec![0, 2, 4, 6], vec![1, 3, 5, 7]));
}

#[test]
fn the_latency_sensitive_one_counts_alone() {
    // App 1 is fast where app 0 is slow, and by more.
    let speed = |world: &World, app: u32| if app == 0 { apart(world, 0) } else { apart(world, 0).powi(-4) };
    let both = || four(0, 1).into_iter().chain(four(1, 11)).collect();
    let mut world = World::new(clovertown(), both(), speed);
    world.run(40);
    assert_ne!(world.cpus(0), [0, 2, 4, 6]);
    let mut world = World::new(clovertown(), both(), speed);
    world.apps.insert("app0".to_owned(), AppProfile { latency_sensitive: true, ..AppProfile::default() });
    world.run(40);
    assert_eq!(world.cpus(0), [0, 2, 4, 6]);
}

#[test]
fn the_kernel_must_be_beaten_for_certain() {
    let mut world = World::new(clovertown(), four(0, 1), |world, _| 100.0 * noise(world));
    world.settings = "kernel".parse().unwrap();
    world.run(40);
    assert!(world.has_note("class of the kernel won of 4"), "{:?}", world.notes);
    let state = &world.state;
    assert!(state.plan.wanted().is_empty() && state.plan.stands(), "everything was given back");
    assert!(world.turns.len() > 4, "{:?}", world.turns);
}

/// Holds place/atom.
#[test]
fn a_denied_turn_is_no_turn() {
    let mut world = World::new(clovertown(), four(0, 1), apart);
    world.outcome = Outcome::Denied;
    world.run(60);
    let first = world.reasons[0].clone();
    assert!(world.reasons.iter().all(|reason| *reason == first) && !world.has_note("won"));
    world.outcome = Outcome::Applied;
    world.run(120);
    assert_eq!(world.cpus(0), [0, 2, 4, 6]);
}

#[test]
fn cpus_that_others_keep_busy_are_nobodys_turn() {
    let mut world = World::new(clovertown(), vec![(1, 0, 1.0, 0), (2, 0, 1.0, 1)], |_, _| 100.0);
    world.foreign = (0..8).map(|cpu| (cpu, if cpu < 3 { 1.0 } else { 0.0 })).collect();
    world.settings = "all".parse().unwrap();
    world.run(40);
    // CPUs 0 and 1 are managed, 2 is busy with foreign work.
    let state = &world.state;
    let classes = &state.contest.as_ref().unwrap().classes;
    assert!(classes.len() > 3, "the others' CPU makes more of a difference: {classes:?}");
    assert!(classes.iter().all(|c| !c.cpus[0].contains(CpuId(2))), "{classes:?}");
    assert_eq!(state.contest.as_ref().unwrap().situation.measures.keys().copied().collect::<Vec<_>>(), [AppId(0)]);
}

#[test]
fn what_others_may_use_of_a_cpu_does_not_take_it_away() {
    let classes = |busy: [f64; 4]| {
        let mut world = World::new(clovertown(), vec![(1, 0, 1.0, 0), (2, 0, 1.0, 1)], |_, _| 100.0);
        world.config.foreign_busy = 0.25;
        world.foreign = (0..8).map(|cpu| (cpu, busy.get(cpu as usize).copied().unwrap_or(0.0))).collect();
        world.settings = "all".parse().unwrap();
        world.run(40);
        world.state.contest.unwrap().classes.into_iter().map(|c| c.cpus).collect::<Vec<_>>()
    };
    let ours = classes([1.0, 1.0, 0.0, 0.0]);
    assert_eq!(classes([1.0, 1.0, 0.25, 0.25]), ours);
    assert_ne!(classes([1.0, 1.0, 0.375, 0.375]), ours);
    // The second thread, seen on CPU 1, ran on CPU 2: no CPU was foreign.
    assert_eq!(classes([1.0, 0.0, 1.0, 0.0]), ours);
}

#[test]
fn of_too_many_classes_the_corners_compete() {
    let threads = (0..12).map(|i| (i, 0, 1.0, i)).chain((12..24).map(|i| (i, 1, 1.0, i))).collect();
    let mut world = World::new(machine(2, 4, 8, 2), threads, |_, _| 100.0);
    world.run(2);
    let state = &world.state;
    let classes = &state.contest.as_ref().unwrap().classes;
    assert!((4..=32).contains(&classes.len()), "{}", classes.len());
    assert!(world.has_note("packed or spread at each level of the machine"), "{:?}", world.notes);
    let texts: std::collections::BTreeSet<&str> = classes.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(texts.len(), classes.len());
    for class in classes {
        assert!(class.cpus[0].len() == 12 && class.cpus[1].len() == 12 && !class.cpus[0].intersects(&class.cpus[1]));
    }
}

#[test]
fn classes_that_pin_makes_alike_compete_once() {
    // One package, two cores of two contexts: two threads on one core or on two, with a single cache.
    let threads = || vec![(1, 0, 1.0, 0), (2, 0, 1.0, 1)];
    let mut world = World::new(machine(1, 1, 2, 2), threads(), |_, _| 1.0);
    world.run(5);
    assert!(!world.reasons.is_empty());
    let mut world = World::new(machine(1, 1, 2, 2), threads(), |_, _| 1.0);
    world.config.pin = cotenant_model::pin::Pin::Llc;
    world.run(5);
    assert!(world.reasons.is_empty() && world.has_note("with --pin cpu they do"), "{:?}", world.notes);
}
