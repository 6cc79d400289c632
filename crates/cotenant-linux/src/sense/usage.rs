//! Programs using this machine, from `/proc` without privileges: looks, and periods between them.
//!
//! A look reads a line of each process, and the control group and waits of those that have run since the previous one.
//! Processes hidden by `hidepid` or a pid namespace only show in `/proc/stat`. A worker thread reads, because a server
//! of `/proc` (lxcfs in containers) may hang.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::deadline::{Progress, Work, with_deadline};
use crate::sense::listening;
use crate::sys;
use crate::sys::cgroups::group_in;
use cotenant_model::CpuSet;
use cotenant_model::proc_text::{self, SchedStat, TaskStat};
use cotenant_model::usage::{self, Look, Process, Usage};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a look.
const PATIENCE: Duration = Duration::from_secs(2);

/// Least time between two informative looks: 30 clock ticks on most machines.
const MOMENT: Duration = Duration::from_millis(300);

/// Interval between two looks, and as a multiple of the last one's duration: with many processes a look costs more, and
/// may use 0.5 % of a CPU.
const EVERY: Duration = Duration::from_secs(10);
const SHARE: u32 = 300;

/// Threads whose waits are read in a look, for processes that have run since the previous one: 10 us each.
const THREADS: u32 = 4_096;

/// Looks now; with `before`, idle processes are not read again.
///
/// # Errors
/// `/proc` cannot be read.
pub fn look(fs: &FsRoot, before: Option<&Look>) -> io::Result<Look> {
    let read = |path: &str| bounded::read(fs.path(path), Limit::Machine);
    let mut look = Look { ticks_per_s: sys::ticks_per_second() as f64, ..Look::default() };
    let mut threads_left = THREADS;
    for pid in fs.numbered("/proc", "")? {
        let Some(stat) = bounded::read(fs.path(&format!("/proc/{pid}/stat")), Limit::Value).ok() else { continue };
        let Ok(stat) = TaskStat::parse(&stat) else { continue };
        let known = before.and_then(|before| before.processes.get(&pid)).filter(|known| known.has_rested(&stat));
        let cgroup = known.map_or_else(|| cgroup(fs, pid), |known| known.cgroup().to_owned());
        // A process that has not run has ended no wait.
        let waits = match known.and_then(Process::waits) {
            Some(known) => Some(known.clone()),
            None => waits(fs, pid, stat.threads, &mut threads_left).map(Arc::new),
        };
        look.processes.insert(pid, Process::new(stat, &cgroup).with_waits(waits));
    }
    let stat = read("/proc/stat")?;
    proc_text::busy_ticks(&stat, &mut look.busy).map_err(io::Error::other)?;
    look.stolen = proc_text::stolen_ticks(&stat).map_or(0, |[stolen, _]| stolen);
    look.pressure_us = read("/proc/pressure/cpu").ok().and_then(|text| proc_text::pressure_us(&text).ok());
    let uptime = read("/proc/uptime")?;
    let uptime = str::from_utf8(&uptime).ok().and_then(|text| text.split(' ').next()?.parse().ok());
    look.at_s = uptime.ok_or(io::ErrorKind::InvalidData)?;
    Ok(look)
}

/// CPU waits of each thread of a process; `None` if not reported, if the process has ended, or beyond the limit of
/// threads.
fn waits(fs: &FsRoot, pid: u32, threads: u32, left: &mut u32) -> Option<BTreeMap<u32, u64>> {
    *left = left.checked_sub(threads)?;
    let tids = if threads > 1 { fs.numbered(&format!("/proc/{pid}/task"), "").ok()? } else { vec![pid] };
    let of = |tid: u32| {
        let text = bounded::read(fs.path(&format!("/proc/{pid}/task/{tid}/schedstat")), Limit::Value).ok()?;
        Some((tid, SchedStat::parse(&text).ok()?.wait_ns))
    };
    let waits: BTreeMap<u32, u64> = tids.into_iter().filter_map(of).collect();
    (!waits.is_empty()).then_some(waits)
}

