//! Other influences on the place of threads: kernel mechanisms, and programs on the same machine.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sense::doctor::text;
use crate::sense::nice::Weight;
use crate::sys::{self, cgroups};
use cotenant_model::CpuSet;
use cotenant_model::proc_text::TaskStat;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// One rival that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rival {
    /// Its name.
    pub name: &'static str,
    /// The finding, with its place.
    pub found: String,
    /// Its effect on placing threads.
    pub meaning: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

/// Programs that place threads, pages or interrupts themselves, by command name.
const PROGRAMS: [(&str, &str, &str); 3] = [
    (
        "numad",
        "it binds processes to memory nodes by itself: tasks that it moves are left alone for a while, then for good",
        "systemctl stop numad, or exclude the managed programs with numad -x",
    ),
    (
        "irqbalance",
        "it moves interrupts between CPUs: work that follows them shows as foreign load, and moves with them",
        "none needed; for steady measurements: systemctl stop irqbalance",
    ),
    (
        "tuned",
        "its scheduler plugin may set masks and priorities of processes that match its profile",
        "tuned-adm active shows the profile; choose one without isolated cores or a [scheduler] section",
    ),
];

/// Looks below `root` (`/` on a live machine). Empty without any.
pub fn detect(root: &Path) -> Vec<Rival> {
    let kernel = [numa_balancing(root), sched_ext(root), cache_aware(root), isolated(root), nohz_full(root)];
    let containers = [kubelet(root), cpuset(root), quota(root)];
    kernel.into_iter().chain(containers).flatten().chain(programs(root)).chain(in_vain(root)).collect()
}

fn numa_balancing(root: &Path) -> Option<Rival> {
    let mode = text(root, "proc/sys/kernel/numa_balancing").filter(|mode| mode != "0")?;
    Some(Rival {
        name: "NUMA balancing",
        found: format!("kernel.numa_balancing = {mode}"),
        meaning: "the kernel moves pages towards threads and threads towards pages; within the masks that are set, both decide",
        remedy: "leave it on: auto and shapes try other memory nodes seldom then, and wait until memory has settled; sysctl kernel.numa_balancing=0 to compare mappings of the whole machine faster",
    })
}

fn sched_ext(root: &Path) -> Option<Rival> {
    // Documentation/scheduler/sched-ext.rst of the kernel.
    text(root, "sys/kernel/sched_ext/state").filter(|state| state != "disabled")?;
    let ops = text(root, "sys/kernel/sched_ext/root/ops").unwrap_or_else(|| "unnamed".to_owned());
    Some(Rival {
        name: "sched_ext",
        found: format!("the BPF scheduler {ops} is loaded"),
        meaning: "it places threads by rules of its own; it has to respect the masks that are set, but may balance badly within them",
        remedy: "stop the scheduler's program, or use --mode advise",
    })
}

fn cache_aware(root: &Path) -> Option<Rival> {
    // The switch as merged with cache-aware load balancing (2026), and as in the series before; both below debugfs.
    let switches = ["sys/kernel/debug/sched/llc_balancing/enabled", "sys/kernel/debug/sched/llc_enabled"];
    let on = |path: &&str| text(root, path).is_some_and(|value| matches!(value.as_str(), "1" | "Y"));
    let switch = switches.into_iter().find(on)?;
    Some(Rival {
        name: "cache-aware scheduling",
        found: format!("/{switch} is on"),
        meaning: "the kernel gathers the threads of a process in one last-level cache; within the masks that are set, both decide",
        remedy: "write 0 to that file while Cotenant places by last-level cache",
    })
}

fn isolated(root: &Path) -> Option<Rival> {
    let cpus = text(root, "sys/devices/system/cpu/isolated").filter(|cpus| !cpus.is_empty())?;
    Some(Rival {
        name: "isolated CPUs",
        found: format!("CPUs {cpus} (isolcpus= or an isolated cpuset partition)"),
        meaning: "the kernel does not balance load there: several threads whose masks span them stay where they start",
        remedy: "exclude them from the allowed CPUs, or place there with --pin cpu",
    })
}

fn nohz_full(root: &Path) -> Option<Rival> {
    let file = text(root, "sys/devices/system/cpu/nohz_full").filter(|cpus| !cpus.is_empty() && cpus != "(null)");
    let boot = || {
        let line = text(root, "proc/cmdline")?;
        line.split(' ').find_map(|word| word.strip_prefix("nohz_full=")).map(str::to_owned)
    };
    let cpus = file.or_else(boot)?;
    Some(Rival {
        name: "tickless CPUs",
        found: format!("CPUs {cpus} (nohz_full=)"),
        meaning: "meant for one thread per CPU: a second thread brings the tick back",
        remedy: "exclude them from the allowed CPUs unless the managed program is what they are meant for",
    })
}

