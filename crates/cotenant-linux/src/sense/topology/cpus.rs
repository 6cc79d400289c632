//! The CPUs, and their cores, clusters, dies and packages.

use super::kinds::{self, Design};
use super::nodes::home;
use super::sysfs::{Allowed, CPU, Sysfs};
use cotenant_model::parse::CpuInfo;
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::topology::{Kind, MAX_CPUS, MemoryNode, Resource};
use cotenant_model::{CpuId, CpuSet};
use std::collections::{BTreeMap, BTreeSet};

/// The CPUs of the machine.
pub(super) struct Listed {
    /// All of them.
    pub(super) all: CpuSet,
    /// Online CPUs.
    pub(super) online: CpuSet,
    /// Online CPUs listed by sysfs.
    pub(super) shown: CpuSet,
    /// Whether sysfs has their topology.
    pub(super) has_topology: bool,
}

impl Listed {
    /// Sysfs lists none of them.
    fn untold(cpus: CpuSet) -> Self {
        Self { all: cpus.clone(), online: cpus, shown: CpuSet::new(), has_topology: false }
    }
}

/// The CPUs listed by sysfs. As in hwloc, one that is online without a topology (it is going offline) is not used; if
/// none has any, the result is `None`. `runs_on`: online CPUs allowed for this process.
pub(super) fn listed(
    fs: &Sysfs<'_>,
    allowed: &Allowed,
    runs_on: Option<&CpuSet>,
    notes: &mut Assembly,
) -> Option<Listed> {
    let all: CpuSet = fs.numbered(CPU, "cpu")?.into_iter().map(CpuId).collect();
    // Containers may hide folders of usable CPUs.
    let may = allowed.cpus.as_ref().filter(|_| allowed.is_online).or(runs_on);
    let hidden = may.filter(|_| !all.is_empty()).map_or_else(CpuSet::new, |may| may.minus(&all));
    if !hidden.is_empty() {
        notes.note(format!(
            "CPUs {hidden} have no folder in {CPU}, but this process may run on them; what they share is known as far as \
             others tell it"
        ));
    }
    let mut list = fs.list(&format!("{CPU}/online")).filter(|list| !list.is_empty());
    if let Some(online) = &mut list {
        let said = online.clone();
        let without = online.minus(&all).minus(&hidden);
        if !without.is_empty() && !all.is_empty() {
            notes.note(format!("{CPU}/online names CPUs {without}, which have no folder there; they are left out"));
        }
        *online = online.and(&all);
        // A container's own list: CPUs allowed by the kernel are online.
        let there = |set: Option<&CpuSet>| set.map(|set| set.and(&all)).filter(|set| !set.is_empty());
        let cpuset = there(allowed.cpus.as_ref()).filter(|set| allowed.is_online && !set.is_subset(online));
        // The kernel's direct answer is exact. Masks and cpusets of version 1 may contain offline CPUs, which report
        // that themselves.
        let asked = there(runs_on).filter(|set| !set.is_subset(online));
        let is_on = |cpu| fs.text(&Sysfs::cpu_path(cpu, "online")).is_some_and(|text| text.trim() == "1");
        let task =
            there(allowed.task.as_ref()).filter(|set| !set.intersects(online) || set.minus(online).iter().any(is_on));
        if let Some(may) = asked.or(cpuset).or(task) {
            notes.note(format!(
                "{CPU}/online says {said}, but this process may run on CPUs {may}; the list is not believed"
            ));
            list = None;
        }
    }
    let is_online = |cpu: &CpuId| match &list {
        Some(list) => list.contains(*cpu),
        None => fs.text(&Sysfs::cpu_path(*cpu, "online")).is_none_or(|t| t.trim() != "0"),
    };
    let (online, mute): (Vec<CpuId>, Vec<CpuId>) =
        all.iter().filter(is_online).partition(|cpu| fs.root.exists(&Sysfs::cpu_path(*cpu, "topology")));
    if online.is_empty() {
        return None;
    }
    let (usable, mute): (CpuSet, CpuSet) = {
        let mute: CpuSet = mute.into_iter().collect();
        runs_on.map_or_else(|| (CpuSet::new(), mute.clone()), |may| (mute.and(may), mute.minus(may)))
    };
    if !usable.is_empty() {
        notes.note(format!(
            "CPUs {usable} have no {CPU}/cpuN/topology, but this process may run on them; what they share is known as \
             far as others tell it"
        ));
    }
    if !mute.is_empty() {
        notes.note(format!("CPUs {mute} are online but have no {CPU}/cpuN/topology; they are taken as offline"));
    }
    let shown: CpuSet = online.into_iter().collect();
    Some(Listed { all: all.or(&hidden), online: shown.or(&hidden).or(&usable), shown, has_topology: true })
}

