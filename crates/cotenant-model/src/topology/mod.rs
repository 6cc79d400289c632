//! The machine: CPUs, shared resources, memory nodes, and distances.
//!
//! A topology is data: packages, dies, clusters, cores, caches, buses, memory controllers and links are all
//! [`Resource`]s, sets of CPUs with a kind and a level. Front-side buses, chiplets and meshes need no special case.

mod access;
pub mod hidden;
pub mod hmat;
pub mod latency;
pub mod notation;
mod quantity;
pub mod render;
pub mod report;
pub mod shared;
pub mod svg;
pub mod symmetry;
pub mod tree;

pub mod assembly;
pub mod efficiency;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod synthetic;
pub mod xml;

use crate::{CpuId, CpuSet, NodeId};
use serde::{Deserialize, Serialize};

/// A hardware thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The operating system's number.
    pub id: CpuId,
    /// Whether it is switched on. Offline CPUs belong to no resource.
    pub online: bool,
    /// Whether the current cpuset allows it.
    pub allowed: bool,
    /// Rank among the machine's kinds of cores, 0 = slowest; `None` if all are equal or nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency_class: Option<u8>,
    /// Position on a mesh or package, in hops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coord: Option<(i32, i32)>,
}

impl Cpu {
    /// An online, allowed CPU without further facts.
    pub fn online(id: CpuId) -> Self {
        Self { id, online: true, allowed: true, efficiency_class: None, coord: None }
    }
}

/// Contents of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheType {
    /// Data and instructions.
    Unified,
    /// Data.
    Data,
    /// Instructions.
    Instruction,
}

/// Kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A package (socket).
    Package,
    /// A die inside a package.
    Die,
    /// A cluster of cores (Arm, Intel E-core modules), or another group that the firmware reports.
    Cluster,
    /// A cache; its level is [`Resource::level`].
    Cache(CacheType),
    /// A core: CPUs that share a pipeline.
    Core,
    /// A bus, such as a front-side bus.
    Bus,
    /// A memory controller that is not itself a memory node.
    MemoryController,
    /// A link between packages or dies.
    Link,
}

/// A resource shared by CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Its kind.
    pub kind: Kind,
    /// Level among its kind: caches count from the core outward (1, 2, 3, …), other kinds use 0.
    #[serde(default)]
    pub level: u8,
    /// The online CPUs that share it.
    pub cpus: CpuSet,
    /// Bytes for caches, bytes per second for buses, controllers and links; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// The operating system's or firmware's number, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_index: Option<u32>,
    /// Line size in bytes, for caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_size: Option<u32>,
    /// Associativity in ways, for caches; 0 = fully associative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<u32>,
}

impl Resource {
    /// Whether it holds data beyond the first level. Every multi-core machine has more than private L1 caches: one that
    /// only reports those (aarch64 guests) does not report its last level.
    fn may_be_last_level(&self) -> bool {
        matches!(self.kind, Kind::Cache(CacheType::Unified | CacheType::Data)) && self.level > 1
    }
}

/// A memory node (NUMA node), with or without CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNode {
    /// The operating system's number.
    pub id: NodeId,
    /// Online CPUs local to it; empty for memory-only nodes.
    pub cpus: CpuSet,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether the current cpuset allows it.
    #[serde(default = "yes")]
    pub allowed: bool,
    /// Position on a mesh or package, in hops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coord: Option<(i32, i32)>,
}

pub(crate) fn yes() -> bool {
    true
}

/// Unit of a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistanceUnit {
    /// ACPI SLIT: 10 = local.
    Slit,
    /// Nanoseconds of idle latency.
    Nanoseconds,
    /// Hops.
    Hops,
}

