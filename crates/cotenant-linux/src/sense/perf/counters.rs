//! Opens and reads the counters of one task, with less demanding groups after refusals by the kernel.

use super::plan::{Group, Plan};
use super::{Kernel, Page};
use cotenant_model::{Count, Counters, Signal};
use std::io;
use std::sync::Arc;

/// The counters of one task.
#[derive(Debug)]
pub struct TaskCounters<C> {
    /// The plan of these counters.
    plan: Arc<Plan>,
    /// Counters of the software group, the leader first.
    software: Vec<C>,
    /// The same of each hardware group; shorter than the plan where descriptors ran out.
    hardware: Vec<Vec<C>>,
    /// Time without counts of each.
    silence: Vec<Silence>,
    /// The leader's page.
    pub page: Option<Page>,
}

/// A group without counts in this many reads, over this much run time, is not merely waiting for its turn: groups
/// alternate every few milliseconds.
const SILENT: (u8, u64) = (5, 200_000_000);

/// Time without counts of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    /// Its clock: nanoseconds enabled, and running.
    clock: (u64, u64),
    /// Enabled when it last counted.
    since: u64,
    /// Reads since.
    reads: u8,
}

impl Silence {
    fn read(&mut self, enabled_ns: u64, running_ns: u64) {
        if running_ns > self.clock.1 {
            (self.since, self.reads) = (enabled_ns, 0);
        } else if enabled_ns > self.clock.0 {
            self.reads = self.reads.saturating_add(1);
        }
        self.clock = (enabled_ns, running_ns);
    }

    fn lasts(&self) -> bool {
        self.reads >= SILENT.0 && self.clock.0 - self.since >= SILENT.1
    }
}

/// Result of opening a task's counters.
#[derive(Debug)]
pub enum Opened<C> {
    /// They count.
    Counting(TaskCounters<C>),
    /// The thread has ended.
    Gone,
    /// Its process did not let it be counted in time.
    Late,
    /// This task may not be counted.
    Refused,
}

/// Opens tasks' counters by one plan, and reduces the plan when the kernel refuses a part.
#[derive(Debug)]
pub struct Opener<K> {
    kernel: K,
    /// The present plan.
    pub plan: Arc<Plan>,
    /// Whether only user mode is counted, because the kernel refuses its own.
    pub user_only: bool,
    /// Remaining descriptors.
    left: usize,
    /// Tasks with open counters.
    pub opened: usize,
    /// Signals dropped from the plan, with reasons.
    pub lost: Vec<(Signal, String)>,
    /// Tasks with fewer counters than planned for want of descriptors.
    pub short: usize,
    /// Tasks with refused counters, and the kernel's last error.
    pub refused: Option<(usize, io::Error)>,
    /// Groups that were split because they never counted.
    pub split: usize,
}

/// Why opening by the present plan did not work out.
enum Failure {
    /// The plan is another now.
    Replanned,
    Gone,
    Late,
    Refused(io::Error),
}

impl<K: Kernel> Opener<K> {
    /// Opens by `plan`, with at most `descriptors` of them.
    pub fn new(kernel: K, plan: Plan, descriptors: usize) -> Self {
        let (plan, left) = (Arc::new(plan), descriptors);
        Self { kernel, plan, user_only: false, left, opened: 0, lost: Vec::new(), short: 0, refused: None, split: 0 }
    }

    /// Opens the counters of a thread.
    pub fn open(&mut self, tid: u32) -> Opened<K::Counter> {
        loop {
            match self.try_open(tid) {
                Ok(counters) => {
                    self.left -= counters.descriptors();
                    self.opened += 1;
                    self.short += usize::from(counters.descriptors() < self.plan.counters());
                    return Opened::Counting(counters);
                }
                Err(Failure::Replanned) => {} // each time with fewer slots in a group, so this ends
                Err(Failure::Gone) => return Opened::Gone,
                Err(Failure::Late) => return Opened::Late,
                Err(Failure::Refused(error)) => {
                    let before = self.refused.take().map_or(0, |(n, _)| n);
                    self.refused = Some((before + 1, error));
                    return Opened::Refused;
                }
            }
        }
    }

