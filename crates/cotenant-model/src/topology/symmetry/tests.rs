use super::label::installed_size;
use super::*;
use crate::NodeId;
use crate::cpuset::CpuSet;
use crate::topology::fixtures::*;
use crate::topology::{Distances, MemoryNode, Parts, notation};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Mapping classes, each by its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Classes {
    /// Canonical forms, in ascending order.
    mappings: Vec<Vec<Slot>>,
    /// Whether these are all; otherwise the enumeration ended at the cap.
    complete: bool,
}

impl Symmetry<'_> {
    /// The classes of mappings that put `threads[a]` threads of application `a` on as many usable CPUs, for all
    /// applications at once, at most `cap` of them. [`Enumeration`] yields them one by one.
    ///
    /// With `balanced`, only those where each application alone is balanced: all packages that it uses hold equally
    /// many of its threads, and so do all caches of each level (`algorithms.md` §3).
    fn classes(&self, threads: &[usize], balanced: bool, cap: usize) -> Classes {
        let tenants = threads.iter().map(|&threads| Tenant { threads, ..Tenant::default() }).collect();
        let enumeration = Enumeration::of(self.clone(), tenants, balanced);
        let mut mappings: Vec<_> = enumeration.iter().take(cap.saturating_add(1)).collect();
        let complete = mappings.len() <= cap;
        mappings.truncate(cap);
        mappings.sort_unstable();
        Classes { mappings, complete }
    }

    /// Whether a symmetry maps one mapping onto the other.
    ///
    /// # Panics
    /// If a mapping does not have one slot for each of [`Self::cpus`].
    fn equivalent(&self, a: &[Slot], b: &[Slot]) -> bool {
        self.canonical(a) == self.canonical(b)
    }

    /// Permutations that generate all symmetries found: each lists the moving CPUs with their targets.
    fn generators(&self) -> Vec<Vec<(CpuId, CpuId)>> {
        let named = |moves: Vec<(u32, u32)>| -> Vec<(CpuId, CpuId)> {
            moves.into_iter().map(|(from, to)| (self.cpus[from as usize], self.cpus[to as usize])).collect()
        };
        let mut open = vec![self.root];
        let mut generators = Vec::new();
        while let Some(at) = open.pop() {
            for class in &self.blocks[at].classes {
                open.extend(class);
                for pair in class.windows(2) {
                    generators.push(named(swap(&self.blocks[pair[0]], &self.blocks[pair[1]])));
                }
            }
        }
        let moving = |by: &Vec<u32>| {
            (0u32..).zip(by.iter().copied()).filter(|(to, from)| to != from).map(|(to, from)| (from, to)).collect()
        };
        generators.extend(self.skeleton.iter().map(moving).filter(|m: &Vec<_>| !m.is_empty()).map(named));
        generators
    }
}

pub(super) fn slots(text: &str) -> Vec<Slot> {
    text.chars().filter(|c| *c != '|').map(|c| if c == '.' { FREE } else { u32::from(c == '*') }).collect()
}

fn texts(topology: &Topology, classes: &Classes) -> Vec<String> {
    let order = notation::topology_order(topology);
    let text = |mapping: &Vec<Slot>| {
        let letter = |cpu| match mapping[order.iter().position(|c| *c == cpu)?] {
            0 => Some('X'),
            1 => Some('*'),
            _ => None,
        };
        notation::format_map(topology, letter)
    };
    classes.mappings.iter().map(text).collect()
}

/// All classes, of which there must be fewer than 100,000.
fn all(symmetry: &Symmetry, threads: &[usize], balanced: bool) -> Classes {
    let classes = symmetry.classes(threads, balanced, 100_000);
    assert!(classes.complete);
    classes
}

