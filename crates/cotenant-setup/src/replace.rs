//! Files that exist completely or not at all.

use cotenant_linux::sys::{self, Lock};
use cotenant_linux::{undo, worker};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SendError, Sender};
use std::thread::{self, JoinHandle};

/// Names tried for a draft, because stale or foreign ones may exist.
const DRAFTS: u32 = 16;

/// Writes beside the file and renames: readers see the old or the new text, never a part. The target of our or root's
/// link is replaced, and a pipe or device is written to.
///
/// # Errors
/// Errors of writing; the old file then still exists.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let link =
        fs::symlink_metadata(path).is_ok_and(|what| what.is_symlink() && ![0, sys::euid()].contains(&what.uid()));
    if link {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is a symbolic link of another user"));
    }
    if fs::metadata(path).is_ok_and(|what| !what.is_file()) {
        return fs::write(path, bytes);
    }
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (mut file, draft) = draft(path)?;
    let mut attempt = || {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    attempt().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// The same; makes a missing folder.
///
/// # Errors
/// As [`replace`].
pub fn replace_with_folder(path: &Path, bytes: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    replace(path, bytes)
}

/// The right to change a file, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    lock: PathBuf,
    _held: File,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.lock); // a waiting process creates another one
    }
}

/// Waits until no other process changes this file, which requires this lock. `None` if it cannot be locked: writing
/// gives the reason.
pub fn lock(path: &Path) -> Option<Turn> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(".lock");
    let lock = path.with_file_name(name);
    let held = undo::lock(&lock, Lock::Wait).ok()?;
    Some(Turn { lock, _held: held })
}

/// A write that is due.
type Job = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Writes files on its own thread, because a disk may be slower than the longest allowed pause. Dropping it waits until
/// all is written.
#[derive(Debug)]
pub struct Writer {
    files: Option<Sender<(PathBuf, Job)>>,
    failed: Receiver<(PathBuf, io::Error)>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Begins.
    pub fn begin() -> Self {
        let (files, to_write) = mpsc::channel::<(PathBuf, Job)>();
        let (fail, failed) = mpsc::channel();
        let write = move || {
            for (file, write) in to_write {
                let written = worker::caught("the writer of files", write);
                if let Err(why) = written.unwrap_or_else(|why| Err(io::Error::other(why))) {
                    let _ = fail.send((file, why)); // the receiver may have gone
                }
            }
        };
        let thread = thread::Builder::new().name("writer".to_owned()).stack_size(256 << 10).spawn(write).ok();
        Self { files: Some(files), failed, thread }
    }

    /// Replaces the file soon; makes a missing folder.
    ///
    /// # Errors
    /// No thread could be started, and writing directly failed.
    pub fn write(&self, file: PathBuf, text: String) -> io::Result<()> {
        self.run(file.clone(), move || replace_with_folder(&file, text.as_bytes()))
    }

    /// Has a file changed soon.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn run(&self, file: PathBuf, change: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        match self.files.as_ref().map(|files| files.send((file, Box::new(change)))) {
            Some(Err(SendError((_, change)))) => change(),
            _ => Ok(()),
        }
    }

    /// The same; `then` gets the result, instead of [`Self::failed`].
    pub fn write_then(&self, file: PathBuf, text: String, then: impl FnOnce(io::Result<()>) + Send + 'static) {
        let write = move |file: &Path| {
            then(replace_with_folder(file, text.as_bytes()));
            Ok(())
        };
        let _ = self.run(file.clone(), move || write(&file)); // `then` was notified
    }

    /// Failed writes since the last call, with reasons.
    pub fn failed(&self) -> Vec<(PathBuf, io::Error)> {
        self.failed.try_iter().collect()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.files = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its errors have no receiver any more
        }
    }
}

/// Whether [`replace`] could write the file now.
///
/// # Errors
/// The error it would return.
pub fn can_replace(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(what) if what.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(what) if !what.is_file() => Ok(()),
        _ => draft(path).and_then(|(_, draft)| fs::remove_file(draft)),
    }
}

/// A new file beside `path`: an existing one of its name is never opened.
fn draft(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut tried = 0;
    loop {
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}-{tried}", std::process::id()));
        let draft = path.with_file_name(draft);
        match File::create_new(&draft) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tried < DRAFTS => tried += 1,
            made => return Ok((made?, draft)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn drafts_are_new_files() {
        let folder = std::env::temp_dir().join(format!("cotenant-replace-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let (victim, path) = (folder.join("victim"), folder.join("a"));
        fs::write(&victim, "mine").unwrap();
        for name in [format!(".a.{}", std::process::id()), format!(".a.{}-0", std::process::id())] {
            symlink(&victim, folder.join(name)).unwrap();
        }
        replace(&path, b"new").unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&path).unwrap()), (b"mine".to_vec(), b"new".to_vec()));
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        // Our own links are followed; another user's are not.
        let link = folder.join("link");
        symlink(&path, &link).unwrap();
        replace(&link, b"newer").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        if sys::euid() == 0 {
            std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
            let why = replace(&link, b"newest").unwrap_err().to_string();
            assert_eq!(why, "it is a symbolic link of another user");
            assert_eq!(fs::read(&path).unwrap(), b"newer");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