    /// Records the closing of a task's counters.
    pub fn closed(&mut self, counters: &TaskCounters<K::Counter>) {
        self.left += counters.descriptors();
        self.short -= usize::from(counters.descriptors() < self.plan.counters() && self.short > 0);
    }

    /// Splits a group that has not counted for long, because others occupy counters or the kernel uses fewer than
    /// exist. Returns whether the task's counters must be reopened.
    pub fn relieve(&mut self, task: &mut TaskCounters<K::Counter>) -> bool {
        let Some(group) = task.silence.iter().position(Silence::lasts) else { return false };
        // A changed plan may be the remedy.
        let other = !Arc::ptr_eq(&task.plan, &self.plan);
        let split = !other && Arc::make_mut(&mut self.plan).halve(group);
        self.split += usize::from(split);
        task.silence[group].since = task.silence[group].clock.0;
        other || split
    }

    fn try_open(&mut self, tid: u32) -> Result<TaskCounters<K::Counter>, Failure> {
        let plan = self.plan.clone();
        let mut left = self.left;
        let software = self.open_group(&plan.software, tid, &mut left)?;
        let Some(leader) = software.first() else {
            return Err(Failure::Refused(io::Error::from_raw_os_error(libc::EMFILE)));
        };
        let page = self.kernel.page(leader).ok();
        let mut hardware = Vec::with_capacity(plan.hardware.len());
        for group in &plan.hardware {
            hardware.push(self.open_group(group, tid, &mut left)?);
        }
        let silence = vec![Silence::default(); hardware.len()];
        Ok(TaskCounters { plan, software, hardware, silence, page })
    }

    /// The opened counters of a group, in order. Fewer than planned only for want of descriptors.
    fn open_group(&mut self, group: &Group, tid: u32, left: &mut usize) -> Result<Vec<K::Counter>, Failure> {
        let mut counters: Vec<K::Counter> = Vec::with_capacity(group.slots.len());
        for slot in &group.slots {
            if *left == 0 {
                break;
            }
            let error = match self.kernel.open(slot.code, self.user_only, tid, counters.first()) {
                Ok(counter) => {
                    counters.push(counter);
                    *left -= 1;
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::ESRCH) => return Err(Failure::Gone),
                Some(libc::EINTR) => return Err(Failure::Late),
                Some(libc::EMFILE | libc::ENFILE) => {
                    *left = 0;
                    break;
                }
                Some(libc::EACCES | libc::EPERM) => return Err(self.without_kernel_mode(slot.code, tid, error)),
                // The counter exists, but not together with the others.
                Some(libc::EINVAL)
                    if !counters.is_empty()
                        && self.kernel.open(slot.code, self.user_only, tid, None).is_ok()
                        && Arc::make_mut(&mut self.plan).split(slot.code) =>
                {
                    return Err(Failure::Replanned);
                }
                // Perf events are unavailable: the leader of the software group has no alternative.
                _ if slot.signals.contains(&Signal::CpuTime) => return Err(Failure::Refused(error)),
                _ => {
                    let why = format!("the kernel refuses event {}: {error}", slot.name);
                    self.lost.extend(slot.signals.iter().map(|s| (*s, why.clone())));
                    Arc::make_mut(&mut self.plan).remove(slot.code);
                    return Err(Failure::Replanned);
                }
            }
        }
        Ok(counters)
    }

    /// After a refusal: `perf_event_paranoid` may forbid counting the kernel, or the task may belong to another user.
    fn without_kernel_mode(&mut self, code: super::Code, tid: u32, error: io::Error) -> Failure {
        if self.user_only || self.kernel.open(code, true, tid, None).is_err() {
            return Failure::Refused(error);
        }
        self.user_only = true;
        // Migrations happen in the kernel: in user mode their counter would stay at zero.
        let migrations =
            self.plan.software.slots.iter().find(|s| s.signals.contains(&Signal::Migrations)).map(|s| s.code);
        if let Some(code) = migrations {
            let why = "migrations are counted in kernel mode, which perf_event_paranoid forbids";
            self.lost.push((Signal::Migrations, why.to_owned()));
            Arc::make_mut(&mut self.plan).remove(code);
        }
        Failure::Replanned
    }