#[test]
fn clovertown_has_the_classes_of_the_dissertation() {
    let machine = clovertown();
    let symmetry = Symmetry::new(&machine);
    assert!(symmetry.is_exact());
    assert_eq!(
        texts(&machine, &all(&symmetry, &[4], false)),
        ["XXXX|....", "XXX.|X...", "XX..|XX..", "XX..|X.X.", "X.X.|X.X."]
    );
    assert_eq!(texts(&machine, &all(&symmetry, &[4], true)), ["XXXX|....", "XX..|XX..", "X.X.|X.X."]);
    assert_eq!(texts(&machine, &all(&symmetry, &[2], false)), ["XX..|....", "X.X.|....", "X...|X..."]);
    for odd in [3, 5, 6, 7] {
        assert!(all(&symmetry, &[odd], true).mappings.is_empty(), "{odd}");
    }
    assert_eq!(all(&symmetry, &[0], true).mappings.len(), 1);
    assert!(all(&symmetry, &[9], false).mappings.is_empty());
}

#[test]
fn two_applications_on_clovertown() {
    let machine = clovertown();
    let symmetry = Symmetry::new(&machine);
    // Tang, table 3.4: four threads each of two applications, both balanced.
    assert_eq!(texts(&machine, &all(&symmetry, &[4, 4], true)), ["XXXX|****", "XX**|XX**", "X*X*|X*X*"]);
    // One thread each: with the first on CPU 0, the second on its L2, the other L2 of the package, or the other
    // package.
    assert_eq!(texts(&machine, &all(&symmetry, &[1, 1], false)), ["X*..|....", "X.*.|....", "X...|*..."]);
}

/// Orbits of k-subsets of the leaves of a regular tree, by Pólya counting: multisets of subtrees' orbits, by total.
pub(super) fn polya(shape: &[usize], k: usize) -> u64 {
    fn series(shape: &[usize], k: usize) -> Vec<u64> {
        let Some((&m, below)) = shape.split_first() else { return vec![1, 1] };
        let child = series(below, k);
        // table[size][total]: multisets of so many of the child's strings.
        let mut table = vec![vec![0u64; k + 1]; m + 1];
        table[0][0] = 1;
        for (weight, &strings) in child.iter().enumerate() {
            let mut next = table.clone();
            for size in 1..=m {
                // Multisets of `size` out of `strings` kinds, all of this weight.
                let ways = (0..size as u64).fold(1u64, |ways, i| ways * (strings + i) / (i + 1));
                for from in 0..=(m - size) {
                    for total in 0..=k {
                        if total + size * weight <= k {
                            next[from + size][total + size * weight] += table[from][total] * ways;
                        }
                    }
                }
            }
            table = next;
        }
        table[m].clone()
    }
    series(shape, k)[k]
}

#[test]
fn counts_on_regular_trees_agree_with_polya() {
    // By hand for Clovertown: 1, 1, 3, 3, 5, 3, 3, 1, 1 classes of 0 to 8 threads.
    assert_eq!((0..=8).map(|k| polya(&[2, 2, 2], k)).collect::<Vec<_>>(), [1, 1, 3, 3, 5, 3, 3, 1, 1]);
    let clovertown = clovertown();
    let ivy = Topology::new(regular(2, 1, 10, 2)).unwrap();
    let epyc = Topology::new(regular(1, 8, 8, 1)).unwrap();
    for (machine, shape, most) in [(&clovertown, &[2, 2, 2][..], 8), (&ivy, &[2, 10, 2], 12), (&epyc, &[8, 8], 10)] {
        let symmetry = Symmetry::new(machine);
        assert!(symmetry.is_exact());
        for k in 0..=most {
            assert_eq!(all(&symmetry, &[k], false).mappings.len() as u64, polya(shape, k), "{k} threads");
        }
    }
}

#[test]
fn balanced_classes_are_the_balanced_among_all() {
    let machine = Topology::new(regular(2, 2, 2, 2)).unwrap();
    let symmetry = Symmetry::new(&machine);
    for k in 1..=16 {
        let expected: Vec<_> =
            all(&symmetry, &[k], false).mappings.into_iter().filter(|m| symmetry.is_balanced(m, 0)).collect();
        assert_eq!(all(&symmetry, &[k], true).mappings, expected, "{k} threads");
    }
}

