//! Observability of a machine: counted signals, their fraction of time, and remedies for missing ones.

use crate::FsRoot;
use crate::sense::perf::{Counting, Kernel, Opener, Pmu};
use cotenant_model::{Counters, Signal};
use serde::Serialize;
use std::fmt;
use std::io;

/// Observability of a machine, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// No hardware counters: CPU time, waiting time, faults, migrations.
    SoftwareOnly,
    /// Cycles and instructions, without all requested coherence and memory signals.
    CorePmu,
    /// Every requested signal.
    Full,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SoftwareOnly => "software only",
            Self::CorePmu => "core PMU",
            Self::Full => "full",
        })
    }
}

/// A signal that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Present {
    /// Which.
    pub signal: Signal,
    /// The fraction of the tasks' CPU time during which a counter was assigned, 0–1; `None` before anything ran.
    /// Software signals count all the time.
    pub running: Option<f64>,
}

/// A signal that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Which.
    pub signal: Signal,
    /// Why.
    pub why: String,
    /// The remedy; empty without one.
    pub remedy: String,
}

/// Observability of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierReport {
    /// In one word.
    pub tier: Tier,
    /// The processor families of the events, or the PMUs without a known table.
    pub pmus: Vec<String>,
    /// The counted signals.
    pub present: Vec<Present>,
    /// Signals that were requested, or are counted elsewhere by default, and are missing here.
    pub missing: Vec<Missing>,
    /// Restrictions: user mode only, tasks without counters.
    pub notes: Vec<String>,
}

impl fmt::Display for TierReport {
    /// One line: `software only: this machine shows no hardware PMU, so 7 signals cannot be counted`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tier)?;
        if !self.pmus.is_empty() {
            write!(f, " ({})", self.pmus.join(", "))?;
        }
        if let Some(first) = self.missing.first() {
            let n = self.missing.len();
            let signals = if n == 1 { first.signal.name().to_owned() } else { format!("{n} signals") };
            write!(f, ": {}, so {signals} cannot be counted", first.why)?;
        }
        Ok(())
    }
}

pub(crate) const PARANOID: &str = "sysctl kernel.perf_event_paranoid=1, or give the program the capability CAP_PERFMON";

/// What lets events be counted that were refused like this. The kernel's own settings are another error.
pub(crate) fn events_remedy(why: &io::Error) -> &'static str {
    let is_filter = matches!(why.raw_os_error(), Some(libc::EPERM | libc::ENOSYS));
    if is_filter { FILTERED } else { PARANOID }
}

const FILTERED: &str = "let perf_event_open pass the filter of system calls (seccomp) of this container or service";

/// Input of the report.
#[derive(Debug)]
pub(crate) struct Found<'a, K> {
    pub fs: &'a FsRoot,
    pub asked: &'a [Signal],
    pub counting: Counting,
    pub pmus: &'a [Pmu],
    pub opener: Option<&'a Opener<K>>,
    /// Threads beyond the limit.
    pub left_out: usize,
    /// Threads that ended before they were added.
    pub missed: usize,
    /// Other users' processes, left out.
    pub others: usize,
}

/// Reports capabilities, and these tasks' counts so far.
pub(crate) fn report<'a, K: Kernel>(found: &Found<'_, K>, tasks: impl Iterator<Item = &'a Counters>) -> TierReport {
    let mut clocks = [(0u64, 0u64); Signal::COUNT];
    for (signal, count) in tasks.flat_map(Counters::iter) {
        let clock = &mut clocks[signal as usize];
        *clock = (clock.0 + count.enabled_ns, clock.1 + count.running_ns);
    }
    let schedstat = found.fs.exists("/proc/self/schedstat");
    let is_counted = |signal: Signal| match signal {
        Signal::RunQueueWait | Signal::ContextSwitches => schedstat,
        Signal::CpuTime => schedstat || usable(found),
        _ => usable(found) && found.opener.is_some_and(|o| o.plan.counts(signal)),
    };
    let hardware = found.asked.iter().filter(|s| **s < Signal::CpuTime).copied();
    // Intra-domain coherence may be derived: then its parts are counted without a request.
    let parts = Signal::ALL
        .iter()
        .copied()
        .filter(|s| !found.asked.contains(s) && is_counted(*s) && !Signal::SOFTWARE.contains(s));
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for signal in hardware.chain(parts).chain(Signal::SOFTWARE.iter().copied()) {
        if is_counted(signal) {
            let (enabled, running) = clocks[signal as usize];
            let multiplexed = !Signal::SOFTWARE.contains(&signal);
            let fraction = if multiplexed { (enabled > 0).then(|| running as f64 / enabled as f64) } else { Some(1.0) };
            present.push(Present { signal, running: fraction });
        } else {
            let (why, remedy) = why_missing(signal, found);
            missing.push(Missing { signal, why, remedy });
        }
    }
    let derived = |s: Signal| s == Signal::Intra && is_counted(Signal::PrivateMisses);
    let impossible = |s: Signal| s == Signal::Near && found.pmus.iter().all(|p| p.table.is_some_and(|t| t.fixed));
    let full = found.asked.iter().all(|s| is_counted(*s) || derived(*s) || impossible(*s));
    let tier = match () {
        () if !is_counted(Signal::Cycles) => Tier::SoftwareOnly,
        () if full => Tier::Full,
        () => Tier::CorePmu,
    };
    let pmus = found.pmus.iter().map(|p| p.table.map_or_else(|| p.name.clone(), |t| t.name.to_owned())).collect();
    TierReport { tier, pmus, present, missing, notes: notes(found) }
}

