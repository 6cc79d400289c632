//! The level of control groups at which one program yields to another. Groups share the CPU level by level: `cpu.idle`
//! and weights compare siblings. So the group where the paths of both programs part decides, on the branch of the
//! yielding program.

use crate::sys::cgroups;
use std::path::{Path, PathBuf};

/// Common beginning of all lines that refuse the background for its level or its measured effect.
pub const NO_EFFECT: &str = "the background has no effect";

/// A protected program, and the group with its share of CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    /// Its name.
    pub name: String,
    /// The group's folder.
    pub group: PathBuf,
}

/// The last common ancestor, which may be one of them.
pub fn common(one: &Path, other: &Path) -> PathBuf {
    let both = one.components().zip(other.components());
    both.take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
}

/// The group, on the path to `low`, that must be idle so that its program yields to that in `protected`; `None` if no
/// group contains only the former: they share CPU time thread by thread, or the latter is inside.
pub fn branch(low: &Path, protected: &Path) -> Option<PathBuf> {
    let around = common(low, protected);
    let next = low.strip_prefix(&around).ok()?.components().next()?;
    Some(around.join(next))
}

/// How a program would yield.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Means<'a> {
    /// Its group, with all its contents.
    Group(&'a Path),
    /// Its threads, in these groups.
    Threads(&'a [PathBuf]),
}

impl Means<'_> {
    /// The first protected program without an effect of these means.
    pub fn fails<'p>(&self, protected: &'p [Protected]) -> Option<Parting<'p>> {
        let (lows, idle) = match self {
            Self::Group(path) => (vec![*path], Some(*path)),
            Self::Threads(groups) => (groups.iter().map(PathBuf::as_path).collect(), None),
        };
        let mut pairs = lows.into_iter().flat_map(|low| protected.iter().map(move |kept| (low, kept)));
        let fails = |(low, kept): &(&Path, &Protected)| branch(low, &kept.group).as_deref() != idle;
        pairs.find(fails).map(|(low, kept)| Parting { low: low.to_owned(), kept })
    }
}

/// A protected program that gains nothing, or loses, by the background of one in that group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting<'a> {
    low: PathBuf,
    kept: &'a Protected,
}

impl Parting<'_> {
    /// In one line, with advice; `name` would yield.
    pub fn text(&self, name: &str, cpu: &CpuGroups) -> String {
        let Protected { name: kept, group } = self.kept;
        let Some(branch_of_low) = branch(&self.low, group) else {
            let inside = cpu.shown(&self.low);
            return format!("{name}: {kept} runs in {inside}, too, and would give way with it: {name} naps instead");
        };
        let other = branch(group, &self.low).unwrap_or_else(|| group.clone());
        let slice = group.parent().and_then(|around| slice(&cpu.mount, around));
        let slice = slice.map_or_else(String::new, |slice| format!(", as by systemd-run --scope --slice={slice} …,"));
        format!(
            "{name} runs in {}, {kept} in {}: {NO_EFFECT} between these, {name} naps instead; \
             start it beside {kept}{slice} or as --low of a cotenant that root runs",
            cpu.shown(&branch_of_low),
            cpu.shown(&other)
        )
    }
}

/// The groups that share CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGroups {
    mount: PathBuf,
    /// Of version 1.
    controller: Option<&'static str>,
}

impl CpuGroups {
    /// Those of the machine below `root`; `None` without any.
    pub fn find(root: &Path) -> Option<Self> {
        let second = cgroups::mounts(root, None).into_iter().map(|mount| (root.join(mount), None));
        let second = second.filter(|(mount, _)| cgroups::has_controller(mount, "cpu"));
        let first = cgroups::mounts(root, Some("cpu")).into_iter().map(|mount| (root.join(mount), Some("cpu")));
        let (mount, controller) = second.chain(first).next()?;
        Some(Self { mount, controller })
    }

    /// The root folder.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The group with the share of CPU time of a process's group: itself, or its nearest ancestor.
    pub fn share(&self, group: &Path) -> PathBuf {
        let has_share = |group: &Path| ["cpu.weight", "cpu.shares"].iter().any(|file| group.join(file).exists());
        let inside = group.ancestors().take_while(|group| group.starts_with(&self.mount) && *group != self.mount);
        inside.into_iter().find(|group| has_share(group)).unwrap_or(&self.mount).to_owned()
    }

