//! Machines that a seed makes up, told as Linux tells of machines: any shape up to 1,024 CPUs, holes in every
//! numbering, CPUs in any order, some of them offline, cores of different designs, nodes without memory and without
//! CPUs, and what a cpuset of any kind forbids.

use crate::random::Random;
use cotenant_model::{CpuId, CpuSet};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

/// The most CPUs of a machine.
const MOST: usize = 1024;

/// Numbers of parts, each per next larger part.
#[derive(Debug)]
struct Shape {
    packages: usize,
    dies: usize,
    /// Of a die: its last-level caches.
    domains: usize,
    cores: usize,
    threads: usize,
}

impl Shape {
    fn cpus(&self) -> usize {
        self.packages * self.die() * self.dies
    }

    fn core(&self) -> usize {
        self.threads
    }

    fn domain(&self) -> usize {
        self.cores * self.threads
    }

    fn die(&self) -> usize {
        self.domains * self.domain()
    }

    fn package(&self) -> usize {
        self.dies * self.die()
    }

    fn drawn(random: &mut Random) -> Self {
        // Many small ones, and few that take long.
        let most = if random.once_in(20) { MOST } else { MOST >> (2 + random.below(9)) };
        loop {
            let shape = Self {
                packages: 1 + random.below(8),
                dies: 1 + random.below(2),
                domains: [1, 1, 2, 4][random.below(4)],
                cores: 1 + random.below(24),
                threads: [1, 1, 2, 2, 4, 8][random.below(6)],
            };
            if shape.cpus() <= most {
                return shape;
            }
        }
    }
}

/// Cores of one make.
#[derive(Clone, Copy, Debug)]
struct Design {
    part: u32,
    capacity: u32,
}

const DESIGNS: [Design; 3] = [
    Design { part: 0xd05, capacity: 300 },
    Design { part: 0xd0d, capacity: 700 },
    Design { part: 0xd44, capacity: 1024 },
];

/// One that is being made.
struct Machine<'a> {
    root: &'a Path,
    /// The numbers of its CPUs, in the order of their places.
    numbers: Vec<u32>,
    online: CpuSet,
    /// Masks by first place and number of places.
    known: RefCell<HashMap<(usize, usize), String>>,
}

impl Machine<'_> {
    fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        let text = format!("{text}\n");
        if fs::write(&path, &text).is_err() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// The online CPUs among the `span` places around one.
    fn around(&self, place: usize, span: usize) -> CpuSet {
        let first = place / span * span;
        self.numbers[first..first + span].iter().map(|n| CpuId(*n)).filter(|cpu| self.online.contains(*cpu)).collect()
    }

    /// Of [`Machine::around`], as a mask.
    fn shared(&self, place: usize, span: usize) -> String {
        let first = place / span * span;
        let mut known = self.known.borrow_mut();
        known.entry((first, span)).or_insert_with(|| self.mask(&self.around(first, span))).clone()
    }

    fn mask(&self, cpus: &CpuSet) -> String {
        let most = self.numbers.iter().max().unwrap() / 32;
        let word =
            |n: u32| (0..32).filter(|bit| cpus.contains(CpuId(32 * n + bit))).fold(0, |word, bit| word | 1 << bit);
        (0..=most).rev().map(|n| format!("{:08x}", word(n))).collect::<Vec<String>>().join(",")
    }
}

/// Makes the machine of a seed below the empty `root`; returns its description for people.
pub fn machine(root: &Path, seed: u64) -> String {
    let mut random = Random(seed);
    let shape = match seed {
        0 => Shape { packages: 1, dies: 1, domains: 1, cores: 1, threads: 1 },
        1 => Shape { packages: 8, dies: 2, domains: 4, cores: 8, threads: 2 },
        _ => Shape::drawn(&mut random),
    };
    let numbers = numbering(&mut random, &shape);
    let some_are_off = random.once_in(3);
    let mut online: CpuSet =
        numbers.iter().map(|n| CpuId(*n)).filter(|_| !some_are_off || !random.once_in(6)).collect();
    online.insert(CpuId(numbers[random.below(numbers.len())]));
    let machine = Machine { root, numbers, online, known: RefCell::default() };
    cpus(&machine, &mut random, &shape);
    let (nodes, with_memory) = nodes(&machine, &mut random, &shape);
    let forbids = random.once_in(4);
    if forbids {
        cpuset(&machine, &mut random, &with_memory);
    }
    if shape.packages == 4 || shape.packages == 8 {
        books(&machine, &shape);
    }
    format!("seed {seed}: {shape:?}, online {}, nodes {nodes}, a cpuset: {forbids}", machine.online)
}

/// The numbers of CPUs by their place: contexts of a core adjacent, separate, or in no order.
fn numbering(random: &mut Random, shape: &Shape) -> Vec<u32> {
    let mut numbers = random.numbers(shape.cpus());
    match random.below(3) {
        0 => numbers,
        1 => {
            let cores = numbers.len() / shape.threads;
            (0..numbers.len()).map(|i| numbers[i % shape.threads * cores + i / shape.threads]).collect()
        }
        _ => {
            random.shuffle(&mut numbers);
            numbers
        }
    }
}

