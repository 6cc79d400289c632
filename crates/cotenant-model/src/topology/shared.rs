//! Resources shared by cores below their private caches, level by level, and the CPU sets that reveal an application's
//! reaction to sharing (Dey et al., `ReSense`, §2.2 and Table III).

use super::{CacheType, Kind, Topology};
use crate::{CpuId, CpuSet};
use std::collections::BTreeSet;

/// A level of the memory hierarchy: all resources of a kind that several cores share. Kinds with the same CPUs are one
/// level, because measurements cannot separate them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Names of the kinds, from the cores outward: `l2`, `l3`, `bus`, `memory-controller`, `node`, `link`; `die` and
    /// `package` if no other kind has their CPUs.
    pub kinds: Vec<String>,
    /// Usable CPUs of each instance, in ascending order of lowest CPU: all instances shared by several cores, and
    /// single-core ones beside them.
    pub instances: Vec<CpuSet>,
}

impl Level {
    /// Its name in profiles: its kinds joined by `+`.
    pub fn name(&self) -> String {
        self.kinds.join("+")
    }

    /// All names in profiles: [`Level::name`], then each kind alone.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::once(self.name()).chain(self.kinds.iter().filter(|_| self.kinds.len() > 1).cloned())
    }
}

/// The shared levels over some of the usable CPUs, from memory to the first shared cache: the largest instances first.
pub fn levels(topology: &Topology, cpus: &CpuSet) -> Vec<Level> {
    let cpus = cpus.and(topology.usable());
    let mut levels: Vec<Level> = Vec::new();
    let mut add = |kind: &str, alone: bool, instances: Vec<CpuSet>| {
        let mut instances: Vec<CpuSet> = instances.iter().map(|i| i.and(&cpus)).filter(|i| !i.is_empty()).collect();
        instances.sort_by_key(CpuSet::first);
        if !instances.iter().any(|i| cores(topology, i).len() > 1) {
            return; // private
        }
        match levels.iter_mut().find(|level| level.instances == instances) {
            Some(level) if !alone => level.kinds.push(kind.to_owned()),
            Some(_) => {}
            None => levels.push(Level { kinds: vec![kind.to_owned()], instances }),
        }
    };
    let of = |kind: Kind, level: u8| -> Vec<CpuSet> {
        topology.of_kind(kind).filter(|r| r.level == level).map(|r| r.cpus.clone()).collect()
    };
    let caches = |r: &super::Resource| matches!(r.kind, Kind::Cache(CacheType::Unified | CacheType::Data));
    let depths: BTreeSet<(u8, Kind)> =
        topology.resources().iter().filter(|r| caches(r)).map(|r| (r.level, r.kind)).collect();
    for (depth, kind) in depths {
        add(&format!("l{depth}"), false, of(kind, depth));
    }
    add("bus", false, of(Kind::Bus, 0));
    add("memory-controller", false, of(Kind::MemoryController, 0));
    let own = |i: usize| cpus.iter().filter(|&cpu| topology.node_of(cpu) == Some(i)).collect();
    add("node", false, (0..topology.nodes().len()).map(own).collect());
    add("link", false, of(Kind::Link, 0));
    // If neither cache nor memory has these CPUs, they share their connection to the rest ("memory socket", Table II).
    add("die", true, of(Kind::Die, 0));
    add("package", true, topology.packages().to_vec());
    let size = |level: &Level| level.instances.iter().map(|i| cores(topology, i).len()).max();
    levels.sort_by_key(|level| std::cmp::Reverse(size(level)));
    levels
}

/// The first usable CPU of each core among these, in topology order of their numbers.
fn cores(topology: &Topology, cpus: &CpuSet) -> Vec<CpuId> {
    let mut seen = BTreeSet::new();
    cpus.iter().filter(|&cpu| seen.insert(topology.core_of(cpu))).collect()
}

/// Two ways to run as many threads as the cores that share one instance of a resource, equal in all other sharing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configurations {
    /// Half of the threads on each of two instances; one CPU per core.
    pub base: CpuSet,
    /// All threads on one instance.
    pub contend: CpuSet,
}