#[test]
fn the_cap_is_honest() {
    let machine = Topology::new(regular(2, 1, 10, 2)).unwrap();
    let symmetry = Symmetry::new(&machine);
    let total = polya(&[2, 10, 2], 10) as usize;
    for (cap, complete) in [(total - 1, false), (total, true), (total + 1, true)] {
        let classes = symmetry.classes(&[10], false, cap);
        assert_eq!((classes.mappings.len(), classes.complete), (total.min(cap), complete));
    }
}

#[test]
fn large_machines_are_not_enumerated_to_death() {
    let machine = Topology::new(regular(4, 16, 8, 2)).unwrap();
    let symmetry = Symmetry::new(&machine);
    assert!(symmetry.is_exact());
    let mapping: Vec<Slot> = (0..1024).map(|i| if i % 3 == 0 { 0 } else { FREE }).collect();
    let mirrored: Vec<Slot> = mapping.iter().rev().copied().collect();
    assert!(symmetry.equivalent(&mapping, &mirrored));
    assert!(!symmetry.classes(&[512], false, 100).complete);
    // Balanced uses by 512 threads: two full packages; or all four with half of their LLCs full, with half of the
    // cores of all LLCs full, or with one thread per core.
    let balanced = all(&symmetry, &[512], true);
    assert_eq!(balanced.mappings.len(), 4);
    assert!(balanced.mappings.iter().all(|m| symmetry.is_balanced(m, 0)));
}

#[test]
fn asymmetric_distances_are_respected() {
    let mut parts = regular(2, 1, 2, 1);
    parts.distances = Some(slit(&[&[10.0, 21.0], &[21.0, 10.0]]));
    let even = Topology::new(parts.clone()).unwrap();
    assert!(Symmetry::new(&even).equivalent(&slots("XX.."), &slots("..XX")));
    parts.distances = Some(slit(&[&[10.0, 21.0], &[30.0, 10.0]]));
    let odd = Topology::new(parts.clone()).unwrap();
    let symmetry = Symmetry::new(&odd);
    assert!(symmetry.is_exact());
    assert!(!symmetry.equivalent(&slots("XX.."), &slots("..XX")));
    assert!(symmetry.equivalent(&slots("X..."), &slots(".X..")));

    // A memory-only node nearer to the first package distinguishes the packages, one between them does not.
    for (near, far, same) in [(20.0, 20.0, true), (20.0, 40.0, false)] {
        let mut parts = parts.clone();
        parts.nodes.push(node(2, ""));
        parts.distances = Some(slit(&[&[10.0, 21.0, near], &[21.0, 10.0, far], &[near, far, 10.0]]));
        let machine = Topology::new(parts).unwrap();
        assert_eq!(Symmetry::new(&machine).equivalent(&slots("XX.."), &slots("..XX")), same, "{near} {far}");
    }
}

#[test]
fn memory_only_nodes_move_with_their_package() {
    // Each package has its own high-bandwidth node: packages can only be exchanged together with these.
    let mut parts = regular(2, 1, 2, 1);
    parts.nodes.extend([node(2, ""), node(3, "")]);
    let rows: [&[f64]; 4] =
        [&[10.0, 21.0, 13.0, 23.0], &[21.0, 10.0, 23.0, 13.0], &[13.0, 23.0, 10.0, 23.0], &[23.0, 13.0, 23.0, 10.0]];
    parts.distances = Some(slit(&rows));
    let machine = Topology::new(parts.clone()).unwrap();
    assert!(Symmetry::new(&machine).equivalent(&slots("XX.."), &slots("..XX")));
    parts.nodes[3].bytes = Some(64 << 30);
    let uneven = Topology::new(parts).unwrap();
    assert!(!Symmetry::new(&uneven).equivalent(&slots("XX.."), &slots("..XX")));
}

