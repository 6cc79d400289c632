//! Symmetries of a machine, and the mappings that they make equivalent.
//!
//! A *symmetry* permutes the online CPUs. It maps every resource to one of the same kind, level, capacity, line size
//! and associativity, every memory node to one of the same size, and efficiency classes and allowed CPUs to equal ones;
//! it preserves all distances to memory and all hops between coordinates. Two mappings are of one *class* if a symmetry
//! maps one onto the other. They perform alike, so `AToM` tries, and the search for the optimum visits, one mapping per
//! class (Tang, ch. 4.2).
//!
//! Where resources nest, swaps of equal siblings generate all symmetries, and a canonical form is a sort of strings up
//! the tree, without listing any permutation. Each swap is checked against what does not nest (distances, coordinates,
//! crossing resources). Siblings connected by some swaps only, such as nodes of one blade, become a level of the tree.
//! If some swaps still fail (a mesh, a ring of nodes), the blocks that are regular inside become units, whose
//! permutations are searched and listed. Beyond [`MAX_SKELETON`] of them, or a bounded effort, only the checked swaps
//! count: then [`Symmetry::is_exact`] is false, and equivalent mappings may be distinguished, but never the reverse.

mod block;
mod check;
mod count;
mod enumerate;
mod label;
mod skeleton;
#[cfg(test)]
mod tests;

pub use block::MAX_SKELETON;
pub use count::{Count, Tenant};
pub use enumerate::{Enumeration, Representatives};
pub use label::Labels;

use super::tree::{Item, Tree};
use super::{CacheType, Kind, Topology};
use crate::CpuId;
use block::Block;
use check::Checker;
use label::{Label, node_label};
use std::collections::BTreeMap;

/// Content of a CPU in a mapping: the number of an application, or [`FREE`].
pub type Slot = u32;

/// No application.
pub const FREE: Slot = Slot::MAX;

/// The symmetries of a machine.
#[derive(Clone, Debug)]
pub struct Symmetry<'t> {
    topology: &'t Topology,
    cpus: Vec<CpuId>,
    blocks: Vec<Block>,
    root: usize,
    /// Permutations of positions that permute units, identity included.
    skeleton: Vec<Vec<u32>>,
    exact: bool,
}

impl<'t> Symmetry<'t> {
    /// The symmetries of a machine.
    pub fn new(topology: &'t Topology) -> Self {
        Self::with_labels(topology, &Labels::default())
    }

    /// The symmetries of a machine that preserve the caller's labels too.
    pub fn with_labels(topology: &'t Topology, labels: &Labels) -> Self {
        let tree = Tree::new(topology);
        let cpus = tree.cpus();
        let checker = Checker::new(topology, labels, &cpus);
        let mut builder =
            Builder { topology, labels, tree: &tree, blocks: Vec::new(), checker, kinds: BTreeMap::new(), at: 0 };
        let mut root = builder.build(0);
        let Builder { mut blocks, mut checker, .. } = builder;
        let identity: Vec<u32> = (0..cpus.len() as u32).collect();
        let (mut skeleton, mut exact) = (vec![identity], true);
        if !blocks[root].free {
            match skeleton::search(&blocks, root, &mut checker) {
                Some(found) => {
                    skeleton = found;
                    root = freeze(&mut blocks, root);
                }
                None => exact = false,
            }
        }
        Self { topology, cpus, blocks, root, skeleton, exact }
    }

