//! The profiles of applications that were measured: one TOML file per machine and application below the data folder.
//!
//! Each file has the format of `--profiles`, with one application. Writers take the folder's lock, read again, and
//! replace the file as a whole, so that concurrent ones lose nothing and a reader never sees a half.

use crate::calibrated;
use crate::replace::replace;
use anyhow::{Context, Result, bail};
use cotenant_cli::usage;
use cotenant_linux::bounded;
use cotenant_linux::sys::Lock;
use cotenant_linux::undo;
use cotenant_model::Topology;
use cotenant_model::profile::calibration::Stamp;
use cotenant_model::profile::{self, AppProfile, Executable};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Between the name of an application and the beginning of its build id.
const BUILD: char = '@';

/// The profiles of one machine.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    /// The present stamp of this machine; `None` for another machine.
    now: Option<Stamp>,
}

/// A stored profile.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its file's name: the application's, or that and the beginning of its build id.
    pub key: String,
    /// The application, as policies know it.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The measured values.
    pub profile: AppProfile,
    /// Changes since the measurement.
    pub stale: Vec<String>,
}

/// The profiles for policies.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// By name of the application, without stamps.
    pub apps: BTreeMap<String, AppProfile>,
    /// One line each: files that cannot be read, and profiles of running applications that are stale.
    pub notes: Vec<String>,
}

impl Store {
    /// The store of this machine; `None` without a home folder.
    pub fn of_this_machine(topology: &Topology) -> Option<Self> {
        let mut store = Self::of_machine(&calibrated::machine_id()?)?;
        store.now = Some(calibrated::stamp(topology));
        Some(store)
    }

    /// Of a machine by name, such as one of `machines/`.
    pub fn of_machine(name: &str) -> Option<Self> {
        Some(Self::at(calibrated::data_folder()?.join("profiles").join(file_name(name)), None))
    }

