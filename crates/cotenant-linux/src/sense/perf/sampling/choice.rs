//! The sampled events on this processor.

use super::super::{Code, Pmu};
use super::Cost;
use crate::FsRoot;
use crate::sense::tier::PARANOID;
use cotenant_model::{CpuSet, Signal};
use perf_event_open_sys::bindings;
use std::io;

/// A sampled event, and the meaning of one count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Its name.
    pub name: String,
    /// The CPUs with it; `None`: all.
    pub(super) cpus: Option<CpuSet>,
    pub(super) code: Code,
    /// Whether it counts lines into the last private cache.
    pub(super) private: bool,
    /// Whether it counts lines into the last level.
    pub(super) last: bool,
}

impl Sampled {
    /// The meaning of a sample of this many counts.
    pub(super) fn cost(&self, period: u64) -> Cost {
        let of = |counts: bool| if counts { period as f64 } else { 0.0 };
        Cost { ns: of(!self.private && !self.last), private_lines: of(self.private), last_lines: of(self.last) }
    }
}

/// Why code cannot be sampled for the lines that it brings in.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// As in most virtual machines.
    #[error(
        "this machine shows no hardware counters to sample; it takes bare metal, or a hypervisor that shows guests its PMU (QEMU/KVM: -cpu host,pmu=on)"
    )]
    NoPmu,
    /// The processor, or our table of it, lacks such an event.
    #[error("{processor} has no event for {what}: {why}")]
    NoEvent {
        /// Its family, or the name of its PMU.
        processor: String,
        /// Which lines.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The kernel refuses to open it.
    #[error("event {event} cannot be sampled: {why}; {PARANOID}")]
    Refused {
        /// The event.
        event: String,
        /// The kernel's error.
        why: io::Error,
    },
}

/// Events to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// The clock first.
    pub sampled: Vec<Sampled>,
}

impl Events {
    /// CPU time only, which machines without hardware counters can sample too: it shows where time goes, but no lines.
    pub fn clock() -> Self {
        let code = Code { kind: bindings::PERF_TYPE_SOFTWARE, config: bindings::PERF_COUNT_SW_CPU_CLOCK.into() };
        Self { sampled: vec![Sampled { name: "cpu-clock".to_owned(), cpus: None, code, private: false, last: false }] }
    }

