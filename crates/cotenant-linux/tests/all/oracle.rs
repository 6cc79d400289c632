//! A machine in hwloc's view, from our topology and from `lstopo`'s console view, in one comparable form.

use cotenant_model::topology::{CacheType, Kind, Resource, Topology};
use cotenant_model::{CpuId, CpuSet};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Objects by hwloc's name of their type; each as text: its CPUs, its number, its sizes.
pub type Objects = BTreeMap<String, Vec<String>>;

/// The compared parts.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub objects: Objects,
    /// The distance table between the present nodes, in ascending order of number.
    pub distances: Vec<Vec<u64>>,
    /// CPUs of each kind of core, weakest first; empty where all are alike.
    pub kinds: Vec<String>,
    /// CPUs that exist but are offline or not allowed.
    pub absent: String,
}

/// Our clusters by level, by hwloc's name.
pub const GROUPS: [&str; 3] = ["Group(Cluster)", "Group(Book)", "Group(Drawer)"];

/// Precision of the numbers.
#[derive(Clone, Copy, PartialEq)]
pub enum Sizes {
    /// hwloc 2: kB.
    Exact,
    /// hwloc 3: three digits and a unit.
    Rounded,
    /// The common parts for synthetic machines, since hwloc invents the rest.
    Ignored,
}

fn size(bytes: u64, sizes: Sizes) -> String {
    let round = |shift: u32| ((bytes >> (shift - 1)) + 1) >> 1;
    match sizes {
        Sizes::Ignored => String::new(),
        Sizes::Exact => format!("{}KB", round(10)),
        Sizes::Rounded if bytes < 10 << 20 => format!("{}KiB", round(10)),
        Sizes::Rounded if bytes < 10 << 30 => format!("{}MiB", round(20)),
        Sizes::Rounded if bytes < 10 << 40 => format!("{}GiB", round(30)),
        Sizes::Rounded => format!("{}TiB", round(40)),
    }
}

/// Depth of an object among those with the same CPUs.
fn depth(r: &Resource) -> u8 {
    match r.kind {
        Kind::Package => 0,
        Kind::Die => 1,
        Kind::Cluster => 2,
        Kind::Cache(CacheType::Instruction) => 200,
        Kind::Cache(_) => 100 - r.level,
        _ => 255,
    }
}

fn object(cpus: &CpuSet, number: Option<u32>, details: &[(&str, String)]) -> String {
    let number = number.map_or(String::new(), |n| format!(" P#{n}"));
    let details: Vec<String> =
        details.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| format!(" {k}={v}")).collect();
    format!("{cpus}{number}{}", details.concat())
}

impl Seen {
    /// Our topology in hwloc's form: hwloc removes offline and disallowed CPUs, and packages (or others) that then have
    /// neither a CPU nor a memory node.
    pub fn ours(t: &Topology, sizes: Sizes) -> Self {
        let usable = t.usable();
        let mut objects = Objects::new();
        let mut add = |name: String, text: String| objects.entry(name).or_default().push(text);
        for cpu in usable.iter() {
            add("PU".into(), object(&CpuSet::single(cpu), Some(cpu.0), &[]));
        }
        let nodes: Vec<_> = t.nodes().iter().filter(|n| n.allowed).collect();
        for n in &nodes {
            let local = n.bytes.map_or(String::new(), |b| size(b, sizes));
            add("NUMANode".into(), object(&n.cpus.and(usable), Some(n.id.0), &[("local", local)]));
        }
        for r in t.resources() {
            let cpus = r.cpus.and(usable);
            // A node is attached to the outermost object with its CPUs.
            let is_inner = cpus.is_empty() && t.resources().iter().any(|o| o.cpus == r.cpus && depth(o) < depth(r));
            let holds_node = !is_inner && nodes.iter().any(|n| !n.cpus.is_empty() && n.cpus.is_subset(&r.cpus));
            if cpus.is_empty() && !holds_node {
                continue;
            }
            let (name, details) = match r.kind {
                Kind::Package => ("Package".to_owned(), vec![]),
                Kind::Die => ("Die".to_owned(), vec![]),
                Kind::Core => ("Core".to_owned(), vec![]),
                Kind::Cluster => (GROUPS[usize::from(r.level).min(2)].to_owned(), vec![]),
                Kind::Cache(kind) => {
                    let letter = match kind {
                        CacheType::Unified => "",
                        CacheType::Data => "d",
                        CacheType::Instruction => "i",
                    };
                    let show =
                        |v: Option<u32>| v.filter(|_| sizes != Sizes::Ignored).map_or(String::new(), |v| v.to_string());
                    let details = vec![
                        ("size", r.capacity.map_or(String::new(), |b| size(b, sizes))),
                        ("linesize", show(r.line_size)),
                        ("ways", show(r.ways)),
                    ];
                    (format!("L{}{letter}Cache", r.level), details)
                }
                _ => continue,
            };
            add(name, object(&cpus, r.os_index, &details));
        }
        for list in objects.values_mut() {
            list.sort();
        }
        let rows = t.parts().distances.as_ref().map_or(vec![], |d| d.rows.clone());
        let kept: Vec<usize> = (0..t.nodes().len()).filter(|&i| t.nodes()[i].allowed).collect();
        let distances = match kept.len() {
            _ if rows.is_empty() => vec![],
            0 | 1 => vec![],
            _ => kept.iter().map(|&i| kept.iter().map(|&j| rows[i][j] as u64).collect()).collect(),
        };
        let mut by_class: BTreeMap<u8, CpuSet> = BTreeMap::new();
        for c in t.cpus().iter().filter(|c| usable.contains(c.id)) {
            if let Some(class) = c.efficiency_class {
                by_class.entry(class).or_default().insert(c.id);
            }
        }
        let absent: CpuSet = t.cpus().iter().map(|c| c.id).filter(|c| !usable.contains(*c)).collect();
        let kinds = if by_class.len() > 1 { by_class.values().map(ToString::to_string).collect() } else { vec![] };
        Self { objects, distances, kinds, absent: absent.to_string() }
    }

