//! Capabilities of this machine besides counting: each with the cost of its absence and the smallest remedy.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sense::capability::{Capability, Standing};
use crate::sense::memory;
use crate::sense::perf;
use crate::sense::tier::events_remedy;
use crate::sys::cgroups;
use cotenant_bpf::{Blind, Requests, Tracer};
use cotenant_model::proc_text;
use std::fs;
use std::io;
use std::path::Path;

/// Looks below `root` (`/` on a live machine).
pub fn detect(root: &Path) -> Vec<Capability> {
    let mut all = vec![performance_events(root), memory_nodes(root)];
    all.extend([pressure(root), waits(root), requests(root), resctrl(root), page_placement(root)]);
    all.extend(memory::capabilities(&FsRoot::at(root)));
    all
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
    // Filters of containers refuse it whatever the kernel says there.
    let refused = (root == Path::new("/")).then(perf::refused).flatten();
    let remedy = match &refused {
        Some(why) => events_remedy(why),
        None => "sysctl kernel.perf_event_paranoid=2, or setcap cap_perfmon+ep on the cotenant binary",
    };
    let (standing, found) = match refused {
        Some(why) => (Standing::Missing, format!("perf_event_open is refused: {why}")),
        None if paranoid <= 2 => (Standing::Available, format!("kernel.perf_event_paranoid = {paranoid}")),
        None => (Standing::Limited, format!("kernel.perf_event_paranoid = {paranoid}")),
    };
    let cost = "without privilege no counters of other programs";
    Capability::new(name, standing, found, cost, remedy)
}

fn memory_nodes(root: &Path) -> Capability {
    let nodes = FsRoot::at(root).numbered("/sys/devices/system/node", "node").map_or(0, |nodes| nodes.len());
    let standing = if nodes > 1 { Standing::Available } else { Standing::Limited };
    let cost = "no memory is remote, so nothing can be gained by placing near memory";
    Capability::new("memory nodes", standing, format!("{} node(s)", nodes.max(1)), cost, "")
}

/// Pressure stall information (`Documentation/accounting/psi.rst` of the kernel).
fn pressure(root: &Path) -> Capability {
    let counts = text(root, "proc/pressure/cpu").is_some_and(|text| proc_text::pressure_us(text.as_bytes()).is_ok());
    let groups = !cgroups::mounts(root, None).is_empty();
    let (standing, found) = match (counts, groups) {
        (true, true) => (Standing::Available, "PSI of the machine and of control groups"),
        (true, false) => (Standing::Limited, "PSI of the machine alone: no cgroup2 is mounted"),
        (false, _) => (Standing::Missing, "the kernel counts none: PSI is off, or it has no CONFIG_PSI"),
    };
    let cost = "the share of time in which services are short of CPUs is unknown; how long their threads wait is known";
    let remedy =
        if counts { "mount -t cgroup2 none /sys/fs/cgroup/unified" } else { "psi=1 on the kernel's command line" };
    Capability::new("CPU pressure", standing, found, cost, remedy)
}

fn resctrl(root: &Path) -> Capability {
    let mounted = root.join("sys/fs/resctrl/schemata").exists();
    let supported = text(root, "proc/filesystems").is_some_and(|t| t.lines().any(|l| l.ends_with("resctrl")));
    let cost = "cache ways and memory bandwidth cannot be limited or monitored";
    let (standing, found, remedy) = match (mounted, supported) {
        (true, _) => match resctrl_refuses(&root.join("sys/fs/resctrl")) {
            None => (Standing::Available, "mounted".to_owned(), ""),
            Some(why) => {
                let remedy = "run as root where /sys/fs/resctrl may be written; where it is full, remove groups there";
                (Standing::Missing, format!("mounted, but no group can be made: {why}"), remedy)
            }
        },
        (false, true) => {
            (Standing::Limited, "supported but not mounted".to_owned(), "mount -t resctrl resctrl /sys/fs/resctrl")
        }
        (false, false) => (Standing::Missing, "not supported by this kernel or processor".to_owned(), ""),
    };
    Capability::new("resctrl", standing, found, cost, remedy)
}

