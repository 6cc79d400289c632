//! CPU limits for new programs: `cpu.max` of cgroup v2, `cpu.cfs_quota_us` of v1.
//!
//! A limit is exact on average but does not say when. The kernel's period is kept (100 ms by default). An already
//! running program is not limited, because it would have to change its group.

use crate::act::groups::{self, Group, GroupError, Hierarchy, Holder, LimitError, Manager};
use crate::act::level::{self, Protected};
use crate::act::pause::Job;
use crate::bounded::{self, Limit};
use crate::sense::capability::{Capability, Standing};
use crate::sys::cgroups;
use crate::undo::Journal;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The period of version 2, and of version 1 if unreadable, microseconds.
const PERIOD_US: u64 = 100_000;

/// The kernel's minimum, microseconds in a period.
const LEAST_US: u64 = 1_000;

/// A group with a limit.
#[derive(Debug)]
pub struct Quota {
    /// The group, for its other settings.
    pub group: Group,
    /// Keeps the group until the program is inside.
    holder: Option<Holder>,
    /// Files with our last written values, because systemd rewrites its own on reload.
    written: BTreeMap<&'static str, String>,
    /// Why systemd did not create it when it should have, in one line.
    pub refused: Option<String>,
}

impl Quota {
    /// Creates the group of a new program that yields to these.
    ///
    /// # Errors
    /// [`LimitError`]
    pub fn make(journal: &mut Journal, protected: &[Protected]) -> Result<Self, LimitError> {
        let Place { hierarchy, around, home } = place(protected).ok_or(LimitError::NoController)?;
        let manager = groups::mount(hierarchy).filter(|_| hierarchy == Hierarchy::V2);
        let manager = manager.and_then(|mount| Manager::here(&mount, &around));
        let asked = manager.map(|by| Group::asked(journal, "cotenant-cpu", &by, &around, home.clone()));
        let refused = match asked {
            Some(Ok((group, holder))) => return Ok(Self { holder: Some(holder), ..Self::of(group) }),
            Some(Err(why)) => Some(format!("systemd has made no scope, the group is made without it: {why}")),
            None => None,
        };
        let group = Group::limiting(journal, "cotenant-cpu", hierarchy, &around, home)?;
        Ok(Self { refused, ..Self::of(group) })
    }

    /// For an existing group.
    pub(crate) fn of(group: Group) -> Self {
        Self { group, holder: None, written: BTreeMap::new(), refused: None }
    }

    /// The program is inside.
    pub fn began(&mut self) {
        self.holder = None;
    }

    /// Writes a file of its group. Nothing to do if that has gone: systemd removes it with its last member.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn write(&mut self, file: &'static str, value: &str) -> Result<(), LimitError> {
        match self.group.limit(file, value) {
            Err(LimitError::Group(GroupError { why, .. })) if groups::gone(&why) => return Ok(()),
            written => written?,
        }
        self.written.insert(file, value.to_owned());
        Ok(())
    }

    /// Rewrites values that were overwritten, as systemd does on reload.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn tend(&self) -> Result<(), LimitError> {
        let differs = |(file, value): &(&&'static str, &String)| {
            bounded::text(self.group.path.join(file), Limit::Value).is_ok_and(|text| text.trim() != *value)
        };
        self.written.iter().filter(differs).try_for_each(|(file, value)| self.group.limit(file, value))
    }

    /// Starts a command inside.
    ///
    /// # Errors
    /// If the group has gone.
    pub fn enter(&self, command: &mut Command) -> Result<(), LimitError> {
        Ok(self.group.enter("cgroup.procs", command)?)
    }

    /// Whether its group is of version 2.
    pub fn is_v2(&self) -> bool {
        self.group.hierarchy == Hierarchy::V2
    }

    /// Its group as one to freeze, if it is the same: in version 2 a process has one group. The command must enter by
    /// that, and be resumed before the end.
    pub fn job(&self) -> Option<Job> {
        self.is_v2().then(|| Job::lent(&self.group))
    }

    /// Limits it to this many thousandths of a CPU from now on; `None` lifts the limit. Returns the written text for
    /// people.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&mut self, cpu_permille: Option<u32>) -> Result<String, LimitError> {
        let (file, value) = if self.is_v2() {
            let quota = cpu_permille.map_or_else(|| "max".to_owned(), |p| quota_us(p, PERIOD_US).to_string());
            ("cpu.max", format!("{quota} {PERIOD_US}"))
        } else {
            let read = bounded::text(self.group.path.join("cpu.cfs_period_us"), Limit::Value).ok();
            let period = read.and_then(|text| text.trim().parse().ok()).unwrap_or(PERIOD_US);
            let quota = cpu_permille.map_or_else(|| "-1".to_owned(), |p| quota_us(p, period).to_string());
            ("cpu.cfs_quota_us", quota)
        };
        self.write(file, &value)?;
        Ok(format!("{file} {value}"))
    }

    /// Lifts the limit and removes the group; its members continue in ours.
    ///
    /// # Errors
    /// If that fails; it stays journaled, and is undone at the end.
    pub fn end(mut self, journal: &mut Journal) -> Result<(), LimitError> {
        self.holder = None;
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

/// The place for groups with limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The hierarchy.
    pub hierarchy: Hierarchy,
    /// The group below which they are created.
    pub around: PathBuf,
    /// Our own, to which members move at the end.
    pub home: PathBuf,
}