/// Distances to memory nodes. May be asymmetric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distances {
    /// The unit.
    pub unit: DistanceUnit,
    /// `rows[i][j]`: from the CPUs of the i-th node (or the i-th core with one row per core) to the memory of the j-th
    /// node, in the order of [`Topology::nodes`] and [`Topology::cores`].
    pub rows: Vec<Vec<f64>>,
    /// Their origin, for people; `None` if the unit implies it, or it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Input of a topology; the order of the lists does not matter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Name, if the machine has one.
    #[serde(default)]
    pub name: Option<String>,
    /// All CPUs, offline ones included.
    pub cpus: Vec<Cpu>,
    /// All shared resources.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// Memory nodes.
    #[serde(default)]
    pub nodes: Vec<MemoryNode>,
    /// Distances from nodes to nodes; rows and columns in ascending order of node id. Or from cores to nodes; rows in
    /// ascending order of each core's lowest CPU.
    #[serde(default)]
    pub distances: Option<Distances>,
    /// Firmware figures of memory speed for the nearest nodes, in ascending order of node id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accesses: Vec<access::Access>,
}

/// The most CPUs that a machine may have: twice the largest `NR_CPUS` of any Linux architecture, so that a typo
/// cannot exhaust memory.
pub const MAX_CPUS: usize = 1 << 14;

/// Why parts do not form a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There is no online CPU.
    #[error("the machine has no online CPU")]
    NoCpu,
    /// More CPUs, or higher numbers, than any machine has.
    #[error("the machine has {0}; at most {MAX_CPUS} CPUs numbered up to {max} are accepted", max = crate::cpuset::MAX_CPU)]
    TooMany(String),
    /// A duplicate.
    #[error("{0} is listed twice")]
    Twice(String),
    /// A resource or node names a CPU that does not exist or is offline.
    #[error("{what} names CPU {cpu}, which does not exist or is offline")]
    UnknownCpu {
        /// The resource or node.
        what: String,
        /// The CPU.
        cpu: CpuId,
    },
    /// Two resources of one kind and level share CPUs.
    #[error("two resources of kind {0} share CPU {1}")]
    Overlap(String, CpuId),
    /// The distance matrix has a wrong shape or a bad value.
    #[error("the distance matrix {0}")]
    Distances(String),
}

/// A last-level-cache domain: the CPUs that share one last-level cache, or a package without a reported last level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Usable CPUs.
    pub cpus: CpuSet,
    /// The same CPUs in filling order: first contexts of all cores before second ones (SAM §4.3).
    pub contexts: Vec<CpuId>,
    /// Index of its package in [`Topology::packages`].
    pub package: usize,
    /// Index of its memory node in [`Topology::nodes`].
    pub node: Option<usize>,
}

/// A machine. Immutable once built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Topology {
    parts: Parts,
    usable: CpuSet,
    online: CpuSet,
    /// Per CPU number: indexes into the lists below; `NONE` without an entry.
    index: Vec<Place>,
    packages: Vec<CpuSet>,
    cores: Vec<CpuSet>,
    domains: Vec<Domain>,
    /// Usable CPUs of each package in filling order.
    package_contexts: Vec<Vec<CpuId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    package: u32,
    core: u32,
    domain: u32,
    node: u32,
}

const NONE: u32 = u32::MAX;
const NOWHERE: Place = Place { package: NONE, core: NONE, domain: NONE, node: NONE };

