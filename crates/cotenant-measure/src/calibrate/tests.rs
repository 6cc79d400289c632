use super::distances::tests::Memories;
use super::*;
use cotenant_model::testing::machine;
use cotenant_model::topology::hidden::Level;

/// A made-up machine with exact properties: latencies by package, and memory with a fixed bandwidth.
pub(super) struct MadeUp<'a> {
    topology: &'a Topology,
    /// Distances of memories, instead of the topology's.
    pub memories: Option<&'a mut Memories>,
    /// Relative noise, and its state.
    noise: (f64, u64),
    stop_after: usize,
}

const CLOCK: f64 = 2e9;
/// Lines per second of one task of membench-low, and of a whole node.
const LOW: (f64, f64) = (20e6, 70e6);

impl<'a> MadeUp<'a> {
    pub fn new(topology: &'a Topology, noise: f64) -> Self {
        Self { topology, memories: None, noise: (noise, 1), stop_after: usize::MAX }
    }

    fn noisy(&mut self, value: f64) -> f64 {
        self.noise.1 = self.noise.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value * (1.0 + self.noise.0 * ((self.noise.1 >> 33) as f64 / 2f64.powi(30) - 1.0))
    }
}

const CYCLES_PER_STEP: f64 = 4.0;

impl Bench for MadeUp<'_> {
    fn cycles_per_step(&self) -> Option<f64> {
        Some(CYCLES_PER_STEP)
    }

    fn run(&mut self, loads: &[Load]) -> Result<Vec<Vec<ThreadRate>>, String> {
        if let Some(memories) = &mut self.memories {
            return memories.load(loads);
        }
        let others: usize = loads.iter().skip(1).map(|load| load.cpus.len()).sum();
        let per_thread = |this: &mut Self, load: &Load, cpu: CpuId| {
            let n = load.cpus.len() as f64;
            let shared = n > 1.0 && this.topology.core_of(load.cpus[0]) == this.topology.core_of(load.cpus[1]);
            let per_cpu_s = match load.kernel {
                "cpu" => CLOCK / CYCLES_PER_STEP,
                // Each access is a transfer: 50 ns inside a package, 150 between packages, besides the computation.
                "hubench" => {
                    let far = this.topology.package_of(load.cpus[0]) != this.topology.package_of(load.cpus[1]);
                    let compute = load.compute.unwrap() as f64 * CYCLES_PER_STEP / CLOCK;
                    1.0 / (compute + if far { 150e-9 } else { 50e-9 })
                }
                "membench-low" => LOW.0.min(LOW.1 / n),
                "membench-high" => 100e6_f64.min(300e6 / n),
                "chase" => {
                    let home = load.memory.is_none_or(|node| this.topology.node_of(cpu) == Some(node.0 as usize));
                    1e9 / (if home { 80.0 } else { 140.0 } + 10.0 * others as f64)
                }
                _ => 1e8,
            };
            let per_cpu_s = this.noisy(per_cpu_s) * if shared { 0.6 } else { 1.0 };
            ThreadRate { per_s: per_cpu_s, per_cpu_s, bytes_per_s: per_cpu_s * 128.0, transfers: 1.0 }
        };
        Ok(loads.iter().map(|load| load.cpus.iter().map(|cpu| per_thread(self, load, *cpu)).collect()).collect())
    }

    fn latency_ns(&mut self, a: CpuId, b: CpuId) -> Result<f64, String> {
        let t = self.topology;
        let ns = if t.core_of(a) == t.core_of(b) {
            8.0
        } else if t.llc_of(a) == t.llc_of(b) {
            25.0
        } else {
            110.0
        };
        Ok(self.noisy(ns))
    }

    fn migration_us(&mut self, _: CpuId, _: CpuId) -> Result<f64, String> {
        Ok(self.noisy(4.0))
    }

    fn goes_on(&mut self, _: f64, _: &str) -> bool {
        self.stop_after = self.stop_after.saturating_sub(1);
        self.stop_after > 0
    }
}

