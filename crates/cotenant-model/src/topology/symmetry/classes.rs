//! Mapping classes of applications whose threads may run everywhere, as `AToM` lets them compete.

use super::{Enumeration, Slot, Symmetry, Tenant, balances};

/// Mapping classes, each by its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Canonical forms, in ascending order.
    pub mappings: Vec<Vec<Slot>>,
    /// Whether these are all; otherwise the enumeration ended at the cap, and there are more.
    pub complete: bool,
}

impl Symmetry<'_> {
    /// The classes of mappings that put `threads[a]` threads of application `a` on as many usable CPUs, for all
    /// applications at once, at most `cap` of them. [`Enumeration`] yields them one by one.
    ///
    /// With `balanced`, only those where each application alone is balanced: all packages that it uses hold equally
    /// many of its threads, and so do all caches of each level (`algorithms.md` §3).
    pub fn classes(&self, threads: &[usize], balanced: bool, cap: usize) -> Classes {
        let tenants = threads.iter().map(|&threads| Tenant { threads, ..Tenant::default() }).collect();
        let enumeration = Enumeration::of(self.clone(), tenants, balanced);
        let mut mappings: Vec<_> = enumeration.iter().take(cap.saturating_add(1)).collect();
        let complete = mappings.len() <= cap;
        mappings.truncate(cap);
        mappings.sort_unstable();
        Classes { mappings, complete }
    }

    /// What `AToM` lets compete: the balanced classes, or all where none is balanced.
    pub fn competitors(&self, threads: &[usize], cap: usize) -> Classes {
        let balanced = self.classes(threads, true, cap);
        if balanced.mappings.is_empty() { self.classes(threads, false, cap) } else { balanced }
    }

    /// Whether an application uses packages and caches evenly: those of one kind and level that hold a thread hold
    /// equally many.
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
}