fn cpus(machine: &Machine, random: &mut Random, shape: &Shape) {
    const CPU: &str = "sys/devices/system/cpu";
    let Machine { numbers, online, .. } = machine;
    let all: CpuSet = numbers.iter().map(|n| CpuId(*n)).collect();
    machine.put(&format!("{CPU}/online"), &online.to_string());
    machine.put(&format!("{CPU}/offline"), &all.minus(online).to_string());
    machine.put(&format!("{CPU}/present"), &all.to_string());
    machine.put(&format!("{CPU}/possible"), &format!("0-{}", all.last().unwrap()));
    machine.put(&format!("{CPU}/kernel_max"), "8191");
    // Designs of cores, by their domains. Packages of different ones are clusters for us, and for us alone.
    let differ = shape.packages == 1 && random.once_in(2);
    let designs: Vec<Design> = (0..shape.cpus() / shape.domain())
        .map(|_| DESIGNS[if differ { random.below(DESIGNS.len()) } else { 0 }])
        .collect();
    let design = |place: usize| designs[place / shape.domain()];
    let info = |cpu: CpuId| {
        if differ {
            let place = numbers.iter().position(|n| *n == cpu.0).unwrap();
            let part = design(place).part;
            return format!(
                "processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {part:#x}\n\n"
            );
        }
        format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Made up\n\n"
        )
    };
    machine.put("proc/cpuinfo", &online.iter().map(info).collect::<String>());
    // The firmware's ids have no order.
    let mut ids = |count: usize| {
        let mut ids = random.numbers(count);
        random.shuffle(&mut ids);
        ids
    };
    let (packages, dies) = (ids(shape.packages), ids(shape.dies));
    let cores = ids(shape.package() / shape.core());
    let grouped = [1, 2, 4].into_iter().filter(|n| shape.cores.is_multiple_of(*n)).collect::<Vec<usize>>();
    let group = grouped[random.below(grouped.len())] * shape.core();
    let are_clusters = random.once_in(2);
    let has_new_names = random.once_in(2);
    let caches = caches(random, shape, if are_clusters { shape.core() } else { group });
    for (place, number) in numbers.iter().enumerate() {
        let folder = format!("{CPU}/cpu{number}");
        let is_online = online.contains(CpuId(*number));
        if *number > 0 {
            machine.put(&format!("{folder}/online"), if is_online { "1" } else { "0" });
        }
        if !is_online {
            continue;
        }
        let mut told = vec![
            // The names known to all tools.
            ("core_siblings", machine.shared(place, shape.package())),
            ("thread_siblings", machine.shared(place, shape.core())),
            ("physical_package_id", packages[place / shape.package()].to_string()),
            ("die_cpus", machine.shared(place, shape.die())),
            ("die_id", dies[place / shape.die() % shape.dies].to_string()),
            ("core_id", cores[place % shape.package() / shape.core()].to_string()),
        ];
        if are_clusters {
            told.push(("cluster_cpus", machine.shared(place, group)));
            told.push(("cluster_id", (place / group).to_string()));
        }
        if has_new_names {
            told.push(("package_cpus", machine.shared(place, shape.package())));
            told.push(("core_cpus", machine.shared(place, shape.core())));
        }
        for (name, text) in told {
            machine.put(&format!("{folder}/topology/{name}"), &text);
        }
        if differ {
            let Design { part, capacity } = design(place);
            machine.put(&format!("{folder}/cpu_capacity"), &capacity.to_string());
            machine
                .put(&format!("{folder}/regs/identification/midr_el1"), &format!("{:#018x}", 0x410f_0000 | part << 4));
        }
        for (index, (level, kind, kib, span)) in caches.iter().enumerate() {
            let folder = format!("{folder}/cache/index{index}");
            machine.put(&format!("{folder}/level"), &level.to_string());
            machine.put(&format!("{folder}/type"), kind);
            machine.put(&format!("{folder}/size"), &format!("{kib}K"));
            machine.put(&format!("{folder}/coherency_line_size"), "64");
            machine.put(&format!("{folder}/shared_cpu_map"), &machine.shared(place, *span));
        }
    }
}

/// Level, type, KiB and the places that share it.
fn caches(random: &mut Random, shape: &Shape, second: usize) -> Vec<(u8, &'static str, usize, usize)> {
    if random.once_in(6) {
        return Vec::new();
    }
    let mut caches = vec![(1, "Data", 32, shape.core()), (1, "Instruction", 64, shape.core())];
    if !random.once_in(6) {
        caches.push((2, "Unified", 1 << (8 + random.below(4)), second));
    }
    if !random.once_in(4) {
        caches.push((3, "Unified", 1024 * (1 + random.below(64)), shape.domain()));
    }
    caches
}

