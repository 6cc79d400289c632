//! Reads hwloc's synthetic descriptions, `package:2 [numa] l3:1(size=25MiB) core:10 pu:2`, after hwloc's manual,
//! "Synthetic topologies".
//!
//! Like hwloc: types may be shortened to two letters or left out (`2 10 2`), nodes are a level (`numa:2`) or attached
//! to one (`[numa(memory=8GB)]`), and `indexes=` lists or interleaves the operating system's numbers. Unlike hwloc: a
//! missing size stays unknown instead of a default, and what hwloc silently ignores (unknown attributes, bad indexes)
//! is refused.

use super::assembly::Assembly;
use super::{CacheType, Cpu, Kind, MemoryNode, Parts, Resource, Topology};
use crate::{CpuId, CpuSet, NodeId};

mod indexes;
mod level;
mod scan;
mod scanner;

pub use level::{MAX_CPUS, SyntheticError};

use level::{Level, Type, error};
use scanner::Scanner;

/// Reads a machine.
///
/// # Errors
/// [`SyntheticError`] names the column.
pub fn parse(text: &str) -> Result<Topology, SyntheticError> {
    let mut s = Scanner::new(text);
    let (mut levels, attached_indexes) = scan::levels(&mut s)?;
    choose_types(&mut levels)?;
    check_types(&levels)?;
    let attached: usize = levels.iter().map(|l| l.width * l.attached.len()).sum();
    let nodes_are_a_level = levels.iter().any(|l| l.of == Some(Type::Node));
    if attached > MAX_CPUS {
        return Err(error(attached_indexes.at, format!("{attached} memory nodes; at most {MAX_CPUS} are accepted")));
    }
    let mut numbers = Vec::new();
    for level in &levels {
        numbers.push(level.indexes.resolve(&levels, level.width)?);
    }
    let mut build = Build {
        levels: &levels,
        next: vec![0; levels.len()],
        numbers,
        next_attached: 0,
        attached: attached_indexes.resolve(&levels, attached)?,
        parts: Parts::default(),
        assembly: Assembly::default(),
    };
    let all = build.object(0);
    let Build { mut parts, assembly, .. } = build;
    if attached == 0 && !nodes_are_a_level {
        parts.nodes.push(MemoryNode { id: NodeId(0), cpus: all, bytes: None, allowed: true, coord: None });
    }
    // Redundant groups are merged, as in hwloc, without a note.
    assembly.finish_into(&mut parts);
    Topology::new(parts).map_err(|e| error(0, e.to_string()))
}

/// Gives types to bare numbers as hwloc does: of the levels between machine and PU, memory nodes come first, then
/// packages, cores, up to four caches (L2, L1, L3, L1i), and groups for the rest.
fn choose_types(levels: &mut [Level]) -> Result<(), SyntheticError> {
    let last = levels.len() - 1;
    if levels[last].of.is_some_and(|t| t != Type::Pu) {
        return Err(error(levels[last].at, "the last level must be pu"));
    }
    let attached = levels.iter().any(|l| !l.attached.is_empty());
    levels[last].of = Some(Type::Pu);
    let between = &mut levels[1..last];
    let unset = between.iter().filter(|l| l.of.is_none()).count();
    if unset == 0 {
        return Ok(());
    }
    if let Some(typed) = between.iter().find(|l| l.of.is_some()) {
        return Err(error(typed.at, "levels with and without types cannot be mixed"));
    }
    let mut left = unset;
    let mut take = |wanted: usize| {
        let taken = wanted.min(left);
        left -= taken;
        taken
    };
    let nodes = take(usize::from(!attached));
    let (packages, cores, caches) = (take(1), take(1), take(4));
    let mut types: Vec<Type> = vec![Type::Group(None); left];
    types.extend([Type::Package].iter().take(packages));
    types.extend([Type::Node].iter().take(nodes));
    let by_count: &[Type] = &[
        Type::Cache(3, CacheType::Unified),
        Type::Cache(2, CacheType::Unified),
        Type::Cache(1, CacheType::Data),
        Type::Cache(1, CacheType::Instruction),
    ];
    let from = usize::from(caches < 3);
    types.extend(by_count[from..].iter().take(caches));
    types.extend([Type::Core].iter().take(cores));
    for (level, of) in between.iter_mut().zip(types) {
        level.of = Some(of);
    }
    Ok(())
}

