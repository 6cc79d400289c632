//! Two hundred machines, as `lscpu` and hwloc see them: each divides the CPUs by what they share, and the three agree
//! except for differences listed here with reasons.

use crate::made;
use crate::oracle::{GROUPS, Seen, Sizes, dump, of_shared, unpacked};
use cotenant_linux::FsRoot;
use cotenant_linux::sense::topology;
use cotenant_model::topology::{CacheType, Kind, Topology};
use cotenant_model::{CpuId, CpuSet};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sets of CPUs by their shared resource, under `lscpu`'s name for it.
type Groups = BTreeMap<String, BTreeSet<String>>;

/// Known differences of other tools on machines with real dumps: the tool, the machine, the part (`*`: all), and the
/// reason. Each is checked to exist.
const DIFFERENCES: &[(&str, &str, &[&str], &str)] = &[
    ("lscpu", "16em64t-4s2c2t", ALL, NO_POSSIBLE),
    ("lscpu", "16em64t-4s2c2t-offlines", ALL, NO_POSSIBLE),
    ("lscpu", "256ppc-8n8s4t", ALL, NO_POSSIBLE),
    ("lscpu", "96em64t-4no4pa3ca2co", ALL, NO_POSSIBLE),
    ("lscpu", "64amd64-4s2n4ca2co", &["Core"], "the compute units of AMD's family 15h hold two cores"),
    ("lscpu", "8em64t-2s4c-asymcaches", &["L1d", "L2"], "it knows caches by their place in the list of the first CPU"),
    ("lscpu", "lxcfs-one", ALL, RENUMBERED),
    ("hwloc", "lxcfs-one", ALL, RENUMBERED),
    ("lscpu", "uniprocessor", &["Core", "Socket"], "a CPU of which nothing is told is a core and a package"),
    ("hwloc", "uniprocessor", &["PU", "NUMANode"], "it gives up where no CPU tells its topology"),
    ("hwloc", "container-v1", ALL, "it does not ask which group is mounted, and takes everything as allowed"),
    ("hwloc", "arm-binned", &["kinds"], "it takes bins of one design for kinds"),
    ("lscpu", "l3-over-packages", &["L3"], SPANS),
    ("hwloc", "l3-over-packages", &["L3Cache"], SPANS),
    ("hwloc", "sparc-caches", &["L1dCache", "L1iCache", "L2Cache"], "it reads no caches beside the topology"),
];

const ALL: &[&str] = &["*"];
const NO_POSSIBLE: &str = "it gives up where sys/devices/system/cpu/possible was not gathered";
const RENUMBERED: &str = "it believes lxcfs' list of online CPUs, which numbers them anew";
const SPANS: &str = "a cache over packages that have memory of their own cannot be";

/// A tool's output, short on a refusal; `None`, with a message, if it is missing.
fn told(test: &str, [program, package]: [&str; 2], args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).env("LC_ALL", "C").output() {
        Ok(out) => Some(String::from_utf8(out.stdout).unwrap()),
        Err(e) => {
            eprintln!("skipped: {test}: {program} (package {package}) cannot be run: {e}");
            None
        }
    }
}

const LSCPU: [&str; 2] = ["lscpu", "util-linux"];
const LSTOPO: [&str; 2] = ["lstopo-no-graphics", "hwloc-nox"];

/// What `lscpu` says that CPUs share. It numbers the cores of each kind anew, so that the kind distinguishes them, too;
/// where kinds take turns among the numbers of CPUs it mixes them up, which no real machine does.
fn groups_of_lscpu(text: &str, t: &Topology) -> Groups {
    let heads: Vec<&str> = text
        .lines()
        .rfind(|line| line.starts_with('#'))
        .map_or(Vec::new(), |line| line.trim_start_matches(['#', ' ']).split(',').collect());
    let mut found: BTreeMap<(&str, &str, Option<u8>), CpuSet> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split(',').collect();
        // Without a known online CPU it prints an empty line.
        let Ok(cpu) = cells[0].parse() else { continue };
        for (&head, &cell) in heads.iter().zip(&cells).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            let kind = t.cpu(CpuId(cpu)).and_then(|cpu| cpu.efficiency_class);
            found.entry((head, cell, kind.filter(|_| head == "Core"))).or_default().insert(CpuId(cpu));
        }
    }
    let mut groups = Groups::new();
    for ((head, ..), cpus) in found {
        groups.entry(head.to_owned()).or_default().insert(cpus.to_string());
    }
    groups
}

