//! One observed thread: its last readings, and the time of the next.

use crate::sense::memory::Memory;
use crate::sense::perf::{Live, Opener, TaskCounters};
use crate::sense::processes::Process;
use crate::sys;
use cotenant_model::areas::{self, ByNode};
use cotenant_model::proc_text::{SchedStat, TaskStat};
use cotenant_model::{AppId, Count, Counters, CpuId, CpuSet, NodeId, Signal, TaskId, TaskInfo, TaskSample, Time};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// Longest time without a look at a sleeping thread, if no page shows its wake-up.
pub const SLEEPER_MAX: Duration = Duration::from_secs(1);

/// Time slices a second from which a thread is not counted by software events any more. Each context switch takes about
/// 1 us of its time with one event and 1.6 with three, so that two threads that pass a byte back and forth lose 30 %
/// (`docs/reference/overhead.md`); reading a file instead takes a few us of our own time per sample.
const SLICES_PER_S_MAX: f64 = 1000.0;

/// Least time over which time slices are counted: a few in a millisecond mean little.
const SLICES_OVER: Duration = Duration::from_millis(100);

/// A thread older than this at its discovery, in seconds, was not created under observation.
const OLD_S: u64 = 3;

/// An observed thread.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub struct Task {
    pub info: Arc<TaskInfo>,
    pub counters: Counters,
    pub perf: Option<TaskCounters<File>>,
    pub schedstat: Option<File>,
    /// Kept open if read repeatedly.
    pub stat: Option<File>,
    /// The round of the last full read.
    pub read_in: u64,
    /// Whether it is queued for a look-up of its CPU.
    pub to_be_located: bool,
    /// The figures of `schedstat` that continue from current counts at its next read: all if another thread has reused
    /// the id, the CPU time if a counter gave it before.
    pub carry_over: Range<usize>,
    cpu: Option<CpuId>,
    /// Migrations when `cpu` was right.
    cpu_at: Option<u64>,
    /// Whether it ran between the last two looks.
    ran: bool,
    /// The page's stamp at the last look.
    stamp: u32,
    /// Whether it ran since, or during, the last full read: its last activity may be unknown.
    unsettled: bool,
    /// Whether it was running at the last full read and has not been switched since: it may be constantly on a CPU.
    running: bool,
    /// CPU time at the end of the previous sample.
    cpu_ns_before: u64,
    /// CPU time in the first sample: rates are known from then on.
    first_ns: Option<u64>,
    /// Counts of closed counters.
    carried: Option<Counters>,
    schedstat_carried: [u64; 3],
    /// Time of the last check against [`SLICES_PER_S_MAX`], and the number of time slices then.
    slices: Option<(Time, u64)>,
    /// Loads by serving node, from events; and the counts up to which they are divided, local and remote.
    loads: Option<ByNode>,
    loads_seen: [u64; 2],
    /// Looks in a row that found it asleep, and the time of the next.
    asleep: u32,
    due: Time,
}

/// Result of a first look at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// It has not run.
    Asleep,
    /// It ran and needs a full read. `on_cpu`: it was running at the last read and has not been switched since.
    Ran {
        /// See above.
        on_cpu: bool,
    },
    /// It ran, and was fully read.
    Done,
    /// It has ended.
    Gone,
}

impl Task {
    pub fn new(id: TaskId, app: AppId, pid: u32, tid: u32, stat: &TaskStat, allowed: CpuSet) -> Self {
        let comm = stat.comm.clone();
        let age = sys::boot_ticks().saturating_sub(stat.start_ticks);
        let old = age > OLD_S * sys::ticks_per_second();
        let info = TaskInfo { id, app, tid, pid, start_ticks: stat.start_ticks, comm, allowed, old };
        Self {
            info: Arc::new(info),
            counters: Counters::default(),
            perf: None,
            schedstat: None,
            stat: None,
            read_in: 0,
            to_be_located: false,
            carry_over: 0..0,
            cpu: Some(stat.cpu),
            cpu_at: None,
            ran: false,
            stamp: 0,
            unsettled: true,
            running: true,
            cpu_ns_before: 0,
            first_ns: None,
            carried: None,
            schedstat_carried: [0; 3],
            slices: None,
            loads: None,
            loads_seen: [0; 2],
            asleep: 0,
            due: Time::default(),
        }
    }

    /// Changes the rarely changing part.
    pub fn set_info(&mut self, change: impl FnOnce(&mut TaskInfo)) {
        let mut info = (*self.info).clone();
        change(&mut info);
        if info != *self.info {
            self.info = Arc::new(info);
        }
    }

