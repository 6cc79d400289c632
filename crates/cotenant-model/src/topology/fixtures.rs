//! Small machines for tests of values computed from a topology.

pub use crate::testing::clovertown;

use super::{CacheType, Cpu, Distances, Kind, MemoryNode, Parts, Resource};
use crate::{CpuId, CpuSet, NodeId};

pub fn set(list: &str) -> CpuSet {
    CpuSet::parse_list(list).unwrap()
}

pub fn resource(kind: Kind, level: u8, cpus: &str) -> Resource {
    Resource { kind, level, cpus: set(cpus), capacity: None, os_index: None, line_size: None, ways: None }
}

pub fn cpus(n: u32) -> Vec<Cpu> {
    (0..n).map(|i| Cpu::online(CpuId(i))).collect()
}

pub fn node(id: u32, cpus: &str) -> MemoryNode {
    MemoryNode { id: NodeId(id), cpus: set(cpus), bytes: Some(16 << 30), allowed: true, coord: None }
}

pub fn slit(rows: &[&[f64]]) -> Distances {
    Distances { unit: super::DistanceUnit::Slit, rows: rows.iter().map(|r| r.to_vec()).collect(), source: None }
}

/// Packages × LLCs × cores × contexts, numbered consecutively; one memory node per package.
pub fn regular(packages: u32, llcs: u32, cores: u32, smt: u32) -> Parts {
    let n = packages * llcs * cores * smt;
    let mut parts = Parts { cpus: cpus(n), ..Parts::default() };
    let blocks = |size: u32| (0..n / size).map(move |i| format!("{}-{}", i * size, (i + 1) * size - 1));
    let mib = |r: Resource, bytes: u64| Resource { capacity: Some(bytes), ..r };
    let last = Kind::Cache(CacheType::Unified);
    parts.resources.extend(blocks(llcs * cores * smt).map(|b| resource(Kind::Package, 0, &b)));
    parts.resources.extend(blocks(cores * smt).map(|b| mib(resource(last, 3, &b), 32 << 20)));
    parts.resources.extend(blocks(smt).map(|b| mib(resource(last, 2, &b), 1 << 20)));
    parts.resources.extend(blocks(smt).map(|b| resource(Kind::Core, 0, &b)));
    parts.nodes = blocks(llcs * cores * smt).zip(0..).map(|(b, i)| node(i, &b)).collect();
    parts
}
