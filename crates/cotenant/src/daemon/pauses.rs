//! Who is left alone until somebody says `cotenant resume`, over restarts too: a file for each machine.

use super::control::may_all;
use crate::calibrated;
use crate::replace::replace_with_folder;
use cotenant_linux::bounded;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Services that an ordinary user may have paused at a time.
const OF_ONE: usize = 64;

/// A user changes something so often at most: each time the loop writes to a disk and looks who is there.
const CHANGE: Duration = Duration::from_secs(1);

/// When users beside those who may change everything changed something last.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<u32, Instant>);

impl Changes {
    /// Takes a change of a user.
    ///
    /// # Errors
    /// Where it comes too soon behind the one before.
    pub fn take(&mut self, uid: u32) -> Result<(), String> {
        self.0.retain(|_, last| last.elapsed() < CHANGE);
        if !may_all(uid) && self.0.contains_key(&uid) {
            return Err(format!("you have changed something less than {} s ago; try again", CHANGE.as_secs()));
        }
        self.0.insert(uid, Instant::now());
        Ok(())
    }
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pauses {
    /// Nothing is changed.
    pub all: bool,
    /// Services by name.
    pub services: BTreeMap<String, Paused>,
}

/// A service that is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paused {
    /// The user whose it was. What an ordinary user has paused is their own: another user's service of that name is
    /// another one.
    pub uid: u32,
    /// Whether somebody asked who may pause everything: then the name alone counts, whoever its processes are of.
    pub by_operator: bool,
}

/// With the file that they are in; `None` where there is no folder for it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub pauses: Pauses,
    file: Option<PathBuf>,
}

impl Kept {
    /// Of the daemon before. Who cannot tell what it was asked for changes nothing, and says so.
    pub fn read() -> (Self, Option<String>) {
        let file = calibrated::data_folder().zip(calibrated::machine_id());
        Self::read_at(file.map(|(folder, id)| folder.join(format!("pauses/{id}.json"))))
    }

    fn read_at(file: Option<PathBuf>) -> (Self, Option<String>) {
        let Some(path) = file.as_deref().filter(|path| path.exists()) else {
            return (Self { pauses: Pauses::default(), file }, None);
        };
        let read = |path: &Path| -> Result<Pauses, String> {
            let text = bounded::named_text(path).map_err(|why| why.to_string())?;
            serde_json::from_str(&text).map_err(|why| why.to_string())
        };
        let ends = "cotenant resume ends that";
        let (pauses, remark) = match read(path) {
            Ok(pauses) if pauses.all => (pauses, Some(format!("paused, as it was before the restart; {ends}"))),
            Ok(pauses) => (pauses, None),
            Err(why) => {
                let remark =
                    format!("{}: {why}; nothing is changed, since it may have been paused; {ends}", path.display());
                (Pauses { all: true, ..Pauses::default() }, Some(remark))
            }
        };
        (Self { pauses, file }, remark)
    }

    /// Whether a user's service of that name is left alone.
    pub fn holds(&self, service: &str, uid: u32) -> bool {
        self.pauses.services.get(service).is_some_and(|paused| paused.by_operator || paused.uid == uid)
    }

    /// Whether another service of a user may be paused; root's always.
    pub fn has_room(&self, uid: u32) -> bool {
        uid == 0 || self.pauses.services.values().filter(|paused| paused.uid == uid).count() < OF_ONE
    }

    /// Changes what is asked for.
    ///
    /// # Errors
    /// Where that could not be written, and so ends with the daemon: it holds all the same.
    pub fn change(&mut self, change: impl FnOnce(&mut Pauses)) -> io::Result<()> {
        change(&mut self.pauses);
        let file = self.file.as_ref().ok_or_else(|| io::Error::other("there is no folder to keep it in"))?;
        replace_with_folder(file, &serde_json::to_vec(&self.pauses)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_pause_holds_over_a_restart_and_so_does_one_that_cannot_be_read() {
        let folder = std::env::temp_dir().join(format!("cotenant-pauses-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let file = || Some(folder.join("pauses/m.json"));
        let (mut kept, remark) = Kept::read_at(file());
        assert_eq!((&kept.pauses, remark), (&Pauses::default(), None), "there is none");
        let by = |by_operator| Paused { uid: 7, by_operator };
        let all = [("db".to_owned(), by(false)), ("web".to_owned(), by(true))];
        kept.change(|pauses| pauses.services.extend(all)).unwrap();
        let (kept, remark) = Kept::read_at(file());
        assert!(remark.is_none() && kept.holds("db", 7) && !kept.holds("db", 0), "{kept:?}");
        assert!(kept.holds("web", 7) && kept.holds("web", 0), "processes of another user came or went");
        for text in ["[", "{\"all\":false,\"services\":{},\"more\":1}", ""] {
            fs::write(folder.join("pauses/m.json"), text).unwrap();
            let (mut kept, remark) = Kept::read_at(file());
            assert!(kept.pauses.all && remark.unwrap().contains("nothing is changed"), "{text}");
            kept.change(|pauses| *pauses = Pauses::default()).unwrap();
            assert!(!Kept::read_at(file()).0.pauses.all, "resume mends it");
        }
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        let (mut kept, _) = Kept::read_at(file());
        kept.change(|pauses| pauses.all = true).unwrap_err();
        assert!(kept.pauses.all, "it holds until the end of the daemon");
        fs::remove_file(&folder).unwrap();
    }

    #[test]
    fn a_user_changes_something_once_a_second() {
        let mut changes = Changes::default();
        let ours = cotenant_linux::sys::euid();
        let user = ours + 1;
        assert!(changes.take(user).is_ok() && changes.take(user + 1).is_ok());
        assert!(changes.take(user).unwrap_err().contains("less than 1 s ago"));
        assert!((0..3).all(|_| changes.take(ours).is_ok()), "whoever may change everything is not limited");
        changes.0.values_mut().for_each(|last| *last -= CHANGE);
        assert!(changes.take(user).is_ok());
    }

    #[test]
    fn nobody_fills_the_list_for_others() {
        let mut kept = Kept::default();
        for service in 0..OF_ONE {
            assert!(kept.has_room(7));
            kept.pauses.services.insert(service.to_string(), Paused { uid: 7, by_operator: false });
        }
        assert!(!kept.has_room(7) && kept.has_room(8) && kept.has_room(0));
    }
}
