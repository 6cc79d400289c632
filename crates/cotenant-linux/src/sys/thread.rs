//! One thread's identity and mask: whether it may be touched, and setting its mask without affecting another.

use crate::bounded::{self, Limit};
use crate::sys;
use crate::sys::cgroups;
use cotenant_model::proc_text::TaskStat;
use cotenant_model::{CpuId, CpuSet};
use std::ffi::c_int;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A thread, or a process by its leader, unique until reboot: its id and its start time in clock ticks since boot.
pub type Identity = (u32, u64);

/// Why a mask was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The thread has ended.
    #[error("it has ended")]
    Gone,
    /// The thread id is reused by now.
    #[error("its id belongs to another thread by now")]
    Recycled,
    /// No CPU of the mask is in its cpuset.
    #[error("its cpuset holds none of these CPUs")]
    OutsideCpuset,
    /// The kernel refuses.
    #[error("the kernel refuses: {0}")]
    Refused(io::Error),
}

impl SetError {
    /// The meaning of an `errno` of `sched_setaffinity` or of reading `/proc`.
    pub fn from_errno(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Self::Gone,
            Some(libc::EINVAL) => Self::OutsideCpuset,
            _ => Self::Refused(e),
        }
    }
}

/// An open thread: its stat file is bound to the kernel's `struct pid`, not to the number, so that reading it fails
/// once the thread has ended, even if the number is reused.
///
/// So a set between two successful reads has affected this thread and no other. The remaining window: the thread ends
/// after the first read, and its number is reused before the set. The kernel assigns numbers in a cycle, so that takes
/// as many forks as `pid_max` (≥ 32,768) within a few microseconds; [`Held::set`] then reports [`SetError::Recycled`].
#[derive(Debug)]
pub struct Held {
    stat_file: File,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Read when it was opened.
    pub stat: TaskStat,
    /// Owner: the effective user, or root if the process is not dumpable.
    pub uid: u32,
}

impl Held {
    /// Takes hold of a thread.
    ///
    /// # Errors
    /// [`SetError::Gone`] if there is none, or only its zombie; [`SetError::Refused`] if `/proc` hides it.
    pub fn open(pid: u32, tid: u32) -> Result<Self, SetError> {
        let stat_file = File::open(format!("/proc/{pid}/task/{tid}/stat")).map_err(SetError::from_errno)?;
        let uid = stat_file.metadata().map_err(SetError::from_errno)?.uid();
        let stat = read_stat(&stat_file).map_err(SetError::from_errno)?;
        if stat.is_dead() {
            return Err(SetError::Gone);
        }
        Ok(Self { stat_file, tid, pid, stat, uid })
    }

    /// Opens the thread of that identity.
    ///
    /// # Errors
    /// As [`Held::open`], and [`SetError::Recycled`] where the number belongs to a thread that started at another time.
    pub fn open_exactly(pid: u32, tid: u32, start_ticks: u64) -> Result<Self, SetError> {
        let held = Self::open(pid, tid)?;
        if held.stat.start_ticks == start_ticks { Ok(held) } else { Err(SetError::Recycled) }
    }

    /// Whether its process may be paused briefly, or put into the background. Not if we might wait for it before
    /// resuming it.
    ///
    /// # Errors
    /// Why not.
    pub fn may_wait(&self) -> Result<(), String> {
        match &self.stat.comm[..] {
            _ if self.pid == 1 => Err("it is the first process, which all others depend on".to_owned()),
            "systemd-journal" => Err("it keeps the log, and programs that write there would wait with it".to_owned()),
            _ => Ok(()),
        }
    }

    /// Whether it still lives.
    pub fn lives(&self) -> bool {
        read_stat(&self.stat_file).is_ok_and(|s| !s.is_dead())
    }

    /// Its mask now.
    ///
    /// # Errors
    /// [`SetError::Gone`].
    pub fn mask(&self) -> Result<CpuSet, SetError> {
        sys::getaffinity(self.tid).map_err(SetError::from_errno)
    }

