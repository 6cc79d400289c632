//! Limits by resctrl for new programs: ways of the last-level cache, and memory bandwidth in a closed loop on
//! measurements.
//!
//! No development machine had resctrl: it is tested on a fake tree only. The group is journaled before its creation;
//! removing its folder returns its tasks to the root group.

use super::bandwidth::Throttle;
use crate::FsRoot;
use crate::act::groups::{Group, Hierarchy, LimitError};
use crate::bounded::{self, Limit};
use crate::undo::Journal;
use cotenant_model::Time;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Its mount point.
const MOUNT: &str = "/sys/fs/resctrl";

/// Interval of bandwidth readings: hardware counters are updated far more often.
const EVERY: Duration = Duration::from_millis(100);

/// Capabilities of this machine's resctrl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resctrl {
    mount: PathBuf,
    /// Ways of the last-level cache, and their minimum.
    ways: Option<(u32, u32)>,
    /// Bandwidth.
    throttle: Option<Throttle>,
    /// Ids of caches and of memory domains, as in the root's `schemata`.
    caches: Vec<u32>,
    memories: Vec<u32>,
}

impl Resctrl {
    /// Of a machine; `None` if it is not mounted, or limits neither caches nor bandwidth.
    pub fn find(fs: &FsRoot) -> Option<Self> {
        let read = |name: &str| fs.read(&format!("{MOUNT}/{name}")).ok();
        let number = |name: &str| read(name)?.trim().parse::<u32>().ok();
        let schemata = read("schemata")?;
        let ids = |kind: &str| -> Vec<u32> {
            let line = schemata.lines().find_map(|line| line.trim().strip_prefix(kind)?.strip_prefix(':'));
            line.into_iter()
                .flat_map(|line| line.split(';'))
                .filter_map(|pair| pair.split('=').next()?.trim().parse().ok())
                .collect()
        };
        let mask = read("info/L3/cbm_mask").and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        let ways = mask.map(|mask| (mask.count_ones(), number("info/L3/min_cbm_bits").unwrap_or(1).max(1)));
        let least = number("info/MB/min_bandwidth");
        let throttle =
            least.map(|least| Throttle { least, step: number("info/MB/bandwidth_gran").unwrap_or(10).max(1) });
        let (caches, memories) = (ids("L3"), ids("MB"));
        let ways = ways.filter(|(all, _)| *all > 1 && !caches.is_empty());
        let throttle = throttle.filter(|_| !memories.is_empty());
        (ways.is_some() || throttle.is_some()).then(|| Self { mount: fs.path(MOUNT), ways, throttle, caches, memories })
    }

    /// Creates the group of a new program.
    ///
    /// # Errors
    /// [`LimitError`]
    pub fn make(self, journal: &mut Journal) -> Result<Limited, LimitError> {
        let group = Group::limiting(journal, "cotenant", Hierarchy::Resctrl, &self.mount, self.mount.clone())?;
        Ok(Limited { resctrl: self, group, share: None, percent: 100, free: 0.0, last: None })
    }

    /// The `schemata` for a fraction of everything; `percent` of bandwidth.
    fn schemata(&self, share: f64, percent: u32) -> String {
        let line = |kind: &str, ids: &[u32], value: &str| {
            let pairs: Vec<String> = ids.iter().map(|id| format!("{id}={value}")).collect();
            format!("{kind}:{}\n", pairs.join(";"))
        };
        let mut text = String::new();
        if let Some((all, least)) = self.ways {
            // The lowest ways, because bits of a mask must be contiguous.
            let ways = ((f64::from(all) * share).round() as u32).clamp(least.min(all), all);
            text += &line("L3", &self.caches, &format!("{:x}", u64::MAX >> (64 - ways)));
        }
        if self.throttle.is_some() {
            text += &line("MB", &self.memories, &percent.to_string());
        }
        text
    }
}

/// A program's group.
#[derive(Debug)]
pub struct Limited {
    resctrl: Resctrl,
    group: Group,
    /// Its fraction of everything; `None`: all.
    share: Option<f64>,
    /// The setting of its bandwidth.
    percent: u32,
    /// Its highest observed bandwidth, bytes per second.
    free: f64,
    last: Option<(Time, u64)>,
}

impl Limited {
    /// Starts a command inside; its children stay there.
    ///
    /// # Errors
    /// If the group has gone.
    pub fn enter(&self, command: &mut Command) -> Result<(), LimitError> {
        Ok(self.group.enter("tasks", command)?)
    }

    /// Gives it a fraction (0–1) of the cache's ways and of its observed unlimited bandwidth; `None`: all.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set(&mut self, share: Option<f64>) -> Result<(), LimitError> {
        self.share = share;
        if share.is_none() {
            self.percent = 100;
        }
        self.write()
    }

    /// Reads its bandwidth, and adjusts the setting towards its fraction.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn tend(&mut self, now: Time) -> Result<(), LimitError> {
        if self.last.is_some_and(|(at, _)| now - at < EVERY) {
            return Ok(());
        }
        let Some(bytes) = traffic(&self.group.path) else { return Ok(()) };
        let Some((at, before)) = self.last.replace((now, bytes)) else { return Ok(()) };
        let measured = bytes.saturating_sub(before) as f64 / (now - at).as_secs_f64();
        if self.percent == 100 {
            self.free = self.free.max(measured);
        }
        let (Some(throttle), Some(share)) = (self.resctrl.throttle, self.share) else { return Ok(()) };
        let next = throttle.next(self.percent, measured, share * self.free);
        if next == self.percent {
            return Ok(());
        }
        self.percent = next;
        self.write()
    }

    fn write(&self) -> Result<(), LimitError> {
        self.group.limit("schemata", &self.resctrl.schemata(self.share.unwrap_or(1.0), self.percent))
    }

    /// Removes the group; its members continue without limits.
    ///
    /// # Errors
    /// If that fails; it stays journaled, and is undone at the end.
    pub fn end(self, journal: &mut Journal) -> Result<(), LimitError> {
        self.group.end(journal)
    }
}

