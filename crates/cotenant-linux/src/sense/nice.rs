//! The scope of a nice value: the kernel shares CPU time by control group, then without a group by session
//! (`sched_autogroup_enabled`), and only within these by nice value and scheduling class.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::deadline::{Progress, Work};
use crate::sys::cgroups;
use cotenant_model::proc_text::TaskStat;
use cotenant_model::text::name;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `SCHED_IDLE`.
const IDLE: u32 = 5;

/// The session of processes without a session since boot, whose file is empty. Others count from 1.
const ROOT_SESSION: u64 = 0;

/// Limits of examined threads of a process, and processes of a program.
const THREADS: usize = 256;
const PROCESSES: usize = 256;

/// A thread below this fraction of its process's average run time does not count.
const BUSY: u64 = 20;

/// Time limit of a comparison.
const PATIENCE: Duration = Duration::from_secs(2);

/// The source of a process's CPU time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Share {
    /// The control group with a share of CPU time.
    group: String,
    /// Its session, if that has a share.
    autogroup: Option<u64>,
}

/// How a process gets its CPU time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight {
    low: Option<Low>,
    share: Share,
}

/// How it yields by nice values or classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Low {
    /// The lowest of its threads' nice values; `SCHED_IDLE` is `None`.
    nice: Option<i32>,
    /// Whether all of them are low.
    all: bool,
}

impl Weight {
    /// For an existing process.
    pub fn of(fs: &FsRoot, pid: u32) -> Option<Self> {
        Machine::new(fs).weight(pid)
    }

    /// Whether it yields by nice values or classes of running threads.
    pub fn is_low(&self) -> bool {
        self.low.is_some()
    }

    /// That it is meant to yield to another one without effect, for people: `gzip is at nice 19, which has no effect on
    /// postgres: other autogroup`.
    pub fn in_vain(&self, low: &str, (high, other): (&str, &Self)) -> Option<String> {
        let why = Some(self).filter(|own| own.is_low())?.share.apart(&other.share)?;
        Some(format!("{low} {}, which has no effect on {high}: {why}", self.at()))
    }

    /// Its priority for people: `is at nice 19`.
    pub fn at(&self) -> String {
        let Some(Low { nice, all }) = self.low else { return "is not low".to_owned() };
        let at = nice.map_or_else(|| "under SCHED_IDLE".to_owned(), |nice| format!("at nice {nice}"));
        format!("{} {at}", if all { "is" } else { "has threads" })
    }

    /// The scope of that, for people.
    pub fn place(&self) -> String {
        let group = || format!("the control group {}", name(self.share.group.as_bytes()));
        let session = self.share.autogroup.filter(|id| *id != ROOT_SESSION);
        session.map_or_else(group, |id| format!("autogroup {id}"))
    }
}

impl Share {
    /// Why nice values have no effect on another process; `None` if they have.
    fn apart(&self, other: &Self) -> Option<&'static str> {
        match () {
            () if self.group != other.group => Some("other control group"),
            // There a process is weighed against whole sessions.
            () if self.autogroup == Some(ROOT_SESSION) => None,
            () if self.autogroup != other.autogroup => Some("other autogroup"),
            () => None,
        }
    }
}

/// Whether a process gets its CPU time by its session.
pub fn is_by_session(fs: &FsRoot, pid: u32) -> bool {
    Machine::new(fs).share(pid).is_some_and(|share| share.autogroup.is_some())
}

/// A program's name and its processes.
pub type Program = (String, Vec<u32>);

/// [`Weight::in_vain`] of each of these programs to each of those: each of its processes counts, as far as a limit.
pub fn in_vain(fs: &FsRoot, low: &[Program], high: &[Program]) -> BTreeSet<String> {
    let machine = Machine::new(fs);
    let weights = |programs: &[Program]| -> BTreeSet<(String, Weight)> {
        let each = programs.iter().flat_map(|(name, pids)| pids.iter().take(PROCESSES).map(move |pid| (name, *pid)));
        each.filter_map(|(name, pid)| Some((name.clone(), machine.weight(pid)?))).collect()
    };
    let mut low = weights(low);
    low.retain(|(_, weight)| weight.is_low());
    if low.is_empty() {
        return BTreeSet::new(); // most often
    }
    let high = weights(high);
    let pairs = low.iter().flat_map(|low| high.iter().map(move |high| (low, high)));
    pairs.filter_map(|((low, weight), (high, other))| weight.in_vain(low, (high, other))).collect()
}