    /// The machine.
    pub fn topology(&self) -> &'t Topology {
        self.topology
    }

    /// The CPUs of a mapping, one slot each: the online ones in topology order.
    pub fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }

    /// Whether all symmetries were found.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The representative of a mapping's class: equal for exactly those mappings that a symmetry maps onto each other.
    /// It is the least of its class, compared slot by slot in the order of the tree's leaves.
    ///
    /// # Panics
    /// If `mapping` does not have one slot for each of [`Self::cpus`].
    pub fn canonical(&self, mapping: &[Slot]) -> Vec<Slot> {
        assert_eq!(mapping.len(), self.cpus.len(), "one slot for each online CPU");
        let sorted = self.sorted(self.root, mapping);
        let mut placed = vec![FREE; mapping.len()];
        for (&position, slot) in self.blocks[self.root].leaves.iter().zip(sorted) {
            placed[position as usize] = slot;
        }
        let image = |by: &Vec<u32>| -> Vec<Slot> { by.iter().map(|&from| placed[from as usize]).collect() };
        let seen_by = |by: &'_ Vec<u32>, at: usize| placed[by[at] as usize];
        let least = self.skeleton.iter().reduce(|best, other| {
            let leaves = self.blocks[self.root].leaves.iter().map(|&at| at as usize);
            let differs = leaves.map(|at| seen_by(other, at).cmp(&seen_by(best, at))).find(|o| o.is_ne());
            if differs == Some(std::cmp::Ordering::Less) { other } else { best }
        });
        least.map_or_else(|| placed.clone(), image)
    }

    /// The slots of a block in the order of its leaves, like siblings sorted.
    fn sorted(&self, at: usize, mapping: &[Slot]) -> Vec<Slot> {
        let block = &self.blocks[at];
        if block.classes.is_empty() {
            return block.leaves.iter().map(|&p| mapping[p as usize]).collect();
        }
        let mut slots = Vec::with_capacity(block.leaves.len());
        for class in &block.classes {
            let mut strings: Vec<Vec<Slot>> = class.iter().map(|&child| self.sorted(child, mapping)).collect();
            strings.sort_unstable();
            slots.extend(strings.into_iter().flatten());
        }
        slots
    }

    /// Whether an application uses packages and caches evenly: those of one kind and level with any thread have equally
    /// many.
    ///
    /// # Panics
    /// If `mapping` does not have one slot for each of [`Symmetry::cpus`].
    pub fn is_balanced(&self, mapping: &[Slot], app: Slot) -> bool {
        assert_eq!(mapping.len(), self.cpus.len(), "one slot for each online CPU");
        let used = self.cpus.iter().zip(mapping).filter(|(_, slot)| **slot == app).map(|(cpu, _)| *cpu).collect();
        let shared: Vec<_> = self.topology.resources().iter().filter(|r| balances(r.kind)).collect();
        shared.chunk_by(|a, b| (a.kind, a.level) == (b.kind, b.level)).all(|class| {
            let mut held = class.iter().map(|r| r.cpus.and(&used).len()).filter(|n| *n > 0);
            held.next().is_none_or(|first| held.all(|n| n == first))
        })
    }
}

/// The moves that exchange two blocks of one type.
fn swap(a: &Block, b: &Block) -> Vec<(u32, u32)> {
    a.leaves.iter().zip(&b.leaves).flat_map(|(&a, &b)| [(a, b), (b, a)]).collect()
}

/// Forbids every swap above the units, because the skeleton covers them; returns the new root.
fn freeze(blocks: &mut Vec<Block>, at: usize) -> usize {
    if blocks[at].free {
        return at;
    }
    let mut children: Vec<usize> = blocks[at].classes.concat();
    children.sort_by_key(|&child| blocks[child].leaves.iter().min().copied());
    let children: Vec<usize> = children.into_iter().map(|child| freeze(blocks, child)).collect();
    let leaves = children.iter().flat_map(|&child| blocks[child].leaves.clone()).collect();
    let classes = children.into_iter().map(|child| vec![child]).collect();
    blocks.push(Block { leaves, classes, ..blocks[at].clone() });
    blocks.len() - 1
}

struct Builder<'a> {
    topology: &'a Topology,
    labels: &'a Labels,
    tree: &'a Tree,
    blocks: Vec<Block>,
    checker: Checker<'a>,
    kinds: BTreeMap<(Label, Vec<u32>), u32>,
    /// Position of the next leaf: blocks are built in topology order.
    at: u32,
}