/// The place for a program's group that yields to these, otherwise for any group: tried.
pub fn place(protected: &[Protected]) -> Option<Place> {
    [Hierarchy::V2, Hierarchy::V1Cpu].into_iter().find_map(|hierarchy| {
        let (home, mount) = (groups::home(hierarchy)?, groups::mount(hierarchy)?);
        let around = places(hierarchy, &mount, &home, protected);
        let around = around.into_iter().find(|around| works(hierarchy, around, &home).is_ok())?;
        Some(Place { hierarchy, around, home })
    })
}

/// Possible parents, best first: the last group around our own and all protected ones, whose idle children yield to
/// them, and its parent. In version 2 a group with processes passes no controllers on, except for the root.
fn places(hierarchy: Hierarchy, mount: &Path, home: &Path, protected: &[Protected]) -> Vec<PathBuf> {
    let kept = protected.iter().map(|kept| &*kept.group).filter(|group| group.starts_with(mount));
    let all = kept.fold(home.to_owned(), |all, group| level::common(&all, group));
    let further = all.parent().filter(|around| hierarchy == Hierarchy::V2 && around.starts_with(mount));
    let best = [Some(&*all), further].into_iter().flatten().map(Path::to_owned);
    let here = [Some(home), home.parent().filter(|_| hierarchy == Hierarchy::V2)].into_iter().flatten();
    let here = here.filter(|around| around.join("cgroup.procs").exists()).map(Path::to_owned);
    let mut places: Vec<PathBuf> = Vec::new();
    for place in best.chain(here) {
        let between = home.ancestors().take_while(|group| *group != place);
        if !places.contains(&place) && !between.into_iter().any(is_limited) {
            places.push(place);
        }
    }
    places
}

/// Whether a program outside of a group would escape one of its limits. The limit of processes, which systemd sets
/// everywhere, does not count.
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
    place(&[]).is_some()
}

fn works(hierarchy: Hierarchy, parent: &Path, home: &Path) -> Result<(), String> {
    let (file, value) = if hierarchy == Hierarchy::V2 { ("cpu.max", "max 100000") } else { ("cpu.cfs_quota_us", "-1") };
    groups::works(hierarchy, parent, home, |probe| match groups::write(&probe.path.join(file), value) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::other("the group around it does not hand on the cpu controller"))
        }
        written => written,
    })
}

/// Whether CPU time can be limited here, tried.
pub fn capability() -> Capability {
    let (standing, found) = match place(&[]) {
        Some(Place { hierarchy: Hierarchy::V2, around, .. }) => {
            (Standing::Available, format!("cpu.max, cgroup v2, below {}", around.display()))
        }
        Some(place) => (Standing::Available, format!("cpu.cfs_quota_us, cgroup v1, below {}", place.around.display())),
        None => (Standing::Missing, why_not()),
    };
    let remedy = "systemd-run --scope -p CPUWeight=100 cotenant …; or, as root, echo +cpu > cgroup.subtree_control of \
                  the group around ours";
    Capability::new("CPU quota", standing, found, "programs cannot be throttled by quota", remedy)
}

