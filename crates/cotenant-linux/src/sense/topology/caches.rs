//! The caches of the online CPUs.

use super::sysfs::Sysfs;
use cotenant_model::parse;
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::topology::{CacheType, Kind, Resource};
use cotenant_model::{CpuId, CpuSet};

/// Reads the caches; machines whose sysfs lists none have none here.
pub(super) fn read(fs: &Sysfs<'_>, online: &CpuSet, out: &mut Assembly) {
    for cpu in online.iter() {
        let folder = Sysfs::cpu_path(cpu, "cache");
        for index in fs.numbered(&folder, "index").unwrap_or_default() {
            if let Some(cache) = cache(fs, cpu, &format!("{folder}/index{index}"), online) {
                out.insert(cache);
            }
        }
    }
}

/// One cache; `None` where it is incomplete or another CPU's turn to report it.
fn cache(fs: &Sysfs<'_>, cpu: CpuId, folder: &str, online: &CpuSet) -> Option<Resource> {
    let mut cpus = fs.mask(&[format!("{folder}/shared_cpu_map")])?;
    if cpus.is_empty() {
        // Some kernels leave the map of a core's own cache empty.
        cpus = fs.mask(&["core_cpus", "thread_siblings"].map(|n| Sysfs::cpu_path(cpu, &format!("topology/{n}"))))?;
    }
    cpus = cpus.and(online);
    if cpus.first() != Some(cpu) {
        return None;
    }
    let level = fs.number(&format!("{folder}/level")).and_then(|l| u8::try_from(l).ok()).filter(|l| *l > 0)?;
    let kind = match fs.text(&format!("{folder}/type")).as_deref().map(str::trim) {
        Some("Data") => CacheType::Data,
        Some("Instruction") => CacheType::Instruction,
        _ => CacheType::Unified,
    };
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
