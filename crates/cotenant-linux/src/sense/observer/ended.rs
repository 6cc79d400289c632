//! CPU time of processes and threads that ended before they were counted.
//!
//! Threads are counted when they stay, so a build with processes of milliseconds would seem idle. The kernel adds the
//! time of ended children to their parents', and that of threads to their processes'. Use beyond the counted threads
//! belongs to these, or to excluded threads such as real-time ones.

use super::task::Task;
use crate::sense::processes::Process;
use crate::sys;
use cotenant_model::proc_text::TaskStat;
use cotenant_model::usage::{self, Look};
use cotenant_model::{AppId, CpuId, Time, Topology};
use std::collections::BTreeMap;
use std::time::Duration;

/// Interval between reads of processes, and as a multiple of the last read's CPU time: at most a thousandth of a CPU.
const EVERY: Duration = Duration::from_secs(1);
const SHARE: u32 = 1_000;

/// Error of a process's reading in clock ticks: user and system time are truncated separately.
const TICKS: u64 = 2;

/// CPU time of applications, including ended parts.
#[derive(Debug)]
pub struct Ended {
    /// The machine's CPU time, an upper limit of use.
    cpus: Vec<(CpuId, u64)>,
    due: Time,
    last: Option<Look>,
    apps: BTreeMap<AppId, Sums>,
}

/// Of an application, so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Clock ticks used by its processes, ended ones included.
    used: u64,
    /// Counted time of ended threads, nanoseconds.
    gone_ns: u64,
    ended_ns: u64,
}

impl Ended {
    /// On this machine; before the first look.
    pub fn new(topology: &Topology) -> Self {
        let cpus = topology.cpus().iter().map(|cpu| (cpu.id, 0)).collect();
        Self { cpus, due: Time::default(), last: None, apps: BTreeMap::new() }
    }

    /// Ends the observation of a thread.
    pub fn gone(&mut self, task: &Task) {
        self.apps.entry(task.info.app).or_default().gone_ns += task.counted_ns();
    }

    /// Ends the observation of an application.
    pub fn forget(&mut self, app: AppId) {
        self.apps.remove(&app);
    }

    /// CPU time of an application's processes and threads that ended before they were counted, nanoseconds; `None`
    /// before the first read.
    pub fn of(&self, app: AppId) -> Option<u64> {
        Some(self.apps.get(&app)?.ended_ns).filter(|_| self.last.is_some())
    }

    /// Reads the processes when due.
    pub fn look(&mut self, processes: &BTreeMap<u32, Process>, tasks: &[Task], at: Time) {
        if at < self.due {
            return;
        }
        let begin = sys::thread_cpu_time();
        let ticks_per_s = sys::ticks_per_second();
        let at_s = sys::boot_ticks() as f64 / ticks_per_s as f64;
        let busy = self.cpus.clone();
        let mut now = Look { at_s, busy, ticks_per_s: ticks_per_s as f64, ..Look::default() };
        now.processes.extend(processes.iter().filter_map(|(pid, process)| Some((*pid, read(process)?))));
        let used = self.last.as_ref().map(|last| usage::used(last, &now)).unwrap_or_default();
        let mut counted: BTreeMap<AppId, u64> = BTreeMap::new();
        for task in tasks {
            *counted.entry(task.info.app).or_default() += task.counted_ns();
        }
        let mut slack: BTreeMap<AppId, u64> = BTreeMap::new();
        for (pid, process) in processes {
            self.apps.entry(process.app).or_default().used += used.get(pid).copied().unwrap_or_default();
            *slack.entry(process.app).or_default() += TICKS;
        }
        for (app, sums) in &mut self.apps {
            let of = |all: &BTreeMap<AppId, u64>| all.get(app).copied().unwrap_or_default();
            let used_ns = sums.used.saturating_sub(of(&slack)) * (1_000_000_000 / ticks_per_s);
            sums.ended_ns = sums.ended_ns.max(used_ns.saturating_sub(sums.gone_ns + of(&counted)));
        }
        self.last = Some(now);
        self.due = at + EVERY.max(sys::thread_cpu_time().saturating_sub(begin) * SHARE);
    }
}

fn read(process: &Process) -> Option<usage::Process> {
    let mut buffer = [0; 1024];
    let file = process.open_file_of_all("stat").ok()?;
    let got = std::os::unix::fs::FileExt::read_at(&file, &mut buffer, 0).ok()?;
    Some(usage::Process::new(TaskStat::parse(&buffer[..got]).ok()?, ""))
}