impl Topology {
    /// Builds and checks a topology. Without packages all CPUs form one; a CPU without a core is its own core.
    ///
    /// # Errors
    /// [`TopologyError`] names the contradictory parts.
    pub fn new(mut parts: Parts) -> Result<Self, TopologyError> {
        parts.cpus.sort_by_key(|c| c.id);
        parts.nodes.sort_by_key(|n| n.id);
        parts.accesses.sort_by_key(|a| a.node);
        parts.resources.sort_by_key(|r| (r.kind, r.level, r.cpus.first(), std::cmp::Reverse(r.cpus.len())));
        if let Some(pair) = parts.cpus.windows(2).find(|w| w[0].id == w[1].id) {
            return Err(TopologyError::Twice(format!("CPU {}", pair[0].id)));
        }
        if let Some(pair) = parts.nodes.windows(2).find(|w| w[0].id == w[1].id) {
            return Err(TopologyError::Twice(format!("memory node {}", pair[0].id)));
        }
        if parts.cpus.len() > MAX_CPUS {
            return Err(TopologyError::TooMany(format!("{} CPUs", parts.cpus.len())));
        }
        if let Some(last) = parts.cpus.last().filter(|c| c.id.0 > crate::cpuset::MAX_CPU) {
            return Err(TopologyError::TooMany(format!("a CPU {}", last.id)));
        }
        let online: CpuSet = parts.cpus.iter().filter(|c| c.online).map(|c| c.id).collect();
        let usable: CpuSet = parts.cpus.iter().filter(|c| c.online && c.allowed).map(|c| c.id).collect();
        if online.is_empty() {
            return Err(TopologyError::NoCpu);
        }
        let known = |what: String, cpus: &CpuSet| match cpus.minus(&online).first() {
            Some(cpu) => Err(TopologyError::UnknownCpu { what, cpu }),
            None => Ok(()),
        };
        for r in &parts.resources {
            known(format!("{:?} (level {})", r.kind, r.level), &r.cpus)?;
        }
        for n in &parts.nodes {
            known(format!("memory node {}", n.id), &n.cpus)?;
        }
        parts.resources.retain(|r| !r.cpus.is_empty());
        for alike in parts.resources.chunk_by(|a, b| a.kind == b.kind && a.level == b.level) {
            let mut seen = CpuSet::new();
            for r in alike {
                if let Some(cpu) = seen.and(&r.cpus).first() {
                    return Err(TopologyError::Overlap(format!("{:?} (level {})", r.kind, r.level), cpu));
                }
                seen = seen.or(&r.cpus);
            }
        }

        let of_kind = |kind| parts.resources.iter().filter(move |r| r.kind == kind).map(|r| r.cpus.clone());
        let packages = complete(of_kind(Kind::Package).collect(), &online, |rest| vec![rest.clone()]);
        let cores = complete(of_kind(Kind::Core).collect(), &online, |rest| rest.iter().map(CpuSet::single).collect());
        // The last level may differ between CPUs (asymmetric machines), so it is determined per CPU; without a reported
        // one it is the package.
        let mut caches: Vec<(u8, &CpuSet)> =
            parts.resources.iter().filter(|r| r.may_be_last_level()).map(|r| (r.level, &r.cpus)).collect();
        caches.sort_by_key(|(level, cpus)| (std::cmp::Reverse(*level), cpus.first()));
        let mut last_level: Vec<CpuSet> = Vec::new();
        let mut covered = CpuSet::new();
        for (_, cpus) in caches {
            let fresh = cpus.minus(&covered);
            if !fresh.is_empty() {
                covered = covered.or(cpus);
                last_level.push(fresh);
            }
        }
        let last_level = complete(last_level, &online, |rest| {
            packages.iter().map(|p| p.and(rest)).filter(|p| !p.is_empty()).collect()
        });

        let mut index = vec![NOWHERE; online.last().map_or(0, |c| c.index() + 1)];
        let mut mark = |sets: &[CpuSet], field: fn(&mut Place) -> &mut u32| {
            for (i, set) in sets.iter().enumerate() {
                for cpu in set.iter() {
                    *field(&mut index[cpu.index()]) = i as u32;
                }
            }
        };
        mark(&packages, |p| &mut p.package);
        mark(&cores, |p| &mut p.core);
        mark(&last_level, |p| &mut p.domain);
        // If nodes nest (buggy firmware), a CPU belongs to the smallest node that contains it; of equals, the first.
        let mut by_size: Vec<usize> = (0..parts.nodes.len()).collect();
        by_size.sort_by_key(|&i| std::cmp::Reverse((parts.nodes[i].cpus.len(), i)));
        for i in by_size {
            for cpu in parts.nodes[i].cpus.iter() {
                index[cpu.index()].node = i as u32;
            }
        }

        let fill = |cpus: &CpuSet| filling_order(&cpus.and(&usable), &index, cores.len());
        let package_contexts = packages.iter().map(&fill).collect();
        let domains: Vec<Domain> = last_level
            .iter()
            .map(|cpus| {
                let at = index[cpus.first().map_or(0, CpuId::index)];
                Domain {
                    cpus: cpus.and(&usable),
                    contexts: fill(cpus),
                    package: at.package as usize,
                    node: (at.node != NONE).then_some(at.node as usize),
                }
            })
            .collect();
        let topology = Self { parts, usable, online, index, packages, cores, domains, package_contexts };
        topology.check_distances()?;
        Ok(topology)
    }