    /// Counts with these counters from now on; earlier counts stay.
    pub fn attach(&mut self, counters: TaskCounters<File>) {
        self.stamp = counters.page.as_ref().map_or(0, crate::sense::perf::Page::stamp);
        (self.unsettled, self.running) = (true, true);
        self.perf = Some(counters);
    }

    /// Gives up the counters.
    pub fn detach(&mut self) -> Option<TaskCounters<File>> {
        let counters = self.perf.take();
        self.carried = Some(self.counters.clone());
        self.cpu_at = None;
        counters
    }

    /// Drops software events that cost the thread too much: its CPU time then comes from `schedstat`, without
    /// migrations and faults.
    pub fn spare(&mut self, processes: &BTreeMap<u32, Process>, at: Time) -> Option<TaskCounters<File>> {
        self.perf.as_ref().filter(|perf| !perf.has_hardware())?;
        let slices = self.counters.get(Signal::ContextSwitches)?.value;
        let (since, before) = *self.slices.get_or_insert((at, slices));
        let passed = at - since;
        if passed < SLICES_OVER {
            return None;
        }
        self.slices = Some((at, slices));
        if ((slices - before) as f64) < SLICES_PER_S_MAX * passed.as_secs_f64() {
            return None;
        }
        let counters = self.perf.take();
        self.cpu_at = None;
        self.carry_over = 0..1;
        for signal in [Signal::Migrations, Signal::PageFaults] {
            self.counters.remove(signal);
        }
        // If it has ended, the next look finds that.
        let _ = self.read_schedstat(processes);
        counters
    }

    /// Descriptors that it holds.
    pub fn descriptors(&self) -> usize {
        self.proc_files() + self.perf.as_ref().map_or(0, TaskCounters::descriptors)
    }

    /// Files of `/proc` among them.
    pub fn proc_files(&self) -> usize {
        usize::from(self.schedstat.is_some()) + usize::from(self.stat.is_some())
    }

    /// CPU time in samples.
    pub fn counted_ns(&self) -> u64 {
        self.cpu_ns() - self.first_ns.unwrap_or_else(|| self.cpu_ns())
    }

    pub fn sample(&mut self, memory: &Memory) -> TaskSample {
        self.first_ns = self.first_ns.or_else(|| self.counters.get(Signal::CpuTime).map(|count| count.value));
        let pages_by_node = memory.pages(self.info.pid);
        let of_loads = |loads: &ByNode| loads.iter().map(|(&node, &n)| (node, n.round() as u64)).collect();
        let touches_by_node =
            self.loads.as_ref().map(of_loads).or_else(|| memory.touches(self.info.pid, self.info.tid));
        TaskSample {
            info: self.info.clone(),
            cpu: self.cpu,
            counters: self.counters.clone(),
            pages_by_node,
            touches_by_node,
        }
    }

    /// Divides newly counted loads among the serving memory nodes.
    pub fn share_loads(
        &mut self,
        nodes: &[NodeId],
        node_of: &BTreeMap<CpuId, NodeId>,
        pages: Option<&[(NodeId, u64)]>,
    ) {
        let count = |signal| self.counters.get(signal).map(|count| count.value);
        let (Some(local), Some(remote)) = (count(Signal::LocalDram), count(Signal::Remote)) else { return };
        let Some(&node) = self.cpu.and_then(|cpu| node_of.get(&cpu)) else { return };
        let new = |now: u64, seen: u64| now.saturating_sub(seen);
        let fresh = [new(local, self.loads_seen[0]), new(remote, self.loads_seen[1])];
        self.loads_seen = [local, remote];
        let sum = self.loads.get_or_insert_default();
        let found = areas::loads_by_node(fresh[0], fresh[1], node, nodes, pages);
        for (node, n) in found.into_iter().flatten() {
            *sum.entry(node).or_default() += n;
        }
    }

    /// It was resumed: no longer assumed asleep.
    pub fn resumed(&mut self) {
        (self.asleep, self.due) = (0, Time::default());
    }