    /// The console view of `lstopo -v`, of hwloc 2 or 3.
    pub fn console(text: &str) -> Self {
        let mut tree: Vec<Line> = Vec::new();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let (mut matrix, mut kinds, mut absent) = (Vec::new(), Vec::new(), CpuSet::new());
        let mut in_matrix = false;
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if let Some(at) = line.find(" L#") {
                tree.push(Line::new(line, at));
            } else if line.contains("depth ") && line.contains("(type #") {
                let (_, rest) = line.split_once(':').unwrap();
                let mut words = rest.split_ascii_whitespace();
                let n: usize = words.next().unwrap().parse().unwrap();
                *counts.entry(words.next().unwrap().to_owned()).or_default() += n;
            } else if line.starts_with("Relative latency matrix (name NUMALatency") {
                in_matrix = true;
            } else if in_matrix && words.first() != Some(&"index") {
                let row: Result<Vec<u64>, _> = words.iter().map(|w| w.parse()).collect();
                match row {
                    Ok(row) if row.len() > 1 => matrix.push(row),
                    _ => in_matrix = false,
                }
            }
            if line.starts_with("CPU kind #") {
                kinds.push(CpuSet::parse_mask(words.last().unwrap()).unwrap().to_string());
            } else if line.contains("processors not represented") || line.contains("processor not represented") {
                absent = CpuSet::parse_mask(words.last().unwrap()).unwrap();
            }
        }
        let mut objects = Objects::new();
        let mut nodes: BTreeMap<u64, u32> = BTreeMap::new();
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for (i, line) in tree.iter().enumerate() {
            *found.entry(line.kind.clone()).or_default() += 1;
            // A memory node has the CPUs of its parent.
            let holder =
                if line.kind == "NUMANode" { (0..i).rev().find(|&j| tree[j].indent < line.indent) } else { Some(i) };
            let cpus: CpuSet = match holder {
                None => tree.iter().filter_map(Line::cpu).collect(),
                Some(j) => {
                    let below = tree[j + 1..].iter().take_while(|l| l.indent > tree[j].indent);
                    tree[j].cpu().into_iter().chain(below.filter_map(Line::cpu)).collect()
                }
            };
            if line.kind == "NUMANode" {
                nodes.insert(line.logical, line.number.unwrap());
            }
            let name = match line.kind.as_str() {
                group if group.starts_with("Group") && group.ends_with("(Cluster)") => "Group(Cluster)",
                group if group.starts_with("Group") && group.ends_with("(Book)") => "Group(Book)",
                group if group.starts_with("Group") && group.ends_with("(Drawer)") => "Group(Drawer)",
                group if group.starts_with("Group") => continue,
                other => other,
            };
            let details: Vec<(&str, String)> =
                ["local", "size", "linesize", "ways"].iter().map(|k| (*k, line.detail(k))).collect();
            objects.entry(name.to_owned()).or_default().push(object(&cpus, line.number, &details));
        }
        counts.remove("Machine"); // its line has no L#
        for (kind, n) in counts {
            let of_kind = |name: &str| name.split('(').next() == Some(&kind);
            let seen: usize = found.iter().filter(|(name, _)| of_kind(name)).map(|(_, n)| n).sum();
            assert_eq!(seen, n, "{kind}s in the tree of the console view, and as it counts them itself");
        }
        for list in objects.values_mut() {
            list.sort();
        }
        // Each row begins with the logical number of its node; the columns are in the order of the rows.
        let mut order: Vec<usize> = (0..matrix.len()).collect();
        order.sort_by_key(|&i| nodes[&matrix[i][0]]);
        let distances = order.iter().map(|&i| order.iter().map(|&j| matrix[i][j + 1]).collect()).collect();
        if kinds.len() < 2 {
            kinds.clear();
        }
        Self { objects, distances, kinds, absent: absent.to_string() }
    }
}