/// Whether some task's counters could be opened, or none was tried yet.
fn usable<K: Kernel>(found: &Found<'_, K>) -> bool {
    found.opener.is_some_and(|o| o.opened > 0 || o.refused.is_none())
}

fn why_missing<K: Kernel>(signal: Signal, found: &Found<'_, K>) -> (String, String) {
    let text = |why: &str, remedy: &str| (why.to_owned(), remedy.to_owned());
    if matches!(signal, Signal::RunQueueWait | Signal::ContextSwitches) {
        return text("the kernel has no /proc/PID/schedstat", "a kernel with CONFIG_SCHED_INFO");
    }
    let hardware = signal < Signal::CpuTime;
    match (found.counting, found.opener) {
        (Counting::Nothing, _) => return text("counters were not asked for", "leave counting on"),
        (Counting::Software, _) if hardware => {
            return text("hardware counters were not asked for", "leave counting on");
        }
        (_, Some(Opener { refused: Some((_, why)), .. })) if !usable(found) => {
            return (format!("perf_event_open is refused: {why}"), events_remedy(why).to_owned());
        }
        _ => {}
    }
    if let Some((_, why)) = found.opener.and_then(|o| o.lost.iter().find(|(s, _)| *s == signal)) {
        let remedy = if signal == Signal::Migrations {
            PARANOID
        } else {
            "a newer kernel, or a hypervisor that passes the event on"
        };
        return (why.clone(), remedy.to_owned());
    }
    if found.pmus.is_empty() {
        let remedy = "bare metal, or a hypervisor that shows guests its PMU (QEMU/KVM: -cpu host,pmu=on)";
        return text("this machine shows no hardware PMU", remedy);
    }
    match found.pmus.iter().find_map(|p| p.table) {
        Some(table) => text(table.why_absent(signal).unwrap_or("no group of counters holds it"), ""),
        None => text("there is no event table for this processor", "name the events of this processor in a bug report"),
    }
}

