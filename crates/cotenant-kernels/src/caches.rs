//! Cache sizes that determine working sets.

use cotenant_model::Topology;
use cotenant_model::topology::{CacheType, Kind};

/// The cache sizes, in bytes, that determine a kernel's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// Largest first-level data cache: larger memory misses there.
    pub l1d: u64,
    /// Smallest second-level cache: smaller memory hits there.
    pub l2: u64,
    /// Largest last-level cache.
    pub llc: u64,
    /// All last-level caches together.
    pub llc_total: u64,
    /// Whether a size is that of [`Caches::ASSUMED`] because the machine does not report it.
    pub assumed: bool,
}

impl Caches {
    /// Assumed sizes if a machine reports none: usual on small servers.
    pub const ASSUMED: Self = Self { l1d: 32 << 10, l2: 512 << 10, llc: 32 << 20, llc_total: 32 << 20, assumed: true };

    /// Of a machine.
    pub fn of(topology: &Topology) -> Self {
        let level = |level| {
            let of_level = move |kind: Kind| matches!(kind, Kind::Cache(CacheType::Data | CacheType::Unified));
            topology.resources().iter().filter(move |r| of_level(r.kind) && r.level == level).filter_map(|r| r.capacity)
        };
        let deepest = (2..=u8::MAX).take_while(|l| level(*l).next().is_some()).last();
        let (l1d, l2) = (level(1).max(), level(2).min());
        let llc = deepest.and_then(|l| level(l).max());
        Self {
            l1d: l1d.unwrap_or(Self::ASSUMED.l1d),
            l2: l2.unwrap_or(Self::ASSUMED.l2),
            llc: llc.unwrap_or(Self::ASSUMED.llc),
            llc_total: deepest.map_or(Self::ASSUMED.llc_total, |l| level(l).sum()),
            assumed: l1d.is_none() || l2.is_none() || llc.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::topology::synthetic;

    #[test]
    fn the_smallest_to_fit_and_the_largest_to_miss() {
        let machine = synthetic::parse("pack:2 l3:1(size=33554432) core:4 l2:1(size=1048576) l1d:1(size=49152) pu:2");
        let caches = Caches::of(&machine.unwrap());
        let expected = Caches { l1d: 48 << 10, l2: 1 << 20, llc: 32 << 20, llc_total: 64 << 20, assumed: false };
        assert_eq!(caches, expected);
    }

    #[test]
    fn a_machine_without_caches_gets_assumed_ones() {
        assert_eq!(Caches::of(&synthetic::parse("core:2 pu:1").unwrap()), Caches::ASSUMED);
    }
}