    /// Finds out cheaply whether and how long it ran. Hardware counters of running threads are read at once, because
    /// rates need equal intervals.
    pub fn glance(
        &mut self,
        opener: Option<&Opener<Live>>,
        processes: &BTreeMap<u32, Process>,
        at: Time,
        interval: Duration,
    ) -> Glance {
        self.ran = false;
        if let Some(perf) = &self.perf
            && let Some(page) = &perf.page
        {
            let stamp = page.stamp();
            let switched = stamp != self.stamp;
            if !switched && !self.unsettled {
                return Glance::Asleep;
            }
            self.stamp = stamp;
            self.cpu_ns_before = self.cpu_ns();
            if switched {
                (self.ran, self.unsettled, self.running) = (true, true, false);
                if let Some(cpu_ns) = page.count() {
                    self.count(Signal::CpuTime, Count::exact(cpu_ns));
                }
            }
            self.read_hardware(opener);
            return Glance::Ran { on_cpu: self.running };
        }
        if at < self.due {
            return Glance::Asleep;
        }
        self.cpu_ns_before = self.cpu_ns();
        let is_new = self.counters.get(Signal::CpuTime).is_none();
        if self.read_schedstat(processes).is_err() {
            return Glance::Gone;
        }
        self.ran = is_new || self.cpu_ns() != self.cpu_ns_before;
        if !self.ran {
            self.asleep = (self.asleep + 1).min(20);
            self.due = at + (interval * (1 << self.asleep) / 2).min(SLEEPER_MAX);
            return Glance::Asleep;
        }
        self.asleep = 0;
        self.read_hardware(opener);
        if self.perf.is_some() { Glance::Ran { on_cpu: false } } else { Glance::Done }
    }

    /// Reads everything but hardware; false if the thread has ended.
    pub fn read(&mut self, opener: Option<&Opener<Live>>, processes: &BTreeMap<u32, Process>) -> bool {
        if let (Some(opener), Some(perf)) = (opener, &self.perf) {
            let mut fresh = Counters::default();
            if opener.read_software(perf, &mut fresh).is_ok() {
                self.take(&fresh);
            }
        }
        let alive = self.read_schedstat(processes).is_ok();
        let went_on = self.cpu_ns() != self.cpu_ns_before;
        (self.unsettled, self.running) = (went_on, went_on);
        self.ran |= went_on;
        alive
    }

    fn read_hardware(&mut self, opener: Option<&Opener<Live>>) {
        let (Some(opener), Some(perf)) = (opener, self.perf.as_mut().filter(|p| p.has_hardware())) else { return };
        let mut fresh = Counters::default();
        if let Ok(enabled_ns) = opener.read_hardware(perf, &mut fresh) {
            self.take(&fresh);
            // The counters are enabled while the thread is on a CPU: their clock is its CPU time.
            self.count(Signal::CpuTime, Count::exact(enabled_ns));
        }
    }

    /// Whether its hardware events are counted.
    pub fn counts_hardware(&self) -> bool {
        self.perf.as_ref().is_some_and(TaskCounters::has_hardware)
    }

    /// Reads its cycles and instructions; false if it has not run since the last look, or they are unreadable. CPU time
    /// stays the last look's, because its place is determined between looks.
    pub fn count_speed(&mut self, opener: &Opener<Live>) -> bool {
        let (stamp, unsettled) = (self.stamp, self.unsettled);
        let Some(perf) = &mut self.perf else { return false };
        if let Some(page) = &perf.page
            && page.stamp() == stamp
            && !unsettled
        {
            return false;
        }
        let mut fresh = Counters::default();
        let read = opener.read_speed(perf, &mut fresh).is_ok();
        self.take(&fresh);
        read
    }

    fn cpu_ns(&self) -> u64 {
        self.counters.get(Signal::CpuTime).map_or(0, |c| c.value)
    }

    fn take(&mut self, fresh: &Counters) {
        for (signal, count) in fresh.iter() {
            self.count(signal, count);
        }
    }

    /// Sets a count, added to closed counters' counts; it never decreases.
    fn count(&mut self, signal: Signal, fresh: Count) {
        let carried = self.carried.as_ref().and_then(|c| c.get(signal)).unwrap_or_default();
        let before = self.counters.get(signal).unwrap_or_default();
        self.counters.set(
            signal,
            Count {
                value: (carried.value + fresh.value).max(before.value),
                enabled_ns: (carried.enabled_ns + fresh.enabled_ns).max(before.enabled_ns),
                running_ns: (carried.running_ns + fresh.running_ns).max(before.running_ns),
            },
        );
    }

