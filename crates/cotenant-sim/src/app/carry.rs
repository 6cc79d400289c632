//! Translates a measured program to a core whose private caches differ from those of the core it was measured on.

use super::{Curve, Phase, Program};

/// The private caches of a machine's cores, as the last-level cache sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Private {
    /// Bytes of the last private cache of a core.
    pub bytes: f64,
    /// Whether the last-level cache is inclusive, as in Intel's servers before Skylake.
    pub inclusive: bool,
    /// Fraction (0–1) of the lines in private caches that are used again before they leave. An inclusive last level
    /// evicts them early.
    pub in_use: f64,
}

/// Points below the smallest measured size, placed so that straight lines between them follow the exponential to 1 %.
const POINTS: u32 = 12;

impl Private {
    /// Bytes that an inclusive last level holds only because private caches use them: it does not see those uses,
    /// evicts the lines, and they return at once. 0 where the program's private caches are unknown.
    pub fn kept(&self, phase: &Phase) -> f64 {
        let known = self.inclusive && phase.private_bytes.is_some();
        if known { self.in_use * self.bytes.min(phase.footprint_bytes) } else { 0.0 }
    }

    /// A program as these cores run it.
    pub fn carry(&self, program: &Program) -> Program {
        Program { phases: program.phases.iter().map(|p| self.phase(p)).collect(), ..program.clone() }
    }

    /// A phase as these cores run it; unchanged where `private_bytes` is not known. Misses to memory depend on the
    /// bytes of both caches together, unless the last level is inclusive. A private cache smaller than the measured one
    /// sends more accesses to the last level; the slope of the curve at 0 bytes gives how many.
    pub fn phase(&self, phase: &Phase) -> Phase {
        let Some(measured) = phase.private_bytes else { return phase.clone() };
        let less = if self.inclusive { measured } else { measured - self.bytes };
        let start = if self.inclusive { self.bytes } else { 0.0 };
        let more = phase.miss_ratio.beyond(start - less);
        // Straight lines below the smallest measured size and between measured sizes; points below `start` are dropped.
        let known = phase.miss_ratio.points();
        let first = (known[0].0 + less).max(start);
        let below = (0..POINTS).map(|i| start + (first - start) * f64::from(i) / f64::from(POINTS));
        let sizes = below.chain(std::iter::once(first)).chain(known.iter().map(|p| p.0 + less).filter(|o| *o > first));
        let mut points: Vec<(f64, f64)> = Vec::new();
        for bytes in sizes {
            let (before, least) = points.last().copied().unwrap_or((0.0, 1.0));
            if bytes > before {
                points.push((bytes, (phase.miss_ratio.beyond(bytes - less) / more).clamp(0.0, least)));
            }
        }
        let Some(miss_ratio) = Curve::new(points) else { return phase.clone() };
        let footprint_bytes = (phase.footprint_bytes + less).max(start).max(1.0);
        Phase {
            llc_apki: phase.llc_apki * more,
            miss_ratio,
            footprint_bytes,
            private_bytes: Some(self.bytes),
            ..phase.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::embedded;

    const MIB: f64 = 1_048_576.0;

    /// Misses per 1,000 instructions.
    fn misses(p: &Phase, bytes: f64) -> f64 {
        p.llc_apki * p.miss_ratio.at(bytes)
    }

    /// All the bytes of both caches decide, whatever the caches are.
    #[test]
    fn as_many_bytes_miss_as_often() {
        let inclusive = Private { bytes: MIB / 4.0, inclusive: true, in_use: 0.5 };
        let larger = Private { bytes: 2.0 * MIB, inclusive: false, in_use: 0.5 };
        for (name, program) in embedded().iter().filter(|(_, p)| p.phases[0].private_bytes.is_some()) {
            let measured = &program.phases[0];
            for mib in [1.5, 3.0, 8.0, 20.0] {
                let all = misses(measured, (mib - 1.0) * MIB);
                let close = |m: f64| (m - all).abs() <= 0.01 * measured.llc_apki;
                let here = misses(&inclusive.phase(measured), mib * MIB);
                assert!(close(here), "{name}, {mib} MiB: {here} for {all}");
                assert!(mib <= 2.0 || close(misses(&larger.phase(measured), (mib - 2.0) * MIB)), "{name} {mib}");
            }
            assert!(inclusive.phase(measured).llc_apki >= measured.llc_apki, "{name}");
            assert!(larger.phase(measured).llc_apki <= measured.llc_apki, "{name}");
        }
    }

    /// 5 MiB, of which 1 MiB stood in the measured private cache: an inclusive last level can hold all of them,
    /// another one what a private cache of 2 MiB leaves. 1.5 MiB leave nothing of themselves.
    #[test]
    fn what_private_caches_hold_is_no_footprint() {
        let measured = embedded().values().find(|p| p.phases[0].private_bytes == Some(MIB)).unwrap();
        for (bytes, inclusive, footprint, here) in
            [(0.25, true, 4.0, 5.0), (2.0, false, 4.0, 3.0), (2.0, false, 0.5, 1.0 / MIB)]
        {
            let phase = Phase { footprint_bytes: footprint * MIB, ..measured.phases[0].clone() };
            let carried = Private { bytes: bytes * MIB, inclusive, in_use: 0.5 }.phase(&phase);
            assert_eq!(carried.footprint_bytes, here * MIB, "{footprint} MiB, private {bytes} MiB");
        }
    }

    #[test]
    fn the_measured_core_changes_nothing() {
        let measured = Private { bytes: MIB, inclusive: false, in_use: 0.5 };
        for program in embedded().values() {
            let (before, after) = (&program.phases[0], &measured.phase(&program.phases[0]));
            for mib in [0.1, 0.7, 2.0, 9.0, 30.0] {
                assert!(
                    (misses(before, mib * MIB) - misses(after, mib * MIB)).abs() < 0.02 * before.llc_apki.max(1e-9)
                );
            }
        }
    }
}
