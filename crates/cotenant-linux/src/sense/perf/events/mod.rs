//! Events of each signal by processor: one small table per family, encoded by name.
//!
//! The same number means different things on different processors (raw `0x10d3` is a load from a remote cache on Ivy
//! Bridge and from persistent memory on Cascade Lake), so an event is always found by model and name, never copied.
//! Sources: Intel's perfmon tables, AMD's Processor Programming References as the kernel's `pmu-events` carry them,
//! and Arm's Neoverse TRMs.

mod amd;
mod arm;
mod intel;
mod table;

pub use table::{Event, Table};

/// A processor according to `/proc/cpuinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `vendor_id GenuineIntel`.
    Intel {
        /// `cpu family`.
        family: u32,
        /// `model`.
        model: u32,
        /// `stepping`: distinguishes Cascade Lake from Skylake.
        stepping: u32,
    },
    /// `vendor_id AuthenticAMD` or `HygonGenuine`.
    Amd {
        /// `cpu family`.
        family: u32,
        /// `model`.
        model: u32,
    },
    /// `CPU implementer 0x41`.
    Arm {
        /// `CPU part`.
        part: u32,
    },
}

impl Model {
    /// The model of the first processor in `/proc/cpuinfo`; `None` if no table can exist.
    pub fn from_cpuinfo(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))
                .map(|(_, v)| v.trim())
        };
        let number = |name: &str| {
            let value = field(name)?;
            value.strip_prefix("0x").map_or_else(|| value.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
        };
        match field("vendor_id") {
            Some("GenuineIntel") => Some(Self::Intel {
                family: number("cpu family")?,
                model: number("model")?,
                stepping: number("stepping").unwrap_or(0),
            }),
            Some("AuthenticAMD" | "HygonGenuine") => {
                Some(Self::Amd { family: number("cpu family")?, model: number("model")? })
            }
            Some(_) => None,
            None => (number("CPU implementer")? == 0x41).then_some(Self::Arm { part: number("CPU part")? }),
        }
    }
}

impl Model {
    /// Whether the kernel only uses half of its programmable counters with SMT on: a sibling's counted loads (events
    /// 0xd0 to 0xd3) would corrupt the others. Larger groups open but never count.
    pub fn is_halved(self) -> bool {
        matches!(self, Self::Intel { family: 6, model, .. } if intel::halved(model))
    }
}

impl Table {
    /// The table of a processor; `None` for families without one.
    pub fn of(model: Model) -> Option<&'static Self> {
        match model {
            Model::Intel { family: 6, model, stepping } => Some(intel::table(model, stepping)),
            Model::Amd { family, model } => amd::table(family, model),
            Model::Arm { part } => arm::table(part),
            Model::Intel { .. } => None,
        }
    }

    /// The table of the efficiency cores of hybrid processors.
    pub fn of_efficiency_cores() -> &'static Self {
        &intel::ARCHITECTURAL
    }
}