#[test]
fn what_firmware_keeps_of_a_node_does_not_tell_it_apart() {
    assert_eq!(installed_size((16 << 30) - 300_000_000), 16 << 30);
    assert_eq!(installed_size(16 << 30), 16 << 30);
    assert_eq!(installed_size((24 << 30) - (1 << 29)), 24 << 30);
    assert_ne!(installed_size(8 << 30), installed_size(16 << 30));
    assert_eq!((installed_size(0), installed_size(u64::MAX)), (0, u64::MAX));
    let mut parts = regular(2, 1, 2, 1);
    parts.nodes[0].bytes = Some((16 << 30) - 300_000_000);
    let machine = Topology::new(parts).unwrap();
    assert!(Symmetry::new(&machine).equivalent(&slots("XX.."), &slots("..XX")));
}

#[test]
fn page_labels_and_forbidden_cpus_tell_apart() {
    let mut parts = regular(2, 1, 2, 1);
    let machine = Topology::new(parts.clone()).unwrap();
    let pages = Labels { nodes: BTreeMap::from([(NodeId(0), 4096)]), ..Labels::default() };
    assert!(!Symmetry::with_labels(&machine, &pages).equivalent(&slots("XX.."), &slots("..XX")));
    parts.cpus[3].allowed = false;
    let forbids = Topology::new(parts).unwrap();
    let symmetry = Symmetry::new(&forbids);
    assert!(symmetry.equivalent(&slots("X..."), &slots(".X..")));
    assert!(!symmetry.equivalent(&slots("X..."), &slots("..X.")));
    assert_eq!(texts(&forbids, &all(&symmetry, &[2], false)), ["XX|..", "X.|X."]);
}

#[test]
fn blades_are_a_level_of_their_own() {
    // Twelve blades of two packages, distinguished only by distances: 2^12 · 12! symmetries, none of which is listed.
    let mut parts = regular(24, 1, 1, 1);
    let row = |i: usize| {
        (0..24)
            .map(|j| {
                if i == j {
                    10.0
                } else if i / 2 == j / 2 {
                    13.0
                } else {
                    40.0
                }
            })
            .collect()
    };
    parts.distances =
        Some(Distances { unit: crate::topology::DistanceUnit::Slit, rows: (0..24).map(row).collect(), source: None });
    let machine = Topology::new(parts).unwrap();
    let symmetry = Symmetry::new(&machine);
    assert!(symmetry.is_exact());
    assert_eq!(all(&symmetry, &[2], false).mappings.len(), 2);
    assert_eq!(all(&symmetry, &[4], false).mappings.len() as u64, polya(&[12, 2], 4));
}

/// A mesh with one core per tile.
pub(super) fn mesh(width: i32, height: i32) -> Parts {
    let mut parts = Parts { cpus: cpus((width * height) as u32), ..Parts::default() };
    for (i, cpu) in (0..).zip(&mut parts.cpus) {
        cpu.coord = Some((i % width, i / width));
    }
    parts
}

#[test]
fn a_mesh_has_its_eight_symmetries() {
    let machine = Topology::new(mesh(8, 8)).unwrap();
    let symmetry = Symmetry::new(&machine);
    assert!(symmetry.is_exact());
    assert_eq!(symmetry.skeleton.len(), 8);
    // One thread has the ten tiles of an octant. Two threads by Burnside: the identity fixes C(64,2) = 2016 pairs,
    // each of two diagonals C(8,2) + 28 = 56, each of two mirrors 32, the half turn 32, the quarter turns none.
    assert_eq!(all(&symmetry, &[1], false).mappings.len(), 10);
    assert_eq!(all(&symmetry, &[2], false).mappings.len(), (2016 + 2 * 56 + 2 * 32 + 32) / 8);
    let oblong = Topology::new(mesh(3, 2)).unwrap();
    assert_eq!(Symmetry::new(&oblong).skeleton.len(), 4);
    // Memory controllers at two opposite edges leave the half turn and the two mirrors.
    let mut parts = mesh(4, 4);
    for (id, coord) in [(0, (0, 1)), (1, (0, 2)), (2, (3, 1)), (3, (3, 2))] {
        parts.nodes.push(MemoryNode { coord: Some(coord), ..node(id, "") });
    }
    let with_memory = Topology::new(parts).unwrap();
    assert_eq!(Symmetry::new(&with_memory).skeleton.len(), 4);
}