/// Why no group can be made there: found out on one that is removed at once.
fn resctrl_refuses(folder: &Path) -> Option<io::Error> {
    let probe = folder.join(format!("cotenant-probe-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).err()
}

fn page_placement(root: &Path) -> Capability {
    let standing = if root.join("proc/self/numa_maps").exists() { Standing::Available } else { Standing::Missing };
    let found = if standing == Standing::Available { "/proc/PID/numa_maps" } else { "no /proc/PID/numa_maps" };
    let cost = "the memory node of a page is unknown";
    Capability::new("page placement", standing, found, cost, "a kernel with CONFIG_NUMA")
}

fn waits(root: &Path) -> Capability {
    let cost = "how long programs wait for a CPU is known, but not behind which others";
    let tried = || Tracer::load().map(|tracer| tracer.missing().to_vec());
    by_bpf(root, "causes of waits", "the scheduler's tracepoints, by BPF", cost, tried)
}

fn requests(root: &Path) -> Capability {
    let cost = "only questions (redis:, postgres:, http:) and reports show how long clients of a server wait";
    by_bpf(root, "requests", "tracepoints of TCP and Unix sockets, by BPF", cost, Requests::missing)
}

/// Tried on a live machine: what a kernel refuses is known when it has refused it.
fn by_bpf(
    root: &Path,
    name: &str,
    seen: &str,
    cost: &str,
    tried: impl FnOnce() -> Result<Vec<String>, Blind>,
) -> Capability {
    let tried = match root.join("sys/kernel/btf/vmlinux").exists() {
        false => Err(Blind::NoBtf),
        true if root == Path::new("/") => tried(),
        true => Ok(Vec::new()),
    };
    let (standing, found) = match tried {
        Ok(missing) if missing.is_empty() => (Standing::Available, seen.to_owned()),
        Ok(missing) => (Standing::Limited, missing.join("; ")),
        Err(why) => (Standing::Missing, why.to_string()),
    };
    let remedy = "run as root, or setcap cap_bpf,cap_perfmon+ep on the cotenant binary";
    let remedy = if found == Blind::NotAllowed.to_string() { remedy } else { "" };
    Capability::new(name, standing, found, cost, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for name in ["performance events", "CPU pressure", "resctrl", "page placement", "NUMA hinting faults", "DAMON"]
        {
            assert_eq!(standing(&all, name), Standing::Missing, "{name}");
        }
        let pressure = all.iter().find(|c| c.name == "CPU pressure").unwrap();
        assert_eq!(pressure.remedy, "psi=1 on the kernel's command line");
        assert!(all.iter().all(|c| !c.cost.is_empty()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_full_machine_lacks_nothing() {
        let root = machine(
            "full",
            &[
                ("proc/sys/kernel/perf_event_paranoid", "1\n"),
                ("sys/kernel/btf/vmlinux", ""),
                ("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"),
                ("proc/self/mounts", "c /sys/fs/cgroup cgroup2 rw 0 0\n"),
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
                ("sys/fs/resctrl/schemata", "L3:0=fff\n"),
                ("sys/devices/system/node/node0/cpulist", "0\n"),
                ("sys/devices/system/node/node1/cpulist", "1\n"),
            ],
        );
        assert!(detect(&root).iter().all(|c| c.standing == Standing::Available && c.remedy.is_empty()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_is_mounted_and_may_not_be_written_is_no_ability() {
        let root = machine("resctrl", &[("sys/fs/resctrl/schemata", "L3:0=fff\n")]);
        assert!(resctrl_refuses(&root.join("sys/fs/resctrl")).is_none());
        assert_eq!(fs::read_dir(root.join("sys/fs/resctrl")).unwrap().count(), 1, "the group that was tried is gone");
        // In a folder where none can be made.
        assert!(resctrl_refuses(Path::new("/proc/self")).is_some());
        fs::remove_dir_all(root).unwrap();
    }
}