/// The same as we see it.
fn groups(t: &Topology, has_nodes: bool) -> Groups {
    let mut groups = Groups::new();
    let mut add = |name: String, cpus: &CpuSet| {
        if !cpus.is_empty() {
            groups.entry(name).or_default().insert(cpus.to_string());
        }
    };
    t.cores().iter().for_each(|cpus| add("Core".into(), cpus));
    t.packages().iter().for_each(|cpus| add("Socket".into(), cpus));
    // Without nodes in the kernel we have one, of all CPUs.
    if has_nodes {
        t.nodes().iter().for_each(|node| add("Node".into(), &node.cpus));
    }
    for cluster in t.of_kind(Kind::Cluster).filter(|cluster| cluster.level > 0) {
        add(["Book", "DRAWER"][usize::from(cluster.level) - 1].to_owned(), &cluster.cpus);
    }
    for cache in t.resources() {
        let Kind::Cache(kind) = cache.kind else { continue };
        let letter = match kind {
            CacheType::Data => "d",
            CacheType::Instruction => "i",
            CacheType::Unified => "",
        };
        add(format!("L{}{letter}", cache.level), &cache.cpus);
    }
    groups
}

/// What hwloc shows, by name, and the same of us. What both tell otherwise wherever it occurs is made alike:
/// * hwloc gives a node without CPUs those nearby.
/// * It keeps nodes that have neither CPUs nor memory, as firmware leaves for devices that may bring some.
/// * It shows no size of 0.
/// * It keeps CPUs that are not allowed among the kinds of cores.
/// * It drops clusters if a cpuset leaves each the same CPUs as another part.
/// * It keeps a drawer of all CPUs if there is a node without CPUs.
fn shown(t: &Topology, view: &str) -> [BTreeMap<String, Vec<String>>; 2] {
    let (mut ours, mut theirs) = (Seen::ours(t, Sizes::Exact), Seen::console(view));
    let number =
        |node: &String| -> u32 { node.split(' ').find_map(|word| word.strip_prefix("P#")?.parse().ok()).unwrap() };
    let ours_of = |n: u32| t.nodes().iter().find(|node| node.id.0 == n);
    for node in ours.objects.get_mut("NUMANode").into_iter().flatten() {
        *node = node.replace(" local=0KB", "");
    }
    let nodes = theirs.objects.entry("NUMANode".into()).or_default();
    let mut numbers: Vec<u32> = nodes.iter().map(number).collect();
    numbers.sort_unstable();
    let is_empty = |node: &String| ours_of(number(node)).is_none() && !node.contains("local=");
    let kept: Vec<bool> =
        numbers.iter().map(|n| !nodes.iter().any(|node| number(node) == *n && is_empty(node))).collect();
    nodes.retain(|node| !is_empty(node));
    for node in nodes {
        if ours_of(number(node)).is_some_and(|node| node.cpus.and(t.usable()).is_empty()) {
            node.replace_range(..node.find(' ').unwrap(), "");
        }
    }
    let mut keep = kept.iter();
    theirs.distances.retain(|_| *keep.next().unwrap());
    for row in &mut theirs.distances {
        let mut keep = kept.iter();
        row.retain(|_| *keep.next().unwrap());
    }
    theirs.distances.retain(|row| row.len() > 1);
    for kind in &mut theirs.kinds {
        *kind = CpuSet::parse_list(kind).unwrap().and(t.usable()).to_string();
    }
    theirs.kinds.retain(|kind| !kind.is_empty());
    if theirs.kinds.len() < 2 {
        theirs.kinds.clear();
    }
    let left = |cpus: &CpuSet| cpus.and(t.usable());
    let others = || t.resources().iter().filter(|part| part.kind != Kind::Cluster);
    let says_nothing = |cluster: &CpuSet| others().any(|part| left(&part.cpus) == left(cluster));
    let all = t.usable().to_string();
    for (level, name) in GROUPS.into_iter().enumerate() {
        if let Some(list) = theirs.objects.get_mut(name) {
            list.retain(|group| group.split(' ').next() != Some(&all));
        }
        let mut ours_of = t.of_kind(Kind::Cluster).filter(|part| usize::from(part.level) == level);
        if !theirs.objects.contains_key(name) && ours_of.all(|part| says_nothing(&part.cpus)) {
            ours.objects.remove(name);
        }
    }
    [ours, theirs].map(|Seen { mut objects, distances, kinds, absent }| {
        for list in objects.values_mut() {
            list.sort();
        }
        objects.retain(|_, list| !list.is_empty());
        objects.insert("distances".into(), distances.iter().map(|row| format!("{row:?}")).collect());
        objects.insert("kinds".into(), kinds);
        objects.insert("absent".into(), vec![absent]);
        objects
    })
}

