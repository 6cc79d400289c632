//! Contradictory or incomplete information from firmware, kernels and containers.

use super::*;

#[test]
fn firmware_that_contradicts_itself_still_makes_a_machine() {
    let dump = simple("contradiction", 4);
    dump.cpu(0, "cache/index0/level", "3\n");
    dump.cpu(0, "cache/index0/shared_cpu_map", "7\n");
    dump.cpu(1, "cache/index0/level", "2\n");
    dump.cpu(1, "cache/index0/shared_cpu_map", "a\n"); // crosses the L3 of 0-2
    dump.cpu(3, "cache/index0/level", "none\n");
    dump.cpu(3, "cache/index0/shared_cpu_map", "8\n");
    let found = dump.read().unwrap();
    assert_eq!(found.topology.of_kind(Kind::Cache(CacheType::Unified)).count(), 1);
    assert!(found.notes[0].contains("the L2 Unified cache of CPUs 1,3 contradicts"), "{:?}", found.notes);
}

/// `n` CPUs of one package, each a core, with a list of online ones.
fn with_online(name: &str, n: u32, online: &str) -> Dump {
    let dump = simple(name, n);
    dump.write("sys/devices/system/cpu/online", online);
    dump
}

fn usable(found: &Discovered) -> String {
    found.topology.usable().to_string()
}

/// lxcfs numbers CPUs anew in one file, and in no other.
#[test]
fn what_the_kernel_lets_us_use_is_online() {
    let dump = with_online("renumbered", 8, "0\n");
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "5\n");
    dump.write("proc/self/cgroup", "0::/\n");
    dump.cpu(3, "online", "0\n");
    let found = dump.read().unwrap();
    assert_eq!((usable(&found), found.topology.online().to_string()), ("5".to_owned(), "0-2,4-7".to_owned()));
    assert!(found.notes[0].contains("/online says 0, but this process may run on CPUs 5"), "{:?}", found.notes);
    // Some of them are accidentally in the list.
    dump.write("sys/devices/system/cpu/online", "0-1\n");
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "1-2\n");
    assert_eq!(usable(&dump.read().unwrap()), "1-2");
    // No visible cpuset: its own mask decides.
    let dump = with_online("renumbered-mask", 8, "0-1\n");
    dump.write("proc/self/status", "Cpus_allowed_list:\t6-7\n");
    let found = dump.read().unwrap();
    assert!(found.topology.usable().contains(CpuId(6)), "{}", usable(&found));
    assert!(found.notes[0].contains("may run on CPUs 6-7"), "{:?}", found.notes);
}

/// Promise see/contradictions: Where lists of CPUs contradict each other, what the kernel lets Cotenant use counts,
/// and the contradiction is named.
/// Where some CPUs are in the list by chance, those that say themselves that they are on are on.
#[test]
fn a_list_that_some_cpus_contradict_is_not_believed() {
    let dump = with_online("renumbered-in-part", 8, "0-3\n");
    dump.write("proc/self/status", "Cpus_allowed_list:\t2-5\n");
    assert_eq!(usable(&dump.read().unwrap()), "2-3", "the others may be off");
    dump.write("sys/devices/system/cpu/online", "\n");
    assert_eq!(dump.read().unwrap().topology.online().to_string(), "0-7", "somebody reads this");
    dump.write("sys/devices/system/cpu/online", "0-3\n");
    (1..8).for_each(|cpu| dump.cpu(cpu, "online", "1\n"));
    let found = dump.read().unwrap();
    assert_eq!(usable(&found), "2-5");
    assert!(found.notes[0].contains("/online says 0-3, but this process may run on CPUs 2-5"), "{:?}", found.notes);
    // The kernel's direct answer needs no other witness.
    let dump = with_online("renumbered-asked", 8, "0-3\n");
    let asked = |cpus| read(&FsRoot::at(&dump.0), Some(&CpuSet::parse_list(cpus).unwrap())).unwrap();
    assert_eq!(usable(&asked("2-5")), "2-5");
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n");
    dump.write("proc/self/cgroup", "0::/\n");
    for cpus in ["0", "1-3"] {
        let found = asked(cpus);
        let note = format!("the cpuset allows CPUs 0-1, but this process may run on {cpus}; that is believed");
        assert_eq!((usable(&found), &found.notes), (cpus.to_owned(), &vec![note]));
    }
}

