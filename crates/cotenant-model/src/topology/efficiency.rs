//! Ranks kinds of cores from the system's figures of each CPU.

use crate::CpuId;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of cores as the firmware names them, least powerful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoreType {
    /// Intel's low-power efficient cores (`cpu_lowpower`).
    LowPower,
    /// Intel's efficient cores (`cpu_atom`).
    Efficient,
    /// Intel's performance cores (`cpu_core`).
    Performance,
}

/// Known figures of a CPU's strength; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strength {
    /// The name of its kind.
    pub core_type: Option<CoreType>,
    /// Implementer and part number of its core.
    pub part: Option<(u32, u32)>,
    /// The kernel's `cpu_capacity`; 1024 = the strongest CPU.
    pub capacity: Option<u64>,
    /// Highest frequency, kHz.
    pub max_khz: Option<u64>,
    /// Base frequency, kHz.
    pub base_khz: Option<u64>,
}

/// Cores with one base frequency whose highest frequencies differ by less than this fraction are one kind: Turbo Boost
/// Max 3.0 gives favoured cores some hundred MHz more. hwloc's figure.
const SAME_KIND: f64 = 0.10;

/// The efficiency class of each CPU, 0 = weakest; empty if all are equal or nothing is known. Figures known for some
/// CPUs only are ignored. If each CPU names its core's design, each design is a kind at any clock. Compares kind, then
/// capacity, then highest, then base frequency, as hwloc does.
pub fn classes(cpus: &BTreeMap<CpuId, Strength>) -> BTreeMap<CpuId, u8> {
    let mut cpus = cpus.clone();
    if cpus.values().all(|s| s.part.is_some()) {
        level_parts(&mut cpus);
    } else {
        for s in cpus.values_mut() {
            s.part = None;
        }
    }
    level_turbo(&mut cpus);
    let all = |field: fn(&Strength) -> bool| cpus.values().all(field);
    let known = [
        all(|s| s.core_type.is_some()),
        all(|s| s.capacity.is_some()),
        all(|s| s.max_khz.is_some()),
        all(|s| s.base_khz.is_some()),
    ];
    let key = |s: &Strength| {
        (
            s.core_type.filter(|_| known[0]),
            s.capacity.filter(|_| known[1]),
            s.max_khz.filter(|_| known[2]).map(|khz| khz / 1000),
            s.base_khz.filter(|_| known[3]).map(|khz| khz / 1000),
            s.part,
        )
    };
    let kinds: BTreeSet<_> = cpus.values().map(key).collect();
    // More classes than fit mean that every CPU has its own figure: no classes.
    if kinds.len() < 2 || kinds.len() > usize::from(u8::MAX) {
        return BTreeMap::new();
    }
    let rank = |s: &Strength| kinds.iter().position(|k| *k == key(s)).map_or(0, |i| i as u8);
    cpus.iter().map(|(&cpu, s)| (cpu, rank(s))).collect()
}

/// Gives cores of one design the figures of the strongest: they differ by binning.
fn level_parts(cpus: &mut BTreeMap<CpuId, Strength>) {
    let mut best: BTreeMap<Option<(u32, u32)>, Strength> = BTreeMap::new();
    for s in cpus.values() {
        let best = best.entry(s.part).or_insert(*s);
        best.capacity = best.capacity.max(s.capacity);
        best.max_khz = best.max_khz.max(s.max_khz);
        best.base_khz = best.base_khz.max(s.base_khz);
    }
    for s in cpus.values_mut() {
        *s = best[&s.part];
    }
}

/// Gives cores with one base frequency their least highest frequency and capacity if they differ by turbo only.
fn level_turbo(cpus: &mut BTreeMap<CpuId, Strength>) {
    if cpus.values().any(|s| s.max_khz.is_some() && s.base_khz.is_none()) {
        return;
    }
    let mut groups: BTreeMap<_, Vec<CpuId>> = BTreeMap::new();
    for (&cpu, s) in cpus.iter() {
        groups.entry((s.core_type, s.part, s.base_khz)).or_default().push(cpu);
    }
    for members in groups.values() {
        let max: Vec<u64> = members.iter().filter_map(|c| cpus[c].max_khz).collect();
        let (Some(&low), Some(&high)) = (max.iter().min(), max.iter().max()) else { continue };
        if high == low || (high - low) as f64 / (low as f64) >= SAME_KIND {
            continue;
        }
        let capacity = members.iter().filter_map(|c| cpus[c].capacity).min();
        for cpu in members {
            if let Some(s) = cpus.get_mut(cpu) {
                s.max_khz = s.max_khz.map(|_| low);
                s.capacity = s.capacity.and(capacity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(list: &[Strength]) -> Vec<u8> {
        let cpus = list.iter().enumerate().map(|(i, &s)| (CpuId(i as u32), s)).collect();
        classes(&cpus).into_values().collect()
    }

    fn freq(max_mhz: u64, base_mhz: u64) -> Strength {
        Strength { max_khz: Some(max_mhz * 1000), base_khz: Some(base_mhz * 1000), ..Strength::default() }
    }

    #[test]
    fn alike_or_unknown_is_no_class() {
        assert!(ranks(&[]).is_empty());
        assert!(ranks(&[freq(3000, 2000); 4]).is_empty());
        // Only CPU 0 reports its frequency, as on the ST-Ericsson board among hwloc's dumps.
        assert!(ranks(&[Strength { max_khz: Some(800_000), ..Strength::default() }, Strength::default()]).is_empty());
    }

    #[test]
    fn turbo_alone_makes_no_class() {
        // i7-1370P: performance cores reach 5.0 or 5.2 GHz from one base of 1.9 GHz; the others 3.9 GHz from 1.4.
        assert_eq!(ranks(&[freq(5000, 1900), freq(5200, 1900), freq(3900, 1400)]), [1, 1, 0]);
        // 3.0 against 4.0 GHz from one base is more than turbo.
        assert_eq!(ranks(&[freq(4000, 1900), freq(3000, 1900)]), [1, 0]);
    }

    #[test]
    fn a_design_is_a_kind_however_it_is_clocked() {
        let part =
            |part, capacity| Strength { part: Some((0x41, part)), capacity: Some(capacity), ..Strength::default() };
        let little = 0xd87;
        let bins = [part(little, 700), part(little, 715), part(0xd85, 990), part(0xd85, 1010), part(0xd85, 1024)];
        assert_eq!(ranks(&bins), [0, 0, 1, 1, 1]);
        assert!(ranks(&bins[2..]).is_empty(), "bins of one design");
        assert_eq!(ranks(&[part(0xd85, 1024), part(little, 1024)]), [0, 1], "equal capacity hides none");
        let unnamed = Strength { part: None, ..bins[0] };
        assert_eq!(ranks(&[unnamed, bins[2], bins[3]]), [0, 1, 2], "as they are clocked, where one has no name");
    }

    #[test]
    fn capacity_ranks_before_frequency_and_the_name_before_both() {
        let cap = |capacity, max| Strength { capacity: Some(capacity), max_khz: Some(max), ..Strength::default() };
        assert_eq!(ranks(&[cap(446, 2_000_000), cap(1024, 1_800_000)]), [0, 1]);
        let named = |core_type, capacity| Strength {
            core_type: Some(core_type),
            capacity: Some(capacity),
            ..Strength::default()
        };
        assert_eq!(
            ranks(&[
                named(CoreType::Performance, 500),
                named(CoreType::Efficient, 600),
                named(CoreType::LowPower, 700)
            ]),
            [2, 1, 0]
        );
    }
}
