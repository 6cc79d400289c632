//! Limits of CPU time for programs that we start: `cpu.max` of cgroup v2, `cpu.cfs_quota_us` of v1; and the background, `cpu.idle`.
//!
//! A limit is exact on average and says nothing of when. The kernel's period stays what it is (100 ms by default). The group is
//! journaled before it is made, so that the guardian, or `cotenant restore`, lifts the limit and removes it however Cotenant ends.

use crate::act::pause::group::{self, Group};
use crate::act::pause::undo;
use crate::act::pause::{Hierarchy, Job};
use crate::act::placement::Applier;
use crate::fault::point;
use crate::sys;
use crate::undo::journal::{Owner, Record};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The period of version 2, and of version 1 where it cannot be read, microseconds.
const PERIOD_US: u64 = 100_000;

/// The least that the kernel takes, microseconds in a period.
const LEAST_US: u64 = 1_000;

/// Why there is no limit.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// No hierarchy has the controller where we may make groups.
    #[error(
        "CPU time cannot be limited here: no control group with the cpu controller in which groups can be made; \
         run as root, in a scope with that controller (systemd-run --scope -p CPUWeight=100 cotenant …), or use --means auto"
    )]
    None,
    /// A file of the group cannot be written.
    #[error("{path}: {why}; see cotenant doctor for what would help", path = .path.display())]
    Group {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// Nothing can be journaled, so nothing is limited.
    #[error("nothing is limited: {0}")]
    Journal(String),
}

/// A group with a limit.
#[derive(Debug)]
pub struct Quota {
    group: Group,
}

impl Quota {
    /// Makes the group of a program that is about to be started.
    ///
    /// # Errors
    /// [`QuotaError`]
    pub fn make(applier: &mut Applier) -> Result<Self, QuotaError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (hierarchy, parent, home) = place().ok_or(QuotaError::None)?;
        let me = Owner::me().map_err(|why| QuotaError::Journal(why.to_string()))?;
        let name = format!("cotenant-cpu-{}-{}-{}", me.pid, me.start, MADE.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(name);
        let record = Record::Group { hierarchy, path: path.clone(), home: Some(home.clone()) };
        applier.journal_pause(&record).map_err(QuotaError::Journal)?;
        let group = Group { hierarchy, path, home: Some(home) };
        point("quota.make.before");
        group.make().map_err(|why| QuotaError::Journal(why.to_string()))?;
        point("quota.make.after");
        Ok(Self { group })
    }

    /// Lets a command begin inside.
    ///
    /// # Errors
    /// Where the group is gone.
    pub fn enter(&self, command: &mut Command) -> Result<(), QuotaError> {
        let path = self.group.path.join("cgroup.procs");
        let procs = OpenOptions::new().write(true).open(&path).map_err(|why| QuotaError::Group { path, why })?;
        // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
        unsafe {
            command.pre_exec(move || sys::write_some(procs.as_fd(), b"0"));
        }
        Ok(())
    }

    /// Whether its group is of version 2.
    pub fn is_v2(&self) -> bool {
        self.group.hierarchy == Hierarchy::V2
    }

    /// Its group as one that can be frozen, where that is the same: in version 2 a process has one group. Let the command enter by that,
    /// and resume it before the end.
    pub fn job(&self) -> Option<Job> {
        self.is_v2().then(|| Job::lent(&self.group))
    }

