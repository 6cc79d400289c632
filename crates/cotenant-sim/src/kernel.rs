//! The simulated kernel: which CPU within its mask a thread runs on. It runs under every policy; the policy `none`
//! under a kernel is Linux.
//!
//! `docs/reference/simulated-kernels.md` lists what is modelled and what is not.

use crate::Ns;
use std::fmt;
use std::str::FromStr;

/// The placement of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Linux 6.6 and later: the idlest place at fork and exec, run-queue lengths balanced, wake-ups near the waker.
    #[default]
    Eevdf,
    /// Linux 7.2 and later, `CONFIG_SCHED_CACHE`: also draws a process's threads to one last-level cache while that has
    /// room.
    CacheAware,
}

/// A kernel by its name: `eevdf`, `cache-aware`, each with or without `+numa-balancing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelKind {
    /// The placement of threads.
    pub placement: Placement,
    /// Whether NUMA balancing moves pages to threads and threads to pages.
    pub numa_balancing: bool,
}

impl KernelKind {
    /// Linux with `kernel.numa_balancing=0`.
    pub const EEVDF: Self = Self { placement: Placement::Eevdf, numa_balancing: false };

    /// Linux as distributions ship it: NUMA balancing is on with several memory nodes
    /// (`CONFIG_NUMA_BALANCING_DEFAULT_ENABLED`).
    pub fn shipped(nodes: usize) -> Self {
        Self { numa_balancing: nodes > 1, ..Self::EEVDF }
    }

    /// Whether it moves memory on a machine with this number of nodes.
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

/// The interval of load balancing, ns, until nothing moves any more.
pub(crate) const BALANCE: Ns = 4_000_000;

/// A kernel at work.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its kind.
    pub kind: KernelKind,
    pub(crate) balance: Option<Ns>,
    /// The next turn of NUMA balancing.
    pub(crate) scan: Ns,
}

impl Kernel {
    /// A kernel that has not balanced yet.
    pub fn new(kind: KernelKind) -> Self {
        Self { kind, balance: None, scan: Ns::MAX }
    }

    /// The time of its next own action.
    pub(crate) fn next_turn(&self) -> Option<Ns> {
        let scan = self.kind.numa_balancing.then_some(self.scan);
        [self.balance, scan].into_iter().flatten().min()
    }

    /// Tasks or masks changed.
    pub(crate) fn disturb(&mut self, now: Ns) {
        self.balance.get_or_insert(now + BALANCE);
    }
}
