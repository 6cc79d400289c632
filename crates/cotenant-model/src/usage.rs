//! Usage of a machine: CPU time between two looks, by program and control group.

use crate::proc_text::TaskStat;
use crate::text::name;
use crate::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Others leave too little if they leave less than this fraction of the wanted CPUs. The loss then equals the usual
/// goal's allowance (90 %), so that others alone could decide a verdict.
const LEFT: f64 = 0.9;

/// Stolen fraction of time that deserves a remark.
const MUCH_STOLEN: f64 = 0.01;

/// Fraction of time with a waiting thread that deserves a remark.
const MUCH_PRESSURE: f64 = 0.01;

/// Limits of listed programs, and of those named in a line, with the least use of the latter.
const LISTED: usize = 8;
const NAMED: usize = 3;
const LITTLE: f64 = 0.05;
/// So long a calm time says more of what was measured than the moment before it, seconds.
const CALM_S: f64 = 30.0;

/// A process in a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Start time in clock ticks since boot: together with the id it identifies the process.
    start_ticks: u64,
    parent: u32,
    program: String,
    /// Its control group; unknown if it has used no CPU time since the previous look.
    cgroup: String,
    /// CPU time in clock ticks: its own, and that of its ended children.
    ticks: u64,
    ended_ticks: u64,
    /// Cumulative CPU waits of its threads, nanoseconds, by thread id; absent if not read.
    waits: Option<Arc<BTreeMap<u32, u64>>>,
}

impl Process {
    /// Kernel threads count as one program.
    pub fn new(stat: TaskStat, cgroup: &str) -> Self {
        let program = if stat.is_kernel_thread() { "the kernel".to_owned() } else { stat.comm };
        let TaskStat { start_ticks, ppid: parent, ticks, ended_ticks, .. } = stat;
        Self { start_ticks, parent, program, cgroup: name(cgroup.as_bytes()), ticks, ended_ticks, waits: None }
    }

    /// With the waits of its threads so far.
    #[must_use]
    pub fn with_waits(self, waits: Option<Arc<BTreeMap<u32, u64>>>) -> Self {
        Self { waits, ..self }
    }

    /// The waits of its threads so far, if read.
    pub fn waits(&self) -> Option<&Arc<BTreeMap<u32, u64>>> {
        self.waits.as_ref()
    }

    /// Whether it has not run since, and so probably kept its control group.
    pub fn has_rested(&self, stat: &TaskStat) -> bool {
        (self.start_ticks, self.ticks) == (stat.start_ticks, stat.ticks)
    }

    /// Its control group.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    fn all_ticks(&self) -> u64 {
        self.ticks.saturating_add(self.ended_ticks)
    }
}

/// Cumulative usage at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Seconds since boot.
    pub at_s: f64,
    /// Clock ticks in a second.
    pub ticks_per_s: f64,
    /// Busy or stolen ticks of each CPU.
    pub busy: Vec<(CpuId, u64)>,
    /// Stolen ticks of all CPUs, in which a hypervisor ran other guests.
    pub stolen: u64,
    /// Microseconds in which at least one thread was ready to run without a CPU, if the kernel counts that (PSI).
    pub pressure_us: Option<u64>,
    /// Visible processes, including ended ones that are not reaped.
    pub processes: BTreeMap<u32, Process>,
}

/// CPUs used by a program in a control group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Its name, from its first thread; that of the parent for ended processes.
    #[serde(deserialize_with = "crate::text::name_of")]
    pub program: String,
    /// Its control group, from the root of the hierarchy.
    #[serde(deserialize_with = "crate::text::name_of")]
    pub cgroup: String,
    /// CPU time per second.
    pub cpus: f64,
    /// Average number of ready threads without a CPU: seconds of waiting per second; absent if not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
}

/// Usage of a machine between two looks, in CPUs: CPU time per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Its duration, seconds.
    pub seconds: f64,
    /// The considered CPUs.
    pub of_cpus: usize,
    /// The measured program and Cotenant itself.
    pub own: f64,
    /// All other programs.
    pub others: f64,
    /// Taken by the host for other guests (steal).
    pub stolen: f64,
    /// Fraction of time in which at least one thread of any program was ready to run without a CPU; absent if the
    /// kernel does not count that (PSI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// The busiest visible others; the rest of `others` is hidden, too small, or interrupts.
    pub programs: Vec<Program>,
}

