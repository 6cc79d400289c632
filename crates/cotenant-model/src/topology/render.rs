//! The machine as text for people: a tree. For tools: [`report`](super::report); pictures: [`svg`](super::svg).

use super::quantity::{per_second, size};
use super::tree::{Item, Tree};
use super::{CacheType, DistanceUnit, Distances, Kind, MemoryNode, Topology, hmat};
use crate::{CpuId, CpuSet};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines up to which similar packages, nodes and caches are each written out.
const LINES: usize = 24;

/// Rows and columns up to which the table of distances is written.
const TABLE: usize = 16;

/// `1 core`, `2 cores`.
pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Name of a vertex: kind, number if it has one, size. With `anonymous`, without the number.
pub(super) fn title(topology: &Topology, item: Item, anonymous: bool) -> String {
    let numbered = |name: &str, number: Option<u32>| match number.filter(|_| !anonymous) {
        Some(number) => format!("{name} {number}"),
        None => name.to_owned(),
    };
    match item {
        Item::Machine => topology.name().unwrap_or("Machine").to_owned(),
        Item::Cpu(cpu) => numbered("CPU", Some(cpu.0)),
        Item::Node(i) => {
            let node = &topology.nodes()[i];
            let bytes = node.bytes.map(|bytes| format!(" {}", size(bytes))).unwrap_or_default();
            let allowed = if node.allowed { "" } else { " (not allowed)" };
            format!("{}{bytes}{allowed}", numbered("Node", Some(node.id.0)))
        }
        Item::Resource(i) => {
            let r = &topology.resources()[i];
            let (name, amount): (_, fn(u64) -> String) = match r.kind {
                Kind::Package => (numbered("Package", r.os_index), size),
                Kind::Die => (numbered("Die", r.os_index), size),
                Kind::Cluster => (numbered("Cluster", r.os_index), size),
                Kind::Core => (numbered("Core", r.os_index), size),
                Kind::Bus => (numbered("Bus", r.os_index), per_second),
                Kind::MemoryController => (numbered("Memory controller", r.os_index), per_second),
                Kind::Link => (numbered("Link", r.os_index), per_second),
                Kind::Cache(CacheType::Unified) => (format!("L{}", r.level), size),
                Kind::Cache(CacheType::Data) => (format!("L{}d", r.level), size),
                Kind::Cache(CacheType::Instruction) => (format!("L{}i", r.level), size),
            };
            let capacity = r.capacity.map(|capacity| format!(" {}", amount(capacity))).unwrap_or_default();
            format!("{name}{capacity}{}", if is_last_level(topology, i) { " (LLC)" } else { "" })
        }
    }
}

/// Whether a resource is the last-level cache of its CPUs.
pub(super) fn is_last_level(topology: &Topology, index: usize) -> bool {
    let r = &topology.resources()[index];
    let Some(first) = r.cpus.first().filter(|_| r.may_be_last_level()) else { return false };
    let outer = |o: &super::Resource| o.may_be_last_level() && o.level > r.level && o.cpus.contains(first);
    !topology.resources().iter().any(outer)
}

/// The tree of a machine as text: header, tree, memory-only nodes, overlaps, kinds of cores, unusable CPUs, distances.
pub fn text(topology: &Topology) -> String {
    let tree = Tree::new(topology);
    let mut out = format!("{}: {}\n", title(topology, Item::Machine, false), counts(topology));
    let mut lines = Lines { topology, tree: &tree, shapes: shapes(topology, &tree), collapse: false, out: Vec::new() };
    lines.children(0, "", "");
    if lines.out.len() > LINES {
        lines.collapse = true;
        lines.out.clear();
        lines.children(0, "", "");
    }
    let table = topology.parts().distances.as_ref().map(|d| distances(topology, d));
    for line in lines.out.into_iter().chain(footnotes(topology, &tree)).chain(table).chain(hmat::lines(topology)) {
        out.extend([line.trim_end_matches('\n'), "\n"]);
    }
    out
}

/// `2 packages, 2 memory nodes, …`.
pub(super) fn counts(topology: &Topology) -> String {
    let mut parts = vec![
        count(topology.packages().len(), "package"),
        count(topology.nodes().len(), "memory node"),
        count(topology.llc_domains().len(), "LLC domain"),
        count(topology.cores().len(), "core"),
        count(topology.online().len(), "CPU"),
    ];
    if topology.usable() != topology.online() {
        parts.push(format!("{} of them allowed", topology.usable().len()));
    }
    parts.join(", ")
}

