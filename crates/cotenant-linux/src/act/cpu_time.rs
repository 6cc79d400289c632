//! Limits of CPU time for programs that we start: `cpu.max` of cgroup v2, `cpu.cfs_quota_us` of v1.
//!
//! A limit is exact on average and says nothing of when. The kernel's period stays what it is (100 ms by default). A
//! program that runs already is not limited: it would have to be moved to another group.

use crate::act::groups::{self, Group, Hierarchy, LimitError};
use crate::act::pause::Job;
use crate::bounded::{self, Limit};
use crate::undo::Journal;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The period of version 2, and of version 1 where it cannot be read, microseconds.
const PERIOD_US: u64 = 100_000;

/// The least that the kernel takes, microseconds in a period.
const LEAST_US: u64 = 1_000;

/// A group with a limit.
#[derive(Debug)]
pub struct Quota {
    /// It, for what else is set of it.
    pub group: Group,
}

impl Quota {
    /// Makes the group of a program that is about to be started.
    ///
    /// # Errors
    /// [`LimitError`]
    pub fn make(journal: &mut Journal) -> Result<Self, LimitError> {
        let (hierarchy, parent, home) = place().ok_or(LimitError::NoController)?;
        Ok(Self { group: Group::limiting(journal, "cotenant-cpu", hierarchy, &parent, home)? })
    }

    /// Lets a command begin inside.
    ///
    /// # Errors
    /// Where the group is gone.
    pub fn enter(&self, command: &mut Command) -> Result<(), LimitError> {
        Ok(self.group.enter("cgroup.procs", command)?)
    }

    /// Whether its group is of version 2.
    pub fn is_v2(&self) -> bool {
        self.group.hierarchy == Hierarchy::V2
    }

    /// Its group as one that can be frozen, where that is the same: in version 2 a process has one group. Let the
    /// command enter by that, and resume it before the end.
    pub fn job(&self) -> Option<Job> {
        self.is_v2().then(|| Job::lent(&self.group))
    }

    /// Limits it to so many thousandths of a CPU from now on; `None` lifts the limit. What was written, as people read
    /// it.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set(&self, cpu_permille: Option<u32>) -> Result<String, LimitError> {
        let (file, value) = if self.is_v2() {
            let quota = cpu_permille.map_or_else(|| "max".to_owned(), |p| quota_us(p, PERIOD_US).to_string());
            ("cpu.max", format!("{quota} {PERIOD_US}"))
        } else {
            let read = bounded::text(self.group.path.join("cpu.cfs_period_us"), Limit::Value).ok();
            let period = read.and_then(|text| text.trim().parse().ok()).unwrap_or(PERIOD_US);
            let quota = cpu_permille.map_or_else(|| "-1".to_owned(), |p| quota_us(p, period).to_string());
            ("cpu.cfs_quota_us", quota)
        };
        self.group.limit(file, &value)?;
        Ok(format!("{file} {value}"))
    }

    /// Lifts the limit and removes the group; its members run on in our own.
    ///
    /// # Errors
    /// Where that fails; it stays journaled, and is undone at the end.
    pub fn end(self, journal: &mut Journal) -> Result<(), LimitError> {
        self.set(None)?;
        self.group.end(journal)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_v2() { "cpu.max" } else { "cpu.cfs_quota_us" })
    }
}

/// Microseconds of CPU time in each period.
fn quota_us(cpu_permille: u32, period_us: u64) -> u64 {
    (u64::from(cpu_permille) * period_us / 1000).max(LEAST_US)
}

/// The hierarchy, the group below which one with a limit can be made, and ours, to which its members go in the end:
/// tried.
pub fn place() -> Option<(Hierarchy, PathBuf, PathBuf)> {
    [Hierarchy::V2, Hierarchy::V1Cpu].into_iter().find_map(|hierarchy| {
        let home = groups::home(hierarchy)?;
        let parent = parents(hierarchy, &home).find(|parent| works(hierarchy, parent, &home))?.to_owned();
        Some((hierarchy, parent, home))
    })
}

/// Our own group, and in version 2 the one around it: a group with processes hands no controllers on to those below it,
/// but for the root.
fn parents(hierarchy: Hierarchy, home: &Path) -> impl Iterator<Item = &Path> {
    let beside = hierarchy == Hierarchy::V2 && !is_limited(home);
    let around = home.parent().filter(|around| beside && around.join("cgroup.procs").exists());
    std::iter::once(home).chain(around)
}

/// Whether a program that is started beside a group would escape a limit of it. That of processes, which systemd sets
/// everywhere, is not meant for us.
fn is_limited(group: &Path) -> bool {
    [("cpu.max", "max"), ("memory.max", "max"), ("memory.high", "max"), ("cpuset.cpus", "")].iter().any(
        |(file, none)| {
            let text = bounded::text(group.join(file), Limit::Value);
            text.is_ok_and(|text| text.split_whitespace().next().unwrap_or_default() != *none)
        },
    )
}

/// Whether limits can be set here.
#[cfg(test)]
pub(crate) fn works_here() -> bool {
    place().is_some()
}

fn works(hierarchy: Hierarchy, parent: &Path, home: &Path) -> bool {
    let (file, value) = if hierarchy == Hierarchy::V2 { ("cpu.max", "max 100000") } else { ("cpu.cfs_quota_us", "-1") };
    groups::works(hierarchy, parent, home, |probe| groups::write(&probe.path.join(file), value).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    #[test]
    fn beside_our_group_where_nothing_is_escaped() {
        let tree = TempDir::new("quota-place");
        let home = tree.path().join("slice/session");
        tree.write("slice/session/cgroup.procs", "");
        let of = |hierarchy| parents(hierarchy, &home).map(Path::to_owned).collect::<Vec<_>>();
        assert_eq!(of(Hierarchy::V2), std::slice::from_ref(&home), "around it is no group");
        tree.write("slice/cgroup.procs", "");
        assert_eq!(of(Hierarchy::V2), [home.clone(), tree.path().join("slice")]);
        assert_eq!(of(Hierarchy::V1Cpu), std::slice::from_ref(&home));
        for (file, none, some) in [
            ("cpu.max", "max 100000\n", "50000 100000\n"),
            ("memory.max", "max\n", "4096\n"),
            ("cpuset.cpus", "\n", "0-1\n"),
        ] {
            tree.write(&format!("slice/session/{file}"), some);
            assert_eq!(of(Hierarchy::V2), std::slice::from_ref(&home), "{file}");
            tree.write(&format!("slice/session/{file}"), none);
            assert_eq!(of(Hierarchy::V2).len(), 2, "{file}");
        }
    }

    #[test]
    fn quotas_are_shares_of_the_period() {
        assert_eq!(quota_us(500, 100_000), 50_000);
        assert_eq!(quota_us(1_500, 100_000), 150_000);
        assert_eq!(quota_us(1, 100_000), 1_000, "the least that the kernel takes");
    }
}