impl Usage {
    /// Of these CPUs, or of all. Descendants of our own processes are our own; programs are listed on any CPU. `None`
    /// if no time has passed.
    pub fn between(before: &Look, after: &Look, cpus: Option<&CpuSet>, is_own: impl Fn(u32) -> bool) -> Option<Self> {
        let seconds = after.at_s - before.at_s;
        let per_s = |ticks: u64| ticks as f64 / after.ticks_per_s / seconds;
        if seconds <= 0.0 || after.ticks_per_s <= 0.0 || after.busy.is_empty() {
            return None;
        }
        let (mut own, mut seen) = (0.0, Sums::new());
        for (pid, used) in used_between(before, after, &is_own) {
            let process = &after.processes[&pid];
            let all_own = descends(after, pid, &is_own);
            own += per_s(if all_own { used.theirs + used.own } else { used.own });
            if !all_own && used.theirs > 0 {
                let waiting = waited(before, after, pid).map(|ns| ns as f64 / 1e9 / seconds);
                seen.entry((&process.program, &process.cgroup)).or_default().add(per_s(used.theirs), waiting);
            }
        }
        let then: BTreeMap<CpuId, u64> = before.busy.iter().copied().collect();
        let mut of_cpus = 0;
        let mut busy = 0;
        for (cpu, ticks) in after.busy.iter().filter(|(cpu, _)| cpus.is_none_or(|cpus| cpus.contains(*cpu))) {
            of_cpus += 1;
            busy += ticks.saturating_sub(then.get(cpu).copied().unwrap_or(*ticks));
        }
        // The CPUs of stolen time are known too, but a host takes from all alike.
        let part = of_cpus as f64 / after.busy.len() as f64;
        let stolen = per_s(after.stolen.saturating_sub(before.stolen)) * part;
        // Processes report exact times, CPUs count ticks.
        let least = if cpus.is_none() { seen.values().map(|sum| sum.cpus).sum() } else { 0.0 };
        let others = (per_s(busy) - stolen - own).max(least).clamp(0.0, of_cpus as f64);
        let short = after.pressure_us.zip(before.pressure_us).and_then(|(now, then)| now.checked_sub(then));
        let pressure = short.map(|us| rounded((us as f64 / 1e6 / seconds).min(1.0)));
        let [seconds, own, others, stolen] = [seconds, own, others, stolen].map(rounded);
        Some(Self { seconds, of_cpus, own, others, stolen, pressure, programs: busiest(&seen) })
    }