/// Facts outside of the tree, one line each.
pub(super) fn footnotes(topology: &Topology, tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for &i in &tree.cpuless {
        lines.push(format!("{}: memory without CPUs", title(topology, Item::Node(i), false)));
    }
    for &item in &tree.crossing {
        let (Item::Resource(_) | Item::Node(_)) = item else { continue };
        lines.push(format!("{}: CPUs {}, across the tree", title(topology, item, false), cpus_of(topology, item)));
    }
    let mut kinds: BTreeMap<Option<u8>, CpuSet> = BTreeMap::new();
    for cpu in topology.cpus().iter().filter(|c| c.online) {
        kinds.entry(cpu.efficiency_class).or_default().insert(cpu.id);
    }
    if kinds.len() > 1 {
        let text = |(class, cpus): (&Option<u8>, &CpuSet)| match class {
            Some(class) => format!("class {class} = CPUs {cpus}"),
            None => format!("unknown = CPUs {cpus}"),
        };
        lines.push(format!("Core kinds, slowest first: {}", kinds.iter().map(text).collect::<Vec<_>>().join("; ")));
    }
    let forbidden = topology.online().minus(topology.usable());
    if !forbidden.is_empty() {
        lines.push(format!("Not allowed by the cpuset: CPUs {forbidden}"));
    }
    let offline = offline(topology);
    if !offline.is_empty() {
        lines.push(format!("Offline: CPUs {offline}"));
    }
    lines
}

/// The CPUs that are switched off.
pub(super) fn offline(topology: &Topology) -> CpuSet {
    topology.cpus().iter().filter(|c| !c.online).map(|c| c.id).collect()
}

pub(super) fn cpus_of(topology: &Topology, item: Item) -> &CpuSet {
    match item {
        Item::Resource(i) => &topology.resources()[i].cpus,
        Item::Node(i) => &topology.nodes()[i].cpus,
        Item::Machine | Item::Cpu(_) => topology.online(),
    }
}

/// Per vertex: a number that isomorphic subtrees share, ignoring the numbering of their parts.
pub(super) fn shapes(topology: &Topology, tree: &Tree) -> Vec<usize> {
    let mut known: BTreeMap<(String, Option<u8>, Vec<usize>), usize> = BTreeMap::new();
    let mut shapes = vec![0; tree.vertices.len()];
    for (at, vertex) in tree.vertices.iter().enumerate().rev() {
        let children = vertex.children.iter().map(|&child| shapes[child]).collect();
        let class = match vertex.item {
            Item::Cpu(cpu) => topology.cpu(cpu).and_then(|c| c.efficiency_class),
            _ => None,
        };
        let next = known.len();
        shapes[at] = *known.entry((title(topology, vertex.item, true), class, children)).or_insert(next);
    }
    shapes
}

struct Lines<'a> {
    topology: &'a Topology,
    tree: &'a Tree,
    shapes: Vec<usize>,
    /// Whether isomorphic siblings of any size are written once; otherwise only those without further branches.
    collapse: bool,
    out: Vec<String>,
}

