//! Reads the machine's topology from sysfs, `/proc` and cpusets below a [`FsRoot`], as hwloc's Linux backend sees it.
//!
//! Deliberately unlike hwloc:
//! * Offline and disallowed CPUs and nodes stay in the topology, marked, instead of being removed.
//! * A memory-only node has no CPUs; hwloc assigns those of the nearest nodes, which here the distances show.
//! * Groups derived by hwloc from distances are not created.
//! * No memory-side caches and no I/O.

pub mod archive;
mod caches;
mod cpus;
mod kinds;
mod nodes;
mod sysfs;

use crate::fsroot::FsRoot;
use crate::sys;
use cotenant_model::topology::assembly::Assembly;
use cotenant_model::topology::{Cpu, MAX_CPUS, MemoryNode, Parts, Topology, TopologyError};
use cotenant_model::{CpuId, CpuSet, NodeId, parse};
use sysfs::Sysfs;

/// A machine as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
    /// The machine.
    pub topology: Topology,
    /// Unreadable and contradictory parts, and their replacements. One line each.
    pub notes: Vec<String>,
}

/// Why there is no topology.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The list of CPUs is missing.
    #[error(
        "{0}: no CPU is listed; expected a folder that holds sys/devices/system/cpu, or proc/cpuinfo with processors"
    )]
    NoCpus(String),
    /// The result is not a valid machine.
    #[error("{path}: {error}; the dump is damaged or incomplete, gather it again")]
    Contradiction {
        /// The root.
        path: String,
        /// The contradiction.
        #[source]
        error: TopologyError,
    },
}

/// Reads this machine. Hidden CPUs on which this process may run are included.
///
/// # Errors
/// As [`read`].
pub fn live() -> Result<Discovered, ReadError> {
    read(&FsRoot::live(), Some(&own_cpus()))
}

/// The online CPUs allowed for this process; if refused, as many as the standard library counts.
fn own_cpus() -> CpuSet {
    sys::getaffinity(0).unwrap_or_else(|_| {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..count.min(MAX_CPUS)).map(|n| CpuId(n as u32)).collect()
    })
}

/// Reads the machine below `root`. No privileges are needed.
///
/// `fallback` names CPUs that exist although sysfs and `/proc/cpuinfo` hide them, as in some containers: from
/// `sched_getaffinity` or the number of online CPUs. Without other sources they form one package, with a note.
///
/// # Errors
/// [`ReadError`] without any CPU, or for an inconsistent machine.
pub fn read(root: &FsRoot, fallback: Option<&CpuSet>) -> Result<Discovered, ReadError> {
    let place = || root.path("/").display().to_string();
    let fs = Sysfs::new(root);
    let mut assembly = Assembly::default();
    let info = fs.text("/proc/cpuinfo").map(|text| parse::cpuinfo(&text)).unwrap_or_default();
    let mut allowed = fs.allowed(&mut assembly);
    let listed = match cpus::listed(&fs, &allowed, fallback, &mut assembly) {
        Some(listed) => listed,
        None => cpus::without_sysfs(&fs, &info, fallback, &mut assembly).ok_or_else(|| ReadError::NoCpus(place()))?,
    };
    let cpus::Listed { all, online, shown, has_topology } = listed;
    if all.len() > MAX_CPUS {
        let error = TopologyError::TooMany(format!("{} CPUs", all.len()));
        return Err(ReadError::Contradiction { path: place(), error });
    }
    let nodes::Memory { nodes, distances, accesses } = nodes::read(&fs, &online, &mut assembly);
    if has_topology {
        let caches = caches::listed(&fs, &online, &shown);
        let told = cpus::Told { shown: &shown, caches: &caches, nodes: &nodes, info: &info };
        let packages = cpus::read(&fs, &online, &told, &mut assembly);
        caches::insert(caches, &packages, &nodes, &info, &mut assembly);
    }
    if let (Some(cpuset), Some(task)) = (&allowed.cpus, &allowed.task)
        && !cpuset.intersects(&online)
        && task.intersects(&online)
    {
        assembly.note(format!("the cpuset allows CPUs {cpuset}, but this process may run on {task}; that is believed"));
        allowed.cpus.clone_from(&allowed.task);
    }
    let is_allowed = |set: &Option<CpuSet>, id| set.as_ref().is_none_or(|s| s.contains(id));
    let classes = kinds::classes(&fs, &online, &info);
    let mut parts = Parts {
        cpus: all
            .iter()
            .map(|id| Cpu {
                id,
                online: online.contains(id),
                allowed: online.contains(id) && is_allowed(&allowed.cpus, id),
                efficiency_class: classes.get(&id).copied(),
                coord: None,
            })
            .collect(),
        nodes,
        distances,
        accesses,
        ..Parts::default()
    };
    if parts.nodes.is_empty() {
        let bytes = fs.text("/proc/meminfo").and_then(|text| parse::mem_total(&text));
        parts.nodes.push(MemoryNode { id: NodeId(0), cpus: online, bytes, allowed: true, coord: None });
    } else {
        for node in &mut parts.nodes {
            // Sets of nodes are written and parsed like sets of CPUs.
            node.allowed = is_allowed(&allowed.mems, CpuId(node.id.0));
        }
    }
    if let Some(unread) = fs.unread() {
        assembly.note(unread);
    }
    let said = assembly.finish_into(&mut parts);
    let topology = Topology::new(parts).map_err(|error| ReadError::Contradiction { path: place(), error })?;
    Ok(Discovered { topology, notes: said })
}

#[cfg(test)]
mod tests;