/// No group is visible, or another program's, or one with damaged files.
#[test]
fn what_this_process_may_do_outweighs_cpusets_that_say_otherwise() {
    let dump = simple("no-cpuset", 8);
    dump.write("proc/self/status", "Cpus_allowed_list:\t4-5\nMems_allowed_list:\t0\n");
    assert_eq!(usable(&dump.read().unwrap()), "4-5");
    dump.write("proc/self/cgroup", "0::/a\n");
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n");
    for (cpus, note) in [
        ("0-4", "the cpuset allows CPUs 0-4, but this process may run on 4-5; that is believed"),
        ("", "the cpuset allows CPUs , but this process may run on 4-5; that is believed"),
        ("0-", "'0-' is not a CPU list"),
    ] {
        dump.write("sys/fs/cgroup/a/cpuset.cpus.effective", cpus);
        let found = dump.read().unwrap();
        assert_eq!(usable(&found), "4-5", "{cpus}");
        assert!(found.notes[0].contains(note), "{:?}", found.notes);
    }
    // A path outside a container's view.
    dump.write("proc/self/cgroup", "0::/../../a\n");
    assert_eq!((usable(&dump.read().unwrap()), dump.read().unwrap().notes.len()), ("4-5".to_owned(), 0));
    // Memory likewise.
    dump.write("proc/self/cgroup", "0::/a\n");
    dump.write("sys/fs/cgroup/a/cpuset.cpus.effective", "4-5");
    dump.write("sys/devices/system/node/node0/cpumap", "ff");
    for mems in ["7", ""] {
        dump.write("sys/fs/cgroup/a/cpuset.mems.effective", mems);
        let found = dump.read().unwrap();
        assert!(found.topology.nodes()[0].allowed, "{mems}");
        assert!(found.notes[0].starts_with(&format!("the cpuset allows memory nodes {mems},")), "{:?}", found.notes);
    }
}

/// No process runs in a group without CPUs.
#[test]
fn a_cpuset_without_cpus_that_are_there_is_not_believed() {
    let dump = simple("empty-cpuset", 4);
    dump.write("proc/self/cpuset", "/job\n");
    dump.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3\n");
    for (cpus, told) in [("", "no CPUs"), ("8-9", "CPUs 8-9")] {
        dump.write("sys/fs/cgroup/cpuset/job/cpuset.cpus", cpus);
        let found = dump.read().unwrap();
        let note = format!("the cpuset allows {told}, and CPUs 0-3 are online; that is not believed");
        assert_eq!((usable(&found), &found.notes), ("0-3".to_owned(), &vec![note]));
    }
}