    /// Waiting time and time slices; also CPU time if no counter gives it better.
    fn read_schedstat(&mut self, processes: &BTreeMap<u32, Process>) -> io::Result<()> {
        let mut buffer = [0; 96];
        let got = if let Some(file) = &self.schedstat {
            file.read_at(&mut buffer, 0)?
        } else {
            // This file does not show whether the thread lives: some kernels lack it, and descriptors can run out.
            let file = processes.get(&self.info.pid).map(|p| p.open_file(self.info.tid, "schedstat"));
            let Some(Ok(file)) = file else { return Ok(()) };
            file.read_at(&mut buffer, 0)?
        };
        // Kernels without scheduler statistics lack this file, or leave it empty.
        let Ok(stat) = SchedStat::parse(&buffer[..got]) else { return Ok(()) };
        let signals = [Signal::CpuTime, Signal::RunQueueWait, Signal::ContextSwitches];
        let raw = [stat.cpu_ns, stat.wait_ns, stat.timeslices];
        for i in std::mem::take(&mut self.carry_over) {
            let before = self.counters.get(signals[i]).map_or(raw[i], |c| c.value);
            self.schedstat_carried[i] = before.wrapping_sub(raw[i]);
        }
        let skip = usize::from(self.perf.is_some());
        for i in skip..3 {
            let value = raw[i].wrapping_add(self.schedstat_carried[i]);
            let before = self.counters.get(signals[i]).map_or(0, |c| c.value);
            self.counters.set(signals[i], Count::exact(value.max(before)));
        }
        Ok(())
    }

    /// Queues it if it may have changed its CPU.
    pub fn queue_to_be_located(&mut self, queue: &mut VecDeque<TaskId>) {
        if !self.to_be_located && self.may_have_moved() {
            self.to_be_located = true;
            queue.push_back(self.info.id);
        }
    }

    fn may_have_moved(&self) -> bool {
        let migrations = self.migrations();
        match migrations {
            Some(_) => self.cpu_at != migrations,
            None => self.ran,
        }
    }

    fn migrations(&self) -> Option<u64> {
        self.perf.as_ref().filter(|p| p.counts_migrations())?;
        self.counters.get(Signal::Migrations).map(|c| c.value)
    }

    /// Reads its `stat`.
    pub fn read_stat(&self, process: &Process) -> Option<TaskStat> {
        match &self.stat {
            Some(file) => stat_from(file),
            None => read_stat(process, self.info.tid),
        }
    }

    /// Takes the values of `stat`.
    pub fn locate(&mut self, stat: &TaskStat) {
        self.cpu = Some(stat.cpu);
        self.cpu_at = self.migrations();
        if self.info.comm != stat.comm {
            self.set_info(|info| info.comm.clone_from(&stat.comm));
        }
    }
}

/// Reads a thread's `stat`.
pub fn read_stat(process: &Process, tid: u32) -> Option<TaskStat> {
    stat_from(&process.open_file(tid, "stat").ok()?)
}

fn stat_from(file: &File) -> Option<TaskStat> {
    let mut buffer = [0; 1024];
    let got = file.read_at(&mut buffer, 0).ok()?;
    TaskStat::parse(&buffer[..got]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ran_for_long_before_is_old() {
        let (second, now) = (sys::ticks_per_second(), sys::boot_ticks());
        let old = |age: u64| {
            let stat = TaskStat { start_ticks: now.saturating_sub(age * second), ..TaskStat::default() };
            Task::new(TaskId(1), AppId(0), 7, 7, &stat, CpuSet::new()).info.old
        };
        assert_eq!([0, OLD_S + 1].map(old), [false, now > OLD_S * second]);
    }

    /// Holds see/memory.
    #[test]
    fn loads_are_shared_out_among_the_nodes_that_served_them() {
        let stat = TaskStat { cpu: CpuId(2), ..TaskStat::default() };
        let mut task = Task::new(TaskId(1), AppId(0), 7, 7, &stat, CpuSet::single(CpuId(2)));
        let memory =
            Memory::new(crate::sense::memory::Options::default(), &crate::FsRoot::at("/proc/nonexistent"), true);
        let (nodes, node_of) = ([NodeId(0), NodeId(1)], BTreeMap::from([(CpuId(2), NodeId(1))]));
        task.share_loads(&nodes, &node_of, None);
        assert_eq!(task.sample(&memory).touches_by_node, None, "nothing is counted");
        for (local, remote, expected) in [(10, 4, (4, 10)), (11, 9, (9, 11))] {
            task.count(Signal::LocalDram, Count::exact(local));
            task.count(Signal::Remote, Count::exact(remote));
            task.share_loads(&nodes, &node_of, None);
            let expected = vec![(NodeId(0), expected.0), (NodeId(1), expected.1)];
            assert_eq!(task.sample(&memory).touches_by_node, Some(expected));
        }
        // On a CPU without a node, local loads are unknown: they are reported later, if at all.
        task.count(Signal::LocalDram, Count::exact(50));
        task.share_loads(&nodes, &BTreeMap::new(), None);
        assert_eq!(task.sample(&memory).touches_by_node, Some(vec![(NodeId(0), 9), (NodeId(1), 11)]));
    }
}
