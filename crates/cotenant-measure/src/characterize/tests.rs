//! Made-up applications with known results.

use super::*;
use cotenant_model::machine::Machine;
use cotenant_model::testing::machine;

/// An application that takes 10 s with this many threads, and reacts as scripted.
struct Made {
    topology: Topology,
    /// Percent gained where all CPUs are in one instance, by level.
    gains: Vec<(String, f64)>,
    has_cycles: bool,
    has_units: bool,
    threads: Option<usize>,
    /// Fraction of speed lost beside any program at full rate.
    loses: f64,
    seconds: f64,
    log: Vec<Trial>,
    stop_at: Option<usize>,
    failure: Option<Stop>,
    simulated: Vec<Geometry>,
    by: Option<By>,
    injectors: Injectors,
    /// Slowdown of the machine with each run.
    drift: f64,
}

impl Made {
    fn new(topology: Topology) -> Self {
        Self {
            topology,
            gains: Vec::new(),
            has_cycles: false,
            has_units: false,
            threads: None,
            loses: 0.0,
            seconds: 10.0,
            log: Vec::new(),
            stop_at: None,
            failure: None,
            simulated: Vec::new(),
            by: None,
            injectors: Injectors::default(),
            drift: 0.0,
        }
    }

    /// The machine's current speed.
    fn pace(&self) -> f64 {
        1e6 / (1.0 + self.drift * self.log.len() as f64)
    }

    fn measure(&mut self, parts: &[&str], rounds: usize) -> Result<Characterization, Stop> {
        let topology = self.topology.clone();
        let plan = Plan {
            topology: &topology,
            cpus: topology.usable().clone(),
            parts: parts.to_vec(),
            rounds,
            kernels: vec!["bst-4mb".into(), "naive-4mb".into()],
            by: self.by,
            injectors: self.injectors.clone(),
        };
        characterize(&plan, self)
    }
}

impl Bench for Made {
    fn run(&mut self, trial: &Trial) -> Result<RunResult, Stop> {
        self.log.push(trial.clone());
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let levels = levels(&self.topology, self.topology.usable());
        let mut seconds = self.seconds;
        for (name, gain) in &self.gains {
            let level = levels.iter().find(|level| level.name() == *name).expect("a level of that name");
            if level.instances.iter().any(|i| trial.cpus.is_subset(i)) {
                seconds *= 1.0 - gain / 100.0;
            }
        }
        let share = trial.beside.as_ref().map_or(0.0, |b| b.rate.map_or(1.0, |rate| rate / 1e6));
        seconds /= 1.0 - self.loses * share;
        let counts = [(Signal::CpuTime, seconds * 1e9)];
        let hardware = [(Signal::LlcMisses, 4e6), (Signal::PrivateMisses, 1e7), (Signal::Intra, 2.5e6)];
        Ok(RunResult {
            seconds,
            cpu_s: Some(seconds * 2.0),
            cycles: self.has_cycles.then_some(seconds * 2e9),
            units: self.has_units.then_some(500.0),
            threads: self.threads.unwrap_or(trial.cpus.len()),
            counts: counts.into_iter().chain(hardware.into_iter().filter(|_| self.has_cycles)).collect(),
            beside_per_s: trial.beside.as_ref().map(|b| b.rate.unwrap_or(self.pace()) * 0.9),
            beside_alone_per_s: None,
        })
    }

    fn alone(&mut self, _: &Beside) -> Result<f64, Stop> {
        Ok(self.pace())
    }

    fn simulate(&mut self, caches: &[[Geometry; 2]]) -> Result<Vec<caches::Misses>, Stop> {
        let of = |[_, last]: &[Geometry; 2]| {
            // Everything fits into 4 MiB.
            let misses = if last.bytes >= 4 << 20 { 1_000 } else { 100_000 };
            let (instructions, references, first_misses) = (4_000_000, 1_000_000, 200_000);
            caches::Misses { instructions, references, first_misses, misses, units: self.has_units.then_some(500) }
        };
        self.simulated.extend(caches.iter().map(|[_, last]| *last));
        Ok(caches.iter().map(of).collect())
    }

    fn goes_on(&mut self, _: f64, _: &str) -> bool {
        self.stop_at.is_none_or(|at| self.log.len() < at)
    }
}