    /// Reads the software counters into `into`: CPU time, migrations, faults.
    ///
    /// # Errors
    /// System errors; the counts are unchanged.
    pub fn read_software(&self, task: &TaskCounters<K::Counter>, into: &mut Counters) -> io::Result<()> {
        let mut words = [0; WORDS];
        let Some((_, values)) = read_group(&self.kernel, &task.software, &mut words)? else { return Ok(()) };
        for (slot, value) in task.plan.software.slots.iter().zip(values) {
            for signal in &slot.signals {
                into.set(*signal, Count::exact(*value));
            }
        }
        Ok(())
    }

    /// Reads the hardware counters into `into`; each group's counts carry that group's own times. Returns the time
    /// enabled, which is the time on a CPU since the counters were opened.
    ///
    /// # Errors
    /// System errors; groups read before stay in `into`.
    pub fn read_hardware(&self, task: &mut TaskCounters<K::Counter>, into: &mut Counters) -> io::Result<u64> {
        self.read_groups(task, into, |_| true)
    }

    /// Reads cycles and instructions into `into`: one read, unless the processor has several kinds of cores, or too few
    /// counters for one group.
    ///
    /// # Errors
    /// System errors; values read before stay in `into`.
    pub fn read_speed(&self, task: &mut TaskCounters<K::Counter>, into: &mut Counters) -> io::Result<()> {
        const SPEED: [Signal; 2] = [Signal::Cycles, Signal::Instructions];
        let mut all = Counters::default();
        self.read_groups(task, &mut all, |group| {
            group.slots.iter().flat_map(|slot| &slot.signals).any(|signal| SPEED.contains(signal))
        })?;
        for signal in SPEED {
            all.get(signal).into_iter().for_each(|count| into.set(signal, count));
        }
        Ok(())
    }

    /// Reads the wanted groups; returns the longest enabled time.
    fn read_groups(
        &self,
        task: &mut TaskCounters<K::Counter>,
        into: &mut Counters,
        wanted: impl Fn(&Group) -> bool,
    ) -> io::Result<u64> {
        let mut longest = 0;
        let mut sums = Counters::default();
        let groups = task.plan.hardware.iter().zip(&task.hardware).zip(&mut task.silence);
        for ((group, counters), silence) in groups.filter(|((group, _), _)| wanted(group)) {
            let mut words = [0; WORDS];
            let Some((clock, values)) = read_group(&self.kernel, counters, &mut words)? else { continue };
            silence.read(clock.enabled_ns, clock.running_ns);
            longest = longest.max(clock.enabled_ns);
            let mut own = Counters::default();
            for (slot, value) in group.slots.iter().zip(values) {
                for signal in &slot.signals {
                    let sum = own.get(*signal).map_or(0, |c| c.value) + value;
                    own.set(*signal, Count { value: sum, ..clock });
                }
            }
            for (signal, count) in own.iter() {
                sums.set(signal, sums.get(signal).map_or(count, |other| other_kind_of_core(other, count)));
            }
        }
        for (signal, count) in sums.iter() {
            into.set(signal, count);
        }
        Ok(longest)
    }
}

/// Words of the longest group: three of clock, and the counters.
const WORDS: usize = 16;

/// One group's times, as a count without value, and its values; `None` if nothing was opened or the counters are dead.
fn read_group<'w, K: Kernel>(
    kernel: &K,
    counters: &[K::Counter],
    words: &'w mut [u64; WORDS],
) -> io::Result<Option<(Count, &'w [u64])>> {
    let Some(leader) = counters.first() else { return Ok(None) };
    let got = kernel.read(leader, words)?;
    if got < 3 {
        return Ok(None); // an event in an error state reads as end of file
    }
    let values = got.min(3 + counters.len());
    Ok(Some((Count { value: 0, enabled_ns: words[1], running_ns: words[2] }, &words[3..values])))
}