fn kubelet(root: &Path) -> Option<Rival> {
    let state = text(root, "var/lib/kubelet/cpu_manager_state")?;
    let policy = serde_json::from_str::<serde_json::Value>(&state).ok()?.get("policyName")?.as_str()?.to_owned();
    (policy != "none").then(|| Rival {
        name: "kubelet CPU manager",
        found: format!("policy {policy}, /var/lib/kubelet/cpu_manager_state"),
        meaning: "it changes the cpusets of containers while they run; Cotenant stays inside whatever they are",
        remedy: "none is needed; with cotenant-node on this machine, containers with exclusive CPUs are left alone",
    })
}

fn cpuset(root: &Path) -> Option<Rival> {
    let status = text(root, "proc/self/status")?;
    let mine = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mine = CpuSet::parse_list(mine).ok()?;
    let online = CpuSet::parse_list(&text(root, "sys/devices/system/cpu/online")?).ok()?;
    let (mine, all) = (mine.and(&online), online.len());
    (mine.len() < all).then(|| Rival {
        name: "cpuset",
        found: format!("CPUs {mine} of {all} are allowed here (a cpuset, a container, or taskset)"),
        meaning: "programs that are started here are placed on these only",
        remedy: "none needed if intended; else start Cotenant outside, or widen cpuset.cpus",
    })
}

fn quota(root: &Path) -> Option<Rival> {
    let found = [None, Some("cpu")].into_iter().flat_map(|controller| quotas(root, controller)).next()?;
    Some(Rival {
        name: "CPU quota",
        found,
        meaning: "threads are stopped for the rest of each period once it is used up, wherever they are placed",
        remedy: "raise the quota (cpu.max, cpu.cfs_quota_us, or the container's CPU limit) before judging a placement",
    })
}

/// Effective quotas: of our own group and its ancestors.
fn quotas(root: &Path, v1_controller: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let Some(own) = cgroups::own(root, v1_controller) else { return found };
    for mount in cgroups::mounts(root, v1_controller) {
        for group in Path::new(own.trim_matches('/')).ancestors() {
            let folder = Path::new(&mount).join(group);
            let value = |file: &str| text(root, folder.join(file).to_str()?);
            let quota = match v1_controller {
                None => value("cpu.max").filter(|max| !max.starts_with("max")).map(|max| format!("cpu.max = {max}")),
                Some(_) => value("cpu.cfs_quota_us").filter(|q| q != "-1").map(|q| format!("cpu.cfs_quota_us = {q}")),
            };
            found.extend(quota.map(|quota| format!("{quota} in /{}", folder.display())));
        }
    }
    found
}

/// Programs meant to yield that have almost nothing to yield to.
fn in_vain(root: &Path) -> Option<Rival> {
    /// Least fraction of time that such a program has run, and number of named ones.
    const RUNS: f64 = 0.05;
    const NAMED: usize = 3;
    let fs = FsRoot::at(root);
    let uptime: f64 = text(root, "proc/uptime")?.split(' ').next()?.parse().ok()?;
    let now = uptime * sys::ticks_per_second() as f64;
    let one = |pid: u32| {
        let stat = bounded::read(fs.path(&format!("/proc/{pid}/stat")), Limit::Value).ok()?;
        let stat = TaskStat::parse(&stat).ok().filter(|stat| !stat.is_kernel_thread() && !stat.is_dead())?;
        let runs = stat.ticks as f64 >= RUNS * (now - stat.start_ticks as f64).max(1.0);
        let weight = Weight::of(&fs, pid).filter(|weight| runs && weight.is_low())?;
        Some(format!("{} (process {pid}) {} in {}", stat.comm, weight.at(), weight.place()))
    };
    let mut found: Vec<String> = fs.numbered("/proc", "").ok()?.into_iter().filter_map(one).collect();
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    found.extend((more > 0).then(|| format!("{more} more")));
    (!found.is_empty()).then(|| Rival {
        name: "nice",
        found: found.join(", "),
        meaning: "nice and chrt --idle have no effect on programs of other control groups or sessions, such as a \
                  server that is a service",
        remedy: "systemd-run -p CPUWeight=idle CMD; for what runs already systemctl set-property UNIT CPUWeight=idle, \
                 or echo 19 >/proc/PID/autogroup where it is in no group",
    })
}