impl Builder<'_> {
    fn build(&mut self, vertex: usize) -> usize {
        let item = self.tree.vertices[vertex].item;
        let label = self.label(item);
        if let Item::Cpu(_) = item {
            let kind = self.kind_of(label, Vec::new());
            let leaves = vec![self.at];
            self.at += 1;
            return self.push(Block { kind, leaves, classes: Vec::new(), free: true, level: None });
        }
        let mut children = Vec::new();
        for i in 0..self.tree.vertices[vertex].children.len() {
            children.push(self.build(self.tree.vertices[vertex].children[i]));
        }
        let level = match &label {
            Label::Resource { kind: kind @ (Kind::Package | Kind::Cache(_)), level, .. } => Some((*kind, *level)),
            _ => None,
        };
        loop {
            let classes = self.classes(&children);
            let block = self.block(label.clone(), classes, level);
            let grouped = !block.free
                && children.iter().all(|&c| self.blocks[c].free)
                && block.classes.iter().any(|c| c.len() > 1);
            if !grouped {
                return self.push(block);
            }
            // Every symmetry preserves which free siblings may be swapped, so that they form a level.
            children.clear();
            for class in block.classes {
                children.push(if let [single] = class[..] {
                    single
                } else {
                    let group = self.block(Label::Group, vec![class], None);
                    self.push(group)
                });
            }
        }
    }

    fn push(&mut self, block: Block) -> usize {
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    fn block(&mut self, label: Label, mut classes: Vec<Vec<usize>>, level: Option<(Kind, u8)>) -> Block {
        let kind = |c: &Vec<usize>| self.blocks[c[0]].kind;
        classes.sort_by_key(kind);
        let free = classes.windows(2).all(|w| kind(&w[0]) != kind(&w[1]))
            && classes.iter().flatten().all(|&c| self.blocks[c].free);
        let children: Vec<u32> = classes.iter().flatten().map(|&c| self.blocks[c].kind).collect();
        let leaves = classes.iter().flatten().flat_map(|&c| self.blocks[c].leaves.clone()).collect();
        Block { kind: self.kind_of(label, children), leaves, classes, free, level }
    }

    fn kind_of(&mut self, label: Label, children: Vec<u32>) -> u32 {
        let next = self.kinds.len() as u32;
        *self.kinds.entry((label, children)).or_insert(next)
    }

    /// Groups siblings by possible swaps.
    fn classes(&mut self, children: &[usize]) -> Vec<Vec<usize>> {
        let mut classes: Vec<Vec<usize>> = Vec::new();
        for &child in children {
            let block = &self.blocks[child];
            let like = classes.iter().position(|class| {
                let other = &self.blocks[class[0]];
                other.kind == block.kind && self.checker.is_symmetry(&swap(other, block))
            });
            match like {
                Some(i) => classes[i].push(child),
                None => classes.push(vec![child]),
            }
        }
        classes
    }

    fn label(&self, item: Item) -> Label {
        match item {
            Item::Machine => Label::Machine,
            Item::Resource(i) => {
                let r = &self.topology.resources()[i];
                Label::Resource {
                    kind: r.kind,
                    level: r.level,
                    capacity: r.capacity,
                    line_size: r.line_size,
                    ways: r.ways,
                }
            }
            Item::Node(i) => node_label(self.topology, self.labels, i),
            Item::Cpu(id) => {
                let cpu = self.topology.cpu(id);
                Label::Cpu {
                    efficiency: cpu.and_then(|c| c.efficiency_class),
                    allowed: cpu.is_some_and(|c| c.allowed),
                    mapped: cpu.is_some_and(|c| c.coord.is_some()),
                    extra: self.labels.cpus.get(&id).copied().unwrap_or(0),
                }
            }
        }
    }
}

/// Whether a class of resources counts in [`Symmetry::is_balanced`].
fn balances(kind: Kind) -> bool {
    matches!(kind, Kind::Package | Kind::Cache(CacheType::Unified | CacheType::Data | CacheType::Instruction))
}
