//! The simulated kernel: which CPU a thread runs on, inside the mask that it has. It runs under every policy; `none`
//! under a kernel is Linux.
//!
//! What is modelled and what not: `docs/reference/simulated-kernels.md`.

use crate::Ns;
use std::fmt;
use std::str::FromStr;

/// How threads are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Linux 6.6 and later: the idlest place at fork and exec, run-queue lengths balanced, wake-ups near the waker.
    #[default]
    Eevdf,
    /// Linux 7.2 and later, `CONFIG_SCHED_CACHE`: besides, a process's threads are drawn to one last-level cache
    /// while it has room.
    CacheAware,
}

/// A kernel by its name: `eevdf`, `cache-aware`, each with or without `+numa-balancing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelKind {
    /// How threads are placed.
    pub placement: Placement,
    /// Whether pages follow threads and threads follow pages.
    pub numa_balancing: bool,
}

impl KernelKind {
    /// Linux with `kernel.numa_balancing=0`.
    pub const EEVDF: Self = Self { placement: Placement::Eevdf, numa_balancing: false };

    /// Linux as distributions ship it, on a machine with so many memory nodes: NUMA balancing is on where there are
    /// several (`CONFIG_NUMA_BALANCING_DEFAULT_ENABLED`).
    pub fn shipped(nodes: usize) -> Self {
        Self { numa_balancing: nodes > 1, ..Self::EEVDF }
    }

    /// Whether it moves memory on a machine with so many nodes.
    pub fn moves_memory(self, nodes: usize) -> bool {
        self.numa_balancing && nodes > 1
    }
}

/// A name that no kernel has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kernel '{0}'; known: eevdf, cache-aware, eevdf+numa-balancing, cache-aware+numa-balancing")]
pub struct UnknownKernel(String);

impl FromStr for KernelKind {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<Self, UnknownKernel> {
        let (name, numa_balancing) = text.strip_suffix("+numa-balancing").map_or((text, false), |name| (name, true));
        let placement = match name {
            "eevdf" => Placement::Eevdf,
            "cache-aware" => Placement::CacheAware,
            _ => return Err(UnknownKernel(text.to_owned())),
        };
        Ok(Self { placement, numa_balancing })
    }
}

impl fmt::Display for KernelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.placement == Placement::Eevdf { "eevdf" } else { "cache-aware" };
        write!(f, "{name}{}", if self.numa_balancing { "+numa-balancing" } else { "" })
    }
}

/// Run queues are looked at so often, ns, until nothing moves any more.
pub(crate) const BALANCE: Ns = 4_000_000;

/// A kernel at work.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Which.
    pub kind: KernelKind,
    pub(crate) balance: Option<Ns>,
    /// The next turn of NUMA balancing.
    pub(crate) scan: Ns,
}

impl Kernel {
    /// One that has not looked yet.
    pub fn new(kind: KernelKind) -> Self {
        Self { kind, balance: None, scan: Ns::MAX }
    }

    /// When it next does something by itself.
    pub(crate) fn next_turn(&self) -> Option<Ns> {
        let scan = self.kind.numa_balancing.then_some(self.scan);
        [self.balance, scan].into_iter().flatten().min()
    }

    /// Tasks or masks changed.
    pub(crate) fn disturb(&mut self, now: Ns) {
        self.balance.get_or_insert(now + BALANCE);
    }
}
