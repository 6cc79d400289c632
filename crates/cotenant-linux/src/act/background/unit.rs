//! The background of an external control group, such as a unit of systemd: `cpu.idle`, if available. Threads that share
//! CPU time by groups yield to other groups only by this.
//!
//! If version 1 shares CPU time (hybrid), the group of the same path there.
//!
//! An idle group has no weight, and gets the kernel's default afterwards, so its weight is journaled and restored.

use crate::act::backoff::{BackOff, Verdict};
use crate::act::groups::{self, path_of, word_of};
use crate::bounded::{self, Limit};
use crate::fault::around;
use crate::notes::Notes;
use crate::sys::cgroups;
use crate::undo::{Effect, Journal, Living, Record, RestoreReport, Undoer, number};
use cotenant_model::Time;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const IDLE: &str = "cpu.idle";
/// Weights of version 2, and shares of version 1, with the kernel's defaults.
const WEIGHTS: [(&str, u32); 2] = [("cpu.weight", 100), ("cpu.shares", 1024)];

/// The group of one application.
#[derive(Debug, Default)]
pub struct Unit {
    path: PathBuf,
    /// The inode of its folder: a restarted unit has a new group of the same name.
    inode: Option<u64>,
    /// It is idle because of us.
    idle: bool,
    /// Its weight could not be restored yet.
    returning: bool,
    /// Other agents rewrite it, as systemd does for all units on reload.
    back_off: BackOff,
    /// It must not be written.
    refused: bool,
}

impl Unit {
    /// The one of this folder; `None` if it has no share of CPU time of its own, or is idle by another agent.
    pub fn of(path: &Path) -> Option<Self> {
        let path = if is_idle(path).is_some() { path.to_owned() } else { of_version_1(Path::new("/"), path)? };
        let usable = is_idle(&path) == Some(false) && weight(&path).is_some();
        usable.then(|| Self { inode: inode(&path), path, ..Self::default() })
    }

    /// Makes it idle, or restores its weight; returns whether it is idle now.
    pub fn tend(&mut self, journal: &mut Journal, now: Time, on: bool, notes: &mut Notes) -> bool {
        let inode = inode(&self.path);
        if inode != self.inode {
            if self.idle {
                journal.strike(&UnitRecord::Left(self.path.clone()));
            }
            *self = Self { path: self.path.clone(), inode, ..Self::default() };
        }
        if self.idle && !self.returning && is_idle(&self.path) == Some(false) {
            journal.strike(&UnitRecord::Left(self.path.clone()));
            self.idle = false;
            self.back_off.hit(now);
            let how = match self.back_off.verdict(now) {
                Verdict::GivenUp => "for good: another agent writes its cpu.idle again and again",
                _ => "for a while: another agent has written its cpu.idle",
            };
            notes.add(format!("{} is left alone {how}", self.path.display()));
        }
        let left = on && (self.refused || self.back_off.verdict(now) != Verdict::Free);
        if (left || self.idle == on) && !self.returning || inode.is_none() {
            return self.idle;
        }
        if on && !self.returning {
            match self.begin(journal) {
                Ok(()) => self.idle = true,
                Err(why) => {
                    notes.add(format!("{} is not in the background: {why}", self.path.display()));
                    self.refused = true;
                }
            }
        } else if let Some(weight) = journal.outstanding::<Units>().0.get(&self.path).copied() {
            match around("background.unit", || give_back(&self.path, weight)) {
                Ok(_) => {
                    journal.strike(&UnitRecord::Left(self.path.clone()));
                    (self.idle, self.returning) = (false, false);
                }
                Err(why) => {
                    notes.add(refused(&self.path, weight, &why));
                    self.returning = true;
                }
            }
        }
        self.idle
    }

    /// Whether it is known to be idle because of us.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn begin(&self, journal: &mut Journal) -> Result<(), String> {
        if is_idle(&self.path) == Some(true) {
            return Err("it is idle by another agent's will".to_owned()); // and has no weight
        }
        let weight = weight(&self.path).ok_or("it has no weight any more")?;
        journal.announce(&UnitRecord::Idle(self.path.clone(), weight))?;
        let written = around("background.unit", || groups::write(&self.path.join(IDLE), "1"));
        written.map_err(|why| {
            journal.strike(&UnitRecord::Left(self.path.clone()));
            format!("{IDLE}: {why}")
        })
    }
}

