//! Enumerates mapping classes without enumerating permutations: multisets of the strings of like siblings, up the tree.

use super::{Block, FREE, Slot, Symmetry, balances};
use crate::topology::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Most strings that are looked at for one application where units have symmetries of their own.
const MAX_RAW: usize = 1 << 20;

/// Mapping classes, each by its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Canonical forms, in ascending order.
    pub mappings: Vec<Vec<Slot>>,
    /// Whether these are all; otherwise the enumeration ended at the cap or at its effort, and there may be more.
    pub complete: bool,
}

impl Symmetry<'_> {
    /// The classes of mappings that put `threads[a]` threads of application `a` on as many usable CPUs, for all applications at once,
    /// at most `cap` of them.
    ///
    /// With `balanced`, only those where each application alone is balanced: all packages that it uses hold equally many of its
    /// threads, and so do all caches of each level (`algorithms.md` §3).
    pub fn classes(&self, threads: &[usize], balanced: bool, cap: usize) -> Classes {
        let mut mappings = BTreeSet::from([vec![FREE; self.cpus.len()]]);
        let mut complete = true;
        for (app, &n) in (0..).zip(threads) {
            let mut next = BTreeSet::new();
            for mapping in &mappings {
                // Who stands already is told apart by the next application's symmetries.
                let seeing = (app > 0).then(|| Symmetry::preserving(self.topology, self.labels.clone(), Some(mapping)));
                complete &= seeing.as_ref().unwrap_or(self).place(mapping, app, n, balanced, cap, &mut next);
                if next.len() > cap {
                    break;
                }
            }
            mappings = next.iter().map(|mapping| self.canonical(mapping)).collect();
        }
        complete &= mappings.len() <= cap;
        Classes { mappings: mappings.into_iter().take(cap).collect(), complete }
    }

    /// What `AToM` lets compete: the balanced classes, or all where none is balanced.
    pub fn competitors(&self, threads: &[usize], cap: usize) -> Classes {
        let balanced = self.classes(threads, true, cap);
        if balanced.mappings.is_empty() { self.classes(threads, false, cap) } else { balanced }
    }

    /// Whether an application uses packages and caches evenly: those of one kind and level that hold a thread hold equally many.
    ///
    /// # Panics
    /// Where `mapping` has not one slot for each of [`Symmetry::cpus`].
    pub fn is_balanced(&self, mapping: &[Slot], app: Slot) -> bool {
        assert_eq!(mapping.len(), self.cpus.len(), "one slot for each online CPU");
        let used = self.cpus.iter().zip(mapping).filter(|(_, slot)| **slot == app).map(|(cpu, _)| *cpu).collect();
        let shared: Vec<_> = self.topology.resources().iter().filter(|r| balances(r.kind)).collect();
        shared.chunk_by(|a, b| (a.kind, a.level) == (b.kind, b.level)).all(|class| {
            let mut held = class.iter().map(|r| r.cpus.and(&used).len()).filter(|n| *n > 0);
            held.next().is_none_or(|first| held.all(|n| n == first))
        })
    }

    /// Adds to `mapping` `n` threads of `app` in every way that differs; false where `found` passes `cap` or effort runs out.
    fn place(
        &self,
        mapping: &[Slot],
        app: Slot,
        n: usize,
        balanced: bool,
        cap: usize,
        found: &mut BTreeSet<Vec<Slot>>,
    ) -> bool {
        let mut free: Vec<bool> = self.cpus.iter().map(|&cpu| self.topology.usable().contains(cpu)).collect();
        free.iter_mut().zip(mapping).for_each(|(free, &slot)| *free &= slot == FREE);
        let limit = cap.saturating_add(1).saturating_mul(self.skeleton.len()).min(MAX_RAW);
        let mut levels: Vec<(Kind, u8)> = Vec::new();
        if balanced {
            levels.extend(self.blocks.iter().filter_map(|b| b.level));
            levels.sort_unstable();
            levels.dedup();
        }
        let mut complete = true;
        // A balanced mapping has one occupancy per level; each vector of occupancies is enumerated by itself.
        let mut open = vec![Vec::new()];
        while let Some(held) = open.pop() {
            let mut strings = Strings {
                symmetry: self,
                free: &free,
                levels: &levels,
                held: &held,
                limit,
                n,
                counts: BTreeMap::new(),
                lists: BTreeMap::new(),
            };
            if !strings.counts(self.root).contains(&n) {
                continue;
            }
            if held.len() < levels.len() {
                let level = levels[held.len()];
                let of_level = (0..self.blocks.len()).filter(|&b| self.blocks[b].level == Some(level));
                let occupancies: BTreeSet<usize> =
                    of_level.flat_map(|b| strings.counts(b).iter().copied().collect::<Vec<_>>()).collect();
                open.extend(occupancies.into_iter().map(|t| [&held[..], &[t]].concat()));
                continue;
            }
            let list = strings.list(self.root, n);
            complete &= list.len() < limit;
            for string in list.iter() {
                let mut with = mapping.to_vec();
                for (&position, _) in self.blocks[self.root].leaves.iter().zip(string).filter(|(_, stands)| **stands) {
                    with[position as usize] = app;
                }
                if !balanced || self.is_balanced(&with, app) {
                    found.insert(self.canonical(&with));
                }
                if found.len() > cap {
                    return false;
                }
            }
        }
        complete
    }
}