fn of(topology: &Topology, noise: f64) -> Calibration {
    calibrate(topology, topology.usable(), &PARTS, 5, &mut MadeUp::new(topology, noise)).unwrap()
}

fn value(c: &Calibration, name: &str) -> f64 {
    c.figure(name).unwrap_or_else(|| panic!("{name}: {:?}", c.left_out)).measured.value
}

fn is(value: f64, expected: f64, within: f64) {
    assert!((value / expected - 1.0).abs() < within, "{value} is not {expected}");
}

/// Promise measure/calibration: Calibration finds what was built into made-up machines, leaves out what it cannot
/// tell, and is known to be stale after a change.
#[test]
fn what_was_built_in_is_found() {
    let topology = machine(2, 1, 8, 2); // 2 packages, one node each, of 8 cores with 2 threads
    let c = of(&topology, 0.0);
    is(value(&c, "clock_hz"), CLOCK, 1e-9);
    is(value(&c, "smt_factor.cpu"), 0.6, 1e-9);
    is(value(&c, "migration_us"), 4.0, 1e-9);
    // Apart costs 100 ns per access. 5 % of (compute + 50 ns) are 100 ns at compute + 50 ns = 2,000 ns: 1,950 ns of
    // computation, and then one transfer per 2,100 ns: 1/4,200 per cycle. Between measured rates the loss is slightly
    // curved.
    is(value(&c, "coherence_per_cycle"), 1.0 / 4_200.0, 0.03);
    // The maximum is 70 M lines: 140 M misses, minus 20 %.
    is(value(&c, "socket_bandwidth_per_s.0"), 112e6, 1e-9);
    is(value(&c, "bandwidth_gbs.1"), 0.128 * 300.0, 1e-9);
    is(value(&c, "memory_ns.0"), 80.0, 1e-9);
    // 60 ns more are 120 cycles; one such load in 2,400 cycles costs 5 %.
    is(value(&c, "remote_per_cycle"), 0.05 / 120.0, 1e-9);
    let roles: Vec<_> = c.levels.iter().map(|level| (level.role, level.groups.len())).collect();
    assert_eq!(roles, [(hidden::Role::Core, 16), (hidden::Role::LlcOrPackage, 2)]);
    assert_eq!(c.left_out, []);
    let names: Vec<&str> = c.curves.iter().map(|curve| curve.name.as_str()).collect();
    let of_node = |node: usize| ["bandwidth", "bandwidth_high", "loaded_latency"].map(|name| format!("{name}.{node}"));
    assert_eq!(names, [vec!["coherence".to_owned()], of_node(0).into(), of_node(1).into()].concat());
    assert_eq!(c.curves[3].points[0], (0.0, 80.0));
    assert_eq!(c.differences, [], "the caches and packages that it says");
}

/// Holds measure/calibration.
#[test]
fn noise_widens_the_spread() {
    let topology = machine(2, 1, 8, 2);
    let c = of(&topology, 0.02);
    for (name, truth) in [("clock_hz", CLOCK), ("migration_us", 4.0), ("remote_ns", 140.0)] {
        let m = c.figure(name).unwrap().measured;
        is(m.value, truth, 0.02);
        assert!(m.low < m.value && m.value < m.high && !m.is_noisy() && m.rounds == 5, "{name}: {m:?}");
    }
    for curve in &c.curves {
        assert_eq!(curve.spread_y.len(), curve.points.len(), "{}", curve.name);
        for (p, (low, high)) in curve.points.iter().zip(&curve.spread_y) {
            assert!(*low < p.1 && p.1 < *high, "{}: {p:?} in {low} to {high}", curve.name);
        }
        assert_eq!(curve.spread_x.is_empty(), curve.name.starts_with("bandwidth"), "tasks are set, not measured");
    }
    let latencies = c.latencies.as_ref().unwrap();
    for (i, row) in c.latency_spread_ns.iter().enumerate() {
        assert_eq!(row.len(), i);
        assert!(row.iter().enumerate().all(|(j, ns)| *ns > 0.0 && *ns < 0.1 * latencies.get(i, j).unwrap()), "{row:?}");
    }
    assert!(Repeated::of(&[1.0, 2.0, 3.0]).unwrap().is_noisy() && Repeated::of(&[1.0]).unwrap().is_noisy());
}