/// [`Weight::in_vain`] of two processes.
pub fn remark(fs: &FsRoot, (low, low_pid): (&str, u32), (high, high_pid): (&str, u32)) -> Option<String> {
    in_vain(fs, &[(low.to_owned(), vec![low_pid])], &[(high.to_owned(), vec![high_pid])]).pop_first()
}

/// [`in_vain`] of programs of this machine, in the background: there may be many processes.
#[derive(Debug, Default)]
pub struct Comparison(Option<Work<BTreeSet<String>>>);

impl Comparison {
    /// Begins, unless one goes on.
    pub fn begin(&mut self, low: Vec<Program>, high: Vec<Program>) {
        if self.0.is_none() {
            self.0 = Work::begin(PATIENCE, move || in_vain(&FsRoot::live(), &low, &high));
        }
    }

    /// Results of a finished comparison.
    pub fn take(&mut self) -> Option<BTreeSet<String>> {
        match self.0.as_ref()?.progress() {
            Progress::GoesOn => None,
            Progress::Done(found) => {
                self.0 = None;
                Some(found)
            }
            Progress::GivenUp => {
                self.0 = None;
                None
            }
        }
    }
}

/// The number of a session's group and its nice value, from `/proc/PID/autogroup`.
pub fn autogroup(text: &str) -> Option<(u64, i32)> {
    let (id, nice) = text.trim().strip_prefix("/autogroup-")?.split_once(" nice ")?;
    Some((id.parse().ok()?, nice.parse().ok()?))
}

/// How a machine shares CPU time.
struct Machine<'a> {
    fs: &'a FsRoot,
    root: PathBuf,
    /// Mount points of the hierarchy with the controller, of version 1; and version 2.
    first: Option<PathBuf>,
    second: Option<PathBuf>,
    by_session: bool,
}

impl<'a> Machine<'a> {
    fn new(fs: &'a FsRoot) -> Self {
        let root = fs.path("/");
        let [first, second] =
            [Some("cpu"), None].map(|kind| Some(root.join(cgroups::mounts(&root, kind).into_iter().next()?)));
        let by_session = bounded::text(fs.path("/proc/sys/kernel/sched_autogroup_enabled"), Limit::Value);
        let by_session = by_session.is_ok_and(|on| on.trim() == "1");
        Self { fs, root, first, second, by_session }
    }

    /// `None` without such a process.
    fn weight(&self, pid: u32) -> Option<Weight> {
        let whole = self.stat(&format!("/proc/{pid}/stat"))?;
        Some(Weight { low: self.low(pid, &whole), share: self.share(pid)? })
    }

    fn low(&self, pid: u32, whole: &TaskStat) -> Option<Low> {
        let is_low = |stat: &TaskStat| stat.policy == IDLE || stat.nice > 0;
        let nice = |stat: &TaskStat| (stat.policy != IDLE).then_some(stat.nice);
        if whole.threads <= 1 {
            return is_low(whole).then(|| Low { nice: nice(whole), all: true });
        }
        let threads = self.fs.numbered(&format!("/proc/{pid}/task"), "").ok()?;
        let each = threads.iter().take(THREADS).filter_map(|tid| self.stat(&format!("/proc/{pid}/task/{tid}/stat")));
        let runs = |stat: &TaskStat| stat.ticks.saturating_mul(BUSY * threads.len() as u64) >= whole.ticks;
        let busy: Vec<TaskStat> = each.filter(runs).collect();
        let all = busy.iter().all(is_low);
        // `SCHED_IDLE` is below all nice values.
        let lowest = busy.iter().filter(|stat| is_low(stat)).max_by_key(|stat| nice(stat).unwrap_or(i32::MAX));
        lowest.map(|stat| Low { nice: nice(stat), all })
    }

