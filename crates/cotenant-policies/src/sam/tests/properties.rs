//! Properties of any situation: a fixed point is reached, and the names of equivalent cores do not matter.

use super::*;
use cotenant_model::view::View;
use proptest::prelude::*;

/// The properties of a task in any place.
#[derive(Clone, Debug)]
struct Nature {
    /// Tasks of one group share data; `None` shares with none.
    group: Option<u8>,
    /// Coherence events in an interval, in tenths of the threshold; never just about it, so that a sharer is one
    /// wherever it is.
    coherence: u64,
    /// LLC misses in an interval.
    misses: u64,
    /// Remote accesses in an interval away from its pages' node, in tenths of the threshold.
    remote: u64,
    /// The package that holds its pages, as far as there is one.
    pages: u32,
    pages_known: bool,
    /// The context on which it starts.
    start: u32,
    /// May not leave the package in which it starts.
    confined: bool,
    asleep: bool,
    /// Percent of its cycles stalled on memory, and instructions in ten cycles.
    pace: (u64, u64),
}

fn nature() -> impl Strategy<Value = Nature> {
    let misses = prop_oneof![Just(0), 0..BANDWIDTH / 20, BANDWIDTH / 10..BANDWIDTH / 2];
    (
        proptest::option::weighted(0.5, 0u8..3),
        prop_oneof![Just(0u64), 11u64..60],
        misses,
        0u64..40,
        (0u32..4, any::<bool>()),
        0u32..64,
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.1),
        (0u64..60, 1u64..25),
    )
        .prop_map(|(group, coherence, misses, remote, (pages, pages_known), start, confined, asleep, pace)| {
            Nature { group, coherence, misses, remote, pages, pages_known, start, confined, asleep, pace }
        })
}

/// Packages, LLC domains per package, cores per domain, contexts per core.
fn shape() -> impl Strategy<Value = (u32, u32, u32, u32)> {
    (1u32..5, 1u32..3, 1u32..4, 1u32..3)
}

/// A machine with tasks on it, and a simple law of locality: a sharer counts its rate as inter while some task of its
/// group is in another package, as near while some is in another LLC domain of its package, as intra while some is in
/// its own; remote memory is met off the node of one's pages.
struct World {
    scene: Scene,
    natures: Vec<Nature>,
}

impl World {
    fn new(shape: (u32, u32, u32, u32), natures: Vec<Nature>, sam: SamConfig) -> Self {
        let topology = machine(shape.0, shape.1, shape.2, shape.3);
        let mut scene = scene(".").sam(sam);
        let cpus = topology.cpus().len() as u32;
        scene.actors = natures
            .iter()
            .enumerate()
            .map(|(i, n)| {
                let cpu = n.start % cpus;
                let package = &topology.packages()[topology.package_of(CpuId(cpu)).unwrap()];
                Actor {
                    name: name(TaskId(i as u32)),
                    app: n.group.map_or(9, u32::from),
                    cpu,
                    counts: BTreeMap::new(),
                    allowed: n.confined.then(|| package.to_string()),
                    pages: n.pages_known.then(|| vec![(n.pages % shape.0, 1_000)]),
                    newborn: false,
                }
            })
            .collect();
        scene.topology = topology;
        let mut world = Self { scene, natures };
        world.count();
        world
    }

    fn count(&mut self) {
        let topology = &self.scene.topology;
        let cpus: Vec<CpuId> = self.scene.actors.iter().map(|a| CpuId(a.cpu)).collect();
        for (i, n) in self.natures.iter().enumerate() {
            let others: Vec<CpuId> = (0..cpus.len())
                .filter(|&k| k != i && n.group.is_some() && self.natures[k].group == n.group && !self.natures[k].asleep)
                .map(|k| cpus[k])
                .collect();
            let share = |count: usize| if count == 0 { 0 } else { n.coherence * COHERENCE / 10 };
            let same_llc = others.iter().filter(|c| topology.llc_of(**c) == topology.llc_of(cpus[i])).count();
            let same_package =
                others.iter().filter(|c| topology.package_of(**c) == topology.package_of(cpus[i])).count();
            let at_home = topology.package_of(cpus[i]) == Some(n.pages as usize % topology.packages().len());
            let ran = u64::from(!n.asleep);
            self.scene.actors[i].counts = [
                (Signal::Cycles, CYCLES * ran),
                (Signal::Intra, share(same_llc) * ran),
                (Signal::Near, share(same_package - same_llc) * ran),
                (Signal::Inter, share(others.len() - same_package) * ran),
                (Signal::Remote, if at_home { 0 } else { n.remote * REMOTE / 10 * ran }),
                (Signal::LlcMisses, n.misses * ran),
                (Signal::StallCycles, CYCLES * n.pace.0 / 100 * ran),
                (Signal::Instructions, CYCLES * n.pace.1 / 10 * ran),
            ]
            .into();
        }
    }

    fn step(&mut self) -> Decision<SamState> {
        let decision = self.scene.step();
        self.count();
        decision
    }
}

/// The same view of the same machine with the cores of each package renamed: core `c` becomes `to[c]`.
fn relabel(scene: &Scene, to: &[u32]) -> Scene {
    let cores = to.len() as u32;
    let rename = |cpu: u32| to[(cpu % cores) as usize] + cpu / cores * cores;
    let mut renamed = scene.clone();
    for actor in &mut renamed.actors {
        actor.cpu = rename(actor.cpu);
        // Tasks are confined to packages, whose sets do not change.
    }
    renamed.busy = scene.busy.iter().map(|(cpu, busy)| (rename(*cpu), *busy)).collect();
    renamed
}