/// Bytes from and to memory so far, over all domains; `None` if not measured.
fn traffic(group: &Path) -> Option<u64> {
    let domains = fs::read_dir(group.join("mon_data")).ok()?.flatten();
    let bytes: Vec<u64> = domains
        .filter_map(|domain| {
            bounded::text(domain.path().join("mbm_total_bytes"), Limit::Value).ok()?.trim().parse().ok()
        })
        .collect();
    (!bytes.is_empty()).then(|| bytes.iter().sum())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tests::journal;
    use cotenant_testing::TempDir;

    /// A mount with two caches of 12 ways and two memory domains.
    pub(crate) fn tree(dir: &TempDir) -> FsRoot {
        let mount = dir.path().join("sys/fs/resctrl");
        for (name, text) in [
            ("schemata", "    MB:0=100;1=100\n    L3:0=fff;1=fff\n"),
            ("info/L3/cbm_mask", "fff\n"),
            ("info/L3/min_cbm_bits", "2\n"),
            ("info/MB/min_bandwidth", "10\n"),
            ("info/MB/bandwidth_gran", "10\n"),
        ] {
            let path = mount.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        FsRoot::at(dir.path())
    }

    /// The kernel's work on the creation of a group, and its traffic.
    fn moved(group: &Path, bytes: u64) {
        for domain in ["mon_L3_00", "mon_L3_01"] {
            let folder = group.join("mon_data").join(domain);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("mbm_total_bytes"), (bytes / 2).to_string()).unwrap();
        }
    }

    /// Holds qos/limits.
    #[test]
    fn what_a_machine_can_limit_is_found() {
        let dir = TempDir::new("resctrl-find");
        assert_eq!(Resctrl::find(&FsRoot::at(dir.path())), None, "not mounted");
        let found = Resctrl::find(&tree(&dir)).unwrap();
        assert_eq!((found.ways, found.throttle), (Some((12, 2)), Some(Throttle { least: 10, step: 10 })));
        assert_eq!(found.schemata(0.5, 30), "L3:0=3f;1=3f\nMB:0=30;1=30\n");
        assert_eq!(found.schemata(0.01, 100), "L3:0=3;1=3\nMB:0=100;1=100\n", "two ways at least");
        // One that only throttles, and one without any control.
        fs::remove_file(dir.path().join("sys/fs/resctrl/info/L3/cbm_mask")).unwrap();
        assert_eq!(Resctrl::find(&FsRoot::at(dir.path())).unwrap().schemata(0.5, 30), "MB:0=30;1=30\n");
        fs::remove_file(dir.path().join("sys/fs/resctrl/info/MB/min_bandwidth")).unwrap();
        assert_eq!(Resctrl::find(&FsRoot::at(dir.path())), None);
    }

    /// Holds qos/limits.
    #[test]
    fn limits_follow_the_measured_bandwidth_and_go() {
        let dir = TempDir::new("resctrl-group");
        let resctrl = Resctrl::find(&tree(&dir)).unwrap();
        let mut journal = journal(&dir.path().join("state"));
        let mut limited = resctrl.make(&mut journal).unwrap();
        let path = limited.group.path.clone();
        fs::write(path.join("schemata"), "").unwrap();
        let set = || fs::read_to_string(path.join("schemata")).unwrap();
        // 10 GB/s without a limit; half of that is allowed; hardware gives a third more than its setting.
        let (mut bytes, mut gbs) = (0.0, 10.0);
        let mut seen = Vec::new();
        for tick in 0_u64..20 {
            moved(&path, bytes as u64);
            if tick == 3 {
                limited.set(Some(0.5)).unwrap();
            }
            limited.tend(Time::from_millis(tick * 200)).unwrap();
            gbs = f64::min(10.0, 10.0 * f64::from(limited.percent) / 100.0 * 4.0 / 3.0);
            bytes += gbs * 1e9 * 0.2;
            seen.push(limited.percent);
        }
        assert!(
            seen[..3].iter().all(|percent| *percent == 100)
                && seen[10..].iter().all(|percent| [30, 40].contains(percent)),
            "{seen:?}"
        );
        assert!(set().starts_with("L3:0=3f;1=3f\nMB:0="), "{}", set());
        assert!(gbs <= 5.4, "{gbs}");
        limited.set(None).unwrap();
        assert!(set().starts_with("L3:0=fff;1=fff\nMB:0=100;1=100\n"), "{}", set());
        // The kernel removes a group with its files; here they are removed by hand.
        fs::remove_dir_all(path.join("mon_data")).unwrap();
        fs::remove_file(path.join("schemata")).unwrap();
        limited.end(&mut journal).unwrap();
        assert!(!path.exists() && journal.finish().failed == 0);
    }

    /// Holds undo/limits.
    #[test]
    fn who_is_killed_leaves_a_group_that_is_removed() {
        let dir = TempDir::new("resctrl-left");
        let resctrl = Resctrl::find(&tree(&dir)).unwrap();
        let mut journal = journal(&dir.path().join("state"));
        let limited = resctrl.make(&mut journal).unwrap();
        let path = limited.group.path.clone();
        assert!(path.exists());
        drop(limited); // the undoing process finds it in the journal
        let report = journal.finish();
        assert_eq!((report.failed, path.exists()), (0, false), "{report:?}");
    }
}
