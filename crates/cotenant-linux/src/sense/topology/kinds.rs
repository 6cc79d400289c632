//! Kinds of cores on hybrid machines.

use super::sysfs::Sysfs;
use cotenant_model::parse::CpuInfo;
use cotenant_model::topology::efficiency::{self, CoreType, Strength};
use cotenant_model::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// The efficiency class of each online CPU; empty where all are alike or nothing is known.
pub(super) fn classes(fs: &Sysfs<'_>, online: &CpuSet, info: &CpuInfo) -> BTreeMap<CpuId, u8> {
    // AMD's cores differ since Zen 5 (family 1Ah); before, what differs is turbo, and reading CPPC is slow. As in
    // hwloc.
    if info.vendor.as_deref() == Some("AuthenticAMD") && info.family.is_none_or(|f| f < 0x1a) {
        return BTreeMap::new();
    }
    let sets =
        [("cpu_lowpower", CoreType::LowPower), ("cpu_atom", CoreType::Efficient), ("cpu_core", CoreType::Performance)]
            .map(|(pmu, kind)| (fs.list(&format!("/sys/devices/{pmu}/cpus")).unwrap_or_default(), kind));
    let mut cppc = None;
    let strengths = online.iter().map(|cpu| {
        let number = |file: &str| fs.number(&Sysfs::cpu_path(cpu, file)).filter(|n| *n > 0);
        let mut base_khz = number("cpufreq/base_frequency");
        // CPPC's nominal frequency only where the first CPU has no base frequency: the two are not comparable.
        if base_khz.is_none() && *cppc.get_or_insert(true) {
            base_khz = number("acpi_cppc/nominal_freq").and_then(|mhz| mhz.checked_mul(1000));
        } else {
            cppc.get_or_insert(false);
        }
        let strength = Strength {
            core_type: sets.iter().find(|(cpus, _)| cpus.contains(cpu)).map(|(_, kind)| *kind),
            capacity: number("cpu_capacity"),
            max_khz: number("cpufreq/cpuinfo_max_freq"),
            base_khz,
        };
        (cpu, strength)
    });
    efficiency::classes(&strengths.collect())
}
