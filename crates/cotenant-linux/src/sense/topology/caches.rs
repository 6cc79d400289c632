//! The caches of the online CPUs.

use super::cpus::rest;
use super::nodes::home;
use super::sysfs::Sysfs;
use cotenant_model::parse::CpuInfo;
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::topology::{CacheType, Kind, MemoryNode, Resource};
use cotenant_model::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// The caches of the online CPUs that the kernel lists, by those that it shows; machines whose sysfs lists none have
/// none here.
pub(super) fn listed(fs: &Sysfs<'_>, online: &CpuSet, shown: &CpuSet, out: &mut Assembly) -> Vec<Resource> {
    let mut reading = Reading { fs, online, covered: BTreeMap::new(), out };
    let mut caches = Vec::new();
    for cpu in shown.iter() {
        let folder = Sysfs::cpu_path(cpu, "cache");
        let indexes = fs.numbered(&folder, "index").unwrap_or_default();
        if indexes.is_empty() {
            caches.extend(reading.beside_topology(cpu));
        }
        caches.extend(indexes.iter().filter_map(|index| reading.cache(cpu, &format!("{folder}/index{index}"))));
    }
    caches
}

/// Adds them, including those that need splitting.
pub(super) fn insert(
    caches: Vec<Resource>,
    packages: &[CpuSet],
    nodes: &[MemoryNode],
    info: &CpuInfo,
    out: &mut Assembly,
) {
    // Packages with their own memory.
    let apart = |a: &CpuSet, b: &CpuSet| home(nodes, a).zip(home(nodes, b)).is_some_and(|(a, b)| a != b);
    let mut by_level: BTreeMap<u8, Vec<CpuSet>> = BTreeMap::new();
    for cache in &caches {
        by_level.entry(cache.level).or_default().push(cache.cpus.clone());
    }
    for cache in caches {
        // What lies behind a cache is shared by all of its CPUs.
        let behind = by_level.range(cache.level + 1..).next().filter(|_| cache.cpus.len() > 1).map(|(_, sets)| sets);
        let is_part = |set: &CpuSet| set.is_subset(&cache.cpus) && *set != cache.cpus;
        let mut parts: Vec<CpuSet> = behind.into_iter().flatten().filter(|set| is_part(set)).cloned().collect();
        if parts.len() > 1 {
            out.note(format!(
                "the L{} cache of CPUs {} is shared by more CPUs than the caches behind it, which cannot be; it is taken \
                 as one before each of them",
                cache.level, cache.cpus
            ));
            parts.push(parts.iter().fold(cache.cpus.clone(), |left, part| left.minus(part)));
            for cpus in parts {
                out.insert(Resource { cpus, os_index: None, ..cache.clone() });
            }
            continue;
        }
        let over: Vec<&CpuSet> = packages.iter().filter(|package| package.intersects(&cache.cpus)).collect();
        if !over.windows(2).any(|pair| apart(pair[0], pair[1])) {
            out.insert(cache);
            continue;
        }
        out.note(format!(
            "the L{} cache of CPUs {} spans packages that have memory of their own, which cannot be; it is taken as one \
             in each package",
            cache.level, cache.cpus
        ));
        for package in over {
            out.insert(Resource { cpus: cache.cpus.and(package), os_index: None, ..cache.clone() });
        }
    }
    // On s390 sysfs only has those of cores.
    for cache in info.caches.iter().filter(|cache| cache.shared && cache.level == 3) {
        for package in packages {
            out.insert(Resource {
                kind: Kind::Cache(cache_type(&cache.kind)),
                level: cache.level,
                cpus: package.clone(),
                capacity: Some(cache.bytes),
                os_index: None,
                line_size: cache.line_size,
                ways: cache.ways,
            });
        }
    }
}

fn cache_type(name: &str) -> CacheType {
    match name {
        "Data" => CacheType::Data,
        "Instruction" => CacheType::Instruction,
        _ => CacheType::Unified,
    }
}

