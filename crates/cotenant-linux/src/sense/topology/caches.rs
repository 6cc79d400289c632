//! The caches of the online CPUs.

use super::cpus::is_first;
use super::nodes::home;
use super::sysfs::Sysfs;
use cotenant_model::parse::{self, CpuInfo};
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::topology::{CacheType, Kind, MemoryNode, Resource};
use cotenant_model::{CpuId, CpuSet};

/// The caches of these CPUs listed by the kernel, through the visible ones; empty if sysfs lists none.
pub(super) fn listed(fs: &Sysfs<'_>, online: &CpuSet, shown: &CpuSet) -> Vec<Resource> {
    let mut caches = Vec::new();
    for cpu in shown.iter() {
        let folder = Sysfs::cpu_path(cpu, "cache");
        let indexes = fs.numbered(&folder, "index").unwrap_or_default();
        if indexes.is_empty() {
            caches.extend(beside_topology(fs, cpu, [online, shown]));
        }
        caches.extend(
            indexes.iter().filter_map(|index| cache(fs, cpu, &format!("{folder}/index{index}"), [online, shown])),
        );
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
    for cache in caches {
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

/// The caches of a core as sparc's kernel lists them, beside its topology.
fn beside_topology(fs: &Sysfs<'_>, cpu: CpuId, [online, shown]: [&CpuSet; 2]) -> Vec<Resource> {
    let core = fs.mask(&["core_cpus", "thread_siblings"].map(|n| Sysfs::cpu_path(cpu, &format!("topology/{n}"))));
    let cpus = core.map_or_else(|| CpuSet::single(cpu), |core| core.and(online));
    if !is_first(cpu, &cpus, shown) {
        return Vec::new();
    }
    let cache = |(name, level, kind): (&str, u8, CacheType)| {
        let number = |what: &str| fs.number(&Sysfs::cpu_path(cpu, &format!("{name}_{what}"))).filter(|n| *n > 0);
        let line_size = number("line_size").and_then(|bytes| u32::try_from(bytes).ok());
        let (kind, capacity) = (Kind::Cache(kind), Some(number("size")?));
        Some(Resource { kind, level, cpus: cpus.clone(), capacity, os_index: None, line_size, ways: None })
    };
    [("l1_dcache", 1, CacheType::Data), ("l1_icache", 1, CacheType::Instruction), ("l2_cache", 2, CacheType::Unified)]
        .into_iter()
        .filter_map(cache)
        .collect()
}

/// One cache; `None` if it is incomplete, or another CPU reports it.
fn cache(fs: &Sysfs<'_>, cpu: CpuId, folder: &str, [online, shown]: [&CpuSet; 2]) -> Option<Resource> {
    let mut cpus = fs.mask(&[format!("{folder}/shared_cpu_map")])?;
    if cpus.is_empty() {
        // Some kernels leave the map of a core's own cache empty.
        cpus = fs.mask(&["core_cpus", "thread_siblings"].map(|n| Sysfs::cpu_path(cpu, &format!("topology/{n}"))))?;
    }
    cpus = cpus.and(online);
    if !is_first(cpu, &cpus, shown) {
        return None;
    }
    let level = fs.number(&format!("{folder}/level")).and_then(|l| u8::try_from(l).ok()).filter(|l| *l > 0)?;
    let kind = cache_type(fs.text(&format!("{folder}/type")).unwrap_or_default().trim());
    let number = |name: &str| fs.number(&format!("{folder}/{name}")).filter(|n| *n > 0);
    let capacity = fs.text(&format!("{folder}/size")).and_then(|t| parse::size(&t).ok()).filter(|bytes| *bytes > 0);
    let line_size = number("coherency_line_size");
    // Not `ways_of_associativity`: kernels write 0 or -1 there for several things. From the geometry, as hwloc does;
    // one set would be a fully associative cache, but is mostly an error.
    let ways = number("number_of_sets").filter(|sets| *sets > 1).and_then(|sets| {
        let lines_per_tag = number("physical_line_partition").unwrap_or(1);
        Some(capacity? / line_size? / lines_per_tag / sets).filter(|ways| *ways > 0)
    });
    Some(Resource {
        kind: Kind::Cache(kind),
        level,
        cpus,
        capacity,
        os_index: fs.id(&format!("{folder}/id")),
        line_size: line_size.and_then(|v| u32::try_from(v).ok()),
        ways: ways.and_then(|v| u32::try_from(v).ok()),
    })
}
