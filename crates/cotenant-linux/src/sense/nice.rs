//! Against which processes a nice value counts: the kernel portions out CPU time by control group, then by session
//! where there is no group (`sched_autogroup_enabled`), and only inside of these by nice value and scheduling class.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sys::cgroups;
use cotenant_model::proc_text::TaskStat;
use cotenant_model::text::name;
use std::path::Path;

/// `SCHED_IDLE`.
const IDLE: u32 = 5;

/// The session of processes that have not begun one since the kernel started, whose file is empty. Others count from 1.
const ROOT_SESSION: u64 = 0;

/// By what a process gets its CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its nice value, of its first thread; `SCHED_IDLE` is `None`.
    nice: Option<i32>,
    /// The control group that has a share of CPU time.
    group: String,
    /// Its session, where that has a share.
    autogroup: Option<u64>,
}

impl Weight {
    /// Of a process that is there.
    pub fn of(fs: &FsRoot, pid: u32) -> Option<Self> {
        let stat = bounded::read(fs.path(&format!("/proc/{pid}/stat")), Limit::Value).ok()?;
        let stat = TaskStat::parse(&stat).ok()?;
        let (group, is_root) = group(fs, pid);
        let autogroup = if is_root && by_session(fs) {
            let text = bounded::text(fs.path(&format!("/proc/{pid}/autogroup")), Limit::Value).ok()?;
            Some(if text.is_empty() { ROOT_SESSION } else { autogroup(&text)?.0 })
        } else {
            None
        };
        Some(Self { nice: (stat.policy != IDLE).then_some(stat.nice), group, autogroup })
    }

    /// Whether it gives way, or means to, by its nice value or its class.
    pub fn is_low(&self) -> bool {
        self.nice.is_none_or(|nice| nice > 0)
    }

    /// Whether it has its CPU time by its session.
    pub fn is_by_session(&self) -> bool {
        self.autogroup.is_some()
    }

    /// That it means to give way to another one and does not, for people: `gzip is at nice 19, which has no effect on
    /// postgres: other autogroup`.
    pub fn in_vain(&self, low: &str, (high, other): (&str, &Self)) -> Option<String> {
        let why = Some(self).filter(|own| own.is_low())?.apart(other)?;
        Some(format!("{low} is {}, which has no effect on {high}: {why}", self.at()))
    }

    /// How low it is, as people read it.
    pub fn at(&self) -> String {
        self.nice.map_or_else(|| "under SCHED_IDLE".to_owned(), |nice| format!("at nice {nice}"))
    }

    /// Inside of what that counts, as people read it.
    pub fn place(&self) -> String {
        let group = || format!("the control group {}", name(self.group.as_bytes()));
        let session = self.autogroup.filter(|id| *id != ROOT_SESSION);
        session.map_or_else(group, |id| format!("autogroup {id}"))
    }

    /// Why neither means anything to another process; `None` where it does.
    fn apart(&self, other: &Self) -> Option<&'static str> {
        match () {
            () if self.group != other.group => Some("other control group"),
            // There a process weighs against whole sessions.
            () if self.autogroup == Some(ROOT_SESSION) => None,
            () if self.autogroup != other.autogroup => Some("other autogroup"),
            () => None,
        }
    }
}

/// [`Weight::in_vain`] of two processes.
pub fn remark(fs: &FsRoot, (low, low_pid): (&str, u32), (high, high_pid): (&str, u32)) -> Option<String> {
    Weight::of(fs, low_pid)?.in_vain(low, (high, &Weight::of(fs, high_pid)?))
}

/// The number of a session's group and its nice value, as `/proc/PID/autogroup` has them.
pub fn autogroup(text: &str) -> Option<(u64, i32)> {
    let (id, nice) = text.trim().strip_prefix("/autogroup-")?.split_once(" nice ")?;
    Some((id.parse().ok()?, nice.parse().ok()?))
}

fn by_session(fs: &FsRoot) -> bool {
    bounded::text(fs.path("/proc/sys/kernel/sched_autogroup_enabled"), Limit::Value).is_ok_and(|on| on.trim() == "1")
}

