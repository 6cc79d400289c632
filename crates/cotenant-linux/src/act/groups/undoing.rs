//! Resumes all members of groups, and removes our groups.

use super::{Group, GroupError, Hierarchy};
use crate::fault::around;
use crate::undo::{Effect, End, Living, Record, RestoreReport, Undoer, end_of, end_word, is_due};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Immediate rounds through the members of a group; further ones after a moment each.
const AT_ONCE: u32 = 100;

/// Time limit against a member that forks continuously. On a busy machine killed processes take time to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A group becomes ours to undo, or is no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// A control group may be frozen or limited from now on; one with a home will be created by us.
    Made(Group),
    /// The control group of that folder has gone, or will not be frozen any more.
    Gone(PathBuf),
    /// A control group will be frozen, until then.
    Frozen(Hierarchy, PathBuf, End),
    /// One frozen until then is thawed.
    Thawed(PathBuf, End),
}

/// Hierarchies in the journal's notation.
const HIERARCHIES: [(&str, Hierarchy); 4] =
    [("1", Hierarchy::V1), ("2", Hierarchy::V2), ("1cpu", Hierarchy::V1Cpu), ("resctrl", Hierarchy::Resctrl)];

impl fmt::Display for GroupRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |hierarchy| HIERARCHIES.iter().find(|(_, known)| *known == hierarchy).map_or("", |(word, _)| word);
        match self {
            Self::Made(Group { hierarchy, path, home }) => {
                let hierarchy = word(*hierarchy);
                let home = home.as_deref().map_or_else(|| "-".to_owned(), word_of);
                write!(f, "group {hierarchy} {} {home}", word_of(path))
            }
            Self::Gone(path) => write!(f, "ungroup {}", word_of(path)),
            Self::Frozen(hierarchy, path, end) => {
                write!(f, "freeze {} {} {}", word(*hierarchy), word_of(path), end_word(*end))
            }
            Self::Thawed(path, end) => write!(f, "thaw {} {}", word_of(path), end_word(*end)),
        }
    }
}

impl Record for GroupRecord {
    type Effect = Groups;

    fn parse(line: &str) -> Option<Self> {
        let hierarchy_of = |word: &str| Some(HIERARCHIES.iter().find(|(known, _)| *known == word)?.1);
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["group", hierarchy, path, home] => Some(Self::Made(Group {
                hierarchy: hierarchy_of(hierarchy)?,
                path: path_of(path)?,
                home: if home == "-" { None } else { Some(path_of(home)?) },
            })),
            ["ungroup", path] => Some(Self::Gone(path_of(path)?)),
            ["freeze", hierarchy, path, end] => {
                Some(Self::Frozen(hierarchy_of(hierarchy)?, path_of(path)?, end_of(end)?))
            }
            ["thaw", path, end] => Some(Self::Thawed(path_of(path)?, end_of(end)?)),
            _ => None,
        }
    }
}

/// A path as one word of plain letters.
pub fn word_of(path: &Path) -> String {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'%';
    let letter = |&b: &u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02x}") };
    path.as_os_str().as_bytes().iter().map(letter).collect()
}

/// Parses such a word; `None` if it is not an absolute path.
pub fn path_of(word: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (code, tail) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
        rest = tail;
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    path.is_absolute().then_some(path)
}

/// Groups that may hold processes because of us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    all: BTreeMap<PathBuf, Group>,
    /// Those frozen by us, with the end. Groups of jobs are below one of ours.
    frozen: BTreeMap<PathBuf, (Hierarchy, End)>,
}

impl Groups {
    /// Whether we have frozen it without a thaw, according to the journal.
    pub fn is_frozen(&self, path: &Path) -> bool {
        self.frozen.contains_key(path)
    }
}

impl Effect for Groups {
    type Record = GroupRecord;

    fn enter(&mut self, record: &GroupRecord) {
        match record {
            GroupRecord::Made(group) => drop(self.all.insert(group.path.clone(), group.clone())),
            GroupRecord::Gone(path) => {
                self.all.remove(path);
                self.frozen.retain(|frozen, _| !frozen.starts_with(path));
            }
            GroupRecord::Frozen(hierarchy, path, end) => {
                self.frozen.insert(path.clone(), (*hierarchy, *end));
            }
            GroupRecord::Thawed(path, end) => {
                if self.frozen.get(path).is_some_and(|(_, until)| until == end) {
                    self.frozen.remove(path);
                }
            }
        }
    }