    /// CPU time, and events for lines into the last private cache and into the last level. Each is the first countable
    /// signal of its list (`cotenant_measure::characterize::contention::line_signals`). If only some kinds of cores
    /// count both, everything is sampled on these only.
    ///
    /// # Errors
    /// [`Unavailable`], without asking the kernel.
    pub fn choose(fs: &FsRoot, pmus: &[Pmu], private: &[Signal], last: &[Signal]) -> Result<Self, Unavailable> {
        let mut events = Self::clock();
        let mut covered = CpuSet::new();
        let mut without = None;
        for pmu in pmus {
            let of = |signals: &[Signal], what: &'static str| {
                let mut found = signals.iter().filter_map(|signal| Some(pmu.table?.events(*signal)));
                found.find(|events| !events.is_empty()).ok_or_else(|| {
                    let why = match (pmu.table, signals.last()) {
                        (Some(table), Some(signal)) => table.why_absent(*signal).unwrap_or("not in its table"),
                        _ => "its events are not known here; name them in a bug report",
                    };
                    let processor = pmu.table.map_or(pmu.name.as_str(), |table| table.name).to_owned();
                    Unavailable::NoEvent { processor, what, why: why.to_owned() }
                })
            };
            let both = of(private, "lines into the last private cache")
                .and_then(|private| Ok((private, of(last, "lines into the last level")?)));
            match both {
                Ok((private, last)) => {
                    // Only PMUs of a part of the CPUs have such a file.
                    let cpus = fs.read(&format!("/sys/bus/event_source/devices/{}/cpus", pmu.name)).ok();
                    let cpus: Option<CpuSet> = cpus.and_then(|text| text.trim().parse().ok());
                    covered = covered.or(cpus.as_ref().unwrap_or(&CpuSet::new()));
                    for (parts, is_last) in [(private, false), (last, true)] {
                        for event in parts {
                            events.add(Code { kind: pmu.kind, config: event.raw }, event.name, cpus.as_ref(), is_last);
                        }
                    }
                }
                Err(why) => without = without.or(Some(why)),
            }
        }
        match without {
            Some(why) if events.sampled.len() == 1 => Err(why),
            None if events.sampled.len() == 1 => Err(Unavailable::NoPmu),
            Some(_) => {
                events.sampled[0].cpus = Some(covered);
                Ok(events)
            }
            None => Ok(events),
        }
    }

    fn add(&mut self, code: Code, name: &str, cpus: Option<&CpuSet>, is_last: bool) {
        let at = self.sampled.iter().position(|sampled| sampled.code == code).unwrap_or_else(|| {
            let (name, cpus) = (name.to_owned(), cpus.cloned());
            self.sampled.push(Sampled { name, cpus, code, private: false, last: false });
            self.sampled.len() - 1
        });
        let sampled = &mut self.sampled[at];
        (sampled.private, sampled.last) = (sampled.private || !is_last, sampled.last || is_last);
    }

    /// The CPUs with observed code; `None`: all.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.sampled[0].cpus.as_ref()
    }

    /// The names, the clock's included.
    pub fn names(&self) -> Vec<&str> {
        self.sampled.iter().map(|sampled| sampled.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::perf::events::{Model, Table};
    use cotenant_testing::TempDir;

    const PRIVATE: &[Signal] = &[Signal::L2LinesIn, Signal::PrivateMisses];
    const LAST: &[Signal] = &[Signal::L3LinesIn, Signal::LlcMisses];

    fn pmu(name: &str, kind: u32, model: Option<Model>) -> Pmu {
        let table = model.and_then(Table::of);
        Pmu { name: name.to_owned(), kind, table, free: 4, hybrid: false }
    }

    #[test]
    fn every_processor_with_a_table_has_both_kinds_of_lines_or_says_why() {
        let nowhere = FsRoot::at("/proc/nonexistent");
        for (name, model) in crate::sense::perf::events::tests::MODELS {
            let chosen = Events::choose(&nowhere, &[pmu("cpu", 4, Some(*model))], PRIVATE, LAST);
            match chosen {
                Ok(events) => {
                    assert_eq!(events.names()[0], "cpu-clock");
                    let sampled = &events.sampled[1..];
                    assert!(sampled.iter().any(|s| s.private) && sampled.iter().any(|s| s.last), "{name}: {events:?}");
                }
                Err(why) => {
                    let why = why.to_string();
                    assert!(why.contains("lines into the last") && !why.contains("not in its table"), "{name}: {why}");
                }
            }
        }
    }

    #[test]
    fn one_event_may_be_both_and_a_sample_of_it_counts_twice() {
        // If the second level is the last one, private misses are its incoming lines.
        let spr = pmu("cpu", 4, Some(Model::Intel { family: 6, model: 0x8f, stepping: 8 }));
        let nowhere = FsRoot::at("/proc/nonexistent");
        let same = Events::choose(&nowhere, std::slice::from_ref(&spr), &[Signal::LlcMisses], LAST).unwrap();
        assert_eq!(same.sampled.len(), 2, "{same:?}");
        assert_eq!(same.sampled[1].cost(7), Cost { ns: 0.0, private_lines: 7.0, last_lines: 7.0 });
        assert_eq!(same.sampled[0].cost(7), Cost { ns: 7.0, ..Cost::default() });
        let usual = Events::choose(&nowhere, &[spr], PRIVATE, LAST).unwrap();
        assert!(usual.names().iter().any(|name| name.starts_with("L2_LINES_IN")), "{usual:?}");
    }

    #[test]
    fn cores_that_do_not_count_are_left_out() {
        let dir = TempDir::new("choice");
        dir.write("sys/bus/event_source/devices/cpu_core/cpus", "0-3\n");
        dir.write("sys/bus/event_source/devices/cpu_atom/cpus", "4-7\n");
        let core = pmu("cpu_core", 4, Some(Model::Intel { family: 6, model: 0x97, stepping: 2 }));
        let atom = Pmu { table: Some(Table::of_efficiency_cores()), ..pmu("cpu_atom", 10, None) };
        let root = FsRoot::at(dir.path());
        let events = Events::choose(&root, &[atom.clone(), core.clone()], PRIVATE, LAST).unwrap();
        assert!(events.sampled.iter().all(|s| s.cpus.as_ref().unwrap().to_string() == "0-3"), "{events:?}");
        assert_eq!(events.cpus().unwrap().to_string(), "0-3");
        let only = Events::choose(&root, &[atom], PRIVATE, LAST).unwrap_err().to_string();
        assert!(only.starts_with("Intel architectural events has no event for lines into the last private"), "{only}");
    }

    #[test]
    fn without_counters_or_a_table_it_says_so() {
        let nowhere = FsRoot::at("/proc/nonexistent");
        let why = Events::choose(&nowhere, &[], PRIVATE, LAST).unwrap_err().to_string();
        assert!(why.contains("no hardware counters") && why.contains("pmu=on"), "{why}");
        let why = Events::choose(&nowhere, &[pmu("cpu", 4, None)], PRIVATE, LAST).unwrap_err().to_string();
        assert!(why.starts_with("cpu has no event for lines into the last private cache"), "{why}");
        let refused = Unavailable::Refused { event: "x".into(), why: io::Error::from_raw_os_error(libc::EACCES) };
        assert!(refused.to_string().contains("perf_event_paranoid"), "{refused}");
    }
}