/// Derives them for a level of [`levels`].
///
/// # Errors
/// Why this machine has none.
pub fn configurations(topology: &Topology, levels: &[Level], level: &Level) -> Result<Configurations, String> {
    let name = level.name();
    if level.instances.len() < 2 {
        return Err(format!("this machine has one {name}: nothing can be kept apart from what shares it"));
    }
    let mut differs: BTreeSet<String> = BTreeSet::new();
    let mut alike = false;
    for (i, one) in level.instances.iter().enumerate().filter(|(_, one)| cores(topology, one).len() > 1) {
        let others = level.instances.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other);
        for other in others.filter(|other| same_kind(topology, one, other)) {
            alike = true;
            let Some(found) = split(topology, levels, level, one, other) else { continue };
            match levels.iter().filter(|l| *l != level).find(|l| counts(l, &found.base) != counts(l, &found.contend)) {
                None => return Ok(found),
                Some(level) => differs.insert(level.name()),
            };
        }
    }
    if !alike {
        return Err(format!("no two of the {} {name} have equally many cores of the same kind", level.instances.len()));
    }
    let differs: Vec<String> = differs.into_iter().collect();
    Err(format!("threads that share one {name} on this machine also share {} otherwise", differs.join(" and ")))
}

/// Number of these CPUs on each instance of a level, in ascending order.
fn counts(level: &Level, cpus: &CpuSet) -> Vec<usize> {
    let mut counts: Vec<usize> = level.instances.iter().map(|i| i.and(cpus).len()).filter(|n| *n > 0).collect();
    counts.sort_unstable();
    counts
}

/// Whether two instances have the same number of cores of each efficiency class.
fn same_kind(topology: &Topology, one: &CpuSet, other: &CpuSet) -> bool {
    let classes = |cpus: &CpuSet| {
        let class = |cpu: CpuId| topology.cpu(cpu).and_then(|cpu| cpu.efficiency_class);
        let mut classes: Vec<Option<u8>> = cores(topology, cpus).into_iter().map(class).collect();
        classes.sort_unstable();
        classes
    };
    classes(one) == classes(other)
}

