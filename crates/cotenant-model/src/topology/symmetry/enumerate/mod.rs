//! Mapping classes one by one, holding only the current one.
//!
//! A canonical mapping is the least of its class, so that the strings of interchangeable siblings ascend in it. Leaves
//! are assigned from first to last, each with every slot that keeps them ascending, so that no two members of a class
//! under the tree's symmetries are ever visited. Symmetries between units and between equivalent applications are few
//! and filter the results.

use super::count::{self, Count, Tenant};
use super::{FREE, Labels, Slot, Symmetry, balances};
use crate::Topology;
use crate::topology::Kind;
use std::collections::BTreeMap;

/// Limit of permutations of equivalent applications; beyond it, only some applications count as equivalent.
const MAX_LIKE: usize = 5_040;

/// All mapping classes of some tenants on a machine; tenant `i` is slot `i`.
#[derive(Clone, Debug)]
pub struct Enumeration<'t> {
    symmetry: Symmetry<'t>,
    tenants: Vec<Tenant>,
    balanced: bool,
    exact: bool,
    plan: Plan,
    /// Per leaf and tenant: whether it may use the leaf.
    allowed: Vec<Vec<bool>>,
    restricted: bool,
    /// Permutations of equivalent tenants (slot to its new slot), identity included.
    exchanges: Vec<Vec<Slot>>,
    /// Per tenant: the previous equivalent one.
    before: Vec<Option<usize>>,
}

impl<'t> Enumeration<'t> {
    /// For tenants on a machine. Symmetries preserve the labels and each tenant's allowed CPUs. With `balanced`, only
    /// classes in which each tenant alone is balanced ([`Symmetry::is_balanced`]).
    pub fn new(topology: &'t Topology, labels: &Labels, tenants: Vec<Tenant>, balanced: bool) -> Self {
        let mut labels = labels.clone();
        if tenants.iter().any(|t| t.allowed.is_some()) {
            let mut numbers: BTreeMap<(u64, Vec<bool>), u64> = BTreeMap::new();
            for cpu in topology.online().iter() {
                let own = labels.cpus.get(&cpu).copied().unwrap_or(0);
                let admits = tenants.iter().map(|t| t.allowed.as_ref().is_none_or(|set| set.contains(cpu))).collect();
                let next = numbers.len() as u64;
                labels.cpus.insert(cpu, *numbers.entry((own, admits)).or_insert(next));
            }
        }
        Self::of(Symmetry::with_labels(topology, &labels), tenants, balanced)
    }

    /// For tenants on a machine whose symmetries are known to preserve each tenant's allowed CPUs.
    pub(super) fn of(symmetry: Symmetry<'t>, tenants: Vec<Tenant>, balanced: bool) -> Self {
        let plan = Plan::new(&symmetry);
        let (exchanges, before, all) = exchanges(&tenants);
        let exact = symmetry.is_exact() && all;
        let mut found = Self {
            symmetry,
            tenants,
            balanced,
            exact,
            plan,
            allowed: Vec::new(),
            restricted: false,
            exchanges,
            before,
        };
        let admitted = |&at: &u32| (0..found.tenants.len()).map(|tenant| found.admits(at as usize, tenant)).collect();
        found.allowed = found.plan.leaves.iter().map(admitted).collect();
        found.restricted = found.allowed.iter().flatten().any(|may| !may);
        found
    }

