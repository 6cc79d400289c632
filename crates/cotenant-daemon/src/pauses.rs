//! Paused services, until `cotenant resume`, also over restarts: a file for each machine.

use crate::parties::{Parties, may_all};
use crate::services::Service;
use cotenant_linux::bounded;
use cotenant_setup::calibrated;
use cotenant_setup::replace::Writer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Limit of paused services of an ordinary user.
const OF_ONE: usize = 64;

/// Limit of paused services of all users together, since one may act as many users.
const OF_ALL: usize = 1_024;

/// The requested pauses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pauses {
    /// Nothing is changed.
    pub all: bool,
    /// Services by [`Service::key`], since names pass to other services when one with the same name starts or ends.
    pub services: BTreeMap<String, Paused>,
}

/// A paused service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paused {
    /// Its name then; absent if that was its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its user then. An ordinary user's pause concerns only their own service, not another user's of that name.
    pub uid: u32,
    /// Whether the request came from an operator with the right to pause everything: then the name alone counts,
    /// independent of its processes' owner.
    pub by_operator: bool,
}

impl Paused {
    /// The name of the service paused under this key.
    pub fn name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }
}

impl Pauses {
    /// The service with this name or key, with its key.
    pub fn named(&self, name: &str) -> Option<(&String, &Paused)> {
        self.services.iter().find(|(key, paused)| paused.name(key) == name || *key == name)
    }
}

/// With their file; `None` without a folder for it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub pauses: Pauses,
    file: Option<PathBuf>,
    writer: Writer,
}

impl Kept {
    /// The pauses of the previous daemon. If they cannot be read, nothing is changed, with a remark.
    pub fn read() -> (Self, Option<String>) {
        let file = calibrated::data_folder().zip(calibrated::machine_id());
        Self::read_at(file.map(|(folder, id)| folder.join(format!("pauses/{id}.json"))))
    }

    fn read_at(file: Option<PathBuf>) -> (Self, Option<String>) {
        let writer = Writer::begin();
        let Some(path) = file.as_deref().filter(|path| path.exists()) else {
            return (Self { pauses: Pauses::default(), file, writer }, None);
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
        (Self { pauses, file, writer }, remark)
    }

    /// Whether a service is paused.
    pub fn holds(&self, service: &Service) -> bool {
        let Service { key, name, uid, .. } = service;
        // An earlier version had their names as keys.
        let paused = self.pauses.services.get(key).or_else(|| self.pauses.services.get(name));
        paused.is_some_and(|paused| paused.by_operator || paused.uid == *uid)
    }

    /// Whether another service of a user may be paused; root has no limit.
    pub fn has_room(&self, uid: u32, parties: &Parties) -> bool {
        let party = parties.of(uid);
        let of_users = || self.pauses.services.values().filter(|paused| !may_all(paused.uid));
        let theirs = || of_users().filter(|paused| parties.of(paused.uid) == party).count();
        may_all(uid) || of_users().count() < OF_ALL && theirs() < OF_ONE
    }

    /// Writes the present pauses. `then` gets the error of a failed write; the pauses then last until the daemon ends.
    pub fn keep(&self, then: impl FnOnce(io::Result<()>) + Send + 'static) {
        match (&self.file, serde_json::to_string(&self.pauses)) {
            (Some(file), Ok(text)) => self.writer.write_then(file.clone(), text, then),
            (None, _) => then(Err(io::Error::other("there is no folder to keep it in"))),
            (_, Err(why)) => then(Err(why.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes the pauses, and waits for that.
    fn keep(kept: &Kept) -> io::Result<()> {
        let (tell, told) = std::sync::mpsc::channel();
        kept.keep(move |written| tell.send(written).unwrap());
        told.recv().unwrap()
    }

    /// Holds daemon/pause.
    #[test]
    fn a_pause_holds_over_a_restart_and_so_does_one_that_cannot_be_read() {
        let folder = std::env::temp_dir().join(format!("cotenant-pauses-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let file = || Some(folder.join("pauses/m.json"));
        let (mut kept, remark) = Kept::read_at(file());
        assert_eq!((&kept.pauses, remark), (&Pauses::default(), None), "there is none");
        let by = |by_operator| Paused { name: None, uid: 7, by_operator };
        kept.pauses.services.extend([("/db".to_owned(), by(false)), ("/web".to_owned(), by(true))]);
        keep(&kept).unwrap();
        let (kept, remark) = Kept::read_at(file());
        let holds = |key, uid| kept.holds(&Service::called(key, key, uid));
        assert!(remark.is_none() && holds("/db", 7) && !holds("/db", 0), "{kept:?}");
        assert!(holds("/web", 7) && holds("/web", 0), "processes of another user came or went");
        for text in ["[", "{\"all\":false,\"services\":{},\"more\":1}", ""] {
            fs::write(folder.join("pauses/m.json"), text).unwrap();
            let (mut kept, remark) = Kept::read_at(file());
            assert!(kept.pauses.all && remark.unwrap().contains("nothing is changed"), "{text}");
            kept.pauses = Pauses::default();
            keep(&kept).unwrap();
            assert!(!Kept::read_at(file()).0.pauses.all, "resume mends it");
        }
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        let (mut kept, _) = Kept::read_at(file());
        kept.pauses.all = true;
        keep(&kept).unwrap_err();
        fs::remove_file(&folder).unwrap();
    }

    /// Who comes with the name of another service changes what that is called.
    #[test]
    fn a_pause_is_of_the_service_and_not_of_its_name() {
        let (mut kept, _) = Kept::read_at(None);
        let paused = Paused { name: Some("x".to_owned()), uid: 0, by_operator: true };
        kept.pauses.services.insert("/a/x".to_owned(), paused);
        assert!(["x", "/a/x"].iter().all(|name| kept.holds(&Service::called(name, "/a/x", 0))));
        assert!(!kept.holds(&Service::called("x", "/b/x", 0)));
        assert!(["x", "/a/x"].iter().all(|name| kept.pauses.named(name).unwrap().0 == "/a/x"));
        // An earlier version knew the name alone.
        let by_name: Pauses =
            serde_json::from_str(r#"{"all":false,"services":{"y":{"uid":7,"by_operator":false}}}"#).unwrap();
        kept.pauses = by_name;
        assert!(kept.holds(&Service::called("y", "/c/y", 7)) && kept.pauses.named("y").is_some());
    }

    #[test]
    fn nobody_fills_the_list_for_others() {
        let (mut kept, _) = Kept::read_at(None);
        let user = cotenant_linux::sys::euid() + 7;
        let pause = |kept: &mut Kept, uid, services| {
            for service in services {
                let paused = Paused { name: None, uid, by_operator: false };
                kept.pauses.services.insert(format!("{uid} {service}"), paused);
            }
        };
        let room = |kept: &Kept, uid| kept.has_room(uid, &Parties::default());
        pause(&mut kept, user, 0..OF_ONE - 1);
        assert!(room(&kept, user));
        pause(&mut kept, user, 0..OF_ONE);
        assert!(!room(&kept, user) && room(&kept, user + 1) && room(&kept, 0));
        // One user may act as many users.
        for uid in user + 1..=user + (OF_ALL / OF_ONE) as u32 {
            pause(&mut kept, uid, 0..OF_ONE);
        }
        assert!(!room(&kept, user + 1_000) && room(&kept, 0));
    }
}
