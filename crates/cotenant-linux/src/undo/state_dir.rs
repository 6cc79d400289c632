//! The folder with the state of a user's Cotenants, and its owner.

use crate::bounded::{self, Limit};
use crate::sys::thread::Identity;
use crate::sys::{self, Lock};
use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why no changes are possible.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No place for the journal.
    #[error("no place for the journal: neither COTENANT_STATE_DIR nor XDG_STATE_HOME nor HOME is set; set one of them")]
    NoStateDir,
    /// No variable names that place.
    #[error("COTENANT_STATE_DIR: '{}' is not an absolute path; name a folder from / on", .0.display())]
    Relative(PathBuf),
    /// `/proc` cannot be read.
    #[error("cannot read /proc: {0}; mount it")]
    Proc(io::Error),
}

/// Names the folder of the state.
const STATE_DIR: &str = "COTENANT_STATE_DIR";

/// The state folder of a user's Cotenants: `$COTENANT_STATE_DIR`; else `/run/cotenant` for root;
/// `$XDG_STATE_HOME/cotenant`, else `$HOME/.local/state/cotenant`, else `/run/user/UID/cotenant` for others. The last
/// one is removed at logout, while programs under nohup continue, so it is the last choice. Root of a user namespace
/// counts as one of the others unless it owns `/run`.
///
/// # Errors
/// The environment names none of them, or a relative path.
pub fn default_state_dir() -> Result<PathBuf, OpenError> {
    let uid = sys::euid();
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(named) = env::var_os(STATE_DIR).filter(|named| !named.is_empty()).map(PathBuf::from) {
        return if named.is_absolute() { Ok(named) } else { Err(OpenError::Relative(named)) };
    }
    let roots = PathBuf::from("/run/cotenant");
    // Independent of any other environment: a shell and a systemd unit must agree.
    if uid == 0 && (is_initial_namespace() || secure_dir(&roots).is_ok()) {
        return Ok(roots);
    }
    let run = PathBuf::from(format!("/run/user/{uid}"));
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .or_else(|| run.is_dir().then_some(run))
        .map(|base| base.join("cotenant"))
        .ok_or(OpenError::NoStateDir)
}

/// Whether user ids are those of the machine.
fn is_initial_namespace() -> bool {
    match bounded::text("/proc/self/uid_map", Limit::Value) {
        Ok(map) => map.split_ascii_whitespace().eq(["0", "0", "4294967295"]),
        // A kernel without user namespaces.
        Err(why) => why.kind() == io::ErrorKind::NotFound,
    }
}

/// [`secure_dir`] of the folder of the state.
///
/// # Errors
/// Likewise, with advice.
pub fn secure_state_dir(dir: &Path) -> io::Result<()> {
    secure_dir(dir).map_err(|why| elsewhere(dir, &why))
}

/// An error of a folder of the state, with a way out.
pub fn elsewhere(dir: &Path, why: &io::Error) -> io::Error {
    let text = format!("{}: {why}; name a folder of your own by {STATE_DIR}", dir.display());
    io::Error::new(why.kind(), text)
}

/// Scope of process ids: one boot of one machine, seen from one pid namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// `/etc/machine-id`, otherwise the host name: distinguishes our earlier boots from other machines with the same
    /// home directory.
    pub host: String,
    /// Inode of the pid namespace.
    pub pidns: u64,
}

impl Here {
    /// This machine, now.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn read() -> io::Result<Self> {
        let line = |path: &str| {
            Ok::<_, io::Error>(bounded::text(path, Limit::Value)?.trim().replace(char::is_whitespace, "_"))
        };
        Ok(Self {
            boot: line("/proc/sys/kernel/random/boot_id")?,
            host: line("/etc/machine-id")
                .ok()
                .filter(|id| !id.is_empty())
                .map_or_else(|| line("/proc/sys/kernel/hostname"), Ok)?,
            pidns: fs::metadata("/proc/self/ns/pid")?.ino(),
        })
    }

    /// A short form for file names.
    pub fn tag(&self) -> String {
        format!("{}-{}", self.boot.get(..8).unwrap_or("noboot"), self.pidns)
    }
}