/// Groups of two packages, and of four, as s390 has them.
fn books(machine: &Machine, shape: &Shape) {
    // hwloc reads them there alone.
    machine.put("proc/hwloc-nofile-info", "Architecture: s390x");
    for (place, number) in machine.numbers.iter().enumerate().filter(|(_, n)| machine.online.contains(CpuId(**n))) {
        for (name, packages) in [("book", 2), ("drawer", 4)] {
            let folder = format!("sys/devices/system/cpu/cpu{number}/topology/{name}");
            let span = packages * shape.package();
            machine.put(&format!("{folder}_siblings"), &machine.shared(place, span));
            machine.put(&format!("{folder}_id"), &(place / span).to_string());
        }
    }
}

/// Memory nodes of all, of packages, of pairs of them, or of parts of them; some without memory, some without CPUs,
/// some without either. Their numbers, and those of nodes with memory, which alone cpusets can name.
fn nodes(machine: &Machine, random: &mut Random, shape: &Shape) -> (CpuSet, CpuSet) {
    machine.put("proc/meminfo", "MemTotal:       67108864 kB");
    let span = match random.below(6) {
        0 => return (CpuSet::new(), CpuSet::new()),
        1 => shape.cpus(),
        2 => shape.domain(),
        3 if shape.packages.is_multiple_of(2) => 2 * shape.package(),
        _ => shape.package(),
    };
    let mut homes: Vec<CpuSet> = (0..shape.cpus()).step_by(span).map(|place| machine.around(place, span)).collect();
    let is_some_bare = random.once_in(3);
    let more = if random.once_in(3) { 1 + random.below(4) } else { 0 };
    let mut kib: Vec<usize> = homes
        .iter()
        .map(|_| if is_some_bare && random.once_in(2) { 0 } else { 1024 * (1 + random.below(1 << 20)) })
        .collect();
    for _ in 0..more {
        homes.push(CpuSet::new());
        kib.push(if random.once_in(3) { 0 } else { 1024 * (1 + random.below(1 << 20)) });
    }
    kib[0] = kib[0].max(1024); // there is memory somewhere
    let mut numbers = random.numbers(homes.len());
    if random.once_in(2) {
        random.shuffle(&mut numbers);
    }
    let mut by_number: Vec<(u32, CpuSet, usize)> =
        numbers.into_iter().zip(homes).zip(kib).map(|((number, cpus), kib)| (number, cpus, kib)).collect();
    by_number.sort_by_key(|node| node.0);
    let listed: CpuSet = by_number.iter().map(|node| CpuId(node.0)).collect();
    let mut apart: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for a in listed.iter() {
        for b in listed.iter() {
            let drawn = if a == b { 10 } else { 11 + random.below(30) };
            let both = *apart.entry((b.0, a.0)).or_insert(drawn);
            apart.insert((a.0, b.0), both);
        }
    }
    let folder = "sys/devices/system/node";
    machine.put(&format!("{folder}/online"), &listed.to_string());
    machine.put(&format!("{folder}/possible"), &listed.to_string());
    for (number, cpus, kib) in &by_number {
        let folder = format!("{folder}/node{number}");
        let row: Vec<String> = listed.iter().map(|to| apart[&(*number, to.0)].to_string()).collect();
        machine.put(&format!("{folder}/cpumap"), &machine.mask(cpus));
        machine.put(&format!("{folder}/distance"), &row.join(" "));
        machine.put(&format!("{folder}/meminfo"), &format!("Node {number} MemTotal:       {kib} kB"));
    }
    let with_memory = by_number.iter().filter(|node| node.2 > 0).map(|node| CpuId(node.0)).collect();
    (listed, with_memory)
}

/// A control group that allows some of the CPUs and nodes.
fn cpuset(machine: &Machine, random: &mut Random, nodes: &CpuSet) {
    let mut some = |of: &CpuSet| -> CpuSet {
        let all: Vec<CpuId> = of.iter().collect();
        let kept = all.get(random.below(all.len().max(1))).copied();
        all.iter().copied().filter(|_| !random.once_in(3)).chain(kept).collect()
    };
    let (cpus, mems) = (some(&machine.online), some(nodes));
    machine.put("proc/self/cpuset", "/job");
    let (folder, mount, [of_cpus, of_mems]) = [
        ("sys/fs/cgroup", "cgroup2 rw", ["cpuset.cpus.effective", "cpuset.mems.effective"]),
        ("sys/fs/cgroup/cpuset", "cgroup rw,cpuset", ["cpuset.cpus", "cpuset.mems"]),
        ("dev/cpuset", "cpuset rw", ["cpus", "mems"]),
    ][random.below(3)];
    machine.put("proc/mounts", &format!("none /{folder} {mount} 0 0"));
    machine.put(&format!("{folder}/cgroup.controllers"), "cpuset cpu");
    machine.put(&format!("{folder}/{of_cpus}"), &machine.online.to_string());
    machine.put(&format!("{folder}/job/{of_cpus}"), &cpus.to_string());
    if !nodes.is_empty() {
        machine.put(&format!("{folder}/job/{of_mems}"), &mems.to_string());
    }
}
