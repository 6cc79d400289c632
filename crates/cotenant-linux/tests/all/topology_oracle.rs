//! Topologies in hwloc's view: the dumps of real machines with the views expected by hwloc's own tests, and the
//! installed `lstopo` on the same dumps, on this machine and on synthetic descriptions.
//!
//! Holds see/topology.

use crate::oracle::{GROUPS, Seen, Sizes, copy, dump, lstopo, shared};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::topology;
use cotenant_model::topology::{Topology, synthetic, xml};
use std::fs;

fn read(path: &std::path::Path) -> Topology {
    topology::read(&FsRoot::at(path), None).unwrap().topology
}

fn same(ours: &Seen, theirs: &Seen, what: &str) {
    for (name, list) in &theirs.objects {
        assert_eq!(ours.objects.get(name), Some(list), "{what}: {name}");
    }
    assert_eq!(ours, theirs, "{what}");
}

/// Compared with the view expected by hwloc's test, and with the installed lstopo: console, XML of format 2 and of
/// format 1.
fn check(name: &str, test: &str) {
    let Some(root) = dump(test, name) else { return };
    let t = read(&root);
    if let Some(view) = shared(test, &format!("topologies/{name}.console")) {
        same(&Seen::ours(&t, Sizes::Rounded), &Seen::console(&fs::read_to_string(view).unwrap()), "expected view");
    }
    let root = root.to_str().unwrap();
    let Some(view) = lstopo(test, &["--input", root, "-v", "--no-io", "--of", "console"]) else { return };
    same(&Seen::ours(&t, Sizes::Exact), &Seen::console(&view), "lstopo's view");
    for format in ["0", "1"] {
        let args = ["--input", root, "--of", "xml", "--export-xml-flags", format];
        let theirs = Seen::ours(&xml::parse(&lstopo(test, &args).unwrap()).unwrap(), Sizes::Exact);
        let mut ours = Seen::ours(&t, Sizes::Exact);
        // Our topologies have no packages without CPUs, so one whose CPUs hwloc removed is not read from its XML.
        ours.objects.get_mut("Package").unwrap().retain(|object| !object.starts_with(' '));
        if format == "1" {
            // Format 1 has neither kinds of cores nor clusters.
            ours.kinds.clear();
            ours.objects.remove("Group(Cluster)");
        }
        same(&ours, &theirs, &format!("lstopo's XML, flags {format}"));
    }
    // Including CPUs forbidden by the cpuset: the same machine with marks.
    let whole = lstopo(test, &["--input", root, "--disallowed", "--of", "xml"]).unwrap();
    let theirs = xml::parse(&whole).unwrap();
    assert_eq!(t.usable(), theirs.usable(), "allowed CPUs");
    assert_eq!(t.online(), theirs.online(), "online CPUs");
    assert_eq!(t.cpus().len(), theirs.cpus().len(), "CPUs");
    assert_eq!(t.packages(), theirs.packages(), "packages with disallowed CPUs");
    assert_eq!(t.cores(), theirs.cores(), "cores with disallowed CPUs");
    let nodes = |t: &Topology| t.nodes().iter().map(|n| (n.id, n.cpus.clone(), n.allowed, n.bytes)).collect::<Vec<_>>();
    assert_eq!(nodes(&t), nodes(&theirs), "nodes with disallowed ones");
}

macro_rules! dumps {
    ($($test:ident: $name:literal),* $(,)?) => { $(
        #[test]
        fn $test() {
            check($name, stringify!($test));
        }
    )* };
}

dumps! {
    arm_clusters_and_asymmetric_distances: "128arm-2pa2n8cluster4co",
    cpuset_and_offline: "16amd64-8n2c-cpusets",
    uma_with_smt: "16em64t-4s2c2t",
    offline_cpus: "16em64t-4s2c2t-offlines",
    hybrid_cores: "20em64t-hybrid-1p6c2t+2ca4co1t",
    power7: "256ppc-8n8s4t",
    arm_without_caches: "2arm-2c",
    four_nodes_xeon: "40intel64-2g2n4c+pcilocality",
    sparse_node_numbers: "48amd64-4pa2n6c-sparse",
    bulldozer_shares_l1i: "64amd64-4s2n4ca2co",
    buggy_numa: "8em64t-2s2ca2c-buggynuma",
    asymmetric_caches: "8em64t-2s4c-asymcaches",
    sixteen_packages: "96em64t-4no4pa3ca2co",
}

