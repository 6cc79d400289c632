//! Parts of Debian's packages, programs built here, and files of ours that a guest has.

use super::archive::{Archive, FOLDER, LINK, PROGRAM, TEXT};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of a system. All paths are without the first slash.
#[derive(Debug)]
pub struct Contents {
    /// Debian's packages, in which the programs, libraries and units are.
    pub packages: &'static [&'static str],
    /// By their paths. Links are followed, and the file gets the link's name; so with libraries.
    pub programs: &'static [&'static str],
    /// Programs of others that `scripts/test-kubernetes --full` builds, for `usr/bin`.
    pub built: &'static [&'static str],
    /// A program of the folder `kubernetes`, freshly built, for `usr/bin`.
    pub ours: Option<&'static str>,
    pub libraries: &'static [&'static str],
    /// systemd's units.
    pub units: &'static [&'static str],
    /// Empty ones.
    pub folders: &'static [&'static str],
    /// Our own files: by path and text.
    pub files: &'static [(&'static str, &'static str)],
    pub links: &'static [(&'static str, &'static str)],
}

impl Contents {
    /// Adds all of it; the folders have the parts of Debian's packages and the programs that are built here.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn add(&self, archive: &mut Archive, packages: &Path, built: &Path) -> Result<()> {
        let mut files: Vec<(String, u32, Vec<u8>)> = Vec::new();
        let from = |path: PathBuf| fs::read(&path).with_context(|| path.display().to_string());
        let read = |path: &str| from(packages.join(path));
        for path in self.programs {
            files.push(((*path).to_owned(), PROGRAM, read(path)?));
        }
        for name in self.built.iter().copied().chain(self.ours) {
            files.push((format!("usr/bin/{name}"), PROGRAM, from(built.join(name))?));
        }
        for name in self.libraries {
            let [path, other] = ["lib", "usr/lib"].map(|folder| format!("{folder}/x86_64-linux-gnu/{name}"));
            let library = read(&path).or_else(|_| read(&other))?;
            files.push((path, PROGRAM, library));
        }
        for name in self.units {
            let path = format!("lib/systemd/system/{name}");
            let unit = read(&path)?;
            files.push((path, TEXT, unit));
        }
        files.extend(self.files.iter().map(|(path, text)| ((*path).to_owned(), TEXT, text.as_bytes().to_vec())));
        files.extend(self.links.iter().map(|(path, to)| ((*path).to_owned(), LINK, to.as_bytes().to_vec())));
        let mut folders: BTreeSet<&str> =
            self.folders.iter().copied().flat_map(|path| above(path).chain([path])).collect();
        folders.extend(files.iter().flat_map(|(path, ..)| above(path)));
        // Folders of every guest exist already.
        for folder in folders.into_iter().filter(|folder| !["bin", "scenarios"].contains(folder)) {
            archive.add(folder, FOLDER, b"");
        }
        for (path, mode, content) in &files {
            archive.add(path, *mode, content);
        }
        Ok(())
    }
}

/// The folders above a path, the outermost first.
pub fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
