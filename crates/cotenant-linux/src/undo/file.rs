//! A journal's file: append-only text, one record per line with its CRC-32.
//!
//! A line is written (`write`) before the system call that it announces, which suffices against the death of any
//! process, because the page cache outlives it. There is no `fsync`: after a power loss nothing needs undoing, since
//! masks end with the machine.
//!
//! The file is locked (`flock`) by its owner, so that changes of a live Cotenant are not undone.

use crate::bounded::{self, Limit};
use crate::fault::around;
use crate::sys::thread::Identity;
use crate::undo::state_dir::{self, Here, file_name, secure_state_dir};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// First word of a journal, with the version of its format.
const MAGIC: &str = "cotenant-journal-1";

/// Name of an incomplete journal.
pub const DRAFT: &str = "new";

/// Name of a finished journal with changes that could not be undone.
const KEPT: &str = "kept";

/// A journal that is being written.
#[derive(Debug)]
pub struct JournalFile {
    file: File,
    path: PathBuf,
    /// Bytes of whole records.
    len: u64,
    /// A torn record could not be cut off: records after it might be lost, so writing ends.
    broken: bool,
    header: String,
}

impl JournalFile {
    /// Creates the journal of a run, locked, with its header.
    ///
    /// # Errors
    /// Any of the file system's.
    pub fn create(dir: &Path, here: &Here, owner: Identity) -> io::Result<Self> {
        secure_state_dir(dir)?;
        Self::write_whole(&dir.join(file_name(here, owner)), header(here, owner), &[])
    }

    /// Writes under another name, locks, then renames: under its own name a journal is always complete and locked.
    fn write_whole(path: &Path, header: String, lines: &[String]) -> io::Result<Self> {
        // Each has its own draft: a kept one may be written beside another journal of the same process.
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{DRAFT}"));
        let draft = PathBuf::from(draft);
        let mut file = around("journal.create", || state_dir::draft(&draft))?;
        let text: String = std::iter::once(&header).chain(lines).map(|line| sealed(line)).collect();
        around("journal.header", || file.write_all(text.as_bytes()).and_then(|()| fs::rename(&draft, path)))
            .inspect_err(|_| drop(fs::remove_file(&draft)))?;
        Ok(Self { file, path: path.to_owned(), len: text.len() as u64, broken: false, header })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.len
    }

    /// Writes a record; on failure the journal is as before.
    ///
    /// # Errors
    /// A full disk, mostly.
    pub fn append(&mut self, record: &str) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier record is torn"));
        }
        let line = sealed(record);
        let written = around("journal.append", || self.file.write_all(line.as_bytes()));
        match written {
            Ok(()) => self.len += line.len() as u64,
            Err(_) => self.broken = self.file.set_len(self.len).is_err(),
        }
        written
    }

    /// Replaces all records by these, in one step.
    ///
    /// # Errors
    /// Errors of the file system; the journal is then unchanged.
    pub fn compact(&mut self, lines: &[String]) -> io::Result<()> {
        *self = around("journal.compact", || Self::write_whole(&self.path, self.header.clone(), lines))?;
        Ok(())
    }

    /// Deletes it: nothing was changed.
    pub fn remove(self) {
        remove(&self.path);
    }

    /// Ends its use, see [`close`].
    pub fn close(self, left: &[String]) {
        close(&self.path, self.header, left);
    }
}

/// Finishes a journal whose changes are undone, except for these lines. Without any it is deleted. Otherwise only they
/// stay for the next restore, because the rest may by then be due to others; under another name, because claims last as
/// long as a journal with their owner's name.
pub fn close(path: &Path, header: String, left: &[String]) {
    if !left.is_empty() {
        let kept = path.with_extension(KEPT);
        // A process with several journals in sequence may have kept an earlier one.
        let other = File::open(&kept).ok().filter(|_| kept != path);
        let earlier = other.and_then(|mut file| read(&mut file).ok()?).map_or_else(Vec::new, |other| other.lines);
        // If that cannot be written, everything is undone again.
        if JournalFile::write_whole(&kept, header, &[&earlier[..], left].concat()).is_err() || kept == path {
            return;
        }
    }
    remove(path);
}

/// Deletes a journal whose changes are undone.
pub fn remove(path: &Path) {
    // If this fails, undoing again is harmless, since no change is left.
    let _ = around("journal.remove", || fs::remove_file(path));
}

pub(crate) fn header(here: &Here, owner: Identity) -> String {
    format!("{MAGIC} boot={} host={} pidns={} owner={}:{}", here.boot, here.host, here.pidns, owner.0, owner.1)
}