    /// Limits it to so many thousandths of a CPU from now on; `None` lifts the limit. What was written, as people read it.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set(&self, cpu_permille: Option<u32>) -> Result<String, QuotaError> {
        let (file, value) = if self.is_v2() {
            let quota = cpu_permille.map_or_else(|| "max".to_owned(), |p| quota_us(p, PERIOD_US).to_string());
            ("cpu.max", format!("{quota} {PERIOD_US}"))
        } else {
            let read = fs::read_to_string(self.group.path.join("cpu.cfs_period_us")).ok();
            let period = read.and_then(|text| text.trim().parse().ok()).unwrap_or(PERIOD_US);
            let quota = cpu_permille.map_or_else(|| "-1".to_owned(), |p| quota_us(p, period).to_string());
            ("cpu.cfs_quota_us", quota)
        };
        let path = self.group.path.join(file);
        point("quota.set.before");
        let set = group::write(&path, &value);
        point("quota.set.after");
        set.map_err(|why| QuotaError::Group { path, why })?;
        Ok(format!("{file} {value}"))
    }

    /// Lets who is in it run only where nobody else wants the CPU (`cpu.idle`, Linux 5.15; before that the least weight), or beside the
    /// others again. Others are those in groups beside it: control groups share the CPU level by level. What was written, as people read it.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn background(&self, on: bool) -> Result<String, QuotaError> {
        let weight = if self.is_v2() { ("cpu.weight", ["100", "1"]) } else { ("cpu.shares", ["1024", "2"]) };
        let idle = ("cpu.idle", ["0", "1"]);
        let (file, values) = if self.group.path.join(idle.0).exists() { idle } else { weight };
        let (path, value) = (self.group.path.join(file), values[usize::from(on)]);
        group::write(&path, value).map_err(|why| QuotaError::Group { path, why })?;
        Ok(format!("{file} {value}"))
    }

    /// Lifts the limit and removes the group; who is in it runs on in our own.
    ///
    /// # Errors
    /// Where that fails; it stays journaled, for whoever undoes it at the end.
    pub fn end(self, applier: &mut Applier) -> Result<(), QuotaError> {
        point("quota.end.before");
        self.set(None)?;
        undo::dissolve(&self.group).map_err(|why| QuotaError::Journal(why.to_string()))?;
        point("quota.end.after");
        let _ = applier.journal_pause(&Record::Ungroup { path: self.group.path });
        Ok(())
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

/// The hierarchy, the group below which one with a limit can be made, and ours, to which who is in it goes in the end: tried.
fn place() -> Option<(Hierarchy, PathBuf, PathBuf)> {
    [Hierarchy::V2, Hierarchy::V1Cpu].into_iter().find_map(|hierarchy| {
        let home = group::home(hierarchy)?;
        let parent = parents(hierarchy, &home).find(|parent| works(hierarchy, parent, &home))?.to_owned();
        Some((hierarchy, parent, home))
    })
}

/// Our own group, and in version 2 the one around it: a group with processes hands no controllers on to those below it, but for the root.
fn parents(hierarchy: Hierarchy, home: &Path) -> impl Iterator<Item = &Path> {
    let beside = hierarchy == Hierarchy::V2 && !is_limited(home);
    let around = home.parent().filter(|around| beside && around.join("cgroup.procs").exists());
    std::iter::once(home).chain(around)
}

/// Whether who is started beside a group would escape a limit of it. That of processes, which systemd sets everywhere, is not meant for us.
fn is_limited(group: &Path) -> bool {
    [("cpu.max", "max"), ("memory.max", "max"), ("memory.high", "max"), ("cpuset.cpus", "")].iter().any(
        |(file, none)| {
            let text = fs::read_to_string(group.join(file));
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
    let file = if hierarchy == Hierarchy::V2 { "cpu.max" } else { "cpu.cfs_quota_us" };
    let probe = parent.join(format!("cotenant-probe-{}-{:?}", std::process::id(), std::thread::current().id()));
    if fs::create_dir(&probe).is_err() {
        return false;
    }
    let value = if hierarchy == Hierarchy::V2 { "max 100000" } else { "-1" };
    // Who moves a process needs the right to write the list of what is around both groups, too.
    let writable = group::write(&probe.join(file), value).is_ok()
        && [home, parent].iter().all(|group| OpenOptions::new().write(true).open(group.join("cgroup.procs")).is_ok());
    fs::remove_dir(&probe).is_ok() && writable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use crate::tests::options;

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
    fn the_background_is_told_to_the_kernel_and_taken_back() {
        if !works_here() {
            eprintln!("skipped: CPU time cannot be limited here");
            return;
        }
        let state = TempDir::new("quota-background");
        let mut applier = Applier::new(options(state.path())).unwrap();
        let quota = Quota::make(&mut applier).unwrap();
        let path = quota.group.path.clone();
        for on in [true, false] {
            let said = quota.background(on).unwrap();
            let (file, value) = said.split_once(' ').unwrap();
            assert_eq!(fs::read_to_string(path.join(file)).unwrap().trim(), value);
            assert!(["cpu.idle 1", "cpu.weight 1", "cpu.shares 2"].contains(&said.as_str()) == on, "{on}: {said}");
        }
        quota.background(true).unwrap();
        quota.end(&mut applier).unwrap();
        assert!(!path.exists() && applier.finish().failed == 0);
    }

    /// Kernels that know no `cpu.idle` give the least weight.
    #[test]
    fn before_linux_5_15_the_background_is_the_least_weight() {
        for (hierarchy, file, values) in
            [(Hierarchy::V2, "cpu.weight", ["1", "100"]), (Hierarchy::V1Cpu, "cpu.shares", ["2", "1024"])]
        {
            let tree = TempDir::new("quota-weight");
            tree.write(file, "");
            let quota = Quota { group: Group { hierarchy, path: tree.path().to_owned(), home: None } };
            for (on, value) in [true, false].into_iter().zip(values) {
                assert_eq!(quota.background(on).unwrap(), format!("{file} {value}"));
                assert_eq!(fs::read_to_string(tree.path().join(file)).unwrap(), value);
            }
            tree.write("cpu.idle", "");
            assert_eq!(quota.background(true).unwrap(), "cpu.idle 1");
        }
    }

    #[test]
    fn quotas_are_shares_of_the_period() {
        assert_eq!(quota_us(500, 100_000), 50_000);
        assert_eq!(quota_us(1_500, 100_000), 150_000);
        assert_eq!(quota_us(1, 100_000), 1_000, "the least that the kernel takes");
    }
}