/// The CPUs if sysfs is hidden or has no topology: those of `/proc/cpuinfo` with its packages and cores, otherwise
/// those listed by sysfs, otherwise the caller's.
pub(super) fn without_sysfs(
    fs: &Sysfs<'_>,
    info: &CpuInfo,
    fallback: Option<&CpuSet>,
    out: &mut Assembly,
) -> Option<Listed> {
    let from_info: CpuSet = info.cpus.keys().copied().collect();
    if !from_info.is_empty() {
        out.note(format!("{CPU} has no topology; packages and cores are those of /proc/cpuinfo, caches are unknown"));
        let mut found: BTreeMap<(Kind, Option<u32>, u32), CpuSet> = BTreeMap::new();
        for (&cpu, &(package, core)) in &info.cpus {
            let core = core.map(|id| (Kind::Core, package, id));
            for key in package.map(|id| (Kind::Package, None, id)).into_iter().chain(core) {
                found.entry(key).or_default().insert(cpu);
            }
        }
        for ((kind, _, id), cpus) in found {
            out.insert(resource(kind, cpus, Some(id)));
        }
        return Some(Listed::untold(from_info));
    }
    // Single-CPU kernels do not list it.
    let list = ["online", "possible"].iter().find_map(|file| fs.list(&format!("{CPU}/{file}")));
    if let Some(cpus) = list.filter(|cpus| !cpus.is_empty() && cpus.len() <= MAX_CPUS) {
        if cpus.len() > 1 {
            out.note(format!("what CPUs {cpus} share is unknown; they are taken as one package without shared caches"));
        }
        return Some(Listed::untold(cpus));
    }
    let cpus = fallback.filter(|cpus| !cpus.is_empty())?;
    out.note(format!(
        "neither {CPU} nor /proc/cpuinfo can be read here; CPUs {cpus} are taken as one package without shared caches; \
         mount /sys into the container to place by what is shared"
    ));
    Some(Listed::untold(cpus.clone()))
}

/// The CPUs that share a resource according to one of them, except those reported by others; empty if it does not
/// include itself.
pub(super) fn rest(
    cpu: CpuId,
    listed: &CpuSet,
    covered: &mut CpuSet,
    what: impl Fn() -> String,
    out: &mut Assembly,
) -> Option<CpuSet> {
    let cpus = listed.minus(covered);
    if !cpus.contains(cpu) || cpus.len() < listed.len() {
        out.note(format!("CPU {cpu} reports {} of CPUs {listed}, which other CPUs contradict", what()));
    }
    if !cpus.contains(cpu) {
        return None;
    }
    *covered = covered.or(&cpus);
    Some(cpus)
}

fn resource(kind: Kind, cpus: CpuSet, os_index: Option<u32>) -> Resource {
    Resource { kind, level: 0, cpus, capacity: None, os_index, line_size: None, ways: None }
}

/// Packages of s390 that are near each other, and such groups: with a common cache of the fourth level, in one of them
/// or the other, depending on the model.
const BOOK: &str = "book_id";
const DRAWER: &str = "drawer_id";

/// Distinguishes groups within groups.
fn level(id: &str) -> u8 {
    match id {
        BOOK => 1,
        DRAWER => 2,
        _ => 0,
    }
}

/// Facts that distinguish packages from clusters.
pub(super) struct Told<'a> {
    /// The CPUs listed by sysfs.
    pub(super) shown: &'a CpuSet,
    pub(super) caches: &'a [Resource],
    pub(super) nodes: &'a [MemoryNode],
    pub(super) info: &'a CpuInfo,
}