/// Differences between two readings, for subjects in the first one.
fn differing<T: PartialEq + std::fmt::Debug>(
    ours: &BTreeMap<String, T>,
    theirs: &BTreeMap<String, T>,
) -> BTreeMap<String, String> {
    let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let differ = names.into_iter().filter(|name| ours.get(*name) != theirs.get(*name));
    differ.map(|name| (name.clone(), format!("{name}: {:?}, not {:?}", ours.get(name), theirs.get(name)))).collect()
}

/// Each list of sets has each CPU once.
fn divides(sets: &[&CpuSet], all: &CpuSet) -> bool {
    let named: usize = sets.iter().map(|set| set.len()).sum();
    named == all.len() && sets.iter().fold(CpuSet::new(), |so_far, set| so_far.or(set)) == *all
}

fn check_division(name: &str, t: &Topology) {
    let lists = [
        ("packages", t.packages().iter().collect(), t.online()),
        ("cores", t.cores().iter().collect(), t.online()),
        ("domains", t.llc_domains().iter().map(|domain| &domain.cpus).collect::<Vec<&CpuSet>>(), t.usable()),
    ];
    for (what, sets, all) in lists {
        assert!(divides(&sets, all), "{name}: {what} {sets:?} do not divide {all}");
    }
    // A node may be missing, but no CPU is at two.
    let nodes: Vec<&CpuSet> = t.nodes().iter().map(|node| &node.cpus).collect();
    let together = nodes.iter().fold(CpuSet::new(), |so_far, set| so_far.or(set));
    assert!(divides(&nodes, &together), "{name}: nodes {nodes:?}");
    for cpu in t.online().iter() {
        assert!(
            t.core_of(cpu).is_some() && t.package_of(cpu).is_some() && t.llc_of(cpu).is_some(),
            "{name}: CPU {cpu}"
        );
    }
}

