mod contradictions;
mod hmat;

use super::*;
use cotenant_model::topology::{CacheType, Kind};
use std::path::PathBuf;

/// A root of a few files, removed on drop.
struct Dump(PathBuf);

impl Dump {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let dump = Self(std::env::temp_dir().join(format!("cotenant-topology-{name}-{}", std::process::id())));
        let _ = std::fs::remove_dir_all(&dump.0);
        std::fs::create_dir_all(&dump.0).unwrap();
        for (path, text) in files {
            dump.write(path, text);
        }
        dump
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn cpu(&self, cpu: u32, file: &str, text: &str) {
        self.write(&format!("sys/devices/system/cpu/cpu{cpu}/{file}"), text);
    }

    fn read(&self) -> Result<Discovered, ReadError> {
        read(&FsRoot::at(&self.0), None)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `n` CPUs of one package, each a core.
fn simple(name: &str, n: u32) -> Dump {
    let dump = Dump::new(name, &[]);
    for cpu in 0..n {
        dump.cpu(cpu, "topology/core_cpus", &format!("{:x}\n", 1 << cpu));
        dump.cpu(cpu, "topology/package_cpus", &format!("{:x}\n", (1 << n) - 1));
        dump.cpu(cpu, "topology/core_id", &format!("{cpu}\n"));
        dump.cpu(cpu, "topology/physical_package_id", "0\n");
    }
    dump
}

#[test]
fn one_cpu_without_caches_or_numa() {
    let found = simple("one", 1).read().unwrap();
    let t = &found.topology;
    assert_eq!((t.cpus().len(), t.packages().len(), t.cores().len(), t.llc_domains().len()), (1, 1, 1, 1));
    assert_eq!((t.nodes().len(), t.nodes()[0].bytes, t.nodes()[0].cpus.to_string()), (1, None, "0".to_owned()));
    assert!(found.notes.is_empty(), "{:?}", found.notes);
}

#[test]
fn cgroup_2_forbids() {
    let dump = simple("cgroup2", 4);
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n");
    dump.write("proc/self/cgroup", "0::/batch.slice/job\n");
    dump.write("sys/fs/cgroup/batch.slice/job/cpuset.cpus.effective", "1-2\n");
    let found = dump.read().unwrap();
    assert_eq!(
        (found.topology.online().to_string(), found.topology.usable().to_string()),
        ("0-3".into(), "1-2".into())
    );
    // Mounted elsewhere, found through /proc/mounts; v1 beside v2, whose controllers do not include cpuset.
    let dump = simple("cgroup-mounts", 4);
    dump.write("proc/mounts", "c2 /run/c2 cgroup2 rw 0 0\nc1 /run/c1 cgroup rw,cpuset 0 0\n");
    dump.write("run/c2/cgroup.controllers", "hugetlb\n");
    dump.write("proc/self/cgroup", "4:cpuset:/a\n0::/b\n");
    dump.write("run/c1/a/cpuset.cpus", "3\n");
    assert_eq!(dump.read().unwrap().topology.usable().to_string(), "3");
}

#[test]
fn a_cgroup_outside_the_namespace_forbids_nothing() {
    let dump = simple("namespace", 2);
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n");
    dump.write("proc/self/cgroup", "0::/../elsewhere\n");
    assert_eq!(dump.read().unwrap().topology.usable().to_string(), "0-1");
}

#[test]
fn dies_and_memory_only_nodes() {
    let dump = simple("dies", 4);
    for cpu in 0..4 {
        dump.cpu(cpu, "topology/die_cpus", if cpu < 2 { "3\n" } else { "c\n" });
        dump.cpu(cpu, "topology/die_id", if cpu < 2 { "0\n" } else { "1\n" });
    }
    for (node, map, row) in [(0, "f", "10 20 40"), (2, "0", "20 10 40"), (5, "0", "40 40 10")] {
        let folder = format!("sys/devices/system/node/node{node}");
        dump.write(&format!("{folder}/cpumap"), map);
        dump.write(&format!("{folder}/distance"), row);
        dump.write(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 1024 kB\n"));
    }
    dump.write("sys/devices/system/node/online", "0,2,5\n");
    let t = dump.read().unwrap().topology;
    assert_eq!(t.of_kind(Kind::Die).map(|d| d.cpus.to_string()).collect::<Vec<_>>(), ["0-1", "2-3"]);
    let nodes: Vec<_> = t.nodes().iter().map(|n| (n.id.0, n.cpus.to_string(), n.bytes)).collect();
    let mib = Some(1 << 20);
    assert_eq!(nodes, [(0, "0-3".to_owned(), mib), (2, String::new(), mib), (5, String::new(), mib)]);
    assert_eq!((t.node_of(CpuId(1)), t.distance(CpuId(1), 2)), (Some(0), Some(40.0)));
}

#[test]
fn cpuinfo_serves_where_sysfs_has_no_topology() {
    let dump = Dump::new("cpuinfo", &[]);
    let cpu =
        |n: u32, package: u32, core: u32| format!("processor : {n}\nphysical id : {package}\ncore id : {core}\n\n");
    dump.write("proc/cpuinfo", &(cpu(0, 0, 0) + &cpu(1, 0, 0) + &cpu(2, 1, 0)));
    let found = dump.read().unwrap();
    let t = &found.topology;
    assert_eq!((t.packages().len(), t.cores().len(), t.online().to_string()), (2, 2, "0-2".to_owned()));
    assert!(found.notes[0].contains("/proc/cpuinfo"), "{:?}", found.notes);
}

#[test]
fn nothing_at_all_needs_the_caller() {
    let dump = Dump::new("empty", &[]);
    let e = dump.read().unwrap_err().to_string();
    assert!(e.contains("no CPU is listed") && e.contains("sys/devices/system/cpu"), "{e}");
    let cpus = CpuSet::parse_list("2-3").unwrap();
    let found = read(&FsRoot::at(&dump.0), Some(&cpus)).unwrap();
    assert_eq!((found.topology.usable(), found.topology.llc_domains().len()), (&cpus, 1));
    assert!(found.notes[0].contains("mount /sys"), "{:?}", found.notes);
    assert!(read(&FsRoot::at(&dump.0), Some(&CpuSet::new())).is_err());
}

#[test]
fn this_process_may_run_somewhere() {
    assert!(!own_cpus().is_empty());
    assert!(live().unwrap().topology.usable().intersects(&own_cpus()));
}
