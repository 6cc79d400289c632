//! What this machine can do for Cotenant besides counting: each thing with what its absence costs and the least that
//! would help.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sense::capability::{Capability, Standing};
use crate::sense::memory;
use crate::sys::cgroups::{self, mounts};
use std::path::Path;

/// Looks below `root` (`/` on a live machine).
pub fn detect(root: &Path) -> Vec<Capability> {
    let mut all = vec![performance_events(root), memory_nodes(root)];
    all.extend(throttling(root));
    all.extend([resctrl(root), page_placement(root)]);
    all.extend(memory::capabilities(&FsRoot::at(root)));
    all
}

/// Those of them by which programs can be made to run less.
pub fn throttling(root: &Path) -> [Capability; 2] {
    [freezer(root), cpu_quota(root)]
}

pub(crate) fn text(root: &Path, path: &str) -> Option<String> {
    bounded::text(root.join(path), Limit::Machine).ok().map(|t| t.trim().to_owned())
}

fn performance_events(root: &Path) -> Capability {
    let name = "performance events";
    let Some(paranoid) = text(root, "proc/sys/kernel/perf_event_paranoid").and_then(|t| t.parse::<i32>().ok()) else {
        let cost = "no counters and no software events: only what /proc tells";
        return Capability::new(name, Standing::Missing, "the kernel was built without them", cost, "");
    };
    let found = format!("kernel.perf_event_paranoid = {paranoid}");
    let standing = if paranoid <= 2 { Standing::Available } else { Standing::Limited };
    let cost = "without privilege no counters of other programs";
    let remedy = "sysctl kernel.perf_event_paranoid=2, or setcap cap_perfmon+ep on the cotenant binary";
    Capability::new(name, standing, found, cost, remedy)
}

fn memory_nodes(root: &Path) -> Capability {
    let nodes = FsRoot::at(root).numbered("/sys/devices/system/node", "node").map_or(0, |nodes| nodes.len());
    let standing = if nodes > 1 { Standing::Available } else { Standing::Limited };
    let cost = "no memory is remote, so nothing can be gained by placing near memory";
    Capability::new("memory nodes", standing, format!("{} node(s)", nodes.max(1)), cost, "")
}

fn freezer(root: &Path) -> Capability {
    let v2 = mounts(root, None);
    let v1 = mounts(root, Some("freezer"));
    let (standing, found) = match (v2.first(), v1.first()) {
        (Some(place), _) => (Standing::Available, format!("cgroup v2 at /{place}")),
        (None, Some(place)) => (Standing::Available, format!("cgroup v1 at /{place}")),
        (None, None) => (Standing::Missing, "no cgroup hierarchy that can freeze is mounted".to_owned()),
    };
    let cost = "pausing a program falls back to SIGSTOP, which is too coarse for a few milliseconds";
    let remedy = "mount -t cgroup2 none /sys/fs/cgroup, or run below systemd with Delegate=yes";
    Capability::new("freezer", standing, found, cost, remedy)
}

fn cpu_quota(root: &Path) -> Capability {
    let v2 = mounts(root, None).into_iter().find(|place| names_cpu(root, &format!("{place}/cgroup.controllers")));
    let (standing, found) = match (v2, mounts(root, Some("cpu")).first()) {
        (Some(place), _) if hands_on_cpu(root, &place) => {
            (Standing::Available, format!("cpu.max, cgroup v2 at /{place}"))
        }
        (Some(place), _) => (
            Standing::Limited,
            format!("cgroup v2 at /{place} has it, but neither our group nor the one around it hands it on"),
        ),
        (None, Some(place)) => (Standing::Available, format!("cpu.cfs_quota_us, cgroup v1 at /{place}")),
        (None, None) => (Standing::Missing, "no cgroup hierarchy has the cpu controller".to_owned()),
    };
    let remedy = "systemd-run --scope -p CPUWeight=100 cotenant …; or, as root, echo +cpu > cgroup.subtree_control of the group around ours";
    Capability::new("CPU quota", standing, found, "programs cannot be throttled by quota", remedy)
}

/// Whether groups below the one in which we are, or beside it, have the cpu controller of version 2; also where it is
/// not told in which we are.
fn hands_on_cpu(root: &Path, mount: &str) -> bool {
    let Some(ours) = cgroups::own(root, None) else { return true };
    let ours = Path::new(ours.trim_start_matches('/'));
    let hands_on =
        |group: &Path| names_cpu(root, &Path::new(mount).join(group).join("cgroup.subtree_control").to_string_lossy());
    [Some(ours), ours.parent()].into_iter().flatten().any(hands_on)
}