/// The name of the journal of that Cotenant.
pub fn file_name(here: &Here, (pid, start): Identity) -> String {
    format!("journal-{}-{pid}-{start}", here.tag())
}

/// Creates the folder for us only, or checks that others cannot write into it.
///
/// # Errors
/// If it cannot be created, is no folder (symbolic links are not followed), or belongs to or is writable by other
/// users.
pub fn secure_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let meta = fs::symlink_metadata(dir)?;
    match () {
        () if !meta.is_dir() => refuse("it is not a folder"),
        () if meta.uid() != sys::euid() => refuse("it belongs to another user"),
        () if meta.mode() & 0o022 != 0 => refuse("others can write into it (chmod 700)"),
        () => Ok(()),
    }
}

/// Creates a folder whose content may be shown to others, or checks that others cannot replace our files in it.
///
/// # Errors
/// If it cannot be created, belongs to a user other than us and root, or lets all users rename its files.
pub fn open_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let meta = fs::metadata(dir)?;
    match meta.mode() & 0o1002 {
        _ if meta.uid() != sys::euid() && meta.uid() != 0 => refuse("it belongs to another user"),
        0o0002 => refuse("all users can replace what is in it (chmod o-w)"),
        _ => Ok(()),
    }
}

/// Opens a file of this user to append to, or makes it. Links are not followed, since others may have made one under
/// that name.
///
/// # Errors
/// As `open`; `PermissionDenied` if it is not a regular file of this user with this name alone.
pub fn append_own(path: &Path) -> io::Result<File> {
    let open = |new: bool| {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(new).custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY).open(path)
    };
    let file = match open(true) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match open(false) {
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return refuse("it is a symbolic link; remove it"),
            there => there?,
        },
        new => return new,
    };
    let meta = file.metadata()?;
    match () {
        () if !meta.is_file() => refuse("it is not a regular file"),
        () if meta.uid() != sys::euid() => refuse("it belongs to another user"),
        () if meta.nlink() != 1 => refuse("it is a hard link; remove it"),
        () => Ok(file),
    }
}

fn refuse<T>(why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Makes a new locked file of this user, to be renamed once complete, in place of a previous one.
///
/// # Errors
/// As [`open_own`].
pub fn draft(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = open_own(OpenOptions::new().read(true).append(true).create_new(true), path)?;
    sys::flock(&file, Lock::Try).map(|()| file)
}

/// Takes the lock file of this user, made if missing. Closing it releases the lock.
///
/// A process that can open a file can hold its lock indefinitely, so others must not: a file left open to others by an
/// earlier release is replaced.
///
/// # Errors
/// `WouldBlock` under [`Lock::Try`] while it is taken; `PermissionDenied` if another kind of file is there.
pub fn lock(path: &Path, how: Lock) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut open = || {
        let file = open_own(&mut options, path)?;
        if file.metadata()?.is_file() { Ok(file) } else { refuse("it is not a regular file") }
    };
    if open()?.metadata()?.mode() & 0o077 != 0 {
        fs::remove_file(path)?;
    }
    loop {
        if let Some(file) = locked(open()?, path, how)? {
            return Ok(file);
        }
    }
}