    fn at(folder: PathBuf, now: Option<Stamp>) -> Self {
        Self { folder, now }
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All profiles by key, and a line for each file that cannot be used.
    pub fn entries(&self) -> (Vec<Entry>, Vec<String>) {
        let (mut entries, mut notes) = (Vec::new(), Vec::new());
        let files = match fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(e) if e.kind() == ErrorKind::NotFound => return (entries, notes),
            Err(e) => return (entries, vec![format!("{}: {e}; no profile is used", self.folder.display())]),
        };
        let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "toml")) {
            match self.entry(path) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => {}
                Err(e) => notes.push(format!("{e:#}; mend or remove it, the other profiles are used")),
            }
        }
        (entries, notes)
    }

    /// `None` if the file does not exist (any more).
    fn entry(&self, path: &Path) -> Result<Option<Entry>> {
        let shown = path.display();
        let text = match bounded::named_text(path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => bail!("{shown}: {e}"),
        };
        let mut apps = profile::parse_apps(&text).map_err(|e| anyhow::anyhow!("{shown}:{e}"))?.into_iter();
        let (Some((name, profile)), None) = (apps.next(), apps.next()) else {
            bail!("{shown}:1:1: a stored profile has exactly one [app.NAME]");
        };
        let key = key_of(path).unwrap_or_else(|| name.clone());
        let stale = self.changes(&profile);
        Ok(Some(Entry { key, name, path: path.to_owned(), profile, stale }))
    }

    /// Changes of this machine since a profile was measured.
    fn changes(&self, profile: &AppProfile) -> Vec<String> {
        let (Some(now), Some(stamp)) = (&self.now, &profile.stamp) else { return Vec::new() };
        let mut changes = stamp.machine.differences(now);
        match cotenant_linux::sense::executable::look(Path::new(&stamp.executable.path)) {
            Some(executable) => changes.extend(stamp.executable.difference(&executable)),
            None if stamp.executable.path.is_empty() => {}
            None => changes.push(format!("executable {} is gone", stamp.executable.path)),
        }
        changes
    }

    /// One profile per application: of several builds the one that `running` has (by name of the application), else
    /// one that is not stale, else the latest.
    pub fn load(&self, running: &BTreeMap<String, Executable>) -> Loaded {
        let (entries, mut notes) = self.entries();
        let mut chosen: BTreeMap<String, Entry> = BTreeMap::new();
        for entry in entries {
            let runs = |e: &Entry| {
                let (Some(executable), Some(stamp)) = (running.get(&e.name), &e.profile.stamp) else { return false };
                stamp.executable.difference(executable).is_none()
            };
            let date = |e: &Entry| e.profile.stamp.as_ref().map_or_else(String::new, |stamp| stamp.date.clone());
            let rank = |e: &Entry| (runs(e), e.stale.is_empty(), date(e));
            if chosen.get(&entry.name).is_none_or(|other| rank(other) < rank(&entry)) {
                chosen.insert(entry.name.clone(), entry);
            }
        }
        for (name, executable) in running {
            let Some(entry) = chosen.get(name) else { continue };
            let mut changes = entry.stale.clone();
            if let (true, Some(stamp)) = (changes.is_empty(), &entry.profile.stamp) {
                changes.extend(stamp.executable.difference(executable));
            }
            let path = entry.path.display();
            let stale =
                |change| format!("the profile of {name} ({path}) is stale: the {change}; characterize it again");
            notes.extend(changes.first().map(stale));
        }
        let apps = chosen.into_iter().map(|(name, entry)| (name, AppProfile { stamp: None, ..entry.profile }));
        Loaded { apps: apps.collect(), notes }
    }

    /// Adds measured values to the stored ones of a key.
    ///
    /// # Errors
    /// A damaged file; errors of writing the folder.
    pub fn merge(&self, key: &str, name: &str, newer: AppProfile) -> Result<PathBuf> {
        let (_lock, older) = self.locked(key)?;
        let path = self.path(key);
        let profile = match older {
            Some(older) => older.profile.updated(newer),
            None => newer,
        };
        let text = profile::write_apps(&BTreeMap::from([(name.to_owned(), profile)]));
        replace(&path, text.as_bytes())
            .with_context(|| format!("{}: the profile cannot be written", path.display()))?;
        Ok(path)
    }

    /// Whether something could be merged under a key.
    ///
    /// # Errors
    /// Errors of making the folder; a damaged file.
    pub fn check(&self, key: &str) -> Result<()> {
        self.locked(key).map(drop)
    }

    /// The lock of the folder, which is made if missing, and the stored entry of a key.
    fn locked(&self, key: &str) -> Result<(File, Option<Entry>)> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("{}: the folder of profiles cannot be made", self.folder.display()))?;
        let lock = self.lock()?;
        let entry = self.entry(&self.path(key)).map_err(|e| usage(format!("{e:#}; mend or remove it")))?;
        Ok((lock, entry))
    }

    /// The right to measure on this machine while it is held: two concurrent measurements would disturb each other. If
    /// the lock is unavailable, measuring goes on without it.
    pub fn turn(&self, wait: impl FnOnce()) -> Option<File> {
        let path = self.folder.join(".measuring");
        match undo::lock(&path, Lock::Try) {
            Err(why) if why.kind() == ErrorKind::WouldBlock => {
                wait();
                undo::lock(&path, Lock::Wait).ok()
            }
            turn => turn.ok(),
        }
    }

    /// Removes the entry of a key, damaged or not. False without one.
    ///
    /// # Errors
    /// Errors of removing it.
    pub fn remove(&self, key: &str) -> Result<bool> {
        if !self.folder.is_dir() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        let path = self.path(key);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e).with_context(|| format!("{}: the profile cannot be removed", path.display())),
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{}.toml", file_name(key)))
    }

    fn lock(&self) -> Result<File> {
        let path = self.folder.join(".lock");
        undo::lock(&path, Lock::Wait)
            .with_context(|| format!("{}: the folder of profiles cannot be locked", path.display()))
    }
}

/// Under which key an application is stored: the name that the user gave, else its own with the beginning of its
/// build id.
pub fn key(given: Option<&str>, name: &str, executable: Option<&Executable>) -> String {
    match (given, executable.and_then(Executable::short_id)) {
        (None, Some(build)) => format!("{name}{BUILD}{build}"),
        _ => name.to_owned(),
    }
}

