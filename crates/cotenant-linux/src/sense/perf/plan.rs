//! The counters of a task and their groups.
//!
//! A group is scheduled as a whole with its own clock, so that all events of one signal are in one group: counts with
//! different scaling are never added. A processor has few counters; groups that do not fit together alternate.

use super::Code;
use crate::FsRoot;
use crate::sense::perf::events::{Model, Table};
use cotenant_model::Signal;
use perf_event_open_sys::bindings;

/// Limit of programmable events in one group (SAM §2.3): countable together on every processor here.
pub const GROUP: usize = 4;

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its events.
    pub code: Code,
    /// The event's name.
    pub name: &'static str,
    /// The signals to which it adds.
    pub signals: Vec<Signal>,
}

/// Counters that count simultaneously.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The first one leads.
    pub slots: Vec<Slot>,
}

impl Group {
    fn add(&mut self, code: Code, name: &'static str, signal: Signal) {
        match self.slots.iter_mut().find(|s| s.code == code) {
            Some(slot) => slot.signals.push(signal),
            None => self.slots.push(Slot { code, name, signals: vec![signal] }),
        }
    }
}

/// All counters of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Software events: exact, never alternating. The CPU time leads.
    pub software: Group,
    /// Hardware events.
    pub hardware: Vec<Group>,
}

/// A PMU of the processor's cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Its name in sysfs: `cpu`, `cpu_core`, `cpu_atom`, `armv8_pmuv3_0`.
    pub name: String,
    /// Its `type`.
    pub kind: u32,
    /// Its countable signals; `None` if only cycles and instructions are known.
    pub table: Option<&'static Table>,
    /// Simultaneously usable programmable counters.
    pub free: usize,
    /// Whether it is one of several, so that generic events must name it.
    pub hybrid: bool,
}

/// The core PMUs of a machine; empty without any, as in most virtual machines.
pub fn pmus(fs: &FsRoot) -> Vec<Pmu> {
    const DEVICES: &str = "/sys/bus/event_source/devices";
    let model = fs.read("/proc/cpuinfo").ok().and_then(|text| Model::from_cpuinfo(&text));
    // The watchdog of hard lock-ups occupies one counter of every CPU.
    let watchdog = fs.read("/proc/sys/kernel/nmi_watchdog").is_ok_and(|text| text.trim() == "1");
    // Kernels without this information are assumed to have SMT.
    let smt = fs.read("/sys/devices/system/cpu/smt/active").map_or(true, |text| text.trim() != "0");
    let part = if smt && model.is_some_and(Model::is_halved) { 2 } else { 1 };
    let Ok(names) = fs.list(DEVICES) else { return Vec::new() }; // a kernel without events
    let core = |name: &&String| matches!(name.as_str(), "cpu" | "cpu_core" | "cpu_atom") || name.starts_with("armv8_");
    let mut pmus: Vec<Pmu> = names
        .iter()
        .filter(core)
        .filter_map(|name| {
            let kind = fs.read(&format!("{DEVICES}/{name}/type")).ok()?.trim().parse().ok()?;
            let table = match name.as_str() {
                "cpu_atom" => Some(Table::of_efficiency_cores()),
                _ => model.and_then(Table::of),
            };
            let counters = table.map_or(GROUP, |t| t.counters.into());
            let free = (counters - usize::from(watchdog)).min(counters / part);
            Some(Pmu { name: name.clone(), kind, table, free, hybrid: false })
        })
        .collect();
    let hybrid = pmus.len() > 1;
    for pmu in &mut pmus {
        pmu.hybrid = hybrid;
    }
    pmus
}

/// The signals of policies: SAM's (ATC'15 §2.3). More can be requested; each further group is a further turn.
pub const SAM_SIGNALS: &[Signal] = &[
    Signal::Cycles,
    Signal::Instructions,
    Signal::Intra,
    Signal::LlcMisses,
    Signal::Inter,
    Signal::Near,
    Signal::Remote,
];

/// The retired loads from which intra-domain coherence is derived if no event counts it (SAM §2.3).
const INTRA_PARTS: [Signal; 3] = [Signal::PrivateMisses, Signal::LlcHits, Signal::LlcLoadMisses];

