//! Control groups that we create or freeze, shared by pauses and limits.

mod limits;
mod scope;
mod undoing;

use crate::bounded::{self, Limit};
use crate::sys;
use crate::sys::cgroups;
use crate::undo::{End, Journal};
use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use limits::LimitError;
pub use scope::{Holder, Manager, own_scope};
use undoing::GroupRecord;
pub use undoing::{Groups, dissolve, gone, path_of, word_of};

/// A file or folder of a control group cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}; see cotenant doctor for what would help", path = .path.display())]
pub struct GroupError {
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    pub why: io::Error,
}

/// The kind of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1, the hierarchy with the freezer.
    V1,
    /// Version 2.
    V2,
    /// Version 1, the hierarchy with CPU time, for limits when the freezer is elsewhere.
    V1Cpu,
    /// Resctrl: removing a group's folder lifts its limits and returns its tasks to the root.
    Resctrl,
}

impl Hierarchy {
    /// The freezing file, with its values to freeze and to thaw.
    fn switch(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::V1 => ("freezer.state", ["THAWED", "FROZEN"]),
            Self::V2 => ("cgroup.freeze", ["0", "1"]),
            // "Frozen" is the kernel's minimum: 1 ms in each period.
            Self::V1Cpu => ("cpu.cfs_quota_us", ["-1", "1000"]),
            Self::Resctrl => ("schemata", ["", ""]), // nothing to freeze
        }
    }
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its kind.
    pub hierarchy: Hierarchy,
    /// Its folder.
    pub path: PathBuf,
    /// The final group of its members; `None` for an external group, whose members stay.
    pub home: Option<PathBuf>,
}

impl Group {
    /// An external group, in the hierarchy of its folder.
    pub fn foreign(path: &Path) -> Result<Self, GroupError> {
        let has = |hierarchy: &Hierarchy| path.join(hierarchy.switch().0).exists();
        let hierarchy = [Hierarchy::V2, Hierarchy::V1].into_iter().find(has).ok_or_else(|| GroupError {
            path: path.to_owned(),
            why: io::Error::new(io::ErrorKind::NotFound, "it has neither cgroup.freeze nor freezer.state"),
        })?;
        Ok(Self { hierarchy, path: path.to_owned(), home: None })
    }

    /// Journals that it will be created, or frozen if external.
    ///
    /// # Errors
    /// The reason if that cannot be written.
    pub fn announce(&self, journal: &mut Journal) -> Result<(), String> {
        journal.announce(&GroupRecord::Made(self.clone()))
    }

    /// Journals that it has gone, or will not be frozen any more.
    pub fn strike(&self, journal: &mut Journal) {
        journal.strike(&GroupRecord::Gone(self.path.clone()));
    }

    /// Journals that it will be frozen, until then.
    ///
    /// # Errors
    /// As [`Self::announce`].
    pub fn announce_freeze(&self, journal: &mut Journal, until: End) -> Result<(), String> {
        journal.announce(&GroupRecord::Frozen(self.hierarchy, self.path.clone(), until))
    }

    /// Journals that it was thawed, having been frozen until then.
    pub fn strike_freeze(&self, journal: &mut Journal, until: End) {
        journal.strike(&GroupRecord::Thawed(self.path.clone(), until));
    }

