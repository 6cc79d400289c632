//! Temporary folders.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed on drop.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates one; the name helps to find its test.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("cotenant-{name}-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                // An earlier process with this id was killed and left its folder.
                Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.expect("a new folder below the temporary one");
                    return Self(path);
                }
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and makes the folders on the way.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A process that is about to end may still write into it.
        let written = |why: std::io::Error| why.kind() == ErrorKind::DirectoryNotEmpty;
        while fs::remove_dir_all(&self.0).is_err_and(written) {}
    }
}