/// As of sessions, to which systemd delegates no cpusets.
#[test]
fn a_group_without_cpusets_is_under_those_around_it() {
    let dump = simple("around", 4);
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n");
    dump.write("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "1-2\n");
    dump.write("sys/fs/cgroup/user.slice/1000/session/cgroup.procs", "");
    dump.write("proc/self/cgroup", "0::/user.slice/1000/session\n");
    assert_eq!(usable(&dump.read().unwrap()), "1-2");
    // One of which nothing is seen here.
    dump.write("proc/self/cgroup", "0::/system.slice/job\n");
    assert_eq!(usable(&dump.read().unwrap()), "0-3");
}

/// A mask may name CPUs that are switched off, and a cpuset of version 1 too.
#[test]
fn what_is_switched_off_stays_so() {
    let dump = with_online("off", 4, "0-2\n");
    dump.cpu(3, "online", "0\n");
    dump.write("proc/self/status", "Cpus_allowed_list:\t2-3\n");
    dump.write("sys/fs/cgroup/cpuset/cpuset.cpus", "2-3\n");
    dump.write("proc/self/cpuset", "/\n");
    let found = dump.read().unwrap();
    assert_eq!((usable(&found), found.notes.len()), ("2".to_owned(), 0), "{:?}", found.notes);
}

#[test]
fn a_containers_own_group_is_the_one_that_is_mounted() {
    for (name, info) in [
        ("root", "50 40 0:30 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"),
        (
            "bind",
            "40 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
             50 40 0:30 /docker/abc /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        ),
    ] {
        let dump = simple(&format!("own-group-{name}"), 8);
        dump.write("proc/self/cpuset", "/docker/abc\n");
        dump.write("proc/self/mountinfo", info);
        dump.write("sys/fs/cgroup/cpuset/cpuset.cpus", "2-3\n");
        assert_eq!(usable(&dump.read().unwrap()), "2-3", "{name}");
        dump.write("proc/self/cpuset", "/docker/abc/inner\n");
        dump.write("sys/fs/cgroup/cpuset/inner/cpuset.cpus", "3\n");
        assert_eq!(usable(&dump.read().unwrap()), "3", "{name}");
    }
    // Its group is invisible: its mask remains.
    let dump = simple("no-group", 8);
    dump.write("proc/self/cpuset", "/docker/abc\n");
    dump.write("proc/self/status", "Cpus_allowed_list:\t4-5\nMems_allowed_list:\t0\n");
    dump.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n");
    assert_eq!(usable(&dump.read().unwrap()), "4-5");
    // Another group is visible: one that allows none of our CPUs is not ours.
    dump.write("sys/fs/cgroup/cpuset/docker/abc/cpuset.cpus", "9\n");
    let found = dump.read().unwrap();
    assert_eq!(usable(&found), "4-5");
    assert!(found.notes[0].contains("the cpuset allows CPUs 9, but this process may run on 4-5"), "{:?}", found.notes);
}

#[test]
fn what_cannot_be_read_is_said() {
    let dump = simple("unread", 2);
    dump.write("proc/cpuinfo/not a file", "");
    let found = dump.read().unwrap();
    assert_eq!(usable(&found), "0-1");
    assert!(
        found.notes[0].starts_with("/proc/cpuinfo: ") && found.notes[0].ends_with("counts as absent"),
        "{:?}",
        found.notes
    );
}

#[test]
fn what_is_not_as_expected_is_said() {
    let dump = with_online("malformed", 2, "0-\n");
    dump.cpu(1, "topology/core_id", "one\n");
    let found = dump.read().unwrap();
    assert_eq!(usable(&found), "0-1");
    let note = "/sys/devices/system/cpu/online says \"0-\", and 1 more: what cannot be read counts as absent";
    assert_eq!(found.notes, [note]);
}

/// What one CPU does not tell the others do, and what a mask does not tell the list beside it does.
#[test]
fn what_one_does_not_tell_another_does() {
    let mute = simple("mute", 4);
    for cpu in 0..4 {
        mute.cpu(cpu, "topology/core_cpus", if cpu < 2 { "3\n" } else { "c\n" });
        mute.cpu(cpu, "cache/index0/level", "3\n");
        mute.cpu(cpu, "cache/index0/shared_cpu_map", "f\n");
    }
    for file in ["topology/core_cpus", "topology/package_cpus", "cache/index0/level"] {
        mute.cpu(0, file, "");
    }
    let found = mute.read().unwrap();
    assert_eq!(
        (parts_of(&found, Kind::Core).join(" "), parts_of(&found, Kind::Package)),
        ("0-1 2-3".into(), vec!["0-3".into()])
    );
    assert_eq!(parts_of(&found, Kind::Cache(CacheType::Unified)), ["0-3"]);
    assert!(found.notes[0].contains("says \"\", and 2 more"), "{:?}", found.notes);
    // One says otherwise.
    let dump = simple("otherwise", 2);
    dump.cpu(1, "topology/core_cpus", "3\n");
    let found = dump.read().unwrap();
    assert_eq!(parts_of(&found, Kind::Core), ["0", "1"]);
    assert_eq!(found.notes, ["CPU 1 reports the Core of CPUs 0-1, which other CPUs contradict"]);
    // One CPU reports others.
    dump.cpu(0, "topology/core_cpus", "2\n");
    dump.cpu(1, "topology/core_cpus", "2\n");
    let found = dump.read().unwrap();
    assert_eq!(parts_of(&found, Kind::Core), ["1"]);
    assert_eq!(found.notes, ["CPU 0 reports the Core of CPUs 1, which other CPUs contradict"]);
    let dump = Dump::new("lists", &[]);
    for cpu in 0..4 {
        dump.cpu(cpu, "topology/core_cpus_list", &format!("{cpu}\n"));
        dump.cpu(cpu, "topology/package_cpus_list", if cpu < 2 { "0-1" } else { "2-3" });
        dump.cpu(cpu, "cache/index0/level", "3\n");
        dump.cpu(cpu, "cache/index0/shared_cpu_list", if cpu < 2 { "0-1" } else { "2-3" });
    }
    dump.write("sys/devices/system/node/node0/cpulist", "0-3\n");
    let found = dump.read().unwrap();
    assert_eq!(parts_of(&found, Kind::Package), ["0-1", "2-3"]);
    assert_eq!((found.topology.llc_domains().len(), found.topology.nodes()[0].cpus.len()), (2, 4));
    assert!(found.notes.is_empty(), "{:?}", found.notes);
}

#[test]
fn cpus_without_folders_are_named() {
    let found = with_online("without-folders", 4, "0-7\n").read().unwrap();
    assert_eq!(usable(&found), "0-3");
    assert!(found.notes[0].contains("names CPUs 4-7, which have no folder"), "{:?}", found.notes);
}

/// lxcfs passes folders of some CPUs, also where the kernel lets us use more.
#[test]
fn cpus_whose_folders_are_hidden_exist() {
    let dump = with_online("hidden-folders", 4, "0\n");
    for cpu in [0, 2, 3] {
        std::fs::remove_dir_all(dump.0.join(format!("sys/devices/system/cpu/cpu{cpu}"))).unwrap();
    }
    let by_mask = read(&FsRoot::at(&dump.0), Some(&CpuSet::parse_list("0-2").unwrap())).unwrap();
    dump.write("sys/fs/cgroup/cpuset.cpus.effective", "0-2\n");
    dump.write("proc/self/cgroup", "0::/\n");
    for found in [by_mask, dump.read().unwrap()] {
        assert_eq!((usable(&found), found.topology.cores().len()), ("0-2".to_owned(), 3), "{:?}", found.notes);
        assert_eq!(parts_of(&found, Kind::Package), ["0-2"], "what CPU 1 tells of it");
        assert!(found.notes[0].contains("CPUs 0,2 have no folder in /sys/devices/system/cpu"), "{:?}", found.notes);
        assert!(!found.notes.iter().any(|note| note.contains("left out")), "{:?}", found.notes);
    }
}

#[test]
fn cpus_whose_topology_is_hidden_exist_where_the_kernel_says_so() {
    let dump = with_online("hidden-topology", 4, "0-3\n");
    std::fs::remove_dir_all(dump.0.join("sys/devices/system/cpu/cpu0/topology")).unwrap();
    let found = dump.read().unwrap();
    assert_eq!(usable(&found), "1-3", "it may be just going off");
    let found = read(&FsRoot::at(&dump.0), Some(&CpuSet::parse_list("0-2").unwrap())).unwrap();
    assert_eq!((usable(&found), parts_of(&found, Kind::Package)), ("0-2".to_owned(), vec!["0-3".to_owned()]));
    assert!(
        found.notes[0].starts_with("CPUs 0 have no /sys/devices/system/cpu/cpuN/topology, but"),
        "{:?}",
        found.notes
    );
}

#[test]
fn one_cpu_without_topology_exists() {
    let dump = Dump::new("uniprocessor", &[("proc/cpuinfo", "Processor : ARMv7 rev 2 (v7l)\nCPU part : 0xc08\n")]);
    dump.write("sys/devices/system/cpu/online", "0\n");
    let found = dump.read().unwrap();
    assert_eq!((usable(&found), found.topology.llc_domains().len()), ("0".to_owned(), 1));
    assert!(found.notes.is_empty(), "{:?}", found.notes);
}

/// Two packages of two CPUs each with an L3 over all four; `homes`: the CPU masks of memory nodes.
fn l3_over_packages(name: &str, homes: &[&str]) -> Discovered {
    let dump = simple(name, 4);
    for cpu in 0..4 {
        dump.cpu(cpu, "topology/package_cpus", if cpu < 2 { "3\n" } else { "c\n" });
        dump.cpu(cpu, "topology/physical_package_id", if cpu < 2 { "0\n" } else { "1\n" });
        dump.cpu(cpu, "cache/index0/level", "3\n");
        dump.cpu(cpu, "cache/index0/shared_cpu_map", "f\n");
        dump.cpu(cpu, "cache/index0/size", "8192K\n");
    }
    for (node, cpus) in homes.iter().enumerate() {
        let folder = format!("sys/devices/system/node/node{node}");
        dump.write(&format!("{folder}/cpumap"), cpus);
        dump.write(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 1024 kB\n"));
        dump.write(&format!("{folder}/distance"), if node == 0 { "10 20" } else { "20 10" });
    }
    dump.read().unwrap()
}

#[test]
fn a_cache_over_packages_with_memory_of_their_own_cannot_be() {
    let found = l3_over_packages("l3-apart", &["3", "c"]);
    let domains: Vec<String> = found.topology.llc_domains().iter().map(|d| d.cpus.to_string()).collect();
    assert_eq!(domains, ["0-1", "2-3"]);
    assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
    assert!(found.notes[0].contains("the L3 cache of CPUs 0-3 spans packages"), "{:?}", found.notes);
}

fn parts_of(found: &Discovered, kind: Kind) -> Vec<String> {
    found.topology.of_kind(kind).map(|resource| resource.cpus.to_string()).collect()
}

/// As kernels before 5.19 tell of phones, and those before 5.9 of Arm's guests.
#[test]
fn clusters_that_share_a_cache_and_memory_are_one_package() {
    for homes in [&[][..], &["f"]] {
        let found = l3_over_packages(&format!("l3-common-{}", homes.len()), homes);
        assert_eq!((parts_of(&found, Kind::Package), found.topology.llc_domains().len()), (vec!["0-3".to_owned()], 1));
        assert_eq!(parts_of(&found, Kind::Cluster), ["0-1", "2-3"]);
        assert!(found.notes[0].starts_with("the 2 packages of CPUs 0-3 share a cache"), "{:?}", found.notes);
    }
    // Each CPU a package, as in hypervisors without a configured topology.
    let dump = simple("vcpus", 3);
    for cpu in 0..3 {
        dump.cpu(cpu, "topology/package_cpus", &format!("{:x}\n", 1 << cpu));
        dump.cpu(cpu, "topology/physical_package_id", &format!("{cpu}\n"));
        dump.cpu(cpu, "cache/index0/level", "3\n");
        dump.cpu(cpu, "cache/index0/shared_cpu_map", "7\n");
    }
    let found = dump.read().unwrap();
    assert_eq!((parts_of(&found, Kind::Package), parts_of(&found, Kind::Cluster)), (vec!["0-2".to_owned()], vec![]));
}

/// Little cores beside big ones, each with an L2 of their own and nothing behind it.
#[test]
fn clusters_of_different_designs_are_one_package() {
    let phone = |name: &str, designs: [&str; 2], homes: &[&str]| {
        let dump = Dump::new(name, &[]);
        for cpu in 0..4 {
            dump.cpu(cpu, "topology/core_siblings", if cpu < 2 { "3\n" } else { "c\n" });
            dump.cpu(cpu, "topology/thread_siblings", &format!("{:x}\n", 1 << cpu));
            dump.cpu(cpu, "topology/physical_package_id", if cpu < 2 { "0\n" } else { "1\n" });
            let midr = format!("0x00000000410fd{}0\n", designs[cpu as usize / 2]);
            dump.cpu(cpu, "regs/identification/midr_el1", &midr);
        }
        for (node, cpus) in homes.iter().enumerate() {
            dump.write(&format!("sys/devices/system/node/node{node}/cpumap"), cpus);
        }
        dump.read().unwrap()
    };
    let found = phone("phone", ["03", "08"], &["f"]);
    assert_eq!(parts_of(&found, Kind::Package), ["0-3"]);
    assert_eq!((parts_of(&found, Kind::Cluster).join(" "), found.topology.llc_domains().len()), ("0-1 2-3".into(), 1));
    // Of one design with different speeds.
    let dump = Dump::new("tiers", &[]);
    for cpu in 0..4 {
        dump.cpu(cpu, "topology/core_siblings", if cpu < 2 { "3\n" } else { "c\n" });
        dump.cpu(cpu, "cpu_capacity", if cpu < 2 { "400\n" } else { "1024\n" });
    }
    assert_eq!(parts_of(&dump.read().unwrap(), Kind::Package), ["0-3"]);
    assert_eq!(parts_of(&phone("sockets", ["08", "08"], &["f"]), Kind::Package), ["0-1", "2-3"]);
    assert_eq!(parts_of(&phone("own-memory", ["03", "08"], &["3", "c"]), Kind::Package), ["0-1", "2-3"]);
}

#[test]
fn caches_that_are_listed_elsewhere() {
    let sparc = simple("sparc", 4);
    for cpu in 0..4 {
        sparc.cpu(cpu, "topology/core_cpus", if cpu < 2 { "3\n" } else { "c\n" });
        sparc.cpu(cpu, "l1_dcache_size", "16384\n");
        sparc.cpu(cpu, "l1_dcache_line_size", "32\n");
        sparc.cpu(cpu, "l2_cache_size", "1048576\n");
    }
    let found = sparc.read().unwrap();
    let caches: Vec<_> = found.topology.of_kind(Kind::Cache(CacheType::Data)).collect();
    assert_eq!(
        caches.iter().map(|c| (c.cpus.to_string(), c.capacity, c.line_size)).collect::<Vec<_>>(),
        [("0-1".to_owned(), Some(16_384), Some(32)), ("2-3".to_owned(), Some(16_384), Some(32)),]
    );
    assert_eq!(found.topology.llc_domains().len(), 2, "{:?}", found.notes);
    let s390 = simple("s390", 4);
    s390.write(
        "proc/cpuinfo",
        "cache0 : level=1 type=Data scope=Private size=128K\n\
         cache4 : level=3 type=Unified scope=Shared size=256M line_size=256 associativity=16\nprocessor 0: version = FF\n",
    );
    let found = s390.read().unwrap();
    let l3: Vec<_> = found.topology.of_kind(Kind::Cache(CacheType::Unified)).collect();
    assert_eq!((l3.len(), l3[0].capacity, l3[0].cpus.to_string()), (1, Some(256 << 20), "0-3".to_owned()));
}

#[test]
fn kinds_of_cores_are_by_their_design() {
    let dump = simple("binned", 6);
    for (cpu, part, capacity) in [(0, "871", 700), (1, "871", 715), (2, "851", 990), (3, "851", 1010), (4, "851", 1024)]
    {
        dump.cpu(cpu, "regs/identification/midr_el1", &format!("0x00000000410fd{part}\n"));
        dump.cpu(cpu, "cpu_capacity", &format!("{capacity}\n"));
    }
    dump.cpu(5, "cpu_capacity", "1000\n");
    // The last CPU has its design from another file.
    dump.write("proc/cpuinfo", "processor : 5\nCPU implementer : 0x41\nCPU part : 0xd85\n");
    let topology = dump.read().unwrap().topology;
    let classes: Vec<_> = topology.cpus().iter().map(|cpu| cpu.efficiency_class).collect();
    assert_eq!(classes, [0, 0, 1, 1, 1, 1].map(Some));
}

#[test]
fn nodes_of_nothing_are_no_memory() {
    let dump = simple("empty-nodes", 2);
    for (node, map, kib, row) in [(0, "3", 1024, "10 20 30"), (1, "0", 0, "20 10 40"), (2, "0", 512, "30 40 10")] {
        let folder = format!("sys/devices/system/node/node{node}");
        dump.write(&format!("{folder}/cpumap"), map);
        dump.write(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: {kib} kB\n"));
        dump.write(&format!("{folder}/distance"), row);
    }
    let topology = dump.read().unwrap().topology;
    let nodes: Vec<u32> = topology.nodes().iter().map(|node| node.id.0).collect();
    assert_eq!((nodes, topology.distance(CpuId(0), 1)), (vec![0, 2], Some(30.0)));
}

/// As in a hypervisor that gives its guest an L2 of all CPUs and an L3 of some.
#[test]
fn a_cache_shared_by_more_than_what_lies_behind_it_cannot_be() {
    let dump = simple("wide", 8);
    for cpu in 0..8 {
        for (index, level, map) in [(0, "2", "ff"), (1, "3", if cpu < 4 { "f" } else { "f0" })] {
            dump.cpu(cpu, &format!("cache/index{index}/level"), level);
            dump.cpu(cpu, &format!("cache/index{index}/shared_cpu_map"), map);
        }
    }
    let found = dump.read().unwrap();
    assert_eq!(parts_of(&found, Kind::Cache(CacheType::Unified)), ["0-3", "4-7", "0-3", "4-7"]);
    let note = "the L2 cache of CPUs 0-7 is shared by more CPUs than the caches behind it, which cannot be; it is taken \
                as one before each of them";
    assert_eq!(found.notes[0], note);
    assert_eq!((found.topology.llc_domains().len(), found.notes.len()), (2, 1));
    // Cores beside the L3 have an L2 of their own, as on hybrid processors.
    let dump = simple("beside", 4);
    for cpu in 0..4 {
        dump.cpu(cpu, "cache/index0/level", "2");
        dump.cpu(cpu, "cache/index0/shared_cpu_map", if cpu < 2 { "3" } else { "c" });
        if cpu < 2 {
            dump.cpu(cpu, "cache/index1/level", "3");
            dump.cpu(cpu, "cache/index1/shared_cpu_map", "3");
        }
    }
    assert!(dump.read().unwrap().notes.is_empty());
}

/// Groups of packages on s390, of which the list beside the mask may be all that is told.
#[test]
fn books_and_drawers_are_groups_of_packages() {
    let dump = Dump::new("books", &[]);
    let list = |first: u32, count: u32| format!("{first}-{}\n", first + count - 1);
    for cpu in 0..16 {
        for (name, id, count) in [
            ("thread", "core_id", 1),
            ("core", "physical_package_id", 2),
            ("book", "book_id", 4),
            ("drawer", "drawer_id", 8),
        ] {
            dump.cpu(cpu, &format!("topology/{name}_siblings_list"), &list(cpu / count * count, count));
            dump.cpu(cpu, &format!("topology/{id}"), &format!("{}\n", cpu / count));
        }
    }
    let found = dump.read().unwrap();
    assert_eq!(parts_of(&found, Kind::Package).len(), 8);
    let groups = ["0-3", "4-7", "8-11", "12-15", "0-7", "8-15"];
    let told = parts_of(&found, Kind::Cluster);
    assert!(told.len() == groups.len() && groups.iter().all(|group| told.contains(&(*group).to_owned())), "{told:?}");
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    // One drawer, and a book per package, tell nothing new.
    for cpu in 0..16 {
        dump.cpu(cpu, "topology/book_siblings_list", &list(cpu / 2 * 2, 2));
        dump.cpu(cpu, "topology/drawer_siblings_list", "0-15\n");
    }
    assert_eq!(parts_of(&dump.read().unwrap(), Kind::Cluster), Vec::<String>::new());
}

#[test]
fn distances_that_cannot_be_are_unknown() {
    for (rows, is_known) in [
        (["10 20", "20 10"], true),
        (["10 10", "10 10"], true),
        (["20 10", "10 20"], false),
        (["0 0", "0 0"], false),
        (["10 20", "20 0"], false),
    ] {
        let dump = simple("distances", 2);
        for (node, row) in rows.iter().enumerate() {
            let folder = format!("sys/devices/system/node/node{node}");
            dump.write(&format!("{folder}/cpumap"), &format!("{}\n", 1 << node));
            dump.write(&format!("{folder}/distance"), row);
        }
        let found = dump.read().unwrap();
        assert_eq!(found.topology.parts().distances.is_some(), is_known, "{rows:?}");
        assert_eq!(found.notes.is_empty(), is_known, "{:?}", found.notes);
    }
}