/// State while they are read.
struct Reading<'a> {
    fs: &'a Sysfs<'a>,
    online: &'a CpuSet,
    /// The CPUs whose cache of a level and kind is known.
    covered: BTreeMap<(u8, Kind), CpuSet>,
    out: &'a mut Assembly,
}

impl Reading<'_> {
    /// The CPUs that share a cache with this one; `None` if already known, or missing.
    fn sharing(
        &mut self,
        cpu: CpuId,
        level: u8,
        kind: Kind,
        told: impl FnOnce(&Sysfs<'_>) -> Option<CpuSet>,
    ) -> Option<CpuSet> {
        let covered = self.covered.entry((level, kind)).or_default();
        if covered.contains(cpu) {
            return None;
        }
        let told = told(self.fs)?.and(self.online);
        rest(cpu, &told, covered, || format!("the L{level} cache"), self.out)
    }

    /// The caches of a core as sparc's kernel lists them, beside its topology.
    fn beside_topology(&mut self, cpu: CpuId) -> Vec<Resource> {
        let fs = self.fs;
        let cache = |(name, level, kind): (&str, u8, CacheType)| {
            let kind = Kind::Cache(kind);
            let number = |what: &str| fs.number(&Sysfs::cpu_path(cpu, &format!("{name}_{what}"))).filter(|n| *n > 0);
            let capacity = Some(number("size")?);
            let cpus = self.sharing(cpu, level, kind, |fs| core(fs, cpu).or_else(|| Some(CpuSet::single(cpu))))?;
            let line_size = number("line_size").and_then(|bytes| u32::try_from(bytes).ok());
            Some(Resource { kind, level, cpus, capacity, os_index: None, line_size, ways: None })
        };
        [
            ("l1_dcache", 1, CacheType::Data),
            ("l1_icache", 1, CacheType::Instruction),
            ("l2_cache", 2, CacheType::Unified),
        ]
        .into_iter()
        .filter_map(cache)
        .collect()
    }

    /// One cache; `None` if it is incomplete or reported by another CPU.
    fn cache(&mut self, cpu: CpuId, folder: &str) -> Option<Resource> {
        let fs = self.fs;
        let level = fs.number(&format!("{folder}/level")).and_then(|l| u8::try_from(l).ok()).filter(|l| *l > 0)?;
        let kind = Kind::Cache(cache_type(fs.text(&format!("{folder}/type")).unwrap_or_default().trim()));
        // Some kernels leave the map of a core's own cache empty.
        let map = |fs: &Sysfs<'_>| {
            let map = fs.mask(&[format!("{folder}/shared_cpu_map")])?;
            if map.is_empty() { core(fs, cpu) } else { Some(map) }
        };
        let cpus = self.sharing(cpu, level, kind, map)?;
        let number = |name: &str| fs.number(&format!("{folder}/{name}")).filter(|n| *n > 0);
        let capacity = fs.size(&format!("{folder}/size")).filter(|bytes| *bytes > 0);
        let line_size = number("coherency_line_size");
        // Not `ways_of_associativity`: kernels write 0 or -1 there for several things. From the geometry, as hwloc
        // does; one set would be a fully associative cache, but is mostly an error.
        let ways = number("number_of_sets").filter(|sets| *sets > 1).and_then(|sets| {
            let lines_per_tag = number("physical_line_partition").unwrap_or(1);
            Some(capacity? / line_size? / lines_per_tag / sets).filter(|ways| *ways > 0)
        });
        Some(Resource {
            kind,
            level,
            cpus,
            capacity,
            os_index: fs.id(&format!("{folder}/id")),
            line_size: line_size.and_then(|v| u32::try_from(v).ok()),
            ways: ways.and_then(|v| u32::try_from(v).ok()),
        })
    }
}

fn core(fs: &Sysfs<'_>, cpu: CpuId) -> Option<CpuSet> {
    fs.mask(&["core_cpus", "thread_siblings"].map(|n| Sysfs::cpu_path(cpu, &format!("topology/{n}"))))
}