    /// Joins this period and another one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let seconds = (self.seconds + other.seconds).max(f64::MIN_POSITIVE);
        let mut sums = Sums::new();
        for usage in [self, other] {
            for Program { program, cgroup, cpus, waiting } in &usage.programs {
                let part = usage.seconds / seconds;
                sums.entry((program, cgroup)).or_default().add(cpus * part, waiting.map(|threads| threads * part));
            }
        }
        let pressure = self.pressure.zip(other.pressure);
        let pressure = pressure.map(|(a, b)| rounded((a * self.seconds + b * other.seconds) / seconds));
        let mean = |of: fn(&Self) -> f64| rounded((of(self) * self.seconds + of(other) * other.seconds) / seconds);
        Self {
            seconds: rounded(seconds),
            of_cpus: other.of_cpus,
            own: mean(|usage| usage.own),
            others: mean(|usage| usage.others),
            stolen: mean(|usage| usage.stolen),
            pressure,
            programs: busiest(&sums),
        }
    }

    /// `1.9 of 2 CPUs by other programs: rustc 0.9, qemu 0.7, others 0.3; 0.1 taken by the host (steal)`.
    pub fn text(&self) -> String {
        let mut sums = Sums::new();
        for Program { program, cpus, waiting, .. } in &self.programs {
            sums.entry((program, "")).or_default().add(*cpus, *waiting);
        }
        let mut most = busiest(&sums);
        most.retain(|program| program.cpus >= LITTLE);
        most.truncate(NAMED);
        let rest = self.others - most.iter().map(|program| program.cpus).sum::<f64>();
        let mut names: Vec<String> = most.iter().map(|one| format!("{} {:.1}", one.program, one.cpus)).collect();
        match (rest >= LITTLE, names.is_empty()) {
            (true, true) => names.push("none of them can be seen here".to_owned()),
            (true, false) => names.push(format!("others {rest:.1}")),
            (false, _) => {}
        }
        let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        let stolen = if self.stolen >= LITTLE {
            format!("; {:.1} taken by the host (steal)", self.stolen)
        } else {
            String::new()
        };
        format!("{:.1} of {} CPUs by other programs{names}{stolen}", self.others, self.of_cpus)
    }

    /// `; waiting for a CPU: rustc 1.4, qemu 0.2 threads; short of CPUs for 97 % of the time`, as far as known; empty
    /// without waits.
    pub fn waits(&self) -> String {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for Program { program, waiting, .. } in &self.programs {
            *sums.entry(program).or_default() += waiting.unwrap_or_default();
        }
        let mut most: Vec<(&str, f64)> = sums.into_iter().filter(|(_, threads)| *threads >= LITTLE).collect();
        most.sort_by(|a, b| b.1.total_cmp(&a.1));
        let names: Vec<String> =
            most.iter().take(NAMED).map(|(name, threads)| format!("{name} {threads:.1}")).collect();
        let waiting =
            if names.is_empty() { String::new() } else { format!("; waiting for a CPU: {} threads", names.join(", ")) };
        let short = self.pressure.filter(|share| *share >= MUCH_PRESSURE);
        let short =
            short.map_or_else(String::new, |share| format!("; short of CPUs for {:.0} % of the time", share * 100.0));
        waiting + &short
    }

    /// Average number of ready threads of the listed programs without a CPU; `None` if none was read.
    pub fn waiting(&self) -> Option<f64> {
        self.programs.iter().filter_map(|program| program.waiting).reduce(|a, b| a + b)
    }

    /// Whether others and the host leave less than nine tenths of the wanted CPUs.
    pub fn crowds(&self, wanted: f64) -> bool {
        let all = self.of_cpus as f64;
        all - self.others - self.stolen < LEFT * wanted.min(all)
    }

    /// Fraction of the CPUs' time used by others or taken by the host, 0–1.
    pub fn share(&self) -> f64 {
        ((self.others + self.stolen) / self.of_cpus.max(1) as f64).min(1.0)
    }

    /// A remark for people on a large stolen time.
    pub fn remark_of_steal(&self) -> Option<String> {
        self.is_stolen().then(|| {
            format!(
                "the host let other guests run for {:.1} % of the CPU time here, while it was wanted (steal): figures \
                 suffer, and nothing on this machine can change that",
                100.0 * self.stolen / self.of_cpus.max(1) as f64
            )
        })
    }

    fn is_stolen(&self) -> bool {
        self.stolen >= MUCH_STOLEN * self.of_cpus.max(1) as f64
    }
}

/// A sentence on a program that misses its goal even while low-priority programs pause.
pub fn slowed_by_others(name: &str, usage: Option<&Usage>) -> String {
    let cause = match usage {
        None => "what uses the CPUs is not known yet".to_owned(),
        Some(usage) if usage.others + usage.stolen >= LITTLE => usage.text(),
        Some(_) => "no other program is seen to use the CPUs; its own load or a disk may do it".to_owned(),
    };
    format!("{name}: goal missed even while low-priority programs pause: {cause}; the low-priority programs run on")
}

/// Usage of the machine before a measurement, and meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Just before the start; absent without a look, or if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Usage>,
    /// Meanwhile, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<Usage>,
}

impl Seen {
    /// Whether there was no look.
    pub fn is_empty(&self) -> bool {
        self.before.is_none() && self.during.is_none()
    }