/// A line with its checksum.
pub(crate) fn sealed(text: &str) -> String {
    format!("{text}\t{:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The text of a line with a valid checksum.
fn unsealed(line: &[u8]) -> Option<&str> {
    let (text, crc) = std::str::from_utf8(line).ok()?.rsplit_once('\t')?;
    (crc.len() == 8 && u32::from_str_radix(crc, 16).ok()? == crc32fast::hash(text.as_bytes())).then_some(text)
}

/// The complete lines at the beginning of these bytes, and their length.
pub fn whole_lines(bytes: &[u8]) -> (impl Iterator<Item = &str>, usize) {
    let len = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    (bytes[..len].split(|b| *b == b'\n').filter_map(unsealed), len)
}

/// A journal as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The scope of its ids.
    pub here: Here,
    /// The Cotenant that wrote it.
    pub owner: Identity,
    /// Its records in order, one per line.
    pub lines: Vec<String>,
    /// Lines with an invalid checksum: the last one if its writer died within it.
    pub torn: usize,
}

/// Reads a journal; `None` if its header is incomplete, so that no change can have been applied under it.
///
/// # Errors
/// It cannot be read, or another version of Cotenant wrote it.
pub fn read(file: &mut File) -> io::Result<Option<Contents>> {
    let bytes = bounded::rest(file, Limit::Own)?;
    match other_version(&bytes) {
        Some(magic) => Err(io::Error::other(format!(
            "another version of cotenant wrote it ({magic}): call restore of that version, or delete it if the machine \
             has been restarted since"
        ))),
        None => Ok(parse(&bytes)),
    }
}

/// The first word, if it is of another format.
pub(crate) fn other_version(bytes: &[u8]) -> Option<&str> {
    let magic = std::str::from_utf8(bytes.split(|b| *b == b' ').next()?).ok()?;
    let number = magic.strip_prefix(MAGIC.trim_end_matches(char::is_numeric))?;
    (magic != MAGIC && number.parse::<u32>().is_ok() && magic.len() < bytes.len()).then_some(magic)
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Contents> {
    let mut lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let (here, owner) = lines.next().and_then(unsealed).and_then(parse_header)?;
    let read: Vec<Option<&str>> = lines.map(unsealed).collect();
    let torn = read.iter().filter(|line| line.is_none()).count();
    Some(Contents { here, owner, lines: read.into_iter().flatten().map(str::to_owned).collect(), torn })
}

fn parse_header(text: &str) -> Option<(Here, Identity)> {
    let mut words = text.split(' ');
    (words.next()? == MAGIC).then_some(())?;
    let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
    let here = Here { boot: value("boot")?, host: value("host")?, pidns: value("pidns")?.parse().ok()? };
    let owner = value("owner")?;
    let (pid, start) = owner.split_once(':')?;
    Some((here, (pid.parse().ok()?, start.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::thread;
    use crate::sys::{self, Lock};
    use crate::undo::state_dir::open_own;
    use cotenant_testing::{TempDir, eventually};
    use std::fs::OpenOptions;
    use std::os::unix::fs::PermissionsExt;

    fn record(tid: u32) -> String {
        format!("set {tid} 9 3 2 77 0-3,1500 0")
    }

    fn journal(dir: &Path) -> JournalFile {
        JournalFile::create(dir, &Here::read().unwrap(), thread::own().unwrap()).unwrap()
    }

    #[test]
    fn reads_back_what_was_written() {
        let dir = TempDir::new("journal");
        let mut journal = journal(dir.path());
        let records = [record(4), "left 4 9".to_owned(), record(5), "group 2 /a%20b -".to_owned()];
        for record in &records {
            journal.append(record).unwrap();
        }
        let read_back = || read(&mut File::open(journal.path()).unwrap()).unwrap().unwrap();
        let contents = read_back();
        assert_eq!((&contents.lines[..], contents.torn), (&records[..], 0));
        assert_eq!((contents.here, contents.owner), (Here::read().unwrap(), thread::own().unwrap()));
        journal.compact(&records[2..3]).unwrap();
        journal.append(&record(6)).unwrap();
        assert_eq!(read(&mut File::open(journal.path()).unwrap()).unwrap().unwrap().lines, [record(5), record(6)]);
        assert_eq!(fs::metadata(journal.path()).unwrap().len(), journal.size());
    }

    #[test]
    fn any_torn_tail_leaves_the_rest() {
        let dir = TempDir::new("torn");
        let mut journal = journal(dir.path());
        let header = journal.size() as usize;
        journal.append(&record(4)).unwrap();
        let whole = journal.size() as usize;
        journal.append(&record(5)).unwrap();
        let bytes = fs::read(journal.path()).unwrap();
        let cut = dir.path().join("cut");
        for len in 0..bytes.len() {
            fs::write(&cut, &bytes[..len]).unwrap();
            let contents = read(&mut File::open(&cut).unwrap()).unwrap();
            // A line counts as soon as its checksum is complete; the line feed only ends it.
            let expected = [header, whole, bytes.len()].iter().filter(|end| len + 1 >= **end).count();
            assert_eq!(contents.map_or(0, |c| c.lines.len() + 1), expected, "cut at {len}");
        }
    }

    #[test]
    fn a_journal_of_another_version_is_refused_by_name() {
        let dir = TempDir::new("version");
        let path = dir.path().join("journal");
        let read_back = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&mut File::open(&path).unwrap())
        };
        let why = read_back("cotenant-journal-2 whatever follows\n").unwrap_err().to_string();
        assert!(why.contains("another version of cotenant wrote it (cotenant-journal-2)"), "{why}");
        for torn in ["", "cotenant-jour", "cotenant-journal-", "cotenant-journal-1", "cotenant-journal-2", "a b\n"] {
            assert_eq!(read_back(torn).unwrap(), None, "{torn}");
        }
    }

    #[test]
    fn nobody_else_reads_or_redirects_it() {
        let dir = TempDir::new("modes");
        let state = dir.path().join("a/b");
        let journal = journal(&state);
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(journal.path())), (0o700, 0o600));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&state, &link).unwrap();
        assert!(state_dir::secure_dir(&link).is_err(), "a link is not followed");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(state_dir::secure_dir(&state).is_err(), "writable by others");
        let target = dir.path().join("target");
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("redirected")).unwrap();
        assert!(open_own(OpenOptions::new().read(true), &dir.path().join("redirected")).is_err());
    }

    #[test]
    fn is_locked_while_its_owner_lives() {
        let dir = TempDir::new("lock");
        let journal = journal(dir.path());
        let other = File::open(journal.path()).unwrap();
        assert!(sys::flock(&other, Lock::Try).is_err());
        drop(journal);
        // Between fork and exec a child of another test still holds it.
        eventually("it is free", || sys::flock(&other, Lock::Try).is_ok());
    }
}