/// `signals` without duplicates, with derived ones replaced by their parts: adjacent, so that they share a group if one
/// is large enough.
fn expand(table: Option<&Table>, signals: &[Signal]) -> Vec<Signal> {
    let has = |s: Signal| table.is_some_and(|t| t.counts(s));
    let derive = !has(Signal::Intra) && INTRA_PARTS.iter().all(|s| has(*s));
    let mut all: Vec<Signal> = Vec::new();
    for &signal in signals {
        let parts = if signal == Signal::Intra && derive { &INTRA_PARTS[..] } else { &[signal][..] };
        for &part in parts {
            if !all.contains(&part) {
                all.push(part);
            }
        }
    }
    all
}

impl Plan {
    /// The counters for `signals` on these PMUs, without uncountable ones.
    pub fn new(pmus: &[Pmu], signals: &[Signal]) -> Self {
        let software =
            |config: bindings::perf_sw_ids| Code { kind: bindings::PERF_TYPE_SOFTWARE, config: config.into() };
        let mut plan = Self::default();
        plan.software.add(software(bindings::PERF_COUNT_SW_TASK_CLOCK), "task-clock", Signal::CpuTime);
        plan.software.add(software(bindings::PERF_COUNT_SW_CPU_MIGRATIONS), "cpu-migrations", Signal::Migrations);
        plan.software.add(software(bindings::PERF_COUNT_SW_PAGE_FAULTS), "page-faults", Signal::PageFaults);
        plan.hardware = pmus.iter().flat_map(|pmu| arrange(pmu, signals)).collect();
        plan
    }

    /// Number of a task's counters.
    pub fn counters(&self) -> usize {
        self.software.slots.len() + self.hardware.iter().map(|g| g.slots.len()).sum::<usize>()
    }

    /// Whether some group counts a signal.
    pub fn counts(&self, signal: Signal) -> bool {
        let groups = std::iter::once(&self.software).chain(&self.hardware);
        groups.flat_map(|g| &g.slots).any(|slot| slot.signals.contains(&signal))
    }

    /// Removes a slot and the signals that need it, because a partial sum is invalid.
    pub fn remove(&mut self, code: Code) {
        for group in self.hardware.iter_mut().chain([&mut self.software]) {
            let Some(slot) = group.slots.iter().find(|s| s.code == code) else { continue };
            let lost = slot.signals.clone();
            group.slots.iter_mut().for_each(|s| s.signals.retain(|signal| !lost.contains(signal)));
            group.slots.retain(|s| !s.signals.is_empty());
        }
        self.hardware.retain(|g| !g.slots.is_empty());
    }

    /// Moves a slot out of its group into one of its own, together with all that share a signal with it. False if
    /// nothing would remain.
    pub fn split(&mut self, code: Code) -> bool {
        let Some(i) = self.hardware.iter().position(|g| g.slots.iter().any(|s| s.code == code)) else { return false };
        let slots = &self.hardware[i].slots;
        let signals: Vec<Signal> = slots.iter().filter(|s| s.code == code).flat_map(|s| s.signals.clone()).collect();
        let (apart, rest): (Vec<Slot>, Vec<Slot>) =
            slots.iter().cloned().partition(|slot| slot.signals.iter().any(|s| signals.contains(s)));
        if rest.is_empty() {
            return false;
        }
        self.hardware[i].slots = rest;
        self.hardware.push(Group { slots: apart });
        true
    }

    /// Splits a group into halves as equal as possible; slots of one signal stay together. False if it is connected.
    pub fn halve(&mut self, group: usize) -> bool {
        let Some(group) = self.hardware.get_mut(group) else { return false };
        let mut parts: Vec<Vec<Slot>> = Vec::new();
        for slot in &group.slots {
            let kin = |part: &Vec<Slot>| part.iter().any(|s| s.signals.iter().any(|one| slot.signals.contains(one)));
            let (mut together, apart): (Vec<_>, Vec<_>) = parts.into_iter().partition(kin);
            together.push(vec![slot.clone()]);
            parts = apart;
            parts.push(together.concat());
        }
        let (all, mut first) = (group.slots.len(), 0);
        let half = parts.iter().take_while(|part| {
            first += part.len();
            first <= all.div_ceil(2)
        });
        let half = half.count().max(1);
        if parts.len() < 2 {
            return false;
        }
        let rest = parts.split_off(half);
        group.slots = parts.concat();
        self.hardware.push(Group { slots: rest.concat() });
        true
    }
}