    fn knows(&self, record: &GroupRecord) -> bool {
        match record {
            GroupRecord::Made(group) => self.all.contains_key(&group.path),
            GroupRecord::Gone(path) => !self.all.contains_key(path),
            GroupRecord::Frozen(hierarchy, path, end) => self.frozen.get(path) == Some(&(*hierarchy, *end)),
            GroupRecord::Thawed(path, end) => self.frozen.get(path).is_none_or(|(_, until)| until != end),
        }
    }

    /// Existing ones: one created later is announced before.
    fn essential(&self, _: Vec<GroupRecord>, _: &Living) -> Vec<GroupRecord> {
        let there = |path: &Path| path.try_exists().unwrap_or(true);
        let made = self.all.values().filter(|group| there(&group.path)).cloned().map(GroupRecord::Made);
        let frozen = self.frozen.iter().filter(|(path, _)| there(path));
        made.chain(frozen.map(|(path, (hierarchy, end))| GroupRecord::Frozen(*hierarchy, path.clone(), *end))).collect()
    }

    fn let_run(&self, by: Option<Duration>, report: &mut RestoreReport) -> Vec<GroupRecord> {
        // All: older journals do not record which ones are frozen.
        for group in self.all.values().filter(|_| by.is_none()) {
            if group.home.is_some() { thaw(group) } else { drop(thaw_foreign(group)) }
        }
        let due = self.frozen.iter().filter(|(_, (_, end))| is_due(*end, by));
        let thawed = due.filter(|(path, (hierarchy, _))| {
            let group = Group { hierarchy: *hierarchy, path: (*path).clone(), home: None };
            let thawed = around("resume.late", || thaw_foreign(&group));
            match &thawed {
                Ok(()) => report.resumed += usize::from(group.path.exists()),
                Err(why) => report.fail(format!("{} may still be frozen: {why}", group.path.display())),
            }
            thawed.is_ok()
        });
        thawed.map(|(path, (_, end))| GroupRecord::Thawed(path.clone(), *end)).collect()
    }

    fn undo(&self, _: &Undoer<'_>, report: &mut RestoreReport) -> Vec<GroupRecord> {
        // First, so that no process waits for the removal of a busy group.
        self.all.values().filter(|group| group.home.is_some()).for_each(thaw);
        let mut left = Vec::new();
        for group in self.all.values() {
            let there = group.path.exists();
            match around("resume.group", || if group.home.is_some() { dissolve(group) } else { thaw_foreign(group) }) {
                Ok(()) if there => report.resumed += 1,
                Ok(()) => report.gone += 1,
                Err(why) => {
                    report.fail(format!("{} may still be frozen: {why}", group.path.display()));
                    left.push(GroupRecord::Made(group.clone()));
                }
            }
        }
        left
    }
}

/// Thaws a group of ours and those below it, if they exist.
fn thaw(group: &Group) {
    let _ = group.freeze(false);
    below(group).iter().for_each(thaw);
}

/// Our groups directly below one.
fn below(group: &Group) -> Vec<Group> {
    if group.hierarchy == Hierarchy::Resctrl {
        return Vec::new();
    }
    // If it cannot be listed it cannot be removed either, which gives the error.
    let Ok(folders) = fs::read_dir(&group.path) else { return Vec::new() };
    let folders = folders.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| Group { path: entry.path(), ..group.clone() }).collect()
}

/// Thaws a group of ours and those below it, moves the members home and removes the folders. Nothing to do if it has
/// gone.
pub fn dissolve(group: &Group) -> Result<(), GroupError> {
    let failed = |why| GroupError { path: group.path.clone(), why };
    let home = group.home.as_deref().unwrap_or(Path::new("/")).join("cgroup.procs");
    let is_scope = group.path.extension().is_some_and(|kind| kind == "scope");
    let (begin, mut passes) = (Instant::now(), 0);
    loop {
        below(group).iter().try_for_each(dissolve)?;
        match group.freeze(false) {
            Err(GroupError { why, .. }) if gone(&why) => return Ok(()),
            other => other?,
        }
        let members = match group.members() {
            Err(GroupError { why, .. }) if gone(&why) => Vec::new(),
            members => members?,
        };
        for pid in members {
            match super::write(&home, &pid.to_string()) {
                // An ended login: systemd removes the scope with its last member.
                Err(why) if gone(&why) && is_scope => return lift(group).map_err(failed),
                Err(why) if why.raw_os_error() != Some(libc::ESRCH) => return Err(failed(why)),
                _ => {}
            }
        }
        // systemd removes it, because otherwise it would not notice that it is empty.
        let is_theirs = is_scope && begin.elapsed() < PATIENCE && group.path.exists();
        match if is_theirs { Err(io::Error::from_raw_os_error(libc::EBUSY)) } else { fs::remove_dir(&group.path) } {
            Ok(()) => return Ok(()),
            Err(why) if gone(&why) => return Ok(()),
            // Zombies and new processes are no members, but keep the folder for a moment.
            Err(why) if why.raw_os_error() == Some(libc::EBUSY) => {}
            Err(why) => return Err(failed(why)),
        }
        passes += 1;
        if passes < AT_ONCE {
            std::thread::yield_now();
        } else if begin.elapsed() < PATIENCE || is_theirs {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            let why = "its members cannot be taken out: they fork faster than that, or have not ended yet";
            return Err(failed(io::Error::other(why)));
        }
    }
}