    fn stat(&self, path: &str) -> Option<TaskStat> {
        TaskStat::parse(&bounded::read(self.fs.path(path), Limit::Value).ok()?).ok()
    }

    fn share(&self, pid: u32) -> Option<Share> {
        let (group, is_root) = self.group(pid);
        let autogroup = if is_root && self.by_session {
            let text = bounded::text(self.fs.path(&format!("/proc/{pid}/autogroup")), Limit::Value).ok()?;
            Some(if text.is_empty() { ROOT_SESSION } else { autogroup(&text)?.0 })
        } else {
            None
        };
        Some(Share { group, autogroup })
    }

    /// The control group that shares CPU time, and whether it is the root, whose members share it by session.
    fn group(&self, pid: u32) -> (String, bool) {
        let of = |mount: &Option<PathBuf>, controller| {
            Some((mount.clone()?, cgroups::of(&self.root, &pid.to_string(), controller)?))
        };
        if let Some((mount, path)) = of(&self.first, Some("cpu")) {
            let is_root = mount.join(path.trim_start_matches('/')).join("release_agent").exists(); // the root's alone
            return (path, is_root);
        }
        let Some((mount, path)) = of(&self.second, None) else { return ("/".to_owned(), true) };
        // A group without the controller shares its parent's.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        let shares = groups.map(|group| (group, mount.join(group))).find(|(_, at)| at.join("cpu.weight").exists());
        shares.map_or_else(|| ("/".to_owned(), true), |(group, _)| (format!("/{}", group.display()), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    struct Files(TempDir);

    fn stat([nice, policy]: [i32; 2], threads: usize, ticks: u64) -> String {
        let zeros = |n| vec!["0"; n].join(" ");
        format!("7 (x) S {} {ticks} 0 0 0 0 {nice} {threads} {} {policy} 0 0\n", zeros(10), zeros(20))
    }

    impl Files {
        fn new(v2: bool, autogroup: bool) -> Self {
            let dir = TempDir::new("nice");
            let mounts = if v2 { "none /cg cgroup2 rw 0 0\n" } else { "none /cg cgroup rw,cpu 0 0\n" };
            dir.write("proc/self/mounts", mounts);
            dir.write("proc/sys/kernel/sched_autogroup_enabled", if autogroup { "1\n" } else { "0\n" });
            dir.write(if v2 { "cg/cgroup.procs" } else { "cg/release_agent" }, "");
            Self(dir)
        }

        fn process(&self, pid: u32, nice: i32, policy: u32, group: &str, session: u64) {
            self.0.write(&format!("proc/{pid}/stat"), stat([nice, policy as i32], 1, 0));
            let list = if self.0.path().join("cg/release_agent").exists() { "3:cpu:" } else { "0::" };
            self.0.write(&format!("proc/{pid}/cgroup"), format!("{list}{group}\n"));
            let autogroup = format!("/autogroup-{session} nice 0\n");
            self.0.write(&format!("proc/{pid}/autogroup"), if session == ROOT_SESSION { "" } else { &autogroup });
        }

        /// Nice value and ticks of each thread.
        fn threads(&self, pid: u32, threads: &[(i32, u64)]) {
            let _ = std::fs::remove_dir_all(self.0.path().join(format!("proc/{pid}/task")));
            let all = threads.iter().map(|(_, ticks)| ticks).sum();
            self.0.write(&format!("proc/{pid}/stat"), stat([threads[0].0, 0], threads.len(), all));
            for (tid, (nice, ticks)) in (pid..).zip(threads) {
                self.0.write(&format!("proc/{pid}/task/{tid}/stat"), stat([*nice, 0], threads.len(), *ticks));
            }
        }

        fn remark(&self) -> Option<String> {
            remark(&FsRoot::at(self.0.path()), ("gzip", 2), ("postgres", 1))
        }
    }

    /// Holds run/busy.
    #[test]
    fn nice_counts_inside_a_session_only() {
        let text = |at, why| Some(format!("gzip is {at}, which has no effect on postgres: {why}"));
        for v2 in [false, true] {
            let machine = Files::new(v2, true);
            machine.process(1, 0, 0, "/", 7);
            machine.process(2, 19, 0, "/", 8);
            assert_eq!(machine.remark(), text("at nice 19", "other autogroup"));
            machine.process(2, 19, 0, "/", 7);
            assert_eq!(machine.remark(), None, "the same session");
            machine.process(2, 0, IDLE, "/", 8);
            assert_eq!(machine.remark(), text("under SCHED_IDLE", "other autogroup"));
            machine.process(2, 0, 0, "/", 8);
            assert_eq!(machine.remark(), None, "it does not mean to give way");
            machine.process(1, 0, 0, "/", ROOT_SESSION);
            machine.process(2, 19, 0, "/", 8);
            assert_eq!(machine.remark(), text("at nice 19", "other autogroup"));
            machine.process(1, 0, 0, "/", 7);
            machine.process(2, 19, 0, "/", ROOT_SESSION);
            assert_eq!(machine.remark(), None, "it weighs less than any session");
            let fs = FsRoot::at(machine.0.path());
            assert_eq!(Weight::of(&fs, 2).unwrap().place(), "the control group /");
            assert!(is_by_session(&fs, 2));
            let without = Files::new(v2, false);
            without.process(1, 0, 0, "/", 7);
            without.process(2, 19, 0, "/", 8);
            assert_eq!(without.remark(), None, "sessions have no shares");
        }
    }

    /// Holds run/busy.
    #[test]
    fn nice_counts_inside_a_control_group_only() {
        let apart = Some("gzip is at nice 5, which has no effect on postgres: other control group".to_owned());
        let machine = Files::new(true, true);
        for group in ["system.slice/pg", "user.slice"] {
            machine.0.write(&format!("cg/{group}/cpu.weight"), "100\n");
        }
        machine.0.write("cg/system.slice/cpu.weight", "100\n");
        machine.process(1, 0, 0, "/system.slice/pg", 7);
        machine.process(2, 5, 0, "/user.slice/scope", 7);
        assert_eq!(machine.remark(), apart);
        // The controller is off below: both are of one group, whatever their sessions.
        machine.process(1, 0, 0, "/user.slice/other", 8);
        assert_eq!(machine.remark(), None);
        let first = Files::new(false, true);
        first.process(1, 0, 0, "/pg", 7);
        first.process(2, 5, 0, "/", 7);
        assert_eq!(first.remark(), apart);
    }

    /// Holds run/busy.
    #[test]
    fn nice_values_of_threads_and_of_every_process_count() {
        let machine = Files::new(true, true);
        machine.process(1, 0, 0, "/", 7);
        machine.process(2, 0, 0, "/", 8);
        let remark = |threads: &[(i32, u64)]| {
            machine.threads(2, threads);
            machine.remark()
        };
        let text = |at| Some(format!("gzip {at}, which has no effect on postgres: other autogroup"));
        assert_eq!(remark(&[(0, 50), (0, 50)]), None);
        assert_eq!(remark(&[(0, 50), (19, 50), (5, 50)]), text("has threads at nice 19"));
        assert_eq!(remark(&[(0, 0), (19, 50), (19, 50)]), text("is at nice 19"), "the first one only waits");
        assert_eq!(remark(&[(0, 100), (19, 1)]), None, "it hardly runs");
        machine.process(3, 0, 0, "/", 7);
        machine.process(4, 10, 0, "/", 8);
        let programs = [("gzip".to_owned(), vec![2, 4, 99]), ("xz".to_owned(), vec![3])];
        let found = in_vain(&FsRoot::at(machine.0.path()), &programs, &[("postgres".to_owned(), vec![98, 1])]);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), text("is at nice 10").into_iter().collect::<Vec<_>>());
    }
}