/// The strings of blocks with given numbers of threads, one per class. A string tells per leaf whether a thread stands there.
struct Strings<'a> {
    symmetry: &'a Symmetry<'a>,
    free: &'a [bool],
    levels: &'a [(Kind, u8)],
    /// Threads that every used block of a level holds, for the first levels; 0: none is used.
    held: &'a [usize],
    /// Most strings per list. A list that reaches it is cut short, and so is then the root's.
    limit: usize,
    n: usize,
    counts: BTreeMap<Key, Rc<BTreeSet<usize>>>,
    lists: BTreeMap<(Key, usize), Rc<Vec<Vec<bool>>>>,
}

/// Blocks with the same strings: those of one type where all like siblings are interchangeable, else each for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Type(u32),
    Single(usize),
}

impl Strings<'_> {
    fn block(&self, at: usize) -> &Block {
        &self.symmetry.blocks[at]
    }

    fn key(&self, at: usize) -> Key {
        if self.block(at).free { Key::Type(self.block(at).kind) } else { Key::Single(at) }
    }

    fn allows(&self, at: usize, k: usize) -> bool {
        let level = self.block(at).level.and_then(|level| self.levels.iter().position(|l| *l == level));
        k == 0 || level.and_then(|i| self.held.get(i)).is_none_or(|held| k == *held)
    }

    fn is_free(&self, at: usize) -> bool {
        self.free[self.block(at).leaves[0] as usize]
    }

    /// How many threads, up to `n`, a block can hold.
    fn counts(&mut self, at: usize) -> Rc<BTreeSet<usize>> {
        let key = self.key(at);
        if let Some(known) = self.counts.get(&key) {
            return Rc::clone(known);
        }
        let mut counts = BTreeSet::from([0]);
        if self.block(at).classes.is_empty() {
            counts.extend(self.is_free(at).then_some(1).filter(|one| *one <= self.n));
        }
        let children = self.block(at).classes.concat();
        for child in children {
            let more = self.counts(child);
            counts = counts.iter().flat_map(|a| more.iter().map(move |b| a + b)).filter(|k| *k <= self.n).collect();
        }
        counts.retain(|&k| self.allows(at, k));
        let counts = Rc::new(counts);
        self.counts.insert(key, Rc::clone(&counts));
        counts
    }

    /// The strings of a block with `k` threads, one per class under the swaps of its classes.
    fn list(&mut self, at: usize, k: usize) -> Rc<Vec<Vec<bool>>> {
        let key = (self.key(at), k);
        if let Some(known) = self.lists.get(&key) {
            return Rc::clone(known);
        }
        let list = if !self.counts(at).contains(&k) {
            Vec::new()
        } else if self.block(at).classes.is_empty() {
            vec![vec![k == 1]]
        } else {
            let classes = self.block(at).classes.clone();
            let members: Vec<(usize, bool)> =
                classes.iter().flat_map(|class| class.iter().enumerate().map(|(i, &child)| (child, i > 0))).collect();
            // What the members from the i-th on can hold together.
            let mut rest = vec![BTreeSet::from([0])];
            for &(child, _) in members.iter().rev() {
                let more = self.counts(child);
                let last = &rest[rest.len() - 1];
                rest.push(last.iter().flat_map(|a| more.iter().map(move |b| a + b)).filter(|sum| *sum <= k).collect());
            }
            rest.reverse();
            let mut found = Vec::new();
            self.extend(&members, &rest, k, None, &mut Vec::new(), &mut found);
            found
        };
        let list = Rc::new(list);
        self.lists.insert(key, Rc::clone(&list));
        list
    }

    /// Appends the strings of the remaining members. Members of one class take (threads, index of string) in non-ascending order, so
    /// that each multiset comes once; `before` is what the member before took.
    fn extend(
        &mut self,
        members: &[(usize, bool)],
        rest: &[BTreeSet<usize>],
        left: usize,
        before: Option<(usize, usize)>,
        string: &mut Vec<bool>,
        found: &mut Vec<Vec<bool>>,
    ) {
        let Some((&(child, follows), others)) = members.split_first() else {
            found.push(string.clone());
            return;
        };
        let before = before.filter(|_| follows);
        let most = before.map_or(left, |(k, _)| k.min(left));
        let counts = self.counts(child);
        for &k in counts.range(..=most).rev().filter(|k| rest[1].contains(&(left - **k))) {
            let alike = others.iter().take_while(|m| m.1).count();
            let later = rest[1 + alike].last().copied().unwrap_or(0);
            if left > k * (1 + alike) + later {
                break; // those that follow in this class take no more than k each
            }
            let list = self.list(child, k);
            let end = before.filter(|b| b.0 == k).map_or(list.len(), |b| b.1 + 1);
            for (i, part) in list[..end].iter().enumerate() {
                if found.len() >= self.limit {
                    return;
                }
                let length = string.len();
                string.extend(part);
                self.extend(others, &rest[1..], left - k, Some((k, i)), string, found);
                string.truncate(length);
            }
        }
    }
}