impl Lines<'_> {
    /// The vertices from `at` inward with the same CPUs: one line names them all. The last has the children.
    fn chain(&self, at: usize) -> Vec<usize> {
        let mut chain = vec![at];
        let mut last = at;
        while let [only] = self.tree.vertices[last].children[..] {
            if let Item::Cpu(_) = self.tree.vertices[only].item {
                break;
            }
            chain.push(only);
            last = only;
        }
        chain
    }

    /// Whether only CPUs are below a chain's end.
    fn is_leaf(&self, end: usize) -> bool {
        self.tree.vertices[end].children.iter().all(|&c| matches!(self.tree.vertices[c].item, Item::Cpu(_)))
    }

    /// The lines below a vertex. `more` follows lists of CPUs if the vertex represents others like it.
    fn children(&mut self, at: usize, indent: &str, more: &str) {
        let children = self.tree.vertices[at].children.clone();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for child in children {
            let chain = self.chain(child);
            let small = self.is_leaf(chain[chain.len() - 1]);
            match groups.last_mut() {
                Some(group) if self.shapes[group[0]] == self.shapes[child] && (small || self.collapse) => {
                    group.push(child);
                }
                _ => groups.push(vec![child]),
            }
        }
        for (i, group) in groups.iter().enumerate() {
            let (branch, below) = if i + 1 == groups.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let chain = self.chain(group[0]);
            let end = chain[chain.len() - 1];
            self.out.push(format!("{indent}{branch}{}{more}", self.line(group, &chain)));

            if !self.is_leaf(end) {
                let more = if group.len() > 1 { " …" } else { more };
                self.children(end, &format!("{indent}{below}"), more);
            }
        }
    }

    fn line(&self, group: &[usize], chain: &[usize]) -> String {
        let vertex = |at: usize| &self.tree.vertices[at];
        let many = group.len() > 1;
        if let Item::Cpu(_) = vertex(group[0]).item {
            let cpus = group.iter().filter_map(|&at| vertex(at).cpus.first()).collect();
            return format!("{}{}", count(group.len(), "CPU"), self.listed(&cpus));
        }
        let titles: Vec<String> = chain.iter().map(|&at| title(self.topology, vertex(at).item, many)).collect();
        let each = vertex(group[0]).cpus.len();
        let mut text = titles.join(", ");
        if many {
            text = format!("{} × {text} ({}{})", group.len(), count(each, "CPU"), if each == 1 { "" } else { " each" });
        }
        let all = group.iter().fold(CpuSet::new(), |all, &at| all.or(&vertex(at).cpus));
        if many && each > 1 {
            let sets: Vec<String> = group.iter().map(|&at| vertex(at).cpus.to_string()).collect();
            let shown = match &sets[..] {
                [a, b, .., z] if sets.len() > 6 => format!("{a} | {b} | … | {z}"),
                all => all.join(" | "),
            };
            format!("{text}: CPUs {shown}{}", self.forbidden(&all))
        } else {
            format!("{text}{}", self.listed(&all))
        }
    }

    fn listed(&self, cpus: &CpuSet) -> String {
        let plural = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        format!(": {plural} {cpus}{}", self.forbidden(cpus))
    }

    fn forbidden(&self, cpus: &CpuSet) -> String {
        let forbidden = cpus.minus(self.topology.usable());
        if forbidden.is_empty() {
            String::new()
        } else if forbidden == *cpus {
            " (not allowed)".to_owned()
        } else {
            format!(" ({forbidden} not allowed)")
        }
    }
}

/// To a tenth, the precision of distances.
fn rounded(distance: f64) -> String {
    ((distance * 10.0).round() / 10.0).to_string()
}

/// The table of distances, or their range if it is too wide.
fn distances(topology: &Topology, d: &Distances) -> String {
    let unit = match d.unit {
        DistanceUnit::Slit => "SLIT, 10 = local",
        DistanceUnit::Nanoseconds => "ns",
        DistanceUnit::Hops => "hops",
    };
    let unit = d.source.as_ref().map_or_else(|| unit.to_owned(), |source| format!("{unit}, {source}"));
    let nodes = topology.nodes();
    let per_node = d.rows.len() == nodes.len();
    // Cores with equal rows share a line.
    let mut rows: Vec<(CpuSet, &Vec<f64>)> = Vec::new();
    for (i, row) in d.rows.iter().enumerate() {
        let cpus = if per_node { CpuSet::single(CpuId(nodes[i].id.0)) } else { topology.cores()[i].clone() };
        match rows.iter_mut().find(|(_, other)| !per_node && *other == row) {
            Some((known, _)) => *known = known.or(&cpus),
            None => rows.push((cpus, row)),
        }
    }
    if nodes.len() > TABLE || rows.len() > TABLE {
        let (least, most) = d.rows.iter().flatten().fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(*v), b.max(*v)));
        return format!("Distances ({unit}): {} to {}; JSON has the table\n", rounded(least), rounded(most));
    }
    let name = |(cpus, _): &(CpuSet, _)| match cpus.len() {
        _ if per_node => format!("node {cpus}"),
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    };
    let names: Vec<String> = rows.iter().map(name).collect();
    let heads: Vec<String> = nodes.iter().map(|n: &MemoryNode| format!("node {}", n.id)).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|(_, row)| row.iter().map(|cell| rounded(*cell)).collect()).collect();
    let left = names.iter().map(String::len).max().unwrap_or(0);
    let wide = heads.iter().chain(cells.iter().flatten()).map(String::len).max().unwrap_or(0);
    let mut out = format!("Distances ({unit}), from CPUs of the row to memory of the column:\n");
    let mut line = |name: &str, cells: &[String]| {
        let _ = write!(out, "  {name:left$}");
        for cell in cells {
            let _ = write!(out, "  {cell:>wide$}");
        }
        out.push('\n');
    };
    line("", &heads);
    names.iter().zip(&cells).for_each(|(name, cells)| line(name, cells));
    out
}