/// Each move as (task, domain from, domain to).
fn journeys(scene: &Scene, decision: &Decision<SamState>) -> Vec<(TaskId, Option<usize>, Option<usize>)> {
    let view: View = scene.view().view();
    decision
        .proposals
        .iter()
        .map(|p| {
            let Action::Place { task, contexts } = &p.action else { panic!("SAM only places") };
            let from = view.task(*task).and_then(|t| t.cpu).and_then(|c| scene.topology.llc_of(c));
            (*task, from, contexts.first().and_then(|c| scene.topology.llc_of(c)))
        })
        .collect()
}

proptest! {
    /// Where nothing changes but by its own moves, SAM comes to rest.
    #[test]
    fn comes_to_rest(shape in shape(), natures in proptest::collection::vec(nature(), 1..26)) {
        let mut world = World::new(shape, natures, SamConfig::default());
        // Two calm rounds in a row are rest: the first may only wait for a cooldown to pass.
        let mut calm = 0;
        let mut rounds = 0;
        while calm < 3 {
            rounds += 1;
            calm = if world.step().proposals.is_empty() { calm + 1 } else { 0 };
            prop_assert!(rounds < 100, "still moving: {}", world.scene.picture());
        }
    }

    /// So it does with the additions after SAM-MPH, each alone and all together.
    /// Holds place/sam.
    #[test]
    fn comes_to_rest_after_sam_mph_too(
        shape in shape(),
        natures in proptest::collection::vec(nature(), 1..26),
        config in proptest::sample::select(vec!["mph", "default,+latency-tolerance", "default,+hysteresis", "default,+core-sharing", "default,+whole-cores", "default,+own-app", "default,+hold-partners", "recommended"]),
    ) {
        let mut world = World::new(shape, natures, config.parse().unwrap());
        world.scene.config.pin = cotenant_model::pin::Pin::Cpu;
        // Moves that need three intervals may start after two calm ones.
        let (mut calm, mut rounds) = (0, 0);
        while calm < 6 {
            rounds += 1;
            calm = if world.step().proposals.is_empty() { calm + 1 } else { 0 };
            prop_assert!(rounds < 150, "{config}: still moving: {}", world.scene.picture());
        }
    }

    /// Cores of a package that share their caches are equivalent: renaming them changes no task's journey.
    #[test]
    fn names_of_equivalent_cores_do_not_matter(
        shape in shape(),
        natures in proptest::collection::vec(nature(), 1..26),
        busy in proptest::collection::btree_map(0u32..16, 0.0f64..1.0, 0..4),
        seed in any::<u64>(),
        config in proptest::sample::select(vec!["default", "default,+latency-tolerance,+core-sharing", "recommended"]),
    ) {
        let mut world = World::new(shape, natures, config.parse().unwrap());
        world.scene.config.pin = cotenant_model::pin::Pin::Cpu;
        let cpus = world.scene.topology.cpus().len() as u32;
        world.scene.busy = busy.into_iter().filter(|(cpu, _)| *cpu < cpus).collect();
        let cores = world.scene.topology.cores().len() as u32;
        // Rotate the cores of each LLC domain by an amount of its own.
        let per_llc = shape.2;
        let to: Vec<u32> = (0..cores)
            .map(|c| {
                let (domain, core) = (c / per_llc, c % per_llc);
                domain * per_llc + (core + (seed >> (domain % 16 * 4) & 15) as u32) % per_llc
            })
            .collect();
        let renamed = relabel(&world.scene, &to);
        let (a, b) = (world.scene.decide(), renamed.decide());
        prop_assert_eq!(journeys(&world.scene, &a), journeys(&renamed, &b));
    }

    /// What tasks that share nothing are called changes no node's traffic.
    #[test]
    fn names_of_tasks_change_no_load(
        shape in shape(),
        mut natures in proptest::collection::vec(nature(), 1..26),
        order in any::<u64>(),
        config in proptest::sample::select(vec!["default", "recommended", "paper"]),
    ) {
        // Two on one context get others in order of their names.
        let cpus = shape.0 * shape.1 * shape.2 * shape.3;
        for (i, nature) in natures.iter_mut().enumerate() {
            (nature.coherence, nature.remote, nature.start) = (0, 0, i as u32 % cpus);
        }
        natures.truncate(cpus as usize);
        let mut renamed = natures.clone();
        let mut left = order;
        for i in (1..renamed.len()).rev() {
            renamed.swap(i, (left % (i as u64 + 1)) as usize);
            left = left.rotate_left(7) ^ order;
        }
        let loads = |natures: Vec<Nature>| {
            let mut world = World::new(shape, natures, config.parse().unwrap());
            world.step();
            let topology = &world.scene.topology;
            let mut loads = vec![0; topology.packages().len()];
            for actor in &world.scene.actors {
                loads[topology.package_of(CpuId(actor.cpu)).unwrap()] += actor.counts.get(&Signal::LlcMisses).unwrap_or(&0);
            }
            loads
        };
        prop_assert_eq!(loads(natures), loads(renamed));
    }

    /// The paper's own rules obey the same bounds, whether or not they come to rest.
    #[test]
    fn the_papers_rules_are_decisions_too(shape in shape(), natures in proptest::collection::vec(nature(), 1..26)) {
        let mut world = World::new(shape, natures, SamConfig::paper_exact());
        for _ in 0..5 {
            world.step(); // checks allowed sets, uniqueness and determinism
        }
    }
}