impl Pmu {
    /// Whether the kernel only counts with half of its counters ([`Model::is_halved`]).
    pub fn is_halved(&self) -> bool {
        self.table.is_some_and(|table| self.free <= usize::from(table.counters) / 2)
    }
}

/// Groups of one PMU: first fit in the order of `signals`. Cycles and instructions join the others if all fit one
/// group; otherwise they count permanently in their own group, and the others alternate.
fn arrange(pmu: &Pmu, signals: &[Signal]) -> Vec<Group> {
    let mut generic = Group::default();
    let hardware = |config: bindings::perf_hw_id| Code {
        kind: bindings::PERF_TYPE_HARDWARE,
        config: u64::from(config) | if pmu.hybrid { u64::from(pmu.kind) << 32 } else { 0 },
    };
    if signals.contains(&Signal::Cycles) {
        generic.add(hardware(bindings::PERF_COUNT_HW_CPU_CYCLES), "cycles", Signal::Cycles);
    }
    if signals.contains(&Signal::Instructions) {
        generic.add(hardware(bindings::PERF_COUNT_HW_INSTRUCTIONS), "instructions", Signal::Instructions);
    }
    let capacity = GROUP.min(pmu.free);
    let mut groups: Vec<Group> = Vec::new();
    for events in expand(pmu.table, signals).into_iter().filter_map(|s| Some(pmu.table?.events(s))) {
        if events.is_empty() || events.len() > capacity {
            continue;
        }
        let code = |raw| Code { kind: pmu.kind, config: raw };
        let grown = |group: &Group| {
            let new = events.iter().filter(|e| group.slots.iter().all(|s| s.code != code(e.raw))).count();
            (group.slots.len() + new, new)
        };
        // The same event twice in different groups would take a counter twice: prefer the group that has it.
        let best = (0..groups.len()).filter(|i| grown(&groups[*i]).0 <= capacity).min_by_key(|i| grown(&groups[*i]).1);
        let i = best.unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() - 1
        });
        for event in events {
            groups[i].add(code(event.raw), event.name, event.signal);
        }
    }
    let programmable = if pmu.table.is_some_and(|t| t.fixed && pmu.free == usize::from(t.counters)) {
        0 // cycles and instructions have fixed counters, which the watchdog does not occupy
    } else {
        generic.slots.len()
    };
    match &mut groups[..] {
        [only] if only.slots.len() + programmable <= pmu.free => {
            generic.slots.append(&mut only.slots);
            vec![generic]
        }
        _ => std::iter::once(generic).chain(groups).filter(|g| !g.slots.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pmu(model: Model) -> Pmu {
        let table = Table::of(model).unwrap();
        Pmu { name: "cpu".into(), kind: 4, table: Some(table), free: table.counters.into(), hybrid: false }
    }

    const IVT: Model = Model::Intel { family: 6, model: 0x3e, stepping: 4 };
    const SPR: Model = Model::Intel { family: 6, model: 0x8f, stepping: 8 };
    const ZEN4: Model = Model::Amd { family: 0x19, model: 0x11 };
    const N1: Model = Model::Arm { part: 0xd0c };

    fn shape(plan: &Plan) -> Vec<Vec<&'static str>> {
        plan.hardware.iter().map(|g| g.slots.iter().map(|s| s.name).collect()).collect()
    }

    #[test]
    fn the_papers_seven_events_take_two_turns() {
        let plan = Plan::new(&[pmu(IVT)], SAM_SIGNALS);
        assert_eq!(
            shape(&plan),
            [
                vec!["cycles", "instructions"],
                vec![
                    "MEM_LOAD_UOPS_RETIRED.L2_MISS",
                    "MEM_LOAD_UOPS_RETIRED.LLC_HIT",
                    "MEM_LOAD_UOPS_RETIRED.LLC_MISS",
                    "LONGEST_LAT_CACHE.MISS"
                ],
                vec![
                    "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_HITM",
                    "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_FWD",
                    "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM"
                ],
            ]
        );
    }

    #[test]
    fn what_fits_one_group_is_read_at_once() {
        let plan = Plan::new(&[pmu(SPR)], SAM_SIGNALS);
        assert_eq!(shape(&plan).len(), 1, "{:?}", shape(&plan));
        assert_eq!(plan.hardware[0].slots.len(), 2 + 4, "fixed ones and four");
        // Zen has six counters and no fixed ones: two and four.
        assert_eq!(shape(&Plan::new(&[pmu(ZEN4)], SAM_SIGNALS))[0].len(), 2 + 4);
        // The watchdog takes one of them.
        let watched = Pmu { free: 5, ..pmu(ZEN4) };
        assert_eq!(shape(&Plan::new(&[watched], SAM_SIGNALS))[0], ["cycles", "instructions"]);
        assert_eq!(shape(&Plan::new(&[pmu(N1)], SAM_SIGNALS)), [["cycles", "instructions", "LL_CACHE_MISS_RD"]]);
    }

    #[test]
    fn a_signal_is_never_spread_over_groups_nor_a_counter_opened_twice() {
        let hardware: Vec<Signal> = Signal::ALL.iter().copied().filter(|s| *s < Signal::CpuTime).collect();
        for model in [IVT, SPR, ZEN4, N1] {
            for free in [2, 3, 4, 6] {
                let pmu = Pmu { free, ..pmu(model) };
                let plan = Plan::new(&[pmu], &hardware);
                for signal in &hardware {
                    let groups = plan.hardware.iter().filter(|g| g.slots.iter().any(|s| s.signals.contains(signal)));
                    assert!(groups.count() <= 1, "{signal} on {model:?} with {free}");
                }
                for group in &plan.hardware {
                    let programmable = group.slots.iter().filter(|s| s.code.kind == 4).count();
                    assert!(programmable <= GROUP.min(free), "{model:?} with {free}: {group:?}");
                    for slot in &group.slots {
                        assert_eq!(group.slots.iter().filter(|s| s.code == slot.code).count(), 1);
                    }
                }
            }
        }
        // L3 lines in and LLC misses are one event on Ivy Bridge, counted once.
        let plan = Plan::new(&[pmu(IVT)], &[Signal::LlcMisses, Signal::L3LinesIn]);
        assert_eq!(plan.hardware.iter().flat_map(|g| &g.slots).count(), 1);
        assert!(plan.counts(Signal::LlcMisses) && plan.counts(Signal::L3LinesIn));
    }

    #[test]
    fn hybrid_processors_count_on_both_kinds_of_core() {
        let atom =
            Pmu { name: "cpu_atom".into(), kind: 10, table: Some(Table::of_efficiency_cores()), free: 4, hybrid: true };
        let core = Pmu {
            name: "cpu_core".into(),
            kind: 4,
            hybrid: true,
            ..pmu(Model::Intel { family: 6, model: 0x97, stepping: 2 })
        };
        let plan = Plan::new(&[core, atom], SAM_SIGNALS);
        let cycles: Vec<u64> = plan
            .hardware
            .iter()
            .flat_map(|g| &g.slots)
            .filter(|s| s.signals.contains(&Signal::Cycles))
            .map(|s| s.code.config)
            .collect();
        assert_eq!(cycles, [4 << 32, 10 << 32]);
        assert!(plan.hardware.iter().flat_map(|g| &g.slots).any(|s| s.code == Code { kind: 10, config: 0x412e }));
    }

    #[test]
    fn without_a_part_a_sum_is_gone() {
        let mut plan = Plan::new(&[pmu(IVT)], SAM_SIGNALS);
        plan.remove(Code { kind: 4, config: 0x20d3 });
        assert!(!plan.counts(Signal::Inter) && plan.counts(Signal::Remote));
        assert_eq!(shape(&plan)[2], ["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM"]);
        plan.remove(Code { kind: 4, config: 0x0cd3 });
        assert_eq!(shape(&plan).len(), 2, "an empty group goes");
    }

    #[test]
    fn a_split_keeps_a_signal_together() {
        let mut plan = Plan::new(&[pmu(IVT)], SAM_SIGNALS);
        assert!(plan.split(Code { kind: 4, config: 0x20d3 }));
        assert_eq!(shape(&plan)[2], ["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM"]);
        assert_eq!(
            shape(&plan)[3],
            ["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_HITM", "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_FWD"]
        );
        assert!(!plan.split(Code { kind: 4, config: 0x20d3 }), "they belong together");
    }

    /// The paper's own processors (errata BJ122, BV98, HSD29): groups of four would be opened and never count.
    /// Promise see/counters: Hardware events are encoded as vendors and libpfm do, in groups that the kernel can
    /// count.
    #[test]
    fn where_linux_halves_the_counters_groups_have_two() {
        let dir = std::env::temp_dir().join(format!("cotenant-halved-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let found = |model: u32, smt: &str, watchdog: &str| {
            write(
                "proc/cpuinfo",
                &format!("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nstepping\t: 4\n"),
            );
            write("sys/bus/event_source/devices/cpu/type", "4\n");
            write("sys/devices/system/cpu/smt/active", smt);
            write("proc/sys/kernel/nmi_watchdog", watchdog);
            pmus(&FsRoot::at(&dir))
        };
        let free = [(62, "1\n", "0\n"), (62, "1\n", "1\n"), (62, "0\n", "0\n"), (63, "1\n", "0\n"), (79, "1\n", "0\n")]
            .map(|(model, smt, watchdog)| found(model, smt, watchdog)[0].free);
        let plan = Plan::new(&found(62, "1\n", "1\n"), SAM_SIGNALS);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(free, [2, 2, 4, 2, 4], "Ivy Bridge, with the watchdog, without SMT; Haswell; Broadwell");
        assert_eq!(
            shape(&plan)[1..],
            [
                vec!["MEM_LOAD_UOPS_RETIRED.L2_MISS", "MEM_LOAD_UOPS_RETIRED.LLC_HIT"],
                vec!["MEM_LOAD_UOPS_RETIRED.LLC_MISS", "LONGEST_LAT_CACHE.MISS"],
                vec!["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_HITM", "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_FWD"],
                vec!["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM"],
            ]
        );
    }

    #[test]
    fn halves_keep_a_signal_together() {
        let mut plan = Plan::new(&[pmu(IVT)], SAM_SIGNALS);
        assert!(plan.halve(1) && plan.halve(2));
        assert_eq!(
            shape(&plan)[1..],
            [
                vec!["MEM_LOAD_UOPS_RETIRED.L2_MISS", "MEM_LOAD_UOPS_RETIRED.LLC_HIT"],
                vec!["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_HITM", "MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_FWD"],
                vec!["MEM_LOAD_UOPS_RETIRED.LLC_MISS", "LONGEST_LAT_CACHE.MISS"],
                vec!["MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM"],
            ]
        );
        assert!(!plan.halve(2) && !plan.halve(4), "they belong together; one is one");
    }

    #[test]
    fn pmus_are_read_from_sysfs() {
        let dir = std::env::temp_dir().join(format!("cotenant-pmus-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 151\nstepping\t: 2\n");
        write("sys/bus/event_source/devices/software/type", "1\n");
        assert_eq!(pmus(&FsRoot::at(&dir)), [], "a virtual machine");
        write("sys/bus/event_source/devices/cpu_core/type", "4\n");
        write("sys/bus/event_source/devices/cpu_atom/type", "10\n");
        write("proc/sys/kernel/nmi_watchdog", "1\n");
        let found = pmus(&FsRoot::at(&dir));
        std::fs::remove_dir_all(&dir).unwrap();
        let summary: Vec<_> =
            found.iter().map(|p| (p.name.as_str(), p.kind, p.free, p.hybrid, p.table.unwrap().name)).collect();
        assert_eq!(
            summary,
            [("cpu_atom", 10, 3, true, "Intel architectural events"), ("cpu_core", 4, 3, true, "Golden Cove (client)")]
        );
    }
}