/// Reads packages, dies, clusters and cores of the online CPUs; returns the packages.
pub(super) fn read(fs: &Sysfs<'_>, online: &CpuSet, told: &Told<'_>, out: &mut Assembly) -> Vec<CpuSet> {
    let info = told.info;
    // On AMD's families 15h and 16h, two cores form a compute unit that the kernel calls siblings.
    let has_compute_units = info.vendor.as_deref() == Some("AuthenticAMD") && matches!(info.family, Some(21 | 22));
    let mut done: BTreeMap<&str, CpuSet> = BTreeMap::new();
    let mut found = Vec::new();
    for cpu in told.shown.iter() {
        // The first name is that of kernels since 5.3, the second the older one.
        for (kind, names, id) in [
            (Kind::Core, &["core_cpus", "thread_siblings"][..], "core_id"),
            (Kind::Cluster, &["cluster_cpus"][..], "cluster_id"),
            (Kind::Die, &["die_cpus"][..], "die_id"),
            (Kind::Package, &["package_cpus", "core_siblings"][..], "physical_package_id"),
            (Kind::Cluster, &["book_siblings"][..], BOOK),
            (Kind::Cluster, &["drawer_siblings"][..], DRAWER),
        ] {
            let covered = done.entry(id).or_default();
            if covered.contains(cpu) {
                continue;
            }
            let paths: Vec<String> = names.iter().map(|n| Sysfs::cpu_path(cpu, &format!("topology/{n}"))).collect();
            let told = fs.mask(&paths).filter(|set| !set.is_empty()).map(|set| set.and(online));
            let Some(mut cpus) = told else { continue };
            let id_of = |cpu| fs.id(&Sysfs::cpu_path(cpu, &format!("topology/{id}")));
            if kind == Kind::Core && has_compute_units && cpus.iter().any(|other| id_of(other) != id_of(cpu)) {
                cpus = CpuSet::single(cpu);
            }
            // Kernels write clusters and dies of one CPU if there are none.
            if cpus.len() == 1 && matches!(kind, Kind::Cluster | Kind::Die) {
                continue;
            }
            let cpus = rest(cpu, &cpus, covered, || format!("the {kind:?}"), out);
            let level = level(id);
            found.extend(cpus.map(|cpus| Resource { level, ..resource(kind, cpus, id_of(cpu)) }));
        }
    }
    for cpus in joined(fs, &found, told) {
        let mut clusters = 0;
        for cluster in found.iter_mut().filter(|r| r.kind == Kind::Package && r.cpus.is_subset(&cpus)) {
            cluster.kind = Kind::Cluster;
            clusters += 1;
        }
        out.note(format!(
            "the {clusters} packages of CPUs {cpus} share a cache, or have cores of different kinds, and no memory of their \
             own; they are taken as clusters of one package"
        ));
        found.push(resource(Kind::Package, cpus, None));
    }
    found.retain(|r| r.cpus.len() > 1 || r.kind != Kind::Cluster);
    let packages = found.iter().filter(|r| r.kind == Kind::Package).map(|r| r.cpus.clone()).collect();
    for resource in found {
        out.insert(resource);
    }
    packages
}

/// Joins packages: kernels without clusters report those of phones and guests as packages. With common memory, those
/// that share a cache are one, and those with cores of different designs.
fn joined(fs: &Sysfs<'_>, found: &[Resource], told: &Told<'_>) -> Vec<CpuSet> {
    let packages: Vec<&CpuSet> = found.iter().filter(|r| r.kind == Kind::Package).map(|r| &r.cpus).collect();
    let mut at_home: BTreeMap<Option<usize>, Vec<CpuSet>> = BTreeMap::new();
    for package in &packages {
        at_home.entry(home(told.nodes, package)).or_default().push((*package).clone());
    }
    let own = |cache: &Resource| {
        let of = cache.cpus.first().and_then(|cpu| packages.iter().find(|package| package.contains(cpu)));
        of.is_some_and(|package| cache.cpus.is_subset(package))
    };
    let shared: Vec<&Resource> = told.caches.iter().filter(|cache| cache.level > 1 && !own(cache)).collect();
    let design = |package: &CpuSet| {
        let designs: BTreeSet<Option<Design>> = package.iter().map(|cpu| kinds::design(fs, cpu, told.info)).collect();
        designs.first().copied().flatten().filter(|_| designs.len() == 1)
    };
    let mut one = Vec::new();
    for mut sets in at_home.into_values() {
        let designs: BTreeSet<Option<Design>> = sets.iter().map(design).collect();
        let differ = designs.len() > 1 && !designs.contains(&None);
        let all = |sets: &[CpuSet]| sets.iter().fold(CpuSet::new(), |all, set| all.or(set));
        for cache in &shared {
            let (with, rest): (Vec<CpuSet>, Vec<CpuSet>) = sets.into_iter().partition(|set| set.is_subset(&cache.cpus));
            sets = rest;
            sets.extend((!with.is_empty()).then(|| all(&with)));
        }
        one.extend(if differ { vec![all(&sets)] } else { sets });
    }
    one.retain(|set| !packages.contains(&set));
    one
}