#[cfg(test)]
mod oracle;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use cotenant_model::Signal;

    /// Every table, with a matching model.
    pub(crate) const MODELS: &[(&str, Model)] = &[
        ("IVT", Model::Intel { family: 6, model: 0x3e, stepping: 4 }),
        ("HSX", Model::Intel { family: 6, model: 0x3f, stepping: 2 }),
        ("BDX", Model::Intel { family: 6, model: 0x4f, stepping: 1 }),
        ("SKX", Model::Intel { family: 6, model: 0x55, stepping: 4 }),
        ("CLX", Model::Intel { family: 6, model: 0x55, stepping: 7 }),
        ("ICX", Model::Intel { family: 6, model: 0x6a, stepping: 6 }),
        ("SPR", Model::Intel { family: 6, model: 0x8f, stepping: 8 }),
        ("EMR", Model::Intel { family: 6, model: 0xcf, stepping: 2 }),
        ("GNR", Model::Intel { family: 6, model: 0xad, stepping: 1 }),
        ("zen1", Model::Amd { family: 0x17, model: 0x01 }),
        ("zen2", Model::Amd { family: 0x17, model: 0x31 }),
        ("zen3", Model::Amd { family: 0x19, model: 0x01 }),
        ("zen4", Model::Amd { family: 0x19, model: 0x11 }),
        ("zen5", Model::Amd { family: 0x1a, model: 0x02 }),
        ("neoverse-n1", Model::Arm { part: 0xd0c }),
        ("neoverse-v1", Model::Arm { part: 0xd40 }),
        ("neoverse-n2", Model::Arm { part: 0xd49 }),
        ("neoverse-v2", Model::Arm { part: 0xd4f }),
    ];

    pub(super) fn table(name: &str) -> &'static Table {
        let (_, model) = MODELS.iter().find(|(n, _)| *n == name).unwrap();
        Table::of(*model).unwrap()
    }

    fn raws(name: &str, signal: Signal) -> Vec<u64> {
        table(name).events(signal).iter().map(|e| e.raw).collect()
    }

    #[test]
    fn every_table_is_consistent() {
        for (name, model) in MODELS {
            let table = Table::of(*model).unwrap_or_else(|| panic!("{name} has no table"));
            let mut signals: Vec<Signal> = Signal::ALL.iter().copied().filter(|s| table.counts(*s)).collect();
            for signal in &signals {
                let parts = table.events(*signal).len();
                assert!((1..=4).contains(&parts), "{name} {signal}: a signal fits one group");
            }
            signals.extend(table.absent.iter().flat_map(|(_, signals)| *signals));
            signals.extend([Signal::Cycles, Signal::Instructions]);
            signals.sort();
            let hardware: Vec<Signal> = Signal::ALL.iter().copied().filter(|s| *s < Signal::CpuTime).collect();
            assert_eq!(signals, hardware, "{name} says of each hardware signal once what gives it or why nothing does");
        }
    }

    /// Ivy Bridge's code of loads from a remote cache is that of loads from persistent or CXL memory on newer
    /// processors.
    #[test]
    fn a_code_means_another_thing_on_another_processor() {
        for old in ["IVT", "HSX", "BDX"] {
            let bits = raws(old, Signal::Inter).iter().fold(0, |all, raw| all | raw);
            assert_eq!(bits, 0x30d3, "{old}: REMOTE_HITM 0x10, REMOTE_FWD 0x20");
        }
        for new in ["SKX", "CLX", "ICX", "SPR", "EMR", "GNR"] {
            assert_eq!(raws(new, Signal::Inter), [0x0cd3], "{new}");
            let clash =
                table(new).events.iter().copied().flatten().find(|e| e.raw & 0xff == 0xd3 && e.raw & 0x3000 != 0);
            assert_eq!(clash, None, "{new}: those bits are not remote caches there");
        }
        assert_eq!(raws("IVT", Signal::Remote), [0x0cd3], "what is remote DRAM here is a remote cache there");
    }

    #[test]
    fn intra_is_counted_or_derived_but_not_both() {
        let derivable = [Signal::PrivateMisses, Signal::LlcHits, Signal::LlcLoadMisses];
        for old in ["IVT", "HSX", "BDX"] {
            assert!(!table(old).counts(Signal::Intra), "{old}");
            assert!(derivable.iter().all(|s| table(old).counts(*s)), "{old}");
        }
        for new in ["SKX", "CLX", "ICX", "SPR", "EMR", "GNR"] {
            assert_eq!(raws(new, Signal::Intra), [0x06d2], "{new}");
        }
    }

    #[test]
    fn chiplets_tell_near_from_far() {
        for zen in ["zen3", "zen4", "zen5"] {
            assert_eq!((raws(zen, Signal::Near), raws(zen, Signal::Inter)), (vec![0x0444], vec![0x1044]), "{zen}");
            assert_eq!(raws(zen, Signal::Remote), [0x4044], "{zen}");
        }
        assert!(raws("zen2", Signal::Near).is_empty(), "its local-cache fills include plain L3 hits");
    }

    #[test]
    fn cpuinfo_names_the_model() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon: x\nstepping\t: 7\n";
        let clx = Model::Intel { family: 6, model: 0x55, stepping: 7 };
        assert_eq!(Model::from_cpuinfo(intel), Some(clx));
        assert_eq!(Table::of(clx).unwrap().name, "Cascade Lake-SP");
        let amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n";
        assert_eq!(Model::from_cpuinfo(amd), Some(Model::Amd { family: 0x19, model: 0x11 }));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(Model::from_cpuinfo(arm), Some(Model::Arm { part: 0xd0c }));
        for unknown in
            ["", "vendor_id\t: CentaurHauls\n", "CPU implementer\t: 0x48\nCPU part\t: 0xd01\n", "cpu\t: POWER9\n"]
        {
            assert_eq!(Model::from_cpuinfo(unknown), None, "{unknown}");
        }
        assert_eq!(Table::of(Model::Intel { family: 15, model: 4, stepping: 1 }), None, "Pentium 4");
        assert_eq!(Table::of(Model::Amd { family: 0x10, model: 9 }), None, "Opteron");
    }
}