    /// The one of a process; `None` if it has gone, or its group is invisible.
    pub fn of(&self, root: &Path, pid: u32) -> Option<PathBuf> {
        let group = cgroups::of(root, &pid.to_string(), self.controller)?;
        // A group outside of a container's view begins with `/..`.
        (!group.starts_with("/..")).then(|| self.share(&self.mount.join(group.trim_start_matches('/'))))
    }

    /// Those of some processes, each once.
    pub fn of_all(&self, root: &Path, pids: impl IntoIterator<Item = u32>) -> Vec<PathBuf> {
        /// Cached: servers have hundreds of processes in one group.
        const PROCESSES: usize = 64;
        let mut groups: Vec<PathBuf> = pids.into_iter().take(PROCESSES).filter_map(|pid| self.of(root, pid)).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// For people.
    pub fn shown(&self, group: &Path) -> String {
        match group.strip_prefix(&self.mount) {
            Ok(path) if path.as_os_str().is_empty() => "the root group".to_owned(),
            Ok(path) => path.display().to_string(),
            Err(_) => group.display().to_string(),
        }
    }
}

/// The systemd slice with that folder; `None` if it is none.
pub fn slice(mount: &Path, group: &Path) -> Option<String> {
    let path = group.strip_prefix(mount).ok()?;
    let names: Vec<&str> = path.iter().map(|name| name.to_str()).collect::<Option<_>>()?;
    names
        .iter()
        .all(|name| name.strip_suffix(".slice").is_some())
        .then(|| names.last().unwrap_or(&"-.slice").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    /// Promise qos/background: The background lies where the control groups of two programs part, or in their
    /// sessions; where it has no effect, both programs are named.
    #[test]
    fn the_branch_that_counts_is_where_the_ways_part() {
        for (low, protected, found) in [
            // A login against a service: all of user.slice.
            ("/user.slice/user-0.slice/session-1.scope", "/system.slice/db.service", Some("/user.slice")),
            ("/user.slice/user-0.slice/cotenant-1", "/system.slice/db.service", Some("/user.slice")),
            // Service against service, and two logins of one user.
            ("/system.slice/batch.service", "/system.slice/db.service", Some("/system.slice/batch.service")),
            ("/u/user-0.slice/cotenant-1", "/u/user-0.slice/session-1.scope", Some("/u/user-0.slice/cotenant-1")),
            // A service in a slice of its own kind, exclusive to it.
            ("/system.slice/a.slice/x.service", "/system.slice/db.service", Some("/system.slice/a.slice")),
            // Two users; a user's own manager against a service and against a login of the same user.
            ("/user.slice/user-1.slice/s.scope", "/user.slice/user-2.slice/s.scope", Some("/user.slice/user-1.slice")),
            (
                "/user.slice/user-1.slice/user@1.service/app.slice/x.scope",
                "/system.slice/db.service",
                Some("/user.slice"),
            ),
            (
                "/user.slice/user-1.slice/user@1.service/app.slice/x.scope",
                "/user.slice/user-1.slice/session-1.scope",
                Some("/user.slice/user-1.slice/user@1.service"),
            ),
            // Pods of two classes.
            (
                "/kubepods.slice/kubepods-besteffort.slice/p1/c",
                "/kubepods.slice/kubepods-burstable.slice/p2/c",
                Some("/kubepods.slice/kubepods-besteffort.slice"),
            ),
            ("/kubepods.slice/p1/c", "/system.slice/db.service", Some("/kubepods.slice")),
            // At the top by hand.
            ("/batch.slice", "/system.slice/db.service", Some("/batch.slice")),
            ("/cotenant-1.scope", "/user.slice/user-0.slice/session-1.scope", Some("/cotenant-1.scope")),
            // Below the group whose threads are the other's siblings.
            ("/cotenant-1", "/", Some("/cotenant-1")),
            // In one group, or with the other inside.
            ("/system.slice/db.service", "/system.slice/db.service", None),
            ("/", "/system.slice/db.service", None),
            ("/system.slice", "/system.slice/db.service", None),
            // Names with a common beginning.
            ("/system.slice/db", "/system.slice/db.service", Some("/system.slice/db")),
        ] {
            assert_eq!(branch(low.as_ref(), protected.as_ref()).as_deref(), found.map(Path::new), "{low} {protected}");
        }
    }

    fn kept(name: &str, group: &str) -> Protected {
        Protected { name: name.to_owned(), group: group.into() }
    }

    #[test]
    fn what_has_no_effect_is_said_by_the_names_of_both() {
        let cpu = CpuGroups { mount: "/c".into(), controller: None };
        let said = |means: Means<'_>, groups: &[&str]| {
            let protected: Vec<_> = groups.iter().map(|group| kept("postgres", group)).collect();
            means.fails(&protected).map(|parting| parting.text("gzip", &cpu))
        };
        let ours = Path::new("/c/user.slice/user-0.slice/cotenant-1");
        let text = said(Means::Group(ours), &["/c/user.slice/user-0.slice/s", "/c/system.slice/db.service"]).unwrap();
        assert!(text.starts_with("gzip runs in user.slice, postgres in system.slice: "), "{text}");
        assert!(text.contains("systemd-run --scope --slice=system.slice"), "{text}");
        for (means, groups, works) in [
            (Means::Group(ours), &["/c/user.slice/user-0.slice/session-1.scope"][..], true),
            (Means::Group(Path::new("/c/cotenant-1.scope")), &["/c/system.slice/db.service", "/c/user.slice/x"], true),
            (Means::Group(Path::new("/c/system.slice/batch.service")), &["/c/system.slice/db.service"], true),
            (Means::Group(Path::new("/c/system.slice/batch.service")), &["/c/user.slice/x"], false),
            (Means::Group(Path::new("/c/batch.slice")), &["/c/batch.slice/db.service"], false),
            // Threads yield to those of their own group, and to groups in it.
            (Means::Threads(&["/c/a".into()]), &["/c/a", "/c/a/b"], true),
            (Means::Threads(&["/c/a".into()]), &["/c/b"], false),
            (Means::Threads(&["/c/a".into(), "/c/b".into()]), &["/c/a"], false),
            (Means::Threads(&["/c/a".into()]), &["/c"], false),
            (Means::Threads(&[]), &["/c"], true),
        ] {
            assert_eq!(said(means.clone(), groups).is_none(), works, "{means:?} {groups:?}");
        }
        let text = said(Means::Group(Path::new("/c/batch.slice")), &["/c/batch.slice/db.service"]).unwrap();
        assert!(text.starts_with("gzip: postgres runs in batch.slice, too"), "{text}");
    }

    #[test]
    fn who_has_no_share_of_its_own_has_that_of_the_group_around_it() {
        let machine = TempDir::new("level");
        let root = machine.path();
        machine.write("proc/self/mounts", "c /g cgroup2 rw 0 0\n");
        machine.write("g/cgroup.controllers", "memory\n");
        assert_eq!(CpuGroups::find(root), None, "it portions out no CPU time");
        machine.write("g/cgroup.controllers", "cpuset cpu memory\n");
        let cpu = CpuGroups::find(root).unwrap();
        machine.write("g/system.slice/cpu.weight", "100");
        machine.write("g/system.slice/db.service/cgroup.procs", "");
        machine.write("g/user.slice/cgroup.procs", "");
        for (pid, group, share) in [
            (1, "/system.slice/db.service", Some("g/system.slice")),
            (2, "/system.slice", Some("g/system.slice")),
            (3, "/user.slice/a", Some("g")),
            (4, "/", Some("g")),
            (5, "/../other", None),
        ] {
            machine.write(&format!("proc/{pid}/cgroup"), format!("0::{group}\n"));
            assert_eq!(cpu.of(root, pid), share.map(|share| root.join(share)), "{group}");
        }
        assert_eq!(cpu.of_all(root, 1..=6).len(), 2, "each once");
        // If version 2 serves other purposes.
        machine.write("proc/self/mounts", "c /g cgroup2 rw 0 0\nc /v1 cgroup rw,cpu 0 0\n");
        machine.write("g/cgroup.controllers", "hugetlb\n");
        machine.write("proc/1/cgroup", "3:cpu:/a/b\n0::/system.slice\n");
        machine.write("v1/a/cpu.shares", "1024");
        assert_eq!(CpuGroups::find(root).unwrap().of(root, 1), Some(root.join("v1/a")));
    }

    #[test]
    fn slices_of_systemd_are_known_by_their_names() {
        for (group, found) in [
            ("/c", Some("-.slice")),
            ("/c/user.slice", Some("user.slice")),
            ("/c/user.slice/user-0.slice", Some("user-0.slice")),
            ("/c/user.slice/user-0.slice/session-1.scope", None),
            ("/c/system.slice/docker.service/x.slice", None),
            ("/c/mine", None),
            ("/other", None),
        ] {
            assert_eq!(slice("/c".as_ref(), group.as_ref()).as_deref(), found, "{group}");
        }
    }
}