/// The changes to a copy of a dump.
type Change<'a> = &'a dyn Fn(&std::path::Path);

/// Real dumps with something taken away or changed, against the installed lstopo.
#[test]
fn changed_dumps() {
    let test = "changed_dumps";
    let every = |root: &std::path::Path, change: &dyn Fn(&std::path::Path)| {
        for entry in fs::read_dir(root.join("sys/devices/system/cpu")).unwrap() {
            change(&entry.unwrap().path());
        }
    };
    let remove = |path: std::path::PathBuf| {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    };
    let changes: [(&str, Change); 7] = [
        ("no caches", &|root| every(root, &|cpu| remove(cpu.join("cache")))),
        ("no siblings", &|root| every(root, &|cpu| remove(cpu.join("topology/core_siblings")))),
        ("no cores", &|root| every(root, &|cpu| remove(cpu.join("topology/thread_siblings")))),
        ("no nodes", &|root| remove(root.join("sys/devices/system/node"))),
        ("one CPU", &|root| fs::write(root.join("sys/devices/system/cpu/online"), "0\n").unwrap()),
        ("a CPU without topology", &|root| remove(root.join("sys/devices/system/cpu/cpu1/topology"))),
        ("cgroup 2", &|root| {
            fs::create_dir_all(root.join("sys/fs/cgroup/job")).unwrap();
            fs::write(root.join("sys/fs/cgroup/cpuset.cpus.effective"), "0-3\n").unwrap();
            fs::write(root.join("sys/fs/cgroup/cgroup.controllers"), "cpuset cpu\n").unwrap();
            fs::write(root.join("sys/fs/cgroup/job/cpuset.cpus.effective"), "1-2\n").unwrap();
            // hwloc before 3 looks nowhere else.
            fs::write(root.join("proc/mounts"), "none /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
            fs::create_dir_all(root.join("proc/self")).unwrap();
            fs::write(root.join("proc/self/cgroup"), "0::/job\n").unwrap();
            remove(root.join("proc/self/cpuset"));
        }),
    ];
    for name in ["16em64t-4s2c2t", "48amd64-4pa2n6c-sparse"] {
        for (what, change) in changes {
            // On the second only the parts about nodes. Not the CPU without topology, whose node lstopo 2 shows at the
            // machine.
            if name.starts_with("48") && !["no nodes", "one CPU"].contains(&what) {
                continue;
            }
            let Some(root) = copy(test, name) else { return };
            change(&root);
            let view = lstopo(test, &["--input", root.to_str().unwrap(), "-v", "--no-io", "--of", "console"]);
            let ours = Seen::ours(&read(&root), Sizes::Exact);
            fs::remove_dir_all(&root).unwrap();
            let Some(view) = view else { return };
            same(&ours, &Seen::console(&view), &format!("{name}, {what}"));
        }
    }
}

#[test]
fn xml_files() {
    let test = "xml_files";
    for name in ["192em64t-12gr2n8c2t", "40intel64-2g2n4c+pcilocality"] {
        let Some(path) = shared(test, &format!("topologies/{name}.xml")) else { return };
        let t = xml::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        if name.starts_with("40") {
            let Some(root) = dump(test, name) else { return };
            same(&Seen::ours(&read(&root), Sizes::Exact), &Seen::ours(&t, Sizes::Exact), "dump and XML");
        } else {
            // 12 pairs of packages, each package a node of 8 cores with 2 contexts.
            let counts = (t.packages().len(), t.nodes().len(), t.cores().len(), t.cpus().len(), t.llc_domains().len());
            assert_eq!(counts, (24, 24, 192, 384, 24));
        }
        // The installed lstopo may be older than the file: formats 3 and 2 are the same in the parts read here.
        let copy = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.2.xml"));
        let format_3 = fs::read_to_string(&path).unwrap();
        fs::write(&copy, format_3.replace("topology version=\"3.0\"", "topology version=\"2.0\"")).unwrap();
        let args = ["--input", copy.to_str().unwrap(), "-v", "--no-io", "--of", "console"];
        let Some(view) = lstopo(test, &args) else { return };
        same(&Seen::ours(&t, Sizes::Exact), &Seen::console(&view), name);
    }
}

#[test]
fn this_machine() {
    let test = "this_machine";
    let Ok(found) = topology::read(&FsRoot::live(), None) else {
        eprintln!("skipped: {test}: sysfs is hidden here");
        return;
    };
    let Some(view) = lstopo(test, &["--of", "xml"]) else { return };
    let theirs = xml::parse(&view).unwrap();
    let (mut ours, mut theirs) = (Seen::ours(&found.topology, Sizes::Exact), Seen::ours(&theirs, Sizes::Exact));
    // hwloc also queries the CPUs themselves (cpuid), which shows kinds of cores that sysfs may hide, and sets its own
    // cpukinds.
    ours.kinds.clear();
    theirs.kinds.clear();
    same(&ours, &theirs, "this machine");
}

#[test]
fn synthetic_descriptions() {
    let test = "synthetic_descriptions";
    for text in [
        "pack:2 node:1 l2:1 core:2 pu:1",
        "2 3 4 5 6",
        "3",
        "2 2",
        "2 2 2",
        "2 2 2 2",
        "2 2 1 1 1 1 1 2 2",
        "2 2 2 2 1 1 1 1 2 2",
        "package:1 group:4 [numa(memory=96GB)] [numa(memory=16GiB)] core:16 pu:4",
        "[NUMANode(memory=16GB)] Package:2 L3Cache:1(size=25MiB) L2Cache:10(size=256KiB) L1dCache:1 L1iCache:1 Core:1 PU:2",
        "package:2 l3:1 core:10 pu:2(indexes=2*10:1*2:20*2)",
        "package:2 l3:1 core:10 pu:2(indexes=package:core)",
        "numa:2 core:4 pu:2(indexes=numa:core)",
        "package:2(indexes=7,3) core:2 pu:1(indexes=3,1,2,0)",
        "core:4 pu:2(indexes=2*4:1*2)",
        "socket:2 die:2 [numa] l3:2 group:2 core:2 pu:1",
        "group:2 group:2 core:2 pu:1",
        "numa:3(indexes=4,0,2 memory=1GB) pu:2",
        "package:2 [numa(indexes=5,1)] core:2 pu:1",
        "pack:2 [numa] die:2 [numa] core:2 pu:1",
    ] {
        let ours = synthetic::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let Some(view) = lstopo(test, &["--input", text, "--if", "synthetic", "--of", "xml"]) else { return };
        let theirs = xml::parse(&view).unwrap();
        let (mut a, mut b) = (Seen::ours(&ours, Sizes::Ignored), Seen::ours(&theirs, Sizes::Ignored));
        // hwloc's groups have no subtype, so that ours are indistinguishable from those that it makes for nodes.
        for group in GROUPS {
            a.objects.remove(group);
            b.objects.remove(group);
        }
        same(&a, &b, text);
        let sizes = |t: &Topology| t.resources().iter().map(|r| r.capacity).collect::<Vec<_>>();
        let nodes = |t: &Topology| t.nodes().iter().map(|n| n.bytes).collect::<Vec<_>>();
        let given = |ours: Vec<Option<u64>>, theirs: Vec<Option<u64>>| {
            ours.into_iter().zip(theirs).all(|(a, b)| a.is_none() || a == b)
        };
        if !text.contains("group") && !text.contains("tile") {
            assert!(given(sizes(&ours), sizes(&theirs)), "{text}");
        }
        assert!(given(nodes(&ours), nodes(&theirs)), "{text}");
    }
}