/// The group of version 1 with the same members, by one of them.
fn of_version_1(root: &Path, path: &Path) -> Option<PathBuf> {
    let controller = Some("cpu");
    let [second, first] = [None, controller].map(|hierarchy| cgroups::mounts(root, hierarchy));
    let below = second.iter().find_map(|mount| path.strip_prefix(root.join(mount)).ok())?;
    let members = bounded::text(path.join("cgroup.procs"), Limit::Machine).ok()?;
    let of_member = cgroups::of(root, members.lines().next()?, controller)?;
    let is_same = of_member != "/" && Path::new(of_member.trim_start_matches('/')) == below;
    is_same.then(|| first.first().map(|mount| root.join(mount).join(below)))?
}

/// `None` if it has gone.
fn inode(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.ino())
}

fn text(path: &Path, file: &str) -> Option<String> {
    Some(bounded::text(path.join(file), Limit::Value).ok()?.trim().to_owned())
}

/// `None` if impossible.
fn is_idle(path: &Path) -> Option<bool> {
    match &text(path, IDLE)?[..] {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn weight(path: &Path) -> Option<u32> {
    WEIGHTS.iter().find_map(|(file, _)| text(path, file)?.parse().ok())
}

/// The file of its weight, with the kernel's default.
fn weight_file(path: &Path) -> (&'static str, u32) {
    WEIGHTS.into_iter().find(|(file, _)| path.join(file).exists()).unwrap_or(WEIGHTS[0])
}

/// Whether it is no longer idle but lacks its own weight: the second write failed, or never happened.
fn is_halfway(path: &Path, original: u32) -> bool {
    let (_, default) = weight_file(path);
    is_idle(path) == Some(false) && original != default && weight(path) == Some(default)
}

/// Returns whether anything was restored: another agent may have done so.
fn give_back(path: &Path, original: u32) -> io::Result<bool> {
    if is_idle(path) == Some(true) {
        groups::write(&path.join(IDLE), "0")?;
    } else if !is_halfway(path, original) {
        return Ok(false);
    }
    groups::write(&path.join(weight_file(path).0), &original.to_string())?;
    Ok(true)
}

fn refused(path: &Path, weight: u32, why: &io::Error) -> String {
    let path = path.display();
    format!("{path} keeps {IDLE} 1: {why}; as root, echo 0 > {path}/{IDLE}, and its weight was {weight}")
}

/// A group becomes idle because of us, or is no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitRecord {
    /// That folder's group becomes idle, with this former weight.
    Idle(PathBuf, u32),
    /// It has its weight again, or another agent has changed it.
    Left(PathBuf),
}

impl fmt::Display for UnitRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(path, weight) => write!(f, "idle {} {weight}", word_of(path)),
            Self::Left(path) => write!(f, "unidle {}", word_of(path)),
        }
    }
}

impl Record for UnitRecord {
    type Effect = Units;

    fn parse(line: &str) -> Option<Self> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["idle", path, weight] => Some(Self::Idle(path_of(path)?, number(Some(weight))?)),
            ["unidle", path] => Some(Self::Left(path_of(path)?)),
            _ => None,
        }
    }
}

/// Groups that may be idle because of us, with their former weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Units(BTreeMap<PathBuf, u32>);

impl Effect for Units {
    type Record = UnitRecord;

    fn enter(&mut self, record: &UnitRecord) {
        match record {
            UnitRecord::Idle(path, weight) => drop(self.0.insert(path.clone(), *weight)),
            UnitRecord::Left(path) => drop(self.0.remove(path)),
        }
    }

    fn knows(&self, record: &UnitRecord) -> bool {
        match record {
            UnitRecord::Idle(path, weight) => self.0.get(path) == Some(weight),
            UnitRecord::Left(path) => !self.0.contains_key(path),
        }
    }

    /// Existing ones: a restarted one is not idle.
    fn essential(&self, _: Vec<UnitRecord>, _: &Living) -> Vec<UnitRecord> {
        let there = self.0.iter().filter(|(path, _)| path.try_exists().unwrap_or(true));
        there.map(|(path, weight)| UnitRecord::Idle(path.clone(), *weight)).collect()
    }

