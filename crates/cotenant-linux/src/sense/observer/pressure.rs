//! Shortage of CPUs in control groups, from the kernel's pressure stall information (PSI,
//! `Documentation/accounting/psi.rst` of the kernel).
//!
//! Only a group exclusive to an application describes it. If the kernel does not count, the files are missing or
//! unreadable.

use crate::FsRoot;
use crate::bounded::{self, Limit};
use crate::sys;
use crate::sys::cgroups;
use cotenant_model::{AppId, Pressure, Time, proc_text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval between reads of groups, and as a multiple of the last read's CPU time: at most a thousandth of a CPU.
const EVERY: Duration = Duration::from_secs(1);
const SHARE: u32 = 1_000;

/// State of applications' groups.
#[derive(Debug)]
pub struct Pressures {
    /// Systemd's groups in version 1, and the same in version 2, which alone has counts.
    hybrid: Option<[PathBuf; 2]>,
    due: Time,
    apps: BTreeMap<AppId, Pressure>,
}

impl Pressures {
    /// Before the first look.
    pub fn new(fs: &FsRoot) -> Self {
        let mount = |kind| Some(fs.path(cgroups::mounts(&fs.path("/"), kind).first()?));
        let hybrid = mount(Some("name=systemd")).zip(mount(None)).map(Into::into);
        Self { hybrid, due: Time::default(), apps: BTreeMap::new() }
    }

    /// The last reading of an application's group; `None` without an exclusive one, or without counts.
    pub fn of(&self, app: AppId) -> Option<Pressure> {
        self.apps.get(&app).copied()
    }

    /// Reads the applications' groups when due.
    pub fn look<'a>(&mut self, groups: impl Iterator<Item = (AppId, &'a Path)>, at: Time) {
        if at < self.due {
            return;
        }
        let begin = sys::thread_cpu_time();
        let one = |(app, folder): (AppId, &Path)| Some((app, Pressure { us: self.read(folder)?, at }));
        self.apps = groups.filter_map(one).collect();
        self.due = at + EVERY.max(sys::thread_cpu_time().saturating_sub(begin) * SHARE);
    }

    fn read(&self, folder: &Path) -> Option<u64> {
        let counts = |folder: &Path| {
            let text = bounded::read(folder.join("cpu.pressure"), Limit::Value).ok()?;
            proc_text::pressure_us(&text).ok()
        };
        counts(folder).or_else(|| {
            let [from, to] = self.hybrid.as_ref()?;
            counts(&to.join(folder.strip_prefix(from).ok()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    /// Holds see/waits.
    #[test]
    fn a_group_is_read_once_a_second_in_either_hierarchy() {
        let machine = TempDir::new("pressure");
        let mounts = "c /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\nc /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        machine.write("proc/self/mounts", mounts);
        let counted = |folder: &str, us: u64| {
            machine.write(&format!("{folder}/cpu.pressure"), format!("some avg10=0.00 total={us}\nfull total=0\n"));
        };
        counted("sys/fs/cgroup/unified/a.service", 7);
        let fs = FsRoot::at(machine.path());
        let folders = ["a.service", "b.service"].map(|name| fs.path("sys/fs/cgroup/systemd").join(name));
        let mut pressures = Pressures::new(&fs);
        let mut at = |ms| {
            let at = Time::from_millis(ms);
            pressures.look((0..).map(AppId).zip(folders.iter().map(PathBuf::as_path)), at);
            [0, 1].map(|app| pressures.of(AppId(app)).map(|read| (read.us, read.at)))
        };
        assert_eq!(at(100), [Some((7, Time::from_millis(100))), None]);
        counted("sys/fs/cgroup/unified/a.service", 9);
        counted("sys/fs/cgroup/systemd/b.service", 3);
        assert_eq!(at(500)[0], Some((7, Time::from_millis(100))), "it is not time to");
        assert_eq!(at(60_000).map(|read| read.map(|(us, _)| us)), [Some(9), Some(3)]);
        std::fs::remove_dir_all(machine.path().join("sys/fs/cgroup/unified/a.service")).unwrap();
        assert_eq!(at(120_000)[0], None);
    }
}
