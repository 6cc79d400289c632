//! Assembles resources as hwloc does, so that contradictory firmware still gives a machine.

use super::{Kind, Parts, Resource};
use crate::CpuSet;

/// Collects resources; those that contradict an earlier one are dropped with a note.
#[derive(Debug, Default)]
pub struct Assembly {
    resources: Vec<Resource>,
    /// Per CPU number: indexes into `resources`.
    holding: Vec<Vec<usize>>,
    notes: Vec<String>,
}

impl Assembly {
    /// Adds a resource. Empty and known ones are ignored; one that crosses another (common CPUs, but neither contains
    /// the other) is dropped, as in hwloc: caches and packages nest.
    pub fn insert(&mut self, resource: Resource) {
        let Some(last) = resource.cpus.last() else { return };
        if self.holding.len() <= last.index() {
            self.holding.resize(last.index() + 1, Vec::new());
        }
        let same = |r: &Resource| (r.kind, r.level) == (resource.kind, resource.level);
        for &i in resource.cpus.iter().flat_map(|cpu| &self.holding[cpu.index()]) {
            let other = &self.resources[i];
            if same(other) && other.cpus == resource.cpus {
                return;
            }
            let nested = resource.cpus.is_subset(&other.cpus) || other.cpus.is_subset(&resource.cpus);
            if !nested || same(other) {
                self.notes.push(format!(
                    "{} of CPUs {} contradicts {} of CPUs {}; it is left out",
                    name(&resource),
                    resource.cpus,
                    name(other),
                    other.cpus
                ));
                return;
            }
        }
        for cpu in resource.cpus.iter() {
            self.holding[cpu.index()].push(self.resources.len());
        }
        self.resources.push(resource);
    }

    /// Adds a note for the user on how the machine was read.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The resources and notes. As in hwloc, redundant clusters and dies are dropped: a cluster with the CPUs of
    /// another resource or of the whole machine, a die with those of its package.
    pub fn finish(self, online: &CpuSet) -> (Vec<Resource>, Vec<String>) {
        let Self { resources, holding, notes } = self;
        let redundant = |r: &Resource| {
            let mut twins = r
                .cpus
                .first()
                .into_iter()
                .flat_map(|cpu| &holding[cpu.index()])
                .map(|&i| &resources[i])
                .filter(|other| other.cpus == r.cpus);
            match r.kind {
                Kind::Cluster => r.cpus == *online || twins.any(|t| (t.kind, t.level) != (r.kind, r.level)),
                Kind::Die => twins.any(|t| t.kind == Kind::Package),
                _ => false,
            }
        };
        let kept = resources.iter().filter(|r| !redundant(r)).cloned().collect();
        (kept, notes)
    }

    /// [`Self::finish`] into `parts`, whose CPUs are already known; returns the notes.
    pub fn finish_into(self, parts: &mut Parts) -> Vec<String> {
        let online = parts.cpus.iter().filter(|c| c.online).map(|c| c.id).collect();
        let (resources, notes) = self.finish(&online);
        parts.resources.extend(resources);
        notes
    }
}

fn name(r: &Resource) -> String {
    match r.kind {
        Kind::Cache(kind) => format!("the L{} {kind:?} cache", r.level),
        kind => format!("the {kind:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CacheType;
    use super::*;

    fn resource(kind: Kind, level: u8, cpus: &str) -> Resource {
        let cpus = CpuSet::parse_list(cpus).unwrap();
        Resource { kind, level, cpus, capacity: None, os_index: None, line_size: None, ways: None }
    }

    #[test]
    fn what_crosses_is_left_out_and_noted() {
        let mut a = Assembly::default();
        a.insert(resource(Kind::Package, 0, "0-3"));
        a.insert(resource(Kind::Package, 0, "0-3")); // known already: silent
        a.insert(resource(Kind::Package, 0, "2-5")); // crosses
        a.insert(resource(Kind::Cache(CacheType::Unified), 3, "3-4")); // crosses a package
        a.insert(resource(Kind::Package, 0, "0-1")); // packages do not nest
        a.insert(resource(Kind::Package, 0, ""));
        let (resources, notes) = a.finish(&CpuSet::parse_list("0-5").unwrap());
        assert_eq!((resources.len(), notes.len()), (1, 3), "{notes:?}");
        assert!(notes[1].contains("L3 Unified cache of CPUs 3-4 contradicts the Package of CPUs 0-3"), "{notes:?}");
    }

    #[test]
    fn clusters_and_dies_that_say_nothing_new_are_dropped() {
        let mut a = Assembly::default();
        a.insert(resource(Kind::Cluster, 0, "0-1")); // the L2
        a.insert(resource(Kind::Cluster, 0, "2-3"));
        a.insert(resource(Kind::Cache(CacheType::Unified), 2, "0-1"));
        a.insert(resource(Kind::Die, 0, "0-3")); // the package
        a.insert(resource(Kind::Package, 0, "0-3"));
        a.insert(resource(Kind::Die, 0, "4-5"));
        let (resources, _) = a.finish(&CpuSet::parse_list("0-5").unwrap());
        let left: Vec<_> = resources.iter().map(|r| (r.kind, r.cpus.to_string())).collect();
        assert_eq!(
            left,
            [
                (Kind::Cluster, "2-3".to_owned()),
                (Kind::Cache(CacheType::Unified), "0-1".to_owned()),
                (Kind::Package, "0-3".to_owned()),
                (Kind::Die, "4-5".to_owned())
            ]
        );
    }
}