    /// The symmetries that define classes, apart from exchanges of tenants.
    pub fn symmetry(&self) -> &Symmetry<'t> {
        &self.symmetry
    }

    /// The tenants, in the order of their slots.
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// Whether only classes with each tenant alone balanced count.
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// Whether a tenant may use the CPU at an index of [`Symmetry::cpus`].
    ///
    /// # Panics
    /// If there is no such CPU or tenant.
    pub fn admits(&self, at: usize, tenant: usize) -> bool {
        let cpu = self.symmetry.cpus[at];
        let allowed = &self.tenants[tenant].allowed;
        self.symmetry.topology.usable().contains(cpu) && allowed.as_ref().is_none_or(|set| set.contains(cpu))
    }

    /// Whether all symmetries were found; otherwise a class may be yielded more than once, by different
    /// representatives.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The representative of a mapping's class.
    ///
    /// # Panics
    /// If `mapping` does not have one slot for each of [`Symmetry::cpus`].
    pub fn canonical(&self, mapping: &[Slot]) -> Vec<Slot> {
        let exchanged = self.exchanges.iter().map(|to| {
            let moved: Vec<Slot> = mapping.iter().map(|&slot| to.get(slot as usize).copied().unwrap_or(slot)).collect();
            self.symmetry.canonical(&moved)
        });
        let by_leaf = |m: &Vec<Slot>| -> Vec<Slot> { self.plan.leaves.iter().map(|&at| m[at as usize]).collect() };
        exchanged.min_by_key(by_leaf).unwrap_or_else(|| self.symmetry.canonical(mapping))
    }

    /// Number of classes without listing any: by Burnside's lemma and Pólya's theorem if feasible, otherwise a lower
    /// bound; `None` for balanced ones, which only enumeration counts.
    pub fn count(&self) -> Option<Count> {
        (!self.balanced).then(|| count::count(&self.symmetry, &self.tenants, &self.allowed, &self.exchanges))
    }

    /// The representatives of all classes in ascending order of their leaves, lazily.
    pub fn iter(&self) -> Representatives<'_, 't> {
        Representatives::new(self)
    }
}

impl<'e, 't> IntoIterator for &'e Enumeration<'t> {
    type Item = Vec<Slot>;
    type IntoIter = Representatives<'e, 't>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// All exchanges of equivalent tenants, each tenant's previous equivalent one, and whether all were kept.
fn exchanges(tenants: &[Tenant]) -> (Vec<Vec<Slot>>, Vec<Option<usize>>, bool) {
    let mut found: Vec<Vec<Slot>> = vec![(0..tenants.len() as Slot).collect()];
    let mut before = vec![None; tenants.len()];
    let mut all = true;
    for (i, tenant) in tenants.iter().enumerate().filter(|(_, tenant)| tenant.like.is_some()) {
        let alike: Vec<usize> = (i..tenants.len()).filter(|&j| tenants[j] == *tenant).collect();
        let first = (0..i).all(|j| tenants[j] != *tenant);
        if !first {
            continue;
        }
        if (2..=alike.len()).try_fold(found.len(), usize::checked_mul).is_none_or(|all| all > MAX_LIKE) {
            all = false;
            continue;
        }
        for k in 1..alike.len() {
            before[alike[k]] = Some(alike[k - 1]);
            let swapped = |by: &Vec<Slot>, j: usize| {
                let mut by = by.clone();
                by.swap(alike[k], j);
                by
            };
            let more: Vec<_> = found.iter().flat_map(|by| alike[..k].iter().map(move |&j| swapped(by, j))).collect();
            found.extend(more);
        }
    }
    (found, before, all)
}

/// An earlier sibling that a block must not be less than, from the view of one of its leaves.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    /// Distance in leaves from the sibling's leaf to the corresponding one of the block.
    ahead: usize,
    /// The index of the same sibling at the previous leaf; `None` at the first leaf of the block.
    as_before: Option<usize>,
}

/// The tree in the form of the leaf assignment; per leaf in the order of [`Plan::leaves`].
#[derive(Clone, Debug, Default)]
struct Plan {
    /// Positions.
    leaves: Vec<u32>,
    siblings: Vec<Vec<Sibling>>,
    /// The earlier leaf that a leaf is never less than.
    head: Vec<Option<usize>>,
    /// The blocks that balance and end with the leaf: first leaf and index of level.
    ends: Vec<Vec<(usize, usize)>>,
    levels: Vec<(Kind, u8)>,
    /// Balancing resources outside of the tree are checked when all leaves are assigned.
    nests: bool,
}

impl Plan {
    fn new(symmetry: &Symmetry) -> Self {
        let mut plan = Self::default();
        plan.visit(symmetry, symmetry.root, &[], None);
        let resources = symmetry.topology.resources().iter().filter(|r| balances(r.kind)).count();
        plan.nests = plan.ends.iter().map(Vec::len).sum::<usize>() == resources;
        plan
    }