/// The control group by which CPU time is portioned out, and whether that is the root, whose members have theirs by
/// session.
fn group(fs: &FsRoot, pid: u32) -> (String, bool) {
    let root = fs.path("/");
    let of = |controller| {
        let mount = cgroups::mounts(&root, controller).into_iter().next()?;
        Some((root.join(mount), cgroups::of(&root, &pid.to_string(), controller)?))
    };
    if let Some((mount, path)) = of(Some("cpu")) {
        let is_root = mount.join(path.trim_start_matches('/')).join("release_agent").exists(); // the root's alone
        return (path, is_root);
    }
    let Some((mount, path)) = of(None) else { return ("/".to_owned(), true) };
    // A group without the controller shares that of the one around it.
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let shares = groups.map(|group| (group, mount.join(group))).find(|(_, at)| at.join("cpu.weight").exists());
    shares.map_or_else(|| ("/".to_owned(), true), |(group, _)| (format!("/{}", group.display()), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    struct Machine(TempDir);

    impl Machine {
        fn new(v2: bool, autogroup: bool) -> Self {
            let dir = TempDir::new("nice");
            let mounts = if v2 { "none /cg cgroup2 rw 0 0\n" } else { "none /cg cgroup rw,cpu 0 0\n" };
            dir.write("proc/self/mounts", mounts);
            dir.write("proc/sys/kernel/sched_autogroup_enabled", if autogroup { "1\n" } else { "0\n" });
            dir.write(if v2 { "cg/cgroup.procs" } else { "cg/release_agent" }, "");
            Self(dir)
        }

        fn process(&self, pid: u32, nice: i32, policy: u32, group: &str, session: u64) {
            let [before, after] = [15, 21].map(|n| vec!["0"; n].join(" "));
            let stat = format!("{pid} (x) S {before} {nice} {after} {policy} 0 0\n");
            self.0.write(&format!("proc/{pid}/stat"), stat);
            let list = if self.0.path().join("cg/release_agent").exists() { "3:cpu:" } else { "0::" };
            self.0.write(&format!("proc/{pid}/cgroup"), format!("{list}{group}\n"));
            let autogroup = format!("/autogroup-{session} nice 0\n");
            self.0.write(&format!("proc/{pid}/autogroup"), if session == ROOT_SESSION { "" } else { &autogroup });
        }

        fn remark(&self) -> Option<String> {
            remark(&FsRoot::at(self.0.path()), ("gzip", 2), ("postgres", 1))
        }
    }

    #[test]
    fn nice_counts_inside_a_session_only() {
        let text = |at, why| Some(format!("gzip is {at}, which has no effect on postgres: {why}"));
        for v2 in [false, true] {
            let machine = Machine::new(v2, true);
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
            let weight = Weight::of(&FsRoot::at(machine.0.path()), 2).unwrap();
            assert!(weight.is_by_session() && weight.place() == "the control group /", "{weight:?}");
            let without = Machine::new(v2, false);
            without.process(1, 0, 0, "/", 7);
            without.process(2, 19, 0, "/", 8);
            assert_eq!(without.remark(), None, "sessions have no shares");
        }
    }

    #[test]
    fn nice_counts_inside_a_control_group_only() {
        let apart = Some("gzip is at nice 5, which has no effect on postgres: other control group".to_owned());
        let machine = Machine::new(true, true);
        for group in ["system.slice/pg", "user.slice"] {
            machine.0.write(&format!("cg/{group}/cpu.weight"), "100\n");
        }
        machine.0.write("cg/system.slice/cpu.weight", "100\n");
        machine.process(1, 0, 0, "/system.slice/pg", 7);
        machine.process(2, 5, 0, "/user.slice/scope", 7);
        assert_eq!(machine.remark(), apart);
        // The controller is not on below: both are of one group, whatever their sessions are.
        machine.process(1, 0, 0, "/user.slice/other", 8);
        assert_eq!(machine.remark(), None);
        let first = Machine::new(false, true);
        first.process(1, 0, 0, "/pg", 7);
        first.process(2, 5, 0, "/", 7);
        assert_eq!(first.remark(), apart);
    }
}