    /// Creates its folder, if missing.
    pub fn make(&self) -> Result<(), GroupError> {
        match fs::create_dir(&self.path) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(GroupError { path: self.path.clone(), why }),
            _ => Ok(()),
        }
    }

    /// Starts a command inside, by writing to this list of members; its children stay there.
    ///
    /// # Errors
    /// If the group has gone.
    pub fn enter(&self, list: &str, command: &mut Command) -> Result<(), GroupError> {
        let path = self.path.join(list);
        let members = OpenOptions::new().write(true).open(&path).map_err(|why| GroupError { path, why })?;
        // SAFETY: between fork and exec it makes one async-signal-safe system call and touches no memory.
        unsafe {
            command.pre_exec(move || sys::write_some(members.as_fd(), b"0"));
        }
        Ok(())
    }

    /// Requests the kernel to freeze or thaw it.
    pub fn freeze(&self, freeze: bool) -> Result<(), GroupError> {
        if self.hierarchy == Hierarchy::Resctrl {
            let there = fs::metadata(&self.path).map(|_| ());
            return there.map_err(|why| GroupError { path: self.path.clone(), why });
        }
        Switch::default().set(self, freeze)
    }

    /// Whether freezing was requested, without thawing since.
    pub fn asked_to_freeze(&self) -> bool {
        let (file, [thawed, _]) = self.hierarchy.switch();
        bounded::text(self.path.join(file), Limit::Value).is_ok_and(|text| text.trim() != thawed)
    }

    /// Whether it is thawed itself; an ancestor may still be frozen.
    pub fn is_thawed(&self) -> bool {
        let (file, [thawed, _]) = self.hierarchy.switch();
        bounded::text(self.path.join(file), Limit::Value).is_ok_and(|text| text.trim() == thawed)
    }

    /// Its processes.
    ///
    /// # Errors
    /// If they cannot be read: it has gone, or has become a threaded one.
    pub fn members(&self) -> Result<Vec<u32>, GroupError> {
        let path = self.path.join("cgroup.procs");
        match bounded::text(&path, Limit::Ids) {
            Ok(text) => Ok(text.lines().filter_map(|pid| pid.parse().ok()).collect()),
            Err(why) => Err(GroupError { path, why }),
        }
    }

    /// Sends a signal to all its processes; a lethal one repeatedly, for processes created meanwhile.
    ///
    /// # Errors
    /// As [`Self::members`]; no error if it has gone.
    pub fn signal(&self, signal: c_int) -> Result<(), GroupError> {
        match self.members() {
            Err(GroupError { why, .. }) if gone(&why) => Ok(()),
            Err(why) => Err(why),
            Ok(members) => {
                for pid in members {
                    let _ = sys::kill(pid, signal); // one that has just ended needs none
                }
                Ok(())
            }
        }
    }
}

/// The file that freezes and thaws a group, kept open because finding it takes longer than writing.
#[derive(Debug, Default)]
pub struct Switch(Option<File>);

impl Switch {
    /// Requests the kernel to freeze or thaw that group, always the same one.
    pub fn set(&mut self, group: &Group, freeze: bool) -> Result<(), GroupError> {
        let (file, values) = group.hierarchy.switch();
        self.with(group, |file| file.write_all_at(values[usize::from(freeze)].as_bytes(), 0))
            .map_err(|why| GroupError { path: group.path.join(file), why })
    }

    /// The same as [`Group::asked_to_freeze`].
    pub fn asked_to_freeze(&mut self, group: &Group) -> bool {
        let (_, [thawed, _]) = group.hierarchy.switch();
        let mut text = [0; 16];
        match self.with(group, |file| file.read_at(&mut text, 0)) {
            Ok(len) => text[..len].trim_ascii() != thawed.as_bytes(),
            Err(_) => group.asked_to_freeze(), // it may be readable but not writable
        }
    }

    /// After a failure it is looked up again: another group may have replaced it.
    fn with<T>(&mut self, group: &Group, act: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let path = group.path.join(group.hierarchy.switch().0);
        let file = match self.0.take() {
            Some(file) => file,
            None => OpenOptions::new().read(true).write(true).open(path)?,
        };
        let done = act(&file)?;
        self.0 = Some(file);
        Ok(done)
    }
}

/// Writes a value to a kernel file in one call.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// The controller that identifies a hierarchy of version 1; `None` for resctrl.
#[allow(clippy::option_option)] // version 2 needs none
fn controller(hierarchy: Hierarchy) -> Option<Option<&'static str>> {
    match hierarchy {
        Hierarchy::V1 => Some(Some("freezer")),
        Hierarchy::V1Cpu => Some(Some("cpu")),
        Hierarchy::V2 => Some(None),
        Hierarchy::Resctrl => None,
    }
}