/// The control group for CPU time.
fn cgroup(fs: &FsRoot, pid: u32) -> String {
    let read = bounded::text(fs.path(&format!("/proc/{pid}/cgroup")), Limit::Value);
    let Ok(groups) = read else { return "/".to_owned() }; // it has just ended
    // A version 2 may be mounted beside version 1 without processes in its groups.
    let second = group_in(&groups, None).filter(|path| path != "/");
    second.or_else(|| group_in(&groups, Some("cpu"))).unwrap_or_else(|| "/".to_owned())
}

/// Processes whose use is not by others.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// With their descendants; this process is always one.
    pub pids: BTreeSet<u32>,
    /// Protected ones: what their clients on this machine use is their load.
    pub servers: BTreeSet<u32>,
}

/// A look, and the clients of servers that have run since the previous one.
type Seen = (Look, BTreeSet<u32>);

fn see(before: Option<&Look>, own: &Own) -> Option<Seen> {
    let now = look(&FsRoot::live(), before).ok()?;
    let mut clients = BTreeSet::new();
    if let Some(before) = before.filter(|_| !own.servers.is_empty()) {
        let used = usage::used(before, &now).into_iter();
        let running = used.filter(|(pid, ticks)| *ticks > 0 && !own.pids.contains(pid)).map(|(pid, _)| pid);
        clients = listening::clients(&own.servers, running);
    }
    Some((now, clients))
}

/// Observes this machine while any holder exists.
#[derive(Debug)]
pub struct Watch {
    cpus: CpuSet,
    last: Option<Arc<Look>>,
    /// Our own processes and clients at that look: they may have ended since.
    own: BTreeSet<u32>,
    work: Option<Work<(Option<Seen>, Duration)>>,
    next: Instant,
    /// All stretches so far.
    whole: Option<Usage>,
}

impl Watch {
    /// Of these CPUs; before the first look.
    pub fn new(cpus: &CpuSet) -> Self {
        let cpus = cpus.clone();
        Self { cpus, last: None, own: BTreeSet::new(), work: None, next: Instant::now(), whole: None }
    }

    /// Current use of this machine by others: waits for one period. `None` if unknown. The measurement begins now.
    pub fn moment(&mut self, own: &Own) -> Option<Usage> {
        let begun = Instant::now();
        self.catch_up(own);
        thread::sleep(MOMENT.saturating_sub(begun.elapsed()));
        self.catch_up(own);
        self.whole.take()
    }

    /// Looks and waits for the result: ends one period and begins another.
    pub fn catch_up(&mut self, own: &Own) -> Option<Usage> {
        let before = self.last.clone();
        self.work = None;
        let asked = own.clone();
        let seen = with_deadline(PATIENCE, move || see(before.as_deref(), &asked)).flatten();
        self.next = Instant::now() + EVERY;
        self.take(seen, own)
    }

    /// Use in the last period if one is over; starts a look when due. Never waits.
    pub fn tend(&mut self, own: impl FnOnce() -> Own) -> Option<Usage> {
        let now = Instant::now();
        match self.work.as_ref().map(Work::progress) {
            Some(Progress::GoesOn) => None,
            Some(Progress::GivenUp) => {
                (self.work, self.last) = (None, None);
                None
            }
            Some(Progress::Done((seen, took))) => {
                self.work = None;
                self.next = now + EVERY.max(took * SHARE);
                self.take(seen, &own())
            }
            None if now < self.next => None,
            None => {
                let (before, own) = (self.last.clone(), own());
                let work = move || {
                    let begun = Instant::now();
                    (see(before.as_deref(), &own), begun.elapsed())
                };
                self.work = Work::begin(PATIENCE, work);
                self.next = now + EVERY;
                None
            }
        }
    }

    /// Total use since the beginning.
    pub fn whole(&self) -> Option<&Usage> {
        self.whole.as_ref()
    }