/// A name as a file name: special characters of a path become `%` and two hexadecimal digits.
pub fn file_name(name: &str) -> String {
    let plain =
        |at: usize, byte: u8| byte.is_ascii_alphanumeric() || b"-_+@".contains(&byte) || (byte == b'.' && at > 0);
    let text = |(at, byte): (usize, u8)| {
        if plain(at, byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    name.bytes().enumerate().map(text).collect()
}

/// The key of a file's name; `None` for other files.
pub fn key_of(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    let mut bytes = Vec::new();
    let mut rest = stem.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => u8::from_str_radix(std::str::from_utf8(&[rest.next()?, rest.next()?]).ok()?, 16).ok()?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_model::profile::AppStamp;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            Self(std::env::temp_dir().join(format!("cotenant-store-{}-{test}", std::process::id())))
        }

        fn store(&self) -> Store {
            Store::at(self.0.clone(), Some(Stamp { processor: "this".into(), ..Stamp::default() }))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn of(signal: &str, date: &str, build_id: &str) -> AppProfile {
        let stamp = AppStamp {
            date: date.into(),
            executable: Executable {
                path: "/proc/self/exe".into(),
                build_id: build_id.into(),
                ..Executable::default()
            },
            machine: Stamp { processor: "this".into(), ..Stamp::default() },
            ..AppStamp::default()
        };
        let rates = format!("[app.a.per_cpu_s]\n{signal} = 1\n");
        AppProfile { stamp: Some(Box::new(stamp)), ..profile::parse_apps(&rates).unwrap().remove("a").unwrap() }
    }

    /// Promise measure/store: Stored profiles survive kills and simultaneous writers; a damaged one is named with its
    /// place, and never written over.
    #[test]
    fn many_writers_lose_nothing() {
        let folder = Folder::new("writers");
        let signals = ["cycles", "instructions", "inter", "intra", "remote", "llc_misses"];
        std::thread::scope(|scope| {
            for signal in signals {
                let store = folder.store();
                scope.spawn(move || store.merge("a", "a", AppProfile { stamp: None, ..of(signal, "", "") }).unwrap());
            }
            // A concurrent reader sees a complete file or none.
            for _ in 0..200 {
                assert_eq!(folder.store().entries().1, [""; 0]);
            }
        });
        assert_eq!(folder.store().entries().0[0].profile.per_cpu_s.len(), signals.len());
        let left: Vec<String> =
            fs::read_dir(&folder.0).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left.len(), 2, "the file and the lock: {left:?}");
    }

    /// Holds measure/store.
    #[test]
    fn a_damaged_file_is_named_and_the_others_are_used() {
        let folder = Folder::new("damaged");
        let store = folder.store();
        store.merge("good", "good", AppProfile::default()).unwrap();
        fs::write(store.path("bad"), "version = 1\n[app.bad]\nsharing = 3\n").unwrap();
        fs::write(store.path("binary"), [0xff, 0xfe]).unwrap();
        fs::write(store.path("two"), "[app.a]\n[app.b]\n").unwrap();
        let Loaded { apps, notes } = store.load(&BTreeMap::new());
        assert_eq!(apps.keys().collect::<Vec<_>>(), ["good"]);
        let bad = folder.0.join("bad.toml");
        let line =
            format!("{}:3:11: sharing of app bad is 3; it must be between 0 and 1; mend or remove it", bad.display());
        assert!(notes.len() == 3 && notes[0].starts_with(&line), "{notes:?}");
        let refused = store.merge("bad", "bad", AppProfile::default()).unwrap_err().to_string();
        assert!(refused.contains("bad.toml:3:11") && refused.ends_with("mend or remove it"), "{refused}");
        assert!(store.remove("bad").unwrap() && !store.remove("bad").unwrap());
    }

    /// Promise measure/profiles: Stored profiles and contentiousness models are used where they fit; profiles come
    /// back from an export unchanged, and give way to `--profiles`.
    #[test]
    fn the_build_that_runs_is_chosen_and_a_stale_one_is_said() {
        let folder = Folder::new("builds");
        let store = folder.store();
        store.merge("a@11111111", "a", of("cycles", "2026-01-01", "1111111122")).unwrap();
        store.merge("a@33333333", "a", of("inter", "2026-02-01", "3333333344")).unwrap();
        let load = |build: &str| {
            let executable = Executable { path: "/bin/a".into(), build_id: build.into(), ..Executable::default() };
            let loaded = store.load(&BTreeMap::from([("a".to_owned(), executable)]));
            (loaded.apps["a"].per_cpu_s.keys().next().unwrap().name(), loaded.notes)
        };
        assert_eq!(load("1111111122").0, "cycles");
        assert_eq!(load("3333333344").0, "inter");
        let (latest, notes) = load("55555555");
        assert!(latest == "inter" && notes[0].contains("is stale: the executable"), "{notes:?}");
        assert!(store.load(&BTreeMap::new()).notes.is_empty(), "nobody runs it");
    }

    #[test]
    fn names_become_files_and_back() {
        for name in ["redis-server", "a/../b", "..", ".lock", "my job 50%", "é", "a@0badcafe"] {
            let file = PathBuf::from(format!("{}.toml", file_name(name)));
            assert_eq!(file.components().count(), 1, "{name}");
            assert_eq!(key_of(&file).as_deref(), Some(name));
            assert!(!file_name(name).starts_with('.'));
        }
    }
}