    /// Adds a block; `open` are the siblings compared with it or the blocks around it: first leaf of the block, and its
    /// distance from the sibling. `head` is the head of its first leaf.
    fn visit(&mut self, symmetry: &Symmetry, at: usize, open: &[(usize, usize)], head: Option<usize>) {
        let block = &symmetry.blocks[at];
        let start = self.leaves.len();
        if block.classes.is_empty() {
            for &position in &block.leaves {
                let leaf = self.leaves.len();
                self.leaves.push(position);
                self.head.push(head);
                self.ends.push(Vec::new());
                let begins = |first: usize| first == leaf;
                let siblings = open.iter().enumerate();
                let siblings =
                    siblings.map(|(i, &(first, ahead))| Sibling { ahead, as_before: (!begins(first)).then_some(i) });
                self.siblings.push(siblings.collect());
            }
        }
        for (c, class) in block.classes.iter().enumerate() {
            let mut sibling: Option<usize> = None;
            for &child in class {
                let first = self.leaves.len();
                let mut open = open.to_vec();
                open.extend(sibling.map(|sibling| (first, first - sibling)));
                // The first leaf of a class's first member is the block's first, or that of a class without a
                // predecessor.
                let head = sibling.or(head.filter(|_| c == 0));
                self.visit(symmetry, child, &open, head);
                sibling = Some(first);
            }
        }
        if let (Some(level), Some(ends)) = (block.level, self.ends.last_mut()) {
            let index = self.levels.iter().position(|l| *l == level).unwrap_or(self.levels.len());
            ends.push((start, index));
            if index == self.levels.len() {
                self.levels.push(level);
            }
        }
    }
}

/// Yields the representatives of all classes, see [`Enumeration::iter`].
#[derive(Clone, Debug)]
pub struct Representatives<'e, 't> {
    of: &'e Enumeration<'t>,
    /// Slots of the leaves assigned so far; free is the number of tenants.
    assigned: Vec<usize>,
    /// Per leaf up to the next one to assign: whether the block is equal to each sibling so far.
    tied: Vec<Vec<bool>>,
    /// Number of unassigned entries of each slot, free last.
    left: Vec<usize>,
    /// Per level and tenant: the contents of its used blocks, and the last leaf of the first of them.
    held: Vec<Vec<Option<(usize, usize)>>>,
    /// The least slot to try next; `None` when all is done.
    next: Option<usize>,
    /// Leaves that may still be tried.
    effort: u64,
}

impl<'e, 't> Representatives<'e, 't> {
    /// Stops after trying this many leaves: with few balanced mappings, the next one may be far.
    #[must_use]
    pub fn within(self, effort: u64) -> Self {
        Self { effort, ..self }
    }

    /// Whether it stopped early: there may be more classes.
    pub fn gave_up(&self) -> bool {
        self.effort == 0
    }

    fn new(of: &'e Enumeration<'t>) -> Self {
        let mut left: Vec<usize> = of.tenants.iter().map(|t| t.threads).collect();
        let threads = left.iter().fold(0usize, |sum, n| sum.saturating_add(*n));
        let free = of.plan.leaves.len().checked_sub(threads);
        left.push(free.unwrap_or(0));
        let held = vec![vec![None; of.tenants.len()]; of.plan.levels.len()];
        let mut found = Self { of, assigned: Vec::new(), tied: Vec::new(), left, held, next: None, effort: u64::MAX };
        if free.is_some() && found.rest_fits() {
            found.next = Some(0);
            found.open();
        }
        found
    }

    /// Prepares the next leaf: the ties there.
    fn open(&mut self) {
        let at = self.assigned.len();
        let Some(siblings) = self.of.plan.siblings.get(at) else { return };
        let tie = |s: &Sibling| {
            s.as_before.is_none_or(|i| self.tied[at - 1][i] && self.assigned[at - 1] == self.assigned[at - 1 - s.ahead])
        };
        self.tied.push(siblings.iter().map(tie).collect());
    }

    /// Undoes the last leaf and continues with the slot after its own.
    fn back(&mut self) {
        self.tied.truncate(self.assigned.len());
        self.next = self.assigned.pop().map(|slot| {
            self.left[slot] += 1;
            slot + 1
        });
    }