fn programs(root: &Path) -> Vec<Rival> {
    let Ok(entries) = fs::read_dir(root.join("proc")) else { return Vec::new() };
    let running: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, text(root, &format!("proc/{pid}/comm"))?))
        })
        .collect();
    let rival = |&(name, meaning, remedy): &(&'static str, &'static str, &'static str)| {
        let (pid, _) = running.iter().find(|(_, comm)| comm == name)?;
        Some(Rival { name, found: format!("process {pid}"), meaning, remedy })
    };
    PROGRAMS.iter().filter_map(rival).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    fn found(files: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let dir = TempDir::new("rivals");
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        detect(dir.path()).into_iter().map(|r| (r.name, r.found)).collect()
    }

    #[test]
    fn a_machine_of_our_own_has_no_rivals() {
        let files = [
            ("proc/sys/kernel/numa_balancing", "0\n"),
            ("sys/kernel/sched_ext/state", "disabled\n"),
            ("sys/kernel/debug/sched/llc_balancing/enabled", "0\n"),
            ("sys/devices/system/cpu/isolated", "\n"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("proc/cmdline", "root=/dev/sda1 quiet\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-127\n"),
            ("proc/self/cgroup", "0::/user.slice\n"),
            ("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
            ("var/lib/kubelet/cpu_manager_state", r#"{"policyName":"none"}"#),
            ("proc/12/comm", "bash\n"),
        ];
        assert_eq!(found(&files), []);
        assert_eq!(found(&[]), [], "nor has one that tells nothing");
    }

    #[test]
    fn each_rival_is_named() {
        let files = [
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "lavd\n"),
            ("sys/kernel/debug/sched/llc_balancing/enabled", "Y\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("proc/cmdline", "quiet nohz_full=2-3 ro\n"),
            ("proc/self/status", "Cpus_allowed_list:\t0-3\n"),
            ("var/lib/kubelet/cpu_manager_state", r#"{"policyName":"static","defaultCpuSet":"0-1"}"#),
            ("proc/77/comm", "numad\n"),
            ("proc/78/comm", "irqbalance\n"),
            ("proc/79/comm", "tuned\n"),
        ];
        let names: Vec<&str> = found(&files).iter().map(|(name, _)| *name).collect();
        let expected = [
            "NUMA balancing",
            "sched_ext",
            "cache-aware scheduling",
            "isolated CPUs",
            "tickless CPUs",
            "kubelet CPU manager",
            "cpuset",
            "numad",
            "irqbalance",
            "tuned",
        ];
        assert_eq!(names, expected);
        let text = |name| found(&files).into_iter().find(|(n, _)| *n == name).unwrap().1;
        assert_eq!(text("sched_ext"), "the BPF scheduler lavd is loaded");
        assert_eq!(text("tickless CPUs"), "CPUs 2-3 (nohz_full=)");
        assert_eq!(text("cpuset"), "CPUs 0-3 of 8 are allowed here (a cpuset, a container, or taskset)");
        assert_eq!(text("numad"), "process 77");
    }

    #[test]
    fn a_quota_above_our_group_counts() {
        let v2 = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ];
        assert_eq!(found(&v2), [("CPU quota", "cpu.max = 150000 100000 in /sys/fs/cgroup/a".to_owned())]);
        let v1 = [
            ("proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n0::/\n"),
            ("proc/self/mounts", "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n"),
            ("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "-1\n"),
        ];
        let expected = "cpu.cfs_quota_us = 50000 in /sys/fs/cgroup/cpu/docker/x".to_owned();
        assert_eq!(found(&v1), [("CPU quota", expected)]);
    }

    /// Holds run/busy.
    #[test]
    fn who_gives_way_in_vain_is_named() {
        let stat = |nice: i32, ticks: u64| {
            let zeros = |n| vec!["0"; n].join(" ");
            format!("7 (gzip) R {} {ticks} 0 0 0 0 {nice} {}\n", zeros(10), zeros(22))
        };
        let found_of = |nice, ticks| {
            let stat = stat(nice, ticks);
            found(&[
                ("proc/uptime", "100.0 1.0\n"),
                ("proc/7/stat", &stat),
                ("proc/7/cgroup", "0::/user.slice\n"),
                ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
                ("cg/user.slice/cpu.weight", "100\n"),
            ])
        };
        let ticks = sys::ticks_per_second() * 10;
        let named = ("nice", "gzip (process 7) is at nice 19 in the control group /user.slice".to_owned());
        assert_eq!(found_of(19, ticks), [named]);
        assert_eq!((found_of(0, ticks), found_of(19, 1)), (vec![], vec![]), "it does not mean to, or hardly runs");
    }

    #[test]
    fn this_machine_can_be_asked() {
        assert!(detect(Path::new("/")).iter().all(|r| !r.found.is_empty() && !r.remedy.is_empty()));
    }
}