fn notes<K: Kernel>(found: &Found<'_, K>) -> Vec<String> {
    let mut notes = Vec::new();
    if found.pmus.iter().any(Pmu::is_halved) {
        notes.push(
            "the kernel counts with half of this processor's counters while SMT is on, because of an erratum \
             (intel_ht_bug). So events take turns in groups of two, without SMT in groups of four"
                .to_owned(),
        );
    }
    if let Some(opener) = found.opener {
        if opener.split > 0 {
            let n = opener.split;
            notes.push(format!(
                "{n} groups of counters never counted and were split: something else holds counters of this processor"
            ));
        }
        if opener.user_only {
            let why = "because perf_event_paranoid forbids the kernel";
            notes.push(format!("only user mode is counted, {why}; {PARANOID}"));
        }
        if opener.short > 0 {
            let n = opener.short;
            notes.push(format!("{n} tasks have fewer counters for lack of file descriptors; raise ulimit -n"));
        }
        if let Some((n, why)) = &opener.refused {
            notes.push(format!("{n} tasks may not be counted ({why}); {}", events_remedy(why)));
        }
    }
    let Found { left_out, missed, others, .. } = found;
    if *left_out > 0 {
        notes.push(format!("{left_out} threads are left out; observe fewer programs, or raise the limit of tasks"));
    }
    if *missed > 0 {
        notes.push(format!("{missed} threads ended before they could be looked at: too many start"));
    }
    if *others > 0 {
        notes.push(format!("{others} processes of other users are left out; --all-users includes them"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::perf::events::{Model, Table};
    use crate::sense::perf::plan::SAM_SIGNALS;
    use crate::sense::perf::{Live, Plan};
    use cotenant_model::Count;

    fn found<'a>(pmus: &'a [Pmu], opener: &'a Opener<Live>, fs: &'a FsRoot) -> Found<'a, Live> {
        Found {
            fs,
            asked: SAM_SIGNALS,
            counting: Counting::Hardware,
            pmus,
            opener: Some(opener),
            left_out: 0,
            missed: 0,
            others: 0,
        }
    }

    fn pmu(model: Model) -> Pmu {
        Pmu { name: "cpu".into(), kind: 4, table: Table::of(model), free: 4, hybrid: false }
    }

    fn tier_of(model: Model) -> (Tier, TierReport) {
        let pmus = [pmu(model)];
        let opener = Opener::new(Live, Plan::new(&pmus, SAM_SIGNALS), 100);
        let fs = FsRoot::live();
        let report = report(&found(&pmus, &opener, &fs), std::iter::empty());
        (report.tier, report)
    }

    #[test]
    fn tiers_follow_what_is_counted() {
        let skx = Model::Intel { family: 6, model: 0x55, stepping: 4 };
        let ivt = Model::Intel { family: 6, model: 0x3e, stepping: 4 };
        assert_eq!(tier_of(skx).0, Tier::Full);
        assert_eq!(tier_of(ivt).0, Tier::Full, "intra is derived there");
        let (tier, report) = tier_of(Model::Arm { part: 0xd0c });
        assert_eq!(tier, Tier::CorePmu);
        let inter = report.missing.iter().find(|m| m.signal == Signal::Inter).unwrap();
        assert!(inter.why.contains("REMOTE_ACCESS"), "{}", inter.why);
    }

    #[test]
    fn half_of_the_counters_and_groups_that_were_split_are_said() {
        let pmus = [Pmu { free: 2, ..pmu(Model::Intel { family: 6, model: 0x3e, stepping: 4 }) }];
        let mut opener = Opener::new(Live, Plan::new(&pmus, SAM_SIGNALS), 100);
        opener.split = 2;
        let fs = FsRoot::live();
        let halved = report(&found(&pmus, &opener, &fs), std::iter::empty());
        assert_eq!(halved.tier, Tier::Full);
        assert!(
            halved.notes[0].contains("groups of two") && halved.notes[1].starts_with("2 groups"),
            "{:?}",
            halved.notes
        );
        assert_eq!(tier_of(Model::Intel { family: 6, model: 0x3e, stepping: 4 }).1.notes, [""; 0]);
    }

    #[test]
    fn without_a_pmu_every_hardware_signal_says_what_would_help() {
        let opener = Opener::new(Live, Plan::new(&[], SAM_SIGNALS), 100);
        let fs = FsRoot::live();
        let report = report(&found(&[], &opener, &fs), std::iter::empty());
        assert_eq!(report.tier, Tier::SoftwareOnly);
        let missing: Vec<Signal> = report.missing.iter().map(|m| m.signal).filter(|s| *s < Signal::CpuTime).collect();
        assert_eq!(missing, SAM_SIGNALS);
        assert!(report.missing.iter().all(|m| m.why.contains("PMU") && !m.remedy.is_empty()), "{:?}", report.missing);
    }

    #[test]
    fn the_fraction_of_time_really_counted_is_shown() {
        let pmus = [pmu(Model::Intel { family: 6, model: 0x3e, stepping: 4 })];
        let opener = Opener::new(Live, Plan::new(&pmus, SAM_SIGNALS), 100);
        let counters = |running_ns| -> Counters {
            [(Signal::Inter, Count { value: 9, enabled_ns: 100, running_ns })].into_iter().collect()
        };
        let fs = FsRoot::live();
        let report = report(&found(&pmus, &opener, &fs), [counters(20), counters(40)].iter());
        let of = |signal| report.present.iter().find(|p| p.signal == signal).unwrap().running;
        assert_eq!(of(Signal::Inter), Some(0.3));
        assert_eq!(of(Signal::LlcMisses), None, "nothing ran yet");
        assert_eq!(of(Signal::CpuTime), Some(1.0));
    }
}