    /// Sets its mask and returns the resulting one: the kernel limits it to the cpuset.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn set(&self, mask: &CpuSet) -> Result<CpuSet, SetError> {
        self.verified(sys::setaffinity(self.tid, mask).and_then(|()| sys::getaffinity(self.tid)))
    }

    /// Allows it its whole cpuset, now and later; returns the resulting mask.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn set_free(&self) -> Result<CpuSet, SetError> {
        self.verified(sys::setaffinity_all(self.tid).and_then(|()| sys::getaffinity(self.tid)))
    }

    /// Gives it a scheduling policy, see [`sys::setscheduler`].
    ///
    /// # Errors
    /// [`SetError`].
    pub fn set_policy(&self, policy: c_int) -> Result<(), SetError> {
        self.verified(sys::setscheduler(self.tid, policy))
    }

    fn verified<T>(&self, result: io::Result<T>) -> Result<T, SetError> {
        let holds = result.map_err(SetError::from_errno)?;
        match read_stat(&self.stat_file) {
            Ok(_) => Ok(holds),
            Err(_) if PathBuf::from(format!("/proc/{}", self.tid)).exists() => Err(SetError::Recycled),
            Err(_) => Err(SetError::Gone),
        }
    }

    /// Online CPUs in its cpuset; `None` if unreadable.
    pub fn cpuset(&self) -> Option<CpuSet> {
        let online = CpuSet::parse_list(&bounded::text("/sys/devices/system/cpu/online", Limit::Value).ok()?).ok()?;
        let path = bounded::text(format!("/proc/{}/task/{}/cpuset", self.pid, self.tid), Limit::Value).ok()?;
        let Some(cpus) = effective_cpus(path.trim()) else { return Some(online) };
        // In a container that list may be another one's: whether a CPU is off, its own file says.
        let is_off = |cpu: &CpuId| {
            let said = bounded::text(format!("/sys/devices/system/cpu/cpu{}/online", cpu.0), Limit::Value);
            !said.is_ok_and(|said| said.trim() == "1")
        };
        let off = cpus.minus(&online).iter().filter(is_off).collect();
        Some(cpus.minus(&off))
    }

    /// The kernel's remainder of its mask, requested as `asked` and read as `mask`; `None` as [`Held::cpuset`].
    pub fn leaves(&self, asked: &CpuSet, mask: &CpuSet) -> Option<Leaves> {
        let cpuset = self.cpuset()?;
        let moving = moving(&asked.and(&cpuset).minus(mask));
        Some(Leaves { cpuset, moving })
    }
}

/// The kernel's current remainder of a thread's mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// Online CPUs in its cpuset.
    pub cpuset: CpuSet,
    /// CPUs going online or offline: a mask may or may not show them, because it shows active CPUs only, and a CPU is
    /// online slightly longer than active (kernel/cpu.c, `cpuhp_hp_states`).
    pub moving: CpuSet,
}

impl Leaves {
    /// Whether `mask`, as read, can be the remainder of `asked`. An empty mask always can, because it cannot be set.
    pub fn of(&self, asked: &CpuSet, mask: &CpuSet) -> bool {
        mask.is_empty()
            || mask == asked
            || *mask == under_cpuset(asked, &self.cpuset)
            || *mask == under_cpuset(asked, &self.cpuset.minus(&self.moving))
    }
}

/// Those of `cpus` going online or offline; empty without CPU hotplug.
fn moving(cpus: &CpuSet) -> CpuSet {
    const FOLDER: &str = "/sys/devices/system/cpu";
    let Ok(states) = bounded::text(format!("{FOLDER}/hotplug/states"), Limit::Value) else { return CpuSet::default() };
    let Some(online) = states.lines().find_map(|line| line.strip_suffix(": online")).map(str::trim) else {
        return CpuSet::default();
    };
    let moves = |cpu: &CpuId| {
        let state = bounded::text(format!("{FOLDER}/cpu{}/hotplug/state", cpu.0), Limit::Value);
        state.is_ok_and(|state| state.trim() != online)
    };
    cpus.iter().filter(moves).collect()
}