/// The same signal on another PMU of a hybrid processor: a task is on one kind of core at a time, so counts and
/// running times add up, while both were enabled all along.
fn other_kind_of_core(a: Count, b: Count) -> Count {
    let enabled_ns = a.enabled_ns.max(b.enabled_ns);
    Count { value: a.value + b.value, enabled_ns, running_ns: (a.running_ns + b.running_ns).min(enabled_ns) }
}

impl<C> TaskCounters<C> {
    /// Descriptors that are open.
    pub fn descriptors(&self) -> usize {
        self.software.len() + self.hardware.iter().map(Vec::len).sum::<usize>()
    }

    /// The leader, whose descriptor signals the thread's end.
    pub fn leader(&self) -> Option<&C> {
        self.software.first()
    }

    /// Whether hardware is counted.
    pub fn has_hardware(&self) -> bool {
        self.hardware.iter().any(|g| !g.is_empty())
    }

    /// Whether migrations are counted.
    pub fn counts_migrations(&self) -> bool {
        let slots = self.plan.software.slots.iter().take(self.software.len());
        slots.flat_map(|s| &s.signals).any(|s| *s == Signal::Migrations)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::super::plan::{Pmu, SAM_SIGNALS};
    use super::*;
    use crate::sense::perf::events::{Model, Table};
    use cotenant_model::{Sample, TaskInfo, TaskSample, Time, View};
    use perf_event_open_sys::bindings;

    fn plan() -> Plan {
        let table = Table::of(Model::Intel { family: 6, model: 0x3e, stepping: 4 });
        Plan::new(&[Pmu { name: "cpu".into(), kind: 4, table, free: 4, hybrid: false }], SAM_SIGNALS)
    }

    fn counting(opener: &mut Opener<Fake>, tid: u32) -> TaskCounters<<Fake as Kernel>::Counter> {
        match opener.open(tid) {
            Opened::Counting(counters) => counters,
            other => panic!("{other:?}"),
        }
    }

    const HITM: u64 = 0x10d3;
    const FWD: u64 = 0x20d3;
    const DRAM: u64 = 0x0cd3;

    #[test]
    fn each_group_keeps_its_own_clock() {
        // 100 ms on a CPU; the two programmable groups had 60 and 40 of it.
        let fake = Fake::default();
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let mut task = counting(&mut opener, 7);
        assert_eq!(task.descriptors(), 3 + 2 + 4 + 3);
        fake.count(FWD, 5);
        fake.count(HITM, 7);
        fake.count(DRAM, 40);
        fake.count(0x412e, 600);
        fake.clock(0x412e, 100, 60);
        fake.clock(HITM, 100, 40);
        let mut counters = Counters::default();
        assert_eq!(opener.read_hardware(&mut task, &mut counters).unwrap(), 100);
        let count = |value, running_ns| Some(Count { value, enabled_ns: 100, running_ns });
        assert_eq!(counters.get(Signal::Inter), count(12, 40), "HITM + FWD, of one group");
        assert_eq!(counters.get(Signal::Remote), count(40, 40));
        assert_eq!(counters.get(Signal::LlcMisses), count(600, 60));
        // In a view: 12 × 100/40 = 30 inter, 600 × 100/60 = 1,000 misses.
        let sample = |at, counters| Sample {
            at: Time(at),
            tasks: vec![TaskSample { info: Arc::new(TaskInfo::default()), counters, ..TaskSample::default() }],
            ..Sample::default()
        };
        let zero = counters.iter().map(|(s, _)| (s, Count::default())).collect();
        let view = View::new(&sample(0, zero), &sample(1_000_000_000, counters));
        assert_eq!(view.tasks[0].per_s(Signal::Inter), Some(30.0));
        assert_eq!(view.tasks[0].per_s(Signal::LlcMisses), Some(1_000.0));
    }

    /// Holds see/cost.
    #[test]
    fn a_speed_takes_one_read() {
        let fake = Fake::default();
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let mut task = counting(&mut opener, 7);
        assert_eq!(task.plan.hardware.len(), 3);
        fake.count(bindings::PERF_COUNT_HW_CPU_CYCLES.into(), 200);
        fake.count(bindings::PERF_COUNT_HW_INSTRUCTIONS.into(), 300);
        let mut counters = Counters::default();
        opener.read_speed(&mut task, &mut counters).unwrap();
        assert_eq!(fake.reads(), 1);
        let found: Vec<(Signal, u64)> = counters.iter().map(|(signal, count)| (signal, count.value)).collect();
        assert_eq!(found, [(Signal::Cycles, 200), (Signal::Instructions, 300)]);
        opener.read_hardware(&mut task, &mut counters).unwrap();
        assert_eq!(fake.reads(), 4, "what a look reads");
    }

    #[test]
    fn a_group_that_is_never_scheduled_is_starved_not_zero() {
        let fake = Fake::default();
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let mut task = counting(&mut opener, 7);
        fake.clock(HITM, 1_000_000, 0);
        let mut counters = Counters::default();
        opener.read_hardware(&mut task, &mut counters).unwrap();
        assert_eq!(counters.get(Signal::Inter), Some(Count { value: 0, enabled_ns: 1_000_000, running_ns: 0 }));
    }

    /// Four programmable counters, of which the kernel uses two while loads are counted with SMT on.
    /// Holds see/counters.
    #[test]
    fn what_never_counts_is_split_until_it_does() {
        let fake = Fake::default();
        fake.set(|script| script.halves = true);
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let mut task = counting(&mut opener, 7);
        let running = |opener: &Opener<Fake>, task: &mut TaskCounters<_>| {
            fake.pass(100_000_000);
            let mut counters = Counters::default();
            opener.read_hardware(task, &mut counters).unwrap();
            let counts = |signal| counters.get(signal).is_some_and(|c| c.running_ns > 0);
            SAM_SIGNALS.iter().chain(&[Signal::PrivateMisses, Signal::LlcLoadMisses]).filter(|s| counts(**s)).count()
        };
        assert_eq!(running(&opener, &mut task), 2, "cycles and instructions");
        let mut times = 1;
        for _ in 0..40 {
            running(&opener, &mut task);
            if opener.relieve(&mut task) {
                opener.closed(&task);
                drop(task);
                task = counting(&mut opener, 7);
                times += 1;
            }
        }
        assert_eq!(running(&opener, &mut task), 7, "all but intra, which is derived, and near");
        assert_eq!((opener.split, times, opener.plan.hardware.len()), (2, 3, 5));
        assert_eq!(fake.open_now(), task.descriptors());
        // Another task was opened by the first plan: it adopts the current one.
        let mut old = counting(&mut Opener::new(fake.clone(), plan(), 1000), 8);
        for _ in 0..9 {
            running(&opener, &mut old);
        }
        assert!(opener.relieve(&mut old) && opener.split == 2);
    }

    #[test]
    fn what_is_seldom_on_a_cpu_or_waits_for_a_turn_is_not_split() {
        let fake = Fake::default();
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let mut task = counting(&mut opener, 7);
        let mut counters = Counters::default();
        for round in 1..100 {
            // 1 ms each, never alternating; and 100 ms each, alternating sometimes.
            fake.clock(HITM, round * 1_000_000, 0);
            fake.clock(0x412e, round * 100_000_000, round / 4);
            opener.read_hardware(&mut task, &mut counters).unwrap();
            assert!(!opener.relieve(&mut task), "{round}");
        }
    }

    #[test]
    fn an_unknown_event_takes_its_signal_with_it() {
        let fake = Fake::default();
        fake.set(|script| script.events.insert(FWD, libc::EINVAL));
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let mut task = counting(&mut opener, 7);
        let mut counters = Counters::default();
        opener.read_hardware(&mut task, &mut counters).unwrap();
        assert_eq!(counters.get(Signal::Inter), None);
        assert!(counters.get(Signal::Remote).is_some() && counters.get(Signal::Cycles).is_some());
        assert_eq!(opener.lost.len(), 1);
        assert_eq!(opener.lost[0].0, Signal::Inter);
        assert_eq!(fake.open_now(), task.descriptors(), "what was opened before the refusal is closed again");
        drop(task);
        assert_eq!(fake.open_now(), 0);
    }

    #[test]
    fn what_does_not_fit_a_group_gets_its_own() {
        let fake = Fake::default();
        fake.set(|script| script.not_beside_others.insert(DRAM));
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        assert_eq!(counting(&mut opener, 7).descriptors(), 12);
        assert!(opener.lost.is_empty(), "{:?}", opener.lost);
        assert_eq!(opener.plan.hardware.len(), 4);
        // An event refused together with the other part of its own signal is unavailable.
        fake.set(|script| script.not_beside_others.insert(FWD));
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        assert_eq!(counting(&mut opener, 7).descriptors(), 10);
        assert!(!opener.plan.counts(Signal::Inter) && opener.plan.counts(Signal::Remote));
    }

    #[test]
    fn paranoid_kernels_allow_user_mode() {
        let fake = Fake::default();
        fake.set(|script| script.no_kernel_mode = true);
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        let task = counting(&mut opener, 7);
        assert!(opener.user_only && task.has_hardware());
        assert!(!task.counts_migrations(), "they would read as zero");
        assert_eq!(opener.lost, [(Signal::Migrations, opener.lost[0].1.clone())]);
        let again = counting(&mut opener, 8);
        assert_eq!(again.descriptors(), task.descriptors());
    }

    #[test]
    fn a_forbidden_task_does_not_lower_the_others() {
        let fake = Fake::default();
        fake.set(|script| script.tasks.insert(9));
        let mut opener = Opener::new(fake.clone(), plan(), 1000);
        assert!(matches!(opener.open(9), Opened::Refused));
        assert!(!opener.user_only);
        let task = counting(&mut opener, 7);
        assert_eq!(task.descriptors(), 12);
        assert_eq!(opener.refused.as_ref().map(|(n, _)| *n), Some(1));
        assert_eq!(fake.open_now(), 12);
    }

    #[test]
    fn gone_and_no_perf_at_all() {
        let fake = Fake::default();
        fake.set(|script| script.all = Some(libc::ESRCH));
        assert!(matches!(Opener::new(fake.clone(), plan(), 1000).open(7), Opened::Gone));
        for error in [libc::EPERM, libc::ENOSYS, libc::ENOENT] {
            fake.set(|script| script.all = Some(error));
            assert!(matches!(Opener::new(fake.clone(), plan(), 1000).open(7), Opened::Refused));
        }
        assert_eq!(fake.open_now(), 0);
    }

    #[test]
    fn descriptors_are_spent_on_software_first() {
        let fake = Fake::default();
        let mut opener = Opener::new(fake.clone(), plan(), 16);
        let full = counting(&mut opener, 7);
        assert_eq!((full.descriptors(), opener.short), (12, 0));
        let poor = counting(&mut opener, 8);
        assert_eq!((poor.descriptors(), opener.short), (4, 1));
        assert!(poor.counts_migrations());
        assert!(matches!(opener.open(9), Opened::Refused), "none left");
        opener.closed(&full);
        drop(full);
        assert_eq!(counting(&mut opener, 9).descriptors(), 12);
        // The system's own limit, reached earlier than expected.
        fake.set(|script| script.limit = Some(script.open + 5));
        let mut wide = Opener::new(fake.clone(), plan(), 1000);
        assert_eq!(counting(&mut wide, 10).descriptors(), 5);
    }

    #[test]
    fn a_hybrid_processor_adds_up_over_its_kinds_of_core() {
        let p = Count { value: 60, enabled_ns: 100, running_ns: 60 };
        let e = Count { value: 20, enabled_ns: 100, running_ns: 40 };
        assert_eq!(other_kind_of_core(p, e), Count { value: 80, enabled_ns: 100, running_ns: 100 });
    }
}