/// Lifts the limits and the background of a group of version 2.
fn lift(group: &Group) -> io::Result<()> {
    [("cpu.idle", "0"), ("cpu.max", "max")].into_iter().try_for_each(|(file, value)| {
        match super::write(&group.path.join(file), value) {
            Err(why) if gone(&why) => Ok(()),
            written => written,
        }
    })
}

/// Whether a group or a file of it has gone. `ENODEV`: a folder under removal, or removed while its file was open.
pub fn gone(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

fn thaw_foreign(group: &Group) -> Result<(), GroupError> {
    match group.freeze(false) {
        Err(GroupError { why, .. }) if gone(&why) => Ok(()),
        // A read-only one was never frozen.
        Err(_) if group.is_thawed() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::restore;
    use crate::tests::{journal, journals};
    use cotenant_testing::TempDir;

    fn made(path: &str) -> GroupRecord {
        GroupRecord::Made(Group { hierarchy: Hierarchy::V2, path: path.into(), home: None })
    }

    #[test]
    fn records_read_back_as_they_were_written() {
        for (_, hierarchy) in HIERARCHIES {
            for home in [None, Some("/sys/fs/cgroup".into())] {
                let path = "/sys/fs/cgroup/a b%\n\u{e9}".into();
                let record = GroupRecord::Made(Group { hierarchy, path, home });
                assert_eq!(GroupRecord::parse(&record.to_string()), Some(record));
            }
        }
        assert_eq!(made("/a b").to_string(), "group 2 /a%20b -", "as ever");
        let gone = GroupRecord::Gone("/x".into());
        assert_eq!(gone.to_string(), "ungroup /x");
        assert_eq!(GroupRecord::parse(&gone.to_string()), Some(gone));
        for none in ["group 3 /x -", "group 2 x -", "group 2 /x", "ungroup /x y", "ungroup %2"] {
            assert_eq!(GroupRecord::parse(none), None, "{none}");
        }
    }

    #[test]
    fn compaction_keeps_the_groups_that_stand() {
        let gone = |path: &str| GroupRecord::Gone(path.into());
        let dir = TempDir::new("groups");
        dir.write("a/cgroup.freeze", "0");
        dir.write("b/cgroup.freeze", "0");
        let [a, b, none] = ["a", "b", "none"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
        // The third record is of a re-created group, and the last one of a group removed by another agent.
        let records = vec![made(&a), made(&b), gone(&a), made(&a), gone(&b), made(&none)];
        let mut all = Groups::default();
        for record in &records {
            all.enter(record);
        }
        let kept = all.essential(records, &Living::default());
        assert_eq!(kept, [made(&a)]);
        assert_eq!(all.all.keys().collect::<Vec<_>>(), [Path::new(&a), Path::new(&none)]);
    }

    /// Holds undo/pauses.
    #[test]
    fn what_is_frozen_for_too_long_is_thawed_and_what_has_no_end_is_not() {
        let dir = TempDir::new("late");
        let path = |name: &str| dir.path().join(name);
        let ms = |ms| Some(Duration::from_millis(ms));
        let frozen = |name: &str, end| GroupRecord::Frozen(Hierarchy::V2, path(name), end);
        let mut groups = Groups::default();
        for (name, end) in [("late", ms(5)), ("longer", ms(5)), ("in-time", ms(7)), ("endless", None)] {
            dir.write(&format!("{name}/cgroup.freeze"), "1");
            groups.enter(&frozen(name, end));
        }
        groups.enter(&frozen("longer", ms(9)));
        let mut report = RestoreReport::default();
        let thawed = groups.let_run(ms(6), &mut report);
        assert_eq!(thawed, [GroupRecord::Thawed(path("late"), ms(5))]);
        let state = |name: &str| fs::read_to_string(path(name).join("cgroup.freeze")).unwrap();
        assert_eq!(["late", "longer", "in-time", "endless"].map(state), ["0", "1", "1", "1"]);
        for record in [frozen("late", ms(5)), frozen("endless", None), thawed[0].clone()] {
            assert_eq!(GroupRecord::parse(&record.to_string()), Some(record));
        }
        // It was frozen again since: that is another pause.
        groups.enter(&frozen("late", ms(20)));
        assert!(groups.knows(&thawed[0]));
        groups.enter(&thawed[0]);
        assert!(groups.is_frozen(&path("late")));
        let all = [frozen("endless", None), frozen("in-time", ms(7)), frozen("late", ms(20)), frozen("longer", ms(9))];
        assert_eq!(groups.essential(Vec::new(), &Living::default()), all);
        assert_eq!(groups.let_run(None, &mut report).len(), 4);
        assert_eq!((state("endless"), report.resumed, report.failed), ("0".to_owned(), 5, 0));
    }

    /// A group that cannot be written and is not thawed stays in a journal, and another one of that journal does not.
    #[test]
    fn what_could_not_be_undone_is_tried_again() {
        // Not writable, and not 0.
        let locked = Path::new("/sys/devices/system/cpu/kernel_max");
        if !fs::read_to_string(locked).is_ok_and(|text| text.trim() != "0") {
            return eprintln!("skipped: {} cannot be read, or is 0", locked.display());
        }
        let (dir, state) = (TempDir::new("kept"), TempDir::new("kept-state"));
        dir.write("free/cgroup.freeze", "1");
        fs::create_dir(dir.path().join("stuck")).unwrap();
        let [free, stuck] = ["free", "stuck"].map(|name| dir.path().join(name).join("cgroup.freeze"));
        std::os::unix::fs::symlink(locked, &stuck).unwrap();
        let mut first = journal(state.path());
        for path in [&free, &stuck] {
            let path = path.parent().unwrap().to_owned();
            Group { hierarchy: Hierarchy::V2, path, home: None }.announce(&mut first).unwrap();
        }
        let report = first.finish();
        assert_eq!((report.resumed, report.failed, journals(state.path())), (1, 1, 1), "{report:?}");
        assert_eq!(fs::read_to_string(&free).unwrap(), "0");

        // The next Cotenant reports it, and another agent has frozen the other one since.
        fs::write(&free, "1").unwrap();
        let next = journal(state.path());
        assert!(next.notes().iter().any(|note| note.contains("stuck may still be frozen")), "{:?}", next.notes());
        drop(next);
        let report = restore(state.path());
        assert_eq!((report.resumed, report.failed, journals(state.path())), (0, 1, 1), "{report:?}");
        assert_eq!(fs::read_to_string(&free).unwrap(), "1", "that is not ours any more");

        fs::remove_file(&stuck).unwrap();
        fs::write(&stuck, "1").unwrap();
        let report = restore(state.path());
        assert_eq!((report.resumed, report.failed, journals(state.path())), (1, 0, 0), "{report:?}");
        assert_eq!(fs::read_to_string(&stuck).unwrap(), "0");
    }

    /// A login is over, and its group with it.
    #[test]
    fn whose_home_is_gone_stay_in_their_scope_without_limits() {
        let dir = TempDir::new("homeless");
        for (name, stays) in [("ours.scope", true), ("ours", false)] {
            for (file, value) in [("cgroup.freeze", "1"), ("cgroup.procs", "1\n"), ("cpu.idle", "1"), ("cpu.max", "5")]
            {
                dir.write(&format!("{name}/{file}"), value);
            }
            let path = dir.path().join(name);
            let home = Some(dir.path().join("login"));
            let done = dissolve(&Group { hierarchy: Hierarchy::V2, path: path.clone(), home });
            let has = |file| fs::read_to_string(path.join(file)).unwrap();
            assert_eq!((done.is_ok(), has("cgroup.freeze")), (stays, "0".to_owned()), "{name}: {done:?}");
            let left = if stays { ["0", "max"] } else { ["1", "5"] };
            assert_eq!([has("cpu.idle"), has("cpu.max")], left, "{name}");
        }
    }

    /// A group or process that has ended is no failure, and keeps no journal.
    #[test]
    fn a_group_that_is_gone_has_not_failed() {
        let (dir, state) = (TempDir::new("gone"), TempDir::new("gone-state"));
        let mut journal = journal(state.path());
        for home in [None, Some("/".into())] {
            let path = dir.path().join(if home.is_some() { "ours" } else { "theirs" });
            Group { hierarchy: Hierarchy::V2, path, home }.announce(&mut journal).unwrap();
        }
        let report = journal.finish();
        assert_eq!((report.resumed, report.gone, report.failed), (0, 2, 0), "{report:?}");
        assert_eq!(journals(state.path()), 0);
    }
}