    fn take(&mut self, seen: Option<Seen>, own: &Own) -> Option<Usage> {
        let (look, clients) = seen.unzip();
        let before = std::mem::replace(&mut self.last, look.map(Arc::new));
        let now = own.pids.iter().copied().chain([std::process::id()]).chain(clients.unwrap_or_default()).collect();
        let then = std::mem::replace(&mut self.own, now);
        let after = self.last.as_deref()?;
        let all = after.busy.iter().all(|(cpu, _)| self.cpus.contains(*cpu));
        let own = |pid| self.own.contains(&pid) || then.contains(&pid);
        let usage = Usage::between(before.as_deref()?, after, (!all).then_some(&self.cpus), own)?;
        self.whole = Some(self.whole.as_ref().map_or_else(|| usage.clone(), |whole| whole.and(&usage)));
        Some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::net::TcpListener;
    use std::path::Path;
    use std::process::{Command, Stdio};

    fn process(root: &TempDir, pid: u32, comm: &str, start: u64, [ticks, ended]: [u64; 2], cgroup: &str) {
        let line = format!("{pid} ({comm}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 {ended} 0 20 0 1 0 {start} 0 0 0 ");
        root.write(&format!("proc/{pid}/stat"), format!("{line}{}\n", ["0"; 30].join(" ")));
        root.write(&format!("proc/{pid}/cgroup"), cgroup);
    }

    fn machine(root: &TempDir, at_s: f64, busy: [u64; 2], stolen: u64) {
        let [a, b] = busy;
        let stat = format!(
            "cpu  {} 0 0 9 0 0 0 {stolen} 0 0\ncpu0 {a} 0 0 0 0 0 0 0 0 0\ncpu1 {b} 0 0 0 0 0 0 0 0 0\nintr 1\n",
            a + b
        );
        root.write("proc/stat", stat);
        root.write("proc/uptime", format!("{at_s} 9.00\n"));
    }

    /// Holds run/busy.
    #[test]
    fn a_busy_machine_is_known_by_program_and_group() {
        let root = TempDir::new("usage");
        let fs = FsRoot::at(root.path());
        let hertz = sys::ticks_per_second();
        machine(&root, 100.0, [0, 0], 0);
        process(&root, 7, "rustc", 1, [10, 0], "0::/user.slice/a.scope\n");
        process(&root, 8, "qemu x", 1, [0, 0], "4:cpu,cpuacct:/docker/b\n0::/\n");
        process(&root, 9, "idle", 1, [5, 0], "0::/c\n");
        root.write("proc/7/task/7/schedstat", "1 1000000000 1\n");
        root.write("proc/9/task/9/schedstat", "1 5000000000 1\n");
        root.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
        let before = look(&fs, None).unwrap();
        machine(&root, 101.0, [hertz, hertz], hertz / 5);
        process(&root, 7, "rustc", 1, [10 + hertz / 2, hertz * 2 / 5], "0::/user.slice/a.scope\n");
        process(&root, 8, "qemu x", 1, [hertz * 7 / 10, 0], "4:cpu,cpuacct:/docker/b\n0::/\n");
        root.write("proc/9/cgroup", "0::/not-read\n");
        root.write("proc/9/task/9/schedstat", "not read\n");
        root.write("proc/7/task/7/schedstat", "1 1250000000 1\n");
        root.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n");
        let after = look(&fs, Some(&before)).unwrap();
        assert_eq!(after.processes[&9].cgroup(), "/c", "it has not run since");
        assert_eq!(after.processes[&9].waits(), before.processes[&9].waits(), "it has not run since");
        let usage = Usage::between(&before, &after, None, |_| false).unwrap();
        let found: Vec<(&str, &str, f64, Option<f64>)> =
            usage.programs.iter().map(|one| (&*one.program, &*one.cgroup, one.cpus, one.waiting)).collect();
        assert_eq!(found, [("rustc", "/user.slice/a.scope", 0.9, Some(0.25)), ("qemu x", "/docker/b", 0.7, None)]);
        assert_eq!(usage.pressure, Some(0.5));
        assert_eq!(
            usage.text(),
            "1.8 of 2 CPUs by other programs: rustc 0.9, qemu x 0.7, others 0.2; 0.2 taken by the host (steal)"
        );
        root.write("proc/uptime", "soon\n");
        assert!(look(&fs, None).is_err());
    }

    #[test]
    fn waits_of_so_many_threads_are_read() {
        let root = TempDir::new("usage-waits");
        let fs = FsRoot::at(root.path());
        for tid in [7, 8, 9] {
            root.write(&format!("proc/7/task/{tid}/schedstat"), format!("1 {tid} 1\n"));
        }
        let mut left = 4;
        assert_eq!(waits(&fs, 7, 3, &mut left), Some(BTreeMap::from([(7, 7), (8, 8), (9, 9)])));
        assert_eq!((waits(&fs, 7, 3, &mut left), left), (None, 1));
        assert_eq!(waits(&fs, 7, 1, &mut left), Some(BTreeMap::from([(7, 7)])), "a smaller one has its turn");
    }

    /// On this machine: what spins is ours, or another program's.
    /// Holds run/busy.
    #[test]
    fn who_spins_here_is_seen() {
        let mut spins = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let pid = spins.id();
        let mut used = [0.0; 2];
        let fs = FsRoot::live();
        let begin = look(&fs, None).unwrap();
        cotenant_testing::eventually("it has run", || {
            let now = look(&fs, Some(&begin)).unwrap();
            let own = |owner: bool| {
                Usage::between(&begin, &now, None, |one| owner && one == pid)
                    .map_or(0.0, |usage| usage.own * usage.seconds)
            };
            used = [own(true), own(false)];
            used[0] > 0.05
        });
        spins.kill().unwrap();
        spins.wait().unwrap();
        assert!(used[1] == 0.0, "{used:?}");
    }

    /// A client of ours, which is no child of this process, spins.
    /// Holds run/busy.
    #[test]
    fn what_clients_use_is_the_servers_load() {
        let folder = TempDir::new("usage-client");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let path = folder.path().join("a-client");
        let Some(bash) = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| Path::new(path).exists()) else {
            return eprintln!("skipped: there is no bash");
        };
        std::os::unix::fs::symlink(bash, &path).unwrap();
        let me = std::process::id();
        let spins = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; while kill -0 {me}; do :; done");
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" -c \"$1\" >/dev/null 2>&1 & echo $!"]).arg(&path).arg(spins).stdin(Stdio::null());
        let started = shell.output().unwrap();
        let pid: u32 = String::from_utf8(started.stdout).unwrap().trim().parse().unwrap();
        let _connection = listener.accept().unwrap();
        let is_load = |servers: &[u32]| {
            let mut watch = Watch::new(&(0..4096).map(cotenant_model::CpuId).collect());
            let own = Own { servers: servers.iter().copied().collect(), ..Own::default() };
            watch.catch_up(&own);
            let begin = watch.last.clone().unwrap();
            let ticks = |look: &Look| usage::used(&begin, look).get(&pid).copied().unwrap_or_default();
            cotenant_testing::eventually("it has run", || ticks(&look(&FsRoot::live(), Some(&begin)).unwrap()) > 0);
            watch.catch_up(&own);
            watch.own.contains(&pid)
        };
        let found = [is_load(&[]), is_load(&[me])];
        sys::kill(pid, libc::SIGKILL).unwrap();
        assert_eq!(found, [false, true]);
    }

    #[test]
    fn a_watch_looks_and_adds_up() {
        let cpus = (0..4096).map(cotenant_model::CpuId).collect();
        let mut watch = Watch::new(&cpus);
        let moment = watch.moment(&Own::default()).unwrap();
        assert!(moment.seconds >= 0.25 && moment.of_cpus > 0, "{moment:?}");
        assert_eq!((watch.tend(Own::default), watch.whole()), (None, None), "it is not time to");
        watch.next = Instant::now();
        cotenant_testing::eventually("the next stretch is over", || watch.tend(Own::default).is_some());
        assert!(watch.whole().is_some_and(|whole| whole.seconds > 0.0));
    }
}