    fn check_distances(&self) -> Result<(), TopologyError> {
        let Some(d) = &self.parts.distances else { return Ok(()) };
        let (nodes, cores) = (self.parts.nodes.len(), self.cores.len());
        let bad = |text: String| Err(TopologyError::Distances(text));
        if d.rows.len() != nodes && d.rows.len() != cores {
            return bad(format!("has {} rows; expected one per node ({nodes}) or per core ({cores})", d.rows.len()));
        }
        if let Some(row) = d.rows.iter().find(|row| row.len() != nodes) {
            return bad(format!("has a row of {} columns; expected {nodes}", row.len()));
        }
        if d.rows.iter().flatten().any(|v| !v.is_finite() || *v < 0.0) {
            return bad("has a negative or infinite value".to_owned());
        }
        Ok(())
    }

    /// The same machine for programs that may also use these online CPUs, because their cpuset may differ from
    /// Cotenant's own. Memory nodes near any of them become allowed too.
    #[must_use]
    pub fn allowing(&self, cpus: &CpuSet) -> Self {
        let mut parts = self.parts.clone();
        parts.cpus.iter_mut().for_each(|cpu| cpu.allowed |= cpu.online && cpus.contains(cpu.id));
        parts.nodes.iter_mut().for_each(|node| node.allowed |= !node.cpus.and(cpus).is_empty());
        Self::new(parts).unwrap_or_else(|_| self.clone())
    }

    /// The same machine restricted to these CPUs.
    #[must_use]
    pub fn limited_to(&self, cpus: &CpuSet) -> Self {
        let mut parts = self.parts.clone();
        parts.cpus.iter_mut().for_each(|cpu| cpu.allowed &= cpus.contains(cpu.id));
        Self::new(parts).unwrap_or_else(|_| self.clone())
    }