/// All cores of one instance, against half of it and half of another one. Units shared further up stay whole on either
/// side.
fn split(topology: &Topology, levels: &[Level], level: &Level, one: &CpuSet, other: &CpuSet) -> Option<Configurations> {
    let contend: CpuSet = cores(topology, one).into_iter().collect();
    let units = |instance: &CpuSet| -> Vec<CpuSet> {
        let inner = levels.iter().filter(|l| *l != level).flat_map(|l| &l.instances);
        let mut inside: Vec<&CpuSet> = inner.filter(|i| i.is_subset(instance) && *i != instance).collect();
        inside.sort_by_key(|i| std::cmp::Reverse(i.len()));
        let mut units: Vec<CpuSet> = Vec::new();
        let whole = cores(topology, instance).into_iter().map(CpuSet::single).collect::<Vec<_>>();
        for unit in inside.into_iter().chain(&whole) {
            if !units.iter().any(|taken| taken.intersects(unit)) {
                units.push(unit.clone());
            }
        }
        units.sort_by_key(CpuSet::first);
        units
    };
    let threads = contend.len();
    let first = |instance: &CpuSet, most: usize| -> CpuSet {
        let mut taken = CpuSet::new();
        for unit in units(instance) {
            let unit: CpuSet = cores(topology, &unit).into_iter().collect();
            if taken.len() + unit.len() <= most {
                taken = taken.or(&unit);
            }
        }
        taken
    };
    // Half on either side if whole units allow it, otherwise as near as possible.
    let here = first(one, threads.div_ceil(2));
    let there = first(other, threads - here.len());
    let base = here.or(&there);
    (base.len() == threads && !here.is_empty() && !there.is_empty()).then_some(Configurations { base, contend })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::testing::machine;

    macro_rules! machine_file {
        ($name:literal) => {
            Machine::parse(include_str!(concat!("../../../../machines/", $name, ".toml"))).unwrap().topology
        };
    }

    /// `level: base | contend`, or the reason, for each level.
    fn table(topology: &Topology) -> Vec<String> {
        let levels = levels(topology, topology.usable());
        let line = |level: &Level| match configurations(topology, &levels, level) {
            Ok(c) => format!("{}: {} | {}", level.name(), c.base, c.contend),
            Err(why) => format!("{}: {why}", level.name()),
        };
        levels.iter().map(line).collect()
    }

    const ONE_BUS: &str = "bus+node: this machine has one bus+node: nothing can be kept apart from what shares it";

    /// Holds measure/characterize.
    #[test]
    fn table_iii() {
        // L2 cache, 2 threads: C0 and C2 | C0 and C1
        assert_eq!(table(&machine_file!("yorkfield")), [ONE_BUS, "l2: 0,2 | 0-1"]);
        // L2 cache, 2 threads: C0, C4 | C0, C2; FSB, 4 threads: C0, C2, C1, C3 | C0, C2, C4, C6
        assert_eq!(
            table(&machine_file!("harpertown-2s")),
            [&ONE_BUS.replace("bus+", ""), "bus: 0-3 | 0,2,4,6", "l2: 0,4 | 0,2"]
        );
        // L3 cache + MC, 8 threads: C0-C3 and C8-C11 | C0-C7
        assert_eq!(table(&machine_file!("xeon-4s-64")), ["l3+memory-controller+node: 0-3,8-11 | 0-7"]);
        // Memory socket, 12 threads: C0-C5 and C12-C17 | C0-C11; L3 cache, 6 threads: C0-C2 and C6-C8 | C0-C5
        assert_eq!(table(&machine_file!("opteron-48")), ["package: 0-5,12-17 | 0-11", "l3+node: 0-2,6-8 | 0-5"]);
    }

    #[test]
    fn other_machines() {
        let one = |what: &str| ONE_BUS.replace("bus+node", what);
        assert_eq!(
            table(&machine_file!("clovertown-2s")),
            [one("memory-controller+node"), "bus: 0-1,4-5 | 0-3".into(), "l2: 0,2 | 0-1".into()]
        );
        // Second contexts (20-39) stay idle.
        assert_eq!(table(&machine_file!("ivy-bridge-2s")), ["l3+node: 0-4,10-14 | 0-9"]);
        assert_eq!(table(&machine_file!("epyc-9454-2s")), ["node: 0-23,48-71 | 0-47", "l3: 0-2,6-8 | 0-5"]);
        // Two sub-NUMA clusters of 13 cores: within a package for the node, whole clusters of both packages for the L3.
        assert_eq!(
            table(&machine_file!("clx-8269-2s-snc2")),
            ["l3: 0-12,26-38 | 0-25", "memory-controller+node: 0-6,13-18 | 0-12"]
        );
        assert_eq!(table(&machine_file!("nehalem-i7-920")), [one("l3+node")]);
    }

    #[test]
    fn a_machine_says_why_it_has_none() {
        let mut parts = crate::testing::parts(2, 1, 2, 1);
        for cpu in &mut parts.cpus {
            cpu.efficiency_class = Some(u8::from(cpu.id.0 > 1));
        }
        let hybrid = Topology::new(parts).unwrap();
        assert_eq!(table(&hybrid), ["l3+node: no two of the 2 l3+node have equally many cores of the same kind"]);
        assert!(table(&machine(1, 1, 1, 2)).is_empty(), "two contexts of one core share no level");
        // Only one core of the second cache may be used.
        let t = machine(1, 2, 2, 1);
        let levels = levels(&t, &CpuSet::parse_list("0-2").unwrap());
        let why = configurations(&t, &levels, &levels[1]).unwrap_err();
        assert_eq!(why, "no two of the 2 l3 have equally many cores of the same kind");
    }

    proptest::proptest! {
        /// Of whatever machine: as many threads as cores share one instance, in both configurations alike in all else.
        /// Holds measure/characterize.
        #[test]
        fn alike_in_all_else(packages in 1u32..4, llcs in 1u32..4, per in 1u32..6, smt in 1u32..3, hidden in 0u32..32) {
            let t = machine(packages, llcs, per, smt);
            let cpus = t.usable().iter().filter(|cpu| cpu.0 % 31 != hidden).collect();
            let levels = levels(&t, &cpus);
            for level in &levels {
                let Ok(c) = configurations(&t, &levels, level) else { continue };
                proptest::prop_assert!(c.base.or(&c.contend).is_subset(&cpus));
                proptest::prop_assert_eq!(c.base.len(), c.contend.len());
                let of = |set: &CpuSet| set.iter().map(|cpu| t.core_of(cpu)).collect::<BTreeSet<_>>().len();
                proptest::prop_assert_eq!((of(&c.base), of(&c.contend)), (c.base.len(), c.base.len()), "one per core");
                proptest::prop_assert_eq!((counts(level, &c.base).len(), counts(level, &c.contend).len()), (2, 1));
                for other in levels.iter().filter(|l| *l != level) {
                    proptest::prop_assert_eq!(counts(other, &c.base), counts(other, &c.contend));
                }
            }
        }
    }
}