/// Whether a list of controllers has that of CPU time.
fn names_cpu(root: &Path, list: &str) -> bool {
    text(root, list).is_some_and(|controllers| controllers.split_whitespace().any(|name| name == "cpu"))
}

fn resctrl(root: &Path) -> Capability {
    let mounted = root.join("sys/fs/resctrl/schemata").exists();
    let supported = text(root, "proc/filesystems").is_some_and(|t| t.lines().any(|l| l.ends_with("resctrl")));
    let (standing, found) = match (mounted, supported) {
        (true, _) => (Standing::Available, "mounted"),
        (false, true) => (Standing::Limited, "supported but not mounted"),
        (false, false) => (Standing::Missing, "not supported by this kernel or processor"),
    };
    let cost = "cache ways and memory bandwidth cannot be limited or monitored";
    let remedy = if supported { "mount -t resctrl resctrl /sys/fs/resctrl" } else { "" };
    Capability::new("resctrl", standing, found, cost, remedy)
}

fn page_placement(root: &Path) -> Capability {
    let standing = if root.join("proc/self/numa_maps").exists() { Standing::Available } else { Standing::Missing };
    let found = if standing == Standing::Available { "/proc/PID/numa_maps" } else { "no /proc/PID/numa_maps" };
    let cost = "pages cannot be told apart by memory node";
    Capability::new("page placement", standing, found, cost, "a kernel with CONFIG_NUMA")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("cotenant-capabilities-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn standing(all: &[Capability], name: &str) -> Standing {
        all.iter().find(|c| c.name == name).unwrap().standing
    }

    #[test]
    fn a_bare_container_has_nothing_and_says_what_it_costs() {
        let root = machine("bare", &[("proc/filesystems", "nodev\tproc\n")]);
        let all = detect(&root);
        for name in [
            "performance events",
            "freezer",
            "CPU quota",
            "resctrl",
            "page placement",
            "NUMA hinting faults",
            "accessed bits",
            "DAMON",
        ] {
            assert_eq!(standing(&all, name), Standing::Missing, "{name}");
        }
        assert!(all.iter().all(|c| !c.cost.is_empty()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_full_machine_lacks_nothing() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let root = machine(
            "full",
            &[
                ("proc/sys/kernel/perf_event_paranoid", "1\n"),
                ("proc/self/mounts", mounts),
                ("proc/self/numa_maps", ""),
                ("proc/self/clear_refs", ""),
                ("proc/self/smaps", ""),
                ("proc/self/sched", "numa_faults node=0 task_private=0 task_shared=0 group_private=0 group_shared=0\n"),
                ("proc/sys/kernel/numa_balancing", "1\n"),
                ("proc/kallsyms", "0000000000000000 t damon_va_check_accesses\n"),
                ("proc/kpageflags", ""),
                ("sys/kernel/mm/page_idle/bitmap", ""),
                ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
                ("sys/devices/system/node/node0/memory0/state", "online\n"),
                ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
                ("proc/filesystems", "nodev\tresctrl\n"),
                ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n"),
                ("sys/fs/resctrl/schemata", "L3:0=fff\n"),
                ("sys/devices/system/node/node0/cpulist", "0\n"),
                ("sys/devices/system/node/node1/cpulist", "1\n"),
            ],
        );
        assert!(detect(&root).iter().all(|c| c.standing == Standing::Available && c.remedy.is_empty()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_cpu_controller_must_be_handed_on_to_us() {
        for (groups, expected) in [
            (["", "", ""], Standing::Limited),
            (["memory", "memory cpu", ""], Standing::Available),
            (["cpu", "memory", ""], Standing::Limited),
        ] {
            let root = machine(
                "handed",
                &[
                    ("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"),
                    ("proc/self/cgroup", "0::/user.slice/session-1.scope\n"),
                    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n"),
                    ("sys/fs/cgroup/cgroup.subtree_control", groups[0]),
                    ("sys/fs/cgroup/user.slice/cgroup.subtree_control", groups[1]),
                    ("sys/fs/cgroup/user.slice/session-1.scope/cgroup.subtree_control", groups[2]),
                ],
            );
            assert_eq!(standing(&detect(&root), "CPU quota"), expected, "{groups:?}");
            fs::remove_dir_all(root).unwrap();
        }
    }

    #[test]
    fn version_one_hierarchies_count() {
        let mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n";
        let root = machine("v1", &[("proc/self/mounts", mounts), ("proc/sys/kernel/perf_event_paranoid", "4\n")]);
        let all = detect(&root);
        assert_eq!(standing(&all, "freezer"), Standing::Available);
        assert_eq!(standing(&all, "CPU quota"), Standing::Available);
        assert_eq!(standing(&all, "performance events"), Standing::Limited);
        fs::remove_dir_all(root).unwrap();
    }
}