    /// Its input, sorted.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.parts.name.as_deref()
    }

    /// All CPUs in ascending order of number, offline ones included.
    pub fn cpus(&self) -> &[Cpu] {
        &self.parts.cpus
    }

    /// The CPU of that number.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.parts.cpus.binary_search_by_key(&id, |c| c.id).ok().map(|i| &self.parts.cpus[i])
    }

    /// All resources, sorted by kind, level and lowest CPU.
    pub fn resources(&self) -> &[Resource] {
        &self.parts.resources
    }

    /// Resources of a kind.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Resource> {
        self.parts.resources.iter().filter(move |r| r.kind == kind)
    }

    /// Memory nodes in ascending order of number.
    pub fn nodes(&self) -> &[MemoryNode] {
        &self.parts.nodes
    }

    /// Online CPUs.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Online CPUs that the cpuset allows.
    pub fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// Bytes of a line of the last-level caches; 64 if not reported.
    pub fn line_size(&self) -> f64 {
        let caches = self.resources().iter().filter(|resource| resource.may_be_last_level());
        let told = caches.filter_map(|cache| Some((cache.level, cache.line_size?)));
        told.max_by_key(|(level, _)| *level).map_or(64.0, |(_, bytes)| f64::from(bytes))
    }

    /// The online CPUs of each package, in ascending order of lowest CPU.
    pub fn packages(&self) -> &[CpuSet] {
        &self.packages
    }

    /// The usable CPUs of each package in filling order: first contexts of all cores before second ones.
    pub fn package_contexts(&self) -> &[Vec<CpuId>] {
        &self.package_contexts
    }

    /// The online CPUs of each core, in ascending order of lowest CPU.
    pub fn cores(&self) -> &[CpuSet] {
        &self.cores
    }

    /// Last-level-cache domains in ascending order of lowest CPU.
    pub fn llc_domains(&self) -> &[Domain] {
        &self.domains
    }

    /// Index into [`Self::packages`] of a CPU's package.
    pub fn package_of(&self, cpu: CpuId) -> Option<usize> {
        self.place(cpu, |p| p.package)
    }

    /// Index into [`Self::cores`] of a CPU's core.
    pub fn core_of(&self, cpu: CpuId) -> Option<usize> {
        self.place(cpu, |p| p.core)
    }

    /// Index into [`Self::llc_domains`] of a CPU's domain.
    pub fn llc_of(&self, cpu: CpuId) -> Option<usize> {
        self.place(cpu, |p| p.domain)
    }

    /// Index into [`Self::nodes`] of a CPU's local memory node.
    pub fn node_of(&self, cpu: CpuId) -> Option<usize> {
        self.place(cpu, |p| p.node)
    }

    fn place(&self, cpu: CpuId, field: impl Fn(&Place) -> u32) -> Option<usize> {
        self.index.get(cpu.index()).map(field).filter(|i| *i != NONE).map(|i| i as usize)
    }

    /// Distance from a CPU to the memory of the node of that index, if known.
    pub fn distance(&self, cpu: CpuId, node: usize) -> Option<f64> {
        let d = self.parts.distances.as_ref()?;
        let row = if d.rows.len() == self.parts.nodes.len() { self.node_of(cpu)? } else { self.core_of(cpu)? };
        d.rows.get(row)?.get(node).copied()
    }

    /// Distance of a CPU to the memory of the node of that index: the machine's, otherwise hops on its mesh.
    pub fn way(&self, cpu: CpuId, node: usize) -> Option<f64> {
        self.distance(cpu, node).or_else(|| {
            let ((x, y), (nx, ny)) = (self.cpu(cpu)?.coord?, self.nodes().get(node)?.coord?);
            Some(f64::from(x.abs_diff(nx)) + f64::from(y.abs_diff(ny)))
        })
    }
}

impl TryFrom<Parts> for Topology {
    type Error = TopologyError;
    fn try_from(parts: Parts) -> Result<Self, TopologyError> {
        Self::new(parts)
    }
}

impl From<Topology> for Parts {
    fn from(topology: Topology) -> Parts {
        topology.parts
    }
}

/// `sets` sorted by lowest CPU, completed with the rest of `all`, divided by `split`.
fn complete(mut sets: Vec<CpuSet>, all: &CpuSet, split: impl Fn(&CpuSet) -> Vec<CpuSet>) -> Vec<CpuSet> {
    let rest = sets.iter().fold(all.clone(), |rest, set| rest.minus(set));
    if !rest.is_empty() {
        sets.extend(split(&rest));
    }
    sets.sort_by_key(CpuSet::first);
    sets
}

/// CPUs by their rank within their core, then by last-level-cache domain, then by core: core numbers within a domain do
/// not affect the order of domains.
fn filling_order(cpus: &CpuSet, index: &[Place], cores: usize) -> Vec<CpuId> {
    let mut seen = vec![0u32; cores];
    let mut ranked: Vec<(u32, u32, u32, CpuId)> = cpus
        .iter()
        .map(|cpu| {
            let Place { core, domain, .. } = index[cpu.index()];
            let rank = seen[core as usize];
            seen[core as usize] += 1;
            (rank, domain, core, cpu)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(.., cpu)| cpu).collect()
}

#[cfg(test)]
mod tests;