#[test]
fn a_ring_of_nodes_turns_and_flips() {
    let mut parts = regular(6, 1, 2, 1);
    let hops = |a: usize, b: usize| a.abs_diff(b).min(6 - a.abs_diff(b));
    let row = |i| (0..6).map(|j| 10.0 + 6.0 * hops(i, j) as f64).collect();
    parts.distances =
        Some(Distances { unit: crate::topology::DistanceUnit::Slit, rows: (0..6).map(row).collect(), source: None });
    let machine = Topology::new(parts).unwrap();
    let symmetry = Symmetry::new(&machine);
    assert!(symmetry.is_exact());
    assert_eq!(symmetry.skeleton.len(), 12);
    // Two threads: one package, or two packages at 1, 2 or 3 hops.
    assert_eq!(all(&symmetry, &[2], false).mappings.len(), 4);
    assert_eq!(all(&symmetry, &[2], true).mappings.len(), 4);
}

#[test]
fn too_many_symmetries_are_not_claimed() {
    // A 7-dimensional hypercube has 2^7 · 7! > MAX_SKELETON symmetries between its nodes; each node's cores still swap.
    let mut parts = regular(128, 1, 2, 1);
    let row = |i: u32| (0..128).map(|j| 10.0 + f64::from((i ^ j).count_ones())).collect();
    parts.distances =
        Some(Distances { unit: crate::topology::DistanceUnit::Slit, rows: (0..128).map(row).collect(), source: None });
    let machine = Topology::new(parts).unwrap();
    let symmetry = Symmetry::new(&machine);
    assert!(!symmetry.is_exact());
    let at = |cpu: usize| (0..256).map(|i| if i == cpu { 0 } else { FREE }).collect::<Vec<_>>();
    assert!(symmetry.equivalent(&at(0), &at(1)));
    assert!(!symmetry.equivalent(&at(0), &at(2)));
}

// --- Against all permutations of small machines. Independent of the implementation: sets and full matrices, no
// positions.

pub(super) fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let insert = |p: &Vec<usize>, at: usize| [&p[..at], &[n - 1], &p[at..]].concat();
    permutations(n - 1).iter().flat_map(|p| (0..n).map(move |at| insert(p, at))).collect()
}

fn image(cpus: &CpuSet, by: &[usize]) -> CpuSet {
    cpus.iter().map(|c| CpuId(by[c.index()] as u32)).collect()
}