/// The effective CPUs of a cpuset, from the hierarchy with the controller. Version 1 has the file since 3.17.
fn effective_cpus(path: &str) -> Option<CpuSet> {
    type Hierarchy = (cgroups::Mount, &'static str, Option<String>);
    static HIERARCHIES: OnceLock<Vec<Hierarchy>> = OnceLock::new();
    let hierarchies = HIERARCHIES.get_or_init(|| {
        let root = Path::new("/");
        let of = |controller, file| {
            let mounts = cgroups::mounts(root, controller).into_iter().map(|place| cgroups::Mount::new(root, &place));
            mounts.map(move |mount| (mount.clone(), file, cgroups::namespace(root, controller, &mount.folder)))
        };
        of(Some("cpuset"), "cpuset.effective_cpus").chain(of(None, "cpuset.cpus.effective")).collect()
    });
    hierarchies.iter().find_map(|(mount, file, namespace)| {
        // In a container the path is relative to our own group.
        let path = cgroups::resolve(namespace.as_deref().unwrap_or_default(), path);
        let text = bounded::text(mount.of(&path)?.join(file), Limit::Value).ok()?;
        CpuSet::parse_list(&text).ok().filter(|cpus| !cpus.is_empty())
    })
}

/// The result of setting `asked` under a cpuset (kernel ≥ 6.2: a thread's own mask is remembered and intersected with
/// the cpuset on every change; if empty, the whole cpuset applies).
pub fn under_cpuset(asked: &CpuSet, cpuset: &CpuSet) -> CpuSet {
    let cut = asked.and(cpuset);
    if cut.is_empty() { cpuset.clone() } else { cut }
}

fn read_stat(file: &File) -> io::Result<TaskStat> {
    let mut line = [0u8; 1024]; // 52 numbers of at most 20 digits would exceed it; the used fields end at the 41st
    let len = file.read_at(&mut line, 0)?;
    TaskStat::parse(&line[..len]).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// This process.
///
/// # Errors
/// `/proc` is not mounted.
pub fn own() -> io::Result<Identity> {
    let pid = std::process::id();
    Ok((pid, process_stat(pid).ok_or(io::ErrorKind::NotFound)?.start_ticks))
}

/// Whether a process still runs.
pub fn lives((pid, start): Identity) -> bool {
    process_stat(pid).is_some_and(|stat| stat.start_ticks == start && !stat.is_dead())
}

/// The stat of a process's leader; `None` without one.
pub fn process_stat(pid: u32) -> Option<TaskStat> {
    read_stat(&File::open(format!("/proc/{pid}/stat")).ok()?).ok()
}

/// Numeric entries of a folder: processes of `/proc`, threads of `/proc/PID/task`. Empty without the folder.
pub fn numbers_in(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_are_off_limits() {
        let Some(stat) = process_stat(2) else {
            eprintln!("skipped: kernel threads are not visible here (pid namespace)");
            return;
        };
        if stat.comm != "kthreadd" {
            eprintln!("skipped: pid 2 is no kernel thread here (pid namespace)");
            return;
        }
        assert_eq!(stat.off_limits(), Some("it is a kernel thread"));
    }

    #[test]
    fn a_held_thread_that_ended_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let held = Held::open(child.id(), child.id()).unwrap();
        assert!(held.lives());
        assert!(matches!(
            Held::open_exactly(child.id(), child.id(), held.stat.start_ticks + 1),
            Err(SetError::Recycled)
        ));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.lives());
        assert!(matches!(held.mask(), Err(SetError::Gone)));
        assert!(matches!(Held::open(child.id(), child.id()), Err(SetError::Gone)));
    }

    #[test]
    fn the_first_process_and_the_journal_may_not_wait() {
        let dir = cotenant_testing::TempDir::new("journald");
        let journald = dir.path().join("systemd-journald");
        std::os::unix::fs::symlink("/bin/sleep", &journald).unwrap();
        let mut child = std::process::Command::new(journald).arg("60").spawn().unwrap();
        let told = |pid: u32| Held::open(pid, pid).unwrap().may_wait().err().unwrap_or_default();
        let why = told(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(why.contains("keeps the log") && told(1).contains("first process"), "{why}; {}", told(1));
        if std::process::id() != 1 {
            assert_eq!(told(std::process::id()), "");
        }
    }

    #[test]
    fn the_cpuset_holds_the_mask() {
        let me = std::process::id();
        let held = Held::open(me, me).unwrap();
        assert!(held.mask().unwrap().is_subset(&held.cpuset().unwrap()));
    }

    #[test]
    fn what_a_cpuset_leaves() {
        let set = |s| CpuSet::parse_list(s).unwrap();
        assert_eq!(under_cpuset(&set("0-3"), &set("2-5")), set("2-3"));
        assert_eq!(under_cpuset(&set("0-3"), &set("4-5")), set("4-5"));
    }

    /// Holds undo/others-settings.
    #[test]
    fn what_is_left_of_a_mask_is_told_from_another_agents() {
        let set = |s: &str| CpuSet::parse_list(s).unwrap();
        let left = |cpuset: &str, moving: &str, asked: &str, mask: &str| {
            Leaves { cpuset: set(cpuset), moving: set(moving) }.of(&set(asked), &set(mask))
        };
        assert!(left("0-7", "", "0-1", "0-1"));
        assert!(!left("0-7", "", "0-1", "0"), "CPU 1 is there: somebody took it away");
        assert!(left("0,2-7", "", "0-1", "0"), "CPU 1 is off");
        assert!(left("0,2-7", "", "0-1", "0-1"), "it came back since");
        assert!(left("0-7", "1", "0-1", "0"), "CPU 1 is online, but not active any more or yet");
        assert!(left("0-7", "1", "0-1", "0-1"));
        assert!(!left("0-7", "1", "0-1", "1"), "CPU 0 is there");
        assert!(!left("0,2-7", "", "0-1", "3"));
        assert!(left("0,2-7", "", "1", ""), "it sleeps, and has nowhere to go before it wakes up");
        assert!(left("0,2-7", "", "1", "0,2-7"), "woken up, it may go anywhere");
        assert!(left("0-7", "1", "1", "0,2-7"));
        assert!(left("2-3", "", "2-5", "2-3"), "a cpuset leaves it");
    }

    #[test]
    fn no_cpu_is_moving_that_this_thread_may_use() {
        let me = std::process::id();
        let mask = Held::open(me, me).unwrap().mask().unwrap();
        assert_eq!(moving(&mask), CpuSet::default(), "their states are those of CPUs that are on");
    }
}