    /// Why there can be no verdict on what wanted so many CPUs; `None` where it had them. What was before the start
    /// counts no more where it was calm for [`CALM_S`].
    pub fn busy(&self, wanted: f64) -> Option<String> {
        let crowded = |usage: &Usage| usage.crowds(wanted);
        let said = |usage: &Option<Usage>| usage.as_ref().filter(|usage| crowded(usage)).map(Usage::text);
        let calm = self.during.as_ref().is_some_and(|usage| usage.seconds >= CALM_S && !crowded(usage));
        let before = said(&self.before).filter(|_| !calm);
        let before = before.map(|text| format!("this machine was busy before the start ({text})"));
        before.or_else(|| said(&self.during).map(|text| format!("this machine was busy meanwhile ({text})")))
    }
}

/// By program and control group.
type Sums<'a> = BTreeMap<(&'a str, &'a str), Sum>;

/// Use and waiting time of processes, if known.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    cpus: f64,
    waiting: Option<f64>,
}

impl Sum {
    fn add(&mut self, cpus: f64, waiting: Option<f64>) {
        self.cpus += cpus;
        self.waiting = waiting.map(|threads| threads + self.waiting.unwrap_or_default()).or(self.waiting);
    }
}

fn busiest(sums: &Sums<'_>) -> Vec<Program> {
    let program = |(&(program, cgroup), sum): (&(&str, &str), &Sum)| Program {
        program: program.to_owned(),
        cgroup: cgroup.to_owned(),
        cpus: rounded(sum.cpus),
        waiting: sum.waiting.map(rounded),
    };
    let mut programs: Vec<Program> = sums.iter().map(program).collect();
    programs.retain(|program| program.cpus > 0.0);
    programs.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    programs.truncate(LISTED);
    programs
}

/// Three decimals: more than the precision of clock ticks.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Ticks that a process used.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// The process itself, or its ended children.
    theirs: u64,
    /// Ended children, including our own.
    own: u64,
}

/// Clock ticks that each process of the second look used since the first one, including its ended children.
pub fn used(before: &Look, after: &Look) -> BTreeMap<u32, u64> {
    used_between(before, after, &|_| false).into_iter().map(|(pid, used)| (pid, used.theirs)).collect()
}

/// Use of each process since, including its children that have ended meanwhile.
fn used_between(before: &Look, after: &Look, is_own: &impl Fn(u32) -> bool) -> BTreeMap<u32, Used> {
    let same = |pid: u32, a: &Look, b: &Look| {
        a.processes.get(&pid).zip(b.processes.get(&pid)).is_some_and(|(a, b)| a.start_ticks == b.start_ticks)
    };
    // Earlier use of ended processes must not count: their parent now includes it.
    let mut waited_for: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
    for (pid, gone) in before.processes.iter().filter(|(pid, _)| !same(**pid, before, after)) {
        let mut seen = BTreeSet::from([*pid]);
        let mut parent = gone.parent;
        while let Some(old) = before.processes.get(&parent).filter(|_| seen.insert(parent)) {
            if same(parent, before, after) {
                let (ticks, own) = waited_for.entry(parent).or_default();
                *ticks += gone.all_ticks();
                *own |= descends(before, *pid, is_own);
                break;
            }
            parent = old.parent;
        }
    }
    let most = ((after.at_s - before.at_s) * after.ticks_per_s * after.busy.len() as f64) as u64;
    let since = |pid: u32, new: &Process| {
        let Some(old) = before.processes.get(&pid).filter(|_| same(pid, before, after)) else {
            // The recent use of an old process that was not in the first look is unknown.
            let is_new = new.start_ticks as f64 >= before.at_s * after.ticks_per_s;
            return Used { theirs: if is_new { new.all_ticks().min(most) } else { 0 }, own: 0 };
        };
        let (gone, own) = waited_for.get(&pid).copied().unwrap_or_default();
        let ended = new.ended_ticks.saturating_sub(old.ended_ticks).saturating_sub(gone).min(most);
        let itself = new.ticks.saturating_sub(old.ticks);
        if own { Used { theirs: itself, own: ended } } else { Used { theirs: itself + ended, own: 0 } }
    };
    after.processes.iter().map(|(pid, new)| (*pid, since(*pid, new))).collect()
}

