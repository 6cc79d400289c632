//! Folders for temporary files of a command.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static MADE: AtomicU32 = AtomicU32::new(0);

/// A new folder below the temporary one, removed with all that is in it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// `name` is part of its own.
    ///
    /// # Errors
    /// Errors of making it.
    pub fn new(name: &str) -> io::Result<Self> {
        let (below, pid) = (std::env::temp_dir(), std::process::id());
        loop {
            let path = below.join(format!("cotenant-{name}-{pid}-{}", MADE.fetch_add(1, Ordering::Relaxed)));
            match fs::create_dir(&path) {
                // Left by a process of that id that was killed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