fn harpertown() -> Topology {
    Machine::parse(include_str!("../../../../machines/harpertown-2s.toml")).unwrap().topology
}

/// Promise measure/characterize: Characterization finds what a made-up application is, in the stated number of runs,
/// with each level of cache at several sizes.
#[test]
fn the_vector_is_what_the_application_is() {
    let mut made =
        Made { gains: vec![("bus".into(), -20.0), ("l2".into(), 8.0)], has_cycles: true, ..Made::new(harpertown()) };
    let c = made.measure(&["sensitivity"], 3).unwrap();
    // bus: base 0-3, contend one bus: −20 %. Both have two threads in each L2, so that L2s do not count.
    let scores: Vec<(&str, f64)> = c.profile.sensitivity.iter().map(|(name, s)| (name.as_str(), s.score)).collect();
    assert_eq!(scores, [("bus", -20.0), ("l2", 8.0)]);
    let bus = &c.profile.sensitivity["bus"];
    assert_eq!(
        (bus.by, bus.rounds, bus.base.to_string(), bus.contend.to_string()),
        (By::Cycles, 3, "0-3".into(), "0,2,4,6".into())
    );
    // Time: its own run time × 2 configurations × 2 resources × rounds, and one run before.
    assert_eq!((c.runs, made.log.len(), c.alone_s), (13, 13, 10.0));
    assert_eq!(c.left_out[0].name, "sensitivity.node");
    assert!(c.left_out[0].reason.contains("this machine has one node"), "{:?}", c.left_out);
    // 4e6 misses in 10 s of CPU time; a quarter of the requests were to shared lines.
    let p = &c.profile;
    assert_eq!((p.bus_per_ms.map(f64::round), p.sharing), (Some(400.0), Some(0.25)));
    assert_eq!(p.footprint_per_ms.map(f64::round), Some(300.0));
    assert_eq!(p.per_cpu_s[&Signal::LlcMisses].round(), 400_000.0);
}

/// Holds measure/characterize.
#[test]
fn rounds_turn_so_that_drift_hits_all_alike() {
    let mut made = Made::new(harpertown());
    made.measure(&["sensitivity"], 2).unwrap();
    let sets: Vec<String> = made.log.iter().skip(1).map(|trial| trial.cpus.to_string()).collect();
    assert_eq!(sets, ["0-3", "0,2,4,6", "0,4", "0,2", "0,2", "0,4", "0,2,4,6", "0-3"]);
}

/// Holds measure/characterize.
#[test]
fn what_is_compared_is_said() {
    let by = |wanted, cycles, units| {
        let gains = vec![("l2".to_owned(), 5.0)];
        let mut made = Made { gains, has_cycles: cycles, has_units: units, by: wanted, ..Made::new(harpertown()) };
        made.measure(&["sensitivity"], 2).unwrap().profile.sensitivity["l2"].by
    };
    assert_eq!(
        (by(None, true, true), by(None, false, true), by(None, false, false)),
        (By::Cycles, By::Progress, By::Time)
    );
    assert_eq!((by(Some(By::CpuTime), true, true), by(Some(By::Time), true, true)), (By::CpuTime, By::Time));
    assert_eq!(by(Some(By::Progress), false, false), By::Time, "it reports none");
}

/// Holds measure/characterize.
#[test]
fn beside_others_it_suffers_and_causes() {
    let mut made = Made { loses: 0.2, has_units: true, ..Made::new(machine(1, 1, 4, 1)) };
    let c = made.measure(&["corun", "degradation"], 2).unwrap();
    let corun = &c.profile.corun["bst-4mb"];
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!(near(corun.suffers.loss, 0.2) && near(corun.causes.as_ref().unwrap().loss, 0.1), "{corun:?}");
    assert!(near(c.profile.corun_sensitivity.unwrap(), 0.2) && near(c.profile.contentiousness.unwrap(), 0.1));
    let memory: Vec<(f64, f64)> =
        c.profile.degradation["memory"].iter().map(|p| (p.target_per_s, (p.loss.loss * 1e3).round() / 1e3)).collect();
    // Two rounds, the second corrected for the first's shortfall: 0.2 × (1 + 1/0.9)/2 of each share.
    assert_eq!(memory, [(250e3, 0.053), (500e3, 0.106), (750e3, 0.158), (1e6, 0.211)]);
    // On the three cores that share the cache with the fourth.
    let beside: Vec<&Trial> = made.log.iter().filter(|trial| trial.beside.is_some()).collect();
    assert!(beside.iter().all(|t| t.cpus.to_string() == "0-2" && t.beside.as_ref().unwrap().cpus == [CpuId(3)]));
}