/// One line of the tree.
struct Line {
    indent: usize,
    kind: String,
    logical: u64,
    number: Option<u32>,
    text: String,
}

impl Line {
    fn new(line: &str, at: usize) -> Self {
        let indent = line.len() - line.trim_start().len();
        let number = line
            .split_once("(P#")
            .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()));
        let logical = line[at + " L#".len()..].split(' ').next().and_then(|n| n.parse().ok()).unwrap();
        Self { indent, kind: line[indent..at].to_owned(), logical, number, text: line.to_owned() }
    }

    fn cpu(&self) -> Option<CpuId> {
        (self.kind == "PU").then(|| CpuId(self.number.unwrap()))
    }

    fn detail(&self, key: &str) -> String {
        let inside = self.text.split_once('(').map_or("", |(_, rest)| rest);
        let found = inside.split([' ', ')', '(']).find_map(|w| w.strip_prefix(key)?.strip_prefix('='));
        found.unwrap_or_default().to_owned()
    }
}

/// The place of the shared data; prints why a test is skipped without them.
pub fn shared(test: &str, path: &str) -> Option<PathBuf> {
    of_shared(test, &format!("data/{path}"))
}

/// The same of all that is shared.
pub fn of_shared(test: &str, path: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var_os("COTENANT_SHARED").map(PathBuf::from);
    let found = given
        .into_iter()
        .chain([workspace.join("../shared"), workspace.join("../../shared")])
        .map(|dir| dir.join(path))
        .find(|p| p.exists());
    if found.is_none() {
        eprintln!("skipped: {test}: there is no ../shared/{path} (nor below COTENANT_SHARED)");
    }
    found
}

/// The root of an unpacked dump.
pub fn dump(test: &str, name: &str) -> Option<PathBuf> {
    let done = unpacked(test, &shared(test, &format!("topologies/{name}.tar.bz2"))?, name)?;
    // The archive has one folder, whose name may differ from the archive's.
    let root = std::fs::read_dir(&done).unwrap().next().unwrap().unwrap().path();
    Some(root)
}

/// The content of an archive. Unpacks it once, possibly concurrently with other tests.
pub fn unpacked(test: &str, archive: &Path, name: &str) -> Option<PathBuf> {
    let done = Path::new(env!("CARGO_TARGET_TMPDIR")).join("topologies").join(name);
    if !done.exists() {
        let fresh = done.with_file_name(format!("{name}.{}.{test}", std::process::id()));
        std::fs::create_dir_all(&fresh).unwrap();
        let tar = Command::new("tar").arg("xf").arg(archive).arg("-C").arg(&fresh).output();
        let Ok(tar) = tar else {
            eprintln!("skipped: {test}: there is no tar");
            return None;
        };
        assert!(tar.status.success(), "tar: {}", String::from_utf8_lossy(&tar.stderr));
        if std::fs::rename(&fresh, &done).is_err() {
            std::fs::remove_dir_all(&fresh).unwrap(); // another test was faster
        }
    }
    Some(done)
}

/// A copy of the read parts of a dump, for a test to change; `None` without a dump.
pub fn copy(test: &str, name: &str) -> Option<PathBuf> {
    let from = dump(test, name)?;
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.{}.{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&to);
    for part in ["proc", "dev", "sys/devices/system/cpu", "sys/devices/system/node"] {
        if from.join(part).is_dir() {
            copy_tree(&from.join(part), &to.join(part));
        }
    }
    Some(to)
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, kind) = (entry.path(), entry.file_type().unwrap());
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            copy_tree(&source, &target);
        } else if kind.is_file() {
            std::fs::write(target, std::fs::read(source).unwrap()).unwrap();
        }
    }
}

/// Output of `lstopo-no-graphics`; `None`, with a message, if it is not installed.
pub fn lstopo(test: &str, args: &[&str]) -> Option<String> {
    let out = match Command::new("lstopo-no-graphics").args(args).output() {
        Ok(out) => out,
        Err(e) => {
            eprintln!("skipped: {test}: lstopo-no-graphics (package hwloc-nox) cannot be run: {e}");
            return None;
        }
    };
    assert!(out.status.success(), "lstopo {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8(out.stdout).unwrap())
}