    /// The least slot from `from` on that is valid for the next leaf.
    fn choose(&self, from: usize) -> Option<usize> {
        let (at, free) = (self.assigned.len(), self.of.tenants.len());
        let siblings = self.of.plan.siblings[at].iter().zip(&self.tied[at]).filter(|(_, tied)| **tied);
        let least = siblings.map(|(s, _)| self.assigned[at - s.ahead]).fold(from, usize::max);
        (least..=free).find(|&slot| {
            // Among equivalent tenants, the lowest number is placed first.
            let turn = |before: usize| self.left[before] < self.of.tenants[before].threads;
            let may = slot == free || self.of.allowed[at][slot] && self.of.before[slot].is_none_or(turn);
            self.left[slot] > 0 && may
        })
    }

    /// Whether the remaining leaves can take everything left, as far as heads and allowed CPUs show.
    fn rest_fits(&self) -> bool {
        let (plan, from, free) = (&self.of.plan, self.assigned.len(), self.of.tenants.len());
        let mut least = vec![0; plan.leaves.len()];
        // Per slot: leaves that can take it; leaves with it as their least slot.
        let (mut takes, mut starts) = (vec![0; free], vec![0; free + 1]);
        for leaf in from..plan.leaves.len() {
            least[leaf] = plan.head[leaf].map_or(0, |head| self.assigned.get(head).copied().unwrap_or(least[head]));
            let admitted = |slot: &usize| self.of.allowed[leaf][*slot];
            let Some(first) = (least[leaf]..free).find(admitted) else { continue };
            starts[first] += 1;
            (first..free).filter(admitted).for_each(|slot| takes[slot] += 1);
        }
        let (mut wanted, mut there) = (0, 0);
        (0..free).all(|slot| {
            wanted += self.left[slot];
            there += starts[slot];
            wanted <= there && self.left[slot] <= takes[slot]
        })
    }

    /// Whether the blocks that end with the current leaf have as many threads of each tenant as the earlier ones.
    fn balances(&mut self) -> bool {
        let at = self.assigned.len() - 1;
        self.of.plan.ends[at].iter().all(|&(start, level)| {
            (0..self.of.tenants.len()).all(|tenant| {
                let here = self.assigned[start..].iter().filter(|slot| **slot == tenant).count();
                let known = &mut self.held[level][tenant];
                match known {
                    // Values set at this leaf or later belong to an undone assignment.
                    Some((held, since)) if *since < start => here == 0 || here == *held,
                    _ => {
                        *known = (here > 0).then_some((here, at));
                        true
                    }
                }
            })
        })
    }

    /// Whether the candidate is its class's representative, and balanced outside of the tree.
    fn stands(&self, mapping: &[Slot]) -> bool {
        let of = self.of;
        let least = of.symmetry.skeleton.len() * of.exchanges.len() == 1 || of.canonical(mapping) == mapping;
        let balanced = || (0..of.tenants.len() as Slot).all(|app| of.symmetry.is_balanced(mapping, app));
        least && (!of.balanced || of.plan.nests || balanced())
    }
}

impl Iterator for Representatives<'_, '_> {
    type Item = Vec<Slot>;

    fn next(&mut self) -> Option<Vec<Slot>> {
        let (plan, free) = (&self.of.plan, self.of.tenants.len());
        while let Some(from) = self.next {
            self.effort = self.effort.checked_sub(1)?;
            let at = self.assigned.len();
            if at == plan.leaves.len() {
                let mut mapping = vec![FREE; at];
                for (&position, &slot) in plan.leaves.iter().zip(&self.assigned).filter(|(_, slot)| **slot < free) {
                    mapping[position as usize] = slot as Slot;
                }
                self.back();
                if self.stands(&mapping) {
                    return Some(mapping);
                }
                continue;
            }
            let Some(slot) = self.choose(from) else {
                self.back();
                continue;
            };
            self.assigned.push(slot);
            self.left[slot] -= 1;
            // Only a leaf above its head's least takes more from the rest than its own place.
            let head = plan.head[at].map_or(0, |head| self.assigned[head]);
            let fits =
                (slot == head && !self.of.restricted || self.rest_fits()) && (!self.of.balanced || self.balances());
            if fits {
                self.next = Some(0);
                self.open();
            } else {
                self.left[slot] += 1;
                self.assigned.pop();
                self.next = Some(slot + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