/// Why not, by the first usable hierarchy.
fn why_not() -> String {
    let there = |hierarchy: &Hierarchy| {
        let has_cpu = |mount: &Path| *hierarchy == Hierarchy::V1Cpu || cgroups::has_controller(mount, "cpu");
        groups::mount(*hierarchy).is_some_and(|mount| has_cpu(&mount))
    };
    let Some(hierarchy) = [Hierarchy::V2, Hierarchy::V1Cpu].into_iter().find(there) else {
        return "no cgroup hierarchy has the cpu controller".to_owned();
    };
    let Some((home, mount)) = groups::home(hierarchy).zip(groups::mount(hierarchy)) else {
        return "our control group cannot be seen here".to_owned();
    };
    let around = places(hierarchy, &mount, &home, &[]).into_iter().next();
    around.map_or_else(
        || format!("{} is limited, and a group beside it would escape that", home.display()),
        |around| works(hierarchy, &around, &home).err().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    fn kept(groups: &[PathBuf]) -> Vec<Protected> {
        groups.iter().map(|group| Protected { name: "server".to_owned(), group: group.clone() }).collect()
    }

    /// Promise undo/limits: CPU limits, frozen groups, cache groups, weights and scheduling policies are given back
    /// after every kind of end, also across upgrades.
    #[test]
    fn beside_our_group_where_nothing_is_escaped() {
        let tree = TempDir::new("quota-place");
        let (root, home) = (tree.path().to_owned(), tree.path().join("slice/session"));
        tree.write("slice/session/cgroup.procs", "");
        let of = |hierarchy, protected: &[&str]| {
            let groups: Vec<PathBuf> = protected.iter().map(|group| root.join(group)).collect();
            let found = places(hierarchy, &root, &home, &kept(&groups));
            let short = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
            found.iter().map(short).collect::<Vec<_>>()
        };
        tree.write("slice/cgroup.procs", "");
        for protected in [&[][..], &["slice/session"]] {
            assert_eq!(of(Hierarchy::V2, protected), ["slice/session", "slice"]);
            assert_eq!(of(Hierarchy::V1Cpu, protected), ["slice/session"]);
        }
        // The parting of the paths: at the top, or between two sessions.
        assert_eq!(of(Hierarchy::V2, &["system/db"]), ["", "slice/session", "slice"]);
        assert_eq!(of(Hierarchy::V2, &["slice/other"]), ["slice", "", "slice/session"]);
        assert_eq!(of(Hierarchy::V2, &["slice/other", "system/db"]), ["", "slice/session", "slice"]);
        assert_eq!(of(Hierarchy::V1Cpu, &["system/db"]), ["", "slice/session"]);
        for (file, none, some) in [
            ("cpu.max", "max 100000\n", "50000 100000\n"),
            ("memory.max", "max\n", "4096\n"),
            ("cpuset.cpus", "\n", "0-1\n"),
        ] {
            tree.write(&format!("slice/session/{file}"), some);
            assert_eq!(of(Hierarchy::V2, &["system/db"]), ["slice/session"], "{file}");
            tree.write(&format!("slice/session/{file}"), none);
            tree.write(&format!("slice/{file}"), some);
            assert_eq!(of(Hierarchy::V2, &["system/db"]), ["slice/session", "slice"], "{file} of the slice");
            tree.write(&format!("slice/{file}"), none);
        }
    }

    #[test]
    fn what_a_systemd_writes_over_is_written_again() {
        let tree = TempDir::new("quota-tend");
        let mut quota = Quota::of(Group { hierarchy: Hierarchy::V2, path: tree.path().to_owned(), home: None });
        let has = |file: &str| std::fs::read_to_string(tree.path().join(file)).unwrap();
        tree.write("cpu.max", "max 100000\n");
        tree.write("cpu.idle", "0\n");
        quota.tend().unwrap();
        assert_eq!([has("cpu.max"), has("cpu.idle")], ["max 100000\n", "0\n"], "nothing was written yet");
        quota.set(Some(500)).unwrap();
        quota.write("cpu.idle", "1").unwrap();
        tree.write("cpu.max", "max 100000\n");
        tree.write("cpu.idle", "0\n");
        quota.tend().unwrap();
        assert_eq!([&has("cpu.max")[..12], &has("cpu.idle")[..1]], ["50000 100000", "1"]);
        tree.write("cpu.idle", "1\n");
        quota.tend().unwrap();
        assert_eq!(has("cpu.idle"), "1\n", "it is as it was written");
    }

    #[test]
    fn quotas_are_shares_of_the_period() {
        assert_eq!(quota_us(500, 100_000), 50_000);
        assert_eq!(quota_us(1_500, 100_000), 150_000);
        assert_eq!(quota_us(1, 100_000), 1_000, "the least that the kernel takes");
    }
}