/// Each type at most once (groups apart), nodes either as a level or attached; numbers the groups from the innermost
/// outward.
fn check_types(levels: &[Level]) -> Result<(), SyntheticError> {
    for (i, level) in levels.iter().enumerate() {
        let earlier = &levels[..i];
        if !matches!(level.of, Some(Type::Group(_))) && earlier.iter().any(|l| l.of == level.of) {
            return Err(error(level.at, "this type of level is there already"));
        }
        if level.of == Some(Type::Pu) && i + 1 != levels.len() {
            return Err(error(level.at, "only the last level can be pu"));
        }
        if level.of == Some(Type::Node) && levels.iter().any(|l| !l.attached.is_empty()) {
            return Err(error(level.at, "memory nodes are either a level or attached with [numa], not both"));
        }
    }
    Ok(())
}

struct Build<'a> {
    levels: &'a [Level],
    /// Objects created so far, by level.
    next: Vec<usize>,
    numbers: Vec<Option<Vec<u32>>>,
    next_attached: usize,
    attached: Option<Vec<u32>>,
    parts: Parts,
    assembly: Assembly,
}

impl Build<'_> {
    /// Creates one object of the level and all below it, in hwloc's order; returns its CPUs. Recurses at most
    /// [`MAX_LEVELS`] deep.
    fn object(&mut self, i: usize) -> CpuSet {
        let levels = self.levels;
        let level = &levels[i];
        let ordinal = self.next[i];
        self.next[i] += 1;
        let explicit = self.numbers[i].as_ref().map(|n| n[ordinal]);
        let number = explicit.unwrap_or(ordinal as u32);
        let mut cpus = CpuSet::new();
        if level.of == Some(Type::Pu) {
            let id = CpuId(number);
            self.parts.cpus.push(Cpu::online(id));
            cpus.insert(id);
        } else if let Some(below) = levels.get(i + 1) {
            for _ in 0..below.arity {
                cpus = cpus.or(&self.object(i + 1));
            }
        }
        let mut add = |kind, level, os_index, capacity| {
            let cpus = cpus.clone();
            self.assembly.insert(Resource { kind, level, cpus, capacity, os_index, line_size: None, ways: None });
        };
        match level.of {
            Some(Type::Package) => add(Kind::Package, 0, Some(number), None),
            Some(Type::Die) => add(Kind::Die, 0, Some(number), None),
            Some(Type::Core) => add(Kind::Core, 0, Some(number), None),
            Some(Type::Cache(depth, kind)) => add(Kind::Cache(kind), depth, explicit, level.bytes),
            Some(Type::Group(_)) => {
                let inside = levels[i + 1..].iter().filter(|l| matches!(l.of, Some(Type::Group(_)))).count();
                add(Kind::Cluster, inside as u8, explicit, None);
            }
            Some(Type::Node) => self.node(number, &cpus, level.bytes),
            Some(Type::Machine | Type::Pu) | None => {}
        }
        for &bytes in &level.attached {
            let ordinal = self.next_attached;
            self.next_attached += 1;
            let number = self.attached.as_ref().map_or(ordinal as u32, |n| n[ordinal]);
            self.node(number, &cpus, bytes);
        }
        cpus
    }

    fn node(&mut self, number: u32, cpus: &CpuSet, bytes: Option<u64>) {
        self.parts.nodes.push(MemoryNode { id: NodeId(number), cpus: cpus.clone(), bytes, allowed: true, coord: None });
    }
}

#[cfg(test)]
mod tests;