#[test]
fn what_it_causes_is_told_by_the_same_moment_alone() {
    let mut made = Made { drift: 0.1, ..Made::new(machine(1, 1, 4, 1)) };
    let c = made.measure(&["corun"], 3).unwrap();
    let causes = c.profile.corun["bst-4mb"].causes.clone().unwrap();
    assert!((causes.loss - 0.1).abs() < 1e-9 && causes.rounds == 3, "{causes:?}");
}

/// Promise measure/injectors: Injectors are as many, as fast and where they are asked for; a rate that cannot be
/// reached is not chased.
#[test]
fn injectors_are_led_to_their_rate() {
    // The program beside it reaches 0.9 of its request: the second round asks for 1/0.9 as much.
    let mut made = Made::new(machine(1, 1, 4, 1));
    let c = made.measure(&["degradation"], 4).unwrap();
    let asked = made.log.iter().filter_map(|trial| trial.beside.as_ref().filter(|b| b.kernel == "inject-memory")?.rate);
    let quarter: Vec<f64> = asked.filter(|rate| *rate < 300e3).collect();
    assert!(quarter.len() == 4 && quarter[0] == 250e3 && (quarter[3] - 250e3 / 0.9).abs() < 1.0, "{quarter:?}");
    // One round in four is untuned: (0.9 + 3)/4 of 250,000.
    let reached = c.profile.degradation["memory"][0].reached_per_s;
    assert!((reached - 250e3 * 0.975).abs() < 1.0, "{reached}");
    let mut aim = Aim { rate: Some((100.0, 100.0)), threads: 2.0 };
    aim.learn(Some(1.0));
    assert_eq!(aim.rate, Some((100.0, 400.0)), "what cannot be reached is not chased");
    aim.learn(None);
    aim.learn(Some(0.0));
    assert_eq!(aim.rate, Some((100.0, 400.0)));
}

/// Holds measure/injectors.
#[test]
fn injectors_are_as_many_as_fast_and_where_they_are_asked_for() {
    let injectors = Injectors {
        cpus: CpuSet::parse_list("1,3").unwrap(),
        rates: BTreeMap::from([("memory".to_owned(), vec![100e3, 400e3])]),
        traffic_per_s: Some(700e3),
    };
    let mut made = Made { loses: 0.2, has_cycles: true, injectors, ..Made::new(machine(2, 1, 2, 1)) };
    let c = made.measure(&["degradation"], 1).unwrap();
    let beside: Vec<&Trial> = made.log.iter().filter(|trial| trial.beside.is_some()).collect();
    let memory: Vec<_> = beside.iter().filter(|t| t.beside.as_ref().unwrap().kernel == "inject-memory").collect();
    assert_eq!((beside.len(), memory.len()), (6, 2), "four rates of L2 hits, and the two that were asked for");
    assert!(beside.iter().all(|t| t.cpus.to_string() == "0,2" && t.beside.as_ref().unwrap().cpus.len() == 2));
    let points = &c.profile.degradation["memory"];
    let asked: Vec<_> = points.iter().map(|p| (p.target_per_s, p.cpus.to_string())).collect();
    assert_eq!(asked, [(200e3, "1,3".to_owned()), (800e3, "1,3".to_owned())]);
    // 0.9 of each rate is reached (the made-up bench reports that of one): losses 0.02 at 90,000 and 0.08 at 360,000.
    // The application draws 4e6 lines in 10 s: of 700,000 per s it leaves 300,000, where it loses 0.02 + 0.06 ×
    // 210/270.
    let loss = c.profile.average_traffic_loss.unwrap();
    assert!((loss - (0.02 + 0.06 * 210.0 / 270.0)).abs() < 1e-5, "{loss}");
    // Of 350,000 it leaves nothing: the result is the loss beside the smallest injector, not 0.
    made.injectors.traffic_per_s = Some(350e3);
    let loss = made.measure(&["degradation"], 1).unwrap().profile.average_traffic_loss.unwrap();
    assert!((loss - 0.02).abs() < 1e-5, "{loss}");
    let mut made = Made { injectors: made.injectors, ..Made::new(machine(1, 1, 4, 1)) };
    made.injectors.cpus = CpuSet::parse_list("0-3").unwrap();
    let c = made.measure(&["degradation"], 1).unwrap();
    assert_eq!(c.left_out[0].reason, "the injectors leave no CPU to the application");
}

