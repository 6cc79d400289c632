//! Shared levels: measured latencies against the system's claims.

use cotenant_model::profile::calibration::Difference;
use cotenant_model::topology::hidden::{Level, Role};
use cotenant_model::{CpuId, CpuSet, Topology};

/// The differences between measured latencies and the system's claims about these CPUs. Claims that latencies cannot
/// show (one group, or each CPU alone) are ignored.
pub fn differences(topology: &Topology, cpus: &[CpuId], levels: &[Level]) -> Vec<Difference> {
    let of: CpuSet = cpus.iter().copied().collect();
    let claim = |sets: &mut dyn Iterator<Item = &CpuSet>| {
        let mut groups: Vec<CpuSet> = sets.map(|set| set.and(&of)).filter(|set| !set.is_empty()).collect();
        groups.sort_by_key(CpuSet::first);
        groups
    };
    let claims = [
        (Role::Core, claim(&mut topology.cores().iter())),
        (Role::Llc, claim(&mut topology.llc_domains().iter().map(|domain| &domain.cpus))),
        (Role::Package, claim(&mut topology.packages().iter())),
    ];
    let shows = |groups: &[CpuSet]| groups.len() > 1 && groups.iter().any(|group| group.len() > 1);
    let mut all = Vec::new();
    for level in levels.iter().filter(|level| claims.iter().all(|(_, claimed)| *claimed != level.groups)) {
        let role = if level.role == Role::LlcOrPackage { Role::Llc } else { level.role };
        let claimed = claims.iter().find(|(claimed, _)| *claimed == role).map_or(&[][..], |(_, groups)| groups);
        let without =
            |these: &[CpuSet], those: &[CpuSet]| these.iter().filter(|set| !those.contains(set)).cloned().collect();
        all.push(Difference {
            role: level.role,
            found: without(&level.groups, claimed),
            claimed: without(claimed, &level.groups),
        });
    }
    for (i, (role, claimed)) in claims.iter().enumerate().filter(|(_, (_, claimed))| shows(claimed)) {
        let is = |said: Role| said == *role || (said == Role::LlcOrPackage && *role == Role::Llc);
        let known = levels.iter().any(|level| level.groups == *claimed || is(level.role));
        // Packages with one cache each are mentioned once.
        let said = claims[..i].iter().any(|(_, other)| other == claimed);
        if !known && !said {
            all.push(Difference { role: *role, found: Vec::new(), claimed: claimed.clone() });
        }
    }
    all
}