pub(super) fn is_symmetry(t: &Topology, by: &[usize], node_permutations: &[Vec<usize>]) -> bool {
    let hops = |a: Option<(i32, i32)>, b: Option<(i32, i32)>| Some((a?.0 - b?.0).abs() + (a?.1 - b?.1).abs());
    let n = by.len();
    let cpu = |i: usize| &t.cpus()[i];
    let own = |i: usize| (cpu(i).allowed, cpu(i).efficiency_class, cpu(i).coord.is_some());
    let nodes = t.nodes();
    let to = |i: usize| CpuId(by[i] as u32);
    (0..n).all(|i| own(i) == own(by[i]))
        && (0..n).all(|i| (0..n).all(|j| hops(cpu(i).coord, cpu(j).coord) == hops(cpu(by[i]).coord, cpu(by[j]).coord)))
        && t.resources().iter().all(|r| {
            let image = crate::topology::Resource { cpus: image(&r.cpus, by), ..r.clone() };
            t.resources().contains(&image)
        })
        && node_permutations.iter().any(|nodes_by| {
            (0..nodes.len()).all(|k| {
                let (a, b) = (&nodes[k], &nodes[nodes_by[k]]);
                image(&a.cpus, by) == b.cpus
                    && (a.bytes, a.allowed, a.coord.is_some()) == (b.bytes, b.allowed, b.coord.is_some())
                    && (0..nodes.len())
                        .all(|l| hops(a.coord, nodes[l].coord) == hops(b.coord, nodes[nodes_by[l]].coord))
                    && (0..n).all(|i| hops(a.coord, cpu(i).coord) == hops(b.coord, cpu(by[i]).coord))
            }) && t.parts().distances.as_ref().is_none_or(|d| {
                let per_node = d.rows.len() == nodes.len();
                (0..d.rows.len()).all(|row| {
                    let goes = if per_node {
                        Some(nodes_by[row])
                    } else {
                        t.cores()[row].first().and_then(|c| t.core_of(to(c.index())))
                    };
                    goes.is_some_and(|goes| (0..nodes.len()).all(|k| d.rows[row][k] == d.rows[goes][nodes_by[k]]))
                })
            })
        })
}

/// Random partial partition of the CPUs: CPU i is in group `groups[i]`, none for the highest.
fn partition(kind: Kind, level: u8, groups: &[u8], capacities: &[u64]) -> Vec<crate::topology::Resource> {
    (0..3u8)
        .map(|g| crate::topology::Resource {
            cpus: (0..).zip(groups).filter(|(_, x)| **x == g).map(|(i, _)| CpuId(i)).collect(),
            capacity: Some(capacities[g as usize]),
            ..resource(kind, level, "")
        })
        .collect()
}

prop_compose! {
    pub(super) fn small_machine()(n in 2usize..=6)(
        groups in proptest::collection::vec(proptest::collection::vec(0u8..4, n), 4),
        used in proptest::collection::vec(any::<bool>(), 4),
        capacities in proptest::collection::vec(prop_oneof![8 => Just(1u64), 1 => Just(2)], 3),
        classes in proptest::collection::vec(prop_oneof![8 => Just(None), 1 => Just(Some(1u8))], n),
        allowed in proptest::collection::vec(prop_oneof![8 => Just(true), 1 => Just(false)], n),
        node_sets in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(false), Just(true)], n), 0..4),
        disjoint in any::<bool>(),
        distances in proptest::option::of((any::<bool>(), proptest::collection::vec(prop_oneof![5 => Just(20.0f64), 1 => Just(30.0)], 36))),
        symmetric in any::<bool>(),
        coords in proptest::option::of(proptest::collection::vec((0i32..3, 0i32..2), n + 4)),
    ) -> Topology {
        let n = groups[0].len();
        let mut parts = Parts { cpus: cpus(n as u32), ..Parts::default() };
        for i in 0..n {
            parts.cpus[i].efficiency_class = classes[i];
            parts.cpus[i].allowed = allowed[i];
            parts.cpus[i].coord = coords.as_ref().map(|c| c[i]);
        }
        let kinds = [(Kind::Package, 0), (Kind::Cache(CacheType::Unified), 2), (Kind::Core, 0), (Kind::Bus, 0)];
        for (c, (kind, level)) in kinds.into_iter().enumerate().filter(|(c, _)| used[*c]) {
            parts.resources.extend(partition(kind, level, &groups[c], &capacities));
        }
        let mut taken = CpuSet::new();
        for (i, members) in (0..).zip(&node_sets) {
            let set: CpuSet = (0..).zip(members).filter(|(_, m)| **m).map(|(c, _)| CpuId(c)).collect();
            let set = if disjoint { set.minus(&taken) } else { set };
            taken = taken.or(&set);
            parts.nodes.push(MemoryNode { cpus: set, coord: coords.as_ref().map(|c| c[n + i as usize]), ..node(i, "") });
        }
        let cores = Topology::new(parts.clone()).unwrap().cores().len();
        let nodes = parts.nodes.len();
        if let Some((per_core, values)) = distances.filter(|_| nodes > 0) {
            let rows = if per_core { cores } else { nodes };
            let at = |i: usize, j: usize| if symmetric && !per_core { values[i.min(j) * 6 + i.max(j)] } else { values[i * 6 + j] };
            let rows = (0..rows).map(|i| (0..nodes).map(|j| at(i, j)).collect()).collect();
            parts.distances = Some(Distances { unit: crate::topology::DistanceUnit::Slit, rows, source: None });
        }
        Topology::new(parts).unwrap()
    }
}

