//! The programs of a machine without a daemon: system services and others.

use crate::services::{SERVICES, units, without_mark};
use crate::summary::ProcessSummary;
use cotenant_linux::sense::census::Census;
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sys;
use cotenant_model::text;
use cotenant_setup::names;
use std::collections::{BTreeMap, BTreeSet};

/// The processes of a system service, or of all other processes that execute one program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The user of its first process.
    pub uid: u32,
    /// Its processes, for people.
    pub summary: ProcessSummary,
    /// Its processes.
    pub target: Target,
}

/// The system services and other programs of a machine, by name. `own` is the calling process, which is left out.
pub fn programs(census: &Census, own: u32) -> BTreeMap<String, Program> {
    let (ours, residents) = (sys::euid(), census.residents());
    let mut found: BTreeMap<String, (u32, BTreeSet<u32>, Option<&str>)> = BTreeMap::new();
    // Services of which some processes are left out.
    let mut in_part = BTreeSet::new();
    for (&pid, resident) in residents {
        let is_unit = |(name, _): &(&str, &str)| name.ends_with(".service");
        let unit = units(&resident.cgroup).find(is_unit).filter(|(_, path)| path.starts_with("/system.slice/"));
        if pid == own || ours != 0 && resident.uid != ours || census.has_opted_out(pid, resident) != Some(false) {
            in_part.extend(unit.map(|(_, path)| path));
            continue;
        }
        let of_unit = unit.map(|(name, _)| text::name(name.as_bytes()));
        // Preferably the link's name that people know: `redis-server`, whose file is `redis-check-rdb`.
        let link = || resident.called.iter().find(|called| called.proven).map(|called| &*called.name);
        let of_program = || Some(names::base(without_mark(link().or(resident.program.as_deref())?)));
        // Programs with secrets hide the path of their executable from other users.
        let Some(name) = of_unit.or_else(of_program).or_else(|| names::of_process(pid)) else { continue };
        let path = unit.map(|(_, path)| path);
        found.entry(name).or_insert_with(|| (resident.uid, BTreeSet::new(), path)).1.insert(pid);
    }
    let program = |(name, (uid, pids, unit)): (String, (u32, BTreeSet<u32>, Option<&str>))| {
        // A whole control group has counts of its own, such as its shortage of CPUs.
        let folder = unit.filter(|path| !in_part.contains(path)).and_then(|path| census.folder(path));
        let summary = ProcessSummary::of(&name, &pids, residents);
        let target = folder.map_or_else(|| Target::Pids(pids.into_iter().collect()), Target::Cgroup);
        (name, Program { uid, summary, target })
    };
    found.into_iter().take(SERVICES).map(program).collect()
}