/// Faults in the reading of one machine.
fn judge(test: &str, name: &str, root: &Path, made: bool) -> Vec<String> {
    let t = topology::read(&FsRoot::at(root), None).unwrap_or_else(|e| panic!("{name}: {e}")).topology;
    check_division(name, &t);
    let path = root.to_str().unwrap();
    let table = told(test, LSCPU, &["-s", path, "-p=CPU,CORE,SOCKET,BOOK,DRAWER,NODE,CACHE"]).unwrap();
    let view = told(test, LSTOPO, &["--input", path, "-v", "--no-io", "--of", "console"]).unwrap();
    let [ours, theirs] = shown(&t, &view);
    let mut of_lscpu = [groups(&t, root.join("sys/devices/system/node").exists()), groups_of_lscpu(&table, &t)];
    if made && t.cpus().iter().any(|cpu| cpu.efficiency_class.is_some()) {
        for groups in &mut of_lscpu {
            groups.remove("Core");
        }
    }
    // A book or drawer with the CPUs of a package, of the machine, or of the other is left out.
    let packages: BTreeSet<String> = t.packages().iter().chain([t.online()]).map(ToString::to_string).collect();
    let [ours_of, theirs_of] = &mut of_lscpu;
    for name in ["Book", "DRAWER"] {
        let ours = ours_of.get(name).cloned().unwrap_or_default();
        let Some(sets) = theirs_of.get_mut(name) else { continue };
        let others: BTreeSet<String> = ours_of.values().flatten().cloned().collect();
        sets.retain(|set| ours.contains(set) || !(packages.contains(set) || others.contains(set)));
        if sets.is_empty() {
            theirs_of.remove(name);
        }
    }
    let mut wrong = Vec::new();
    for (tool, found) in [("lscpu", differing(&of_lscpu[0], &of_lscpu[1])), ("hwloc", differing(&ours, &theirs))] {
        let known = DIFFERENCES.iter().find(|known| (known.0, known.1) == (tool, name) && !made);
        let expected = |what: &str| known.is_some_and(|(.., of, _)| of.contains(&"*") || of.contains(&what));
        wrong.extend(
            found.iter().filter(|(what, _)| !expected(what)).map(|(_, text)| format!("{name}, {tool}: {text}")),
        );
        let gone = known.into_iter().flat_map(|known| known.2).filter(|what| match **what {
            "*" => found.is_empty(),
            what => !found.contains_key(what),
        });
        wrong.extend(gone.map(|what| format!("{name}, {tool}: no difference in {what} any more")));
    }
    wrong
}

fn both_are_here(test: &str) -> bool {
    [LSCPU, LSTOPO].iter().all(|tool| told(test, *tool, &["--version"]).is_some())
}

/// Holds see/topology.
#[test]
fn machines_of_reports_are_read_as_other_tools_do() {
    let test = "machines_of_reports_are_read_as_other_tools_do";
    if !both_are_here(test) {
        return;
    }
    let mut roots: Vec<(String, PathBuf)> = Vec::new();
    let Some(folder) = of_shared(test, "data/topologies") else { return };
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        if let Some(name) = file.strip_suffix(".tar.bz2") {
            let Some(root) = dump(test, name) else { return };
            roots.push((name.to_owned(), root));
        }
    }
    let Some(archive) = of_shared(test, "cases/machines.tar.xz") else { return };
    let Some(cases) = unpacked(test, &archive, "cases") else { return };
    for case in fs::read_dir(cases).unwrap().map(Result::unwrap).filter(|case| case.path().is_dir()) {
        roots.push((case.file_name().into_string().unwrap(), case.path()));
    }
    assert!(roots.len() >= 20, "{roots:?}");
    let wrong: Vec<String> = roots.iter().flat_map(|(name, root)| judge(test, name, root, false)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Holds see/topology.
#[test]
fn made_up_machines_are_read_as_other_tools_do() {
    const MACHINES: u64 = 200;
    let test = "made_up_machines_are_read_as_other_tools_do";
    if !both_are_here(test) {
        return;
    }
    // Ext4 is slow to make files where many were removed.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
    // An environment variable with the first seed selects other machines.
    let first = std::env::var("COTENANT_FIRST_SEED").map_or(0, |seed| seed.parse().unwrap());
    let next = AtomicU64::new(first);
    let some = || {
        let mut wrong = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + MACHINES {
                return wrong;
            }
            let root = folder.join(format!("cotenant-made.{}.{seed}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let what = made::machine(&root, seed);
            wrong.extend(judge(test, &what, &root, true));
            fs::remove_dir_all(&root).unwrap();
        }
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