/// CPU waits since the first look of the threads of a process in the second look, nanoseconds; living threads only.
/// `None` if not read.
fn waited(before: &Look, after: &Look, pid: u32) -> Option<u64> {
    let process = &after.processes[&pid];
    let now = process.waits.as_ref()?;
    let seconds = after.at_s - before.at_s;
    let then = match before.processes.get(&pid).filter(|old| old.start_ticks == process.start_ticks) {
        Some(old) => Some(old.waits.as_ref()?),
        // The recent waits of an old process that was not in the first look are unknown.
        None if (process.start_ticks as f64) < before.at_s * after.ticks_per_s => return None,
        None => None,
    };
    // The kernel counts a wait at its end: its part before the first look must not count.
    let most = (seconds * 1e9) as u64;
    let since = |(tid, ns): (&u32, &u64)| {
        ns.saturating_sub(then.and_then(|then| then.get(tid)).copied().unwrap_or_default()).min(most)
    };
    Some(now.iter().map(since).sum())
}

/// Whether it, or an ancestor, is our own.
fn descends(look: &Look, mut pid: u32, is_own: &impl Fn(u32) -> bool) -> bool {
    let mut seen = BTreeSet::new();
    while let Some(process) = look.processes.get(&pid).filter(|_| seen.insert(pid)) {
        if is_own(pid) {
            return true;
        }
        pid = process.parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, parent, program, start, own ticks, ticks of children that have ended.
    type One = (u32, u32, &'static str, u64, u64, u64);

    fn look(at_s: f64, busy: [u64; 2], stolen: u64, processes: &[One]) -> Look {
        let process = |&(pid, ppid, comm, start_ticks, ticks, ended_ticks): &One| {
            let comm = comm.to_owned();
            let stat = TaskStat { comm, ppid, ticks, ended_ticks, start_ticks, ..TaskStat::default() };
            (pid, Process::new(stat, &format!("/{}.scope", comm_of(pid))))
        };
        let busy = (0..).map(CpuId).zip(busy).collect();
        let processes = processes.iter().map(process).collect();
        Look { at_s, ticks_per_s: 100.0, busy, stolen, pressure_us: None, processes }
    }

    fn comm_of(pid: u32) -> &'static str {
        if pid < 10 { "low" } else { "high" }
    }

    fn listed(usage: &Usage) -> Vec<(&str, f64)> {
        usage.programs.iter().map(|program| (&*program.program, program.cpus)).collect()
    }

    /// Holds run/busy.
    #[test]
    fn programs_are_named_and_what_is_our_own_is_not_theirs() {
        let before =
            look(10.0, [500, 600], 7, &[(1, 0, "init", 1, 50, 900), (2, 1, "qos", 5, 10, 0), (4, 1, "qemu", 9, 1, 0)]);
        let now = [
            (1, 0, "init", 1, 50, 900),
            (2, 1, "qos", 5, 20, 0),
            (3, 2, "batch", 1_100, 90, 0),
            (4, 1, "qemu", 9, 71, 0),
        ];
        let usage = Usage::between(&before, &look(11.0, [600, 700], 7, &now), None, |pid| pid == 2).unwrap();
        // 200 ticks on two CPUs: 10 of ours, 90 of our children, 70 of qemu, 30 of invisible processes.
        assert_eq!((usage.own, usage.others, usage.stolen, usage.of_cpus), (1.0, 1.0, 0.0, 2));
        assert_eq!((listed(&usage), &*usage.programs[0].cgroup), (vec![("qemu", 0.7)], "/low.scope"));
        assert_eq!(usage.text(), "1.0 of 2 CPUs by other programs: qemu 0.7, others 0.3");
        let of_one =
            Usage::between(&before, &look(11.0, [600, 700], 7, &now), Some(&CpuSet::single(CpuId(0))), |pid| pid == 4);
        assert!(of_one.is_some_and(|one| (one.of_cpus, one.own, one.others) == (1, 0.7, 0.3)));
        assert_eq!(Usage::between(&before, &before, None, |_| false), None, "no time has gone by");
    }

    /// Holds see/waits.
    #[test]
    fn waits_are_those_of_threads_that_live_and_no_longer_than_the_time() {
        let waits = |of: &[(u32, u64)]| Some(Arc::new(of.iter().map(|(tid, s)| (*tid, s * 1_000_000_000)).collect()));
        let with = |mut look: Look, pid, of: &[(u32, u64)]| {
            let process = look.processes.remove(&pid).unwrap().with_waits(waits(of));
            look.processes.insert(pid, process);
            look
        };
        let at = |at_s, ticks| look(at_s, [500, 600], 0, &[(20, 1, "rustc", 5, ticks, 0)]);
        let before = with(at(10.0, 100), 20, &[(20, 5), (21, 7)]);
        // One waits for 1 s of 2, one has ended, one is new and waited for 1 s, one has an older wait.
        let after = with(at(12.0, 200), 20, &[(20, 6), (22, 1), (23, 90)]);
        let waiting =
            |before: &Look, after: &Look| Usage::between(before, after, None, |_| false).unwrap().programs[0].waiting;
        assert_eq!(waiting(&before, &after), Some(2.0), "(1 + 1 + 2) / 2");
        assert_eq!(waiting(&at(10.0, 100), &after), None, "nobody knows how long it had waited");
        assert_eq!(waited(&look(10.0, [500, 600], 0, &[]), &after, 20), None, "it was there and was not seen");
        let new = with(look(12.0, [500, 600], 0, &[(20, 1, "rustc", 1_050, 100, 0)]), 20, &[(20, 1)]);
        assert_eq!(waiting(&look(10.0, [500, 600], 0, &[]), &new), Some(0.5));
        let mut short = [before, after];
        for (look, us) in short.iter_mut().zip([3_000_000, 4_500_000]) {
            look.pressure_us = Some(us);
        }
        let [before, after] = short;
        let usage = Usage::between(&before, &after, None, |_| false).unwrap();
        assert_eq!(usage.pressure, Some(0.75));
        assert_eq!((usage.and(&usage).pressure, usage.and(&usage).programs[0].waiting), (Some(0.75), Some(2.0)));
        assert_eq!(usage.waits(), "; waiting for a CPU: rustc 2.0 threads; short of CPUs for 75 % of the time");
        assert_eq!(Usage::default().waits(), "");
    }

    /// Compilers: each lives for less than the time between two looks.
    /// Promise run/busy: Programs that fill the machine, and nice values without effect, are named without root;
    /// meanwhile no goal is judged and no calibration replaced.
    #[test]
    fn children_that_ended_meanwhile_are_their_parents() {
        let before = look(
            0.0,
            [0, 0],
            0,
            &[(1, 0, "sh", 1, 0, 0), (2, 1, "make", 1, 5, 1_000), (3, 2, "sh", 1, 1, 400), (4, 3, "cc1", 1, 300, 0)],
        );
        // cc1 ran for 20 ticks more, its shell for 2; make has reaped both, and others with 150.
        let ended = 1_000 + (300 + 20) + (1 + 400 + 2) + 150;
        let after = look(1.0, [100, 80], 0, &[(1, 0, "sh", 1, 0, 0), (2, 1, "make", 1, 8, ended)]);
        let usage = Usage::between(&before, &after, None, |_| false).unwrap();
        assert_eq!(listed(&usage), [("make", 1.75)], "3 + 20 + 2 + 150 ticks, and no tick of before");
        let ours = Usage::between(&before, &after, None, |pid| pid == 4).unwrap();
        assert_eq!((ours.own, listed(&ours)), (1.72, vec![("make", 0.03)]), "what has ended was ours");
        // Another process got the id, long after the previous look; an old one was not in it.
        let other = look(1.0, [100, 80], 0, &[(2, 1, "ld", 90, 60, 0), (9, 1, "java", 1, 90_000, 0)]);
        let usage = Usage::between(&look(0.5, [0, 0], 0, &[(2, 1, "make", 1, 5, 0)]), &other, None, |_| false).unwrap();
        assert_eq!(listed(&usage), [("ld", 1.2)]);
    }

    #[test]
    fn a_line_names_three_and_sums_the_rest() {
        let program = |name: &str, cgroup: &str, cpus| Program {
            program: name.into(),
            cgroup: cgroup.into(),
            cpus,
            waiting: None,
        };
        let programs = vec![
            program("rustc", "/a", 0.5),
            program("cc1", "/", 0.4),
            program("rustc", "/b", 0.4),
            program("x", "/", 0.2),
            program("y", "/", 0.1),
        ];
        let usage = Usage { seconds: 1.0, of_cpus: 2, own: 0.1, others: 1.7, stolen: 0.2, pressure: None, programs };
        assert_eq!(
            usage.text(),
            "1.7 of 2 CPUs by other programs: rustc 0.9, cc1 0.4, x 0.2, others 0.2; 0.2 taken by the host (steal)"
        );
        let hidden = Usage { programs: Vec::new(), stolen: 0.0, ..usage.clone() };
        assert_eq!(hidden.text(), "1.7 of 2 CPUs by other programs: none of them can be seen here");
        assert_eq!(Usage { others: 0.01, ..hidden }.text(), "0.0 of 2 CPUs by other programs");
        assert!(usage.remark_of_steal().is_some_and(|note| note.contains(" 10.0 % ")));
    }

    /// Holds run/busy.
    #[test]
    fn it_is_busy_where_others_leave_less_than_nine_tenths_of_what_is_wanted() {
        let usage = |others, stolen| Usage { seconds: 1.0, of_cpus: 2, others, stolen, ..Usage::default() };
        assert!(!usage(0.19, 0.0).crowds(2.0) && usage(0.21, 0.0).crowds(2.0) && usage(0.1, 0.11).crowds(2.0));
        // A server that used 0.3, and wants one more for the next request: 2 - 0.9 * 1.3 = 0.83.
        assert!(!usage(0.82, 0.0).crowds(1.3) && usage(0.84, 0.0).crowds(1.3));
        assert!(usage(0.21, 0.0).crowds(64.0), "there are no more than that");
        let seen = |before, during| Seen { before: Some(usage(before, 0.0)), during: Some(usage(during, 0.0)) };
        assert_eq!(seen(0.1, 0.1).busy(2.0), None);
        let [before, during] = [seen(1.9, 0.1), seen(0.1, 1.9)].map(|seen| seen.busy(2.0).unwrap());
        assert!(
            before.starts_with("this machine was busy before the start (1.9 of 2 CPUs by other programs: "),
            "{before}"
        );
        assert!(during.starts_with("this machine was busy meanwhile ("), "{during}");
        let mut long = seen(1.9, 0.1);
        long.during.as_mut().unwrap().seconds = CALM_S;
        assert_eq!(long.busy(2.0), None, "the moment before the start is long ago");
    }

    /// Holds qos/innocent.
    #[test]
    fn who_makes_a_program_slow_is_named() {
        let programs = vec![Program { program: "rustc".into(), cgroup: "/".into(), cpus: 1.9, waiting: None }];
        let usage = Usage { seconds: 1.0, of_cpus: 2, others: 1.9, programs, ..Usage::default() };
        let others = "1.9 of 2 CPUs by other programs: rustc 1.9";
        let text = |cause| {
            format!(
                "db: goal missed even while low-priority programs pause: {cause}; the low-priority \
                             programs run on"
            )
        };
        assert_eq!(slowed_by_others("db", Some(&usage)), text(others));
        let nobody = "no other program is seen to use the CPUs; its own load or a disk may do it";
        assert_eq!(slowed_by_others("db", Some(&Usage::default())), text(nobody));
        assert_eq!(slowed_by_others("db", None), text("what uses the CPUs is not known yet"));
    }

    #[test]
    fn stretches_add_up() {
        let of = |seconds, others, name: &str| {
            let programs = vec![Program { program: name.into(), cgroup: "/".into(), cpus: others, waiting: None }];
            Usage { seconds, of_cpus: 2, others, programs, ..Usage::default() }
        };
        let all = of(1.0, 0.9, "a").and(&of(2.0, 0.3, "b"));
        assert_eq!((all.seconds, all.others), (3.0, 0.5));
        assert_eq!(listed(&all), [("a", 0.3), ("b", 0.2)]);
    }
}