#[test]
fn a_machine_that_cannot_say_it_says_so() {
    let mut made = Made::new(machine(2, 1, 1, 1));
    let c = made.measure(&PARTS, 1).unwrap();
    let left: Vec<&str> = c.left_out.iter().map(|left| left.name.as_str()).collect();
    assert_eq!(left, ["sensitivity", "corun", "degradation", "bus_per_ms, sharing, footprint_per_ms, per_cpu_s"]);
    assert_eq!(c.runs, 1, "there is nothing to run");
}

/// Holds measure/characterize.
#[test]
fn the_footprint_is_where_more_brings_little() {
    let mut parts = cotenant_model::testing::parts(1, 1, 2, 1);
    for r in parts.resources.iter_mut().filter(|r| matches!(r.kind, cotenant_model::topology::Kind::Cache(_))) {
        (r.capacity, r.ways, r.line_size) = (Some(if r.level == 3 { 16 << 20 } else { 32 << 10 }), Some(16), Some(64));
    }
    let mut made = Made::new(Topology::new(parts).unwrap());
    let c = made.measure(&["misses"], 1).unwrap();
    assert_eq!(c.profile.footprint_bytes, Some(4 << 20), "that of the last level");
    let curve = c.profile.misses.unwrap();
    let of = |level: u8| curve.points.iter().filter(move |p| p.level == level);
    assert_eq!(of(3).map(|p| p.bytes >> 20).collect::<Vec<_>>(), [2, 4, 8, 16, 32]);
    let least = of(3).next().unwrap();
    assert_eq!((curve.by, least.ratio, least.mpki), (By::Model, 0.1, 25.0));
    // The level before it misses alike at every size, so that the smallest suffices.
    assert_eq!(of(2).map(|p| (p.bytes >> 10, p.mpki)).collect::<Vec<_>>(), [4, 8, 16, 32, 64].map(|kib| (kib, 50.0)));
    let footprint = |level, bytes| Footprint { level, bytes, or_more: false };
    assert_eq!(curve.footprints, [footprint(2, 4 << 10), footprint(3, 4 << 20)]);
    assert_eq!(made.simulated.len(), curve.points.len(), "one run per level and size");
    assert_eq!(c.runs, 1 + made.simulated.len());
}

/// Holds run/end.
#[test]
fn what_goes_wrong_is_said_and_ends_it() {
    let mut made = Made { seconds: 0.001, ..Made::new(harpertown()) };
    let Err(Stop::Failed(why)) = made.measure(&PARTS, 1) else { panic!("1 ms is no measurement") };
    assert_eq!(why, "the command ended after 1.0 ms: too short to measure; give it more to do");
    let mut made = Made { failure: Some(Stop::Failed("exit code 3".into())), ..Made::new(harpertown()) };
    assert_eq!(made.measure(&PARTS, 1), Err(Stop::Failed("exit code 3".into())));
    for at in 0..5 {
        let mut made = Made { stop_at: Some(at), ..Made::new(harpertown()) };
        assert_eq!(made.measure(&["sensitivity"], 1), Err(Stop::Interrupted));
        assert_eq!(made.log.len(), at, "nothing runs after that");
    }
}

#[test]
fn another_number_of_threads_is_remarked() {
    let mut made = Made { threads: Some(3), ..Made::new(harpertown()) };
    let c = made.measure(&["sensitivity"], 1).unwrap();
    assert_eq!(c.notes.len(), 4);
    assert!(
        c.notes[0].starts_with("bus base: it had 3 to 3 threads at once, the configuration is for 4"),
        "{:?}",
        c.notes
    );
}