/// Holds measure/calibration.
#[test]
fn what_a_machine_cannot_tell_is_left_out_with_a_reason() {
    let left_out = |topology: &Topology| {
        let c = of(topology, 0.0);
        c.left_out.into_iter().map(|l| l.name).collect::<Vec<_>>()
    };
    assert_eq!(
        left_out(&machine(1, 1, 2, 1)),
        [
            "shared",
            "smt_factor",
            "coherence_per_cycle",
            "socket_bandwidth_per_s.0",
            "memory_latency",
            "remote_per_cycle"
        ],
        "two CPUs: one cache, one node, too few to saturate the memory"
    );
    let one = left_out(&machine(1, 1, 1, 1));
    assert!(one.contains(&"core_to_core".to_owned()) && one.contains(&"migration_us".to_owned()), "{one:?}");
}

/// Holds run/end.
#[test]
fn it_ends_when_asked_to() {
    let topology = machine(1, 1, 2, 1);
    let mut bench = MadeUp { stop_after: 12, ..MadeUp::new(&topology, 0.0) };
    let c = calibrate(&topology, topology.usable(), &PARTS, 5, &mut bench).unwrap();
    assert!(c.interrupted);
    assert_eq!(
        c.figure("clock_hz").unwrap().measured.rounds,
        2,
        "eight parts and two CPUs in the first round, one part in the second"
    );
}

#[test]
fn curves_are_crossed_between_their_points() {
    let points = [(1.0, 0.0), (2.0, 0.04), (4.0, 0.08), (8.0, 0.02)];
    assert_eq!(crossing(&points, 0.06), Some(3.0));
    assert_eq!((crossing(&points, 0.1), crossing(&points[2..], 0.06), crossing(&[], 0.1)), (None, None, None));
}

#[test]
fn what_the_system_hides_or_makes_up_is_named_by_cpu() {
    let truth = machine(2, 1, 4, 2);
    let levels = of(&truth, 0.0).levels;
    let cpus: Vec<CpuId> = truth.usable().iter().collect();
    let sets = |sets: &[&str]| sets.iter().map(|set| CpuSet::parse_list(set).unwrap()).collect::<Vec<_>>();
    let halves: Vec<CpuSet> = truth.packages().to_vec();
    assert_eq!(differences(&truth, &cpus, &levels), []);
    // A hypervisor that reports every CPU as a core of one package.
    let flat = machine(1, 1, 16, 1);
    let found = differences(&flat, &cpus, &levels);
    assert_eq!(found.iter().map(|d| d.role).collect::<Vec<_>>(), [hidden::Role::Core, hidden::Role::LlcOrPackage]);
    assert_eq!((found[1].found.clone(), found[1].claimed.clone()), (halves, sets(&["0-15"])));
    // One that reports two threads per core and two packages, which latencies do not show.
    let made_up = differences(&truth, &cpus, &[]);
    assert_eq!(
        made_up.iter().map(|d| (d.role, d.found.len(), d.claimed.len())).collect::<Vec<_>>(),
        [(hidden::Role::Core, 0, 8), (hidden::Role::Llc, 0, 2),],
        "packages that are the caches are not said twice"
    );
    // Only the groups that differ.
    let mut moved = levels[1].clone();
    moved.groups = sets(&["0-7", "8-15"]);
    let other = Level { groups: sets(&["0-7", "8-11", "12-15"]), ..moved.clone() };
    let claims = machine(2, 1, 8, 1);
    assert_eq!(differences(&claims, &cpus, &[moved]), []);
    let [difference] = &differences(&claims, &cpus, &[other])[..] else { panic!() };
    assert_eq!((&difference.found, &difference.claimed), (&sets(&["8-11", "12-15"]), &sets(&["8-15"])));
}