/// All mappings of two applications and free CPUs.
pub(super) fn mappings(n: usize) -> Vec<Vec<Slot>> {
    (0..3usize.pow(n as u32))
        .map(|code| (0..n as u32).map(|i| [0, 1, FREE][code / 3usize.pow(i) % 3]).collect())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Holds place/classes.
    #[test]
    fn canonical_forms_agree_with_all_permutations(machine in small_machine()) {
        let n = machine.cpus().len();
        let node_permutations = permutations(machine.nodes().len());
        let group: Vec<Vec<usize>> = permutations(n).into_iter().filter(|by| is_symmetry(&machine, by, &node_permutations)).collect();
        let symmetry = Symmetry::new(&machine);
        prop_assert!(symmetry.is_exact());
        let at: Vec<usize> = symmetry.cpus().iter().map(|c| c.index()).collect();
        for mapping in mappings(n) {
            // The orbit as the set of images by CPU number, and the orbit of the canonical form.
            let mut by_cpu = vec![FREE; n];
            at.iter().zip(&mapping).for_each(|(&cpu, &slot)| by_cpu[cpu] = slot);
            let mut orbit = BTreeSet::new();
            for by in &group {
                let mut moved = vec![FREE; n];
                (0..n).for_each(|cpu| moved[by[cpu]] = by_cpu[cpu]);
                orbit.insert(at.iter().map(|&cpu| moved[cpu]).collect::<Vec<_>>());
            }
            let canonical = symmetry.canonical(&mapping);
            prop_assert!(orbit.contains(&canonical), "the canonical form is a member");
            for other in orbit {
                prop_assert_eq!(&symmetry.canonical(&other), &canonical, "all members have the same");
            }
        }
        for generator in symmetry.generators() {
            let mut by: Vec<usize> = (0..n).collect();
            for (from, to) in &generator {
                by[from.index()] = to.index();
            }
            prop_assert!(group.contains(&by), "{generator:?}");
        }
    }

    /// Holds place/classes.
    #[test]
    fn classes_are_the_canonical_forms_of_all_mappings(machine in small_machine(), balanced in any::<bool>()) {
        let n = machine.cpus().len();
        let symmetry = Symmetry::new(&machine);
        let count = |mapping: &Vec<Slot>, app| mapping.iter().filter(|s| **s == app).count();
        let mut expected: BTreeMap<(usize, usize), BTreeSet<Vec<Slot>>> = BTreeMap::new();
        for mapping in mappings(n) {
            let usable = symmetry.cpus().iter().zip(&mapping).all(|(c, s)| *s == FREE || machine.usable().contains(*c));
            let fits = !balanced || (symmetry.is_balanced(&mapping, 0) && symmetry.is_balanced(&mapping, 1));
            if usable && fits {
                expected.entry((count(&mapping, 0), count(&mapping, 1))).or_default().insert(symmetry.canonical(&mapping));
            }
        }
        for a in 0..=n {
            for b in 0..=(n - a) {
                let classes = symmetry.classes(&[a, b], balanced, 1000);
                prop_assert!(classes.complete);
                let of_pair: Vec<_> = expected.remove(&(a, b)).unwrap_or_default().into_iter().collect();
                prop_assert_eq!(classes.mappings, of_pair, "{} and {} threads", a, b);
            }
        }
    }
}