/// Holds measure/statistics.
#[test]
fn what_programs_cost_each_other_and_the_lines_that_they_bring_in() {
    use super::contention::points;
    let mut parts = cotenant_model::testing::parts(1, 1, 2, 1);
    for r in parts.resources.iter_mut().filter(|r| matches!(r.kind, cotenant_model::topology::Kind::Cache(_))) {
        (r.capacity, r.ways, r.line_size) = (Some(if r.level == 3 { 16 << 20 } else { 32 << 10 }), Some(16), Some(64));
    }
    let topology = Topology::new(parts).unwrap();
    let kernels: Vec<String> = ["bst-4mb", "naive-4mb", "sledge-small"].map(str::to_owned).to_vec();
    let of = |topology: &Topology, counted: bool, units: bool| {
        let cpus = topology.usable().clone();
        let plan = Plan {
            topology,
            cpus,
            parts: vec![],
            rounds: 2,
            kernels: kernels.clone(),
            by: Some(By::CpuTime),
            injectors: Injectors::default(),
        };
        let mut begun = Vec::new();
        let mut bench_of = |name: &str| -> Result<Box<dyn Bench>, Stop> {
            begun.push(name.to_owned());
            let (loses, has_cycles, has_units) = (0.2, counted, units);
            Ok(Box::new(Made { has_cycles, has_units, loses, ..Made::new(topology.clone()) }))
        };
        let found = points(&plan, &mut bench_of);
        assert!(begun == kernels || found.is_err());
        found
    };
    // Each loses a fifth beside each. Counted: 4e6 misses in 10 s of CPU time of 1e7 requests.
    let found = of(&topology, true, false).unwrap();
    for (point, name) in found.iter().zip(&kernels) {
        assert_eq!(&point.program, name);
        assert!((point.contentiousness - 0.2).abs() < 1e-9 && (point.sensitivity - 0.2).abs() < 1e-9, "{point:?}");
        assert!(
            (point.l2_lines_per_ns - 1e-3).abs() < 1e-9 && (point.l3_lines_per_ns - 4e-4).abs() < 1e-9 && point.counted
        );
    }
    // Not counted: 200,000 and 1,000 lines in 500 units of a kernel that does 1e6 of them in a second alone.
    let point = of(&topology, false, true).unwrap().remove(0);
    assert!((point.l2_lines_per_ns - 0.4).abs() < 1e-9 && (point.l3_lines_per_ns - 2e-3).abs() < 1e-9, "{point:?}");
    assert!((point.miss_rate - 5e-3).abs() < 1e-9 && !point.counted);
    // No lines, no units of work, or no neighbour.
    let stopped = |topology: &Topology, units| match of(topology, false, units) {
        Err(Stop::Missing(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(stopped(&topology, false), "bst-4mb reports no progress on simulated caches");
    assert!(
        stopped(&machine(1, 1, 2, 1), true).ends_with("does not report two levels of caches that could be simulated")
    );
    assert_eq!(stopped(&machine(2, 1, 1, 1), true), "no two cores that may be used share a last-level cache");
}

/// Holds measure/statistics.
#[test]
fn the_model_says_what_an_application_costs() {
    use super::contention::predicted;
    use cotenant_model::profile::calibration::Stamp;
    use cotenant_model::stats::regression::Coefficient;
    let of = |value| Coefficient { value, error: 0.0, p: 0.0 };
    let model = cotenant_model::profile::Contentiousness {
        method: String::new(),
        programs: 15,
        rounds: 1,
        r2: 0.9,
        p: 0.0,
        leave_one_out: 0.0,
        miss_rate_r2: None,
        requests_r2: None,
        used_by_others: None,
        a: of(100.0),
        b: of(500.0),
        c: of(0.05),
        stamp: Stamp::default(),
    };
    let mut made = Made { has_cycles: true, ..Made::new(harpertown()) };
    let counted = made.measure(&[], 1).unwrap();
    // 1e7 requests and 4e6 misses in 10 s: 100 · 6e-4 + 500 · 4e-4 + 0.05.
    let topology = harpertown();
    let score = predicted(&model, &counted, &topology, &mut made).unwrap();
    assert!((score - 0.31).abs() < 1e-9 && made.simulated.is_empty(), "{score}");
    // Simulated: 200,000 and 1,000 lines (its L2 is 6 MiB) in 20 s of CPU time.
    let mut made = Made::new(harpertown());
    let alone = made.measure(&[], 1).unwrap();
    let score = predicted(&model, &alone, &topology, &mut made).unwrap();
    assert!((score - (100.0 * 199e3 / 20e9 + 500.0 * 1e3 / 20e9 + 0.05)).abs() < 1e-9, "{score}");
    assert_eq!(made.simulated.len(), 1);
}
