//! Kinds of cores on hybrid machines.

use super::sysfs::Sysfs;
use cotenant_model::parse::{self, CpuInfo};
use cotenant_model::topology::efficiency::{self, CoreType, Strength};
use cotenant_model::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// Identity of an Arm core's design: implementer and part number, and its capacity.
pub(super) type Design = (Option<(u32, u32)>, Option<u64>);

/// Of a core; `None` if unknown.
pub(super) fn design(fs: &Sysfs<'_>, cpu: CpuId, info: &CpuInfo) -> Option<Design> {
    let register = fs.text(&Sysfs::cpu_path(cpu, "regs/identification/midr_el1"));
    let part = register.and_then(|text| parse::midr(&text)).or_else(|| info.parts.get(&cpu).copied());
    let capacity = fs.number(&Sysfs::cpu_path(cpu, "cpu_capacity")).filter(|capacity| *capacity > 0);
    (part.is_some() || capacity.is_some()).then_some((part, capacity))
}

/// The efficiency class of each online CPU; empty if all are equal or unknown.
pub(super) fn classes(fs: &Sysfs<'_>, online: &CpuSet, info: &CpuInfo) -> BTreeMap<CpuId, u8> {
    // AMD's cores differ since Zen 5 (family 1Ah); before, only turbo differs, and reading CPPC is slow. As in hwloc.
    if info.vendor.as_deref() == Some("AuthenticAMD") && info.family.is_none_or(|f| f < 0x1a) {
        return BTreeMap::new();
    }
    let sets =
        [("cpu_lowpower", CoreType::LowPower), ("cpu_atom", CoreType::Efficient), ("cpu_core", CoreType::Performance)]
            .map(|(pmu, kind)| (fs.list(&format!("/sys/devices/{pmu}/cpus")).unwrap_or_default(), kind));
    let number = |cpu: CpuId, file: &str| fs.number(&Sysfs::cpu_path(cpu, file)).filter(|n| *n > 0);
    // CPPC's nominal frequency only if the first CPU has no base frequency, because the two are not comparable.
    let cppc = online.first().is_some_and(|cpu| number(cpu, "cpufreq/base_frequency").is_none());
    let strengths = online.iter().map(|cpu| {
        let number = |file: &str| number(cpu, file);
        let nominal = || number("acpi_cppc/nominal_freq").filter(|_| cppc).and_then(|mhz| mhz.checked_mul(1000));
        let (part, capacity) = design(fs, cpu, info).unwrap_or_default();
        let strength = Strength {
            part,
            core_type: sets.iter().find(|(cpus, _)| cpus.contains(cpu)).map(|(_, kind)| *kind),
            capacity,
            max_khz: number("cpufreq/cpuinfo_max_freq"),
            base_khz: number("cpufreq/base_frequency").or_else(nominal),
        };
        (cpu, strength)
    });
    efficiency::classes(&strengths.collect())
}