    fn undo(&self, _: &Undoer<'_>, report: &mut RestoreReport) -> Vec<UnitRecord> {
        let mut left = Vec::new();
        for (path, weight) in &self.0 {
            match around("background.unit", || give_back(path, *weight)) {
                Ok(true) => report.restored += 1,
                Ok(false) if path.exists() => report.unchanged += 1,
                Ok(false) => report.gone += 1,
                Err(why) if groups::gone(&why) => report.gone += 1,
                Err(why) => {
                    report.fail(refused(path, *weight, &why));
                    left.push(UnitRecord::Idle(path.clone(), *weight));
                }
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::restore;
    use crate::tests::journal;
    use cotenant_testing::TempDir;
    use std::time::Duration;

    const NOW: Time = Time::from_secs(5);

    fn group(idle: &str, weight: &str) -> TempDir {
        let dir = TempDir::new("unit");
        dir.write("unit/cpu.idle", idle);
        dir.write("unit/cpu.weight", weight);
        dir
    }

    fn has(path: &Path) -> [String; 2] {
        ["cpu.idle", "cpu.weight"].map(|file| text(path, file).unwrap())
    }

    // An ordinary file keeps old text beyond the written length: all weights here have three digits.
    /// Holds undo/limits.
    #[test]
    fn a_unit_has_its_own_weight_again_whoever_gives_it_back() {
        for killed in [false, true] {
            let (dir, state) = (group("0\n", "400\n"), TempDir::new("unit-state"));
            let path = dir.path().join("unit");
            let (mut journal, mut notes) = (journal(state.path()), Notes::default());
            let mut unit = Unit::of(&path).unwrap();
            assert!(unit.tend(&mut journal, NOW, true, &mut notes) && unit.tend(&mut journal, NOW, true, &mut notes));
            assert_eq!(has(&path), ["1", "400"]);
            fs::write(path.join("cpu.weight"), "0").unwrap(); // the kernel's display of an idle group
            if !killed {
                assert!(!unit.tend(&mut journal, NOW, false, &mut notes));
                assert_eq!(has(&path), ["0", "400"]);
            }
            let report = journal.finish();
            assert_eq!((has(&path), report.restored, report.failed), (["0".into(), "400".into()], killed.into(), 0));
            assert_eq!(restore(state.path()).failed, 0);
            assert!(notes.iter().next().is_none());
            for (idle, weight, becomes, given) in
                [("0", "100", ["0", "400"], true), ("0", "700", ["0", "700"], false), ("1", "0", ["0", "400"], true)]
            {
                fs::write(path.join("cpu.idle"), idle).unwrap();
                fs::write(path.join("cpu.weight"), weight).unwrap();
                assert_eq!((give_back(&path, 400).unwrap(), has(&path)), (given, becomes.map(String::from)));
            }
        }
    }

    #[test]
    fn a_group_of_version_1_is_the_same_if_its_members_are() {
        let machine = TempDir::new("hybrid");
        let root = machine.path();
        machine.write("proc/self/mounts", "c /g/second cgroup2 rw 0 0\nc /g/cpu,cpuacct cgroup rw,cpuacct,cpu 0 0\n");
        machine.write("g/second/a/b/cgroup.procs", "7\n8\n");
        let found = |of: &str, member: &str| {
            machine.write("proc/7/cgroup", format!("4:cpuacct,cpu:{member}\n0::/a/b\n"));
            of_version_1(root, &root.join("g/second").join(of))
        };
        assert_eq!(found("a/b", "/a/b"), Some(root.join("g/cpu,cpuacct/a/b")));
        assert_eq!(found("a/b", "/a"), None, "it has no share of its own");
        assert_eq!(found("a/b", "/"), None);
        assert_eq!(found("a", "/a"), None, "nobody is in it");
        machine.write("proc/self/mounts", "c /g/second cgroup2 rw 0 0\n");
        assert_eq!(found("a/b", "/a/b"), None);
    }

    #[test]
    fn a_weight_that_could_not_be_written_is_written_later() {
        let (dir, state) = (group("0", "400"), TempDir::new("unit-state"));
        let path = dir.path().join("unit");
        let (mut journal, mut notes) = (journal(state.path()), Notes::default());
        let mut unit = Unit::of(&path).unwrap();
        assert!(unit.tend(&mut journal, NOW, true, &mut notes));
        fs::remove_file(path.join("cpu.weight")).unwrap();
        fs::create_dir(path.join("cpu.weight")).unwrap(); // not writable
        assert!(unit.tend(&mut journal, NOW, false, &mut notes), "it is still ours");
        assert!(notes.iter().any(|note| note.contains("its weight was 400")));
        // The kernel has set the default.
        fs::remove_dir(path.join("cpu.weight")).unwrap();
        dir.write("unit/cpu.weight", "100");
        assert!(!unit.tend(&mut journal, NOW, true, &mut notes));
        assert_eq!(has(&path), ["0", "400"], "before anything else");
        assert!(unit.tend(&mut journal, NOW, true, &mut notes));
        assert_eq!(journal.finish().restored, 1);
        assert_eq!(has(&path)[0], "0");
    }

    /// Holds undo/others-settings.
    #[test]
    fn what_another_agent_has_written_stays_for_a_while() {
        let (dir, state) = (group("0", "40"), TempDir::new("unit-state"));
        let path = dir.path().join("unit");
        let (mut journal, mut notes) = (journal(state.path()), Notes::default());
        let mut unit = Unit::of(&path).unwrap();
        let mut now = NOW;
        for pause in [1, 2, 4, 8, 16, 32, 60] {
            assert!(unit.tend(&mut journal, now, true, &mut notes), "after {pause} s");
            dir.write("unit/cpu.idle", "0");
            dir.write("unit/cpu.weight", "70");
            assert!(!unit.tend(&mut journal, now, true, &mut notes));
            now = now + Duration::from_millis(pause * 1000 - 1);
            assert!(!unit.tend(&mut journal, now, true, &mut notes), "it is made idle again at once");
            now = now + Duration::from_millis(1);
        }
        assert!(unit.tend(&mut journal, now, true, &mut notes));
        assert!(!unit.tend(&mut journal, now, false, &mut notes));
        assert_eq!(has(&path), ["0", "70"], "its weight is not what it was at the beginning");
        assert!(unit.tend(&mut journal, now, true, &mut notes));
        dir.write("unit/cpu.idle", "0");
        assert!(!unit.tend(&mut journal, now, true, &mut notes));
        assert!(!unit.tend(&mut journal, now + Duration::from_secs(3600), true, &mut notes));
        assert_eq!(notes.iter().map(|note| note.contains("for good")).collect::<Vec<_>>(), [false, true]);
        assert_eq!(journal.finish().restored, 0);
        assert_eq!(has(&path), ["0", "70"]);
        for (idle, weight) in [("1", "0"), ("", "100"), ("0", "")] {
            assert!(Unit::of(&group(idle, weight).path().join("unit")).is_none(), "{idle}, {weight}");
        }
        assert!(Unit::of(dir.path()).is_none(), "it has no share of its own");
    }

    #[test]
    fn a_unit_that_starts_anew_is_taken_to_the_background_again() {
        let (dir, state) = (group("0", "40"), TempDir::new("unit-state"));
        let path = dir.path().join("unit");
        let (mut journal, mut notes) = (journal(state.path()), Notes::default());
        let mut unit = Unit::of(&path).unwrap();
        assert!(unit.tend(&mut journal, NOW, true, &mut notes));
        fs::rename(&path, dir.path().join("before")).unwrap();
        assert!(!unit.tend(&mut journal, NOW, true, &mut notes), "it is gone");
        dir.write("unit/cpu.idle", "0");
        dir.write("unit/cpu.weight", "70");
        assert!(unit.tend(&mut journal, NOW, true, &mut notes) && has(&path) == ["1", "70"]);
        assert!(!unit.tend(&mut journal, NOW, false, &mut notes) && has(&path) == ["0", "70"]);
        assert!(notes.iter().next().is_none() && journal.finish().failed == 0);
    }

    #[test]
    fn records_read_back_as_they_were_written() {
        for record in [UnitRecord::Idle("/a b".into(), 40), UnitRecord::Left("/a b".into())] {
            assert_eq!(UnitRecord::parse(&record.to_string()), Some(record));
        }
        for none in ["idle x 40", "idle /x", "idle /x -1", "unidle /x 1"] {
            assert_eq!(UnitRecord::parse(none), None, "{none}");
        }
    }
}