/// Takes the lock of a file of this user; `None` if it does not exist any more.
///
/// # Errors
/// `WouldBlock` under [`Lock::Try`] while it is taken.
pub fn lock_there(path: &Path, how: Lock) -> io::Result<Option<File>> {
    loop {
        let file = match open_own(OpenOptions::new().read(true), path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if let Some(file) = locked(file, path, how)? {
            return Ok(Some(file));
        }
    }
}

/// The file, locked; `None` if it was replaced or removed meanwhile.
fn locked(file: File, path: &Path, how: Lock) -> io::Result<Option<File>> {
    sys::flock(&file, how)?;
    match fs::symlink_metadata(path) {
        Ok(now) if now.ino() == file.metadata()?.ino() => Ok(Some(file)),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}

/// Opens a file of ours without following links; refuses one of another user.
///
/// # Errors
/// As `open`, and `PermissionDenied`.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)?;
    if file.metadata()?.uid() == sys::euid() { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_testing::TempDir;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn folders_in_which_others_can_write_are_refused() {
        let dir = TempDir::new("folders");
        let told = |made: io::Result<()>| made.err().map(|e| e.to_string());
        for (mode, secure, open) in [
            (0o700, true, true),
            (0o755, true, true),
            (0o720, false, true),
            (0o702, false, false),
            (0o777, false, false),
            // All users may write, but not replace others' files.
            (0o1777, false, true),
        ] {
            let path = dir.path().join(format!("{mode:o}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let why = (!secure).then(|| "others can write into it (chmod 700)".to_owned());
            assert_eq!(told(secure_dir(&path)), why, "{mode:o}");
            let why = (!open).then(|| "all users can replace what is in it (chmod o-w)".to_owned());
            assert_eq!(told(open_dir(&path)), why, "{mode:o}");
        }
        symlink("700", dir.path().join("link")).unwrap();
        assert_eq!(told(secure_dir(&dir.path().join("link"))).as_deref(), Some("it is not a folder"));
        // Makes a missing folder, for this user alone.
        let new = dir.path().join("new/er");
        secure_dir(&new).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o7777, 0o700);
        open_dir(&dir.path().join("to/show")).unwrap();
    }

    /// Claims and journals of one boot and container stand beside those of others.
    #[test]
    fn files_are_named_by_boot_container_and_process() {
        let here = Here { boot: "0123456789abcdef".to_owned(), host: "host".to_owned(), pidns: 42 };
        assert_eq!(file_name(&here, (7, 99)), "journal-01234567-42-7-99");
        assert_eq!(Here { boot: "0123456".to_owned(), ..here }.tag(), "noboot-42");
    }

    #[test]
    fn a_draft_takes_the_place_of_what_was_left_there() {
        let dir = TempDir::new("draft");
        let path = dir.path().join("file.new");
        fs::write(&path, "left").unwrap();
        draft(&path).unwrap().write_all(b"whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(draft(&dir.path().join("none/file.new")).is_err() && draft(dir.path()).is_err());
    }

    /// Holds daemon/hostile.
    #[test]
    fn a_lock_is_ours_alone_to_hold() {
        let dir = TempDir::new("lock-own");
        let path = dir.path().join("a.lock");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        // Another process holds one that an earlier release has left open to all.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let theirs = File::open(&path).unwrap();
        sys::flock(&theirs, Lock::Try).unwrap();
        let ours = lock(&path, Lock::Try).unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(lock(&path, Lock::Try).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // The file may be removed while it is locked: the next lock makes another one.
        fs::remove_file(&path).unwrap();
        drop(ours);
        drop(lock(&path, Lock::Wait).unwrap());
        assert!(lock_there(&path, Lock::Wait).unwrap().is_some());
        assert!(lock_there(&dir.path().join("none"), Lock::Try).unwrap().is_none());
        symlink("a.lock", dir.path().join("link")).unwrap();
        assert!(lock(&dir.path().join("link"), Lock::Try).is_err(), "links are not followed");
        assert!(std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
        assert!(lock(&dir.path().join("pipe"), Lock::Try).is_err());
        if sys::euid() == 0 {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert_eq!(lock(&path, Lock::Try).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn only_own_files_are_appended_to() {
        let dir = TempDir::new("append");
        let at = |name: &str| dir.path().join(name);
        for text in ["one\n", "two\n"] {
            append_own(&at("log")).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(at("log")).unwrap(), "one\ntwo\n");
        symlink("log", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        fs::hard_link(at("log"), at("hard")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        for (name, why) in [
            ("pipe", "it is not a regular file"),
            ("link", "it is a symbolic link; remove it"),
            ("hard", "it is a hard link; remove it"),
            // The file is not searched for elsewhere: the kernel gives the reason.
            ("loop/log", "Too many levels of symbolic links"),
            ("none/log", "No such file or directory"),
        ] {
            let told = append_own(&at(name)).unwrap_err().to_string();
            assert!(told.starts_with(why), "{name}: {told}");
        }
    }
}