/// The folder of the root group; `None` if that hierarchy is not mounted.
pub fn mount(hierarchy: Hierarchy) -> Option<PathBuf> {
    let mount = cgroups::mounts(Path::new("/"), controller(hierarchy)?).into_iter().next()?;
    Some(Path::new("/").join(mount))
}

/// The folder of our group; `None` if that hierarchy is not mounted or not visible.
pub fn home(hierarchy: Hierarchy) -> Option<PathBuf> {
    let ours = cgroups::own(Path::new("/"), controller(hierarchy)?)?;
    // A group outside of a container's view begins with `/..`.
    let inside = Path::new(ours.trim_start_matches('/'));
    let home: PathBuf = mount(hierarchy)?.iter().chain(inside).collect();
    (!ours.starts_with("/..") && home.join("cgroup.procs").exists()).then_some(home)
}

/// Whether a group can be created below `parent`, pass a test, and get members from `home`: tested with a temporary
/// one.
///
/// # Errors
/// The reason if not, with the refusing file.
pub fn works(
    hierarchy: Hierarchy,
    parent: &Path,
    home: &Path,
    test: impl Fn(&Group) -> io::Result<()>,
) -> Result<(), String> {
    let name = format!("cotenant-probe-{}-{:?}", std::process::id(), std::thread::current().id());
    let probe = Group { hierarchy, path: parent.join(name), home: None };
    let at = |path: &Path, why: io::Error| format!("{}: {why}", path.display());
    fs::create_dir(&probe.path).map_err(|why| at(parent, why))?;
    // Moving a process needs write access to both lists, and that of the common ancestor.
    let writable = |group: &Path| OpenOptions::new().write(true).open(group.join("cgroup.procs")).map(drop);
    let lists =
        || [&*probe.path, home, parent].into_iter().try_for_each(|at_| writable(at_).map_err(|why| at(at_, why)));
    let works = test(&probe).map_err(|why| at(&probe.path, why)).and_then(|()| lists());
    fs::remove_dir(&probe.path).map_err(|why| at(&probe.path, why)).and(works)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;

    /// As of a group that was made a threaded one.
    #[test]
    fn a_group_that_does_not_tell_its_members_is_not_empty() {
        let dir = TempDir::new("members");
        let group = Group { hierarchy: Hierarchy::V2, path: dir.path().to_owned(), home: None };
        fs::create_dir(group.path.join("cgroup.procs")).unwrap();
        fs::write(group.path.join("cgroup.freeze"), "").unwrap();
        assert!(group.members().unwrap_err().to_string().contains("cgroup.procs: Is a directory"));
        assert!(group.signal(libc::SIGTERM).is_err());
        assert!(dissolve(&group).unwrap_err().to_string().contains("Is a directory"));
        let gone = Group { path: dir.path().join("gone"), ..group };
        assert!(gone.signal(libc::SIGTERM).is_ok() && dissolve(&gone).is_ok());
    }

    #[test]
    fn a_switch_stays_open_and_is_looked_for_again_where_it_was_not_found() {
        let dir = TempDir::new("switch");
        let group = Group { hierarchy: Hierarchy::V2, path: dir.path().join("job"), home: None };
        let mut switch = Switch::default();
        let why = switch.set(&group, true).unwrap_err().to_string();
        assert!(why.contains("job/cgroup.freeze"), "{why}");
        group.make().unwrap();
        let file = group.path.join("cgroup.freeze");
        fs::write(&file, "").unwrap();
        for (freeze, written) in [(true, "1"), (false, "0"), (true, "1")] {
            switch.set(&group, freeze).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), written);
        }
        fs::rename(&file, group.path.join("other")).unwrap();
        switch.set(&group, false).unwrap();
        assert!(!group.asked_to_freeze() && fs::read_to_string(group.path.join("other")).unwrap() == "0");
    }
}