#[cfg(test)]
mod tests {
    use super::super::Parts;
    use super::super::fixtures::*;
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let texts = [0, 512, 1024, 1536, 1_048_575, 32 << 10, 16 << 30, (62 << 30) + (700 << 20)].map(size);
        assert_eq!(texts, ["0 B", "512 B", "1 KiB", "1.5 KiB", "1 MiB", "32 KiB", "16 GiB", "62.7 GiB"]);
        assert_eq!(per_second(10_600_000_000), "10.6 GB/s");
    }

    #[test]
    fn two_sockets_at_a_glance() {
        let mut parts = regular(2, 1, 10, 2);
        parts.name = Some("ivy".into());
        parts.distances = Some(slit(&[&[10.0, 21.0], &[21.0, 10.0]]));
        let expected = "\
ivy: 2 packages, 2 memory nodes, 2 LLC domains, 20 cores, 40 CPUs
├─ Package, Node 0 16 GiB, L3 32 MiB (LLC): CPUs 0-19
│  └─ 10 × L2 1 MiB, Core (2 CPUs each): CPUs 0-1 | 2-3 | … | 18-19
└─ Package, Node 1 16 GiB, L3 32 MiB (LLC): CPUs 20-39
   └─ 10 × L2 1 MiB, Core (2 CPUs each): CPUs 20-21 | 22-23 | … | 38-39
Distances (SLIT, 10 = local), from CPUs of the row to memory of the column:
          node 0  node 1
  node 0      10      21
  node 1      21      10
";
        assert_eq!(text(&Topology::new(parts).unwrap()), expected);
    }

    #[test]
    fn distances_say_where_they_come_from() {
        let mut parts = regular(1, 2, 2, 1);
        let rows = [90.0, 90.0, 104.2, 104.2].map(|ns| vec![ns]).to_vec();
        let source = Some("measured on a Monday".to_owned());
        parts.distances = Some(Distances { unit: DistanceUnit::Nanoseconds, rows, source });
        let text = text(&Topology::new(parts).unwrap());
        let expected = "\
Distances (ns, measured on a Monday), from CPUs of the row to memory of the column:
            node 0
  CPUs 0-1      90
  CPUs 2-3   104.2
";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn what_cannot_be_used_is_marked() {
        let mut parts = Parts { cpus: cpus(6), nodes: vec![node(0, "0-3"), node(1, "")], ..Parts::default() };
        parts.cpus[5].online = false;
        parts.cpus[1].allowed = false;
        parts.cpus[0].efficiency_class = Some(1);
        parts.resources.extend(["0", "1", "2", "3", "4"].map(|c| resource(Kind::Core, 0, c)));
        parts.resources.extend(["0,4", "1-2"].map(|c| resource(Kind::Bus, 0, c)));
        let machine = Topology::new(parts).unwrap();
        let expected = "\
Machine: 1 package, 2 memory nodes, 1 LLC domain, 5 cores, 5 CPUs, 4 of them allowed
├─ Node 0 16 GiB: CPUs 0-3 (1 not allowed)
│  ├─ Core: CPU 0
│  └─ 3 × Core (1 CPU): CPUs 1-3 (1 not allowed)
└─ Core: CPU 4
Node 1 16 GiB: memory without CPUs
Bus: CPUs 0,4, across the tree
Bus: CPUs 1-2, across the tree
Core kinds, slowest first: unknown = CPUs 1-4; class 1 = CPUs 0
Not allowed by the cpuset: CPUs 1
Offline: CPUs 5
";
        assert_eq!(text(&machine), expected);
    }

    #[test]
    fn large_machines_stay_short() {
        for parts in [regular(4, 16, 8, 2), regular(1, 8, 8, 1), regular(64, 1, 2, 1)] {
            let text = text(&Topology::new(parts).unwrap());
            assert!(text.lines().count() <= LINES + 4 && text.lines().all(|l| l.chars().count() < 120), "{text}");
        }
    }
}
